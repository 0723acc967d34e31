//! One member of a classic consumer group, as a machine: what it does next, and what answers make of it.
//!
//! It does no I/O and reads no clock: [`Membership::next`] says what to do at a moment, the shell
//! ([`crate::GroupConsumer`]) does it and reports by one of the `on_` methods. A member goes round
//!
//! ```text
//! Outside --Join--> Leading --CountPartitions--> Joined --Sync--> Assigned --Take--> Stable
//!    ^  (followers skip Leading)                                                  |  Heartbeat,
//!    +----------------------------- GiveBack <------------------------------------+  Consume
//! ```
//!
//! and loses and finds its coordinator at any point of it, without losing its place.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};

use crate::assignor::{
    RANGE, Subscriber, TopicPartition, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription, range,
};
use crate::error::{ClientError, Result};

/// The protocol type of every Kafka consumer.
const CONSUMER: &str = "consumer";

/// As which member of which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// `group.id`.
    pub group_id: String,
    /// Topics to read.
    pub topics: Vec<String>,
    /// Silence after which the coordinator takes the partitions away.
    pub session_timeout: Duration,
    /// Time between two signs of life.
    pub heartbeat_interval: Duration,
    /// How long the group waits for this member when it shares out anew.
    pub rebalance_timeout: Duration,
    /// Time between two commits.
    pub commit_interval: Duration,
}

impl GroupOptions {
    /// With the times that Kafka's clients have by default.
    #[must_use]
    pub fn new(group_id: &str, topic: &str) -> GroupOptions {
        GroupOptions {
            group_id: group_id.to_owned(),
            topics: vec![topic.to_owned()],
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(60),
            commit_interval: Duration::from_secs(5),
        }
    }
}

/// What to do with partitions that are to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// They are still ours: commit first.
    Orderly,
    /// Somebody else may have them already.
    Fenced,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Then [`Membership::on_coordinator_found`].
    FindCoordinator,
    /// Then [`Membership::on_join`].
    Join,
    /// Ask how many partitions these topics have; then [`Membership::on_partitions`].
    CountPartitions(Vec<String>),
    /// Then [`Membership::on_sync`].
    Sync,
    /// Begin to read these partitions; then [`Membership::on_taken`].
    Take(Vec<TopicPartition>),
    /// Then [`Membership::on_heartbeat`].
    Heartbeat,
    /// Read. Ask again before long: the next heartbeat comes.
    Consume,
    /// Stop reading; then [`Membership::on_given_back`].
    GiveBack(Loss),
}

#[derive(Debug)]
enum Stage {
    Outside,
    Leading(Vec<Subscriber>),
    Joined(Vec<SyncGroupRequestAssignment>),
    Assigned(Vec<TopicPartition>),
    Stable,
    Leaving(Loss),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Membership {
    options: GroupOptions,
    stage: Stage,
    has_coordinator: bool,
    /// Empty until the coordinator gave one (KIP-394).
    member_id: String,
    generation: i32,
    heartbeat_due: Instant,
}

impl Membership {
    pub(crate) fn new(options: GroupOptions, now: Instant) -> Membership {
        Membership {
            options,
            stage: Stage::Outside,
            has_coordinator: false,
            member_id: String::new(),
            generation: -1,
            heartbeat_due: now,
        }
    }

    pub(crate) fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// The id and generation to sign commits with.
    pub(crate) fn identity(&self) -> (&str, i32) {
        (&self.member_id, self.generation)
    }

    /// Whether the coordinator counts on this member.
    pub(crate) fn is_in_group(&self) -> bool {
        !self.member_id.is_empty()
    }

    pub(crate) fn next(&self, now: Instant) -> Action {
        match &self.stage {
            // Both need no coordinator, or do their best without.
            Stage::Leaving(loss) => Action::GiveBack(*loss),
            Stage::Leading(members) => Action::CountPartitions(topics_of(members)),
            Stage::Outside | Stage::Joined(_) | Stage::Assigned(_) | Stage::Stable
                if !self.has_coordinator =>
            {
                Action::FindCoordinator
            }
            Stage::Outside => Action::Join,
            Stage::Joined(_) => Action::Sync,
            Stage::Assigned(partitions) => Action::Take(partitions.clone()),
            Stage::Stable if now >= self.heartbeat_due => Action::Heartbeat,
            Stage::Stable => Action::Consume,
        }
    }

