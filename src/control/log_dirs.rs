//! The log directories of this broker: which of them work, which partition is in which, and the
//! checkpoints of each.
//!
//! A directory that could not be opened, or failed since, keeps its number; what is in it is offline, and
//! nothing is written there. Whoever records something of partitions names them, and it goes into the
//! checkpoint of the directory that each is in.

mod epochs;
mod moves;
mod survey;

use moves::Moving;
pub(crate) use survey::{FoundTwice, Owner, Survey};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use thalweg_metadata::{Directories, DirectoryRoom, Image, Partition, ReplicaHome, is_reserved};
use thalweg_reactor::task::{self, Task};
use thalweg_storage::{CleanMark, DirHealth, LogDir, LogError, Opening, PartitionName};
use thalweg_types::{BrokerId, Offset, TopicId, TopicPartition, Uuid};
use tokio::sync::Mutex;
use tokio::task::unconstrained;

use crate::checkpoints::Checkpoints;
use crate::metadata_log::MetadataLog;
use crate::requests::{LogProgress, NotOpen, StoppedPartition};

/// Number of a log directory, from 0 in the order of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DirIndex(pub usize);

/// A directory as the start found it.
pub enum DirFound {
    /// It works.
    Open(Box<LogDir>),
    /// It does not: its health says why.
    Failed(Arc<DirHealth>),
}

/// The checkpoints of one directory, written by one after the other.
type Files = Arc<Mutex<Checkpoints>>;

struct Slot {
    health: Arc<DirHealth>,
    /// `None` when it could not be opened.
    dir: Option<Arc<LogDir>>,
    files: Option<Files>,
    /// Entries of deleted partitions are in their files.
    is_behind: Arc<AtomicBool>,
    /// Partitions in it.
    partitions: u64,
}

impl Slot {
    /// What went wrong in a directory that failed by it is told as its failure.
    fn unless_failed<T: Default>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        unless_failed(&self.health, result)
    }

    fn working(&self) -> Option<&LogDir> {
        let dir = self.dir.as_deref();
        dir.filter(|_| self.health.failure().is_none())
    }

    /// Its checkpoints, at a start: nothing else has them.
    fn working_mut(&mut self) -> Option<&mut Checkpoints> {
        let works = self.health.failure().is_none();
        let files = self.files.as_mut().filter(|_| works)?;
        Some(
            Arc::get_mut(files)
                .expect("a start writes them by itself")
                .get_mut(),
        )
    }

    fn working_files(&self) -> Option<&Files> {
        let files = self.files.as_ref();
        files.filter(|_| self.health.failure().is_none())
    }

    /// Does `work` with its checkpoints, beside all else, when all that was begun before is done. `None` in a directory that
    /// does not work.
    fn begin(
        &self,
        work: impl AsyncFnOnce(&mut Checkpoints) -> Result<(), LogError> + 'static,
    ) -> Option<Task<Result<(), LogError>>> {
        Some(begin(self.working_files()?, work))
    }
}

/// Does `work` with these checkpoints when all that was begun before is done.
fn begin(
    files: &Files,
    work: impl AsyncFnOnce(&mut Checkpoints) -> Result<(), LogError> + 'static,
) -> Task<Result<(), LogError>> {
    let mut turn = Box::pin(unconstrained(Arc::clone(files).lock_owned()));
    // It is in line from here on, before the task runs.
    let now = turn.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    task::spawn(async move {
        let mut files = match now {
            Poll::Ready(files) => files,
            Poll::Pending => turn.await,
        };
        work(&mut files).await
    })
}

fn unless_failed<T: Default>(
    health: &DirHealth,
    result: Result<T, LogError>,
) -> Result<T, LogError> {
    match health.failure() {
        Some(_) => Ok(result.unwrap_or_default()),
        None => result,
    }
}

/// Waits for all. Of several errors the first is given, but for [`LogError::StartsHold`], which forbids most.
async fn all_of(begun: Vec<Task<Result<(), LogError>>>) -> Result<(), LogError> {
    let mut done = Ok(());
    for one in begun {
        let one = one.await.unwrap_or(Err(LogError::Closed));
        if done.is_ok() || matches!(one, Err(LogError::StartsHold(_))) {
            done = one;
        }
    }
    done
}

