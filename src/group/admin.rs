//! What operators ask: listing, describing and deleting groups.

use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use thalweg_protocol::messages::list_groups_response::ListedGroup;

use crate::ask::{Answer, Effect, GroupQuery, Now, Token};
use crate::commit::tombstone;
use crate::consumer::Key;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::member::Member;
use crate::record::Record;
use crate::subscription::CONSUMER;
use crate::turn::Then;

/// First version of DescribeGroups that says when there is no such group (KIP-1043).
const VERSION_GROUP_NOT_FOUND: i16 = 6;

/// Kafka's names of the kinds of groups that there are.
pub(crate) const TYPE_CLASSIC: &str = "classic";
pub(crate) const TYPE_CONSUMER: &str = "consumer";

impl Coordinator {
    pub(crate) fn list(&self, query: &GroupQuery) -> Vec<ListedGroup> {
        let groups = self.groups.values();
        let mut found: Vec<ListedGroup> = groups
            .filter(|group| query.wants(group.shown()))
            .map(|group| ListedGroup {
                group_id: group.id.to_string(),
                protocol_type: group.shown_protocol_type().to_owned(),
                group_state: group.shown().name().to_owned(),
                group_type: group.kind().to_owned(),
            })
            .collect();
        found.sort_unstable_by(|a, b| a.group_id.cmp(&b.group_id));
        found
    }

    pub(crate) fn describe(&self, id: &str, version: i16) -> DescribedGroup {
        let group = self.groups.get(id);
        match group.filter(|group| group.consumer.is_none()) {
            Some(group) => describe(group),
            None => {
                let mut answer = DescribedGroup {
                    group_id: id.to_owned(),
                    group_state: State::Dead.name().to_owned(),
                    ..DescribedGroup::default()
                };
                if version >= VERSION_GROUP_NOT_FOUND {
                    answer.error_code = ErrorCode::GroupIdNotFound.code();
                    answer.error_message = Some(match group {
                        Some(_) => format!("Group {id} is not of the classic protocol."),
                        None => format!("Group {id} not found."),
                    });
                }
                answer
            }
        }
    }

    /// Deletes a group without members, its offsets included (RP-117).
    pub(crate) fn delete(
        &mut self,
        now: Now,
        id: &str,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let answer = |code: ErrorCode| DeletableGroupResult {
            group_id: id.to_owned(),
            error_code: code.code(),
        };
        let has_members = self.groups.get(id).is_some_and(|g| g.member_count() > 0);
        let code = match self.groups.get(id).map(|group| group.state) {
            _any if id.is_empty() => ErrorCode::InvalidGroupId,
            None | Some(State::Dead) => ErrorCode::GroupIdNotFound,
            Some(State::PreparingRebalance | State::CompletingRebalance | State::Stable) => {
                ErrorCode::NonEmptyGroup
            }
            Some(State::Empty) if has_members => ErrorCode::NonEmptyGroup,
            Some(State::Empty) => ErrorCode::None,
        };
        if code != ErrorCode::None {
            return Some(answer(code).into());
        }
        let in_flight = self
            .groups
            .get(id)
            .map(|group| self.commits_in_flight(group))
            .unwrap_or_default();
        self.with_turn(id, now, out, |group, turn| {
            let ids: Vec<Rc<str>> = group.pending.keys().cloned().collect();
            for member in ids {
                group.forget_pending(turn, &member);
            }
            let mut records: Vec<Record> = in_flight
                .keys()
                .filter(|(topic, partition)| group.offsets.get(topic, *partition).is_none())
                .map(|(topic, partition)| tombstone(&group.id, topic, *partition))
                .collect();
            let in_transactions = group.pending_offsets.places().filter(|place| {
                let (topic, partition) = place;
                group.offsets.get(topic, *partition).is_none() && !in_flight.contains_key(*place)
            });
            records.extend(in_transactions.map(|(topic, p)| tombstone(&group.id, topic, *p)));
            for (topic, partitions) in group.offsets.topics() {
                let of_topic = partitions.keys().map(|p| tombstone(&group.id, topic, *p));
                records.extend(of_topic);
            }
            records.extend(group.end_records());
            group.transition(State::Dead, turn.now.wall);
            group.writes += 1;
            turn.write(&group.id, records, Then::Delete(token, answer(code)));
        });
        None
    }
}

impl Group {
    /// Kafka's name of its kind.
    fn kind(&self) -> &'static str {
        match self.consumer {
            Some(_) => TYPE_CONSUMER,
            None => TYPE_CLASSIC,
        }
    }

    fn shown_protocol_type(&self) -> &str {
        match self.consumer {
            Some(_) => CONSUMER,
            None => self.protocol_type.as_deref().unwrap_or_default(),
        }
    }

    /// The records that end the group, its offsets apart. They include what is yet to be written.
    pub(crate) fn end_records(&mut self) -> Vec<Record> {
        let unlogged = std::mem::take(&mut self.unlogged);
        let mut records = self.consumer_ends();
        let others = unlogged.iter().filter_map(|key| match key {
            Key::Current(_) | Key::Target(_) | Key::Member(_) | Key::Regex(_) => {
                Some(self.record_of(key)).filter(Record::is_end)
            }
            Key::TargetEpoch | Key::Group | Key::Classic => None,
        });
        let mut all: Vec<Record> = others.collect();
        all.append(&mut records);
        all.push(Record::Group {
            group: Rc::clone(&self.id),
            value: None,
        });
        all
    }
}

/// Metadata and shares only of a group at rest: before, they are still being decided.
fn describe(group: &Group) -> DescribedGroup {
    let protocol = match group.state {
        State::Stable => group.protocol.as_deref(),
        State::Empty | State::PreparingRebalance | State::CompletingRebalance | State::Dead => None,
    };
    let one = |member: &Member| DescribedGroupMember {
        member_id: member.id.to_string(),
        group_instance_id: member.instance.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        member_metadata: protocol.map(|p| member.metadata(p)).unwrap_or_default(),
        member_assignment: protocol
            .map(|_| member.assignment.clone())
            .unwrap_or_else(Bytes::new),
    };
    DescribedGroup {
        group_id: group.id.to_string(),
        group_state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        protocol_data: protocol.unwrap_or_default().to_owned(),
        members: group.members.values().map(one).collect(),
        ..DescribedGroup::default()
    }
}
