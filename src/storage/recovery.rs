//! Opening a log: what is on the disk is listed, checked as far as the way it was stopped demands,
//! cut back to its last valid batch, and made into the state of an open log.
//!
//! After a clean stop only the end of each segment is looked at. After a crash every byte from
//! the segment of the recovery point on is checksummed (ST-5): what is not valid at or above the
//! recovery point is a torn tail and is cut, with all later segments, so that no log has a hole; what
//! is not valid below it is damage, and then nothing is changed (R7). After a kill on the same boot all that was
//! written is in the page cache, and only the last write can be torn: there, what is not valid before
//! something that is whole is damage, too ([`Unwritten::LastWrite`]).

mod above;
mod epochs;
mod joints;
mod leftovers;
mod marked;
mod report;
mod torn;
mod zeros;

pub(crate) use joints::check;
pub use joints::missing_directory;
pub use report::{RecoveryReport, TailCut};

use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::time;
use thalweg_replica::EpochEntry;
use thalweg_types::{LeaderEpoch, Offset, TopicId};

use crate::aborted::{self, Aborted};
use crate::compaction::recover::finish_swaps;
use crate::error::{LogError, is_lack_of_room};
use crate::indexes::{BatchMark, Indexes};
use crate::listing::{Listing, list};
use crate::log::{Names, State};
use crate::moving;
use crate::name::{index_path, time_index_path};
use crate::next_segment;
use crate::options::{Gaps, LogOptions, Opening, Recovery, Unwritten};
use crate::partition_files;
use crate::quarantine;
use crate::scan::{BadBatch, BatchScan, Check, NOTHING, Step};
use crate::segment::{Segment, load_indexes};
use crate::written::Saved;

/// Recovers the log in `dir`.
pub(crate) async fn recover(
    dir: &Rc<Path>,
    options: LogOptions,
    opening: Opening,
) -> Result<(State, RecoveryReport), LogError> {
    let mut opening = opening.without_false_start(dir);
    let topic_id = partition_files::load_topic_id(dir).await?;
    let stored_epochs = partition_files::load_epochs(dir).await?;
    let listing = list(dir).await?;
    if listing.is_leaving {
        moving::stay(dir).await?;
    }
    let listing = next_segment::adopt(dir, listing).await?;
    let listing = finish_swaps(dir, listing).await?;
    opening = opening.with_start_of(&listing);
    let mut work = Work::new(dir, &options, &opening, &listing);
    if listing.has_quarantine {
        quarantine::load(dir, &work.segments).await?;
    }
    work.check_begins(&opening, &listing)?;
    match opening.recovery {
        Recovery::AfterCleanStop => {
            work.open_clean().await?;
            work.check_range(&opening)?;
        }
        Recovery::AfterCrash { recovery_point } => {
            work.recovery_point = Some(recovery_point);
            if !work.segments.is_empty() {
                work.scan_from(recovery_point, opening.written).await?;
            }
            work.check_reaches()?;
        }
    }
    work.check_aborted().await?;
    work.remove_leftovers(&listing).await?;
    work.remove_misleading(&listing).await?;
    opening.log_start = work.believed_start(opening.log_start);
    work.apply_log_start(opening.log_start).await?;
    work.keep_snapshots(listing.snapshots).await?;
    work.finish(options, topic_id, stored_epochs, opening).await
}

struct Work {
    dir: Rc<Path>,
    gaps: Gaps,
    compacted_to: Option<Offset>,
    /// The last segment above the recovery point before which records are missing that may have been compacted away.
    holes_end: Option<Offset>,
    unwritten: Unwritten,
    /// The log start that was asked for.
    start: Offset,
    /// The log had come to there.
    known_end: Option<Offset>,
    interval_bytes: u64,
    /// Zeros behind the last batch were most likely written there on purpose.
    zeros_ahead: bool,
    segments: Vec<Rc<Segment>>,
    /// Known only after a crash.
    recovery_point: Option<Offset>,
    /// Offset after the last batch.
    end: Offset,
    /// Epochs of scanned batches and where each begins.
    seen_epochs: Vec<EpochEntry>,
    names_changed: bool,
    /// Up to where the index files of the active segment are as they should be; `None` where they are of no use.
    led_to: Option<u64>,
    report: RecoveryReport,
}

