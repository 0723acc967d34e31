//! Clocks and timers of the calling thread's runtime. Timers have a grain of one millisecond and
//! never end early.

use std::fmt;
use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

pub use std::time::{Duration, Instant};

use crate::disk;

/// The monotonic clock.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall clock in milliseconds since 1970; negative before.
pub fn unix_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// Ends after `duration`; with a simulated disk, after as many turns of the scheduler as that has
/// milliseconds.
pub async fn sleep(duration: Duration) {
    if !disk::sleep(duration).await {
        tokio::time::sleep(duration).await;
    }
}

/// Ends at `deadline`, at once if it has passed.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline.into()).await;
}

/// The time of a [`timeout`] ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time ran out")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `future`, but drops it after `duration`.
///
/// # Errors
/// [`Elapsed`] if the time ran out first. A file operation the future waited for goes on.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout(duration, future)
        .await
        .map_err(|_| Elapsed)
}

/// As [`timeout`], by a point in time.
///
/// # Errors
/// [`Elapsed`] if the time ran out first.
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout_at(deadline.into(), future)
        .await
        .map_err(|_| Elapsed)
}
