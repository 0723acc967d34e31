//! Offsets of one group that were committed in transactions which have not ended (KIP-447): they count
//! from the commit of their transaction on, unless something newer was committed for the partition
//! meanwhile, and never when it is aborted (RP-90).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use thalweg_types::ProducerId;

use crate::offsets::{Committed, bytes_of};

/// Bytes that an offset in a transaction takes beside what a committed one takes: it is found by its
/// partition and by its producer.
const PENDING_BYTES: usize = 96;

/// A partition, by topic and index.
pub(crate) type Place = (Rc<str>, i32);

/// Whether a producer has offsets of the group in a transaction; for whoever looks producers up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has some now.
    Began(ProducerId),
    /// It has none any more.
    Ended(ProducerId),
}

/// An offset in a transaction.
#[derive(Clone, Debug)]
struct Pending {
    /// Later ones have larger numbers.
    nth: u64,
    /// `None` when something newer was committed since: the end of the transaction changes nothing then,
    /// but what is stable is known only after it.
    value: Option<Committed>,
}

/// What a transaction left at its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) place: Place,
    nth: u64,
    pub(crate) value: Committed,
}

/// By partition and producer.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets {
    places: BTreeMap<Place, BTreeMap<ProducerId, Pending>>,
    of_producers: BTreeMap<ProducerId, BTreeSet<Place>>,
    changes: Vec<Change>,
    next: u64,
    bytes: usize,
}

impl PendingOffsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the offset of a partition may still change by the end of a transaction.
    pub(crate) fn contains(&self, topic: &Rc<str>, partition: i32) -> bool {
        // Most groups have none, and asking for one costs an allocation.
        !self.is_empty() && self.places.contains_key(&(Rc::clone(topic), partition))
    }

    /// Partitions with an offset in a transaction, sorted.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.keys()
    }

    /// What may yet count, with its partition.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Place, &Committed)> {
        self.places.iter().flat_map(|(place, producers)| {
            let values = producers.values();
            values.filter_map(move |pending| Some((place, pending.value.as_ref()?)))
        })
    }

    /// A producer commits in its transaction. What it committed there before is forgotten.
    pub(crate) fn put(&mut self, producer: ProducerId, place: Place, value: Committed) {
        let nth = self.next;
        self.next += 1;
        self.bytes += PENDING_BYTES + bytes_of(&value);
        let value = Some(value);
        let of_place = self.places.entry(place.clone()).or_default();
        if let Some(old) = of_place.insert(producer, Pending { nth, value }) {
            self.bytes -= old.bytes();
        }
        let of_producer = self.of_producers.entry(producer).or_default();
        if of_producer.is_empty() {
            self.changes.push(Change::Began(producer));
        }
        of_producer.insert(place);
    }

    /// Something was committed for a partition outside of transactions: what is in one is older.
    pub(crate) fn supersede(&mut self, topic: &Rc<str>, partition: i32) {
        if !self.is_empty() {
            self.supersede_before((Rc::clone(topic), partition), u64::MAX);
        }
    }

    fn supersede_before(&mut self, place: Place, nth: u64) {
        for pending in self
            .places
            .get_mut(&place)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            if pending.nth < nth
                && let Some(value) = pending.value.take()
            {
                self.bytes -= bytes_of(&value);
            }
        }
    }

    /// The offset of a partition was deleted, and with it what is in transactions.
    pub(crate) fn clear(&mut self, topic: &Rc<str>, partition: i32) {
        if self.is_empty() {
            return;
        }
        let place = (Rc::clone(topic), partition);
        for (producer, pending) in self.places.remove(&place).unwrap_or_default() {
            self.bytes -= pending.bytes();
            self.forget(producer, &place);
        }
    }

    /// The transaction of a producer has ended. What it committed that nothing newer took the place of,
    /// oldest first; of no use to who knows that it was aborted.
    pub(crate) fn end(&mut self, producer: ProducerId) -> Vec<Ended> {
        let mut ended = Vec::new();
        let places = self.of_producers.remove(&producer).unwrap_or_default();
        if !places.is_empty() {
            self.changes.push(Change::Ended(producer));
        }
        for place in places {
            let Entry::Occupied(mut of_place) = self.places.entry(place.clone()) else {
                continue;
            };
            let pending = of_place.get_mut().remove(&producer);
            if of_place.get().is_empty() {
                of_place.remove();
            }
            let Some(pending) = pending else {
                continue;
            };
            self.bytes -= pending.bytes();
            if let Some(value) = pending.value {
                let nth = pending.nth;
                ended.push(Ended { place, nth, value });
            }
        }
        ended.sort_unstable_by_key(|ended| ended.nth);
        ended
    }

    /// What a transaction committed counts now: older ones of others do not any more.
    pub(crate) fn note_committed(&mut self, ended: &Ended) {
        self.supersede_before(ended.place.clone(), ended.nth);
    }

    /// What changed since it was last asked for.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    fn forget(&mut self, producer: ProducerId, place: &Place) {
        let Some(of_producer) = self.of_producers.get_mut(&producer) else {
            return;
        };
        of_producer.remove(place);
        if of_producer.is_empty() {
            self.of_producers.remove(&producer);
            self.changes.push(Change::Ended(producer));
        }
    }

    /// Producers with offsets in a transaction.
    pub(crate) fn producers(&self) -> impl Iterator<Item = ProducerId> {
        self.of_producers.keys().copied()
    }

    /// Checks what must be true between two events.
    ///
    /// # Panics
    /// When something is not.
    pub(crate) fn check(&self, group: &str) {
        let each = || {
            let places = self.places.iter();
            places.flat_map(|(place, of)| of.iter().map(move |(id, pending)| (place, *id, pending)))
        };
        let bytes: usize = each().map(|(_, _, pending)| pending.bytes()).sum();
        assert_eq!(bytes, self.bytes, "{group}: bytes in transactions");
        let by_place: BTreeSet<_> = each().map(|(place, id, _)| (id, place)).collect();
        let producers = self.of_producers.iter();
        let by_producer = producers.flat_map(|(id, of)| of.iter().map(move |place| (*id, place)));
        assert_eq!(by_place, by_producer.collect(), "{group}: transactions");
        let is_empty = self.places.values().any(BTreeMap::is_empty)
            || self.of_producers.values().any(BTreeSet::is_empty);
        assert!(!is_empty, "{group}: an empty row of transactions");
        assert!(self.changes.is_empty(), "{group}: changes nobody asked for");
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        PENDING_BYTES + self.value.as_ref().map_or(0, bytes_of)
    }
}
