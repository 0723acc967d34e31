//! Joining, living and leaving, in Kafka's order of refusals (RP-110).

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::leave_group_response::MemberResponse;
use thalweg_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use thalweg_types::Uuid;

use crate::ask::{Caller, Token, refused_join};
use crate::group::{Group, State};
use crate::member::{Member, Waiting, bytes_asked, kept};
use crate::timers::Timer;
use crate::turn::Turn;

/// First version of JoinGroup whose clients take an id before they join (KIP-394).
pub(crate) const VERSION_MEMBER_ID_REQUIRED: i16 = 4;

/// How long a member that was never answered may wait (as Kafka): it can not send heartbeats, and if
/// it is still there its client tries again.
const NEW_MEMBER_JOIN_MS: u64 = 5 * 60 * 1_000;

impl Group {
    /// A request to join. The answer when it is a refusal; else it is answered through `turn`, now or
    /// when the round is complete.
    pub(crate) fn join(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
        random: [u8; 16],
    ) -> Option<JoinGroupResponse> {
        let refuse = |code| Some(refused_join(code, &request.member_id));
        if !self.has_room(turn, request) {
            if self.remove(turn, &request.member_id, ErrorCode::GroupMaxSizeReached) {
                self.history.left(turn.now, &request.member_id);
                self.after_removal(turn);
            }
            return Some(refused_join(ErrorCode::GroupMaxSizeReached, ""));
        }
        if self.state == State::Dead {
            return refuse(ErrorCode::CoordinatorNotAvailable);
        }
        if !self.supports(&request.protocol_type, &request.protocols) {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        if let (Some(instance), "") = (&request.group_instance_id, request.member_id.as_str()) {
            let id = member_id(instance, random);
            match self.instances.contains_key(instance.as_str()) {
                true => self.replace(turn, caller, request, token, id),
                false => self.add(turn, caller, request, token, id),
            }
        } else if request.member_id.is_empty() {
            let id = member_id(&caller.client_id, random);
            if caller.version >= VERSION_MEMBER_ID_REQUIRED {
                self.hand_out(turn, &id, request);
                return Some(refused_join(ErrorCode::MemberIdRequired, &id));
            }
            self.add(turn, caller, request, token, id);
        } else if request.group_instance_id.is_none()
            && self.forget_pending(turn, &request.member_id)
        {
            let id = request.member_id.as_str().into();
            self.add(turn, caller, request, token, id);
        } else {
            let instance = request.group_instance_id.as_deref();
            if let Err(code) = self.check_identity(&request.member_id, instance) {
                return refuse(code);
            }
            self.rejoin(turn, caller, request, token);
        }
        None
    }

    /// Bounds on members, on ids handed out and on what they bring. A known member may bring as much as it has.
    fn has_room(&self, turn: &Turn<'_>, request: &JoinGroupRequest) -> bool {
        let size_max = turn.settings.group_size_max;
        let known = self.known(request);
        let has_place = match self.state {
            State::Empty | State::Dead => true,
            State::PreparingRebalance => {
                known.is_some_and(|member| matches!(member.waiting, Waiting::Join(_)))
                    || self.joining < size_max
            }
            State::CompletingRebalance | State::Stable => {
                known.is_some() || self.members.len() < size_max
            }
        };
        let growth = known.map_or_else(|| bytes_asked(request), |member| member.growth(request));
        let has_bytes = match (known, growth) {
            (Some(_), 0) => true,
            // The coordinator has looked whether it has room for a new one.
            (known, _) => {
                (known.is_none() || turn.may_grow)
                    && self.member_bytes + growth <= turn.settings.group_bytes_max
            }
        };
        let needs_id = request.member_id.is_empty() && request.group_instance_id.is_none();
        has_place
            && has_bytes
            && (!needs_id || self.pending.len() < turn.settings.pending_members_max)
    }

    fn hand_out(&mut self, turn: &mut Turn<'_>, id: &Rc<str>, request: &JoinGroupRequest) {
        let session_ms = u64::from(request.session_timeout_ms.max(0).unsigned_abs());
        let due = turn.now.ms + session_ms;
        let timer = Timer::Pending(Rc::clone(&self.id), Rc::clone(id));
        turn.timers.arm(due, timer);
        self.pending.insert(Rc::clone(id), due);
    }

    fn add(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
        id: Rc<str>,
    ) {
        let mut member = Member::new(Rc::clone(&id), caller, request);
        member.waiting = Waiting::Join(token);
        member.due = turn.now.ms + NEW_MEMBER_JOIN_MS;
        member.timer_at = member.due;
        let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(&id));
        turn.timers.arm(member.timer_at, timer);
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        if let Some(initial) = &mut self.initial {
            initial.extended = true;
        }
        self.history.joined(turn.now, &id);
        self.leader.get_or_insert(id);
        self.insert(member);
        self.rebalance_or_complete(turn);
    }

