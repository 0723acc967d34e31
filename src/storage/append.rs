//! Appending: what is queued while a write is in flight goes out together in the next, and a small
//! batch waits for those that the next look at the sockets brings.
//!
//! Each log has at most one writer task, one of [`crate::Writers`], called by the first append that finds
//! none and free again when nothing is queued. It does one thing at a time (write, roll, cut back), so a
//! roll never meets a write in flight. Cost of a burst of appends that fit one write: one vectored write,
//! two lists, no copy of record bytes.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_reactor::fs::{self, File};
use thalweg_reactor::{task, time};
use thalweg_types::limits::{APPEND_GATHER_BYTES_MAX, APPEND_IOVECS_MAX, APPEND_WRITE_BYTES_MAX};
use thalweg_types::{Offset, TimestampMs};

use crate::error::{AppendError, LogError, is_lack_of_room, may_pass};
use crate::indexes::{BatchMark, MaxTimestamp};
use crate::log::{AppendBatch, Inner, Log, LogEvent, Names, Stage, State};
use crate::next_segment;
use crate::partition_files;
use crate::roll;
use crate::rounds;
use crate::segment::Segment;
use crate::timestamp::TimestampHit;

impl Log {
    /// Queues one batch. Its fate is told to the sink: [`LogEvent::Written`] once its end is passed,
    /// or [`LogEvent::Failed`].
    ///
    /// # Panics
    /// When the batch does not begin at or after the assigned end: offsets are assigned by whoever
    /// calls this, from [`Log::assigned_end`].
    pub fn append(&self, batch: AppendBatch) {
        let mut state = self.inner.state.borrow_mut();
        match state.stage {
            Stage::Open if state.options.health.failure().is_none() => {}
            Stage::Open | Stage::Closing | Stage::Closed | Stage::Offline(_) => {
                drop(state);
                let inner = Rc::clone(&self.inner);
                // Later, because the sink must not be called from inside of a call to the log.
                task::spawn(async move {
                    inner.follow_directory();
                    inner.refuse();
                });
                return;
            }
        }
        assert!(
            batch.base_offset >= state.assigned_end && batch.last_offset >= batch.base_offset,
            "appending [{}, {}] to {} at {}",
            batch.base_offset,
            batch.last_offset,
            self.inner.name,
            state.assigned_end
        );
        state.assigned_end = batch.last_offset.plus(1);
        state.queue_bytes(batch.bytes.len());
        state.pending.push_back(batch);
        if !state.writing {
            state.writing = true;
            let writers = state.options.writers.clone();
            drop(state);
            writers.start(Rc::clone(&self.inner));
        }
    }

    /// Closes the active segment and begins an empty one, unless it is empty itself or the log takes no
    /// appends; returns when that is done, or can not be done now.
    pub(crate) async fn roll_active(&self) {
        {
            let mut state = self.inner.state.borrow_mut();
            if state.stage != Stage::Open || state.active().size.get() == 0 {
                return;
            }
            state.roll_wanted = true;
            if !state.writing {
                state.writing = true;
                state.options.writers.start(Rc::clone(&self.inner));
            }
        }
        let idle = &self.inner.idle;
        idle.until(|| !self.inner.state.borrow().roll_wanted).await;
    }

    /// True while a write, a roll or a cut is under way.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.inner.state.borrow().writing
    }
}

/// One thing for the writer task to do.
enum Todo {
    Nothing,
    Refuse,
    Roll(Offset),
    /// Not because of what comes next.
    RollEarly(Offset),
    Write(WriteJob),
    /// It would reach into zeros that are being written.
    AwaitZeros,
}

/// One vectored write, cut to fit the limits and the active segment.
struct WriteJob {
    segment: Rc<Segment>,
    file: File,
    position: u64,
    bytes: Vec<Bytes>,
    total: u64,
    batches: Vec<(BatchMark, Offset)>,
}

