//! What a log must hold, as a plain list of batches.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_protocol::records::{BatchHeader, batches};
use thalweg_replica::{EpochEntry, Producers};
use thalweg_storage::LogEvent;
use thalweg_types::{Offset, TimestampMs};

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
}

impl Appended {
    fn header(&self) -> BatchHeader {
        BatchHeader::parse(&self.bytes).expect("a batch of our own")
    }
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

    /// Takes in what the log tells. Gives the snapshot to store.
    pub fn on_event(&mut self, event: &LogEvent) -> Option<(Offset, Vec<u8>)> {
        match event {
            LogEvent::Written { end } => self.on_written(end.0),
            LogEvent::Durable { end } => self.on_durable(end.0),
            LogEvent::Rolled { base } => {
                if base.0 == self.written {
                    return Some((*base, self.producers.to_snapshot()));
                }
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
        None
    }

    fn on_written(&mut self, end: i64) {
        let before = std::mem::replace(&mut self.written, end);
        let new = self.chain.iter();
        let new = new.filter(|batch| batch.base >= before && batch.end <= end);
        for batch in new {
            let _ended = self.producers.replay(&batch.header(), NOW);
        }
        if end <= before || self.chain.iter().all(|batch| batch.end != end) {
            self.broken
                .push(format!("written moved from {before} to {end}"));
        }
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

    /// Offset after what was appended and not taken back.
    #[must_use]
    pub fn appended(&self) -> i64 {
        self.chain.last().map_or(self.written, |batch| batch.end)
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
        let log = self.check_batches(found)?;
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
        check_epochs(&log, found)?;
        check_producers(&log, found)?;
        // Below the start nobody knows.
        self.versions = BTreeMap::new();
        for batch in &log {
            self.versions.insert(batch.base, vec![batch.clone()]);
        }
        self.chain = log;
        self.written = found.end;
        self.durable_now = found.durable;
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

    fn check_batches(&self, found: &Found) -> Result<Vec<Appended>, String> {
        let mut log = Vec::new();
        let mut next = None;
        let mut walk = batches(&found.bytes);
        for batch in &mut walk {
            let batch = batch.map_err(|error| format!("no batch: {error}"))?;
            let (base, end) = (batch.header.base_offset.0, batch.header.last_offset().0 + 1);
            if !batch.crc_matches() {
                return Err(format!("the batch at {base} does not match its checksum"));
            }
            if next.is_some_and(|next| next != base) {
                return Err(format!("after {next:?} comes {base}"));
            }
            let versions = self.versions.get(&base).map_or(&[][..], Vec::as_slice);
            let version = versions.iter().find(|v| v.bytes == batch.bytes);
            let version =
                version.ok_or_else(|| format!("the batch at {base} was never appended"))?;
            log.push(version.clone());
            next = Some(end);
        }
        let end = next.unwrap_or(found.start);
        if end != found.end {
            return Err(format!("batches reach {end}, the end is {}", found.end));
        }
        match log.first() {
            Some(first) if first.base > found.start || first.end <= found.start => {
                Err(format!("begins with {} for {}", first.base, found.start))
            }
            Some(_) | None => Ok(log),
        }
    }
}

/// The leader epochs of the log are those of its batches.
fn check_epochs(log: &[Appended], found: &Found) -> Result<(), String> {
    for batch in log {
        let base = batch.base.max(found.start);
        let known = found.epochs.iter().rfind(|entry| entry.start.0 <= base);
        let epoch = batch.header().partition_leader_epoch;
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
fn check_producers(log: &[Appended], found: &Found) -> Result<(), String> {
    let mut replayed = Producers::default();
    for batch in log {
        let _ended = replayed.replay(&batch.header(), NOW);
    }
    let (replayed, known) = (replayed.last_written(), found.producers.last_written());
    for (id, last) in &replayed {
        if known.get(id) != Some(last) {
            return Err(format!(
                "producer {id:?}: {last:?} in the log, known {:?}",
                known.get(id)
            ));
        }
    }
    let first = log.first().map_or(found.end, |batch| batch.base);
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
