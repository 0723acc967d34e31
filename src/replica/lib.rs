//! One partition, decided apart from any I/O.
//!
//! Owns what a partition's leader must decide: which offsets a batch gets, whether it is a retry of
//! one that has some (KIP-98), when a producer is answered, how far consumers may read, which leader epoch began where. Refuses to know files,
//! sockets, clocks, tasks, topics' names and the wire: inputs are plain values, outputs are
//! [`Effect`]s that a shell carries out, refusals map to wire codes in [`Refused::code`] alone.
//!
//! # Order of calls
//! [`Replica::new`] on a recovered log, [`Replica::become_leader`], then per batch
//! [`Replica::on_produce`] (assigns offsets at once, or knows a retry), storage writes, [`Replica::on_written`] or
//! [`Replica::on_write_failed`], and in its time [`Replica::on_durable`]. A fetch is [`Replica::on_fetch`], a read by storage, and, when it
//! found too little, [`Replica::park_fetch`]. Durability comes back as an event, so an answer can
//! not run ahead of the write it depends on.
//!
//! # Invariants ([`Replica::check`])
//! log start <= high watermark <= acknowledged end <= written end <= assigned end, and durable end <=
//! acknowledged end, which is the written end or lags behind it for durability ([`AckPoint`]). Every token given to `on_produce`
//! with success is answered exactly once. Every registration of a fetch is woken at most once.
//! The high watermark never moves back and stands still below min.insync.replicas (RP-3). What is known
//! of producers is what the batches of the log say, and those in flight.
//!
//! # Cost
//! `on_produce` and `on_written` allocate nothing once their queues have grown; `on_fetch` is a
//! binary search over epochs at most; a wake-up is a set operation over the parked fetches that
//! are due.
//!
//! Start reading at [`Replica`], then [`EpochCache`] and [`Producers`].

mod acked;
mod active_producers;
mod delete_records;
mod epoch_cache;
mod events;
mod fetch_sessions;
mod list_offsets;
mod parked;
mod producer_snapshot;
mod producers;
mod refused;
mod replica;

pub use acked::AckPoint;
pub use active_producers::ActiveProducer;
pub use epoch_cache::{EpochCache, EpochChange, EpochEnd, EpochEntry, EpochFileError};
pub use events::{
    Accepted, Acks, Appended, Assigned, Effect, FetchAsk, FetchBound, Isolation, Leadership,
    Parking, ReplicaStart, StaleLeadership, StopReason, Token,
};
pub use fetch_sessions::{
    Begun, FetchKey, FetchSessions, FetchTopicKey, Fetcher, Found, More, SessionAsk, Told, Wanted,
};
pub use list_offsets::{Listed, Lookup, Sought};
pub use producer_snapshot::SnapshotError;
pub use producers::{EndedTransaction, LastOfProducer, PRODUCER_BATCHES_KEPT, Producers};
pub use refused::Refused;
pub use replica::Replica;
