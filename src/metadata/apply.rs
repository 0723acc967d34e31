//! Replaying records into an image.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_protocol::messages::{
    BrokerRegistrationChangeRecord, ConfigRecord, FeatureLevelRecord, PartitionChangeRecord,
    PartitionRecord, RegisterBrokerRecord, TopicRecord,
};
use thalweg_types::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition};

use crate::delta::Delta;
use crate::image::{Broker, BrokerEndpoint, BrokerFeature, Image, Partition, Resource, Topic};
use crate::names;
use crate::record::Record;

/// "The leader did not change" in a PartitionChangeRecord.
const LEADER_SAME: i32 = -2;
/// "There is no leader" in partition records.
const LEADER_NONE: i32 = -1;
/// "Recovering" in `leader_recovery_state`.
const RECOVERING: i8 = 1;
const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
const RESOURCE_GROUP: i8 = 32;

/// A record contradicts what the log said before. The log is damaged, or not this broker's to read:
/// it must not serve from it (RP-59).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("metadata record {index} of the batch, {record}: {fault}")]
pub struct ApplyError {
    /// Position in the slice that was applied, from 0.
    pub index: usize,
    /// Kafka's name of the record type.
    pub record: &'static str,
    /// What is wrong.
    pub fault: String,
}

impl Image {
    /// The image after `records`, and what they changed. This image stays as it is.
    ///
    /// # Errors
    /// [`ApplyError`] for the first record that contradicts the image; none of them count then.
    pub fn apply(&self, records: &[Record]) -> Result<(Image, Delta), ApplyError> {
        let mut replay = Replay {
            image: self.clone(),
            delta: Delta::default(),
        };
        for (index, record) in records.iter().enumerate() {
            replay.take(record).map_err(|fault| ApplyError {
                index,
                record: record.name(),
                fault,
            })?;
        }
        Ok((replay.image, replay.delta))
    }
}

type Fault = String;

struct Replay {
    image: Image,
    delta: Delta,
}

impl Replay {
    /// One record as it stands in the log: inside a transaction it waits for the end (RP-60).
    fn take(&mut self, record: &Record) -> Result<(), Fault> {
        match record {
            Record::BeginTransaction(_) if self.image.pending.is_some() => {
                Err("a transaction has begun already".to_string())
            }
            Record::BeginTransaction(_) => {
                self.image.pending = Some(Arc::default());
                Ok(())
            }
            Record::EndTransaction(_) => {
                let pending = self
                    .image
                    .pending
                    .take()
                    .ok_or("no transaction has begun")?;
                pending.iter().try_for_each(|waiting| self.replay(waiting))
            }
            Record::AbortTransaction(_) => self
                .image
                .pending
                .take()
                .map(|_| ())
                .ok_or("no transaction has begun".to_string()),
            other => match &mut self.image.pending {
                Some(pending) => {
                    Arc::make_mut(pending).push(other.clone());
                    Ok(())
                }
                None => self.replay(other),
            },
        }
    }

    fn replay(&mut self, record: &Record) -> Result<(), Fault> {
        match record {
            Record::Topic(body) => self.topic(body),
            Record::Partition(body) => self.partition(body),
            Record::PartitionChange(body) => self.partition_change(body),
            Record::RemoveTopic(body) => self.remove_topic(body.topic_id),
            Record::Config(body) => {
                self.config(body);
                Ok(())
            }
            Record::RegisterBroker(body) => {
                self.register_broker(body);
                Ok(())
            }
            Record::UnregisterBroker(body) => self.unregister_broker(BrokerId(body.broker_id)),
            Record::BrokerRegistrationChange(body) => self.registration_change(body),
            Record::FenceBroker(body) => {
                self.change_broker(BrokerId(body.id), |broker| broker.fenced = true)
            }
            Record::UnfenceBroker(body) => {
                self.change_broker(BrokerId(body.id), |broker| broker.fenced = false)
            }
            Record::FeatureLevel(body) => {
                self.feature_level(body);
                Ok(())
            }
            Record::ProducerIds(body) => {
                self.image.next_producer_id = body.next_producer_id;
                Ok(())
            }
            Record::ClearElr(body) => {
                self.clear_elr(&body.topic_name);
                Ok(())
            }
            // Controllers are the quorum's business.
            Record::NoOp(_) | Record::RegisterController(_) => Ok(()),
            Record::BeginTransaction(_)
            | Record::EndTransaction(_)
            | Record::AbortTransaction(_) => Err("a transaction inside a transaction".to_string()),
        }
    }

