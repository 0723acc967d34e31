//! The tasks that write for the logs of one shard.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use thalweg_reactor::task;
use thalweg_types::limits::IDLE_WRITERS_MAX;

use crate::append::drive;
use crate::log::Inner;

/// Tasks that write, kept for the next log when one has nothing more to write: a task per burst of appends
/// would be the dearest allocation of a small request. Clones share them; give the logs of one shard clones
/// of one. They end with the last of those.
#[derive(Clone, Default)]
pub struct Writers(Rc<Crew>);

#[derive(Default)]
struct Crew {
    /// Tasks without work, the one that worked last at the end.
    idle: RefCell<Vec<Rc<Seat>>>,
}

/// Where a task without work waits.
#[derive(Default)]
struct Seat {
    /// The log that it is called for. Only the task holds the seat then: what goes away with the task
    /// goes whole.
    log: RefCell<Option<Rc<Inner>>>,
    waker: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl Writers {
    /// Has a task do what there is to do for this log, until it is done. It begins when the caller waits.
    pub(crate) fn start(&self, log: Rc<Inner>) {
        let free = self.0.idle.borrow_mut().pop();
        match free {
            Some(seat) => {
                *seat.log.borrow_mut() = Some(log);
                seat.wake();
            }
            None => drop(task::spawn(work(Rc::downgrade(&self.0), log))),
        }
    }
}

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writers")
            .field("idle", &self.0.idle.borrow().len())
            .finish_non_exhaustive()
    }
}

async fn work(crew: Weak<Crew>, mut log: Rc<Inner>) {
    let seat = Rc::new(Seat::default());
    loop {
        drive(log).await;
        let stays = crew.upgrade().is_some_and(|crew| crew.seat(&seat));
        if !stays {
            return;
        }
        match poll_fn(|cx| seat.poll(cx)).await {
            Some(next) => log = next,
            None => return,
        }
    }
}

impl Crew {
    /// Takes the task up among those without work, unless there are enough.
    fn seat(&self, seat: &Rc<Seat>) -> bool {
        let mut idle = self.idle.borrow_mut();
        let fits = idle.len() < IDLE_WRITERS_MAX;
        if fits {
            idle.push(Rc::clone(seat));
        }
        fits
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for seat in self.idle.take() {
            seat.closed.set(true);
            seat.wake();
        }
    }
}

impl Seat {
    fn wake(&self) {
        // Not yet polled: it looks when it is.
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The log it is called for; `None` when there is nobody left who would call.
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Rc<Inner>>> {
        if let Some(log) = self.log.take() {
            return Poll::Ready(Some(log));
        }
        if self.closed.get() {
            return Poll::Ready(None);
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}
