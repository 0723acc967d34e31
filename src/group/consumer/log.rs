//! What of a group is in the log: marks for what is not there yet, records out, records in.

use std::collections::BTreeMap;
use std::rc::Rc;

use thalweg_protocol::messages::consumer_group_current_member_assignment_value::TopicPartitions;
use thalweg_protocol::messages::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use thalweg_protocol::messages::consumer_group_target_assignment_member_value::TopicPartition;
use thalweg_protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataValue,
};

use bytes::Bytes;
use thalweg_types::TopicId;

use super::member::{Classic, ConsumerMember, MemberState};
use super::partitions::Partitions;
use super::record::ConsumerRecord;
use super::since::Since;
use super::{ConsumerGroup, Pattern};
use crate::group::Group;
use crate::record::Record;
use crate::turn::{Then, Turn};

/// Names a record of a group. In the order in which they end; the other way round they begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// What a member has.
    Current(Rc<str>),
    /// What it is to have.
    Target(Rc<str>),
    /// The epoch of that.
    TargetEpoch,
    /// A member.
    Member(Rc<str>),
    /// What a pattern matches.
    Regex(Rc<str>),
    /// The group.
    Group,
    /// The group as one of the classic protocol.
    Classic,
}

impl Group {
    /// Writes all that is marked, as one batch.
    pub(crate) fn write_unlogged(&mut self, turn: &mut Turn<'_>) {
        if self.unlogged.is_empty() {
            return;
        }
        let keys = std::mem::take(&mut self.unlogged);
        let (mut ends, mut begins) = (Vec::new(), Vec::new());
        for key in &keys {
            let record = self.record_of(key);
            match record.is_end() {
                true => ends.push(record),
                false => begins.push(record),
            }
        }
        ends.extend(begins.into_iter().rev());
        self.writes += 1;
        let then = Then::Log(keys);
        self.last_log = Some(turn.write(&self.id, ends, then));
    }

    pub(crate) fn record_of(&self, key: &Key) -> Record {
        let group = Rc::clone(&self.id);
        let consumer = self.consumer.as_deref();
        let record = match key {
            Key::Classic => {
                let value = match consumer {
                    Some(_) => None,
                    None => Some(self.value(|member| member.assignment.clone())),
                };
                return Record::Group { group, value };
            }
            Key::Group => ConsumerRecord::Group(consumer.map(|c| ConsumerGroupMetadataValue {
                epoch: c.epoch,
                metadata_hash: c.metadata_hash,
            })),
            Key::TargetEpoch => ConsumerRecord::TargetEpoch(consumer.map(|c| {
                ConsumerGroupTargetAssignmentMetadataValue {
                    assignment_epoch: c.target_epoch,
                    assignment_timestamp: c.decided_wall_ms,
                }
            })),
            Key::Member(id) => {
                let member = consumer.and_then(|c| c.members.get(id));
                ConsumerRecord::Member(Rc::clone(id), member.map(member_value))
            }
            Key::Target(id) => {
                let target = consumer.and_then(|c| c.targets.get(id));
                ConsumerRecord::Target(Rc::clone(id), target.map(target_value))
            }
            Key::Current(id) => {
                let member = consumer.and_then(|c| c.members.get(id));
                ConsumerRecord::Current(Rc::clone(id), member.map(current_value))
            }
            Key::Regex(regex) => {
                let pattern = consumer.and_then(|c| c.patterns.get(regex));
                ConsumerRecord::Regex(Rc::clone(regex), pattern.map(regex_value))
            }
        };
        Record::Consumer { group, record }
    }

    /// Replays a record of the newer protocol.
    pub(crate) fn replay_consumer(&mut self, record: ConsumerRecord) {
        if let ConsumerRecord::Group(None) = record {
            self.consumer = None;
            return;
        }
        // The end of something that is not there makes no group.
        let is_end = record_is_end(&record);
        if self.consumer.is_none() && is_end {
            return;
        }
        let group = self.consumer.get_or_insert_default();
        group.replay(record);
    }

    /// Every record of the newer protocol that the log may hold of this group is to end.
    pub(crate) fn consumer_ends(&self) -> Vec<Record> {
        let Some(consumer) = &self.consumer else {
            return Vec::new();
        };
        let mut all: Vec<ConsumerRecord> = Vec::new();
        let members = consumer.members.keys();
        for id in members {
            all.push(ConsumerRecord::Current(Rc::clone(id), None));
            all.push(ConsumerRecord::Target(Rc::clone(id), None));
            all.push(ConsumerRecord::Member(Rc::clone(id), None));
        }
        let patterns = consumer.patterns.keys();
        all.extend(patterns.map(|regex| ConsumerRecord::Regex(Rc::clone(regex), None)));
        all.push(ConsumerRecord::TargetEpoch(None));
        all.push(ConsumerRecord::Group(None));
        let ends = all.into_iter().map(|record| Record::Consumer {
            group: Rc::clone(&self.id),
            record,
        });
        ends.collect()
    }
}

