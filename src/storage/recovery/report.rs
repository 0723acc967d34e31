//! What a recovery says of what it found and did.

use std::path::PathBuf;

use thalweg_replica::{EpochCache, EpochEntry};
use thalweg_types::Offset;

use crate::scan::BadBatch;

/// What opening a log found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Segments of the opened log.
    pub segments: usize,
    /// Segments whose every byte was checked.
    pub segments_scanned: usize,
    /// Valid batches seen in them.
    pub batches_scanned: u64,
    /// Bytes read for it.
    pub bytes_scanned: u64,
    /// Bytes above the recovery point that were not read, because the process that wrote them had marked
    /// them as written.
    pub bytes_trusted: u64,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<TailCut>,
    /// Segments behind the cut that were removed.
    pub segments_removed: usize,
    /// Bytes that the cut and the removed segments had.
    pub bytes_removed: u64,
    /// Index files that were written anew because they were missing or wrong.
    pub indexes_rebuilt: usize,
    /// Files of interrupted operations and indexes without a log that were removed.
    pub leftovers_removed: usize,
    /// Where the first segment begins whose aborted transactions have to be told again
    /// ([`crate::Log::note_aborted`]): a crash may have lost what its index said.
    pub transactions_from: Option<Offset>,
    /// Offsets of the snapshots that belong to the log, newest first.
    pub snapshots: Vec<Offset>,
    /// The log start checkpoint lay above the end of the log: the log was emptied (ST-13).
    pub log_start_ahead: bool,
    /// The leader epochs were rebuilt from the batches (ST-11).
    pub epochs_rebuilt: bool,
    /// The leader epochs of the log, cut to its range. Their keeper takes them from here.
    pub epochs: EpochCache,
    /// What the file of leader epochs says now. It may go on to name epochs in which no record was
    /// written, which their keeper begins anew at the same offset.
    pub epochs_stored: Vec<EpochEntry>,
}

/// Where and why a log was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailCut {
    /// The segment's `.log` file.
    pub path: PathBuf,
    /// Its length now.
    pub position: u64,
    /// End of the log now.
    pub offset: Offset,
    /// Why what stood there is no batch.
    pub reason: BadBatch,
}
