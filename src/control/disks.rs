//! Looks at the disks of the log directories, again and again: how much room is left, and whether they
//! answer. The looks run on background threads, never on a shard's turn.

use std::sync::Arc;
use std::time::Duration;

use thalweg_metrics::LogDirFacts;
use thalweg_reactor::fs::Space;
use thalweg_reactor::task::{self, Task};
use thalweg_reactor::time;
use thalweg_storage::{DirHealth, Room};
use thalweg_types::limits::{
    DISK_LOOK_EVERY_MS, DISK_STALL_MS, HEADROOM_DERIVED_BYTES_MAX, HEADROOM_DERIVED_SHARE,
};

use crate::facts::Facts;

/// How much room must stay free on the disk of a log directory: `thalweg.log.dirs.headroom.bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headroom {
    /// A share of the file system's size.
    Derived,
    /// So many bytes; 0 looks at nothing.
    Bytes(u64),
}

impl Headroom {
    /// In bytes, on a file system of that size.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Headroom::Derived => (total / HEADROOM_DERIVED_SHARE).min(HEADROOM_DERIVED_BYTES_MAX),
            Headroom::Bytes(bytes) => bytes,
        }
    }
}

/// The watch over one log directory. Each has its own, so that a disk which does not answer keeps nobody
/// from looking at the others.
pub struct DiskWatch {
    headroom: Headroom,
    facts: Arc<Facts>,
    index: usize,
    health: Arc<DirHealth>,
    /// It was said that the disk does not answer.
    stalled: bool,
    /// A question for the room that is not answered yet.
    asking: Option<Task<Option<Space>>>,
}

impl DiskWatch {
    /// Looks once at each, so that the first request meets what is true, and from then on in the
    /// background.
    ///
    /// With `probe_every`, a directory in which nothing was synced for so long is asked whether it still works.
    pub async fn begin(
        headroom: Headroom,
        probe_every: Option<Duration>,
        facts: &Arc<Facts>,
        dirs: Vec<Arc<DirHealth>>,
    ) {
        for (index, health) in dirs.into_iter().enumerate() {
            if let Some(every) = probe_every {
                // A probe that does not come back keeps nobody from looking.
                task::spawn(probe(Arc::clone(&health), every));
            }
            let mut watch = DiskWatch {
                headroom,
                facts: Arc::clone(facts),
                index,
                health,
                stalled: false,
                asking: None,
            };
            watch.look().await;
            task::spawn(async move {
                loop {
                    time::sleep(Duration::from_millis(DISK_LOOK_EVERY_MS)).await;
                    watch.look().await;
                }
            });
        }
    }

    async fn look(&mut self) {
        let health = Arc::clone(&self.health);
        let is_offline = health.failure().is_some();
        let mut space = None;
        // A disk that failed is left alone.
        if !is_offline {
            self.look_at_answers();
            space = self.space().await;
        }
        if let Some(space) = space {
            let room = Room {
                total: space.total_bytes,
                usable: space.usable_bytes,
                headroom: self.headroom.bytes(space.total_bytes),
            };
            health.on_room(room).await;
        }
        let oldest = health.oldest_operation().filter(|_| !is_offline);
        let facts = LogDirFacts {
            failure: health.failure().map(ToString::to_string),
            path: health.path().to_string_lossy().into_owned(),
            is_offline,
            is_full: health.is_full() && !is_offline,
            total_bytes: space.map(|space| space.total_bytes),
            usable_bytes: space.map(|space| space.usable_bytes),
            oldest_operation: oldest.map_or(Duration::ZERO, |oldest| oldest.age),
        };
        self.facts.set_log_dir(self.index, facts);
    }

    /// The room, unless the disk keeps it to itself for long; the question is not asked again then.
    async fn space(&mut self) -> Option<Space> {
        let asking = self.asking.get_or_insert_with(|| {
            let health = Arc::clone(&self.health);
            task::spawn(async move { health.space().await.ok() })
        });
        let most = Duration::from_millis(DISK_LOOK_EVERY_MS);
        let answer = time::timeout(most, asking).await.ok()?;
        self.asking = None;
        answer.flatten()
    }

    fn look_at_answers(&mut self) {
        let limit = Duration::from_millis(DISK_STALL_MS);
        let oldest = self.health.oldest_operation();
        let late = oldest.filter(|oldest| oldest.age >= limit);
        let dir = self.health.path().display();
        match (late, self.stalled) {
            (Some(late), false) => tracing::warn!(%dir, operation = late.operation,
                age_ms = late.age.as_millis() as u64,
                "the disk does not answer: what waits for it times out; look at the device"),
            (None, true) => tracing::info!(%dir, "the disk answers again"),
            (Some(_), true) | (None, false) => {}
        }
        self.stalled = late.is_some();
    }
}

/// Asks the disk, as long as it works.
async fn probe(health: Arc<DirHealth>, every: Duration) {
    while health.failure().is_none() {
        time::sleep(every).await;
        health.probe(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Headroom;

    #[test]
    fn st_20_the_derived_headroom_is_a_share_with_a_bound() {
        assert_eq!(Headroom::Derived.bytes(5_000), 100);
        assert_eq!(Headroom::Derived.bytes(1 << 50), 1 << 30);
        assert_eq!(Headroom::Bytes(0).bytes(1 << 50), 0);
        assert_eq!(Headroom::Bytes(7).bytes(1), 7);
    }
}
