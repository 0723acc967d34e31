//! Asks the disk of a log directory whether it still takes writes, where nobody else does: a directory that is
//! idle, or read only, would otherwise keep its failure to itself until the next start.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_reactor::fs::{self, OpenMode};

use crate::health::DirHealth;

/// The file that is written.
pub(crate) const PROBE: &str = "thalweg-probe";
/// What is in it: no more than a block, so that the second probe needs no room.
const TEXT: &[u8] = b"written now and then to see whether the disk still takes it\n";

/// When the disk last said that something is on it.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<Option<Instant>>);

impl Answered {
    pub(crate) fn now(&self) {
        let now = Some(Instant::now());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn within(&self, time: Duration) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < time)
    }
}

impl DirHealth {
    /// Writes a few bytes and syncs them, unless a sync in the directory went well within `idle`. A failure
    /// condemns the directory as that of a log does; without room or handles nothing is known.
    pub async fn probe(&self, idle: Duration) {
        if self.failure().is_some() || self.answered.within(idle) {
            return;
        }
        let in_flight = self.begin("probe");
        let path = self.path().join(PROBE);
        let probed = match write(&path).await {
            Ok(file) => fs::sync_data(&file).await.map_err(|error| (true, error)),
            Err(error) => Err((false, error)),
        };
        drop(in_flight);
        match probed {
            Ok(()) => self.answered.now(),
            Err((true, error)) => self.judge_sync(&path, &error),
            Err((false, error)) => self.judge(&path, &error),
        }
    }
}

async fn write(path: &std::path::Path) -> io::Result<fs::File> {
    let file = fs::open(path, OpenMode::Create).await?;
    fs::write_at(&file, vec![Bytes::from_static(TEXT)], 0).await?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::PROBE;
    use crate::health::DirHealth;
    use crate::whole_log_tests::on_plain_engine;

    #[test]
    fn st_18_an_idle_directory_is_asked_and_a_busy_one_is_not() {
        on_plain_engine(|root| async move {
            let health = DirHealth::new(&root);
            let file = root.join(PROBE);
            health.answered.now();
            health.probe(Duration::from_secs(3_600)).await;
            assert!(!file.exists());
            health.probe(Duration::ZERO).await;
            let written = std::fs::metadata(&file).expect("written").len();
            health.probe(Duration::ZERO).await;
            assert_eq!(std::fs::metadata(&file).expect("there").len(), written);
            assert!(health.failure().is_none() && written < 512);
            // It has just answered.
            std::fs::remove_file(&file).expect("removed");
            health.probe(Duration::from_secs(3_600)).await;
            assert!(!file.exists());
        });
    }

    #[test]
    fn st_18_a_disk_that_takes_no_write_is_found_without_a_log() {
        on_plain_engine(|root| async move {
            let health = DirHealth::new(&root);
            // Writes to it fail as those to a full disk do, which says nothing; then as to no file.
            std::os::unix::fs::symlink("/dev/full", root.join(PROBE)).expect("made");
            health.probe(Duration::ZERO).await;
            assert!(health.failure().is_none());
            std::fs::remove_file(root.join(PROBE)).expect("removed");
            std::os::unix::fs::symlink("/proc/self/mem", root.join(PROBE)).expect("made");
            health.probe(Duration::ZERO).await;
            let reason = health.failure().expect("condemned");
            assert!(reason.contains(PROBE), "{reason}");
        });
    }
}
