//! One round over one log: a map of the last offset of each key in the dirty part, then every segment
//! up to the end of that part written anew without what the map shows to be of no use.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use thalweg_protocol::records::{Batch, BatchHeader, BuildError, records_of};
use thalweg_reactor::{mailbox, oneshot};
use thalweg_replica::LastOfProducer;
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;
use thalweg_types::{Offset, ProducerId};

use super::filter::{Fate, Place, Rules, holds};
use super::groups::groups;
use super::offset_map::OffsetMap;
use super::pace::Pace;
use super::reader::{BatchReader, ReadBatch};
use super::transactions::Transactions;
use super::writer::SegmentWriter;
use super::{Budget, CleanError, CleanReport, Cleaned, Order, SegmentFile, SwapAsk};
use crate::name::log_path;
use crate::txn_index::AbortedTxn;

/// A round that is under way.
pub(super) struct Round<'a> {
    pub(super) order: Order,
    pub(super) budget: &'a Budget,
    /// Most bytes of a segment that it writes.
    pub(super) segment_bytes_max: u64,
    pub(super) pace: Pace,
    pub(super) swaps: mailbox::Sender<SwapAsk>,
    pub(super) report: CleanReport,
}

/// What a producer has written from `end` on may be cut off yet, where another leads: its last is then the newest below.
/// Gives those of whom the round has seen none.
fn come_back(
    live: &mut HashMap<ProducerId, LastOfProducer>,
    newest: &HashMap<ProducerId, Offset>,
    end: Offset,
) -> HashSet<ProducerId> {
    let mut unseen = HashSet::new();
    for (id, last) in live {
        if last.last_offset.is_none_or(|at| at < end) {
            continue;
        }
        match newest.get(id) {
            Some(at) => last.last_offset = Some(*at),
            None => drop(unseen.insert(*id)),
        }
    }
    unseen
}

