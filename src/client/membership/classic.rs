//! One member of a classic consumer group, as a machine: what it does next, and what answers make of it.
//!
//! A member goes round
//!
//! ```text
//! Outside --Join--> Leading --LookAt--> Joined --Sync--> Assigned --Take--> Stable
//!    ^  (followers skip Leading)                                         |  Heartbeat,
//!    +----------------------------- GiveBack <---------------------------+  Consume
//! ```
//!
//! and loses and finds its coordinator at any point of it, without losing its place. A member whose
//! assignors are all cooperative goes from Stable to Join with what it has; if it has to give up some of it
//! when it takes its new share, it joins once more, so that others can have that (KIP-429).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

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
use crate::membership::{
    Action, Answer, Farewell, FoundTopics, GroupOptions, Loss, Membership, Mended, Question, Seat,
    Taken, millis,
};

/// The protocol type of every Kafka consumer.
const CONSUMER: &str = "consumer";

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
pub(crate) struct Classic {
    seat: Seat,
    /// Offered, the preferred first.
    assignors: Vec<Assignor>,
    stage: Stage,
    generation: i32,
    heartbeat_due: Instant,
    /// What the group has agreed on.
    assignor: Assignor,
    /// The last share, and in which generation that was.
    share: (Vec<TopicPartition>, i32),
}

impl Classic {
    pub(crate) fn new(options: GroupOptions, assignors: Vec<Assignor>, now: Instant) -> Classic {
        Classic {
            // Empty until the coordinator gave one (KIP-394).
            seat: Seat::new(options, String::new()),
            assignors,
            stage: Stage::Outside,
            generation: -1,
            heartbeat_due: now,
            assignor: Assignor::Range,
            share: (Vec::new(), -1),
        }
    }

