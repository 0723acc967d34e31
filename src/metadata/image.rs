//! The state of the cluster at one point of the metadata log.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use thalweg_config::TopicConfig;
use thalweg_protocol::ErrorCode;
use thalweg_types::{BrokerId, IdMap, LeaderEpoch, PartitionIndex, TopicId, TopicPartition, Uuid};

use crate::names;
use crate::record::Record;

/// What a property belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// A topic, by name.
    Topic(String),
    /// A broker, by id in text; empty = all brokers.
    Broker(String),
    /// A group, by name (KIP-848).
    Group(String),
    /// Another of Kafka's resource types, by its number: kept, not used.
    Other(i8, String),
}

/// One partition as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Brokers that hold it, preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Log directory of each replica, in the same order; may be empty (not told).
    pub directories: Vec<Uuid>,
    /// Brokers in sync.
    pub in_sync: Vec<BrokerId>,
    /// Replicas being removed by a reassignment.
    pub removing: Vec<BrokerId>,
    /// Replicas being added by a reassignment.
    pub adding: Vec<BrokerId>,
    /// Replicas that may be elected although not in sync (KIP-966).
    pub eligible: Vec<BrokerId>,
    /// Replicas that were last known eligible (KIP-966).
    pub last_known_eligible: Vec<BrokerId>,
    /// The leader, if there is one.
    pub leader: Option<BrokerId>,
    /// Rises with each leadership.
    pub leader_epoch: LeaderEpoch,
    /// Rises with each change.
    pub partition_epoch: i32,
    /// True after an unclean election, until the leader says it has recovered.
    pub recovering: bool,
}

/// One topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: BTreeMap<PartitionIndex, Partition>,
}

impl Topic {
    /// Replicas of the first partition.
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        self.partitions
            .values()
            .next()
            .map_or(0, |partition| partition.replicas.len())
    }

    /// Whether records of this topic may be deleted on request, with `config` its settings (RP-97).
    ///
    /// # Errors
    /// Kafka's code: what the broker keeps for itself stays, and where the last value of each key is
    /// to be kept, it is not for a client to say what goes.
    pub fn may_delete_records(&self, config: &TopicConfig) -> Result<(), ErrorCode> {
        let policy = config.cleanup_policy();
        if self.is_internal() {
            Err(ErrorCode::InvalidTopicException)
        } else if policy.compact && !policy.delete {
            Err(ErrorCode::PolicyViolation)
        } else {
            Ok(())
        }
    }

    /// True for a topic that the broker keeps for itself.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        names::is_internal(&self.name)
    }
}

/// An address of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerEndpoint {
    /// Listener name, for example `PLAINTEXT`.
    pub name: String,
    /// Host name or address that clients connect to.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Kafka's number of the security protocol; 0 = PLAINTEXT.
    pub security_protocol: i16,
}

/// Levels of a feature that a broker supports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerFeature {
    /// Its name.
    pub name: String,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// A registered broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    /// Its id.
    pub id: BrokerId,
    /// Rises with each registration.
    pub epoch: i64,
    /// Drawn at each start of the process.
    pub incarnation: Uuid,
    /// Its addresses.
    pub endpoints: Vec<BrokerEndpoint>,
    /// Features it supports.
    pub features: Vec<BrokerFeature>,
    /// Its rack.
    pub rack: Option<String>,
    /// True while it may not lead.
    pub fenced: bool,
    /// True while it hands its leaderships over before it stops.
    pub in_controlled_shutdown: bool,
    /// Ids of its usable log directories.
    pub log_dirs: Vec<Uuid>,
}

/// The whole cluster state. Immutable; cloning copies pointers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Image {
    pub(crate) by_name: Arc<BTreeMap<Arc<str>, Arc<Topic>>>,
    pub(crate) by_id: Arc<IdMap<TopicId, Arc<Topic>>>,
    /// Names that hold `.` or `_`, by their [`names::collision_form`].
    pub(crate) by_form: Arc<HashMap<String, BTreeSet<Arc<str>>>>,
    pub(crate) configs: Arc<BTreeMap<Resource, BTreeMap<String, String>>>,
    pub(crate) brokers: Arc<BTreeMap<BrokerId, Broker>>,
    pub(crate) features: Arc<BTreeMap<String, i16>>,
    pub(crate) next_producer_id: i64,
    /// Records of a transaction that has begun and not ended (KIP-868).
    pub(crate) pending: Option<Arc<Vec<Record>>>,
}

