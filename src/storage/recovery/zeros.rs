//! Zeros that were written ahead of the batches ([`crate::ahead`]) and not trimmed: the log ends before
//! them, and nothing is missing (ST-30).

use thalweg_reactor::fs::{self, File};
use thalweg_types::limits::ZEROS_STEP_BYTES_MAX;

use super::Work;
use crate::error::LogError;
use crate::scan::BadBatch;
use crate::segment::Segment;

impl Work {
    /// Cuts zeros off the segment at `index`, durably, if they are all that is not valid there. A segment
    /// that is not the last must reach to the next one.
    pub(super) async fn trim_zeros(
        &mut self,
        index: usize,
        file: &File,
        (position, reason): &(u64, BadBatch),
    ) -> Result<bool, LogError> {
        let segment = self.segments[index].clone();
        let next = self.segments.get(index + 1).map(|next| next.base);
        let joins = match next {
            Some(next) => next == self.end,
            // In a log without zeros ahead they are what a crash of the machine leaves of a torn end.
            None => self.zeros_ahead,
        };
        if *reason != BadBatch::Zeros || !joins || self.end < self.reached() {
            return Ok(false);
        }
        if !self.are_only_zeros(&segment, file, *position).await? {
            return Ok(false);
        }
        let path = segment.path();
        fs::truncate(file, *position)
            .await
            .map_err(LogError::io("truncate", &path))?;
        fs::sync_all(file)
            .await
            .map_err(LogError::io("fsync", &path))?;
        segment.cut_to(*position, self.end);
        Ok(true)
    }

    /// True when the file goes on with zeros to its end, and not with more than are ever written ahead.
    pub(super) async fn are_only_zeros(
        &self,
        segment: &Segment,
        file: &File,
        position: u64,
    ) -> Result<bool, LogError> {
        let left = segment.size.get().saturating_sub(position);
        if left > 2 * ZEROS_STEP_BYTES_MAX {
            return Ok(false);
        }
        let bytes = fs::read_at(file, position, usize::try_from(left).unwrap_or(0))
            .await
            .map_err(LogError::io("read", &segment.path()))?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }
}
