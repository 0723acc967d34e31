//! Random members of the newer protocol, slow, lossy and dying, while topics change, writes fail and
//! the broker restarts: no partition is ever with two members, and in the end each is with one. So it is
//! when clients of the classic protocol are among them, and the group changes its protocol to and fro.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::TopicId;

use super::dice::{Dice, for_each_seed};
use super::random_classic::{Classic, Rebalancing};
use super::world::World;
use crate::{Answer, Ask, Caller, Migration, Settings, Token, TopicCatalog};

const SEEDS: u64 = 60;
const STEPS: usize = 300;
const CLIENTS: usize = 6;
/// Clients from this one on are static members.
const FIRST_STATIC: usize = 4;

pub(super) type Place = (TopicId, i32);

#[derive(Clone, Default)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) epoch: i32,
    /// What it works on.
    pub(super) owned: BTreeSet<Place>,
    /// What it works on without knowing that it was out of the group for a while: whoever is let in again
    /// under its old id finds out with its next share. Nobody counts on it.
    pub(super) lost: BTreeSet<Place>,
    /// What it was last told to work on.
    told: BTreeSet<Place>,
    pub(super) is_waiting: bool,
    /// An answer was lost, so it says all and wants to hear all.
    is_unsure: bool,
    /// Its last request.
    last: u64,
    pub(super) topics: Vec<String>,
    pattern: String,
    lives: usize,
    /// Of a client that speaks the classic protocol.
    pub(super) classic: Option<Classic>,
}

/// Which clients there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    OfTheNewerProtocol,
    /// Some speak the classic protocol, and whoever is born anew may have changed to the other.
    Mixed(Rebalancing),
}

pub(super) struct Run {
    dice: Dice,
    pub(super) world: World,
    of: Clients,
    pub(super) clients: Vec<Client>,
    /// Who asked, and in which life.
    asked: Vec<(usize, usize)>,
    /// Epoch of the group so far.
    epoch: i32,
    /// Nothing goes wrong any more, and nobody changes its mind.
    is_calm: bool,
}

#[test]
fn rp_113_random_members_never_share_a_partition() {
    for_each_seed(SEEDS, sequence);
}

#[test]
fn rp_113_random_members_of_both_protocols_never_share_a_partition() {
    for_each_seed(SEEDS, |seed| {
        let rebalancing = match seed % 2 {
            0 => Rebalancing::Eager,
            _ => Rebalancing::Cooperative,
        };
        run(seed, Clients::Mixed(rebalancing));
    });
}

fn sequence(seed: u64) {
    run(seed, Clients::OfTheNewerProtocol);
}

