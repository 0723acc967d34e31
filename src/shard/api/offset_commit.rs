//! OffsetCommit: partitions that exist go to the coordinator; the answer keeps the request's order.
//! Topics come by name, from version 10 on by id (KIP-848).

use std::future::Future;
use std::rc::Rc;

use thalweg_group::{Ask, VERSION_TOPIC_IDS};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use thalweg_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use thalweg_types::{PartitionIndex, TopicId};

use crate::service::Call;
use crate::shard::Shard;

/// Asks the coordinator for what exists.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    mut request: OffsetCommitRequest,
) -> impl Future<Output = OffsetCommitResponse> {
    complete(&shard, call.version, &mut request);
    let rows = rows(&shard, call.version, &request);
    let mut unknown = rows.iter().flat_map(|topic| &topic.partitions);
    for topic in &mut request.topics {
        topic.partitions.retain(|_| {
            let row = unknown.next();
            row.is_some_and(|row| row.error_code == 0)
        });
    }
    request.topics.retain(|topic| !topic.partitions.is_empty());
    let group = request.group_id.clone();
    let asked = match request.topics.is_empty() && !rows.is_empty() {
        true => None,
        false => Some(shard.ask_group(&group, &call, Ask::Commit(request)).await),
    };
    async move {
        let mut answer = OffsetCommitResponse {
            topics: rows,
            ..Default::default()
        };
        if let Some(asked) = asked {
            merge(&mut answer, asked.get().await);
        }
        for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            shard.count_error(call.key, row.error_code);
        }
        answer
    }
}

/// Gives each topic its name and its id, whichever the version has; a name without a topic stays
/// without an id, and an id without a name.
fn complete(shard: &Shard, version: i16, request: &mut OffsetCommitRequest) {
    let view = shard.view();
    for topic in &mut request.topics {
        if version < VERSION_TOPIC_IDS {
            let known = view.image.topic(&topic.name);
            topic.topic_id = known.map_or(TopicId::ZERO, |known| known.id);
        } else if let Some(known) = view.image.topic_by_id(topic.topic_id) {
            topic.name = known.name.to_string();
        }
    }
}

/// One row per partition of the request, with an error where there is no such partition.
fn rows(
    shard: &Shard,
    version: i16,
    request: &OffsetCommitRequest,
) -> Vec<OffsetCommitResponseTopic> {
    let view = shard.view();
    let of_topic = |topic: &OffsetCommitRequestTopic| {
        let known = view.image.topic_by_id(topic.topic_id);
        let row = |index: i32| {
            let exists = known.is_some_and(|k| k.partitions.contains_key(&PartitionIndex(index)));
            let code = match known {
                _ if exists => ErrorCode::None,
                None if version >= VERSION_TOPIC_IDS => ErrorCode::UnknownTopicId,
                None | Some(_) => ErrorCode::UnknownTopicOrPartition,
            };
            OffsetCommitResponsePartition {
                partition_index: index,
                error_code: code.code(),
            }
        };
        OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| row(partition.partition_index))
                .collect(),
        }
    };
    request.topics.iter().map(of_topic).collect()
}

/// Fills in what the coordinator said about the partitions that exist, which it says in order.
fn merge(answer: &mut OffsetCommitResponse, said: Result<OffsetCommitResponse, ErrorCode>) {
    let rows = answer
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
        .filter(|row| row.error_code == 0);
    match said {
        Ok(said) => {
            let codes = said.topics.iter().flat_map(|topic| &topic.partitions);
            for (row, code) in rows.zip(codes) {
                row.error_code = code.error_code;
            }
        }
        Err(error) => rows.for_each(|row| row.error_code = error.code()),
    }
}
