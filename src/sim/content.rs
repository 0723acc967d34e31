//! What the batches of a log say, record by record: whose transactions were committed, and what compaction
//! may have taken away. Plain walks over everything, to be compared with what `storage` keeps of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{BatchHeader, batches, records_of};
use thalweg_types::ProducerId;

/// Batches are not compressed.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
}

/// One batch and its records.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) header: BatchHeader,
    pub(crate) entries: Vec<Entry>,
}

/// What has become of the transaction that a batch belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is in none.
    Plain,
    /// It ends one.
    Marker,
    Open,
    Committed,
    Aborted,
    /// The marker that ended it says nothing any more.
    Unknown,
}

/// A round of compaction: everything below `end` may have changed, at the time `now`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    pub(crate) end: i64,
    pub(crate) now: i64,
}

/// Takes batches apart.
///
/// # Errors
/// They are none.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Batch>, String> {
    let mut found = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.map_err(|error| format!("no batch: {error}"))?;
        let at = batch.header.base_offset.0;
        let bad = |error| format!("the batch at {at}: {error}");
        let set = records_of(batch.bytes, PAYLOAD_BYTES_MAX).map_err(bad)?;
        let mut entries = Vec::new();
        for record in &set {
            let record = record.map_err(bad)?;
            entries.push(Entry {
                offset: record.offset.0,
                timestamp: record.timestamp.0,
                key: record.key.map(Bytes::copy_from_slice),
                value: record.value.map(Bytes::copy_from_slice),
            });
        }
        found.push(Batch {
            header: batch.header,
            entries,
        });
    }
    Ok(found)
}

impl Batch {
    pub(crate) fn base(&self) -> i64 {
        self.header.base_offset.0
    }

    pub(crate) fn end(&self) -> i64 {
        self.header.last_offset().0 + 1
    }

    /// What it says of a transaction, if it ends one.
    pub(crate) fn marker(&self) -> Option<ControlRecordType> {
        let key = self.entries.first()?.key.as_ref()?;
        ControlRecordType::of_key(key)
    }
}

/// What has become of each batch's transaction, by the marker that follows it.
pub(crate) fn fates(log: &[Batch]) -> Vec<Fate> {
    let mut next: HashMap<ProducerId, Fate> = HashMap::new();
    let mut fates: Vec<Fate> = log
        .iter()
        .rev()
        .map(|batch| {
            let producer = batch.header.producer_id;
            if batch.header.is_control() {
                let ended = match batch.marker() {
                    Some(ControlRecordType::Commit) => Fate::Committed,
                    Some(ControlRecordType::Abort) => Fate::Aborted,
                    Some(_) | None => Fate::Unknown,
                };
                next.insert(producer, ended);
                Fate::Marker
            } else if batch.header.is_transactional() {
                next.get(&producer).copied().unwrap_or(Fate::Open)
            } else {
                Fate::Plain
            }
        })
        .collect();
    fates.reverse();
    fates
}

/// The last stable offset of a log that ends at `end`: where the first open transaction begins (RP-74).
pub(crate) fn last_stable(log: &[Batch], end: i64) -> i64 {
    let mut open = log.iter().zip(fates(log));
    let first = open.find(|(_, fate)| *fate == Fate::Open);
    first.map_or(end, |(batch, _)| batch.base().min(end))
}

/// Producers with an open transaction.
pub(crate) fn open_transactions(log: &[Batch]) -> BTreeSet<ProducerId> {
    let open = log.iter().zip(fates(log));
    let open = open.filter(|(_, fate)| *fate == Fate::Open);
    open.map(|(batch, _)| batch.header.producer_id).collect()
}

/// Offsets of the records below `up_to` that a reader of committed data gets (RP-75).
pub(crate) fn committed(log: &[Batch], up_to: i64) -> Vec<i64> {
    let with_fates = log.iter().zip(fates(log));
    let seen = with_fates.filter(|(batch, fate)| {
        batch.end() <= up_to && matches!(fate, Fate::Plain | Fate::Committed)
    });
    seen.flat_map(|(batch, _)| batch.entries.iter().map(|entry| entry.offset))
        .collect()
}

