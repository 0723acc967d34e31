//! One member of a consumer group, as a machine: what it does next, and what answers make of it.
//!
//! It does no I/O and reads no clock: [`Membership::next`] says what to do at a moment, the shell
//! ([`crate::GroupConsumer`]) does it and reports by one of the `on_` methods. There are two machines:
//! `classic` for the protocol in which members share out among themselves, `newer` for the one in which the
//! coordinator does (KIP-848).

mod classic;
mod newer;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use thalweg_types::Uuid;

use crate::assignor::{Assignor, TopicPartition};
use crate::error::{ClientError, Result};
use classic::Classic;
use newer::Newer;

/// As which member of which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// `group.id`.
    pub group_id: String,
    /// Topics to read.
    pub topics: Vec<String>,
    /// Silence after which the coordinator takes the partitions away. Of the classic protocol only.
    pub session_timeout: Duration,
    /// Time between two signs of life. Of the classic protocol only.
    pub heartbeat_interval: Duration,
    /// How long the group waits for this member when it shares out anew.
    pub rebalance_timeout: Duration,
    /// Time between two commits.
    pub commit_interval: Duration,
    /// Who shares out.
    pub protocol: GroupProtocol,
    /// `group.instance.id`: a member that comes back under it within its session gets its old share.
    pub instance_id: Option<String>,
}

/// How members agree on their shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// One member does it for all.
    Classic {
        /// Offered to the group, the preferred first. Partitions are kept while joining only if all of
        /// them are cooperative.
        assignors: Vec<Assignor>,
    },
    /// The coordinator does it (KIP-848), and sets the session and the heartbeats.
    Consumer {
        /// Which of the coordinator's assignors to ask for; its own choice if none.
        remote_assignor: Option<String>,
    },
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
            protocol: GroupProtocol::Classic {
                assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
            },
            instance_id: None,
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
    /// Send [`Membership::question`] to the coordinator; then [`Membership::on_answer`].
    Ask,
    /// Ask the brokers about these topics; then [`Membership::on_topics`].
    LookAt(Vec<String>),
    /// Read these partitions and no others; then [`Membership::on_taken`].
    Take(Vec<TopicPartition>),
    /// Read. Ask again before long: the next heartbeat comes.
    Consume,
    /// Stop reading; then [`Membership::on_given_back`].
    GiveBack(Loss),
}

/// What a member sends to its coordinator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Question {
    /// The answer may take as long as the slowest member.
    Join(JoinGroupRequest),
    /// The answer may take as long as the leader.
    Sync(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    Newer(ConsumerGroupHeartbeatRequest),
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    Newer(ConsumerGroupHeartbeatResponse),
}

/// How a member leaves for good.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Farewell {
    /// Without a word.
    None,
    /// By LeaveGroup.
    Leave,
    /// By a last heartbeat.
    Newer(ConsumerGroupHeartbeatRequest),
}

/// Id and number of partitions of the topics that there are, by name.
pub(crate) type FoundTopics = BTreeMap<String, (Uuid, i32)>;

/// Whether a new share left something out that the member had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has what it had, and maybe more.
    All,
    /// It gave something up: the group waits for it to say so.
    GaveUp,
}

/// What a member of either protocol is.
#[derive(Debug)]
pub(crate) struct Seat {
    options: GroupOptions,
    member_id: String,
    has_coordinator: bool,
}

impl Seat {
    fn new(options: GroupOptions, member_id: String) -> Seat {
        Seat {
            options,
            member_id,
            has_coordinator: false,
        }
    }
}

/// Whether a member goes another way after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mended {
    Yes,
    /// There is none that it knows.
    No,
}

/// See the module's documentation.
pub(crate) trait Membership: Debug {
    fn seat(&self) -> &Seat;

    fn seat_mut(&mut self) -> &mut Seat;

    fn options(&self) -> &GroupOptions {
        &self.seat().options
    }

    /// The id, and the generation or epoch, to sign commits with.
    fn identity(&self) -> (&str, i32);

    fn next(&self, now: Instant) -> Action;

    fn on_coordinator_found(&mut self) {
        self.seat_mut().has_coordinator = true;
    }

    /// Nobody answers there, or another broker has the group now.
    fn on_coordinator_lost(&mut self) {
        self.seat_mut().has_coordinator = false;
    }

    /// What to send to the coordinator after [`Action::Ask`].
    ///
    /// # Errors
    /// [`crate::ClientError::Invalid`] for names that the protocol has no room for.
    fn question(&self) -> Result<Question>;

    /// # Errors
    /// A refusal that joining again does not mend; what can not be read; an assignor that was not offered.
    fn on_answer(&mut self, now: Instant, answer: &Answer) -> Result<()>;

    /// Topics that do not exist are left out.
    ///
    /// # Errors
    /// [`crate::ClientError::Invalid`] for names that the protocol has no room for.
    fn on_topics(&mut self, topics: &FoundTopics) -> Result<()>;

    fn on_taken(&mut self, taken: Taken);

    fn on_given_back(&mut self);

    /// What a refusal of the coordinator means, whatever was asked.
    ///
    /// # Errors
    /// It means that going on is of no use; or that the same may work a little later
    /// ([`crate::Advice::Retry`]).
    fn on_refusal(&mut self, what: &str, code: i16) -> Result<()> {
        let group = &self.options().group_id;
        let error = ClientError::check(code, || format!("{what} group {group}"), None);
        match ErrorCode::from_code(code) {
            Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) => {
                self.on_coordinator_lost();
                error // after a pause: it may be on its way elsewhere
            }
            Some(code) if self.mend(code) == Mended::Yes => Ok(()),
            Some(_) | None => error,
        }
    }

    /// Goes another way after a refusal of this protocol's own.
    fn mend(&mut self, refusal: ErrorCode) -> Mended;

    fn farewell(&self) -> Farewell;
}

/// The machine that `options` asks for, of a member that has not joined. `id` is the id of a member that
/// makes its own.
pub(crate) fn begin(options: GroupOptions, id: Uuid, now: Instant) -> Box<dyn Membership> {
    match &options.protocol {
        GroupProtocol::Classic { assignors } => {
            let assignors = assignors.clone();
            Box::new(Classic::new(options, assignors, now))
        }
        GroupProtocol::Consumer { remote_assignor } => {
            let assignor = remote_assignor.clone();
            Box::new(Newer::new(options, assignor, id, now))
        }
    }
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
