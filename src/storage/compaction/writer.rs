//! Writes the new segment beside the old ones, under names that end in `.cleaned`: no crash before the
//! swap leaves anything but files to remove (ST-14).

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use thalweg_protocol::records::BatchHeader;
use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::limits::COMPACTION_UNSYNCED_BYTES_MAX;
use thalweg_types::{Offset, TimestampMs};

use super::pace::Pace;
use super::{CleanError, Cleaned};
use crate::indexes::{BatchMark, Indexes};
use crate::name::{CleanStep, index_path, log_path, time_index_path, txn_index_path};
use crate::txn_index::{self, AbortedTxn};

/// A segment that is being written.
pub(super) struct SegmentWriter {
    dir: PathBuf,
    base: Offset,
    /// Offset after the last batch.
    end: Offset,
    path: PathBuf,
    file: File,
    indexes: Indexes,
    /// Bytes in the file.
    written: u64,
    unsynced: u64,
    /// Batches behind them.
    buffer: BytesMut,
    io_bytes: usize,
    first_timestamp: Option<TimestampMs>,
    aborted: Vec<AbortedTxn>,
}

impl SegmentWriter {
    pub(super) async fn create(
        dir: &Path,
        base: Offset,
        interval_bytes: u64,
        io_bytes: usize,
    ) -> Result<SegmentWriter, CleanError> {
        let path = CleanStep::Cleaned.of(&log_path(dir, base));
        remove(&path).await?;
        let file = fs::open(&path, OpenMode::CreateNew)
            .await
            .map_err(CleanError::io("create", &path))?;
        Ok(SegmentWriter {
            dir: dir.to_owned(),
            base,
            end: base,
            path,
            file,
            indexes: Indexes::new(base, interval_bytes),
            written: 0,
            unsynced: 0,
            buffer: BytesMut::new(),
            io_bytes,
            first_timestamp: None,
            aborted: Vec::new(),
        })
    }

    /// Bytes of all batches so far.
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Offset after the last batch: where a segment begins that goes on from here.
    pub(super) fn end(&self) -> Offset {
        self.end
    }

    /// Adds a batch.
    pub(super) async fn push(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        pace: &mut Pace,
    ) -> Result<(), CleanError> {
        let mark = BatchMark::of(header, self.bytes());
        self.end = header.last_offset().plus(1);
        self.first_timestamp = self.first_timestamp.or(Some(mark.max_timestamp));
        self.indexes.on_batch(&mark);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= self.io_bytes {
            self.flush(pace).await?;
        }
        Ok(())
    }

    /// Readers of the segment must know of this transaction.
    pub(super) fn note_aborted(&mut self, transaction: AbortedTxn) {
        self.aborted.push(transaction);
    }

    async fn flush(&mut self, pace: &mut Pace) -> Result<(), CleanError> {
        let bytes = self.buffer.split().freeze();
        let count = bytes.len();
        fs::write_at(&self.file, vec![bytes], self.written)
            .await
            .map_err(CleanError::io("write", &self.path))?;
        self.written += count as u64;
        self.unsynced += count as u64;
        pace.spend(count).await?;
        // Many dirty pages at once would hold up the flushes of others.
        if self.unsynced >= COMPACTION_UNSYNCED_BYTES_MAX {
            self.sync().await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), CleanError> {
        fs::sync_data(&self.file)
            .await
            .map_err(CleanError::io("fdatasync", &self.path))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Makes all of it durable. `youngest` is the last of the segments whose place it is to take, with
    /// others; it is as old as that one.
    pub(super) async fn finish(
        mut self,
        youngest: Offset,
        pace: &mut Pace,
    ) -> Result<Cleaned, CleanError> {
        self.flush(pace).await?;
        failpoint::pass("compaction: segment written");
        let young = log_path(&self.dir, youngest);
        let meta = fs::metadata(&young)
            .await
            .map_err(CleanError::io("stat", &young))?;
        fs::set_modified(&self.file, meta.modified_ms)
            .await
            .map_err(CleanError::io("set the time of", &self.path))?;
        fs::sync_all(&self.file)
            .await
            .map_err(CleanError::io("fsync", &self.path))?;
        failpoint::pass("compaction: segment synced");
        self.indexes.complete();
        self.indexes.unsaved = false;
        let mut files = vec![
            (
                index_path(&self.dir, self.base),
                self.indexes.offsets.encode(),
            ),
            (
                time_index_path(&self.dir, self.base),
                self.indexes.times.encode(),
            ),
        ];
        let txn = txn_index_path(&self.dir, self.base);
        // An old file must be replaced even by nothing: whoever finishes the swap after a crash can not
        // tell whose it is.
        let had_one = fs::exists(&txn)
            .await
            .map_err(CleanError::io("stat", &txn))?;
        if had_one || !self.aborted.is_empty() {
            files.push((txn, txn_index::encode(&self.aborted)));
        }
        for (path, bytes) in files {
            write(&CleanStep::Cleaned.of(&path), Bytes::from(bytes)).await?;
        }
        failpoint::pass("compaction: indexes written");
        Ok(Cleaned {
            base: self.base,
            bytes: self.written,
            file: self.file,
            indexes: self.indexes,
            first_timestamp: self.first_timestamp,
            aborted: self.aborted,
        })
    }
}

async fn write(path: &Path, bytes: Bytes) -> Result<(), CleanError> {
    remove(path).await?;
    let file = fs::open(path, OpenMode::CreateNew)
        .await
        .map_err(CleanError::io("create", path))?;
    fs::write_at(&file, vec![bytes], 0)
        .await
        .map_err(CleanError::io("write", path))?;
    fs::sync_data(&file)
        .await
        .map_err(CleanError::io("fdatasync", path))
}

/// What an earlier try has left there.
async fn remove(path: &Path) -> Result<(), CleanError> {
    match fs::unlink(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(CleanError::io("remove", path)),
    }
}
