//! Formatting, registering brokers, raising epochs.

use thalweg_protocol::messages::register_broker_record as register;
use thalweg_protocol::messages::{FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord};
use thalweg_types::{BrokerId, TopicPartition, Uuid};

use crate::image::{BrokerEndpoint, BrokerFeature, Image, Partition};
use crate::record::Record;

/// Name of the feature that says which record versions the metadata log holds.
pub const METADATA_VERSION_FEATURE: &str = "metadata.version";

/// Level of `metadata.version` that this broker writes: Kafka's 4.1-IV1.
pub const METADATA_VERSION: i16 = 27;

/// A broker process at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Its id.
    pub id: BrokerId,
    /// Drawn by this process.
    pub incarnation: Uuid,
    /// Addresses that clients connect to.
    pub endpoints: Vec<BrokerEndpoint>,
    /// Features that it supports beside `metadata.version`.
    pub features: Vec<BrokerFeature>,
    /// Its rack.
    pub rack: Option<String>,
    /// Ids of its log directories.
    pub log_dirs: Vec<Uuid>,
}

/// The first records of a new metadata log. The metadata version is the very first: readers must
/// know it before anything else.
#[must_use]
pub fn initial_records() -> Vec<Record> {
    let level = FeatureLevelRecord {
        name: METADATA_VERSION_FEATURE.to_string(),
        feature_level: METADATA_VERSION,
    };
    vec![level.into()]
}

impl Image {
    /// The record that registers a broker process: its epoch is above the last one of the same id
    /// (RP-43), and it may serve at once, as the only broker does.
    #[must_use]
    pub fn register_broker(&self, registration: &Registration) -> Record {
        let epoch = self
            .broker(registration.id)
            .map_or(0, |broker| broker.epoch);
        let endpoints = registration
            .endpoints
            .iter()
            .map(|e| register::BrokerEndpoint {
                name: e.name.clone(),
                host: e.host.clone(),
                port: e.port,
                security_protocol: e.security_protocol,
            });
        let own = register::BrokerFeature {
            name: METADATA_VERSION_FEATURE.to_string(),
            min_supported_version: METADATA_VERSION,
            max_supported_version: METADATA_VERSION,
        };
        let others = registration
            .features
            .iter()
            .map(|f| register::BrokerFeature {
                name: f.name.clone(),
                min_supported_version: f.min,
                max_supported_version: f.max,
            });
        RegisterBrokerRecord {
            broker_id: registration.id.0,
            is_migrating_zk_broker: false,
            incarnation_id: registration.incarnation,
            broker_epoch: epoch.saturating_add(1),
            end_points: endpoints.collect(),
            features: std::iter::once(own).chain(others).collect(),
            rack: registration.rack.clone(),
            fenced: false,
            in_controlled_shutdown: false,
            log_dirs: registration.log_dirs.clone(),
            cordoned_log_dirs: None,
        }
        .into()
    }

    /// After an unclean start: the records that begin a new leader epoch for every partition that
    /// `local` leads, so that clients find out what was cut (KIP-320). `works` is false where its log
    /// directory does not. One batch for all.
    #[must_use]
    pub fn raise_leader_epochs(
        &self,
        local: BrokerId,
        works: impl Fn(TopicPartition) -> bool,
    ) -> Vec<Record> {
        self.changed_partitions(|at, partition| {
            // Naming the leader, also the same one, raises the epoch when it is replayed.
            (partition.leader == Some(local) && works(at)).then(|| PartitionChangeRecord {
                leader: local.0,
                ..PartitionChangeRecord::default()
            })
        })
    }

    /// The records that make `local` leader of every partition that has none and whose data it has in
    /// full, in a log directory that `works`: Kafka's brokers give their leaderships away when they stop.
    /// One batch for all.
    #[must_use]
    pub fn elect_for_leaderless(
        &self,
        local: BrokerId,
        works: impl Fn(TopicPartition) -> bool,
    ) -> Vec<Record> {
        self.changed_partitions(|at, partition| {
            let in_sync = partition.in_sync.contains(&local);
            if partition.leader.is_some()
                || !works(at)
                || !(in_sync || partition.eligible.contains(&local))
            {
                return None;
            }
            // One that is elected as eligible is all that is in sync then (KIP-966).
            let others = partition.eligible.iter().filter(|id| **id != local);
            let others = others.map(|id| id.0).collect();
            Some(PartitionChangeRecord {
                leader: local.0,
                isr: (!in_sync).then(|| vec![local.0]),
                eligible_leader_replicas: (!partition.eligible.is_empty()).then_some(others),
                last_known_elr: (!partition.last_known_eligible.is_empty()).then(Vec::new),
                ..PartitionChangeRecord::default()
            })
        })
    }

    /// A record for each partition that `change` has one for.
    pub(crate) fn changed_partitions(
        &self,
        change: impl Fn(TopicPartition, &Partition) -> Option<PartitionChangeRecord>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        for topic in self.topics() {
            for (index, partition) in &topic.partitions {
                let at = TopicPartition {
                    topic: topic.id,
                    partition: *index,
                };
                records.extend(change(at, partition).map(|change| {
                    Record::from(PartitionChangeRecord {
                        partition_id: index.0,
                        topic_id: topic.id,
                        ..change
                    })
                }));
            }
        }
        records
    }
}
