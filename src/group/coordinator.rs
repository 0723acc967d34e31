//! The groups of one partition of the offsets topic: events in, effects out.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, SyncGroupRequest,
};
use thalweg_types::TimestampMs;
use thalweg_types::limits::{COORDINATOR_GROWTH_SHARE, COORDINATOR_TIMERS_PER_TURN};

use crate::ask::{
    Answer, Ask, Caller, Effect, Now, Stability, Token, WriteId, refused_commit, refused_join,
    refused_members, refused_sync,
};
use crate::commit::Fetch;
use crate::group::{Group, Members, State};
use crate::record::Record;
use crate::settings::Settings;
use crate::sweep::{Look, Point, Progress, Stand, Sweeps, Wanted};
use crate::tally::{Happened, Tally};
use crate::timers::{Timer, Timers};
use crate::topics::Topics;
use crate::transactions::Transactions;
use crate::turn::{Pending, Then, Turn, Writes};

/// First version of OffsetCommit that says when there is no such group (KIP-848).
const VERSION_GROUP_NOT_FOUND: i16 = 9;

/// Draws 16 random bytes for a member id; `None` when there are none to be had.
pub type Draw = Box<dyn FnMut() -> Option<[u8; 16]>>;

/// The coordinator of one partition. See the module documentation for the order of calls.
pub struct Coordinator {
    pub(crate) settings: Settings,
    pub(crate) topics: Topics,
    /// In order, so that a look at all can be left and taken up again, and boxed, so that little moves when
    /// one comes or goes.
    pub(crate) groups: BTreeMap<Rc<str>, Box<Group>>,
    pub(crate) timers: Timers,
    pub(crate) writes: Writes,
    pub(crate) tally: Tally,
    pub(crate) happened: Happened,
    /// When the log had been replayed.
    pub(crate) loaded: Now,
    pub(crate) draw: Draw,
    pub(crate) sweeps: Sweeps,
    pub(crate) transactions: Transactions,
    /// The members of the record that was replayed last that are yet to be taken in, and their group.
    restoring: Option<(Rc<str>, Members)>,
    /// How far groups are made ready, once the log was replayed.
    ready: Look,
    /// Bytes that other coordinators of the core hold.
    others_bytes: usize,
    is_loading: bool,
}

impl Coordinator {
    /// An empty one that is still to be loaded.
    #[must_use]
    pub fn new(settings: Settings, topics: Topics, draw: Draw) -> Coordinator {
        Coordinator {
            settings,
            topics,
            groups: BTreeMap::new(),
            timers: Timers::default(),
            writes: Writes::default(),
            tally: Tally::default(),
            happened: Happened::default(),
            loaded: Now {
                ms: 0,
                wall: TimestampMs::NONE,
            },
            draw,
            sweeps: Sweeps::default(),
            transactions: Transactions::default(),
            restoring: None,
            ready: Look::default(),
            others_bytes: 0,
            is_loading: true,
        }
    }

    /// Replays one record of the log. With [`Progress::More`] it is one of a group of many members, and
    /// [`Coordinator::on_record_rest`] goes on with it.
    pub fn on_record(&mut self, record: Record, now: Now) -> Progress {
        let id = match &record {
            Record::Offset { group, .. }
            | Record::Group { group, .. }
            | Record::Consumer { group, .. } => Rc::clone(group),
        };
        self.ensure_group(&id, now);
        // Replaying has no effects: nobody waits yet.
        let mut members = Members::default();
        self.with_turn(&id, now, &mut Vec::new(), |group, _| {
            members = group.replay(record);
        });
        self.restoring = Some((id, members));
        self.on_record_rest(now)
    }

    /// Goes on with the record that was replayed last, for one turn of the core.
    pub fn on_record_rest(&mut self, now: Now) -> Progress {
        let Some((id, mut members)) = self.restoring.take() else {
            return Progress::Done;
        };
        if members.len() == 0 {
            return Progress::Done;
        }
        self.with_turn(&id, now, &mut Vec::new(), |group, _| {
            group.restore_some(&mut members);
        });
        self.restoring = Some((id, members)).filter(|(_, members)| members.len() > 0);
        match self.restoring {
            Some(_) => Progress::More,
            None => Progress::Done,
        }
    }

