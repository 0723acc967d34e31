//! Members that subscribe to as many names as they may: what is alike is worked on once.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::limits::SUBSCRIBED_NAMES_MAX;
use thalweg_types::{TimestampMs, TopicId, Uuid};

use crate::{
    Answer, Ask, Caller, ConsumerSettings, Coordinator, Effect, GroupSettings, Now, Progress,
    Settings, Token, TopicCatalog, TopicShape,
};

/// Topics `topic-0000` and so on, of two partitions, and how often one was looked up.
#[derive(Clone, Default)]
struct Topics {
    looked_up: Rc<Cell<usize>>,
    version: Rc<Cell<u64>>,
}

impl TopicCatalog for Topics {
    fn topic(&self, name: &str) -> Option<TopicShape> {
        self.looked_up.set(self.looked_up.get() + 1);
        let nth: u128 = name.strip_prefix("topic-")?.parse().ok()?;
        Some(TopicShape {
            id: Uuid((1 + nth).to_be_bytes()),
            partitions: 2,
        })
    }

    fn name(&self, id: TopicId) -> Option<Arc<str>> {
        let nth = u128::from_be_bytes(id.0) - 1;
        Some(format!("topic-{nth:04}").into())
    }

    fn names(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn version(&self) -> u64 {
        self.version.get()
    }

    fn group(&self, _: &str) -> GroupSettings {
        GroupSettings::default()
    }
}

struct Many {
    machine: Coordinator,
    topics: Topics,
    asked: u64,
}

impl Many {
    fn new() -> Many {
        let topics = Topics::default();
        let settings = Settings {
            consumer: ConsumerSettings {
                assignment_ms: 0,
                ..ConsumerSettings::default()
            },
            ..Settings::default()
        };
        let draw = Box::new(|| Some([0; 16]));
        let mut machine = Coordinator::new(settings, Box::new(topics.clone()), draw);
        let loaded = machine.on_loaded(now(), &mut Vec::new());
        assert_eq!(loaded, Progress::Done);
        Many {
            machine,
            topics,
            asked: 0,
        }
    }

    /// A heartbeat, its answer, and how many names were looked up for it.
    fn beat(
        &mut self,
        request: ConsumerGroupHeartbeatRequest,
    ) -> (ConsumerGroupHeartbeatResponse, usize) {
        let caller = Caller {
            client_id: "c".to_owned(),
            client_host: "/h".to_owned(),
            version: 1,
        };
        self.topics.looked_up.set(0);
        self.asked += 1;
        let ask = Ask::ConsumerHeartbeat(request);
        let mut effects = Vec::new();
        self.machine
            .on_ask(now(), &caller, ask, Token(self.asked), &mut effects);
        let looked_up = self.topics.looked_up.get();
        let mut answer = None;
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Write { id, .. } => self.machine.on_written(now(), id, &mut effects),
                Effect::Answer { answer: told, .. } => answer = Some(told),
            }
        }
        self.machine.check();
        match answer {
            Some(Answer::ConsumerHeartbeat(answer)) if answer.error_code == 0 => {
                (answer, looked_up)
            }
            other => panic!("{other:?}"),
        }
    }

    fn join(&mut self, member: &str, names: usize) -> (ConsumerGroupHeartbeatResponse, usize) {
        let names = (0..names).map(|nth| format!("topic-{nth:04}"));
        self.beat(ConsumerGroupHeartbeatRequest {
            group_id: "g".to_owned(),
            member_id: member.to_owned(),
            rebalance_timeout_ms: 60_000,
            subscribed_topic_names: Some(names.collect()),
            topic_partitions: Some(Vec::new()),
            ..ConsumerGroupHeartbeatRequest::default()
        })
    }

    fn live(
        &mut self,
        member: &str,
        epoch: i32,
        owned: Option<Vec<TopicPartitions>>,
    ) -> (ConsumerGroupHeartbeatResponse, usize) {
        self.beat(ConsumerGroupHeartbeatRequest {
            group_id: "g".to_owned(),
            member_id: member.to_owned(),
            member_epoch: epoch,
            rebalance_timeout_ms: -1,
            topic_partitions: owned,
            ..ConsumerGroupHeartbeatRequest::default()
        })
    }
}

fn now() -> Now {
    Now {
        ms: 1_000,
        wall: TimestampMs(1_700_000_000_000),
    }
}

fn partitions(answer: &ConsumerGroupHeartbeatResponse) -> usize {
    let topics = answer.assignment.iter().flat_map(|a| &a.topic_partitions);
    topics.map(|topic| topic.partitions.len()).sum()
}

#[test]
fn bi_8_names_that_members_share_are_looked_up_once() {
    const MANY: usize = SUBSCRIBED_NAMES_MAX;
    let mut many = Many::new();
    let (first, looked_up) = many.join("a", MANY);
    assert_eq!((partitions(&first), looked_up), (2 * MANY, MANY));
    assert_eq!(many.live("a", 1, None).1, 0);
    // Another one with the same list, and one with a part of it.
    assert_eq!(many.join("b", MANY).1, 0);
    assert_eq!(many.join("c", MANY / 2).1, 0);
    // The first is told what it keeps, and has given up the rest when it says so.
    let (kept, looked_up) = many.live("a", 1, None);
    assert_eq!(looked_up, 0);
    let owned = kept.assignment.clone().expect("something changed");
    let owned = owned.topic_partitions.into_iter();
    let owned = owned.map(|topic| TopicPartitions {
        topic_id: topic.topic_id,
        partitions: topic.partitions,
    });
    let (released, looked_up) = many.live("a", 1, Some(owned.collect()));
    assert_eq!((released.member_epoch, looked_up), (3, 0));
    let (last, _) = many.live("b", 2, None);
    let (part, _) = many.live("c", 3, None);
    let shares = [&kept, &last, &part].map(partitions);
    assert_eq!(shares.iter().sum::<usize>(), 2 * MANY, "{shares:?}");
    assert!(shares.iter().max() <= shares.iter().min().map(|least| least + 1).as_ref());
    // Topics changed: each name once, whoever comes first.
    many.topics.version.set(1);
    assert_eq!(many.live("a", 3, None).1, MANY);
    assert_eq!(many.live("b", 3, None).1, 0);
}

#[test]
fn bi_36_names_that_members_share_count_once() {
    let mut many = Many::new();
    many.join("a", SUBSCRIBED_NAMES_MAX);
    let one = many.machine.tally().bytes;
    for nth in 0..100 {
        many.join(&format!("b{nth}"), SUBSCRIBED_NAMES_MAX);
    }
    let all = many.machine.tally().bytes;
    assert!(all < 3 * one, "{one} bytes of one, {all} of all");
}
