//! What becomes of one batch: a pure function of its bytes, the map of last offsets and the rules.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{
    Batch, BatchError, BatchHeader, BuildError, Level, RecordSet, emptied, records_of, retain,
};
use thalweg_replica::LastOfProducer;
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;
use thalweg_types::{Offset, ProducerId, TimestampMs};

use super::key_hash::KeyHash;
use super::offset_map::OffsetMap;
use super::transactions::{Holds, Marker, Transactions};
use crate::txn_index::AbortedTxn;

/// What one round keeps and removes.
pub(super) struct Rules {
    /// Last offset of each key in the round's part of the log.
    pub(super) map: OffsetMap,
    /// Records from here on were not looked at: they stay, those of aborted transactions too, for what they say of
    /// their producers.
    pub(super) end: Offset,
    /// The broker's clock.
    pub(super) now: TimestampMs,
    /// `delete.retention.ms`.
    pub(super) delete_retention_ms: i64,
    /// Newest batch below the end of each producer that the log knows.
    pub(super) live: HashMap<ProducerId, LastOfProducer>,
    /// Of these it is not known: any of theirs may be it.
    pub(super) ahead: HashSet<ProducerId>,
}

/// Where a batch lies in what is cleaned together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Inside,
    /// Nothing follows it in the new segment, which must go on ending where the old ones ended.
    Last,
}

/// What becomes of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It stays as it is.
    Stays,
    /// This takes its place.
    Becomes(Bytes),
    Goes,
}

/// What was decided on a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) fate: Fate,
    /// Records that are left.
    pub(super) records: u64,
    /// The marker of an aborted transaction that readers must go on knowing of.
    pub(super) aborted: Option<AbortedTxn>,
}

/// Why records are removed although they are the last of their keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Discard {
    Nothing,
    /// The marker has nothing to mark any more; from its horizon on it goes.
    SpentMarker,
    All,
}

impl Rules {
    /// Decides on the next batch of the log.
    ///
    /// # Errors
    /// The batch can not be read, or not be made anew.
    pub(super) fn judge(
        &self,
        batch: &Batch<'_>,
        place: Place,
        transactions: &mut Transactions,
    ) -> Result<Verdict, BuildError> {
        let header = &batch.header;
        let set = records_of(batch.bytes, DECOMPRESSED_BATCH_BYTES_MAX)?;
        let (discard, aborted) = self.discard(header, &set, transactions)?;
        let kept = self.keep(header, &set, discard)?;
        let horizon = self.new_horizon(header, &kept, discard);
        let count = kept.records.len();
        let fate = if count == 0 {
            self.without_records(header, place)
        } else if i32::try_from(count) == Ok(header.record_count) && horizon.is_none() {
            Fate::Stays
        } else {
            let rebuilt = retain(&set, horizon, Level::Default, &kept.records)?;
            rebuilt.map_or(Fate::Goes, Fate::Becomes)
        };
        // Nothing is left to hide from readers when a marker goes.
        let aborted = aborted.filter(|_| fate != Fate::Goes);
        Ok(Verdict {
            fate,
            records: count as u64,
            aborted,
        })
    }

    fn discard(
        &self,
        header: &BatchHeader,
        set: &RecordSet<'_>,
        transactions: &mut Transactions,
    ) -> Result<(Discard, Option<AbortedTxn>), BatchError> {
        if !header.is_control() {
            let is_aborted = transactions.on_batch(header);
            return Ok(match is_aborted && header.base_offset < self.end {
                true => (Discard::All, None),
                false => (Discard::Nothing, None),
            });
        }
        let holds = holds(set)?;
        Ok(match transactions.on_marker(header, holds) {
            Marker::Needed => (Discard::Nothing, None),
            Marker::EndsAborted(transaction) => (Discard::Nothing, Some(transaction)),
            Marker::Spent => match header.delete_horizon() {
                Some(horizon) if horizon <= self.now => (Discard::All, None),
                Some(_) | None => (Discard::SpentMarker, None),
            },
        })
    }

