//! Wakes that come from other threads, several for the price of one.
//!
//! To wake a task of another thread's runtime is a write to that runtime's eventfd each time, whether the thread
//! sleeps or not. So each runtime has a *home*: a mailbox of the wakers of its own tasks, and one task that
//! takes them out and wakes their tasks. Who wakes from elsewhere puts the waker in there, and only the first one since
//! that task last looked pays for a wake. A full home, or one of a runtime that is gone, leaves the waker to who
//! has it: a wake may cost more then, and is never lost.

use std::sync::Arc;
use std::task::{Context, Waker};

use super::mailbox::{self, TrySendError};
use crate::{context, stats, task};

/// Wakers that wait for the task of their home. What does not fit is woken the dear way.
const WAKERS_MAX: usize = 1_024;

/// Wakers that are woken before other tasks may run.
const WAKES_PER_TURN: usize = 256;

/// Where wakers of the tasks of one runtime are handed in by other threads.
pub(crate) struct Home(mailbox::Sender<Waker>);

/// The other side of a [`Home`].
pub(crate) struct Keeper(mailbox::Receiver<Waker>);

/// Makes the home of a runtime. It is open while [`Keeper::keep`] runs in that runtime.
pub(crate) fn new() -> (Arc<Home>, Keeper) {
    let (home, keeper) = mailbox::channel(WAKERS_MAX);
    (Arc::new(Home(home)), Keeper(keeper))
}

impl Home {
    fn hand_in(&self, waker: Waker) {
        match self.0.try_send(waker) {
            Ok(()) => {}
            Err(TrySendError::Full(waker) | TrySendError::Closed(waker)) => waker.wake(),
        }
    }
}

impl Keeper {
    /// Wakes what other threads hand in. A task of the runtime; ends when nobody has its home any more.
    pub(crate) async fn keep(mut self) {
        let mut wakers = Vec::new();
        loop {
            let taken = self.0.recv_many(&mut wakers, WAKES_PER_TURN).await;
            if taken == 0 {
                return;
            }
            stats::count(|stats| {
                stats.wakes_taken_in += taken as u64;
                stats.rounds_of_wakes += 1;
            });
            wakers.drain(..).for_each(Waker::wake);
            if taken == WAKES_PER_TURN {
                task::yield_now().await;
            }
        }
    }
}

/// A task that waits, perhaps for another thread.
pub(crate) struct Waiting {
    waker: Waker,
    /// Of the runtime that it waits in; none where the thread has none.
    home: Option<Arc<Home>>,
}

impl Waiting {
    /// The task that is polled with `cx` on this thread.
    pub(crate) fn new(cx: &Context<'_>) -> Waiting {
        Waiting {
            waker: cx.waker().clone(),
            home: context::home(),
        }
    }

    /// It was polled again, perhaps as another task.
    pub(crate) fn renew(&mut self, cx: &Context<'_>) {
        if !self.waker.will_wake(cx.waker()) {
            *self = Waiting::new(cx);
        }
    }

    /// Wakes it, from whatever thread.
    pub(crate) fn wake(self) {
        match self.home {
            Some(home) if !context::is_at(&home) => home.hand_in(self.waker),
            Some(_) | None => self.waker.wake(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_finds_no_room_or_nobody_is_woken_all_the_same() {
        let woken = Arc::new(Count::default());
        let (home, keeper) = new();
        let wake = || home.hand_in(Waker::from(Arc::clone(&woken)));
        (0..WAKERS_MAX).for_each(|_| wake());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "the keeper has them");
        wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        drop(keeper);
        wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    }
}
