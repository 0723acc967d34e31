//! One file per Kafka API: decode is done, the answer is built here.
//!
//! Each handler turns a typed request into events for machines or questions to their owners and
//! builds the typed answer. [`API_TABLE`] is what ApiVersions advertises, and nothing outside it is
//! answered.

pub(crate) mod acls;
pub(crate) mod alter_configs;
pub(crate) mod alter_partition_reassignments;
pub(crate) mod alter_replica_log_dirs;
pub(crate) mod api_versions;
pub(crate) mod consumer_group_describe;
pub(crate) mod consumer_group_heartbeat;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_client_quotas;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_quorum;
pub(crate) mod describe_topic_partitions;
pub(crate) mod describe_user_scram_credentials;
pub(crate) mod describing;
pub(crate) mod elect_leaders;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_config_resources;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod list_partition_reassignments;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
mod operations;
pub(crate) mod parts;
pub(crate) mod produce;
pub(crate) mod sasl;
pub(crate) mod sync_group;
pub(crate) mod update_features;

use std::collections::HashSet;
use std::hash::Hash;

use thalweg_control::ClusterView;
use thalweg_protocol::{ApiKey, ErrorCode};
use thalweg_replica::Isolation;
use thalweg_types::{PartitionIndex, ShardId, TopicId, TopicPartition};

use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// An API and the versions of it that work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRange {
    /// The API.
    pub key: ApiKey,
    /// Lowest version advertised.
    pub min: i16,
    /// Highest version advertised.
    pub max: i16,
    /// Lowest version answered: Produce is advertised from 0 although 0 to 2 are refused, since
    /// older librdkafka otherwise sends uncompressed batches (KAFKA-18659).
    pub served_from: i16,
}

const fn range(key: ApiKey, min: i16, max: i16) -> ApiRange {
    ApiRange {
        key,
        min,
        max,
        served_from: min,
    }
}

/// Every API that this broker serves, ascending by key.
pub const API_TABLE: &[ApiRange] = &[
    ApiRange {
        key: ApiKey::Produce,
        min: 0,
        max: 13,
        served_from: 3,
    },
    range(ApiKey::Fetch, 4, 18),
    range(ApiKey::ListOffsets, 1, 11),
    range(ApiKey::Metadata, 0, 13),
    range(ApiKey::OffsetCommit, 2, 10),
    range(ApiKey::OffsetFetch, 1, 10),
    range(ApiKey::FindCoordinator, 0, 6),
    range(ApiKey::JoinGroup, 0, 9),
    range(ApiKey::Heartbeat, 0, 4),
    range(ApiKey::LeaveGroup, 0, 5),
    range(ApiKey::SyncGroup, 0, 5),
    range(ApiKey::DescribeGroups, 0, 6),
    range(ApiKey::ListGroups, 0, 5),
    range(ApiKey::SaslHandshake, 0, 1),
    range(ApiKey::ApiVersions, 0, 4),
    range(ApiKey::CreateTopics, 2, 7),
    range(ApiKey::DeleteTopics, 1, 6),
    range(ApiKey::DeleteRecords, 0, 2),
    range(ApiKey::InitProducerId, 0, 5),
    range(ApiKey::OffsetForLeaderEpoch, 2, 4),
    range(ApiKey::DescribeAcls, 1, 3),
    range(ApiKey::CreateAcls, 1, 3),
    range(ApiKey::DeleteAcls, 1, 3),
    range(ApiKey::DescribeConfigs, 1, 4),
    range(ApiKey::AlterConfigs, 0, 2),
    range(ApiKey::AlterReplicaLogDirs, 1, 2),
    range(ApiKey::DescribeLogDirs, 1, 5),
    range(ApiKey::SaslAuthenticate, 0, 2),
    range(ApiKey::CreatePartitions, 0, 3),
    range(ApiKey::DeleteGroups, 0, 2),
    range(ApiKey::ElectLeaders, 0, 2),
    range(ApiKey::IncrementalAlterConfigs, 0, 1),
    range(ApiKey::AlterPartitionReassignments, 0, 1),
    range(ApiKey::ListPartitionReassignments, 0, 0),
    range(ApiKey::OffsetDelete, 0, 0),
    range(ApiKey::DescribeClientQuotas, 0, 1),
    range(ApiKey::DescribeUserScramCredentials, 0, 0),
    range(ApiKey::DescribeQuorum, 0, 2),
    range(ApiKey::UpdateFeatures, 0, 2),
    range(ApiKey::DescribeCluster, 0, 2),
    range(ApiKey::DescribeProducers, 0, 0),
    range(ApiKey::ConsumerGroupHeartbeat, 0, 1),
    range(ApiKey::ConsumerGroupDescribe, 0, 1),
    range(ApiKey::ListConfigResources, 0, 1),
    range(ApiKey::DescribeTopicPartitions, 0, 0),
];

