//! Administrative calls: which groups there are, who is in them, and their end.

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_describe_response as consumer;
use thalweg_protocol::messages::describe_groups_response as classic;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, LeaveGroupRequest,
    ListGroupsRequest,
};

use crate::assignor::{TopicPartition, decode_assignment, decode_subscription};
use crate::cluster::{Broker, Cluster};
use crate::connection::Connection;
use crate::error::{ClientError, Result};

/// What DescribeGroups calls a group that is not there, before it had an error for it.
const DEAD: &str = "Dead";

/// One group as ListGroups tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// `group.id`.
    pub name: String,
    /// `consumer` for consumers; empty for a group that only has offsets.
    pub protocol_type: String,
    /// Kafka's word; empty from brokers that do not tell (before 2.6).
    pub state: String,
    /// `classic`, `consumer` and others; empty from brokers that do not tell (before 3.7).
    pub kind: String,
}

/// Which groups are asked for. Kafka's words, in any case; an empty list means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFilter {
    /// For example `Stable` (KIP-518).
    pub states: Vec<String>,
    /// For example `consumer` (KIP-848).
    pub kinds: Vec<String>,
}

/// Which protocol the members of a group speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Join and sync; one member shares out.
    Classic,
    /// KIP-848: the broker shares out.
    Consumer,
}

impl GroupKind {
    /// Kafka's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Classic => "classic",
            GroupKind::Consumer => "consumer",
        }
    }
}

/// One group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    /// `group.id`.
    pub name: String,
    /// Kafka's word, for example `Stable`.
    pub state: String,
    /// Its protocol.
    pub kind: GroupKind,
    /// `consumer` for consumers; empty for a group that only has offsets.
    pub protocol_type: String,
    /// How partitions are shared out; empty while nobody is there.
    pub assignor: String,
    /// The broker that has the group.
    pub coordinator: Broker,
    /// Epoch of the group and of its assignment (KIP-848).
    pub epochs: Option<(i32, i32)>,
    /// In the broker's order.
    pub members: Vec<GroupMember>,
}

/// Epoch that KIP-848 gives a static member that is away and may come again.
const EPOCH_AWAY: i32 = -2;

/// Which member is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberName {
    /// A static one, by its `group.instance.id`, whether it is there or away.
    Instance(String),
    /// One without, by its id.
    Id(String),
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Given by the coordinator, or by itself (KIP-848).
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// As the broker sees it.
    pub host: String,
    /// KIP-848.
    pub epoch: Option<i32>,
    /// What it subscribes to by name.
    pub topics: Vec<String>,
    /// What it subscribes to by pattern (KIP-848).
    pub topic_regex: Option<String>,
    /// What it has.
    pub assignment: Vec<TopicPartition>,
    /// What it is to have once others have given it up (KIP-848).
    pub target: Option<Vec<TopicPartition>>,
}

impl GroupMember {
    /// By which name it is removed.
    #[must_use]
    pub fn name(&self) -> MemberName {
        match &self.instance_id {
            Some(instance) => MemberName::Instance(instance.clone()),
            None => MemberName::Id(self.member_id.clone()),
        }
    }

    /// Whether it is a static member that is not there, and whose place waits for it until its session ends.
    /// `None` in the classic protocol, which does not tell.
    #[must_use]
    pub fn is_away(&self) -> Option<bool> {
        self.epoch.map(|epoch| epoch == EPOCH_AWAY)
    }
}

impl Cluster {
    /// Removes members of a group, as if each had left (KIP-345). One that is there joins again by itself.
    ///
    /// # Errors
    /// See [`ClientError`]. What the coordinator says against one member stands at its place in the answer:
    /// UNKNOWN_MEMBER_ID when it is not there; brokers before 4.0 also say so of one that speaks the newer protocol and is
    /// not named by its instance.
    pub fn remove_members(
        &mut self,
        group: &str,
        members: &[MemberName],
    ) -> Result<Vec<Result<()>>> {
        let identity = |member: &MemberName| {
            let (member_id, group_instance_id) = match member {
                MemberName::Instance(instance) => (String::new(), Some(instance.clone())),
                MemberName::Id(id) => (id.clone(), None),
            };
            MemberIdentity {
                member_id,
                group_instance_id,
                reason: Some("removed by an operator".to_owned()),
            }
        };
        let request = LeaveGroupRequest {
            group_id: group.to_owned(),
            members: members.iter().map(identity).collect(),
            ..Default::default()
        };
        let what = || format!("remove members of group {group}");
        self.at_coordinator(group, |connection, _| {
            let answer = connection.call(&request)?;
            ClientError::check(answer.error_code, what, None)?;
            if answer.members.len() != members.len() {
                return Err(no_answer(&what()));
            }
            // In the order of the request.
            let codes = answer.members.iter().map(|row| row.error_code);
            Ok(codes
                .map(|code| ClientError::check(code, what, None))
                .collect())
        })
    }

