//! Read plans: where the batches lie that answer a read, so that somebody else can send them.
//!
//! A plan is whole batches of one segment. The tail answers without a wait; anything older goes by
//! the index and a few batch headers on either end of the range. No record byte is read.

use std::rc::Rc;

use thalweg_reactor::fs::File;
use thalweg_reactor::time;
use thalweg_types::Offset;

use crate::error::ReadError;
use crate::indexes::BatchMark;
use crate::log::{Log, State};
use crate::scan::{BatchScan, Step};
use crate::segment::{Segment, Warm};
use crate::tail::{Run, TailAnswer};
use crate::unreadable::unless_unreadable;

/// A range of whole batches. It holds the file, so that the bytes stay readable even when the segment
/// is deleted.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// The segment's `.log` file.
    pub file: File,
    /// First byte of the range.
    pub position: u64,
    /// Bytes of it; 0 when there is nothing to read.
    pub len: u32,
    /// Base offset of the first batch, which may lie below the offset asked for; the offset asked for
    /// when there is nothing.
    pub first_offset: Offset,
    /// Where to go on reading.
    pub next_offset: Offset,
    /// All of it was written a moment ago, so that the page cache has it. Of other plans that is not known.
    pub is_hot: bool,
}

impl ReadPlan {
    /// True when there is nothing to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn nothing(file: File, at: Offset) -> ReadPlan {
        ReadPlan {
            file,
            position: 0,
            len: 0,
            first_offset: at,
            next_offset: at,
            is_hot: false,
        }
    }

    fn of(file: File, run: &Run) -> ReadPlan {
        ReadPlan {
            file,
            position: run.position,
            // A segment's positions fit 31 bits, so a range inside of it fits 32.
            len: u32::try_from(run.bytes).unwrap_or(u32::MAX),
            first_offset: run.first_offset,
            next_offset: run.end_offset,
            is_hot: false,
        }
    }
}

/// Where a read begins.
pub(crate) struct Start {
    pub(crate) segment: Rc<Segment>,
    pub(crate) warm: Warm,
    /// Bytes of whole batches in the segment.
    pub(crate) size: u64,
    /// Offset after the last of them.
    end: Offset,
    /// The batch that holds the offset, or the first one behind it.
    pub(crate) first: BatchMark,
}

impl Log {
    /// Plans a read of whole batches, from the one that holds `from` on, that end below `up_to` and
    /// take at most `bytes_max` bytes together; the first is taken whole whatever its size. An empty
    /// plan means that no such batch is there.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] when `from` is not in the log's range (its end is in it);
    /// [`ReadError::Io`] and [`ReadError::Damaged`] when the segment can not be read.
    pub async fn read_plan(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: u32,
    ) -> Result<ReadPlan, ReadError> {
        let located = loop {
            if let Some(plan) = self.plan_from_memory(from, up_to, bytes_max)? {
                return Ok(plan);
            }
            match self.locate(from).await {
                // Around what was just found to be damaged.
                Err(error) if self.note_met(&error).await => {}
                located => break located,
            }
        };
        if located.is_err() {
            // Its segment may have been deleted since, or its disk have failed: then that is the answer.
            let state = self.inner.state.borrow();
            state.check_readable()?;
            check_range(&state, from)?;
        }
        let Some(start) = located? else {
            // Reached only when the segment that held the end was removed meanwhile.
            let file = self.active_file()?;
            return Ok(ReadPlan::nothing(file, from));
        };
        let up_to = up_to.min(self.written_end());
        let up_to = start.segment.readable(start.first.base_offset, up_to)?;
        if start.first.last_offset >= up_to {
            return Ok(ReadPlan::nothing(start.warm.file, from));
        }
        let run = self.extent(&start, up_to, u64::from(bytes_max)).await;
        if run.is_err() {
            self.inner.state.borrow().check_readable()?;
        }
        let run = run?;
        Ok(ReadPlan::of(start.warm.file, &run))
    }

    /// As [`Log::read_plan`], from memory only: `None` when that is not enough or the read would be
    /// refused, so that [`Log::read_plan`] has to be asked.
    #[must_use]
    pub fn try_read_plan(&self, from: Offset, up_to: Offset, bytes_max: u32) -> Option<ReadPlan> {
        self.plan_from_memory(from, up_to, bytes_max).ok().flatten()
    }

    fn plan_from_memory(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: u32,
    ) -> Result<Option<ReadPlan>, ReadError> {
        let state = self.inner.state.borrow();
        state.check_readable()?;
        check_range(&state, from)?;
        let segment = &state.segments[state.segment_for(from)];
        let up_to = segment.readable(from, up_to.min(state.written_end))?;
        let file_of = |segment: Offset| {
            let segment = &state.segments[state.segment_for(segment)];
            segment.warm_now().map(|warm| warm.file)
        };
        if from >= up_to {
            return Ok(file_of(state.written_end).map(|file| ReadPlan::nothing(file, from)));
        }
        Ok(match state.tail.find(from, up_to, u64::from(bytes_max)) {
            TailAnswer::Run(run) => file_of(run.segment).map(|file| ReadPlan {
                is_hot: state.tail.is_recent(&run, time::now()),
                ..ReadPlan::of(file, &run)
            }),
            TailAnswer::NothingBelowBound => {
                file_of(state.written_end).map(|file| ReadPlan::nothing(file, from))
            }
            TailAnswer::NotHot => None,
        })
    }

