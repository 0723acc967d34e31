//! Both indexes of one segment and the rule by which they grow, the same for an append, a recovery
//! and a rebuild: an entry before the first batch that begins more than `index.interval.bytes` after
//! the last indexed one, as Kafka writes them.

use std::cmp::Ordering;

use thalweg_protocol::records::BatchHeader;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::index::{IndexDamage, IndexEntry, OffsetIndex, absolute, relative};
use crate::time_index::{TimeIndex, TimeIndexEntry};

/// Where a batch lies and what the indexes need to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchMark {
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) leader_epoch: LeaderEpoch,
}

impl BatchMark {
    /// Of the batch of `header` at `position`. One without records has no timestamp that a lookup could
    /// find.
    pub(crate) fn of(header: &BatchHeader, position: u64) -> BatchMark {
        BatchMark {
            position,
            bytes: header.total_bytes() as u64,
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp: match header.record_count {
                0 => TimestampMs::NONE,
                _ => header.max_timestamp,
            },
            leader_epoch: header.partition_leader_epoch,
        }
    }

    /// Byte after the batch.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.bytes
    }
}

/// The largest timestamp of a segment and the first batch that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MaxTimestamp {
    pub(crate) timestamp: TimestampMs,
    /// Last offset of that batch.
    pub(crate) batch_last_offset: Offset,
}

/// Whether a batch is what an entry of a time index says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// It is the one, and as it says.
    Yes,
    /// It comes before, and has no larger timestamp.
    NotThere,
    /// The entry lies.
    No,
}

impl MaxTimestamp {
    /// Holds an entry against the next batch, up to the one that it names. An entry may name any offset in it.
    pub(crate) fn holds(self, batch: &BatchMark) -> Holds {
        let is_it = batch.last_offset >= self.batch_last_offset;
        match batch.max_timestamp.cmp(&self.timestamp) {
            Ordering::Less | Ordering::Equal if !is_it => Holds::NotThere,
            Ordering::Equal if batch.base_offset <= self.batch_last_offset => Holds::Yes,
            Ordering::Less | Ordering::Equal | Ordering::Greater => Holds::No,
        }
    }
}

/// The indexes of one segment in memory.
#[derive(Clone, Debug)]
pub(crate) struct Indexes {
    base: Offset,
    interval_bytes: u64,
    pub(crate) offsets: OffsetIndex,
    pub(crate) times: TimeIndex,
    bytes_since_entry: u64,
    max: Option<MaxTimestamp>,
    /// What the file of the time index says last, until the batch that it names was shown.
    told: Option<MaxTimestamp>,
    /// A batch that was shown is not as that file says.
    contradicted: bool,
    end: Offset,
    /// The files on disk, if any, say something else.
    pub(crate) unsaved: bool,
}

impl Indexes {
    /// Indexes of an empty segment.
    pub(crate) fn new(base: Offset, interval_bytes: u64) -> Self {
        Indexes {
            base,
            interval_bytes,
            offsets: OffsetIndex::default(),
            times: TimeIndex::default(),
            bytes_since_entry: 0,
            max: None,
            told: None,
            contradicted: false,
            end: base,
            unsaved: true,
        }
    }

    /// Indexes read from files. The batches from [`Indexes::resume_position`] on must be shown with
    /// [`Indexes::on_resumed`] before anything else is asked.
    pub(crate) fn from_files(
        base: Offset,
        interval_bytes: u64,
        offsets: &[u8],
        times: &[u8],
        log_bytes: u64,
    ) -> Result<Self, IndexDamage> {
        let offsets = OffsetIndex::decode(offsets, log_bytes)?;
        let times = TimeIndex::decode(times)?;
        let max = times
            .last()
            .filter(|e| e.timestamp >= 0)
            .map(|e| MaxTimestamp {
                timestamp: TimestampMs(e.timestamp),
                batch_last_offset: absolute(base, e.relative_offset),
            });
        let mut indexes = Indexes::new(base, interval_bytes);
        indexes.offsets = offsets;
        indexes.times = times;
        indexes.max = max;
        indexes.told = max;
        indexes.unsaved = false;
        Ok(indexes)
    }

    /// Where the last indexed batch begins; 0 when none is.
    pub(crate) fn resume_position(&self) -> u64 {
        self.offsets
            .last()
            .map_or(0, |entry| u64::from(entry.position))
    }