    /// The whole log was replayed: members that are in it have a session's time to show up, and offsets
    /// of topics that are gone end. `Topics` must know all topics by now. A slice of the groups at a
    /// time is made ready.
    pub fn on_loaded(&mut self, now: Now, out: &mut Vec<Effect>) -> Progress {
        let mut ready = std::mem::take(&mut self.ready);
        let progress = self.look_on(&mut ready, |machine, id, from, left| {
            machine.make_ready(now, id, from, left, out)
        });
        self.ready = ready;
        if progress == Progress::More {
            return progress;
        }
        self.is_loading = false;
        self.loaded = now;
        self.plan_expiry(now);
        Progress::Done
    }

    /// Ends offsets whose topic is gone, and once there are no more, begins the sessions of members.
    fn make_ready(
        &mut self,
        now: Now,
        id: &Rc<str>,
        from: Point,
        left: &mut usize,
        out: &mut Vec<Effect>,
    ) -> Stand {
        let after = match from {
            Point::Offset(after) => {
                let stand = self.end_some(now, id, after, &Wanted::Orphans, left, out);
                if stand != Stand::Done {
                    return stand;
                }
                None
            }
            Point::Member(after) => after,
        };
        let mut stand = Stand::Done;
        self.with_turn(id, now, out, |group, turn| {
            stand = group.begin_sessions(turn, after, left);
        });
        stand
    }

    /// True until [`Coordinator::on_loaded`].
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// A request. It is answered under its token, now or by a later event.
    pub fn on_ask(
        &mut self,
        now: Now,
        caller: &Caller,
        ask: Ask,
        token: Token,
        out: &mut Vec<Effect>,
    ) {
        if self.is_loading {
            let answer = ask.refused(ErrorCode::CoordinatorLoadInProgress);
            out.push(Effect::Answer { token, answer });
            return;
        }
        let answer = match ask {
            Ask::Join(request) => self.join(now, caller, &request, token, out),
            Ask::Sync(request) => self.sync(now, &request, token, out),
            Ask::Heartbeat(request) => Some(self.heartbeat(now, request, out)),
            Ask::Leave(request) => Some(self.leave(now, &request, out)),
            Ask::Commit(request) => self.commit(now, caller.version, &request, token, out),
            Ask::FetchOffsets(request, wanted, after) => {
                self.fetch_settled_offsets(Fetch { request, after }, wanted, token)
            }
            Ask::DeleteOffsets(request) => self.delete_offsets(now, &request, token, out),
            Ask::List(query, after) => Some(Answer::List(Ok(self.list(&query, after.as_deref())))),
            Ask::Describe(group, after) => Some(
                self.describe(&group, caller.version, after.as_deref())
                    .into(),
            ),
            Ask::ConsumerHeartbeat(request) => {
                self.consumer_heartbeat(now, caller, &request, token, out)
            }
            Ask::ConsumerDescribe(group, after) => {
                Some(self.consumer_describe(&group, after.as_deref()).into())
            }
            Ask::Delete(group) => self.delete(now, &group, token, out),
        };
        if let Some(answer) = answer {
            out.push(Effect::Answer { token, answer });
        }
    }

    /// A write is committed: what its records say is now so.
    ///
    /// # Panics
    /// When no such write is on its way.
    pub fn on_written(&mut self, now: Now, id: WriteId, out: &mut Vec<Effect>) {
        let mut pending = self.take_write(id);
        let fetches = std::mem::take(&mut pending.fetches);
        self.with_turn(&pending.group, now, out, |group, turn| {
            group.writes -= 1;
            let records = pending.records.len();
            for record in Rc::unwrap_or_clone(pending.records) {
                // The state of the members is ahead of the log; only offsets wait for it.
                match record {
                    Record::Offset { .. } => {
                        group.replay(record);
                    }
                    Record::Group { .. } | Record::Consumer { .. } => {}
                }
            }
            match pending.then {
                Then::Nothing => {}
                Then::Ends { settled } => group.ends.ended(settled),
                Then::Commit(token, answer) => {
                    turn.happened.offsets_committed += records as u64;
                    turn.answer(token, answer);
                }
                Then::DeleteOffsets(token, answer) => turn.answer(token, answer),
                Then::Assign { generation, shares } => group.on_assigned(turn, generation, shares),
                Then::Replace(made) => group.on_replaced(turn, made),
                Then::Log(_) => {}
                Then::DeleteOn(token, answer) => {
                    group.delete_on(turn, std::iter::empty(), token, answer);
                }
                Then::Delete(token, answer) => {
                    group.transition(State::Empty, turn.now.wall);
                    group.is_recorded = false;
                    group.consumer = None;
                    turn.answer(token, answer);
                }
                Then::Retire { .. } => {
                    group.transition(State::Empty, turn.now.wall);
                    group.is_recorded = false;
                    group.consumer = None;
                }
            }
            for (token, answer) in pending.also {
                turn.answer(token, answer);
            }
        });
        self.answer_fetches(fetches, out);
    }

