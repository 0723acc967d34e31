//! A start after a loss of power need not check again what lies below the recovery point: it was on the disk.
//! The index files of the segment may have come to the disk or not. Where they lead to a batch below the
//! point that is whole and is the one that they name, the check begins there; else with the segment.
//!
//! Which transactions were aborted below the point is told by an index that is on the disk when its segment
//! is closed: a segment that has one is checked whole.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::Offset;

use super::{Scanned, Work};
use crate::error::LogError;
use crate::index::{INDEX_ENTRY_BYTES, absolute, decode_entries};
use crate::indexes::Indexes;
use crate::name::{index_path, time_index_path};
use crate::scan::{BatchScan, Check, NOTHING, Step};
use crate::segment::Segment;
use crate::time_index::{TIME_INDEX_ENTRY_BYTES, decode_entries as decode_times};

/// Larger index files are not used.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Work {
    /// Checks the segment that holds `recovery_point` from the last indexed batch below it on. `None`: the
    /// index is of no use, or leads to what a check of all must tell.
    pub(super) async fn scan_above(
        &mut self,
        segment: &Rc<Segment>,
        recovery_point: Offset,
    ) -> Result<Option<Scanned>, LogError> {
        if recovery_point <= segment.base || !segment.aborted.borrow().is_empty() {
            return Ok(None);
        }
        let Some(indexes) = self.indexes_below(segment, recovery_point).await else {
            return Ok(None);
        };
        if !self.leads_to_its_batch(segment, &indexes).await? {
            return Ok(None);
        }
        let scanned = self.scan_to(segment, indexes, NOTHING).await?;
        Ok(scanned.filter(|scanned| scanned.end >= recovery_point))
    }

    /// What the files say of the batches below `recovery_point`.
    async fn indexes_below(&self, segment: &Segment, recovery_point: Offset) -> Option<Indexes> {
        let read = async |path: PathBuf| fs::read_file(&path, FILE_BYTES_MAX).await.ok();
        let offsets = read(index_path(&self.dir, segment.base)).await?;
        let times = read(time_index_path(&self.dir, segment.base)).await?;
        let entries = decode_entries(&offsets).ok()?;
        let below =
            entries.take_while(|e| absolute(segment.base, e.relative_offset) < recovery_point);
        let (count, last) = below.fold((0, None), |(count, _), entry| (count + 1, Some(entry)));
        let last = last?.relative_offset;
        let times_below = decode_times(&times)
            .ok()?
            .take_while(|e| e.relative_offset <= last)
            .count();
        let cut = |bytes: &Bytes, len: usize| bytes.get(..len).map(<[u8]>::to_vec);
        let mut indexes = Indexes::from_files(
            segment.base,
            self.interval_bytes,
            &cut(&offsets, count * INDEX_ENTRY_BYTES)?,
            &cut(&times, times_below * TIME_INDEX_ENTRY_BYTES)?,
            segment.size.get(),
        )
        .ok()?;
        // The files go on with entries of batches that may be gone.
        indexes.unsaved = true;
        Some(indexes)
    }

    async fn leads_to_its_batch(
        &self,
        segment: &Segment,
        indexes: &Indexes,
    ) -> Result<bool, LogError> {
        let Some(entry) = indexes.offsets.last() else {
            return Ok(false);
        };
        let path = segment.path();
        let file = self.open_log(&path).await?;
        let (from, size) = (indexes.resume_position(), segment.size.get());
        let mut scan = BatchScan::new(file, Check::Checksums, segment.base, from, size);
        let first = scan.next().await.map_err(LogError::io("read", &path))?;
        let named = absolute(segment.base, entry.relative_offset);
        Ok(matches!(first, Step::Batch(mark, _) if mark.last_offset == named))
    }
}
