//! A consumer that shares topics with the other members of a group, by either protocol.
//!
//! [`GroupConsumer::poll`] joins when it must, sends signs of life when they are due, commits what was
//! consumed, and gives back partitions when the group shares out anew; all on the caller's thread. So a
//! caller that does not come back within the session timeout loses its partitions.
//!
//! Call [`GroupConsumer::consumed`] once a record is dealt with: only that is committed, so each
//! record is seen at least once. [`GroupConsumer::leave`] at the end, or the others wait out the session.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use thalweg_protocol::messages::{LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest};
use thalweg_protocol::{ErrorCode, Request};
use thalweg_types::Uuid;

use crate::assignor::TopicPartition;
use crate::cluster::{Cluster, MissingTopic};
use crate::connection::Connection;
use crate::consumer::{Consumer, ConsumerOptions, Fetched, OnOutOfRange, Position};
use crate::coordinator::call_up_to;
use crate::error::{Advice, ClientError, Result};
use crate::group_offsets::{OFFSET_COMMIT_BY_NAME, OFFSET_FETCH_OF_ONE, commit_rows};
use crate::membership::{
    self, Action, Answer, Farewell, FoundTopics, GroupOptions, Loss, Membership, Question, Taken,
};

/// A join is answered when every other member has come back: the default `max.poll.interval.ms` of
/// Kafka's clients is the longest that one usually takes.
const JOIN_WAIT: Duration = Duration::from_secs(305);
/// LeaveGroup names one member, and not several, up to this version.
const LEAVE_AS_ONE: i16 = 2;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// A member without partitions looks for news so often.
const PAUSE_WITHOUT_PARTITIONS: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub struct GroupConsumer {
    consumer: Consumer,
    membership: Box<dyn Membership>,
    /// What to do where the group has no committed offset.
    on_no_offset: OnOutOfRange,
    /// Where the coordinator listens, once found.
    coordinator_address: Option<String>,
    coordinator: Option<Connection>,
    assigned: Vec<TopicPartition>,
    /// What became of the old share while a new one is being taken.
    taken: Taken,
    /// How often partitions were taken.
    assignments: u64,
    /// Offsets after what was consumed, not committed yet.
    pending: BTreeMap<TopicPartition, i64>,
    committed_at: Instant,
    failing_since: Option<Instant>,
}

impl GroupConsumer {
    /// A member that has not joined yet. `options.on_out_of_range` also says where to begin when the
    /// group has no committed offset.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when the system gives no random bytes for an id.
    pub fn new(
        cluster: Cluster,
        group: GroupOptions,
        options: ConsumerOptions,
    ) -> Result<GroupConsumer> {
        let now = Instant::now();
        Ok(GroupConsumer {
            on_no_offset: options.on_out_of_range,
            consumer: Consumer::new(cluster, options),
            membership: membership::begin(group, random_id()?, now),
            coordinator_address: None,
            coordinator: None,
            assigned: Vec::new(),
            taken: Taken::All,
            assignments: 0,
            pending: BTreeMap::new(),
            committed_at: now,
            failing_since: None,
        })
    }

    /// See [`Consumer::leaderless`].
    #[must_use]
    pub fn leaderless(&self) -> &BTreeSet<TopicPartition> {
        self.consumer.leaderless()
    }

    /// The cluster it reads from.
    pub fn cluster(&mut self) -> &mut Cluster {
        self.consumer.cluster()
    }

    /// The partitions it reads now.
    #[must_use]
    pub fn assigned(&self) -> &[(String, i32)] {
        &self.assigned
    }

    /// How often it was given partitions. A change since the last [`GroupConsumer::poll`] means that
    /// positions may have moved back to what was committed.
    #[must_use]
    pub fn assignments(&self) -> u64 {
        self.assignments
    }