    fn topic(&mut self, body: &TopicRecord) -> Result<(), Fault> {
        names::validate(&body.name).map_err(|bad| bad.to_string())?;
        if body.topic_id.is_zero() {
            return Err(format!("topic {} has no id", body.name));
        }
        if self.image.by_name.contains_key(body.name.as_str()) {
            return Err(format!("topic {} exists already", body.name));
        }
        if self.image.by_id.contains_key(&body.topic_id) {
            return Err(format!("topic id {} is taken", body.topic_id));
        }
        let name: Arc<str> = body.name.as_str().into();
        if let Some(form) = names::collision_form(&name) {
            let forms = Arc::make_mut(&mut self.image.by_form);
            forms.entry(form).or_default().insert(name.clone());
        }
        self.delta.topics_created.insert(body.topic_id);
        self.store(Topic {
            name,
            id: body.topic_id,
            partitions: BTreeMap::new(),
        });
        Ok(())
    }

    fn store(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        Arc::make_mut(&mut self.image.by_name).insert(topic.name.clone(), topic.clone());
        Arc::make_mut(&mut self.image.by_id).insert(topic.id, topic);
    }

    /// Sets one partition, without copying the topic while this batch alone holds it.
    fn store_partition(
        &mut self,
        topic_id: TopicId,
        index: PartitionIndex,
        partition: Partition,
    ) -> Result<(), Fault> {
        if !partition.is_sound() {
            return Err(format!(
                "partition {topic_id}-{index} is not sound: replicas {:?}, in sync {:?}, leader {:?}",
                partition.replicas, partition.in_sync, partition.leader
            ));
        }
        let Some(name) = self
            .image
            .by_id
            .get(&topic_id)
            .map(|topic| topic.name.clone())
        else {
            return Err(format!("there is no topic of id {topic_id}"));
        };
        // Out of both indexes, so that `unwrap_or_clone` finds no second holder in this image.
        Arc::make_mut(&mut self.image.by_id).remove(&topic_id);
        if let Some(topic) = Arc::make_mut(&mut self.image.by_name).remove(&name) {
            let mut topic = Arc::unwrap_or_clone(topic);
            topic.partitions.insert(index, partition);
            self.store(topic);
        }
        self.delta.partitions_changed.insert(TopicPartition {
            topic: topic_id,
            partition: index,
        });
        Ok(())
    }

    fn partition(&mut self, body: &PartitionRecord) -> Result<(), Fault> {
        if body.partition_id < 0 {
            return Err(format!("partition index {} is negative", body.partition_id));
        }
        let partition = Partition {
            replicas: brokers(&body.replicas),
            directories: body.directories.clone(),
            in_sync: brokers(&body.isr),
            removing: brokers(&body.removing_replicas),
            adding: brokers(&body.adding_replicas),
            eligible: brokers(body.eligible_leader_replicas.as_deref().unwrap_or_default()),
            last_known_eligible: brokers(body.last_known_elr.as_deref().unwrap_or_default()),
            leader: leader(body.leader),
            leader_epoch: LeaderEpoch(body.leader_epoch),
            partition_epoch: body.partition_epoch,
            recovering: body.leader_recovery_state == RECOVERING,
        };
        self.store_partition(body.topic_id, PartitionIndex(body.partition_id), partition)
    }

