//! Random members of the newer protocol, slow, lossy and dying, while topics change, writes fail and
//! the broker restarts: no partition is ever with two members, and in the end each is with one.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::TopicId;

use super::dice::{Dice, for_each_seed};
use super::world::World;
use crate::{Answer, Ask, Caller, Settings, Token, TopicCatalog};

const SEEDS: u64 = 60;
const STEPS: usize = 300;
const CLIENTS: usize = 6;
/// Clients from this one on are static members.
const FIRST_STATIC: usize = 4;

type Place = (TopicId, i32);

#[derive(Clone, Default)]
struct Client {
    id: String,
    epoch: i32,
    /// What it works on.
    owned: BTreeSet<Place>,
    /// What it was last told to work on.
    told: BTreeSet<Place>,
    is_waiting: bool,
    /// An answer was lost, so it says all and wants to hear all.
    is_unsure: bool,
    /// Its last request.
    last: u64,
    topics: Vec<String>,
    pattern: String,
    lives: usize,
}

struct Run {
    dice: Dice,
    world: World,
    clients: Vec<Client>,
    /// Who asked, and under which id.
    asked: Vec<(usize, String)>,
    /// Nothing goes wrong any more, and nobody changes its mind.
    is_calm: bool,
}

#[test]
fn rp_113_random_members_never_share_a_partition() {
    for_each_seed(SEEDS, sequence);
}

fn sequence(seed: u64) {
    let mut run = Run {
        dice: Dice::of(seed),
        world: World::new(Settings::default()),
        clients: (0..CLIENTS).map(|_| Client::default()).collect(),
        asked: Vec::new(),
        is_calm: false,
    };
    for (name, size) in [("a", 4), ("bb", 3), ("ccc", 1)] {
        run.world.topics.size(name, size);
    }
    for nth in 0..CLIENTS {
        run.be_born(nth);
    }
    for _ in 0..STEPS {
        run.step();
        run.look();
    }
    run.settle();
}

impl Run {
    fn be_born(&mut self, nth: usize) {
        let lives = self.clients[nth].lives + 1;
        self.clients[nth] = Client {
            id: format!("c{nth}.{lives}"),
            lives,
            ..Client::default()
        };
    }

    fn step(&mut self) {
        let nth = self.dice.below(CLIENTS as u64) as usize;
        match self.dice.below(100) {
            0..=54 => self.beat(nth),
            55..=57 => self.leave(nth),
            58..=59 => self.be_born(nth),
            60..=84 if !self.world.writes.is_empty() => self.world.commit_write(),
            85..=86 => self.world.fail_writes(ErrorCode::KafkaStorageError),
            87 => {
                self.world.restart();
                for client in &mut self.clients {
                    client.is_unsure |= client.is_waiting;
                    client.is_waiting = false;
                }
            }
            88 => self.change_topics(),
            _ => {
                let ms = [1, 500, 3_000, 20_000][self.dice.below(4) as usize];
                self.world.pass_to(self.world.now + ms);
            }
        }
    }

    fn change_topics(&mut self) {
        let name = ["a", "bb", "ccc"][self.dice.below(3) as usize];
        match self.dice.below(3) {
            0 => self.world.remove_topic(name),
            1 => self.world.make_topic(name),
            _ => {
                let size = self.world.topics.topic(name).map_or(1, |t| t.partitions);
                self.world.topics.size(name, (size + 1).min(6));
            }
        }
    }

    fn send(&mut self, nth: usize, request: ConsumerGroupHeartbeatRequest) {
        let caller = Caller {
            client_id: format!("c{nth}"),
            client_host: String::new(),
            version: 1,
        };
        let token = Token(self.asked.len() as u64);
        self.asked.push((nth, request.member_id.clone()));
        self.clients[nth].last = token.0;
        self.world
            .ask(&caller, Ask::ConsumerHeartbeat(request), token);
    }

