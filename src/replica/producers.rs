//! What a partition remembers of idempotent producers (KIP-98), so that a retry appends nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use thalweg_protocol::records::{BatchHeader, ProducerSequence};
use thalweg_types::limits::PRODUCERS_PER_PARTITION_MAX;
use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::refused::Refused;

/// Batches remembered per producer: a client has at most that many in flight on one connection when
/// it asks for idempotence (`max.in.flight.requests.per.connection`).
pub const PRODUCER_BATCHES_KEPT: usize = 5;

/// One batch of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProducerBatch {
    pub(crate) last_sequence: i32,
    /// Last offset less the first; sequences run in step with it.
    pub(crate) offset_delta: i32,
    pub(crate) last_offset: Offset,
    /// Max timestamp of the batch.
    pub(crate) timestamp: TimestampMs,
}

impl ProducerBatch {
    const NONE: ProducerBatch = ProducerBatch {
        last_sequence: -1,
        offset_delta: 0,
        last_offset: Offset(-1),
        timestamp: TimestampMs::NONE,
    };

    fn first_sequence(&self) -> i32 {
        sequence_before(self.last_sequence, self.offset_delta)
    }

    pub(crate) fn base_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// One producer as the log knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Producer {
    epoch: ProducerEpoch,
    /// The first `kept` count, oldest first.
    batches: [ProducerBatch; PRODUCER_BATCHES_KEPT],
    kept: u8,
    /// When it last wrote, or when this process learned of it; by the broker's clock, because the
    /// timestamps of records may lie in any past.
    seen: TimestampMs,
    /// First offset of the transaction that it has open.
    transaction: Option<Offset>,
}

impl Producer {
    pub(crate) fn new(epoch: ProducerEpoch, seen: TimestampMs) -> Producer {
        Producer {
            epoch,
            batches: [ProducerBatch::NONE; PRODUCER_BATCHES_KEPT],
            kept: 0,
            seen,
            transaction: None,
        }
    }

    /// First offset of its open transaction.
    pub(crate) fn transaction(&self) -> Option<Offset> {
        self.transaction
    }

    pub(crate) fn set_transaction(&mut self, first: Option<Offset>) {
        self.transaction = first;
    }

    pub(crate) fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    pub(crate) fn batches(&self) -> &[ProducerBatch] {
        &self.batches[..usize::from(self.kept)]
    }

    /// Offset of its newest record; -1 without one.
    fn last_offset(&self) -> Offset {
        self.batches().last().map_or(Offset(-1), |b| b.last_offset)
    }

    /// Another epoch forgets the batches of the one before.
    pub(crate) fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if epoch != self.epoch {
            let transaction = self.transaction;
            *self = Producer::new(epoch, self.seen);
            self.transaction = transaction;
        }
    }

    pub(crate) fn push(&mut self, batch: ProducerBatch) {
        if usize::from(self.kept) == PRODUCER_BATCHES_KEPT {
            self.batches.rotate_left(1);
        } else {
            self.kept += 1;
        }
        self.batches[usize::from(self.kept) - 1] = batch;
    }
}

/// How far a producer has come in a log: what compaction must leave of it (RP-103).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastOfProducer {
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Last offset of its newest batch of records; `None` when only a marker is known of it.
    pub last_offset: Option<Offset>,
}

/// A transaction whose marker was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// Where the first of the transactions begins that are still open; the offset after the marker when
    /// none is.
    pub last_stable_offset: Offset,
}

/// What the memory says to a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It goes on where the producer stopped.
    New,
    /// It is a retry of this one.
    Retry(ProducerBatch),
}

/// A producer as it was before a batch that is assigned and not yet written.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Undo {
    base: Offset,
    end: Offset,
    id: ProducerId,
    before: Option<Producer>,
}

