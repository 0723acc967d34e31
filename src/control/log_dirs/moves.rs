//! Partitions on their way from one log directory to another (KIP-113).
//!
//! From just before a copy takes the place of a log until that is over, what the checkpoints say of the
//! partition is said in both directories: whichever of the two a crash leaves has it. What is then said of a
//! place where the partition is not, the next start removes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_metadata::Image;
use thalweg_reactor::oneshot;
use thalweg_storage::{FutureDir, FutureLog, LogError, PartitionName};
use thalweg_types::{Offset, TopicPartition};

use super::{DirIndex, Files, LogDirs, begin, despite_lack_of_room};
use crate::requests::{FutureFound, MoveOutcome};

/// Partitions whose place changes just now, and to where. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Moving(Arc<Mutex<HashMap<PartitionName, OnTheMove>>>);

#[derive(Clone, Copy)]
struct OnTheMove {
    id: TopicPartition,
    to: DirIndex,
    /// The checkpoints of `to` have it.
    is_begun: bool,
}

impl Moving {
    fn all(&self) -> MutexGuard<'_, HashMap<PartitionName, OnTheMove>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where else what is told of a partition is written.
    pub(super) fn get(&self, name: &PartitionName) -> Option<DirIndex> {
        let all = self.all();
        all.get(name).filter(|of| of.is_begun).map(|of| of.to)
    }

    fn begin(&self, name: PartitionName, id: TopicPartition, to: DirIndex) {
        let is_begun = false;
        self.all().insert(name, OnTheMove { id, to, is_begun });
    }

    /// False when it ended meanwhile.
    fn goes_on(&self, name: &PartitionName, id: TopicPartition, to: DirIndex) -> bool {
        let all = self.all();
        all.get(name).is_some_and(|of| of.id == id && of.to == to)
    }

    fn begun(&self, name: &PartitionName) {
        if let Some(of) = self.all().get_mut(name) {
            of.is_begun = true;
        }
    }

    /// Where it was to go, of whatever checkpoints may have it.
    pub(super) fn end(&self, name: &PartitionName) -> Option<DirIndex> {
        self.all().remove(name).map(|of| of.to)
    }
}

/// Has the checkpoints of `target` say what those of `source` were told of the log's start before both were told: that
/// is in line there.
async fn raise_start(
    source: &Files,
    target: &Files,
    moving: Moving,
    (name, id, to): (PartitionName, TopicPartition, DirIndex),
) -> Result<(), LogError> {
    let (told, start) = oneshot::channel();
    let asked = name.clone();
    let reading = begin(source, async move |files| {
        let _ = told.send(files.entries(&asked, id.topic).log_start);
        Ok(())
    });
    reading.await.unwrap_or(Err(LogError::Closed))?;
    let Some(start) = start.await.ok_or(LogError::Closed)? else {
        return Ok(());
    };
    let raising = begin(target, async move |files| {
        match moving.goes_on(&name, id, to) {
            true => files.record_log_starts(vec![(name, (id, start))]).await,
            false => Err(LogError::Closed),
        }
    });
    raising.await.unwrap_or(Err(LogError::Closed))
}

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
            let Some(dir) = self.slots[*i].working() else {
                continue;
            };
            let removed = FutureLog::remove_found(dir.path(), folder).await;
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
    pub(crate) fn begin_move(
        &mut self,
        name: &PartitionName,
        id: TopicPartition,
        to: DirIndex,
        durable: Offset,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let from = self.home(name).filter(|from| *from != to);
        let (told, entries) = oneshot::channel();
        let asked = name.clone();
        let source = from.and_then(|DirIndex(i)| self.slots[i].working_files().cloned());
        let reading = source.as_ref().map(|source| {
            begin(source, async move |files| {
                let _ = told.send(files.entries(&asked, id.topic));
                Ok(())
            })
        });
        let target = self.slots[to.0].working_files().cloned();
        let (moving, name) = (self.moving.clone(), name.clone());
        moving.begin(name.clone(), id, to);
        async move {
            let (Some(_), Some(source), Some(target)) = (reading, source, target) else {
                return Err(LogError::Closed);
            };
            // Not in the turn of the target's: the other's disk may not answer.
            let entries = entries.await.ok_or(LogError::Closed)?;
            let taking = begin(&target, {
                let (moving, name) = (moving.clone(), name.clone());
                async move |files| {
                    if !moving.goes_on(&name, id, to) {
                        return Err(LogError::Closed);
                    }
                    files.take_over(&name, id, entries, durable).await?;
                    moving.begun(&name);
                    Ok(())
                }
            });
            taking.await.unwrap_or(Err(LogError::Closed))?;
            raise_start(&source, &target, moving, (name, id, to)).await
        }
    }

    /// That is over.
    ///
    /// # Errors
    /// See [`LogError`]; entries stay that the next start removes.
    pub(crate) fn end_move(
        &mut self,
        name: &PartitionName,
        id: TopicPartition,
        outcome: MoveOutcome,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let left = self.moving.end(name).and_then(|to| match outcome {
            MoveOutcome::Moved => {
                let from = self.home(name);
                self.place(name.clone(), to);
                from
            }
            MoveOutcome::Stayed => Some(to),
        });
        let name = name.clone();
        let begun = left.and_then(|DirIndex(i)| {
            self.slots[i].begin(async move |files| {
                files
                    .retain(|other| *other != name, |other| other != id)
                    .await
            })
        });
        super::all_of(begun.into_iter().collect())
    }
}
