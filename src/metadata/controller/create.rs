//! Creating topics (KIP-4, KIP-464, KIP-525).

use std::collections::{BTreeMap, HashMap};

use thalweg_config::TopicConfig;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic,
};
use thalweg_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use thalweg_protocol::messages::{
    ConfigRecord, CreateTopicsRequest, CreateTopicsResponse, PartitionRecord, TopicRecord,
};
use thalweg_types::limits::CREATE_PARTITIONS_MAX;
use thalweg_types::{BrokerId, TopicId, Uuid};

use super::{Controller, Decision, TopicRefusal};
use crate::names;
use crate::record::Record;

/// Kafka's number for "a topic" in config records.
const RESOURCE_TOPIC: i8 = 2;
/// "Use the broker's default" in a request.
const DEFAULT: i32 = -1;

/// What is asked for, wherever it comes from.
type Brokers = Vec<BrokerId>;

/// Names that this request has taken so far.
#[derive(Default)]
struct Taken {
    by_form: HashMap<String, String>,
}

/// A topic that may be created.
struct Planned {
    id: TopicId,
    partitions: Vec<Brokers>,
    config: TopicConfig,
}

impl Controller<'_> {
    /// Decides a CreateTopics request: each topic by itself, so that one refusal does not stop the
    /// others (BI-37). With `validate_only` there are no records.
    pub fn create_topics(
        &mut self,
        request: &CreateTopicsRequest,
    ) -> Decision<CreateTopicsResponse> {
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut taken = Taken::default();
        let too_many = self.too_many_partitions(&request.topics);
        let mut room = self.room();
        for (topic, times) in once_each(&request.topics) {
            let planned = if times > 1 {
                Err(TopicRefusal::new(
                    ErrorCode::InvalidRequest,
                    "Duplicate topic name.",
                ))
            } else if let Some(refusal) = &too_many {
                Err(refusal.clone())
            } else {
                self.plan(topic, &mut taken)
                    .and_then(|planned| self.within(&mut room, planned))
            };
            match planned {
                Ok(planned) => {
                    results.push(created(topic, &planned, request.validate_only));
                    if !request.validate_only {
                        self.write(topic, &planned, &mut records);
                    }
                }
                Err(refusal) => results.push(refused(topic, &refusal)),
            }
        }
        let answer = CreateTopicsResponse {
            throttle_time_ms: 0,
            topics: results,
        };
        Decision { records, answer }
    }

    /// Decides to create topics that a client named and that do not exist, with the broker's
    /// defaults. The answer holds a refusal for each that is not to be.
    pub fn auto_create(
        &mut self,
        wanted: &[&str],
    ) -> Decision<Vec<(String, Result<TopicId, TopicRefusal>)>> {
        let (internal, plain): (Vec<&str>, Vec<&str>) = wanted
            .iter()
            .copied()
            .partition(|name| names::is_internal(name));
        let topics = plain.iter().map(|name| CreatableTopic {
            name: (*name).to_string(),
            num_partitions: DEFAULT,
            replication_factor: -1,
            ..CreatableTopic::default()
        });
        let request = CreateTopicsRequest {
            topics: topics.collect(),
            ..CreateTopicsRequest::default()
        };
        let decision = self.create_topics(&request);
        let outcome = |result: CreatableTopicResult| {
            let code =
                ErrorCode::from_code(result.error_code).unwrap_or(ErrorCode::UnknownServerError);
            let outcome = match code {
                ErrorCode::None => Ok(result.topic_id),
                code => Err(TopicRefusal::new(
                    code,
                    result.error_message.unwrap_or_default(),
                )),
            };
            (result.name, outcome)
        };
        // The coordinators that need an internal topic create it with the settings it must have.
        let kept = internal.into_iter().map(|name| {
            let text = "This topic is created by the broker when it is needed.";
            let refusal = TopicRefusal::new(ErrorCode::UnknownTopicOrPartition, text);
            (name.to_string(), Err(refusal))
        });
        let answer = decision
            .answer
            .topics
            .into_iter()
            .map(outcome)
            .chain(kept)
            .collect();
        Decision {
            records: decision.records,
            answer,
        }
    }

    fn within(&self, room: &mut usize, planned: Planned) -> Result<Planned, TopicRefusal> {
        let wanted = planned.partitions.len();
        match room.checked_sub(wanted) {
            Some(left) => {
                *room = left;
                Ok(planned)
            }
            None => Err(self.no_room(wanted, *room)),
        }
    }

    fn too_many_partitions(&self, topics: &[CreatableTopic]) -> Option<TopicRefusal> {
        let default = i64::from(self.config.num_partitions());
        let of = |topic: &CreatableTopic| match topic.num_partitions {
            _assigned if !topic.assignments.is_empty() => topic.assignments.len() as i64,
            DEFAULT => default,
            number => i64::from(number).max(0),
        };
        let sum: i64 = topics.iter().map(of).sum();
        (sum > CREATE_PARTITIONS_MAX as i64).then(|| {
            let text = format!(
                "Excessively large number of partitions per request: {sum}, at most \
                 {CREATE_PARTITIONS_MAX} are allowed."
            );
            TopicRefusal::new(ErrorCode::PolicyViolation, text)
        })
    }

    fn plan(&mut self, topic: &CreatableTopic, taken: &mut Taken) -> Result<Planned, TopicRefusal> {
        self.check_name(&topic.name, taken)?;
        let overrides = topic
            .configs
            .iter()
            .map(|c| (c.name.as_str(), c.value.as_deref()));
        let config = TopicConfig::validate(self.config, overrides)
            .map_err(|error| TopicRefusal::new(ErrorCode::InvalidConfig, error.to_string()))?;
        let partitions = if topic.assignments.is_empty() {
            self.spread(topic)?
        } else {
            self.assigned_by_hand(topic)?
        };
        if let Some(form) = names::collision_form(&topic.name) {
            taken.by_form.insert(form, topic.name.clone());
        }
        Ok(Planned {
            id: self.new_topic_id(),
            partitions,
            config,
        })
    }

    fn check_name(&self, name: &str, taken: &Taken) -> Result<(), TopicRefusal> {
        names::validate(name)
            .map_err(|bad| TopicRefusal::new(ErrorCode::InvalidTopicException, bad.to_string()))?;
        if name == names::METADATA_TOPIC {
            let text = format!("Creation of internal topic {name} is prohibited.");
            return Err(TopicRefusal::new(ErrorCode::InvalidRequest, text));
        }
        if self.image.topic(name).is_some() {
            let text = format!("Topic '{name}' already exists.");
            return Err(TopicRefusal::new(ErrorCode::TopicAlreadyExists, text));
        }
        let in_request =
            names::collision_form(name).and_then(|form| taken.by_form.get(&form).cloned());
        let other = self
            .image
            .colliding(name)
            .map(|other| other.to_string())
            .or(in_request);
        match other {
            Some(other) => {
                let text = format!("Topic '{name}' collides with existing topic: {other}");
                Err(TopicRefusal::new(ErrorCode::InvalidTopicException, text))
            }
            None => Ok(()),
        }
    }

    fn spread(&mut self, topic: &CreatableTopic) -> Result<Vec<Brokers>, TopicRefusal> {
        let replicas = match i32::from(topic.replication_factor) {
            DEFAULT => i32::from(self.config.default_replication_factor()),
            number if number > 0 => number,
            _other => {
                let text =
                    "Replication factor must be larger than 0, or -1 to use the default value.";
                return Err(TopicRefusal::new(ErrorCode::InvalidReplicationFactor, text));
            }
        };
        let count = match topic.num_partitions {
            DEFAULT => self.config.num_partitions(),
            number if number > 0 => number,
            _other => {
                let text = "Number of partitions was set to an invalid non-positive value.";
                return Err(TopicRefusal::new(ErrorCode::InvalidPartitions, text));
            }
        };
        let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
        self.place(usize::try_from(count).unwrap_or(0), replicas)
    }

    /// Replicas for `count` partitions over the live brokers, one after the other from a random first
    /// one.
    pub(super) fn place(
        &mut self,
        count: usize,
        replicas: usize,
    ) -> Result<Vec<Brokers>, TopicRefusal> {
        let live = self.live_brokers();
        if replicas > live.len() {
            let text = format!(
                "Unable to replicate the partition {replicas} time(s): The target replication \
                 factor of {replicas} cannot be reached because only {} broker(s) are registered.",
                live.len()
            );
            return Err(TopicRefusal::new(ErrorCode::InvalidReplicationFactor, text));
        }
        let first = usize::from((self.draw)()[0]);
        let one = |partition: usize| -> Brokers {
            (0..replicas)
                .map(|r| live[(first + partition + r) % live.len()])
                .collect()
        };
        Ok((0..count).map(one).collect())
    }

    fn assigned_by_hand(&self, topic: &CreatableTopic) -> Result<Vec<Brokers>, TopicRefusal> {
        let invalid = |text: &str| Err(TopicRefusal::new(ErrorCode::InvalidRequest, text));
        if i32::from(topic.replication_factor) != DEFAULT {
            return invalid(
                "A manual partition assignment was specified, but replication factor was not set \
                 to -1.",
            );
        }
        if topic.num_partitions != DEFAULT {
            return invalid(
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            );
        }
        let mut by_index: BTreeMap<i32, Brokers> = BTreeMap::new();
        let replicas = topic.assignments.first().map_or(0, |a| a.broker_ids.len());
        for assignment in &topic.assignments {
            let brokers = self.check_assignment(assignment, replicas)?;
            if by_index
                .insert(assignment.partition_index, brokers)
                .is_some()
            {
                return Err(bad_assignment(format!(
                    "Found multiple manual partition assignments for partition {}",
                    assignment.partition_index
                )));
            }
        }
        let consecutive = (0..)
            .zip(by_index.keys())
            .all(|(expected, index)| expected == *index);
        if !consecutive {
            let text = "partitions should be a consecutive 0-based integer sequence";
            return Err(bad_assignment(text));
        }
        Ok(by_index.into_values().collect())
    }

    pub(super) fn check_assignment(
        &self,
        assignment: &CreatableReplicaAssignment,
        replicas: usize,
    ) -> Result<Brokers, TopicRefusal> {
        let prefix = "The manual partition assignment includes";
        if assignment.broker_ids.is_empty() {
            return Err(bad_assignment(format!("{prefix} an empty replica list.")));
        }
        if assignment.broker_ids.len() != replicas {
            return Err(bad_assignment(format!(
                "{prefix} a partition with {} replica(s), but this is not consistent with previous \
                 partitions, which have {replicas} replica(s).",
                assignment.broker_ids.len()
            )));
        }
        let mut brokers = Brokers::new();
        for id in assignment.broker_ids.iter().copied().map(BrokerId) {
            // Unknown first: it bounds the list, and so the search in it, by the brokers there are.
            if self.image.broker(id).is_none() {
                return Err(bad_assignment(format!(
                    "{prefix} broker {id}, but no such broker is registered."
                )));
            }
            if brokers.contains(&id) {
                return Err(bad_assignment(format!(
                    "{prefix} the broker {id} more than once."
                )));
            }
            brokers.push(id);
        }
        let live = self.live_brokers();
        if !brokers.iter().any(|id| live.contains(id)) {
            return Err(bad_assignment(format!(
                "All brokers specified in the manual partition assignment for partition {} are \
                 fenced or in controlled shutdown.",
                assignment.partition_index
            )));
        }
        Ok(brokers)
    }

    fn write(&mut self, topic: &CreatableTopic, planned: &Planned, records: &mut Vec<Record>) {
        let name = topic.name.clone();
        records.push(
            TopicRecord {
                name,
                topic_id: planned.id,
            }
            .into(),
        );
        // A key that is given twice counts as given last.
        let configs: BTreeMap<&str, &Option<String>> = topic
            .configs
            .iter()
            .map(|c| (c.name.as_str(), &c.value))
            .collect();
        for (key, value) in configs {
            let record = ConfigRecord {
                resource_type: RESOURCE_TOPIC,
                resource_name: topic.name.clone(),
                name: key.to_string(),
                value: value.clone(),
            };
            records.push(record.into());
        }
        for (index, replicas) in (0..).zip(&planned.partitions) {
            records.push(self.partition_record(planned.id, index, replicas));
        }
    }

    /// A new partition on these brokers, those that live in sync, led by the first of them.
    pub(super) fn partition_record(
        &mut self,
        topic_id: TopicId,
        partition_id: i32,
        replicas: &[BrokerId],
    ) -> Record {
        let live = self.live_brokers();
        let in_sync: Vec<i32> = replicas
            .iter()
            .filter(|id| live.contains(id))
            .map(|id| id.0)
            .collect();
        PartitionRecord {
            partition_id,
            topic_id,
            replicas: replicas.iter().map(|id| id.0).collect(),
            leader: in_sync.first().copied().unwrap_or(-1),
            isr: in_sync,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: replicas.iter().map(|id| self.directory_of(*id)).collect(),
            ..PartitionRecord::default()
        }
        .into()
    }

    /// One of ours for a replica here. Elsewhere the broker's log directory when it has just one; else
    /// the zero id, "not assigned yet".
    fn directory_of(&mut self, id: BrokerId) -> Uuid {
        if let Some((local, directories)) = &mut self.local
            && *local == id
        {
            return directories.assign().unwrap_or_default();
        }
        match self
            .image
            .broker(id)
            .map(|broker| broker.log_dirs.as_slice())
        {
            Some([only]) => *only,
            _several_or_none => Uuid::ZERO,
        }
    }
}

