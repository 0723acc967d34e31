//! The vocabulary that every other room shares: offsets, epochs, ids and named limits.
//!
//! This room owns plain values only. It knows no wire format, no file and no clock. Wire messages
//! carry bare integers; the rooms that decide things wrap them in these newtypes at their door, so
//! that an offset can not be passed where an epoch is meant.
//!
//! Start reading at [`ids`], then [`limits`].

mod id_map;
pub mod ids;
pub mod limits;
mod shown;
mod uuid;

pub use id_map::{IdHasher, IdMap};
pub use ids::{
    BrokerId, ClusterId, LeaderEpoch, ListenerIndex, Offset, PartitionIndex, ProducerEpoch,
    ProducerId, ShardId, TimestampMs, TopicId, TopicPartition,
};
pub use shown::shown;
pub use uuid::Uuid;
