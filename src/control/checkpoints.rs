//! The checkpoint files in the root of one log directory, as this process will leave them.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_storage::{
    Checkpoint, CleanMark, LogDir, LogError, PartitionName, PartitionOffsets, RecoveryPoints,
    StartTopics,
};
use thalweg_types::{Offset, TopicPartition};

use crate::metadata_log::MetadataLog;
use crate::requests::{LogProgress, NotOpen, StoppedPartition};

/// Broker epoch in the clean marker while no quorum gives one (ST-7).
const BROKER_EPOCH_NONE: i64 = -1;

/// What one directory's checkpoints say of a partition, but for its recovery point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries {
    log_start: Option<Offset>,
    high_watermark: Option<Offset>,
    cleaned_to: Option<Offset>,
}

/// Entries per partition, begun from what was found at start.
///
/// An entry must not outlive its partition: a topic that is created again under the same name would
/// inherit it, and a log start above its end would empty the new log (ST-13).
pub struct Checkpoints {
    dir: LogDir,
    recovery_points: PartitionOffsets,
    /// The same by topic ids.
    known_points: RecoveryPoints,
    log_starts: PartitionOffsets,
    /// The topics that these are of.
    start_topics: StartTopics,
    high_watermarks: PartitionOffsets,
    cleaned_to: PartitionOffsets,
    found_damaged: PartitionOffsets,
    damaged_after_kill: PartitionOffsets,
    /// As the last life left them until all logs are open; then of this one.
    marks: PartitionOffsets,
    /// The files still have entries of partitions that are gone.
    is_behind: bool,
}

