//! Offsets that are committed in transactions: records of producers, and the markers that end them.
//!
//! A record of a transaction counts from the marker of its commit on. Markers name a producer and no
//! group, so the coordinator knows in which groups each producer has something.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use thalweg_types::ProducerId;

use crate::ask::Now;
use crate::coordinator::Coordinator;
use crate::group::Group;
use crate::pending_offsets::{Change, Ended};
use crate::record::Record;
use crate::sweep::Progress;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What is in it counts.
    Committed,
    /// Nothing of it counts.
    Aborted,
}

/// Groups in which each producer has offsets in a transaction.
#[derive(Debug, Default)]
pub(crate) struct Transactions(BTreeMap<ProducerId, BTreeSet<Rc<str>>>);

impl Transactions {
    pub(crate) fn note(&mut self, group: &Rc<str>, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Began(producer) => {
                    let groups = self.0.entry(producer).or_default();
                    groups.insert(Rc::clone(group));
                }
                Change::Ended(producer) => {
                    let groups = self.0.get_mut(&producer);
                    let is_last = groups.is_some_and(|groups| {
                        groups.remove(group);
                        groups.is_empty()
                    });
                    if is_last {
                        self.0.remove(&producer);
                    }
                }
            }
        }
    }

    /// Checks that it says what the groups say.
    ///
    /// # Panics
    /// When it does not.
    pub(crate) fn check<'g>(&self, groups: impl Iterator<Item = &'g Group>) {
        let mut wanted: BTreeMap<ProducerId, BTreeSet<Rc<str>>> = BTreeMap::new();
        for group in groups {
            for producer in group.pending_offsets.producers() {
                let groups = wanted.entry(producer).or_default();
                groups.insert(Rc::clone(&group.id));
            }
        }
        assert_eq!(wanted, self.0, "groups of producers");
    }
}

impl Coordinator {
    /// A record in a transaction of `producer`, from the log. An offset waits for the end of the
    /// transaction; anything else, and the end of an offset, counts at once, as in Kafka.
    /// With [`Progress::More`] as [`Coordinator::on_record`].
    pub fn on_transactional_record(
        &mut self,
        producer: ProducerId,
        record: Record,
        now: Now,
    ) -> Progress {
        match record {
            Record::Offset {
                group,
                topic,
                partition,
                value: Some(value),
            } => {
                self.ensure_group(&group, now);
                self.with_turn(&group, now, &mut Vec::new(), |group, _| {
                    let topic = group.offsets.name_of(&topic);
                    group
                        .pending_offsets
                        .put(producer, (topic, partition), value);
                });
                Progress::Done
            }
            at_once @ (Record::Offset { value: None, .. }
            | Record::Group { .. }
            | Record::Consumer { .. }) => self.on_record(at_once, now),
        }
    }

    /// A marker in the log: the transaction of `producer` has ended. Of one that committed no offset
    /// here nothing is known, and that is well.
    pub fn on_marker(&mut self, producer: ProducerId, outcome: Outcome, now: Now) {
        let groups = self.transactions.0.get(&producer);
        for id in groups.cloned().unwrap_or_default() {
            self.with_turn(&id, now, &mut Vec::new(), |group, _| {
                for ended in group.pending_offsets.end(producer) {
                    match outcome {
                        Outcome::Committed => group.commit_ended(ended),
                        Outcome::Aborted => {}
                    }
                }
            });
        }
    }
}

impl Group {
    fn commit_ended(&mut self, ended: Ended) {
        self.pending_offsets.note_committed(&ended);
        let (topic, partition) = &ended.place;
        self.offsets.put(topic, *partition, Some(ended.value));
    }
}
