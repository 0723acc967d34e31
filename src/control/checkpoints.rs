//! The checkpoint files in the root of the log directory, as this process will leave them.

use thalweg_storage::{Checkpoint, CleanMark, LogDir, LogError, PartitionName, PartitionOffsets};
use thalweg_types::Offset;

use crate::requests::StoppedPartition;

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
}

impl Checkpoints {
    /// The checkpoints of `dir` as they were found.
    #[must_use]
    pub fn of(dir: LogDir) -> Checkpoints {
        Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            log_starts: dir.loaded(Checkpoint::LogStart).clone(),
            high_watermarks: dir.loaded(Checkpoint::HighWatermark).clone(),
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
        ] {
            let before = map.len();
            map.retain(|name, _| keep(name));
            changed |= map.len() < before;
        }
        match changed {
            true => self.write().await,
            false => Ok(()),
        }
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

    /// Writes the checkpoints, then the clean marker if every log deserves it.
    ///
    /// # Errors
    /// See [`LogError`]; the next start then recovers.
    pub async fn close(
        mut self,
        metadata: (PartitionName, Offset),
        stopped: Vec<StoppedPartition>,
    ) -> Result<CleanMark, LogError> {
        let mut closed = std::collections::BTreeSet::from([metadata.0.clone()]);
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
        ] {
            self.dir.write_checkpoint(checkpoint, offsets).await?;
        }
        Ok(())
    }
}
