//! One member of a group of the newer protocol.

use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_types::TopicId;

use super::partitions::Partitions;
use super::since::Since;
use super::subscribers::Names;

/// Bytes that a member takes beside its texts and partitions.
const MEMBER_BYTES: usize = 512;

/// Bytes that a name takes beside its text.
const NAME_BYTES: usize = 24;

/// Epoch of a member that is not in yet.
pub(crate) const EPOCH_JOINING: i32 = 0;
/// Epoch that says a member leaves.
pub(crate) const EPOCH_LEAVING: i32 = -1;
/// Epoch that says a static member is away and may come again.
pub(crate) const EPOCH_AWAY: i32 = -2;

/// Where a member stands between what it has and what it is to have. The numbers are Kafka's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has all that it is to have in its epoch.
    Stable,
    /// It has yet to give partitions up.
    Unrevoked,
    /// It waits for partitions that others have yet to give up.
    Unreleased,
}

impl MemberState {
    pub(crate) fn code(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::Unrevoked => 1,
            MemberState::Unreleased => 2,
        }
    }

    /// A state of the future counts as one that has to be looked at again.
    pub(crate) fn from_code(code: i8) -> MemberState {
        match code {
            0 => MemberState::Stable,
            1 => MemberState::Unrevoked,
            _newer => MemberState::Unreleased,
        }
    }
}

/// What there is of a member that speaks the classic protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classic {
    pub(crate) session_ms: i32,
    /// What it can do, best first: name and metadata.
    pub(crate) protocols: Vec<(Box<str>, Bytes)>,
}

/// By when a member must have done something, or it is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Give up partitions, in the epoch that it has.
    Revoke(i32),
    /// Join again, being of the classic protocol.
    Join,
    /// Ask for its share, being of the classic protocol.
    Sync,
}

/// A member.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerMember {
    pub(crate) id: Rc<str>,
    pub(crate) instance: Option<Rc<str>>,
    pub(crate) rack: Option<Box<str>>,
    pub(crate) client_id: Box<str>,
    pub(crate) client_host: Box<str>,
    /// Names that it subscribes to, sorted.
    pub(crate) topics: Names,
    pub(crate) regex: Option<Rc<str>>,
    pub(crate) rebalance_ms: i32,
    pub(crate) assignor: Option<Box<str>>,
    /// Of a member that speaks the classic protocol.
    pub(crate) classic: Option<Classic>,
    pub(crate) epoch: i32,
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    pub(crate) assigned: Partitions,
    /// What it must give up before it goes on; not among `assigned` any more.
    pub(crate) revoking: Partitions,
    /// Since when it has both.
    pub(crate) since: Since,
    /// Its session ends then unless it is heard of (monotonic milliseconds).
    pub(crate) due: u64,
    /// Where the timer of its session stands; at most `due`.
    pub(crate) timer_at: u64,
    pub(crate) deadline: Option<(u64, Deadline)>,
}

impl ConsumerMember {
    pub(crate) fn new(id: Rc<str>) -> ConsumerMember {
        ConsumerMember {
            id,
            instance: None,
            rack: None,
            client_id: Box::default(),
            client_host: Box::default(),
            topics: Rc::from([]),
            regex: None,
            rebalance_ms: -1,
            assignor: None,
            classic: None,
            epoch: EPOCH_JOINING,
            previous_epoch: EPOCH_LEAVING,
            state: MemberState::Stable,
            assigned: Partitions::default(),
            revoking: Partitions::default(),
            since: Since::default(),
            due: 0,
            timer_at: 0,
            deadline: None,
        }
    }

    /// What it is told of an epoch that is not its own.
    pub(crate) fn stale(&self) -> ErrorCode {
        match self.classic {
            Some(_) => ErrorCode::IllegalGeneration,
            None => ErrorCode::StaleMemberEpoch,
        }
    }

    /// Partitions that nobody else may have now.
    pub(crate) fn held(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.assigned.iter().chain(self.revoking.iter())
    }

    /// As [`ConsumerMember::held`], as one set.
    pub(crate) fn all_held(&self) -> Partitions {
        self.assigned.with(&self.revoking)
    }

    /// What it did not hold before, it holds since `epoch`.
    pub(crate) fn note_held(&mut self, epoch: i32) {
        let held = self.all_held();
        self.since.hold(epoch, &held);
    }

    /// What it counts for in the bounds, beside the names that it subscribes to, which it shares.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: Option<&str>| text.map_or(0, str::len);
        let protocols = self.classic.iter().flat_map(|classic| &classic.protocols);
        let protocols: usize = protocols
            .map(|(n, m)| 2 * NAME_BYTES + n.len() + m.len())
            .sum();
        MEMBER_BYTES
            + self.id.len()
            + text(self.instance.as_deref())
            + text(self.rack.as_deref())
            + self.client_id.len()
            + self.client_host.len()
            + protocols
            + self.assigned.bytes()
            + self.revoking.bytes()
            + self.since.bytes()
    }
}
