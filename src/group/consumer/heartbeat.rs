//! ConsumerGroupHeartbeat: joining, living, and taking over and giving up partitions (RP-113).

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::limits::{SUBSCRIBED_NAMES_MAX, TOPIC_NAME_BYTES_MAX};

use super::member::{
    ConsumerMember, Deadline, EPOCH_AWAY, EPOCH_JOINING, EPOCH_LEAVING, MemberState,
};
use super::partitions::Partitions;
use super::reconcile::next_step;
use super::{Key, Refusal, bytes_of_pattern, pattern};
use crate::ask::{Caller, Token};
use crate::group::{Group, State};
use crate::member::kept;
use crate::settings::ConsumerSettings;
use crate::timers::Timer;
use crate::turn::Turn;

/// First version whose clients make their own ids (KIP-1082).
const VERSION_CLIENT_IDS: i16 = 1;

/// Whether a member was one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admitted {
    New,
    Known,
}

/// Refuses a request that no group could take.
pub(crate) fn check_request(
    request: &ConsumerGroupHeartbeatRequest,
    version: i16,
    settings: &ConsumerSettings,
) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::new(ErrorCode::InvalidRequest, what));
    let epoch = request.member_epoch;
    let needs_id = version >= VERSION_CLIENT_IDS || epoch > 0 || epoch == EPOCH_LEAVING;
    if request.group_id.is_empty() {
        return invalid("GroupId can't be empty.");
    }
    if request.member_id.is_empty() && needs_id {
        return invalid("MemberId can't be empty.");
    }
    if request.instance_id.as_deref() == Some("") {
        return invalid("InstanceId can't be empty.");
    }
    if request.rack_id.as_deref() == Some("") {
        return invalid("RackId can't be empty.");
    }
    match epoch {
        ..EPOCH_AWAY => return invalid("MemberEpoch is invalid."),
        EPOCH_AWAY if request.instance_id.is_none() => {
            return invalid("InstanceId can't be null.");
        }
        EPOCH_JOINING => {
            if request.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if request
                .topic_partitions
                .as_ref()
                .is_none_or(|owned| !owned.is_empty())
            {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none()
            {
                let what =
                    "SubscribedTopicNames or SubscribedTopicRegex must be set in first request.";
                return invalid(what);
            }
        }
        _living => {}
    }
    check_names(
        request
            .subscribed_topic_names
            .as_deref()
            .unwrap_or_default(),
    )?;
    if let Some(name) = &request.server_assignor {
        let known = settings.assignors.iter().map(|one| one.name());
        if !known.clone().any(|known| known == name) {
            let names: Vec<&str> = known.collect();
            let message = format!("ServerAssignor is not one of {}.", names.join(", "));
            return Err(Refusal::new(ErrorCode::UnsupportedAssignor, message));
        }
    }
    match request.subscribed_topic_regex.as_deref() {
        None | Some("") => Ok(()),
        Some(regex) => pattern::compile(regex).map(|_| ()),
    }
}

fn check_names(names: &[String]) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    if names.len() > SUBSCRIBED_NAMES_MAX {
        return invalid(format!(
            "SubscribedTopicNames has more than {SUBSCRIBED_NAMES_MAX} names: subscribe by a regular expression."
        ));
    }
    // Kafka takes them and finds no topic: no topic has such a name.
    if names.iter().any(|name| name.len() > TOPIC_NAME_BYTES_MAX) {
        return invalid(format!(
            "SubscribedTopicNames has a name of more than {TOPIC_NAME_BYTES_MAX} characters."
        ));
    }
    Ok(())
}

/// What a request of the member `id` adds to the bounds at most; 0 when it says nothing of what counts there.
fn most_bytes(request: &ConsumerGroupHeartbeatRequest, id: &str) -> usize {
    /// More than anything takes beside its text.
    const EACH: usize = 1_024;
    let text = |text: Option<&str>| text.map_or(0, |text| EACH + text.len());
    let names = request.subscribed_topic_names.iter().flatten();
    let names: usize = names.map(|name| text(Some(name))).sum();
    let itself = match request.member_epoch {
        EPOCH_JOINING => text(Some(id)) + text(request.instance_id.as_deref()),
        _living => 0,
    };
    let regex = text(request.subscribed_topic_regex.as_deref());
    names + regex + text(request.rack_id.as_deref()) + itself
}

