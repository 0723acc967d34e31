//! A coordinator with the shell's part played by hand: writes wait until they are said to be done.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_protocol::ErrorCode;
use thalweg_types::{ProducerId, TimestampMs, TopicId, Uuid};

use crate::{
    Answer, Ask, Caller, ConsumerRecord, Coordinator, Effect, GroupSettings, Now, Outcome,
    Progress, Record, Settings, Token, TopicCatalog, TopicShape, WriteId,
};

/// Wall clock at monotonic zero.
pub(super) const EPOCH_MS: i64 = 1_700_000_000_000;

/// Which topics there are. One that is not named here was always there, with three partitions.
#[derive(Clone, Default)]
pub(super) struct WorldTopics {
    /// `None` for one that is gone, else how many of its name there were before.
    topics: Rc<RefCell<BTreeMap<String, Option<u8>>>>,
    sizes: Rc<RefCell<BTreeMap<String, i32>>>,
    version: Rc<Cell<u64>>,
    /// What is set for every group.
    pub(super) of_groups: Rc<Cell<GroupSettings>>,
}

impl WorldTopics {
    fn set(&self, name: &str, nth: Option<u8>) {
        self.topics.borrow_mut().insert(name.to_owned(), nth);
        self.version.set(self.version.get() + 1);
    }

    /// The topic has so many partitions from now on.
    pub(super) fn size(&self, name: &str, partitions: i32) {
        self.topics
            .borrow_mut()
            .entry(name.to_owned())
            .or_insert(Some(1));
        self.sizes.borrow_mut().insert(name.to_owned(), partitions);
        self.version.set(self.version.get() + 1);
    }

    pub(super) fn id(&self, name: &str) -> Option<TopicId> {
        let nth = self.topics.borrow().get(name).copied().unwrap_or(Some(1))?;
        let mut id = [nth; 16];
        id[..8].copy_from_slice(&[name.len() as u8; 8]);
        Some(Uuid(id))
    }
}

impl TopicCatalog for WorldTopics {
    fn topic(&self, name: &str) -> Option<TopicShape> {
        let id = self.id(name)?;
        let partitions = self.sizes.borrow().get(name).copied().unwrap_or(3);
        Some(TopicShape { id, partitions })
    }

    fn name(&self, id: TopicId) -> Option<Arc<str>> {
        let names = self.names();
        names.into_iter().find(|name| self.id(name) == Some(id))
    }

    fn names(&self) -> Vec<Arc<str>> {
        let topics = self.topics.borrow();
        let there = topics.iter().filter(|(_, nth)| nth.is_some());
        there.map(|(name, _)| Arc::from(name.as_str())).collect()
    }

    fn version(&self) -> u64 {
        self.version.get()
    }

    fn group(&self, _: &str) -> GroupSettings {
        self.of_groups.get()
    }
}

/// What the log of a world holds.
#[derive(Clone, Debug)]
pub(super) enum Logged {
    Record(Record),
    InTransaction(ProducerId, Record),
    Marker(ProducerId, Outcome),
}

pub(super) struct World {
    pub(super) topics: WorldTopics,
    /// Topics of these names there were so far.
    incarnations: BTreeMap<String, u8>,
    pub(super) machine: Coordinator,
    pub(super) settings: Settings,
    pub(super) now: u64,
    /// How far the wall clock is ahead of where it should be.
    pub(super) skew: i64,
    lives: u128,
    /// Asked and not answered.
    pub(super) open: Vec<Token>,
    /// Answered since last looked at.
    pub(super) answers: VecDeque<(Token, Answer)>,
    /// Written since last looked at.
    pub(super) written: Vec<Vec<Record>>,
    pub(super) writes: VecDeque<(WriteId, Vec<Record>)>,
    /// What a restart replays.
    pub(super) log: Vec<Logged>,
}

impl World {
    pub(super) fn new(settings: Settings) -> World {
        let topics = WorldTopics::default();
        let mut world = World {
            machine: machine(&settings, &topics, 0),
            topics,
            incarnations: BTreeMap::new(),
            lives: 0,
            settings,
            now: 0,
            skew: 0,
            open: Vec::new(),
            answers: VecDeque::new(),
            written: Vec::new(),
            writes: VecDeque::new(),
            log: Vec::new(),
        };
        world.finish_loading();
        world
    }

