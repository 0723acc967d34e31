//! One log directory: its lock, its identity, how it was stopped, its checkpoints and partitions.

mod bound;
mod contents;
mod identity;

pub use bound::BoundOffsets;
pub use contents::{FutureDir, PartitionDir, set_partition_aside};
pub use identity::{FormatPolicy, Formatted, LogDirError, OpenPolicy, format_log_dir};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use thalweg_reactor::fs::{self, DirLock};
use thalweg_types::{Offset, TopicId, TopicPartition, Uuid};

use crate::checkpoint::{PartitionOffsets, format_partition_offsets};
use crate::condemned::{self, Trace};
use crate::error::LogError;
use crate::health::DirHealth;
use crate::meta_properties::MetaProperties;
use crate::name::PartitionName;
use crate::options::{Gaps, Opening, Recovery, Unwritten};
use crate::page_cache::PageCache;
use crate::recovery_points::{self, RecoveryPoints};
use crate::written::Marks;
use identity::{give_identity, is_of_empty, load_meta, lock, look, read_meta};

pub(crate) const META_PROPERTIES: &str = "meta.properties";
pub(crate) const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
/// In the marker of a directory that no broker has used yet.
const NO_BROKER_EPOCH: i64 = -1;
/// Larger files of the root directory are not read.
const ROOT_FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

async fn write_clean_marker(path: &Path, broker_epoch: i64) -> io::Result<()> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    fs::write_file_atomically(&path.join(CLEAN_MARKER), Bytes::from(text)).await
}

/// How a log directory was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryState {
    /// It was formatted just now.
    New,
    /// Its clean marker was there ([`LogDir::begin`] takes it away, ST-6).
    Clean {
        /// The broker epoch in the marker (ST-7).
        broker_epoch: Option<i64>,
    },
    /// It had none.
    Unclean,
}

/// One of Kafka's checkpoints in the root of a log directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    /// Everything below is on the disk.
    RecoveryPoint,
    /// First offset that is served.
    LogStart,
    /// High watermarks.
    HighWatermark,
    /// Partitions that were found damaged after a clean stop, with their recovery points: nothing has
    /// been written to them since, so that what the clean stop said of them holds over further starts.
    FoundDamaged,
    /// Partitions that were found damaged after a kill, with their recovery points or, where these are higher, their marks:
    /// they had all that was written to them, and nothing has been since. So no later start takes the damage for a torn
    /// tail, or a log that ends below for whole.
    DamagedAfterKill,
    /// Partitions that the last life did not open, with their recovery points, and therefore not close: they
    /// are as they were after the crash before it, whatever the clean marker says of the others.
    Unopened,
    /// Partitions of which an operator has accepted that records are missing in between.
    AcceptedGaps,
    /// Everything below was compacted, by us or by Kafka: so gaps are no damage.
    Cleaner,
    /// Where the metadata log ended when the last start had written its leader epochs there, until it served anybody.
    EpochsUnseen,
}

impl Checkpoint {
    /// Its file name.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            Checkpoint::LogStart => "log-start-offset-checkpoint",
            Checkpoint::HighWatermark => "replication-offset-checkpoint",
            Checkpoint::FoundDamaged => "thalweg-found-damaged-checkpoint",
            Checkpoint::DamagedAfterKill => "thalweg-damaged-after-kill-checkpoint",
            Checkpoint::Unopened => "thalweg-unopened-checkpoint",
            Checkpoint::AcceptedGaps => "thalweg-accepted-gaps-checkpoint",
            Checkpoint::Cleaner => "cleaner-offset-checkpoint",
            Checkpoint::EpochsUnseen => "thalweg-epochs-unseen-checkpoint",
        }
    }
}

/// Outcome of [`LogDir::mark_clean`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CleanMark {
    /// The next start needs no recovery.
    Written,
    /// These partitions were not closed well, so the next start recovers (ST-8).
    Withheld(Vec<PartitionName>),
}

