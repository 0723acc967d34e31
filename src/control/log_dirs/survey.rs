//! What a start finds in the log directories, and where that leaves each partition.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thalweg_metadata::{Image, is_reserved};
use thalweg_storage::{
    Checkpoint, FutureDir, LogError, PartitionDir, PartitionName, Rightful, is_leaving, rightful,
};
use thalweg_types::{BrokerId, Uuid};

use super::{DirIndex, LogDirs, despite_lack_of_room};
use crate::metadata_log::MetadataLog;

/// Whose the folder of a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A topic's that there is.
    Topic,
    /// A topic's that was deleted.
    Deleted,
    /// No topic's that the metadata ever knew.
    Nobody,
}

/// What lies in the log directories.
pub(crate) struct Survey {
    found: BTreeMap<PartitionName, DirIndex>,
    deleted: Vec<(DirIndex, PartitionDir)>,
    strays: Vec<(DirIndex, PartitionDir)>,
    /// What a move has left where it came from, or where it was taken back.
    left: Vec<(DirIndex, PartitionDir)>,
    futures: Vec<(DirIndex, FutureDir)>,
}

/// One partition was found in two log directories.
#[derive(Debug)]
pub(crate) struct FoundTwice {
    pub(crate) first: PathBuf,
    pub(crate) second: PathBuf,
}

impl LogDirs {
    /// Looks through all of them. `owner` says of a partition's folder whose it is.
    ///
    /// # Errors
    /// A partition is in two of them.
    pub(crate) async fn survey(
        &self,
        owner: impl Fn(&PartitionDir) -> Owner,
    ) -> Result<Survey, FoundTwice> {
        let mut survey = Survey {
            found: BTreeMap::new(),
            deleted: Vec::new(),
            strays: Vec::new(),
            left: Vec::new(),
            futures: Vec::new(),
        };
        for (index, dir) in self.working() {
            let (partitions, futures) = match dir.contents().await {
                Ok(contents) => contents,
                Err(error) => {
                    dir.health().fail(&error.to_string());
                    continue;
                }
            };
            let futures = futures.into_iter().map(|future| (index, future));
            survey.futures.extend(futures);
            for partition in partitions {
                if partition.name == MetadataLog::partition() {
                    continue;
                }
                match owner(&partition) {
                    Owner::Topic => {}
                    Owner::Deleted => {
                        survey.deleted.push((index, partition));
                        continue;
                    }
                    Owner::Nobody => {
                        survey.strays.push((index, partition));
                        continue;
                    }
                }
                let before = survey.found.insert(partition.name.clone(), index);
                if let Some(first) = before {
                    self.choose(&mut survey, first, index, partition).await?;
                }
            }
        }
        Ok(survey)
    }

    /// A partition is in two directories: a move ended in between, or nobody knows which of them is right.
    async fn choose(
        &self,
        survey: &mut Survey,
        first: DirIndex,
        second: DirIndex,
        partition: PartitionDir,
    ) -> Result<(), FoundTwice> {
        let folder = partition.name.to_string();
        let at = |DirIndex(i): DirIndex| self.slots[i].health.path().join(&folder);
        let twice = FoundTwice {
            first: at(first),
            second: at(second),
        };
        // What can not be looked at is for an operator to look at.
        let rightful = rightful(&twice.first, &twice.second).await;
        let (right, wrong) = match rightful.unwrap_or_default() {
            Some(Rightful::First) => (first, second),
            Some(Rightful::Second) => (second, first),
            None => return Err(twice),
        };
        survey.found.insert(partition.name.clone(), right);
        survey.left.push((wrong, partition));
        Ok(())
    }

