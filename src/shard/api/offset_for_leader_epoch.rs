//! OffsetForLeaderEpoch: where an epoch ends, so that a client finds out what was cut (KIP-320).

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use thalweg_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use thalweg_types::{LeaderEpoch, PartitionIndex, ShardId, TopicPartition};

use crate::question::{Answer, PartitionAnswer, PartitionAsk, Question};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when every owner has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let (asks, mut rows) = sort(&shard, &request);
    for PartitionAnswer { slot, result } in shard.ask_owners(asks).await {
        let row = &mut rows[slot];
        match result {
            Ok(Answer::EpochEnd(found)) => {
                row.leader_epoch = found.epoch.0;
                row.end_offset = found.end.0;
            }
            Ok(Answer::Size(_) | Answer::LogStart(_)) => {
                row.error_code = ErrorCode::UnknownServerError.code();
            }
            Err(error) => row.error_code = error.code(),
        }
    }
    for row in &rows {
        shard.count_error(call.key, row.error_code);
    }
    let mut rows = rows.into_iter();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| OffsetForLeaderTopicResult {
            partitions: rows.by_ref().take(topic.partitions.len()).collect(),
            topic: topic.topic,
        })
        .collect();
    OffsetForLeaderEpochResponse {
        topics,
        ..Default::default()
    }
}

/// Questions with their owners, and a row per partition asked for.
fn sort(
    shard: &Shard,
    request: &OffsetForLeaderEpochRequest,
) -> (Vec<(ShardId, PartitionAsk)>, Vec<EpochEndOffset>) {
    let view = shard.view();
    let (mut asks, mut rows) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let known = view.image.topic(&topic.topic);
        for partition in &topic.partitions {
            let id = known.map(|known| TopicPartition {
                topic: known.id,
                partition: PartitionIndex(partition.partition),
            });
            let mut row = EpochEndOffset {
                partition: partition.partition,
                ..Default::default()
            };
            match id.and_then(|id| view.owner(id).map(|owner| (id, owner))) {
                Some((id, owner)) => asks.push((
                    owner,
                    PartitionAsk {
                        slot: rows.len(),
                        id,
                        question: Question::EpochEnd {
                            current: LeaderEpoch(partition.current_leader_epoch),
                            asked: LeaderEpoch(partition.leader_epoch),
                        },
                    },
                )),
                None => row.error_code = ErrorCode::UnknownTopicOrPartition.code(),
            }
            rows.push(row);
        }
    }
    (asks, rows)
}
