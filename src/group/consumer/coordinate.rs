//! Requests of the newer protocol, from the coordinator to a group of the right kind.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_describe_response::DescribedGroup;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::{Uuid, shown};

use super::heartbeat::check_request;
use super::member::EPOCH_JOINING;
use super::{Key, Refusal};
use crate::ask::{Answer, Caller, Effect, Now, Token};
use crate::coordinator::{Coordinator, check_id};
use crate::group::{Group, State};
use crate::page::DescribedPage;
use crate::turn::Turn;

impl Coordinator {
    /// ConsumerGroupHeartbeat; `None` when the answer waits for the log.
    pub(crate) fn consumer_heartbeat(
        &mut self,
        now: Now,
        caller: &Caller,
        request: &ConsumerGroupHeartbeatRequest,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let checked = check_request(request, caller.version, &self.settings.consumer);
        if let Err(refusal) = checked.and_then(|()| self.check_group(request)) {
            return Some(refused(refusal));
        }
        let id: Rc<str> = request.group_id.as_str().into();
        let member: Rc<str> = match request.member_id.as_str() {
            "" => match (self.draw)() {
                Some(random) => Uuid::from_random(random).to_string().into(),
                None => {
                    let message = "there are no random bytes for a member id";
                    let code = ErrorCode::CoordinatorNotAvailable;
                    return Some(refused(Refusal::new(code, message)));
                }
            },
            id => id.into(),
        };
        self.ensure_group(&id, now);
        let mut answered = Ok(());
        self.with_turn(&id, now, out, |group, turn| {
            answered = match request.member_epoch {
                ..EPOCH_JOINING => group.consumer_leave(turn, request, token),
                EPOCH_JOINING.. => {
                    match (&group.consumer, group.members.is_empty()) {
                        (Some(_), _) => {}
                        (None, true) => group.become_newer(turn),
                        (None, false) => group.upgrade(turn),
                    }
                    group.consumer_heartbeat(turn, caller, request, &member, token)
                }
            };
        });
        answered.err().map(refused)
    }

    /// Whether there is a group that could take the request, or room for a new one.
    fn check_group(&self, request: &ConsumerGroupHeartbeatRequest) -> Result<(), Refusal> {
        let id = request.group_id.as_str();
        let not_found = |what: &str| {
            let message = format!("Group {id} {what}.");
            Err(Refusal::new(ErrorCode::GroupIdNotFound, message))
        };
        let is_joining = request.member_epoch == EPOCH_JOINING;
        let group = self.groups.get(id);
        let is_known = group.is_some_and(|group| {
            let instance = request.instance_id.as_deref();
            let consumer = group.consumer.as_deref();
            consumer.is_some_and(|consumer| consumer.knows(&request.member_id, instance))
        });
        if is_joining && !is_known && !self.has_room() {
            let message = "The coordinator holds as much memory as it may.";
            return Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message));
        }
        match group {
            None if !is_joining => not_found("not found"),
            None if !self.has_room_for_group() => {
                let message = "The coordinator has as many groups as it may.";
                Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message))
            }
            Some(group) if group.consumer.is_none() => {
                if !is_joining {
                    return not_found("is not a consumer group");
                }
                match group.state {
                    State::Empty => Ok(()),
                    State::PreparingRebalance
                    | State::CompletingRebalance
                    | State::Stable
                    | State::Dead => group
                        .check_upgrade(&self.settings.consumer)
                        .or_else(not_found),
                }
            }
            None | Some(_) => Ok(()),
        }
    }

    /// ConsumerGroupDescribe.
    pub(crate) fn consumer_describe(
        &self,
        id: &str,
        after: Option<&str>,
    ) -> DescribedPage<DescribedGroup> {
        let group = self.groups.get(id);
        let allowed = &self.settings.consumer.assignors;
        let mut answer = match group.and_then(|group| group.consumer.as_deref()) {
            Some(group) => group.describe(&self.topics, allowed, after),
            None => DescribedPage::whole(DescribedGroup {
                error_code: match check_id(id) {
                    Err(code) => code.code(),
                    Ok(()) => ErrorCode::GroupIdNotFound.code(),
                },
                error_message: Some(match group {
                    Some(_) => format!("Group {} is not a consumer group.", shown(id)),
                    None => format!("Group {} not found.", shown(id)),
                }),
                ..DescribedGroup::default()
            }),
        };
        answer.group.group_id = id.to_owned();
        answer
    }
}

impl Group {
    /// A group without members is one of the newer protocol from here on. Its offsets stay.
    pub(crate) fn become_newer(&mut self, turn: &mut Turn<'_>) {
        let handed_out: Vec<Rc<str>> = self.pending.keys().cloned().collect();
        for id in handed_out {
            self.forget_pending(turn, &id);
        }
        if std::mem::take(&mut self.is_recorded) {
            self.unlogged.insert(Key::Classic);
        }
        self.protocol_type = None;
        self.generation = 0;
        self.consumer = Some(Box::default());
    }

    /// A group without members is one of the classic protocol from here on.
    pub(crate) fn become_classic(&mut self) {
        let Some(consumer) = self.consumer.take() else {
            return;
        };
        let patterns = consumer.patterns.keys();
        self.unlogged
            .extend(patterns.map(|regex| Key::Regex(Rc::clone(regex))));
        self.unlogged.extend([Key::TargetEpoch, Key::Group]);
    }
}

fn refused(refusal: Refusal) -> Answer {
    ConsumerGroupHeartbeatResponse {
        error_code: refusal.code.code(),
        error_message: Some(refusal.message),
        ..ConsumerGroupHeartbeatResponse::default()
    }
    .into()
}
