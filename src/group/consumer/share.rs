//! Who is to have what: when that must be decided anew, and the decision.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;

use super::assignor::{Assignor, Candidate, Topic};
use super::{ConsumerGroup, ConsumerMember, Key, Refusal, pattern};
use crate::group::Group;
use crate::history::Cause;
use crate::topics::{TopicShape, Topics};
use crate::turn::Turn;

impl Group {
    /// A member's subscription may have changed, and so may topics: raises the epoch of the group if
    /// that asks for another distribution.
    pub(crate) fn refresh_topics(
        &mut self,
        turn: &Turn<'_>,
        regex: Option<&Rc<str>>,
        is_changed: bool,
    ) -> Result<(), Refusal> {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return Ok(());
        };
        let version = turn.topics.version();
        let mut is_due = is_changed || consumer.seen != Some(version);
        if let Some(regex) = regex
            && consumer
                .patterns
                .get(regex)
                .is_none_or(|p| p.seen != Some(version))
        {
            let compiled = pattern::compile(regex)?;
            let topics = pattern::resolve(&compiled, turn.topics);
            let known = consumer.pattern(regex);
            known.seen = Some(version);
            if known.topics != topics {
                consumer.match_topics(regex, topics, turn.now.wall.0);
                self.unlogged.insert(Key::Regex(Rc::clone(regex)));
                is_due = true;
            }
        }
        if !is_due {
            return Ok(());
        }
        consumer.seen = Some(version);
        let hash = consumer.hash(turn.topics);
        if hash != consumer.metadata_hash || is_changed {
            consumer.metadata_hash = hash;
            consumer.epoch = next_epoch(consumer.epoch)?;
            self.unlogged.insert(Key::Group);
            // Members that come and go have said so before.
            self.history.begin(turn.now, Cause::Subscription);
        }
        Ok(())
    }

    /// Members came or went: another distribution is wanted, which the next heartbeat decides.
    pub(crate) fn raise_epoch(&mut self, turn: &Turn<'_>) {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return;
        };
        consumer.metadata_hash = consumer.hash(turn.topics);
        consumer.epoch = next_epoch(consumer.epoch).unwrap_or(consumer.epoch);
        self.unlogged.insert(Key::Group);
        if consumer.members.is_empty() {
            // There is nobody to share out to, and nobody whose heartbeat would say so.
            consumer.set_target_epoch(consumer.epoch);
            self.unlogged.insert(Key::TargetEpoch);
        }
    }

    /// Decides who is to have what, if that is due: something changed, and the last decision is as old as two of
    /// them are to be apart (KIP-1263). What is not due yet comes with a later heartbeat.
    pub(crate) fn share_out_anew(&mut self, turn: &mut Turn<'_>) {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return;
        };
        if consumer.target_epoch >= consumer.epoch {
            return;
        }
        let due = |at: u64| at.saturating_add(turn.assignment_ms(&self.id));
        if consumer.decided_at.is_some_and(|at| turn.now.ms < due(at)) {
            return;
        }
        consumer.decided_at = Some(turn.now.ms);
        consumer.decided_wall_ms = turn.now.wall.0;
        let shares = consumer.decide(turn.topics, &turn.settings.consumer.assignors);
        for (id, share) in shares {
            if consumer.set_target(&id, Some(share)) {
                self.unlogged.insert(Key::Target(id));
            }
        }
        consumer.set_target_epoch(consumer.epoch);
        self.unlogged.insert(Key::TargetEpoch);
        turn.happened.rebalances += 1;
    }
}

/// Epochs only grow, and there is an end to them.
fn next_epoch(epoch: i32) -> Result<i32, Refusal> {
    epoch.checked_add(1).ok_or_else(|| {
        let message = "the group has used up its epochs: delete it";
        Refusal::new(ErrorCode::UnknownServerError, message)
    })
}

