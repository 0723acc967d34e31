//! Looks at all groups, in slices between which the core does its other work.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::limits::COORDINATOR_SWEEP_OFFSETS;

use crate::ask::{Effect, Now};
use crate::coordinator::Coordinator;
use crate::timers::Timer;

/// How long the rest of a look waits for the core's other work.
const PAUSE_MS: u64 = 1;

/// What is looked for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Offsets of topics of these names, which are gone.
    Removed(HashSet<Arc<str>>),
    /// Whatever is over, and offsets of any topic that is gone.
    Due,
}

/// One look that is not at its end.
#[derive(Debug)]
struct Sweep {
    wanted: Rc<Wanted>,
    /// Groups still to be looked at, the next one last.
    ids: Vec<Rc<str>>,
}

/// The looks that are not at their ends, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sweeps(VecDeque<Sweep>);

impl Sweeps {
    /// Timers that there must be: one for the slice that is next, or for the next look that is due.
    pub(crate) fn timers(&self) -> usize {
        let is_due = |sweep: &Sweep| matches!(*sweep.wanted, Wanted::Due);
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

impl Progress {
    /// What is known of a look that found so many ends of one group in one turn.
    pub(crate) fn after(ends: usize) -> Progress {
        match ends {
            COORDINATOR_SWEEP_OFFSETS.. => Progress::More,
            _fewer => Progress::Done,
        }
    }
}

impl Coordinator {
    /// Looks at all groups from here on.
    pub(crate) fn sweep(&mut self, now: Now, wanted: Wanted, out: &mut Vec<Effect>) {
        let is_first = self.sweeps.0.is_empty();
        self.sweeps.0.push_back(Sweep {
            wanted: Rc::new(wanted),
            ids: self.ids_descending(),
        });
        if is_first {
            self.sweep_on(now, out);
        }
    }

    /// The next slice.
    pub(crate) fn sweep_on(&mut self, now: Now, out: &mut Vec<Effect>) {
        let mut left = COORDINATOR_SWEEP_OFFSETS;
        while let Some(sweep) = self.sweeps.0.front_mut() {
            if left == 0 {
                self.timers.arm(now.ms + PAUSE_MS, Timer::Sweep);
                return;
            }
            let wanted = Rc::clone(&sweep.wanted);
            let Some(id) = sweep.ids.pop() else {
                self.sweeps.0.pop_front();
                if let Wanted::Due = *wanted {
                    self.plan_expiry(now);
                }
                continue;
            };
            left = left.saturating_sub(self.work_of(&id));
            let progress = match &*wanted {
                Wanted::Removed(names) => self.end_removed(now, &id, names, out),
                Wanted::Due => match self.end_orphans(now, &id, out) {
                    Progress::More => Progress::More,
                    Progress::Done => self.end_over(now, &id, out),
                },
            };
            if let (Progress::More, Some(sweep)) = (progress, self.sweeps.0.front_mut()) {
                sweep.ids.push(id);
            }
        }
    }

    /// Names of all groups, so that the last one is the first in order.
    pub(crate) fn ids_descending(&self) -> Vec<Rc<str>> {
        let mut ids: Vec<Rc<str>> = self.groups.keys().cloned().collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids
    }

    /// What a look at a group costs, in offsets.
    pub(crate) fn work_of(&self, id: &str) -> usize {
        let group = self.groups.get(id);
        group.map_or(1, |group| 1 + group.offsets.len() + group.member_count())
    }
}
