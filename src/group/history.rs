//! The last rebalances of a group, for whoever asks why its members stood still. In memory only: it
//! begins anew when a coordinator loads.

use std::collections::VecDeque;

use thalweg_types::TimestampMs;
use thalweg_types::limits::{REBALANCE_NAMES_MAX, REBALANCES_KEPT_MAX};

use crate::ask::Now;

/// What began a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A member came.
    Joined,
    /// A member came again with something else, or the leader asked for other shares.
    Rejoined,
    /// A member said that it leaves, or was taken out by an administrator.
    Left,
    /// A member was silent for too long.
    TimedOut,
    /// Topics or what members subscribe to changed (KIP-848).
    Subscription,
    /// The coordinator itself: shares could not be written, or the group was larger than is allowed.
    Coordinator,
}

impl Cause {
    /// In words that stay.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Joined => "member joined",
            Cause::Rejoined => "member rejoined",
            Cause::Left => "member left",
            Cause::TimedOut => "member timed out",
            Cause::Subscription => "subscription",
            Cause::Coordinator => "coordinator",
        }
    }
}

/// Ids of members, the first few of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The first ones.
    pub first: Vec<Box<str>>,
    /// How many there were beyond.
    pub more: u64,
}

impl Names {
    fn add(&mut self, name: &str) {
        match self.first.len() < REBALANCE_NAMES_MAX {
            true => self.first.push(name.into()),
            false => self.more += 1,
        }
    }

    fn bytes(&self) -> usize {
        const NAME_BYTES: usize = 32;
        self.first.iter().map(|name| NAME_BYTES + name.len()).sum()
    }
}

/// One rebalance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// When the first thing happened that led to it.
    pub began: TimestampMs,
    /// What that was.
    pub cause: Cause,
    /// The generation that it ended in; `None` while it goes on.
    pub generation: Option<i32>,
    /// How long it took, in milliseconds; so far, while it goes on.
    pub took_ms: u64,
    /// How long partitions had no owner at most, in milliseconds: from when the first member gave up its
    /// share, or was gone, to the new shares. Members that keep partitions while they join
    /// (cooperative ones) may have had an owner for them all the time.
    pub unowned_ms: u64,
    /// New members.
    pub joined: Names,
    /// Members that left.
    pub left: Names,
    /// Members that were silent.
    pub timed_out: Names,
}

/// A rebalance that goes on, in monotonic milliseconds.
#[derive(Debug)]
struct Round {
    began_ms: u64,
    unowned_since: Option<u64>,
    so_far: Rebalance,
}

/// The rebalances of one group, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    past: VecDeque<Rebalance>,
    round: Option<Box<Round>>,
}

impl History {
    /// A rebalance goes on, whatever began it.
    pub(crate) fn begin(&mut self, now: Now, cause: Cause) {
        self.round(now, cause);
    }

    /// A member is new.
    pub(crate) fn joined(&mut self, now: Now, member: &str) {
        self.round(now, Cause::Joined).so_far.joined.add(member);
    }

    /// A member of the last generation joins again, and has given up its share for that.
    pub(crate) fn rejoined(&mut self, now: Now) {
        let round = self.round(now, Cause::Rejoined);
        round.unowned_since.get_or_insert(now.ms);
    }

    /// A member is gone, by its own will or by an administrator's.
    pub(crate) fn left(&mut self, now: Now, member: &str) {
        let round = self.round(now, Cause::Left);
        round.unowned_since.get_or_insert(now.ms);
        round.so_far.left.add(member);
    }

    /// A member is gone without a word.
    pub(crate) fn timed_out(&mut self, now: Now, member: &str) {
        let round = self.round(now, Cause::TimedOut);
        round.unowned_since.get_or_insert(now.ms);
        round.so_far.timed_out.add(member);
    }

