//! What a log must hold, as a plain list of batches.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{BatchHeader, batches};
use thalweg_replica::{EpochEntry, Producers};
use thalweg_storage::{AbortedTxn, LogEvent};
use thalweg_types::{Offset, ProducerId, TimestampMs};

use crate::content::{self, Batch, Round};

/// Producers are as if all had been seen at this time.
const NOW: TimestampMs = TimestampMs(0);

/// One batch that was appended.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Offset of its first record.
    pub base: i64,
    /// Offset after its last record.
    pub end: i64,
    /// All of it.
    pub bytes: Bytes,
    parsed: Batch,
}

impl Appended {
    /// A batch that is going to be appended, or was read.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn of(bytes: Bytes) -> Appended {
        let mut batches = content::parse(&bytes).expect("a batch of our own");
        let parsed = batches.pop().expect("a batch of our own");
        Appended {
            base: parsed.base(),
            end: parsed.end(),
            bytes,
            parsed,
        }
    }
}

/// What is to be done when the log has told something.
#[derive(Default)]
pub struct DueThen {
    /// A snapshot to store.
    pub snapshot: Option<(Offset, Vec<u8>)>,
    /// Transactions to tell the log of.
    pub aborted: Vec<AbortedTxn>,
}

/// What may and must be found when the log is opened again.
#[derive(Default)]
pub struct Model {
    /// Every batch that was appended at an offset and may be there. One that was reported as durable is
    /// alone.
    versions: BTreeMap<i64, Vec<Appended>>,
    /// What was appended and not taken back, in order.
    chain: Vec<Appended>,
    /// Everything below was reported as written.
    pub written: i64,
    /// Everything below was reported as durable.
    pub durable: i64,
    /// What this life's log says of it: after a start it knows less.
    durable_now: i64,
    /// Where the log begins.
    pub start: i64,
    /// At least here it begins after a crash.
    pub start_kept: i64,
    /// As of the written end.
    pub producers: Producers,
    /// What the log told that can not be.
    pub broken: Vec<String>,
    /// Aborted transactions that the log is being told of, and what it said if it took them not.
    pub telling: u32,
    /// See there.
    pub not_told: Option<String>,
    /// A round of compaction has begun, and how it ended is not known.
    cleaning: Option<Round>,
    /// One has begun at some time.
    has_gaps: bool,
    /// Offset of the newest snapshot of producers that was stored.
    pub snapshot_kept: i64,
    /// Batches went without a snapshot of their producers, for lack of room: a start may not know these.
    pub may_forget: bool,
}

/// What was read of an opened log.
pub struct Found {
    /// Where it begins.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
    /// What it says is durable.
    pub durable: i64,
    /// All its batches.
    pub bytes: Vec<u8>,
    /// Its leader epochs.
    pub epochs: Vec<EpochEntry>,
    /// Its producers, from the newest snapshot and what is behind it.
    pub producers: Producers,
}

impl Model {
    /// A batch is about to be appended.
    pub fn append(&mut self, batch: Appended) {
        let versions = self.versions.entry(batch.base).or_default();
        versions.push(batch.clone());
        self.chain.push(batch);
    }

    /// Takes in what the log tells.
    pub fn on_event(&mut self, event: &LogEvent) -> DueThen {
        let mut due = DueThen::default();
        match event {
            LogEvent::Written { end } => due.aborted = self.on_written(end.0),
            LogEvent::Durable { end } => self.on_durable(end.0),
            LogEvent::Rolled { base } if base.0 == self.written => {
                due.snapshot = Some((*base, self.producers.to_snapshot()));
            }
            LogEvent::Rolled { base } => {
                let text = format!("rolled at {base} when {} was written", self.written);
                self.broken.push(text);
            }
            LogEvent::Failed { from, .. } => {
                if from.0 < self.written {
                    let text = format!("failed from {from} on when {} was written", self.written);
                    self.broken.push(text);
                }
                self.chain.retain(|batch| batch.base < from.0);
            }
        }
        due
    }

    fn on_written(&mut self, end: i64) -> Vec<AbortedTxn> {
        let before = std::mem::replace(&mut self.written, end);
        let new = self.chain.iter();
        let new = new.filter(|batch| batch.base >= before && batch.end <= end);
        let mut aborted = Vec::new();
        for batch in new {
            aborted.extend(follow(
                &mut self.producers,
                &batch.parsed.header,
                batch.parsed.marker(),
            ));
        }
        if end <= before || self.chain.iter().all(|batch| batch.end != end) {
            self.broken
                .push(format!("written moved from {before} to {end}"));
        }
        aborted
    }

