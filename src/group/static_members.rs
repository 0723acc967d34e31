//! Static members (KIP-345): who comes again under the same `group.instance.id` is the same member
//! under a new id. Whoever holds the old id is fenced off.

use std::collections::BTreeSet;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use crate::ask::{Caller, Token, refused_join};
use crate::group::{Group, State};
use crate::member::{Member, Waiting};
use crate::membership::cancel;
use crate::record::Record;
use crate::subscription::{self, CONSUMER};
use crate::timers::Timer;
use crate::turn::{Then, Turn};

/// First version of JoinGroup that can tell a leader not to share out (KIP-814).
const VERSION_SKIP_ASSIGNMENT: i16 = 9;

/// A member that took the place of another one, while that is being written.
#[derive(Debug)]
pub(crate) struct Replacement {
    token: Token,
    answer: JoinGroupResponse,
    /// Who was there before.
    before: Box<Member>,
    was_leader: bool,
}

impl Group {
    /// Whether `id` may speak, and under `instance` if it names one.
    pub(crate) fn check_identity(&self, id: &str, instance: Option<&str>) -> Result<(), ErrorCode> {
        let Some(instance) = instance else {
            return match self.members.contains_key(id) {
                true => Ok(()),
                false => Err(ErrorCode::UnknownMemberId),
            };
        };
        match self.instances.get(instance) {
            None => Err(ErrorCode::UnknownMemberId),
            Some(known) if **known == *id => Ok(()),
            Some(_) => Err(ErrorCode::FencedInstanceId),
        }
    }

    /// The member that a request to join is about, if there is one.
    pub(crate) fn known(&self, request: &JoinGroupRequest) -> Option<&Member> {
        let id = match (&request.group_instance_id, request.member_id.as_str()) {
            (Some(instance), "") => self.instances.get(instance.as_str())?,
            (_, id) => id,
        };
        self.members.get(id)
    }

    /// Whether there is such a member, of either protocol.
    pub(crate) fn knows(&self, request: &JoinGroupRequest) -> bool {
        let instance = request.group_instance_id.as_deref();
        match self.consumer.as_deref() {
            Some(consumer) => consumer.knows(&request.member_id, instance),
            None => self.known(request).is_some(),
        }
    }

    /// The member of an instance came again, as `new`. Where nothing changes for the others, the
    /// generation goes on and everybody keeps its share.
    pub(crate) fn replace(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
        new: Rc<str>,
    ) {
        let Some(old) = self.instance_of(request).cloned() else {
            return;
        };
        let leader = self.leader.clone();
        let was_leader = self.is_leader(&old);
        let Some(before) = self.swap(turn, &old, |member| {
            member.id = Rc::clone(&new);
            member.update(caller, request);
            member.is_new = false;
            member.waiting = Waiting::No;
        }) else {
            return;
        };
        if was_leader {
            self.leader = Some(Rc::clone(&new));
        }
        cancel(turn, before.waiting, ErrorCode::FencedInstanceId);
        let goes_on = self.state == State::Stable
            && self.select_protocol() == self.protocol
            && !self.subscribes_anew(&before, &new);
        if !goes_on {
            self.history.rejoined(turn.now);
            self.await_join(&new, token);
            self.rebalance_or_complete(turn);
            return;
        }
        let mut answer = self.joined(&new);
        match caller.version {
            VERSION_SKIP_ASSIGNMENT.. => answer.skip_assignment = was_leader,
            // It can not be told to leave the sharing out, so it must not know that it leads.
            ..VERSION_SKIP_ASSIGNMENT => {
                answer.members.clear();
                answer.leader = leader.as_deref().unwrap_or_default().to_owned();
            }
        }
        let value = self.value(|member| member.assignment.clone());
        let record = Record::Group {
            group: Rc::clone(&self.id),
            value: Some(value),
        };
        self.is_recorded = true;
        self.writes += 1;
        let replacement = Replacement {
            token,
            answer,
            before: Box::new(before),
            was_leader,
        };
        turn.write(&self.id, vec![record], Then::Replace(replacement));
    }