/// All directories of this broker.
pub struct LogDirs {
    slots: Vec<Slot>,
    metadata: DirIndex,
    /// The slots before this one hold partitions. There is at most one more, of the metadata log alone.
    log_count: usize,
    homes: HashMap<PartitionName, DirIndex>,
    moving: Moving,
    futures: moves::Futures,
}

impl LogDirs {
    /// Those of the configuration, in its order. `found[metadata]`, which must be open, has the metadata
    /// log; from `log_count` on they hold no partitions.
    ///
    /// # Panics
    /// When there is no such directory.
    #[must_use]
    pub fn new(found: Vec<DirFound>, metadata: DirIndex, log_count: usize) -> LogDirs {
        let slot = |found| match found {
            DirFound::Open(dir) => {
                let health = Arc::clone(dir.health());
                let files = Checkpoints::of(*dir);
                Slot {
                    health,
                    dir: Some(files.shared_dir()),
                    is_behind: files.behind(),
                    files: Some(Arc::new(Mutex::new(files))),
                    partitions: 0,
                }
            }
            DirFound::Failed(health) => Slot {
                health,
                dir: None,
                is_behind: Arc::default(),
                files: None,
                partitions: 0,
            },
        };
        let slots: Vec<Slot> = found.into_iter().map(slot).collect();
        assert!(slots[metadata.0].files.is_some() && log_count <= slots.len());
        LogDirs {
            slots,
            metadata,
            log_count,
            homes: HashMap::new(),
            moving: Moving::default(),
            futures: moves::Futures::default(),
        }
    }

    /// The directory of the metadata log.
    ///
    /// # Panics
    /// Never: it was open when this was made.
    #[must_use]
    pub fn metadata(&self) -> &LogDir {
        let dir = &self.slots[self.metadata.0].dir;
        dir.as_ref().expect("checked when made")
    }

    /// Whether each works, that of the metadata log included; those of partitions come first.
    #[must_use]
    pub fn healths(&self) -> Vec<Arc<DirHealth>> {
        let slots = self.slots.iter();
        slots.map(|slot| Arc::clone(&slot.health)).collect()
    }

    /// Whether each of those that hold partitions works: what [`DirIndex`] of a partition is an index of.
    #[must_use]
    pub fn log_healths(&self) -> Arc<[Arc<DirHealth>]> {
        self.healths().into_iter().take(self.log_count).collect()
    }

    /// The number of the directory of the metadata log.
    #[must_use]
    pub fn metadata_index(&self) -> DirIndex {
        self.metadata
    }

    /// Those that hold partitions and work.
    pub(crate) fn working(&self) -> impl Iterator<Item = (DirIndex, &LogDir)> {
        let logs = self.slots.iter().take(self.log_count).enumerate();
        logs.filter_map(|(i, slot)| Some((DirIndex(i), slot.working()?)))
    }

    /// Those that have the metadata log or partitions, and work.
    pub(crate) fn all_working(&self) -> impl Iterator<Item = &LogDir> {
        let slots = self.slots.iter();
        slots.filter_map(Slot::working)
    }

    fn any_failed(&self) -> bool {
        self.working().count() < self.log_count
    }

    /// Ids of the directories that a registration names: those of partitions that work.
    pub(crate) fn working_ids(&self) -> Vec<Uuid> {
        let ids = self
            .working()
            .filter_map(|(_, dir)| dir.meta().directory_id);
        ids.collect()
    }

    /// Gives those that have no id one.
    pub(crate) async fn give_ids(
        &mut self,
        mut draw: impl FnMut() -> Uuid,
    ) -> Result<(), LogError> {
        for slot in &mut self.slots {
            let has_id = |dir: &LogDir| dir.meta().directory_id.is_some();
            if slot.working().is_none_or(has_id) {
                continue;
            }
            slot.dir = None;
            let Some(files) = slot.working_mut() else {
                continue;
            };
            let given = match files.dir_mut() {
                Some(dir) => dir.give_id(draw()).await,
                None => Err(LogError::Closed),
            };
            slot.dir = Some(files.shared_dir());
            match slot.unless_failed(given) {
                // It is known by its place until there is room.
                Err(error) if error.may_pass() => tracing::warn!(%error, "no directory.id given"),
                other => other?,
            }
        }
        Ok(())
    }

    /// The working directory with that id.
    fn index_of(&self, id: Uuid) -> Option<DirIndex> {
        let mut working = self.working();
        let found = working.find(|(_, dir)| dir.meta().directory_id == Some(id));
        found.map(|(index, _)| index)
    }

