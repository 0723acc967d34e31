//! OffsetCommit: partitions that exist go to the coordinator; the answer keeps the request's order.
//! Topics come by name, from version 10 on by id (KIP-848).

use std::future::Future;
use std::rc::Rc;

use thalweg_group::{Ask, VERSION_TOPIC_IDS};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use thalweg_reactor::task;
use thalweg_types::limits::OFFSET_COMMIT_ROWS_PER_TURN;
use thalweg_types::{PartitionIndex, TopicId};

use super::parts::{Rows, parts};
use crate::groups::GroupAnswer;
use crate::service::Call;
use crate::shard::Shard;

/// Asks the coordinator for what exists: of a large commit a part at a time, between which others run. Each
/// part is one batch of the coordinator's log, and is refused by itself.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    request: OffsetCommitRequest,
) -> impl Future<Output = OffsetCommitResponse> {
    let mut begun = Vec::new();
    for part in in_parts(request) {
        if !begun.is_empty() {
            task::yield_now().await;
        }
        begun.push(Part::begin(&shard, &call, part).await);
    }
    async move {
        let mut topics: Vec<OffsetCommitResponseTopic> = Vec::new();
        for part in begun {
            for topic in part.finish(&shard, &call).await {
                match topics.last_mut() {
                    // The end of one part and the begin of the next.
                    Some(last) if last.name == topic.name && last.topic_id == topic.topic_id => {
                        last.partitions.extend(topic.partitions);
                    }
                    Some(_) | None => topics.push(topic),
                }
            }
        }
        OffsetCommitResponse {
            topics,
            ..Default::default()
        }
    }
}

/// The request in parts of no more partitions than one turn of a core may take; one at least.
fn in_parts(mut request: OffsetCommitRequest) -> Vec<OffsetCommitRequest> {
    let topics = std::mem::take(&mut request.topics);
    let parts = parts(topics, OFFSET_COMMIT_ROWS_PER_TURN);
    if parts.is_empty() {
        return vec![request];
    }
    let part = |topics| OffsetCommitRequest {
        topics,
        ..request.clone()
    };
    parts.into_iter().map(part).collect()
}

impl Rows for OffsetCommitRequestTopic {
    type Row = OffsetCommitRequestPartition;

    fn rows(&mut self) -> &mut Vec<OffsetCommitRequestPartition> {
        &mut self.partitions
    }

    fn with(&self, rows: Vec<OffsetCommitRequestPartition>) -> OffsetCommitRequestTopic {
        OffsetCommitRequestTopic {
            name: self.name.clone(),
            topic_id: self.topic_id,
            partitions: rows,
        }
    }

    fn bytes(row: &OffsetCommitRequestPartition) -> usize {
        row.committed_metadata.as_ref().map_or(0, String::len)
    }
}

/// A part of a commit that its coordinator was asked to write.
struct Part {
    rows: Vec<OffsetCommitResponseTopic>,
    /// `None`: nothing of it exists.
    asked: Option<GroupAnswer>,
}

impl Part {
    async fn begin(shard: &Shard, call: &Call, mut request: OffsetCommitRequest) -> Part {
        complete(shard, call.version, &mut request);
        let rows = rows(shard, call.version, &request);
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
            false => Some(shard.ask_group(&group, call, Ask::Commit(request)).await),
        };
        Part { rows, asked }
    }

    async fn finish(mut self, shard: &Shard, call: &Call) -> Vec<OffsetCommitResponseTopic> {
        if let Some(asked) = self.asked {
            merge(&mut self.rows, asked.get().await);
        }
        for row in self.rows.iter().flat_map(|topic| &topic.partitions) {
            shard.count_error(call.key, row.error_code);
        }
        self.rows
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
fn merge(topics: &mut [OffsetCommitResponseTopic], said: Result<OffsetCommitResponse, ErrorCode>) {
    let rows = topics
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

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::OffsetCommitRequest;
    use thalweg_protocol::messages::offset_commit_request::{
        OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    };
    use thalweg_types::limits::OFFSET_COMMIT_ROWS_PER_TURN;

    use super::in_parts;

    #[test]
    fn bi_8_a_large_commit_goes_in_parts() {
        let request = |partitions: i32| {
            let row = |partition_index| OffsetCommitRequestPartition {
                partition_index,
                ..Default::default()
            };
            OffsetCommitRequest {
                group_id: "g".to_owned(),
                topics: vec![OffsetCommitRequestTopic {
                    name: "t".to_owned(),
                    partitions: (0..partitions).map(row).collect(),
                    ..Default::default()
                }],
                ..Default::default()
            }
        };
        let of_nothing = OffsetCommitRequest {
            group_id: "g".to_owned(),
            ..Default::default()
        };
        for small in [of_nothing, request(0), request(1)] {
            assert_eq!(in_parts(small.clone()), [small]);
        }
        let large = in_parts(request(2 * OFFSET_COMMIT_ROWS_PER_TURN as i32 + 1));
        assert_eq!(large.len(), 3);
        assert!(large.iter().all(|part| part.group_id == "g"));
    }
}
