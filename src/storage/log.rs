//! One log: its public face, its three ends, and the state that its parts share.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_reactor::fs::{self, Syncer};
use thalweg_reactor::time::Instant;
use thalweg_replica::EpochCache;
use thalweg_types::limits::ACK_FLUSHES_AT_ONCE_MAX;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use crate::compaction::owed::Owed;
use crate::error::{AppendError, LogError, ReadError};
use crate::indexes::MaxTimestamp;
use crate::name::{PartitionName, log_name};
use crate::next_segment::NextSegment;
use crate::options::{LogOptions, Opening};
use crate::partition_files;
use crate::recovery::{self, RecoveryReport};
use crate::recovery_points::MAY_HAVE_HOLES;
use crate::rounds;
use crate::segment::{Segment, Warming};
use crate::tail::Tail;
use crate::timestamp::TimestampHit;
use crate::turn::{Turn, Waiters};
use crate::written::Saved;

/// One batch to append: exactly one, validated, with its offsets and leader epoch assigned.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    /// The batch as it goes to the disk.
    pub bytes: Bytes,
    /// Offset of its first record; not below the log's assigned end.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp; -1 when it has none.
    pub max_timestamp: TimestampMs,
    /// Offset of the first record that has it.
    pub offset_of_max_timestamp: Offset,
    /// Its leader epoch.
    pub leader_epoch: LeaderEpoch,
}

/// What a log tells its owner, in order. Called on the log's own thread, never from inside of a call
/// to [`Log`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogEvent {
    /// Everything below `end` is in the page cache and readable.
    Written {
        /// The new written end.
        end: Offset,
    },
    /// Everything below `end` is on the disk.
    Durable {
        /// The new durable end.
        end: Offset,
    },
    /// A segment begins at `base`. Everything below is written, nothing above: the time for a snapshot
    /// ([`Log::store_snapshot`]).
    Rolled {
        /// Its base offset.
        base: Offset,
    },
    /// Everything from `from` on that was appended and not reported as written is gone, and the
    /// assigned end is `from` again.
    Failed {
        /// The written end.
        from: Offset,
        /// Why.
        error: AppendError,
    },
}

/// Where a log's events go.
pub type LogSink = Rc<dyn Fn(LogEvent)>;

/// An open log. Clones are the same log; it stays on the thread that opened it.
///
/// A log has three ends: *assigned* (appended), *written* (in the page cache: readable), *durable*
/// (on the disk). Order of calls: [`Log::create`] or [`Log::open`]; then any; at last one of
/// [`Log::close`] and [`Log::delete`].
#[derive(Clone)]
pub struct Log {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) name: PartitionName,
    pub(crate) parent: PathBuf,
    pub(crate) dir: Rc<Path>,
    pub(crate) sink: LogSink,
    /// The flushes of the log directory.
    pub(crate) syncer: Syncer,
    /// One flush of batches and names at a time. Close and delete hold it, too.
    pub(crate) flush_turn: Turn,
    /// One writing of indexes at a time. Who wants both turns takes this one second.
    pub(crate) index_turn: Turn,
    /// One writing of `leader-epoch-checkpoint` at a time. Who has it wants no other turn.
    pub(crate) epochs_turn: Turn,
    /// Woken when zeros are written.
    pub(crate) zeroed: Waiters,
    /// Woken when the writer task ends, and when the next segment's file is made or named.
    pub(crate) idle: Waiters,
    pub(crate) state: RefCell<State>,
}

/// Whether a log takes appends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Open,
    /// What is queued is still written.
    Closing,
    Closed,
    Offline(Arc<str>),
}

/// Directory entries that may not be on the disk yet (R4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    Synced,
    /// Segments were created.
    FilesUnsynced,
    /// The partition directory itself is new.
    DirectoryUnsynced,
}

