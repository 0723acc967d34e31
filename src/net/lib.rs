//! Connections: frames in, answers out in the order of their requests.
//!
//! **Owns** accepting, cutting the byte stream into frames, the slots that keep answers in order,
//! the deadlines, the memory of admitted requests, and the way of bytes and file ranges to the
//! socket. **Refuses to know** what a request means: a frame is bytes that a [`Service`] judges.
//!
//! # Order of calls
//! The control plane runs an [`Acceptor`]; each [`Incoming`] goes to a shard, which calls [`serve`]
//! with its [`ShardNet`] and its [`Service`]. For each frame, in order: wait for a free slot, read
//! the size, charge [`MemoryBudget`], read the body, call [`Service::dispatch`] and wait for what it waits for, put the
//! [`Verdict`] in line. Answers may get ready in any order, also while the client does not take one before them; they leave
//! in the order of requests.
//!
//! # Invariants
//! - Nothing is allocated by a declared size: a buffer holds at most twice of what arrived plus one
//!   read step (BI-2).
//! - A connection holds a bounded number of requests, and bytes of answers; when either is full it
//!   is not read (BI-4).
//! - Every wait for a client has a deadline: an idle one, a partial frame, an answer not taken.
//! - A client that is gone frees what it waits for (BI-35).
//!
//! # Cost per request
//! One `recv` and one write call, fewer when requests or answers come together; no copy of a frame,
//! which keeps the memory it was read into (small ones share chunks, large ones buffers that are filled
//! again: `read_buffers`); one boxed future, no list for a single answer, no timer; one poll of each half
//! per wake; record bytes of fetch answers are not touched (`sendfile`) unless they are few (`copies`), or are not in
//! the page cache and the lane has to read them (`ranges`). Measured in `bench/results/hot-path.md`.
//!
//! Start reading at [`serve`](serve()), then [`Service`].

mod acceptor;
mod account;
mod answers;
mod budget;
mod conn;
mod copies;
mod frame;
mod limits;
mod queue;
mod ranges;
mod read_buffers;
mod response;
mod serve;
mod service;
mod shard_net;
mod writer;

pub use crate::acceptor::{Acceptor, ConnectionSlot, ConnectionSlots, Incoming};
pub use crate::account::{Account, Parked};
pub use crate::budget::{Acquire, MemoryBudget, MemoryPermit};
pub use crate::conn::{Client, ConnState};
pub use crate::frame::{Foreign, FrameBuffer, FrameError};
pub use crate::limits::{ConnectionLimits, Limits};
pub use crate::response::{FileRange, Heat, Part, Response};
pub use crate::serve::serve;
pub use crate::service::{Answer, Closing, Dispatch, Reply, Service, Unread, Verdict};
pub use crate::shard_net::ShardNet;
pub use thalweg_metrics::CloseReason;