impl ConsumerGroup {
    fn replay(&mut self, record: ConsumerRecord) {
        match record {
            ConsumerRecord::Group(None) => {}
            ConsumerRecord::Group(Some(value)) => {
                self.epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
            }
            ConsumerRecord::TargetEpoch(value) => {
                let value = value.unwrap_or_default();
                self.decided_wall_ms = value.assignment_timestamp;
                self.set_target_epoch(value.assignment_epoch);
            }
            ConsumerRecord::Member(id, Some(value)) => {
                let names = value.subscribed_topic_names.iter().map(String::as_str);
                let topics = self.subscribers.shared(names);
                let before = self.take(&id);
                let mut member = before.unwrap_or_else(|| ConsumerMember::new(id));
                member.topics = topics;
                restore(&mut member, value);
                self.put(member);
            }
            ConsumerRecord::Member(id, None) => {
                self.take(&id);
            }
            ConsumerRecord::Target(id, value) => {
                let target = value.map(|value| {
                    let topics = value.topic_partitions.into_iter();
                    Partitions::of(topics.map(|t| (t.topic_id, t.partitions)))
                });
                self.set_target(&id, target);
            }
            ConsumerRecord::Current(id, value) => self.replay_current(&id, value),
            ConsumerRecord::Regex(regex, Some(value)) => {
                // Its members may come later in the log.
                let topics = value.topics.into_iter().map(Rc::from).collect();
                self.match_topics(&regex, topics, value.timestamp);
            }
            // It goes with the last member that subscribes by it.
            ConsumerRecord::Regex(_, None) => {}
        }
    }

    fn replay_current(
        &mut self,
        id: &Rc<str>,
        value: Option<ConsumerGroupCurrentMemberAssignmentValue>,
    ) {
        let value = value.unwrap_or_else(|| current_value(&ConsumerMember::new(Rc::clone(id))));
        let topics = value.assigned_partitions.iter();
        let held = topics.chain(&value.partitions_pending_revocation);
        let since = since(held, value.member_epoch);
        let parts = |topics: Vec<TopicPartitions>| {
            Partitions::of(topics.into_iter().map(|t| (t.topic_id, t.partitions)))
        };
        let assigned = parts(value.assigned_partitions);
        let revoking = parts(value.partitions_pending_revocation).without(&assigned);
        self.change(id, |member| {
            member.since = since;
            member.epoch = value.member_epoch;
            member.previous_epoch = value.previous_member_epoch;
            member.state = match (MemberState::from_code(value.state), revoking.is_empty()) {
                (MemberState::Unrevoked, true) => MemberState::Unreleased,
                (state, _) => state,
            };
            member.assigned = assigned;
            member.revoking = match member.state {
                MemberState::Unrevoked => revoking,
                MemberState::Stable | MemberState::Unreleased => Partitions::default(),
            };
            member.note_held(value.member_epoch);
        });
    }

    /// The log was replayed: of what a damaged one may say twice the last word counts, and no member is ahead of the
    /// group.
    pub(crate) fn mend(&mut self, id: &Rc<str>) {
        let Some(member) = self.members.get(id) else {
            return;
        };
        self.epoch = self.epoch.max(member.epoch);
        let (mut lost, mut nobodys) = (Vec::new(), Vec::new());
        for held in member.held() {
            match self.holders.get(&held) {
                Some(holder) if holder == id => {}
                Some(_) => lost.push(held),
                None => nobodys.push(held),
            }
        }
        let holders = nobodys.into_iter().map(|held| (held, Rc::clone(id)));
        self.holders.extend(holders);
        if lost.is_empty() {
            return;
        }
        let lost = Partitions::of_pairs(lost.into_iter());
        self.change(id, |member| {
            member.assigned = member.assigned.without(&lost);
            member.revoking = member.revoking.without(&lost);
            member.note_held(member.epoch);
            if member.revoking.is_empty() && member.state == MemberState::Unrevoked {
                member.state = MemberState::Unreleased;
            }
        });
    }

    /// Forgets what the log says of members that are gone.
    pub(crate) fn drop_left_overs(&mut self) {
        self.drop_unused_patterns();
        let gone = self.targets.keys();
        let gone = gone.filter(|id| !self.members.contains_key(*id));
        for id in gone.cloned().collect::<Vec<Rc<str>>>() {
            self.set_target(&id, None);
        }
    }
}

fn record_is_end(record: &ConsumerRecord) -> bool {
    match record {
        ConsumerRecord::Group(value) => value.is_none(),
        ConsumerRecord::Member(_, value) => value.is_none(),
        ConsumerRecord::TargetEpoch(value) => value.is_none(),
        ConsumerRecord::Target(_, value) => value.is_none(),
        ConsumerRecord::Current(_, value) => value.is_none(),
        ConsumerRecord::Regex(_, value) => value.is_none(),
    }
}