/// An open log directory. It is locked until this is dropped.
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
    _lock: DirLock,
    meta: MetaProperties,
    state: DirectoryState,
    recovery_points: BoundOffsets,
    log_starts: BoundOffsets,
    /// Logs have to begin there.
    starts_kept: bool,
    /// That is not so any more, durably, and does not depend on what an earlier life has left in the page cache.
    starts_let_go: AtomicBool,
    high_watermarks: BoundOffsets,
    known_points: Option<RecoveryPoints>,
    found_damaged: BoundOffsets,
    damaged_after_kill: BoundOffsets,
    unopened: BoundOffsets,
    accepted_gaps: BoundOffsets,
    cleaner: BoundOffsets,
    epochs_unseen: BoundOffsets,
    marks: Marks,
    page_cache: PageCache,
    health: Arc<DirHealth>,
}

impl LogDir {
    /// Locks the directory, checks or gives its identity, and reads how it was left and its checkpoints. A
    /// checkpoint that is missing or can not be read counts as empty (R5). Before anything is written
    /// there comes [`LogDir::begin`].
    ///
    /// # Errors
    /// [`LogDirError`]. Nothing is changed in a directory that is refused.
    pub async fn open(path: &Path, policy: OpenPolicy) -> Result<LogDir, LogDirError> {
        let io = |source| LogDirError::Io {
            path: path.to_owned(),
            source,
        };
        let empty = look(path, &policy).await?;
        let lock = lock(path)?;
        let (meta, state) = match &policy.format {
            FormatPolicy::WhenEmpty {
                cluster_id,
                directory_id,
            } if empty => {
                let meta = give_identity(path, policy.node_id, cluster_id, *directory_id).await?;
                (meta, DirectoryState::New)
            }
            FormatPolicy::WhenEmpty { .. } | FormatPolicy::Never => {
                let meta = load_meta(path, &policy).await?;
                (meta, read_clean_marker(path).await.map_err(io)?)
            }
        };
        let (trace, of_kill) = read_of_kill(path).await.map_err(io)?;
        let state = match trace {
            Trace::None => state,
            // A stop of a life in which the disk failed is not believed.
            Trace::Heeded => DirectoryState::Unclean,
        };
        LogDir::load(path, lock, (meta, state), of_kill)
            .await
            .map_err(io)
    }

