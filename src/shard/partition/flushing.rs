//! A partition's part in what is flushed in the background, and what is written down of it.

use std::rc::Rc;

use thalweg_control::LogProgress;
use thalweg_reactor::time::{self, Instant};
use thalweg_storage::LogError;
use thalweg_types::Offset;

use super::Partition;

impl Partition {
    /// True when something has been written for long and is not on the disk.
    pub(crate) fn is_flush_due(&self, now: Instant) -> bool {
        self.log().is_flush_due(now)
    }

    /// Makes durable what is written, at a pace.
    pub(crate) async fn flush(self: Rc<Self>) {
        match self.log().flush_in_background().await {
            // A flush that fails has told the machine already.
            Ok(_) | Err(LogError::Closed | LogError::Offline { .. }) => {}
            Err(error) => self.say(|more| {
                tracing::warn!(partition = %self.log().name(), %error, left_out = more, "not flushed");
            }),
        }
    }

    /// Says what every log on a full disk would have to say, once in a while for the whole shard.
    pub(super) fn say(&self, line: impl FnOnce(u64)) {
        if let Some(more) = self.failures.admit(time::now()) {
            line(more);
        }
    }

    /// Bytes written and not known to be on the disk.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.log().unflushed_bytes()
    }

    /// How far the log is, if the checkpoints say something else. They do until
    /// [`Partition::on_recorded`].
    pub(crate) fn news(&self) -> Option<LogProgress> {
        if self.is_offline() {
            return None;
        }
        let now = LogProgress {
            recovery_point: self.log().recovery_point(),
            known_point: self.log().known_point(),
            high_watermark: self.replica.borrow().high_watermark(),
        };
        (self.recorded.get() != Some(now)).then_some(now)
    }

    /// True when acknowledgements wait for the disk and the checkpoints do not say of all closed segments that
    /// are on it that they are.
    pub(crate) fn has_new_durable_segment(&self) -> bool {
        let recorded = self.recorded.get().map(|told| told.recovery_point);
        self.log()
            .has_durable_segment_above(recorded.unwrap_or_default())
    }

    /// True when a start after a kill would have a long way to the log's mark.
    pub(crate) fn is_way_long(&self) -> bool {
        self.log().is_way_long()
    }

    /// Saves what makes that way short, with what the log says of its producers.
    pub(crate) async fn save_way(self: Rc<Self>) {
        let (at, snapshot) = self.replica.borrow().producer_snapshot();
        match self.log().save_way(at, snapshot).await {
            Ok(()) | Err(LogError::Closed | LogError::Offline { .. }) => {}
            Err(error) => self.say(|more| {
                tracing::warn!(partition = %self.log().name(), %error, left_out = more,
                    "indexes not saved: a start after a kill has more to read");
            }),
        }
    }

    /// The log's mark, if the file of marks does not have it.
    pub(crate) fn new_mark(&self) -> Option<Offset> {
        let mark = self.log().mark().filter(|mark| *mark > Offset::ZERO)?;
        (self.mark_recorded.get() != Some(mark)).then_some(mark)
    }

    /// The file of marks has it.
    pub(crate) fn on_mark_recorded(&self, mark: Offset) {
        self.mark_recorded.set(Some(mark));
    }

    /// The checkpoints say so.
    pub(crate) fn on_recorded(&self, progress: LogProgress) {
        self.recorded.set(Some(progress));
    }
}
