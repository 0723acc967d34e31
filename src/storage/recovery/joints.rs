//! Whether a log has all the records that it is known to have: that its segments join, and that it
//! reaches from its start to its recovery point after a clean stop.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchHeader};
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::{LeaderEpoch, Offset};

use super::{Work, damaged};
use crate::error::{LogError, Missing};
use crate::index::{INDEX_ENTRY_BYTES, decode_entries};
use crate::indexes::BatchMark;
use crate::listing::{Listing, list};
use crate::name::{deleted_log, index_path};
use crate::options::{Gaps, LogOptions, Opening, Recovery, Unwritten};
use crate::quarantine::DamagedRange;
use crate::scan::{BadBatch, BatchScan, Check, Step};
use crate::segment::Segment;
use crate::unreadable::{unless_unreadable, unreadable};

/// What a start would refuse this log for; nothing is changed. What a start takes for a torn tail and cuts is none.
///
/// What was `thought` away is passed over: stretches of `.log` files.
///
/// # Errors
/// As opening it.
pub(crate) async fn check(
    dir: &Path,
    opening: Opening,
    thought: &[(PathBuf, DamagedRange)],
) -> Result<(), LogError> {
    let opening = opening.without_false_start(dir);
    let dir: Rc<Path> = dir.into();
    let listing = list(&dir).await?;
    let opening = opening.with_start_of(&listing);
    let mut work = Work::new(&dir, &LogOptions::default(), &opening, &listing);
    for segment in &work.segments {
        let path = segment.path();
        let away = thought.iter().filter(|(of, _)| *of == path);
        let away = away.map(|(_, range)| range.clone());
        segment.damaged.borrow_mut().extend(away);
    }
    work.check_begins(&opening, &listing)?;
    match opening.recovery {
        Recovery::AfterCleanStop => {
            work.open_clean().await?;
            work.check_range(&opening)
        }
        Recovery::AfterCrash { recovery_point } => work.check_crashed(recovery_point).await,
    }
}

/// A partition has no directory: what of it is missing, if there was something.
#[must_use]
pub fn missing_directory(dir: &Path, opening: &Opening) -> Option<LogError> {
    // Of a log with a recovery point the name had been on the disk too; one with a start may have been lost
    // whole in a crash.
    let known_end = match opening.recovery {
        Recovery::AfterCleanStop => opening.known_end.max(opening.log_start),
        Recovery::AfterCrash { .. } => opening.known_end,
    };
    let up_to = known_end.filter(|end| *end > Offset::ZERO)?;
    Some(LogError::RecordsMissing {
        path: dir.to_owned(),
        what: Missing::Directory,
        from: opening.log_start.unwrap_or_default(),
        up_to,
    })
}

/// Where the batches of a closed segment end.
struct Ending {
    end: Offset,
    position: u64,
    bad: Option<BadBatch>,
}

impl Work {
    /// After a clean stop: everything from the log's start to its recovery point was on the disk.
    pub(super) fn check_range(&self, opening: &Opening) -> Result<(), LogError> {
        let start = opening.log_start.unwrap_or_default();
        let known_end = opening.known_end.unwrap_or_default();
        let (first, last) = match (self.segments.first(), self.segments.last()) {
            (Some(first), Some(last)) => (first, last),
            (None, _) | (_, None) if start < known_end => {
                return Err(LogError::RecordsMissing {
                    path: self.dir.to_path_buf(),
                    what: Missing::End,
                    from: start,
                    up_to: known_end,
                });
            }
            (None, _) | (_, None) => return Ok(()),
        };
        if self.end < known_end {
            return Err(LogError::RecordsMissing {
                path: last.path(),
                what: Missing::End,
                from: self.end.max(start),
                up_to: known_end,
            });
        }
        if opening.log_start.is_some() && first.base > start {
            return Err(LogError::RecordsMissing {
                path: first.path(),
                what: Missing::Start,
                from: start,
                up_to: first.base,
            });
        }
        Ok(())
    }

