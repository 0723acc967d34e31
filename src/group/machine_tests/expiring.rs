//! Random commits, members, restarts and hours, against a plain model of when offsets end (RP-116).

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_protocol::messages::{
    JoinGroupRequest, LeaveGroupRequest, OffsetCommitRequest, SyncGroupRequest,
};

use super::dice::{Dice, for_each_seed};
use super::world::World;
use crate::{Answer, Ask, Caller, GroupQuery, Settings, Stability, Token};

const SEEDS: u64 = 200;
const STEPS: usize = 120;
const RETENTION_MS: u64 = 50_000;
const CHECK_MS: u64 = 7_000;
const GROUPS: [&str; 3] = ["one", "two", "three"];
/// What members subscribe to, and what they do not.
const TOPICS: [&str; 2] = ["read", "other"];
/// A consumer's subscription to `read`.
const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\x01\0\x04read\xff\xff\xff\xff";

/// How a group lives, as far as offsets care.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Life {
    #[default]
    NeverJoined,
    At(i32),
    EmptySince(u64),
}

/// Group, topic and partition.
type Place = (&'static str, &'static str, i32);

/// Offset, time of the commit, and its own end.
type Kept = (i64, u64, Option<u64>);

#[derive(Default)]
struct Model {
    lives: BTreeMap<&'static str, Life>,
    offsets: BTreeMap<Place, Kept>,
    /// Next look of the coordinator.
    look: u64,
}

impl Model {
    fn life(&self, group: &str) -> Life {
        self.lives.get(group).copied().unwrap_or_default()
    }

    /// What a look at `now` ends.
    fn end(&mut self, now: u64) {
        let lives = self.lives.clone();
        self.offsets.retain(|(group, topic, _), (_, at, end)| {
            let begin = match lives.get(group).copied().unwrap_or_default() {
                Life::NeverJoined => *at,
                Life::EmptySince(since) => since,
                Life::At(_) if *topic == TOPICS[0] => return true,
                Life::At(_) => *at,
            };
            now < end.unwrap_or(begin + RETENTION_MS)
        });
        for group in GROUPS {
            let is_empty = !self.offsets.keys().any(|(of, ..)| *of == group);
            if is_empty && matches!(self.life(group), Life::EmptySince(_)) {
                self.lives.remove(group);
            }
        }
    }
}

struct Run {
    world: World,
    model: Model,
    members: BTreeMap<&'static str, String>,
    next_offset: i64,
}

#[test]
fn rp_116_random_offsets_end_when_the_model_says() {
    for_each_seed(SEEDS, sequence);
}

fn sequence(seed: u64) {
    let mut dice = Dice::of(seed);
    let settings = Settings {
        initial_rebalance_delay_ms: 0,
        session_timeout_ms: 1..=i32::MAX,
        offsets_retention_ms: RETENTION_MS as i64,
        offsets_check_interval_ms: CHECK_MS,
        ..Settings::default()
    };
    let mut run = Run {
        world: World::new(settings),
        model: Model {
            look: CHECK_MS,
            ..Model::default()
        },
        members: BTreeMap::new(),
        next_offset: 0,
    };
    for _ in 0..STEPS {
        let group = GROUPS[dice.below(3) as usize];
        match dice.below(10) {
            0..=3 => {
                let topic = TOPICS[dice.below(2) as usize];
                let own = [None, None, Some(3_000 + dice.below(90_000))][dice.below(3) as usize];
                run.commit(group, topic, dice.below(2) as i32, own);
            }
            4 => run.join(group),
            5 => run.leave(group),
            6 if dice.below(4) == 0 => {
                run.world.restart();
                run.settle();
                run.model.look = run.world.now + CHECK_MS;
            }
            _ => run.pass([100, 2_000, 9_000, 30_000][dice.below(4) as usize]),
        }
        run.compare();
    }
}

impl Run {
    fn settle(&mut self) {
        while !self.world.writes.is_empty() {
            self.world.commit_write();
        }
    }

    fn ask(&mut self, ask: Ask) -> Answer {
        let caller = Caller {
            client_id: "c".to_owned(),
            client_host: String::new(),
            version: 3,
        };
        self.world.ask(&caller, ask, Token(0));
        self.world.pass_to(self.world.now);
        self.settle();
        self.world.answers.pop_back().expect("answered").1
    }

