//! Committing, fetching and deleting offsets.

use std::collections::HashMap;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};
use thalweg_types::limits::{OFFSET_FETCH_BYTES_PER_TURN, OFFSET_FETCH_ROWS_PER_TURN};
use thalweg_types::{TimestampMs, TopicId};

use crate::ask::{Answer, Effect, Now, OffsetsPage, PlaceName, Stability, Token, refused_commit};
use crate::consumer::Movable;
use crate::coordinator::{Coordinator, check_id};
use crate::group::{Group, State};
use crate::offsets::Committed;
use crate::orphans::{is_of, remembered};
use crate::record::Record;
use crate::subscription::CONSUMER;
use crate::turn::{Then, Turn};

/// First version of both requests with topic ids in place of names (KIP-848).
pub const VERSION_TOPIC_IDS: i16 = 10;

/// What is said of a topic that is not there.
fn unknown_topic(version: i16) -> ErrorCode {
    match version {
        ..VERSION_TOPIC_IDS => ErrorCode::UnknownTopicOrPartition,
        _ => ErrorCode::UnknownTopicId,
    }
}

/// What is asked for of one group's offsets: those behind `after`, where all of them are asked for.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) request: OffsetFetchRequestGroup,
    pub(crate) after: Option<PlaceName>,
}

impl Fetch {
    /// Offsets that are looked up for it, in a group that has so many.
    fn rows_of(&self, all: usize) -> usize {
        match &self.request.topics {
            None => all.clamp(1, OFFSET_FETCH_ROWS_PER_TURN),
            Some(topics) => {
                let rows = topics
                    .iter()
                    .map(|topic| topic.partition_indexes.len().max(1));
                rows.sum()
            }
        }
    }
}

impl Group {
    /// Checks a commit and writes what may be written; `None` when the answer waits for the write.
    pub(crate) fn commit(
        &mut self,
        turn: &mut Turn<'_>,
        version: i16,
        request: &OffsetCommitRequest,
        token: Token,
        has_room: bool,
    ) -> Option<OffsetCommitResponse> {
        let generation = request.generation_id_or_member_epoch;
        let instance = request.group_instance_id.as_deref();
        let movable = match &self.consumer {
            Some(group) => group.check_commit(&request.member_id, generation, version),
            None => self
                .check_commit(&request.member_id, instance, generation)
                .map(|()| Movable::All),
        };
        // One partition that may not be moved is reason to refuse all of them, as in Kafka.
        let allowed = movable.and_then(|movable| {
            let mut topics = request.topics.iter();
            topics.try_for_each(|topic| {
                let mut partitions = topic.partitions.iter();
                partitions.try_for_each(|row| movable.check(topic.topic_id, row.partition_index))
            })
        });
        if let Err(code) = allowed.and(self.check_alive()) {
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
            // The topic may have gone while the request was on its way to this core.
            let is_there = turn.topics.id(&name) == Some(topic.topic_id);
            for (asked, row) in topic.partitions.iter().zip(&mut rows.partitions) {
                if !is_there {
                    row.error_code = unknown_topic(version).code();
                    continue;
                }
                let text = asked.committed_metadata.as_deref().unwrap_or_default();
                if is_longer(text, turn.settings.offset_metadata_max) {
                    row.error_code = ErrorCode::OffsetMetadataTooLarge.code();
                    continue;
                }
                let known = self.offsets.get(&name, asked.partition_index);
                let fits = match known {
                    None => has_room,
                    Some(known) => turn.may_grow || text.len() <= known.metadata.len(),
                };
                if !fits {
                    row.error_code = ErrorCode::InvalidCommitOffsetSize.code();
                    continue;
                }
                records.push(Record::Offset {
                    group: Rc::clone(&self.id),
                    topic: Rc::clone(&name),
                    partition: asked.partition_index,
                    value: Some(Committed {
                        offset: asked.committed_offset,
                        leader_epoch: asked.committed_leader_epoch,
                        metadata: text.into(),
                        at: turn.now.wall,
                        expires,
                        topic_id: topic.topic_id,
                    }),
                });
            }
        }
        if records.is_empty() {
            return Some(answer);
        }
        self.writes += 1;
        self.last_commit = Some(turn.write(&self.id, records, Then::Commit(token, answer)));
        None
    }

