//! The committed offsets of one group.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use thalweg_types::{TimestampMs, TopicId};

use crate::pending_offsets::Place;

/// Bytes that a committed offset takes beside its text.
const OFFSET_BYTES: usize = 112;

/// What a client committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where its group goes on reading.
    pub offset: i64,
    /// Leader epoch of the last record read, -1 when not known (KIP-320).
    pub leader_epoch: i32,
    /// Text of the client's own.
    pub metadata: Box<str>,
    /// When it was committed, by the broker's wall clock.
    pub at: TimestampMs,
    /// When it ends, for old clients that say so; else -1.
    pub expires: TimestampMs,
    /// Which topic of that name it counts in; zero when the record does not say.
    pub topic_id: TopicId,
}

/// By topic and partition. Trees, not hash tables: none of them ever grows by moving all that it holds, and a
/// look at all offsets can be left and taken up again.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    topics: BTreeMap<Rc<str>, BTreeMap<i32, Committed>>,
    bytes: usize,
    len: usize,
}

impl Offsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Partitions with an offset.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&Committed> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Sorted by topic and partition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Rc<str>, i32, &Committed)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, committed)| (topic, *partition, committed))
        })
    }

    /// As [`Offsets::iter`], those behind `place`, which need not be there; all without one.
    pub(crate) fn behind(
        &self,
        place: Option<&Place>,
    ) -> impl Iterator<Item = (&Rc<str>, i32, &Committed)> {
        let topic = place.map(|(topic, _)| &**topic);
        let begun = topic.and_then(|topic| self.topics.get_key_value(topic));
        let rest = begun.zip(place).into_iter();
        let rest = rest.flat_map(|((topic, partitions), (_, last))| {
            let partitions = partitions.range((Excluded(*last), Unbounded));
            partitions.map(move |(partition, committed)| (topic, *partition, committed))
        });
        let from = topic.map_or(Unbounded, Excluded);
        let others = self.topics.range::<str, _>((from, Unbounded));
        rest.chain(others.flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, committed)| (topic, *partition, committed))
        }))
    }

    /// Sets, or with `None` removes.
    pub(crate) fn put(&mut self, topic: &Rc<str>, partition: i32, value: Option<Committed>) {
        match value {
            Some(value) => {
                self.bytes += bytes_of(&value);
                let of_topic = self.topics.entry(Rc::clone(topic)).or_default();
                match of_topic.insert(partition, value) {
                    Some(old) => self.bytes -= bytes_of(&old),
                    None => self.len += 1,
                }
            }
            None => {
                let Some(of_topic) = self.topics.get_mut(topic) else {
                    return;
                };
                if let Some(old) = of_topic.remove(&partition) {
                    self.len -= 1;
                    self.bytes -= bytes_of(&old);
                }
                if of_topic.is_empty() {
                    self.topics.remove(topic);
                }
            }
        }
    }

    /// The name as this table holds it, so that equal names share their bytes.
    pub(crate) fn name_of(&self, topic: &str) -> Rc<str> {
        self.topics
            .get_key_value(topic)
            .map_or_else(|| Rc::from(topic), |(name, _)| Rc::clone(name))
    }
}

/// What a committed offset counts for in the bounds.
pub(crate) fn bytes_of(committed: &Committed) -> usize {
    OFFSET_BYTES + committed.metadata.len()
}
