//! Administrative calls: topics, the cluster, offsets of partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_protocol::messages::delete_topics_request::DeleteTopicState;
use thalweg_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use thalweg_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest, ListOffsetsRequest,
};
use thalweg_types::Uuid;

use crate::cluster::{Broker, Cluster, Topic};
use crate::error::{ClientError, Result};

/// How long the broker may take for one administrative change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// `replica_id` of somebody who is no broker.
const NO_REPLICA: i32 = -1;

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// `None`: the broker's `num.partitions`.
    pub partitions: Option<i32>,
    /// `None`: the broker's `default.replication.factor`.
    pub replication_factor: Option<i16>,
    /// Properties that differ from the broker's defaults.
    pub configs: Vec<(String, String)>,
}

/// A topic that was created, as the broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id; zero from old brokers.
    pub id: Uuid,
    /// -1 from old brokers.
    pub partitions: i32,
    /// -1 from old brokers.
    pub replication_factor: i16,
}

/// The cluster as DescribeCluster tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// `cluster.id`.
    pub cluster_id: String,
    /// -1 when there is none.
    pub controller: i32,
    /// By id.
    pub brokers: Vec<Broker>,
}

/// Which offset of a partition is asked for (ListOffsets).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first that can be read.
    Earliest,
    /// The one after the last that can be read.
    Latest,
    /// That of the record with the highest timestamp (KIP-734).
    MaxTimestamp,
    /// The first on the leader's own disk (KIP-405).
    EarliestLocal,
    /// The first with this timestamp in milliseconds or a later one.
    Timestamp(i64),
}

impl OffsetSpec {
    fn on_the_wire(self) -> i64 {
        match self {
            OffsetSpec::Latest => -1,
            OffsetSpec::Earliest => -2,
            OffsetSpec::MaxTimestamp => -3,
            OffsetSpec::EarliestLocal => -4,
            OffsetSpec::Timestamp(ms) => ms,
        }
    }
}

/// Answer for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// `None`: no record fits the question.
    pub offset: Option<i64>,
    /// Timestamp of the record, -1 when it was not asked for.
    pub timestamp: i64,
    /// -1 when not known.
    pub leader_epoch: i32,
}