    /// Shows a batch after [`Indexes::from_files`]; the first may be the one the last entry names.
    pub(crate) fn on_resumed(&mut self, batch: &BatchMark) {
        let last_indexed = self.offsets.last();
        let last_indexed = last_indexed.filter(|e| u64::from(e.position) == batch.position);
        let told = self.told;
        let told = told.filter(|told| batch.base_offset <= told.batch_last_offset);
        match told.map(|told| told.holds(batch)) {
            Some(Holds::Yes) => self.told = None,
            Some(Holds::No) => self.contradicted = true,
            Some(Holds::NotThere) | None => {}
        }
        if let Some(entry) = last_indexed {
            let named = relative(self.base, batch.last_offset);
            self.contradicted |= named != Some(entry.relative_offset);
            // Both indexes get their entries at once.
            let max = self.max.map_or(TimestampMs::NONE, |max| max.timestamp);
            self.contradicted |= max < batch.max_timestamp;
            self.note(batch);
            self.bytes_since_entry = batch.bytes;
        } else {
            self.on_batch(batch);
        }
    }

    /// True when a file of an index does not fit the batches that were shown.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.contradicted
    }

    /// What the file of the time index says last of a batch that was not shown, and a byte before that batch where one
    /// begins.
    pub(crate) fn unseen(&self) -> Option<(u64, MaxTimestamp)> {
        let told = self.told?;
        let entry = self.entry_for(told.batch_last_offset);
        Some((entry.map_or(0, |entry| u64::from(entry.position)), told))
    }

    /// Shows the next batch of the segment.
    pub(crate) fn on_batch(&mut self, batch: &BatchMark) {
        self.note(batch);
        // One that lies is made anew: behind a wrong entry others might not ascend.
        if self.bytes_since_entry > self.interval_bytes
            && !self.contradicted
            && let Some(relative_offset) = relative(self.base, batch.last_offset)
            && let Ok(position) = u32::try_from(batch.position)
        {
            self.offsets.push(IndexEntry {
                relative_offset,
                position,
            });
            self.push_max();
            self.bytes_since_entry = 0;
            self.unsaved = true;
        }
        self.bytes_since_entry += batch.bytes;
    }

    /// The segment goes on at `offset`, behind what is damaged.
    pub(crate) fn on_passed_over(&mut self, offset: Offset) {
        self.end = self.end.max(offset);
    }

    /// Adds the last entry of the time index: the segment gets no more batches, or is being closed.
    pub(crate) fn complete(&mut self) {
        self.push_max();
    }

    fn note(&mut self, batch: &BatchMark) {
        if batch.max_timestamp.0 >= 0
            && self
                .max
                .is_none_or(|max| batch.max_timestamp > max.timestamp)
        {
            self.max = Some(MaxTimestamp {
                timestamp: batch.max_timestamp,
                batch_last_offset: batch.last_offset,
            });
        }
        self.end = batch.last_offset.plus(1);
    }

    fn push_max(&mut self) {
        if let Some(max) = self.max
            && let Some(relative_offset) = relative(self.base, max.batch_last_offset)
        {
            let before = self.times.len();
            let timestamp = max.timestamp.0;
            self.times.push_if_later(TimeIndexEntry {
                timestamp,
                relative_offset,
            });
            self.unsaved |= self.times.len() != before;
        }
    }

    /// Offset after the last batch; the base offset of an empty segment.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// The largest timestamp, if any batch has one.
    pub(crate) fn max_timestamp(&self) -> Option<MaxTimestamp> {
        self.max
    }

    /// True when an entry names an offset that no batch has.
    pub(crate) fn reach_beyond_the_log(&self) -> bool {
        let in_times = self.max.map(|max| max.batch_last_offset);
        let last = self.offsets.last();
        let in_offsets = last.map(|entry| absolute(self.base, entry.relative_offset));
        in_times
            .max(in_offsets)
            .is_some_and(|last| last >= self.end)
    }

    /// A batch at or before the one that holds `offset`; `None`: the first.
    pub(crate) fn entry_for(&self, offset: Offset) -> Option<IndexEntry> {
        match relative(self.base, offset) {
            Some(relative) => self.offsets.at_or_before(relative),
            None if offset < self.base => None,
            None => self.offsets.last(),
        }
    }

    /// A batch at or before the first one with a timestamp of at least `timestamp`, and what that rests on; `None`: the
    /// first.
    pub(crate) fn entry_for_timestamp(
        &self,
        timestamp: TimestampMs,
    ) -> Option<(IndexEntry, MaxTimestamp)> {
        let time = self.times.at_or_before(timestamp.0)?;
        let entry = self.offsets.at_or_before(time.relative_offset)?;
        let told = MaxTimestamp {
            timestamp: TimestampMs(time.timestamp),
            batch_last_offset: absolute(self.base, time.relative_offset),
        };
        Some((entry, told))
    }

    /// The last indexed batch that begins at or before `position` and ends below `up_to`.
    pub(crate) fn entry_within(&self, position: u64, up_to: Offset) -> Option<IndexEntry> {
        let relative_end = u64::try_from(up_to.0.saturating_sub(self.base.0)).unwrap_or(0);
        self.offsets.within(position, relative_end)
    }

    /// True when a further entry might not fit files of `segment_index_bytes`.
    pub(crate) fn is_full(&self, segment_index_bytes: u32) -> bool {
        let room = segment_index_bytes as usize;
        self.offsets.len() >= room / crate::index::INDEX_ENTRY_BYTES
            // One time entry is kept free for `complete`.
            || self.times.len() + 1 >= room / crate::time_index::TIME_INDEX_ENTRY_BYTES
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.offsets.heap_bytes() + self.times.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchMark, Indexes};
    use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

    fn marks(count: i64) -> Vec<BatchMark> {
        (0..count)
            .map(|i| BatchMark {
                position: i as u64 * 1_000,
                bytes: 1_000,
                base_offset: Offset(100 + i * 10),
                last_offset: Offset(109 + i * 10),
                max_timestamp: TimestampMs([5, 3, 9, 9, 7][(i % 5) as usize] + i),
                leader_epoch: LeaderEpoch(0),
            })
            .collect()
    }

    #[test]
    fn an_entry_per_interval_as_kafka_writes_them() {
        let mut indexes = Indexes::new(Offset(100), 4_096);
        for mark in marks(12) {
            indexes.on_batch(&mark);
        }
        // Batch 5 is the first with more than 4,096 bytes before it, batch 10 the next.
        assert_eq!(indexes.offsets.len(), 2);
        let position_for = |offset| indexes.entry_for(Offset(offset)).map(|e| e.position);
        assert_eq!(position_for(158), None);
        assert_eq!(position_for(159), Some(5_000));
        assert_eq!(position_for(219), Some(10_000));
        assert_eq!(position_for(i64::MAX), Some(10_000));
        assert_eq!(indexes.end(), Offset(220));
    }

    #[test]
    fn st_9_reading_files_back_and_resuming_gives_the_same_indexes() {
        let all = marks(40);
        for written in 0..all.len() {
            let mut straight = Indexes::new(Offset(100), 4_096);
            all.iter().for_each(|mark| straight.on_batch(mark));
            let mut first = Indexes::new(Offset(100), 4_096);
            all[..written].iter().for_each(|mark| first.on_batch(mark));
            let log_bytes = written as u64 * 1_000;
            let mut resumed = Indexes::from_files(
                Offset(100),
                4_096,
                &first.offsets.encode(),
                &first.times.encode(),
                log_bytes,
            )
            .expect("valid");
            let from = (resumed.resume_position() / 1_000) as usize;
            all[from..].iter().for_each(|mark| resumed.on_resumed(mark));
            assert_eq!(resumed.offsets.encode(), straight.offsets.encode());
            assert_eq!(resumed.times.encode(), straight.times.encode());
            assert_eq!(resumed.max_timestamp(), straight.max_timestamp());
        }
    }

    /// The log has grown since the file was saved, and the last entry names a later offset than the batch there has.
    #[test]
    fn st_9_a_last_entry_that_names_another_offset_is_told() {
        let all = marks(40);
        let mut saved = Indexes::new(Offset(100), 4_096);
        all[..12].iter().for_each(|mark| saved.on_batch(mark));
        let times = saved.times.encode();
        for wrong in [0, 1, 90, 1_000] {
            let mut offsets = saved.offsets.encode().to_vec();
            let at = offsets.len() - 8;
            let relative = 119 + wrong - 10;
            offsets[at..at + 4].copy_from_slice(&i32::to_be_bytes(relative));
            let resumed = Indexes::from_files(Offset(100), 4_096, &offsets, &times, 12_000);
            let mut resumed = resumed.expect("valid");
            let from = (resumed.resume_position() / 1_000) as usize;
            all[from..].iter().for_each(|mark| resumed.on_resumed(mark));
            assert_eq!(resumed.is_contradicted(), wrong != 0, "{wrong}");
        }
    }
}
