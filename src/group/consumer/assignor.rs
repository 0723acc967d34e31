//! Who is to have which partitions. Pure functions of members, topics and what was so far.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_types::TopicId;
use thalweg_types::limits::ASSIGNOR_BALANCE_PASSES_MAX;

use super::partitions::Partitions;

/// A way to share out (`group.consumer.assignors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Everybody gets about as many, and keeps what it had.
    Uniform,
    /// Of each topic, everybody gets one run of neighbours.
    Range,
}

impl Assignor {
    /// Both, in Kafka's order of preference.
    pub const ALL: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// By Kafka's name.
    #[must_use]
    pub fn named(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|one| one.name() == name)
    }

    /// A share for each member, in their order. Every partition that somebody subscribes to is in
    /// exactly one share.
    pub(crate) fn share_out(self, topics: &[Topic], members: &[Candidate]) -> Vec<Partitions> {
        match self {
            Assignor::Uniform => uniform(topics, members),
            Assignor::Range => range(topics, members),
        }
    }
}

/// A topic to share out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) partitions: i32,
}

/// Somebody to share out to.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Where it comes in the order of members: static ones first, by instance, then by id.
    pub(crate) rank: (bool, Rc<str>),
    /// Indexes of the topics that it subscribes to, ascending. Shared by members alike.
    pub(crate) topics: Rc<[usize]>,
    /// What it was to have so far.
    pub(crate) before: Partitions,
}

fn range(topics: &[Topic], members: &[Candidate]) -> Vec<Partitions> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_unstable_by(|a, b| members[*a].rank.cmp(&members[*b].rank));
    let mut subscribers: Vec<Vec<usize>> = vec![Vec::new(); topics.len()];
    for index in order {
        for topic in members[index].topics.iter() {
            subscribers[*topic].push(index);
        }
    }
    let mut shares: Vec<Vec<(TopicId, i32)>> = vec![Vec::new(); members.len()];
    for (topic, of_topic) in topics.iter().zip(subscribers) {
        let Ok(count) = i32::try_from(of_topic.len()) else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let (each, more) = (topic.partitions / count, topic.partitions % count);
        let mut next = 0;
        for (nth, member) in (0..).zip(of_topic) {
            let end = next + each + i32::from(nth < more);
            shares[member].extend((next..end).map(|partition| (topic.id, partition)));
            next = end;
        }
    }
    in_order(shares)
}

fn in_order(shares: Vec<Vec<(TopicId, i32)>>) -> Vec<Partitions> {
    let shares = shares.into_iter();
    shares
        .map(|share| Partitions::of_pairs(share.into_iter()))
        .collect()
}

/// All partitions as one row of numbers, with the member that is to have each.
struct Row<'a> {
    topics: &'a [Topic],
    members: &'a [Candidate],
    /// Where each topic begins.
    begins: Vec<usize>,
    owners: Vec<Option<usize>>,
    counts: Vec<usize>,
}

fn uniform(topics: &[Topic], members: &[Candidate]) -> Vec<Partitions> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut row = Row::new(topics, members);
    row.keep();
    let first = &members[0].topics;
    let alike = members
        .iter()
        .all(|m| Rc::ptr_eq(&m.topics, first) || m.topics == *first);
    match alike {
        true => row.deal_evenly(),
        false => row.deal_by_subscription(),
    }
    row.shares()
}

