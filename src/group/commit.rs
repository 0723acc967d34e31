//! Committing, fetching and deleting offsets.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use thalweg_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};
use thalweg_types::TimestampMs;

use crate::ask::{Answer, Effect, Now, Token, refused_commit};
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::offsets::Committed;
use crate::record::Record;
use crate::subscription::CONSUMER;
use crate::turn::{Then, Turn};

impl Group {
    /// Checks a commit and writes what may be written; `None` when the answer waits for the write.
    pub(crate) fn commit(
        &mut self,
        turn: &mut Turn<'_>,
        request: &OffsetCommitRequest,
        token: Token,
        has_room: bool,
    ) -> Option<OffsetCommitResponse> {
        let generation = request.generation_id_or_member_epoch;
        if let Err(code) = self.check_commit(&request.member_id, generation) {
            return Some(refused_commit(request, code));
        }
        self.touch(turn.now.ms, &request.member_id);
        let expires = match request.retention_time_ms {
            -1 => TimestampMs::NONE,
            retention => TimestampMs(turn.now.wall.0.saturating_add(retention.max(0))),
        };
        let mut answer = refused_commit(request, ErrorCode::None);
        let mut records = Vec::new();
        for (topic, rows) in request.topics.iter().zip(&mut answer.topics) {
            let name = self.offsets.name_of(&topic.name);
            for (asked, row) in topic.partitions.iter().zip(&mut rows.partitions) {
                let text = asked.committed_metadata.as_deref().unwrap_or_default();
                if text.len() > turn.settings.offset_metadata_bytes_max {
                    row.error_code = ErrorCode::OffsetMetadataTooLarge.code();
                    continue;
                }
                if !has_room && self.offsets.get(&name, asked.partition_index).is_none() {
                    row.error_code = ErrorCode::InvalidCommitOffsetSize.code();
                    continue;
                }
                records.push(Record::Offset {
                    group: Rc::clone(&self.id),
                    topic: Rc::clone(&name),
                    partition: asked.partition_index,
                    value: Some(committed(asked, text, turn.now.wall, expires)),
                });
            }
        }
        if records.is_empty() {
            return Some(answer);
        }
        self.writes += 1;
        turn.write(&self.id, records, Then::Commit(token, answer));
        None
    }
}

fn committed(
    asked: &OffsetCommitRequestPartition,
    text: &str,
    at: TimestampMs,
    expires: TimestampMs,
) -> Committed {
    Committed {
        offset: asked.committed_offset,
        leader_epoch: asked.committed_leader_epoch,
        metadata: text.into(),
        at,
        expires,
    }
}

impl Coordinator {
    /// Committed offsets; -1 where there is none, which is no error (RP-118).
    pub(crate) fn fetch_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
    ) -> OffsetFetchResponseGroup {
        let group = self.groups.get(request.group_id.as_str());
        let topics = match &request.topics {
            Some(wanted) => wanted
                .iter()
                .map(|topic| OffsetFetchResponseTopics {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic
                        .partition_indexes
                        .iter()
                        .map(|p| fetched(*p, group.and_then(|g| g.offsets.get(&topic.name, *p))))
                        .collect(),
                })
                .collect(),
            None => group.map(all_offsets).unwrap_or_default(),
        };
        OffsetFetchResponseGroup {
            group_id: request.group_id.clone(),
            topics,
            error_code: ErrorCode::None.code(),
        }
    }

    /// Deletes offsets that no member is using (KIP-496).
    pub(crate) fn delete_offsets(
        &mut self,
        now: Now,
        request: &OffsetDeleteRequest,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let refuse = |code: ErrorCode| {
            let answer = OffsetDeleteResponse {
                error_code: code.code(),
                ..OffsetDeleteResponse::default()
            };
            Some(Answer::from(answer))
        };
        let Some(group) = self.groups.get(request.group_id.as_str()) else {
            return refuse(ErrorCode::GroupIdNotFound);
        };
        match group.state {
            State::Dead => return refuse(ErrorCode::GroupIdNotFound),
            State::Empty => {}
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                if group.protocol_type.as_deref() != Some(CONSUMER) {
                    return refuse(ErrorCode::NonEmptyGroup);
                }
            }
        }
        let (answer, records) = self.offsets_to_delete(group, request);
        if records.is_empty() {
            return Some(answer.into());
        }
        let id = Rc::clone(&group.id);
        self.with_turn(&id, now, out, |group, turn| {
            group.writes += 1;
            turn.write(&group.id, records, Then::DeleteOffsets(token, answer));
        });
        None
    }

    fn offsets_to_delete(
        &self,
        group: &Group,
        request: &OffsetDeleteRequest,
    ) -> (OffsetDeleteResponse, Vec<Record>) {
        let in_flight = self.commits_in_flight(&group.id);
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let is_subscribed = group.is_subscribed(&topic.name);
            let name = group.offsets.name_of(&topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let is_known = group.offsets.get(&name, index).is_some()
                    || in_flight.contains(&(Rc::clone(&name), index));
                let code = match is_subscribed {
                    true => ErrorCode::GroupSubscribedToTopic,
                    false => ErrorCode::None,
                };
                if !is_subscribed && is_known {
                    records.push(tombstone(&group.id, &name, index));
                }
                partitions.push(OffsetDeleteResponsePartition {
                    partition_index: index,
                    error_code: code.code(),
                });
            }
            topics.push(OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions,
            });
        }
        let answer = OffsetDeleteResponse {
            topics,
            ..OffsetDeleteResponse::default()
        };
        (answer, records)
    }

    /// Offsets of a group that are written but not committed yet.
    pub(crate) fn commits_in_flight(&self, group: &str) -> HashSet<(Rc<str>, i32)> {
        let writes = self.writes.pending.values();
        let of_group = writes.filter(|pending| *pending.group == *group);
        of_group
            .flat_map(|pending| &pending.records)
            .filter_map(|record| match record {
                Record::Offset {
                    topic, partition, ..
                } => Some((Rc::clone(topic), *partition)),
                Record::Group { .. } => None,
            })
            .collect()
    }
}

pub(crate) fn tombstone(group: &Rc<str>, topic: &Rc<str>, partition: i32) -> Record {
    Record::Offset {
        group: Rc::clone(group),
        topic: Rc::clone(topic),
        partition,
        value: None,
    }
}

fn all_offsets(group: &Group) -> Vec<OffsetFetchResponseTopics> {
    let topics = group.offsets.sorted();
    let one =
        |(name, partitions): (&Rc<str>, &BTreeMap<i32, Committed>)| OffsetFetchResponseTopics {
            name: name.to_string(),
            partitions: partitions
                .iter()
                .map(|(index, committed)| fetched(*index, Some(committed)))
                .collect(),
            ..OffsetFetchResponseTopics::default()
        };
    topics.into_iter().map(one).collect()
}

fn fetched(partition: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: committed.map_or(-1, |c| c.offset),
        committed_leader_epoch: committed.map_or(-1, |c| c.leader_epoch),
        metadata: Some(committed.map_or_else(String::new, |c| c.metadata.to_string())),
        error_code: ErrorCode::None.code(),
    }
}
