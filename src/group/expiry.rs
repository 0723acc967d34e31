//! Offsets and groups whose time is over (KIP-211, RP-116).

use std::rc::Rc;

use thalweg_types::limits::COORDINATOR_SWEEP_OFFSETS;
use thalweg_types::{TimestampMs, TopicId};

use crate::ask::{Effect, Now};
use crate::commit::tombstone;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::offsets::Committed;
use crate::orphans::remembered;
use crate::record::Record;
use crate::subscription::CONSUMER;
use crate::sweep::Progress;
use crate::timers::Timer;
use crate::turn::Then;

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

    /// Ends what is over in a group, and the group itself when nothing is left.
    pub(crate) fn end_over(&mut self, now: Now, id: &str, out: &mut Vec<Effect>) -> Progress {
        let clock = self.expiry_clock(now);
        let Some(group) = self.groups.get(id) else {
            return Progress::Done;
        };
        let ends = self.over(group, clock);
        let is_abandoned = group.is_abandoned(ends.len());
        if ends.is_empty() && !is_abandoned {
            return Progress::Done;
        }
        self.happened.offsets_expired += ends.len() as u64;
        self.with_turn(id, now, out, |group, turn| {
            group.end(turn, &ends);
            if is_abandoned && (group.is_recorded || group.consumer.is_some()) {
                let since = group.state_since;
                let records = group.end_records();
                // Nobody may join what is going.
                group.transition(State::Dead, turn.now.wall);
                group.writes += 1;
                turn.write(&group.id, records, Then::Retire { since });
                turn.happened.groups_expired += 1;
            }
        });
        Progress::after(ends.len())
    }

    /// The wall clock, but not further ahead of the moment of loading than the monotonic clock: one that
    /// jumps ahead ends nothing early (RP-119).
    fn expiry_clock(&self, now: Now) -> TimestampMs {
        let passed = i64::try_from(now.ms.saturating_sub(self.loaded.ms)).unwrap_or(i64::MAX);
        let expected = self.loaded.wall.0.saturating_add(passed);
        TimestampMs(now.wall.0.min(expected))
    }

    /// Ends for the offsets of a group whose time is over. A commit on its way renews an offset, and
    /// so may a transaction.
    fn over(&self, group: &Group, clock: TimestampMs) -> Vec<Record> {
        let ages = group.ages();
        let retention_ms = self.settings.offsets_retention_ms;
        let is_over = |committed: &Committed| match (ages, committed.expires) {
            (Ages::Never, _) => false,
            (Ages::FromCommit | Ages::From(_), TimestampMs(end)) if end >= 0 => clock.0 >= end,
            (Ages::FromCommit, _) => clock.0.saturating_sub(committed.at.0) >= retention_ms,
            (Ages::From(begin), _) => clock.0.saturating_sub(begin.0) >= retention_ms,
        };
        let mut found: Vec<(&Rc<str>, i32)> = group
            .offsets
            .iter()
            .filter(|(_, _, committed)| is_over(committed))
            .map(|(topic, partition, _)| (topic, partition))
            .collect();
        if found.is_empty() {
            return Vec::new();
        }
        found.sort_unstable();
        let in_flight = self.commits_in_flight(group);
        let mut is_subscribed = remembered(|topic, _| group.is_subscribed(topic));
        let mut ends: Vec<Record> = Vec::new();
        for (topic, partition) in found {
            let is_renewed = in_flight.contains_key(&(Rc::clone(topic), partition))
                || group.pending_offsets.contains(topic, partition);
            if !is_renewed && !is_subscribed(topic, TopicId::ZERO) {
                ends.push(tombstone(&group.id, topic, partition));
            }
            if ends.len() == COORDINATOR_SWEEP_OFFSETS {
                break;
            }
        }
        ends
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

    /// Without members, and without offsets once `ending` of them are gone.
    fn is_abandoned(&self, ending: usize) -> bool {
        self.state == State::Empty
            && self.member_count() == 0
            && self.pending.is_empty()
            && self.writes == 0
            && self.pending_offsets.is_empty()
            && self.offsets.len() == ending
    }
}