    fn request(&self, nth: usize) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest {
            group_id: "g".to_owned(),
            member_id: self.clients[nth].id.clone(),
            member_epoch: self.clients[nth].epoch,
            instance_id: (nth >= FIRST_STATIC).then(|| format!("i{nth}")),
            ..Default::default()
        }
    }

    fn beat(&mut self, nth: usize) {
        // Its connection may have broken, and it asks again.
        if self.clients[nth].is_waiting {
            if self.dice.below(6) != 0 {
                return;
            }
            self.clients[nth].is_unsure = true;
        }
        let mut request = self.request(nth);
        let is_full = self.clients[nth].epoch == 0 || self.clients[nth].is_unsure;
        let changes_mind =
            self.clients[nth].topics.is_empty() || !self.is_calm && self.dice.below(12) == 0;
        if changes_mind {
            let names: &[&str] = match self.dice.below(4) {
                0 => &["a"],
                1 => &["a", "bb"],
                2 => &["bb", "ccc"],
                _ => &["a", "bb", "ccc"],
            };
            let names = names.iter().map(|name| (*name).to_owned());
            self.clients[nth].topics = names.collect();
            let patterns = ["", "b+", "c+|a"];
            patterns[self.dice.below(3) as usize].clone_into(&mut self.clients[nth].pattern);
        }
        let reports = is_full || self.dice.below(3) > 0;
        let client = &mut self.clients[nth];
        if reports {
            client.owned = client.told.clone();
            request.topic_partitions = Some(report(&client.owned));
        }
        if is_full || changes_mind {
            request.subscribed_topic_names = Some(client.topics.clone());
            request.subscribed_topic_regex = Some(client.pattern.clone());
            request.rebalance_timeout_ms = 30_000;
        }
        client.is_unsure = false;
        self.clients[nth].is_waiting = true;
        self.send(nth, request);
    }

    fn leave(&mut self, nth: usize) {
        let mut request = self.request(nth);
        request.member_epoch = match nth >= FIRST_STATIC && self.dice.below(2) == 0 {
            true => -2,
            false => -1,
        };
        self.send(nth, request);
        self.be_born(nth);
    }

    fn look(&mut self) {
        for (token, answer) in std::mem::take(&mut self.world.answers) {
            let Answer::ConsumerHeartbeat(answer) = answer else {
                panic!("not what was asked: {answer:?}");
            };
            let (nth, id) = self.asked[token.0 as usize].clone();
            let is_lost = !self.is_calm && self.dice.below(20) == 0;
            // What comes by a connection that it has given up is not heard.
            let is_current = self.clients[nth].id == id && self.clients[nth].last == token.0;
            if is_current && !is_lost {
                self.hear(nth, &answer);
            } else if is_current {
                self.clients[nth].is_waiting = false;
                self.clients[nth].is_unsure = true;
            }
        }
        self.check();
    }

    fn hear(&mut self, nth: usize, answer: &ConsumerGroupHeartbeatResponse) {
        let client = &mut self.clients[nth];
        client.is_waiting = false;
        match ErrorCode::from_code(answer.error_code).expect("a code") {
            ErrorCode::None => {}
            ErrorCode::NotCoordinator => {
                client.is_unsure = true;
                return;
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound
            | ErrorCode::FencedInstanceId
            | ErrorCode::UnreleasedInstanceId => {
                client.owned.clear();
                client.told.clear();
                client.epoch = 0;
                return;
            }
            other => panic!("{other:?}: {:?}", answer.error_message),
        }
        client.epoch = answer.member_epoch;
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            client.told = topics
                .flat_map(|t| t.partitions.iter().map(|p| (t.topic_id, *p)))
                .collect();
            client.owned.extend(client.told.iter().copied());
        }
    }

    /// Who is a member works on what nobody else does.
    fn check(&self) {
        let mut owners: BTreeMap<Place, &str> = BTreeMap::new();
        let group = self.world.machine.groups.get("g");
        for client in &self.clients {
            let is_member = group.is_some_and(|g| g.consumer_member(&client.id).is_some());
            if client.epoch == 0 || !is_member {
                continue;
            }
            for place in &client.owned {
                let before = owners.insert(*place, &client.id);
                assert_eq!(before, None, "{place:?} is with {} too", client.id);
            }
        }
    }

    /// Everybody goes on without mishaps, and nothing changes any more.
    fn settle(&mut self) {
        self.is_calm = true;
        for _ in 0..60 {
            for nth in 0..CLIENTS {
                self.clients[nth].is_unsure |= self.clients[nth].is_waiting;
                self.clients[nth].is_waiting = false;
                self.beat(nth);
                while !self.world.writes.is_empty() {
                    self.world.commit_write();
                }
                self.look();
            }
            self.world.pass_to(self.world.now + 3_000);
            while !self.world.writes.is_empty() {
                self.world.commit_write();
            }
        }
        let group = self.world.machine.consumer_describe("g");
        assert_eq!(group.group_state, "Stable");
        assert_eq!(group.members.len(), CLIENTS);
        let mut wanted = BTreeSet::new();
        let group = &self.world.machine.groups["g"];
        for name in self
            .world
            .topics
            .names()
            .iter()
            .filter(|name| group.is_subscribed(name))
        {
            let topic = self.world.topics.topic(name).expect("is there");
            wanted.extend((0..topic.partitions).map(|p| (topic.id, p)));
        }
        let owned = self
            .clients
            .iter()
            .flat_map(|client| client.owned.iter().copied());
        assert_eq!(owned.collect::<BTreeSet<_>>(), wanted, "each with one");
        let before = self.world.machine.consumer_describe("g");
        self.world.restart();
        assert_eq!(self.world.machine.consumer_describe("g"), before);
    }
}

fn report(owned: &BTreeSet<Place>) -> Vec<TopicPartitions> {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in owned {
        topics.entry(*topic).or_default().push(*partition);
    }
    let one = |(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions,
    };
    topics.into_iter().map(one).collect()
}
