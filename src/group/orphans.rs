//! Offsets of topics that are gone: they must not lead anybody into another topic of the same name
//! (RP-116). They end when their topic does, and where that was missed, when the log is replayed.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::TopicId;
use thalweg_types::limits::OFFSET_TOMBSTONES_PER_WRITE;

use crate::ask::{Effect, Now};
use crate::commit::tombstone;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::record::Record;
use crate::sweep::Wanted;
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
    ) {
        self.end_offsets(now, id, out, |topics, name, id| {
            names.contains(name) && (id == TopicId::ZERO || !is_of(topics, name, id))
        });
    }

    /// Ends the offsets of a group whose topic is not there.
    pub(crate) fn end_orphans(&mut self, now: Now, id: &str, out: &mut Vec<Effect>) {
        self.end_offsets(now, id, out, |topics, name, id| !is_of(topics, name, id));
    }

    fn end_offsets(
        &mut self,
        now: Now,
        id: &str,
        out: &mut Vec<Effect>,
        is_gone: impl Fn(&Topics, &str, TopicId) -> bool,
    ) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let gone = self.last_values(group, |name, id| is_gone(&self.topics, name, id));
        if !gone.is_empty() {
            self.with_turn(id, now, out, |group, turn| group.end(turn, &gone));
        }
    }

    /// Ends for the partitions of `group` whose last value, be it written or still on its way, is of
    /// a topic that is gone. What is on its way is overtaken by nothing, so an end goes behind it.
    fn last_values(&self, group: &Group, is_gone: impl Fn(&str, TopicId) -> bool) -> Vec<Record> {
        if group.state == State::Dead {
            // Everything of it is about to end, or it is Empty again and looked at later.
            return Vec::new();
        }
        let in_flight = self.commits_in_flight(group);
        let settled = group
            .offsets
            .iter()
            .filter_map(|(topic, partition, committed)| {
                let key = (Rc::clone(topic), partition);
                (!in_flight.contains_key(&key)).then_some((key, committed.topic_id))
            });
        let coming = in_flight
            .iter()
            .filter_map(|(key, id)| id.map(|id| (key.clone(), id)));
        let mut gone: BTreeSet<(Rc<str>, i32)> = settled
            .chain(coming)
            .filter(|((topic, _), id)| is_gone(topic, *id))
            .map(|(key, _)| key)
            .collect();
        // An end takes all that there is of a partition, so not where something else counts.
        let in_transactions = group.pending_offsets.values().filter(|(place, value)| {
            let (topic, partition) = place;
            group.offsets.get(topic, *partition).is_none()
                && !in_flight.contains_key(*place)
                && is_gone(topic, value.topic_id)
        });
        gone.extend(in_transactions.map(|(place, _)| place.clone()));
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

/// True when an offset that was committed with `id` counts in the topic that has the name now. One
/// without an id, from older brokers, counts in any.
pub(crate) fn is_of(topics: &Topics, name: &str, id: TopicId) -> bool {
    topics
        .id(name)
        .is_some_and(|now| id == TopicId::ZERO || id == now)
}
