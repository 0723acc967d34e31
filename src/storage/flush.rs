//! Making a log durable, closing it, deleting it.
//!
//! Order of a flush (R6): batches, then names, and then the durable end moves and the sink is told; then
//! indexes of closed segments, and only then the recovery point. An fdatasync covers the writes that
//! had ended before it was submitted (R3). A failed one is never tried again (R1).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_reactor::fs::{self, File, Unflushed};
use thalweg_reactor::time::{self, Instant};
use thalweg_reactor::{failpoint, task};
use thalweg_types::limits::NEW_LOGS_TOGETHER_MIN;
use thalweg_types::{Offset, Uuid};

use crate::error::{LogError, is_lack_of_room};
use crate::handles;
use crate::health::DirHealth;
use crate::leftovers::Leftover;
use crate::log::{AppendBatch, Inner, Log, LogEvent, Names, Stage};
use crate::next_segment::{self, NextSegment};
use crate::partition_files;
use crate::segment::{Covered, Segment};
use crate::turn::TurnGuard;

/// How much of a log a flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// All that is written.
    Everything,
    /// All but the active segment.
    ClosedSegments,
}

/// Who runs a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    /// Nobody waits: one flush of the log directory at a time, at a pace.
    Background,
    /// Somebody waits.
    Awaited,
    /// Acknowledgements wait.
    Acks,
}

/// Nobody may flush one of the logs meanwhile: what it says is durable would have a name that is not.
async fn sync_together(parent: &Path, logs: &[&Log]) {
    let mut turns = Vec::with_capacity(logs.len());
    for log in logs {
        turns.push(log.inner.flush_turn_soon().await);
        // Names made from now on are for the next flush.
        log.inner.state.borrow_mut().names = Names::Synced;
    }
    if let Some(first) = logs.first() {
        let health = Arc::clone(&first.inner.state.borrow().options.health);
        let synced = health.sync_file_system(parent).await;
        // The others follow their directory.
        let _told = first.or_offline("sync", parent, synced);
    }
}

struct Plan {
    segments: Vec<(Rc<Segment>, File)>,
    names: Names,
    end: Offset,
}

impl Inner {
    /// The turn of flushes, for who must wait neither for the pace of one of this log in the background nor for those of
    /// other logs before it.
    pub(crate) async fn flush_turn_soon(&self) -> TurnGuard<'_> {
        let _hurry = self.syncer.hurry();
        self.flush_turn.take().await
    }
}

impl Log {
    /// True when acknowledgements wait for the disk and a segment that ends above `offset` is closed and on the disk
    /// with its indexes.
    #[must_use]
    pub fn has_durable_segment_above(&self, offset: Offset) -> bool {
        let state = self.inner.state.borrow();
        let last = state.segment_for(state.recovery_point);
        let closed_to = state.segments[last].base;
        state.options.acks_wait() && closed_to > offset
    }

    /// Makes everything written so far durable and returns the durable end.
    ///
    /// # Errors
    /// [`LogError::Io`] when it fails; the log is offline then, and the sink was told.
    /// [`LogError::Offline`] and [`LogError::Closed`] when it was before.
    pub async fn flush(&self) -> Result<Offset, LogError> {
        self.flush_soon(Reach::Everything).await
    }

    /// As [`Log::flush`], of a part.
    pub(crate) async fn flush_soon(&self, reach: Reach) -> Result<Offset, LogError> {
        let turn = self.inner.flush_turn_soon().await;
        self.flush_in_turn(turn, reach, Runner::Awaited).await
    }

