//! How far a start is with opening logs: written by all shards, read by the log and the endpoints.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_reactor::time::{self, Instant};

/// Counts of one start.
#[derive(Debug, Default)]
pub struct OpeningProgress {
    began: OnceLock<Instant>,
    logs: AtomicU64,
    open: AtomicU64,
    bytes_checked: AtomicU64,
    bytes_trusted: AtomicU64,
}

/// What the counts say at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpeningSoFar {
    /// Logs that are to be opened.
    pub logs: u64,
    /// Those of them that are open, or can not be opened.
    pub open: u64,
    /// Bytes of logs that were checked.
    pub bytes_checked: u64,
    /// Bytes above the recovery points that were believed to be as they were marked.
    pub bytes_trusted: u64,
    /// Since it began.
    pub took: Duration,
}

impl OpeningProgress {
    pub(crate) fn begin(&self, logs: usize) {
        let _ = self.began.set(time::now());
        self.logs.store(logs as u64, Ordering::Relaxed);
    }

    /// A log was checked.
    pub fn checked(&self, bytes: u64, trusted: u64) {
        self.bytes_checked.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_trusted.fetch_add(trusted, Ordering::Relaxed);
    }

    /// A log is open, or is known to stay offline.
    pub fn one_done(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// How far it is.
    #[must_use]
    pub fn get(&self) -> OpeningSoFar {
        let logs = self.logs.load(Ordering::Relaxed);
        OpeningSoFar {
            logs,
            // Logs of topics that are made later are opened the same way.
            open: self.open.load(Ordering::Relaxed).min(logs),
            bytes_checked: self.bytes_checked.load(Ordering::Relaxed),
            bytes_trusted: self.bytes_trusted.load(Ordering::Relaxed),
            took: self
                .began
                .get()
                .map_or(Duration::ZERO, |began| time::now() - *began),
        }
    }
}
