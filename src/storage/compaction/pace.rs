//! How fast one cleaner may read and write, and when it must stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_reactor::{task, time};

use super::CleanError;

/// Longest sleep before it is looked whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes per second, which may change while they are spent.
#[derive(Debug)]
pub(super) struct Rate(AtomicU64);

impl Rate {
    pub(super) fn new(bytes_per_second: f64) -> Rate {
        Rate(AtomicU64::new(bytes_per_second.to_bits()))
    }

    pub(super) fn set(&self, bytes_per_second: f64) {
        self.0.store(bytes_per_second.to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed)).max(1.0)
    }
}

/// Spends bytes evenly over time.
pub(super) struct Pace {
    rate: Arc<Rate>,
    /// What was spent is paid for by then.
    paid: Instant,
    stop: Arc<AtomicBool>,
    /// Bytes spent.
    pub(super) spent: u64,
}

impl Pace {
    pub(super) fn new(rate: Arc<Rate>, stop: Arc<AtomicBool>) -> Pace {
        Pace {
            rate,
            paid: time::now(),
            stop,
            spent: 0,
        }
    }

    /// Waits until `bytes` more are within the rate.
    pub(super) async fn spend(&mut self, bytes: usize) -> Result<(), CleanError> {
        self.spent += bytes as u64;
        let mut rate = self.rate.get();
        let took = Duration::from_secs_f64(bytes as f64 / rate);
        self.paid = self.paid.max(time::now()) + took;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CleanError::Stopped);
            }
            let now = time::now();
            let mut left = self.paid.saturating_duration_since(now);
            let current = self.rate.get();
            if current.to_bits() != rate.to_bits() {
                // What is still owed is paid at the new rate.
                let seconds = left.as_secs_f64() * (rate / current);
                left = Duration::try_from_secs_f64(seconds).unwrap_or(left);
                (self.paid, rate) = (now + left, current);
            }
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

    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task, time};

    use super::{Pace, Rate};
    use crate::CleanError;

    #[test]
    fn bytes_take_their_time_and_a_stop_ends_the_wait() {
        let runtime = Runtime::new(RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        });
        runtime.expect("a runtime").block_on(async {
            let stop = Arc::new(AtomicBool::new(false));
            let rate = Arc::new(Rate::new(10_000.0));
            let mut pace = Pace::new(rate, Arc::clone(&stop));
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

    /// KAFKA-13996: who asks for more than a byte per second does not wait for what was spent at one.
    #[test]
    fn a_rate_that_changes_holds_for_what_is_owed() {
        let runtime = Runtime::new(RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        });
        runtime.expect("a runtime").block_on(async {
            let rate = Arc::new(Rate::new(1.0));
            let mut pace = Pace::new(Arc::clone(&rate), Arc::default());
            let spending = task::spawn(async move { pace.spend(1_000_000).await.is_ok() });
            task::yield_now().await;
            rate.set(f64::MAX);
            assert_eq!(spending.await, Some(true), "not after eleven days");
        });
    }
}
