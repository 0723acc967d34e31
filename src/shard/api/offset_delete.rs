//! OffsetDelete (KIP-496): partitions that exist go to the coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use thalweg_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use thalweg_types::PartitionIndex;

use crate::service::Call;
use crate::shard::Shard;

/// Answers when the tombstones are committed.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let unknown = split_off_unknown(&shard, &mut request);
    let group = request.group_id.clone();
    let asked = shard.ask_group(&group, &call, Ask::DeleteOffsets(request));
    let mut answer: OffsetDeleteResponse = match asked.await.get().await {
        Ok(answer) => answer,
        Err(error) => OffsetDeleteResponse {
            error_code: error.code(),
            ..Default::default()
        },
    };
    if answer.error_code == 0 {
        for missing in unknown {
            let known = answer.topics.iter_mut().find(|t| t.name == missing.name);
            match known {
                Some(topic) => topic.partitions.extend(missing.partitions),
                None => answer.topics.push(missing),
            }
        }
    }
    shard.count_error(call.key, answer.error_code);
    answer
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