/// Does what there is to do for a log until there is nothing more.
pub(crate) async fn drive(inner: Rc<Inner>) {
    loop {
        if is_worth_gathering(&inner.state.borrow()) {
            // Requests that the next look at the sockets brings go into the same write.
            task::yield_now().await;
        }
        let todo = next(&mut inner.state.borrow_mut(), &inner);
        match todo {
            Todo::Nothing => break,
            Todo::Refuse => inner.refuse(),
            Todo::Roll(base) => {
                if let Err(error) = roll::roll(&inner, base).await {
                    inner.fail(&error);
                }
            }
            Todo::RollEarly(base) => roll::roll_early(&inner, base).await,
            Todo::AwaitZeros => {
                let zeroed = &inner.zeroed;
                zeroed
                    .until(|| inner.state.borrow().zeroing.is_none())
                    .await;
            }
            Todo::Write(job) => {
                let written = job.total;
                inner.write(job).await;
                rounds::begin_if_due(&inner);
                next_segment::make_if_near(&inner, written);
            }
        }
    }
    inner.idle.wake_all();
}

fn is_worth_gathering(state: &State) -> bool {
    let first = state.pending.front();
    first.is_some_and(|batch| batch.bytes.len() < APPEND_GATHER_BYTES_MAX)
}

fn next(state: &mut State, inner: &Inner) -> Todo {
    match state.stage {
        Stage::Open | Stage::Closing => {}
        Stage::Closed | Stage::Offline(_) => {
            state.roll_wanted = false;
            if !state.pending.is_empty() {
                return Todo::Refuse;
            }
        }
    }
    if state.roll_wanted && state.active().size.get() == 0 {
        // A roll that was under way came first.
        state.roll_wanted = false;
        inner.idle.wake_all();
    }
    if state.roll_wanted {
        let first = state.pending.front();
        return Todo::RollEarly(first.map_or(state.assigned_end, |first| first.base_offset));
    }
    let Some(first) = state.pending.front() else {
        state.writing = false;
        return Todo::Nothing;
    };
    let now = TimestampMs(time::unix_ms());
    let segment = Rc::clone(state.active());
    if roll::is_due(
        &segment,
        segment.size.get(),
        first,
        &state.options,
        &inner.name,
        now,
    ) {
        return Todo::Roll(first.base_offset);
    }
    let zeroing = state.zeroing.filter(|(base, _)| *base == segment.base);
    let limit = zeroing.map_or(u64::MAX, |(_, from)| from);
    if segment.size.get() + first.bytes.len() as u64 > limit {
        return Todo::AwaitZeros;
    }
    Todo::Write(take_queued(state, inner, limit, now))
}

/// As much of what is queued as fits one write, which ends at byte `limit` of the active segment at most.
fn take_queued(state: &mut State, inner: &Inner, limit: u64, now: TimestampMs) -> WriteJob {
    let segment = Rc::clone(state.active());
    let warm = segment.warm_now().expect("the active segment is warm");
    let position = segment.size.get();
    let mut job = WriteJob {
        segment,
        file: warm.file,
        position,
        bytes: Vec::with_capacity(state.pending.len().min(APPEND_IOVECS_MAX)),
        total: 0,
        batches: Vec::with_capacity(state.pending.len().min(APPEND_IOVECS_MAX)),
    };
    while let Some(batch) = state.pending.front() {
        let bytes = batch.bytes.len() as u64;
        let at = position + job.total;
        let fits = job.bytes.is_empty()
            || (job.bytes.len() < APPEND_IOVECS_MAX
                && job.total + bytes <= APPEND_WRITE_BYTES_MAX as u64
                && at + bytes <= limit
                && !roll::is_due(&job.segment, at, batch, &state.options, &inner.name, now));
        if !fits {
            break;
        }
        let Some(batch) = state.pending.pop_front() else {
            break;
        };
        job.batches
            .push((mark(&batch, at), batch.offset_of_max_timestamp));
        job.bytes.push(batch.bytes);
        job.total += bytes;
    }
    state.writing_to = position + job.total;
    job
}