    /// True when the directory is missing or empty: there is nothing that a formatting could hide.
    ///
    /// # Errors
    /// It can not be read.
    pub async fn is_blank(path: &Path) -> io::Result<bool> {
        match fs::list_dir(path).await {
            Ok(entries) => Ok(!entries.iter().any(|entry| !is_of_empty(entry))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Locks a directory that no broker uses, to look at it: whoever's it is, and with its clean marker left
    /// in place.
    ///
    /// # Errors
    /// [`LogDirError`].
    pub async fn examine(path: &Path) -> Result<LogDir, LogDirError> {
        let io = |source| LogDirError::Io {
            path: path.to_owned(),
            source,
        };
        let meta = read_meta(path).await?;
        let lock = lock(path)?;
        // What a failed fsync left in memory alone is not there for a repair either; `begin` takes the trace away.
        let (_, of_kill) = read_of_kill(path).await.map_err(io)?;
        let marker = path.join(CLEAN_MARKER);
        let state = match fs::exists(&marker).await.map_err(io)? {
            true => DirectoryState::Clean { broker_epoch: None },
            false => DirectoryState::Unclean,
        };
        LogDir::load(path, lock, (meta, state), of_kill)
            .await
            .map_err(io)
    }

    async fn load(
        path: &Path,
        lock: DirLock,
        (meta, state): (MetaProperties, DirectoryState),
        (marks, page_cache): (Marks, PageCache),
    ) -> io::Result<LogDir> {
        Ok(LogDir {
            path: path.to_owned(),
            _lock: lock,
            meta,
            state,
            recovery_points: bound::load(path, Checkpoint::RecoveryPoint).await?,
            log_starts: bound::load(path, Checkpoint::LogStart).await?,
            starts_kept: fs::exists(&path.join(bound::STARTS_KEPT)).await?,
            starts_let_go: AtomicBool::new(false),
            high_watermarks: bound::load(path, Checkpoint::HighWatermark).await?,
            known_points: recovery_points::load(path).await?,
            found_damaged: bound::load(path, Checkpoint::FoundDamaged).await?,
            damaged_after_kill: bound::load(path, Checkpoint::DamagedAfterKill).await?,
            unopened: bound::load(path, Checkpoint::Unopened).await?,
            accepted_gaps: bound::load(path, Checkpoint::AcceptedGaps).await?,
            cleaner: bound::load(path, Checkpoint::Cleaner).await?,
            epochs_unseen: bound::load(path, Checkpoint::EpochsUnseen).await?,
            marks,
            page_cache,
            health: DirHealth::watching(path)?,
        })
    }

    /// Takes the clean marker away, durably: from here on a crash is an unclean stop (R4, ST-6). Marks that are
    /// not believed go, too; the others hold until [`LogDir::write_marks`] replaces them, which is due when all
    /// logs are open.
    /// To be called when everything that may refuse a start was looked at, and before anything is written
    /// to a log: a start that is refused before leaves the directory as it was.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn begin(&self) -> Result<(), LogError> {
        take_clean_marker(&self.path)
            .await
            .map_err(LogError::io("take the clean marker of", &self.path))?;
        if !self.marks.hold() {
            self.forget_marks().await?;
        }
        let not_open = self
            .was_clean()
            .then(|| self.unopened.offsets().keys().cloned());
        self.page_cache
            .begin(not_open)
            .await
            .map_err(LogError::io("begin a life in", &self.path))?;
        condemned::take_trace_away(&self.path)
            .await
            .map_err(LogError::io("take the trace of a failure of", &self.path))
    }

    /// All logs are open but `not_open`: from here on a kill leaves the others as they were written, so that what
    /// the next start on this boot finds missing in them is damage. Not durable. To be called before
    /// any of them is written to.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn record_whole(
        &self,
        not_open: &BTreeMap<PartitionName, TopicId>,
    ) -> Result<(), LogError> {
        let recorded = self.page_cache.record(not_open).await;
        self.judged(recorded.map_err(LogError::io("record the logs of", &self.path)))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it works. To be given to every log in it by [`crate::LogOptions::health`].
    #[must_use]
    pub fn health(&self) -> &Arc<DirHealth> {
        &self.health
    }

    fn judged<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Io { path, source, .. }) = &result {
            self.health.judge(path, source);
        }
        result
    }

    /// The file that says whose it is.
    #[must_use]
    pub fn meta_file(&self) -> PathBuf {
        self.path.join(META_PROPERTIES)
    }

    /// Whose it is.
    #[must_use]
    pub fn meta(&self) -> &MetaProperties {
        &self.meta
    }

    /// How it was left.
    #[must_use]
    pub fn state(&self) -> DirectoryState {
        self.state
    }

