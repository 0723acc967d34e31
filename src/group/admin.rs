//! What operators ask: listing, describing and deleting groups.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use thalweg_protocol::messages::list_groups_response::ListedGroup;
use thalweg_types::limits::{GROUPS_LISTED_PER_TURN, OFFSET_COMMIT_ROWS_PER_TURN};
use thalweg_types::shown;

use crate::ask::{Answer, Effect, GroupQuery, Now, Token};
use crate::commit::tombstone;
use crate::consumer::Key;
use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::member::Member;
use crate::page::{DescribedPage, ListedPage, page_of};
use crate::pending_offsets::Place;
use crate::record::Record;
use crate::subscription::CONSUMER;
use crate::turn::{Then, Turn};

/// First version of DescribeGroups that says when there is no such group (KIP-1043).
const VERSION_GROUP_NOT_FOUND: i16 = 6;

/// Kafka's names of the kinds of groups that there are.
pub(crate) const TYPE_CLASSIC: &str = "classic";
pub(crate) const TYPE_CONSUMER: &str = "consumer";

impl Coordinator {
    pub(crate) fn list(&self, query: &GroupQuery, after: Option<&str>) -> ListedPage {
        let from = after.map_or(Unbounded, Excluded);
        let mut behind = self.groups.range::<str, _>((from, Unbounded));
        let (mut groups, mut last) = (Vec::new(), None);
        for (id, group) in behind.by_ref().take(GROUPS_LISTED_PER_TURN) {
            last = Some(id);
            if query.wants(group.shown()) {
                groups.push(ListedGroup {
                    group_id: id.to_string(),
                    protocol_type: group.shown_protocol_type().to_owned(),
                    group_state: group.shown().name().to_owned(),
                    group_type: group.kind().to_owned(),
                });
            }
        }
        let rest = last.filter(|_| behind.next().is_some());
        ListedPage {
            groups,
            rest: rest.map(ToString::to_string),
        }
    }

    pub(crate) fn describe(
        &self,
        id: &str,
        version: i16,
        after: Option<&str>,
    ) -> DescribedPage<DescribedGroup> {
        let group = self.groups.get(id);
        match group.filter(|group| group.consumer.is_none()) {
            Some(group) => describe(group, after),
            None => {
                let mut answer = DescribedGroup {
                    group_id: id.to_owned(),
                    group_state: State::Dead.name().to_owned(),
                    ..DescribedGroup::default()
                };
                if version >= VERSION_GROUP_NOT_FOUND {
                    answer.error_code = ErrorCode::GroupIdNotFound.code();
                    answer.error_message = Some(match group {
                        Some(_) => format!("Group {} is not of the classic protocol.", shown(id)),
                        None => format!("Group {} not found.", shown(id)),
                    });
                }
                DescribedPage::whole(answer)
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
            group.transition(State::Dead, turn.now.wall);
            group.delete_on(turn, in_flight.into_keys(), token, answer(code));
        });
        None
    }
}

impl Group {
    /// Goes on with a deletion: ends as many offsets as one turn of the core may, and with the last of them
    /// `in_flight`, whose commits are on their way, and all the rest.
    pub(crate) fn delete_on(
        &mut self,
        turn: &mut Turn<'_>,
        in_flight: impl Iterator<Item = Place>,
        token: Token,
        answer: DeletableGroupResult,
    ) {
        let some = self.offsets.behind(None).take(OFFSET_COMMIT_ROWS_PER_TURN);
        let some = some.map(|(topic, partition, _)| tombstone(&self.id, topic, partition));
        let mut records: Vec<Record> = some.collect();
        self.writes += 1;
        if records.len() < self.offsets.len() {
            // No commit begins meanwhile, and those on their way are offsets when this is written.
            turn.write(&self.id, records, Then::DeleteOn(token, answer));
            return;
        }
        let pending = self.pending_offsets.places().cloned();
        let others: BTreeSet<Place> = in_flight.chain(pending).collect();
        let others = others
            .iter()
            .filter(|(topic, partition)| self.offsets.get(topic, *partition).is_none());
        records.extend(others.map(|(topic, p)| tombstone(&self.id, topic, *p)));
        records.extend(self.end_records());
        turn.write(&self.id, records, Then::Delete(token, answer));
    }

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

/// Metadata only of a group at rest: before, it is still being decided which protocol it is of. Shares are those that
/// members have, until they are given others.
fn describe(group: &Group, after: Option<&str>) -> DescribedPage<DescribedGroup> {
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
        member_assignment: member.assignment.clone(),
    };
    let (members, rest) = page_of(&group.members, after, |_| 0, one);
    let group = DescribedGroup {
        group_id: group.id.to_string(),
        group_state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        protocol_data: protocol.unwrap_or_default().to_owned(),
        members,
        ..DescribedGroup::default()
    };
    DescribedPage { group, rest }
}