    /// Tells those who waited for a write what is committed now.
    fn answer_fetches(&self, fetches: Vec<(Token, Fetch)>, out: &mut Vec<Effect>) {
        for (token, fetch) in fetches {
            let answer = self.fetch_offsets(fetch, Stability::Stable).into();
            out.push(Effect::Answer { token, answer });
        }
    }

    /// A write failed, and nothing of it will be in the log.
    ///
    /// # Panics
    /// When no such write is on its way.
    pub fn on_write_failed(
        &mut self,
        now: Now,
        id: WriteId,
        error: ErrorCode,
        out: &mut Vec<Effect>,
    ) {
        let mut pending = self.take_write(id);
        let fetches = std::mem::take(&mut pending.fetches);
        let code = told(error);
        let lost = pending.records;
        self.with_bare_turn(&pending.group, now, out, |group, turn| {
            group.writes -= 1;
            group.unlogged.extend(lost.iter().filter_map(Record::mark));
            for (token, answer) in pending.also {
                turn.answer(token, answer.into_refusal(code));
            }
            match pending.then {
                Then::Nothing => {}
                Then::Ends { settled } => group.ends.ended(settled),
                Then::Commit(token, mut answer) => {
                    let rows = answer.topics.iter_mut().flat_map(|t| &mut t.partitions);
                    for row in rows.filter(|row| row.error_code == 0) {
                        row.error_code = told_of_commit(error).code();
                    }
                    turn.answer(token, answer);
                }
                Then::DeleteOffsets(token, mut answer) => {
                    answer.error_code = code.code();
                    answer.topics.clear();
                    turn.answer(token, answer);
                }
                Then::Assign { generation, .. } => group.on_assign_failed(turn, generation, code),
                Then::Replace(failed) => group.on_replace_failed(turn, failed, code),
                Then::Log(keys) => group.unlogged.extend(keys),
                Then::DeleteOn(token, mut answer) | Then::Delete(token, mut answer) => {
                    group.transition(State::Empty, turn.now.wall);
                    answer.error_code = code.code();
                    turn.answer(token, answer);
                }
                Then::Retire { since } => group.transition(State::Empty, since),
            }
        });
        self.answer_fetches(fetches, out);
    }

    /// When [`Coordinator::on_time`] is wanted next, in monotonic milliseconds.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Time has passed. Fires so many of the timers that are due, soonest first, as one turn of the core may;
    /// [`Coordinator::next_deadline`] tells of the others.
    pub fn on_time(&mut self, now: Now, out: &mut Vec<Effect>) {
        for _ in 0..COORDINATOR_TIMERS_PER_TURN {
            let Some(timer) = self.timers.take_due(now.ms) else {
                return;
            };
            match timer {
                Timer::Session(id, member) => {
                    self.with_turn(&id, now, out, |group, turn| match group.consumer {
                        Some(_) => group.on_consumer_session_due(turn, &member),
                        None => group.on_session_due(turn, &member),
                    })
                }
                Timer::Deadline(id, member) => {
                    self.with_turn(&id, now, out, |g, turn| g.on_deadline(turn, &member));
                }
                Timer::Pending(id, member) => self.with_turn(&id, now, out, |group, turn| {
                    group.pending.remove(&member);
                    group.after_forgetting(turn);
                }),
                Timer::Join(id) => self.with_turn(&id, now, out, |g, turn| g.on_join_due(turn)),
                Timer::Sync(id) => self.with_turn(&id, now, out, |g, turn| g.on_sync_due(turn)),
                Timer::Expiry => self.sweep(now, Wanted::Due),
                Timer::Sweep => self.sweep_on(now, out),
            }
        }
    }

