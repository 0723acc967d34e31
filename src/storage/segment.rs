//! One segment: a `.log` file with its two indexes, in one of two states.
//!
//! *Warm*: file handle and indexes are in memory. The active segment is always warm, and a closed one
//! stays so until everything of it is on the disk. *Cold*: neither; the first read warms it again
//! through [`SegmentCache`], which bounds how many closed segments of a shard are warm.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::time;
use thalweg_types::{Offset, TimestampMs};

use crate::aborted::Aborted;
use crate::cache::SegmentCache;
use crate::error::ReadError;
use crate::health::DirHealth;
use crate::index::IndexDamage;
use crate::indexes::{BatchMark, Indexes, MaxTimestamp};
use crate::name::{CleanStep, index_path, log_path, time_index_path, txn_index_path};
use crate::quarantine::DamagedRange;
use crate::scan::{BadBatch, BatchScan, Check, Step};
use crate::told_time;
use crate::turn::Turn;
use crate::unreadable::{unless_unreadable, unreadable};

/// What warming a segment needs of its log.
pub(crate) struct Warming {
    pub(crate) cache: SegmentCache,
    /// Told when a rebuilt index can not be written.
    pub(crate) health: Arc<DirHealth>,
    /// Held while one is written: a log that is deleted waits for it.
    pub(crate) rebuilt_turn: Rc<Turn>,
}

/// What a segment has in memory while it is warm. Clones are cheap and keep it alive.
#[derive(Clone)]
pub(crate) struct Warm {
    pub(crate) file: File,
    pub(crate) indexes: Rc<RefCell<Indexes>>,
}

/// How far a segment is written, to be read by the threads that flush.
#[derive(Debug)]
pub(crate) struct Progress {
    bytes: AtomicU64,
    /// Offset after the last batch that is in `bytes`.
    end: AtomicI64,
    /// How often what a failed write had left was cut off the file.
    cuts: AtomicU64,
}

/// What [`Progress`] said at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Covered {
    pub(crate) bytes: u64,
    pub(crate) end: Offset,
    cuts: u64,
}

impl Progress {
    fn starting(bytes: u64, base: Offset) -> Arc<Progress> {
        Arc::new(Progress {
            bytes: AtomicU64::new(bytes),
            end: AtomicI64::new(base.0),
            cuts: AtomicU64::new(0),
        })
    }

    /// The writes that brought it there have ended.
    fn advance(&self, bytes: u64, end: Offset) {
        self.bytes.store(bytes, Ordering::Release);
        self.end.store(end.0, Ordering::Release);
    }

    /// Each of the two is written; the bytes may be those of later batches than the end.
    pub(crate) fn now(&self) -> Covered {
        let end = Offset(self.end.load(Ordering::Acquire));
        Covered {
            bytes: self.bytes.load(Ordering::Acquire),
            end,
            cuts: self.cuts.load(Ordering::Acquire),
        }
    }
}

/// One segment of a log.
pub(crate) struct Segment {
    pub(crate) base: Offset,
    dir: Rc<Path>,
    pub(crate) interval_bytes: u64,
    created: TimestampMs,
    /// Bytes of whole, written batches. The file may be longer while a write is in flight.
    pub(crate) size: Cell<u64>,
    /// Bytes known to be on the disk.
    pub(crate) synced: Cell<u64>,
    /// Cuts known to be on the disk.
    synced_cuts: Cell<u64>,
    pub(crate) progress: Arc<Progress>,
    /// Up to where zeros are written ahead of the batches; not above the size when there are none.
    pub(crate) zeroed: Cell<u64>,
    /// There was no room for them.
    pub(crate) refuses_zeros: Cell<bool>,
    /// Up to where the disk keeps room for batches, as far as this life asked for it.
    pub(crate) room_to: Cell<u64>,
    /// Both index files are on the disk and say all there is to say, or there is nothing to say.
    pub(crate) indexes_saved: Cell<bool>,
    /// There are no index files, and no batches: an empty segment needs none.
    unindexed: Cell<bool>,
    first_timestamp: Cell<Option<TimestampMs>>,
    /// Known once the segment was warm; stays when it cools.
    max_timestamp: Cell<Option<Option<MaxTimestamp>>>,
    warm: RefCell<Option<Warm>>,
    pub(crate) last_used: Cell<u64>,
    retired: Cell<bool>,
    /// Its files have the names of a swap that is not over.
    is_swap: Cell<bool>,
    /// A read has found that an index lies, and it is being made anew.
    pub(crate) is_reindexing: Cell<bool>,
    /// Transactions aborted here.
    pub(crate) aborted: RefCell<Aborted>,
    /// What is not served, in order.
    pub(crate) damaged: RefCell<Vec<DamagedRange>>,
    /// Somebody met damage here, and how far it reaches is not known.
    pub(crate) is_suspect: Cell<bool>,
    /// When every byte was checked last, in this life.
    pub(crate) looked_at: Cell<Option<Instant>>,
}