    pub(crate) fn on_coordinator_found(&mut self) {
        self.has_coordinator = true;
    }

    /// Nobody answers there, or another broker has the group now.
    pub(crate) fn on_coordinator_lost(&mut self) {
        self.has_coordinator = false;
    }

    pub(crate) fn join_request(&self) -> JoinGroupRequest {
        let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        JoinGroupRequest {
            group_id: self.options.group_id.clone(),
            session_timeout_ms: millis(self.options.session_timeout),
            rebalance_timeout_ms: millis(self.options.rebalance_timeout),
            member_id: self.member_id.clone(),
            protocol_type: CONSUMER.to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: RANGE.to_owned(),
                metadata: encode_subscription(&self.options.topics),
            }],
            ..Default::default()
        }
    }

    /// # Errors
    /// A refusal that joining again does not mend; members whose subscriptions can not be read.
    pub(crate) fn on_join(&mut self, answer: &JoinGroupResponse) -> Result<()> {
        if answer.error_code == ErrorCode::MemberIdRequired as i16 {
            self.member_id.clone_from(&answer.member_id);
            return Ok(());
        }
        if answer.error_code != 0 {
            return self.on_refusal("join", answer.error_code);
        }
        self.member_id.clone_from(&answer.member_id);
        self.generation = answer.generation_id;
        if answer.leader != answer.member_id || answer.skip_assignment {
            self.stage = Stage::Joined(Vec::new());
            return Ok(());
        }
        let mut members = Vec::new();
        for member in &answer.members {
            let topics = decode_subscription(&member.metadata).ok_or_else(|| {
                ClientError::Invalid(format!(
                    "group {}: the subscription of member {} can not be read",
                    self.options.group_id, member.member_id
                ))
            })?;
            members.push(Subscriber {
                member_id: member.member_id.clone(),
                topics,
            });
        }
        self.stage = Stage::Leading(members);
        Ok(())
    }

    /// Partitions by topic; a topic that does not exist is left out.
    pub(crate) fn on_partitions(&mut self, partitions: &BTreeMap<String, i32>) {
        if let Stage::Leading(members) = &self.stage {
            let shares = range(members, partitions);
            let of =
                |(member_id, share): (String, Vec<TopicPartition>)| SyncGroupRequestAssignment {
                    member_id,
                    assignment: encode_assignment(&share),
                };
            self.stage = Stage::Joined(shares.into_iter().map(of).collect());
        }
    }

    pub(crate) fn sync_request(&self) -> SyncGroupRequest {
        let assignments = match &self.stage {
            Stage::Joined(assignments) => assignments.clone(),
            Stage::Outside
            | Stage::Leading(_)
            | Stage::Assigned(_)
            | Stage::Stable
            | Stage::Leaving(_) => Vec::new(),
        };
        SyncGroupRequest {
            group_id: self.options.group_id.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: Some(RANGE.to_owned()),
            assignments,
            ..Default::default()
        }
    }

    /// # Errors
    /// A refusal that joining again does not mend; an assignment that can not be read.
    pub(crate) fn on_sync(&mut self, now: Instant, answer: &SyncGroupResponse) -> Result<()> {
        if answer.error_code != 0 {
            return self.on_refusal("sync", answer.error_code);
        }
        let partitions = decode_assignment(&answer.assignment).ok_or_else(|| {
            let group = &self.options.group_id;
            ClientError::Invalid(format!("group {group}: the assignment can not be read"))
        })?;
        self.stage = Stage::Assigned(partitions);
        self.heartbeat_due = now + self.options.heartbeat_interval;
        Ok(())
    }

    pub(crate) fn on_taken(&mut self) {
        if matches!(self.stage, Stage::Assigned(_)) {
            self.stage = Stage::Stable;
        }
    }

    pub(crate) fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.options.group_id.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            ..Default::default()
        }
    }

    /// # Errors
    /// A refusal that joining again does not mend.
    pub(crate) fn on_heartbeat(&mut self, now: Instant, code: i16) -> Result<()> {
        self.heartbeat_due = now + self.options.heartbeat_interval;
        if code == 0 {
            return Ok(());
        }
        self.on_refusal("heartbeat", code)
    }

    pub(crate) fn on_given_back(&mut self) {
        self.stage = Stage::Outside;
    }

    /// What a refusal of the coordinator means, whatever was asked.
    ///
    /// # Errors
    /// It means that going on is of no use; or that the same may work a little later
    /// ([`crate::Advice::Retry`]).
    pub(crate) fn on_refusal(&mut self, what: &str, code: i16) -> Result<()> {
        let group = &self.options.group_id;
        let error = ClientError::check(code, || format!("{what} group {group}"), None);
        match ErrorCode::from_code(code) {
            Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) => {
                self.on_coordinator_lost();
                error // after a pause: it may be on its way elsewhere
            }
            Some(ErrorCode::RebalanceInProgress) => {
                self.go_back(Loss::Orderly);
                Ok(())
            }
            Some(ErrorCode::IllegalGeneration) => {
                self.generation = -1;
                self.go_back(Loss::Fenced);
                Ok(())
            }
            Some(ErrorCode::UnknownMemberId) => {
                self.generation = -1;
                self.member_id.clear();
                self.go_back(Loss::Fenced);
                Ok(())
            }
            Some(_) | None => error,
        }
    }

    /// Joins again; gives back first what was taken.
    fn go_back(&mut self, loss: Loss) {
        self.stage = match &self.stage {
            Stage::Stable => Stage::Leaving(loss),
            // The commit on the way out was refused: there is no second.
            Stage::Leaving(_) => Stage::Leaving(Loss::Fenced),
            Stage::Outside | Stage::Leading(_) | Stage::Joined(_) | Stage::Assigned(_) => {
                Stage::Outside
            }
        };
    }
}

