//! How far a group is behind in this partition.

use thalweg_control::Behind;
use thalweg_reactor::{task, time};
use thalweg_storage::RetentionLimits;
use thalweg_types::{Offset, TimestampMs};

use super::Partition;

impl Partition {
    /// Compares a committed offset with the log.
    pub(crate) async fn behind(&self, committed: i64, limits: RetentionLimits) -> Behind {
        let (high_watermark, last_stable) = {
            let replica = self.replica.borrow();
            (replica.high_watermark(), replica.last_stable())
        };
        let up_to = |end: Offset| end.0.saturating_sub(committed).max(0);
        let records = up_to(high_watermark);
        let mut behind = Behind {
            records,
            stable_records: up_to(last_stable),
            bytes: Some(0),
            age_ms: Some(0),
            removal_ms: None,
        };
        if records == 0 {
            return behind;
        }
        // Headers may come from the disk, and there are other partitions to look at.
        task::yield_now().await;
        let start = self.log().start_offset();
        let now = TimestampMs(time::unix_ms());
        let found = self
            .log()
            .unread(Offset(committed).max(start), limits, now)
            .await;
        let Ok(Some(unread)) = found else {
            // Nothing is left of it, or the log can not be read, which its readers are told.
            behind.bytes = found.is_ok().then_some(0);
            behind.age_ms = None;
            return behind;
        };
        behind.bytes = Some(unread.bytes);
        let age = |since: TimestampMs| now.0.saturating_sub(since.0).max(0);
        behind.age_ms = Some(unread.since).filter(|since| since.0 >= 0).map(age);
        behind.removal_ms = match committed < start.0 {
            true => Some(0), // some of it is gone already
            false => unread
                .removed_at
                .map(|at| at.0.saturating_sub(now.0).max(0)),
        };
        behind
    }
}