    fn rejoin(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
    ) {
        let id = request.member_id.as_str();
        let is_unchanged = self
            .members
            .get(id)
            .is_some_and(|member| member.matches(&request.protocols));
        let is_settled = match self.state {
            State::CompletingRebalance => is_unchanged,
            // A leader that joins again asks for a new distribution.
            State::Stable => is_unchanged && !self.is_leader(id),
            State::PreparingRebalance | State::Empty | State::Dead => false,
        };
        if is_settled {
            // It may not have got the answer, so it gets the generation that it is in.
            let answer = self.joined(id);
            self.touch(turn.now.ms, id);
            turn.answer(token, answer);
            return;
        }
        if let Some(mut member) = self.take(id) {
            self.history.rejoined(turn.now);
            let before = std::mem::replace(&mut member.waiting, Waiting::Join(token));
            member.update(caller, request);
            self.insert(member);
            // Its client has given up on an answer that it asks for again.
            cancel(turn, before, ErrorCode::RebalanceInProgress);
        }
        self.rebalance_or_complete(turn);
    }

    /// The answer to a member of the generation.
    pub(crate) fn joined(&self, member: &str) -> JoinGroupResponse {
        let members = match self.is_leader(member) {
            true => self.subscriptions(),
            false => Vec::new(),
        };
        JoinGroupResponse {
            error_code: ErrorCode::None.code(),
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            member_id: member.to_owned(),
            members,
            ..JoinGroupResponse::default()
        }
    }

