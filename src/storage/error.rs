//! The three kinds of things that go wrong with a log: it can not be opened or kept (`LogError`), a
//! read is refused or fails (`ReadError`), an append fails (`AppendError`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_reactor::fs::{is_of_flush, os_error};
use thalweg_types::Offset;

use crate::scan::BadBatch;

/// A log can not be created, opened, flushed, closed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refused an operation; the text of `source` names it too.
    #[error("{source}")]
    Io {
        /// What was tried, for example `open`.
        operation: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that had been on the disk for sure are not a valid batch any more, so this is damage and
    /// no torn tail (R7). Nothing was changed; the partition must go offline.
    #[error(
        "{} is damaged at byte {position} (offset {offset}), which is below the recovery point \
         {recovery_point}: {reason}", path.display()
    )]
    DamagedBelowRecoveryPoint {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Byte at which the bad batch begins.
        position: u64,
        /// Offset that was expected there.
        offset: Offset,
        /// Everything below was fdatasynced; after a clean stop this is the end of the log.
        recovery_point: Offset,
        /// What is wrong.
        reason: BadBatch,
    },
    /// A batch is not what was written, though what was written after it is there, and only the last write of this
    /// log can have been cut short. Nothing is changed.
    #[error(
        "{} is damaged at byte {position} (offset {offset}): {reason}; that is no torn end, because what was \
         written after it, from offset {behind} on, is there", path.display()
    )]
    DamagedBeforeWhole {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Byte at which the bad batch begins.
        position: u64,
        /// Offset that was expected there.
        offset: Offset,
        /// Where what is there behind it begins.
        behind: Offset,
        /// What is wrong.
        reason: BadBatch,
    },
    /// A batch is not what was written, though its log had been written further, and a kill takes nothing of that.
    /// Nothing is changed.
    #[error(
        "{} is damaged at byte {position} (offset {offset}): {reason}; that is no torn end, because the log had been \
         written up to offset {written}", path.display()
    )]
    DamagedBelowMark {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Byte at which the bad batch begins.
        position: u64,
        /// Offset that was expected there.
        offset: Offset,
        /// Offset that the log had reached.
        written: Offset,
        /// What is wrong.
        reason: BadBatch,
    },
    /// A whole batch has offsets that belong before or behind the place where it is: it is of another's file, or
    /// the offset in it was changed. No crash does that. Nothing is changed; the partition must go offline.
    #[error(
        "{} is damaged at byte {position}: the batch there has offsets {first} to {last}, which belong elsewhere; put \
         the right file in its place", path.display()
    )]
    OutOfPlace {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Byte at which the batch begins.
        position: u64,
        /// Base offset of the batch.
        first: Offset,
        /// Last offset of the batch.
        last: Offset,
    },
    /// Records that a clean stop had left on the disk are not there, or there are none where the next
    /// segment begins later. Nothing is changed; the partition must go offline.
    #[error("records of offsets {from} to {} are missing: {} {what}", up_to.0.saturating_sub(1), path.display())]
    RecordsMissing {
        /// The segment or directory that does not hold them.
        path: PathBuf,
        /// How that shows.
        what: Missing,
        /// First offset that is missing.
        from: Offset,
        /// Offset after the last one that is known to be missing.
        up_to: Offset,
    },
    /// A `.swap` file from a compaction that was interrupted is damaged: what it was to replace may be
    /// gone already. Nothing was changed.
    #[error("{} is left from an unfinished compaction and damaged", path.display())]
    UnfinishedCompaction {
        /// The file.
        path: PathBuf,
    },
    /// Neither can the log starts of a directory be written nor the file be taken away that says that they hold. So
    /// nothing may be removed in it: a log that begins above the start that is written down is taken for damaged.
    #[error(
        "{0}; so the log starts that were written before stay, and nothing is removed in that directory: free some \
         room on its disk"
    )]
    StartsHold(Box<LogError>),
    /// The log had failed before and serves nothing until it is opened again.
    #[error("the log is offline: {reason}")]
    Offline {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The log is closed or being closed or deleted.
    #[error("the log is closed")]
    Closed,
}

/// How it shows that records of a log are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Missing {
    /// The partition has no directory.
    #[error("is gone, with everything in it")]
    Directory,
    /// The log ends below its recovery point, or after a kill below its mark.
    #[error("is the last segment and ends before them")]
    End,
    /// The log begins above its start.
    #[error("is the first segment and begins after them")]
    Start,
    /// A segment ends below the next one's base.
    #[error("ends before them, and the next segment begins after them")]
    Between,
}

