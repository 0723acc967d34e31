//! Going by an offset index without taking its word: the batch that an entry names has to be there.
//!
//! A flipped bit in an index file can pass all that is checked when it is loaded, and name a place where no
//! batch begins, or one behind the batch that is wanted. A read goes by an entry only when the batch at its
//! position ends with its offset; else it goes through the headers from where a batch begins for sure, and
//! the indexes of that segment are made anew (ST-9). So an index is never a reason to call a log damaged.

use std::ops::Range;
use std::rc::Rc;

use thalweg_reactor::task;
use thalweg_types::LeaderEpoch;

use crate::error::ReadError;
use crate::index::{IndexEntry, absolute};
use crate::indexes::Indexes;
use crate::log::Log;
use crate::read::step;
use crate::scan::{BatchScan, Check};
use crate::segment::{Segment, Warm};

impl Log {
    /// A scan of headers up to the end of `range`: from the batch that `entry` names, or from the begin of
    /// `range`, where a batch begins, when there is no such batch in it.
    ///
    /// # Errors
    /// [`ReadError::Io`].
    pub(crate) async fn scan_by(
        &self,
        entry: Option<IndexEntry>,
        segment: &Rc<Segment>,
        warm: &Warm,
        range: Range<u64>,
    ) -> Result<BatchScan, ReadError> {
        let scan_from = |position| {
            let file = warm.file.clone();
            BatchScan::new(file, Check::Headers, segment.base, position, range.end)
        };
        // The active segment may have grown since its size was asked, and its index with it.
        let inside = |at: u64| range.start < at && at < range.end;
        let Some(entry) = entry.filter(|entry| inside(u64::from(entry.position))) else {
            return Ok(scan_from(range.start));
        };
        let position = u64::from(entry.position);
        if segment.damage_at(position).is_none() {
            let mut scan = scan_from(position);
            let named = absolute(segment.base, entry.relative_offset);
            let is_there = scan.next_ends_with(named).await;
            if is_there.map_err(ReadError::io("read", segment.path()))? {
                return Ok(scan);
            }
            self.reindex_in_background(segment, warm);
        } else if !segment.is_suspect.get() {
            // Where damage begins and ends is known, and no batch of it is in an index that was made since.
            self.reindex_in_background(segment, warm);
        }
        Ok(scan_from(range.start))
    }

    pub(crate) fn reindex_in_background(&self, segment: &Rc<Segment>, warm: &Warm) {
        if segment.is_reindexing.replace(true) {
            return;
        }
        let (segment, warm) = (Rc::clone(segment), warm.clone());
        let log = Rc::downgrade(&self.inner);
        task::spawn(async move {
            // Unless it is closed by then.
            if let Some(inner) = log.upgrade() {
                Log { inner }.reindex(&segment, &warm).await;
            }
            segment.is_reindexing.set(false);
        });
    }

    async fn reindex(&self, segment: &Rc<Segment>, warm: &Warm) {
        let path = segment.path();
        let anew = match indexes_of(segment, warm).await {
            Ok(anew) => anew,
            // It was not the index. When the damage is looked through, both indexes are made anew.
            Err(error) if self.note_met(&error).await => return,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error,
                    "an index does not fit its log and can not be made anew");
                return;
            }
        };
        if self.check_open().is_err() || !segment.replace_indexes(warm, anew) {
            return;
        }
        tracing::warn!(path = %path.display(), "an index did not fit its log: made anew");
        let _turn = self.inner.index_turn.take().await;
        let is_closed = !Rc::ptr_eq(self.inner.state.borrow().active(), segment);
        // Those of an open segment are written when it is closed.
        if !is_closed || !segment.lacks_indexes() || self.check_open().is_err() {
            return;
        }
        if let Err(error) = segment.save_indexes().await {
            self.inner
                .state
                .borrow()
                .options
                .health
                .judge(&path, &error);
            tracing::warn!(path = %path.display(), %error, "can not write the rebuilt indexes");
        }
    }
}

/// Indexes of all batches that `segment` has by now, those included that came while it was looked at: there
/// is no wait behind the last.
async fn indexes_of(segment: &Segment, warm: &Warm) -> Result<Indexes, ReadError> {
    let mut indexes = Indexes::new(segment.base, segment.interval_bytes);
    let mut at = 0;
    while at < segment.size.get() {
        let end = segment.size.get();
        let mut scan = BatchScan::new(warm.file.clone(), Check::Headers, segment.base, at, end)
            .after(indexes.end(), LeaderEpoch::NONE);
        loop {
            if segment.skip_damage(&mut scan) {
                indexes.on_passed_over(scan.next_offset());
                continue;
            }
            match step(&mut scan, segment).await? {
                Some(mark) => indexes.on_batch(&mark),
                None => break,
            }
        }
        at = end;
    }
    Ok(indexes)
}