impl Cluster {
    /// Creates one topic.
    ///
    /// # Errors
    /// [`ClientError::Refused`], for example with TOPIC_ALREADY_EXISTS.
    pub fn create_topic(&mut self, topic: &NewTopic) -> Result<CreatedTopic> {
        let config = |(name, value): &(String, String)| CreatableTopicConfig {
            name: name.clone(),
            value: Some(value.clone()),
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.name.clone(),
                num_partitions: topic.partitions.unwrap_or(-1),
                replication_factor: topic.replication_factor.unwrap_or(-1),
                assignments: Vec::new(),
                configs: topic.configs.iter().map(config).collect(),
            }],
            timeout_ms: CHANGE_TIMEOUT.as_millis() as i32,
            validate_only: false,
        };
        let what = || format!("create topic {}", topic.name);
        let created = self.retry(|cluster| {
            let response = cluster.any()?.call(&request)?;
            let result = response
                .topics
                .into_iter()
                .next()
                .ok_or_else(|| no_result(&what()))?;
            ClientError::check(result.error_code, what, result.error_message.as_deref())?;
            Ok(CreatedTopic {
                id: result.topic_id,
                partitions: result.num_partitions,
                replication_factor: result.replication_factor,
            })
        })?;
        self.forget_topics();
        Ok(created)
    }

    /// Deletes one topic by its name.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with UNKNOWN_TOPIC_OR_PARTITION when there is none.
    pub fn delete_topic(&mut self, name: &str) -> Result<()> {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.to_owned()),
                topic_id: Uuid::ZERO,
            }],
            topic_names: vec![name.to_owned()],
            timeout_ms: CHANGE_TIMEOUT.as_millis() as i32,
        };
        let what = || format!("delete topic {name}");
        self.forget_topics();
        self.retry_on_existing(|cluster| {
            let connection = cluster.any()?;
            let version = connection.version_of::<DeleteTopicsRequest>()?;
            let mut request = request.clone();
            if version < FIRST_DELETE_BY_STATE {
                request.topics.clear();
            }
            let response = connection.call_at(&request, version)?;
            let result = response
                .responses
                .into_iter()
                .next()
                .ok_or_else(|| no_result(&what()))?;
            ClientError::check(result.error_code, what, result.error_message.as_deref())
        })
    }

    /// Asks for the cluster's id, controller and brokers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn describe_cluster(&mut self) -> Result<ClusterDescription> {
        let response = self.call_any(&DescribeClusterRequest::default())?;
        let what = || "describe the cluster".to_owned();
        ClientError::check(response.error_code, what, response.error_message.as_deref())?;
        let broker =
            |b: thalweg_protocol::messages::describe_cluster_response::DescribeClusterBroker| {
                Broker {
                    id: b.broker_id,
                    host: b.host,
                    port: b.port,
                    rack: b.rack,
                }
            };
        let mut brokers: Vec<Broker> = response.brokers.into_iter().map(broker).collect();
        brokers.sort_by_key(|b| b.id);
        Ok(ClusterDescription {
            cluster_id: response.cluster_id,
            controller: response.controller_id,
            brokers,
        })
    }

    /// Offsets of several partitions of one topic, by partition.
    ///
    /// # Errors
    /// The error of the first partition that has one.
    pub fn offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        spec: OffsetSpec,
    ) -> Result<BTreeMap<i32, FoundOffset>> {
        self.retry(|cluster| {
            let mut leaders = Vec::new();
            for &partition in partitions {
                leaders.push((partition, cluster.leader(topic, partition)?));
            }
            let found = cluster.ask_offsets(topic, &leaders, spec)?;
            found.into_iter().map(|(p, one)| Ok((p, one?))).collect()
        })
    }

    /// Offsets of all partitions of `topic` at the leaders that it names, without a second try: for a
    /// picture of the moment. A partition without leader has no entry.
    ///
    /// # Errors
    /// When a leader can not be reached. What a leader says about a partition is in its entry.
    pub fn offsets_of_each(
        &mut self,
        topic: &Topic,
        spec: OffsetSpec,
    ) -> Result<BTreeMap<i32, Result<FoundOffset>>> {
        let led = topic.partitions.iter().filter(|p| p.leader >= 0);
        let leaders: Vec<(i32, i32)> = led.map(|p| (p.index, p.leader)).collect();
        self.ask_offsets(&topic.name, &leaders, spec)
    }

    /// Asks for the offsets of (partition, leader).
    fn ask_offsets(
        &mut self,
        topic: &str,
        leaders: &[(i32, i32)],
        spec: OffsetSpec,
    ) -> Result<BTreeMap<i32, Result<FoundOffset>>> {
        let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (partition, leader) in leaders {
            by_leader.entry(*leader).or_default().push(*partition);
        }
        let mut found = BTreeMap::new();
        for (leader, partitions) in by_leader {
            let request = list_offsets_request(topic, &partitions, spec);
            let response = self.broker(leader)?.call(&request)?;
            for p in response.topics.iter().flat_map(|t| &t.partitions) {
                found.insert(p.partition_index, found_offset(topic, p));
            }
        }
        match leaders.iter().find(|(p, _)| !found.contains_key(p)) {
            Some((p, _)) => Err(no_result(&format!("offsets of {topic}-{p}"))),
            None => Ok(found),
        }
    }
}

/// DeleteTopics takes names in a list of their own before this version.
const FIRST_DELETE_BY_STATE: i16 = 6;

fn no_result(what: &str) -> ClientError {
    ClientError::Invalid(format!("{what}: the broker's answer does not mention it"))
}

fn list_offsets_request(topic: &str, partitions: &[i32], spec: OffsetSpec) -> ListOffsetsRequest {
    let partition = |&partition_index: &i32| ListOffsetsPartition {
        partition_index,
        timestamp: spec.on_the_wire(),
        ..Default::default()
    };
    ListOffsetsRequest {
        replica_id: NO_REPLICA,
        isolation_level: 0,
        topics: vec![ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: partitions.iter().map(partition).collect(),
        }],
        timeout_ms: CHANGE_TIMEOUT.as_millis() as i32,
    }
}

fn found_offset(topic: &str, p: &ListOffsetsPartitionResponse) -> Result<FoundOffset> {
    let what = || format!("offsets of {topic}-{}", p.partition_index);
    ClientError::check(p.error_code, what, None)?;
    Ok(FoundOffset {
        offset: (p.offset >= 0).then_some(p.offset),
        timestamp: p.timestamp,
        leader_epoch: p.leader_epoch,
    })
}
