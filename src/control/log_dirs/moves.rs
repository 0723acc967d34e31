//! Partitions on their way from one log directory to another (KIP-113).
//!
//! From just before a copy takes the place of a log until that is over, what the checkpoints say of the
//! partition is said in both directories: whichever of the two a crash leaves has it. What is then said of a
//! place where the partition is not, the next start removes.

use std::collections::BTreeMap;

use thalweg_metadata::Image;
use thalweg_storage::{FutureDir, FutureLog, LogError, PartitionName};
use thalweg_types::{Offset, TopicPartition};

use super::{DirIndex, LogDirs, despite_lack_of_room};
use crate::requests::{FutureFound, MoveOutcome};

/// Copies of partitions that lie in the log directories.
#[derive(Default)]
pub(crate) struct Futures {
    /// Those that a move goes on with.
    wanted: BTreeMap<PartitionName, FutureFound>,
    /// Of no use.
    useless: Vec<(DirIndex, String)>,
}

impl LogDirs {
    /// Sorts the copies that were found by what becomes of them. To be called when it is known where partitions
    /// are.
    pub(super) fn settle_futures(&mut self, image: &Image, found: &[(DirIndex, FutureDir)]) {
        for (dir, future) in found {
            // The name in the folder may be cut; without an id there is no other.
            let by_id = future.topic_id.and_then(|id| image.topic_by_id(id));
            let topic = match future.topic_id {
                Some(_) => by_id,
                None => image.topic(&future.name.topic),
            };
            let index = future.name.partition;
            let topic = topic.filter(|topic| topic.partitions.contains_key(&index));
            let Some(topic) = topic else {
                self.futures.useless.push((*dir, future.folder.clone()));
                continue;
            };
            let name = PartitionName::new(topic.name.to_string(), index.0);
            match self.home(&name) {
                // Its log directory is not here: the copy may be of use when it is.
                None => {}
                Some(home) if home == *dir || self.futures.wanted.contains_key(&name) => {
                    self.futures.useless.push((*dir, future.folder.clone()));
                }
                Some(_) => {
                    let found = FutureFound {
                        dir: *dir,
                        folder: future.folder.clone(),
                    };
                    self.futures.wanted.insert(name, found);
                }
            }
        }
    }

    /// Removes copies that are of no use.
    pub(super) async fn clear_futures(&self) -> Result<(), LogError> {
        for (DirIndex(i), folder) in &self.futures.useless {
            let Some(files) = self.slots[*i].working() else {
                continue;
            };
            let removed = FutureLog::remove_found(files.dir().path(), folder).await;
            despite_lack_of_room(self.slots[*i].unless_failed(removed))?;
            tracing::info!(
                folder,
                "what a move has copied is of no use any more: removed"
            );
        }
        Ok(())
    }

    /// The copy that a move of this partition goes on with.
    pub(crate) fn future(&self, name: &PartitionName) -> Option<FutureFound> {
        self.futures.wanted.get(name).cloned()
    }

    /// A copy in `to` is about to take the place of a log; everything of it below `durable` is on the disk.
    ///
    /// # Errors
    /// See [`LogError`]; nothing is about to happen then.
    pub(crate) async fn begin_move(
        &mut self,
        name: &PartitionName,
        id: TopicPartition,
        to: DirIndex,
        durable: Offset,
    ) -> Result<(), LogError> {
        let from = self.home(name).filter(|from| *from != to);
        let entries =
            from.and_then(|DirIndex(i)| Some(self.slots[i].working()?.entries(name, id.topic)));
        let target = self.slots[to.0].working_mut();
        let (Some(entries), Some(target)) = (entries, target) else {
            return Err(LogError::Closed);
        };
        target.take_over(name, id, entries, durable).await?;
        self.moving.insert(name.clone(), to);
        Ok(())
    }

    /// That is over.
    ///
    /// # Errors
    /// See [`LogError`]; entries stay that the next start removes.
    pub(crate) async fn end_move(
        &mut self,
        name: &PartitionName,
        id: TopicPartition,
        outcome: MoveOutcome,
    ) -> Result<(), LogError> {
        let Some(to) = self.moving.remove(name) else {
            return Ok(());
        };
        let left = match outcome {
            MoveOutcome::Moved => {
                let from = self.home(name);
                self.place(name.clone(), to);
                from
            }
            MoveOutcome::Stayed => Some(to),
        };
        let left = left.and_then(|DirIndex(i)| self.slots[i].working_mut());
        match left {
            Some(files) => {
                files
                    .retain(|other| other != name, |other| other != id)
                    .await
            }
            None => Ok(()),
        }
    }
}
