//! Moving a log to another log directory of the broker (KIP-113).
//!
//! A *future* folder, `<topic>-<partition>.<hex>-future`, follows the log file by file ([`FutureLog::step`]):
//! batches as they are written, the other files of a segment once it is closed and on the disk. What retention
//! and compaction do to the log, the copy does after them. When little is missing, its owner holds appends back,
//! has the rest copied ([`FutureLog::complete`]) and gives the folder the place of the log
//! ([`FutureLog::take_place`]): `place` says how a crash in between is decided.
//!
//! A start goes on with a future folder ([`FutureLog::resume`]): a closed segment whose copy has its length and
//! its time is not copied again.

mod place;

pub(crate) use place::{LEAVING, stay};
pub use place::{Rightful, is_leaving, rightful};

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::limits::MOVE_SLICE_BYTES;
use thalweg_types::{Offset, TopicId};

use crate::error::{LogError, ReadError, may_pass};
use crate::health::DirHealth;
use crate::log::{Log, LogSink};
use crate::name::{PartitionName, log_path, snapshot_path};
use crate::next_segment;
use crate::options::{Gaps, LogOptions, Opening, Recovery, Unwritten};
use crate::partition_files::{self, LEADER_EPOCHS, PARTITION_METADATA};
use crate::quarantine::QUARANTINE;
use crate::recovery::RecoveryReport;
use crate::removal::files_of;
use crate::segment::Segment;

/// Larger index files and snapshots are not copied but refused; Kafka's bound of an index is below.
const SMALL_FILE_BYTES_MAX: usize = i32::MAX as usize;

/// A log can not be moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// One of the two log directories refused an operation.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log can not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of the log was replaced while it was copied: look again.
    #[error("the log changed meanwhile")]
    Changed,
    /// The copy is not what the log is.
    #[error("the copy in {} ends at {copy} with {copy_bytes} bytes, the log at {log} with {log_bytes}", dir.display())]
    Differs {
        /// The folder of the copy.
        dir: PathBuf,
        /// Its end.
        copy: Offset,
        /// Its bytes.
        copy_bytes: u64,
        /// The log's end.
        log: Offset,
        /// The log's bytes.
        log_bytes: u64,
    },
}

impl MoveError {
    /// True when it may go well a little later: something was lacking, or has changed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            MoveError::Log(error) => error.may_pass(),
            MoveError::Read(ReadError::Io { source, .. }) => may_pass(source),
            MoveError::Changed | MoveError::Read(ReadError::Replaced) => true,
            MoveError::Read(_) | MoveError::Differs { .. } => false,
        }
    }
}

/// Whether what a folder already has can be what the log has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A closed segment of the same length and time is the same: the log is not compacted.
    Believed,
    /// Everything is copied anew.
    Ignored,
}

/// A copy of one segment.
struct Copied {
    of: Rc<Segment>,
    bytes: u64,
    /// Closed, on the disk, with its indexes.
    is_whole: bool,
}

/// The files between which bytes go at the moment.
struct Between {
    base: Offset,
    from: File,
    to: File,
}

/// A copy of a log in another log directory, which is to take its place.
pub struct FutureLog {
    name: PartitionName,
    health: Arc<DirHealth>,
    /// Where it is now.
    dir: PathBuf,
    /// Where it was made.
    future: PathBuf,
    copied: BTreeMap<Offset, Copied>,
    /// A former life of the broker may have left files that are not told here.
    is_resumed: bool,
    /// Closed segments that were there when this life found the folder: their lengths and times.
    found: BTreeMap<Offset, (u64, i64)>,
    between: Option<Between>,
    reached: Offset,
}

