//! Ending offsets that nobody asked to end, a part of a group at a time.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_types::TopicId;
use thalweg_types::limits::{COORDINATOR_SWEEP_ENDS, COORDINATOR_SWEEP_WRITES_MAX};

use crate::ask::{Effect, Now};
use crate::commit::tombstone;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::orphans::{is_of, remembered};
use crate::pending_offsets::Place;
use crate::record::Record;
use crate::sweep::{Point, Stand, Wanted};
use crate::turn::{Then, Turn};

/// Ends of offsets of one group on their way to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Batches of them.
    pub(crate) writes: usize,
    /// Settled offsets that those end.
    pub(crate) offsets: usize,
}

impl Ends {
    /// One batch with ends of so many is in the log, or failed.
    pub(crate) fn ended(&mut self, settled: usize) {
        self.writes -= 1;
        self.offsets -= settled;
    }
}

/// What a look at a part of a group found.
struct Found {
    ends: Vec<Place>,
    /// Those of them whose time is over.
    expired: u64,
    stand: Stand,
}

/// Partitions of a group whose offsets are on their way, see [`Coordinator::commits_in_flight`].
type InFlight = HashMap<Place, Option<TopicId>>;

impl Coordinator {
    /// Ends what is to end among the offsets of a group behind `after`, as far as one turn of the core goes,
    /// of which there is `left`. At the end of a look for what is over, the group goes itself when nothing is
    /// left of it.
    pub(crate) fn end_some(
        &mut self,
        now: Now,
        id: &str,
        after: Option<Place>,
        wanted: &Wanted,
        left: &mut usize,
        out: &mut Vec<Effect>,
    ) -> Stand {
        let Some(group) = self.groups.get(id) else {
            return Stand::Done;
        };
        // Everything of a dead one is about to end, or it is Empty again and looked at later.
        if group.state == State::Dead {
            return Stand::Done;
        }
        if group.ends.writes >= COORDINATOR_SWEEP_WRITES_MAX {
            return Stand::Behind(Point::Offset(after));
        }
        let found = self.find_ends(now, group, after, wanted, left);
        let is_abandoned = matches!(wanted, Wanted::Due)
            && found.stand == Stand::Done
            && group.is_abandoned(found.ends.len());
        if found.ends.is_empty() && !is_abandoned {
            return found.stand;
        }
        self.happened.offsets_expired += found.expired;
        self.with_turn(id, now, out, |group, turn| {
            group.end(turn, &found.ends);
            if is_abandoned {
                group.retire(turn);
            }
        });
        found.stand
    }

    fn find_ends(
        &self,
        now: Now,
        group: &Group,
        after: Option<Place>,
        wanted: &Wanted,
        left: &mut usize,
    ) -> Found {
        let is_gone = |name: &str, id: TopicId| match wanted {
            Wanted::Removed(names) => {
                names.contains(name) && (id == TopicId::ZERO || !is_of(&self.topics, name, id))
            }
            Wanted::Orphans | Wanted::Due => !is_of(&self.topics, name, id),
        };
        let is_over = match wanted {
            Wanted::Due => Some(self.over(group, now)),
            Wanted::Removed(_) | Wanted::Orphans => None,
        };
        let in_flight = self.commits_in_flight(group);
        let mut was_gone = remembered(is_gone);
        let mut is_subscribed = remembered(|topic, _| group.is_subscribed(topic));
        let (mut ends, mut expired, mut last) = (Vec::new(), 0, None);
        for (topic, partition, committed) in group.offsets.behind(after.as_ref()) {
            if *left == 0 || ends.len() == COORDINATOR_SWEEP_ENDS {
                let last = last.map(|(topic, partition)| (Rc::clone(topic), partition));
                let stand = Stand::Behind(Point::Offset(last.or(after.clone())));
                return Found {
                    ends,
                    expired,
                    stand,
                };
            }
            *left -= 1;
            last = Some((topic, partition));
            let is_gone = was_gone(topic, committed.topic_id);
            let is_over = || is_over.as_ref().is_some_and(|is_over| is_over(committed));
            if !is_gone && !is_over() {
                continue;
            }
            let place = (Rc::clone(topic), partition);
            // What is on its way is overtaken by nothing, and counts.
            if in_flight.contains_key(&place) {
                continue;
            }
            if is_gone {
                ends.push(place);
            } else if !group.pending_offsets.contains(topic, partition)
                && !is_subscribed(topic, TopicId::ZERO)
            {
                // A transaction may renew it, and of members what they are subscribed to does not age.
                expired += 1;
                ends.push(place);
            }
        }
        let last = last.map(|(topic, partition)| (Rc::clone(topic), partition));
        let room = COORDINATOR_SWEEP_ENDS - ends.len();
        let coming = coming_orphans(group, &in_flight, is_gone, room);
        let stand = match coming.len() == room {
            true => Stand::Behind(Point::Offset(last.or(after))),
            false => Stand::Done,
        };
        ends.extend(coming);
        Found {
            ends,
            expired,
            stand,
        }
    }
}

/// Partitions without a settled offset whose last value, on its way or in a transaction, is of a topic that
/// is gone; at most `room` of them. An end goes behind what is on its way.
fn coming_orphans(
    group: &Group,
    in_flight: &InFlight,
    is_gone: impl Fn(&str, TopicId) -> bool,
    room: usize,
) -> Vec<Place> {
    let coming = in_flight
        .iter()
        .filter(|((topic, _), id)| id.is_some_and(|id| is_gone(topic, id)))
        .map(|(place, _)| place);
    // An end takes all that there is of a partition, so not where something else counts.
    let in_transactions = group.pending_offsets.values().filter(|(place, value)| {
        let (topic, partition) = place;
        group.offsets.get(topic, *partition).is_none()
            && !in_flight.contains_key(*place)
            && is_gone(topic, value.topic_id)
    });
    let all = coming.chain(in_transactions.map(|(place, _)| place));
    let mut found: Vec<Place> = all.take(room).cloned().collect();
    found.sort_unstable();
    found.dedup();
    found
}

impl Group {
    /// Writes ends of offsets that nobody waits for.
    fn end(&mut self, turn: &mut Turn<'_>, places: &[Place]) {
        if places.is_empty() {
            return;
        }
        let end = |(topic, partition): &Place| tombstone(&self.id, topic, *partition);
        let records: Vec<Record> = places.iter().map(end).collect();
        self.writes += 1;
        self.ends.writes += 1;
        let settled = places
            .iter()
            .filter(|(topic, p)| self.offsets.get(topic, *p).is_some());
        let settled = settled.count();
        self.ends.offsets += settled;
        turn.write(&self.id, records, Then::Ends { settled });
    }
}
