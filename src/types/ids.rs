//! Newtypes for the numbers that must not be mixed up.

use std::fmt;

use crate::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// Position of a record in its partition, counted from 0. An *end* offset is the offset that the
    /// next record will get.
    Offset(i64)
);
number!(
    /// Counts the leaderships of one partition (KIP-101). -1 on the wire means "not known".
    LeaderEpoch(i32)
);
number!(
    /// `node.id` of a broker.
    BrokerId(i32)
);
number!(
    /// Index of a listener among those for clients, from 0, in the order of `listeners`.
    ListenerIndex(u16)
);
number!(
    /// Index of a partition in its topic, from 0.
    PartitionIndex(i32)
);
number!(
    /// Id that a producer got from InitProducerId (KIP-98); -1 means a producer without one.
    ProducerId(i64)
);
number!(
    /// Epoch of a [`ProducerId`]; -1 means a producer without one.
    ProducerEpoch(i16)
);
number!(
    /// Milliseconds since 1970-01-01 UTC; -1 means "none".
    TimestampMs(i64)
);
number!(
    /// Index of a shard (one pinned thread), from 0. Never written to disk.
    ShardId(u16)
);

impl Offset {
    /// The first offset of an empty log.
    pub const ZERO: Offset = Offset(0);

    /// This offset moved on by `count` records.
    ///
    /// # Panics
    /// When the sum leaves the range of `i64`: callers bound `count` by what fits a batch.
    #[must_use]
    pub fn plus(self, count: i64) -> Offset {
        Offset(
            self.0
                .checked_add(count)
                .expect("an offset stays below 2^63"),
        )
    }
}

impl LeaderEpoch {
    /// "Not known" on the wire.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl TimestampMs {
    /// "No timestamp".
    pub const NONE: TimestampMs = TimestampMs(-1);
}

/// Id of a topic (KIP-516): stable over restarts, new when a topic is created again.
pub type TopicId = Uuid;

/// Text form of the cluster id in `meta.properties`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClusterId(pub String);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic's id.
    pub topic: TopicId,
    /// The partition's index.
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
