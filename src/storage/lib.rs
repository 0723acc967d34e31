//! The files of a log directory: segments, indexes, checkpoints; appending, reading, recovering.
//!
//! **Owns** Kafka's on-disk layout (written down in `docs/formats/log-directory.md`): [`LogDir`] is a
//! data directory, [`Log`] one partition in it, [`inspect`] looks at either without a broker.
//! **Refuses to know** high watermarks, replicas, producers and requests: offsets and epochs come
//! assigned, bounds of reads come as arguments, leader epochs are stored as their keeper
//! (`thalweg_replica`) gives them.
//!
//! # Order of calls
//! [`LogDir::open`] (lock, identity) -> [`LogDir::begin`] (clean marker) -> [`LogDir::partitions`] -> [`Log::open`] for each
//! with [`LogDir::opening`] -> appends and reads -> [`Log::close`] for each ->
//! [`LogDir::write_checkpoint`] -> [`LogDir::mark_clean`].
//!
//! # Invariants
//! - A log has at most one write in flight, and a roll or a cut waits for it.
//! - Three ends per log: `durable_end <= written_end <= assigned_end`; an event reports each move of
//!   the written and of the durable end, in order.
//! - Order on disk: batches, then names, then indexes, then the checkpoint of the recovery point (R6).
//! - A failed fdatasync is never tried again: the log is offline until it is opened anew (R1).
//! - Every byte comes and goes through `thalweg_reactor::fs`; nothing here blocks the thread.
//! - No bytes on disk make this room panic.
//!
//! # Cost
//! | call | system calls | allocations | copies |
//! |---|---|---|---|
//! | [`Log::append`], burst that fits a write | 1 vectored write | two lists, and a task where none is free | none of record bytes |
//! | [`Log::try_read_plan`] | none | none | none |
//! | [`Log::read_plan`], further back | 2 to 4 small `preadv2` from the page cache | one 4 KiB chunk per end | headers only |
//!
//! Start reading at [`log`](Log), then `append.rs`, `read.rs`, `recovery.rs`.

mod aborted;
mod ahead;
mod allowance;
mod append;
mod by_index;
mod cache;
pub mod checked_text;
mod checkpoint;
mod claims;
mod compaction;
mod condemned;
mod damage;
mod dir;
mod error;
mod flush;
mod handles;
mod health;
mod index;
mod indexes;
pub mod inspect;
mod leftovers;
mod listing;
mod log;
mod meta_properties;
mod moving;
mod name;
mod next_segment;
mod options;
mod page_cache;
mod partition_files;
mod probe;
mod quarantine;
mod queued;
mod read;
mod recovery;
mod recovery_points;
mod removal;
pub mod repair;
mod reserve;
mod retention;
mod roll;
mod rounds;
mod scan;
mod scrub;
mod segment;
mod snapshots;
mod tail;
mod time_index;
mod timestamp;
mod told_time;
mod turn;
mod txn_index;
mod unread;
mod unreadable;
mod writers;
mod written;

#[cfg(test)]
mod whole_log_tests;

pub use cache::SegmentCache;
pub use checkpoint::PartitionOffsets;
pub use compaction::{
    Budget, CleanError, CleanReport, Cleaner, CleanerPool, CompactionLimits, CompactionOrder, Dirt,
};
pub use condemned::leave_trace;
pub use dir::{
    BoundOffsets, Checkpoint, CleanMark, DirectoryState, FormatPolicy, Formatted, FutureDir,
    LogDir, LogDirError, OpenPolicy, PartitionDir, format_log_dir, set_partition_aside,
};
pub use error::{AppendError, LogError, Missing, ReadError, may_pass};
pub use health::{DirHealth, OldestOperation, Room};
pub use leftovers::Leftovers;
pub use log::{AppendBatch, Beginning, Log, LogEvent, LogSink};
pub use meta_properties::MetaProperties;
pub use moving::{
    Found, FutureLog, MoveError, MoveRoom, Rightful, Standing, Unclosed, is_leaving, rightful,
};
pub use name::{NameError, PartitionName};
pub use next_segment::unnamed_segment;
pub use options::{Gaps, LogOptions, Opening, Recovery, Unwritten};
pub use quarantine::DamagedRange;
pub use queued::QueuedBytes;
pub use read::ReadPlan;
pub use recovery::{RecoveryReport, TailCut, missing_directory};
pub use recovery_points::{MAY_HAVE_HOLES, RecoveryPoints};
pub use removal::{Due, Removed, StartKept};
pub use retention::{Reasons, RetentionLimits};
pub use scan::BadBatch;
pub use scrub::{Scrubbed, Scrubber};
pub use timestamp::TimestampHit;
pub use txn_index::AbortedTxn;
pub use unread::Unread;
pub use writers::Writers;
