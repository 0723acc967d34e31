//! What follows when a log directory fails: the others go on, or nothing is left to serve from.
//!
//! Whatever thread finds that out only says so; the rest happens on the control thread. First the
//! directory gets a trace for the next start, in bounded time: its disk may not answer any more.

use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{mailbox, time};
use thalweg_storage::{DirHealth, leave_trace};
use thalweg_types::limits::DISK_TRACE_MS_MAX;

use crate::log_dirs::{DirIndex, LogDirs};

/// A log directory failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The others go on.
    One {
        /// Which.
        dir: DirIndex,
        /// Its path and why, in words.
        what: String,
    },
    /// There is nothing left to serve, for the reason that is told in words.
    Everything(String),
}

/// Which directories there are, and whether they work. Clones are the same.
#[derive(Clone)]
pub struct Losses {
    dirs: Arc<[Watched]>,
    metadata: DirIndex,
    log_count: usize,
}

struct Watched {
    health: Arc<DirHealth>,
    /// It was opened by this process, which may write a trace into it.
    opened: bool,
}

impl Losses {
    /// Has every failure from now on told by the receiver that is returned.
    #[must_use]
    pub fn watch(dirs: &LogDirs) -> (Losses, mailbox::Receiver<DirIndex>) {
        let healths = dirs.healths();
        let log_count = dirs.log_healths().len();
        // Each fails once, and may be found failed below.
        let (failed, told) = mailbox::channel(healths.len().max(1) * 2);
        let watched = healths.into_iter().enumerate().map(|(i, health)| {
            let opened = health.failure().is_none();
            let tell = failed.clone();
            health.on_failure(move |_, _| drop(tell.try_send(DirIndex(i))));
            if opened && health.failure().is_some() {
                let _ = failed.try_send(DirIndex(i));
            }
            Watched { health, opened }
        });
        let losses = Losses {
            dirs: watched.collect(),
            metadata: dirs.metadata_index(),
            log_count,
        };
        (losses, told)
    }

    /// What the failure of `dir` means. Returns when its trace is left, or can not be.
    pub async fn on_failure(&self, dir: DirIndex) -> Loss {
        let watched = &self.dirs[dir.0];
        let reason = watched.health.failure().cloned();
        let reason = reason.unwrap_or_else(|| "it failed".into());
        if watched.opened {
            trace(&watched.health, &reason).await;
        }
        match self.everything_lost() {
            Some(what) => Loss::Everything(what),
            None => Loss::One {
                dir,
                what: format!("{}: {reason}", watched.health.path().display()),
            },
        }
    }

    /// Why there is nothing left to serve, if so: no directory for partitions works, or that of the
    /// metadata does not.
    #[must_use]
    pub fn everything_lost(&self) -> Option<String> {
        let told = |watched: &Watched| {
            let reason = watched.health.failure()?;
            Some(format!("{}: {reason}", watched.health.path().display()))
        };
        let logs = self.dirs.iter().take(self.log_count);
        let failed: Option<Vec<String>> = logs.map(told).collect();
        if let Some(failed) = failed {
            return Some(format!(
                "no log directory works any more ({})",
                failed.join("; ")
            ));
        }
        let metadata = told(&self.dirs[self.metadata.0])?;
        Some(format!(
            "the log directory of the metadata has failed ({metadata})"
        ))
    }
}

async fn trace(health: &DirHealth, reason: &str) {
    let wait_max = Duration::from_millis(DISK_TRACE_MS_MAX);
    let left = time::timeout(wait_max, leave_trace(health.path(), reason)).await;
    let dir = health.path().display();
    match left {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%dir, %error,
            "no trace of the failure was left: mount the file system anew before the next start"),
        Err(_) => tracing::warn!(%dir,
            "the disk does not answer, so no trace of the failure was left: mount the file system anew \
             before the next start"),
    }
}
