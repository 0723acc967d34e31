//! Clocks and timers of the calling thread's runtime. Timers have a grain of one millisecond and
//! never end early.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

pub use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

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

/// Runs `future` and says how long it had to wait: from its first pause to its end. One that never pauses waited
/// for nothing, and the clock is not read for it.
pub fn waited<F: Future>(future: F) -> Waited<F> {
    Waited {
        future,
        paused: None,
    }
}

pin_project! {
    /// See [`waited`].
    #[must_use = "does nothing unless it is polled"]
    pub struct Waited<F> {
        #[pin]
        future: F,
        paused: Option<Instant>,
    }
}

impl<F: Future> Future for Waited<F> {
    type Output = (F::Output, Duration);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.future.poll(cx) {
            Poll::Ready(output) => {
                let waited = this.paused.map_or(Duration::ZERO, |since| now() - since);
                Poll::Ready((output, waited))
            }
            Poll::Pending => {
                this.paused.get_or_insert_with(now);
                Poll::Pending
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::{Duration, sleep, timeout, waited};
    use crate::{Runtime, RuntimeOptions};

    #[test]
    fn only_what_pauses_has_waited() {
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        runtime.block_on(async {
            assert_eq!(waited(ready(7)).await, (7, Duration::ZERO));
            let wait = Duration::from_millis(3);
            let ((), took) = waited(sleep(wait)).await;
            assert!(took >= wait, "{took:?}");
            let never = timeout(wait, waited(pending::<()>())).await;
            assert!(never.is_err());
        });
    }
}