/// The row of `key`, if the broker serves that API.
#[must_use]
pub fn served(key: ApiKey) -> Option<&'static ApiRange> {
    API_TABLE.iter().find(|range| range.key == key)
}

/// What a client is told while the broker stops.
const STOPPING: &str = "the broker is stopping: try again when it is back";

/// The answer to a change that the controller decides, with its errors counted; `refused` when the
/// broker is stopping. `codes` finds the codes of its rows.
fn decided<A>(
    shard: &Shard,
    call: &Call,
    answered: Option<A>,
    refused: A,
    codes: impl Fn(&A) -> Vec<i16>,
) -> A {
    let answer = answered.unwrap_or(refused);
    for code in codes(&answer) {
        shard.count_error(call.key, code);
    }
    answer
}

/// Deals rows, which are in the order of a request, out to the topics that the request names.
fn by_topic<T, R, A>(
    topics: Vec<T>,
    rows: Vec<R>,
    partitions_of: impl Fn(&T) -> usize,
    answer: impl Fn(T, Vec<R>) -> A,
) -> Vec<A> {
    let mut rows = rows.into_iter();
    let one = |topic| {
        let own = rows.by_ref().take(partitions_of(&topic)).collect();
        answer(topic, own)
    };
    topics.into_iter().map(one).collect()
}

/// A partition of a topic that exists, with the shard that owns it.
fn owned(
    view: &ClusterView,
    topic: TopicId,
    index: i32,
) -> Result<(TopicPartition, ShardId), ErrorCode> {
    let partition = PartitionIndex(index);
    let id = TopicPartition { topic, partition };
    let owner = view.owner(id).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok((id, owner))
}

/// `isolation_level` of Fetch and ListOffsets: 1 is read_committed (KIP-98).
fn isolation(level: i8) -> Isolation {
    match level {
        1 => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    }
}

/// Keeps the first item of each key. For requests that name things whose description is larger than
/// their name: one frame that repeats a name would otherwise be answered with all the memory there is.
pub(crate) async fn keep_first_of_each<T, K: Eq + Hash>(
    items: &mut Vec<T>,
    mut pace: Pace,
    mut key: impl FnMut(&T) -> K,
) {
    let mut seen = HashSet::with_capacity(items.len());
    for item in std::mem::take(items) {
        pace.step().await;
        if seen.insert(key(&item)) {
            items.push(item);
        }
    }
    // To free so many takes its time, too.
    for key in seen {
        drop(key);
        pace.step().await;
    }
}

#[cfg(test)]
mod tests {
    use super::{API_TABLE, keep_first_of_each};
    use crate::pace::{Pace, tests::on_a_runtime};

    #[test]
    fn bi_a_name_that_is_repeated_is_described_once() {
        let mut named: Vec<(&str, usize)> = ["b", "a"].repeat(1_000).into_iter().zip(0..).collect();
        on_a_runtime(async {
            keep_first_of_each(&mut named, Pace::default(), |(name, _)| *name).await;
        });
        assert_eq!(named, [("b", 0), ("a", 1)]);
    }

    #[test]
    fn the_table_ascends_and_each_range_holds_a_version() {
        for pair in API_TABLE.windows(2) {
            assert!((pair[0].key as i16) < pair[1].key as i16);
        }
        for row in API_TABLE {
            assert!(
                row.min <= row.served_from && row.served_from <= row.max,
                "{row:?}"
            );
        }
    }
}