    /// True when nothing needs recovery.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        match self.state {
            DirectoryState::New | DirectoryState::Clean { .. } => true,
            DirectoryState::Unclean => false,
        }
    }

    /// A checkpoint as it was read at [`LogDir::open`].
    #[must_use]
    pub fn loaded(&self, checkpoint: Checkpoint) -> &PartitionOffsets {
        self.bound(checkpoint).offsets()
    }

    /// As [`LogDir::loaded`], with the topics that the entries are of.
    #[must_use]
    pub fn bound(&self, checkpoint: Checkpoint) -> &BoundOffsets {
        match checkpoint {
            Checkpoint::RecoveryPoint => &self.recovery_points,
            Checkpoint::LogStart => &self.log_starts,
            Checkpoint::HighWatermark => &self.high_watermarks,
            Checkpoint::FoundDamaged => &self.found_damaged,
            Checkpoint::DamagedAfterKill => &self.damaged_after_kill,
            Checkpoint::Unopened => &self.unopened,
            Checkpoint::AcceptedGaps => &self.accepted_gaps,
            Checkpoint::Cleaner => &self.cleaner,
            Checkpoint::EpochsUnseen => &self.epochs_unseen,
        }
    }

    /// The recovery points that name topics by their ids; `None` when there are none: Kafka had the
    /// directory, or a Thalweg that did not write them.
    #[must_use]
    pub fn known_points(&self) -> Option<&RecoveryPoints> {
        self.known_points.as_ref()
    }

    /// What is known of a partition of the topic with this id before its log is opened.
    #[must_use]
    pub fn opening(&self, name: &PartitionName, topic: TopicId) -> Opening {
        let entry = |checkpoint| self.believed(checkpoint, name, topic);
        let damaged = entry(Checkpoint::FoundDamaged);
        let is_closed = self.was_clean() && !self.unopened.offsets().contains_key(name);
        let recovery_point = self.recovery_point(name, topic);
        let mark = self.marks.found().of(name, topic);
        let (recovery, known_end) = match is_closed || damaged.is_some() {
            true => {
                let end = damaged.or(self.recovery_points.offsets().get(name).copied());
                (Recovery::AfterCleanStop, end)
            }
            false => {
                let recovery_point = recovery_point.unwrap_or_default();
                let recovery = Recovery::AfterCrash { recovery_point };
                // What was written is there, durable or not.
                let written = mark.max(entry(Checkpoint::DamagedAfterKill));
                (recovery, Some(recovery_point).max(written))
            }
        };
        let (cleaned_to, accepted) = (entry(Checkpoint::Cleaner), entry(Checkpoint::AcceptedGaps));
        Opening {
            recovery,
            log_start: entry(Checkpoint::LogStart),
            higher_start: self.log_starts.higher_of(name, topic),
            kept_from: self
                .log_starts
                .known_of(name, topic)
                .filter(|_| self.starts_kept && self.log_starts.higher_of(name, topic).is_none()),
            written: mark,
            known_end,
            gaps: match cleaned_to.or(accepted) {
                Some(_) => Gaps::MayBe,
                None => Gaps::Never,
            },
            compacted_to: (accepted.is_none() && self.is_ours_above(name, topic))
                .then(|| cleaned_to.unwrap_or_default()),
            unwritten: match self.page_cache.is_whole(name, Some(topic))
                || entry(Checkpoint::DamagedAfterKill).is_some()
            {
                true => Unwritten::LastWrite,
                false => Unwritten::AnyBatch,
            },
            cleaned_to,
            high_watermark: self.high_watermark(name, topic),
            epoch_max: None,
        }
    }

    /// High watermarks are written before the recovery points that name topics by their ids, and of the same
    /// partitions: what has none of these is of another topic.
    fn high_watermark(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        let id = id_of(name, topic);
        let known = self.known_points.as_ref();
        let is_of_it = known.is_none_or(|known| known.contains_key(&id));
        let entry = self.high_watermarks.offsets().get(name).copied();
        entry.filter(|_| is_of_it)
    }

    /// As far as Kafka's checkpoint and ours have it: see [`crate::recovery_points`].
    fn recovery_point(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        let by_name = self.recovery_points.offsets().get(name).copied();
        let Some(known) = &self.known_points else {
            return by_name;
        };
        by_name.min(known.get(&id_of(name, topic)).copied())
    }

    /// True when nobody but us has written to the log above its recovery point: both files tell the same one, or none.
    fn is_ours_above(&self, name: &PartitionName, topic: TopicId) -> bool {
        let by_name = self.recovery_points.offsets().get(name);
        let known = self.known_points.as_ref();
        known.is_some_and(|known| known.get(&id_of(name, topic)) == by_name)
    }

    /// Takes a checkpoint away, durably.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn remove_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), LogError> {
        self.remove(checkpoint.file_name()).await
    }

    async fn remove(&self, file: &str) -> Result<(), LogError> {
        match self.unlink(file).await? {
            true => self.sync_names().await,
            false => Ok(()),
        }
    }

    /// False when there was no such file.
    async fn unlink(&self, file: &str) -> Result<bool, LogError> {
        let path = self.path.join(file);
        match fs::unlink(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => self.judged(other.map_err(LogError::io("remove", &path)).map(|()| true)),
        }
    }

    async fn sync_names(&self) -> Result<(), LogError> {
        let synced = fs::sync_dir(&self.path).await;
        self.judged(synced.map_err(LogError::io("sync", &self.path)))
    }

    /// Replaces a checkpoint, durably. `offsets` is all of it: entries of partitions that are not open
    /// are to be carried over from [`LogDir::loaded`]. A recovery point must not be above its log's
    /// durable end.
    ///
    /// # Errors
    /// [`LogError::Io`]; the old content then stays.
    pub async fn write_checkpoint(
        &self,
        checkpoint: Checkpoint,
        offsets: &PartitionOffsets,
    ) -> Result<(), LogError> {
        let text = format_partition_offsets(offsets);
        self.replace(checkpoint.file_name(), text).await
    }

    /// Replaces the recovery points that name topics by their ids, durably. `points` is all of them.
    ///
    /// # Errors
    /// [`LogError::Io`]; the old ones then stay.
    pub async fn write_known_points(&self, points: &RecoveryPoints) -> Result<(), LogError> {
        self.judged(recovery_points::store(&self.path, points).await)
    }

    /// Writes down up to where logs are marked ([`crate::Log::mark`]), not durably. `marks` is all of
    /// them.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start then checks more.
    pub async fn write_marks(&self, marks: &BoundOffsets) -> Result<(), LogError> {
        self.judged(self.marks.write(marks).await)
    }

    /// The marks as they were read at [`LogDir::open`], as far as they hold.
    #[must_use]
    pub fn found_marks(&self) -> &BoundOffsets {
        self.marks.found()
    }

    /// Takes the marks away: the next start checks everything above the recovery points.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn forget_marks(&self) -> Result<(), LogError> {
        self.marks
            .take_away()
            .await
            .map_err(LogError::io("take the marks of", &self.path))
    }

    /// Gives a directory that has no id one, as those formatted before Kafka 3.7 have none.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn give_id(&mut self, id: Uuid) -> Result<(), LogError> {
        let meta = MetaProperties {
            directory_id: Some(id),
            ..self.meta.clone()
        };
        let file = self.meta_file();
        let written = fs::write_file_atomically(&file, Bytes::from(meta.to_text())).await;
        self.judged(written.map_err(LogError::io("write", &file)))?;
        self.meta = meta;
        Ok(())
    }

    /// Writes the clean marker if `closed`, the partitions whose [`crate::Log::close`] came back
    /// well, are all there are (ST-8). The last thing to do before the process ends.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start then recovers.
    pub async fn mark_clean(
        &self,
        broker_epoch: i64,
        closed: &BTreeSet<PartitionName>,
    ) -> Result<CleanMark, LogError> {
        let mut open = self.partition_names().await?;
        open.retain(|name| !closed.contains(name));
        if !open.is_empty() {
            return Ok(CleanMark::Withheld(open));
        }
        let written = write_clean_marker(&self.path, broker_epoch).await;
        self.judged(written.map_err(LogError::io("write", &self.path.join(CLEAN_MARKER))))?;
        Ok(CleanMark::Written)
    }
}

