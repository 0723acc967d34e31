//! A partition's part in the scrub.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_net::Unread;
use thalweg_storage::{DamagedRange, Scrubbed};
use thalweg_types::Offset;

use super::Partition;

impl Partition {
    /// Checks a closed segment that was not checked for `interval`; `None` when there is none.
    ///
    /// # Errors
    /// It can not be read, or the scrub is stopping (`Interrupted`).
    pub(crate) async fn scrub_next(
        &self,
        interval: Duration,
        bytes_per_second: u64,
    ) -> io::Result<Option<Scrubbed>> {
        match self.is_offline() {
            true => Ok(None),
            false => self.log().scrub_next(interval, bytes_per_second).await,
        }
    }

    /// Bytes of segments that wait for that.
    pub(crate) fn scrub_due_bytes(&self, interval: Duration) -> u64 {
        self.log().scrub_due_bytes(interval)
    }

    /// Number and bytes of damaged ranges that are not served.
    pub(crate) fn quarantined_size(&self) -> (u64, u64) {
        self.log().quarantined_size()
    }

    /// The file and the damaged range that `offset` is in.
    pub(crate) async fn damage_of(&self, offset: Offset) -> Option<(PathBuf, DamagedRange)> {
        self.log().damage_of(offset).await
    }

    /// What an answer promised could not be read.
    pub(crate) async fn note_unread(&self, unread: &Unread) {
        let Unread {
            path,
            position,
            reason,
        } = unread;
        self.log().note_unreadable(path, *position, reason).await;
    }

    /// A batch was read that is not what was written. False when that is known already.
    pub(crate) fn note_damage(&self, first: Offset, position: u64, reason: &str) -> bool {
        self.log().note_damage(first, position, reason)
    }
}
