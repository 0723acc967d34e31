//! OffsetFetch: one group up to version 7, several from 8 on (KIP-709). A version below 8 is turned
//! into the later form on the way in and back on the way out. From 10 on topics come by id (KIP-848).

use std::rc::Rc;

use thalweg_group::{Ask, Stability, VERSION_TOPIC_IDS};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use thalweg_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};

use super::keep_first_of_each;
use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// First version that asks for several groups.
const VERSION_GROUPS: i16 = 8;
/// First version with an error code for the whole group; before, it stands with each partition.
const VERSION_GROUP_ERROR: i16 = 2;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let wanted = match request.require_stable {
        true => Stability::Stable,
        false => Stability::Any,
    };
    let mut groups = match call.version < VERSION_GROUPS {
        true => vec![single(request)],
        false => request.groups,
    };
    // One without topics asks for all of them.
    let mut nth = 0;
    keep_first_of_each(&mut groups, call.pace(), |group| {
        nth += 1;
        (
            group.group_id.clone(),
            group.topics.is_some().then_some(nth),
        )
    })
    .await;
    let mut asked = Vec::with_capacity(groups.len());
    let mut pace = Pace::default();
    for mut group in groups {
        pace.step().await;
        let id = group.group_id.clone();
        let unknown = match call.version < VERSION_TOPIC_IDS {
            true => Vec::new(),
            false => split_off_unknown(&shard, &mut group),
        };
        let copy = group.clone();
        let answer = shard
            .ask_group(&id, &call, Ask::FetchOffsets(group, wanted))
            .await;
        asked.push((copy, answer, unknown));
    }
    let mut answered = Vec::with_capacity(asked.len());
    for (asked, coming, unknown) in asked {
        let refused = |error: ErrorCode| OffsetFetchResponseGroup {
            group_id: asked.group_id.clone(),
            error_code: error.code(),
            ..Default::default()
        };
        let mut answer: OffsetFetchResponseGroup = coming.get().await.unwrap_or_else(refused);
        if answer.error_code == 0 {
            answer.topics.extend(unknown);
        }
        shard.count_error(call.key, answer.error_code);
        answered.push((asked, answer));
    }
    if call.version < VERSION_GROUPS {
        let only = answered.into_iter().next();
        return only.map_or_else(OffsetFetchResponse::default, |(asked, answer)| {
            flat(&asked, answer, call.version)
        });
    }
    OffsetFetchResponse {
        groups: answered.into_iter().map(|(_, answer)| answer).collect(),
        ..Default::default()
    }
}

/// Gives topics that are asked for by id their names, and takes out those that there are not.
fn split_off_unknown(
    shard: &Shard,
    group: &mut OffsetFetchRequestGroup,
) -> Vec<OffsetFetchResponseTopics> {
    let view = shard.view();
    let mut unknown = Vec::new();
    for topic in group.topics.iter_mut().flatten() {
        match view.image.topic_by_id(topic.topic_id) {
            Some(known) => topic.name = known.name.to_string(),
            None => unknown.push(OffsetFetchResponseTopics {
                topic_id: topic.topic_id,
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|index| OffsetFetchResponsePartitions {
                        partition_index: *index,
                        committed_offset: -1,
                        metadata: Some(String::new()),
                        error_code: ErrorCode::UnknownTopicId.code(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }),
        }
    }
    if let Some(topics) = &mut group.topics {
        topics.retain(|topic| !topic.name.is_empty());
    }
    unknown
}

fn single(request: OffsetFetchRequest) -> OffsetFetchRequestGroup {
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter();
        topics
            .map(|topic| OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..Default::default()
            })
            .collect()
    });
    OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..Default::default()
    }
}

fn flat(
    asked: &OffsetFetchRequestGroup,
    answer: OffsetFetchResponseGroup,
    version: i16,
) -> OffsetFetchResponse {
    let mut topics: Vec<OffsetFetchResponseTopic> = answer
        .topics
        .into_iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|p| OffsetFetchResponsePartition {
                    partition_index: p.partition_index,
                    committed_offset: p.committed_offset,
                    committed_leader_epoch: p.committed_leader_epoch,
                    metadata: p.metadata,
                    error_code: p.error_code,
                })
                .collect(),
        })
        .collect();
    if answer.error_code != 0 && version < VERSION_GROUP_ERROR {
        topics = refused(asked, answer.error_code);
    }
    OffsetFetchResponse {
        topics,
        error_code: answer.error_code,
        ..Default::default()
    }
}

fn refused(asked: &OffsetFetchRequestGroup, code: i16) -> Vec<OffsetFetchResponseTopic> {
    let topics = asked.topics.iter().flatten();
    let row = |index: &i32| OffsetFetchResponsePartition {
        partition_index: *index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code: code,
    };
    topics
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name.clone(),
            partitions: topic.partition_indexes.iter().map(row).collect(),
        })
        .collect()
}