impl ConsumerGroup {
    /// A number that is another one when topics are, or their ids or sizes.
    fn hash(&mut self, topics: &Topics) -> i64 {
        self.subscribers.look_up(topics);
        let by_pattern = self.patterns.values().filter(|p| p.members > 0);
        let matched = by_pattern.flat_map(|pattern| pattern.topics.iter());
        let mut shapes: Vec<(&Rc<str>, Option<TopicShape>)> = self.subscribers.topics().collect();
        let by_name = shapes.len();
        shapes.extend(matched.map(|name| (name, topics.topic(name))));
        if shapes.len() > by_name {
            shapes.sort_unstable_by_key(|(name, _)| *name);
            shapes.dedup_by_key(|(name, _)| *name);
        }
        let mut hash = Fnv::new();
        let mut is_any = false;
        for (name, shape) in shapes {
            if let Some(shape) = shape {
                is_any = true;
                hash.add(name.as_bytes());
                hash.add(&shape.id.0);
                hash.add(&shape.partitions.to_be_bytes());
            }
        }
        // As Kafka, which says 0 of no topics.
        if is_any { hash.0.cast_signed() } else { 0 }
    }

    /// A share for each member.
    fn decide(
        &mut self,
        topics: &Topics,
        allowed: &[Assignor],
    ) -> Vec<(Rc<str>, super::Partitions)> {
        self.subscribers.look_up(topics);
        let mut shapes: Vec<Topic> = Vec::new();
        let mut add = |shape: TopicShape| {
            shapes.push(Topic {
                id: shape.id,
                partitions: shape.partitions,
            });
            shapes.len() - 1
        };
        let by_name = self.subscribers.topics();
        let mut index: HashMap<&str, Option<usize>> = by_name
            .map(|(name, shape)| (&**name, shape.map(&mut add)))
            .collect();
        // Members alike share a list, so where it stands tells them.
        let mut alike: HashMap<(usize, Option<&str>), Rc<[usize]>> = HashMap::new();
        let mut members: Vec<Candidate> = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let list = Rc::as_ptr(&member.topics).addr();
            let wanted = alike.entry((list, member.regex.as_deref()));
            let wanted = wanted.or_insert_with(|| {
                let names = self.names_of(member);
                let wanted = names.filter_map(|name| {
                    let known = index.entry(name);
                    *known.or_insert_with(|| topics.topic(name).map(&mut add))
                });
                let mut wanted: Vec<usize> = wanted.collect();
                wanted.sort_unstable();
                wanted.dedup();
                wanted.into()
            });
            let rank = match &member.instance {
                Some(instance) => (false, Rc::clone(instance)),
                None => (true, Rc::clone(&member.id)),
            };
            members.push(Candidate {
                rank,
                topics: Rc::clone(wanted),
                before: self.targets.get(&member.id).cloned().unwrap_or_default(),
            });
        }
        let shares = self.assignor(allowed).share_out(&shapes, &members);
        self.members.keys().cloned().zip(shares).collect()
    }

    /// Names that a member subscribes to, in whichever way.
    fn names_of<'a>(&'a self, member: &'a ConsumerMember) -> impl Iterator<Item = &'a Rc<str>> {
        let pattern = member
            .regex
            .as_ref()
            .and_then(|regex| self.patterns.get(regex));
        let matched = pattern
            .into_iter()
            .flat_map(|pattern| pattern.topics.iter());
        member.topics.iter().chain(matched)
    }

    /// The way to share out that most members ask for; the first that the broker has when none does.
    pub(crate) fn assignor(&self, allowed: &[Assignor]) -> Assignor {
        let votes = |one: &Assignor| {
            let asked = self.members.values().filter_map(|m| m.assignor.as_deref());
            asked.filter(|name| *name == one.name()).count()
        };
        let mut best = (Assignor::Uniform, 0);
        for (nth, one) in allowed.iter().enumerate() {
            let count = votes(one);
            if nth == 0 || count > best.1 {
                best = (*one, count);
            }
        }
        best.0
    }
}

/// FNV-1a over 64 bits: small, and the same in every release, as it stands in the log.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        // Its length first, so that no two lists of texts run together.
        for byte in (bytes.len() as u64).to_be_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
