//! Reads the batches of one segment whole, each checked, at the pace that compaction may have.

use std::path::PathBuf;

use bytes::Bytes;
use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchHeader, crc_matches};
use thalweg_reactor::fs::{self, File, OpenMode};

use super::pace::Pace;
use super::{CleanError, SegmentFile};
use crate::scan::{BadBatch, Follows, bad_header};

/// A walk over one segment.
pub(super) struct BatchReader {
    file: File,
    path: PathBuf,
    size: u64,
    position: u64,
    follows: Follows,
    /// What was read of the file and not yet given out, from `position` on.
    ahead: Bytes,
    io_bytes: usize,
}

/// A whole batch whose checksum holds.
pub(super) struct ReadBatch {
    pub(super) header: BatchHeader,
    pub(super) bytes: Bytes,
    pub(super) position: u64,
}

impl BatchReader {
    pub(super) async fn open(
        path: PathBuf,
        segment: SegmentFile,
        io_bytes: usize,
    ) -> Result<BatchReader, CleanError> {
        let file = fs::open(&path, OpenMode::Read)
            .await
            .map_err(CleanError::io("open", &path))?;
        Ok(BatchReader {
            file,
            path,
            size: segment.bytes,
            position: 0,
            follows: Follows::new(segment.base),
            ahead: Bytes::new(),
            io_bytes,
        })
    }

    /// The next batch; `None` at the end of the segment.
    pub(super) async fn next(&mut self, pace: &mut Pace) -> Result<Option<ReadBatch>, CleanError> {
        let have = self.size - self.position;
        if have == 0 {
            return Ok(None);
        }
        self.fill(BATCH_HEADER_BYTES, have, pace).await?;
        let header = BatchHeader::parse(&self.ahead)
            .map_err(|error| self.damaged(bad_header(error, have)))?;
        if let Some(bad) = self.follows.broken_by(&header, have) {
            return Err(self.damaged(bad));
        }
        let bytes = header.total_bytes();
        self.fill(bytes, have, pace).await?;
        if self.ahead.len() < bytes {
            let have = self.ahead.len() as u64;
            let need = bytes as u64;
            return Err(self.damaged(BadBatch::ShortBatch { have, need }));
        }
        let batch = self.ahead.split_to(bytes);
        if !crc_matches(&batch) {
            return Err(self.damaged(BadBatch::Checksum));
        }
        let position = self.position;
        self.position += bytes as u64;
        self.follows.step(&header);
        Ok(Some(ReadBatch {
            header,
            bytes: batch,
            position,
        }))
    }

    /// Makes `ahead` hold `wanted` bytes, as far as the file has them. A batch larger than what is
    /// usually read at once is read whole: limits may have been higher when it was written (RP-105).
    async fn fill(&mut self, wanted: usize, have: u64, pace: &mut Pace) -> Result<(), CleanError> {
        if self.ahead.len() >= wanted {
            return Ok(());
        }
        let have = usize::try_from(have).unwrap_or(usize::MAX);
        let bytes = wanted.max(self.io_bytes).min(have);
        // What is there of it is read again: less than one batch.
        let read = fs::read_at(&self.file, self.position, bytes)
            .await
            .map_err(CleanError::io("read", &self.path))?;
        pace.spend(read.len()).await?;
        self.ahead = read.freeze();
        Ok(())
    }

    fn damaged(&self, reason: BadBatch) -> CleanError {
        CleanError::Damaged {
            path: self.path.clone(),
            position: self.position,
            reason: reason.to_string(),
        }
    }
}