impl Segment {
    /// Makes the file of a new, empty segment. The directory is not synced.
    pub(crate) async fn create(
        dir: &Rc<Path>,
        base: Offset,
        interval_bytes: u64,
    ) -> io::Result<Rc<Segment>> {
        let path = log_path(dir, base);
        let file = fs::open(&path, OpenMode::CreateNew).await?;
        Ok(Segment::in_file(file, dir, base, interval_bytes))
    }

    /// A new segment in an empty file.
    pub(crate) fn in_file(
        file: File,
        dir: &Rc<Path>,
        base: Offset,
        interval_bytes: u64,
    ) -> Rc<Segment> {
        let segment = Segment::cold(dir, base, interval_bytes, 0);
        segment.has_no_index_files();
        segment.set_warm(file, Indexes::new(base, interval_bytes));
        segment
    }

    /// A segment on disk whose first `size` bytes are whole batches.
    pub(crate) fn cold(
        dir: &Rc<Path>,
        base: Offset,
        interval_bytes: u64,
        size: u64,
    ) -> Rc<Segment> {
        Rc::new(Segment {
            base,
            dir: Rc::clone(dir),
            interval_bytes,
            created: TimestampMs(time::unix_ms()),
            size: Cell::new(size),
            synced: Cell::new(size),
            synced_cuts: Cell::new(0),
            progress: Progress::starting(size, base),
            zeroed: Cell::new(0),
            refuses_zeros: Cell::new(false),
            room_to: Cell::new(0),
            indexes_saved: Cell::new(true),
            unindexed: Cell::new(false),
            first_timestamp: Cell::new(None),
            max_timestamp: Cell::new(None),
            warm: RefCell::new(None),
            last_used: Cell::new(0),
            retired: Cell::new(false),
            is_swap: Cell::new(false),
            is_reindexing: Cell::new(false),
            aborted: RefCell::new(Aborted::none()),
            damaged: RefCell::default(),
            is_suspect: Cell::new(false),
            looked_at: Cell::new(None),
        })
    }

    /// It is empty, and so far has no index files: none are made before it has batches.
    pub(crate) fn has_no_index_files(&self) {
        self.unindexed.set(true);
    }

    /// Its batches end there, below what the file had: on the disk, too. A flush must not take what lay
    /// behind for written.
    pub(crate) fn cut_to(&self, bytes: u64, end: Offset) {
        self.size.set(bytes);
        self.synced.set(bytes);
        self.progress.advance(bytes, end);
    }

    /// Its file goes on with zeros behind its batches.
    pub(crate) fn has_zeros(&self) -> bool {
        self.zeroed.get() > self.size.get()
    }

    /// Its batches are on the disk and its indexes are not.
    pub(crate) fn lacks_indexes(&self) -> bool {
        self.is_synced() && !self.indexes_saved.get()
    }

    /// The file on the disk has all its batches and nothing else.
    pub(crate) fn is_synced(&self) -> bool {
        let cuts = self.progress.cuts.load(Ordering::Relaxed);
        self.synced.get() >= self.size.get() && self.synced_cuts.get() == cuts
    }

    /// Takes note of an fdatasync; gives the bytes known to be on the disk before.
    pub(crate) fn on_synced(&self, covered: Covered) -> u64 {
        self.synced_cuts.set(covered.cuts);
        self.synced.replace(covered.bytes)
    }

    /// What a failed write had left was cut off the file, and may be on the disk still.
    pub(crate) fn on_cut_off(&self) {
        self.progress.cuts.fetch_add(1, Ordering::Release);
    }

    /// Of its batches.
    pub(crate) fn path(&self) -> PathBuf {
        let path = log_path(&self.dir, self.base);
        match self.is_swap.get() {
            true => CleanStep::Swap.of(&path),
            false => path,
        }
    }

    /// It has taken the place of others, whose names it does not have yet: it stays in memory, and nobody finds its files.
    pub(crate) fn has_no_name_yet(&self) {
        self.is_swap.set(true);
    }

