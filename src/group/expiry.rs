//! Offsets and groups whose time is over (KIP-211, RP-116).

use thalweg_types::TimestampMs;

use crate::ask::Now;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::offsets::Committed;
use crate::subscription::CONSUMER;
use crate::timers::Timer;
use crate::turn::{Then, Turn};

/// From when on the offsets of a group age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ages {
    /// They do not: the group is at work, or moving.
    Never,
    /// Each from its commit.
    FromCommit,
    /// All from the moment when the last member left.
    From(TimestampMs),
}

impl Coordinator {
    /// Looks for what to end once more after `offsets.retention.check.interval.ms`.
    pub(crate) fn plan_expiry(&mut self, now: Now) {
        let at = now.ms + self.settings.offsets_check_interval_ms.max(1);
        self.timers.arm(at, Timer::Expiry);
    }

    /// The wall clock, but not further ahead of the moment of loading than the monotonic clock: one that
    /// jumps ahead ends nothing early (RP-119).
    fn expiry_clock(&self, now: Now) -> TimestampMs {
        let passed = i64::try_from(now.ms.saturating_sub(self.loaded.ms)).unwrap_or(i64::MAX);
        let expected = self.loaded.wall.0.saturating_add(passed);
        TimestampMs(now.wall.0.min(expected))
    }

    /// Tells whether the time of an offset of a group is over.
    pub(crate) fn over(&self, group: &Group, now: Now) -> impl Fn(&Committed) -> bool + use<> {
        let (ages, clock) = (group.ages(), self.expiry_clock(now));
        let retention_ms = self.settings.offsets_retention_ms;
        move |committed| match (ages, committed.expires) {
            (Ages::Never, _) => false,
            (Ages::FromCommit | Ages::From(_), TimestampMs(end)) if end >= 0 => clock.0 >= end,
            (Ages::FromCommit, _) => clock.0.saturating_sub(committed.at.0) >= retention_ms,
            (Ages::From(begin), _) => clock.0.saturating_sub(begin.0) >= retention_ms,
        }
    }
}

impl Group {
    fn ages(&self) -> Ages {
        match (self.state, self.protocol_type.as_deref()) {
            (State::Dead, _) => Ages::Never,
            // Of members, those that are subscribed to do not age.
            _ if self.consumer.is_some() => Ages::FromCommit,
            // Nobody ever joined: a consumer that shares out by itself keeps its offsets here.
            (_, None) => Ages::FromCommit,
            (State::Empty, Some(_)) => match self.state_since {
                // Records of old brokers do not say since when.
                TimestampMs(..0) => Ages::FromCommit,
                since => Ages::From(since),
            },
            (State::Stable, Some(CONSUMER)) => Ages::FromCommit,
            (State::PreparingRebalance | State::CompletingRebalance | State::Stable, Some(_)) => {
                Ages::Never
            }
        }
    }

    /// Without members, and without offsets once `ending` more of them are gone.
    pub(crate) fn is_abandoned(&self, ending: usize) -> bool {
        self.state == State::Empty
            && self.member_count() == 0
            && self.pending.is_empty()
            && self.writes == self.ends.writes
            && self.pending_offsets.is_empty()
            && self.offsets.len() == ending + self.ends.offsets
    }

    /// Goes, with what is in the log of it.
    pub(crate) fn retire(&mut self, turn: &mut Turn<'_>) {
        if !self.is_recorded && self.consumer.is_none() {
            return;
        }
        let since = self.state_since;
        let records = self.end_records();
        // Nobody may join what is going.
        self.transition(State::Dead, turn.now.wall);
        self.writes += 1;
        turn.write(&self.id, records, Then::Retire { since });
        turn.happened.groups_expired += 1;
    }
}