    /// Everybody has its share, or nobody is left.
    pub(crate) fn end(&mut self, now: Now, generation: i32) {
        let Some(round) = self.round.take() else {
            return;
        };
        let mut ended = round.until(now);
        ended.generation = Some(generation);
        if self.past.len() == REBALANCES_KEPT_MAX {
            self.past.pop_front();
        }
        self.past.push_back(ended);
    }

    /// Oldest first; the one that goes on is the last.
    pub(crate) fn told(&self, now: Now) -> Vec<Rebalance> {
        let current = self.round.iter().map(|round| round.until(now));
        self.past.iter().cloned().chain(current).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        const REBALANCE_BYTES: usize = 160;
        let of = |one: &Rebalance| {
            REBALANCE_BYTES + one.joined.bytes() + one.left.bytes() + one.timed_out.bytes()
        };
        let current = self.round.iter().map(|round| of(&round.so_far));
        self.past.iter().map(of).chain(current).sum()
    }

    fn round(&mut self, now: Now, cause: Cause) -> &mut Round {
        self.round.get_or_insert_with(|| {
            Box::new(Round {
                began_ms: now.ms,
                unowned_since: None,
                so_far: Rebalance {
                    began: now.wall,
                    cause,
                    generation: None,
                    took_ms: 0,
                    unowned_ms: 0,
                    joined: Names::default(),
                    left: Names::default(),
                    timed_out: Names::default(),
                },
            })
        })
    }
}

impl Round {
    fn until(&self, now: Now) -> Rebalance {
        let since = |ms: u64| now.ms.saturating_sub(ms);
        Rebalance {
            took_ms: since(self.began_ms),
            unowned_ms: self.unowned_since.map_or(0, since),
            ..self.so_far.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::TimestampMs;
    use thalweg_types::limits::{REBALANCE_NAMES_MAX, REBALANCES_KEPT_MAX};

    use super::{Cause, History};
    use crate::ask::Now;

    fn at(ms: u64) -> Now {
        Now {
            ms,
            wall: TimestampMs(1_000_000 + ms as i64),
        }
    }

    #[test]
    fn a_rebalance_is_told_by_what_began_it_and_how_long_it_took() {
        let mut history = History::default();
        history.joined(at(10), "a");
        history.begin(at(10), Cause::Coordinator);
        history.end(at(40), 1);
        history.timed_out(at(100), "a");
        history.joined(at(120), "b");
        let told = history.told(at(130));
        assert_eq!(
            (told[0].cause, told[0].took_ms, told[0].unowned_ms),
            (Cause::Joined, 30, 0)
        );
        assert_eq!(told[0].began, TimestampMs(1_000_010));
        assert_eq!((told[1].generation, told[1].took_ms), (None, 30), "goes on");
        history.end(at(150), 2);
        let told = history.told(at(999)).remove(1);
        assert_eq!((told.cause, told.unowned_ms), (Cause::TimedOut, 50));
        assert_eq!(
            (&*told.timed_out.first[0], &*told.joined.first[0]),
            ("a", "b")
        );
        history.end(at(200), 3);
        assert_eq!(history.told(at(200)).len(), 2, "nothing had begun");
    }

    #[test]
    fn bi_36_history_has_a_bound_whatever_members_do() {
        let mut history = History::default();
        for n in 0..100 {
            for member in 0..50 {
                history.left(at(n), &format!("{member}"));
            }
            history.end(at(n), n as i32);
        }
        let told = history.told(at(100));
        assert_eq!(told.len(), REBALANCES_KEPT_MAX);
        assert_eq!(told[0].generation, Some(100 - REBALANCES_KEPT_MAX as i32));
        assert_eq!(told[0].left.first.len(), REBALANCE_NAMES_MAX);
        assert_eq!(told[0].left.more, 50 - REBALANCE_NAMES_MAX as u64);
        assert!(history.bytes() < 100 * REBALANCES_KEPT_MAX * REBALANCE_NAMES_MAX);
    }
}
