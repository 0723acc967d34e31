//! Compaction: of each key the last record stays (KIP-58, KIP-354, KIP-534).
//!
//! A round has three parts. On the log's own thread [`Log::dirt`] says what there is to do and
//! [`Log::compact`] orders it. A [`Cleaner`], a thread of low priority, reads the closed segments and
//! writes new ones beside them, within its own memory and its own rate. Each new segment comes back to
//! the log's thread, which swaps it in as one step of memory between two of the disk (`swap.rs`, and
//! `recover.rs` for a crash in between). Reads that hold a replaced file go on with it.
//!
//! Start reading at [`Log::compact`], then `round.rs`, `filter.rs`, `swap.rs`.

mod cleaner;
mod dirt;
mod filter;
mod groups;
mod key_hash;
mod offset_map;
pub(crate) mod owed;
mod pace;
mod reader;
pub(crate) mod recover;
mod round;
mod swap;
#[cfg(test)]
mod tests;
mod transactions;
mod writer;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_reactor::fs::File;
use thalweg_reactor::oneshot;
use thalweg_replica::LastOfProducer;
use thalweg_types::{Offset, ProducerId, TimestampMs};

pub use cleaner::{Cleaner, CleanerPool};
pub use dirt::{CompactionLimits, Dirt};

use crate::error::{LogError, ReadError, may_pass};
use crate::indexes::Indexes;
use crate::txn_index::AbortedTxn;

/// What one cleaner may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// Memory for keys: `log.cleaner.dedupe.buffer.size`, of this one.
    pub map_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`: how full that memory gets.
    pub map_load: f64,
    /// Bytes read or written at once: `log.cleaner.io.buffer.size`, of this one.
    pub io_bytes: usize,
    /// Bytes read and written per second, of this one: `log.cleaner.io.max.bytes.per.second`. The newest
    /// word of all that were given to a cleaner counts.
    pub bytes_per_second: f64,
}

/// What a round has to obey and to know.
#[derive(Clone, Debug)]
pub struct CompactionOrder {
    /// What is to be cleaned.
    pub dirt: Dirt,
    /// The broker's clock.
    pub now: TimestampMs,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`: how long replaced files stay.
    pub file_delete_delay: Duration,
    /// The newest batch of each producer of the log.
    pub live: HashMap<ProducerId, LastOfProducer>,
}

/// What a round did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CleanReport {
    /// Everything below is clean now.
    pub end: Offset,
    /// Keys of the dirty part.
    pub keys: u64,
    /// Bytes of batches of which keys were collected.
    pub bytes_mapped: u64,
    /// Bytes of batches of the segments that were written anew.
    pub bytes_read: u64,
    /// Bytes of them that are left.
    pub bytes_kept: u64,
    /// Records in those segments before.
    pub records_read: u64,
    /// Records in them now.
    pub records_kept: u64,
    /// Bytes read and written in all.
    pub bytes_moved: u64,
}

/// A round ended early. Segments that had been swapped in stay so.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// A segment can not be read as batches of records, and what is wrong with it has no place in the
    /// quarantine: nothing of this log is compacted until that is repaired.
    #[error("{} is damaged at byte {position}: {reason}", path.display())]
    Damaged {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the bad batch begins.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// A segment is damaged and in the quarantine by now: the next round goes up to it.
    #[error("{} is damaged at byte {position}: {reason}", path.display())]
    Quarantined {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the bad batch begins.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// The system refused an operation; the text of `source` names it too.
    #[error("{source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log's segments can not be looked at.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A segment was deleted meanwhile.
    #[error("a segment was deleted meanwhile")]
    Changed,
    /// The cleaner is stopping.
    #[error("compaction is stopping")]
    Stopped,
}

impl CleanError {
    /// For `map_err`: names the operation and the file.
    fn io(operation: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> CleanError {
        move |source| CleanError::Io {
            operation,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// True when trying again is of no use before somebody has repaired the log.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            CleanError::Damaged { .. } => true,
            CleanError::Read(error) => match error {
                ReadError::Damaged { .. } | ReadError::Records { .. } => true,
                ReadError::OutOfRange { .. }
                | ReadError::Io { .. }
                | ReadError::Quarantined { .. }
                | ReadError::Replaced
                | ReadError::Offline { .. }
                | ReadError::Closed => false,
            },
            CleanError::Quarantined { .. }
            | CleanError::Io { .. }
            | CleanError::Log(_)
            | CleanError::Changed
            | CleanError::Stopped => false,
        }
    }

    /// True when nothing is wrong: the log or the broker goes, or has changed under the round.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        match self {
            CleanError::Changed | CleanError::Stopped => true,
            CleanError::Log(error) => matches!(error, LogError::Closed | LogError::Offline { .. }),
            CleanError::Read(error) => matches!(
                error,
                ReadError::Closed | ReadError::Offline { .. } | ReadError::Replaced
            ),
            CleanError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            CleanError::Damaged { .. } | CleanError::Quarantined { .. } => false,
        }
    }

    /// True when the system lacked something that it may have later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            CleanError::Io { source, .. } => may_pass(source),
            CleanError::Log(error) => error.may_pass(),
            CleanError::Damaged { .. }
            | CleanError::Quarantined { .. }
            | CleanError::Read(_)
            | CleanError::Changed
            | CleanError::Stopped => false,
        }
    }
}

/// One closed segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentFile {
    base: Offset,
    bytes: u64,
}

/// What a cleaner has to do, by files alone.
struct Order {
    dir: PathBuf,
    /// All closed segments below `end`.
    segments: Vec<SegmentFile>,
    first_dirty: Offset,
    /// Where the last segment ends.
    end: Offset,
    now: TimestampMs,
    delete_retention_ms: i64,
    room: groups::Room,
    /// The aborted transactions of all of them.
    aborted: Vec<AbortedTxn>,
    live: HashMap<ProducerId, LastOfProducer>,
}

/// A new segment, durable, under names that end in `.cleaned`.
struct Cleaned {
    base: Offset,
    bytes: u64,
    file: File,
    indexes: Indexes,
    first_timestamp: Option<TimestampMs>,
    aborted: Vec<AbortedTxn>,
}

/// Asks the owner of a log to put new segments in place of old ones.
struct SwapAsk {
    /// Side by side.
    olds: Vec<Offset>,
    /// Each begins where the one before it ends, the first where the first old one begins. One, unless what is
    /// left of the old ones does not fit a segment.
    news: Vec<Cleaned>,
    reply: oneshot::Sender<Result<(), CleanError>>,
}
