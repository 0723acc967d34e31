//! Adding partitions to topics (KIP-195).

use std::collections::HashMap;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use thalweg_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_protocol::messages::create_topics_request::CreatableReplicaAssignment;
use thalweg_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use thalweg_types::limits::CREATE_PARTITIONS_MAX;
use thalweg_types::{BrokerId, shown};

use super::{Controller, Decision, TopicRefusal, row_of};
use crate::record::Record;

/// Partitions that may still be created.
struct Room {
    in_request: usize,
    in_all: usize,
}

impl Controller<'_> {
    /// Decides a CreatePartitions request, each topic by itself. With `validate_only` there are no
    /// records.
    pub fn create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
    ) -> Decision<CreatePartitionsResponse> {
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut room = Room {
            in_request: CREATE_PARTITIONS_MAX,
            in_all: self.room(),
        };
        let mut times: HashMap<&str, usize> = HashMap::new();
        for topic in &request.topics {
            *times.entry(&topic.name).or_default() += 1;
        }
        for topic in &request.topics {
            let outcome = match times.get(topic.name.as_str()) {
                Some(1) => self.more_partitions(topic, &mut room),
                Some(_) | None => Err(TopicRefusal::new(
                    ErrorCode::InvalidRequest,
                    "Duplicate topic name.",
                )),
            };
            let (error_code, error_message) = row_of(outcome, &mut records);
            results.push(CreatePartitionsTopicResult {
                name: topic.name.clone(),
                error_code,
                error_message,
            });
        }
        if request.validate_only {
            records.clear();
        }
        let answer = CreatePartitionsResponse {
            results,
            ..CreatePartitionsResponse::default()
        };
        Decision { records, answer }
    }

    fn more_partitions(
        &mut self,
        wanted: &CreatePartitionsTopic,
        room: &mut Room,
    ) -> Result<Vec<Record>, TopicRefusal> {
        let Some(topic) = self.image.topic(&wanted.name).cloned() else {
            let text = format!("The topic '{}' does not exist.", shown(&wanted.name));
            return Err(TopicRefusal::new(ErrorCode::UnknownTopicOrPartition, text));
        };
        if topic.is_internal() {
            // Which partition a group or a transaction belongs to follows from their number.
            let text = "The number of partitions of an internal topic can not change.";
            return Err(TopicRefusal::new(ErrorCode::InvalidTopicException, text));
        }
        let (now, count) = (topic.partitions.len(), i64::from(wanted.count));
        let more = usize::try_from(count - now as i64)
            .ok()
            .filter(|more| *more > 0)
            .ok_or_else(|| no_increase(&wanted.name, now, count))?;
        if more > room.in_all {
            return Err(self.no_room(more, room.in_all));
        }
        if more > room.in_request {
            let text = format!(
                "Excessively large number of partitions per request: at most \
                 {CREATE_PARTITIONS_MAX} can be added."
            );
            return Err(TopicRefusal::new(ErrorCode::PolicyViolation, text));
        }
        let replicas = topic.replication_factor();
        let placed = match &wanted.assignments {
            None => self.place(more, replicas)?,
            Some(assignments) => {
                if assignments.len() != more {
                    let text = format!(
                        "Attempted to add {more} additional partition(s), but only {} \
                         assignment(s) were specified.",
                        assignments.len()
                    );
                    return Err(TopicRefusal::new(ErrorCode::InvalidReplicaAssignment, text));
                }
                let check =
                    |(index, assignment): (i32, &_)| self.by_hand(index, assignment, replicas);
                let first = i32::try_from(now).unwrap_or(i32::MAX);
                (first..)
                    .zip(assignments)
                    .map(check)
                    .collect::<Result<_, _>>()?
            }
        };
        room.in_request -= more;
        room.in_all -= more;
        let first = i32::try_from(now).unwrap_or(i32::MAX);
        let records = (first..).zip(&placed);
        Ok(records
            .map(|(index, replicas)| self.partition_record(topic.id, index, replicas))
            .collect())
    }

    fn by_hand(
        &self,
        index: i32,
        assignment: &CreatePartitionsAssignment,
        replicas: usize,
    ) -> Result<Vec<BrokerId>, TopicRefusal> {
        let assignment = CreatableReplicaAssignment {
            partition_index: index,
            broker_ids: assignment.broker_ids.clone(),
        };
        self.check_assignment(&assignment, replicas)
    }
}

fn no_increase(name: &str, now: usize, count: i64) -> TopicRefusal {
    let text = if count == now as i64 {
        format!("Topic already has {now} partition(s).")
    } else {
        format!(
            "The topic {name} currently has {now} partition(s); {count} would not be an increase."
        )
    };
    TopicRefusal::new(ErrorCode::InvalidPartitions, text)
}
