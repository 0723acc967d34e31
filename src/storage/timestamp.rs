//! Lookups by timestamp (ListOffsets): exact to the record, by walking into the one batch that holds
//! the answer.

use std::rc::Rc;

use thalweg_protocol::records::{BatchError, BatchHeader, Codec, crc_matches, records_of};
use thalweg_reactor::{fs, task};
use thalweg_types::limits::{DECOMPRESSED_BATCH_BYTES_MAX, LOOKUP_INLINE_BYTES_MAX};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::error::ReadError;
use crate::indexes::{BatchMark, Holds, MaxTimestamp};
use crate::log::Log;
use crate::read::step;
use crate::scan::{BadBatch, BatchScan};
use crate::segment::{Segment, Warm};

/// The record that answers a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampHit {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: TimestampMs,
    /// Leader epoch of its batch.
    pub leader_epoch: LeaderEpoch,
}

/// A segment, and where the one behind it begins.
type SegmentAndNext = (Rc<Segment>, Option<Offset>);

impl Log {
    /// The first record whose timestamp is at least `target`, in the order of offsets, whatever the
    /// order of timestamps (RP-98). Everything written counts: whether the answer is below the high
    /// watermark is for the caller to compare.
    ///
    /// # Errors
    /// [`ReadError`], but never [`ReadError::OutOfRange`].
    pub async fn offset_for_timestamp(
        &self,
        target: TimestampMs,
    ) -> Result<Option<TimestampHit>, ReadError> {
        loop {
            let from = self.start_offset();
            match self.first_at_least(target, from).await {
                // A segment was compacted or deleted under the search.
                Err(ReadError::Replaced) => {}
                Err(_) if self.start_offset() > from => {}
                // Around what was just found to be damaged.
                Err(error) if self.note_met(&error).await => {}
                found => return found,
            }
        }
    }