    /// From now on its files have their names.
    pub(crate) fn on_named(&self) {
        self.is_swap.set(false);
        if let Some(warm) = self.warm_now() {
            warm.file.on_renamed(self.path());
        }
    }

    /// False between [`Segment::has_no_name_yet`] and [`Segment::on_named`].
    pub(crate) fn is_named(&self) -> bool {
        !self.is_swap.get()
    }

    /// Whether its indexes have no room for another entry. Those of a segment that is written to are in memory.
    pub(crate) fn has_full_indexes(&self, segment_index_bytes: u32) -> bool {
        let warm = self.warm.borrow();
        let indexes = warm.as_ref().map(|warm| warm.indexes.borrow());
        indexes.is_some_and(|indexes| indexes.is_full(segment_index_bytes))
    }

    /// File and indexes, if in memory.
    pub(crate) fn warm_now(&self) -> Option<Warm> {
        self.warm.borrow().clone()
    }

    pub(crate) fn set_warm(&self, file: File, mut indexes: Indexes) -> Warm {
        indexes.unsaved &= !self.unindexed.get();
        self.max_timestamp.set(Some(indexes.max_timestamp()));
        let aborted_saved = !self.aborted.borrow().is_unsaved();
        self.indexes_saved.set(!indexes.unsaved && aborted_saved);
        let warm = Warm {
            file,
            indexes: Rc::new(RefCell::new(indexes)),
        };
        *self.warm.borrow_mut() = Some(warm.clone());
        warm
    }

    /// Takes indexes that were made of all of its batches in the place of those of `warm`. False when it has
    /// others by now.
    pub(crate) fn replace_indexes(&self, warm: &Warm, anew: Indexes) -> bool {
        let now = self.warm_now();
        let is_same = now.is_some_and(|now| Rc::ptr_eq(&now.indexes, &warm.indexes));
        if is_same && !self.retired.get() {
            self.max_timestamp.set(Some(anew.max_timestamp()));
            self.indexes_saved.set(false);
            *warm.indexes.borrow_mut() = anew;
            return true;
        }
        false
    }

    /// Lets go of the file handle and the indexes, if nothing of them is needed for the disk.
    /// Returns whether the segment is cold now.
    pub(crate) fn cool(&self) -> bool {
        if !self.is_synced() || !self.indexes_saved.get() || self.has_zeros() || !self.is_named() {
            return false;
        }
        *self.warm.borrow_mut() = None;
        true
    }

    /// Lets go of file and indexes whatever was not saved: the log is closed.
    pub(crate) fn drop_memory(&self) {
        *self.warm.borrow_mut() = None;
    }

    /// It is no part of its log any more: nothing of it is written again.
    pub(crate) fn retire(&self) {
        self.take_out();
        self.drop_memory();
    }

    /// As [`Segment::retire`], unless [`Segment::put_back`] follows.
    pub(crate) fn take_out(&self) {
        self.retired.set(true);
    }

    /// It is a part of its log all the same.
    pub(crate) fn put_back(&self) {
        self.retired.set(false);
    }

