//! Requests that wait for a partition to move: bookkeeping of [`crate::Replica`].

use std::collections::{BTreeSet, HashMap, VecDeque};

use thalweg_types::{Offset, limits};

use crate::events::{Assigned, Token};

/// A produce whose batch is assigned and not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParkedProduce {
    pub(crate) token: Token,
    pub(crate) assigned: Assigned,
}

/// Produces that wait for an end to pass them, in offset order. A retry that waits for its original
/// stands behind it with the same offsets.
#[derive(Debug, Default)]
pub(crate) struct ProduceQueue {
    queue: VecDeque<ParkedProduce>,
}

impl ProduceQueue {
    pub(crate) fn push(&mut self, parked: ParkedProduce) {
        self.queue.push_back(parked);
    }

    /// As [`ProduceQueue::push`] for one whose offsets were assigned before those of others here.
    pub(crate) fn insert(&mut self, parked: ParkedProduce) {
        let end = parked.assigned.end;
        let at = self.queue.partition_point(|p| p.assigned.end <= end);
        self.queue.insert(at, parked);
    }

    /// Takes the oldest whose last record lies before `end`.
    pub(crate) fn pop_before(&mut self, end: Offset) -> Option<ParkedProduce> {
        let passed = self.queue.front().is_some_and(|p| p.assigned.end <= end);
        if passed { self.queue.pop_front() } else { None }
    }

    /// Takes the newest that has a record at or after `from`.
    pub(crate) fn pop_from(&mut self, from: Offset) -> Option<ParkedProduce> {
        let failed = self.queue.back().is_some_and(|p| p.assigned.end > from);
        if failed { self.queue.pop_back() } else { None }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// All lie between `passed` and `assigned_end`, in order.
    pub(crate) fn check(&self, passed: Offset, assigned_end: Offset) {
        let mut last = passed;
        for parked in &self.queue {
            assert!(
                parked.assigned.end > passed && parked.assigned.end >= last,
                "parked produces are in order, none is due"
            );
            last = parked.assigned.end;
        }
        assert!(
            last <= assigned_end,
            "no parked produce beyond the assigned end"
        );
    }
}

/// Sizes of the batches that consumers do not see yet, so that a fetch is woken by bytes.
///
/// Byte counts run from the start of the process; only differences matter.
#[derive(Debug, Default)]
pub(crate) struct ByteCounts {
    /// Batches above the visible end: their end offset and the count after them.
    unseen: VecDeque<(Offset, u64)>,
    visible: u64,
    assigned: u64,
}

impl ByteCounts {
    pub(crate) fn on_assigned(&mut self, end: Offset, bytes: u64) {
        self.assigned += bytes;
        self.unseen.push_back((end, self.assigned));
    }

    pub(crate) fn on_visible(&mut self, end: Offset) {
        while let Some((batch_end, count)) = self.unseen.front().copied()
            && batch_end <= end
        {
            self.visible = count;
            self.unseen.pop_front();
        }
    }

    pub(crate) fn on_rewound(&mut self, from: Offset) {
        while self.unseen.back().is_some_and(|(end, _)| *end > from) {
            self.unseen.pop_back();
        }
        self.assigned = self.unseen.back().map_or(self.visible, |(_, count)| *count);
    }

    pub(crate) fn visible(&self) -> u64 {
        self.visible
    }

    /// The count at `from`, or at the visible end when `from` lies below it.
    pub(crate) fn at(&self, from: Offset) -> u64 {
        let below = self.unseen.partition_point(|(end, _)| *end <= from);
        below
            .checked_sub(1)
            .map_or(self.visible, |i| self.unseen[i].1)
    }

    pub(crate) fn check(&self, visible_end: Offset, assigned_end: Offset) {
        let mut last = (visible_end, self.visible);
        for (end, count) in self.unseen.iter().copied() {
            assert!(
                end > last.0 && count > last.1,
                "batch ends and byte counts rise"
            );
            last = (end, count);
        }
        assert!(last.0 <= assigned_end, "no batch beyond the assigned end");
        assert_eq!(last.1, self.assigned, "the last count is the assigned one");
    }
}

/// Fetches that wait for bytes, each woken once.
#[derive(Debug, Default)]
pub(crate) struct ParkedFetches {
    /// By the byte count that wakes them.
    due: BTreeSet<(u64, Token)>,
    counts: HashMap<Token, u64>,
}

impl ParkedFetches {
    /// False when there is no room. A token that is parked already moves to the new count.
    pub(crate) fn insert(&mut self, token: Token, wake_at: u64) -> bool {
        self.remove(token);
        if self.due.len() >= limits::PARKED_FETCHES_MAX {
            return false;
        }
        self.due.insert((wake_at, token));
        self.counts.insert(token, wake_at);
        true
    }

    pub(crate) fn remove(&mut self, token: Token) {
        if let Some(wake_at) = self.counts.remove(&token) {
            self.due.remove(&(wake_at, token));
        }
    }

    /// Takes one fetch that `visible` bytes satisfy.
    pub(crate) fn pop_due(&mut self, visible: u64) -> Option<Token> {
        let (wake_at, _) = self.due.first()?;
        if *wake_at > visible {
            return None;
        }
        self.pop_any()
    }

    /// Takes the next fetch, whatever it waits for.
    pub(crate) fn pop_any(&mut self) -> Option<Token> {
        let (_, token) = self.due.pop_first()?;
        self.counts.remove(&token);
        Some(token)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn check(&self, visible: u64) {
        assert_eq!(
            self.due.len(),
            self.counts.len(),
            "both indexes hold the same fetches"
        );
        assert!(
            self.due.len() <= limits::PARKED_FETCHES_MAX,
            "parked fetches are bounded"
        );
        assert!(
            self.due.first().is_none_or(|(at, _)| *at > visible),
            "no due fetch sleeps"
        );
    }
}
