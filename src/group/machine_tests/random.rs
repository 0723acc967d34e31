//! Random sequences of requests, time, failures and restarts, against a plain model of what clients
//! may rely on. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    SyncGroupRequest, SyncGroupResponse,
};

use thalweg_types::{ProducerId, TimestampMs, TopicId};

use super::dice::{Dice, for_each_seed};
use super::world::{Logged, World};
use crate::commit::Fetch;
use crate::{Answer, Ask, Caller, Committed, Outcome, Record, Settings, Stability, Token};

const SEEDS: u64 = 300;
const STEPS: usize = 400;
const CLIENTS: usize = 5;
const PARTITIONS: i32 = 3;
const PRODUCERS: u64 = 3;

/// Clients from this one on are static members.
const FIRST_STATIC: usize = 3;

/// What one client believes.
#[derive(Clone, Default)]
struct Client {
    member: String,
    /// `group.instance.id` of a static member.
    instance: Option<String>,
    generation: i32,
    /// Members to share out among, when it leads.
    led: Vec<String>,
    is_waiting: bool,
}

/// What was asked under a token.
enum Asked {
    Join(usize),
    Sync(usize),
    Commit {
        topic: Option<TopicId>,
        partition: i32,
        offset: i64,
    },
    Other,
}

#[derive(Default)]
struct Model {
    /// Highest offset answered as committed, per partition, since nothing older may be seen.
    committed: BTreeMap<i32, i64>,
    /// Highest generation that a member was told.
    generation: i32,
    /// Client that leads each generation.
    leaders: BTreeMap<i32, String>,
    /// Share that the leader gave, by generation and client.
    shares: BTreeMap<(i32, String), Bytes>,
    next_offset: i64,
    /// What is in transactions, in the order of the log.
    pending: Vec<InTransaction>,
}

struct InTransaction {
    producer: i64,
    topic: TopicId,
    partition: i32,
    offset: i64,
    /// Nothing newer was committed for the partition so far.
    is_newest: bool,
}

struct Run {
    dice: Dice,
    world: World,
    asked: Vec<Asked>,
    clients: Vec<Client>,
    model: Model,
}

#[test]
fn random_sequences_keep_what_clients_rely_on() {
    for_each_seed(SEEDS, sequence);
}

fn sequence(seed: u64) {
    let settings = Settings {
        initial_rebalance_delay_ms: seed % 3 * 1_000,
        group_size_max: 4,
        ..Settings::default()
    };
    let mut run = Run {
        dice: Dice::of(seed),
        world: World::new(settings),
        asked: Vec::new(),
        clients: (0..CLIENTS).map(client).collect(),
        model: Model::default(),
    };
    for _ in 0..STEPS {
        run.step();
        run.look();
    }
    // Whoever is still waiting is answered once time has passed and writes have ended.
    for _ in 0..10 {
        while !run.world.writes.is_empty() {
            run.world.commit_write();
        }
        run.world.pass_to(run.world.now + 400_000);
        run.look();
    }
    assert!(run.world.open.is_empty(), "somebody waits for ever");
    run.check_replay();
}

fn client(nth: usize) -> Client {
    Client {
        instance: (nth >= FIRST_STATIC).then(|| format!("i{nth}")),
        ..Client::default()
    }
}

impl Run {
    fn step(&mut self) {
        let client = self.dice.below(CLIENTS as u64) as usize;
        match self.dice.below(100) {
            0..=29 => self.join(client),
            30..=44 => self.sync(client),
            45..=54 => self.heartbeat(client),
            55..=58 => self.leave(client),
            59..=68 => self.commit(client),
            69..=70 => self.commit_in_transaction(),
            71..=72 => self.end_transaction(),
            73..=87 if !self.world.writes.is_empty() => self.world.commit_write(),
            88 => self.world.fail_writes(ErrorCode::KafkaStorageError),
            89 if self.dice.below(4) == 0 => {
                if self.dice.below(2) == 0 {
                    // Nobody was there to see it.
                    self.replace_topic();
                }
                self.world.restart();
                // A generation that was not shared out yet is not in the log; it is given again.
                self.model.generation = 0;
                self.model.leaders.clear();
                for client in &mut self.clients {
                    client.is_waiting = false;
                }
            }
            91 if client >= FIRST_STATIC && !self.clients[client].is_waiting => {
                // Its process starts again and knows nothing but its instance.
                self.clients[client].member.clear();
                self.join(client);
            }
            90 if self.dice.below(2) == 0 => {
                self.replace_topic();
                self.world.tell_removed("t");
            }
            _ => {
                let ms = [1, 50, 900, 4_000, 11_000][self.dice.below(5) as usize];
                self.world.pass_to(self.world.now + ms);
            }
        }
    }