pub(crate) struct State {
    pub(crate) options: LogOptions,
    pub(crate) topic_id: Option<TopicId>,
    /// By base offset; never empty. The last one is the active segment.
    pub(crate) segments: Vec<Rc<Segment>>,
    pub(crate) start: Offset,
    pub(crate) assigned_end: Offset,
    pub(crate) written_end: Offset,
    pub(crate) durable_end: Offset,
    /// Everything below is on the disk, with the indexes of its closed segments.
    pub(crate) recovery_point: Offset,
    /// When the oldest write ended that is not on the disk.
    pub(crate) dirty_since: Option<Instant>,
    /// Zeros in flight: their segment and where they begin.
    pub(crate) zeroing: Option<(Offset, u64)>,
    /// End of the newest write to the active segment, in flight or not.
    pub(crate) writing_to: u64,
    /// What leads a start after a kill to the log's mark.
    pub(crate) saved: Saved,
    /// The newest snapshot that is on the disk, as is what it tells of: no other takes its place before that one is, too.
    pub(crate) lasting_snapshot: Option<Offset>,
    /// Rounds of flushes are under way that acknowledgements wait for.
    pub(crate) syncing: bool,
    /// Leader epochs whose file has to be written before the next batch is.
    pub(crate) epochs_owed: Option<EpochCache>,
    pub(crate) pending: VecDeque<AppendBatch>,
    pub(crate) pending_bytes: usize,
    pub(crate) writing: bool,
    /// The file of the segment after the active one.
    pub(crate) next: NextSegment,
    /// The writer is to begin a segment before anything else.
    pub(crate) roll_wanted: bool,
    pub(crate) stage: Stage,
    /// Its folder has another name: what has the old one may be another log's.
    pub(crate) is_gone: bool,
    pub(crate) tail: Tail,
    /// One writing of indexes that a read has made anew at a time. Who has it wants no other turn.
    pub(crate) rebuilt_turn: Rc<Turn>,
    pub(crate) names: Names,
    /// The last segment before which a compaction of Kafka's may have taken records that lay above the recovery point at
    /// the start.
    pub(crate) holes_end: Option<Offset>,
    /// What a swap could not do for lack of room.
    pub(crate) owed: Owed,
    /// Where compaction has come to, as far as known.
    pub(crate) cleaned_to: Option<Offset>,
    /// The record with the largest timestamp among the batches appended since the log was opened,
    /// with the batch that holds it: saves a read where it is the answer.
    pub(crate) max_timestamp_hint: Option<(MaxTimestamp, TimestampHit)>,
}

/// Where a new log begins.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// Its records below are gone: a crash took its directory, and its start had been written down
    /// before (ST-13).
    pub start: Offset,
    /// What its file of leader epochs says.
    pub epochs: EpochCache,
}

impl State {
    /// State of a log with these segments, nothing pending.
    pub(crate) fn new(
        options: LogOptions,
        topic_id: Option<TopicId>,
        segments: Vec<Rc<Segment>>,
        start: Offset,
        end: Offset,
    ) -> Self {
        State {
            options,
            topic_id,
            segments,
            start,
            assigned_end: end,
            written_end: end,
            durable_end: start,
            recovery_point: start,
            dirty_since: None,
            zeroing: None,
            writing_to: 0,
            saved: Saved::nothing(start),
            lasting_snapshot: None,
            syncing: false,
            epochs_owed: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            writing: false,
            next: NextSegment::None,
            roll_wanted: false,
            stage: Stage::Open,
            is_gone: false,
            tail: Tail::default(),
            rebuilt_turn: Rc::default(),
            names: Names::Synced,
            holes_end: None,
            owed: Owed::Nothing,
            cleaned_to: None,
            max_timestamp_hint: None,
        }
    }

    pub(crate) fn active(&self) -> &Rc<Segment> {
        self.segments
            .last()
            .expect("a log has at least one segment")
    }

    /// Index of the segment that would hold `offset`.
    pub(crate) fn segment_for(&self, offset: Offset) -> usize {
        self.segments
            .partition_point(|s| s.base <= offset)
            .saturating_sub(1)
    }

