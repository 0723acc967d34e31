//! From what a member has to what it is to have (KIP-848): first it gives up, then its epoch is
//! raised, then it gets what others have given up.

use thalweg_types::TopicId;

use super::member::{ConsumerMember, MemberState};
use super::partitions::Partitions;

/// What a member is to have next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) epoch: i32,
    pub(crate) state: MemberState,
    pub(crate) assigned: Partitions,
    pub(crate) revoking: Partitions,
}

/// The next step of a member towards its target, which is no step when it is there; `None` when it has yet to
/// give up what it was told to. `owned` is what it says that it has, `None` when it does not say;
/// `is_held` tells whether anybody has a partition.
pub(crate) fn next_step(
    member: &ConsumerMember,
    target_epoch: i32,
    target: &Partitions,
    owned: Option<&Partitions>,
    is_held: impl Fn(TopicId, i32) -> bool,
) -> Option<Step> {
    let still_owns = |some: &Partitions| owned.is_none_or(|owned| owned.overlaps(some));
    match member.state {
        MemberState::Unrevoked if still_owns(&member.revoking) => return None,
        MemberState::Stable | MemberState::Unrevoked | MemberState::Unreleased => {}
    }
    let kept = member.assigned.in_common(target);
    let to_revoke = member.assigned.without(&kept);
    if !to_revoke.is_empty() && still_owns(&to_revoke) {
        return Some(Step {
            epoch: member.epoch,
            state: MemberState::Unrevoked,
            assigned: kept,
            revoking: to_revoke,
        });
    }
    // What it has just given up is nobody's.
    let is_free = |topic, partition| {
        !is_held(topic, partition)
            || to_revoke.contains(topic, partition)
            || member.revoking.contains(topic, partition)
    };
    let missing = target.without(&kept);
    let free = missing.filtered(is_free);
    let state = match free.len() < missing.len() {
        true => MemberState::Unreleased,
        false => MemberState::Stable,
    };
    Some(Step {
        epoch: target_epoch,
        state,
        assigned: kept.with(&free),
        revoking: Partitions::default(),
    })
}
