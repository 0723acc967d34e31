//! Where the leader epochs of a log come from: its file where that can be believed, else its batches (ST-11).

use thalweg_replica::{EpochCache, EpochEntry};
use thalweg_types::{LeaderEpoch, Offset};

use super::Work;
use crate::error::{LogError, is_lack_of_room};
use crate::indexes::BatchMark;
use crate::partition_files;
use crate::scan::{BatchScan, Check, Step};
use crate::segment::Segment;

impl Work {
    /// The entries of the file, if they can be true: they ascend, none is above `max`, and the batch
    /// `first`, which a start reads anyway, is of the epoch that they give it.
    pub(super) fn believable(
        &self,
        stored: Option<Vec<EpochEntry>>,
        max: Option<LeaderEpoch>,
        start: Offset,
        first: Option<BatchMark>,
    ) -> Option<Vec<EpochEntry>> {
        let entries = stored?;
        if entries.is_empty() && first.is_some() {
            // A kill before the first epoch was stored, or a log whose owner keeps none, as that of the metadata: it
            // contradicts nothing, it is of no use.
            tracing::debug!(dir = %self.dir.display(), "no leader epochs: taking them from the batches");
            return None;
        }
        let ascends = |pair: &[EpochEntry]| match pair {
            [one, next] => one.epoch < next.epoch && one.start < next.start,
            _single => true,
        };
        let is_given = |entry: &EpochEntry| max.is_none_or(|max| entry.epoch <= max);
        let agrees = |first: &BatchMark| {
            if first.last_offset < start {
                // Below the start no epoch is kept.
                return true;
            }
            let cache = EpochCache::restore(&entries, start, self.end);
            let told = cache.epoch_at(first.base_offset.max(start));
            let is_same = |told: LeaderEpoch| match self.recovery_point {
                None => told == first.leader_epoch,
                // The file may lack the newest, which the batches bring.
                Some(_) => told <= first.leader_epoch,
            };
            first.leader_epoch.0 < 0 || told.is_some_and(is_same)
        };
        if entries.windows(2).all(ascends)
            && entries.iter().all(is_given)
            && first.as_ref().is_none_or(agrees)
        {
            return Some(entries);
        }
        tracing::warn!(dir = %self.dir.display(), file = partition_files::LEADER_EPOCHS,
            "the leader epochs contradict the batches or the metadata: rebuilding them from the batches");
        None
    }

    pub(super) fn note_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        if epoch.0 >= 0
            && self
                .seen_epochs
                .last()
                .is_none_or(|last| epoch > last.epoch)
        {
            self.seen_epochs.push(EpochEntry { epoch, start });
        }
    }

    /// The epochs of the file, with what the scan saw; all from batches where there is no file to
    /// believe (ST-11).
    pub(super) async fn epochs(
        &mut self,
        stored: Option<Vec<EpochEntry>>,
        start: Offset,
    ) -> Result<EpochCache, LogError> {
        let mut said = Vec::new();
        let entries = match stored {
            Some(entries) => {
                said.clone_from(&entries);
                self.without_contradicted(entries)
            }
            None => {
                self.report.epochs_rebuilt = true;
                self.seen_epochs.clear();
                for segment in self.segments.clone() {
                    self.walk_epochs(&segment).await?;
                }
                std::mem::take(&mut self.seen_epochs)
            }
        };
        let mut cache = EpochCache::restore(&entries, start, self.end);
        for seen in &self.seen_epochs {
            if cache
                .latest()
                .is_none_or(|latest| seen.epoch > latest.epoch)
            {
                let _changed = cache.assign(seen.epoch, seen.start);
            }
        }
        // What was seen below the start is in segments that are on their way out.
        let _changed = cache.truncate_from_start(start);
        let end = self.end;
        let same = said.iter().filter(|entry| entry.start != end);
        self.report.epochs_stored.clone_from(&said);
        if self.report.epochs_rebuilt || !same.eq(cache.entries()) {
            self.report.epochs_stored = cache.entries().to_vec();
            match partition_files::store_epochs(&self.dir, &cache).await {
                // The same is done again at the next start.
                Err(LogError::Io { source, .. }) if is_lack_of_room(&source) => {
                    tracing::warn!(dir = %self.dir.display(), %source, "no room for leader epochs");
                }
                result => result?,
            }
        }
        Ok(cache)
    }

    /// Without the entries above whose start a batch of an earlier epoch was seen: one that was refused and cut off before
    /// the epoch began, and that a loss of power has brought back. So a leader is asked where the batch's own epoch ended
    /// (KIP-101), and has it cut again.
    fn without_contradicted(&self, mut entries: Vec<EpochEntry>) -> Vec<EpochEntry> {
        let seen = &self.seen_epochs;
        let ends = seen.iter().skip(1).map(|next| next.start);
        let runs: Vec<_> = seen.iter().zip(ends.chain([self.end])).collect();
        entries.retain(|entry| {
            let before =
                |(run, end): &(&EpochEntry, Offset)| run.epoch < entry.epoch && *end > entry.start;
            !runs.iter().any(before)
        });
        entries
    }

    async fn walk_epochs(&mut self, segment: &Segment) -> Result<(), LogError> {
        let path = segment.path();
        let file = self.open_log(&path).await?;
        let size = segment.size.get();
        let mut scan = BatchScan::new(file, Check::Headers, segment.base, 0, size);
        // What is not valid here lies below the recovery point: reads of it will fail, not this.
        loop {
            if segment.skip_damage(&mut scan) {
                continue;
            }
            match scan.next().await.map_err(LogError::io("read", &path))? {
                Step::Batch(mark, _) => self.note_epoch(mark.leader_epoch, mark.base_offset),
                Step::End | Step::Bad(_) => return Ok(()),
            }
        }
    }
}