    /// The segments that hold something at or above the log's start, or would.
    pub(crate) fn served(&self) -> &[Rc<Segment>] {
        &self.segments[self.segment_for(self.start)..]
    }

    /// End of the segment at `index`: the next one's base, or what is written.
    pub(crate) fn segment_end(&self, index: usize) -> Offset {
        self.segments
            .get(index + 1)
            .map_or(self.written_end, |next| next.base)
    }

    /// Bytes of the active segment that are written and not on the disk. Closed segments are flushed
    /// whatever they have.
    pub(crate) fn active_unsynced_bytes(&self) -> u64 {
        let active = self.active();
        active.size.get().saturating_sub(active.synced.get())
    }

    pub(crate) fn warming(&self) -> Warming {
        Warming {
            cache: self.options.cache.clone(),
            health: Arc::clone(&self.options.health),
            rebuilt_turn: Rc::clone(&self.rebuilt_turn),
        }
    }

    /// Everything durable, up to the first closed segment whose indexes are not on the disk (R6), or to one of which the
    /// disk does not know what was aborted: nobody looks for that below.
    pub(crate) fn advance_recovery_point(&mut self) {
        let from = self.segment_for(self.recovery_point);
        let active = self.active().base;
        let lacking = self.segments.get(from..).unwrap_or_default();
        let lacking = lacking.iter().find(|s| {
            let is_closed = s.base < active;
            s.aborted.borrow().is_unsaved()
                || is_closed && (!s.indexes_saved.get() || s.has_zeros())
        });
        let below = lacking.map_or(self.durable_end, |s| s.base.min(self.durable_end));
        // The batches above bring their epochs to the next start.
        let below = self
            .unstored_epoch()
            .map_or(below, |start| start.min(below));
        self.recovery_point = self.recovery_point.max(below);
    }

    /// Where a leader epoch begins that has batches, and that the file of epochs does not have.
    pub(crate) fn unstored_epoch(&self) -> Option<Offset> {
        let owed = self.epochs_owed.as_ref()?.latest()?;
        (owed.start < self.written_end).then_some(owed.start)
    }

    pub(crate) fn queue_bytes(&mut self, bytes: usize) {
        self.pending_bytes += bytes;
        self.options.queued.add(bytes);
    }

    pub(crate) fn unqueue_bytes(&mut self, bytes: usize) {
        self.pending_bytes -= bytes;
        self.options.queued.remove(bytes);
    }

    pub(crate) fn check_readable(&self) -> Result<(), ReadError> {
        if let Some(reason) = self.options.health.failure() {
            let reason = Arc::clone(reason);
            return Err(ReadError::Offline { reason });
        }
        match &self.stage {
            Stage::Open | Stage::Closing => Ok(()),
            Stage::Closed => Err(ReadError::Closed),
            Stage::Offline(reason) => Err(ReadError::Offline {
                reason: Arc::clone(reason),
            }),
        }
    }
}

impl Log {
    /// Makes the directory of a new partition in `parent` and opens the log, empty, starting at 0.
    ///
    /// The directory is durable after the first [`Log::flush`]; until then a crash may lose it whole
    /// (ST-15).
    ///
    /// # Errors
    /// [`LogError::Io`], also when the directory exists.
    pub async fn create(
        parent: &Path,
        name: PartitionName,
        topic_id: TopicId,
        options: LogOptions,
        sink: LogSink,
    ) -> Result<Log, LogError> {
        let beginning = Beginning::default();
        Log::create_at(beginning, parent, name, topic_id, options, sink).await
    }

