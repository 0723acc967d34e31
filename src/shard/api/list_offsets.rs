//! ListOffsets: by timestamp, or one of the special values, each from its version.

use std::collections::HashSet;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::list_offsets_request::ListOffsetsTopic;
use thalweg_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use thalweg_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use thalweg_replica::Sought;
use thalweg_types::{LeaderEpoch, PartitionIndex, TopicPartition};

use crate::pace::Pace;
use crate::peer::{OffsetAsk, OffsetFound};
use crate::service::Call;
use crate::shard::Shard;

/// First version whose answer carries the leader epoch (KIP-320).
const VERSION_LEADER_EPOCH: i16 = 4;

/// Answers when every owner has looked.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let version = call.version;
    let (asks, mut rows) = sort(&shard, &request, version).await;
    let mut answers = Vec::new();
    for (owner, asks) in asks
        .into_iter()
        .enumerate()
        .filter(|(_, asks)| !asks.is_empty())
    {
        let slots: Vec<usize> = asks.iter().map(|ask| ask.slot).collect();
        answers.push((slots, shard.list_offsets_at(owner, asks).await));
    }
    for (slots, answer) in answers {
        match answer.await {
            Some(found) => found
                .into_iter()
                .for_each(|found| fill(&mut rows, found, version)),
            None => {
                for slot in slots {
                    rows[slot].error_code = ErrorCode::NotLeaderOrFollower.code();
                }
            }
        }
    }
    let answer = |topic: ListOffsetsTopic, partitions| ListOffsetsTopicResponse {
        name: topic.name,
        partitions,
    };
    ListOffsetsResponse {
        topics: super::by_topic(request.topics, rows, |topic| topic.partitions.len(), answer),
        ..Default::default()
    }
}

/// Partitions that the request names more than once: of which of the times would the answer be?
async fn repeated<'r>(request: &'r ListOffsetsRequest, pace: &mut Pace) -> HashSet<(&'r str, i32)> {
    let mut seen = HashSet::new();
    let mut repeated = HashSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            pace.step().await;
            let named = (topic.name.as_str(), partition.partition_index);
            if !seen.insert(named) {
                repeated.insert(named);
            }
        }
    }
    repeated
}

/// Questions by owner, and a row per partition asked for; those that can not be asked have their
/// error already.
async fn sort(
    shard: &Shard,
    request: &ListOffsetsRequest,
    version: i16,
) -> (Vec<Vec<OffsetAsk>>, Vec<ListOffsetsPartitionResponse>) {
    let view = shard.view();
    let isolation = super::isolation(request.isolation_level);
    let mut asks: Vec<Vec<OffsetAsk>> = Vec::new();
    asks.resize_with(shard.shard_count(), Vec::new);
    let mut rows: Vec<ListOffsetsPartitionResponse> = Vec::new();
    let mut pace = Pace::default();
    let repeated = repeated(request, &mut pace).await;
    for topic in &request.topics {
        pace.step().await;
        let known = view.image.topic(&topic.name);
        for partition in &topic.partitions {
            pace.step().await;
            let slot = rows.len();
            let mut row = ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                ..Default::default()
            };
            let id = known.map(|known| TopicPartition {
                topic: known.id,
                partition: PartitionIndex(partition.partition_index),
            });
            let owner = id.and_then(|id| view.owner(id).map(|owner| (id, owner)));
            match (Sought::from_wire(partition.timestamp, version), owner) {
                _again if repeated.contains(&(topic.name.as_str(), partition.partition_index)) => {
                    row.error_code = ErrorCode::InvalidRequest.code();
                }
                (Some(sought), Some((id, owner))) => {
                    asks[usize::from(owner.0)].push(OffsetAsk {
                        slot,
                        id,
                        sought,
                        current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
                        isolation,
                    });
                }
                (_, None) => row.error_code = ErrorCode::UnknownTopicOrPartition.code(),
                (None, Some(_)) => row.error_code = ErrorCode::UnsupportedVersion.code(),
            }
            rows.push(row);
        }
    }
    (asks, rows)
}

fn fill(rows: &mut [ListOffsetsPartitionResponse], found: OffsetFound, version: i16) {
    let row = &mut rows[found.slot];
    match found.result {
        Ok((offset, timestamp, epoch)) => {
            row.offset = offset.0;
            row.timestamp = timestamp.0;
            if version >= VERSION_LEADER_EPOCH {
                row.leader_epoch = epoch.0;
            }
        }
        Err(error) => row.error_code = error.code(),
    }
}