    /// Where a new partition goes that the metadata gives no directory.
    fn emptiest(&self) -> Option<DirIndex> {
        let ids = self.rooms().assign();
        let by_id = ids.and_then(|id| self.index_of(id));
        by_id.or_else(|| self.working().next().map(|(index, _)| index))
    }

    /// The room in each directory that works, for new partitions; of those whose disk answers, if there are any.
    pub(crate) fn rooms(&self) -> Directories {
        let answers = |DirIndex(i): DirIndex| !self.slots[i].health.is_silent();
        let any_answers = self.working().any(|(index, _)| answers(index));
        let room = |(DirIndex(i), dir): (DirIndex, &LogDir)| {
            Some(DirectoryRoom {
                id: dir.meta().directory_id?,
                free_bytes: dir.health().free_bytes(),
                partitions: self.slots[i].partitions,
            })
        };
        let fit = self
            .working()
            .filter(|(index, _)| !any_answers || answers(*index));
        Directories::new(fit.filter_map(room).collect())
    }

    fn place(&mut self, name: PartitionName, home: DirIndex) {
        self.slots[home.0].partitions += 1;
        if let Some(DirIndex(before)) = self.homes.insert(name, home) {
            self.slots[before].partitions -= 1;
        }
    }

    /// Learns of a new partition, which the metadata has given that directory. Returns its number; `None`
    /// when it failed meanwhile.
    pub(crate) fn place_new(&mut self, name: PartitionName, told: Uuid) -> Option<DirIndex> {
        let home = self.home_told(told)?;
        self.place(name, home);
        Some(home)
    }

    /// Where a new partition goes that the metadata has given that directory.
    pub(crate) fn home_told(&self, told: Uuid) -> Option<DirIndex> {
        match is_reserved(told) {
            true => self.emptiest(),
            false => self.index_of(told),
        }
    }

    /// Where a partition is. `None` when that is not here.
    pub(crate) fn home(&self, name: &PartitionName) -> Option<DirIndex> {
        self.homes.get(name).copied()
    }

    /// Where the replica of `local` is, if it has one.
    pub(crate) fn replica_home(
        &self,
        image: &Image,
        local: BrokerId,
        at: TopicPartition,
    ) -> Option<ReplicaHome> {
        let holds = |partition: &&Partition| partition.replicas.contains(&local);
        image.partition(at).filter(holds)?;
        let topic = image.topic_by_id(at.topic)?;
        let name = PartitionName::new(topic.name.to_string(), at.partition.0);
        let dir = self
            .home(&name)
            .and_then(|home| self.slots[home.0].working());
        Some(match dir {
            Some(dir) => ReplicaHome::In(dir.meta().directory_id.unwrap_or_default()),
            None => ReplicaHome::Offline,
        })
    }

    /// What is known of a partition before its log is opened.
    pub(crate) fn opening(
        &self,
        name: &PartitionName,
        topic: TopicId,
        home: DirIndex,
    ) -> Option<Opening> {
        let dir = self.slots[home.0].dir.as_ref()?;
        Some(dir.opening(name, topic))
    }

    /// This process begins to write: see [`LogDir::begin`].
    pub(crate) async fn begin(&self) -> Result<(), LogError> {
        for slot in &self.slots {
            if let Some(dir) = slot.working() {
                let begun = dir.begin().await;
                slot.unless_failed(begun)?;
            }
        }
        Ok(())
    }

    /// See [`Checkpoints::catch_up`], of these directories.
    pub(crate) fn catch_up(
        &self,
        dirs: &BTreeSet<DirIndex>,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let slots = dirs.iter().map(|dir| &self.slots[dir.0]);
        let behind = slots.filter(|slot| slot.is_behind.load(Ordering::Relaxed));
        let begun = behind.filter_map(|slot| {
            let health = Arc::clone(&slot.health);
            slot.begin(async move |files| unless_failed(&health, files.catch_up().await))
        });
        all_of(begun.collect())
    }

