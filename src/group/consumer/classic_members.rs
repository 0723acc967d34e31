//! Members that speak the classic protocol in a group of the newer one, and groups that change their
//! protocol while members live: the first member of the newer protocol turns a classic group into one
//! of the newer kind, and the last one that goes turns it back (KIP-848).

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest,
    SyncGroupResponse,
};
use thalweg_types::TopicId;
use thalweg_types::limits::{SUBSCRIBED_NAMES_MAX, TOPIC_NAME_BYTES_MAX};

use super::member::{Classic, ConsumerMember, Deadline, MemberState};
use super::partitions::Partitions;
use super::{ConsumerGroup, Key};
use crate::ask::{Caller, Token, refused_join};
use crate::group::{Group, State};
use crate::member::{Member, Waiting, copied, kept, rebalance_ms};
use crate::membership::{VERSION_MEMBER_ID_REQUIRED, cancel, member_id};
use crate::settings::ConsumerSettings;
use crate::subscription::{self, CONSUMER, Subscription};
use crate::timers::Timer;
use crate::topics::Topics;
use crate::turn::Turn;

impl Group {
    /// Whether a classic group with members can become one of the newer protocol: its members must be
    /// consumers that say what they subscribe to, and no more than such a group takes.
    ///
    /// # Errors
    /// Why it can not, in words for the client.
    pub(crate) fn check_upgrade(&self, settings: &ConsumerSettings) -> Result<(), &'static str> {
        let reads = |member: &Member| {
            let metadata = self.metadata_of(member);
            subscription::parse(&metadata).is_some_and(|said| is_bounded(&said))
        };
        let are_consumers = self.state != State::Dead
            && self.protocol_type.as_deref() == Some(CONSUMER)
            && self.members.values().all(reads);
        if !settings.migration.upgrades() {
            Err("is a classic one, and group.consumer.migration.policy keeps it so")
        } else if !are_consumers {
            Err("is not a consumer group")
        } else if self.members.len() > settings.size_max {
            Err("is a classic one of more members than group.consumer.max.size")
        } else {
            Ok(())
        }
    }

    fn metadata_of(&self, member: &Member) -> Bytes {
        let first = member.protocols.first().map(|(name, _)| &**name);
        let chosen = self.protocol.as_deref().or(first);
        member.metadata(chosen.unwrap_or_default())
    }

    /// What each member may be working on: its share, and what it said that it had when it joined and
    /// nobody has in its share. Who rebalances cooperatively gives that up only when it has seen its
    /// share, and says so when it joins again (KIP-429).
    fn worked_on(&self, topics: &Topics) -> BTreeMap<Rc<str>, Partitions> {
        let mut taken: HashSet<(TopicId, i32)> = HashSet::new();
        let mut all: BTreeMap<Rc<str>, Partitions> = BTreeMap::new();
        let mut add = |id: &Rc<str>, some: Partitions| {
            let free = some.filtered(|topic, partition| !taken.contains(&(topic, partition)));
            taken.extend(free.iter());
            let known = all.entry(Rc::clone(id)).or_default();
            *known = known.with(&free);
        };
        for member in self.members.values() {
            let share = by_id(subscription::parse_share(&member.assignment), topics);
            add(&member.id, share);
        }
        for member in self.members.values() {
            if let Some(said) = subscription::parse(&self.metadata_of(member)) {
                add(&member.id, by_id(said.owned, topics));
            }
        }
        all
    }

    /// Makes a classic group with members one of the newer protocol. Everybody keeps what it has; who
    /// waits for an answer is to join again.
    pub(crate) fn upgrade(&mut self, turn: &mut Turn<'_>) {
        let epoch = self.generation;
        let mut consumer = ConsumerGroup {
            epoch,
            ..ConsumerGroup::default()
        };
        for (id, assigned) in self.worked_on(turn.topics) {
            let Some(member) = self.members.get(&id) else {
                continue;
            };
            let metadata = self.metadata_of(member);
            let Some(old) = self.take(&id) else {
                continue;
            };
            let timer = Timer::Session(Rc::clone(&self.id), Rc::clone(&id));
            turn.timers.disarm(old.timer_at, timer);
            cancel(turn, old.waiting, ErrorCode::RebalanceInProgress);
            let mut member = ConsumerMember::new(Rc::clone(&id));
            if let Some(said) = subscription::parse(&metadata) {
                member.topics = consumer.subscribers.shared(said.topics.into_iter());
            }
            member.instance = old.instance;
            member.client_id = old.client_id;
            member.client_host = old.client_host;
            member.rebalance_ms = i32::try_from(old.rebalance_ms).unwrap_or(i32::MAX);
            member.classic = Some(Classic {
                session_ms: i32::try_from(old.session_ms).unwrap_or(i32::MAX),
                protocols: old.protocols,
            });
            member.epoch = epoch;
            member.previous_epoch = epoch;
            member.assigned = assigned.clone();
            member.note_held(epoch);
            consumer.put(member);
            consumer.set_target(&id, Some(assigned));
            self.mark_member(&id);
            self.unlogged.insert(Key::Target(id));
        }
        consumer.set_target_epoch(epoch);
        self.end_rounds(turn);
        self.become_newer(turn);
        let ids: Vec<Rc<str>> = consumer.members.keys().cloned().collect();
        self.consumer = Some(Box::new(consumer));
        self.unlogged.extend([Key::Group, Key::TargetEpoch]);
        for id in ids {
            self.live(turn, &id);
        }
    }

    /// Nobody of the newer protocol is left among members of the classic one: the group is a classic
    /// one again, and begins a round.
    pub(crate) fn downgrade_if_all_classic(&mut self, turn: &mut Turn<'_>) {
        let settings = turn.settings;
        let is_due = |c: &ConsumerGroup| {
            settings.consumer.migration.downgrades()
                && !c.members.is_empty()
                && c.classic_members == c.members.len()
                && c.members.len() <= settings.group_size_max
        };
        if !self.consumer.as_deref().is_some_and(is_due) {
            return;
        }
        let ids: Vec<Rc<str>> = self
            .consumer
            .iter()
            .flat_map(|c| c.members.keys().cloned())
            .collect();
        let epoch = self.consumer.as_ref().map_or(0, |c| c.epoch);
        for id in ids {
            let Some(old) = self.take_out(turn, &id) else {
                continue;
            };
            let Some(classic) = old.classic else {
                continue;
            };
            let version = version_of(&classic);
            let assignment = subscription::share(version, &by_name(&old.assigned, turn.topics));
            let session_ms = u64::try_from(classic.session_ms).unwrap_or(0);
            self.insert(Member {
                id: Rc::clone(&id),
                instance: old.instance,
                client_id: old.client_id,
                client_host: old.client_host,
                session_ms,
                rebalance_ms: u64::try_from(old.rebalance_ms).unwrap_or(session_ms),
                protocols: classic.protocols,
                assignment,
                waiting: Waiting::No,
                is_new: false,
                synced: true,
                due: 0,
                timer_at: 0,
            });
            self.restart_session(turn, &id);
        }
        self.become_classic();
        self.generation = epoch;
        self.protocol_type = Some(CONSUMER.to_owned());
        self.leader = self.members.keys().next().cloned();
        self.protocol = self.select_protocol();
        self.is_recorded = true;
        self.unlogged.insert(Key::Classic);
        self.transition(State::Stable, turn.now.wall);
        self.prepare(turn);
    }

    /// JoinGroup in a group of the newer protocol. The answer when it is a refusal; else it comes
    /// through `turn`.
    pub(crate) fn join_newer(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
        random: [u8; 16],
    ) -> Option<JoinGroupResponse> {
        let refuse = |code| Some(refused_join(code, &request.member_id));
        if let Err(code) = self.check_alive() {
            return refuse(code);
        }
        let Some(said) = self.classic_subscription(request) else {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        };
        let id = match self.classic_id(turn, caller, request, random) {
            Ok(id) => id,
            Err(refusal) => return Some(*refusal),
        };
        // In whichever generation it got them: the answer with a newer one may have been lost, and then it
        // works on what it had. Of that, only what it was to give up makes a difference.
        let owned = by_id(said.owned, turn.topics);
        let consumer = self.consumer.as_deref_mut()?;
        let known = consumer.members.get(&id);
        let mut member = match known {
            Some(known) => known.clone(),
            None => ConsumerMember::new(Rc::clone(&id)),
        };
        member.topics = consumer.subscribers.shared(said.topics.into_iter());
        member.rack = said.rack.map(Box::from);
        member.note_joined(caller, request);
        if !consumer.has_room_for(turn, known, &member, &[]) {
            // As where a group of the classic protocol has no room.
            if known.is_some() {
                self.history.left(turn.now, &id);
                self.expel(turn, &id);
            }
            return Some(refused_join(ErrorCode::GroupMaxSizeReached, ""));
        }
        let is_changed = known.is_none_or(|k| k.topics != member.topics || k.regex.is_some());
        let wait_ms = u64::try_from(member.rebalance_ms).unwrap_or(0);
        consumer.put(member);
        for regex in consumer.drop_unused_patterns() {
            self.unlogged.insert(Key::Regex(regex));
        }
        self.mark_member(&id);
        if self.refresh_topics(turn, None, is_changed).is_err() {
            self.expel(turn, &id);
            return refuse(ErrorCode::UnknownServerError);
        }
        self.share_out_anew(turn);
        self.reconcile(turn, &id, Some(&owned));
        self.live(turn, &id);
        self.set_deadline(turn, &id, Some((turn.now.ms + wait_ms, Deadline::Sync)));
        let member = self.consumer_member(&id)?;
        let answer = JoinGroupResponse {
            generation_id: member.epoch,
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: request.protocols.first().map(|p| p.name.clone()),
            member_id: id.to_string(),
            ..JoinGroupResponse::default()
        };
        turn.answer_once_logged(token, answer);
        None
    }

    /// What the client subscribes to, if it can be one among the members that speak its protocol.
    fn classic_subscription<'r>(&self, request: &'r JoinGroupRequest) -> Option<Subscription<'r>> {
        let consumer = self.consumer.as_deref()?;
        let others = || {
            consumer
                .members
                .values()
                .filter(|m| *m.id != *request.member_id)
        };
        let knows = |classic: &Classic, name: &str| {
            classic.protocols.iter().any(|(known, _)| **known == *name)
        };
        let is_common = |name: &str| {
            let mut classic = others().filter_map(|member| member.classic.as_ref());
            classic.all(|classic| knows(classic, name))
        };
        let is_one = request.protocol_type == CONSUMER
            && request.protocols.iter().any(|p| is_common(&p.name));
        let first = request.protocols.first().filter(|_| is_one)?;
        subscription::parse(&first.metadata).filter(is_bounded)
    }

    /// The id of a client that joins, new, known, or in the place of another one of its instance.
    fn classic_id(
        &mut self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        request: &JoinGroupRequest,
        random: [u8; 16],
    ) -> Result<Rc<str>, Box<JoinGroupResponse>> {
        let refuse = |code, id: &str| Err(Box::new(refused_join(code, id)));
        let asked = request.member_id.as_str();
        let instance = request.group_instance_id.as_deref();
        let known = match instance {
            Some(instance) => {
                let consumer = self.consumer.as_deref();
                consumer.and_then(|c| c.instances.get(instance)).cloned()
            }
            None => self
                .consumer_member(asked)
                .map(|member| Rc::clone(&member.id)),
        };
        match (instance, known) {
            (_, Some(known)) if *known == *asked => Ok(known),
            (Some(instance), Some(known)) if asked.is_empty() => {
                let id = member_id(instance, random);
                self.replace_consumer(turn, &known, &id);
                Ok(id)
            }
            (_, Some(_)) => refuse(ErrorCode::FencedInstanceId, asked),
            (Some(_), None) if !asked.is_empty() => refuse(ErrorCode::UnknownMemberId, asked),
            (_, None) => {
                if self.check_room(turn).is_err() {
                    return refuse(ErrorCode::GroupMaxSizeReached, "");
                }
                let id = match asked {
                    "" => member_id(instance.unwrap_or(&caller.client_id), random),
                    asked => asked.into(),
                };
                let needs_id = caller.version >= VERSION_MEMBER_ID_REQUIRED;
                match asked.is_empty() && instance.is_none() && needs_id {
                    // Whoever comes with it is let in; nothing is kept until then.
                    true => refuse(ErrorCode::MemberIdRequired, &id),
                    false => Ok(id),
                }
            }
        }
    }

    /// The member of a classic request in a group of the newer protocol.
    fn classic_member(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<&ConsumerMember, ErrorCode> {
        self.check_alive()?;
        let consumer = self.consumer.as_deref().ok_or(ErrorCode::UnknownMemberId)?;
        if let Some(instance) = instance {
            let known = consumer
                .instances
                .get(instance)
                .ok_or(ErrorCode::UnknownMemberId)?;
            if **known != *id {
                return Err(ErrorCode::FencedInstanceId);
            }
        }
        let member = consumer
            .members
            .get(id)
            .filter(|member| member.classic.is_some());
        let member = member.ok_or(ErrorCode::UnknownMemberId)?;
        match member.epoch == generation {
            true => Ok(member),
            false => Err(ErrorCode::IllegalGeneration),
        }
    }

    /// SyncGroup in a group of the newer protocol: the share that the coordinator has decided.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn sync_newer(
        &mut self,
        turn: &mut Turn<'_>,
        request: &SyncGroupRequest,
        token: Token,
    ) -> Result<(), ErrorCode> {
        let instance = request.group_instance_id.as_deref();
        let member = self.classic_member(&request.member_id, instance, request.generation_id)?;
        let id = Rc::clone(&member.id);
        let epoch = self.consumer.as_ref().map_or(0, |c| c.target_epoch);
        if epoch > member.epoch && member.state != MemberState::Unrevoked {
            self.expect_join(turn, &id);
            return Err(ErrorCode::RebalanceInProgress);
        }
        let version = member.classic.as_ref().map_or(0, version_of);
        let protocol = member.classic.as_ref().and_then(|c| c.protocols.first());
        let answer = SyncGroupResponse {
            protocol_type: Some(CONSUMER.to_owned()),
            protocol_name: protocol.map(|(name, _)| name.to_string()),
            assignment: subscription::share(version, &by_name(&member.assigned, turn.topics)),
            ..SyncGroupResponse::default()
        };
        self.set_deadline(turn, &id, None);
        self.live(turn, &id);
        turn.answer_once_logged(token, answer);
        Ok(())
    }

    /// Heartbeat in a group of the newer protocol.
    ///
    /// # Errors
    /// What the member has to do instead.
    pub(crate) fn heartbeat_newer(
        &mut self,
        turn: &mut Turn<'_>,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatResponse, ErrorCode> {
        let instance = request.group_instance_id.as_deref();
        self.classic_member(&request.member_id, instance, request.generation_id)?;
        // It may be the only one who comes by when that is due.
        self.share_out_anew(turn);
        let member = self.classic_member(&request.member_id, instance, request.generation_id)?;
        let id = Rc::clone(&member.id);
        let Some(consumer) = self.consumer.as_deref() else {
            return Err(ErrorCode::UnknownMemberId);
        };
        // Joining again brings nothing before there is a newer distribution.
        let is_behind = member.epoch < consumer.target_epoch
            || match member.state {
                MemberState::Stable => false,
                MemberState::Unrevoked => true,
                MemberState::Unreleased => consumer.has_free_for(member),
            };
        self.live(turn, &id);
        if is_behind {
            self.expect_join(turn, &id);
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(HeartbeatResponse::default())
    }

    /// Somebody leaves by the classic protocol, or an administrator takes a member of either out (KIP-345). The caller
    /// raises the epoch once for all of them.
    pub(crate) fn leave_newer(
        &mut self,
        turn: &mut Turn<'_>,
        id: &str,
        instance: Option<&str>,
    ) -> ErrorCode {
        let Some(consumer) = self.consumer.as_deref() else {
            return ErrorCode::UnknownMemberId;
        };
        let known = match instance {
            Some(instance) => consumer.instances.get(instance),
            None => consumer.members.get_key_value(id).map(|(id, _)| id),
        };
        match known.cloned() {
            None => ErrorCode::UnknownMemberId,
            // An operator names the instance only.
            Some(known) if *known == *id || (instance.is_some() && id.is_empty()) => {
                self.history.left(turn.now, &known);
                self.take_out(turn, &known);
                ErrorCode::None
            }
            Some(_) => ErrorCode::FencedInstanceId,
        }
    }

    /// The member was told to join again, and has its rebalance timeout to do so.
    fn expect_join(&mut self, turn: &mut Turn<'_>, id: &str) {
        let Some(member) = self.consumer_member(id) else {
            return;
        };
        if !matches!(member.deadline, Some((_, Deadline::Join))) {
            let wait_ms = u64::try_from(member.rebalance_ms).unwrap_or(0);
            self.set_deadline(turn, id, Some((turn.now.ms + wait_ms, Deadline::Join)));
        }
    }
}