    /// As [`Log::create`], of a log that begins elsewhere, or in a known leader epoch.
    ///
    /// # Errors
    /// As [`Log::create`].
    pub async fn create_at(
        beginning: Beginning,
        parent: &Path,
        name: PartitionName,
        topic_id: TopicId,
        options: LogOptions,
        sink: LogSink,
    ) -> Result<Log, LogError> {
        let Beginning { start, epochs } = beginning;
        let dir: Rc<Path> = parent.join(name.to_string()).into();
        let mut files = partition_files::of_new(topic_id, &epochs);
        files.push((log_name(start), Bytes::new()));
        let mut made = fs::create_dir_with(&dir, files)
            .await
            .map_err(LogError::io("create", &dir))?;
        let file = made
            .pop()
            .expect("each file that was to be made is returned");
        let interval = u64::from(options.index_interval_bytes);
        let segment = Segment::in_file(file, &dir, start, interval);
        let mut state = State::new(options, Some(topic_id), vec![segment], start, start);
        state.names = Names::DirectoryUnsynced;
        Ok(Log::of(parent, name, dir, state, sink))
    }

    /// Opens the log of an existing partition directory in `parent`, after recovering what
    /// `opening` asks for.
    ///
    /// # Errors
    /// [`LogError::DamagedBelowRecoveryPoint`] and [`LogError::UnfinishedCompaction`] leave the
    /// directory as it is; [`LogError::Io`] says what the system refused.
    pub async fn open(
        parent: &Path,
        name: PartitionName,
        options: LogOptions,
        opening: impl Into<Opening>,
        sink: LogSink,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let dir: Rc<Path> = parent.join(name.to_string()).into();
        let (state, report) = recovery::recover(&dir, options, opening.into()).await?;
        let log = Log::of(parent, name, dir, state, sink);
        log.look_at_unread().await;
        Ok((log, report))
    }

    fn of(parent: &Path, name: PartitionName, dir: Rc<Path>, state: State, sink: LogSink) -> Log {
        Log {
            inner: Rc::new(Inner {
                name,
                parent: parent.to_owned(),
                dir,
                sink,
                syncer: Syncer::of(parent, ACK_FLUSHES_AT_ONCE_MAX),
                flush_turn: Turn::default(),
                index_turn: Turn::default(),
                epochs_turn: Turn::default(),
                zeroed: Waiters::default(),
                idle: Waiters::default(),
                state: RefCell::new(state),
            }),
        }
    }

    /// The topic id in a partition directory, before its log is opened; as [`Log::topic_id`].
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn topic_id_in(dir: &Path) -> Result<Option<TopicId>, LogError> {
        partition_files::load_topic_id(dir).await
    }

    /// Topic and partition.
    #[must_use]
    pub fn name(&self) -> &PartitionName {
        &self.inner.name
    }

    /// The partition's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Id in `partition.metadata`; `None` when the file is missing or can not be read, then
    /// [`Log::store_topic_id`] makes it anew.
    #[must_use]
    pub fn topic_id(&self) -> Option<TopicId> {
        self.inner.state.borrow().topic_id
    }

    /// First offset that is served.
    #[must_use]
    pub fn start_offset(&self) -> Offset {
        self.inner.state.borrow().start
    }

    /// Offset after everything appended.
    #[must_use]
    pub fn assigned_end(&self) -> Offset {
        self.inner.state.borrow().assigned_end
    }

