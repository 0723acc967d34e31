//! What a mark spares a start after a kill ([`crate::written`]): everything below it was written and is
//! in the page cache or on the disk, so that only its structure is looked at: by the indexes as far as they were
//! saved, then by the headers of batches. Where that contradicts the mark, everything is checked, and a log that
//! does not reach to its mark is refused.

use std::rc::Rc;

use thalweg_reactor::fs;
use thalweg_types::{LeaderEpoch, Offset};

use super::{Scanned, Work};
use crate::error::LogError;
use crate::indexes::Indexes;
use crate::scan::BadBatch;
use crate::segment::{Segment, Warm, load_indexes, read_index_files};
use crate::told_time;

/// The segment that holds the mark, checked from the last entry of its index on.
pub(super) struct Marked {
    pub(super) index: usize,
    pub(super) scanned: Scanned,
}

impl Work {
    /// Takes the segments from `first` to `mark` as they are, and checks the one that holds the mark
    /// from there on. `None`: the mark is of no use, check everything.
    pub(super) async fn trust_written(
        &mut self,
        first: usize,
        mark: Offset,
    ) -> Result<Option<Marked>, LogError> {
        let before = self.end;
        // Nothing below is cut for a torn tail, whatever else is known: it would be written anew below the mark.
        self.known_end = self.known_end.max(Some(mark));
        let marked = self.follow_mark(first, mark).await?;
        if marked.is_none() {
            tracing::warn!(dir = %self.dir.display(), %mark,
                "the log is not as its last process marked it; checking all above the recovery point");
            for segment in self.segments.get(first..).unwrap_or_default() {
                segment.drop_memory();
            }
            self.end = before;
            self.seen_epochs.clear();
        }
        Ok(marked)
    }

    /// Checks a segment from where `indexes`, which are from its files, end; `None`: the time index lies, or no batch is whole
    /// there, which alone says which offset it is at.
    pub(super) async fn scan_to(
        &mut self,
        segment: &Segment,
        indexes: Indexes,
        mark: Offset,
    ) -> Result<Option<Scanned>, LogError> {
        let from = indexes.resume_position();
        let scanned = self
            .scan_segment(segment, LeaderEpoch::NONE, indexes, mark)
            .await?;
        let scanned_to = match &scanned.bad {
            Some((position, _)) => *position,
            None => segment.size.get(),
        };
        let wrong = told_time::is_wrong(segment, &scanned.file, &scanned.indexes).await;
        let wrong = wrong.map_err(LogError::io("read", segment.path()))?;
        let wrong = wrong || (from > 0 && scanned_to == from);
        if wrong {
            self.seen_epochs.clear();
        }
        Ok((!wrong).then_some(scanned))
    }

    async fn follow_mark(
        &mut self,
        first: usize,
        mark: Offset,
    ) -> Result<Option<Marked>, LogError> {
        // The one before a segment that begins at the mark was active when it was marked.
        let index = self.segment_of(Offset(mark.0.saturating_sub(1))).max(first);
        let mut trusted = 0;
        for at in first..index {
            let (segment, next) = (self.segments[at].clone(), self.segments[at + 1].base);
            if !self.take_closed(&segment, next).await? {
                return Ok(None);
            }
            trusted += segment.size.get();
            self.end = next;
        }
        let Some(segment) = self.segments.get(index).cloned() else {
            return Ok(None);
        };
        let size = segment.size.get();
        let read = read_index_files(&self.dir, segment.base, size, self.interval_bytes);
        let read = read
            .await
            .map_err(|error| self.unreadable(&segment, &error))?;
        let led_to = read.as_ref().ok().map(Indexes::resume_position);
        // The headers tell as well, only slower.
        let indexes = read.unwrap_or_else(|_| Indexes::new(segment.base, self.interval_bytes));
        let scanned = self.scan_to(&segment, indexes, mark).await?;
        let (led_to, scanned) = match scanned {
            Some(scanned) => (led_to, scanned),
            None => {
                let indexes = Indexes::new(segment.base, self.interval_bytes);
                let scan = self.scan_segment(&segment, LeaderEpoch::NONE, indexes, mark);
                (None, scan.await?)
            }
        };
        trusted += led_to.unwrap_or(0) + scanned.believed_bytes;
        let scanned = Scanned { led_to, ..scanned };
        if scanned.end < mark {
            return Ok(None);
        }
        self.report.bytes_trusted += trusted;
        Ok(Some(Marked { index, scanned }))
    }

    /// A closed segment below the mark. It may be in the page cache only, so it stays in memory until a
    /// flush has been there. False when it does not reach to `next`.
    async fn take_closed(&mut self, segment: &Rc<Segment>, next: Offset) -> Result<bool, LogError> {
        let file = self.open_log(&segment.path()).await?;
        let loaded = load_indexes(segment, &file)
            .await
            .map_err(|error| self.unreadable(segment, &error))?;
        let end = loaded.indexes.end();
        if let Some((position, BadBatch::Zeros)) = loaded.bad {
            if end != next || !self.are_only_zeros(segment, &file, position).await? {
                return Ok(false);
            }
            fs::truncate(&file, position)
                .await
                .map_err(LogError::io("truncate", segment.path()))?;
            segment.cut_to(position, end);
            let _warm: Warm = segment.set_warm(file, loaded.indexes);
            segment.synced.set(0);
            return Ok(true);
        }
        let joins = end == next || (end < next && self.may_be_compacted(end, next));
        if loaded.bad.is_some() || !joins {
            return Ok(false);
        }
        self.note_hole(end, next);
        let _warm: Warm = segment.set_warm(file, loaded.indexes);
        segment.synced.set(0);
        Ok(true)
    }

    fn unreadable(&self, segment: &Segment, error: &crate::error::ReadError) -> LogError {
        LogError::Io {
            operation: "read the indexes of",
            path: segment.path(),
            source: std::io::Error::other(error.to_string()),
        }
    }
}