    /// # Errors
    /// [`ClientError::Invalid`] for names that the protocol has no room for.
    pub(crate) fn join_request(&self) -> Result<JoinGroupRequest> {
        let topics = &self.seat.options.topics;
        let (share, generation) = &self.share;
        let mut protocols = Vec::new();
        for assignor in &self.assignors {
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
            group_id: self.seat.options.group_id.clone(),
            session_timeout_ms: millis(self.seat.options.session_timeout),
            rebalance_timeout_ms: millis(self.seat.options.rebalance_timeout),
            member_id: self.seat.member_id.clone(),
            group_instance_id: self.seat.options.instance_id.clone(),
            protocol_type: CONSUMER.to_owned(),
            protocols,
            ..Default::default()
        })
    }

    /// Whether it keeps partitions while it joins.
    fn is_cooperative(&self) -> bool {
        self.assignors.iter().all(|one| one.is_cooperative())
    }

    /// # Errors
    /// A refusal that joining again does not mend; an assignor that was not offered; members whose
    /// subscriptions can not be read.
    pub(crate) fn on_join(&mut self, answer: &JoinGroupResponse) -> Result<()> {
        if answer.error_code == ErrorCode::MemberIdRequired as i16 {
            self.seat.member_id.clone_from(&answer.member_id);
            return Ok(());
        }
        if answer.error_code != 0 {
            return self.on_refusal("join", answer.error_code);
        }
        self.assignor = self.agreed(answer)?;
        self.seat.member_id.clone_from(&answer.member_id);
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
                    self.seat.options.group_id, member.member_id
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
            .filter(|one| self.assignors.contains(one))
            .ok_or_else(|| {
                let group = &self.seat.options.group_id;
                ClientError::Invalid(format!(
                    "group {group} uses the assignor `{name}`, which was not offered"
                ))
            })
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
            group_id: self.seat.options.group_id.clone(),
            generation_id: self.generation,
            member_id: self.seat.member_id.clone(),
            group_instance_id: self.seat.options.instance_id.clone(),
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: Some(self.assignor.name().to_owned()),
            assignments,
        }
    }

    /// # Errors
    /// A refusal that joining again does not mend; an assignment that can not be read.
    pub(crate) fn on_sync(&mut self, now: Instant, answer: &SyncGroupResponse) -> Result<()> {
        if answer.error_code != 0 {
            return self.on_refusal("sync", answer.error_code);
        }
        let partitions = decode_assignment(&answer.assignment).ok_or_else(|| {
            let group = &self.seat.options.group_id;
            ClientError::Invalid(format!("group {group}: the assignment can not be read"))
        })?;
        self.share = (partitions.clone(), self.generation);
        self.stage = Stage::Assigned(partitions);
        self.heartbeat_due = now + self.seat.options.heartbeat_interval;
        Ok(())
    }

    pub(crate) fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.seat.options.group_id.clone(),
            generation_id: self.generation,
            member_id: self.seat.member_id.clone(),
            group_instance_id: self.seat.options.instance_id.clone(),
        }
    }

    /// # Errors
    /// A refusal that joining again does not mend.
    pub(crate) fn on_heartbeat(&mut self, now: Instant, code: i16) -> Result<()> {
        self.heartbeat_due = now + self.seat.options.heartbeat_interval;
        if code == 0 {
            return Ok(());
        }
        self.on_refusal("heartbeat", code)
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

impl Membership for Classic {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn seat_mut(&mut self) -> &mut Seat {
        &mut self.seat
    }

    fn identity(&self) -> (&str, i32) {
        (&self.seat.member_id, self.generation)
    }

    fn next(&self, now: Instant) -> Action {
        match &self.stage {
            // Both need no coordinator, or do their best without.
            Stage::Leaving(loss) => Action::GiveBack(*loss),
            Stage::Leading(members) => Action::LookAt(topics_of(members)),
            Stage::Outside | Stage::Joined(_) | Stage::Assigned(_) | Stage::Stable
                if !self.seat.has_coordinator =>
            {
                Action::FindCoordinator
            }
            Stage::Outside | Stage::Joined(_) => Action::Ask,
            Stage::Assigned(partitions) => Action::Take(partitions.clone()),
            Stage::Stable if now >= self.heartbeat_due => Action::Ask,
            Stage::Stable => Action::Consume,
        }
    }

    fn question(&self) -> Result<Question> {
        Ok(match &self.stage {
            Stage::Outside => Question::Join(self.join_request()?),
            Stage::Joined(_) => Question::Sync(self.sync_request()),
            Stage::Leading(_) | Stage::Assigned(_) | Stage::Stable | Stage::Leaving(_) => {
                Question::Heartbeat(self.heartbeat_request())
            }
        })
    }

    fn on_answer(&mut self, now: Instant, answer: &Answer) -> Result<()> {
        match answer {
            Answer::Join(answer) => self.on_join(answer),
            Answer::Sync(answer) => self.on_sync(now, answer),
            Answer::Heartbeat(answer) => self.on_heartbeat(now, answer.error_code),
            Answer::Newer(_) => Ok(()), // never asked
        }
    }

    fn on_topics(&mut self, topics: &FoundTopics) -> Result<()> {
        if let Stage::Leading(members) = &self.stage {
            let counts = topics
                .iter()
                .map(|(name, (_, count))| (name.clone(), *count));
            let counts: BTreeMap<String, i32> = counts.collect();
            let mut assignments = Vec::new();
            for (member_id, share) in self.assignor.share_out(members, &counts) {
                assignments.push(SyncGroupRequestAssignment {
                    member_id,
                    assignment: encode_assignment(&share)?,
                });
            }
            self.stage = Stage::Joined(assignments);
        }
        Ok(())
    }

    fn on_taken(&mut self, taken: Taken) {
        if matches!(self.stage, Stage::Assigned(_)) {
            self.stage = match taken {
                Taken::All => Stage::Stable,
                Taken::GaveUp => Stage::Outside,
            };
        }
    }

    fn on_given_back(&mut self) {
        self.stage = Stage::Outside;
    }

    fn mend(&mut self, refusal: ErrorCode) -> Mended {
        match refusal {
            ErrorCode::RebalanceInProgress => self.go_back(Loss::Orderly),
            ErrorCode::IllegalGeneration => {
                self.generation = -1;
                self.go_back(Loss::Fenced);
            }
            ErrorCode::UnknownMemberId => {
                self.generation = -1;
                self.seat.member_id.clear();
                self.go_back(Loss::Fenced);
            }
            _other => return Mended::No,
        }
        Mended::Yes
    }

    /// A static member goes without a word: it may be back before its session ends.
    fn farewell(&self) -> Farewell {
        match self.seat.member_id.is_empty() || self.seat.options.instance_id.is_some() {
            true => Farewell::None,
            false => Farewell::Leave,
        }
    }
}

fn topics_of(members: &[Subscriber]) -> Vec<String> {
    let mut topics: Vec<String> = members.iter().flat_map(|m| m.topics.clone()).collect();
    topics.sort();
    topics.dedup();
    topics
}
