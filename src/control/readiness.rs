//! Whether the broker serves, as `/readyz` tells it.

use std::sync::atomic::{AtomicU8, Ordering};

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

/// Shared between the thread that starts and stops the broker and the HTTP endpoints.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// All logs are open and the listener accepts.
    pub fn mark_ready(&self) {
        self.0.store(READY, Ordering::Release);
    }

    /// No new connection is accepted from here on.
    pub fn mark_stopping(&self) {
        self.0.store(STOPPING, Ordering::Release);
    }

    /// True between [`Readiness::mark_ready`] and [`Readiness::mark_stopping`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire) == READY
    }

    /// True before [`Readiness::mark_ready`].
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.0.load(Ordering::Acquire) == STARTING
    }

    /// One word for people: `starting`, `ready` or `stopping`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.0.load(Ordering::Acquire) {
            STARTING => "starting",
            READY => "ready",
            _ => "stopping",
        }
    }
}