impl Image {
    /// The topic of that name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of that id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, sorted by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// True when no topic differs from those of `other`, which is known without looking at each.
    #[must_use]
    pub fn has_topics_of(&self, other: &Image) -> bool {
        Arc::ptr_eq(&self.by_name, &other.by_name)
    }

    /// One partition.
    #[must_use]
    pub fn partition(&self, at: TopicPartition) -> Option<&Partition> {
        self.by_id.get(&at.topic)?.partitions.get(&at.partition)
    }

    /// An existing topic whose name differs from `name` and can not be told from it in metrics.
    #[must_use]
    pub fn colliding(&self, name: &str) -> Option<&Arc<str>> {
        let form = names::collision_form(name)?;
        self.by_form
            .get(&form)?
            .iter()
            .find(|other| other.as_ref() != name)
    }

    /// Overrides of a topic's properties, sorted by key.
    pub fn topic_overrides(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        self.overrides(&Resource::Topic(name.to_string()))
    }

    /// What is set for a broker, or with `None` for all of them, sorted by key.
    pub fn broker_overrides(&self, id: Option<BrokerId>) -> impl Iterator<Item = (&str, &str)> {
        let name = id.map_or_else(String::new, |id| id.to_string());
        self.overrides(&Resource::Broker(name))
    }

    /// What is set for a group, sorted by key.
    pub fn group_overrides(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        // Asked for with every heartbeat, while hardly any group has settings.
        let is_any = self.groups_with_settings().next().is_some();
        let group = is_any.then(|| Resource::Group(name.to_owned()));
        group.into_iter().flat_map(|group| self.overrides(&group))
    }

    /// Names of the groups that have settings of their own, sorted.
    pub fn groups_with_settings(&self) -> impl Iterator<Item = &str> {
        let groups = self.configs.range(Resource::Group(String::new())..);
        groups.map_while(|(resource, _)| match resource {
            Resource::Group(name) => Some(name.as_str()),
            Resource::Topic(_) | Resource::Broker(_) | Resource::Other(..) => None,
        })
    }

    fn overrides(&self, of: &Resource) -> impl Iterator<Item = (&str, &str)> + use<'_> {
        let stored = self.configs.get(of).into_iter().flatten();
        stored.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// All registered brokers, sorted by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &Broker> {
        self.brokers.values()
    }

    /// The broker of that id.
    #[must_use]
    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// Level of a feature in the whole cluster; 0 when it is off.
    #[must_use]
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// All features that are on, with their levels.
    pub fn features(&self) -> impl ExactSizeIterator<Item = (&str, i16)> {
        self.features
            .iter()
            .map(|(name, level)| (name.as_str(), *level))
    }

    /// First producer id that was never given out.
    #[must_use]
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Asserts the invariants of the module.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        assert_eq!(self.by_name.len(), self.by_id.len(), "one id per name");
        let mut forms = 0;
        for (name, topic) in self.by_name.iter() {
            assert_eq!(*name, topic.name, "the index agrees with the topic");
            let same = self
                .by_id
                .get(&topic.id)
                .is_some_and(|other| Arc::ptr_eq(other, topic));
            assert!(same, "both indexes hold the same topic {name}");
            if let Some(form) = names::collision_form(name) {
                assert!(
                    self.by_form[&form].contains(name),
                    "{name} is in the collision index"
                );
                forms += 1;
            }
            for (index, partition) in &topic.partitions {
                assert!(index.0 >= 0, "partition indexes are not negative");
                partition.check();
            }
        }
        assert_eq!(
            self.by_form.values().map(BTreeSet::len).sum::<usize>(),
            forms
        );
        assert!(
            self.by_form.values().all(|names| !names.is_empty()),
            "no empty entry"
        );
        for (id, broker) in self.brokers.iter() {
            assert_eq!(*id, broker.id, "the index agrees with the broker");
        }
    }
}

impl Partition {
    fn check(&self) {
        assert!(
            self.is_sound(),
            "replicas, in-sync set and leader agree: {self:?}"
        );
    }

    /// Replicas differ, leader and in-sync set are among them, epochs are not negative.
    pub(crate) fn is_sound(&self) -> bool {
        let distinct: BTreeSet<_> = self.replicas.iter().collect();
        let among = |ids: &[BrokerId]| ids.iter().all(|id| distinct.contains(id));
        !self.replicas.is_empty()
            && distinct.len() == self.replicas.len()
            && among(&self.in_sync)
            && self.leader.is_none_or(|leader| distinct.contains(&leader))
            && (self.directories.is_empty() || self.directories.len() == self.replicas.len())
            && self.leader_epoch.0 >= 0
            && self.partition_epoch >= 0
    }
}