/// What a log may have lost by a round of compaction: nothing but what a later record with the same key
/// replaces, what was aborted, what has no key, and tombstones and markers whose time is over (KIP-534).
/// What is left is as it was. `new` is all of the log from `start` on.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_cleaned(
    old: &[Batch],
    new: &[Batch],
    round: Round,
    start: i64,
) -> Result<(), String> {
    let left = by_offset(new);
    let was = by_offset(old);
    for (offset, (batch, entry)) in &left {
        let same = was.get(offset).is_some_and(|(before, known)| {
            known == entry
                && before.header.producer_id == batch.header.producer_id
                && before.header.producer_epoch == batch.header.producer_epoch
                && before.header.partition_leader_epoch == batch.header.partition_leader_epoch
                && before.header.attributes & FLAGS == batch.header.attributes & FLAGS
        });
        // What lies behind the round is compared byte by byte, with all that was ever begun to be appended.
        if !same && batch.base() < round.end {
            return Err(format!("compaction changed the record at {offset}"));
        }
    }
    let latest = latest_by_key(old, new, round.end);
    for (batch, fate) in old.iter().zip(fates(old)) {
        for entry in &batch.entries {
            if entry.offset < start || left.contains_key(&entry.offset) {
                continue;
            }
            let may_go = entry.offset < round.end
                && match fate {
                    Fate::Aborted => true,
                    Fate::Marker => is_spent(batch, new),
                    Fate::Open | Fate::Unknown => false,
                    Fate::Plain | Fate::Committed => is_replaced(batch, entry, &latest, round.now),
                };
            if !may_go {
                return Err(format!(
                    "compaction up to {} took the record at {} ({fate:?}) away",
                    round.end, entry.offset
                ));
            }
        }
    }
    Ok(())
}

/// Of the attributes of a batch: transactional and control.
const FLAGS: i16 = 0x30;

fn by_offset(log: &[Batch]) -> BTreeMap<i64, (&Batch, &Entry)> {
    let all = log.iter().flat_map(|batch| {
        let entries = batch.entries.iter();
        entries.map(move |entry| (entry.offset, (batch, entry)))
    });
    all.collect()
}

/// The last record of each key below `end` that counts, of those that are in `new`, too, or behind which
/// `new` goes on.
fn latest_by_key<'a>(old: &'a [Batch], new: &[Batch], end: i64) -> HashMap<&'a [u8], i64> {
    let reach = new.last().map_or(0, Batch::end);
    let mut latest = HashMap::new();
    for (batch, fate) in old.iter().zip(fates(old)) {
        if !matches!(fate, Fate::Plain | Fate::Committed) {
            continue;
        }
        for entry in &batch.entries {
            if let Some(key) = entry.key.as_deref()
                && entry.offset < end.min(reach)
            {
                latest.insert(key, entry.offset);
            }
        }
    }
    latest
}

fn is_replaced(batch: &Batch, entry: &Entry, latest: &HashMap<&[u8], i64>, now: i64) -> bool {
    let Some(key) = entry.key.as_deref() else {
        return true;
    };
    let replaced = latest.get(key).is_some_and(|last| *last > entry.offset);
    let horizon = batch.header.delete_horizon();
    replaced || (entry.value.is_none() && horizon.is_some_and(|horizon| horizon.0 <= now))
}

/// Nothing of the transaction that `marker` ends is left.
fn is_spent(marker: &Batch, left: &[Batch]) -> bool {
    let producer = marker.header.producer_id;
    let before = left
        .iter()
        .rev()
        .filter(|batch| batch.end() <= marker.base());
    let mut of_producer = before.filter(|batch| batch.header.producer_id == producer);
    of_producer
        .next()
        .is_none_or(|last| last.header.is_control() || !last.header.is_transactional())
}

/// After a round every key is there once from `start` to `end`. Below the start, in the batch that holds it, lies
/// what nobody reads: as in Kafka no key of it is collected.
///
/// # Errors
/// One is there twice.
pub(crate) fn check_unique(log: &[Batch], start: i64, end: i64) -> Result<(), String> {
    let mut seen: HashMap<&[u8], i64> = HashMap::new();
    for (batch, fate) in log.iter().zip(fates(log)) {
        if matches!(fate, Fate::Marker | Fate::Open) {
            continue;
        }
        let cleaned = batch.entries.iter();
        for entry in cleaned.filter(|entry| (start..end).contains(&entry.offset)) {
            let Some(key) = entry.key.as_deref() else {
                return Err(format!("{} has no key and was not cleaned", entry.offset));
            };
            if let Some(before) = seen.insert(key, entry.offset) {
                let after = entry.offset;
                return Err(format!(
                    "a key is at {before} and at {after} after cleaning up to {end}"
                ));
            }
        }
    }
    Ok(())
}