    /// True after [`Segment::retire`] or [`Segment::take_out`].
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Bytes of the indexes in memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.warm
            .borrow()
            .as_ref()
            .map_or(0, |warm| warm.indexes.borrow().heap_bytes())
    }

    /// File and indexes, from memory or else from the disk.
    pub(crate) async fn warm(self: &Rc<Self>, warming: &Warming) -> Result<Warm, ReadError> {
        let Warming {
            cache,
            health,
            rebuilt_turn,
        } = warming;
        if let Some(warm) = self.warm_now() {
            cache.touch(self);
            return Ok(warm);
        }
        let path = self.path();
        let file = match fs::open(&path, OpenMode::ReadWrite).await {
            Err(_) if self.retired.get() => return Err(ReadError::Replaced),
            opened => opened.map_err(ReadError::io("open", &path))?,
        };
        let loaded = load_indexes(self, &file).await;
        if self.retired.get() {
            // What was opened by that name may be what took its place, or of another log.
            return Err(ReadError::Replaced);
        }
        let loaded = loaded?;
        if let Some(damage) = loaded.damage {
            tracing::warn!(path = %path.display(), %damage, "rebuilt an index from its log");
        }
        if let Some((position, reason)) = loaded.bad {
            return Err(ReadError::Damaged {
                path,
                position,
                offset: loaded.indexes.end(),
                reason,
            });
        }
        // Another task may have warmed the segment meanwhile; its state is as good.
        if let Some(warm) = self.warm_now() {
            return Ok(warm);
        }
        let unsaved = loaded.indexes.unsaved;
        // What is read by this handle is a header here and there, and what is in the page cache already:
        // read-ahead would only push out what others read.
        fs::no_read_ahead(&file);
        let warm = self.set_warm(file, loaded.indexes);
        if unsaved {
            let _turn = rebuilt_turn.take().await;
            if let Err(error) = self.save_indexes().await {
                health.judge(&path, &error);
                tracing::warn!(path = %path.display(), %error, "can not write the rebuilt indexes");
            }
        }
        cache.add(self);
        Ok(warm)
    }

    /// Writes the index files that say too little and makes them durable.
    pub(crate) async fn save_indexes(&self) -> io::Result<()> {
        if self.retired.get() || !self.is_named() {
            return Ok(());
        }
        self.save_aborted().await?;
        let Some(warm) = self.warm_now() else {
            // What it had in memory was saved before it cooled.
            self.indexes_saved.set(true);
            return Ok(());
        };
        let (offsets, times) = {
            let mut indexes = warm.indexes.borrow_mut();
            indexes.complete();
            if !indexes.unsaved {
                self.indexes_saved.set(true);
                return Ok(());
            }
            indexes.unsaved = false;
            (indexes.offsets.encode(), indexes.times.encode())
        };
        let written = write_index_files(&self.dir, self.base, offsets, times).await;
        // An append may have added entries meanwhile: then the files are stale again.
        let mut indexes = warm.indexes.borrow_mut();
        indexes.unsaved |= written.is_err();
        let aborted_saved = !self.aborted.borrow().is_unsaved();
        self.indexes_saved.set(!indexes.unsaved && aborted_saved);
        written
    }

    /// Writes the index of aborted transactions if it says too little, durably.
    pub(crate) async fn save_aborted(&self) -> io::Result<()> {
        if self.retired.get() || !self.is_named() {
            // What has that name is another's.
            return Ok(());
        }
        let Some(bytes) = self.aborted.borrow_mut().take_unsaved() else {
            return Ok(());
        };
        let path = txn_index_path(&self.dir, self.base);
        let written = fs::write_file_atomically(&path, Bytes::from(bytes)).await;
        if written.is_err() {
            self.aborted.borrow_mut().not_saved();
        }
        written
    }

    /// Opens the file again, for a sync beside the flushes. The kernel tells a failed writeback once per
    /// handle (its `errseq_t`): by that of the flushes, a sync beside one could be told of the failure that
    /// the flush asks for, and the flush that all is on the disk.
    pub(crate) async fn open_apart(&self) -> io::Result<File> {
        fs::open(&self.path(), OpenMode::ReadWrite).await
    }

    /// Makes durable what was changed through `file`, beside the flushes: by a handle apart, unless there is
    /// none to be had.
    pub(crate) async fn sync_apart(&self, file: &File) -> io::Result<()> {
        let own = self.open_apart().await;
        fs::sync_in_background(own.as_ref().unwrap_or(file), || ()).await
    }

    /// Takes note of a batch that was written.
    pub(crate) fn on_written(&self, batch: &BatchMark) {
        if batch.position == 0 {
            self.first_timestamp.set(Some(batch.max_timestamp));
        }
        self.size.set(batch.end());
        self.progress
            .advance(batch.end(), batch.last_offset.plus(1));
        if let Some(warm) = &*self.warm.borrow() {
            let mut indexes = warm.indexes.borrow_mut();
            indexes.unsaved |= self.unindexed.take();
            indexes.on_batch(batch);
            self.max_timestamp.set(Some(indexes.max_timestamp()));
            self.indexes_saved.set(false);
        }
    }

    /// Largest timestamp in the segment: outer `None` when it has to be warmed to know.
    pub(crate) fn max_timestamp(&self) -> Option<Option<MaxTimestamp>> {
        self.max_timestamp.get()
    }

    /// Largest timestamp of the first batch, if known.
    pub(crate) fn first_timestamp(&self) -> Option<TimestampMs> {
        self.first_timestamp.get()
    }

    pub(crate) fn set_first_timestamp(&self, timestamp: Option<TimestampMs>) {
        self.first_timestamp.set(timestamp);
    }

    /// How old the segment would be with a further batch of `timestamp`, in ms: by the timestamps of
    /// the records where they have some, so that a jump of the wall clock rolls nothing (RP-100).
    pub(crate) fn age_ms(&self, timestamp: TimestampMs, now: TimestampMs) -> i64 {
        match self.first_timestamp.get() {
            Some(first) if first.0 >= 0 => timestamp.0.saturating_sub(first.0),
            Some(_) | None => now.0.saturating_sub(self.created.0),
        }
    }
}