/// True when the system lacked something that it may have later: room, file handles, memory, rights.
/// Nothing is wrong with the data then.
#[must_use]
pub fn may_pass(error: &io::Error) -> bool {
    let kind = error.kind();
    is_lack_of_room(error)
        || kind == io::ErrorKind::OutOfMemory
        || kind == io::ErrorKind::PermissionDenied
        || kind == io::ErrorKind::ReadOnlyFilesystem
}

impl LogError {
    /// True when opening the log again later may succeed: see [`may_pass`].
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            LogError::Io { source, .. } => may_pass(source),
            LogError::StartsHold(error) => error.may_pass(),
            LogError::DamagedBelowRecoveryPoint { .. }
            | LogError::DamagedBeforeWhole { .. }
            | LogError::DamagedBelowMark { .. }
            | LogError::OutOfPlace { .. }
            | LogError::RecordsMissing { .. }
            | LogError::UnfinishedCompaction { .. }
            | LogError::Offline { .. }
            | LogError::Closed => false,
        }
    }

    /// True when what was on the disk for sure is not there any more: only files from elsewhere, or
    /// `thalweg repair`, bring the log back.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            LogError::DamagedBelowRecoveryPoint { .. }
            | LogError::DamagedBeforeWhole { .. }
            | LogError::DamagedBelowMark { .. }
            | LogError::OutOfPlace { .. }
            | LogError::RecordsMissing { .. }
            | LogError::UnfinishedCompaction { .. } => true,
            LogError::Io { .. }
            | LogError::StartsHold(_)
            | LogError::Offline { .. }
            | LogError::Closed => false,
        }
    }

    /// For `map_err`: names the operation and the file.
    pub(crate) fn io(
        operation: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> LogError {
        move |source| LogError::Io {
            operation,
            path: path.as_ref().to_owned(),
            source,
        }
    }
}

/// A read that can not be answered with batches.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is below the start or above the end of the log.
    #[error("offset {asked} is outside of the log's [{start}, {end}]")]
    OutOfRange {
        /// What was asked for.
        asked: Offset,
        /// First offset of the log.
        start: Offset,
        /// End of what is written.
        end: Offset,
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
    /// A batch on the way to the answer is damaged. Never served (ST-19).
    #[error("{} is damaged at byte {position} (offset {offset}): {reason}", path.display())]
    Damaged {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the bad batch begins.
        position: u64,
        /// Smallest offset that it may have.
        offset: Offset,
        /// What is wrong.
        reason: BadBatch,
    },
    /// The offset is in a range that is known to be damaged. Never served (ST-19).
    #[error(
        "offset {asked} is in what is damaged of {} from byte {position} on; reading can go on at \
         offset {next}", path.display()
    )]
    Quarantined {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the range begins.
        position: u64,
        /// What was asked for.
        asked: Offset,
        /// Offset behind the range.
        next: Offset,
    },
    /// The records inside a batch can not be read (lookups by timestamp only).
    #[error("the batch at byte {position} of {} can not be read: {reason}", path.display())]
    Records {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the batch begins.
        position: u64,
        /// What is wrong with its records.
        reason: String,
    },
    /// Its segment was compacted or deleted meanwhile: to look again answers it.
    #[error("the segment was replaced meanwhile")]
    Replaced,
    /// The log has failed and serves nothing (R1).
    #[error("the log is offline: {reason}")]
    Offline {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The log is closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl ReadError {
    /// For `map_err`: names the operation and the file.
    pub(crate) fn io(
        operation: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> ReadError {
        move |source| ReadError::Io {
            operation,
            path: path.as_ref().to_owned(),
            source,
        }
    }
}

/// Why appended batches will not be written. Clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No room on the disk, or no file handle for a new segment: nothing of the batches is in the
    /// log, and later appends may succeed (R9, ST-20, ST-21).
    #[error("{0}")]
    NoRoom(Arc<str>),
    /// The log has failed and takes nothing until it is opened again (R1).
    #[error("the log is offline: {0}")]
    Offline(Arc<str>),
    /// The log is closed or being closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl AppendError {
    /// True when this log can never take an append again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            AppendError::NoRoom(_) => false,
            AppendError::Offline(_) | AppendError::Closed => true,
        }
    }
}

/// Errors of `write` or `open` that pass by themselves: no space, no quota, no file handles. An fsync that finds no space
/// has lost what was written before, and whoever asks next is told that all is well (R1).
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    let lost = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    lost.contains(&error.kind()) && !is_of_flush(error) || is_lack_of_handles(error)
}

/// No file handle was left, of the process or of the system.
pub(crate) fn is_lack_of_handles(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(os_error(error), Some(ENFILE | EMFILE))
}
