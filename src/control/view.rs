//! What a shard knows of the cluster: an immutable picture, replaced as a whole.

use std::sync::Arc;

use thalweg_config::BrokerConfig;
use thalweg_metadata::{Image, Placement};
use thalweg_types::{BrokerId, ClusterId, ShardId, TopicPartition};

/// Host and port that clients are told to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address, as clients resolve it.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The metadata image with this process's own facts beside it.
#[derive(Debug)]
pub struct ClusterView {
    /// Topics, partitions, configs and brokers.
    pub image: Arc<Image>,
    /// Which shard owns which partition. Lives as long as the process; nothing of it is on disk.
    pub placement: Placement,
    /// Id of the cluster, from `meta.properties`.
    pub cluster_id: ClusterId,
    /// This broker's properties, those that were set while it ran included.
    pub config: Arc<BrokerConfig>,
    /// This broker.
    pub broker_id: BrokerId,
    /// Where clients reach this broker.
    pub endpoint: Endpoint,
}

impl ClusterView {
    /// The shard that owns `partition`, if the partition exists.
    #[must_use]
    pub fn owner(&self, partition: TopicPartition) -> Option<ShardId> {
        self.placement.shard_of(partition)
    }
}
