//! Waiting between tasks of one thread: a list of wakers and a mutex over it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tasks that wait for a condition.
#[derive(Default)]
pub(crate) struct Waiters {
    wakers: RefCell<Vec<Waker>>,
}

impl Waiters {
    /// Lets every waiter look at its condition again.
    pub(crate) fn wake_all(&self) {
        for waker in self.wakers.take() {
            waker.wake();
        }
    }

    /// Returns when `ready` holds; it is looked at now and after each [`Waiters::wake_all`].
    pub(crate) async fn until(&self, mut ready: impl FnMut() -> bool) {
        poll_fn(|context| {
            if ready() {
                return Poll::Ready(());
            }
            self.wakers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A mutex without data for tasks of one thread.
#[derive(Default)]
pub(crate) struct Turn {
    taken: Cell<bool>,
    waiters: Waiters,
}

impl Turn {
    /// Waits until nobody has the turn and takes it until the guard is dropped.
    pub(crate) async fn take(&self) -> TurnGuard<'_> {
        self.waiters.until(|| !self.taken.replace(true)).await;
        TurnGuard { turn: self }
    }
}

/// Gives the turn back when dropped.
pub(crate) struct TurnGuard<'a> {
    turn: &'a Turn,
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.turn.taken.set(false);
        self.turn.waiters.wake_all();
    }
}
