//! OffsetDelete (KIP-496): partitions that exist go to the coordinator.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use thalweg_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use thalweg_reactor::task;
use thalweg_types::PartitionIndex;
use thalweg_types::limits::OFFSET_COMMIT_ROWS_PER_TURN;

use super::parts::{Rows, parts};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed: of many partitions one part after the other, each a batch of the
/// coordinator's log.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let unknown = split_off_unknown(&shard, &mut request);
    let group = std::mem::take(&mut request.group_id);
    let mut parts = parts(request.topics, OFFSET_COMMIT_ROWS_PER_TURN);
    let mut answer = OffsetDeleteResponse::default();
    loop {
        // Also without any: whether there is such a group is to be told.
        let part = OffsetDeleteRequest {
            group_id: group.clone(),
            topics: parts.pop_front().unwrap_or_default(),
        };
        let asked = shard.ask_group(&group, &call, Ask::DeleteOffsets(part));
        match asked.await.get::<OffsetDeleteResponse>().await {
            Ok(told) if told.error_code == 0 => add(&mut answer.topics, told.topics),
            refused => {
                answer.topics.clear();
                answer.error_code = refused.map_or_else(ErrorCode::code, |told| told.error_code);
                break;
            }
        }
        if parts.is_empty() {
            add(&mut answer.topics, unknown);
            break;
        }
        task::yield_now().await;
    }
    shard.count_error(call.key, answer.error_code);
    answer
}

/// Adds rows, those of a topic to what is there of it.
fn add(topics: &mut Vec<OffsetDeleteResponseTopic>, more: Vec<OffsetDeleteResponseTopic>) {
    let known: HashMap<String, usize> = topics
        .iter()
        .enumerate()
        .map(|(at, topic)| (topic.name.clone(), at))
        .collect();
    for topic in more {
        match known.get(&topic.name) {
            Some(at) => topics[*at].partitions.extend(topic.partitions),
            None => topics.push(topic),
        }
    }
}

impl Rows for OffsetDeleteRequestTopic {
    type Row = OffsetDeleteRequestPartition;

    fn rows(&mut self) -> &mut Vec<OffsetDeleteRequestPartition> {
        &mut self.partitions
    }

    fn with(&self, rows: Vec<OffsetDeleteRequestPartition>) -> OffsetDeleteRequestTopic {
        OffsetDeleteRequestTopic {
            name: self.name.clone(),
            partitions: rows,
        }
    }
}

/// Takes the partitions that do not exist out of the request.
fn split_off_unknown(
    shard: &Shard,
    request: &mut OffsetDeleteRequest,
) -> Vec<OffsetDeleteResponseTopic> {
    let view = shard.view();
    let mut unknown = Vec::new();
    for topic in &mut request.topics {
        let known = view.image.topic(&topic.name);
        let mut missing = Vec::new();
        topic.partitions.retain(|partition| {
            let index = PartitionIndex(partition.partition_index);
            let exists = known.is_some_and(|known| known.partitions.contains_key(&index));
            if !exists {
                missing.push(OffsetDeleteResponsePartition {
                    partition_index: index.0,
                    error_code: ErrorCode::UnknownTopicOrPartition.code(),
                });
            }
            exists
        });
        if !missing.is_empty() {
            unknown.push(OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions: missing,
            });
        }
    }
    request
        .topics
        .retain(|topic: &OffsetDeleteRequestTopic| !topic.partitions.is_empty());
    unknown
}
