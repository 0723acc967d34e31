//! How fast one cleaner may read and write, and when it must stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_reactor::{task, time};

use super::CleanError;

/// Longest sleep before it is looked whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Spends bytes evenly over time.
pub(super) struct Pace {
    bytes_per_second: f64,
    /// What was spent is paid for by then.
    paid: Instant,
    stop: Arc<AtomicBool>,
    /// Bytes spent.
    pub(super) spent: u64,
}

impl Pace {
    pub(super) fn new(bytes_per_second: f64, stop: Arc<AtomicBool>) -> Pace {
        Pace {
            bytes_per_second: bytes_per_second.max(1.0),
            paid: time::now(),
            stop,
            spent: 0,
        }
    }

    /// Waits until `bytes` more are within the rate.
    pub(super) async fn spend(&mut self, bytes: usize) -> Result<(), CleanError> {
        self.spent += bytes as u64;
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        self.paid = self.paid.max(time::now()) + took;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CleanError::Stopped);
            }
            let left = self.paid.saturating_duration_since(time::now());
            if left < Duration::from_millis(1) {
                task::yield_now().await;
                return Ok(());
            }
            time::sleep(left.min(LOOK_EVERY)).await;
        }
    }
}