impl<'a> Row<'a> {
    fn new(topics: &'a [Topic], members: &'a [Candidate]) -> Row<'a> {
        let mut begins = Vec::with_capacity(topics.len());
        let mut len = 0;
        for topic in topics {
            begins.push(len);
            len += topic.partitions.max(0).unsigned_abs() as usize;
        }
        Row {
            topics,
            members,
            begins,
            owners: vec![None; len],
            counts: vec![0; members.len()],
        }
    }

    /// The places of a topic in the row.
    fn places(&self, topic: usize) -> std::ops::Range<usize> {
        let end = self.begins.get(topic + 1).copied();
        self.begins[topic]..end.unwrap_or(self.owners.len())
    }

    fn give(&mut self, place: usize, member: usize) {
        if let Some(before) = self.owners[place].replace(member) {
            self.counts[before] -= 1;
        }
        self.counts[member] += 1;
    }

    /// Members keep what they had, as far as they still subscribe to it.
    fn keep(&mut self) {
        let index: HashMap<TopicId, usize> = self
            .topics
            .iter()
            .zip(0..)
            .map(|(topic, nth)| (topic.id, nth))
            .collect();
        for member in 0..self.members.len() {
            let candidate = &self.members[member];
            for (id, partition) in candidate.before.iter() {
                let Some(topic) = index.get(&id).copied() else {
                    continue;
                };
                let is_subscribed = candidate.topics.binary_search(&topic).is_ok();
                let is_there = (0..self.topics[topic].partitions).contains(&partition);
                if is_subscribed && is_there {
                    let place = self.begins[topic] + partition.unsigned_abs() as usize;
                    if self.owners[place].is_none() {
                        self.give(place, member);
                    }
                }
            }
        }
    }

    /// All subscribe alike: nobody gets more than one more than another.
    fn deal_evenly(&mut self) {
        let shared: Vec<usize> = self.members[0].topics.to_vec();
        let total: usize = shared.iter().map(|topic| self.places(*topic).len()).sum();
        let each = total / self.members.len();
        let mut more = total % self.members.len();
        let mut quotas = vec![each; self.members.len()];
        // Who has most already gets the remainder, so that less moves.
        for (quota, count) in quotas.iter_mut().zip(&self.counts) {
            if more > 0 && *count > each {
                *quota += 1;
                more -= 1;
            }
        }
        for (quota, count) in quotas.iter_mut().zip(&self.counts) {
            if more > 0 && *count <= each {
                *quota += 1;
                more -= 1;
            }
        }
        for place in (0..self.owners.len()).rev() {
            if let Some(owner) = self.owners[place]
                && self.counts[owner] > quotas[owner]
            {
                self.owners[place] = None;
                self.counts[owner] -= 1;
            }
        }
        // In turn, so that neighbours go to different members.
        let mut turn = 0;
        for topic in shared {
            for place in self.places(topic) {
                if self.owners[place].is_some() {
                    continue;
                }
                while self.counts[turn] >= quotas[turn] {
                    turn = (turn + 1) % self.members.len();
                }
                self.give(place, turn);
                turn = (turn + 1) % self.members.len();
            }
        }
    }

    /// Members subscribe to different topics: who has least gets next, topics with few subscribers
    /// first; then partitions move as long as that evens out.
    fn deal_by_subscription(&mut self) {
        let mut subscribers: Vec<Vec<usize>> = vec![Vec::new(); self.topics.len()];
        for (nth, member) in self.members.iter().enumerate() {
            for topic in member.topics.iter() {
                subscribers[*topic].push(nth);
            }
        }
        let mut order: Vec<usize> = (0..self.topics.len()).collect();
        order.sort_by_key(|topic| subscribers[*topic].len());
        for topic in &order {
            for place in self.places(*topic) {
                let least = subscribers[*topic].iter().min_by_key(|m| self.counts[**m]);
                if let Some(least) = least.copied().filter(|_| self.owners[place].is_none()) {
                    self.give(place, least);
                }
            }
        }
        for _ in 0..ASSIGNOR_BALANCE_PASSES_MAX {
            let mut moved = false;
            for topic in &order {
                moved |= self.even_out(*topic, &subscribers[*topic]);
            }
            if !moved {
                break;
            }
        }
    }

    /// Moves partitions of one topic from who has much to who has little.
    fn even_out(&mut self, topic: usize, subscribers: &[usize]) -> bool {
        let mut moved = false;
        for place in self.places(topic) {
            let least = subscribers.iter().copied().min_by_key(|m| self.counts[*m]);
            let (Some(least), Some(owner)) = (least, self.owners[place]) else {
                continue;
            };
            if self.counts[owner] > self.counts[least] + 1 {
                self.give(place, least);
                moved = true;
            }
        }
        moved
    }

    fn shares(&self) -> Vec<Partitions> {
        let mut shares: Vec<Vec<(TopicId, i32)>> = vec![Vec::new(); self.members.len()];
        for (nth, topic) in self.topics.iter().enumerate() {
            for (partition, place) in (0..).zip(self.places(nth)) {
                if let Some(owner) = self.owners[place] {
                    shares[owner].push((topic.id, partition));
                }
            }
        }
        in_order(shares)
    }
}