impl Group {
    /// A heartbeat that does not leave. The answer comes through `turn`.
    pub(crate) fn consumer_heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &ConsumerGroupHeartbeatRequest,
        id: &Rc<str>,
        token: Token,
    ) -> Result<(), Refusal> {
        if self.state == State::Dead {
            let message = "the group is being deleted";
            return Err(Refusal::new(ErrorCode::CoordinatorNotAvailable, message));
        }
        let owned = request.topic_partitions.as_ref().map(|topics| {
            let topics = topics.iter();
            Partitions::of(topics.map(|t| (t.topic_id, t.partitions.clone())))
        });
        let admitted = self.admit(turn, caller, request, id, owned.as_ref())?;
        let is_changed = self.subscribe(caller, request, id) || admitted == Admitted::New;
        let regex = self
            .consumer_member(id)
            .and_then(|member| member.regex.clone());
        if let Err(refusal) = self.refresh_topics(turn, regex.as_ref(), is_changed) {
            if admitted == Admitted::New {
                self.take_out(turn, id);
            }
            return Err(refusal);
        }
        self.share_out_anew(turn);
        let is_given_another = self.reconcile(turn, id, owned.as_ref());
        self.live(turn, id);
        let Some(member) = self.consumer_member(id) else {
            return Ok(());
        };
        let is_full = request.rebalance_timeout_ms != -1
            && request.topic_partitions.is_some()
            && (request.subscribed_topic_names.is_some()
                || request.subscribed_topic_regex.is_some());
        let tells = request.member_epoch == EPOCH_JOINING || is_full || is_given_another;
        let answer = ConsumerGroupHeartbeatResponse {
            member_id: Some(id.to_string()),
            member_epoch: member.epoch,
            heartbeat_interval_ms: turn.heartbeat_ms(&self.id),
            assignment: tells.then(|| assignment(&member.assigned)),
            ..ConsumerGroupHeartbeatResponse::default()
        };
        turn.answer_once_logged(token, answer);
        Ok(())
    }

    pub(crate) fn consumer_member(&self, id: &str) -> Option<&ConsumerMember> {
        self.consumer.as_ref()?.members.get(id)
    }

    pub(crate) fn consumer_member_mut(&mut self, id: &str) -> Option<&mut ConsumerMember> {
        self.consumer.as_deref_mut()?.members.get_mut(id)
    }

    /// Lets a member in, be it new, known, or a static one that comes again.
    fn admit(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &ConsumerGroupHeartbeatRequest,
        id: &Rc<str>,
        owned: Option<&Partitions>,
    ) -> Result<Admitted, Refusal> {
        let is_joining = request.member_epoch == EPOCH_JOINING;
        let instance = request.instance_id.as_deref();
        let consumer = self.consumer.as_deref();
        let known = consumer.and_then(|c| match instance {
            Some(instance) => c.members.get(c.instances.get(instance)?),
            None => c.members.get(id),
        });
        let Some(known) = known else {
            if !is_joining {
                let message = format!("Member {id} is not a member of group {}.", self.id);
                return Err(Refusal::new(ErrorCode::UnknownMemberId, message));
            }
            self.check_room(turn)?;
            self.check_growth(turn, caller, request, id, None)?;
            // A client that had the id before, under another instance id or none, begins anew.
            self.take_out(turn, id);
            let mut member = ConsumerMember::new(Rc::clone(id));
            member.instance = instance.map(Rc::from);
            self.consumer.get_or_insert_default().put(member);
            self.history.joined(turn.now, id);
            return Ok(Admitted::New);
        };
        if known.id == *id {
            check_epoch(known, request.member_epoch, owned)?;
            self.check_growth(turn, caller, request, id, Some(known))?;
            return Ok(Admitted::Known);
        }
        // Another one of the same instance.
        // One of the classic protocol never says that it is away (KAFKA-17228): it gives way like one that did.
        let is_released = known.epoch == EPOCH_AWAY || known.classic.is_some();
        let has_room = self.check_growth(turn, caller, request, id, Some(known));
        let known = Rc::clone(&known.id);
        if !is_joining {
            let message =
                format!("Member {id} was replaced by {known}, which has its instance id.");
            return Err(Refusal::new(ErrorCode::FencedInstanceId, message));
        }
        if !is_released {
            let message = format!("InstanceId is in use by member {known}, which has not left.");
            return Err(Refusal::new(ErrorCode::UnreleasedInstanceId, message));
        }
        has_room?;
        // What the id had under another instance is to be shared out anew.
        let admitted = match self.take_out(turn, id) {
            Some(_) => Admitted::New,
            None => Admitted::Known,
        };
        self.replace_consumer(turn, &known, id);
        Ok(admitted)
    }

    /// Bounds on members and on what they hold.
    pub(crate) fn check_room(&self, turn: &Turn<'_>) -> Result<(), Refusal> {
        let Some(consumer) = &self.consumer else {
            return Ok(());
        };
        let size_max = turn.settings.consumer.size_max;
        if consumer.members.len() >= size_max {
            let message = format!("The group has {size_max} members, which is as many as it may.");
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        }
        if consumer.bytes() >= turn.settings.group_bytes_max {
            let message = "The members of the group hold as much memory as they may.";
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        }
        Ok(())
    }

    /// Bounds on what a member brings: a known one may have as much as it has, or less.
    fn check_growth(
        &self,
        turn: &Turn<'_>,
        caller: &Caller,
        request: &ConsumerGroupHeartbeatRequest,
        id: &Rc<str>,
        known: Option<&ConsumerMember>,
    ) -> Result<(), Refusal> {
        let Some(consumer) = self.consumer.as_deref() else {
            return Ok(());
        };
        let mut most = most_bytes(request, id);
        if most == 0 {
            return Ok(());
        }
        let regex = request.subscribed_topic_regex.as_deref();
        let new =
            regex.filter(|regex| !regex.is_empty() && !consumer.patterns.contains_key(*regex));
        if new.is_some() {
            let all = turn.topics.names();
            most += bytes_of_pattern("", all.iter().map(|name| &**name));
        }
        if turn.may_grow && consumer.bytes() + most <= turn.settings.group_bytes_max {
            return Ok(());
        }
        let matched = match new {
            Some(regex) => pattern::resolve(&pattern::compile(regex)?, turn.topics),
            None => Rc::default(),
        };
        let mut next = match known {
            Some(known) => known.clone(),
            None => ConsumerMember::new(Rc::clone(id)),
        };
        next.id = Rc::clone(id);
        if let Some(instance) = request.instance_id.as_deref() {
            next.instance = Some(instance.into());
        }
        if let Some(names) = &request.subscribed_topic_names {
            next.topics = consumer
                .subscribers
                .shared(names.iter().map(String::as_str));
        }
        next.note_told(caller, request);
        match consumer.has_room_for(turn, known, &next, &matched) {
            true => Ok(()),
            false => {
                let message = "There is no room for what the member subscribes to.";
                Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message))
            }
        }
    }

    /// A static member comes again under another id, and has what it had.
    pub(crate) fn replace_consumer(&mut self, turn: &mut Turn<'_>, old: &Rc<str>, new: &Rc<str>) {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return;
        };
        let target = consumer.targets.get(old).cloned();
        let Some(mut member) = self.take_out(turn, old) else {
            return;
        };
        member.id = Rc::clone(new);
        member.epoch = EPOCH_JOINING;
        member.previous_epoch = EPOCH_LEAVING;
        member.timer_at = 0;
        member.deadline = None;
        if let Some(consumer) = self.consumer.as_deref_mut() {
            consumer.put(member);
            consumer.set_target(new, target);
        }
        self.mark_member(new);
        self.unlogged.insert(Key::Target(Rc::clone(new)));
    }

    /// Takes what the request says of the member. True when that asks for another distribution.
    fn subscribe(
        &mut self,
        caller: &Caller,
        request: &ConsumerGroupHeartbeatRequest,
        id: &Rc<str>,
    ) -> bool {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return false;
        };
        let Some(known) = consumer.members.get(id) else {
            return false;
        };
        let topics = request.subscribed_topic_names.as_deref();
        let topics = topics.map(|names| {
            let names = names.iter().map(String::as_str);
            consumer.subscribers.shared(names)
        });
        let regex = request.subscribed_topic_regex.as_deref();
        let is_same = |asked: Option<&str>, has: Option<&str>| asked.is_none() || asked == has;
        let is_changed = topics
            .as_ref()
            .is_some_and(|topics| *topics != known.topics)
            || regex.is_some_and(|regex| regex != known.regex.as_deref().unwrap_or_default());
        let is_told = is_same(request.rack_id.as_deref(), known.rack.as_deref())
            && is_same(
                request.server_assignor.as_deref(),
                known.assignor.as_deref(),
            )
            && (request.rebalance_timeout_ms == -1
                || request.rebalance_timeout_ms == known.rebalance_ms)
            && *known.client_id == *kept(&caller.client_id)
            && *known.client_host == *caller.client_host
            && known.classic.is_none();
        if !is_changed && is_told {
            return false;
        }
        consumer.change(id, |member| {
            if let Some(topics) = topics {
                member.topics = topics;
            }
            member.note_told(caller, request);
        });
        for regex in consumer.drop_unused_patterns() {
            self.unlogged.insert(Key::Regex(regex));
        }
        self.unlogged.insert(Key::Member(Rc::clone(id)));
        is_changed
    }

    /// Brings a member one step nearer to what it is to have. True when it has something else then.
    pub(crate) fn reconcile(
        &mut self,
        turn: &mut Turn<'_>,
        id: &Rc<str>,
        owned: Option<&Partitions>,
    ) -> bool {
        let Some(consumer) = self.consumer.as_deref_mut() else {
            return false;
        };
        let Some(member) = consumer.members.get(id) else {
            return false;
        };
        let is_lagging = consumer.target_epoch < consumer.epoch;
        let is_there = member.state == MemberState::Stable && member.epoch == consumer.target_epoch;
        if is_there && !is_lagging {
            return false;
        }
        let target = consumer.target_of(member, turn.topics);
        let is_held = |topic, partition| consumer.holders.contains_key(&(topic, partition));
        let step = next_step(member, consumer.target_epoch, &target, owned, is_held);
        let Some(step) = step.filter(|step| {
            step.epoch != member.epoch
                || step.state != member.state
                || step.assigned != member.assigned
                || step.revoking != member.revoking
        }) else {
            return false;
        };
        let is_given_another = step.assigned != member.assigned;
        let wait_ms = u64::try_from(member.rebalance_ms).unwrap_or(0);
        consumer.change(id, |member| {
            member.previous_epoch = member.epoch;
            member.epoch = step.epoch;
            member.state = step.state;
            member.assigned = step.assigned;
            member.revoking = step.revoking;
            member.note_held(step.epoch);
        });
        self.unlogged.insert(Key::Current(Rc::clone(id)));
        match step.state {
            MemberState::Unrevoked => {
                let until = turn.now.ms + wait_ms;
                self.set_deadline(turn, id, Some((until, Deadline::Revoke(step.epoch))));
            }
            MemberState::Stable | MemberState::Unreleased => self.set_deadline(turn, id, None),
        }
        is_given_another
    }

    /// The member was heard of: its session begins anew. Its timer follows when it fires.
    pub(crate) fn live(&mut self, turn: &mut Turn<'_>, id: &str) {
        let session_ms = self.consumer_session_ms(turn, id);
        let group = Rc::clone(&self.id);
        let Some(member) = self.consumer_member_mut(id) else {
            return;
        };
        member.due = turn.now.ms + session_ms;
        if member.timer_at == 0 || member.timer_at > member.due {
            let timer = || Timer::Session(Rc::clone(&group), Rc::clone(&member.id));
            turn.timers.disarm(member.timer_at, timer());
            member.timer_at = member.due;
            turn.timers.arm(member.timer_at, timer());
        }
    }

    fn consumer_session_ms(&self, turn: &Turn<'_>, id: &str) -> u64 {
        let classic = self.consumer_member(id).and_then(|m| m.classic.as_ref());
        let ms = match classic {
            Some(classic) => classic.session_ms,
            None => turn.session_ms(&self.id),
        };
        u64::try_from(ms).unwrap_or(0).max(1)
    }

    /// By when a member must have done something; replaces what was set before.
    pub(crate) fn set_deadline(
        &mut self,
        turn: &mut Turn<'_>,
        id: &str,
        deadline: Option<(u64, Deadline)>,
    ) {
        let group = Rc::clone(&self.id);
        let Some(member) = self.consumer_member_mut(id) else {
            return;
        };
        let timer = || Timer::Deadline(Rc::clone(&group), Rc::clone(&member.id));
        if let Some((at, _)) = member.deadline.take() {
            turn.timers.disarm(at, timer());
        }
        if let Some((at, _)) = deadline {
            turn.timers.arm(at, timer());
        }
        member.deadline = deadline;
    }

    pub(crate) fn mark_member(&mut self, id: &Rc<str>) {
        self.unlogged.insert(Key::Member(Rc::clone(id)));
        self.unlogged.insert(Key::Current(Rc::clone(id)));
    }
}

