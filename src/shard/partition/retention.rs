//! A partition's part in retention: the machine says how far, the log what and how.

use std::time::Duration;

use thalweg_reactor::time;
use thalweg_storage::{Due, LogError, ReadError, RetentionLimits, StartKept};
use thalweg_types::{Offset, TimestampMs};

use super::Partition;
use crate::producers;

impl Partition {
    /// Serves the segments that are due no more; their files stay. `None` when none is due.
    pub(crate) async fn hide_due(&self, limits: RetentionLimits) -> Option<Due> {
        if self.is_offline() {
            return None;
        }
        let high_watermark = self.replica.borrow().high_watermark();
        let now = TimestampMs(time::unix_ms());
        match self.log().due(limits, high_watermark, now).await {
            Ok(due) => {
                let due = due?;
                self.begin_at(due.start);
                Some(due)
            }
            // Closed, failed or compacted since.
            Err(ReadError::Closed | ReadError::Offline { .. } | ReadError::Replaced) => None,
            Err(error) => {
                tracing::warn!(partition = %self.log().name(), %error,
                    "retention can not tell how old the log's first segments are");
                None
            }
        }
    }

    /// The batches below `end` are to go, and may be the only place that says what their producers have written
    /// (RP-69): a snapshot says it before they do. False when they have to stay for that.
    async fn keep_producers(&self, end: Offset) -> bool {
        let storing = self.snapshot_stored.borrow_mut().take();
        if let Some(storing) = storing {
            storing.await;
        }
        let log = self.log();
        if log.snapshot_lasts(self.snapshot_kept.get(), end) {
            return true;
        }
        let (at, bytes) = self.replica.borrow().producer_snapshot();
        let stored = log.store_lasting_snapshot(at, bytes).await;
        match producers::said(&log, at, stored) {
            Ok(()) => {
                self.snapshot_kept.set(at);
                true
            }
            // Nothing would ever make room. The next start does not know these producers then, and they may go on.
            Err(error) => error.may_pass(),
        }
    }

    /// Removes the files of hidden segments.
    pub(crate) async fn remove_hidden(&self, due: &Due, kept: StartKept, delay: Duration) {
        let log = self.log();
        let name = log.name();
        if !self.keep_producers(log.removed_end(due.start)).await {
            return;
        }
        let removed = match log.remove_segments(due.start, kept, delay).await {
            Ok(removed) => removed,
            Err(LogError::Closed | LogError::Offline { .. }) => return,
            Err(error) => {
                tracing::error!(partition = %name, %error, "segments not all deleted");
                return;
            }
        };
        // There was no room for a removal, or the first segment has to stay.
        if removed.segments == 0 {
            return;
        }
        tracing::info!(partition = %name, segments = removed.segments, bytes = removed.bytes,
            start = due.start.0, reason = %due.reasons, "deleted segments");
        let epochs = self.replica.borrow().epochs().clone();
        match log.store_epochs(&epochs).await {
            Ok(()) | Err(LogError::Closed | LogError::Offline { .. }) => {}
            // They are cut again at the next start.
            Err(error) => tracing::warn!(partition = %name, %error, "leader epochs not written"),
        }
    }
}