    /// Retention takes segments away when it is durable that the log begins behind them, and of each the `.log` behind its
    /// indexes; Kafka's takes it first, by another name. One that has indexes and neither is gone for another reason. After
    /// a loss of power that is no damage where the name may not have been on the disk yet.
    pub(super) fn check_begins(
        &self,
        opening: &Opening,
        listing: &Listing,
    ) -> Result<(), LogError> {
        let Some(first) = self.segments.first().map(|first| first.base) else {
            return Ok(());
        };
        let was_there = match (opening.recovery, self.unwritten) {
            // See `check_range`.
            (Recovery::AfterCleanStop, _) => false,
            (Recovery::AfterCrash { .. }, Unwritten::LastWrite) => true,
            (Recovery::AfterCrash { recovery_point }, Unwritten::AnyBatch) => {
                recovery_point >= first
            }
        };
        if !was_there || first <= self.start {
            return Ok(());
        }
        let missing = |from| LogError::RecordsMissing {
            path: self.segments[0].path(),
            what: Missing::Start,
            from,
            up_to: first,
        };
        let leftovers = listing.leftovers.iter();
        let set_aside: Vec<Offset> = leftovers.filter_map(|name| deleted_log(name)).collect();
        let kept_from = opening.kept_from.filter(|from| *from < first);
        if let Some(from) = kept_from.filter(|_| set_aside.iter().all(|base| *base > first)) {
            return Err(missing(from));
        }
        let is_lost = |base: &Offset| !set_aside.contains(base);
        match listing.indexed.range(..first).find(|base| is_lost(base)) {
            Some(base) => Err(missing(self.start.max(*base))),
            None => Ok(()),
        }
    }

    /// Looks at the end of each of the first `count` segments: it must be whole, and no records may be
    /// missing before the next one. What lies below the log's start is on its way out.
    pub(super) async fn check_joints(
        &self,
        count: usize,
        recovery_point: Offset,
    ) -> Result<(), LogError> {
        for pair in self.segments.windows(2).take(count) {
            let [segment, next] = pair else { continue };
            if next.base <= self.start {
                continue;
            }
            let path = segment.path();
            let ending = ending(&self.dir, segment)
                .await
                .map_err(LogError::io("read", &path))?;
            if let Some(reason) = ending.bad {
                if let BadBatch::Unreadable(_) = reason {
                    tracing::warn!(path = %path.display(), position = ending.position, %reason,
                        "the end of this segment is not known to be whole: it is looked through when its log is open");
                    segment.is_suspect.set(true);
                    continue;
                }
                if reason == BadBatch::Zeros && ending.end == next.base {
                    // Zeros were written ahead of the batches, and a crash kept them from being trimmed.
                    segment.cut_to(ending.position, ending.end);
                    continue;
                }
                if reason.is_end() {
                    let below = recovery_point.max(next.base);
                    return Err(damaged(path, ending.position, ending.end, below, reason));
                }
                // Damage in the middle: reads of it fail, and the rest is served.
                continue;
            }
            if ending.end > next.base {
                let reason = BadBatch::OffsetRunsBack {
                    found: next.base,
                    at_least: ending.end,
                };
                return Err(damaged(next.path(), 0, ending.end, recovery_point, reason));
            }
            if ending.end < next.base && self.gaps == Gaps::Never {
                return Err(LogError::RecordsMissing {
                    path,
                    what: Missing::Between,
                    from: ending.end.max(self.start),
                    up_to: next.base,
                });
            }
        }
        Ok(())
    }

    /// A segment that begins with a whole batch that does not belong there is no torn end, wherever the
    /// recovery point is: to cut there would take this file, or the ones behind it, for nothing.
    pub(super) async fn check_begin(&self, segment: &Segment, file: &File) -> Result<(), LogError> {
        let path = segment.path();
        let head = fs::read_at(file, 0, BATCH_HEADER_BYTES)
            .await
            .map_err(LogError::io("read", &path))?;
        let Ok(header) = BatchHeader::parse(&head) else {
            return Ok(());
        };
        let (first, last) = (header.base_offset, header.last_offset());
        let behind = self.segments.partition_point(|s| s.base <= segment.base);
        let next = self.segments.get(behind).map(|next| next.base);
        // One that begins where it should may have been cut off and be back after a loss of power.
        let reaches = first > segment.base && next.is_some_and(|next| last >= next);
        if first >= segment.base && !reaches || segment.damage_at(0).is_some() {
            return Ok(());
        }
        let size = segment.size.get();
        let mut scan = BatchScan::new(file.clone(), Check::Checksums, first, 0, size);
        match scan.next().await.map_err(LogError::io("read", &path))? {
            Step::Batch(..) => Err(LogError::OutOfPlace {
                path,
                position: 0,
                first,
                last,
            }),
            Step::End | Step::Bad(_) => Ok(()),
        }
    }