/// The producers of one log: their epochs and their last [`PRODUCER_BATCHES_KEPT`] batches each.
///
/// It says what may be appended ([`crate::Replica::on_produce`] asks it), follows what is assigned,
/// goes back when a write fails, and can be rebuilt from batch headers ([`Producers::replay`]) or
/// from a snapshot and the headers behind it, with the same result (ST-32). The rules are those of
/// RP-63 to RP-67; sequences run from 0 to 2^31-1 and on at 0.
///
/// Bounded by `limits::PRODUCERS_PER_PARTITION_MAX` or [`Producers::limit`]: beyond it the producers
/// that wrote least recently are forgotten, which makes them unknown ones that may start anywhere
/// (RP-67, RP-70). Ones with a batch in flight or an open transaction are spared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Producers {
    producers: HashMap<ProducerId, Producer>,
    /// By the offset of their newest record: the first is the next to be forgotten.
    by_age: BTreeSet<(Offset, ProducerId)>,
    /// In offset order.
    in_flight: VecDeque<Undo>,
    /// Open transactions by their first offsets.
    open: BTreeSet<(Offset, ProducerId)>,
    /// Ended ones whose marker is not committed yet, as far as known.
    ended: VecDeque<EndedTransaction>,
    max: usize,
}

impl Default for Producers {
    fn default() -> Self {
        Producers {
            producers: HashMap::new(),
            by_age: BTreeSet::new(),
            in_flight: VecDeque::new(),
            open: BTreeSet::new(),
            ended: VecDeque::new(),
            max: PRODUCERS_PER_PARTITION_MAX,
        }
    }
}

impl Producers {
    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// True when none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Follows a batch that is in the log, as its header says, without questions (RP-71): for
    /// replaying a log and for following a leader. `now` is the broker's clock. A marker gives the
    /// transaction that it ends, unless all of that was deleted.
    pub fn replay(&mut self, header: &BatchHeader, now: TimestampMs) -> Option<EndedTransaction> {
        let claim = header.producer()?;
        let mut ended = None;
        if header.is_control() {
            // A transaction's marker ends an epoch's transaction, it has no sequence.
            self.change(claim.id, now, |producer| producer.enter_epoch(claim.epoch));
            ended = self.end_transaction(claim.id, header.last_offset());
        } else {
            let delta = header.last_offset_delta;
            self.note(
                claim,
                delta,
                header.last_offset(),
                header.max_timestamp,
                now,
            );
        }
        if header.is_transactional() && !header.is_control() {
            self.begin_transaction(claim.id, header.base_offset);
        }
        let end = header.last_offset().plus(1);
        self.forget_oldest(end);
        ended
    }

    fn begin_transaction(&mut self, id: ProducerId, first: Offset) {
        if let Some(producer) = self.producers.get_mut(&id)
            && producer.transaction.is_none()
        {
            producer.transaction = Some(first);
            self.open.insert((first, id));
        }
    }

    fn end_transaction(&mut self, id: ProducerId, marker: Offset) -> Option<EndedTransaction> {
        let first_offset = self.producers.get_mut(&id)?.transaction.take()?;
        self.open.remove(&(first_offset, id));
        let first_open = self.open.first().map(|(first, _)| *first);
        let ended = EndedTransaction {
            producer_id: id,
            first_offset,
            last_offset: marker,
            last_stable_offset: first_open.unwrap_or(marker.plus(1)),
        };
        self.ended.push_back(ended);
        Some(ended)
    }

    /// Everything below `high_watermark` is committed: a transaction counts as ended once its marker is
    /// (RP-74).
    pub fn on_committed(&mut self, high_watermark: Offset) {
        while self
            .ended
            .front()
            .is_some_and(|ended| ended.last_offset < high_watermark)
        {
            self.ended.pop_front();
        }
    }

