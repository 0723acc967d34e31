//! One core of the broker: it owns partitions, serves connections, and turns requests into events
//! for machines and their effects into I/O.
//!
//! **Owns** the logs and machines of its partitions, the connections handed to it, its metrics.
//! **Refuses to know** how a request gets off a socket (`net`), how bytes reach the disk
//! (`storage`), and what Kafka's rules are (`replica`, `metadata`, `group`): an `if` about Kafka semantics
//! here is a mistake.
//!
//! # Order of calls
//! [`connect`] links the shards, [`spawn`] starts one thread each; the control plane then sends
//! [`thalweg_control::ShardCommand`]s: the first `Apply` opens the partitions, `Stop` ends it. Connections
//! come from the accept loop by a mailbox of their own ([`ShardSetup::sockets`]).
//!
//! A request: `net` reads a frame and calls `Shard::dispatch` (file `service`), which decodes it and
//! calls the handler in `api`. A handler asks the owners of the partitions it names through the
//! `*_at` functions of `Shard`; an owner on another core is asked by mailbox (`peer`).
//!
//! A group request goes to the coordinator of its group (`groups`, `coordinator`), which lives where
//! its partition of the offsets topic does.
//!
//! # Invariants
//! - A partition is touched by one shard only; other shards ask it.
//! - Appends reach a log in the order in which one connection sent them.
//! - No borrow of shared state is held across an await.
//!
//! # Cost per produce request of one batch
//! No copy of the batch; one CRC pass; one decode of the request (a handful of small allocations);
//! one share of a vectored write; no timer; one hop by mailbox and one wake when the owner is another core.
//! Measured in `bench/results/hot-path.md`.
//!
//! Start reading at `service`, then `api/produce`, then `partition`.

mod admission;
pub mod api;
mod append_group;
mod compaction;
mod coordinator;
mod coordinator_catalog;
mod coordinator_load;
mod flushing;
mod groups;
mod growing;
mod lag;
mod lifecycle;
mod moving;
mod pace;
mod parking;
mod partition;
mod peer;
mod producer_ids;
mod producers;
mod question;
mod retention;
mod scrub;
mod service;
mod shard;
#[cfg(test)]
mod shard_tests;
mod together;
mod unread;
mod unserved;

pub use admission::connection_limits;
pub use lifecycle::{PeerLink, ShardSetup, connect, spawn};
