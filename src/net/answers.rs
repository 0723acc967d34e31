//! Memory of the answers that wait for the sockets of one shard.
//!
//! The size of an answer is known when it is built, so nothing is charged before: who finds the memory
//! full does not begin. What was begun is finished, so the sum passes the limit by the answers under
//! way at most.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// What all connections of one shard share of it.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    limit: usize,
    used: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl AnswerMemory {
    pub(crate) fn new(limit: usize) -> AnswerMemory {
        AnswerMemory {
            limit,
            used: Cell::new(0),
            waiting: RefCell::default(),
        }
    }

    /// Bytes that wait for sockets now.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// True when no answer may be begun.
    pub(crate) fn is_full(&self) -> bool {
        self.used.get() >= self.limit
    }

    /// Bytes to free before there is comfortable room again: a quarter of the limit.
    pub(crate) fn excess(&self) -> usize {
        (self.used.get() + self.limit / 4).saturating_sub(self.limit)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
    }

    /// Bytes that were sent or given up; lets those begin who found it full.
    pub(crate) fn remove(&self, bytes: usize) {
        let was_full = self.is_full();
        self.used.set(self.used.get().saturating_sub(bytes));
        if was_full && !self.is_full() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes the task of `waker` when it is full no longer.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}
