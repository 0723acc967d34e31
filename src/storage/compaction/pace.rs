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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, time};

    use super::Pace;
    use crate::CleanError;

    #[test]
    fn bytes_take_their_time_and_a_stop_ends_the_wait() {
        let runtime = Runtime::new(RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        });
        runtime.expect("a runtime").block_on(async {
            let stop = Arc::new(AtomicBool::new(false));
            let mut pace = Pace::new(10_000.0, Arc::clone(&stop));
            let began = time::now();
            for _ in 0..2 {
                pace.spend(500).await.expect("not stopped");
            }
            // Less than a millisecond of a tenth of a second is not waited for.
            assert!(time::now() - began >= Duration::from_millis(99));
            assert_eq!(pace.spent, 1_000);
            stop.store(true, Ordering::Relaxed);
            let stopped = pace.spend(usize::MAX >> 30).await;
            assert!(matches!(stopped, Err(CleanError::Stopped)));
        });
    }
}