    /// Offset of the next record of a partition, `None` when it is not assigned.
    #[must_use]
    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        self.consumer.position(topic, partition)
    }

    /// Everything before `next` is dealt with. Without effect on a partition that is not assigned.
    pub fn consumed(&mut self, topic: &str, partition: i32, next: i64) {
        let of = (topic.to_owned(), partition);
        if self.assigned.contains(&of) {
            self.pending.insert(of, next);
        }
    }

    /// Waits for records, maybe for none; keeps the membership alive. What an earlier poll returned
    /// and [`GroupConsumer::consumed`] was not told of may come again, here or at another member.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when a partition has no committed offset and there is no other place to
    /// begin; what the coordinator refuses for good; as [`Consumer::poll`].
    pub fn poll(&mut self) -> Result<Vec<Fetched>> {
        if self.committed_at.elapsed() >= self.membership.options().commit_interval {
            self.commit()?;
        }
        loop {
            let action = self.membership.next(Instant::now());
            if action == Action::Consume {
                self.failing_since = None;
                break;
            }
            let outcome = self.act(action);
            self.settle(outcome)?;
        }
        if self.assigned.is_empty() {
            thread::sleep(PAUSE_WITHOUT_PARTITIONS);
            return Ok(Vec::new());
        }
        self.consumer.poll()
    }

    /// Commits what was consumed since the last time. Nothing is lost when the group is just sharing out
    /// anew: those records come again.
    ///
    /// # Errors
    /// What the coordinator refuses for good, and what lasts longer than the cluster's `retry_for`.
    pub fn commit(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            let outcome = match self.membership.next(Instant::now()) {
                Action::FindCoordinator => self.find_coordinator(),
                Action::Consume | Action::GiveBack(Loss::Orderly) => self.commit_once(),
                Action::Ask => match self.membership.question()? {
                    Question::Join(_) | Question::Sync(_) => return Ok(()),
                    // A commit may wait for what that brings.
                    question @ (Question::Heartbeat(_) | Question::Newer(_)) => self.put(&question),
                },
                Action::GiveBack(Loss::Fenced) | Action::LookAt(_) | Action::Take(_) => {
                    return Ok(());
                }
            };
            self.settle(outcome)?;
        }
        self.committed_at = Instant::now();
        self.failing_since = None;
        Ok(())
    }

    /// Commits, then tells the coordinator that this member is gone.
    ///
    /// # Errors
    /// As [`GroupConsumer::commit`]; [`ClientError::Refused`] when the coordinator no longer knew it.
    pub fn leave(&mut self) -> Result<()> {
        self.commit()?;
        let fenced = Action::GiveBack(Loss::Fenced);
        if !self.pending.is_empty() && self.membership.next(Instant::now()) != fenced {
            // It is on its way to another share: until that is settled, a commit counts.
            self.commit_once().ok();
        }
        let code = match self.membership.farewell() {
            Farewell::None => return Ok(()),
            Farewell::Leave => self.leave_classic()?,
            Farewell::Newer(request) => self.ask(&request, i16::MAX, None)?.error_code,
        };
        let group_id = self.group_id();
        ClientError::check(code, || format!("leave group {group_id}"), None)
    }

    fn leave_classic(&mut self) -> Result<i16> {
        let (member_id, group_id) = (self.member_id(), self.group_id());
        let request = |version: i16| {
            let members = vec![MemberIdentity {
                member_id: member_id.clone(),
                ..Default::default()
            }];
            let as_one = version <= LEAVE_AS_ONE;
            LeaveGroupRequest {
                group_id: group_id.clone(),
                member_id: if as_one {
                    member_id.clone()
                } else {
                    String::new()
                },
                members: if as_one { Vec::new() } else { members },
            }
        };
        let connection = self.coordinator(None)?;
        let version = connection.version_of::<LeaveGroupRequest>()?;
        let answer = connection.call_at(&request(version), version)?;
        let of_member = answer.members.first().map_or(0, |m| m.error_code);
        Ok(match answer.error_code {
            0 => of_member,
            code => code,
        })
    }

    /// Retriable failures end in a pause, until they have lasted too long.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else {
            return Ok(()); // a step; whether the way is free shows at its end
        };
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if error.advice() == Advice::ReconnectAndRetry {
            self.lose_coordinator();
        }
        let patience = self.consumer.cluster().options().retry_for;
        if error.advice() == Advice::GiveUp || since.elapsed() > patience {
            return Err(error);
        }
        thread::sleep(PAUSE_AFTER_ERROR);
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::FindCoordinator => self.find_coordinator(),
            Action::Ask => {
                let question = self.membership.question()?;
                self.put(&question)
            }
            Action::LookAt(topics) => {
                let found = self.look_at(topics)?;
                self.membership.on_topics(&found)
            }
            Action::Take(partitions) => self.take(partitions),
            Action::GiveBack(loss) => self.give_back(loss),
            Action::Consume => Ok(()),
        }
    }

    fn put(&mut self, question: &Question) -> Result<()> {
        let answer = match question {
            Question::Join(r) => Answer::Join(self.ask(r, i16::MAX, Some(JOIN_WAIT))?),
            Question::Sync(r) => Answer::Sync(self.ask(r, i16::MAX, Some(JOIN_WAIT))?),
            Question::Heartbeat(r) => Answer::Heartbeat(self.ask(r, i16::MAX, None)?),
            Question::Newer(r) => Answer::Newer(self.ask(r, i16::MAX, None)?),
        };
        self.membership.on_answer(Instant::now(), &answer)
    }

    fn find_coordinator(&mut self) -> Result<()> {
        let group = self.group_id();
        let broker = self.consumer.cluster().find_coordinator(&group)?;
        self.coordinator_address = Some(broker.address());
        self.membership.on_coordinator_found();
        Ok(())
    }

    fn look_at(&mut self, topics: Vec<String>) -> Result<FoundTopics> {
        let cluster = self.consumer.cluster();
        cluster.forget_topics();
        let mut found = FoundTopics::new();
        for name in topics {
            match cluster.topic(&name, MissingTopic::Refuse) {
                Ok(topic) => {
                    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                    found.insert(name, (topic.id, count));
                }
                Err(e) if e.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(found)
    }

    /// Reads `partitions` and no others: those that are new from where the group has got to.
    fn take(&mut self, partitions: Vec<TopicPartition>) -> Result<()> {
        self.give_up_all_but(&partitions)?;
        let is_new = |of: &&TopicPartition| !self.assigned.contains(of);
        let new: Vec<TopicPartition> = partitions.iter().filter(is_new).cloned().collect();
        let committed = self.committed(&new)?;
        for (topic, partition) in &new {
            let known = committed.get(&(topic.clone(), *partition));
            let position = match (known, self.on_no_offset) {
                (Some(offset), _) => Position::Offset(*offset),
                (None, OnOutOfRange::Reset(position)) => position,
                (None, OnOutOfRange::Fail) => {
                    return Err(ClientError::Invalid(format!(
                        "group {} has no committed offset for {topic}-{partition}, and no other place \
                         to begin is given",
                        self.group_id()
                    )));
                }
            };
            self.consumer.assign(topic, *partition, position)?;
        }
        self.assigned = partitions;
        self.assignments += 1;
        let taken = std::mem::replace(&mut self.taken, Taken::All);
        self.membership.on_taken(taken);
        Ok(())
    }

    /// Stops to read what is not in `kept`, once it is committed. A commit that is refused changes nothing
    /// about that: those records come again, at another member.
    fn give_up_all_but(&mut self, kept: &[TopicPartition]) -> Result<()> {
        let is_kept = |of: &TopicPartition| kept.contains(of);
        if self.assigned.iter().all(is_kept) {
            return Ok(());
        }
        if !self.pending.is_empty()
            && let Err(error) = self.commit_once()
            && error.advice() == Advice::GiveUp
        {
            return Err(error);
        }
        for (topic, partition) in self.assigned.extract_if(.., |of| !is_kept(of)) {
            self.consumer.unassign(&topic, partition);
            self.pending.remove(&(topic, partition));
        }
        self.taken = Taken::GaveUp;
        Ok(())
    }

    /// Committed offsets of those partitions that have one.
    fn committed(
        &mut self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        let mut topics: Vec<OffsetFetchRequestTopic> = Vec::new();
        for (name, partition) in partitions {
            match topics.iter_mut().find(|t| t.name == *name) {
                Some(known) => known.partition_indexes.push(*partition),
                None => topics.push(OffsetFetchRequestTopic {
                    name: name.clone(),
                    partition_indexes: vec![*partition],
                }),
            }
        }
        let request = OffsetFetchRequest {
            group_id: self.group_id(),
            topics: Some(topics),
            ..Default::default()
        };
        let answer = self.ask(&request, OFFSET_FETCH_OF_ONE, None)?;
        self.check("ask the offsets of", answer.error_code)?;
        let mut committed = BTreeMap::new();
        for topic in answer.topics {
            for row in topic.partitions {
                self.check("ask the offsets of", row.error_code)?;
                if row.committed_offset >= 0 {
                    let of = (topic.name.clone(), row.partition_index);
                    committed.insert(of, row.committed_offset);
                }
            }
        }
        Ok(committed)
    }

    fn commit_once(&mut self) -> Result<()> {
        let (member_id, generation) = self.membership.identity();
        let request = OffsetCommitRequest {
            group_id: self.group_id(),
            generation_id_or_member_epoch: generation,
            member_id: member_id.to_owned(),
            group_instance_id: self.membership.options().instance_id.clone(),
            topics: commit_rows(&self.pending),
            ..Default::default()
        };
        let answer = self.ask(&request, OFFSET_COMMIT_BY_NAME, None)?;
        let rows = answer.topics.iter().flat_map(|t| &t.partitions);
        let refused = rows.map(|row| row.error_code).find(|code| *code != 0);
        match refused {
            None => self.pending.clear(),
            Some(code) => self.membership.on_refusal("commit to", code)?,
        }
        Ok(())
    }

    fn give_back(&mut self, loss: Loss) -> Result<()> {
        if loss == Loss::Orderly && !self.pending.is_empty() {
            // The outcome may be another loss: the membership says what comes next.
            return self.commit_once();
        }
        self.pending.clear();
        for (topic, partition) in std::mem::take(&mut self.assigned) {
            self.consumer.unassign(&topic, partition);
        }
        self.membership.on_given_back();
        Ok(())
    }

    /// Sends to the coordinator. `wait` is how long the answer may take when that is long.
    fn ask<R: Request>(
        &mut self,
        request: &R,
        newest: i16,
        wait: Option<Duration>,
    ) -> Result<R::Response> {
        let connection = self.coordinator(wait)?;
        call_up_to(connection, request, newest)
    }

    fn coordinator(&mut self, wait: Option<Duration>) -> Result<&mut Connection> {
        let options = self.consumer.cluster().options().connect.clone();
        let mut connection = match (self.coordinator.take(), &self.coordinator_address) {
            (Some(open), _) => open,
            (None, Some(address)) => Connection::connect(address, &options)?,
            (None, None) => {
                // Asking for the coordinator comes first; this is an answer for whoever does not.
                let code = ErrorCode::CoordinatorNotAvailable as i16;
                ClientError::check(code, || format!("group {}", self.group_id()), None)?;
                return Err(ClientError::Invalid("no coordinator".to_owned()));
            }
        };
        connection.set_request_timeout(wait.unwrap_or(options.request_timeout))?;
        Ok(self.coordinator.insert(connection))
    }

    fn lose_coordinator(&mut self) {
        self.coordinator = None;
        self.membership.on_coordinator_lost();
    }

    /// A refusal, told to the membership too.
    fn check(&mut self, what: &str, code: i16) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        self.membership.on_refusal(what, code)?;
        // The membership goes another way, and whoever asked has no answer.
        let group_id = self.group_id();
        ClientError::check(code, || format!("{what} group {group_id}"), None)
    }

    fn group_id(&self) -> String {
        self.membership.options().group_id.clone()
    }

    fn member_id(&self) -> String {
        self.membership.identity().0.to_owned()
    }
}

fn random_id() -> Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| ClientError::Invalid(format!("no random bytes for an id: {error}")))?;
    Ok(Uuid::from_random(bytes))
}