    fn active_file(&self) -> Result<File, ReadError> {
        let warm = self.inner.state.borrow().active().warm_now();
        warm.map(|warm| warm.file).ok_or(ReadError::Closed)
    }

    /// The first batch whose last offset is at least `from`.
    pub(crate) async fn locate(&self, from: Offset) -> Result<Option<Start>, ReadError> {
        let mut at = from;
        loop {
            let (segment, size, end, next, warming) = {
                let state = self.inner.state.borrow();
                state.check_readable()?;
                let index = state.segment_for(at);
                let segment = Rc::clone(&state.segments[index]);
                let size = segment.size.get();
                let next = state.segments.get(index + 1).map(|next| next.base);
                (
                    segment,
                    size,
                    state.segment_end(index),
                    next,
                    state.warming(),
                )
            };
            let warm = match segment.warm(&warming).await {
                Err(ReadError::Replaced) => continue,
                warm => warm?,
            };
            if let Some(first) = self.expected(&segment, from) {
                return Ok(Some(Start {
                    segment,
                    warm,
                    size,
                    end,
                    first,
                }));
            }
            let entry = warm.indexes.borrow().entry_for(from);
            let mut scan = self.scan_by(entry, &segment, &warm, 0..size).await?;
            loop {
                // What is asked for may be in what is damaged: that is no reason to go on behind it.
                if let Some(range) = segment.damage_at(scan.position())
                    && range.next > from
                {
                    return Err(segment.quarantined(from, &range));
                }
                if segment.skip_damage(&mut scan) {
                    continue;
                }
                let Some(mark) = step(&mut scan, &segment).await? else {
                    break;
                };
                if mark.last_offset >= from {
                    return Ok(Some(Start {
                        segment,
                        warm,
                        size,
                        end,
                        first: mark,
                    }));
                }
            }
            // Compaction can leave the offsets up to the next segment without a batch.
            match next {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
    }
}

impl Log {
    /// The batch that holds `from`, where a read of the segment ended a while ago.
    fn expected(&self, segment: &Rc<Segment>, from: Offset) -> Option<BatchMark> {
        let mut state = self.inner.state.borrow_mut();
        let is_there = Rc::ptr_eq(&state.segments[state.segment_for(segment.base)], segment);
        let mark = state.tail.take_expected(segment.base, from);
        mark.filter(|mark| is_there && segment.damage_at(mark.position).is_none())
    }

    /// A read of the segment ends before this batch.
    fn expect(&self, segment: &Rc<Segment>, mark: BatchMark) {
        let mut state = self.inner.state.borrow_mut();
        // Compaction may have put another in its place meanwhile.
        if Rc::ptr_eq(&state.segments[state.segment_for(segment.base)], segment) {
            state.tail.expect(segment.base, mark);
        }
    }

    /// How far a read that begins at `start` reaches: up to what is damaged at most.
    async fn extent(&self, start: &Start, up_to: Offset, bytes_max: u64) -> Result<Run, ReadError> {
        let first = &start.first;
        let limit = first.position.saturating_add(bytes_max);
        let mut run = Run {
            segment: start.segment.base,
            position: first.position,
            bytes: first.bytes,
            first_offset: first.base_offset,
            end_offset: first.last_offset.plus(1),
        };
        if start.size <= limit && start.end <= up_to {
            run.bytes = start.size - first.position;
            run.end_offset = start.end;
            return Ok(run);
        }
        // Every batch before an indexed one that begins within the limit ends within it too.
        let indexed = start.warm.indexes.borrow().entry_within(limit, up_to);
        let behind = first.end()..start.size.max(first.end());
        let mut scan = self
            .scan_by(indexed, &start.segment, &start.warm, behind)
            .await?;
        run.bytes = scan.position() - first.position;
        loop {
            if let Some(range) = start.segment.damage_at(scan.position()) {
                run.end_offset = range.first;
                break;
            }
            let met = match step(&mut scan, &start.segment).await {
                Err(error) if self.note_met(&error).await => None,
                stepped => Some(stepped?),
            };
            let Some(met) = met else { continue };
            let Some(mark) = met else { break };
            if mark.end() > limit || mark.last_offset >= up_to {
                run.end_offset = mark.base_offset;
                self.expect(&start.segment, mark);
                break;
            }
            run.bytes = mark.end() - first.position;
            run.end_offset = mark.last_offset.plus(1);
        }
        Ok(run)
    }
}

pub(crate) fn check_range(state: &State, from: Offset) -> Result<(), ReadError> {
    if from < state.start || from > state.written_end {
        return Err(ReadError::OutOfRange {
            asked: from,
            start: state.start,
            end: state.written_end,
        });
    }
    Ok(())
}

/// The next batch of a scan that is not known to be damaged, with its errors put in words.
pub(crate) async fn step(
    scan: &mut BatchScan,
    segment: &Segment,
) -> Result<Option<BatchMark>, ReadError> {
    while segment.skip_damage(scan) {}
    match unless_unreadable(scan.next().await) {
        Ok(Step::Batch(mark, _)) => Ok(Some(mark)),
        Ok(Step::End) => Ok(None),
        Ok(Step::Bad(reason)) => Err(ReadError::Damaged {
            path: segment.path(),
            position: scan.position(),
            offset: scan.next_offset(),
            reason,
        }),
        Err(source) => Err(ReadError::Io {
            operation: "read",
            path: segment.path(),
            source,
        }),
    }
}
