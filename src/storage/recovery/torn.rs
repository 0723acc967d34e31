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
    /// What is not valid is a torn tail only where nothing says that it was on the disk.
    pub(super) async fn check_torn(
        &self,
        segment: &Segment,
        file: &File,
        (position, reason): (u64, BadBatch),
        unwritten: Unwritten,
    ) -> Result<(), LogError> {
        let path = segment.path();
        let recovery_point = self.recovery_point.unwrap_or_default();
        if self.end < recovery_point {
            return Err(damaged(path, position, self.end, recovery_point, reason));
        }
        if unwritten == Unwritten::LastBatch
            && let Some(synced) = self.synced_behind(segment, file, position).await?
        {
            return Err(LogError::DamagedBeforeSynced {
                path,
                position,
                offset: self.end,
                synced,
                reason,
            });
        }
        Ok(())
    }

    /// Base offset of a batch that is whole, behind the bad one at `position`.
    pub(super) async fn synced_behind(
        &self,
        segment: &Segment,
        file: &File,
        position: u64,
    ) -> Result<Option<Offset>, LogError> {
        let range = position + 1..segment.size.get();
        let found = scan::find_batch(file, range, segment.base, self.end).await;
        let found = found.map_err(LogError::io("read", &segment.path()))?;
        Ok(found.map(|mark| mark.base_offset))
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
