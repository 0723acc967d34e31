//! ElectLeaders (KIP-183, KIP-460): one broker has nobody else to elect. A partition that has the leader that is asked for
//! needs no election; one that is not served has no candidate.

use std::rc::Rc;

use thalweg_control::{ClusterView, OfflinePartitions};
use thalweg_metadata::Topic;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::elect_leaders_request::TopicPartitions;
use thalweg_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use thalweg_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};
use thalweg_types::{PartitionIndex, TopicPartition};

use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// Which leader is asked for, by the number of `election_type`.
#[derive(Clone, Copy)]
enum Election {
    /// The first of the replicas.
    Preferred,
    /// Any: one that is not in sync is elected where no other is there.
    Unclean,
}

/// Answers from the shard's view.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let view = shard.view();
    let Some(election) = election_of(request.election_type) else {
        let error = ErrorCode::InvalidRequest.code();
        shard.count_error(call.key, error);
        return ElectLeadersResponse {
            error_code: error,
            replica_election_results: refused(request, call.pace()).await,
            ..Default::default()
        };
    };
    let results = match request.topic_partitions {
        Some(asked) => of_asked(&view, shard.control.offline(), election, asked, call.pace()).await,
        None => of_all(&view, shard.control.offline(), election, call.pace()).await,
    };
    for row in results.iter().flat_map(|topic| &topic.partition_result) {
        shard.count_error(call.key, row.error_code);
    }
    ElectLeadersResponse {
        replica_election_results: results,
        ..Default::default()
    }
}

fn election_of(number: i8) -> Option<Election> {
    match number {
        0 => Some(Election::Preferred),
        1 => Some(Election::Unclean),
        _ => None,
    }
}

/// An election that there is not fails for each partition that is named.
async fn refused(request: ElectLeadersRequest, pace: Pace) -> Vec<ReplicaElectionResult> {
    let error = ErrorCode::InvalidRequest;
    let text = format!(
        "election type {} is none: 0 elects preferred leaders, 1 any",
        request.election_type
    );
    let asked = request.topic_partitions.unwrap_or_default();
    by_partition(asked, pace, |_, _| (error, Some(text.clone()))).await
}

async fn of_asked(
    view: &ClusterView,
    offline: &OfflinePartitions,
    election: Election,
    asked: Vec<TopicPartitions>,
    pace: Pace,
) -> Vec<ReplicaElectionResult> {
    by_partition(asked, pace, |name, index| {
        let unknown = (ErrorCode::UnknownTopicOrPartition, None);
        let Some(topic) = view.image.topic(name) else {
            return unknown;
        };
        judge(offline, election, topic, index).map_or(unknown, |error| (error, None))
    })
    .await
}

/// Of all partitions those are told that have not the leader that is asked for; each topic is named.
async fn of_all(
    view: &ClusterView,
    offline: &OfflinePartitions,
    election: Election,
    mut pace: Pace,
) -> Vec<ReplicaElectionResult> {
    let mut results = Vec::new();
    for topic in view.image.topics() {
        let mut rows = Vec::new();
        for index in topic.partitions.keys() {
            pace.step().await;
            match judge(offline, election, topic, *index) {
                None | Some(ErrorCode::ElectionNotNeeded) => {}
                Some(error) => rows.push(row(*index, error, None)),
            }
        }
        results.push(ReplicaElectionResult {
            topic: topic.name.to_string(),
            partition_result: rows,
        });
    }
    results
}

/// What comes of the election; `None` where there is no such partition.
fn judge(
    offline: &OfflinePartitions,
    election: Election,
    topic: &Topic,
    index: PartitionIndex,
) -> Option<ErrorCode> {
    let partition = topic.partitions.get(&index)?;
    let id = TopicPartition {
        topic: topic.id,
        partition: index,
    };
    let leader = partition.leader.filter(|_| !offline.contains(id));
    let preferred = partition.replicas.first().copied();
    Some(match (election, leader) {
        (Election::Preferred, leader) if leader.is_some() && leader == preferred => {
            ErrorCode::ElectionNotNeeded
        }
        (Election::Preferred, _) => ErrorCode::PreferredLeaderNotAvailable,
        (Election::Unclean, Some(_)) => ErrorCode::ElectionNotNeeded,
        (Election::Unclean, None) => ErrorCode::EligibleLeadersNotAvailable,
    })
}

async fn by_partition(
    asked: Vec<TopicPartitions>,
    mut pace: Pace,
    judge: impl Fn(&str, PartitionIndex) -> (ErrorCode, Option<String>),
) -> Vec<ReplicaElectionResult> {
    let mut results = Vec::with_capacity(asked.len());
    for asked in asked {
        let mut rows = Vec::with_capacity(asked.partitions.len());
        for index in asked.partitions {
            pace.step().await;
            let index = PartitionIndex(index);
            let (error, text) = judge(&asked.topic, index);
            rows.push(row(index, error, text));
        }
        results.push(ReplicaElectionResult {
            partition_result: rows,
            topic: asked.topic,
        });
    }
    results
}

fn row(index: PartitionIndex, error: ErrorCode, text: Option<String>) -> PartitionResult {
    PartitionResult {
        partition_id: index.0,
        error_code: error.code(),
        error_message: text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_control::OfflinePartitions;
    use thalweg_metadata::{Partition, Topic};
    use thalweg_protocol::ErrorCode;
    use thalweg_types::{BrokerId, LeaderEpoch, PartitionIndex, TopicPartition, Uuid};

    use super::{Election, judge};

    fn led_by(leader: Option<BrokerId>) -> Partition {
        Partition {
            replicas: vec![BrokerId(1)],
            directories: Vec::new(),
            in_sync: vec![BrokerId(1)],
            removing: Vec::new(),
            adding: Vec::new(),
            eligible: Vec::new(),
            last_known_eligible: Vec::new(),
            leader,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            recovering: false,
        }
    }

    #[test]
    fn what_has_its_leader_needs_no_election_and_what_is_offline_has_no_candidate() {
        let (served, failed, leaderless) =
            (PartitionIndex(0), PartitionIndex(1), PartitionIndex(2));
        let topic = Topic {
            name: "t".into(),
            id: Uuid([7; 16]),
            partitions: BTreeMap::from([
                (served, led_by(Some(BrokerId(1)))),
                (failed, led_by(Some(BrokerId(1)))),
                (leaderless, led_by(None)),
            ]),
        };
        let offline = OfflinePartitions::default();
        offline.add(TopicPartition {
            topic: topic.id,
            partition: failed,
        });
        let judged = |election, index| judge(&offline, election, &topic, index);
        for election in [Election::Preferred, Election::Unclean] {
            assert_eq!(judged(election, served), Some(ErrorCode::ElectionNotNeeded));
            assert_eq!(judged(election, PartitionIndex(3)), None);
        }
        for index in [failed, leaderless] {
            let preferred = judged(Election::Preferred, index);
            assert_eq!(preferred, Some(ErrorCode::PreferredLeaderNotAvailable));
            let any = judged(Election::Unclean, index);
            assert_eq!(any, Some(ErrorCode::EligibleLeadersNotAvailable));
        }
    }
}