impl FutureLog {
    /// Makes the folder, durably, in the log directory of `health`. `unique` is in its name.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn create(
        health: &Arc<DirHealth>,
        name: PartitionName,
        topic_id: TopicId,
        unique: TopicId,
    ) -> Result<FutureLog, LogError> {
        let dir = health.path().join(name.future(unique));
        let made = make(&dir, health.path(), topic_id).await;
        if let Err(LogError::Io { path, source, .. }) = &made {
            health.judge(path, source);
        }
        made?;
        failpoint::pass("move: future made");
        Ok(FutureLog::of(health, name, dir))
    }

    /// Goes on with a folder that a former life of the broker has left.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn resume(
        health: &Arc<DirHealth>,
        name: PartitionName,
        folder: &str,
        found: Found,
    ) -> Result<FutureLog, LogError> {
        let mut future = FutureLog::of(health, name, health.path().join(folder));
        future.is_resumed = true;
        if found == Found::Believed {
            let listed = fs::list_dir(&future.dir).await;
            for entry in listed.map_err(LogError::io("list", &future.dir))? {
                let base = entry.name.to_str().and_then(crate::name::base_of_log);
                if let Some(base) = base {
                    let path = future.dir.join(&entry.name);
                    let meta = fs::metadata(&path).await;
                    let meta = meta.map_err(LogError::io("stat", &path))?;
                    let found = (meta.len, meta.modified_ms);
                    future.found.insert(base, found);
                }
            }
        }
        Ok(future)
    }

    fn of(health: &Arc<DirHealth>, name: PartitionName, dir: PathBuf) -> FutureLog {
        FutureLog {
            name,
            health: Arc::clone(health),
            future: dir.clone(),
            dir,
            copied: BTreeMap::new(),
            is_resumed: false,
            found: BTreeMap::new(),
            between: None,
            reached: Offset::ZERO,
        }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything of the log below is in the copy.
    #[must_use]
    pub fn reached(&self) -> Offset {
        self.reached
    }

    /// Bytes of batches in the copy.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.copied.values().map(|copied| copied.bytes).sum()
    }

    /// Copies the next bytes that are missing, [`MOVE_SLICE_BYTES`] at most, and says how many; 0 when nothing is
    /// missing.
    ///
    /// # Errors
    /// See [`MoveError`]; the log is as it was.
    pub async fn step(&mut self, log: &Log) -> Result<u64, MoveError> {
        let stepped = self.try_step(log).await;
        self.judged(stepped)
    }

    async fn try_step(&mut self, log: &Log) -> Result<u64, MoveError> {
        let (segments, written_end) = {
            let state = log.inner.state.borrow();
            state.check_readable()?;
            (state.segments.clone(), state.written_end)
        };
        self.forget_replaced(&segments).await?;
        let closed = segments.len().saturating_sub(1);
        for (index, segment) in segments.iter().enumerate() {
            let is_closed = index < closed;
            let size = segment.size.get();
            if !self.copied.contains_key(&segment.base) {
                self.begin(segment, is_closed).await?;
            }
            let copied = &self.copied[&segment.base];
            if copied.is_whole {
                continue;
            }
            if copied.bytes < size {
                self.reached = segment.base.max(self.reached);
                let wanted = (size - copied.bytes).min(MOVE_SLICE_BYTES);
                return self.copy(segment, wanted).await;
            }
            if is_closed && segment.is_synced() && segment.indexes_saved.get() {
                self.close(log.dir(), segment).await?;
            }
        }
        self.reached = written_end;
        Ok(0)
    }

    /// Copies of segments that the log has not, or not any more.
    async fn forget_replaced(&mut self, segments: &[Rc<Segment>]) -> Result<(), LogError> {
        let is_there = |base: &Offset, copied: &Copied| {
            let found = segments.binary_search_by_key(base, |segment| segment.base);
            found.is_ok_and(|at| Rc::ptr_eq(&segments[at], &copied.of))
        };
        let gone: Vec<Offset> = self
            .copied
            .iter()
            .filter(|(base, copied)| !is_there(base, copied))
            .map(|(base, _)| *base)
            .collect();
        for base in gone {
            self.copied.remove(&base);
            self.between.take_if(|between| between.base == base);
            self.remove_files(base).await?;
        }
        Ok(())
    }

    async fn remove_files(&self, base: Offset) -> Result<(), LogError> {
        for path in files_of(&self.dir, base) {
            remove(&path).await?;
        }
        Ok(())
    }

    async fn begin(&mut self, segment: &Rc<Segment>, is_closed: bool) -> Result<(), MoveError> {
        let base = segment.base;
        let size = segment.size.get();
        let is_whole = match self.found.remove(&base) {
            Some((bytes, modified_ms)) if is_closed && bytes == size => {
                let path = segment.path();
                let meta = fs::metadata(&path).await;
                let meta = meta.map_err(|error| gone_or(error, &path))?;
                meta.modified_ms == modified_ms
            }
            Some(_) | None => false,
        };
        if !is_whole && self.is_resumed {
            self.remove_files(base).await?;
        }
        let copied = Copied {
            of: Rc::clone(segment),
            bytes: if is_whole { size } else { 0 },
            is_whole,
        };
        self.copied.insert(base, copied);
        Ok(())
    }

    async fn copy(&mut self, segment: &Rc<Segment>, wanted: u64) -> Result<u64, MoveError> {
        let base = segment.base;
        let at = self.copied.get(&base).map_or(0, |copied| copied.bytes);
        let (from, to) = self.between(segment).await?;
        let bytes = fs::read_at(&from, at, usize::try_from(wanted).unwrap_or(usize::MAX)).await;
        let bytes = bytes.map_err(LogError::io("read", from.path()))?;
        let read = bytes.len() as u64;
        if read < wanted {
            // What the log says is written is not there.
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(LogError::io("read", from.path())(short).into());
        }
        let written = fs::write_at(&to, vec![bytes.freeze()], at).await;
        written.map_err(LogError::io("write", to.path()))?;
        failpoint::pass("move: slice copied");
        match self.copied.get_mut(&base) {
            Some(copied) => copied.bytes += read,
            None => return Err(MoveError::Changed),
        }
        Ok(read)
    }

    async fn between(&mut self, segment: &Rc<Segment>) -> Result<(File, File), MoveError> {
        if let Some(between) = self.between.as_ref().filter(|b| b.base == segment.base) {
            return Ok((between.from.clone(), between.to.clone()));
        }
        let path = segment.path();
        let from = match segment.warm_now() {
            Some(warm) => warm.file,
            None => {
                let opened = fs::open(&path, OpenMode::Read).await;
                opened.map_err(|error| gone_or(error, &path))?
            }
        };
        let path = log_path(&self.dir, segment.base);
        let opened = fs::open(&path, OpenMode::Create).await;
        let to = opened.map_err(LogError::io("open", &path))?;
        self.between = Some(Between {
            base: segment.base,
            from: from.clone(),
            to: to.clone(),
        });
        Ok((from, to))
    }

    /// Makes the copy of a closed segment whole: on the disk, with its other files, and last with its time.
    async fn close(&mut self, from: &Path, segment: &Rc<Segment>) -> Result<(), MoveError> {
        self.copy_beside(from, segment).await?;
        let path = segment.path();
        let meta = fs::metadata(&path).await;
        let meta = meta.map_err(|error| gone_or(error, &path))?;
        let file = self.sync(segment.base).await?;
        fs::set_modified(&file, meta.modified_ms)
            .await
            .map_err(LogError::io("set the time of", file.path()))?;
        failpoint::pass("move: segment closed");
        if let Some(copied) = self.copied.get_mut(&segment.base) {
            copied.is_whole = true;
        }
        self.between.take_if(|between| between.base == segment.base);
        Ok(())
    }

    /// The indexes of a segment, and the snapshot where it begins.
    async fn copy_beside(&self, from: &Path, segment: &Segment) -> Result<(), MoveError> {
        let base = segment.base;
        let sources = files_of(from, base).into_iter().skip(1);
        let targets = files_of(&self.dir, base).into_iter().skip(1);
        // The last of them is the index of aborted transactions, which most have not.
        let indexes = if segment.aborted.borrow().is_empty() {
            2
        } else {
            3
        };
        for (source, target) in sources.zip(targets).take(indexes) {
            copy_file(&source, &target).await?;
        }
        copy_file(&snapshot_path(from, base), &snapshot_path(&self.dir, base)).await?;
        Ok(())
    }

    async fn sync(&self, base: Offset) -> Result<File, LogError> {
        let path = log_path(&self.dir, base);
        let file = match self.between.as_ref().filter(|b| b.base == base) {
            Some(between) => between.to.clone(),
            // An empty segment has no file in the copy yet.
            None => fs::open(&path, OpenMode::Create)
                .await
                .map_err(LogError::io("open", &path))?,
        };
        let synced = fs::sync_data(&file).await;
        if let Err(error) = &synced {
            self.health.judge_sync(&path, error);
        }
        synced.map_err(LogError::io("fdatasync", &path))?;
        Ok(file)
    }

    /// Copies what is left, and makes all of the copy durable. Nothing may be appended to the log meanwhile.
    ///
    /// # Errors
    /// See [`MoveError`]; [`MoveError::Changed`] when compaction or retention came in between.
    pub async fn complete(&mut self, log: &Log) -> Result<(), MoveError> {
        let completed = self.try_complete(log).await;
        self.judged(completed)
    }

    async fn try_complete(&mut self, log: &Log) -> Result<(), MoveError> {
        next_segment::settled(&log.inner).await;
        while self.try_step(log).await? > 0 {}
        let segments = log.inner.state.borrow().segments.clone();
        for segment in &segments {
            let copied = self.copied.get(&segment.base);
            if copied.is_some_and(|copied| !copied.is_whole) {
                self.copy_beside(log.dir(), segment).await?;
                self.sync(segment.base).await?;
            }
        }
        self.copy_small_files(log.dir(), &segments).await?;
        failpoint::pass("move: all copied");
        let synced = fs::sync_dir(&self.dir).await;
        if let Err(error) = &synced {
            self.health.judge_sync(&self.dir, error);
        }
        synced.map_err(LogError::io("sync", &self.dir))?;
        match self.is_copy_of(log) {
            true => Ok(()),
            false => Err(MoveError::Changed),
        }
    }

    /// Epochs, quarantine and snapshots; what else is in the folder goes.
    async fn copy_small_files(
        &self,
        from: &Path,
        segments: &[Rc<Segment>],
    ) -> Result<(), MoveError> {
        let listed = fs::list_dir(from).await;
        let listed = listed.map_err(LogError::io("list", from))?;
        let is_snapshot = |name: &str| name.ends_with(".snapshot");
        let is_wanted =
            |name: &str| is_snapshot(name) || [LEADER_EPOCHS, QUARANTINE].contains(&name);
        let names = listed.iter().filter_map(|entry| entry.name.to_str());
        let wanted: Vec<&str> = names.filter(|name| is_wanted(name)).collect();
        for name in &wanted {
            let to = self.dir.join(name);
            let is_there = is_snapshot(name)
                && fs::exists(&to)
                    .await
                    .map_err(LogError::io("look for", &to))?;
            if !is_there {
                copy_file(&from.join(name), &to).await?;
            }
        }
        let of_segments = segments
            .iter()
            .flat_map(|segment| files_of(&self.dir, segment.base));
        let mut kept: Vec<PathBuf> = of_segments.collect();
        kept.extend(wanted.iter().map(|name| self.dir.join(name)));
        kept.push(self.dir.join(PARTITION_METADATA));
        let listed = fs::list_dir(&self.dir).await;
        for entry in listed.map_err(LogError::io("list", &self.dir))? {
            let path = self.dir.join(&entry.name);
            if !kept.contains(&path) {
                remove(&path).await?;
            }
        }
        Ok(())
    }

    /// Bytes that the log has and the copy lacks.
    #[must_use]
    pub fn missing_bytes(&self, log: &Log) -> u64 {
        log.size_bytes().saturating_sub(self.size_bytes())
    }

    /// Bytes of closed segments whose copies are not made durable yet.
    #[must_use]
    pub fn unclosed_bytes(&self, log: &Log) -> u64 {
        let state = log.inner.state.borrow();
        let closed = state.segments.len().saturating_sub(1);
        let is_whole = |segment: &&Rc<Segment>| {
            let copied = self.copied.get(&segment.base);
            copied.is_some_and(|copied| copied.is_whole && Rc::ptr_eq(segment, &copied.of))
        };
        let unclosed = state.segments[..closed].iter();
        let unclosed = unclosed.filter(|segment| !is_whole(segment));
        unclosed.map(|segment| segment.size.get()).sum()
    }

    fn is_copy_of(&self, log: &Log) -> bool {
        let state = log.inner.state.borrow();
        let is_same = |segment: &Rc<Segment>| {
            let copied = self.copied.get(&segment.base);
            copied.is_some_and(|copied| {
                Rc::ptr_eq(segment, &copied.of) && copied.bytes == segment.size.get()
            })
        };
        state.segments.len() == self.copied.len() && state.segments.iter().all(is_same)
    }

    /// Removes the folder: nothing is to be moved any more.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start finds what is left of it.
    pub async fn remove(self) -> Result<(), LogError> {
        remove_folder(&self.dir).await
    }

    /// Removes a folder that no move goes on with.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn remove_found(parent: &Path, folder: &str) -> Result<(), LogError> {
        remove_folder(&parent.join(folder)).await
    }

    /// A failure of the disk condemns the log directory that the copy is in, if it happened there.
    fn judged<T>(&self, result: Result<T, MoveError>) -> Result<T, MoveError> {
        if let Err(MoveError::Log(LogError::Io { path, source, .. })) = &result
            && path.starts_with(self.health.path())
        {
            self.health.judge(path, source);
        }
        result
    }
}

