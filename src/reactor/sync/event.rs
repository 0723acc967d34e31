//! A counting wake that any thread may give and any task may await.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::home::Waiting;
use super::lock;

/// A counter of permits with waiters. [`Event::notify`] adds one permit, [`Event::wait`] takes one;
/// [`Event::open`] lets everybody through for ever (a shutdown, a one-shot broadcast).
///
/// Clones share the counter. Waiters are served in the order in which they first waited.
#[derive(Clone, Default)]
pub struct Event(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    permits: u64,
    open: bool,
    next_id: u64,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    id: u64,
    waiting: Waiting,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Event")
            .field("permits", &state.permits)
            .field("open", &state.open)
            .field("waiters", &state.waiters.len())
            .finish()
    }
}

impl Event {
    /// An event without permits.
    pub fn new() -> Event {
        Event::default()
    }

    /// Adds one permit and wakes the first waiter, if there is one.
    pub fn notify(&self) {
        let first = {
            let mut state = lock(&self.0);
            state.permits = state.permits.saturating_add(1);
            state.waiters.pop_front()
        };
        if let Some(waiter) = first {
            waiter.waiting.wake();
        }
    }

    /// Lets every present and future wait through.
    pub fn open(&self) {
        let waiters = {
            let mut state = lock(&self.0);
            state.open = true;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            waiter.waiting.wake();
        }
    }

    /// True once [`Event::open`] was called.
    pub fn is_open(&self) -> bool {
        lock(&self.0).open
    }

    /// Takes one permit if there is one (always true on an open event).
    pub fn try_take(&self) -> bool {
        lock(&self.0).take()
    }

    /// Takes all permits and says how many there were: several wakes, one round of work.
    pub fn take_all(&self) -> u64 {
        std::mem::take(&mut lock(&self.0).permits)
    }

    /// Waits for one permit and takes it. Dropping the future before it is done takes none: a wake
    /// that it had been given goes to the next waiter.
    pub fn wait(&self) -> Wait {
        Wait {
            event: self.clone(),
            id: None,
        }
    }
}

impl State {
    fn take(&mut self) -> bool {
        if self.open {
            return true;
        }
        if self.permits == 0 {
            return false;
        }
        self.permits -= 1;
        true
    }
}

/// The future of [`Event::wait`].
#[derive(Debug)]
pub struct Wait {
    event: Event,
    id: Option<u64>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let id = self.id;
        let new_id = {
            let mut state = lock(&self.event.0);
            if state.take() {
                if let Some(id) = id {
                    state.waiters.retain(|waiter| waiter.id != id);
                }
                None
            } else {
                let known = state
                    .waiters
                    .iter_mut()
                    .find(|waiter| Some(waiter.id) == id);
                if let Some(waiter) = known {
                    waiter.waiting.renew(cx);
                    return Poll::Pending;
                }
                let id = state.next_id;
                state.next_id += 1;
                state.waiters.push_back(Waiter {
                    id,
                    waiting: Waiting::new(cx),
                });
                Some(id)
            }
        };
        self.id = new_id;
        match new_id {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let next = {
            let mut state = lock(&self.event.0);
            let before = state.waiters.len();
            state.waiters.retain(|waiter| waiter.id != id);
            let was_woken = state.waiters.len() == before;
            if was_woken && state.permits > 0 {
                state.waiters.pop_front()
            } else {
                None
            }
        };
        if let Some(waiter) = next {
            waiter.waiting.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::tests_support::{block_on, poll_once};

    #[test]
    fn permits_are_counted() {
        let event = Event::new();
        event.notify();
        event.notify();
        block_on(event.wait());
        block_on(event.wait());
        assert!(poll_once(&mut event.wait()).is_pending());
        event.notify();
        event.notify();
        assert_eq!(event.take_all(), 2);
        assert!(!event.try_take());
    }

    #[test]
    fn a_wake_given_to_a_dropped_waiter_goes_on_to_the_next() {
        let event = Event::new();
        let mut first = event.wait();
        let mut second = event.wait();
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        event.notify();
        drop(first);
        assert!(poll_once(&mut second).is_ready());
        assert!(!event.try_take());
    }

    #[test]
    fn open_lets_everybody_through() {
        let event = Event::new();
        let mut waiting = event.wait();
        assert!(poll_once(&mut waiting).is_pending());
        event.open();
        assert!(poll_once(&mut waiting).is_ready());
        block_on(event.wait());
        assert!(event.is_open());
    }

    #[test]
    fn no_wakeup_is_lost_between_threads() {
        const ROUNDS: usize = 20_000;
        let event = Event::new();
        let givers: Vec<_> = (0..4)
            .map(|_| {
                let event = event.clone();
                std::thread::spawn(move || (0..ROUNDS).for_each(|_| event.notify()))
            })
            .collect();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let event = event.clone();
                std::thread::spawn(move || {
                    (0..ROUNDS * 2).for_each(|_| block_on(event.wait()));
                })
            })
            .collect();
        givers
            .into_iter()
            .chain(takers)
            .for_each(|thread| thread.join().unwrap());
        assert!(!event.try_take());
    }
}
