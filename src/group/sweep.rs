//! Looks at all groups, in slices between which the core does its other work.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::limits::COORDINATOR_SWEEP_OFFSETS;

use crate::ask::{Effect, Now};
use crate::coordinator::Coordinator;
use crate::pending_offsets::Place;
use crate::timers::Timer;

/// How long the rest of a look waits for the core's other work.
const PAUSE_MS: u64 = 1;

/// What is looked for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Offsets of topics of these names, which are gone.
    Removed(HashSet<Arc<str>>),
    /// Offsets of any topic that is gone.
    Orphans,
    /// Whatever is over, and offsets of any topic that is gone.
    Due,
}

/// How far a look at all groups has come.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// The last group that was looked at to its end.
    done: Option<Rc<str>>,
    /// Of the next one where to go on.
    within: Option<(Rc<str>, Point)>,
}

/// Where in a group a look goes on. Offsets come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Behind this offset; `None`: at the begin.
    Offset(Option<Place>),
    /// Behind this member, and all offsets; `None`: at the first.
    Member(Option<Rc<str>>),
}

/// How far a look at one group has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// All of it was looked at.
    Done,
    /// It goes on from here.
    Behind(Point),
}

/// One look that is not at its end.
#[derive(Debug)]
struct Sweep {
    wanted: Wanted,
    look: Look,
}

/// The looks that are not at their ends, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sweeps(VecDeque<Sweep>);

impl Sweeps {
    /// Timers that there must be: one for the slice that is next, or for the next look that is due.
    pub(crate) fn timers(&self) -> usize {
        let is_due = |sweep: &Sweep| matches!(sweep.wanted, Wanted::Due);
        usize::from(!self.0.is_empty()) + usize::from(!self.0.iter().any(is_due))
    }
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Call again, once others had their turn.
    More,
    /// All is done.
    Done,
}

impl Coordinator {
    /// Looks at all groups, from the next slice on.
    pub(crate) fn sweep(&mut self, now: Now, wanted: Wanted) {
        if self.sweeps.0.is_empty() {
            self.timers.arm(now.ms, Timer::Sweep);
        }
        let look = Look::default();
        self.sweeps.0.push_back(Sweep { wanted, look });
    }

    /// True while a look at all groups is not at its end: [`Coordinator::on_time`] does a slice of it.
    #[must_use]
    pub fn sweeps(&self) -> bool {
        !self.sweeps.0.is_empty()
    }

    /// The next slice.
    pub(crate) fn sweep_on(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(mut sweep) = self.sweeps.0.pop_front() else {
            return;
        };
        let wanted = &sweep.wanted;
        let progress = self.look_on(&mut sweep.look, |machine, id, from, left| match from {
            Point::Offset(after) => machine.end_some(now, id, after, wanted, left, out),
            Point::Member(_) => Stand::Done,
        });
        match (progress, wanted) {
            (Progress::More, _) => self.sweeps.0.push_front(sweep),
            (Progress::Done, Wanted::Due) => self.plan_expiry(now),
            (Progress::Done, Wanted::Removed(_) | Wanted::Orphans) => {}
        }
        if !self.sweeps.0.is_empty() {
            self.timers.arm(now.ms + PAUSE_MS, Timer::Sweep);
        }
    }

    /// Goes on with a look for one turn of the core. `each` is given a group, where to go on in it, and how much is
    /// left of the turn.
    pub(crate) fn look_on(
        &mut self,
        look: &mut Look,
        mut each: impl FnMut(&mut Coordinator, &Rc<str>, Point, &mut usize) -> Stand,
    ) -> Progress {
        let mut left = COORDINATOR_SWEEP_OFFSETS;
        while let Some(id) = self.group_behind(look.done.as_deref()).cloned() {
            if left == 0 {
                return Progress::More;
            }
            left -= 1;
            // The group that was begun may be gone by now.
            let within = look.within.take().filter(|(of, _)| *of == id);
            let from = within.map_or(Point::Offset(None), |(_, from)| from);
            match each(self, &id, from, &mut left) {
                Stand::Done => look.done = Some(id),
                Stand::Behind(point) => {
                    look.within = Some((id, point));
                    return Progress::More;
                }
            }
        }
        Progress::Done
    }
}