async fn make(dir: &Path, parent: &Path, topic_id: TopicId) -> Result<(), LogError> {
    fs::create_dir(dir)
        .await
        .map_err(LogError::io("create", dir))?;
    partition_files::store_topic_id(dir, topic_id).await?;
    fs::sync_dir(parent)
        .await
        .map_err(LogError::io("sync", parent))
}

async fn remove_folder(dir: &Path) -> Result<(), LogError> {
    match fs::remove_dir_all(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(LogError::io("remove", dir)),
    }
}

async fn remove(path: &Path) -> Result<(), LogError> {
    match fs::unlink(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(LogError::io("remove", path)),
    }
}

/// A file of a segment that is not there was removed or replaced meanwhile.
fn gone_or(error: io::Error, path: &Path) -> MoveError {
    match error.kind() {
        io::ErrorKind::NotFound => MoveError::Changed,
        _other => MoveError::Log(LogError::io("open", path)(error)),
    }
}

/// Copies a whole small file, durably. One that is not there is left out.
async fn copy_file(from: &Path, to: &Path) -> Result<(), LogError> {
    let content = match fs::read_file(from, SMALL_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(LogError::io("read", from))?,
    };
    let written = fs::write_file_atomically(to, content).await;
    written.map_err(LogError::io("write", to))
}