    fn keep(
        &self,
        header: &BatchHeader,
        set: &RecordSet<'_>,
        discard: Discard,
    ) -> Result<Kept, BatchError> {
        let mut kept = Kept::default();
        match discard {
            Discard::All => {}
            Discard::Nothing if !header.is_control() => self.keep_wanted(header, set, &mut kept)?,
            Discard::SpentMarker | Discard::Nothing => {
                for found in set.spans() {
                    let (record, span) = found?;
                    kept.records.push((span, record.timestamp));
                }
            }
        }
        Ok(kept)
    }

    /// First reads the batch and then asks the map, whose memory is mostly out of reach of caches: so several questions
    /// are on their way at once.
    fn keep_wanted(
        &self,
        header: &BatchHeader,
        set: &RecordSet<'_>,
        kept: &mut Kept,
    ) -> Result<(), BatchError> {
        let mut seen = Vec::with_capacity(set.count_max());
        for found in set.spans() {
            let (record, span) = found?;
            seen.push(Seen {
                span,
                offset: record.offset,
                timestamp: record.timestamp,
                hash: record.key.map(|key| self.map.hash(key)),
                is_tombstone: record.value.is_none(),
            });
        }
        let horizon = header.delete_horizon();
        let deletes_stay = horizon.is_none_or(|horizon| self.now < horizon);
        for record in seen {
            if self.is_wanted(&record, deletes_stay) {
                kept.tombstones |= record.is_tombstone;
                kept.records.push((record.span, record.timestamp));
            }
        }
        Ok(())
    }

    fn is_wanted(&self, record: &Seen, deletes_stay: bool) -> bool {
        if record.offset >= self.end {
            return true;
        }
        // Kafka, too, drops what has no key: nothing could ever take its place.
        let Some(hash) = record.hash else {
            return false;
        };
        let last = self.map.get(hash);
        last.is_none_or(|last| record.offset >= last) && (!record.is_tombstone || deletes_stay)
    }

    /// The first cleaning says until when tombstones, and markers of nothing, stay (KIP-534).
    fn new_horizon(
        &self,
        header: &BatchHeader,
        kept: &Kept,
        discard: Discard,
    ) -> Option<TimestampMs> {
        let due = kept.tombstones || discard == Discard::SpentMarker;
        (due && !header.has_delete_horizon())
            .then(|| TimestampMs(self.now.0.saturating_add(self.delete_retention_ms)))
    }

    /// A batch without records stays for what it says of its producer or of the log's end.
    fn without_records(&self, header: &BatchHeader, place: Place) -> Fate {
        let ends_round = header.last_offset().plus(1) == self.end;
        if place == Place::Inside && !ends_round && !self.is_last_of_producer(header) {
            return Fate::Goes;
        }
        match header.record_count {
            0 => Fate::Stays,
            _ => Fate::Becomes(emptied(header)),
        }
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        if self.ahead.contains(&header.producer_id) {
            return true;
        }
        let Some(live) = self.live.get(&header.producer_id) else {
            return false;
        };
        match live.last_offset {
            Some(last) => header.last_offset() == last,
            // Only a marker is left of it: that has its epoch.
            None => header.is_control() && header.producer_epoch == live.epoch,
        }
    }
}

/// What is to be known of a record to decide on it.
struct Seen {
    span: Range<usize>,
    offset: Offset,
    timestamp: TimestampMs,
    /// Of its key.
    hash: Option<KeyHash>,
    is_tombstone: bool,
}

#[derive(Default)]
struct Kept {
    /// Where each lies in the batch, and its timestamp, in order.
    records: Vec<(Range<usize>, TimestampMs)>,
    tombstones: bool,
}

/// What a control batch holds.
pub(super) fn holds(set: &RecordSet<'_>) -> Result<Holds, BatchError> {
    let Some(first) = set.iter().next().transpose()? else {
        return Ok(Holds::Nothing);
    };
    let kind = first.key.and_then(ControlRecordType::of_key);
    Ok(kind.map_or(Holds::Unknown, Holds::Type))
}