    /// The topic goes with its offsets, and often there is another of its name at once.
    fn replace_topic(&mut self) {
        match self.dice.below(3) {
            0 => self.world.remove_topic("t"),
            _ => self.world.make_topic("t"),
        }
        self.model.committed.clear();
    }

    fn ask(&mut self, client: usize, ask: Ask, asked: Asked) {
        let caller = Caller {
            client_id: format!("c{client}"),
            client_host: String::new(),
            version: if client == 0 { 3 } else { 9 },
        };
        let token = Token(self.asked.len() as u64);
        self.asked.push(asked);
        self.world.ask(&caller, ask, token);
    }

    fn join(&mut self, client: usize) {
        if self.clients[client].is_waiting && self.dice.below(8) != 0 {
            return;
        }
        let mut protocols = [("range", self.dice.below(2)), ("sticky", 0)];
        if self.dice.below(2) == 0 {
            protocols.reverse();
        }
        let protocols = protocols.iter().map(|(name, n)| JoinGroupRequestProtocol {
            name: (*name).to_owned(),
            metadata: Bytes::from(format!("{client}-{n}")),
        });
        let request = JoinGroupRequest {
            group_id: "g".to_owned(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 30_000,
            member_id: self.clients[client].member.clone(),
            group_instance_id: self.clients[client].instance.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: protocols.collect(),
            ..Default::default()
        };
        self.clients[client].is_waiting = true;
        self.ask(client, Ask::Join(request), Asked::Join(client));
    }

    fn sync(&mut self, client: usize) {
        let known = self.clients[client].clone();
        if known.is_waiting {
            return;
        }
        let mut assignments = Vec::new();
        for (nth, member) in known.led.iter().enumerate() {
            let share = Bytes::from(format!("{}/{nth}/{}", known.generation, self.dice.below(9)));
            assignments.push(SyncGroupRequestAssignment {
                member_id: member.clone(),
                assignment: share,
            });
        }
        let request = SyncGroupRequest {
            group_id: "g".to_owned(),
            generation_id: known.generation,
            member_id: known.member.clone(),
            group_instance_id: known.instance.clone(),
            assignments: assignments.clone(),
            ..Default::default()
        };
        let writes = self.world.written.len();
        self.clients[client].is_waiting = true;
        self.ask(client, Ask::Sync(request), Asked::Sync(client));
        // The first distribution of a generation that is written is the one that counts.
        if self.world.written.len() > writes {
            for given in assignments {
                let key = (known.generation, who(&given.member_id));
                self.model.shares.insert(key, given.assignment);
            }
        }
    }

    fn heartbeat(&mut self, client: usize) {
        let known = self.clients[client].clone();
        let request = HeartbeatRequest {
            group_id: "g".to_owned(),
            generation_id: known.generation,
            member_id: known.member,
            group_instance_id: known.instance,
        };
        self.ask(client, Ask::Heartbeat(request), Asked::Other);
    }

    fn leave(&mut self, client: usize) {
        let request = LeaveGroupRequest {
            group_id: "g".to_owned(),
            members: vec![MemberIdentity {
                member_id: self.clients[client].member.clone(),
                group_instance_id: self.clients[client].instance.clone(),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.ask(client, Ask::Leave(request), Asked::Other);
    }

    fn commit(&mut self, client: usize) {
        let known = self.clients[client].clone();
        let partition = self.dice.below(PARTITIONS as u64) as i32;
        let topic = self.world.topics.id("t");
        if topic.is_none() && self.dice.below(2) == 0 {
            self.world.make_topic("t");
        }
        self.model.next_offset += 1;
        let offset = self.model.next_offset;
        let is_simple = self.dice.below(4) == 0;
        let request = OffsetCommitRequest {
            group_id: "g".to_owned(),
            generation_id_or_member_epoch: if is_simple { -1 } else { known.generation },
            member_id: if is_simple {
                String::new()
            } else {
                known.member
            },
            retention_time_ms: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: "t".to_owned(),
                topic_id: topic.unwrap_or_default(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: partition,
                    committed_offset: offset,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        };
        let asked = Asked::Commit {
            topic,
            partition,
            offset,
        };
        self.ask(client, Ask::Commit(request), asked);
    }

    /// What comes from elsewhere stands in the log behind all that is on its way.
    fn finish_writes(&mut self) {
        while !self.world.writes.is_empty() {
            self.world.commit_write();
        }
        self.look();
    }

    fn commit_in_transaction(&mut self) {
        self.finish_writes();
        let Some(topic) = self.world.topics.id("t") else {
            return;
        };
        let partition = self.dice.below(PARTITIONS as u64) as i32;
        let producer = self.dice.below(PRODUCERS) as i64;
        self.model.next_offset += 1;
        let offset = self.model.next_offset;
        let record = Record::Offset {
            group: "g".into(),
            topic: "t".into(),
            partition,
            value: Some(Committed {
                offset,
                leader_epoch: -1,
                metadata: Box::default(),
                at: self.world.wall(),
                expires: TimestampMs::NONE,
                topic_id: topic,
            }),
        };
        self.world
            .logged(Logged::InTransaction(ProducerId(producer), record));
        let pending = &mut self.model.pending;
        pending.retain(|one| (one.producer, one.partition) != (producer, partition));
        pending.push(InTransaction {
            producer,
            topic,
            partition,
            offset,
            is_newest: true,
        });
    }

    fn end_transaction(&mut self) {
        self.finish_writes();
        let producer = self.dice.below(PRODUCERS) as i64;
        let outcome = match self.dice.below(3) {
            0 => Outcome::Aborted,
            _ => Outcome::Committed,
        };
        self.world
            .logged(Logged::Marker(ProducerId(producer), outcome));
        let pending = std::mem::take(&mut self.model.pending);
        for one in &pending {
            let counts = one.producer == producer && one.is_newest;
            if counts && outcome == Outcome::Committed {
                self.committed(one.topic, one.partition, one.offset);
            }
        }
        let committed: Vec<(i32, i64)> = pending
            .iter()
            .filter(|one| one.producer == producer && outcome == Outcome::Committed)
            .map(|one| (one.partition, one.offset))
            .collect();
        for mut one in pending {
            if one.producer != producer {
                // Offsets grow along the log.
                one.is_newest &= !committed
                    .iter()
                    .any(|(partition, offset)| *partition == one.partition && *offset > one.offset);
                self.model.pending.push(one);
            }
        }
    }

    fn committed(&mut self, topic: TopicId, partition: i32, offset: i64) {
        if self.world.topics.id("t") == Some(topic) {
            self.model.committed.insert(partition, offset);
        }
    }

    fn look(&mut self) {
        for (token, answer) in std::mem::take(&mut self.world.answers) {
            match (&self.asked[token.0 as usize], answer) {
                (Asked::Join(client), Answer::Join(answer)) => self.joined(*client, &answer),
                (Asked::Sync(client), Answer::Sync(answer)) => self.synced(*client, &answer),
                (
                    Asked::Commit {
                        topic,
                        partition,
                        offset,
                    },
                    Answer::Commit(answer),
                ) => {
                    let is_there = *topic == self.world.topics.id("t");
                    let is_written = answer.topics[0].partitions[0].error_code == 0;
                    if is_there && is_written {
                        self.model.committed.insert(*partition, *offset);
                    }
                    // Whatever is in a transaction came before it.
                    for one in &mut self.model.pending {
                        one.is_newest &= !is_written || one.partition != *partition;
                    }
                }
                (Asked::Other, Answer::Heartbeat(_) | Answer::Leave(_)) => {}
                (_, answer) => panic!("not what was asked: {answer:?}"),
            }
        }
        let is_pending = |partition: i32| {
            let topic = self.world.topics.id("t");
            let mut pending = self.model.pending.iter();
            pending.any(|one| one.partition == partition && Some(one.topic) == topic)
        };
        let unstable = unstable(&self.world);
        for partition in self.model.committed.keys() {
            let told = unstable.contains(partition);
            assert!(told || !is_pending(*partition), "{partition} is not stable");
        }
        for (partition, offset) in fetched(&mut self.world) {
            // Offsets only grow here, so one that is smaller would be an older one.
            let known = self.model.committed.get(&partition).copied();
            assert_eq!(known, Some(offset), "partition {partition}");
        }
        for partition in self.model.committed.keys() {
            let found = fetched(&mut self.world);
            assert!(
                found.contains_key(partition),
                "partition {partition} is lost"
            );
        }
    }

    fn joined(&mut self, client: usize, answer: &JoinGroupResponse) {
        let known = &mut self.clients[client];
        known.is_waiting = false;
        let code = ErrorCode::from_code(answer.error_code).expect("a code");
        match code {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                known.member.clone_from(&answer.member_id);
                return;
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                known.member.clear();
                return;
            }
            ErrorCode::GroupMaxSizeReached | ErrorCode::RebalanceInProgress => return,
            // The record of an instance's new member failed: it joins again as it did.
            ErrorCode::NotCoordinator if known.instance.is_some() => return,
            other => panic!("join: {other:?}"),
        }
        known.member.clone_from(&answer.member_id);
        known.generation = answer.generation_id;
        known.led = answer.members.iter().map(|m| m.member_id.clone()).collect();
        let model = &mut self.model;
        assert!(answer.generation_id >= model.generation, "generations grow");
        model.generation = answer.generation_id;
        let leader = model
            .leaders
            .entry(answer.generation_id)
            .or_insert_with(|| who(&answer.leader));
        assert_eq!(*leader, who(&answer.leader), "one leader per generation");
        let leads = answer.leader == answer.member_id;
        assert_eq!(
            leads,
            !answer.members.is_empty(),
            "who leads gets the members"
        );
        assert!(answer.members.len() <= 4, "the group is bounded");
        assert!(answer.protocol_name.is_some());
    }

    fn synced(&mut self, client: usize, answer: &SyncGroupResponse) {
        let known = &mut self.clients[client];
        known.is_waiting = false;
        if [ErrorCode::UnknownMemberId, ErrorCode::FencedInstanceId]
            .map(ErrorCode::code)
            .contains(&answer.error_code)
        {
            known.member.clear();
        }
        if answer.error_code == 0 {
            let key = (known.generation, who(&known.member));
            let share = self.model.shares.get(&key).cloned().unwrap_or_default();
            assert_eq!(answer.assignment, share, "the leader's word");
        }
    }

    /// Replaying the log gives what was there.
    fn check_replay(&mut self) {
        let before = fetched(&mut self.world);
        self.world.restart();
        assert_eq!(fetched(&mut self.world), before);
    }
}

/// The client of a member id, which a static member changes within a generation.
fn who(member: &str) -> String {
    let name = member.split('-').next();
    name.unwrap_or_default().to_owned()
}

/// Partitions whose offsets may change by the end of a transaction.
fn unstable(world: &World) -> BTreeSet<i32> {
    let group = OffsetFetchRequestGroup {
        group_id: "g".to_owned(),
        topics: None,
        ..Default::default()
    };
    let fetch = Fetch {
        request: group,
        after: None,
    };
    let answer = world.machine.fetch_offsets(fetch, Stability::Stable);
    let rows = answer
        .group
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions);
    let unstable = ErrorCode::UnstableOffsetCommit.code();
    rows.filter(|row| row.error_code == unstable)
        .map(|row| row.partition_index)
        .collect()
}

/// All committed offsets.
fn fetched(world: &mut World) -> BTreeMap<i32, i64> {
    let caller = Caller {
        client_id: String::new(),
        client_host: String::new(),
        version: 9,
    };
    let group = OffsetFetchRequestGroup {
        group_id: "g".to_owned(),
        topics: None,
        ..Default::default()
    };
    let ask = Ask::FetchOffsets(group, Stability::Any, None);
    let token = Token(u64::MAX);
    world.ask(&caller, ask, token);
    let Some((_, Answer::FetchOffsets(answer))) = world.answers.pop_back() else {
        panic!("a fetch is answered at once");
    };
    let rows = answer
        .group
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions);
    rows.map(|row| (row.partition_index, row.committed_offset))
        .collect()
}