    /// A record that names a leader begins a leadership, also when it is the same one (KIP-631).
    fn partition_change(&mut self, body: &PartitionChangeRecord) -> Result<(), Fault> {
        let index = PartitionIndex(body.partition_id);
        let at = TopicPartition {
            topic: body.topic_id,
            partition: index,
        };
        let Some(before) = self.image.partition(at) else {
            return Err(format!("there is no partition {at}"));
        };
        let mut after = before.clone();
        replace(&mut after.in_sync, body.isr.as_deref());
        replace(&mut after.replicas, body.replicas.as_deref());
        replace(&mut after.removing, body.removing_replicas.as_deref());
        replace(&mut after.adding, body.adding_replicas.as_deref());
        replace(
            &mut after.eligible,
            body.eligible_leader_replicas.as_deref(),
        );
        replace(
            &mut after.last_known_eligible,
            body.last_known_elr.as_deref(),
        );
        if let Some(directories) = &body.directories {
            after.directories.clone_from(directories);
        } else if body.replicas.is_some() {
            after.directories = directories_kept(before, &after.replicas);
        }
        if body.leader_recovery_state >= 0 {
            after.recovering = body.leader_recovery_state == RECOVERING;
        }
        if body.leader != LEADER_SAME {
            after.leader = leader(body.leader);
            after.leader_epoch = LeaderEpoch(next(after.leader_epoch.0)?);
        }
        after.partition_epoch = next(after.partition_epoch)?;
        self.store_partition(body.topic_id, index, after)
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), Fault> {
        let Some(topic) = Arc::make_mut(&mut self.image.by_id).remove(&id) else {
            return Err(format!("there is no topic of id {id}"));
        };
        Arc::make_mut(&mut self.image.by_name).remove(&topic.name);
        if let Some(form) = names::collision_form(&topic.name) {
            let forms = Arc::make_mut(&mut self.image.by_form);
            if let Some(same_form) = forms.get_mut(&form) {
                same_form.remove(&topic.name);
                if same_form.is_empty() {
                    forms.remove(&form);
                }
            }
        }
        let resource = Resource::Topic(topic.name.to_string());
        if self.image.configs.contains_key(&resource) {
            Arc::make_mut(&mut self.image.configs).remove(&resource);
        }
        self.delta.configs_changed.remove(&resource);
        self.delta.partitions_changed.retain(|at| at.topic != id);
        if !self.delta.topics_created.remove(&id) {
            self.delta.topics_removed.insert(id, topic);
        }
        Ok(())
    }

    fn config(&mut self, body: &ConfigRecord) {
        let resource = match body.resource_type {
            RESOURCE_TOPIC => Resource::Topic(body.resource_name.clone()),
            RESOURCE_BROKER => Resource::Broker(body.resource_name.clone()),
            RESOURCE_GROUP => Resource::Group(body.resource_name.clone()),
            other => Resource::Other(other, body.resource_name.clone()),
        };
        let configs = Arc::make_mut(&mut self.image.configs);
        let values = configs.entry(resource.clone()).or_default();
        match &body.value {
            Some(value) => values.insert(body.name.clone(), value.clone()),
            None => values.remove(&body.name),
        };
        if values.is_empty() {
            configs.remove(&resource);
        }
        self.delta.configs_changed.insert(resource);
    }

    fn register_broker(&mut self, body: &RegisterBrokerRecord) {
        let id = BrokerId(body.broker_id);
        let broker = Broker {
            id,
            epoch: body.broker_epoch,
            incarnation: body.incarnation_id,
            endpoints: body
                .end_points
                .iter()
                .map(|e| BrokerEndpoint {
                    name: e.name.clone(),
                    host: e.host.clone(),
                    port: e.port,
                    security_protocol: e.security_protocol,
                })
                .collect(),
            features: body
                .features
                .iter()
                .map(|f| BrokerFeature {
                    name: f.name.clone(),
                    min: f.min_supported_version,
                    max: f.max_supported_version,
                })
                .collect(),
            rack: body.rack.clone(),
            fenced: body.fenced,
            in_controlled_shutdown: body.in_controlled_shutdown,
            log_dirs: body.log_dirs.clone(),
        };
        Arc::make_mut(&mut self.image.brokers).insert(id, broker);
        self.delta.brokers_changed.insert(id);
    }