impl ConsumerMember {
    /// Takes what a request to join says, but for what is in its metadata.
    fn note_joined(&mut self, caller: &Caller, request: &JoinGroupRequest) {
        self.regex = None;
        self.instance = request.group_instance_id.as_deref().map(Rc::from);
        self.client_id = kept(&caller.client_id).into();
        self.client_host = caller.client_host.as_str().into();
        self.rebalance_ms = i32::try_from(rebalance_ms(caller, request)).unwrap_or(i32::MAX);
        self.assignor = None;
        self.classic = Some(Classic {
            session_ms: request.session_timeout_ms,
            protocols: copied(&request.protocols),
        });
    }
}

impl ConsumerGroup {
    /// Whether somebody has given up what the member waits for.
    fn has_free_for(&self, member: &ConsumerMember) -> bool {
        let target = self.targets.get(&member.id);
        target.is_some_and(|target| {
            let missing = target.without(&member.assigned);
            missing
                .iter()
                .any(|place| !self.holders.contains_key(&place))
        })
    }
}

/// No more names than a member of such a group may subscribe to, and none that is no topic's for its length.
fn is_bounded(said: &Subscription<'_>) -> bool {
    let mut names = said.topics.iter();
    said.topics.len() <= SUBSCRIBED_NAMES_MAX && names.all(|n| n.len() <= TOPIC_NAME_BYTES_MAX)
}

/// Version of the metadata that the member sends, and so of its shares.
fn version_of(classic: &Classic) -> i16 {
    let first = classic.protocols.first();
    first
        .and_then(|(_, metadata)| subscription::parse(metadata))
        .map_or(0, |said| said.version)
}

fn by_id(topics: Vec<(&str, Vec<i32>)>, catalog: &Topics) -> Partitions {
    let known = topics.into_iter().filter_map(|(name, list)| {
        let shape = catalog.topic(name)?;
        let there = list
            .into_iter()
            .filter(|p| (0..shape.partitions).contains(p));
        Some((shape.id, there.collect::<Vec<i32>>()))
    });
    Partitions::of(known)
}

fn by_name(partitions: &Partitions, catalog: &Topics) -> Vec<(String, Vec<i32>)> {
    let topics = partitions.topics();
    topics
        .filter_map(|(id, list)| Some((catalog.name(id)?.to_string(), list.to_vec())))
        .collect()
}
