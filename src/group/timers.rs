//! Deadlines of all groups of one coordinator, soonest first.

use std::collections::BTreeSet;
use std::rc::Rc;

/// What runs out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The session of a member (group, member). Set once and moved on when it fires and the member
    /// lives, so that a heartbeat costs nothing here.
    Session(Rc<str>, Rc<str>),
    /// An id that was handed out and not used yet (group, member).
    Pending(Rc<str>, Rc<str>),
    /// The joining phase of a group.
    Join(Rc<str>),
    /// The syncing phase of a group.
    Sync(Rc<str>),
    /// What a member of the newer protocol must do by then (group, member).
    Deadline(Rc<str>, Rc<str>),
    /// The next look for what is over, in all groups.
    Expiry,
    /// The next slice of a look at all groups.
    Sweep,
}

/// Ordered set of (monotonic milliseconds, timer).
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(u64, Timer)>);

impl Timers {
    pub(crate) fn arm(&mut self, at: u64, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(crate) fn disarm(&mut self, at: u64, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the soonest timer that has run out at `now`.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, at: u64, timer: Timer) -> bool {
        self.0.contains(&(at, timer))
    }
}