impl Checkpoints {
    /// The checkpoints of `dir` as they were found.
    #[must_use]
    pub fn of(dir: LogDir) -> Checkpoints {
        Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            known_points: dir.known_points().cloned().unwrap_or_default(),
            log_starts: dir.loaded(Checkpoint::LogStart).clone(),
            start_topics: dir.start_topics().clone(),
            high_watermarks: dir.loaded(Checkpoint::HighWatermark).clone(),
            cleaned_to: dir.loaded(Checkpoint::Cleaner).clone(),
            found_damaged: dir.loaded(Checkpoint::FoundDamaged).clone(),
            damaged_after_kill: dir.loaded(Checkpoint::DamagedAfterKill).clone(),
            marks: dir.found_marks().clone(),
            is_behind: false,
            dir,
        }
    }

    /// The log directory.
    #[must_use]
    pub fn dir(&self) -> &LogDir {
        &self.dir
    }

    /// As [`Checkpoints::dir`].
    #[must_use]
    pub fn dir_mut(&mut self) -> &mut LogDir {
        &mut self.dir
    }

    /// Takes recovery points by id from those by name, where the directory had none by id, and log starts of which
    /// it does not say the topic for those of the topics that there are.
    pub(crate) fn know(
        &mut self,
        partitions: impl Iterator<Item = (PartitionName, TopicPartition)>,
    ) {
        let has_points = self.dir.known_points().is_some();
        let metadata = (MetadataLog::partition(), MetadataLog::id());
        for (name, id) in partitions.chain([metadata]) {
            if let Some(at) = self.recovery_points.get(&name).filter(|_| !has_points) {
                self.known_points.insert(id, *at);
            }
            if self.log_starts.contains_key(&name) {
                self.start_topics.entry(name).or_insert(id.topic);
            }
        }
    }

    /// Removes what [`Checkpoints::retain`] could not: to be called before a partition is made, which must not
    /// inherit from another of its name.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(crate) async fn catch_up(&mut self) -> Result<(), LogError> {
        if self.is_behind {
            self.write().await?;
        }
        Ok(())
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
        let mut changed = self.known_points.len() < before;
        let before = self.log_starts.len();
        let topics = &self.start_topics;
        self.log_starts.retain(|name, _| {
            let of = topics.get(name).map(|topic| TopicPartition {
                topic: *topic,
                partition: name.partition,
            });
            keep(name) && of.is_none_or(&keep_id)
        });
        changed |= self.log_starts.len() < before;
        let starts = &self.log_starts;
        self.start_topics
            .retain(|name, _| starts.contains_key(name));
        for map in [
            &mut self.recovery_points,
            &mut self.high_watermarks,
            &mut self.cleaned_to,
        ] {
            let before = map.len();
            map.retain(|name, _| keep(name));
            changed |= map.len() < before;
        }
        if changed {
            self.is_behind = true;
            self.write().await?;
        }
        let before = self.marks.len();
        self.marks.retain(|name, _| keep(name));
        if self.marks.len() < before {
            self.dir.write_marks(&self.marks).await?;
        }
        for (damaged, checkpoint) in [
            (&mut self.found_damaged, Checkpoint::FoundDamaged),
            (&mut self.damaged_after_kill, Checkpoint::DamagedAfterKill),
        ] {
            let before = damaged.len();
            damaged.retain(|name, _| keep(name));
            if damaged.len() < before {
                write_damaged(&self.dir, checkpoint, damaged).await?;
            }
        }
        Ok(())
    }

    /// Makes durable which partitions are damaged although a clean stop or a kill had left them whole, so
    /// that the next start does not take what is left of them for the end that a crash tore; and says, not durably,
    /// which are open ([`LogDir::record_whole`]). To be called when all are opened and before any is
    /// written to.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn record_opened(
        &mut self,
        not_open: &BTreeMap<PartitionName, NotOpen>,
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
            let known = |name: &PartitionName| {
                let end = found.get(name).or(self.recovery_points.get(name));
                (name.clone(), end.copied().unwrap_or_default())
            };
            let damaged = not_open.iter().filter(|(_, how)| **how == wanted);
            let damaged: PartitionOffsets = damaged.map(|(name, _)| known(name)).collect();
            if damaged != *found {
                *found = damaged;
                write_damaged(&self.dir, checkpoint, found).await?;
            }
        }
        let not_open = not_open.keys().cloned().collect();
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
            let of = self.start_topics.insert(name.clone(), id.topic);
            if of.is_some_and(|of| of != id.topic) {
                self.log_starts.remove(&name);
            }
            let entry = self.log_starts.entry(name).or_insert(start);
            *entry = start.max(*entry);
        }
        self.dir
            .write_log_starts(&self.log_starts, &self.start_topics)
            .await
    }

    /// Writes down, not durably, up to where these logs are marked as written.
    ///
    /// # Errors
    /// See [`LogError`]; a start after a kill may then check more.
    pub async fn record_marks(
        &mut self,
        marks: Vec<(PartitionName, Offset)>,
    ) -> Result<(), LogError> {
        self.marks.extend(marks);
        self.dir.write_marks(&self.marks).await
    }

    /// Writes down the marks of the logs as a start has opened them, and no others: to be called before any is
    /// written to. Where there is no room for them there are none.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn replace_marks(
        &mut self,
        marks: Vec<(PartitionName, Offset)>,
    ) -> Result<(), LogError> {
        self.marks = marks.into_iter().collect();
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
            self.known_points.insert(id, now.recovery_point);
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
    pub(crate) fn entries(&self, name: &PartitionName) -> Entries {
        Entries {
            log_start: self.log_starts.get(name).copied(),
            high_watermark: self.high_watermarks.get(name).copied(),
            cleaned_to: self.cleaned_to.get(name).copied(),
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
            (&mut self.log_starts, entries.log_start),
            (&mut self.high_watermarks, entries.high_watermark),
            (&mut self.cleaned_to, entries.cleaned_to),
        ] {
            match entry {
                Some(offset) => drop(map.insert(name.clone(), offset)),
                None => drop(map.remove(name)),
            }
        }
        match entries.log_start {
            Some(_) => drop(self.start_topics.insert(name.clone(), id.topic)),
            None => drop(self.start_topics.remove(name)),
        }
        self.known_points.insert(id, durable);
        if self.marks.remove(name).is_some() {
            // It is of an earlier stay.
            self.dir.write_marks(&self.marks).await?;
        }
        self.write().await
    }

    /// Makes durable how far these logs are compacted. An entry may fall back: where its log lost what
    /// lay below, compaction starts over.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then compact again what is compacted already.
    pub async fn record_cleaned(
        &mut self,
        cleaned: Vec<(PartitionName, Offset)>,
    ) -> Result<(), LogError> {
        self.cleaned_to.extend(cleaned);
        self.dir
            .write_checkpoint(Checkpoint::Cleaner, &self.cleaned_to)
            .await
    }

    /// Writes the checkpoints, then the clean marker if every log that was open deserves it. Those that this
    /// life did not open are told apart, so that one of them does not have all others checked. `metadata_end`
    /// is told where the metadata log is in this directory.
    ///
    /// # Errors
    /// See [`LogError`]; the next start then recovers.
    pub async fn close(
        mut self,
        metadata_end: Option<Offset>,
        stopped: Vec<StoppedPartition>,
    ) -> Result<CleanMark, LogError> {
        let mut open: BTreeSet<PartitionName> = stopped.iter().map(|s| s.name.clone()).collect();
        // Nothing was written to them since the last clean stop.
        let mut closed: BTreeSet<_> = self.found_damaged.keys().cloned().collect();
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
                .insert(partition.id, partition.recovery_point);
            self.recovery_points
                .insert(name.clone(), partition.recovery_point);
            self.log_starts.insert(name.clone(), partition.log_start);
            self.start_topics.insert(name.clone(), partition.id.topic);
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
        unopened.retain(|name| !open.contains(name) && !self.found_damaged.contains_key(name));
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
            (Checkpoint::Cleaner, &self.cleaned_to),
        ] {
            self.dir.write_checkpoint(checkpoint, offsets).await?;
        }
        self.dir
            .write_log_starts(&self.log_starts, &self.start_topics)
            .await?;
        self.dir.write_known_points(&self.known_points).await?;
        self.is_behind = false;
        Ok(())
    }
}

async fn write_damaged(
    dir: &LogDir,
    checkpoint: Checkpoint,
    damaged: &PartitionOffsets,
) -> Result<(), LogError> {
    if !damaged.is_empty() {
        match dir.write_checkpoint(checkpoint, damaged).await {
            // Without it the next start is as careful as after any crash.
            Err(error) if error.may_pass() => {
                tracing::warn!(%error, "no room to write down which partitions are damaged");
            }
            other => return other,
        }
    }
    dir.remove_checkpoint(checkpoint).await
}