    /// Whether a transaction on its way may change an offset that is to be stable.
    fn is_unstable(&self, wanted: Stability, topic: &Rc<str>, partition: i32) -> bool {
        match wanted {
            Stability::Any => false,
            Stability::Stable => self.pending_offsets.contains(topic, partition),
        }
    }
}

impl Coordinator {
    /// As [`Coordinator::fetch_offsets`]. Who asks for what will not change by itself (KIP-447) waits for the commits
    /// that are on their way: the member that sent them may be gone without an answer, and whoever takes over must
    /// not begin in front of them. `None` while it waits.
    pub(crate) fn fetch_settled_offsets(
        &mut self,
        fetch: Fetch,
        wanted: Stability,
        token: Token,
    ) -> Option<Answer> {
        if wanted == Stability::Stable {
            let group = self.groups.get(fetch.request.group_id.as_str());
            let (last, all) = group.map_or((None, 0), |g| (g.last_commit, g.offsets.len()));
            if let Some(pending) = last.and_then(|last| self.writes.pending.get_mut(&last)) {
                let rows = fetch.rows_of(all);
                return pending.park(token, fetch, rows);
            }
        }
        Some(self.fetch_offsets(fetch, wanted).into())
    }

    /// Committed offsets; -1 where there is none, which is no error (RP-118).
    pub(crate) fn fetch_offsets(&self, fetch: Fetch, wanted: Stability) -> OffsetsPage {
        let Fetch { request, after } = fetch;
        let group = self.groups.get(request.group_id.as_str());
        let group = group.map(|group| &**group);
        if let Some(consumer) = group.and_then(|group| group.consumer.as_deref())
            && let Err(code) =
                consumer.check_fetch(request.member_id.as_deref(), request.member_epoch)
        {
            return OffsetsPage::whole(OffsetFetchResponseGroup {
                group_id: request.group_id.clone(),
                error_code: code.code(),
                ..OffsetFetchResponseGroup::default()
            });
        }
        let (topics, rest) = match (&request.topics, group) {
            (Some(topics), _) => {
                let topics = topics.iter();
                let found = topics.map(|topic| self.fetch_topic(group, topic, wanted));
                (found.collect(), None)
            }
            (None, Some(group)) => self.all_offsets(group, wanted, after),
            (None, None) => (Vec::new(), None),
        };
        let group = OffsetFetchResponseGroup {
            group_id: request.group_id.clone(),
            topics,
            error_code: ErrorCode::None.code(),
        };
        OffsetsPage { group, rest }
    }

    fn fetch_topic(
        &self,
        group: Option<&Group>,
        topic: &OffsetFetchRequestTopics,
        wanted: Stability,
    ) -> OffsetFetchResponseTopics {
        let name: Rc<str> = Rc::from(topic.name.as_str());
        // Who asks by id must not get the offsets of another topic that has the name by now.
        let is_another =
            topic.topic_id != TopicId::ZERO && self.topics.id(&topic.name) != Some(topic.topic_id);
        let row = |index: &i32| match is_another {
            true => not_fetched(*index, ErrorCode::UnknownTopicId),
            false if group.is_some_and(|g| g.is_unstable(wanted, &name, *index)) => {
                not_fetched(*index, ErrorCode::UnstableOffsetCommit)
            }
            false => {
                let found = group.and_then(|g| g.offsets.get(&topic.name, *index));
                fetched(*index, found.filter(|c| self.is_visible(&topic.name, c)))
            }
        };
        OffsetFetchResponseTopics {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes.iter().map(row).collect(),
        }
    }

