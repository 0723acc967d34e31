//! The checkpoint files in the root of one log directory, as this process will leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_storage::{
    BoundOffsets, Checkpoint, CleanMark, LogDir, LogError, MAY_HAVE_HOLES, PartitionName,
    PartitionOffsets, RecoveryPoints,
};
use thalweg_types::{Offset, TopicId, TopicPartition};

use crate::metadata_log::MetadataLog;
use crate::requests::{LogProgress, NotOpen, StoppedPartition};

/// Broker epoch in the clean marker while no quorum gives one (ST-7).
const BROKER_EPOCH_NONE: i64 = -1;

/// What one directory's checkpoints say of a partition, but for its recovery point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries {
    pub log_start: Option<Offset>,
    high_watermark: Option<Offset>,
    cleaned_to: Option<Offset>,
    accepted_gap: Option<Offset>,
}

/// Entries per partition, begun from what was found at start.
///
/// An entry must not outlive its partition: a topic that is created again under the same name would
/// inherit it, and a log start above its end would empty the new log (ST-13). So none is made before the
/// files are rid of it ([`Checkpoints::catch_up`]), and what holds for long names its topic by the id.
pub struct Checkpoints {
    dir: Arc<LogDir>,
    recovery_points: PartitionOffsets,
    /// The same by topic ids.
    known_points: RecoveryPoints,
    log_starts: BoundOffsets,
    high_watermarks: PartitionOffsets,
    cleaned_to: BoundOffsets,
    found_damaged: BoundOffsets,
    damaged_after_kill: BoundOffsets,
    /// As repairs have left them.
    accepted_gaps: BoundOffsets,
    /// As the last life left them until all logs are open; then of this one.
    marks: BoundOffsets,
    /// The files still have entries of partitions that are gone.
    is_behind: Arc<AtomicBool>,
}