    /// Removes, durably, what the checkpoints say of partitions that are not where they say.
    pub(crate) async fn keep_known(&mut self, image: &Image) -> Result<(), LogError> {
        let homes = &self.homes;
        let metadata = (MetadataLog::partition(), MetadataLog::id());
        let ids: HashMap<TopicPartition, PartitionName> = ids_of(image).collect();
        let mut done = Ok(());
        for (i, slot) in self.slots.iter_mut().enumerate() {
            let has_metadata = self.metadata == DirIndex(i);
            let is_here = |name: &PartitionName| homes.get(name) == Some(&DirIndex(i));
            let Some(files) = slot.working_mut() else {
                continue;
            };
            let keep =
                |name: &PartitionName| is_here(name) || (has_metadata && *name == metadata.0);
            let keep_id = |id: TopicPartition| {
                ids.get(&id).is_some_and(is_here) || (has_metadata && id == metadata.1)
            };
            // Before anything is written: what is found of them is told then.
            let here = ids.iter().filter(|(_, name)| is_here(name));
            files.know(here.map(|(id, name)| (name.clone(), *id)));
            let retained = files.retain(keep, keep_id).await;
            done = done.and(slot.unless_failed(retained));
        }
        done
    }

    /// Forgets partitions that are deleted; durably, where what is given back ends well.
    pub(crate) fn forget<F: Fn(TopicPartition) -> bool + 'static>(
        &mut self,
        deleted: &BTreeSet<PartitionName>,
        is_gone: F,
    ) -> impl Future<Output = Result<(), LogError>> + use<F> {
        let mut concerned = BTreeSet::new();
        for name in deleted {
            if let Some(home) = self.homes.remove(name) {
                self.slots[home.0].partitions -= 1;
                concerned.insert(home);
            }
            concerned.extend(self.moving.end(name));
        }
        let shared = Rc::new((deleted.clone(), is_gone));
        let begun = concerned.into_iter().filter_map(|DirIndex(i)| {
            let shared = Rc::clone(&shared);
            self.slots[i].begin(async move |files| {
                let (deleted, is_gone) = &*shared;
                let keep = |name: &PartitionName| !deleted.contains(name);
                files.retain(keep, |id| !is_gone(id)).await
            })
        });
        all_of(begun.collect())
    }

    /// What is told of partitions, by the directory that has them and works.
    fn by_slot<T: Clone>(
        &self,
        told: Vec<(PartitionName, T)>,
    ) -> impl Iterator<Item = (&Slot, Vec<(PartitionName, T)>)> {
        let mut shares: Vec<Vec<(PartitionName, T)>> = Vec::new();
        shares.resize_with(self.slots.len(), Vec::new);
        for (name, what) in told {
            if let Some(DirIndex(i)) = self.moving.get(&name) {
                shares[i].push((name.clone(), what.clone()));
            }
            if let Some(DirIndex(i)) = self.home(&name) {
                shares[i].push((name, what));
            }
        }
        let slots = self.slots.iter().zip(shares);
        slots.filter(|(_, share)| !share.is_empty())
    }

    /// See [`Checkpoints::record_opened`].
    pub(crate) async fn record_opened(
        &mut self,
        image: &Image,
        not_open: &BTreeMap<PartitionName, NotOpen>,
    ) -> Result<(), LogError> {
        let homes = &self.homes;
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if let Some(files) = slot.working_mut() {
                let here = not_open.iter();
                let here = here.filter(|(name, _)| homes.get(*name) == Some(&DirIndex(i)));
                let here = here.filter_map(|(name, how)| {
                    let topic = image.topic(&name.topic)?;
                    Some((name.clone(), (topic.id, *how)))
                });
                let here = here.collect();
                let recorded = files.record_opened(&here).await;
                slot.unless_failed(recorded)?;
            }
        }
        Ok(())
    }

    /// See [`Checkpoints::record_log_starts`]. A directory that refuses keeps no other from being told. Of several errors
    /// [`LogError::StartsHold`] is given, which forbids most.
    pub(crate) fn record_log_starts(
        &self,
        starts: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let shares = self.by_slot(starts);
        let begun = shares.filter_map(|(slot, share)| {
            slot.begin(async move |files| files.record_log_starts(share).await)
        });
        all_of(begun.collect())
    }

    /// See [`LogDir::keep_starts`].
    pub(crate) async fn keep_log_starts(&self) {
        for (_, dir) in self.working() {
            dir.keep_starts().await;
        }
    }

    /// See [`Checkpoints::record_marks`].
    pub(crate) fn record_marks(
        &self,
        marks: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let shares = self.by_slot(marks);
        let begun = shares.filter_map(|(slot, share)| {
            slot.begin(async move |files| files.record_marks(share).await)
        });
        all_of(begun.collect())
    }

    /// See [`Checkpoints::replace_marks`].
    pub(crate) async fn replace_marks(
        &mut self,
        marks: Vec<(PartitionName, (TopicPartition, Offset))>,
        not_open: &BTreeMap<PartitionName, NotOpen>,
    ) -> Result<(), LogError> {
        let homes = &self.homes;
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if let Some(files) = slot.working_mut() {
                let here = marks
                    .iter()
                    .filter(|(name, _)| homes.get(name) == Some(&DirIndex(i)));
                let here = here.cloned().collect();
                let replaced = files.replace_marks(here, not_open).await;
                slot.unless_failed(replaced)?;
            }
        }
        Ok(())
    }

    /// See [`Checkpoints::record_progress`].
    pub(crate) fn record_progress(
        &self,
        progress: Vec<(PartitionName, (TopicPartition, LogProgress))>,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let shares = self.by_slot(progress);
        let begun = shares.filter_map(|(slot, share)| {
            slot.begin(async move |files| files.record_progress(share).await)
        });
        all_of(begun.collect())
    }

    /// See [`Checkpoints::record_cleaned`].
    pub(crate) fn record_cleaned(
        &self,
        cleaned: Vec<(PartitionName, (TopicPartition, Offset))>,
    ) -> impl Future<Output = Result<(), LogError>> + use<> {
        let shares = self.by_slot(cleaned);
        let begun = shares.filter_map(|(slot, share)| {
            slot.begin(async move |files| files.record_cleaned(share).await)
        });
        all_of(begun.collect())
    }

    /// Writes the checkpoints of each directory, then its clean marker if every log in it deserves that.
    /// One that failed is left as it is: its next start recovers.
    ///
    /// # Errors
    /// The first of [`LogError`]; the others are closed all the same.
    pub async fn close(
        mut self,
        metadata_end: Offset,
        stopped: Vec<StoppedPartition>,
    ) -> Result<CleanMark, LogError> {
        let mut shares: Vec<Vec<StoppedPartition>> = Vec::new();
        shares.resize_with(self.slots.len(), Vec::new);
        for partition in stopped {
            if let Some(DirIndex(i)) = self.home(&partition.name) {
                shares[i].push(partition);
            }
        }
        let mut withheld = Vec::new();
        let mut done = Ok(());
        for (i, (slot, share)) in self.slots.drain(..).zip(shares).enumerate() {
            if slot.working().is_none() {
                tracing::warn!(dir = %slot.health.path().display(),
                    "not closed, because its disk failed: the next start checks every log in it");
                continue;
            }
            let Some(files) = slot.files else { continue };
            let own = (self.metadata == DirIndex(i)).then_some(metadata_end);
            let closing = async move { files.lock().await.close(own, share).await };
            let closed = match slot.health.is_stalled() {
                true => None,
                false => slot.health.unless_stalled(task::spawn(closing)).await,
            };
            let Some(closed) = closed else {
                tracing::warn!(dir = %slot.health.path().display(),
                    "not closed, because its disk does not answer: the next start checks every log in it");
                continue;
            };
            match closed {
                Ok(CleanMark::Written) => {}
                Ok(CleanMark::Withheld(open)) => withheld.extend(open),
                Err(error) => done = done.and(Err(error)),
            }
        }
        done.map(|()| match withheld.is_empty() {
            true => CleanMark::Written,
            false => CleanMark::Withheld(withheld),
        })
    }
}

/// All partitions, by id and by name.
fn ids_of(image: &Image) -> impl Iterator<Item = (TopicPartition, PartitionName)> {
    image.topics().flat_map(|topic| {
        topic.partitions.keys().map(|index| {
            let id = TopicPartition {
                topic: topic.id,
                partition: *index,
            };
            (id, PartitionName::new(topic.name.to_string(), index.0))
        })
    })
}

/// A start on a full disk goes on, so that topics can be deleted: what was left undone is done at the next.
pub(crate) fn despite_lack_of_room<T>(result: Result<T, LogError>) -> Result<Option<T>, LogError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.may_pass() => {
            tracing::warn!(%error, "left undone for lack of room or rights; done at the next start");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "log_dirs_tests.rs"]
mod tests;
