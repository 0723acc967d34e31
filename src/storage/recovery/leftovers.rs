//! What a crash or an interrupted deletion has left beside the segments, and where the log starts.

use std::collections::BTreeSet;

use thalweg_types::Offset;

use super::Work;
use crate::error::LogError;
use crate::listing::Listing;
use crate::name::snapshot_path;
use crate::segment::Segment;
use crate::snapshots::useless;

impl Work {
    pub(super) async fn remove_leftovers(&mut self, listing: &Listing) -> Result<(), LogError> {
        for name in &listing.leftovers {
            let path = self.dir.join(name);
            tracing::info!(path = %path.display(), "removing a left-over file");
            // A file that was written anew meanwhile may have taken its place.
            self.remove_file(&path).await?;
            self.report.leftovers_removed += 1;
        }
        Ok(())
    }

    /// Gives an empty log its first segment, and empties a log whose segments are all below its start
    /// (ST-13). Segments that a deletion had not come to are removed (ST-14).
    pub(super) async fn apply_log_start(
        &mut self,
        log_start: Option<Offset>,
    ) -> Result<(), LogError> {
        let start = log_start.unwrap_or_default();
        if !self.segments.is_empty() && start > self.end {
            tracing::warn!(
                dir = %self.dir.display(), %start, end = %self.end,
                "the log ends below its start: emptying it"
            );
            self.report.log_start_ahead = true;
            while let Some(segment) = self.segments.pop() {
                self.remove_segment(segment.base).await?;
            }
        }
        while let [first, next, ..] = &self.segments[..]
            && next.base <= start
        {
            tracing::info!(path = %first.path().display(), %start,
                "removing a segment below the log start");
            self.remove_segment(first.base).await?;
            self.segments.remove(0);
            self.report.leftovers_removed += 1;
        }
        if self.segments.is_empty() {
            let segment = Segment::create(&self.dir, start, self.interval_bytes)
                .await
                .map_err(LogError::io("create a segment in", &self.dir))?;
            self.segments.push(segment);
            self.end = start;
            self.names_changed = true;
        }
        Ok(())
    }

    /// Removes the snapshots of no use (ST-10). Those beyond the end must not come back: the offsets
    /// that they describe will be given to other records.
    pub(super) async fn keep_snapshots(
        &mut self,
        mut found: BTreeSet<Offset>,
    ) -> Result<(), LogError> {
        let bases = self.segments.iter().map(|segment| segment.base).collect();
        for at in useless(&found, &bases, self.end) {
            let path = snapshot_path(&self.dir, at);
            tracing::info!(path = %path.display(), "removing a snapshot that belongs to nothing");
            self.remove_file(&path).await?;
            self.report.leftovers_removed += 1;
            found.remove(&at);
        }
        self.report.snapshots = found.into_iter().rev().collect();
        Ok(())
    }
}