impl Checkpoints {
    /// The checkpoints of `dir` as they were found.
    #[must_use]
    pub fn of(dir: LogDir) -> Checkpoints {
        Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            known_points: dir.known_points().cloned().unwrap_or_default(),
            log_starts: dir.bound(Checkpoint::LogStart).clone(),
            high_watermarks: dir.loaded(Checkpoint::HighWatermark).clone(),
            cleaned_to: dir.bound(Checkpoint::Cleaner).clone(),
            found_damaged: dir.bound(Checkpoint::FoundDamaged).clone(),
            damaged_after_kill: dir.bound(Checkpoint::DamagedAfterKill).clone(),
            accepted_gaps: dir.bound(Checkpoint::AcceptedGaps).clone(),
            marks: dir.found_marks().clone(),
            is_behind: Arc::default(),
            dir: Arc::new(dir),
        }
    }

    /// The log directory, beside what is written into it.
    pub(crate) fn shared_dir(&self) -> Arc<LogDir> {
        Arc::clone(&self.dir)
    }

    /// Whether [`Checkpoints::catch_up`] has something to do.
    pub(crate) fn behind(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_behind)
    }

    /// The log directory, as long as nothing shares it.
    pub(crate) fn dir_mut(&mut self) -> Option<&mut LogDir> {
        Arc::get_mut(&mut self.dir)
    }

    /// Says that these partitions are as Kafka left them, where the directory had no recovery points by id, and takes
    /// entries of which it does not say the topic for those of the topics that there are.
    pub(crate) fn know(
        &mut self,
        partitions: impl Iterator<Item = (PartitionName, TopicPartition)>,
    ) {
        let has_points = self.dir.known_points().is_some();
        let metadata = (MetadataLog::partition(), MetadataLog::id());
        for (name, id) in partitions.chain([metadata]) {
            let is_there = id != MetadataLog::id() || self.recovery_points.contains_key(&name);
            if is_there && !has_points {
                self.known_points.entry(id).or_insert(MAY_HAVE_HOLES);
            }
            for bound in self.bound() {
                bound.know(&name, id.topic);
            }
        }
    }

    fn bound(&mut self) -> [&mut BoundOffsets; 6] {
        [
            &mut self.log_starts,
            &mut self.cleaned_to,
            &mut self.found_damaged,
            &mut self.damaged_after_kill,
            &mut self.accepted_gaps,
            &mut self.marks,
        ]
    }

    /// Removes what [`Checkpoints::retain`] could not: to be called before a partition is made, which must not
    /// inherit from another of its name.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(crate) async fn catch_up(&mut self) -> Result<(), LogError> {
        match self.is_behind.load(Ordering::Relaxed) {
            true => self.write_all().await,
            false => Ok(()),
        }
    }

    /// Whether the files are behind is known when it ends: nobody is to wait for what is merely under way.
    async fn write_all(&mut self) -> Result<(), LogError> {
        let written = async {
            self.write().await?;
            self.write_rare().await?;
            self.dir.write_marks(&self.marks).await
        };
        let written = written.await;
        self.is_behind.store(written.is_err(), Ordering::Relaxed);
        written
    }

    /// Removes, durably, the entries of partitions for which `keep` and `keep_id` are false.
    ///
    /// # Errors
    /// See [`LogError`]; entries in memory are gone all the same.
    pub async fn retain(
        &mut self,
        keep: impl Fn(&PartitionName) -> bool,
        keep_id: impl Fn(TopicPartition) -> bool,
    ) -> Result<(), LogError> {
        let before = self.known_points.len();
        self.known_points.retain(|id, _| keep_id(*id));
        let mut fell = self.known_points.len() < before;
        let keep_bound = |name: &PartitionName, topic: Option<TopicId>| {
            let of = topic.map(|topic| TopicPartition {
                topic,
                partition: name.partition,
            });
            keep(name) && of.is_none_or(&keep_id)
        };
        for bound in self.bound() {
            fell |= bound.retain(keep_bound);
        }
        for map in [&mut self.recovery_points, &mut self.high_watermarks] {
            let before = map.len();
            map.retain(|name, _| keep(name));
            fell |= map.len() < before;
        }
        match fell {
            true => self.write_all().await,
            false => self.catch_up().await,
        }
    }

    /// Makes durable which partitions are damaged although a clean stop or a kill had left them whole, so
    /// that the next start does not take what is left of them for the end that a crash tore; and, if nothing does, which
    /// of them are Kafka's: one of which nothing is said then is not. Says, not durably, which are open
    /// ([`LogDir::record_whole`]). To be called when all are opened and before any is written to.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn record_opened(
        &mut self,
        not_open: &BTreeMap<PartitionName, (TopicId, NotOpen)>,
    ) -> Result<(), LogError> {
        for (wanted, found, checkpoint) in [
            (
                NotOpen::DamagedAfterStop,
                &mut self.found_damaged,
                Checkpoint::FoundDamaged,
            ),
            (
                NotOpen::DamagedAfterKill,
                &mut self.damaged_after_kill,
                Checkpoint::DamagedAfterKill,
            ),
        ] {
            let mut damaged = BoundOffsets::default();
            for (name, (topic, how)) in not_open {
                if *how == wanted {
                    let before = found.of(name, *topic);
                    let point = before.or(self.recovery_points.get(name).copied());
                    // What was written was there when it was killed.
                    let mark = self.marks.of(name, *topic);
                    let mark = mark.filter(|_| wanted == NotOpen::DamagedAfterKill);
                    damaged.insert(name.clone(), *topic, point.max(mark).unwrap_or_default());
                }
            }
            if damaged != *found {
                *found = damaged;
                write_damaged(&self.dir, checkpoint, found).await?;
            }
        }
        if self.dir.known_points().is_none() {
            match self.dir.write_known_points(&self.known_points).await {
                // Without it the next start believes Kafka's checkpoint as this one did.
                Err(error) if error.may_pass() => {
                    tracing::warn!(%error, "no room for recovery points by topic id");
                }
                other => other?,
            }
        }
        let topics = not_open.iter();
        let not_open = topics.map(|(name, (topic, _))| (name.clone(), *topic));
        let not_open = not_open.collect();
        self.dir.record_whole(&not_open).await
    }

    /// Makes durable that these logs begin there. An entry never falls back.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then begin the logs where they began before.
    pub async fn record_log_starts(
        &mut self,
        starts: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> Result<(), LogError> {
        for (name, (id, start)) in starts {
            self.log_starts.raise(name, id.topic, start);
        }
        self.dir
            .write_bound(Checkpoint::LogStart, &self.log_starts)
            .await
    }

    /// Writes down, not durably, up to where these logs are marked as written.
    ///
    /// # Errors
    /// See [`LogError`]; a start after a kill may then check more.
    pub async fn record_marks(
        &mut self,
        marks: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> Result<(), LogError> {
        self.mark(marks);
        self.dir.write_marks(&self.marks).await
    }

    fn mark(&mut self, marks: Vec<(PartitionName, (TopicPartition, Offset))>) {
        for (name, (id, end)) in marks {
            self.marks.insert(name, id.topic, end);
        }
    }

    /// Writes down the marks of the logs as a start has opened them, and the old ones of those that are `not_open`, to
    /// which nothing was written: to be called before any is. Where there is no room for them there are none.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn replace_marks(
        &mut self,
        marks: Vec<(PartitionName, (TopicPartition, Offset))>,
        not_open: &BTreeMap<PartitionName, NotOpen>,
    ) -> Result<(), LogError> {
        self.marks.retain(|name, _| not_open.contains_key(name));
        self.mark(marks);
        match self.dir.write_marks(&self.marks).await {
            Err(error) if error.may_pass() => {
                tracing::warn!(%error, "a start after a kill has more to check");
                self.dir.forget_marks().await
            }
            other => other,
        }
    }

    /// Makes durable how far these logs are. Entries may fall: a log may have been cut when it was
    /// opened.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then check more.
    pub async fn record_progress(
        &mut self,
        progress: Vec<(PartitionName, (TopicPartition, LogProgress))>,
    ) -> Result<(), LogError> {
        for (name, (id, now)) in progress {
            self.known_points.insert(id, now.known_point);
            self.recovery_points
                .insert(name.clone(), now.recovery_point);
            self.high_watermarks.insert(name, now.high_watermark);
        }
        for (checkpoint, offsets) in [
            (Checkpoint::RecoveryPoint, &self.recovery_points),
            (Checkpoint::HighWatermark, &self.high_watermarks),
        ] {
            self.dir.write_checkpoint(checkpoint, offsets).await?;
        }
        self.dir.write_known_points(&self.known_points).await
    }

    /// What is said of a partition that another directory takes over.
    pub(crate) fn entries(&self, name: &PartitionName, topic: TopicId) -> Entries {
        Entries {
            log_start: self.log_starts.of(name, topic),
            high_watermark: self.high_watermarks.get(name).copied(),
            cleaned_to: self.cleaned_to.of(name, topic),
            accepted_gap: self.accepted_gaps.of(name, topic),
        }
    }

    /// Says the same here, durably, of a log that is on the disk below `durable`.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(crate) async fn take_over(
        &mut self,
        name: &PartitionName,
        id: TopicPartition,
        entries: Entries,
        durable: Offset,
    ) -> Result<(), LogError> {
        for (map, entry) in [
            (&mut self.recovery_points, Some(durable)),
            (&mut self.high_watermarks, entries.high_watermark),
        ] {
            match entry {
                Some(offset) => drop(map.insert(name.clone(), offset)),
                None => drop(map.remove(name)),
            }
        }
        for (bound, entry) in [
            (&mut self.log_starts, entries.log_start),
            (&mut self.cleaned_to, entries.cleaned_to),
            (&mut self.accepted_gaps, entries.accepted_gap),
        ] {
            match entry {
                Some(offset) => bound.insert(name.clone(), id.topic, offset),
                None => drop(bound.remove(name)),
            }
        }
        self.known_points.insert(id, durable);
        if self.marks.remove(name) {
            // It is of an earlier stay.
            self.dir.write_marks(&self.marks).await?;
        }
        self.write_rare().await?;
        self.write().await
    }

    /// Makes durable how far these logs are compacted. An entry may fall back: where its log lost what
    /// lay below, compaction starts over.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then compact again what is compacted already.
    pub async fn record_cleaned(
        &mut self,
        cleaned: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> Result<(), LogError> {
        for (name, (id, end)) in cleaned {
            self.cleaned_to.insert(name, id.topic, end);
        }
        self.dir
            .write_bound(Checkpoint::Cleaner, &self.cleaned_to)
            .await
    }

    /// Writes the checkpoints, then the clean marker if every log that was open deserves it. Those that this
    /// life did not open are told apart, so that one of them does not have all others checked. `metadata_end`
    /// is told where the metadata log is in this directory.
    ///
    /// # Errors
    /// See [`LogError`]; the next start then recovers.
    pub async fn close(
        &mut self,
        metadata_end: Option<Offset>,
        stopped: Vec<StoppedPartition>,
    ) -> Result<CleanMark, LogError> {
        let mut open: BTreeSet<PartitionName> = stopped.iter().map(|s| s.name.clone()).collect();
        // Nothing was written to them since the last clean stop.
        let damaged = self.found_damaged.offsets();
        let mut closed: BTreeSet<_> = damaged.keys().cloned().collect();
        if let Some(end) = metadata_end {
            let metadata = MetadataLog::partition();
            open.insert(metadata.clone());
            closed.insert(metadata.clone());
            self.recovery_points.insert(metadata, end);
            self.known_points.insert(MetadataLog::id(), end);
        }
        for partition in stopped {
            let name = partition.name;
            self.known_points
                .insert(partition.id, partition.known_point);
            self.recovery_points
                .insert(name.clone(), partition.recovery_point);
            self.log_starts
                .insert(name.clone(), partition.id.topic, partition.log_start);
            self.high_watermarks
                .insert(name.clone(), partition.high_watermark);
            if partition.closed_well {
                closed.insert(name);
            }
        }
        self.write().await?;
        closed.extend(self.record_unopened(&open).await?);
        self.dir.mark_clean(BROKER_EPOCH_NONE, &closed).await
    }

    /// Writes down which partitions were not open, and names them.
    async fn record_unopened(
        &self,
        open: &BTreeSet<PartitionName>,
    ) -> Result<Vec<PartitionName>, LogError> {
        let mut unopened = self.dir.partition_names().await?;
        let damaged = self.found_damaged.offsets();
        unopened.retain(|name| !open.contains(name) && !damaged.contains_key(name));
        if unopened.is_empty() {
            self.dir.remove_checkpoint(Checkpoint::Unopened).await?;
            return Ok(unopened);
        }
        let shown: Vec<String> = unopened.iter().take(10).map(ToString::to_string).collect();
        tracing::warn!(
            partitions = unopened.len(),
            first = shown.join(", "),
            "not open at the stop: the next start checks these as after a crash"
        );
        let point = |name: &PartitionName| {
            let at = self.recovery_points.get(name).copied();
            (name.clone(), at.unwrap_or_default())
        };
        let entries = unopened.iter().map(point).collect();
        self.dir
            .write_checkpoint(Checkpoint::Unopened, &entries)
            .await?;
        Ok(unopened)
    }

    async fn write(&mut self) -> Result<(), LogError> {
        for (checkpoint, offsets) in [
            (Checkpoint::RecoveryPoint, &self.recovery_points),
            (Checkpoint::HighWatermark, &self.high_watermarks),
        ] {
            self.dir.write_checkpoint(checkpoint, offsets).await?;
        }
        for (checkpoint, entries) in [
            (Checkpoint::Cleaner, &self.cleaned_to),
            (Checkpoint::LogStart, &self.log_starts),
        ] {
            self.dir.write_bound(checkpoint, entries).await?;
        }
        // Last: high watermarks count for the topics that are in it.
        self.dir.write_known_points(&self.known_points).await
    }

    /// Writes those that have entries of few logs, or none.
    async fn write_rare(&self) -> Result<(), LogError> {
        for (checkpoint, entries) in [
            (Checkpoint::FoundDamaged, &self.found_damaged),
            (Checkpoint::DamagedAfterKill, &self.damaged_after_kill),
        ] {
            write_damaged(&self.dir, checkpoint, entries).await?;
        }
        let (gaps, entries) = (Checkpoint::AcceptedGaps, &self.accepted_gaps);
        match entries.offsets().is_empty() {
            true => self.dir.remove_checkpoint(gaps).await,
            false => self.dir.write_bound(gaps, entries).await,
        }
    }
}

async fn write_damaged(
    dir: &LogDir,
    checkpoint: Checkpoint,
    entries: &BoundOffsets,
) -> Result<(), LogError> {
    if !entries.offsets().is_empty() {
        match dir.write_bound(checkpoint, entries).await {
            // Without it the next start is as careful as after any crash.
            Err(error) if error.may_pass() => {
                tracing::warn!(%error, "no room to write down which partitions are damaged");
            }
            other => return other,
        }
    }
    dir.remove_checkpoint(checkpoint).await
}