/// Indexes as they could be had.
pub(crate) struct LoadedIndexes {
    pub(crate) indexes: Indexes,
    /// What was wrong with the files, if they had to be rebuilt.
    pub(crate) damage: Option<IndexDamage>,
    /// Where the log itself is not valid; the indexes cover what lies before it.
    pub(crate) bad: Option<(u64, BadBatch)>,
}

/// Reads both index files, checks them, and walks the batches behind the last entry; rebuilds them
/// from the batch headers if they are missing or wrong (ST-9).
pub(crate) async fn load_indexes(
    segment: &Segment,
    file: &File,
) -> Result<LoadedIndexes, ReadError> {
    let (dir, base, interval_bytes) = (&segment.dir, segment.base, segment.interval_bytes);
    let (path, log_bytes) = (segment.path(), segment.size.get());
    let files = read_index_files(dir, base, log_bytes, interval_bytes).await?;
    let damage = match files {
        Ok(mut indexes) => {
            let bad = walk(file, segment, &mut indexes)
                .await
                .map_err(ReadError::io("read", &path))?;
            let is_wrong = told_time::is_wrong(segment, file, &indexes)
                .await
                .map_err(ReadError::io("read", &path))?;
            match bad {
                None if !indexes.reach_beyond_the_log() && !is_wrong => {
                    return Ok(LoadedIndexes {
                        indexes,
                        damage: None,
                        bad,
                    });
                }
                None if is_wrong => IndexDamage::Contradicted,
                // An index that points into the middle of a batch looks like a bad batch.
                None | Some(_) => IndexDamage::Range(0),
            }
        }
        Err(reason) => reason,
    };
    let mut indexes = Indexes::new(base, interval_bytes);
    let bad = walk(file, segment, &mut indexes)
        .await
        .map_err(ReadError::io("read", &path))?;
    Ok(LoadedIndexes {
        indexes,
        damage: Some(damage),
        bad,
    })
}

pub(crate) async fn read_index_files(
    dir: &Path,
    base: Offset,
    log_bytes: u64,
    interval_bytes: u64,
) -> Result<Result<Indexes, IndexDamage>, ReadError> {
    let mut files = Vec::with_capacity(2);
    for path in [index_path(dir, base), time_index_path(dir, base)] {
        match fs::read_file(&path, INDEX_FILE_BYTES_MAX).await {
            Ok(bytes) => files.push(bytes),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Ok(Err(IndexDamage::Length(INDEX_FILE_BYTES_MAX as u64)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && log_bytes == 0 => {
                files.push(Bytes::new());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(IndexDamage::Missing));
            }
            Err(error) if unreadable(&error).is_some() => return Ok(Err(IndexDamage::Unreadable)),
            Err(source) => {
                return Err(ReadError::Io {
                    operation: "read",
                    path,
                    source,
                });
            }
        }
    }
    Ok(Indexes::from_files(
        base,
        interval_bytes,
        &files[0],
        &files[1],
        log_bytes,
    ))
}

/// Largest index file that is read at all: a larger one is rebuilt.
const INDEX_FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Shows `indexes` every batch from its resume position to the end of the segment.
async fn walk(
    file: &File,
    segment: &Segment,
    indexes: &mut Indexes,
) -> io::Result<Option<(u64, BadBatch)>> {
    let (from, end) = (indexes.resume_position(), segment.size.get());
    let mut scan = BatchScan::new(file.clone(), Check::Headers, segment.base, from, end);
    loop {
        if segment.skip_damage(&mut scan) {
            indexes.on_passed_over(scan.next_offset());
            continue;
        }
        match unless_unreadable(scan.next().await)? {
            Step::Batch(mark, _) => indexes.on_resumed(&mark),
            Step::End => return Ok(None),
            Step::Bad(reason) => return Ok(Some((scan.position(), reason))),
        }
    }
}

/// Replaces both index files, durably: a reader finds the old or the new content.
async fn write_index_files(
    dir: &Path,
    base: Offset,
    offsets: Vec<u8>,
    times: Vec<u8>,
) -> io::Result<()> {
    fs::write_file_atomically(&index_path(dir, base), Bytes::from(offsets)).await?;
    fs::write_file_atomically(&time_index_path(dir, base), Bytes::from(times)).await
}