    /// Those behind `after`, as many as one turn of the core may look up, and the last one if there are more.
    fn all_offsets(
        &self,
        group: &Group,
        wanted: Stability,
        after: Option<PlaceName>,
    ) -> (Vec<OffsetFetchResponseTopics>, Option<PlaceName>) {
        let mut is_visible = remembered(|name, id| is_of(&self.topics, name, id));
        let after = after.map(|(topic, partition)| (Rc::from(topic), partition));
        let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        let (mut last, mut of): (_, Option<&Rc<str>>) = (None, None);
        for (name, index, committed) in group.offsets.behind(after.as_ref()) {
            if looked_at == OFFSET_FETCH_ROWS_PER_TURN || bytes >= OFFSET_FETCH_BYTES_PER_TURN {
                return (
                    topics,
                    last.map(|(name, index): (&Rc<str>, i32)| (name.to_string(), index)),
                );
            }
            looked_at += 1;
            last = Some((name, index));
            if !is_visible(name, committed.topic_id) {
                continue;
            }
            bytes += committed.metadata.len();
            if of.replace(name).is_none_or(|of| !Rc::ptr_eq(of, name)) {
                topics.push(OffsetFetchResponseTopics {
                    name: name.to_string(),
                    topic_id: self.topics.id(name).unwrap_or(TopicId::ZERO),
                    partitions: Vec::new(),
                });
            }
            let row = match group.is_unstable(wanted, name, index) {
                true => not_fetched(index, ErrorCode::UnstableOffsetCommit),
                false => fetched(index, Some(committed)),
            };
            if let Some(topic) = topics.last_mut() {
                topic.partitions.push(row);
            }
        }
        (topics, None)
    }

    /// Not so between the end of a topic and the end of its offsets.
    fn is_visible(&self, topic: &str, committed: &Committed) -> bool {
        is_of(&self.topics, topic, committed.topic_id)
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
        if let Err(code) = check_id(&request.group_id) {
            return refuse(code);
        }
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
        let in_flight = self.commits_in_flight(group);
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        let subscribed = group.subscribed_among(request.topics.iter().map(|t| t.name.as_str()));
        for topic in &request.topics {
            let is_subscribed = subscribed.contains(topic.name.as_str());
            let name = group.offsets.name_of(&topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let is_known = group.offsets.get(&name, index).is_some()
                    || group.pending_offsets.contains(&name, index)
                    || in_flight.contains_key(&(Rc::clone(&name), index));
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

    /// Partitions whose offsets are on their way to the log, with the topic id of the last one on its
    /// way; `None` where that is an end.
    pub(crate) fn commits_in_flight(
        &self,
        group: &Group,
    ) -> HashMap<(Rc<str>, i32), Option<TopicId>> {
        if group.writes == 0 {
            return HashMap::new();
        }
        let writes = self.writes.pending.values();
        let of_group = writes.filter(|pending| pending.group == group.id);
        of_group
            .flat_map(|pending| pending.records.iter())
            .filter_map(|record| match record {
                Record::Offset {
                    topic,
                    partition,
                    value,
                    ..
                } => {
                    let id = value.as_ref().map(|committed| committed.topic_id);
                    Some(((Rc::clone(topic), *partition), id))
                }
                Record::Group { .. } | Record::Consumer { .. } => None,
            })
            .collect()
    }
}

/// Whether a text has more than `most` units of UTF-16: so Kafka counts, whose name for the bound says bytes.
fn is_longer(text: &str, most: usize) -> bool {
    text.len() > most && text.encode_utf16().count() > most
}

pub(crate) fn tombstone(group: &Rc<str>, topic: &Rc<str>, partition: i32) -> Record {
    Record::Offset {
        group: Rc::clone(group),
        topic: Rc::clone(topic),
        partition,
        value: None,
    }
}

fn not_fetched(partition: i32, error: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        error_code: error.code(),
        ..fetched(partition, None)
    }
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

#[cfg(test)]
mod tests {
    use super::is_longer;

    #[test]
    fn rp_108_text_beside_an_offset_is_counted_as_kafka_counts_it() {
        assert!(!is_longer("", 0) && is_longer("x", 0));
        assert!(!is_longer("éé", 2) && is_longer("éé", 1));
        // Beyond the first 65,536 characters each is two units.
        assert!(!is_longer("🦀", 2) && is_longer("🦀", 1));
    }
}