impl Round<'_> {
    /// Does all of it; what was swapped before an error stays swapped.
    pub(super) async fn run(mut self) -> Result<CleanReport, CleanError> {
        let aborted = std::mem::take(&mut self.order.aborted);
        let mut newest = HashMap::new();
        let (map, end) = self.build_map(aborted.clone(), &mut newest).await?;
        self.report.keys = map.len() as u64;
        let mut live = std::mem::take(&mut self.order.live);
        let ahead = come_back(&mut live, &newest, end);
        let rules = Rules {
            map,
            end,
            now: self.order.now,
            delete_retention_ms: self.order.delete_retention_ms,
            live,
            ahead,
        };
        let mut transactions = Transactions::new(aborted);
        let segments = std::mem::take(&mut self.order.segments);
        let reached = segments.partition_point(|segment| segment.base < end);
        let ends = segments
            .get(reached)
            .map_or(self.order.end, |next| next.base);
        let reached = &segments[..reached];
        for run in groups(reached, ends, self.order.room) {
            let group = &reached[run];
            let news = self.clean(group, &rules, &mut transactions).await?;
            if !news.is_empty() {
                self.swap(group, news).await?;
            }
        }
        self.report.end = end;
        self.report.bytes_moved = self.pace.spent;
        Ok(self.report)
    }

    /// The last offset of each key from the first dirty offset on, and how far that goes: to the end
    /// of the order, or to the record for which the map had no room. `newest` becomes the last offset of
    /// each live producer in that part.
    async fn build_map(
        &mut self,
        aborted: Vec<AbortedTxn>,
        newest: &mut HashMap<ProducerId, Offset>,
    ) -> Result<(OffsetMap, Offset), CleanError> {
        let Order {
            first_dirty, end, ..
        } = self.order;
        let offsets = u64::try_from(end.0 - first_dirty.0).unwrap_or(0);
        let mut map = OffsetMap::new(self.budget.map_bytes, self.budget.map_load, offsets);
        let mut transactions = Transactions::new(aborted);
        let dirty = self
            .order
            .segments
            .partition_point(|segment| segment.base <= first_dirty)
            .saturating_sub(1);
        let dirty = self.order.segments[dirty..].to_vec();
        for segment in dirty {
            let mut reader = self.read(segment).await?;
            while let Some(batch) = reader.next(&mut self.pace).await? {
                self.report.bytes_mapped += batch.bytes.len() as u64;
                if batch.header.last_offset() < first_dirty {
                    continue;
                }
                let full = map_batch(&batch, first_dirty, &mut map, &mut transactions);
                if let Some(at) = full.map_err(|error| self.unreadable(segment, &batch, error))? {
                    return Ok((map, at));
                }
                let producer = batch.header.producer_id;
                if !batch.header.is_control() && self.order.live.contains_key(&producer) {
                    newest.insert(producer, batch.header.last_offset());
                }
            }
        }
        Ok((map, end))
    }

    /// Writes what is left of the segments of `group`, where there is anything in them: as one segment, or as
    /// several where batches have grown so much that one can not hold them. Batches grow by their delete
    /// horizon, from which timestamps are counted then, and where their records were compressed harder than
    /// the broker does.
    async fn clean(
        &mut self,
        group: &[SegmentFile],
        rules: &Rules,
        transactions: &mut Transactions,
    ) -> Result<Vec<Cleaned>, CleanError> {
        let Some(last) = group.iter().rposition(|segment| segment.bytes > 0) else {
            return Ok(Vec::new());
        };
        let youngest = group[group.len() - 1].base;
        let mut news = Vec::new();
        let mut writer = self.create(group[0].base).await?;
        for (i, segment) in group.iter().enumerate() {
            let mut reader = self.read(*segment).await?;
            while let Some(read) = reader.next(&mut self.pace).await? {
                let ends = read.position + read.bytes.len() as u64 == segment.bytes;
                let place = match i == last && ends {
                    true => Place::Last,
                    false => Place::Inside,
                };
                self.report.bytes_read += read.bytes.len() as u64;
                self.report.records_read += u64::try_from(read.header.record_count).unwrap_or(0);
                let verdict = rules.judge(&whole(&read), place, transactions);
                let verdict = verdict.map_err(|error| self.unreadable(*segment, &read, error))?;
                self.report.records_kept += verdict.records;
                let (header, bytes) = match verdict.fate {
                    Fate::Stays => (read.header.clone(), read.bytes.clone()),
                    Fate::Becomes(bytes) => {
                        let header = BatchHeader::parse(&bytes)
                            .map_err(|error| self.unreadable(*segment, &read, error.into()))?;
                        (header, bytes)
                    }
                    Fate::Goes => continue,
                };
                let bytes_then = writer.bytes() + bytes.len() as u64;
                if writer.bytes() > 0 && bytes_then > self.segment_bytes_max {
                    let next = self.create(writer.end()).await?;
                    let full = std::mem::replace(&mut writer, next);
                    news.push(full.finish(youngest, &mut self.pace).await?);
                }
                writer.push(&header, &bytes, &mut self.pace).await?;
                verdict
                    .aborted
                    .into_iter()
                    .for_each(|t| writer.note_aborted(t));
            }
        }
        news.push(writer.finish(youngest, &mut self.pace).await?);
        self.report.bytes_kept += news.iter().map(|new| new.bytes).sum::<u64>();
        Ok(news)
    }

    async fn create(&self, base: Offset) -> Result<SegmentWriter, CleanError> {
        let interval = self.order.room.interval_bytes;
        SegmentWriter::create(&self.order.dir, base, interval, self.budget.io_bytes).await
    }

    /// Lets the owner of the log put the new segments in place.
    async fn swap(&mut self, group: &[SegmentFile], news: Vec<Cleaned>) -> Result<(), CleanError> {
        let (reply, answer) = oneshot::channel();
        let olds = group.iter().map(|segment| segment.base).collect();
        let ask = SwapAsk { olds, news, reply };
        if self.swaps.send(ask).await.is_err() {
            return Err(CleanError::Stopped);
        }
        answer.await.unwrap_or(Err(CleanError::Stopped))
    }

    async fn read(&self, segment: SegmentFile) -> Result<BatchReader, CleanError> {
        let path = self.path(segment);
        BatchReader::open(path, segment, self.budget.io_bytes).await
    }

    fn path(&self, segment: SegmentFile) -> PathBuf {
        log_path(&self.order.dir, segment.base)
    }

    fn unreadable(&self, segment: SegmentFile, batch: &ReadBatch, error: BuildError) -> CleanError {
        CleanError::Damaged {
            path: self.path(segment),
            position: batch.position,
            reason: error.to_string(),
        }
    }
}

fn whole(read: &ReadBatch) -> Batch<'_> {
    Batch {
        header: read.header.clone(),
        bytes: &read.bytes,
        position: 0,
    }
}

/// Puts the keys of a batch into the map. When it is full: the offset of the first record that is not
/// in it.
fn map_batch(
    batch: &ReadBatch,
    first_dirty: Offset,
    map: &mut OffsetMap,
    transactions: &mut Transactions,
) -> Result<Option<Offset>, BuildError> {
    let set = records_of(&batch.bytes, DECOMPRESSED_BATCH_BYTES_MAX)?;
    if batch.header.is_control() {
        transactions.on_marker(&batch.header, holds(&set)?);
        return Ok(None);
    }
    if transactions.on_batch(&batch.header) {
        return Ok(None);
    }
    // All are read before the map is asked: see `Rules`.
    let mut keys = Vec::with_capacity(set.count_max());
    for record in &set {
        let record = record?;
        if let Some(key) = record.key.filter(|_| record.offset >= first_dirty) {
            keys.push((map.hash(key), record.offset));
        }
    }
    let full = keys
        .into_iter()
        .find(|(hash, offset)| !map.put(*hash, *offset));
    Ok(full.map(|(_, offset)| offset))
}
