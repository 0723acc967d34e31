//! A partition's part in compaction: how far it may go, and what has become of it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use thalweg_config::TopicConfig;
use thalweg_reactor::time;
use thalweg_storage::{
    CleanError, CleanReport, Cleaner, CompactionLimits, CompactionOrder, Dirt, ReadError,
};
use thalweg_types::TimestampMs;

use super::Partition;

/// How compaction of a log has gone so far.
#[derive(Default)]
pub(crate) struct Cleaning {
    failures: Cell<u32>,
    not_before: Cell<Option<Instant>>,
    given_up: Cell<bool>,
}

impl Cleaning {
    /// True when a round may be tried at `now`.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        !self.given_up.get() && self.not_before.get().is_none_or(|at| at <= now)
    }

    /// True when none will be tried before the log is opened anew.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get()
    }

    pub(crate) fn on_cleaned(&self) {
        self.failures.set(0);
    }

    /// How long to wait now: twice as long as the last time, within bounds.
    pub(crate) fn on_failed(&self, first: Duration, most: Duration) -> Duration {
        let failures = self.failures.get();
        self.failures.set(failures.saturating_add(1));
        let first = first.max(Duration::from_millis(100));
        first
            .saturating_mul(1 << failures.min(20))
            .min(most.max(first))
    }

    pub(crate) fn try_again_at(&self, at: Instant) {
        self.not_before.set(Some(at));
    }

    pub(crate) fn give_up(&self) {
        self.given_up.set(true);
    }
}

impl Partition {
    pub(crate) fn cleaning(&self) -> &Cleaning {
        &self.cleaning
    }

    /// What waits for compaction. `None` when the log is not served, or damaged.
    pub(crate) async fn dirt(&self, config: &TopicConfig) -> Option<Dirt> {
        if self.is_offline() || self.cleaning.is_given_up() {
            return None;
        }
        let limits = CompactionLimits {
            min_lag_ms: config.min_compaction_lag_ms(),
            max_lag_ms: config.max_compaction_lag_ms(),
            stable_end: self.replica.borrow().stable_end(),
            now: TimestampMs(time::unix_ms()),
        };
        match self.log().dirt(limits).await {
            Ok(dirt) => Some(dirt),
            Err(ReadError::Closed | ReadError::Offline { .. } | ReadError::Replaced) => None,
            Err(error) => {
                tracing::warn!(partition = %self.log().name(), %error,
                    "compaction can not tell how old the log's segments are");
                None
            }
        }
    }

    /// Has the log cleaned.
    ///
    /// # Errors
    /// See [`CleanError`].
    pub(crate) async fn compact(
        &self,
        cleaner: &Cleaner,
        dirt: Dirt,
        config: &TopicConfig,
    ) -> Result<CleanReport, CleanError> {
        let order = CompactionOrder {
            dirt,
            now: TimestampMs(time::unix_ms()),
            delete_retention_ms: config.delete_retention_ms(),
            file_delete_delay: Duration::from_millis(config.file_delete_delay_ms()),
            live: self.replica.borrow().producers().last_written(),
        };
        let log = self.log();
        let report = log.compact(cleaner, order).await?;
        // What was copied to another place is from before it.
        match self.is_held() || !log.is(&self.log()) {
            true => Err(CleanError::Changed),
            false => Ok(report),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Cleaning;

    #[test]
    fn rp_105_failures_wait_ever_longer_and_a_success_forgets_them() {
        let cleaning = Cleaning::default();
        let (first, most) = (Duration::from_secs(15), Duration::from_secs(600));
        let waits: Vec<u64> = (0..40)
            .map(|_| cleaning.on_failed(first, most).as_secs())
            .collect();
        assert_eq!(waits[..7], [15, 30, 60, 120, 240, 480, 600]);
        assert_eq!(waits[39], 600);
        cleaning.on_cleaned();
        assert_eq!(cleaning.on_failed(first, most), first);
        let now = Instant::now();
        assert!(cleaning.is_ready(now));
        cleaning.try_again_at(now + first);
        assert!(!cleaning.is_ready(now) && cleaning.is_ready(now + first));
        cleaning.give_up();
        assert!(cleaning.is_given_up() && !cleaning.is_ready(now + first));
    }
}