fn id_of(name: &PartitionName, topic: TopicId) -> TopicPartition {
    TopicPartition {
        topic,
        partition: name.partition,
    }
}

/// What the last life had in the page cache: worthless after one in which the disk failed.
async fn read_of_kill(path: &Path) -> io::Result<(Trace, (Marks, PageCache))> {
    let marks = Marks::read(path).await?;
    let page_cache = PageCache::read(path).await?;
    let trace = condemned::heed_trace(path).await?;
    let believed = match trace {
        Trace::None => (marks, page_cache),
        Trace::Heeded => (marks.believing_none(), page_cache.doubting_all()),
    };
    Ok((trace, believed))
}

async fn read_clean_marker(path: &Path) -> io::Result<DirectoryState> {
    match fs::read_file(&path.join(CLEAN_MARKER), ROOT_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DirectoryState::Unclean),
        other => Ok(DirectoryState::Clean {
            broker_epoch: broker_epoch_in(&other?),
        }),
    }
}

async fn take_clean_marker(path: &Path) -> io::Result<()> {
    match fs::unlink(&path.join(CLEAN_MARKER)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => {
            other?;
            fs::sync_dir(path).await
        }
    }
}

/// The number after `"brokerEpoch":` in `{"version":0,"brokerEpoch":N}`.
pub(crate) fn broker_epoch_in(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("\"brokerEpoch\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let digits = rest
        .find(|c: char| c != '-' && !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..digits].parse().ok()
}