    fn unregister_broker(&mut self, id: BrokerId) -> Result<(), Fault> {
        let gone = Arc::make_mut(&mut self.image.brokers).remove(&id);
        self.delta.brokers_changed.insert(id);
        gone.map(|_| ())
            .ok_or_else(|| format!("broker {id} is not registered"))
    }

    fn registration_change(&mut self, body: &BrokerRegistrationChangeRecord) -> Result<(), Fault> {
        self.change_broker(BrokerId(body.broker_id), |broker| {
            match body.fenced {
                1.. => broker.fenced = true,
                ..=-1 => broker.fenced = false,
                0 => {}
            }
            if body.in_controlled_shutdown > 0 {
                broker.in_controlled_shutdown = true;
            }
            if !body.log_dirs.is_empty() {
                broker.log_dirs.clone_from(&body.log_dirs);
            }
        })
    }

    fn change_broker(
        &mut self,
        id: BrokerId,
        change: impl FnOnce(&mut Broker),
    ) -> Result<(), Fault> {
        let Some(broker) = Arc::make_mut(&mut self.image.brokers).get_mut(&id) else {
            return Err(format!("broker {id} is not registered"));
        };
        change(broker);
        self.delta.brokers_changed.insert(id);
        Ok(())
    }

    fn feature_level(&mut self, body: &FeatureLevelRecord) {
        let features = Arc::make_mut(&mut self.image.features);
        if body.feature_level == 0 {
            features.remove(&body.name);
        } else {
            features.insert(body.name.clone(), body.feature_level);
        }
        self.delta.features_changed.insert(body.name.clone());
    }

    /// Of one topic, or of all when the name is empty. An unknown topic has none.
    fn clear_elr(&mut self, name: &str) {
        let has_some = |p: &Partition| !p.eligible.is_empty() || !p.last_known_eligible.is_empty();
        let affected: Vec<Arc<Topic>> = self
            .image
            .topics()
            .filter(|topic| name.is_empty() || *topic.name == *name)
            .filter(|topic| topic.partitions.values().any(has_some))
            .cloned()
            .collect();
        for topic in affected {
            let mut topic = Arc::unwrap_or_clone(topic);
            for (index, partition) in topic.partitions.iter_mut().filter(|(_, p)| has_some(p)) {
                partition.eligible.clear();
                partition.last_known_eligible.clear();
                let at = TopicPartition {
                    topic: topic.id,
                    partition: *index,
                };
                self.delta.partitions_changed.insert(at);
            }
            self.store(topic);
        }
    }
}

fn brokers(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

fn leader(id: i32) -> Option<BrokerId> {
    (id != LEADER_NONE).then_some(BrokerId(id))
}

fn replace(target: &mut Vec<BrokerId>, ids: Option<&[i32]>) {
    if let Some(ids) = ids {
        *target = brokers(ids);
    }
}

fn next(epoch: i32) -> Result<i32, Fault> {
    epoch
        .checked_add(1)
        .ok_or_else(|| "an epoch is used up".to_string())
}

/// Directories of replicas that stay; those of new ones are not known yet (the zero id).
fn directories_kept(before: &Partition, replicas: &[BrokerId]) -> Vec<thalweg_types::Uuid> {
    if before.directories.is_empty() {
        return Vec::new();
    }
    let of = |id: &BrokerId| {
        let at = before.replicas.iter().position(|known| known == id);
        at.and_then(|at| before.directories.get(at))
            .copied()
            .unwrap_or_default()
    };
    replicas.iter().map(of).collect()
}