    /// As [`Log::flush`], in so small steps that appends beside it notice little.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub async fn flush_in_background(&self) -> Result<Offset, LogError> {
        self.flush_reaching(Reach::Everything).await
    }

    /// Appends one batch and returns when it is on the disk: for logs whose owner waits for each
    /// append, such as the metadata log. The sink gets its events all the same.
    ///
    /// # Errors
    /// As [`Log::flush`]; [`LogError::Io`] with the operation `append` when the batch was refused.
    ///
    /// # Panics
    /// As [`Log::append`].
    pub async fn append_durable(&self, batch: AppendBatch) -> Result<Offset, LogError> {
        let end = batch.last_offset.plus(1);
        self.append(batch);
        self.inner.idle.until(|| !self.is_writing()).await;
        if self.written_end() < end {
            self.check_open()?;
            return Err(LogError::Io {
                operation: "append",
                path: self.inner.dir.to_path_buf(),
                source: io::Error::new(
                    io::ErrorKind::StorageFull,
                    format!(
                        "no room for an append in {}: free some space on its disk",
                        self.inner.dir.display()
                    ),
                ),
            });
        }
        self.flush().await
    }

    pub(crate) async fn flush_reaching(&self, reach: Reach) -> Result<Offset, LogError> {
        let waits = self.inner.state.borrow().options.acks_wait();
        let (turn, runner) = match waits {
            // Rounds wait for the turn.
            true => (self.inner.flush_turn_soon().await, Runner::Awaited),
            false => (self.inner.flush_turn.take().await, Runner::Background),
        };
        self.flush_in_turn(turn, reach, runner).await
    }

    async fn flush_in_turn(
        &self,
        turn: TurnGuard<'_>,
        reach: Reach,
        runner: Runner,
    ) -> Result<Offset, LogError> {
        self.check_open()?;
        let durable = self.sync_now(reach, runner).await?;
        drop(turn);
        match reach {
            Reach::Everything => {}
            Reach::ClosedSegments => failpoint::pass("roll: closed segment flushed"),
        }
        let _turn = self.inner.index_turn.take().await;
        self.check_open()?;
        self.save_closed_indexes().await?;
        Ok(durable)
    }

    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        let state = self.inner.state.borrow();
        if let Some(reason) = state.options.health.failure() {
            let reason = Arc::clone(reason);
            return Err(LogError::Offline { reason });
        }
        match &state.stage {
            Stage::Open | Stage::Closing => Ok(()),
            Stage::Closed => Err(LogError::Closed),
            Stage::Offline(reason) => Err(LogError::Offline {
                reason: Arc::clone(reason),
            }),
        }
    }

    /// Batches and names. Needs the flush turn.
    pub(crate) async fn sync_now(&self, reach: Reach, runner: Runner) -> Result<Offset, LogError> {
        let began = time::now();
        let plan = self.plan(reach);
        let mut end = plan.end;
        let health = Arc::clone(&self.inner.state.borrow().options.health);
        for (segment, file) in &plan.segments {
            let synced = self.sync_segment(segment, file, runner).await;
            let path = segment.path();
            let covered = self.or_offline("fdatasync", &path, synced)?;
            health.answered.now();
            let before = segment.on_synced(covered);
            end = end.max(covered.end);
            let state = self.inner.state.borrow();
            let counters = &mut state.options.metrics.borrow_mut().counters;
            counters.flushes += 1;
            counters.flushed_bytes += covered.bytes.saturating_sub(before);
        }
        self.sync_names(plan.names).await?;
        self.check_open()?;
        self.move_durable_end(end, began);
        Ok(self.durable_end())
    }

    async fn sync_segment(
        &self,
        segment: &Segment,
        file: &File,
        runner: Runner,
    ) -> io::Result<Covered> {
        let progress = Arc::clone(&segment.progress);
        let covered = move || progress.now();
        let health = Arc::clone(&self.inner.state.borrow().options.health);
        let syncer = &self.inner.syncer;
        let point = match runner {
            Runner::Background => {
                let progress = Arc::clone(&segment.progress);
                let unflushed = Unflushed {
                    from: segment.synced.get(),
                    end: move || progress.now().bytes,
                };
                // It waits for others, and makes pauses: a disk is asked for something only in between.
                let watch = move || DirHealth::begin_apart(&health, "fdatasync");
                return syncer
                    .sync_in_background(file, unflushed, watch, covered)
                    .await;
            }
            Runner::Awaited => "awaited flush",
            Runner::Acks => "ack flush",
        };
        let _in_flight = health.begin("fdatasync");
        syncer.sync_data(file, point, covered).await
    }

    fn move_durable_end(&self, end: Offset, began: Instant) {
        {
            let mut state = self.inner.state.borrow_mut();
            if end <= state.durable_end {
                return;
            }
            state.durable_end = end;
            state.dirty_since = (end < state.written_end).then_some(began);
            state.advance_recovery_point();
        }
        (self.inner.sink)(LogEvent::Durable { end });
    }

    /// Writes the indexes of closed segments, and with them moves the recovery point. Needs the index
    /// turn.
    async fn save_closed_indexes(&self) -> Result<(), LogError> {
        let unsaved: Vec<_> = {
            let state = self.inner.state.borrow();
            let closed = state.segments.iter().rev().skip(1).rev();
            closed.filter(|s| s.lacks_indexes()).cloned().collect()
        };
        for segment in unsaved {
            self.save_indexes(&segment).await?;
        }
        let active = Rc::clone(self.inner.state.borrow().active());
        let told = active.save_aborted().await;
        self.unless_no_room(&active, told)?;
        let mut state = self.inner.state.borrow_mut();
        state.advance_recovery_point();
        // Closed segments may leave memory now.
        state.options.cache.trim();
        Ok(())
    }

    fn plan(&self, reach: Reach) -> Plan {
        let mut state = self.inner.state.borrow_mut();
        // Names made while the flush runs are for the next one; if it fails, the log is offline.
        let names = std::mem::replace(&mut state.names, Names::Synced);
        let active = state.active().base;
        let covered = |s: &&Rc<Segment>| match reach {
            Reach::Everything => true,
            Reach::ClosedSegments => s.base < active,
        };
        let unsynced = |s: &Rc<Segment>| {
            let warm = (!s.is_synced())
                .then(|| s.warm_now().expect("a segment that is not synced is warm"))?;
            Some((Rc::clone(s), warm.file))
        };
        Plan {
            segments: state
                .segments
                .iter()
                .filter(covered)
                .filter_map(unsynced)
                .collect(),
            names,
            end: match reach {
                Reach::Everything => state.written_end,
                Reach::ClosedSegments => active.min(state.written_end),
            },
        }
    }

    async fn save_indexes(&self, segment: &Segment) -> Result<(), LogError> {
        let saved = segment.save_indexes().await;
        self.unless_no_room(segment, saved)
    }

    /// Indexes can always be rebuilt, at the latest by a start that looks at all above the recovery point: no room for
    /// them is no reason to stop (R9).
    fn unless_no_room(&self, segment: &Segment, saved: io::Result<()>) -> Result<(), LogError> {
        match saved {
            Err(error) if is_lack_of_room(&error) => {
                tracing::warn!(log = %self.name(), base = %segment.base, %error, "no room for an index");
                Ok(())
            }
            result => self.or_offline("write the indexes of", &segment.path(), result),
        }
    }

    async fn sync_names(&self, names: Names) -> Result<(), LogError> {
        let dir = &self.inner.dir;
        match names {
            Names::Synced => return Ok(()),
            Names::FilesUnsynced => {}
            Names::DirectoryUnsynced => {
                if let Err((path, error)) = handles::sync_partition_files(dir).await {
                    self.or_offline("sync", &path, Err(error))?;
                }
            }
        }
        self.or_offline("sync", dir, handles::sync_dir(dir).await)?;
        if names == Names::DirectoryUnsynced {
            let parent = &self.inner.parent;
            self.or_offline("sync", parent, handles::sync_dir(parent).await)?;
        }
        Ok(())
    }

    /// Makes the directories of new logs durable with what is in them (R4), all at once if there are many: one
    /// by one, each takes four flushes. Where it fails the log directory is offline.
    pub async fn sync_new(logs: &[Log]) {
        let is_new = |log: &&Log| log.inner.state.borrow().names == Names::DirectoryUnsynced;
        let mut by_parent: BTreeMap<&Path, Vec<&Log>> = BTreeMap::new();
        for log in logs.iter().filter(is_new) {
            by_parent.entry(&log.inner.parent).or_default().push(log);
        }
        for (parent, logs) in by_parent {
            if logs.len() >= NEW_LOGS_TOGETHER_MIN {
                sync_together(parent, &logs).await;
            }
        }
    }

    pub(crate) fn or_offline<T>(
        &self,
        operation: &'static str,
        path: &Path,
        result: io::Result<T>,
    ) -> Result<T, LogError> {
        result.map_err(|source| {
            let health = Arc::clone(&self.inner.state.borrow().options.health);
            match operation {
                "fdatasync" | "sync" => health.judge_sync(path, &source),
                _other => health.judge(path, &source),
            }
            self.inner.go_offline(&source.to_string());
            LogError::Io {
                operation,
                path: path.to_owned(),
                source,
            }
        })
    }

    /// Writes what is queued, makes everything durable, writes the indexes and lets go of the files.
    /// Appends that come later fail. Only after this came back well for every log of a log directory
    /// may its clean marker be written (ST-8). Every aborted transaction is told before ([`Log::note_aborted`]): a start after
    /// a clean stop looks for none.
    ///
    /// # Errors
    /// As [`Log::flush`]. The log must then be recovered when it is opened again.
    pub async fn close(&self) -> Result<(), LogError> {
        let _turns = self.stop_appends().await?;
        match self.settle_swap().await {
            // As after a crash.
            Err(error) if self.check_open().is_ok() => {
                tracing::warn!(log = %self.name(), %error, "a compaction is finished by the next start");
            }
            other => other?,
        }
        next_segment::discard(&self.inner).await;
        let segments = self.inner.state.borrow().segments.clone();
        for segment in segments {
            self.trim(&segment).await?;
        }
        self.sync_now(Reach::Everything, Runner::Awaited).await?;
        let owed = {
            let state = self.inner.state.borrow();
            let epochs = state.epochs_owed.clone();
            state.unstored_epoch().and(epochs)
        };
        if let Some(epochs) = owed {
            // A start after a clean stop takes none from the batches.
            let stored = partition_files::store_epochs(&self.inner.dir, &epochs).await;
            self.inner.judged(stored)?;
            self.inner.state.borrow_mut().epochs_owed = None;
        }
        self.save_closed_indexes().await?;
        let active = Rc::clone(self.inner.state.borrow().active());
        if !active.indexes_saved.get() {
            self.save_indexes(&active).await?;
        }
        self.check_told()?;
        self.let_go();
        Ok(())
    }

    /// A start after a clean stop looks for no aborted transaction.
    fn check_told(&self) -> Result<(), LogError> {
        let state = self.inner.state.borrow();
        let mut all = state.segments.iter();
        match all.find(|segment| segment.aborted.borrow().is_unsaved()) {
            None => Ok(()),
            Some(segment) => Err(LogError::io("write the indexes of", segment.path())(
                io::Error::new(
                    io::ErrorKind::StorageFull,
                    format!(
                        "no room for what was aborted in {}: the next start has to look for it",
                        segment.path().display()
                    ),
                ),
            )),
        }
    }

    /// Takes the partition's directory out of service: renames it to `<name>.<topic id>-delete`,
    /// durably, and removes the files in the background. Plans that were made before can still be
    /// read.
    ///
    /// # Errors
    /// [`LogError::Io`] when the rename fails; [`LogError::Closed`] when it was closed before. A log
    /// that is offline can be deleted.
    pub async fn delete(&self) -> Result<(), LogError> {
        let _turns = match self.stop_appends().await {
            Ok(turns) => turns,
            Err(LogError::Offline { .. }) => {
                next_segment::settled(&self.inner).await;
                self.both_turns().await
            }
            Err(error) => return Err(error),
        };
        self.let_go();
        let inner = &self.inner;
        let unique = self.topic_id().unwrap_or(Uuid::ZERO);
        let aside = inner.parent.join(inner.name.deleted(unique));
        if fs::exists(&aside)
            .await
            .map_err(LogError::io("look for", &aside))?
        {
            fs::remove_dir_all(&aside)
                .await
                .map_err(LogError::io("remove", &aside))?;
        }
        self.part_from_name().await;
        let renamed = fs::rename(&inner.dir, &aside).await;
        inner.judged(renamed.map_err(LogError::io("rename", &inner.dir)))?;
        failpoint::pass("delete: renamed");
        let synced = handles::sync_dir(&inner.parent).await;
        inner.judged(synced.map_err(LogError::io("sync", &inner.parent)))?;
        failpoint::pass("delete: synced");
        let (leftovers, health) = self.leftovers();
        task::spawn(async move {
            leftovers.remove([Leftover::Folder(aside)], &health).await;
        });
        Ok(())
    }

    /// From now on nobody opens or writes by the names of its files: another log may have them soon.
    async fn part_from_name(&self) {
        let saves = {
            let mut state = self.inner.state.borrow_mut();
            state.is_gone = true;
            state.segments.iter().for_each(|segment| segment.retire());
            Rc::clone(&state.rebuilt_turn)
        };
        // One may be writing.
        drop(saves.take().await);
    }

    /// No flush runs, and none begins while these are held.
    pub(crate) async fn both_turns(&self) -> (TurnGuard<'_>, TurnGuard<'_>) {
        let flush = self.inner.flush_turn_soon().await;
        (flush, self.inner.index_turn.take().await)
    }

    /// Refuses appends from now on, waits for those queued, and takes both turns.
    async fn stop_appends(&self) -> Result<(TurnGuard<'_>, TurnGuard<'_>), LogError> {
        self.check_open()?;
        {
            let mut state = self.inner.state.borrow_mut();
            if state.stage == Stage::Closing {
                return Err(LogError::Closed);
            }
            state.stage = Stage::Closing;
        }
        self.inner.idle.until(|| !self.is_writing()).await;
        next_segment::settled(&self.inner).await;
        let turns = self.both_turns().await;
        self.check_open()?;
        Ok(turns)
    }

    fn let_go(&self) {
        let mut state = self.inner.state.borrow_mut();
        if state.stage == Stage::Closing {
            state.stage = Stage::Closed;
        }
        state.tail.clear();
        // Of a deleted log it goes with the directory.
        state.next = NextSegment::None;
        for segment in &state.segments {
            segment.drop_memory();
        }
    }
}