    /// Offset after everything written: the log end offset.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        self.inner.state.borrow().written_end
    }

    /// Offset after everything known to be on the disk.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.inner.state.borrow().durable_end
    }

    /// Where the next start would have to begin checking after a crash. It may lag behind
    /// [`Log::durable_end`] while indexes of closed segments are being written (R6).
    #[must_use]
    pub fn recovery_point(&self) -> Offset {
        self.inner.state.borrow().recovery_point
    }

    /// The recovery point as the file has to have it that names topics by their ids: [`MAY_HAVE_HOLES`] as long as there are
    /// such above.
    #[must_use]
    pub fn known_point(&self) -> Offset {
        let state = self.inner.state.borrow();
        match state.holes_end {
            Some(end) if state.recovery_point < end => MAY_HAVE_HOLES,
            Some(_) | None => state.recovery_point,
        }
    }

    /// Bytes appended and not yet written. Appenders ask [`Log::has_room`] first.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.inner.state.borrow().pending_bytes
    }

    /// True while the logs that share [`LogOptions::queued`] have room for a batch of `bytes` to wait
    /// for its write.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.inner.state.borrow().options.queued.has_room(bytes)
    }

    /// Bytes written and not yet fdatasynced.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        let state = self.inner.state.borrow();
        state
            .segments
            .iter()
            .map(|s| s.size.get().saturating_sub(s.synced.get()))
            .sum()
    }

    /// True when the log, or the log directory that it is in, has failed (R1).
    #[must_use]
    pub fn is_offline(&self) -> bool {
        let state = self.inner.state.borrow();
        matches!(state.stage, Stage::Offline(_)) || state.options.health.failure().is_some()
    }

    /// Why the log serves nothing; `None` while it does.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<str>> {
        let state = self.inner.state.borrow();
        match &state.stage {
            Stage::Offline(reason) => Some(Arc::clone(reason)),
            Stage::Open | Stage::Closing | Stage::Closed => state.options.health.failure().cloned(),
        }
    }

    /// Bytes of batches in all segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.inner
            .state
            .borrow()
            .segments
            .iter()
            .map(|s| s.size.get())
            .sum()
    }

    /// Number of segments, the active one included.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.inner.state.borrow().segments.len()
    }

    /// Serves nothing below `start` from now on; lower than before: ignored. The segments stay, and so
    /// does nothing of this on the disk: the log start checkpoint is its caller's business.
    ///
    /// # Panics
    /// When `start` lies above the written end.
    pub fn raise_start(&self, start: Offset) {
        let mut state = self.inner.state.borrow_mut();
        assert!(
            start <= state.written_end,
            "a log starts at or before its end"
        );
        state.start = state.start.max(start);
    }

    /// Obeys other properties from the next append on. What is queued is counted where
    /// it was.
    pub fn set_options(&self, options: LogOptions) {
        {
            let mut state = self.inner.state.borrow_mut();
            // What this log has queued is counted there.
            let queued = Rc::clone(&state.options.queued);
            let health = Arc::clone(&state.options.health);
            state.options = LogOptions {
                queued,
                health,
                ..options
            };
        }
        rounds::begin_if_due(&self.inner);
    }

    /// Writes `partition.metadata` durably.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn store_topic_id(&self, topic_id: TopicId) -> Result<(), LogError> {
        let stored = partition_files::store_topic_id(&self.inner.dir, topic_id).await;
        self.inner.judged(stored)?;
        self.inner.state.borrow_mut().topic_id = Some(topic_id);
        Ok(())
    }

    /// From the next batch on these are the leader epochs: their file is written before that is, and made durable
    /// before the recovery point leaves the start of the newest behind. Nothing is written before there is such a
    /// batch: many starts in a row leave the file as it is.
    pub fn owe_epochs(&self, epochs: &EpochCache) {
        self.inner.state.borrow_mut().epochs_owed = Some(epochs.clone());
    }

    /// Writes `leader-epoch-checkpoint` durably: each epoch and where it begins, ascending. Do so
    /// before the first append of a new epoch.
    ///
    /// # Errors
    /// [`LogError::Io`]; [`LogError::Closed`] and [`LogError::Offline`].
    pub async fn store_epochs(&self, epochs: &EpochCache) -> Result<(), LogError> {
        // The name of a log that was deleted may be another log's by now.
        let _turn = self.inner.index_turn.take().await;
        self.check_open()?;
        let _alone = self.inner.epochs_turn.take().await;
        let stored = partition_files::store_epochs(&self.inner.dir, epochs).await;
        self.inner.judged(stored)?;
        self.inner.state.borrow_mut().epochs_owed = None;
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.borrow();
        f.debug_struct("Log")
            .field("name", &self.inner.name)
            .field("start", &state.start)
            .field("assigned_end", &state.assigned_end)
            .field("written_end", &state.written_end)
            .field("durable_end", &state.durable_end)
            .field("segments", &state.segments.len())
            .field("stage", &state.stage)
            .finish_non_exhaustive()
    }
}
