//! Writes of this thread that are under way, for work that can wait for them.
//!
//! A thread that computes all the time has its core to itself for a whole slice of the kernel's scheduler, and kernel
//! workers that write for it on the same core wait until that is over: some milliseconds each time. Work that nobody
//! waits for lets them go first.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::time::{self, Duration, Elapsed};

#[derive(Default)]
struct Writes {
    begun: Cell<u64>,
    ended: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

thread_local! {
    static WRITES: Writes = Writes::default();
}

/// One write, for as long as its task waits for it.
pub(super) struct Writing(());

impl Writing {
    pub(super) fn begin() -> Writing {
        WRITES.with(|writes| writes.begun.set(writes.begun.get() + 1));
        Writing(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let waiting = WRITES.with(|writes| {
            writes.ended.set(writes.ended.get() + 1);
            std::mem::take(&mut *writes.waiting.borrow_mut())
        });
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits until as many writes of this thread have ended as are under way now; at once where there are none.
///
/// # Errors
/// [`Elapsed`] when they took longer than `max`.
pub async fn let_writes_end(max: Duration) -> Result<(), Elapsed> {
    let begun = WRITES.with(|writes| writes.begun.get());
    let have_ended = |writes: &Writes| writes.ended.get() >= begun;
    if WRITES.with(have_ended) {
        return Ok(());
    }
    let ended = poll_fn(|cx| {
        WRITES.with(|writes| match have_ended(writes) {
            true => Poll::Ready(()),
            false => {
                writes.waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
    });
    time::timeout(max, ended).await
}

#[cfg(test)]
mod tests {
    use super::{Writing, let_writes_end};
    use crate::time::Duration;
    use crate::{EngineChoice, Runtime, RuntimeOptions, task};

    #[test]
    fn writes_that_are_under_way_are_waited_for_and_later_ones_are_not() {
        let options = RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        };
        Runtime::new(options).expect("a runtime").block_on(async {
            let for_ever = Duration::from_secs(3_600);
            assert_eq!(let_writes_end(for_ever).await, Ok(()), "there are none");
            let (first, second) = (Writing::begin(), Writing::begin());
            let short = let_writes_end(Duration::from_millis(1)).await;
            assert!(short.is_err(), "they take longer");
            let waits = task::spawn(let_writes_end(for_ever));
            task::yield_now().await;
            let later = Writing::begin();
            drop(first);
            task::yield_now().await;
            assert!(!waits.is_finished(), "one of two has ended");
            drop(second);
            assert_eq!(waits.await, Some(Ok(())));
            drop(later);
        });
    }
}