fn topics_of(members: &[Subscriber]) -> Vec<String> {
    let mut topics: Vec<String> = members.iter().flat_map(|m| m.topics.clone()).collect();
    topics.sort();
    topics.dedup();
    topics
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use thalweg_protocol::ErrorCode;
    use thalweg_protocol::messages::join_group_response::JoinGroupResponseMember;
    use thalweg_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

    use super::{Action, GroupOptions, Loss, Membership};
    use crate::assignor::{encode_assignment, encode_subscription};

    fn joined(leader: &str, members: &[&str]) -> JoinGroupResponse {
        let member = |id: &&str| JoinGroupResponseMember {
            member_id: (*id).to_owned(),
            metadata: encode_subscription(&["t".to_owned()]),
            ..Default::default()
        };
        JoinGroupResponse {
            generation_id: 7,
            leader: leader.to_owned(),
            member_id: "me".to_owned(),
            members: members.iter().map(member).collect(),
            ..Default::default()
        }
    }

    fn refused(code: ErrorCode) -> JoinGroupResponse {
        JoinGroupResponse {
            error_code: code as i16,
            member_id: "me".to_owned(),
            ..Default::default()
        }
    }

    fn share() -> Vec<(String, i32)> {
        vec![("t".to_owned(), 1)]
    }

    /// A member that reads `t-1`, and the moment of its last answer.
    fn stable() -> (Membership, Instant) {
        let now = Instant::now();
        let mut me = Membership::new(GroupOptions::new("g", "t"), now);
        me.on_coordinator_found();
        me.on_join(&joined("other", &[])).unwrap();
        let assignment = encode_assignment(&share());
        let answer = SyncGroupResponse {
            assignment,
            ..Default::default()
        };
        assert_eq!(me.next(now), Action::Sync);
        assert!(me.sync_request().assignments.is_empty(), "no leader");
        me.on_sync(now, &answer).unwrap();
        assert_eq!(me.next(now), Action::Take(share()));
        me.on_taken();
        assert_eq!(me.next(now), Action::Consume);
        (me, now)
    }

    #[test]
    fn a_leader_finds_joins_shares_out_and_syncs() {
        let now = Instant::now();
        let mut me = Membership::new(GroupOptions::new("g", "t"), now);
        assert_eq!(me.next(now), Action::FindCoordinator);
        me.on_coordinator_found();
        assert_eq!(me.next(now), Action::Join);
        assert_eq!(me.join_request().member_id, "");
        me.on_join(&refused(ErrorCode::MemberIdRequired)).unwrap();
        assert_eq!(me.next(now), Action::Join);
        assert_eq!(me.join_request().member_id, "me");
        me.on_join(&joined("me", &["me", "other"])).unwrap();
        let count = Action::CountPartitions(vec!["t".to_owned()]);
        assert_eq!(me.next(now), count);
        me.on_partitions(&BTreeMap::from([("t".to_owned(), 2)]));
        assert_eq!(me.next(now), Action::Sync);
        let request = me.sync_request();
        assert_eq!((request.generation_id, request.assignments.len()), (7, 2));
        assert_eq!(
            request.assignments[1].assignment,
            encode_assignment(&share())
        );
    }

    #[test]
    fn heartbeats_come_when_they_are_due() {
        let (mut me, now) = stable();
        let due = now + Duration::from_secs(3);
        assert_eq!(me.next(due), Action::Heartbeat);
        me.on_heartbeat(due, 0).unwrap();
        assert_eq!(me.next(due), Action::Consume);
    }

    #[test]
    fn a_rebalance_gives_back_with_a_commit_and_keeps_the_id() {
        let (mut me, now) = stable();
        let code = ErrorCode::RebalanceInProgress as i16;
        me.on_heartbeat(now, code).unwrap();
        assert_eq!(me.next(now), Action::GiveBack(Loss::Orderly));
        assert_eq!(me.identity(), ("me", 7), "the commit is signed as before");
        me.on_given_back();
        assert_eq!(me.next(now), Action::Join);
        assert_eq!(me.join_request().member_id, "me");
    }

    #[test]
    fn a_fenced_member_commits_nothing() {
        let (mut me, now) = stable();
        me.on_heartbeat(now, ErrorCode::IllegalGeneration as i16)
            .unwrap();
        assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
        assert_eq!(me.identity(), ("me", -1));

        let (mut me, now) = stable();
        me.on_heartbeat(now, ErrorCode::UnknownMemberId as i16)
            .unwrap();
        assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
        me.on_given_back();
        assert_eq!(me.join_request().member_id, "", "as a new member");
        assert!(!me.is_in_group());
    }

    #[test]
    fn a_commit_refused_on_the_way_out_is_not_tried_for_ever() {
        let (mut me, now) = stable();
        let code = ErrorCode::RebalanceInProgress as i16;
        me.on_heartbeat(now, code).unwrap();
        me.on_refusal("commit", code).unwrap();
        assert_eq!(me.next(now), Action::GiveBack(Loss::Fenced));
    }

    #[test]
    fn a_lost_coordinator_is_found_again_and_the_place_kept() {
        let (mut me, now) = stable();
        let moved = me.on_heartbeat(now, ErrorCode::NotCoordinator as i16);
        assert!(moved.is_err(), "a pause is due");
        assert_eq!(me.next(now), Action::FindCoordinator);
        me.on_coordinator_found();
        assert_eq!(me.next(now), Action::Consume);
        assert_eq!(me.identity(), ("me", 7));
    }

    #[test]
    fn refusals_that_nothing_mends_are_errors() {
        let now = Instant::now();
        let mut me = Membership::new(GroupOptions::new("g", "t"), now);
        me.on_coordinator_found();
        let error = me.on_join(&refused(ErrorCode::InconsistentGroupProtocol));
        let told = error.unwrap_err().to_string();
        assert_eq!(told, "join group g: INCONSISTENT_GROUP_PROTOCOL");
        let mut damaged = joined("me", &["me"]);
        damaged.members[0].metadata = bytes::Bytes::from_static(b"\0");
        assert!(me.on_join(&damaged).is_err());
    }
}