    fn pass(&mut self, ms: u64) {
        let to = self.world.now + ms;
        while self.model.look <= to {
            self.world.pass_to(self.model.look);
            self.settle();
            self.model.end(self.model.look);
            self.model.look += CHECK_MS;
        }
        self.world.pass_to(to);
    }

    fn commit(&mut self, group: &'static str, topic: &'static str, at: i32, own: Option<u64>) {
        self.next_offset += 1;
        let generation = match self.model.life(group) {
            Life::At(generation) => generation,
            Life::NeverJoined | Life::EmptySince(_) => -1,
        };
        let request = OffsetCommitRequest {
            group_id: group.to_owned(),
            generation_id_or_member_epoch: generation,
            member_id: self.members.get(group).cloned().unwrap_or_default(),
            retention_time_ms: own.map_or(-1, |ms| ms as i64),
            topics: vec![OffsetCommitRequestTopic {
                name: topic.to_owned(),
                topic_id: self.world.topics.id(topic).expect("there"),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: at,
                    committed_offset: self.next_offset,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        };
        let Answer::Commit(answer) = self.ask(Ask::Commit(request)) else {
            panic!("a commit is answered as one");
        };
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
        let now = self.world.now;
        let value = (self.next_offset, now, own.map(|ms| now + ms));
        self.model.offsets.insert((group, topic, at), value);
    }

    fn join(&mut self, group: &'static str) {
        if self.members.contains_key(group) {
            return;
        }
        let request = JoinGroupRequest {
            group_id: group.to_owned(),
            session_timeout_ms: i32::MAX,
            rebalance_timeout_ms: 1_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".to_owned(),
                metadata: Bytes::from_static(SUBSCRIPTION),
            }],
            ..Default::default()
        };
        let Answer::Join(joined) = self.ask(Ask::Join(request)) else {
            panic!("a join is answered as one");
        };
        assert_eq!(joined.error_code, 0);
        let request = SyncGroupRequest {
            group_id: group.to_owned(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            ..Default::default()
        };
        let Answer::Sync(synced) = self.ask(Ask::Sync(request)) else {
            panic!("a sync is answered as one");
        };
        assert_eq!(synced.error_code, 0);
        self.members.insert(group, joined.member_id);
        self.model
            .lives
            .insert(group, Life::At(joined.generation_id));
    }

    fn leave(&mut self, group: &'static str) {
        let Some(member_id) = self.members.remove(group) else {
            return;
        };
        let request = LeaveGroupRequest {
            group_id: group.to_owned(),
            members: vec![MemberIdentity {
                member_id,
                ..Default::default()
            }],
            ..Default::default()
        };
        self.ask(Ask::Leave(request));
        let since = self.world.now;
        self.model.lives.insert(group, Life::EmptySince(since));
    }

    fn compare(&mut self) {
        let mut found = BTreeMap::new();
        let mut known = Vec::new();
        for group in GROUPS {
            let has_offsets = self.model.offsets.keys().any(|(of, ..)| *of == group);
            if has_offsets || self.model.life(group) != Life::NeverJoined {
                known.push(group.to_owned());
            }
            let of_group = OffsetFetchRequestGroup {
                group_id: group.to_owned(),
                topics: None,
                ..Default::default()
            };
            let ask = Ask::FetchOffsets(of_group, Stability::Any, None);
            let Answer::FetchOffsets(answer) = self.ask(ask) else {
                panic!("a fetch is answered as one");
            };
            for topic in answer.group.topics {
                for row in topic.partitions {
                    let key = (group, topic.name.clone(), row.partition_index);
                    found.insert(key, row.committed_offset);
                }
            }
        }
        let wanted: BTreeMap<_, _> = self
            .model
            .offsets
            .iter()
            .map(|((group, topic, at), (offset, ..))| ((*group, (*topic).to_owned(), *at), *offset))
            .collect();
        assert_eq!(found, wanted, "at {}", self.world.now);
        let Answer::List(Ok(listed)) = self.ask(Ask::List(GroupQuery::new(&[], &[]), None)) else {
            panic!("a list is answered as one");
        };
        let mut listed: Vec<String> = listed
            .groups
            .into_iter()
            .map(|group| group.group_id)
            .collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "at {}", self.world.now);
    }
}
