//! DescribeQuorum (KIP-595, KIP-836, KIP-853): the metadata log has one voter, this broker, which leads it. What Kafka calls
//! the listeners of a controller are those of the broker here.

use std::rc::Rc;

use thalweg_control::{Endpoint, QuorumState};
use thalweg_metadata::names::METADATA_TOPIC;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_quorum_request;
use thalweg_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use thalweg_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use thalweg_reactor::time;
use thalweg_types::{BrokerId, Uuid};

use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// First version that tells of directories and nodes; they have no place in those before (KIP-853).
const DIRECTORIES_FROM: i16 = 2;

/// Index of the only partition of the metadata topic.
const METADATA_PARTITION: i32 = 0;

/// Asks the controller how far its log is.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    if !is_of_metadata(&request.topics) {
        shard.count_error(call.key, ErrorCode::UnknownTopicOrPartition.code());
        return DescribeQuorumResponse {
            error_message: None,
            topics: unknown(request.topics, call.pace()).await,
            ..Default::default()
        };
    }
    let Some(mut state) = shard.control.quorum().await else {
        let error = ErrorCode::NotLeaderOrFollower.code();
        shard.count_error(call.key, error);
        return DescribeQuorumResponse {
            error_code: error,
            error_message: Some(super::STOPPING.to_owned()),
            ..Default::default()
        };
    };
    let view = shard.view();
    let nodes = match call.version >= DIRECTORIES_FROM {
        true => vec![node(view.broker_id, view.endpoint(call.conn.listener()))],
        false => Vec::new(),
    };
    if nodes.is_empty() {
        state.directory = None;
    }
    DescribeQuorumResponse {
        error_message: None,
        topics: vec![TopicData {
            topic_name: METADATA_TOPIC.to_owned(),
            partitions: vec![partition(view.broker_id, state)],
        }],
        nodes,
        ..Default::default()
    }
}

/// A quorum is described alone.
fn is_of_metadata(topics: &[describe_quorum_request::TopicData]) -> bool {
    match topics {
        [topic] if topic.topic_name == METADATA_TOPIC => {
            matches!(&topic.partitions[..], [one] if one.partition_index == METADATA_PARTITION)
        }
        _ => false,
    }
}

async fn unknown(
    topics: Vec<describe_quorum_request::TopicData>,
    mut pace: Pace,
) -> Vec<TopicData> {
    let mut told = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            pace.step().await;
            partitions.push(PartitionData {
                partition_index: asked.partition_index,
                error_code: ErrorCode::UnknownTopicOrPartition.code(),
                error_message: None,
                ..Default::default()
            });
        }
        told.push(TopicData {
            topic_name: topic.topic_name,
            partitions,
        });
    }
    told
}

fn partition(id: BrokerId, state: QuorumState) -> PartitionData {
    // The leader is never behind itself.
    let now = time::unix_ms();
    let voter = ReplicaState {
        replica_id: id.0,
        replica_directory_id: state.directory.unwrap_or(Uuid::ZERO),
        log_end_offset: state.end.0,
        last_fetch_timestamp: now,
        last_caught_up_timestamp: now,
    };
    PartitionData {
        partition_index: METADATA_PARTITION,
        error_message: None,
        leader_id: id.0,
        leader_epoch: state.epoch.0,
        high_watermark: state.end.0,
        current_voters: vec![voter],
        ..Default::default()
    }
}

fn node(id: BrokerId, endpoint: &Endpoint) -> Node {
    Node {
        node_id: id.0,
        listeners: vec![Listener {
            name: endpoint.name.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
        }],
    }
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::describe_quorum_request::{PartitionData, TopicData};

    use super::is_of_metadata;

    #[test]
    fn only_the_metadata_partition_has_a_quorum() {
        let topic = |name: &str, partitions: &[i32]| TopicData {
            topic_name: name.to_owned(),
            partitions: partitions
                .iter()
                .map(|index| PartitionData {
                    partition_index: *index,
                })
                .collect(),
        };
        let metadata = || topic("__cluster_metadata", &[0]);
        assert!(is_of_metadata(&[metadata()]));
        for other in [
            vec![],
            vec![topic("other", &[0])],
            vec![topic("__cluster_metadata", &[1])],
            vec![topic("__cluster_metadata", &[0, 1])],
            vec![metadata(), metadata()],
        ] {
            assert!(!is_of_metadata(&other), "{other:?}");
        }
    }
}
