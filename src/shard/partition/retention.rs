//! A partition's part in retention: the machine says how far, the log what and how.

use std::time::Duration;

use thalweg_reactor::time;
use thalweg_storage::{Due, LogError, ReadError, RetentionLimits, StartKept};
use thalweg_types::TimestampMs;

use super::Partition;

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

    /// Removes the files of hidden segments.
    pub(crate) async fn remove_hidden(&self, due: &Due, kept: StartKept, delay: Duration) {
        let log = self.log();
        let name = log.name();
        // The batches that go may be the only place that says what their producers have written (RP-69).
        let storing = self.snapshot_stored.borrow_mut().take();
        if let Some(storing) = storing {
            storing.await;
        }
        let removed = match log.remove_segments(due.start, kept, delay).await {
            Ok(removed) => removed,
            Err(LogError::Closed | LogError::Offline { .. }) => return,
            Err(error) => {
                tracing::error!(partition = %name, %error, "segments not all deleted");
                return;
            }
        };
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