    /// Groups of all brokers, by name.
    ///
    /// # Errors
    /// See [`ClientError`]; a broker that is too old for a filter can not be asked.
    pub fn list_groups(&mut self, filter: &GroupFilter) -> Result<Vec<ListedGroup>> {
        let request = ListGroupsRequest {
            states_filter: filter.states.clone(),
            types_filter: filter.kinds.clone(),
        };
        let mut groups = self.retry(|cluster| {
            let mut groups = Vec::new();
            cluster.refresh_brokers()?;
            for broker in cluster.brokers() {
                let answer = cluster.broker(broker.id)?.call(&request)?;
                let what = || format!("list the groups of broker {}", broker.id);
                ClientError::check(answer.error_code, what, None)?;
                groups.extend(answer.groups.into_iter().map(|g| ListedGroup {
                    name: g.group_id,
                    protocol_type: g.protocol_type,
                    state: g.group_state,
                    kind: g.group_type,
                }));
            }
            Ok(groups)
        })?;
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(groups)
    }

    /// State and members of one group.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with GROUP_ID_NOT_FOUND when there is none.
    pub fn describe_group(&mut self, name: &str) -> Result<DescribedGroup> {
        self.at_coordinator(name, |connection, coordinator| {
            match describe_consumer(connection, name, coordinator)? {
                Some(group) => Ok(group),
                None => describe_classic(connection, name, coordinator),
            }
        })
    }

    /// Deletes a group without members, and its offsets.
    ///
    /// # Errors
    /// [`ClientError::Refused`], with GROUP_ID_NOT_FOUND when there is none, with NON_EMPTY_GROUP when it
    /// has members.
    pub fn delete_group(&mut self, name: &str) -> Result<()> {
        let request = DeleteGroupsRequest {
            groups_names: vec![name.to_owned()],
        };
        let what = || format!("delete group {name}");
        self.at_coordinator(name, |connection, _| {
            let answer = connection.call(&request)?;
            let result = answer.results.first().ok_or_else(|| no_answer(&what()))?;
            ClientError::check(result.error_code, what, None)
        })
    }
}

/// `None` when the broker does not know the newer protocol, or the group is not of it.
fn describe_consumer(
    connection: &mut Connection,
    name: &str,
    coordinator: &Broker,
) -> Result<Option<DescribedGroup>> {
    let known = connection.api_table();
    if known.newest::<ConsumerGroupDescribeRequest>().is_none() {
        return Ok(None);
    }
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![name.to_owned()],
        include_authorized_operations: false,
    };
    let what = || format!("describe group {name}");
    let mut answer = connection.call(&request)?;
    let group = answer.groups.pop().ok_or_else(|| no_answer(&what()))?;
    match ErrorCode::from_code(group.error_code) {
        Some(ErrorCode::GroupIdNotFound | ErrorCode::UnsupportedVersion) => return Ok(None),
        Some(_) | None => {
            ClientError::check(group.error_code, what, group.error_message.as_deref())?;
        }
    }
    Ok(Some(DescribedGroup {
        name: group.group_id,
        state: group.group_state,
        kind: GroupKind::Consumer,
        protocol_type: "consumer".to_owned(),
        assignor: group.assignor_name,
        coordinator: coordinator.clone(),
        epochs: Some((group.group_epoch, group.assignment_epoch)),
        members: group.members.into_iter().map(consumer_member).collect(),
    }))
}

fn consumer_member(member: consumer::Member) -> GroupMember {
    let flat = |assignment: consumer::Assignment| -> Vec<TopicPartition> {
        let topics = assignment.topic_partitions.into_iter();
        topics
            .flat_map(|t| {
                t.partitions
                    .into_iter()
                    .map(move |p| (t.topic_name.clone(), p))
            })
            .collect()
    };
    GroupMember {
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        host: member.client_host,
        epoch: Some(member.member_epoch),
        topics: member.subscribed_topic_names,
        topic_regex: member
            .subscribed_topic_regex
            .filter(|text| !text.is_empty()),
        assignment: flat(member.assignment),
        target: Some(flat(member.target_assignment)),
    }
}

fn describe_classic(
    connection: &mut Connection,
    name: &str,
    coordinator: &Broker,
) -> Result<DescribedGroup> {
    let request = DescribeGroupsRequest {
        groups: vec![name.to_owned()],
        include_authorized_operations: false,
    };
    let what = || format!("describe group {name}");
    let mut answer = connection.call(&request)?;
    let group = answer.groups.pop().ok_or_else(|| no_answer(&what()))?;
    ClientError::check(group.error_code, what, group.error_message.as_deref())?;
    if group.group_state == DEAD {
        ClientError::check(ErrorCode::GroupIdNotFound as i16, what, None)?;
    }
    Ok(DescribedGroup {
        name: group.group_id,
        state: group.group_state,
        kind: GroupKind::Classic,
        protocol_type: group.protocol_type,
        assignor: group.protocol_data,
        coordinator: coordinator.clone(),
        epochs: None,
        members: group.members.into_iter().map(classic_member).collect(),
    })
}

/// Subscription and share are the members' own business: what can not be read is told as nothing.
fn classic_member(member: classic::DescribedGroupMember) -> GroupMember {
    GroupMember {
        member_id: member.member_id,
        instance_id: member.group_instance_id,
        client_id: member.client_id,
        host: member.client_host,
        epoch: None,
        topics: decode_subscription(&member.member_metadata)
            .unwrap_or_default()
            .topics,
        topic_regex: None,
        assignment: decode_assignment(&member.member_assignment).unwrap_or_default(),
        target: None,
    }
}

pub(crate) fn no_answer(what: &str) -> ClientError {
    ClientError::Invalid(format!("{what}: the broker's answer does not mention it"))
}