    fn on_durable(&mut self, end: i64) {
        let durable = std::mem::replace(&mut self.durable_now, end);
        if end <= durable || end > self.written {
            let written = self.written;
            let text = format!("durable moved from {durable} to {end}, written is {written}");
            self.broken.push(text);
        }
        self.promise(end);
    }

    /// Everything below `end` is promised to outlive anything.
    pub fn promise(&mut self, end: i64) {
        self.durable = self.durable.max(end);
        for batch in self.chain.iter().filter(|batch| batch.end <= end) {
            self.versions.insert(batch.base, vec![batch.clone()]);
        }
    }

    /// True while it is still to be told, or to be written, that a transaction was aborted. Who closes a log waits for that.
    #[must_use]
    pub fn has_to_tell(&self) -> bool {
        let mut queued = self.chain.iter().filter(|batch| batch.end > self.written);
        self.telling > 0 || queued.any(|batch| batch.parsed.marker().is_some())
    }

    /// Offset after what was appended and not taken back.
    #[must_use]
    pub fn appended(&self) -> i64 {
        self.chain.last().map_or(self.written, |batch| batch.end)
    }

    /// Whether this producer has a transaction open.
    #[must_use]
    pub fn has_open(&self, producer: ProducerId) -> bool {
        content::open_transactions(&self.parsed()).contains(&producer)
    }

    fn parsed(&self) -> Vec<Batch> {
        let chain = self.chain.iter();
        chain.map(|batch| batch.parsed.clone()).collect()
    }

    /// What is written: the same, as far as nothing is queued.
    fn parsed_written(&self) -> Vec<Batch> {
        let mut parsed = self.parsed();
        parsed.retain(|batch| batch.end() <= self.written);
        parsed
    }

    /// The last stable offset of what is written.
    #[must_use]
    pub fn last_stable(&self) -> i64 {
        content::last_stable(&self.parsed_written(), self.written)
    }

    /// Offsets of the records from the batch of `from` on that a reader of committed data gets.
    #[must_use]
    pub fn committed(&self, from: i64) -> Vec<i64> {
        let written = self.parsed_written();
        let up_to = content::last_stable(&written, self.written);
        let first = written.iter().find(|batch| batch.end() > from);
        let first = first.map_or(from, Batch::base);
        let mut offsets = content::committed(&written, up_to);
        offsets.retain(|offset| *offset >= first);
        offsets
    }

    /// The first record from `from` on whose timestamp is at least `target` (RP-98).
    #[must_use]
    pub fn first_at(&self, target: i64, from: i64) -> Option<i64> {
        let written = self.parsed_written();
        let mut entries = written.iter().flat_map(|batch| &batch.entries);
        let first = entries.find(|entry| entry.offset >= from && entry.timestamp >= target);
        first.map(|entry| entry.offset)
    }

    /// Base offset of the batch that holds `at`, or of the first behind it.
    #[must_use]
    pub fn base_of_batch(&self, at: Offset) -> i64 {
        let batch = self.chain.iter().find(|batch| batch.end > at.0);
        batch.map_or(self.written, |batch| batch.base)
    }

    /// Where the batch ends that holds `at`, or the first behind it.
    #[must_use]
    pub fn end_of_batch(&self, at: Offset) -> Offset {
        let batch = self.chain.iter().find(|batch| batch.end > at.0);
        Offset(batch.map_or(self.written.max(at.0 + 1), |batch| batch.end))
    }

    /// A round of compaction was under way when the life ended.
    #[must_use]
    pub fn is_being_cleaned(&self) -> bool {
        self.cleaning.is_some()
    }

    /// Whether this may be there at `base`.
    #[must_use]
    pub fn is_version(&self, base: i64, bytes: &[u8]) -> bool {
        let versions = self.versions.get(&base);
        let is_known = versions.is_some_and(|versions| versions.iter().any(|v| v.bytes == bytes));
        is_known || self.cleaning.is_some_and(|round| base < round.end)
    }

    /// A round of compaction begins that may change what lies below `end`.
    pub fn on_cleaning(&mut self, end: i64, now: i64) {
        self.cleaning = Some(Round { end, now });
        self.has_gaps = true;
    }