impl Work {
    fn new(dir: &Rc<Path>, options: &LogOptions, opening: &Opening, listing: &Listing) -> Work {
        let interval_bytes = u64::from(options.index_interval_bytes);
        let segment = |(base, bytes): (&Offset, &u64)| {
            let segment = Segment::cold(dir, *base, interval_bytes, *bytes);
            if listing.txn_indexes.contains(base) {
                *segment.aborted.borrow_mut() = Aborted::default();
            }
            if *bytes == 0 && !listing.indexed.contains(base) {
                segment.has_no_index_files();
            }
            segment
        };
        Work {
            dir: Rc::clone(dir),
            gaps: opening.gaps,
            compacted_to: opening.compacted_to,
            holes_end: None,
            unwritten: opening.unwritten,
            start: opening.log_start.unwrap_or_default(),
            known_end: opening.known_end,
            interval_bytes,
            zeros_ahead: options.acks_wait(),
            segments: listing.logs.iter().map(segment).collect(),
            recovery_point: None,
            end: Offset::ZERO,
            seen_epochs: Vec::new(),
            names_changed: false,
            led_to: None,
            report: RecoveryReport::default(),
        }
    }

    /// An index of aborted transactions that can not be read is rebuilt (ST-9).
    async fn check_aborted(&mut self) -> Result<(), LogError> {
        for segment in &self.segments {
            if segment.aborted.borrow().is_empty() {
                continue;
            }
            match aborted::read(&self.dir, segment.base).await {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    let path = segment.path();
                    tracing::warn!(path = %path.display(), %error, "rebuilding it from the log");
                    segment.aborted.borrow_mut().replace(Vec::new());
                    segment.indexes_saved.set(false);
                    self.report.indexes_rebuilt += 1;
                    note_rebuild(&mut self.report, segment.base);
                }
                Err(error) => return Err(LogError::io("read", &self.dir)(error)),
            }
        }
        Ok(())
    }

    /// No scan: the end of each segment is found by its index, and everything must be whole.
    async fn open_clean(&mut self) -> Result<(), LogError> {
        let Some(active) = self.segments.last().cloned() else {
            return Ok(());
        };
        self.check_joints(self.segments.len() - 1, active.base)
            .await?;
        let path = active.path();
        let file = self.open_log(&path).await?;
        let loaded = load_indexes(&active, &file)
            .await
            .map_err(|error| LogError::Io {
                operation: "read the indexes of",
                path: path.clone(),
                source: std::io::Error::other(error.to_string()),
            })?;
        if let Some((position, reason)) = loaded.bad {
            let offset = loaded.indexes.end();
            // All of the log was on the disk: the recovery point is its end, if that is known.
            let above = Offset(offset.0.saturating_add(1));
            let end = self.known_end.filter(|end| *end > offset);
            return Err(damaged(
                path,
                position,
                offset,
                end.unwrap_or(above),
                reason,
            ));
        }
        self.led_to = Some(active.size.get());
        if let Some(damage) = loaded.damage {
            tracing::warn!(path = %path.display(), %damage, "rebuilt an index from its log");
            self.report.indexes_rebuilt += 1;
            self.led_to = None;
        }
        self.end = loaded.indexes.end();
        active.set_warm(file, loaded.indexes);
        Ok(())
    }

    /// Checks every byte from the segment that holds `recovery_point` on, or from the mark `written` on,
    /// and cuts the torn tail.
    async fn scan_from(
        &mut self,
        recovery_point: Offset,
        written: Option<Offset>,
    ) -> Result<(), LogError> {
        let first = self.segment_of(recovery_point);
        self.end = self
            .segments
            .get(first)
            .map_or(Offset::ZERO, |segment| segment.base);
        self.check_joints(first, recovery_point).await?;
        let mut epoch = LeaderEpoch::NONE;
        let mut index = first;
        let mut marked = match written {
            // What was on the disk was written, too.
            Some(mark) => self.trust_written(first, mark.max(recovery_point)).await?,
            None => None,
        };
        if let Some(marked) = &marked {
            index = marked.index;
        }
        while let Some(segment) = self.segments.get(index).cloned() {
            let scanned = match marked.take() {
                Some(marked) => marked.scanned,
                None if index == first => self.scan_first(&segment, recovery_point).await?,
                None => self.scan_whole(&segment, epoch).await?,
            };
            epoch = scanned.epoch;
            self.end = scanned.end;
            self.led_to = scanned.led_to;
            if let Some((position, reason)) = scanned.bad {
                let bad = (position, reason.clone());
                // Zeros that were written ahead of the batches hide nothing.
                if !self.trim_zeros(index, &scanned.file, &bad).await? {
                    self.check_torn(index, &scanned.file, bad).await?;
                    // First, and durably: a start that finds them behind a whole batch may take them for the log's.
                    self.remove_segments_after(index).await?;
                    self.sync_names().await?;
                    self.cut(&segment, &scanned.file, position, reason).await?;
                }
            }
            segment.set_warm(scanned.file, scanned.indexes);
            if self.is_hole(index + 1).await? {
                // This one is the active segment then, and stays in memory.
                self.cut_at_hole(index + 1).await?;
                break;
            }
            if let Some(next) = self.segments.get(index + 1).map(|next| next.base) {
                self.note_hole(self.end, next);
                self.close_scanned(&segment).await?;
            }
            index += 1;
        }
        Ok(())
    }

    async fn scan_first(
        &mut self,
        segment: &Rc<Segment>,
        recovery_point: Offset,
    ) -> Result<Scanned, LogError> {
        match self.scan_above(segment, recovery_point).await? {
            Some(scanned) => Ok(scanned),
            None => self.scan_whole(segment, LeaderEpoch::NONE).await,
        }
    }

    async fn scan_whole(
        &mut self,
        segment: &Segment,
        epoch: LeaderEpoch,
    ) -> Result<Scanned, LogError> {
        let indexes = Indexes::new(segment.base, self.interval_bytes);
        self.scan_segment(segment, epoch, indexes, NOTHING).await
    }

    /// Checks a segment from where its indexes end on; goes by headers up to `believed`.
    async fn scan_segment(
        &mut self,
        segment: &Segment,
        epoch: LeaderEpoch,
        mut indexes: Indexes,
        believed: Offset,
    ) -> Result<Scanned, LogError> {
        let path = segment.path();
        let file = self.open_log(&path).await?;
        let size = segment.size.get();
        let from = indexes.resume_position();
        self.check_begin(segment, &file).await?;
        let mut scan = BatchScan::new(file.clone(), Check::Checksums, segment.base, from, size)
            .after(self.end, epoch)
            .believing(believed);
        let (mut first_timestamp, mut first_offset, mut before) = (None, None, None);
        let mut follows = from == 0;
        let bad = loop {
            if segment.skip_damage(&mut scan) {
                indexes.on_passed_over(scan.next_offset());
                follows = false;
                continue;
            }
            let due = scan.next_offset();
            match scan.next().await.map_err(LogError::io("read", &path))? {
                Step::Batch(mark, header) => {
                    if follows {
                        self.check_joins(segment, due, &mark)?;
                    }
                    follows = true;
                    before = Some((due, mark));
                    first_offset = first_offset.or(Some(mark.base_offset));
                    if header.is_control() {
                        note_rebuild(&mut self.report, segment.base);
                    }
                    first_timestamp = first_timestamp.or(Some(mark.max_timestamp));
                    indexes.on_resumed(&mark);
                    self.note_epoch(mark.leader_epoch, mark.base_offset);
                    self.report.batches_scanned += 1;
                }
                Step::End => break None,
                Step::Bad(reason) => {
                    self.check_raised(segment, before, &reason)?;
                    break Some((scan.position(), reason));
                }
            }
        };
        if from == 0 {
            segment.set_first_timestamp(first_timestamp);
        }
        self.forget_aborted(segment, first_offset).await?;
        self.report.segments_scanned += 1;
        self.report.bytes_scanned += scan.position() - from - scan.believed_bytes();
        Ok(Scanned {
            file,
            led_to: None,
            believed_bytes: scan.believed_bytes(),
            indexes,
            bad,
            end: scan.next_offset(),
            epoch: scan.epoch(),
        })
    }

    /// What a crash has left of an index of aborted transactions says nothing of what was scanned, from
    /// `first` on: that is told again.
    async fn forget_aborted(
        &mut self,
        segment: &Segment,
        first: Option<Offset>,
    ) -> Result<(), LogError> {
        if segment.aborted.borrow().is_empty() {
            return Ok(());
        }
        let mut known = match aborted::read(&self.dir, segment.base).await {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                note_rebuild(&mut self.report, segment.base);
                Vec::new()
            }
            read => read.map_err(LogError::io("read", segment.path()))?,
        };
        known.retain(|transaction| first.is_some_and(|first| transaction.last_offset < first));
        segment.aborted.borrow_mut().replace(known);
        segment.indexes_saved.set(false);
        Ok(())
    }

    fn segment_of(&self, offset: Offset) -> usize {
        let behind = self.segments.partition_point(|s| s.base <= offset);
        behind.saturating_sub(1)
    }

    /// A later segment follows: this one is made durable, with its indexes, and leaves memory.
    async fn close_scanned(&mut self, segment: &Segment) -> Result<(), LogError> {
        let path = segment.path();
        if let Some(warm) = segment.warm_now() {
            fs::sync_data(&warm.file)
                .await
                .map_err(LogError::io("fdatasync", &path))?;
        }
        match segment.save_indexes().await {
            // No room is no reason not to open: without files they are rebuilt at the first read.
            Err(error) if is_lack_of_room(&error) => {
                tracing::warn!(path = %path.display(), %error, "no room for an index");
                self.remove_file(&index_path(&self.dir, segment.base))
                    .await?;
                self.remove_file(&time_index_path(&self.dir, segment.base))
                    .await?;
            }
            result => result.map_err(LogError::io("write the indexes of", &path))?,
        }
        segment.drop_memory();
        Ok(())
    }

    async fn finish(
        mut self,
        options: LogOptions,
        topic_id: Option<TopicId>,
        stored_epochs: Option<Vec<EpochEntry>>,
        opening: Opening,
    ) -> Result<(State, RecoveryReport), LogError> {
        self.sync_names().await?;
        let first = self
            .segments
            .first()
            .map_or(Offset::ZERO, |segment| segment.base);
        let start = opening.log_start.unwrap_or(first).max(first);
        let first_batch = self.load_first_batch().await?;
        let stored = self.believable(stored_epochs, opening.epoch_max, start, first_batch);
        self.report.epochs = self.epochs(stored, start).await?;
        self.report.segments = self.segments.len();
        let mut state = State::new(options, topic_id, self.segments, start, self.end);
        state.cleaned_to = opening.cleaned_to;
        state.holes_end = self.holes_end.filter(|end| *end <= self.end);
        state.durable_end = match self.recovery_point {
            None => self.end,
            Some(recovery_point) => recovery_point.clamp(start, self.end),
        };
        state.recovery_point = state.durable_end;
        for segment in state.segments.iter().rev().skip(1) {
            if segment.warm_now().is_some() {
                state.options.cache.add(segment);
            }
        }
        // A log that was emptied has no such files.
        let led_to = self.led_to.filter(|_| !self.report.log_start_ahead);
        let newest = self.report.snapshots.first().copied();
        state.saved = Saved::up_to(state.active().base, led_to.unwrap_or(0), newest);
        state.lasting_snapshot = newest;
        state.dirty_since = (state.durable_end < state.written_end).then(time::now);
        if self.recovery_point.is_some() {
            // What was above the recovery point may be in the page cache only.
            state.names = Names::DirectoryUnsynced;
            state.active().synced.set(0);
        }
        Ok((state, self.report))
    }

    async fn sync_names(&mut self) -> Result<(), LogError> {
        if std::mem::take(&mut self.names_changed) {
            fs::sync_dir(&self.dir)
                .await
                .map_err(LogError::io("sync", &self.dir))?;
        }
        Ok(())
    }

    /// The active segment rolls by the timestamp of its first batch.
    async fn load_first_batch(&self) -> Result<Option<BatchMark>, LogError> {
        let Some(active) = self.segments.last() else {
            return Ok(None);
        };
        let Some(warm) = active.warm_now() else {
            return Ok(None);
        };
        let size = active.size.get();
        let mut scan = BatchScan::new(warm.file, Check::Headers, active.base, 0, size);
        let first = scan
            .next()
            .await
            .map_err(LogError::io("read", active.path()))?;
        let Step::Batch(mark, _) = first else {
            return Ok(None);
        };
        active.set_first_timestamp(Some(mark.max_timestamp));
        Ok(Some(mark))
    }

    async fn open_log(&self, path: &Path) -> Result<File, LogError> {
        fs::open(path, OpenMode::ReadWrite)
            .await
            .map_err(LogError::io("open", path))
    }
}

fn note_rebuild(report: &mut RecoveryReport, base: Offset) {
    let from = report.transactions_from.unwrap_or(base);
    report.transactions_from = Some(from.min(base));
}

/// One segment after its scan.
struct Scanned {
    file: File,
    /// Where its index files led to, which are as they should be up to there; `None` where they are of no use.
    led_to: Option<u64>,
    /// Bytes that were passed by their headers.
    believed_bytes: u64,
    indexes: Indexes,
    bad: Option<(u64, BadBatch)>,
    end: Offset,
    epoch: LeaderEpoch,
}

fn damaged(
    path: PathBuf,
    position: u64,
    offset: Offset,
    recovery_point: Offset,
    reason: BadBatch,
) -> LogError {
    LogError::DamagedBelowRecoveryPoint {
        path,
        position,
        offset,
        recovery_point,
        reason,
    }
}
