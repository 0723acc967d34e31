//! Sharing out evenly while as little as possible changes hands (KIP-54).

use std::collections::{BTreeMap, BTreeSet};

use super::{Shares, Subscriber, TopicPartition, in_order};

/// Who keeps what, then who gets what nobody has, then as few moves as make it even.
pub(super) fn share_out(members: &[Subscriber], partitions: &BTreeMap<String, i32>) -> Shares {
    let members = in_order(members);
    let mut table = Table::new(&members, partitions);
    table.keep(&members, partitions);
    table.hand_out(partitions);
    table.even_out();
    table.into_shares(&members)
}

/// Members by their place in the order.
struct Table {
    /// Partitions of each member, by topic.
    held: Vec<BTreeMap<String, BTreeSet<i32>>>,
    loads: Vec<usize>,
    /// Subscribers of each topic that exists, in order.
    subscribers: BTreeMap<String, Vec<usize>>,
    owner: BTreeMap<TopicPartition, usize>,
}

impl Table {
    fn new(members: &[&Subscriber], partitions: &BTreeMap<String, i32>) -> Table {
        let subscribers = partitions.keys().map(|topic| {
            let places = (0..members.len()).filter(|at| members[*at].topics.contains(topic));
            (topic.clone(), places.collect())
        });
        Table {
            held: vec![BTreeMap::new(); members.len()],
            loads: vec![0; members.len()],
            subscribers: subscribers.collect(),
            owner: BTreeMap::new(),
        }
    }

    fn give(&mut self, to: usize, (topic, partition): TopicPartition) {
        let of_topic = self.held[to].entry(topic.clone()).or_default();
        of_topic.insert(partition);
        self.loads[to] += 1;
        self.owner.insert((topic, partition), to);
    }

    /// Of several that claim a partition, the one of the latest generation has it; two of the same
    /// generation can not both be right, and neither keeps it.
    fn keep(&mut self, members: &[&Subscriber], partitions: &BTreeMap<String, i32>) {
        let mut claims: BTreeMap<&TopicPartition, (i32, Option<usize>)> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            for of in &member.owned {
                let exists = partitions
                    .get(&of.0)
                    .is_some_and(|n| (0..*n).contains(&of.1));
                if !exists || !member.topics.contains(&of.0) {
                    continue;
                }
                let claim = claims.entry(of).or_insert((member.generation, Some(at)));
                if claim.0 < member.generation {
                    *claim = (member.generation, Some(at));
                } else if claim.0 == member.generation && claim.1 != Some(at) {
                    claim.1 = None;
                }
            }
        }
        for (of, (_, winner)) in claims {
            if let Some(at) = winner {
                self.give(at, of.clone());
            }
        }
    }

    fn hand_out(&mut self, partitions: &BTreeMap<String, i32>) {
        // Topics with few subscribers first: the others can still make up for it.
        let mut topics: Vec<(&String, &i32)> = partitions.iter().collect();
        topics.sort_by_key(|(topic, _)| self.subscribers[*topic].len());
        for (topic, count) in topics {
            for partition in 0..*count {
                let of = (topic.clone(), partition);
                if self.owner.contains_key(&of) {
                    continue;
                }
                if let Some(to) = self.least_loaded(topic) {
                    self.give(to, of);
                }
            }
        }
    }

    fn least_loaded(&self, topic: &str) -> Option<usize> {
        let subscribers = self.subscribers.get(topic)?;
        subscribers.iter().copied().min_by_key(|at| self.loads[*at])
    }

    /// Moves from whoever has most and can give something, until no move makes it more even. Each move
    /// makes the sum of the squares of the loads smaller, so there is an end.
    fn even_out(&mut self) {
        let mut from: Vec<usize> = (0..self.loads.len()).collect();
        loop {
            // From the most loaded each time: whoever gave more than that would get some back.
            from.sort_by_key(|at| std::cmp::Reverse(self.loads[*at]));
            if !from.iter().any(|at| self.move_one(*at)) {
                return;
            }
        }
    }

    /// Moves one partition to the least loaded member that may have one of these topics, if that makes it
    /// more even.
    fn move_one(&mut self, from: usize) -> bool {
        let topics = self.held[from].keys();
        let to = topics.filter_map(|topic| Some((self.least_loaded(topic)?, topic.clone())));
        let Some((to, topic)) = to.min_by_key(|(to, _)| self.loads[*to]) else {
            return false;
        };
        if self.loads[to] + 2 > self.loads[from] {
            return false;
        }
        let Some(of_topic) = self.held[from].get_mut(&topic) else {
            return false;
        };
        let Some(partition) = of_topic.pop_last() else {
            return false;
        };
        if of_topic.is_empty() {
            self.held[from].remove(&topic);
        }
        self.loads[from] -= 1;
        self.give(to, (topic, partition));
        true
    }

    fn into_shares(self, members: &[&Subscriber]) -> Shares {
        let share = |(member, held): (&&Subscriber, BTreeMap<String, BTreeSet<i32>>)| {
            let partitions = held.into_iter().flat_map(|(topic, partitions)| {
                partitions.into_iter().map(move |p| (topic.clone(), p))
            });
            (member.member_id.clone(), partitions.collect())
        };
        members.iter().zip(self.held).map(share).collect()
    }
}