    /// The round has ended and this is what is there now; `cleaned` is how far it came if it ended well.
    ///
    /// # Errors
    /// What is wrong.
    pub fn on_cleaned(&mut self, found: &[u8], cleaned: Option<i64>) -> Result<(), String> {
        let Some(round) = self.cleaning.take() else {
            return Err("no round was begun".to_owned());
        };
        let log = self.read_batches(found, Some(round))?;
        let parsed: Vec<Batch> = log.iter().map(|batch| batch.parsed.clone()).collect();
        content::check_cleaned(&self.parsed_written(), &parsed, round, self.start)?;
        if let Some(end) = cleaned {
            content::check_unique(&parsed, self.start, end)?;
        }
        let queued = self.chain.iter().filter(|batch| batch.end > self.written);
        let queued: Vec<_> = queued.cloned().collect();
        self.versions.retain(|base, _| *base >= round.end);
        for batch in log.iter().filter(|batch| batch.base < round.end) {
            self.versions.insert(batch.base, vec![batch.clone()]);
        }
        self.chain = log;
        self.chain.extend(queued);
        Ok(())
    }

    /// What was written and is not durable may be gone.
    pub fn on_power_loss(&mut self) {
        self.written = self.durable;
    }

    /// Compares what was read from `from` on with what was appended.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_part(&self, from: i64, end: i64, bytes: &[u8]) -> Result<(), String> {
        let mut chain = self.chain.iter().skip_while(|batch| batch.end <= from);
        let mut rest = bytes;
        while !rest.is_empty() {
            let wanted = chain.next().filter(|batch| batch.end <= end);
            let wanted =
                wanted.ok_or_else(|| format!("more than there is from {from} to {end}"))?;
            rest = rest
                .strip_prefix(&wanted.bytes[..])
                .ok_or_else(|| format!("a read from {from} differs at {}", wanted.base))?;
        }
        match bytes.is_empty() && from < end {
            true => Err(format!("a read from {from} to {end} gives nothing")),
            false => Ok(()),
        }
    }

    /// Compares with an opened log and goes on from it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reopened(&mut self, found: &Found, at_least: i64) -> Result<(), String> {
        let round = self.cleaning.take();
        let log = self.check_batches(found, round)?;
        let parsed: Vec<Batch> = log.iter().map(|batch| batch.parsed.clone()).collect();
        if let Some(round) = round {
            // What the power took is gone whatever became of the round.
            let mut before = self.parsed();
            before.retain(|batch| batch.end() <= found.end);
            content::check_cleaned(&before, &parsed, round, found.start)?;
        }
        if found.end < at_least {
            return Err(format!("ends at {} and must reach {at_least}", found.end));
        }
        if found.start < self.start_kept || found.start > self.start.max(self.start_kept) {
            let (kept, start) = (self.start_kept, self.start);
            return Err(format!(
                "begins at {}, not in {kept}..={start}",
                found.start
            ));
        }
        check_epochs(&parsed, found)?;
        check_producers(&parsed, found)?;
        // A log that lost its end below its start is begun anew.
        let is_emptied = found.start == found.end && found.end > self.written;
        if !self.may_forget && !is_emptied {
            check_remembered(&self.producers, found)?;
        }
        self.may_forget = false;
        self.snapshot_kept = 0;
        check_stable(&parsed, found)?;
        // Below the start nobody knows. What was cut off, as it was refused, a loss of power brings back until something
        // behind it is durable.
        let durable = self.durable.max(found.durable);
        self.versions.retain(|base, _| *base >= durable);
        for batch in &log {
            let known = self.versions.entry(batch.base).or_default();
            if known.iter().all(|version| version.bytes != batch.bytes) {
                known.push(batch.clone());
            }
        }
        self.chain = log;
        self.written = found.end;
        self.durable_now = found.durable;
        // What the life before was saying died with it.
        self.telling = 0;
        self.not_told = None;
        self.durable = self.durable.max(found.durable);
        self.start = found.start;
        self.start_kept = found.start;
        self.producers = found.producers.clone();
        if found.durable > found.end {
            return Err(format!(
                "durable up to {}, ends at {}",
                found.durable, found.end
            ));
        }
        Ok(())
    }

    fn check_batches(&self, found: &Found, round: Option<Round>) -> Result<Vec<Appended>, String> {
        let log = self.read_batches(&found.bytes, round)?;
        let end = log.last().map_or(found.start, |last| last.end);
        if end != found.end {
            return Err(format!("batches reach {end}, the end is {}", found.end));
        }
        match log.first() {
            Some(first) if first.end <= found.start => {
                Err(format!("begins with {} for {}", first.base, found.start))
            }
            Some(first) if first.base > found.start && !self.has_gaps => {
                Err(format!("begins with {} for {}", first.base, found.start))
            }
            Some(_) | None => Ok(log),
        }
    }

    /// Takes apart what was read. What a round may have changed is compared elsewhere.
    fn read_batches(&self, bytes: &[u8], round: Option<Round>) -> Result<Vec<Appended>, String> {
        let mut log: Vec<Appended> = Vec::new();
        for batch in batches(bytes) {
            let batch = batch.map_err(|error| format!("no batch: {error}"))?;
            let base = batch.header.base_offset.0;
            if !batch.crc_matches() {
                return Err(format!("the batch at {base} does not match its checksum"));
            }
            let before = log.last().map_or(base, |last| last.end);
            if base < before || (base > before && !self.has_gaps) {
                return Err(format!("after {before} comes {base}"));
            }
            let versions = self.versions.get(&base).map_or(&[][..], Vec::as_slice);
            let known = versions.iter().find(|v| v.bytes == batch.bytes);
            match known {
                Some(known) => log.push(known.clone()),
                None if round.is_some_and(|round| base < round.end) => {
                    log.push(Appended::of(Bytes::copy_from_slice(batch.bytes)));
                }
                None => return Err(format!("the batch at {base} was never appended")),
            }
        }
        Ok(log)
    }
}