    /// A batch whose base offset was raised hides what is behind it, which runs back then. That is damage, however
    /// far the raised offset is above: no crash changes eight bytes of a batch that is whole.
    pub(super) fn check_raised(
        &self,
        segment: &Segment,
        raised: Option<(Offset, BatchMark)>,
        bad: &BadBatch,
    ) -> Result<(), LogError> {
        let (Some((due, mark)), Some(recovery_point)) = (raised, self.recovery_point) else {
            return Ok(());
        };
        let BadBatch::OffsetRunsBack { found, .. } = bad else {
            return Ok(());
        };
        let count = mark.last_offset.0 - mark.base_offset.0 + 1;
        let follows = due.0.checked_add(count) == Some(found.0);
        if mark.base_offset <= due || !follows {
            return Ok(());
        }
        let path = segment.path();
        if due >= recovery_point {
            return Err(out_of_place(path, &mark));
        }
        Err(damaged(
            path,
            mark.position,
            due,
            recovery_point,
            bad.clone(),
        ))
    }

    /// In a log without gaps a whole batch begins where the one before it ends, at `due`. Below the recovery point
    /// nobody knows who wrote it.
    pub(super) fn check_joins(
        &self,
        segment: &Segment,
        due: Offset,
        mark: &BatchMark,
    ) -> Result<(), LogError> {
        let is_known = self.gaps == Gaps::Never && self.recovery_point.is_some_and(|at| due >= at);
        match is_known && mark.base_offset > due {
            true => Err(out_of_place(segment.path(), mark)),
            false => Ok(()),
        }
    }

    /// True when records are missing between what was scanned and the segment at `index`, if there is one.
    ///
    /// Where compaction may have taken them, a loss of power has when the segment is the last and holds nothing: its
    /// name was on the disk before what lies in front of it. A log that kept its base would say that it has them.
    pub(super) async fn is_hole(&self, index: usize) -> Result<bool, LogError> {
        let Some(next) = self.segments.get(index).filter(|s| s.base > self.end) else {
            return Ok(false);
        };
        if !self.may_be_compacted(self.end, next.base) {
            return Ok(true);
        }
        let may_be_lost = self.unwritten == Unwritten::AnyBatch
            && self.recovery_point.is_some_and(|at| self.end >= at);
        if !may_be_lost || index + 1 < self.segments.len() {
            return Ok(false);
        }
        let path = next.path();
        let file = self.open_log(&path).await?;
        let head = fs::read_at(&file, 0, BATCH_HEADER_BYTES)
            .await
            .map_err(LogError::io("read", &path))?;
        // Zeros are written ahead of batches.
        Ok(head.iter().all(|byte| *byte == 0))
    }

    /// Whether records from `end` on that are missing before the segment at `next` can have been compacted away. Ours
    /// keeps the last batch of what it cleans, so that segments join; Kafka's does not. Below the recovery point nobody
    /// knows who did it.
    pub(super) fn may_be_compacted(&self, end: Offset, next: Offset) -> bool {
        let is_above = self.recovery_point.is_some_and(|at| end >= at);
        let is_beyond = is_above && self.compacted_to.is_some_and(|to| next > to);
        self.gaps == Gaps::MayBe && !is_beyond
    }

    /// Records from `end` on may have been compacted away by Kafka before the segment at `next`, if there are some.
    pub(super) fn note_hole(&mut self, end: Offset, next: Offset) {
        if end < next && self.recovery_point.is_some_and(|at| end >= at) {
            self.holes_end = Some(next);
        }
    }

    /// A crash may have lost a file whose name was not on the disk yet: the log ends there, like at any
    /// torn tail (ST-5), unless it had been there for sure.
    pub(super) async fn cut_at_hole(&mut self, index: usize) -> Result<(), LogError> {
        self.check_hole(index)?;
        let behind = &self.segments[index];
        tracing::warn!(path = %behind.path().display(), end = %self.end,
            "records before this segment are missing after an unclean stop: the log ends before them");
        self.remove_segments_after(index - 1).await
    }
}

impl Work {
    /// As [`Work::scan_from`], without a change.
    async fn check_crashed(&mut self, recovery_point: Offset) -> Result<(), LogError> {
        self.recovery_point = Some(recovery_point);
        let first = self.segment_of(recovery_point);
        self.check_joints(first, recovery_point).await?;
        self.end = self
            .segments
            .get(first)
            .map_or(Offset::ZERO, |segment| segment.base);
        let mut epoch = LeaderEpoch::NONE;
        for index in first..self.segments.len() {
            let segment = self.segments[index].clone();
            let scanned = self.scan_whole(&segment, epoch).await?;
            epoch = scanned.epoch;
            self.end = scanned.end;
            let next = self.segments.get(index + 1).map(|next| next.base);
            match scanned.bad {
                // Written ahead of the batches.
                Some((_, BadBatch::Zeros)) if next == Some(self.end) => {}
                Some(bad) => return self.check_torn(index, &scanned.file, bad).await,
                None => {}
            }
            if self.is_hole(index + 1).await? {
                return self.check_hole(index + 1);
            }
        }
        self.check_reaches()
    }

