//! One value, once, from any thread to one waiting task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::home::Waiting;
use super::lock;

enum State<T> {
    Empty(Option<Waiting>),
    Value(T),
    /// The sender went away without a value, the value was taken, or the receiver went away.
    Closed,
}

/// The sending half. Dropping it unused tells the receiver `None`.
#[derive(Debug)]
pub struct Sender<T>(Option<Arc<Mutex<State<T>>>>);

/// The receiving half: a future of the value, or of `None` if the sender was dropped unused.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Mutex<State<T>>>);

impl<T> std::fmt::Debug for State<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Empty(_) => "Empty",
            State::Value(_) => "Value",
            State::Closed => "Closed",
        })
    }
}

/// Makes a connected pair.
pub fn channel<T: Send>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(State::Empty(None)));
    (Sender(Some(Arc::clone(&state))), Receiver(state))
}

impl<T> Sender<T> {
    /// Hands over the value and wakes the receiver. Gives the value back if the receiver is gone.
    pub fn send(mut self, value: T) -> Result<(), T> {
        let Some(shared) = self.0.take() else {
            return Err(value);
        };
        let waiting = {
            let mut state = lock(&shared);
            match &mut *state {
                State::Empty(waiting) => {
                    let waiting = waiting.take();
                    *state = State::Value(value);
                    waiting
                }
                State::Value(_) | State::Closed => return Err(value),
            }
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        Ok(())
    }

    /// True when nobody waits for the value any more.
    pub fn is_closed(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|shared| matches!(*lock(shared), State::Closed))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        let waiting = {
            let mut state = lock(&shared);
            match &mut *state {
                State::Empty(waiting) => {
                    let waiting = waiting.take();
                    *state = State::Closed;
                    waiting
                }
                State::Value(_) | State::Closed => None,
            }
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The value if it is there already. `None` also when the sender is gone; see `poll`.
    pub fn try_take(&mut self) -> Option<T> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut *state, State::Closed) {
            State::Value(value) => Some(value),
            State::Closed => None,
            empty @ State::Empty(_) => {
                *state = empty;
                None
            }
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        match &mut *state {
            State::Empty(waiting) => {
                match waiting {
                    Some(known) => known.renew(cx),
                    None => *waiting = Some(Waiting::new(cx)),
                }
                Poll::Pending
            }
            State::Value(_) => match std::mem::replace(&mut *state, State::Closed) {
                State::Value(value) => Poll::Ready(Some(value)),
                State::Empty(_) | State::Closed => Poll::Ready(None),
            },
            State::Closed => Poll::Ready(None),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // The old state leaves the lock before its value is dropped: a value's destructor may be long.
        let old = std::mem::replace(&mut *lock(&self.0), State::Closed);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::tests_support::{block_on, poll_once};

    #[test]
    fn a_value_sent_before_and_after_the_wait_arrives() {
        let (tx, rx) = channel();
        tx.send(7).unwrap();
        assert_eq!(block_on(rx), Some(7));

        let (tx, mut rx) = channel();
        assert!(poll_once(&mut rx).is_pending());
        tx.send(8).unwrap();
        assert_eq!(rx.try_take(), Some(8));
        assert_eq!(block_on(rx), None);
    }

    #[test]
    fn a_lost_half_is_seen_by_the_other() {
        let (tx, rx) = channel::<u8>();
        drop(tx);
        assert_eq!(block_on(rx), None);

        let (tx, rx) = channel();
        assert!(!tx.is_closed());
        drop(rx);
        assert!(tx.is_closed());
        assert_eq!(tx.send(1), Err(1));
    }

    #[test]
    fn no_wakeup_is_lost_between_threads() {
        for round in 0..5_000u32 {
            let (tx, rx) = channel();
            let sender = std::thread::spawn(move || tx.send(round).unwrap());
            assert_eq!(block_on(rx), Some(round));
            sender.join().unwrap();
        }
    }
}