fn mark(batch: &AppendBatch, position: u64) -> BatchMark {
    BatchMark {
        position,
        bytes: batch.bytes.len() as u64,
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        max_timestamp: batch.max_timestamp,
        leader_epoch: batch.leader_epoch,
    }
}

fn note_max(state: &mut State, mark: &BatchMark, offset: Offset) {
    let timestamp = mark.max_timestamp;
    if state
        .max_timestamp_hint
        .is_none_or(|(_, hit)| timestamp > hit.timestamp)
    {
        let batch = MaxTimestamp {
            timestamp,
            batch_last_offset: mark.last_offset,
        };
        let leader_epoch = mark.leader_epoch;
        state.max_timestamp_hint = Some((
            batch,
            TimestampHit {
                offset,
                timestamp,
                leader_epoch,
            },
        ));
    }
}

impl Inner {
    async fn write(&self, job: WriteJob) {
        let WriteJob {
            segment,
            file,
            position,
            bytes,
            total,
            batches,
        } = job;
        let began = time::now();
        let health = Arc::clone(&self.state.borrow().options.health);
        let in_flight = health.begin("write");
        let written = match self.store_owed().await {
            Ok(()) => fs::write_at(&file, bytes, position).await,
            Err(error) => Err(error),
        };
        drop(in_flight);
        let written = match written {
            Ok(written) if written == total => Ok(()),
            Ok(written) => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{written} of {total} bytes were written"),
            )),
            Err(error) => Err(error),
        };
        self.state.borrow_mut().unqueue_bytes(total as usize);
        let Err(error) = written else {
            self.count_write(time::now() - began, batches.len(), total);
            self.on_written(&segment, &batches);
            return;
        };
        if is_lack_of_room(&error) {
            // Part of it may be there: the file must end where the last written batch does (R9). Zeros
            // ahead of it give their room back.
            segment.zeroed.set(0);
            self.state.borrow_mut().writing_to = position;
            // Durably: what is cut off would come back in a power loss, below a younger leader epoch.
            let path = segment.path();
            let cut = match fs::truncate(&file, position).await {
                Ok(()) => {
                    let synced = segment.sync_apart(&file).await;
                    synced.inspect_err(|error| health.judge_sync(&path, error))
                }
                Err(error) => Err(error).inspect_err(|error| health.judge(&path, error)),
            };
            if let Err(error) = cut {
                self.go_offline(&error.to_string());
                return;
            }
            segment.on_cut_off();
        }
        self.fail(&error);
    }

    /// The file of leader epochs comes before the first batch of one. No flush may be under way: it could cover
    /// batches of an epoch whose file it does not.
    async fn store_owed(&self) -> io::Result<()> {
        let Some(epochs) = self.state.borrow_mut().epochs_owed.take() else {
            return Ok(());
        };
        let _turn = self.flush_turn_soon().await;
        // Retention writes them, too.
        let _alone = self.epochs_turn.take().await;
        let stored = partition_files::replace_epochs(&self.dir, &epochs).await;
        self.state.borrow_mut().names = Names::DirectoryUnsynced;
        match stored {
            // Until the next try, batches bring their epochs (ST-11).
            Err(error) if may_pass(&error) => {
                tracing::debug!(log = %self.name, %error, "no room for leader epochs");
                let mut state = self.state.borrow_mut();
                state.epochs_owed.get_or_insert(epochs);
                Ok(())
            }
            other => other.inspect_err(|error| self.judge(&self.dir, error)),
        }
    }

    fn count_write(&self, took: Duration, batches: usize, bytes: u64) {
        let metrics = Rc::clone(&self.state.borrow().options.metrics);
        let mut metrics = metrics.borrow_mut();
        metrics.record(thalweg_metrics::Stage::AppendWrite, took);
        metrics.counters.append_writes += 1;
        metrics.counters.append_batches += batches as u64;
        metrics.counters.append_bytes += bytes;
    }

    fn on_written(&self, segment: &Rc<Segment>, batches: &[(BatchMark, Offset)]) {
        self.follow_directory();
        let mut state = self.state.borrow_mut();
        if let Stage::Offline(_) = state.stage {
            // A flush failed meanwhile, and its event took these batches back.
            return;
        }
        let now = time::now();
        for (mark, offset_of_max) in batches {
            segment.on_written(mark);
            state.tail.push(segment.base, *mark, now);
            note_max(&mut state, mark, *offset_of_max);
        }
        if let Some((last, _)) = batches.last() {
            state.written_end = last.last_offset.plus(1);
            state.dirty_since.get_or_insert_with(time::now);
        }
        let end = state.written_end;
        drop(state);
        (self.sink)(LogEvent::Written { end });
    }

    /// A write or roll failed: everything queued fails with it, for now or for good.
    pub(crate) fn fail(&self, error: &io::Error) {
        if let Stage::Offline(_) = self.state.borrow().stage {
            // What failed was taken back when the log went offline.
            return;
        }
        if is_lack_of_room(error) {
            self.reject(AppendError::NoRoom(error.to_string().into()));
        } else {
            self.judge(&self.dir, error);
            self.go_offline(&error.to_string());
        }
    }

    /// Condemns the log directory for an error that says it deserves that.
    pub(crate) fn judge(&self, path: &Path, error: &io::Error) {
        let health = Arc::clone(&self.state.borrow().options.health);
        health.judge(path, error);
    }

    /// As [`Inner::judge`], in passing.
    pub(crate) fn judged<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Io { path, source, .. }) = &result {
            self.judge(path, source);
        }
        result
    }

    /// Goes offline with its log directory: nothing in it is acknowledged any more (ST-18).
    fn follow_directory(&self) {
        let reason = self.state.borrow().options.health.failure().cloned();
        if let Some(reason) = reason {
            self.go_offline(&reason);
        }
    }

    /// R1: after such a failure nothing of this log is served until it is opened and checked again.
    pub(crate) fn go_offline(&self, text: &str) {
        let reason: Arc<str> = text.into();
        {
            let mut state = self.state.borrow_mut();
            if let Stage::Offline(_) = state.stage {
                return;
            }
            state.stage = Stage::Offline(Arc::clone(&reason));
            state.tail.clear();
        }
        tracing::error!(log = %self.name, reason = %reason, "the log is offline");
        self.reject(AppendError::Offline(reason));
    }

    /// Drops everything queued and says so.
    fn reject(&self, error: AppendError) {
        let from = {
            let mut state = self.state.borrow_mut();
            let queued: usize = state.pending.iter().map(|batch| batch.bytes.len()).sum();
            state.pending.clear();
            state.unqueue_bytes(queued);
            state.assigned_end = state.written_end;
            state.written_end
        };
        (self.sink)(LogEvent::Failed { from, error });
    }

    /// Answers appends to a log that takes none.
    fn refuse(&self) {
        let error = match &self.state.borrow().stage {
            Stage::Offline(reason) => AppendError::Offline(Arc::clone(reason)),
            Stage::Open | Stage::Closing | Stage::Closed => AppendError::Closed,
        };
        let closing = self.state.borrow().stage == Stage::Closing;
        if closing {
            // What was queued before the close is still being written; only the newcomer fails.
            let from = self.state.borrow().assigned_end;
            (self.sink)(LogEvent::Failed { from, error });
        } else {
            self.reject(error);
        }
    }

    /// The directory holds names that are not on the disk yet.
    pub(crate) fn files_unsynced(&self) {
        let mut state = self.state.borrow_mut();
        if state.names == Names::Synced {
            state.names = Names::FilesUnsynced;
        }
    }
}