    /// The member was heard of: its session starts again. The timer follows when it fires.
    pub(crate) fn touch(&mut self, now: u64, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.due = member.due.max(now + member.session_ms);
        }
    }

    /// As [`Group::touch`], and lets the session be shorter than it was.
    pub(crate) fn restart_session(&mut self, turn: &mut Turn<'_>, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            let timer = || Timer::Session(Rc::clone(&self.id), Rc::clone(&member.id));
            turn.timers.disarm(member.timer_at, timer());
            member.due = turn.now.ms + member.session_ms;
            member.timer_at = member.due;
            turn.timers.arm(member.timer_at, timer());
        }
    }

    /// Whether a request speaks for a member of this generation.
    fn check_member(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.check_identity(id, instance)?;
        match generation == self.generation {
            true => Ok(()),
            false => Err(ErrorCode::IllegalGeneration),
        }
    }

    /// Whether the group is not being deleted.
    pub(crate) fn check_alive(&self) -> Result<(), ErrorCode> {
        match self.state {
            State::Dead => Err(ErrorCode::CoordinatorNotAvailable),
            State::Empty
            | State::PreparingRebalance
            | State::CompletingRebalance
            | State::Stable => Ok(()),
        }
    }

    /// Whether a commit may move offsets (RP-108): a member of the generation, or nobody's client
    /// while there is no member.
    pub(crate) fn check_commit(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        if generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if generation < 0 && id.is_empty() && instance.is_none() {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.check_member(id, instance, generation)?;
        match self.state {
            State::CompletingRebalance => Err(ErrorCode::RebalanceInProgress),
            State::Empty | State::PreparingRebalance | State::Stable | State::Dead => Ok(()),
        }
    }

    /// A heartbeat.
    ///
    /// # Errors
    /// What the member has to do instead.
    pub(crate) fn heartbeat(
        &mut self,
        now: u64,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatResponse, ErrorCode> {
        let instance = request.group_instance_id.as_deref();
        self.check_member(&request.member_id, instance, request.generation_id)?;
        self.touch(now, &request.member_id);
        match self.state {
            State::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(HeartbeatResponse::default()),
            State::Empty | State::Dead => Err(ErrorCode::UnknownMemberId),
        }
    }

    /// A request for a share; answered now, or when the leader has shared out.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn sync(
        &mut self,
        turn: &mut Turn<'_>,
        request: &SyncGroupRequest,
        token: Token,
    ) -> Result<(), ErrorCode> {
        let id = request.member_id.as_str();
        let instance = request.group_instance_id.as_deref();
        self.check_member(id, instance, request.generation_id)?;
        let differs = |asked: &Option<String>, ours: &Option<String>| {
            asked.is_some() && ours.is_some() && asked != ours
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match self.state {
            State::Empty | State::Dead => Err(ErrorCode::UnknownMemberId),
            State::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            State::CompletingRebalance => {
                self.note_synced(turn, id);
                if let Some(member) = self.members.get_mut(id) {
                    let before = std::mem::replace(&mut member.waiting, Waiting::Sync(token));
                    cancel(turn, before, ErrorCode::RebalanceInProgress);
                }
                if self.is_leader(id) && !self.is_assigning {
                    self.share_out(turn, &request.assignments);
                }
                Ok(())
            }
            State::Stable => {
                self.note_synced(turn, id);
                self.touch(turn.now.ms, id);
                let answer = self.share_of(id);
                turn.answer(token, answer);
                Ok(())
            }
        }
    }

    /// The share of a member.
    pub(crate) fn share_of(&self, id: &str) -> SyncGroupResponse {
        let member = self.members.get(id);
        SyncGroupResponse {
            error_code: ErrorCode::None.code(),
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: member.map(|m| m.assignment.clone()).unwrap_or_default(),
            ..SyncGroupResponse::default()
        }
    }

    /// Members leave; each is answered for itself.
    pub(crate) fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        request: &LeaveGroupRequest,
    ) -> LeaveGroupResponse {
        let before = (self.member_count(), self.pending.len());
        let mut one = |member: &MemberIdentity| MemberResponse {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            error_code: self.leave_one(turn, member).code(),
        };
        let members = request.members.iter().map(&mut one).collect();
        if self.member_count() < before.0 {
            match self.consumer {
                Some(_) => self.raise_epoch(turn),
                None => self.after_removal(turn),
            }
        } else if self.pending.len() < before.1 {
            self.after_forgetting(turn);
        }
        LeaveGroupResponse {
            members,
            ..LeaveGroupResponse::default()
        }
    }

    /// An id that was handed out is not valid any more.
    pub(crate) fn forget_pending(&mut self, turn: &mut Turn<'_>, id: &str) -> bool {
        let Some((id, due)) = self.pending.remove_entry(id) else {
            return false;
        };
        let timer = Timer::Pending(Rc::clone(&self.id), id);
        turn.timers.disarm(due, timer);
        true
    }

    /// Takes a member out and answers what it waits for. The caller goes on with
    /// [`Group::after_removal`].
    pub(crate) fn remove(&mut self, turn: &mut Turn<'_>, id: &str, code: ErrorCode) -> bool {
        let Some(member) = self.take(id) else {
            return false;
        };
        let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(&member.id));
        turn.timers.disarm(member.timer_at, timer);
        if self.is_leader(id) {
            self.leader = None;
        }
        cancel(turn, member.waiting, code);
        true
    }
}

/// Refuses what a member waits for.
pub(crate) fn cancel(turn: &mut Turn<'_>, waiting: Waiting, code: ErrorCode) {
    match waiting {
        Waiting::No => {}
        Waiting::Join(token) => turn.answer(token, refused_join(code, "")),
        Waiting::Sync(token) => turn.answer(token, crate::ask::refused_sync(code)),
    }
}

/// Kafka's form: the id of the client or the instance, and a random UUID.
pub(crate) fn member_id(prefix: &str, random: [u8; 16]) -> Rc<str> {
    let uuid = Uuid::from_random(random);
    format!("{}-{}", kept(prefix), hyphenated(uuid)).into()
}

fn hyphenated(uuid: Uuid) -> String {
    let hex: String = uuid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}
