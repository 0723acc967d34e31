//! The checkpoint files in the root of the log directory, as this process will leave them.

use std::collections::BTreeSet;

use thalweg_storage::{Checkpoint, CleanMark, LogDir, LogError, PartitionName, PartitionOffsets};
use thalweg_types::Offset;

use crate::requests::{LogProgress, StoppedPartition};

/// Broker epoch in the clean marker while no quorum gives one (ST-7).
const BROKER_EPOCH_NONE: i64 = -1;

/// Entries per partition, begun from what was found at start.
///
/// An entry must not outlive its partition: a topic that is created again under the same name would
/// inherit it, and a log start above its end would empty the new log (ST-13).
pub struct Checkpoints {
    dir: LogDir,
    recovery_points: PartitionOffsets,
    log_starts: PartitionOffsets,
    high_watermarks: PartitionOffsets,
    cleaned_to: PartitionOffsets,
    found_damaged: PartitionOffsets,
    /// Of this life.
    marks: PartitionOffsets,
}

impl Checkpoints {
    /// The checkpoints of `dir` as they were found.
    #[must_use]
    pub fn of(dir: LogDir) -> Checkpoints {
        Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            log_starts: dir.loaded(Checkpoint::LogStart).clone(),
            high_watermarks: dir.loaded(Checkpoint::HighWatermark).clone(),
            cleaned_to: dir.loaded(Checkpoint::Cleaner).clone(),
            found_damaged: dir.loaded(Checkpoint::FoundDamaged).clone(),
            marks: PartitionOffsets::new(),
            dir,
        }
    }

    /// The log directory.
    #[must_use]
    pub fn dir(&self) -> &LogDir {
        &self.dir
    }

    /// Removes, durably, the entries of partitions for which `keep` is false.
    ///
    /// # Errors
    /// See [`LogError`]; entries in memory are gone all the same.
    pub async fn retain(&mut self, keep: impl Fn(&PartitionName) -> bool) -> Result<(), LogError> {
        let mut changed = false;
        for map in [
            &mut self.recovery_points,
            &mut self.log_starts,
            &mut self.high_watermarks,
            &mut self.cleaned_to,
        ] {
            let before = map.len();
            map.retain(|name, _| keep(name));
            changed |= map.len() < before;
        }
        if changed {
            self.write().await?;
        }
        let before = self.marks.len();
        self.marks.retain(|name, _| keep(name));
        if self.marks.len() < before {
            self.dir.write_marks(&self.marks).await?;
        }
        let before = self.found_damaged.len();
        self.found_damaged.retain(|name, _| keep(name));
        match self.found_damaged.len() < before {
            true => self.write_damaged().await,
            false => Ok(()),
        }
    }

    /// Makes durable which partitions are damaged although a clean stop had left them whole, so that
    /// the next start does not take what is left of them for the end that a crash tore. To be called
    /// when all are opened and before any is written to.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn record_damaged(
        &mut self,
        damaged: &BTreeSet<PartitionName>,
    ) -> Result<(), LogError> {
        let known = |name: &PartitionName| {
            let end = self.found_damaged.get(name);
            let end = end.or(self.recovery_points.get(name)).copied();
            (name.clone(), end.unwrap_or_default())
        };
        let damaged: PartitionOffsets = damaged.iter().map(known).collect();
        if damaged == self.found_damaged {
            return Ok(());
        }
        self.found_damaged = damaged;
        self.write_damaged().await
    }

    async fn write_damaged(&self) -> Result<(), LogError> {
        let checkpoint = Checkpoint::FoundDamaged;
        if !self.found_damaged.is_empty() {
            let written = self
                .dir
                .write_checkpoint(checkpoint, &self.found_damaged)
                .await;
            match written {
                // Without it the next start is as careful as after any crash.
                Err(error) if error.may_pass() => {
                    tracing::warn!(%error, "no room to write down which partitions are damaged");
                }
                other => return other,
            }
        }
        self.dir.remove_checkpoint(checkpoint).await
    }

    /// Makes durable that these logs begin there. An entry never falls back.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then begin the logs where they began before.
    pub async fn record_log_starts(
        &mut self,
        starts: Vec<(PartitionName, Offset)>,
    ) -> Result<(), LogError> {
        for (name, start) in starts {
            let entry = self.log_starts.entry(name).or_insert(start);
            *entry = start.max(*entry);
        }
        self.dir
            .write_checkpoint(Checkpoint::LogStart, &self.log_starts)
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

    /// Makes durable how far these logs are. Entries may fall: a log may have been cut when it was
    /// opened.
    ///
    /// # Errors
    /// See [`LogError`]; the next start may then check more.
    pub async fn record_progress(
        &mut self,
        progress: Vec<(PartitionName, LogProgress)>,
    ) -> Result<(), LogError> {
        for (name, now) in progress {
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
        Ok(())
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

    /// Writes the checkpoints, then the clean marker if every log deserves it.
    ///
    /// # Errors
    /// See [`LogError`]; the next start then recovers.
    pub async fn close(
        mut self,
        metadata: (PartitionName, Offset),
        stopped: Vec<StoppedPartition>,
    ) -> Result<CleanMark, LogError> {
        let mut closed = BTreeSet::from([metadata.0.clone()]);
        // Nothing was written to them since the last clean stop.
        closed.extend(self.found_damaged.keys().cloned());
        self.recovery_points.insert(metadata.0, metadata.1);
        for partition in stopped {
            let name = partition.name;
            self.recovery_points
                .insert(name.clone(), partition.recovery_point);
            self.log_starts.insert(name.clone(), partition.log_start);
            self.high_watermarks
                .insert(name.clone(), partition.high_watermark);
            if partition.closed_well {
                closed.insert(name);
            }
        }
        self.write().await?;
        self.dir.mark_clean(BROKER_EPOCH_NONE, &closed).await
    }

    async fn write(&self) -> Result<(), LogError> {
        for (checkpoint, offsets) in [
            (Checkpoint::RecoveryPoint, &self.recovery_points),
            (Checkpoint::LogStart, &self.log_starts),
            (Checkpoint::HighWatermark, &self.high_watermarks),
            (Checkpoint::Cleaner, &self.cleaned_to),
        ] {
            self.dir.write_checkpoint(checkpoint, offsets).await?;
        }
        Ok(())
    }
}