    /// Whether a consumer came again with other topics than it had: the leader has to hear of them. Of other bytes in
    /// its metadata Kafka makes no round for a static member, and nor is there one here.
    fn subscribes_anew(&self, before: &Member, now: &str) -> bool {
        let (Some(protocol), Some(now)) = (&self.protocol, self.members.get(now)) else {
            return false;
        };
        if self.protocol_type.as_deref() != Some(CONSUMER) {
            return false;
        }
        let (had, has) = (before.metadata(protocol), now.metadata(protocol));
        match (subscription::topics_of(&had), subscription::topics_of(&has)) {
            (Some(had), Some(has)) => BTreeSet::from_iter(had) != BTreeSet::from_iter(has),
            (None, _) | (_, None) => false,
        }
    }

    /// The replacement is written.
    pub(crate) fn on_replaced(&mut self, turn: &mut Turn<'_>, made: Replacement) {
        let Replacement { token, answer, .. } = made;
        let instance = made.before.instance.as_deref();
        let still = self.check_identity(&answer.member_id, instance);
        let is_current = answer.generation_id == self.generation;
        match still {
            Ok(()) if is_current => turn.answer(token, answer),
            // Others have gone on meanwhile.
            Ok(()) => turn.answer(token, refused_join(ErrorCode::RebalanceInProgress, "")),
            Err(code) => turn.answer(token, refused_join(code, "")),
        }
    }

    /// The replacement could not be written: the member is who it was, unless more happened since.
    pub(crate) fn on_replace_failed(
        &mut self,
        turn: &mut Turn<'_>,
        failed: Replacement,
        code: ErrorCode,
    ) {
        let new = failed.answer.member_id.as_str();
        let Replacement { before, .. } = failed;
        let id = Rc::clone(&before.id);
        let is_current = self
            .members
            .get(new)
            .is_some_and(|member| member.waiting == Waiting::No);
        if is_current {
            self.swap(turn, new, |member| {
                member.id = before.id;
                member.protocols = before.protocols;
                member.session_ms = before.session_ms;
                member.rebalance_ms = before.rebalance_ms;
            });
            if failed.was_leader && self.is_leader(new) {
                self.leader = Some(id);
            }
        }
        turn.answer(failed.token, refused_join(code, ""));
    }

    /// Takes a member out, and one that `change` made of it in. Its session begins anew. Returns the
    /// member as it was.
    fn swap(
        &mut self,
        turn: &mut Turn<'_>,
        old: &str,
        change: impl FnOnce(&mut Member),
    ) -> Option<Member> {
        let before = self.take(old)?;
        let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(&before.id));
        turn.timers.disarm(before.timer_at, timer);
        let mut member = before.clone();
        change(&mut member);
        let id = Rc::clone(&member.id);
        self.insert(member);
        self.restart_session(turn, &id);
        Some(before)
    }

    /// The member waits for the answer to its request to join.
    fn await_join(&mut self, id: &str, token: Token) {
        if let Some(mut member) = self.take(id) {
            member.waiting = Waiting::Join(token);
            self.insert(member);
        }
    }

    fn instance_of(&self, request: &JoinGroupRequest) -> Option<&Rc<str>> {
        self.instances.get(request.group_instance_id.as_deref()?)
    }

    /// One member of a request to leave. An operator names the instance only.
    pub(crate) fn leave_one(&mut self, turn: &mut Turn<'_>, member: &MemberIdentity) -> ErrorCode {
        let instance = member.group_instance_id.as_deref();
        if self.consumer.is_some() {
            return self.leave_newer(turn, &member.member_id, instance);
        }
        let id = match (instance, member.member_id.as_str()) {
            (Some(instance), "") => match self.instances.get(instance) {
                Some(id) => Rc::clone(id),
                None => return ErrorCode::UnknownMemberId,
            },
            (_, id) => Rc::from(id),
        };
        if self.forget_pending(turn, &id) {
            return ErrorCode::None;
        }
        if let Err(code) = self.check_identity(&id, instance) {
            return code;
        }
        self.remove(turn, &id, ErrorCode::UnknownMemberId);
        self.history.left(turn.now, &id);
        ErrorCode::None
    }

    /// Lets somebody lead who is there to do it. False when nobody has joined.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |member: &&Member| matches!(member.waiting, Waiting::Join(_));
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        if leader.filter(has_joined).is_some() {
            return true;
        }
        match self.members.values().find(has_joined) {
            Some(member) => {
                self.leader = Some(Rc::clone(&member.id));
                true
            }
            None => false,
        }
    }
}
