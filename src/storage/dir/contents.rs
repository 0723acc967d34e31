//! What lies in a log directory: partitions, copies of such that move, and what is put out of the way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs;
use thalweg_types::limits::TURN_ELEMENTS_MAX;
use thalweg_types::{LeaderEpoch, TopicId, Uuid};

use super::LogDir;
use crate::error::LogError;
use crate::name::{DirKind, PartitionName, dir_kind};
use crate::partition_files;

/// A partition directory that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionDir {
    /// Topic and index, from its name.
    pub name: PartitionName,
    /// From `partition.metadata`; `None` when that is missing or can not be read.
    pub topic_id: Option<TopicId>,
}

/// A copy of a partition that a move has not finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FutureDir {
    /// Name of the folder.
    pub folder: String,
    /// Topic and index, from its name; the topic of a long name is cut.
    pub name: PartitionName,
    /// From `partition.metadata`; `None` when that is missing or can not be read.
    pub topic_id: Option<TopicId>,
}

/// Renames the directory of a partition in `parent` whose log could not be opened and whose topic is
/// gone: nothing of it is lost, and its name is free for another topic. `None` when there is none.
///
/// # Errors
/// [`LogError::Io`].
pub async fn set_partition_aside(
    parent: &Path,
    name: PartitionName,
) -> Result<Option<PathBuf>, LogError> {
    let dir = parent.join(name.to_string());
    if !fs::exists(&dir)
        .await
        .map_err(LogError::io("look for", &dir))?
    {
        return Ok(None);
    }
    let topic_id = partition_files::load_topic_id(&dir).await?;
    move_aside(parent, &PartitionDir { name, topic_id })
        .await
        .map(Some)
}

async fn move_aside(parent: &Path, stray: &PartitionDir) -> Result<PathBuf, LogError> {
    let from = parent.join(stray.name.to_string());
    let mut unique = stray.topic_id.unwrap_or(Uuid::ZERO);
    let mut to = parent.join(stray.name.stray(unique));
    // Directories that lost their ids look alike: none may stand in the way of the next.
    while fs::exists(&to)
        .await
        .map_err(LogError::io("look for", &to))?
    {
        unique = Uuid(u128::from_be_bytes(unique.0).wrapping_add(1).to_be_bytes());
        to = parent.join(stray.name.stray(unique));
    }
    rename_durably(parent, &from, &to).await?;
    Ok(to)
}

async fn rename_durably(parent: &Path, from: &Path, to: &Path) -> Result<(), LogError> {
    fs::rename(from, to)
        .await
        .map_err(LogError::io("rename", from))?;
    fs::sync_dir(parent)
        .await
        .map_err(LogError::io("sync", parent))
}

async fn remove_deleted(parent: &Path, deleted: &PartitionDir) -> Result<(), LogError> {
    let from = parent.join(deleted.name.to_string());
    let unique = deleted.topic_id.unwrap_or(Uuid::ZERO);
    let to = parent.join(deleted.name.deleted(unique));
    rename_durably(parent, &from, &to).await?;
    // A kill in between leaves what the next start removes.
    fs::remove_dir_all(&to)
        .await
        .map_err(LogError::io("remove", &to))
}

impl LogDir {
    /// The partition directories, by name. Directories of deleted partitions, whose removal a stop
    /// interrupted, are removed on the way.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn partitions(&self) -> Result<Vec<PartitionDir>, LogError> {
        self.contents().await.map(|(partitions, _)| partitions)
    }

    /// As [`LogDir::partitions`], with the copies that are to become partitions here.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn contents(&self) -> Result<(Vec<PartitionDir>, Vec<FutureDir>), LogError> {
        let (mut names, mut futures) = (Vec::new(), Vec::new());
        for entry in fs::list_dir(&self.path)
            .await
            .map_err(LogError::io("list", &self.path))?
        {
            let Some(name) = entry.name.to_str().filter(|_| entry.is_dir) else {
                continue;
            };
            let path = self.path.join(name);
            match dir_kind(name) {
                DirKind::Partition(name) => names.push(name),
                DirKind::Deleted => {
                    fs::remove_dir_all(&path)
                        .await
                        .map_err(LogError::io("remove", &path))?;
                }
                DirKind::Future(partition) => futures.push(FutureDir {
                    folder: name.to_owned(),
                    name: partition,
                    topic_id: partition_files::load_topic_id(&path).await?,
                }),
                DirKind::Stray | DirKind::Other => {}
            }
        }
        names.sort();
        futures.sort_by(|a, b| a.folder.cmp(&b.folder));
        let mut found = Vec::with_capacity(names.len());
        for some in names.chunks(TURN_ELEMENTS_MAX) {
            let dirs = some.iter().map(|name| self.path.join(name.to_string()));
            let ids = partition_files::load_topic_ids(dirs)
                .await
                .map_err(LogError::io("read the topic ids in", &self.path))?;
            let some = some.iter().cloned().zip(ids);
            found.extend(some.map(|(name, topic_id)| PartitionDir { name, topic_id }));
        }
        Ok((found, futures))
    }

    /// Of these partitions, given with the leader epochs that the metadata says, those in which nothing was written in that
    /// epoch, and from which nothing is missing that was ever there: the last process was killed, and all that it wrote is in
    /// the page cache. Nobody can have read what is not there now, so the epoch can go on.
    pub async fn untouched(
        &self,
        led: Vec<(PartitionName, LeaderEpoch)>,
    ) -> BTreeSet<PartitionName> {
        let mut untouched = BTreeSet::new();
        if !self.marks.hold() {
            return untouched;
        }
        for some in led.chunks(TURN_ELEMENTS_MAX) {
            let dirs = some.iter();
            let dirs = dirs.map(|(name, _)| self.path.join(name.to_string()));
            let Ok(latest) = partition_files::latest_epochs(dirs).await else {
                // Whoever opens these finds out.
                continue;
            };
            let told = some.iter().zip(latest);
            let told = told.filter(|((name, epoch), latest)| {
                self.page_cache.is_whole(name, None) && latest.is_some_and(|latest| latest < *epoch)
            });
            untouched.extend(told.map(|((name, _), _)| name.clone()));
        }
        untouched
    }

    /// The names of the partition directories, sorted.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn partition_names(&self) -> Result<Vec<PartitionName>, LogError> {
        let entries = fs::list_dir(&self.path)
            .await
            .map_err(LogError::io("list", &self.path))?;
        let dirs = entries.iter().filter(|entry| entry.is_dir);
        let names = dirs.filter_map(|entry| entry.name.to_str()?.parse().ok());
        let mut names: Vec<PartitionName> = names.collect();
        names.sort();
        Ok(names)
    }

    /// Renames the directory of a partition that no topic knows, so that it is not served and not
    /// lost either (ST-15). Returns its new path.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn set_aside(&self, stray: &PartitionDir) -> Result<PathBuf, LogError> {
        self.judged(move_aside(&self.path, stray).await)
    }

    /// Finishes the removal of a partition whose topic is deleted (ST-15).
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start goes on with it.
    pub async fn finish_deletion(&self, deleted: &PartitionDir) -> Result<(), LogError> {
        self.judged(remove_deleted(&self.path, deleted).await)
    }
}
