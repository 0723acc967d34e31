//! Consumer groups and committed offsets: the coordinator of one partition of `__consumer_offsets`.
//!
//! **Owns** the rules of both group protocols: the classic one (rounds, generations, timeouts,
//! refusals) and that of KIP-848 (epochs, assignors, reconciliation); the committed offsets; and the
//! records that all that leaves in the log. **Refuses to know** sockets, logs, and clocks: requests
//! come decoded, time and random ids as arguments. Of topics it asks names, ids and sizes
//! ([`TopicCatalog`]).
//!
//! # Shape
//! Decide, write, replay: a request is checked against the state and answered at once, or parked, or
//! turned into records ([`Effect::Write`]). What the records say becomes visible when they are
//! committed ([`Coordinator::on_written`]), and only then is the request answered. The same records
//! build the same state when the partition is read again ([`Coordinator::on_record`]).
//!
//! # Order of calls
//! [`Coordinator::new`] -> [`Coordinator::on_record`] for every record of the log, oldest first (and
//! [`Coordinator::on_record_rest`] until it is done), or [`Coordinator::on_transactional_record`] and [`Coordinator::on_marker`] for those of transactions ->
//! [`Coordinator::on_loaded`] until it is done -> [`Coordinator::on_ask`], and [`Coordinator::on_time`] when
//! [`Coordinator::next_deadline`] has come, and [`Coordinator::on_topics_removed`]. Each
//! [`Effect::Write`] is reported once, in the order of the writes, by [`Coordinator::on_written`] or
//! [`Coordinator::on_write_failed`].
//!
//! # Invariants
//! - Every token given to `on_ask` is answered exactly once.
//! - An offset that a client can fetch is committed, in the topic that has the name now, and its
//!   transaction too, if it is of one.
//! - Time only comes from the monotonic clock, except where a record or a client asks for a date, and
//!   for the age of offsets, which outlives processes.
//! - Everything is bounded: groups, members, ids handed out, bytes per group and in sum.
//!
//! # Cost
//! A heartbeat: two look-ups, no allocation. A commit: one record per partition. A timer costs
//! nothing when its member lives: it is moved when it runs out, not with each heartbeat.
//!
//! Start reading at [`Coordinator`], then `group`, then `rebalance`; for the newer protocol at `consumer`.

mod admin;
mod ask;
mod check;
mod commit;
mod consumer;
mod coordinator;
mod ends;
mod expiry;
mod group;
mod history;
mod loaded;
mod member;
mod membership;
mod offsets;
mod orphans;
mod page;
mod pending_offsets;
mod positions;
mod rebalance;
mod record;
mod settings;
mod static_members;
mod subscription;
mod sweep;
mod tally;
mod timers;
mod topics;
mod transactions;
mod turn;

#[cfg(test)]
mod machine_tests;

pub use ask::{
    Answer, Ask, Caller, Effect, GroupQuery, Now, OffsetsPage, PlaceName, Stability, Token, WriteId,
};
pub use commit::VERSION_TOPIC_IDS;
pub use consumer::{Assignor, ConsumerRecord};
pub use coordinator::{Coordinator, Draw};
pub use history::{Cause, Names, Rebalance};
pub use offsets::Committed;
pub use page::{DescribedPage, ListedPage};
pub use positions::Position;
pub use record::{Record, RecordError};
pub use settings::{ConsumerSettings, Migration, Settings};
pub use sweep::Progress;
pub use tally::{Happened, Tally};
pub use topics::{GroupSettings, TopicCatalog, TopicShape, Topics};
pub use transactions::Outcome;

/// Index of the partition of the offsets topic that holds `group`: Java's hash of the name, made
/// positive as Kafka does it, over the number of partitions.
///
/// # Panics
/// When `partitions` is below 1.
#[must_use]
pub fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash = group.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    (hash & i32::MAX) % partitions
}