    /// The hole before the segment at `index` may be what a crash leaves: nothing says that something was there.
    fn check_hole(&self, index: usize) -> Result<(), LogError> {
        match self.unwritten {
            Unwritten::AnyBatch if self.end >= self.reached() => return Ok(()),
            // The next segment was begun when all before it was written.
            Unwritten::AnyBatch | Unwritten::LastWrite => {}
        }
        Err(LogError::RecordsMissing {
            path: self.segments[index - 1].path(),
            what: Missing::Between,
            from: self.end,
            up_to: self.segments[index].base,
        })
    }

    /// After a kill a log reaches to its start: it did when that was written down.
    pub(super) fn check_start(&self) -> Result<(), LogError> {
        match (self.unwritten, self.segments.last()) {
            (Unwritten::LastWrite, Some(last)) if self.start > self.end => {
                Err(LogError::RecordsMissing {
                    path: last.path(),
                    what: Missing::End,
                    from: self.end,
                    up_to: self.start,
                })
            }
            (Unwritten::LastWrite | Unwritten::AnyBatch, _) => Ok(()),
        }
    }

    /// A log that ends below its recovery point has lost records that were on the disk, and one that ends below its
    /// mark some that were in the page cache, from which a kill takes nothing. To go on there would give their offsets
    /// to others.
    pub(super) fn check_reaches(&self) -> Result<(), LogError> {
        let from = self.end.max(self.start);
        self.check_start()?;
        let up_to = self.reached();
        if from >= up_to {
            return Ok(());
        }
        let path = self.segments.last().map(|last| last.path());
        Err(LogError::RecordsMissing {
            path: path.unwrap_or_else(|| self.dir.to_path_buf()),
            what: Missing::End,
            from,
            up_to,
        })
    }
}

fn out_of_place(path: PathBuf, mark: &BatchMark) -> LogError {
    LogError::OutOfPlace {
        path,
        position: mark.position,
        first: mark.base_offset,
        last: mark.last_offset,
    }
}

/// Where the batches of `segment` end, by its index where that can be believed, else from its begin; or before what
/// can not be read of it.
async fn ending(dir: &Path, segment: &Segment) -> std::io::Result<Ending> {
    let file = fs::open(&segment.path(), OpenMode::Read).await?;
    if let Some(position) = last_indexed(dir, segment).await? {
        let ending = ending_from(&file, segment, position).await?;
        if ending.bad.is_none() {
            return Ok(ending);
        }
    }
    ending_from(&file, segment, 0).await
}

async fn ending_from(file: &File, segment: &Segment, position: u64) -> std::io::Result<Ending> {
    let size = segment.size.get();
    let mut scan = BatchScan::new(file.clone(), Check::Headers, segment.base, position, size);
    let bad = loop {
        if segment.skip_damage(&mut scan) {
            continue;
        }
        match unless_unreadable(scan.next().await)? {
            Step::Batch(..) => {}
            Step::End => break None,
            Step::Bad(reason) => break Some(reason),
        }
    };
    Ok(Ending {
        end: scan.next_offset(),
        position: scan.position(),
        bad,
    })
}

/// Position of the batch that the last entry of the index names.
async fn last_indexed(dir: &Path, segment: &Segment) -> std::io::Result<Option<u64>> {
    let file = match fs::open(&index_path(dir, segment.base), OpenMode::Read).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let len = fs::len(&file).await?;
    let entry_bytes = INDEX_ENTRY_BYTES as u64;
    let Some(at) = len
        .checked_sub(entry_bytes)
        .filter(|at| at % entry_bytes == 0)
    else {
        return Ok(None);
    };
    let bytes = match fs::read_at(&file, at, INDEX_ENTRY_BYTES).await {
        Err(error) if unreadable(&error).is_some() => return Ok(None),
        bytes => bytes?,
    };
    let entry = decode_entries(&bytes).ok().and_then(|mut all| all.next());
    let position = entry.map(|entry| u64::from(entry.position));
    Ok(position.filter(|position| *position < segment.size.get()))
}
