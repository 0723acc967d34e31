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
//! and loses and finds its coordinator at any point of it, without losing its place. A member whose
//! assignors are all cooperative goes from Stable to Join with what it has; if it has to give up some of it
//! when it takes its new share, it joins once more, so that others can have that (KIP-429).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};

use crate::assignor::{
    Assignor, Subscriber, TopicPartition, decode_assignment, decode_subscription,
    encode_assignment, encode_subscription,
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
    /// Offered to the group, the preferred first. Partitions are kept while joining only if all of them
    /// are cooperative.
    pub assignors: Vec<Assignor>,
}

impl GroupOptions {
    /// With the times and assignors that Kafka's Java client has by default.
    #[must_use]
    pub fn new(group_id: &str, topic: &str) -> GroupOptions {
        GroupOptions {
            group_id: group_id.to_owned(),
            topics: vec![topic.to_owned()],
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(60),
            commit_interval: Duration::from_secs(5),
            assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
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
    /// Read these partitions and no others; then [`Membership::on_taken`].
    Take(Vec<TopicPartition>),
    /// Then [`Membership::on_heartbeat`].
    Heartbeat,
    /// Read. Ask again before long: the next heartbeat comes.
    Consume,
    /// Stop reading; then [`Membership::on_given_back`].
    GiveBack(Loss),
}

/// Whether a new share left something out that the member had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has what it had, and maybe more.
    All,
    /// It gave something up: the group waits for it to say so.
    GaveUp,
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
    /// What the group has agreed on.
    assignor: Assignor,
    /// The last share, and in which generation that was.
    share: (Vec<TopicPartition>, i32),
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
            assignor: Assignor::Range,
            share: (Vec::new(), -1),
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

    /// # Errors
    /// [`ClientError::Invalid`] for names that the protocol has no room for.
    pub(crate) fn join_request(&self) -> Result<JoinGroupRequest> {
        let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        let topics = &self.options.topics;
        let (share, generation) = &self.share;
        let mut protocols = Vec::new();
        for assignor in &self.options.assignors {
            // What is eager has given up its share, whichever assignor is chosen in the end.
            let owned: &[TopicPartition] = match assignor.is_cooperative() && !self.is_cooperative()
            {
                true => &[],
                false => share,
            };
            protocols.push(JoinGroupRequestProtocol {
                name: assignor.name().to_owned(),
                metadata: encode_subscription(*assignor, topics, owned, *generation)?,
            });
        }
        Ok(JoinGroupRequest {
            group_id: self.options.group_id.clone(),
            session_timeout_ms: millis(self.options.session_timeout),
            rebalance_timeout_ms: millis(self.options.rebalance_timeout),
            member_id: self.member_id.clone(),
            protocol_type: CONSUMER.to_owned(),
            protocols,
            ..Default::default()
        })
    }

    /// Whether it keeps partitions while it joins.
    fn is_cooperative(&self) -> bool {
        self.options
            .assignors
            .iter()
            .all(|one| one.is_cooperative())
    }

    /// # Errors
    /// A refusal that joining again does not mend; an assignor that was not offered; members whose
    /// subscriptions can not be read.
    pub(crate) fn on_join(&mut self, answer: &JoinGroupResponse) -> Result<()> {
        if answer.error_code == ErrorCode::MemberIdRequired as i16 {
            self.member_id.clone_from(&answer.member_id);
            return Ok(());
        }
        if answer.error_code != 0 {
            return self.on_refusal("join", answer.error_code);
        }
        self.assignor = self.agreed(answer)?;
        self.member_id.clone_from(&answer.member_id);
        self.generation = answer.generation_id;
        if answer.leader != answer.member_id || answer.skip_assignment {
            self.stage = Stage::Joined(Vec::new());
            return Ok(());
        }
        let mut members = Vec::new();
        for member in &answer.members {
            let subscription = decode_subscription(&member.metadata).ok_or_else(|| {
                ClientError::Invalid(format!(
                    "group {}: the subscription of member {} can not be read",
                    self.options.group_id, member.member_id
                ))
            })?;
            let (id, instance) = (&member.member_id, member.group_instance_id.as_deref());
            members.push(Subscriber::new(id, instance, subscription, self.assignor));
        }
        self.stage = Stage::Leading(members);
        Ok(())
    }

    fn agreed(&self, answer: &JoinGroupResponse) -> Result<Assignor> {
        let name = answer.protocol_name.as_deref().unwrap_or_default();
        let agreed = Assignor::by_name(name);
        agreed
            .filter(|one| self.options.assignors.contains(one))
            .ok_or_else(|| {
                let group = &self.options.group_id;
                ClientError::Invalid(format!(
                    "group {group} uses the assignor `{name}`, which was not offered"
                ))
            })
    }

    /// Partitions by topic; a topic that does not exist is left out.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for names that the protocol has no room for.
    pub(crate) fn on_partitions(&mut self, partitions: &BTreeMap<String, i32>) -> Result<()> {
        if let Stage::Leading(members) = &self.stage {
            let mut assignments = Vec::new();
            for (member_id, share) in self.assignor.share_out(members, partitions) {
                assignments.push(SyncGroupRequestAssignment {
                    member_id,
                    assignment: encode_assignment(&share)?,
                });
            }
            self.stage = Stage::Joined(assignments);
        }
        Ok(())
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
            protocol_name: Some(self.assignor.name().to_owned()),
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
        self.share = (partitions.clone(), self.generation);
        self.stage = Stage::Assigned(partitions);
        self.heartbeat_due = now + self.options.heartbeat_interval;
        Ok(())
    }

    pub(crate) fn on_taken(&mut self, taken: Taken) {
        if matches!(self.stage, Stage::Assigned(_)) {
            self.stage = match taken {
                Taken::All => Stage::Stable,
                Taken::GaveUp => Stage::Outside,
            };
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

    /// Joins again; gives back first what was taken, unless it may be kept.
    fn go_back(&mut self, loss: Loss) {
        if loss == Loss::Fenced {
            self.share = (Vec::new(), -1);
        }
        let keeps = self.is_cooperative() && loss == Loss::Orderly;
        self.stage = match &self.stage {
            Stage::Stable if keeps => Stage::Outside,
            Stage::Stable => Stage::Leaving(loss),
            // The commit on the way out was refused: there is no second.
            Stage::Leaving(_) => Stage::Leaving(Loss::Fenced),
            // Whoever keeps partitions has some in any of these, and may lose them there.
            Stage::Outside | Stage::Leading(_) | Stage::Joined(_) | Stage::Assigned(_)
                if self.is_cooperative() && loss == Loss::Fenced =>
            {
                Stage::Leaving(loss)
            }
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
