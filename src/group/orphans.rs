//! Offsets of topics that are gone: they must not lead anybody into another topic of the same name
//! (RP-116). They end when their topic does, and where that was missed, when the log is replayed.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::TopicId;
use thalweg_types::limits::{COORDINATOR_SWEEP_OFFSETS, OFFSET_TOMBSTONES_PER_WRITE};

use crate::ask::{Effect, Now};
use crate::commit::tombstone;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::pending_offsets::Place;
use crate::record::Record;
use crate::sweep::{Progress, Wanted};
use crate::topics::Topics;
use crate::turn::{Then, Turn};

impl Coordinator {
    /// Topics of these names are gone, and `Topics` says so already. There may be new ones of the
    /// same names.
    pub fn on_topics_removed(&mut self, now: Now, names: &[Arc<str>], out: &mut Vec<Effect>) {
        if self.is_loading() {
            // What is loaded is held against all topics at the end.
            return;
        }
        let names = names.iter().map(Arc::clone).collect();
        self.sweep(now, Wanted::Removed(names), out);
    }

    /// Ends the offsets of a group in topics of these names that are gone.
    pub(crate) fn end_removed(
        &mut self,
        now: Now,
        id: &str,
        names: &HashSet<Arc<str>>,
        out: &mut Vec<Effect>,
    ) -> Progress {
        self.end_offsets(now, id, out, |topics, name, id| {
            names.contains(name) && (id == TopicId::ZERO || !is_of(topics, name, id))
        })
    }

    /// Ends the offsets of a group whose topic is not there.
    pub(crate) fn end_orphans(&mut self, now: Now, id: &str, out: &mut Vec<Effect>) -> Progress {
        self.end_offsets(now, id, out, |topics, name, id| !is_of(topics, name, id))
    }

    /// As many as one turn of the core may end; those on their way are not looked at again.
    fn end_offsets(
        &mut self,
        now: Now,
        id: &str,
        out: &mut Vec<Effect>,
        is_gone: impl Fn(&Topics, &str, TopicId) -> bool,
    ) -> Progress {
        let Some(group) = self.groups.get(id) else {
            return Progress::Done;
        };
        let gone = self.last_values(group, |name, id| is_gone(&self.topics, name, id));
        if !gone.is_empty() {
            self.with_turn(id, now, out, |group, turn| group.end(turn, &gone));
        }
        Progress::after(gone.len())
    }

    /// Ends for the partitions of `group` whose last value, be it written or still on its way, is of
    /// a topic that is gone. What is on its way is overtaken by nothing, so an end goes behind it.
    fn last_values(&self, group: &Group, is_gone: impl Fn(&str, TopicId) -> bool) -> Vec<Record> {
        if group.state == State::Dead {
            // Everything of it is about to end, or it is Empty again and looked at later.
            return Vec::new();
        }
        let in_flight = self.commits_in_flight(group);
        let mut was_gone = remembered(&is_gone);
        let settled = group
            .offsets
            .iter()
            .filter(|(topic, _, committed)| was_gone(topic, committed.topic_id))
            .map(|(topic, partition, _)| (Rc::clone(topic), partition))
            .filter(|place| !in_flight.contains_key(place));
        let coming = in_flight
            .iter()
            .filter(|((topic, _), id)| id.is_some_and(|id| is_gone(topic, id)))
            .map(|(place, _)| place.clone());
        // An end takes all that there is of a partition, so not where something else counts.
        let in_transactions = group.pending_offsets.values().filter(|(place, value)| {
            let (topic, partition) = place;
            group.offsets.get(topic, *partition).is_none()
                && !in_flight.contains_key(*place)
                && is_gone(topic, value.topic_id)
        });
        let in_transactions = in_transactions.map(|(place, _)| place.clone());
        let all = settled.chain(coming).chain(in_transactions);
        let gone: BTreeSet<Place> = all.take(COORDINATOR_SWEEP_OFFSETS).collect();
        gone.iter()
            .map(|(topic, partition)| tombstone(&group.id, topic, *partition))
            .collect()
    }
}

impl Group {
    /// Writes ends of offsets that nobody waits for.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, records: &[Record]) {
        for some in records.chunks(OFFSET_TOMBSTONES_PER_WRITE) {
            self.writes += 1;
            turn.write(&self.id, some.to_vec(), Then::Nothing);
        }
    }
}

/// As `ask`, asked once for all offsets of a topic that follow each other: to look a topic up costs more
/// than to look at an offset.
pub(crate) fn remembered(
    ask: impl Fn(&str, TopicId) -> bool,
) -> impl FnMut(&Rc<str>, TopicId) -> bool {
    let mut last: Option<(Rc<str>, TopicId, bool)> = None;
    move |name, id| match &last {
        Some((known, of, told)) if Rc::ptr_eq(known, name) && *of == id => *told,
        Some(_) | None => {
            let told = ask(name, id);
            last = Some((Rc::clone(name), id, told));
            told
        }
    }
}

/// True when an offset that was committed with `id` counts in the topic that has the name now. One
/// without an id, from older brokers, counts in any.
pub(crate) fn is_of(topics: &Topics, name: &str, id: TopicId) -> bool {
    topics
        .id(name)
        .is_some_and(|now| id == TopicId::ZERO || id == now)
}
