//! Administrative calls: the committed offsets of a group.

use std::collections::BTreeMap;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use thalweg_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetFetchRequest,
};

use crate::assignor::TopicPartition;
use crate::cluster::Cluster;
use crate::coordinator::call_up_to;
use crate::error::{ClientError, Result};

/// The last versions that name topics instead of their ids, and one group instead of several.
pub(crate) const OFFSET_COMMIT_BY_NAME: i16 = 9;
pub(crate) const OFFSET_FETCH_OF_ONE: i16 = 7;
/// Generation of whoever is no member.
const NO_GENERATION: i32 = -1;

/// What a group has committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Of the next record to read.
    pub offset: i64,
    /// Of the record before it, when the committer knew.
    pub leader_epoch: Option<i32>,
    /// Whatever the committer wrote beside it.
    pub metadata: String,
}

/// What became of each partition.
pub type ByPartition<T> = BTreeMap<TopicPartition, T>;

impl Cluster {
    /// Everything that `group` has committed. A group that does not exist has nothing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn committed_offsets(&mut self, group: &str) -> Result<ByPartition<CommittedOffset>> {
        let request = OffsetFetchRequest {
            group_id: group.to_owned(),
            topics: None,
            ..Default::default()
        };
        let what = || format!("ask the offsets of group {group}");
        self.at_coordinator(group, |connection, _| {
            let answer = call_up_to(connection, &request, OFFSET_FETCH_OF_ONE)?;
            ClientError::check(answer.error_code, what, None)?;
            let mut committed = BTreeMap::new();
            for topic in answer.topics {
                for row in topic.partitions {
                    ClientError::check(row.error_code, what, None)?;
                    if row.committed_offset < 0 {
                        continue;
                    }
                    let found = CommittedOffset {
                        offset: row.committed_offset,
                        leader_epoch: Some(row.committed_leader_epoch).filter(|epoch| *epoch >= 0),
                        metadata: row.metadata.unwrap_or_default(),
                    };
                    committed.insert((topic.name.clone(), row.partition_index), found);
                }
            }
            Ok(committed)
        })
    }

    /// Commits for a group that has no members; it comes to be if there is none.
    ///
    /// # Errors
    /// See [`ClientError`]. What the coordinator says against one partition is in its entry.
    pub fn commit_offsets(
        &mut self,
        group: &str,
        offsets: &ByPartition<i64>,
    ) -> Result<ByPartition<Result<()>>> {
        let request = OffsetCommitRequest {
            group_id: group.to_owned(),
            generation_id_or_member_epoch: NO_GENERATION,
            topics: commit_rows(offsets),
            ..Default::default()
        };
        self.at_coordinator(group, |connection, _| {
            let answer = call_up_to(connection, &request, OFFSET_COMMIT_BY_NAME)?;
            outcomes(&format!("commit to group {group}"), commit_codes(answer))
        })
    }

    /// Forgets what `group` has committed for these partitions (KIP-496).
    ///
    /// # Errors
    /// [`ClientError::Refused`] with GROUP_ID_NOT_FOUND when there is no such group. What the coordinator
    /// says against one partition is in its entry: GROUP_SUBSCRIBED_TO_TOPIC while a member reads it.
    pub fn delete_offsets(
        &mut self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<ByPartition<Result<()>>> {
        let mut topics: Vec<OffsetDeleteRequestTopic> = Vec::new();
        for (name, partition_index) in partitions {
            let row = OffsetDeleteRequestPartition {
                partition_index: *partition_index,
            };
            match topics.iter_mut().find(|t| t.name == *name) {
                Some(known) => known.partitions.push(row),
                None => topics.push(OffsetDeleteRequestTopic {
                    name: name.clone(),
                    partitions: vec![row],
                }),
            }
        }
        let request = OffsetDeleteRequest {
            group_id: group.to_owned(),
            topics,
        };
        let what = format!("delete offsets of group {group}");
        self.at_coordinator(group, |connection, _| {
            let answer = connection.call(&request)?;
            ClientError::check(answer.error_code, || what.clone(), None)?;
            let mut codes = BTreeMap::new();
            for topic in answer.topics {
                for row in topic.partitions {
                    codes.insert((topic.name.clone(), row.partition_index), row.error_code);
                }
            }
            outcomes(&what, codes)
        })
    }
}

/// The rows of a commit of these offsets.
pub(crate) fn commit_rows(offsets: &ByPartition<i64>) -> Vec<OffsetCommitRequestTopic> {
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for ((name, partition), offset) in offsets {
        let row = OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_metadata: Some(String::new()),
            ..Default::default()
        };
        match topics.last_mut().filter(|t| t.name == *name) {
            Some(known) => known.partitions.push(row),
            None => topics.push(OffsetCommitRequestTopic {
                name: name.clone(),
                partitions: vec![row],
                ..Default::default()
            }),
        }
    }
    topics
}

fn commit_codes(answer: OffsetCommitResponse) -> ByPartition<i16> {
    let mut codes = BTreeMap::new();
    for topic in answer.topics {
        for row in topic.partitions {
            codes.insert((topic.name.clone(), row.partition_index), row.error_code);
        }
    }
    codes
}

/// An error of the coordinator as a whole is one of the call, which then is tried again.
fn outcomes(what: &str, codes: ByPartition<i16>) -> Result<ByPartition<Result<()>>> {
    let is_of_all = |code: i16| {
        matches!(
            ErrorCode::from_code(code),
            Some(
                ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::NotCoordinator
            )
        )
    };
    if let Some(code) = codes.values().copied().find(|code| is_of_all(*code)) {
        ClientError::check(code, || what.to_owned(), None)?;
    }
    let outcome = |((topic, partition), code): (TopicPartition, i16)| {
        let what = || format!("{what}: {topic}-{partition}");
        let outcome = ClientError::check(code, what, None);
        ((topic, partition), outcome)
    };
    Ok(codes.into_iter().map(outcome).collect())
}
