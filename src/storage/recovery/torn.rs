//! Where a log ends after a crash: what is not valid is a torn tail and goes, with all behind it, or it is damage
//! and nothing changes (ST-5, R7).

use std::path::Path;

use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File};
use thalweg_types::Offset;

use super::{TailCut, Work, damaged};
use crate::error::LogError;
use crate::options::Unwritten;
use crate::removal::files_of;
use crate::scan::{self, BadBatch};
use crate::segment::Segment;

impl Work {
    /// What is not valid in the segment at `index` is a torn tail only where nothing says that it was there.
    pub(super) async fn check_torn(
        &self,
        index: usize,
        file: &File,
        (position, reason): (u64, BadBatch),
    ) -> Result<(), LogError> {
        self.check_start()?;
        let path = self.segments[index].path();
        let recovery_point = self.recovery_point.unwrap_or_default();
        if self.end < recovery_point {
            return Err(damaged(path, position, self.end, recovery_point, reason));
        }
        let behind = match self.unwritten {
            Unwritten::AnyBatch => None,
            Unwritten::LastWrite => self.whole_behind(index, file, (position, &reason)).await?,
        };
        let (offset, written) = (self.end, self.reached());
        match behind {
            Some(behind) => Err(LogError::DamagedBeforeWhole {
                path,
                position,
                offset,
                behind,
                reason,
            }),
            None if offset < written => Err(LogError::DamagedBelowMark {
                path,
                position,
                offset,
                written,
                reason,
            }),
            None => Ok(()),
        }
    }

    /// Up to here there was a log, durable or, before a kill, only written.
    pub(super) fn reached(&self) -> Offset {
        let known_end = self.known_end.unwrap_or_default();
        known_end.max(self.recovery_point.unwrap_or_default())
    }

    /// Where what is whole begins at or behind the bad batch at `position`: a batch, or a later segment, which
    /// is begun only when all before it is written.
    async fn whole_behind(
        &self,
        index: usize,
        file: &File,
        (position, reason): (u64, &BadBatch),
    ) -> Result<Option<Offset>, LogError> {
        let segment = &self.segments[index];
        let (from, at_least) = match reason {
            // It may be whole itself, behind one that says too much.
            BadBatch::OffsetRunsBack { .. } | BadBatch::EpochRunsBack { .. } => {
                (position, segment.base)
            }
            BadBatch::Zeros
            | BadBatch::ShortHeader { .. }
            | BadBatch::ShortBatch { .. }
            | BadBatch::Header(_)
            | BadBatch::Checksum
            | BadBatch::OffsetSpan { .. }
            | BadBatch::Unreadable(_) => (position + 1, self.end),
        };
        let found = scan::find_batch(file, from..segment.size.get(), segment.base, at_least).await;
        let found = found.map_err(LogError::io("read", &segment.path()))?;
        let next = self.segments.get(index + 1).map(|next| next.base);
        Ok(found.map(|mark| mark.base_offset).or(next))
    }

    /// Cuts what is not valid off the file, durably.
    pub(super) async fn cut(
        &mut self,
        segment: &Segment,
        file: &File,
        position: u64,
        reason: BadBatch,
    ) -> Result<(), LogError> {
        let path = segment.path();
        self.report.bytes_removed += segment.size.get() - position;
        fs::truncate(file, position)
            .await
            .map_err(LogError::io("truncate", &path))?;
        failpoint::pass("cut: truncated");
        fs::sync_all(file)
            .await
            .map_err(LogError::io("fsync", &path))?;
        segment.cut_to(position, self.end);
        tracing::warn!(
            path = %path.display(), position, end = %self.end, %reason,
            "cut a torn tail off after an unclean stop"
        );
        self.report.cut = Some(TailCut {
            path,
            position,
            offset: self.end,
            reason,
        });
        Ok(())
    }

    /// Removes all segments behind the one at `index`, the last first, so that a crash in between
    /// leaves no hole.
    pub(super) async fn remove_segments_after(&mut self, index: usize) -> Result<(), LogError> {
        while self.segments.len() > index + 1 {
            let Some(segment) = self.segments.pop() else {
                break;
            };
            let path = segment.path();
            tracing::warn!(path = %path.display(), "removing a segment behind the torn tail");
            self.remove_segment(segment.base).await?;
            self.report.segments_removed += 1;
            self.report.bytes_removed += segment.size.get();
        }
        Ok(())
    }

    pub(super) async fn remove_segment(&mut self, base: Offset) -> Result<(), LogError> {
        for path in files_of(&self.dir, base) {
            failpoint::pass("cut: file to go");
            self.remove_file(&path).await?;
        }
        Ok(())
    }

    /// Removes a file that may be missing.
    pub(super) async fn remove_file(&mut self, path: &Path) -> Result<(), LogError> {
        self.names_changed = true;
        match fs::unlink(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(LogError::io("remove", path)),
        }
    }
}