    /// Removes what is left of deleted topics, sets aside what no topic had, and says where that is now.
    pub(crate) async fn clear_away(&self, survey: &Survey) -> Result<(), LogError> {
        for (DirIndex(i), deleted) in &survey.deleted {
            let Some(dir) = self.slots[*i].working() else {
                continue;
            };
            let removed = dir.finish_deletion(deleted).await;
            despite_lack_of_room(self.slots[*i].unless_failed(removed))?;
            tracing::info!(partition = %deleted.name, "its topic is deleted: removed");
        }
        for (DirIndex(i), left) in &survey.left {
            let Some(dir) = self.slots[*i].working() else {
                continue;
            };
            let removed = dir.finish_deletion(left).await;
            despite_lack_of_room(self.slots[*i].unless_failed(removed))?;
            tracing::info!(partition = %left.name, dir = %dir.path().display(),
                "moved to another log directory: what was left is removed");
        }
        self.clear_futures().await?;
        for (DirIndex(i), stray) in &survey.strays {
            let Some(dir) = self.slots[*i].working() else {
                continue;
            };
            let aside = dir.set_aside(stray).await.map(Some);
            let aside = self.slots[*i].unless_failed(aside);
            if let Some(Some(to)) = despite_lack_of_room(aside)? {
                tracing::warn!(partition = %stray.name, to = %to.display(),
                    "no topic knows this directory: set aside, delete it when you are sure");
            }
        }
        Ok(())
    }

    /// Learns where each partition is that `local` holds. One that was found nowhere is where the metadata
    /// or a checkpoint says, and offline when that is not here: it must not begin anew elsewhere.
    pub(crate) async fn settle(&mut self, image: &Image, local: BrokerId, survey: &Survey) {
        let mut missing: BTreeMap<Uuid, (PartitionName, u64)> = BTreeMap::new();
        for topic in image.topics() {
            for (index, partition) in &topic.partitions {
                if !partition.replicas.contains(&local) {
                    continue;
                }
                let name = PartitionName::new(topic.name.to_string(), index.0);
                let told = partition.directory_of(local);
                let found = survey.found.get(&name).copied();
                let found = match found {
                    Some(found) if self.has_moved_away(&name, found, told).await => None,
                    found => found,
                };
                match found.or_else(|| self.expected_home(&name, told)) {
                    Some(home) => self.place(name, home),
                    None => missing.entry(told).or_insert((name, 0)).1 += 1,
                }
            }
        }
        self.settle_futures(image, &survey.futures);
        for (id, (example, count)) in missing {
            tracing::error!(partitions = count, example = %example, directory = %id,
                "OFFLINE: their log directory is missing, or is not in log.dirs. They are served again when \
                 the broker is started with it; nothing is made anew in another directory");
        }
    }

    /// The folder is what a move has left, and the log is in a directory that is not here.
    async fn has_moved_away(&self, name: &PartitionName, found: DirIndex, told: Uuid) -> bool {
        if is_reserved(told) || self.index_of(told).is_some() {
            return false;
        }
        let folder = self.slots[found.0].health.path().join(name.to_string());
        is_leaving(&folder).await.unwrap_or(true)
    }

    fn expected_home(&self, name: &PartitionName, told: Uuid) -> Option<DirIndex> {
        let by_id = self.index_of(told);
        if by_id.is_some() || !is_reserved(told) {
            return by_id;
        }
        if self.any_failed() {
            return None;
        }
        let mut working = self.working();
        let known = working.find(|(_, dir)| {
            let points = dir.loaded(Checkpoint::RecoveryPoint);
            points.contains_key(name)
        });
        match known {
            Some((index, _)) => Some(index),
            None => self.emptiest(),
        }
    }
}

impl Survey {
    /// Whether there is any partition's folder in that directory.
    pub(crate) fn has_some_in(&self, dir: DirIndex) -> bool {
        let unserved = self.deleted.iter().chain(&self.strays);
        self.found
            .values()
            .chain(unserved.map(|(home, _)| home))
            .any(|home| *home == dir)
    }

    /// Whether there is any partition's folder.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.deleted.is_empty() && self.strays.is_empty()
    }
}