    /// What there is now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What happened since the last call.
    pub fn take_happened(&mut self) -> Happened {
        std::mem::take(&mut self.happened)
    }

    fn take_write(&mut self, id: WriteId) -> Pending {
        let pending = self.writes.pending.remove(&id);
        pending.expect("the shell reports each write once")
    }

    fn join(
        &mut self,
        now: Now,
        caller: &Caller,
        request: &JoinGroupRequest,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let refuse = |code| Some(refused_join(code, &request.member_id).into());
        if let Err(code) = check_id(&request.group_id) {
            return refuse(code);
        }
        let allowed = &self.settings.session_timeout_ms;
        if !allowed.contains(&request.session_timeout_ms) {
            return refuse(ErrorCode::InvalidSessionTimeout);
        }
        let id: Rc<str> = request.group_id.as_str().into();
        match self.groups.get(&id) {
            None if !request.member_id.is_empty() => return refuse(ErrorCode::UnknownMemberId),
            None if !self.has_room_for_group() => return refuse(ErrorCode::GroupMaxSizeReached),
            Some(group) if !self.has_room() && !group.knows(request) => {
                return refuse(ErrorCode::GroupMaxSizeReached);
            }
            None | Some(_) => {}
        }
        // Clients come again after this one.
        let Some(random) = (self.draw)() else {
            return refuse(ErrorCode::CoordinatorNotAvailable);
        };
        self.ensure_group(&id, now);
        let mut refused = None;
        self.with_turn(&id, now, out, |group, turn| {
            if group.consumer.is_some() {
                if group.member_count() > 0 {
                    refused = group.join_newer(turn, caller, request, token, random);
                    return;
                }
                group.become_classic();
            }
            refused = group.join(turn, caller, request, token, random);
        });
        refused.map(Answer::from)
    }

    fn heartbeat(&mut self, now: Now, request: HeartbeatRequest, out: &mut Vec<Effect>) -> Answer {
        let mut answered: Result<HeartbeatResponse, ErrorCode> =
            check_id(&request.group_id).and(Err(ErrorCode::UnknownMemberId));
        match self.groups.get_mut(request.group_id.as_str()) {
            None => {}
            Some(group) if group.consumer.is_none() => {
                answered = group.heartbeat(now.ms, &request);
            }
            Some(_) => self.with_turn(&request.group_id, now, out, |group, turn| {
                answered = group.heartbeat_newer(turn, &request);
            }),
        }
        match answered {
            Ok(answer) => answer.into(),
            Err(code) => Ask::Heartbeat(request).refused(code),
        }
    }

    fn sync(
        &mut self,
        now: Now,
        request: &SyncGroupRequest,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let mut outcome = Err(ErrorCode::UnknownMemberId);
        match check_id(&request.group_id) {
            Ok(()) => self.with_turn(&request.group_id, now, out, |group, turn| {
                outcome = match group.consumer {
                    Some(_) => group.sync_newer(turn, request, token),
                    None => group.sync(turn, request, token),
                };
            }),
            Err(code) => outcome = Err(code),
        }
        outcome.err().map(|code| refused_sync(code).into())
    }

    fn leave(&mut self, now: Now, request: &LeaveGroupRequest, out: &mut Vec<Effect>) -> Answer {
        if let Err(code) = check_id(&request.group_id) {
            return Ask::Leave(request.clone()).refused(code);
        }
        let mut answer = refused_members(request, ErrorCode::UnknownMemberId);
        self.with_turn(&request.group_id, now, out, |group, turn| {
            answer = match group.state {
                // Said of all of them at once, as in Kafka: the client looks for the coordinator again.
                State::Dead => LeaveGroupResponse {
                    error_code: ErrorCode::CoordinatorNotAvailable.code(),
                    ..LeaveGroupResponse::default()
                },
                State::Empty
                | State::PreparingRebalance
                | State::CompletingRebalance
                | State::Stable => group.leave(turn, request),
            };
        });
        answer.into()
    }

