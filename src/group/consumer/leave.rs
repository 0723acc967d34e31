//! Members that leave, are away, or have not been heard of.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::member::{ConsumerMember, Deadline, EPOCH_AWAY, EPOCH_JOINING, MemberState};
use super::partitions::Partitions;
use super::since::Since;
use super::{Key, Refusal};
use crate::ask::Token;
use crate::group::Group;
use crate::timers::Timer;
use crate::turn::Turn;

impl Group {
    /// A heartbeat that leaves, for good or for a while. The answer comes through `turn`.
    pub(crate) fn consumer_leave(
        &mut self,
        turn: &mut Turn<'_>,
        request: &ConsumerGroupHeartbeatRequest,
        token: Token,
    ) -> Result<(), Refusal> {
        let unknown = || {
            let message = format!("There is no such member of group {}.", self.id);
            Refusal::new(ErrorCode::UnknownMemberId, message)
        };
        let consumer = self.consumer.as_deref().ok_or_else(unknown)?;
        let known = match request.instance_id.as_deref() {
            Some(instance) => consumer.instances.get(instance),
            None => consumer
                .members
                .get_key_value(request.member_id.as_str())
                .map(|(id, _)| id),
        };
        let id = known.cloned().ok_or_else(unknown)?;
        if *id != *request.member_id {
            let message = format!("The instance id is in use by member {id}.");
            return Err(Refusal::new(ErrorCode::FencedInstanceId, message));
        }
        match request.member_epoch {
            EPOCH_AWAY => self.be_away(turn, &id),
            _for_good => {
                self.history.left(turn.now, &id);
                self.expel(turn, &id);
            }
        }
        let answer = ConsumerGroupHeartbeatResponse {
            member_id: Some(id.to_string()),
            member_epoch: request.member_epoch,
            ..ConsumerGroupHeartbeatResponse::default()
        };
        turn.answer_once_logged(token, answer);
        Ok(())
    }

    /// A static member is away: it keeps what it is to have until its session ends, and may come again under another
    /// id. What it was to give up it has given up by that, and others need not wait for it.
    fn be_away(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        self.set_deadline(turn, id, None);
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return;
        };
        consumer.change(id, |member| {
            member.epoch = EPOCH_AWAY;
            member.revoking = Partitions::default();
            if member.state == MemberState::Unrevoked {
                member.state = MemberState::Stable;
            }
            // Who comes in its place begins anew.
            member.since = Since::default();
            member.note_held(EPOCH_JOINING);
        });
        self.unlogged.insert(Key::Current(Rc::clone(id)));
    }

    /// A member is out, and what it had is to be shared out anew.
    pub(crate) fn expel(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        if self.take_out(turn, id).is_some() {
            self.raise_epoch(turn);
        }
    }

    /// Takes a member out with all that is known of it.
    pub(crate) fn take_out(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) -> Option<ConsumerMember> {
        self.set_deadline(turn, id, None);
        let consumer = self.consumer.as_deref_mut()?;
        let member = consumer.take(id)?;
        let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(id));
        turn.timers.disarm(member.timer_at, timer);
        consumer.set_target(id, None);
        // No other pattern has lost a member.
        if let Some(regex) = &member.regex
            && consumer.drop_if_unused(regex)
        {
            self.unlogged.insert(Key::Regex(Rc::clone(regex)));
        }
        self.mark_member(id);
        self.unlogged.insert(Key::Target(Rc::clone(id)));
        Some(member)
    }

    /// The session timer of a member fired.
    pub(crate) fn on_consumer_session_due(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        let group = Rc::clone(&self.id);
        let Some(member) = self.consumer_member_mut(id) else {
            return;
        };
        if member.due > turn.now.ms {
            member.timer_at = member.due;
            let timer = Timer::Session(group, Rc::clone(id));
            turn.timers.arm(member.timer_at, timer);
            return;
        }
        self.time_out(turn, id);
    }

    /// A member has had its time to do something.
    pub(crate) fn on_deadline(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        let Some(member) = self.consumer_member_mut(id) else {
            return;
        };
        let Some((_, deadline)) = member.deadline.take() else {
            return;
        };
        let is_over = match deadline {
            Deadline::Revoke(epoch) => {
                member.state == MemberState::Unrevoked && member.epoch == epoch
            }
            Deadline::Join | Deadline::Sync => true,
        };
        if is_over {
            self.time_out(turn, id);
        }
    }

    fn time_out(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        turn.happened.members_timed_out += 1;
        self.history.timed_out(turn.now, id);
        self.expel(turn, id);
    }

    /// The log was replayed: a member has a session's time to show up.
    pub(crate) fn consumer_loaded(&mut self, turn: &mut Turn<'_>, id: &Rc<str>) {
        if let Some(consumer) = self.consumer.as_deref_mut() {
            consumer.mend(id);
        }
        self.live(turn, id);
        let Some(member) = self.consumer_member(id) else {
            return;
        };
        if member.state == MemberState::Unrevoked {
            let wait_ms = u64::try_from(member.rebalance_ms).unwrap_or(0);
            let deadline = (turn.now.ms + wait_ms, Deadline::Revoke(member.epoch));
            self.set_deadline(turn, id, Some(deadline));
        }
    }
}
