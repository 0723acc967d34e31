//! Telling topics page by page (KIP-966).

use std::collections::BTreeSet;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use thalweg_protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use thalweg_types::limits::DESCRIBED_PARTITIONS_MAX;
use thalweg_types::{BrokerId, PartitionIndex, TopicPartition};

use crate::image::{Image, Partition, Topic};
use crate::names;

/// Answers DescribeTopicPartitions: topics by name from the cursor on, up to a number of partitions,
/// and a cursor where to go on. `operations` is what a client may do to a topic. `unserved` gives the broker that
/// leads a partition and can not serve it at present: then it is told that it has no leader, as Metadata tells it.
#[must_use]
pub fn describe_topic_partitions(
    image: &Image,
    request: &DescribeTopicPartitionsRequest,
    operations: i32,
    unserved: impl Fn(TopicPartition) -> Option<BrokerId>,
) -> DescribeTopicPartitionsResponse {
    let cursor = request.cursor.as_ref();
    let from = cursor.map_or("", |cursor| cursor.topic_name.as_str());
    let names: BTreeSet<&str> = match request.topics.is_empty() {
        true => image.topics().map(|topic| &*topic.name).collect(),
        false => request.topics.iter().map(|t| t.name.as_str()).collect(),
    };
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(1);
    let mut room = limit.clamp(1, DESCRIBED_PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.range(from..) {
        if room == 0 {
            response.next_cursor = Some(cursor_at(name, 0));
            break;
        }
        let Some(topic) = image.topic(name) else {
            response.topics.push(unknown(name));
            // A refusal takes its place too: a list of unknown names is no way around the limit.
            room -= 1;
            continue;
        };
        let first = match cursor {
            Some(cursor) if cursor.topic_name == *name => cursor.partition_index.max(0),
            Some(_) | None => 0,
        };
        let mut rest = topic.partitions.range(PartitionIndex(first)..);
        let mut row = described(topic, operations);
        row.partitions = rest
            .by_ref()
            .take(room)
            .map(|(index, partition)| {
                let id = TopicPartition {
                    topic: topic.id,
                    partition: *index,
                };
                partition_row(image, *index, partition, unserved(id))
            })
            .collect();
        room -= row.partitions.len();
        response.topics.push(row);
        if let Some((next, _)) = rest.next() {
            response.next_cursor = Some(cursor_at(name, next.0));
            break;
        }
    }
    response
}

fn cursor_at(name: &str, partition_index: i32) -> Cursor {
    Cursor {
        topic_name: name.to_owned(),
        partition_index,
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let error = match names::validate(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(name.to_owned()),
        is_internal: names::is_internal(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn described(topic: &Topic, operations: i32) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic.is_internal(),
        topic_authorized_operations: operations,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn partition_row(
    image: &Image,
    index: PartitionIndex,
    partition: &Partition,
    unserved: Option<BrokerId>,
) -> DescribeTopicPartitionsResponsePartition {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|id| id.0).collect::<Vec<i32>>();
    let leader = partition.leader.filter(|_| unserved.is_none());
    let mut offline = image.offline_replicas(partition);
    offline.extend(unserved.filter(|id| !offline.contains(id)));
    let error = match leader {
        Some(_) => ErrorCode::None,
        None => ErrorCode::LeaderNotAvailable,
    };
    DescribeTopicPartitionsResponsePartition {
        error_code: error.code(),
        partition_index: index.0,
        leader_id: leader.map_or(-1, |leader| leader.0),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.in_sync),
        eligible_leader_replicas: Some(ids(&partition.eligible)),
        last_known_elr: Some(ids(&partition.last_known_eligible)),
        offline_replicas: ids(&offline),
    }
}