impl ConsumerMember {
    /// Takes what a heartbeat says, the names apart.
    fn note_told(&mut self, caller: &Caller, request: &ConsumerGroupHeartbeatRequest) {
        if let Some(regex) = request.subscribed_topic_regex.as_deref() {
            self.regex = (!regex.is_empty()).then(|| Rc::from(regex));
        }
        if let Some(rack) = &request.rack_id {
            self.rack = Some(rack.as_str().into());
        }
        if let Some(assignor) = &request.server_assignor {
            self.assignor = Some(assignor.as_str().into());
        }
        if request.rebalance_timeout_ms != -1 {
            self.rebalance_ms = request.rebalance_timeout_ms;
        }
        self.client_id = kept(&caller.client_id).into();
        self.client_host = caller.client_host.as_str().into();
        self.classic = None;
    }
}

impl Turn<'_> {
    fn session_ms(&self, group: &str) -> i32 {
        let own = self.topics.group(group).session_ms;
        own.unwrap_or(self.settings.consumer.session_ms)
    }

    /// Least time between two distributions of a group, in milliseconds.
    pub(crate) fn assignment_ms(&self, group: &str) -> u64 {
        let own = self.topics.group(group).assignment_ms;
        let ms = own.unwrap_or(self.settings.consumer.assignment_ms);
        u64::try_from(ms).unwrap_or(0)
    }

    fn heartbeat_ms(&self, group: &str) -> i32 {
        let own = self.topics.group(group).heartbeat_ms;
        own.unwrap_or(self.settings.consumer.heartbeat_ms)
    }
}

/// Epoch 0 joins anew. Else it must be the member's, or the one before it when the answer with the
/// newer one may have been lost.
fn check_epoch(
    member: &ConsumerMember,
    epoch: i32,
    owned: Option<&Partitions>,
) -> Result<(), Refusal> {
    if epoch == EPOCH_JOINING || epoch == member.epoch {
        return Ok(());
    }
    let is_lost_answer = epoch == member.previous_epoch
        && owned.is_some_and(|owned| owned.is_within(&member.assigned));
    match epoch < member.epoch && is_lost_answer {
        true => Ok(()),
        false => {
            let message = format!(
                "Member epoch {epoch} is not {}, which the coordinator has: give up all partitions \
                 and join again.",
                member.epoch
            );
            Err(Refusal::new(ErrorCode::FencedMemberEpoch, message))
        }
    }
}

fn assignment(assigned: &Partitions) -> Assignment {
    let topics = assigned
        .topics()
        .map(|(topic_id, partitions)| TopicPartitions {
            topic_id,
            partitions: partitions.to_vec(),
        });
    Assignment {
        topic_partitions: topics.collect(),
    }
}
