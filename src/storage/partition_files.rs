//! The two small files of a partition directory beside its segments: `partition.metadata` (KIP-516)
//! and `leader-epoch-checkpoint` (KIP-101).

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_replica::{EpochCache, EpochEntry};
use thalweg_types::{LeaderEpoch, TopicId};

use crate::error::LogError;

/// Name of the file with the topic id.
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";
/// Name of the file with the leader epochs.
pub(crate) const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Larger files of these kinds are not read.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Name and content of both files of a new partition.
pub(crate) fn of_new(topic_id: TopicId, epochs: &EpochCache) -> Vec<(String, Bytes)> {
    vec![
        (
            PARTITION_METADATA.to_owned(),
            Bytes::from(format_partition_metadata(topic_id)),
        ),
        (LEADER_EPOCHS.to_owned(), Bytes::from(epochs.to_text())),
    ]
}

/// Makes the content of the two files of a new partition durable (their names need the directory).
pub(crate) async fn sync(dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    for name in [PARTITION_METADATA, LEADER_EPOCHS] {
        let path = dir.join(name);
        let synced = match fs::open(&path, OpenMode::ReadWrite).await {
            Ok(file) => fs::sync_data(&file).await,
            // It is made anew when it is next written.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        synced.map_err(|error| (path, error))?;
    }
    Ok(())
}

pub(crate) async fn store_topic_id(dir: &Path, topic_id: TopicId) -> Result<(), LogError> {
    let path = dir.join(PARTITION_METADATA);
    fs::write_file_atomically(&path, Bytes::from(format_partition_metadata(topic_id)))
        .await
        .map_err(LogError::io("write", &path))
}

pub(crate) async fn store_epochs(dir: &Path, epochs: &EpochCache) -> Result<(), LogError> {
    let path = dir.join(LEADER_EPOCHS);
    fs::write_file_atomically(&path, Bytes::from(epochs.to_text()))
        .await
        .map_err(LogError::io("write", &path))
}

/// As [`store_epochs`], not durably: [`sync`] makes it so.
pub(crate) async fn replace_epochs(dir: &Path, epochs: &EpochCache) -> io::Result<()> {
    fs::replace_file(&dir.join(LEADER_EPOCHS), Bytes::from(epochs.to_text())).await
}

/// The topic id of a partition directory; `None` when the file is missing or can not be read as one.
pub(crate) async fn load_topic_id(dir: &Path) -> Result<Option<TopicId>, LogError> {
    let path = dir.join(PARTITION_METADATA);
    let text = load(&path).await?;
    Ok(text.and_then(|bytes| parse_partition_metadata(&bytes)))
}

/// As [`load_topic_id`], of many directories.
pub(crate) async fn load_topic_ids(
    dirs: impl Iterator<Item = PathBuf>,
) -> io::Result<Vec<Option<TopicId>>> {
    let paths = dirs.map(|dir| dir.join(PARTITION_METADATA)).collect();
    let texts = fs::read_files(paths, FILE_BYTES_MAX).await?;
    let id = |text: Option<Bytes>| parse_partition_metadata(&text?);
    Ok(texts.into_iter().map(id).collect())
}

/// The leader epochs of a partition directory; `None` when they must be rebuilt (ST-11).
pub(crate) async fn load_epochs(dir: &Path) -> Result<Option<Vec<EpochEntry>>, LogError> {
    let path = dir.join(LEADER_EPOCHS);
    let Some(bytes) = load(&path).await? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    match EpochCache::entries_from_text(&text) {
        Ok(epochs) => Ok(Some(epochs)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "leader epochs are rebuilt from batches");
            Ok(None)
        }
    }
}

/// The newest leader epoch in the file of each of many partition directories; `None` where that does not tell.
pub(crate) async fn latest_epochs(
    dirs: impl Iterator<Item = PathBuf>,
) -> io::Result<Vec<Option<LeaderEpoch>>> {
    let paths = dirs.map(|dir| dir.join(LEADER_EPOCHS)).collect();
    let texts = fs::read_files(paths, FILE_BYTES_MAX).await?;
    let latest = |text: Option<Bytes>| {
        let text = String::from_utf8_lossy(&text?).into_owned();
        let entries = EpochCache::entries_from_text(&text).ok()?;
        entries.last().map(|entry| entry.epoch)
    };
    Ok(texts.into_iter().map(latest).collect())
}

async fn load(path: &Path) -> Result<Option<Bytes>, LogError> {
    match fs::read_file(path, FILE_BYTES_MAX).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(LogError::io("read", path)(error)),
    }
}

fn format_partition_metadata(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

pub(crate) fn parse_partition_metadata(bytes: &[u8]) -> Option<TopicId> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    let version = lines.next()?.strip_prefix("version:")?.trim();
    let id = lines
        .next()?
        .strip_prefix("topic_id:")?
        .trim()
        .parse::<TopicId>()
        .ok()?;
    (version == "0" && !id.is_zero() && lines.all(|line| line.trim().is_empty())).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::{format_partition_metadata, parse_partition_metadata};
    use thalweg_types::Uuid;

    #[test]
    fn the_topic_id_file_has_kafkas_form() {
        let mut id = [0; 16];
        id[15] = 1;
        let text = format_partition_metadata(Uuid(id));
        assert_eq!(text, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(parse_partition_metadata(text.as_bytes()), Some(Uuid(id)));
        for bad in [
            "",
            "version: 0\n",
            "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
            "\0\0\0\0",
        ] {
            assert_eq!(parse_partition_metadata(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