    async fn first_at_least(
        &self,
        target: TimestampMs,
        mut from: Offset,
    ) -> Result<Option<TimestampHit>, ReadError> {
        while let Some((segment, next)) = self.segment_at(from)? {
            let max = self.max_of(&segment).await?;
            if max.is_some_and(|max| max.timestamp >= target)
                && let Some(hit) = self.find_in(&segment, target).await?
            {
                return Ok(Some(hit));
            }
            let Some(next) = next else { break };
            from = next;
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the log (KIP-734); `None` when no record
    /// has a timestamp.
    ///
    /// # Errors
    /// [`ReadError`], but never [`ReadError::OutOfRange`].
    pub async fn max_timestamp_offset(&self) -> Result<Option<TimestampHit>, ReadError> {
        loop {
            let from = self.start_offset();
            match self.largest_from(from).await {
                // A segment was compacted or deleted under the search.
                Err(ReadError::Replaced) => {}
                Err(_) if self.start_offset() > from => {}
                // Around what was just found to be damaged.
                Err(error) if self.note_met(&error).await => {}
                found => return found,
            }
        }
    }

    async fn largest_from(&self, mut from: Offset) -> Result<Option<TimestampHit>, ReadError> {
        let mut best: Option<(MaxTimestamp, Rc<Segment>)> = None;
        while let Some((segment, next)) = self.segment_at(from)? {
            if let Some(max) = self.max_served(&segment).await?
                && best
                    .as_ref()
                    .is_none_or(|(best, _)| max.timestamp > best.timestamp)
            {
                best = Some((max, segment));
            }
            let Some(next) = next else { break };
            from = next;
        }
        let Some((max, segment)) = best else {
            return Ok(None);
        };
        if let Some((batch, hit)) = self.inner.state.borrow().max_timestamp_hint
            && batch == max
            && hit.offset >= self.start_offset()
        {
            return Ok(Some(hit));
        }
        self.find_in(&segment, max.timestamp).await
    }

    /// As [`Log::max_of`], of the records from the log's start on.
    async fn max_served(&self, segment: &Rc<Segment>) -> Result<Option<MaxTimestamp>, ReadError> {
        let start = self.start_offset();
        if segment.base >= start {
            return self.max_of(segment).await;
        }
        let warm = self.warm(segment).await?;
        let size = segment.size.get();
        let entry = warm.indexes.borrow().entry_for(start);
        let mut scan = self.scan_by(entry, segment, &warm, 0..size).await?;
        let mut best: Option<MaxTimestamp> = None;
        while let Some(mark) = step(&mut scan, segment).await? {
            let timestamp = if mark.base_offset >= start {
                mark.max_timestamp
            } else if mark.last_offset >= start {
                let largest = ask(segment, &warm, &mark, start, Question::FirstOfLargest);
                largest
                    .await?
                    .map_or(TimestampMs::NONE, |hit| hit.timestamp)
            } else {
                continue;
            };
            if timestamp.0 >= 0 && best.is_none_or(|best| timestamp > best.timestamp) {
                best = Some(MaxTimestamp {
                    timestamp,
                    batch_last_offset: mark.last_offset,
                });
            }
        }
        Ok(best)
    }

    /// The segment that would hold `offset` and where the next one begins.
    fn segment_at(&self, offset: Offset) -> Result<Option<SegmentAndNext>, ReadError> {
        let state = self.inner.state.borrow();
        state.check_readable()?;
        let index = state.segment_for(offset);
        let next = state.segments.get(index + 1).map(|next| next.base);
        Ok(state
            .segments
            .get(index)
            .map(|segment| (Rc::clone(segment), next)))
    }

    pub(crate) async fn max_of(
        &self,
        segment: &Rc<Segment>,
    ) -> Result<Option<MaxTimestamp>, ReadError> {
        if let Some(known) = segment.max_timestamp() {
            return Ok(known);
        }
        let warm = self.warm(segment).await?;
        let max = warm.indexes.borrow().max_timestamp();
        Ok(max)
    }

    async fn warm(&self, segment: &Rc<Segment>) -> Result<Warm, ReadError> {
        let warming = self.inner.state.borrow().warming();
        segment.warm(&warming).await
    }

    /// The first record of `segment` at or above the log's start with a timestamp of at least
    /// `target`.
    async fn find_in(
        &self,
        segment: &Rc<Segment>,
        target: TimestampMs,
    ) -> Result<Option<TimestampHit>, ReadError> {
        let warm = self.warm(segment).await?;
        let start = self.start_offset();
        let (by_time, by_start) = {
            let indexes = warm.indexes.borrow();
            (
                indexes.entry_for_timestamp(target),
                indexes.entry_for(start),
            )
        };
        let begins = by_start.map_or(0, |entry| entry.position);
        if let Some((entry, told)) = by_time.filter(|(entry, _)| entry.position > begins) {
            let scan = self.scan_by(Some(entry), segment, &warm, 0..segment.size.get());
            let scan = scan.await?;
            let search = search(scan, segment, &warm, (target, start), Some(told));
            match search.await? {
                Searched::Through(found) => return Ok(found),
                // What lies before was passed over for nothing.
                Searched::Lied => self.reindex_in_background(segment, &warm),
            }
        }
        let scan = self.scan_by(by_start, segment, &warm, 0..segment.size.get());
        let scan = scan.await?;
        match search(scan, segment, &warm, (target, start), None).await? {
            Searched::Through(found) => Ok(found),
            // Nothing was told.
            Searched::Lied => Ok(None),
        }
    }
}

/// What a search came to.
enum Searched {
    /// The answer, or the end.
    Through(Option<TimestampHit>),
    /// What it rests on is not so.
    Lied,
}

/// The first record at or above `start` with a timestamp of at least `target`, from where a scan is. That nothing
/// before it is an answer, an entry of the time index has `told`.
async fn search(
    mut scan: BatchScan,
    segment: &Segment,
    warm: &Warm,
    (target, start): (TimestampMs, Offset),
    mut told: Option<MaxTimestamp>,
) -> Result<Searched, ReadError> {
    while let Some(mark) = step(&mut scan, segment).await? {
        match told.map(|told| told.holds(&mark)) {
            Some(Holds::Yes) => told = None,
            Some(Holds::No) => return Ok(Searched::Lied),
            Some(Holds::NotThere) | None => {}
        }
        if mark.max_timestamp < target || mark.last_offset < start {
            continue;
        }
        let question = Question::FirstAtLeast(target);
        let found = ask(segment, warm, &mark, start, question).await?;
        if found.is_some() {
            return Ok(Searched::Through(found));
        }
    }
    Ok(match told {
        Some(_) => Searched::Lied,
        None => Searched::Through(None),
    })
}

/// What is asked of the records of one batch from an offset on.
#[derive(Clone, Copy)]
enum Question {
    /// The first with at least this timestamp.
    FirstAtLeast(TimestampMs),
    /// The first of those with the largest timestamp.
    FirstOfLargest,
}

/// Reads one batch and looks through its records from `start` on. A large or compressed one is not looked
/// through on the turn of the log's thread.
async fn ask(
    segment: &Segment,
    warm: &Warm,
    mark: &BatchMark,
    start: Offset,
    question: Question,
) -> Result<Option<TimestampHit>, ReadError> {
    let bytes = fs::read_at(&warm.file, mark.position, mark.bytes as usize)
        .await
        .map_err(ReadError::io("read", segment.path()))?;
    if !crc_matches(&bytes) {
        return Err(ReadError::Damaged {
            path: segment.path(),
            position: mark.position,
            offset: mark.base_offset,
            reason: BadBatch::Checksum,
        });
    }
    let compressed = |header: BatchHeader| header.codec() != Ok(Codec::None);
    let long =
        bytes.len() > LOOKUP_INLINE_BYTES_MAX || BatchHeader::parse(&bytes).is_ok_and(compressed);
    let found = match long {
        true => task::compute(move || Ok(look(&bytes, start, question)))
            .await
            .map_err(ReadError::io("look through", segment.path()))?,
        false => look(&bytes, start, question),
    };
    let found = found.map_err(|error| ReadError::Records {
        path: segment.path(),
        position: mark.position,
        reason: error.to_string(),
    })?;
    Ok(found.map(|(offset, timestamp)| TimestampHit {
        offset,
        timestamp,
        leader_epoch: mark.leader_epoch,
    }))
}

fn look(
    batch: &[u8],
    start: Offset,
    question: Question,
) -> Result<Option<(Offset, TimestampMs)>, BatchError> {
    let mut largest: Option<(Offset, TimestampMs)> = None;
    for record in &records_of(batch, DECOMPRESSED_BATCH_BYTES_MAX)? {
        let record = record?;
        if record.offset < start {
            continue;
        }
        let found = (record.offset, record.timestamp);
        match question {
            Question::FirstAtLeast(target) if record.timestamp >= target => return Ok(Some(found)),
            Question::FirstAtLeast(_) => {}
            Question::FirstOfLargest => {
                if largest.is_none_or(|(_, timestamp)| record.timestamp > timestamp) {
                    largest = Some(found);
                }
            }
        }
    }
    Ok(largest)
}
