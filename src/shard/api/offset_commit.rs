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
use thalweg_reactor::task;
use thalweg_types::limits::OFFSET_COMMIT_ROWS_PER_TURN;
use thalweg_types::{PartitionIndex, TopicId};

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
    for part in parts(request) {
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
fn parts(mut request: OffsetCommitRequest) -> Vec<OffsetCommitRequest> {
    let topics = std::mem::take(&mut request.topics);
    let mut parts = vec![request.clone()];
    let mut left = OFFSET_COMMIT_ROWS_PER_TURN;
    for topic in topics {
        let mut rest = topic.partitions;
        loop {
            if left == 0 {
                parts.push(request.clone());
                left = OFFSET_COMMIT_ROWS_PER_TURN;
            }
            let later = rest.split_off(rest.len().min(left));
            // One without partitions is a row of the answer, too.
            left -= rest.len().max(1);
            if let Some(part) = parts.last_mut() {
                part.topics.push(OffsetCommitRequestTopic {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: rest,
                });
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }
    parts
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

    use super::parts;

    fn topic(name: &str, partitions: usize) -> OffsetCommitRequestTopic {
        let row = |partition_index| OffsetCommitRequestPartition {
            partition_index,
            ..Default::default()
        };
        OffsetCommitRequestTopic {
            name: name.to_owned(),
            partitions: (0..partitions as i32).map(row).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn bi_8_a_large_commit_goes_in_parts() {
        const PART: usize = OFFSET_COMMIT_ROWS_PER_TURN;
        let request = |topics: &[(&str, usize)]| OffsetCommitRequest {
            group_id: "g".to_owned(),
            topics: topics.iter().map(|(name, n)| topic(name, *n)).collect(),
            ..Default::default()
        };
        let small = request(&[("a", 1), ("b", 0)]);
        assert_eq!(parts(small.clone()), [small]);
        assert_eq!(parts(request(&[])), [request(&[])]);
        let large = parts(request(&[("a", PART - 1), ("b", 2 * PART)]));
        let sizes = large.iter().map(|part| {
            assert_eq!(part.group_id, "g");
            let rows = part
                .topics
                .iter()
                .map(|t| (t.name.as_str(), t.partitions.len()));
            rows.collect::<Vec<_>>()
        });
        let wanted = [
            vec![("a", PART - 1), ("b", 1)],
            vec![("b", PART)],
            vec![("b", PART - 1)],
        ];
        assert_eq!(sizes.collect::<Vec<_>>(), wanted);
        let of_b = large
            .iter()
            .flat_map(|part| &part.topics)
            .filter(|t| t.name == "b");
        let rows = of_b
            .flat_map(|t| &t.partitions)
            .map(|row| row.partition_index);
        assert!(rows.eq(0..2 * PART as i32));
    }
}
