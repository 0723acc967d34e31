//! What a coordinator holds, and what happened in it, as numbers for operators.

use crate::consumer::ConsumerState;
use crate::group::{Group, Shown, State};

/// What a coordinator holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Groups without members.
    pub empty: usize,
    /// Groups whose members join the next generation.
    pub preparing: usize,
    /// Groups that wait for their leader to share out.
    pub completing: usize,
    /// Groups whose members all have their shares.
    pub stable: usize,
    /// Groups of the newer protocol whose partitions are to be shared out anew.
    pub assigning: usize,
    /// Groups of the newer protocol whose members move towards their shares.
    pub reconciling: usize,
    /// Groups that are being deleted.
    pub dead: usize,
    /// Members of all groups.
    pub members: usize,
    /// Committed offsets of all groups.
    pub offsets: usize,
    /// Approximate memory of all that, in bytes.
    pub bytes: usize,
}

/// What happened since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Offsets whose commit was written.
    pub offsets_committed: u64,
    /// Generations begun.
    pub rebalances: u64,
    /// Members whose session ended without a word.
    pub members_timed_out: u64,
    /// Offsets whose time was over (KIP-211).
    pub offsets_expired: u64,
    /// Groups that went with their last offset.
    pub groups_expired: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, group: &Group) {
        *self.of(group.shown()) += 1;
        self.members += group.member_count();
        self.offsets += group.offsets.len();
        self.bytes += group.bytes();
    }

    pub(crate) fn remove(&mut self, group: &Group) {
        *self.of(group.shown()) -= 1;
        self.members -= group.member_count();
        self.offsets -= group.offsets.len();
        self.bytes -= group.bytes();
    }

    fn of(&mut self, shown: Shown) -> &mut usize {
        let state = match shown {
            Shown::Classic(state) => state,
            Shown::Consumer(ConsumerState::Empty) => return &mut self.empty,
            Shown::Consumer(ConsumerState::Assigning) => return &mut self.assigning,
            Shown::Consumer(ConsumerState::Reconciling) => return &mut self.reconciling,
            Shown::Consumer(ConsumerState::Stable) => return &mut self.stable,
        };
        match state {
            State::Empty => &mut self.empty,
            State::PreparingRebalance => &mut self.preparing,
            State::CompletingRebalance => &mut self.completing,
            State::Stable => &mut self.stable,
            State::Dead => &mut self.dead,
        }
    }
}
