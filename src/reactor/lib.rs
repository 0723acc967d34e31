//! The runtime of one core: tasks, timers, sockets, file operations, and the ways threads talk.
//!
//! **Owns** every system call of the data plane, the io_uring driver, the worker threads for calls
//! that may block, and all `unsafe` code of the broker. **Refuses to know** what the bytes mean:
//! there is no Kafka noun here. It exports no tokio type, so that another event loop could replace
//! the one inside without a change elsewhere.
//!
//! # Order of calls
//! A thread makes one [`Runtime`] and stays inside [`Runtime::block_on`]; the free functions of
//! [`task`], [`time`], [`net`] and [`fs`] use the runtime of the thread they are called on.
//! [`mailbox`], [`oneshot`] and [`event`] belong to no runtime and connect any two threads.
//! On a thread without a [`Runtime`] the functions of [`fs`] work too, on shared worker threads.
//!
//! # Invariants
//! - A file operation owns its file handle and its buffers until the kernel has finished with them.
//!   Dropping its future frees nothing and cancels nothing.
//! - Dropping the [`Runtime`] ends intake, then waits for every operation in flight.
//! - No call that can block on a disk's metadata (open, close, unlink, rename, truncate, fsync)
//!   runs on the thread of a runtime, but for what a thread that serves nobody yet does by [`in_place`];
//!   closes, unlinks and flushes never do.
//! - A task that never waits holds up the others: sends yield after a quantum of bytes.
//!
//! # Cost sketch
//! | operation | system calls | allocations | copies |
//! |---|---|---|---|
//! | `fs::write_at`, ring | a share of one `io_uring_enter` per turn; one `epoll_wait` when idle | op box, iovecs if more than one slice | into the page cache |
//! | `fs::write_at`, plain | one `pwritev` on a worker, two futex hand-overs | job, oneshot | into the page cache |
//! | `fs::Syncer::sync_data` | the same, on threads of the directory's own | job, oneshot | none |
//! | `fs::Syncer::sync_in_background` | the same, one at a time, and one `sync_file_range` per MiB before it | job, oneshot | none |
//! | `fs::sync_in_background` | one `fdatasync`, few at a time | job, oneshot | none |
//! | `fs::sync_data` | one `fdatasync` on a syncer thread, two futex hand-overs | job, oneshot | none |
//! | `net::Stream::read_into` | one `recv` per readiness | growth of the caller's buffer | out of the socket |
//! | `net::Stream::send_file` | one `sendfile` per quantum | none | none in user memory |
//! | `lane::Reader::ask` | one `preadv2` on a thread of the lane, two futex hand-overs | oneshot | one, out of the page cache |
//! | `mailbox` send | none while the receiver is busy, one wake when it sleeps | none | moves `T` |
//! | `oneshot` send, `event` notify to another runtime | the same for all of them together | one, the pair's, for a `oneshot` | moves `T` |
//!
//! Start reading at [`runtime`], then `engine/ring.rs`.

mod context;
pub mod cores;
pub mod disk;
mod engine;
pub mod failpoint;
pub mod fs;
mod in_place;
pub mod lane;
mod log_gate;
pub mod net;
pub mod process;
pub mod runtime;
pub mod stats;
mod sync;
mod sys;
pub mod task;
pub mod time;
mod workers;

pub use engine::{EngineChoice, EngineKind, EngineReport};
pub use in_place::in_place;
pub use log_gate::LogGate;
pub use runtime::{Pinning, Runtime, RuntimeOptions, spawn_background_thread, spawn_shard_thread};
pub use sync::{event, mailbox, oneshot};