impl Log {
    /// Returns when nothing of the log is being written. Its owner holds appends back.
    pub async fn idle(&self) {
        self.inner.idle.until(|| !self.is_writing()).await;
    }

    /// Begins a segment, so that what is copied last is little; returns when that is done and what is closed is
    /// on the disk.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub async fn roll_for_move(&self) -> Result<(), LogError> {
        self.roll_active().await;
        self.flush_in_background().await.map(drop)
    }

    /// The properties that it obeys.
    #[must_use]
    pub fn options(&self) -> LogOptions {
        self.inner.state.borrow().options.clone()
    }

    /// True when the two are one.
    #[must_use]
    pub fn is(&self, other: &Log) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    /// Opens the log in its new place, the log directory of `health`, where [`FutureLog::take_place`] has
    /// brought it; this one is as it was.
    ///
    /// # Errors
    /// See [`MoveError`]; nothing is changed in either place.
    pub async fn open_moved(
        &self,
        health: &Arc<DirHealth>,
        sink: LogSink,
    ) -> Result<(Log, RecoveryReport), MoveError> {
        let (options, opening) = {
            let state = self.inner.state.borrow();
            let mut options = state.options.clone();
            options.health = Arc::clone(health);
            let opening = Opening {
                // Only what was copied last is read again.
                recovery: Recovery::AfterCrash {
                    recovery_point: state.active().base,
                },
                log_start: Some(state.start),
                written: None,
                known_end: None,
                gaps: Gaps::MayBe,
                unwritten: Unwritten::AnyBatch,
                cleaned_to: state.cleaned_to,
                high_watermark: None,
                epoch_max: None,
            };
            (options, opening)
        };
        let name = self.name().clone();
        let (log, report) = Log::open(health.path(), name, options, opening, sink).await?;
        if log.written_end() != self.written_end() || log.size_bytes() != self.size_bytes() {
            return Err(MoveError::Differs {
                dir: log.dir().to_owned(),
                copy: log.written_end(),
                copy_bytes: log.size_bytes(),
                log: self.written_end(),
                log_bytes: self.size_bytes(),
            });
        }
        let owed = self.inner.state.borrow().epochs_owed.clone();
        if let Some(epochs) = owed {
            // Here nobody would know that the file lacks one.
            log.store_epochs(&epochs).await?;
        }
        log.flush_in_background().await?;
        Ok((log, report))
    }
}