impl Record {
    /// The mark of a record of the newer protocol.
    pub(crate) fn mark(&self) -> Option<Key> {
        let Record::Consumer { record, .. } = self else {
            return None;
        };
        Some(match record {
            ConsumerRecord::Group(_) => Key::Group,
            ConsumerRecord::Member(id, _) => Key::Member(Rc::clone(id)),
            ConsumerRecord::TargetEpoch(_) => Key::TargetEpoch,
            ConsumerRecord::Target(id, _) => Key::Target(Rc::clone(id)),
            ConsumerRecord::Current(id, _) => Key::Current(Rc::clone(id)),
            ConsumerRecord::Regex(regex, _) => Key::Regex(Rc::clone(regex)),
        })
    }

    /// True for a record that ends something.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Record::Offset { value, .. } => value.is_none(),
            Record::Group { value, .. } => value.is_none(),
            Record::Consumer { record, .. } => record_is_end(record),
        }
    }
}

fn member_value(member: &ConsumerMember) -> ConsumerGroupMemberMetadataValue {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let classic = member
        .classic
        .as_ref()
        .map(|classic| ClassicMemberMetadata {
            session_timeout_ms: classic.session_ms,
            supported_protocols: classic
                .protocols
                .iter()
                .map(|(name, metadata)| ClassicProtocol {
                    name: name.to_string(),
                    metadata: metadata.clone(),
                })
                .collect(),
        });
    ConsumerGroupMemberMetadataValue {
        instance_id: text(member.instance.as_deref()),
        rack_id: text(member.rack.as_deref()),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        subscribed_topic_names: member.topics.iter().map(ToString::to_string).collect(),
        subscribed_topic_regex: text(member.regex.as_deref()),
        rebalance_timeout_ms: member.rebalance_ms,
        server_assignor: text(member.assignor.as_deref()),
        classic_member_metadata: classic,
    }
}

/// Takes what a record says, the names apart.
fn restore(member: &mut ConsumerMember, value: ConsumerGroupMemberMetadataValue) {
    member.instance = value.instance_id.map(Rc::from);
    member.rack = value.rack_id.map(Box::from);
    member.client_id = value.client_id.into();
    member.client_host = value.client_host.into();
    member.regex = value
        .subscribed_topic_regex
        .filter(|r| !r.is_empty())
        .map(Rc::from);
    member.rebalance_ms = value.rebalance_timeout_ms;
    member.assignor = value.server_assignor.map(Box::from);
    member.classic = value.classic_member_metadata.map(|classic| Classic {
        session_ms: classic.session_timeout_ms,
        protocols: classic
            .supported_protocols
            .into_iter()
            .map(|p| (p.name.into(), Bytes::copy_from_slice(&p.metadata)))
            .collect(),
    });
}

fn target_value(target: &Partitions) -> ConsumerGroupTargetAssignmentMemberValue {
    let topics = target
        .topics()
        .map(|(topic_id, partitions)| TopicPartition {
            topic_id,
            partitions: partitions.to_vec(),
        });
    ConsumerGroupTargetAssignmentMemberValue {
        topic_partitions: topics.collect(),
    }
}

fn current_value(member: &ConsumerMember) -> ConsumerGroupCurrentMemberAssignmentValue {
    let since = member.since.by_partition();
    let epochs = |topic, partitions: &[i32]| -> Vec<i32> {
        let since = partitions.iter().map(|p| since.get(&(topic, *p)));
        since.map(|epoch| *epoch.unwrap_or(&member.epoch)).collect()
    };
    let parts = |parts: &Partitions| {
        let topics = parts
            .topics()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions: partitions.to_vec(),
                assignment_epochs: Some(epochs(topic_id, partitions)),
            });
        topics.collect()
    };
    ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: member.epoch,
        previous_member_epoch: member.previous_epoch,
        state: member.state.code(),
        assigned_partitions: parts(&member.assigned),
        partitions_pending_revocation: parts(&member.revoking),
    }
}

/// Since when a member has what a record says that it has: what does not tell, since its epoch.
fn since<'t>(topics: impl Iterator<Item = &'t TopicPartitions>, epoch: i32) -> Since {
    let mut by_epoch: BTreeMap<i32, Vec<(TopicId, i32)>> = BTreeMap::new();
    for topic in topics {
        let epochs = topic.assignment_epochs.iter().flatten().copied();
        let told = epochs.chain(std::iter::repeat(epoch));
        for (partition, epoch) in topic.partitions.iter().zip(told) {
            let of_epoch = by_epoch.entry(epoch).or_default();
            of_epoch.push((topic.topic_id, *partition));
        }
    }
    let mut since = Since::default();
    let mut held = Partitions::default();
    for (epoch, partitions) in by_epoch {
        held = held.with(&Partitions::of_pairs(partitions.into_iter()));
        since.hold(epoch, &held);
    }
    since
}

fn regex_value(pattern: &Pattern) -> ConsumerGroupRegularExpressionValue {
    ConsumerGroupRegularExpressionValue {
        topics: pattern.topics.iter().map(ToString::to_string).collect(),
        // Ours count from each start, Kafka's are offsets of its metadata log: 0 is older than any.
        version: 0,
        timestamp: pattern.at_ms,
    }
}
