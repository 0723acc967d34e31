//! Opening a log: what is on the disk is listed, checked as far as the way it was stopped demands,
//! cut back to its last valid batch, and made into the state of an open log.
//!
//! After a clean stop only the end of each segment is looked at. After a crash every byte from
//! the segment of the recovery point on is checksummed (ST-5): what is not valid at or above the
//! recovery point is a torn tail and is cut, with all later segments, so that no log has a hole; what
//! is not valid below it is damage, and then nothing is changed (R7).

mod above;
mod epochs;
mod joints;
mod marked;
mod zeros;

pub(crate) use joints::check;
pub use joints::missing_directory;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::{failpoint, time};
use thalweg_replica::{EpochCache, EpochEntry};
use thalweg_types::{LeaderEpoch, Offset, TopicId};

use crate::aborted::{self, Aborted};
use crate::compaction::recover::finish_swaps;
use crate::error::{LogError, is_lack_of_room};
use crate::indexes::{BatchMark, Indexes};
use crate::listing::{Listing, list};
use crate::log::{Names, State};
use crate::name::{index_path, snapshot_path, time_index_path};
use crate::next_segment;
use crate::options::{Gaps, LogOptions, Opening, Recovery, Unwritten};
use crate::partition_files;
use crate::quarantine;
use crate::removal::files_of;
use crate::scan::{self, BadBatch, BatchScan, Check, Step};
use crate::segment::{Segment, load_indexes};
use crate::snapshots::useless;
use crate::written::Mark;

/// What opening a log found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Segments of the opened log.
    pub segments: usize,
    /// Segments whose every byte was checked.
    pub segments_scanned: usize,
    /// Valid batches seen in them.
    pub batches_scanned: u64,
    /// Bytes read for it.
    pub bytes_scanned: u64,
    /// Bytes above the recovery point that were not read, because the process that wrote them had marked
    /// them as written.
    pub bytes_trusted: u64,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<TailCut>,
    /// Segments behind the cut that were removed.
    pub segments_removed: usize,
    /// Bytes that the cut and the removed segments had.
    pub bytes_removed: u64,
    /// Index files that were written anew because they were missing or wrong.
    pub indexes_rebuilt: usize,
    /// Files of interrupted operations and indexes without a log, and segments below the log start,
    /// that were removed.
    pub leftovers_removed: usize,
    /// Where the first segment begins whose aborted transactions have to be told again
    /// ([`crate::Log::note_aborted`]): a crash may have lost what its index said.
    pub transactions_from: Option<Offset>,
    /// Offsets of the snapshots that belong to the log, newest first.
    pub snapshots: Vec<Offset>,
    /// The log start checkpoint lay above the end of the log: the log was emptied (ST-13).
    pub log_start_ahead: bool,
    /// The leader epochs were rebuilt from the batches (ST-11).
    pub epochs_rebuilt: bool,
    /// The leader epochs of the log, cut to its range. Their keeper takes them from here.
    pub epochs: EpochCache,
    /// What the file of leader epochs says now. It may go on to name epochs in which no record was
    /// written, which their keeper begins anew at the same offset.
    pub epochs_stored: Vec<EpochEntry>,
}

/// Where and why a log was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailCut {
    /// The segment's `.log` file.
    pub path: PathBuf,
    /// Its length now.
    pub position: u64,
    /// End of the log now.
    pub offset: Offset,
    /// Why what stood there is no batch.
    pub reason: BadBatch,
}

/// Recovers the log in `dir`.
pub(crate) async fn recover(
    dir: &Rc<Path>,
    options: LogOptions,
    opening: Opening,
) -> Result<(State, RecoveryReport), LogError> {
    let topic_id = partition_files::load_topic_id(dir).await?;
    let stored_epochs = partition_files::load_epochs(dir).await?;
    let listing = next_segment::adopt(dir, list(dir).await?).await?;
    let listing = finish_swaps(dir, listing).await?;
    let mut work = Work::new(dir, &options, &opening, &listing);
    if listing.has_quarantine {
        quarantine::load(dir, &work.segments).await?;
    }
    match opening.recovery {
        Recovery::AfterCleanStop => {
            work.open_clean().await?;
            work.check_range(&opening)?;
        }
        Recovery::AfterCrash { recovery_point } => {
            if !work.segments.is_empty() {
                work.scan_from(recovery_point, opening.written, opening.unwritten)
                    .await?;
            }
            work.check_reaches(recovery_point)?;
        }
    }
    work.check_aborted().await?;
    work.remove_leftovers(&listing).await?;
    work.apply_log_start(opening.log_start).await?;
    work.keep_snapshots(listing.snapshots).await?;
    work.finish(options, topic_id, stored_epochs, opening).await
}

