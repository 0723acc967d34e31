//! Which leader epochs a start after a crash leaves as they are: a broker that crashes again and again does not write
//! one for every partition each time (ST-34).
//!
//! Where nothing was written in an epoch and nothing is lost, it can go on, and so can one of which nobody knows. The last
//! start has given epochs of which nobody knows when it ended before it served anybody: the directory of the metadata log says so
//! from when they are in that log until the broker serves.

use std::collections::{BTreeSet, HashSet};

use thalweg_metadata::Image;
use thalweg_storage::{Checkpoint, LogError, PartitionOffsets};
use thalweg_types::{BrokerId, Offset, TopicPartition};

use super::{LogDirs, despite_lack_of_room, ids_of};
use crate::metadata_log::MetadataLog;

impl LogDirs {
    /// Partitions that `local` leads in an epoch in which nothing was written, and that lost nothing to the crash.
    pub(crate) async fn untouched(
        &self,
        image: &Image,
        local: BrokerId,
    ) -> HashSet<TopicPartition> {
        let mut untouched = HashSet::new();
        for (here, dir) in self.working() {
            let led = ids_of(image).filter_map(|(id, name)| {
                let partition = image.partition(id)?;
                let is_led = partition.leader == Some(local) && self.home(&name) == Some(here);
                is_led.then_some((id, name, partition.leader_epoch))
            });
            let (mut ids, mut asked) = (Vec::new(), Vec::new());
            for (id, name, epoch) in led {
                ids.push((id, name.clone()));
                asked.push((name, epoch));
            }
            let names: BTreeSet<_> = dir.untouched(asked).await;
            let told = ids.into_iter().filter(|(_, name)| names.contains(name));
            untouched.extend(told.map(|(id, _)| id));
        }
        untouched
    }

    /// True when nobody has seen the epochs that the last start gave. The metadata log ends at `metadata_end`, as it left
    /// it.
    pub(crate) fn are_epochs_unseen(&self, metadata_end: Offset) -> bool {
        let noted = self.metadata().loaded(Checkpoint::EpochsUnseen);
        noted.get(&MetadataLog::partition()) == Some(&metadata_end)
    }

    /// The epochs of this start are in the metadata log, which ends at `metadata_end`, and nobody has seen them yet. Where
    /// there is no room to say so the next start gives others; so it does where a directory is missing, whose partitions
    /// got none.
    ///
    /// # Errors
    /// See [`LogError`].
    pub(crate) async fn note_epochs_unseen(&self, metadata_end: Offset) -> Result<(), LogError> {
        if self.any_failed() {
            return Ok(());
        }
        let noted = PartitionOffsets::from([(MetadataLog::partition(), metadata_end)]);
        let dir = self.metadata();
        let written = dir.write_checkpoint(Checkpoint::EpochsUnseen, &noted).await;
        despite_lack_of_room(written).map(|_done| ())
    }

    /// From here on somebody may see them.
    ///
    /// # Errors
    /// See [`LogError`]; nobody may be served then.
    pub(crate) async fn note_epochs_seen(&self) -> Result<(), LogError> {
        let dir = self.metadata();
        dir.remove_checkpoint(Checkpoint::EpochsUnseen).await
    }
}