    pub(super) fn wall(&self) -> TimestampMs {
        self.moment().wall
    }

    fn moment(&self) -> Now {
        Now {
            ms: self.now,
            wall: TimestampMs(EPOCH_MS + self.now as i64 + self.skew),
        }
    }

    fn event(&mut self, event: impl FnOnce(&mut Coordinator, Now, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        let now = self.moment();
        event(&mut self.machine, now, &mut out);
        for effect in out {
            match effect {
                Effect::Answer { token, answer } => {
                    let place = self.open.iter().position(|open| *open == token);
                    self.open
                        .remove(place.expect("each token is answered once"));
                    self.answers.push_back((token, answer));
                }
                Effect::Write { id, records } => {
                    assert!(!records.is_empty(), "a write has records");
                    let records = Rc::unwrap_or_clone(records);
                    self.written.push(records.clone());
                    self.writes.push_back((id, records));
                }
            }
        }
        self.machine.check();
    }

    fn finish_loading(&mut self) -> Vec<Progress> {
        let mut steps = Vec::new();
        while self.machine.is_loading() {
            self.event(|machine, now, out| steps.push(machine.on_loaded(now, out)));
        }
        steps
    }

    pub(super) fn ask(&mut self, caller: &Caller, ask: Ask, token: Token) {
        self.open.push(token);
        self.event(|machine, now, out| machine.on_ask(now, caller, ask, token, out));
    }

    /// The oldest write is committed.
    pub(super) fn commit_write(&mut self) {
        let (id, records) = self.writes.pop_front().expect("a write is on its way");
        for record in records {
            // Through the bytes, as the log has it.
            let key = record.key().expect("fits");
            let value = record.value().expect("fits");
            let read = Record::decode(Some(&key), value.as_deref()).expect("our own record");
            let read = read.expect("of a type that is known");
            assert_eq!(read, as_logged(record));
            self.log.push(Logged::Record(read));
        }
        self.event(|machine, now, out| machine.on_written(now, id, out));
    }

    /// The oldest write and all behind it failed.
    pub(super) fn fail_writes(&mut self, error: ErrorCode) {
        let failed = std::mem::take(&mut self.writes);
        for (id, _) in failed {
            self.event(|machine, now, out| machine.on_write_failed(now, id, error, out));
        }
    }

    /// Lets time pass, firing each timer at its time.
    pub(super) fn pass_to(&mut self, to: u64) {
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= to) {
            self.now = self.now.max(due);
            self.event(|machine, now, out| machine.on_time(now, out));
        }
        self.now = to;
    }

    /// A topic goes, without the machine seeing it yet.
    pub(super) fn remove_topic(&mut self, name: &str) {
        self.topics.set(name, None);
    }

    /// A topic comes that was not there, or is there again.
    pub(super) fn make_topic(&mut self, name: &str) {
        let nth = self.incarnations.entry(name.to_owned()).or_insert(1);
        *nth += 1;
        let nth = *nth;
        self.topics.set(name, Some(nth));
    }

    /// The machine is told that a topic went.
    pub(super) fn tell_removed(&mut self, name: &str) {
        let names = [Arc::from(name)];
        self.event(|machine, now, _| machine.on_topics_removed(now, &names));
        // The first slice is due at once.
        self.pass_to(self.now);
    }

    /// Something that another coordinator or a transaction wrote is committed.
    pub(super) fn logged(&mut self, logged: Logged) {
        self.log.push(logged.clone());
        self.event(|machine, now, _| replay(machine, logged, now));
    }

    /// The process ends, with what was not committed, and another one replays the log.
    pub(super) fn restart(&mut self) -> Vec<Progress> {
        self.lives += 1;
        self.machine = machine(&self.settings, &self.topics, self.lives);
        self.open.clear();
        self.writes.clear();
        let now = self.moment();
        for logged in self.log.clone() {
            replay(&mut self.machine, logged, now);
        }
        self.finish_loading()
    }
}

fn replay(machine: &mut Coordinator, logged: Logged, now: Now) {
    let mut progress = match logged {
        Logged::Record(record) => machine.on_record(record, now),
        Logged::InTransaction(producer, record) => {
            machine.on_transactional_record(producer, record, now)
        }
        Logged::Marker(producer, outcome) => {
            machine.on_marker(producer, outcome, now);
            Progress::Done
        }
    };
    while progress == Progress::More {
        progress = machine.on_record_rest(now);
    }
}