/// Each name once, in the order of the request, with how often it occurs.
fn once_each(topics: &[CreatableTopic]) -> Vec<(&CreatableTopic, usize)> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut each: Vec<(&CreatableTopic, usize)> = Vec::new();
    for topic in topics {
        let place = *places.entry(&topic.name).or_insert_with(|| {
            each.push((topic, 0));
            each.len() - 1
        });
        each[place].1 += 1;
    }
    each
}

fn bad_assignment(text: impl Into<String>) -> TopicRefusal {
    TopicRefusal::new(ErrorCode::InvalidReplicaAssignment, text)
}

fn refused(topic: &CreatableTopic, refusal: &TopicRefusal) -> CreatableTopicResult {
    CreatableTopicResult {
        name: topic.name.clone(),
        error_code: refusal.code.code(),
        error_message: Some(refusal.message.clone()),
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}

fn created(topic: &CreatableTopic, planned: &Planned, validate_only: bool) -> CreatableTopicResult {
    let configs = planned.config.entries().map(|entry| CreatableTopicConfigs {
        name: entry.property.name.to_string(),
        value: Some(entry.value),
        read_only: false,
        config_source: entry.source as i8,
        is_sensitive: false,
    });
    let replicas = planned.partitions.first().map_or(0, Vec::len);
    CreatableTopicResult {
        name: topic.name.clone(),
        topic_id: if validate_only {
            Uuid::ZERO
        } else {
            planned.id
        },
        error_code: ErrorCode::None.code(),
        error_message: None,
        topic_config_error_code: ErrorCode::None.code(),
        num_partitions: i32::try_from(planned.partitions.len()).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(replicas).unwrap_or(i16::MAX),
        configs: Some(configs.collect()),
    }
}
