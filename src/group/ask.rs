//! What goes in and what comes out.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_describe_response;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::describe_groups_response::DescribedGroup;
use thalweg_protocol::messages::leave_group_response::MemberResponse;
use thalweg_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use thalweg_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use thalweg_types::TimestampMs;

use crate::admin::{TYPE_CLASSIC, TYPE_CONSUMER};
use crate::consumer::ConsumerState;
use crate::group::{Shown, State};
use crate::page::{DescribedPage, ListedPage};
use crate::record::Record;

/// The moment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic clock in milliseconds from any start: timeouts go by it.
    pub ms: u64,
    /// Wall clock: what records say.
    pub wall: TimestampMs,
}

/// Names a request until it is answered. The shell chooses it; unique while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Names a write until it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `client_id` of the request header; empty without one.
    pub client_id: String,
    /// Address, as DescribeGroups shows it.
    pub client_host: String,
    /// Version of the request.
    pub version: i16,
}

/// Which groups ListGroups wants. Small, whatever the request names: each coordinator gets a copy and
/// holds it against each of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupQuery {
    wanted: Vec<Shown>,
}

impl GroupQuery {
    /// Names of states (KIP-518) and of types (KIP-848), in any case and with blanks around them; none of a kind asks for
    /// all.
    #[must_use]
    pub fn new(states: &[String], types: &[String]) -> GroupQuery {
        let named = |names: &[String], name: &str| {
            let is_name = |wanted: &String| wanted.trim().eq_ignore_ascii_case(name);
            names.is_empty() || names.iter().any(is_name)
        };
        let mut wanted = Vec::new();
        if named(types, TYPE_CLASSIC) {
            wanted.extend(State::ALL.map(Shown::Classic));
        }
        if named(types, TYPE_CONSUMER) {
            wanted.extend(ConsumerState::ALL.map(Shown::Consumer));
        }
        wanted.retain(|shown| named(states, shown.name()));
        GroupQuery { wanted }
    }

    pub(crate) fn wants(&self, shown: Shown) -> bool {
        self.wanted.contains(&shown)
    }
}

/// Which offsets a fetch is content with (KIP-447).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// What is committed now, although a transaction may be about to change it.
    Any,
    /// Only what no transaction on its way can change.
    Stable,
}

/// A partition, by the name of its topic and its index.
pub type PlaceName = (String, i32);

/// Offsets of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetsPage {
    /// What is told.
    pub group: OffsetFetchResponseGroup,
    /// Of a group whose offsets were all asked for: where there are more to ask for, the last one looked at.
    pub rest: Option<PlaceName>,
}

impl OffsetsPage {
    pub(crate) fn whole(group: OffsetFetchResponseGroup) -> OffsetsPage {
        OffsetsPage { group, rest: None }
    }
}

/// A request to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// JoinGroup.
    Join(JoinGroupRequest),
    /// SyncGroup.
    Sync(SyncGroupRequest),
    /// Heartbeat.
    Heartbeat(HeartbeatRequest),
    /// LeaveGroup, as versions 3 and later say it.
    Leave(LeaveGroupRequest),
    /// OffsetCommit for partitions that exist.
    Commit(OffsetCommitRequest),
    /// One group of OffsetFetch. Of a group whose offsets are all asked for, those behind the third; as many as
    /// one turn of the core may look up.
    FetchOffsets(OffsetFetchRequestGroup, Stability, Option<PlaceName>),
    /// OffsetDelete for partitions that exist.
    DeleteOffsets(OffsetDeleteRequest),
    /// ListGroups, behind the second in the order of names; as many as one turn of the core may look at.
    List(GroupQuery, Option<String>),
    /// One group of DescribeGroups, with the members behind the second in the order of ids; as many as one turn of
    /// the core may tell of.
    Describe(String, Option<String>),
    /// ConsumerGroupHeartbeat.
    ConsumerHeartbeat(ConsumerGroupHeartbeatRequest),
    /// One group of ConsumerGroupDescribe, as [`Ask::Describe`].
    ConsumerDescribe(String, Option<String>),
    /// One group of DeleteGroups.
    Delete(String),
}

