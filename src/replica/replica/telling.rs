//! What a partition tells of itself, and that it is in order.

use thalweg_types::{LeaderEpoch, Offset};

use super::{Replica, Role};
use crate::epoch_cache::EpochCache;
use crate::producers::Producers;

impl Replica {
    /// Producers of the log.
    #[must_use]
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// Leader epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> &EpochCache {
        &self.epochs
    }

    /// Newest leader epoch that the metadata named; [`LeaderEpoch::NONE`] before the first.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// True while this broker leads the partition and serves it.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// First offset of the log.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// End of what has offsets, written or not.
    #[must_use]
    pub fn assigned_end(&self) -> Offset {
        self.assigned_end
    }

    /// End of what is written: the log end offset (LEO) of Kafka.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        self.written_end
    }

    /// End of what is on the disk, as far as storage has told.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.acked.durable_end()
    }

    /// End of what counts: producers that do not wait for other replicas are answered up to here.
    #[must_use]
    pub fn acked_end(&self) -> Offset {
        self.acked.end()
    }

    /// High watermark.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Everything below is committed, and decided where it is part of a transaction.
    #[must_use]
    pub fn stable_end(&self) -> Offset {
        self.last_stable()
    }

    /// Produces that wait for their answer.
    #[must_use]
    pub fn parked_produces(&self) -> usize {
        self.await_acked.len() + self.await_committed.len()
    }

    /// Fetches that wait for records.
    #[must_use]
    pub fn parked_fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Asserts the invariants of the module.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        assert!(self.log_start.0 >= 0, "offsets are not negative");
        assert!(
            self.log_start <= self.high_watermark,
            "log start <= high watermark"
        );
        assert!(
            self.high_watermark <= self.acked.end(),
            "high watermark <= acknowledged end"
        );
        assert!(
            self.written_end <= self.assigned_end,
            "written end <= assigned end"
        );
        self.epochs.check();
        self.producers.check();
        let newest = self
            .epochs
            .latest()
            .map_or(Offset::ZERO, |entry| entry.start);
        assert!(newest <= self.written_end, "no epoch begins beyond the log");
        self.acked.check(self.written_end);
        self.await_acked.check(self.acked.end(), self.assigned_end);
        self.await_committed
            .check(self.high_watermark, self.assigned_end);
        self.byte_counts
            .check(self.high_watermark, self.assigned_end);
        self.fetches.check(self.byte_counts.visible());
        match &self.role {
            Role::Leader(leading) => {
                assert!(
                    self.committed_end(leading) <= self.high_watermark,
                    "it never lags"
                );
            }
            Role::Stopped(_) => {
                assert_eq!(
                    self.parked_produces(),
                    0,
                    "nothing waits on a stopped partition"
                );
                assert_eq!(
                    self.parked_fetches(),
                    0,
                    "nothing waits on a stopped partition"
                );
            }
        }
    }
}
