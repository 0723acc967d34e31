//! How much of a log is waiting for compaction, and whether it is time.

use std::rc::Rc;

use thalweg_types::{Offset, TimestampMs};

use crate::error::ReadError;
use crate::log::Log;
use crate::read::step;
use crate::scan::{BatchScan, Check};
use crate::segment::Segment;

/// What bounds a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactionLimits {
    /// `min.compaction.lag.ms`: younger records are left alone.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: older ones are overdue.
    pub max_lag_ms: i64,
    /// The high watermark or the last stable offset, whichever is lower: nothing from there on is
    /// touched.
    pub stable_end: Offset,
    /// The broker's clock.
    pub now: TimestampMs,
}

/// The part of a log that compaction has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirt {
    /// Everything below was cleaned.
    pub first_dirty: Offset,
    /// A round goes up to here: to the beginning of a segment.
    pub end: Offset,
    /// Bytes of segments below the first dirty one.
    pub clean_bytes: u64,
    /// Bytes of those behind it, up to `end`.
    pub dirty_bytes: u64,
    /// A record has waited for longer than `max.compaction.lag.ms`.
    pub overdue: bool,
}

impl Dirt {
    /// Share of dirty bytes, 0 to 1.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        match all {
            0 => 0.0,
            all => self.dirty_bytes as f64 / all as f64,
        }
    }
}

impl Log {
    /// Where compaction has come to: from where on a round has to collect keys. A place that can not
    /// be believed, because the log lies elsewhere, is the log's start (RP-105).
    #[must_use]
    pub fn first_dirty(&self) -> Offset {
        let state = self.inner.state.borrow();
        let known = state.cleaned_to.unwrap_or(state.start);
        match known < state.start || known > state.written_end {
            true => state.start,
            false => known,
        }
    }

    /// What there is to do for compaction.
    ///
    /// # Errors
    /// [`ReadError`] when the age of a segment can not be told.
    pub async fn dirt(&self, limits: CompactionLimits) -> Result<Dirt, ReadError> {
        loop {
            match self.dirt_before_damage(limits).await {
                // Up to what was just found to be damaged.
                Err(error) if self.note_met(&error).await => {}
                found => return found,
            }
        }
    }

    async fn dirt_before_damage(&self, limits: CompactionLimits) -> Result<Dirt, ReadError> {
        let first_dirty = self.first_dirty();
        let (clean, dirty, mut end) = {
            let state = self.inner.state.borrow();
            state.check_readable()?;
            // The active segment is not touched, nor one that holds what is not stable.
            let closed = (0..state.segments.len() - 1)
                .take_while(|at| state.segment_end(*at) <= limits.stable_end)
                // What is behind a damaged segment may have keys whose tombstones must outlive it.
                .take_while(|at| state.segments[*at].damaged.borrow().is_empty())
                .count();
            let from = state.segment_for(first_dirty).min(closed);
            let clean: u64 = state.segments[..from].iter().map(|s| s.size.get()).sum();
            let dirty: Vec<Rc<Segment>> = state.segments[from..closed].to_vec();
            (clean, dirty, state.segments[closed].base)
        };
        let mut dirt = Dirt {
            first_dirty,
            end: first_dirty,
            clean_bytes: clean,
            dirty_bytes: 0,
            overdue: false,
        };
        let young = limits.now.0.saturating_sub(limits.min_lag_ms.max(0));
        let old = limits.now.0.saturating_sub(limits.max_lag_ms);
        for segment in dirty {
            let too_young = limits.min_lag_ms > 0
                && self
                    .max_of(&segment)
                    .await?
                    .is_some_and(|max| max.timestamp.0 > young);
            if too_young {
                end = segment.base;
                break;
            }
            dirt.dirty_bytes += segment.size.get();
            if limits.max_lag_ms < i64::MAX && !dirt.overdue {
                let first = self.first_timestamp_of(&segment).await?;
                dirt.overdue = first.is_some_and(|first| first.0 > 0 && first.0 < old);
            }
        }
        dirt.end = end.max(first_dirty);
        Ok(dirt)
    }

    async fn first_timestamp_of(
        &self,
        segment: &Rc<Segment>,
    ) -> Result<Option<TimestampMs>, ReadError> {
        if let Some(known) = segment.first_timestamp() {
            return Ok(Some(known));
        }
        let warming = self.inner.state.borrow().warming();
        let warm = segment.warm(&warming).await?;
        let size = segment.size.get();
        let mut scan = BatchScan::new(warm.file, Check::Headers, segment.base, 0, size);
        let first = step(&mut scan, segment)
            .await?
            .map(|mark| mark.max_timestamp);
        segment.set_first_timestamp(first);
        Ok(first)
    }
}
