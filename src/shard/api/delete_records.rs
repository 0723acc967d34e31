//! DeleteRecords: logs begin later from now on (KIP-107).
//!
//! Owners move the starts at once, which hides the records; the answer waits until the starts are in
//! the checkpoint on the disk, so that no crash brings the records back. The segments stay until
//! retention takes them.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use thalweg_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use thalweg_types::{Offset, PartitionIndex, ShardId, TopicPartition};

use crate::question::{Answer, PartitionAnswer, PartitionAsk, Question};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the new starts are durable.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let (asks, mut rows) = sort(&shard, &request);
    let mut ids = vec![None; rows.len()];
    for (_, ask) in &asks {
        ids[ask.slot] = Some(ask.id);
    }
    let mut starts = Vec::new();
    for PartitionAnswer { slot, result } in shard.ask_owners(asks).await {
        let row = &mut rows[slot];
        match result {
            Ok(Answer::LogStart(start)) => {
                row.low_watermark = start.0;
                starts.extend(ids[slot].map(|id: TopicPartition| (id, start)));
            }
            Ok(Answer::Size(_) | Answer::EpochEnd(_)) => {
                row.error_code = ErrorCode::UnknownServerError.code();
            }
            Err(error) => row.error_code = error.code(),
        }
    }
    if !starts.is_empty() {
        let durable = shard.control.record_log_starts(starts).await;
        if let Err(error) = durable.unwrap_or(Err(ErrorCode::NotLeaderOrFollower)) {
            for row in rows.iter_mut().filter(|row| row.error_code == 0) {
                row.low_watermark = -1;
                row.error_code = error.code();
            }
        }
    }
    for row in &rows {
        shard.count_error(call.key, row.error_code);
    }
    let mut rows = rows.into_iter();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| DeleteRecordsTopicResult {
            partitions: rows.by_ref().take(topic.partitions.len()).collect(),
            name: topic.name,
        })
        .collect();
    DeleteRecordsResponse {
        topics,
        ..Default::default()
    }
}

/// Questions with their owners, and a row per partition named.
fn sort(
    shard: &Shard,
    request: &DeleteRecordsRequest,
) -> (
    Vec<(ShardId, PartitionAsk)>,
    Vec<DeleteRecordsPartitionResult>,
) {
    let view = shard.view();
    let (mut asks, mut rows) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let known = view
            .image
            .topic(&topic.name)
            .ok_or(ErrorCode::UnknownTopicOrPartition)
            .and_then(|known| {
                let config = shard.topic_config(known.id);
                let config = config.ok_or(ErrorCode::UnknownTopicOrPartition)?;
                known.may_delete_records(&config).map(|()| known.id)
            });
        for partition in &topic.partitions {
            let owned = known.and_then(|topic| {
                let id = TopicPartition {
                    topic,
                    partition: PartitionIndex(partition.partition_index),
                };
                let owner = view.owner(id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
                Ok((id, owner))
            });
            let mut row = DeleteRecordsPartitionResult {
                partition_index: partition.partition_index,
                low_watermark: -1,
                error_code: ErrorCode::None.code(),
            };
            match owned {
                Ok((id, owner)) => asks.push((
                    owner,
                    PartitionAsk {
                        slot: rows.len(),
                        id,
                        question: Question::DeleteRecords {
                            before: Offset(partition.offset),
                        },
                    },
                )),
                Err(error) => row.error_code = error.code(),
            }
            rows.push(row);
        }
    }
    (asks, rows)
}