/// As the owner of a log follows its producers. Gives the transaction that a marker aborts.
pub(crate) fn follow(
    producers: &mut Producers,
    header: &BatchHeader,
    marker: Option<ControlRecordType>,
) -> Option<AbortedTxn> {
    let ended = producers.replay(header, NOW);
    producers.on_committed(header.last_offset().plus(1));
    let aborts = marker == Some(ControlRecordType::Abort);
    ended.filter(|_| aborts).map(|ended| AbortedTxn {
        producer_id: ended.producer_id,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: ended.last_stable_offset,
    })
}

/// The leader epochs of the log are those of its batches.
fn check_epochs(log: &[Batch], found: &Found) -> Result<(), String> {
    for batch in log {
        let base = batch.base().max(found.start);
        let known = found.epochs.iter().rfind(|entry| entry.start.0 <= base);
        let epoch = batch.header.partition_leader_epoch;
        if known.map(|entry| entry.epoch) != Some(epoch) {
            return Err(format!(
                "epoch {epoch} at {base}, known is {:?}",
                found.epochs
            ));
        }
    }
    Ok(())
}

/// A snapshot and what is behind it give what all batches give (ST-32).
fn check_producers(log: &[Batch], found: &Found) -> Result<(), String> {
    let mut replayed = Producers::default();
    for batch in log {
        let _aborted = follow(&mut replayed, &batch.header, batch.marker());
    }
    let (replayed, known) = (replayed.last_written(), found.producers.last_written());
    let first = log.first().map_or(found.end, Batch::base);
    for (id, last) in &replayed {
        // Of one whose batches were deleted the log has a marker only.
        let is_deleted = last.last_offset.is_none()
            && known.get(id).is_some_and(|known| {
                known.epoch == last.epoch && known.last_offset.is_some_and(|at| at.0 < first)
            });
        if known.get(id) != Some(last) && !is_deleted {
            return Err(format!(
                "producer {id:?}: {last:?} in the log, known {:?}",
                known.get(id)
            ));
        }
    }
    for (id, last) in known {
        let offset = last.last_offset.map_or(-1, |offset| offset.0);
        if offset >= first && !replayed.contains_key(&id) {
            return Err(format!(
                "producer {id:?} is known at {offset} and not in the log"
            ));
        }
    }
    Ok(())
}

/// Whoever wrote last in what is left is known by that batch, also where it was deleted (RP-69).
fn check_remembered(before: &Producers, found: &Found) -> Result<(), String> {
    let known = found.producers.last_written();
    for (id, last) in before.last_written() {
        // Of one that has ended a transaction since nobody knows here where its marker is.
        if last.last_offset.is_none_or(|at| at.0 >= found.end) {
            continue;
        }
        let is_known = known.get(&id).is_some_and(|known| {
            (known.epoch, known.last_offset) >= (last.epoch, last.last_offset)
        });
        if !is_known {
            return Err(format!(
                "producer {id:?} was at {last:?}, and is known at {:?}",
                known.get(&id)
            ));
        }
    }
    Ok(())
}

/// Both give the same last stable offset.
fn check_stable(log: &[Batch], found: &Found) -> Result<(), String> {
    let stable = content::last_stable(log, found.end);
    let known = found.producers.first_unstable();
    let known = known.map_or(found.end, |first| first.0);
    // Where the begin of a transaction was deleted, a snapshot knows it and the batches do not.
    let is_deleted = known < found.start;
    match known == stable || is_deleted {
        true => Ok(()),
        false => Err(format!(
            "stable up to {known}, by the batches up to {stable}"
        )),
    }
}