    fn commit(
        &mut self,
        now: Now,
        version: i16,
        request: &OffsetCommitRequest,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Option<Answer> {
        let refuse = |code| Some(refused_commit(request, code).into());
        let id: Rc<str> = request.group_id.as_str().into();
        if !self.groups.contains_key(&id) {
            if request.generation_id_or_member_epoch >= 0 {
                return refuse(match version {
                    ..VERSION_GROUP_NOT_FOUND => ErrorCode::IllegalGeneration,
                    _ => ErrorCode::GroupIdNotFound,
                });
            }
            if !self.has_room_for_group() {
                return refuse(ErrorCode::InvalidCommitOffsetSize);
            }
        }
        let has_room = self.has_room();
        self.ensure_group(&id, now);
        let mut answer = None;
        self.with_turn(&id, now, out, |group, turn| {
            answer = group
                .commit(turn, version, request, token, has_room)
                .map(Answer::from);
        });
        answer
    }

    pub(crate) fn ensure_group(&mut self, id: &Rc<str>, now: Now) {
        if !self.groups.contains_key(id) {
            let group = Group::new(Rc::clone(id), now.wall);
            self.tally.add(&group);
            self.groups.insert(Rc::clone(id), Box::new(group));
        }
    }

    /// Runs an event on a group, if there is such a group, writes what it marked, keeps the sum of
    /// bytes, and forgets the group when nothing of it is left.
    pub(crate) fn with_turn(
        &mut self,
        id: &str,
        now: Now,
        out: &mut Vec<Effect>,
        event: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) {
        let is_loading = self.is_loading;
        self.with_bare_turn(id, now, out, |group, turn| {
            event(group, turn);
            if let Some(epoch) = group.consumer.as_ref().and_then(|c| c.settled_in()) {
                group.history.end(turn.now, epoch);
            }
            if group.state != State::Dead && !is_loading {
                group.downgrade_if_all_classic(turn);
                group.write_unlogged(turn);
            }
        });
    }

    /// As [`Coordinator::with_turn`], and writes nothing that was marked: after a write that failed
    /// the next one is for the next event.
    fn with_bare_turn(
        &mut self,
        id: &str,
        now: Now,
        out: &mut Vec<Effect>,
        event: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) {
        let may_grow = self.may_grow();
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        self.tally.remove(group);
        let mut turn = Turn {
            now,
            settings: &self.settings,
            topics: &self.topics,
            may_grow,
            timers: &mut self.timers,
            writes: &mut self.writes,
            happened: &mut self.happened,
            out,
            deferred: Vec::new(),
        };
        event(group, &mut turn);
        turn.defer(group.last_log);
        let changes = group.pending_offsets.take_changes();
        self.transactions.note(&group.id, changes);
        if group.is_forgettable() {
            self.groups.remove(id);
        } else {
            self.tally.add(group);
        }
    }

    /// The group behind another in the order of names, or the first.
    pub(crate) fn group_behind(&self, id: Option<&str>) -> Option<&Rc<str>> {
        let from = id.map_or(Unbounded, Excluded);
        let mut behind = self.groups.range::<str, _>((from, Unbounded));
        behind.next().map(|(id, _)| id)
    }

    pub(crate) fn has_room_for_group(&self) -> bool {
        self.groups.len() < self.settings.groups_max && self.has_room()
    }

    /// Whether new members and offsets may take memory, of this coordinator's share and of the core's.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_within(|bytes_max| bytes_max)
    }

    /// Whether known ones may take more than they have: they go on when nothing new is taken any more, since a group that is
    /// shared out anew grows now and then.
    fn may_grow(&self) -> bool {
        self.has_room_within(|bytes_max| bytes_max + bytes_max / COORDINATOR_GROWTH_SHARE)
    }

    fn has_room_within(&self, bound: impl Fn(usize) -> usize) -> bool {
        let own = self.tally.bytes;
        own < bound(self.settings.bytes_max)
            && self.others_bytes + own < bound(self.settings.core_bytes_max)
    }

    /// What the other coordinators of the core hold, in bytes.
    pub fn note_others(&mut self, bytes: usize) {
        self.others_bytes = bytes;
    }
}

pub(crate) fn check_id(group: &str) -> Result<(), ErrorCode> {
    match group.is_empty() {
        true => Err(ErrorCode::InvalidGroupId),
        false => Ok(()),
    }
}

/// What a client is told of a failed write: where it may help, to look for the coordinator again.
fn told(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut
        | ErrorCode::UnknownTopicOrPartition => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        as_it_is => as_it_is,
    }
}

fn told_of_commit(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
            ErrorCode::InvalidCommitOffsetSize
        }
        another => told(another),
    }
}
