//! What a crash or an interrupted deletion has left beside the segments, and where the log starts.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_types::Offset;

use super::Work;
use crate::dir::Checkpoint;
use crate::error::LogError;
use crate::listing::Listing;
use crate::name::{index_path, snapshot_path, time_index_path};
use crate::next_segment::next_path;
use crate::options::{Opening, Recovery};
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
        if listing.next.is_some() {
            // One that a loss of power brings back is no segment then either.
            let names_changed = self.names_changed;
            self.remove_file(&next_path(&self.dir)).await?;
            self.names_changed = names_changed;
        }
        Ok(())
    }

    /// After a clean stop the log is what it was: a start beyond its end is a damaged entry of the checkpoint,
    /// and removes nothing (ST-12). After a crash it is believed (ST-13).
    pub(super) fn believed_start(&self, log_start: Option<Offset>) -> Option<Offset> {
        let start = log_start?;
        if self.recovery_point.is_some() || self.segments.is_empty() || start <= self.end {
            return Some(start);
        }
        tell_false_start(&self.dir, start, self.end);
        None
    }

    /// Index files of the active segment that were of no use would mislead a start that believes the log's
    /// mark. A loss of power that brings them back takes the mark.
    pub(super) async fn remove_misleading(&mut self, listing: &Listing) -> Result<(), LogError> {
        let active = self.segments.last().map(|segment| segment.base);
        let active = active.filter(|base| self.led_to.is_none() && listing.indexed.contains(base));
        let Some(base) = active else { return Ok(()) };
        let names_changed = self.names_changed;
        self.remove_file(&index_path(&self.dir, base)).await?;
        self.remove_file(&time_index_path(&self.dir, base)).await?;
        self.names_changed = names_changed;
        Ok(())
    }

    /// Gives an empty log its first segment, and empties a log whose segments are all below its start
    /// (ST-13). Other segments below the start stay, and nobody is served what is in them: it may be all that
    /// tells of their producers (RP-69). Their owner removes them once a snapshot does ([`crate::Log::due`]).
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

impl Opening {
    /// A log start of Kafka's that is above ours counts up to the first segment: Kafka removes what is below, a flipped digit
    /// does not.
    pub(super) fn with_start_of(self, listing: &Listing) -> Opening {
        let first = listing.logs.keys().next().copied();
        let (Some(higher), Some(first)) = (self.higher_start, first) else {
            return self;
        };
        Opening {
            log_start: self.log_start.max(Some(higher.min(first))),
            ..self
        }
    }

    /// After a clean stop nothing began above the end that the recovery points tell: such a start is a damaged entry
    /// of its checkpoint. The log goes without it, as without the file: it begins with its first segment.
    pub(super) fn without_false_start(self, dir: &Path) -> Opening {
        let (Some(start), Some(end)) = (self.log_start, self.known_end) else {
            return self;
        };
        if self.recovery != Recovery::AfterCleanStop || start <= end {
            return self;
        }
        tell_false_start(dir, start, end);
        Opening {
            log_start: None,
            ..self
        }
    }
}

fn tell_false_start(dir: &Path, start: Offset, end: Offset) {
    let file = Checkpoint::LogStart.file_name();
    tracing::warn!(dir = %dir.display(), %start, %end, file,
        "the log start in this file lies above the end of a log that was stopped in order: it is damaged, and the log \
         begins with its first segment");
}
