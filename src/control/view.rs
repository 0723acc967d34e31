//! What a shard knows of the cluster: an immutable picture, replaced as a whole.

use std::sync::Arc;

use thalweg_config::BrokerConfig;
use thalweg_metadata::{Image, Placement};
use thalweg_types::{BrokerId, ClusterId, ListenerIndex, ShardId, TopicPartition};

/// Host and port that the clients of one listener are told to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the listener.
    pub name: String,
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
    /// Where clients reach this broker, per listener; [`ListenerIndex`] is an index of it.
    pub endpoints: Vec<Endpoint>,
}

impl ClusterView {
    /// What a client that came by `listener` is told to connect to (KIP-103).
    ///
    /// # Panics
    /// For a listener that was never bound.
    #[must_use]
    pub fn endpoint(&self, listener: ListenerIndex) -> &Endpoint {
        &self.endpoints[usize::from(listener.0)]
    }

    /// The shard that owns `partition`, if the partition exists.
    #[must_use]
    pub fn owner(&self, partition: TopicPartition) -> Option<ShardId> {
        self.placement.shard_of(partition)
    }
}