/// The record of an offset with an end of its own has room for neither epoch nor topic id.
fn as_logged(mut record: Record) -> Record {
    if let Record::Offset {
        value: Some(value), ..
    } = &mut record
        && value.expires != TimestampMs::NONE
    {
        value.leader_epoch = -1;
        value.topic_id = TopicId::ZERO;
    }
    record
}

/// Ids of different lives differ.
fn machine(settings: &Settings, topics: &WorldTopics, life: u128) -> Coordinator {
    let mut drawn = life << 64;
    let draw = move || {
        drawn += 1;
        Some(drawn.to_be_bytes())
    };
    Coordinator::new(settings.clone(), Box::new(topics.clone()), Box::new(draw))
}

/// Records as a scenario shows them.
pub(super) fn show(records: &[Record], name: &dyn Fn(&str) -> String) -> Vec<String> {
    let one = |record: &Record| match record {
        Record::Offset {
            group,
            topic,
            partition,
            value,
        } => match value {
            Some(v) => format!("{group}: {topic}-{partition}={} {:?}", v.offset, v.metadata),
            None => format!("{group}: {topic}-{partition} ends"),
        },
        Record::Group { group, value } => match value {
            Some(v) => {
                let members: BTreeMap<String, String> = v
                    .members
                    .iter()
                    .map(|m| {
                        let share = String::from_utf8_lossy(&m.assignment).into_owned();
                        (name(&m.member_id), share)
                    })
                    .collect();
                format!("{group}: generation {} {members:?}", v.generation)
            }
            None => format!("{group}: ends"),
        },
        Record::Consumer { group, record } => format!("{group}: {}", show_consumer(record, name)),
    };
    records.iter().map(one).collect()
}

/// Topic ids by the length of their name, which is all that they tell.
pub(super) fn show_parts<'a>(topics: impl Iterator<Item = (TopicId, &'a [i32])>) -> String {
    let one = |(id, partitions): (TopicId, &[i32])| {
        let list: Vec<String> = partitions.iter().map(i32::to_string).collect();
        format!("{}.{}:{}", id.0[0], id.0[8], list.join("+"))
    };
    topics.map(one).collect::<Vec<_>>().join(" ")
}

fn show_consumer(record: &ConsumerRecord, name: &dyn Fn(&str) -> String) -> String {
    match record {
        ConsumerRecord::Group(Some(v)) => format!("epoch {}", v.epoch),
        ConsumerRecord::Group(None) => "epoch ends".to_owned(),
        ConsumerRecord::TargetEpoch(Some(v)) => format!("shares of epoch {}", v.assignment_epoch),
        ConsumerRecord::TargetEpoch(None) => "shares end".to_owned(),
        ConsumerRecord::Member(id, Some(v)) => {
            let regex = v.subscribed_topic_regex.as_deref().unwrap_or("-");
            let classic = match v.classic_member_metadata {
                Some(_) => " classic",
                None => "",
            };
            let topics = &v.subscribed_topic_names;
            format!("member {} {topics:?} {regex}{classic}", name(id))
        }
        ConsumerRecord::Member(id, None) => format!("member {} ends", name(id)),
        ConsumerRecord::Target(id, Some(v)) => {
            let topics = v.topic_partitions.iter();
            let parts = show_parts(topics.map(|t| (t.topic_id, t.partitions.as_slice())));
            format!("target {} [{parts}]", name(id))
        }
        ConsumerRecord::Target(id, None) => format!("target {} ends", name(id)),
        ConsumerRecord::Current(id, Some(v)) => {
            let assigned = v.assigned_partitions.iter();
            let revoking = v.partitions_pending_revocation.iter();
            format!(
                "current {} epoch {} before {} state {} [{}] revokes [{}]",
                name(id),
                v.member_epoch,
                v.previous_member_epoch,
                v.state,
                show_parts(assigned.map(|t| (t.topic_id, t.partitions.as_slice()))),
                show_parts(revoking.map(|t| (t.topic_id, t.partitions.as_slice()))),
            )
        }
        ConsumerRecord::Current(id, None) => format!("current {} ends", name(id)),
        ConsumerRecord::Regex(regex, Some(v)) => format!("regex {regex} {:?}", v.topics),
        ConsumerRecord::Regex(regex, None) => format!("regex {regex} ends"),
    }
}