    /// First offset of a transaction that is not ended for good; `None` when all are.
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        let open = self.open.first().map(|(first, _)| *first);
        let ended = self.ended.iter().map(|ended| ended.first_offset).min();
        open.into_iter().chain(ended).min()
    }

    /// Forgets producers that have not written for `keep_ms` (`producer.id.expiration.ms`) and says
    /// how many those were.
    pub fn expire(&mut self, now: TimestampMs, keep_ms: i64) -> usize {
        let busy = self.first_in_flight();
        let old: Vec<(Offset, ProducerId)> = self
            .producers
            .iter()
            .filter(|(_, producer)| producer.transaction.is_none())
            .filter(|(_, producer)| now.0.saturating_sub(producer.seen.0) >= keep_ms)
            .map(|(id, producer)| (producer.last_offset(), *id))
            .filter(|(last, _)| *last < busy)
            .collect();
        for key in &old {
            self.by_age.remove(key);
            self.producers.remove(&key.1);
        }
        if self.producers.capacity() > 4 * self.producers.len() {
            self.producers.shrink_to(2 * self.producers.len());
        }
        old.len()
    }

    /// Keeps at most `max` producers from now on, and never more than
    /// `limits::PRODUCERS_PER_PARTITION_MAX`.
    pub fn limit(&mut self, max: usize) {
        self.max = max.clamp(1, PRODUCERS_PER_PARTITION_MAX);
        self.forget_oldest(self.first_in_flight());
    }

    /// May a client append this, which belongs to no transaction? `offset_delta` is the batch's last
    /// offset delta.
    pub(crate) fn judge(
        &self,
        claim: ProducerSequence,
        offset_delta: i32,
    ) -> Result<Verdict, Refused> {
        let Some(known) = self.producers.get(&claim.id) else {
            // RP-67.
            return Ok(Verdict::New);
        };
        if claim.epoch < known.epoch {
            return Err(Refused::StaleProducerEpoch {
                given: claim.epoch,
                known: known.epoch,
            });
        }
        let last = sequence_after(claim.base_sequence, offset_delta);
        let expected = if claim.epoch > known.epoch {
            0
        } else {
            let mut batches = known.batches().iter();
            let original = batches
                .find(|b| b.last_sequence == last && b.first_sequence() == claim.base_sequence);
            if let Some(original) = original {
                return Ok(Verdict::Retry(*original));
            }
            known
                .batches()
                .last()
                .map_or(0, |b| sequence_after(b.last_sequence, 1))
        };
        if claim.base_sequence != expected {
            return Err(Refused::OutOfSequence {
                given: claim.base_sequence,
                expected,
            });
        }
        match known.transaction {
            Some(first) => Err(Refused::OpenTransaction { first }),
            None => Ok(Verdict::New),
        }
    }

    /// A batch got its offsets and is on its way to the log.
    pub(crate) fn on_assigned(
        &mut self,
        claim: ProducerSequence,
        offset_delta: i32,
        last_offset: Offset,
        timestamp: TimestampMs,
        now: TimestampMs,
    ) {
        self.in_flight.push_back(Undo {
            base: Offset(last_offset.0 - i64::from(offset_delta)),
            end: last_offset.plus(1),
            id: claim.id,
            before: self.producers.get(&claim.id).copied(),
        });
        self.note(claim, offset_delta, last_offset, timestamp, now);
    }

    /// Everything below `end` is in the log.
    pub(crate) fn on_written(&mut self, end: Offset) {
        while self.in_flight.front().is_some_and(|undo| undo.end <= end) {
            self.in_flight.pop_front();
        }
        self.forget_oldest(end);
    }

    /// What was assigned from `from` on did not come to be.
    pub(crate) fn on_rewound(&mut self, from: Offset) {
        while self.in_flight.back().is_some_and(|undo| undo.end > from) {
            let Some(undo) = self.in_flight.pop_back() else {
                break;
            };
            if let Some(now) = self.producers.remove(&undo.id) {
                self.by_age.remove(&(now.last_offset(), undo.id));
            }
            if let Some(before) = undo.before {
                self.by_age.insert((before.last_offset(), undo.id));
                self.producers.insert(undo.id, before);
            }
        }
    }

    /// The producers as of the written end, those that wrote least recently first.
    pub(crate) fn as_written(&self) -> Vec<(ProducerId, Producer)> {
        let mut before: HashMap<ProducerId, Option<Producer>> = HashMap::new();
        for undo in &self.in_flight {
            before.entry(undo.id).or_insert(undo.before);
        }
        let mut list: Vec<(ProducerId, Producer)> = self
            .producers
            .iter()
            .filter_map(|(id, now)| {
                let producer = before.get(id).copied().unwrap_or(Some(*now));
                producer.map(|producer| (*id, producer))
            })
            .collect();
        list.sort_unstable_by_key(|(id, producer)| (producer.last_offset(), *id));
        list
    }

    /// The newest batch of each producer as of the written end.
    #[must_use]
    pub fn last_written(&self) -> HashMap<ProducerId, LastOfProducer> {
        let written = self.as_written().into_iter();
        written
            .map(|(id, producer)| {
                let last = LastOfProducer {
                    epoch: producer.epoch(),
                    last_offset: producer.batches().last().map(|batch| batch.last_offset),
                };
                (id, last)
            })
            .collect()
    }

    /// Takes a producer as a snapshot has it; one of the same id is replaced.
    pub(crate) fn restore(&mut self, id: ProducerId, producer: Producer) {
        if let Some(other) = self.producers.insert(id, producer) {
            self.by_age.remove(&(other.last_offset(), id));
            self.open.retain(|(_, of)| *of != id);
        }
        if let Some(first) = producer.transaction {
            self.open.insert((first, id));
        }
        self.by_age.insert((producer.last_offset(), id));
        self.forget_oldest(Offset(i64::MAX));
    }

    pub(crate) fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.producers.get(&id)
    }

    fn note(
        &mut self,
        claim: ProducerSequence,
        offset_delta: i32,
        last_offset: Offset,
        timestamp: TimestampMs,
        now: TimestampMs,
    ) {
        self.change(claim.id, now, |producer| {
            producer.enter_epoch(claim.epoch);
            producer.push(ProducerBatch {
                last_sequence: sequence_after(claim.base_sequence, offset_delta),
                offset_delta,
                last_offset,
                timestamp,
            });
        });
    }

    fn change(&mut self, id: ProducerId, now: TimestampMs, change: impl FnOnce(&mut Producer)) {
        let producer = self
            .producers
            .entry(id)
            .or_insert_with(|| Producer::new(ProducerEpoch(-1), now));
        let before = (producer.last_offset(), id);
        producer.seen = now;
        change(producer);
        let after = (producer.last_offset(), id);
        if before != after {
            self.by_age.remove(&before);
        }
        self.by_age.insert(after);
    }

    /// Base of the oldest batch in flight: producers whose newest record lies below it have none.
    fn first_in_flight(&self) -> Offset {
        let first = self.in_flight.front();
        first.map_or(Offset(i64::MAX), |undo| undo.base)
    }

    /// RP-70. Producers whose newest record lies at or above `written` have it in flight; those with an
    /// open transaction are needed for its end.
    fn forget_oldest(&mut self, written: Offset) {
        while self.producers.len() > self.max {
            let mut old = self.by_age.iter().take_while(|(last, _)| *last < written);
            let idle = |id| {
                let producer: Option<&Producer> = self.producers.get(id);
                producer.is_some_and(|producer| producer.transaction.is_none())
            };
            let Some((last, id)) = old.find(|(_, id)| idle(id)).copied() else {
                break;
            };
            self.by_age.remove(&(last, id));
            self.producers.remove(&id);
        }
    }

    /// Asserts the invariants of the type.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        assert_eq!(
            self.producers.len(),
            self.by_age.len(),
            "both indexes hold the same producers"
        );
        assert!(
            self.producers.len() <= self.max + self.in_flight.len() + self.open.len(),
            "producers are bounded"
        );
        let open = self.producers.iter();
        let open = open.filter_map(|(id, producer)| Some((producer.transaction?, *id)));
        assert_eq!(
            open.collect::<BTreeSet<_>>(),
            self.open,
            "both indexes hold the same transactions"
        );
        let mut end = Offset(-1);
        for undo in &self.in_flight {
            assert!(undo.end > end, "batches in flight are in order");
            assert!(
                self.producers.contains_key(&undo.id),
                "a producer with a batch in flight is known"
            );
            end = undo.end;
        }
        for (id, producer) in &self.producers {
            assert!(
                self.by_age.contains(&(producer.last_offset(), *id)),
                "its age is known"
            );
            for pair in producer.batches().windows(2) {
                assert!(
                    pair[0].last_offset < pair[1].base_offset(),
                    "batches of a producer are in offset order"
                );
            }
        }
    }
}

/// The sequence `count` records behind `sequence`: after 2^31-1 comes 0.
fn sequence_after(sequence: i32, count: i32) -> i32 {
    wrapped(i64::from(sequence) + i64::from(count))
}

/// The sequence `count` records before `sequence`.
fn sequence_before(sequence: i32, count: i32) -> i32 {
    wrapped(i64::from(sequence) - i64::from(count))
}

fn wrapped(sequence: i64) -> i32 {
    // Below 2^31, so it fits.
    i32::try_from(sequence.rem_euclid(1 << 31)).unwrap_or(0)
}