struct Work {
    dir: Rc<Path>,
    gaps: Gaps,
    /// The log start that was asked for.
    start: Offset,
    /// Where the log ended when it was stopped in order.
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
            start: opening.log_start.unwrap_or_default(),
            known_end: opening.known_end,
            interval_bytes,
            zeros_ahead: options.acks_wait(),
            segments: listing.logs.iter().map(segment).collect(),
            recovery_point: None,
            end: Offset::ZERO,
            seen_epochs: Vec::new(),
            names_changed: false,
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
        if let Some(damage) = loaded.damage {
            tracing::warn!(path = %path.display(), %damage, "rebuilt an index from its log");
            self.report.indexes_rebuilt += 1;
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
        unwritten: Unwritten,
    ) -> Result<(), LogError> {
        self.recovery_point = Some(recovery_point);
        let first = self.segment_of(recovery_point);
        self.end = self
            .segments
            .get(first)
            .map_or(Offset::ZERO, |segment| segment.base);
        self.check_joints(first, recovery_point).await?;
        let mut epoch = LeaderEpoch::NONE;
        let mut index = first;
        let mut marked = match written {
            Some(mark) if mark > recovery_point => self.trust_written(first, mark).await?,
            Some(_) | None => None,
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
            if let Some((position, reason)) = scanned.bad {
                let bad = (position, reason.clone());
                // Zeros that were written ahead of the batches hide nothing.
                if !self.trim_zeros(index, &scanned.file, &bad).await? {
                    self.check_torn(&segment, &scanned.file, bad, unwritten)
                        .await?;
                    self.cut(&segment, &scanned.file, position, reason).await?;
                    self.remove_segments_after(index).await?;
                }
            }
            segment.set_warm(scanned.file, scanned.indexes);
            if let Some(next) = self.segments.get(index + 1).map(|next| next.base) {
                if self.is_hole(next) {
                    // This one is the active segment then, and stays in memory.
                    self.cut_at_hole(index + 1, recovery_point).await?;
                    break;
                }
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
        self.scan_segment(segment, epoch, indexes).await
    }

    /// Checks a segment from where its indexes end on.
    async fn scan_segment(
        &mut self,
        segment: &Segment,
        epoch: LeaderEpoch,
        mut indexes: Indexes,
    ) -> Result<Scanned, LogError> {
        let path = segment.path();
        let file = self.open_log(&path).await?;
        let size = segment.size.get();
        let from = indexes.resume_position();
        self.check_begin(segment, &file).await?;
        let mut scan = BatchScan::new(file.clone(), Check::Checksums, segment.base, from, size)
            .after(self.end, epoch);
        let (mut first_timestamp, mut first_offset, mut before) = (None, None, None);
        let bad = loop {
            if segment.skip_damage(&mut scan) {
                indexes.on_passed_over(scan.next_offset());
                continue;
            }
            let due = scan.next_offset();
            match scan.next().await.map_err(LogError::io("read", &path))? {
                Step::Batch(mark, header) => {
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
        self.report.bytes_scanned += scan.position() - from;
        Ok(Scanned {
            file,
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

    /// What is not valid is a torn tail only where nothing says that it was on the disk.
    async fn check_torn(
        &self,
        segment: &Segment,
        file: &File,
        (position, reason): (u64, BadBatch),
        unwritten: Unwritten,
    ) -> Result<(), LogError> {
        let path = segment.path();
        let recovery_point = self.recovery_point.unwrap_or_default();
        if self.end < recovery_point {
            return Err(damaged(path, position, self.end, recovery_point, reason));
        }
        if unwritten == Unwritten::LastBatch
            && let Some(synced) = self.synced_behind(segment, file, position).await?
        {
            return Err(LogError::DamagedBeforeSynced {
                path,
                position,
                offset: self.end,
                synced,
                reason,
            });
        }
        Ok(())
    }

    fn segment_of(&self, offset: Offset) -> usize {
        let behind = self.segments.partition_point(|s| s.base <= offset);
        behind.saturating_sub(1)
    }

    /// Base offset of a batch that is whole, behind the bad one at `position`.
    async fn synced_behind(
        &self,
        segment: &Segment,
        file: &File,
        position: u64,
    ) -> Result<Option<Offset>, LogError> {
        let range = position + 1..segment.size.get();
        let found = scan::find_batch(file, range, segment.base, self.end).await;
        let found = found.map_err(LogError::io("read", &segment.path()))?;
        Ok(found.map(|mark| mark.base_offset))
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

    /// Cuts what is not valid off the file, durably.
    async fn cut(
        &mut self,
        segment: &Segment,
        file: &File,
        position: u64,
        reason: BadBatch,
    ) -> Result<(), LogError> {
        let path = segment.path();
        self.report.bytes_removed += segment.size.get() - position;
        fs::truncate(file, position)
            .await
            .map_err(LogError::io("truncate", &path))?;
        failpoint::pass("cut: truncated");
        fs::sync_all(file)
            .await
            .map_err(LogError::io("fsync", &path))?;
        segment.cut_to(position, self.end);
        tracing::warn!(
            path = %path.display(), position, end = %self.end, %reason,
            "cut a torn tail off after an unclean stop"
        );
        self.report.cut = Some(TailCut {
            path,
            position,
            offset: self.end,
            reason,
        });
        Ok(())
    }

    /// Removes all segments behind the one at `index`, the last first, so that a crash in between
    /// leaves no hole.
    async fn remove_segments_after(&mut self, index: usize) -> Result<(), LogError> {
        while self.segments.len() > index + 1 {
            let Some(segment) = self.segments.pop() else {
                break;
            };
            let path = segment.path();
            tracing::warn!(path = %path.display(), "removing a segment behind the torn tail");
            self.remove_segment(segment.base).await?;
            self.report.segments_removed += 1;
            self.report.bytes_removed += segment.size.get();
        }
        Ok(())
    }

    async fn remove_segment(&mut self, base: Offset) -> Result<(), LogError> {
        for path in files_of(&self.dir, base) {
            failpoint::pass("cut: file to go");
            self.remove_file(&path).await?;
        }
        Ok(())
    }

    /// Removes a file that may be missing.
    async fn remove_file(&mut self, path: &Path) -> Result<(), LogError> {
        self.names_changed = true;
        match fs::unlink(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(LogError::io("remove", path)),
        }
    }

    async fn remove_leftovers(&mut self, listing: &Listing) -> Result<(), LogError> {
        for name in &listing.leftovers {
            let path = self.dir.join(name);
            tracing::info!(path = %path.display(), "removing a left-over file");
            // A file that was written anew meanwhile may have taken its place.
            self.remove_file(&path).await?;
            self.report.leftovers_removed += 1;
        }
        Ok(())
    }

    /// Gives an empty log its first segment, and empties a log whose segments are all below its start
    /// (ST-13). Segments that a deletion had not come to are removed (ST-14).
    async fn apply_log_start(&mut self, log_start: Option<Offset>) -> Result<(), LogError> {
        let start = log_start.unwrap_or_default();
        if !self.segments.is_empty() && start > self.end {
            tracing::warn!(
                dir = %self.dir.display(), %start, end = %self.end,
                "the log ends below its start: emptying it"
            );
            self.report.log_start_ahead = true;
            while let Some(segment) = self.segments.pop() {
                self.remove_segment(segment.base).await?;
            }
        }
        while let [first, next, ..] = &self.segments[..]
            && next.base <= start
        {
            tracing::info!(path = %first.path().display(), %start,
                "removing a segment below the log start");
            self.remove_segment(first.base).await?;
            self.segments.remove(0);
            self.report.leftovers_removed += 1;
        }
        if self.segments.is_empty() {
            let segment = Segment::create(&self.dir, start, self.interval_bytes)
                .await
                .map_err(LogError::io("create a segment in", &self.dir))?;
            self.segments.push(segment);
            self.end = start;
            self.names_changed = true;
        }
        Ok(())
    }

    /// Removes the snapshots of no use (ST-10). Those beyond the end must not come back: the offsets
    /// that they describe will be given to other records.
    async fn keep_snapshots(&mut self, mut found: BTreeSet<Offset>) -> Result<(), LogError> {
        let bases = self.segments.iter().map(|segment| segment.base).collect();
        for at in useless(&found, &bases, self.end) {
            let path = snapshot_path(&self.dir, at);
            tracing::info!(path = %path.display(), "removing a snapshot that belongs to nothing");
            self.remove_file(&path).await?;
            self.report.leftovers_removed += 1;
            found.remove(&at);
        }
        self.report.snapshots = found.into_iter().rev().collect();
        Ok(())
    }

    async fn finish(
        mut self,
        options: LogOptions,
        topic_id: Option<TopicId>,
        stored_epochs: Option<Vec<EpochEntry>>,
        opening: Opening,
    ) -> Result<(State, RecoveryReport), LogError> {
        if self.names_changed {
            fs::sync_dir(&self.dir)
                .await
                .map_err(LogError::io("sync", &self.dir))?;
        }
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
        let marked = match self.recovery_point {
            // Their files are as they should be.
            None => Some(self.end),
            Some(_) => opening.written.filter(|_| self.report.bytes_trusted > 0),
        };
        if let Some(end) = marked {
            let (segment, bytes) = (state.active().base, state.active().size.get());
            state.mark = Mark::at(end.min(self.end), segment, bytes);
        }
        state.dirty_since = (state.durable_end < state.written_end).then(time::now);
        if self.recovery_point.is_some() {
            // What was above the recovery point may be in the page cache only.
            state.names = Names::DirectoryUnsynced;
            state.active().synced.set(0);
        }
        Ok((state, self.report))
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
