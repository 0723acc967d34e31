//! What the metadata log says, before anything is changed for it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use thalweg_metadata::{Broker, Image, Record};
use thalweg_reactor::fs;
use thalweg_storage::{LogError, PartitionDir, PartitionName};
use thalweg_types::{BrokerId, TopicId, Uuid};

use super::StartError;
use crate::log_dirs::{FoundTwice, LogDirs, Owner, Survey};
use crate::metadata_log::{MetadataLog, MetadataLogError};

/// The metadata as its log has it: read and checked, and nothing written. A start that is refused here can
/// be tried again as if it had not been.
pub struct ReadMetadata {
    pub(super) log: MetadataLog,
    /// Every record, oldest first.
    pub(super) records: Vec<Record>,
    pub(super) image: Image,
    /// What lies in the log directories.
    pub(super) survey: Survey,
}

impl ReadMetadata {
    /// Reads the log in its directory, or makes it where there are no partitions yet, for the broker `local`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn read(dirs: &LogDirs, local: BrokerId) -> Result<ReadMetadata, StartError> {
        check_place(dirs).await?;
        let (log, records) = MetadataLog::open(dirs.metadata()).await?;
        let (image, _) = Image::default().apply(&records)?;
        let survey = survey(dirs, &records, &image).await?;
        check_directories(dirs, &survey, image.broker(local))?;
        Ok(ReadMetadata {
            log,
            records,
            image,
            survey,
        })
    }
}

/// To be asked before the metadata log is opened, which makes one where there is none: that it is nowhere
/// else, and that no partitions are there without it.
async fn check_place(dirs: &LogDirs) -> Result<(), StartError> {
    let folder = MetadataLog::partition().to_string();
    let own = dirs.metadata().path().join(&folder);
    let exists = async |path: &PathBuf| {
        let found = fs::exists(path).await;
        found.map_err(|source| LogError::Io {
            operation: "look for",
            path: path.clone(),
            source,
        })
    };
    let is_missing = !exists(&own).await?;
    for dir in dirs.all_working() {
        let path = dir.path().join(&folder);
        if path == own {
            continue;
        }
        if exists(&path).await? {
            return Err(StartError::MetadataElsewhere {
                found: path,
                configured: dirs.metadata().path().to_owned(),
            });
        }
        if is_missing && !dir.partitions().await?.is_empty() {
            return Err(MetadataLogError::Missing { path: own }.into());
        }
    }
    Ok(())
}

/// ST-28: a directory with something in it is one that the metadata knows, unless all that it knows are
/// here: then this one was added. Otherwise an id is damaged, or the metadata came from elsewhere.
fn check_directories(
    dirs: &LogDirs,
    survey: &Survey,
    registered: Option<&Broker>,
) -> Result<(), StartError> {
    let known = registered.map_or(&[][..], |broker| &broker.log_dirs[..]);
    let found: Vec<Uuid> = dirs
        .all_working()
        .filter_map(|dir| dir.meta().directory_id)
        .collect();
    let Some(wanted) = known.iter().find(|id| !found.contains(id)) else {
        return Ok(());
    };
    for (index, dir) in dirs.working() {
        let id = dir.meta().directory_id;
        let is_known = id.is_some_and(|id| known.contains(&id));
        let has_data = index == dirs.metadata_index() || survey.has_some_in(index);
        if has_data && !is_known {
            return Err(StartError::OtherDirectory {
                file: dir.meta_file(),
                found: id,
                wanted: *wanted,
            });
        }
    }
    Ok(())
}

/// Looks for what the log directories hold, before anything is written.
async fn survey(dirs: &LogDirs, records: &[Record], image: &Image) -> Result<Survey, StartError> {
    let former = former_topics(records, image);
    let survey = dirs.survey(|found| owner(image, &former, found)).await;
    let survey =
        survey.map_err(|FoundTwice { first, second }| StartError::FoundTwice { first, second })?;
    if records.is_empty() && !survey.is_empty() {
        let folder = MetadataLog::partition().to_string();
        let path = dirs.metadata().path().join(folder);
        return Err(MetadataLogError::Missing { path }.into());
    }
    Ok(survey)
}

/// Topics that the metadata once knew and does not any more, with their names.
fn former_topics(records: &[Record], image: &Image) -> BTreeSet<(TopicId, String)> {
    let topic = |record: &Record| match record {
        Record::Topic(topic) => Some((topic.topic_id, topic.name.clone())),
        _other => None,
    };
    let topics = records.iter().filter_map(topic);
    topics
        .filter(|(id, _)| image.topic_by_id(*id).is_none())
        .collect()
}

/// A crash between the record that deletes a topic and the removal of its files leaves them: that is
/// finished (ST-15). Directories of partitions that the metadata never knew are kept, but out of the way.
///
/// Where the metadata has the partition, its directory goes only when it is that of an earlier topic
/// of the name. Any other id is a damaged `partition.metadata`: the records beside it are not put away
/// for an empty log. Its owner finds that out and takes the partition offline.
fn owner(image: &Image, former: &BTreeSet<(TopicId, String)>, found: &PartitionDir) -> Owner {
    let of_former = |id| former.contains(&(id, found.name.topic.clone()));
    if found.topic_id.is_some_and(of_former) {
        return Owner::Deleted;
    }
    match is_known(image, &found.name) {
        true => Owner::Topic,
        false => Owner::Nobody,
    }
}

fn is_known(image: &Image, name: &PartitionName) -> bool {
    image.topic(&name.topic).is_some_and(|topic| {
        topic
            .partitions
            .keys()
            .any(|index| *index == name.partition)
    })
}
