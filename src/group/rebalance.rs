//! The phases of a rebalance: members join, the leader shares out, everybody gets its share.
//!
//! Empty or Stable -> PreparingRebalance -> CompletingRebalance -> Stable, and back to
//! PreparingRebalance whenever members come, change or go.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;

use crate::group::{Group, InitialDelay, State};
use crate::history::Cause;
use crate::member::Waiting;
use crate::membership::cancel;
use crate::record::Record;
use crate::timers::Timer;
use crate::turn::{Then, Turn};

impl Group {
    /// A member came or changed.
    pub(crate) fn rebalance_or_complete(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::Empty | State::CompletingRebalance | State::Stable => self.prepare(turn),
            State::PreparingRebalance => self.complete_if_all_joined(turn),
            State::Dead => {}
        }
    }

    /// Members are gone.
    pub(crate) fn after_removal(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::CompletingRebalance | State::Stable => self.prepare(turn),
            State::PreparingRebalance => self.complete_if_all_joined(turn),
            State::Empty | State::Dead => {}
        }
    }

    /// Ids that were handed out are gone.
    pub(crate) fn after_forgetting(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::PreparingRebalance => self.complete_if_all_joined(turn),
            State::Empty | State::CompletingRebalance | State::Stable | State::Dead => {}
        }
    }

    /// Begins a round: members learn of it by their heartbeats and join again.
    pub(crate) fn prepare(&mut self, turn: &mut Turn<'_>) {
        let was_empty = self.state == State::Empty;
        // Members that come and go have said so before.
        self.history.begin(turn.now, Cause::Coordinator);
        if self.state == State::CompletingRebalance {
            self.fail_syncs(turn, ErrorCode::RebalanceInProgress);
        }
        self.clear_sync_due(turn);
        self.is_assigning = false;
        self.transition(State::PreparingRebalance, turn.now.wall);
        if was_empty {
            let wait_ms = turn.settings.initial_rebalance_delay_ms;
            self.initial = Some(InitialDelay {
                remaining_ms: self.rebalance_ms().saturating_sub(wait_ms),
                wait_ms,
                extended: false,
            });
            self.set_join_due(turn, turn.now.ms + wait_ms);
        } else {
            self.complete_if_all_joined(turn);
        }
    }

    /// Rounds are over, and with them all that belongs to one.
    pub(crate) fn end_rounds(&mut self, turn: &mut Turn<'_>) {
        self.clear_join_due(turn);
        self.clear_sync_due(turn);
        self.initial = None;
        self.is_assigning = false;
        self.leader = None;
        self.protocol = None;
        self.transition(State::Empty, turn.now.wall);
    }

    fn complete_if_all_joined(&mut self, turn: &mut Turn<'_>) {
        if self.initial.is_some() && !self.members.is_empty() {
            // The first round ends by its timer only.
            return;
        }
        if self.joining == self.members.len() && self.pending.is_empty() {
            self.complete_join(turn);
        } else if self.join_due.is_none() {
            self.set_join_due(turn, turn.now.ms + self.rebalance_ms());
        }
    }

    /// The joining phase has lasted long enough.
    pub(crate) fn on_join_due(&mut self, turn: &mut Turn<'_>) {
        self.join_due = None;
        if self.state != State::PreparingRebalance {
            return;
        }
        if let Some(initial) = &mut self.initial
            && initial.extended
            && initial.remaining_ms > 0
        {
            let wait_ms = turn
                .settings
                .initial_rebalance_delay_ms
                .min(initial.remaining_ms);
            *initial = InitialDelay {
                remaining_ms: initial.remaining_ms.saturating_sub(wait_ms),
                wait_ms,
                extended: false,
            };
            self.set_join_due(turn, turn.now.ms + wait_ms);
            return;
        }
        self.complete_join(turn);
    }

    /// Who has not joined is out, but for static members, who have until their sessions end; the
    /// others are the next generation.
    fn complete_join(&mut self, turn: &mut Turn<'_>) {
        self.clear_join_due(turn);
        self.initial = None;
        let absent: Vec<Rc<str>> = self
            .members
            .values()
            .filter(|member| !matches!(member.waiting, Waiting::Join(_)))
            .filter(|member| member.instance.is_none())
            .map(|member| Rc::clone(&member.id))
            .collect();
        for id in absent {
            self.remove(turn, &id, ErrorCode::UnknownMemberId);
            self.history.timed_out(turn.now, &id);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // All are static and away: they come again, or their sessions end.
            self.set_join_due(turn, turn.now.ms + self.rebalance_ms().max(1));
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        turn.happened.rebalances += 1;
        if self.members.is_empty() {
            self.become_empty(turn);
            return;
        }
        self.protocol = self.select_protocol();
        self.transition(State::CompletingRebalance, turn.now.wall);
        self.unsynced = self.members.len();
        self.joining = 0;
        let ids: Vec<Rc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.is_new = false;
            member.synced = false;
            if let Waiting::Join(token) = std::mem::replace(&mut member.waiting, Waiting::No) {
                turn.answer(token, answer);
            }
            self.restart_session(turn, &id);
        }
        let due = turn.now.ms + self.rebalance_ms();
        self.sync_due = Some(due);
        turn.timers.arm(due, Timer::Sync(Rc::clone(&self.id)));
    }

    /// The last member is gone. The record keeps the generation growing over a restart.
    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.protocol = None;
        self.leader = None;
        self.history.end(turn.now, self.generation);
        self.transition(State::Empty, turn.now.wall);
        let value = self.value(|_| Bytes::new());
        let record = Record::Group {
            group: Rc::clone(&self.id),
            value: Some(value),
        };
        self.is_recorded = true;
        self.writes += 1;
        turn.write(&self.id, vec![record], Then::Nothing);
    }

    /// The leader has shared out: its word counts once it is committed.
    pub(crate) fn share_out(
        &mut self,
        turn: &mut Turn<'_>,
        assignments: &[SyncGroupRequestAssignment],
    ) {
        let mut shares: HashMap<Rc<str>, Bytes> = HashMap::new();
        for given in assignments {
            if let Some((id, _)) = self.members.get_key_value(given.member_id.as_str()) {
                let share = Bytes::copy_from_slice(&given.assignment);
                shares.insert(Rc::clone(id), share);
            }
        }
        let new: usize = shares.values().map(Bytes::len).sum();
        let old: usize = self.members.values().map(|m| m.assignment.len()).sum();
        let is_within = self.member_bytes - old + new <= turn.settings.group_bytes_max;
        if new > old && !(turn.may_grow && is_within) {
            // As Kafka when the record is larger than a record may be.
            self.assignment_failed(turn, ErrorCode::UnknownServerError);
            return;
        }
        // The record describes the group as it will be.
        let mut value = self.value(|member| shares.get(&member.id).cloned().unwrap_or_default());
        value.current_state_timestamp = turn.now.wall.0;
        let record = Record::Group {
            group: Rc::clone(&self.id),
            value: Some(value),
        };
        self.is_assigning = true;
        self.is_recorded = true;
        self.writes += 1;
        let then = Then::Assign {
            generation: self.generation,
            shares,
        };
        turn.write(&self.id, vec![record], then);
    }

    /// The shares of a generation are committed.
    pub(crate) fn on_assigned(
        &mut self,
        turn: &mut Turn<'_>,
        generation: i32,
        mut shares: HashMap<Rc<str>, Bytes>,
    ) {
        if !self.is_completing(generation) {
            return;
        }
        self.is_assigning = false;
        self.history.end(turn.now, generation);
        self.transition(State::Stable, turn.now.wall);
        let ids: Vec<Rc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            let share = shares.remove(&id).unwrap_or_default();
            if let Some(mut member) = self.take(&id) {
                member.assignment = share;
                let waiting = std::mem::replace(&mut member.waiting, Waiting::No);
                self.insert(member);
                if let Waiting::Sync(token) = waiting {
                    let answer = self.share_of(&id);
                    turn.answer(token, answer);
                    self.touch(turn.now.ms, &id);
                }
            }
        }
    }

    /// The shares of a generation could not be written.
    pub(crate) fn on_assign_failed(
        &mut self,
        turn: &mut Turn<'_>,
        generation: i32,
        code: ErrorCode,
    ) {
        if self.is_completing(generation) {
            self.assignment_failed(turn, code);
        }
    }

    fn is_completing(&self, generation: i32) -> bool {
        self.state == State::CompletingRebalance && self.generation == generation
    }

    fn assignment_failed(&mut self, turn: &mut Turn<'_>, code: ErrorCode) {
        self.fail_syncs(turn, code);
        self.prepare(turn);
    }

    fn fail_syncs(&mut self, turn: &mut Turn<'_>, code: ErrorCode) {
        for member in self.members.values_mut() {
            if let Waiting::Sync(_) = member.waiting {
                let waiting = std::mem::replace(&mut member.waiting, Waiting::No);
                // It was heard of when it asked; it needs the time to join again.
                member.due = member.due.max(turn.now.ms + member.session_ms);
                cancel(turn, waiting, code);
            }
        }
    }

    /// The member asked for its share.
    pub(crate) fn note_synced(&mut self, turn: &mut Turn<'_>, id: &str) {
        let Some(member) = self.members.get_mut(id).filter(|member| !member.synced) else {
            return;
        };
        member.synced = true;
        self.unsynced -= 1;
        if self.unsynced == 0 {
            self.clear_sync_due(turn);
        }
    }

    /// Who has not asked for its share by now is out.
    pub(crate) fn on_sync_due(&mut self, turn: &mut Turn<'_>) {
        self.sync_due = None;
        let absent: Vec<Rc<str>> = self
            .members
            .values()
            .filter(|member| !member.synced)
            .map(|member| Rc::clone(&member.id))
            .collect();
        let mut removed = false;
        for id in absent {
            if self.remove(turn, &id, ErrorCode::UnknownMemberId) {
                self.history.timed_out(turn.now, &id);
                removed = true;
            }
        }
        if removed {
            self.after_removal(turn);
        }
    }

    /// The session timer of a member fired.
    pub(crate) fn on_session_due(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        // Who waits for an answer of ours can not send heartbeats: one request at a time.
        if !member.is_new && member.waiting != Waiting::No {
            member.due = member.due.max(turn.now.ms + member.session_ms.max(1));
        }
        if member.due > turn.now.ms {
            member.timer_at = member.due;
            let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(id));
            turn.timers.arm(member.timer_at, timer);
            return;
        }
        turn.happened.members_timed_out += 1;
        self.remove(turn, id, ErrorCode::UnknownMemberId);
        self.history.timed_out(turn.now, id);
        self.after_removal(turn);
    }

    fn set_join_due(&mut self, turn: &mut Turn<'_>, due: u64) {
        self.clear_join_due(turn);
        self.join_due = Some(due);
        turn.timers.arm(due, Timer::Join(Rc::clone(&self.id)));
    }

    fn clear_join_due(&mut self, turn: &mut Turn<'_>) {
        if let Some(due) = self.join_due.take() {
            turn.timers.disarm(due, Timer::Join(Rc::clone(&self.id)));
        }
    }

    fn clear_sync_due(&mut self, turn: &mut Turn<'_>) {
        if let Some(due) = self.sync_due.take() {
            turn.timers.disarm(due, Timer::Sync(Rc::clone(&self.id)));
        }
    }
}