macro_rules! answers {
    ($($(#[$doc:meta])* $variant:ident($body:ty),)*) => {
        /// What a client is told.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Answer {
            $($(#[$doc])* $variant($body),)*
        }

        $(impl From<$body> for Answer {
            fn from(body: $body) -> Answer {
                Answer::$variant(body)
            }
        }

        impl TryFrom<Answer> for $body {
            type Error = Answer;

            fn try_from(answer: Answer) -> Result<$body, Answer> {
                match answer {
                    Answer::$variant(body) => Ok(body),
                    another => Err(another),
                }
            }
        })*
    };
}

answers! {
    /// To [`Ask::Join`].
    Join(JoinGroupResponse),
    /// To [`Ask::Sync`].
    Sync(SyncGroupResponse),
    /// To [`Ask::Heartbeat`].
    Heartbeat(HeartbeatResponse),
    /// To [`Ask::Leave`].
    Leave(LeaveGroupResponse),
    /// To [`Ask::Commit`].
    Commit(OffsetCommitResponse),
    /// To [`Ask::FetchOffsets`].
    FetchOffsets(OffsetsPage),
    /// To [`Ask::DeleteOffsets`].
    DeleteOffsets(OffsetDeleteResponse),
    /// To [`Ask::List`].
    List(Result<ListedPage, ErrorCode>),
    /// To [`Ask::Describe`].
    Describe(DescribedPage<DescribedGroup>),
    /// To [`Ask::ConsumerHeartbeat`].
    ConsumerHeartbeat(ConsumerGroupHeartbeatResponse),
    /// To [`Ask::ConsumerDescribe`].
    ConsumerDescribe(DescribedPage<consumer_group_describe_response::DescribedGroup>),
    /// To [`Ask::Delete`].
    Delete(DeletableGroupResult),
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append these records as one batch, behind all earlier ones, and report the outcome once it is
    /// committed or failed.
    Write {
        /// For the report.
        id: WriteId,
        /// At least one. Shared with the coordinator, which needs them again when they are committed.
        records: Rc<Vec<Record>>,
    },
    /// Answer a request.
    Answer {
        /// Which.
        token: Token,
        /// With what.
        answer: Answer,
    },
}

impl Ask {
    /// The answer that refuses all of it with `code`.
    #[must_use]
    pub fn refused(&self, code: ErrorCode) -> Answer {
        let error_code = code.code();
        match self {
            Ask::Join(request) => refused_join(code, &request.member_id).into(),
            Ask::Sync(_) => refused_sync(code).into(),
            Ask::Heartbeat(_) => HeartbeatResponse {
                error_code,
                ..HeartbeatResponse::default()
            }
            .into(),
            Ask::Leave(_) => LeaveGroupResponse {
                error_code,
                ..LeaveGroupResponse::default()
            }
            .into(),
            Ask::Commit(request) => refused_commit(request, code).into(),
            Ask::FetchOffsets(group, ..) => OffsetsPage::whole(OffsetFetchResponseGroup {
                group_id: group.group_id.clone(),
                error_code,
                ..OffsetFetchResponseGroup::default()
            })
            .into(),
            Ask::DeleteOffsets(_) => OffsetDeleteResponse {
                error_code,
                ..OffsetDeleteResponse::default()
            }
            .into(),
            Ask::List(..) => Answer::List(Err(code)),
            Ask::Describe(group, _) => DescribedPage::whole(DescribedGroup {
                group_id: group.clone(),
                error_code,
                ..DescribedGroup::default()
            })
            .into(),
            Ask::ConsumerHeartbeat(_) => ConsumerGroupHeartbeatResponse {
                error_code,
                ..ConsumerGroupHeartbeatResponse::default()
            }
            .into(),
            Ask::ConsumerDescribe(group, _) => {
                DescribedPage::whole(consumer_group_describe_response::DescribedGroup {
                    group_id: group.clone(),
                    error_code,
                    ..consumer_group_describe_response::DescribedGroup::default()
                })
                .into()
            }
            Ask::Delete(group) => DeletableGroupResult {
                group_id: group.clone(),
                error_code,
            }
            .into(),
        }
    }
}

impl Answer {
    /// What is told instead when what was to be said could not be written.
    pub(crate) fn into_refusal(self, code: ErrorCode) -> Answer {
        let error_code = code.code();
        match self {
            Answer::Join(_) => refused_join(code, "").into(),
            Answer::Sync(_) => refused_sync(code).into(),
            Answer::Heartbeat(mut answer) => {
                answer.error_code = error_code;
                answer.into()
            }
            Answer::Leave(mut answer) => {
                answer.error_code = error_code;
                answer.members.clear();
                answer.into()
            }
            Answer::ConsumerHeartbeat(_) => ConsumerGroupHeartbeatResponse {
                error_code,
                ..ConsumerGroupHeartbeatResponse::default()
            }
            .into(),
            // These never wait for records of a group.
            Answer::Commit(_)
            | Answer::FetchOffsets(_)
            | Answer::DeleteOffsets(_)
            | Answer::List(_)
            | Answer::Describe(_)
            | Answer::ConsumerDescribe(_)
            | Answer::Delete(_) => self,
        }
    }
}

pub(crate) fn refused_join(code: ErrorCode, member_id: &str) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: code.code(),
        member_id: member_id.to_owned(),
        protocol_name: None,
        ..JoinGroupResponse::default()
    }
}

pub(crate) fn refused_sync(code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: code.code(),
        ..SyncGroupResponse::default()
    }
}

/// Every partition of the request with the same code.
pub(crate) fn refused_commit(
    request: &OffsetCommitRequest,
    code: ErrorCode,
) -> OffsetCommitResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: code.code(),
                })
                .collect(),
        });
    OffsetCommitResponse {
        topics: topics.collect(),
        ..OffsetCommitResponse::default()
    }
}

/// Every member of the request with the same code.
pub(crate) fn refused_members(request: &LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse {
    let members = request.members.iter().map(|member| MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code: code.code(),
    });
    LeaveGroupResponse {
        members: members.collect(),
        ..LeaveGroupResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::GroupQuery;
    use crate::consumer::ConsumerState;
    use crate::group::{Shown, State};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_query_is_small_whatever_it_names() {
        assert_eq!(GroupQuery::new(&[], &[]).wanted.len(), 9);
        let many = names(&["stable", "no state"].repeat(10_000));
        let query = GroupQuery::new(&many, &names(&["Classic", " consumer"]));
        let stable = [
            Shown::Classic(State::Stable),
            Shown::Consumer(ConsumerState::Stable),
        ];
        assert_eq!(query.wanted, stable);
        assert!(GroupQuery::new(&names(&["x"]), &[]).wanted.is_empty());
        assert!(GroupQuery::new(&[], &names(&["share"])).wanted.is_empty());
    }
}