fn run(seed: u64, of: Clients) {
    let mut settings = Settings::default();
    settings.consumer.assignment_ms = [0, 1_000, 5_000][seed as usize % 3];
    if of != Clients::OfTheNewerProtocol {
        let policies = [
            Migration::Bidirectional,
            Migration::Bidirectional,
            Migration::Upgrade,
            Migration::Downgrade,
            Migration::Disabled,
        ];
        settings.consumer.migration = policies[seed as usize / 2 % policies.len()];
    }
    let mut run = Run {
        dice: Dice::of(seed),
        world: World::new(settings),
        of,
        epoch: 0,
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
        let classic = match self.of {
            Clients::Mixed(rebalancing) if self.dice.below(2) == 0 => {
                Some(Classic::new(rebalancing))
            }
            Clients::Mixed(_) | Clients::OfTheNewerProtocol => None,
        };
        self.clients[nth] = Client {
            id: match classic {
                Some(_) => String::new(),
                None => format!("c{nth}.{lives}"),
            },
            lives,
            classic,
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
                // A generation that was not shared out yet is not in the log.
                self.epoch = self.epoch.min(self.epoch_of_group());
                for client in &mut self.clients {
                    client.is_unsure |= client.is_waiting;
                    client.is_waiting = false;
                }
            }
            // Leaders of classic groups look at topics by themselves, which no client here does.
            88 if self.of == Clients::OfTheNewerProtocol => self.change_topics(),
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

    pub(super) fn ask(&mut self, nth: usize, ask: Ask) {
        let caller = Caller {
            client_id: format!("c{nth}"),
            client_host: String::new(),
            version: match &ask {
                Ask::ConsumerHeartbeat(_) => 1,
                _classic => 5,
            },
        };
        let token = Token(self.asked.len() as u64);
        self.asked.push((nth, self.clients[nth].lives));
        self.clients[nth].last = token.0;
        self.world.ask(&caller, ask, token);
    }

    fn choose_topics(&mut self, nth: usize) {
        let names: &[&str] = match self.dice.below(4) {
            0 => &["a"],
            1 => &["a", "bb"],
            2 => &["bb", "ccc"],
            _ => &["a", "bb", "ccc"],
        };
        let names = names.iter().map(|name| (*name).to_owned());
        self.clients[nth].topics = names.collect();
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
        if let Some(phase) = self.clients[nth].classic.as_ref().map(|c| c.phase) {
            if self.clients[nth].topics.is_empty() {
                self.choose_topics(nth);
            }
            self.go_on_classic(nth, phase);
            return;
        }
        let mut request = self.request(nth);
        let is_full = self.clients[nth].epoch == 0 || self.clients[nth].is_unsure;
        let changes_mind =
            self.clients[nth].topics.is_empty() || !self.is_calm && self.dice.below(12) == 0;
        if changes_mind {
            self.choose_topics(nth);
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
        self.ask(nth, Ask::ConsumerHeartbeat(request));
    }

    fn leave(&mut self, nth: usize) {
        if self.clients[nth].classic.is_some() {
            self.leave_classic(nth);
            self.be_born(nth);
            return;
        }
        let mut request = self.request(nth);
        request.member_epoch = match nth >= FIRST_STATIC && self.dice.below(2) == 0 {
            true => -2,
            false => -1,
        };
        self.ask(nth, Ask::ConsumerHeartbeat(request));
        self.be_born(nth);
    }

    fn look(&mut self) {
        for (token, answer) in std::mem::take(&mut self.world.answers) {
            let (nth, life) = self.asked[token.0 as usize];
            let is_lost = !self.is_calm && self.dice.below(20) == 0;
            // What comes by a connection that it has given up is not heard.
            let is_current = self.clients[nth].lives == life && self.clients[nth].last == token.0;
            match answer {
                _ if !is_current => {}
                _ if is_lost => {
                    self.clients[nth].is_waiting = false;
                    self.clients[nth].is_unsure = true;
                }
                Answer::ConsumerHeartbeat(answer) => self.hear(nth, &answer),
                Answer::Join(answer) => self.hear_join(nth, &answer),
                Answer::Sync(answer) => self.hear_sync(nth, &answer),
                Answer::Heartbeat(answer) => self.hear_beat(nth, &answer),
                another => panic!("not what was asked: {another:?}"),
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
            // It may not change the protocol of a group that has members.
            ErrorCode::GroupIdNotFound if self.of != Clients::OfTheNewerProtocol => {
                self.be_born(nth);
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
        let is_back = answer.member_epoch < client.epoch;
        assert!(!is_back, "{}: epochs grow", client.id);
        client.epoch = answer.member_epoch;
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            client.told = topics
                .flat_map(|t| t.partitions.iter().map(|p| (t.topic_id, *p)))
                .collect();
            client.owned.extend(client.told.iter().copied());
        }
    }

    fn epoch_of_group(&self) -> i32 {
        let group = self.world.machine.groups.get("g");
        group.map_or(0, |group| match &group.consumer {
            Some(consumer) => consumer.epoch,
            None => group.generation,
        })
    }

    /// Who is a member works on what nobody else does, and epochs of a group with members grow.
    fn check(&mut self) {
        let group = self.world.machine.groups.get("g");
        let epoch = self.epoch_of_group();
        let has_members = group.is_some_and(|group| group.member_count() > 0);
        if has_members {
            assert!(epoch >= self.epoch, "{epoch} comes after {}", self.epoch);
        }
        self.epoch = if has_members { epoch } else { 0 };
        let mut owners: BTreeMap<Place, &str> = BTreeMap::new();
        for client in &mut self.clients {
            let is_member = group.is_some_and(|group| {
                group.consumer_member(&client.id).is_some()
                    || group.members.contains_key(client.id.as_str())
            });
            if client.epoch == 0 || !is_member {
                if client.classic.is_some() {
                    client.lost.append(&mut client.owned);
                }
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
        let group = &self.world.machine.groups["g"];
        assert_eq!(group.shown().name(), "Stable");
        assert_eq!(group.member_count(), CLIENTS);
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
        let described = |world: &World| {
            let machine = &world.machine;
            (
                machine.consumer_describe("g", None),
                machine.describe("g", 6, None),
            )
        };
        let before = described(&self.world);
        self.world.restart();
        assert_eq!(described(&self.world), before);
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
