//! The shell around the coordinators of groups: one per partition of the offsets topic that this
//! shard owns.
//!
//! Requests become events of [`Coordinator`]; its writes become appends that wait for the high
//! watermark, and their outcomes come back as events in the order of the log. Nothing in this file
//! decides a rule of Kafka.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use thalweg_config::BrokerConfig;
use thalweg_group::{
    Answer, Ask, Assignor, Caller, ConsumerSettings, Coordinator, Effect, Happened, Migration, Now,
    Position, Progress, Rebalance, Record, Settings, Tally, Token, WriteId,
};
use thalweg_metrics::Counters;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, BatchSummary, Codec, TimestampType};
use thalweg_reactor::time::{Duration, Instant};
use thalweg_reactor::{oneshot, process, task, time};
use thalweg_replica::Acks;
use thalweg_types::limits::OFFSETS_ROOM_BYTES;
use thalweg_types::{TimestampMs, TopicPartition};

use crate::append_group::{AppendGroup, Outcomes, Row};
use crate::coordinator_catalog::Catalog;
use crate::coordinator_load::{self, Logged, Turns};
use crate::partition::Partition;
use crate::peer::AppendAsk;
use crate::shard::{SharedMetrics, SharedView};

/// How long after a load that failed the next is tried.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A request on its way to the coordinator of its group.
pub(crate) struct GroupAsk {
    /// The partition of the offsets topic.
    pub home: TopicPartition,
    /// Who asks.
    pub caller: Caller,
    /// What.
    pub ask: Ask,
    /// Gets the answer.
    pub reply: oneshot::Sender<Answer>,
}

/// The coordinators of one shard.
pub(crate) struct Coordinators {
    catalog: Catalog,
    metrics: SharedMetrics,
    homes: RefCell<HashMap<TopicPartition, Rc<Home>>>,
    /// Bytes that all of them hold.
    held: Rc<Cell<usize>>,
    /// Whose turn it is to go on with a load or with a look at all its groups.
    turns: Rc<Turns>,
    is_stopping: Cell<bool>,
}

impl Coordinators {
    pub(crate) fn new(view: SharedView, metrics: SharedMetrics) -> Coordinators {
        Coordinators {
            catalog: Catalog::new(view),
            metrics,
            homes: RefCell::default(),
            held: Rc::default(),
            turns: Rc::default(),
            is_stopping: Cell::new(false),
        }
    }

    /// Begins to load the groups of a partition that was just opened. The view must know all topics
    /// by now: offsets of others end.
    pub(crate) fn open(&self, partition: Rc<Partition>, config: &BrokerConfig) {
        let id = partition.id();
        let home = Home::new(partition, settings(config), self);
        *home.loading.borrow_mut() = Some(task::spawn(load(Rc::clone(&home))));
        self.homes.borrow_mut().insert(id, home);
    }

    /// Forgets the groups of a partition: whoever waits is told to look for the coordinator.
    pub(crate) fn close(&self, id: TopicPartition) {
        if let Some(home) = self.homes.borrow_mut().remove(&id) {
            home.close();
        }
    }

    /// Topics of these names are gone, and the view knows it.
    pub(crate) fn on_topics_removed(&self, names: &[Arc<str>]) {
        let homes: Vec<_> = self.homes.borrow().values().cloned().collect();
        for home in homes {
            home.event(|machine, now, _| machine.on_topics_removed(now, names));
        }
    }

    /// Nobody waits for other members from here on; the rest is served on.
    pub(crate) fn begin_stop(&self) {
        self.is_stopping.set(true);
        for home in self.homes.borrow().values() {
            home.drop_parked();
        }
    }

    /// Passes a request on. It is dropped, and its channel closed, when the partition is not here.
    pub(crate) fn ask(&self, request: GroupAsk) {
        let home = self.homes.borrow().get(&request.home).cloned();
        if let Some(home) = home {
            home.ask(request);
            if self.is_stopping.get() {
                home.drop_parked();
            }
        }
    }

    /// The coordinator of a partition.
    pub(crate) fn home(&self, id: TopicPartition) -> Option<Rc<Home>> {
        self.homes.borrow().get(&id).cloned()
    }

    /// All of them.
    pub(crate) fn homes(&self) -> Vec<Rc<Home>> {
        self.homes.borrow().values().cloned().collect()
    }

    /// Says what there is in all of them.
    pub(crate) fn gauge(&self, counters: &mut Counters) {
        let (mut loading, mut lost, mut sum) = (0, 0, Tally::default());
        for home in self.homes.borrow().values() {
            lost += u64::from(home.has_lost.get());
            let machine = home.machine.borrow();
            loading += u64::from(machine.is_loading());
            let tally = machine.tally();
            sum.empty += tally.empty;
            sum.preparing += tally.preparing;
            sum.completing += tally.completing;
            sum.stable += tally.stable;
            sum.assigning += tally.assigning;
            sum.reconciling += tally.reconciling;
            sum.dead += tally.dead;
            sum.members += tally.members;
            sum.offsets += tally.offsets;
            sum.bytes += tally.bytes;
        }
        counters.coordinators_loading = loading;
        counters.coordinators_damaged = lost;
        counters.groups_empty = sum.empty as u64;
        counters.groups_preparing = sum.preparing as u64;
        counters.groups_completing = sum.completing as u64;
        counters.groups_stable = sum.stable as u64;
        counters.groups_assigning = sum.assigning as u64;
        counters.groups_reconciling = sum.reconciling as u64;
        counters.groups_dead = sum.dead as u64;
        counters.group_members = sum.members as u64;
        counters.group_offsets = sum.offsets as u64;
        counters.group_bytes = sum.bytes as u64;
    }

    /// Ends every coordinator.
    pub(crate) fn close_all(&self) {
        for (_, home) in self.homes.borrow_mut().drain() {
            home.close();
        }
    }
}

/// Whether a request waits for other members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForMembers,
    ForTheLog,
}

/// One coordinator with its partition.
pub(crate) struct Home {
    metrics: SharedMetrics,
    partition: Rc<Partition>,
    machine: RefCell<Coordinator>,
    waiting: RefCell<HashMap<Token, (Waits, oneshot::Sender<Answer>)>>,
    next_token: Cell<u64>,
    /// Writes on their way, oldest first, which is the order in which they end.
    writes: RefCell<VecDeque<(WriteId, oneshot::Receiver<Outcomes>)>>,
    /// A task waits for the first of them.
    is_draining: Cell<bool>,
    /// The timer that is set, and for when.
    timer: RefCell<Option<(u64, task::Task<()>)>>,
    loading: RefCell<Option<task::Task<()>>>,
    /// Its log can not be read, and is tried again.
    is_failing: Cell<bool>,
    /// Something of its log is damaged: what is not known may have been there.
    has_lost: Cell<bool>,
    /// Bytes that all coordinators of the shard hold.
    held: Rc<Cell<usize>>,
    /// Shared with the other coordinators of the shard.
    turns: Rc<Turns>,
    /// Nothing more happens here: a write that ends later must set no timer, which would keep this
    /// coordinator alive for ever.
    is_closed: Cell<bool>,
    /// Where the machine's clock begins.
    began: Instant,
}

impl Home {
    fn new(partition: Rc<Partition>, settings: Settings, of: &Coordinators) -> Rc<Home> {
        let topics = Box::new(of.catalog.clone());
        Rc::new(Home {
            metrics: Rc::clone(&of.metrics),
            partition,
            machine: RefCell::new(Coordinator::new(settings, topics, Box::new(draw))),
            waiting: RefCell::default(),
            next_token: Cell::new(0),
            writes: RefCell::default(),
            is_draining: Cell::new(false),
            timer: RefCell::default(),
            loading: RefCell::default(),
            is_failing: Cell::new(false),
            has_lost: Cell::new(false),
            held: Rc::clone(&of.held),
            turns: Rc::clone(&of.turns),
            is_closed: Cell::new(false),
            began: time::now(),
        })
    }

    /// What a group has committed behind `after`, as much as one turn may look up.
    pub(crate) fn positions(&self, group: &str, after: Option<&Position>) -> Vec<Position> {
        self.machine.borrow().positions(group, after)
    }

    /// The last rebalances of a group.
    pub(crate) fn history(&self, group: &str) -> Option<Vec<Rebalance>> {
        self.machine.borrow().history(group, self.now())
    }

    /// The first groups by name that have committed something, `max` at most.
    pub(crate) async fn name_groups(&self, max: usize) -> Vec<Rc<str>> {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = self.machine.borrow().groups_with_offsets(after.as_deref());
            names.extend(page.0);
            after = page.1;
            task::yield_now().await;
            if names.len() >= max || after.is_none() {
                names.truncate(max);
                return names;
            }
        }
    }

    /// How many offsets all groups have in sum.
    pub(crate) fn offsets(&self) -> usize {
        self.machine.borrow().tally().offsets
    }

    fn now(&self) -> Now {
        let since = time::now().saturating_duration_since(self.began);
        Now {
            ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            wall: TimestampMs(time::unix_ms()),
        }
    }

    fn ask(self: &Rc<Self>, request: GroupAsk) {
        if self.is_failing.get() {
            let refused = request.ask.refused(ErrorCode::KafkaStorageError);
            let _ = request.reply.send(refused);
            return;
        }
        let token = Token(self.next_token.get());
        self.next_token.set(token.0 + 1);
        let waits = match &request.ask {
            Ask::Join(_) | Ask::Sync(_) => Waits::ForMembers,
            Ask::Heartbeat(_)
            | Ask::Leave(_)
            | Ask::Commit(_)
            | Ask::FetchOffsets(..)
            | Ask::DeleteOffsets(_)
            | Ask::List(..)
            | Ask::Describe(..)
            | Ask::ConsumerHeartbeat(_)
            | Ask::ConsumerDescribe(..)
            | Ask::Delete(_) => Waits::ForTheLog,
        };
        self.waiting
            .borrow_mut()
            .insert(token, (waits, request.reply));
        self.event(|machine, now, out| {
            machine.on_ask(now, &request.caller, request.ask, token, out);
        });
    }

    /// Gives the machine an event and does what comes of it.
    fn event<T>(
        self: &Rc<Self>,
        event: impl FnOnce(&mut Coordinator, Now, &mut Vec<Effect>) -> T,
    ) -> T {
        let now = self.now();
        let mut effects = Vec::new();
        let told = {
            let mut machine = self.machine.borrow_mut();
            let before = machine.tally().bytes;
            machine.note_others(self.held.get().saturating_sub(before));
            let told = event(&mut machine, now, &mut effects);
            self.hold(before, machine.tally().bytes);
            told
        };
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Answer { token, answer } => {
                    let answer = match self.has_lost.get() {
                        true => coordinator_load::without_unknown(answer),
                        false => answer,
                    };
                    let waiting = self.waiting.borrow_mut().remove(&token);
                    if let Some((_, reply)) = waiting {
                        // The client may be gone.
                        let _ = reply.send(answer);
                    }
                }
                Effect::Write { id, records } => {
                    if let Err(error) = self.write(id, &records, now) {
                        let mut more = Vec::new();
                        let mut machine = self.machine.borrow_mut();
                        machine.on_write_failed(now, id, error, &mut more);
                        effects.extend(more);
                    }
                }
            }
        }
        let happened = self.machine.borrow_mut().take_happened();
        count(&mut self.metrics.borrow_mut().counters, happened);
        self.set_timer();
        told
    }

    /// The coordinator holds `after` bytes, and held `before`.
    fn hold(&self, before: usize, after: usize) {
        if !self.is_closed.get() {
            self.held.set(self.held.get() + after - before);
        }
    }

    fn write(self: &Rc<Self>, id: WriteId, records: &[Record], now: Now) -> Result<(), ErrorCode> {
        let (batch, summary) = batch_of(records, now.wall).map_err(|error| {
            tracing::warn!(
                partition = self.partition.name(),
                error,
                "records not written"
            );
            ErrorCode::MessageTooLarge
        })?;
        let (reply, outcome) = oneshot::channel();
        let ask = AppendAsk {
            row: Row::default(),
            id: self.partition.id(),
            batch,
            summary,
            received: now.wall,
        };
        self.writes.borrow_mut().push_back((id, outcome));
        self.partition
            .append(ask, Acks::All, &AppendGroup::answering(1, reply));
        if !self.is_draining.replace(true) {
            task::spawn(drain(Rc::clone(self)));
        }
        Ok(())
    }

    fn set_timer(self: &Rc<Self>) {
        let Some(next) = self.machine.borrow().next_deadline() else {
            return;
        };
        if self.is_closed.get() {
            return;
        }
        let mut timer = self.timer.borrow_mut();
        if let Some((at, task)) = &*timer {
            if *at <= next {
                return;
            }
            task.abort();
        }
        let due = self.began + Duration::from_millis(next);
        let home = Rc::clone(self);
        let fire = async move {
            time::sleep_until(due).await;
            let on_time = || {
                *home.timer.borrow_mut() = None;
                home.event(|machine, now, out| machine.on_time(now, out));
            };
            // All coordinators look at their groups at the same times.
            let sweeps = home.machine.borrow().sweeps();
            match sweeps {
                true => home.turns.slices.slice(on_time).await,
                false => on_time(),
            }
        };
        *timer = Some((next, task::spawn(fire)));
    }

    fn drop_parked(&self) {
        self.waiting
            .borrow_mut()
            .retain(|_, (waits, _)| *waits != Waits::ForMembers);
    }

    fn close(&self) {
        if !self.is_closed.replace(true) {
            let own = self.machine.borrow().tally().bytes;
            self.held.set(self.held.get() - own);
        }
        if let Some((_, timer)) = self.timer.borrow_mut().take() {
            timer.abort();
        }
        if let Some(loading) = self.loading.borrow_mut().take() {
            loading.abort();
        }
        self.waiting.borrow_mut().clear();
    }
}

/// Reports writes as they end, until none is on its way.
async fn drain(home: Rc<Home>) {
    loop {
        let Some((id, outcome)) = home.writes.borrow_mut().pop_front() else {
            break;
        };
        let appended = outcome.await.and_then(|rows| rows.into_iter().next());
        let result = appended.map_or(Err(ErrorCode::NotLeaderOrFollower), |row| row.result);
        home.event(|machine, now, out| match result {
            Ok(_) => machine.on_written(now, id, out),
            Err(error) => machine.on_write_failed(now, id, error, out),
        });
        // What is committed on a full disk has its room already then.
        home.partition.log().keep_room(OFFSETS_ROOM_BYTES).await;
    }
    home.is_draining.set(false);
}

/// Replays the partition, in steps between which other tasks run.
async fn load(home: Rc<Home>) {
    let began = time::now();
    let partition = Rc::clone(&home.partition);
    let mut records = 0u64;
    while let Err(error) = replay_into(&home, &mut records).await {
        // Serving without their offsets would make consumers start anew.
        tracing::error!(
            partition = partition.name(),
            error,
            again_ms = LOAD_AGAIN_AFTER.as_millis() as u64,
            "groups not loaded: they are answered with KAFKA_STORAGE_ERROR, those of other partitions \
             are served; look at the disk's errors"
        );
        home.is_failing.set(true);
        time::sleep(LOAD_AGAIN_AFTER).await;
    }
    home.is_failing.set(false);
    let get_ready = || home.event(|machine, now, out| machine.on_loaded(now, out));
    while home.turns.slices.slice(get_ready).await == Progress::More {}
    let ms = (time::now() - began).as_millis() as u64;
    {
        let counters = &mut home.metrics.borrow_mut().counters;
        counters.group_loads += 1;
        counters.group_load_ms += ms;
        counters.group_records_loaded += records;
    }
    if records > 0 {
        partition.log().keep_room(OFFSETS_ROOM_BYTES).await;
        tracing::info!(
            partition = partition.name(),
            records,
            offsets = home.machine.borrow().tally().offsets,
            ms,
            "groups loaded"
        );
    }
}

/// From the begin, whatever is known already: the last record of a key counts.
async fn replay_into(home: &Home, records: &mut u64) -> Result<(), String> {
    *records = 0;
    let replay = |logged| {
        *records += u64::from(!matches!(logged, Logged::RestOfRecord));
        let now = home.now();
        let mut machine = home.machine.borrow_mut();
        let before = machine.tally().bytes;
        let progress = match logged {
            Logged::Record(record) => machine.on_record(record, now),
            Logged::InTransaction(producer, record) => {
                machine.on_transactional_record(producer, record, now)
            }
            Logged::RestOfRecord => machine.on_record_rest(now),
            Logged::Marker(producer, outcome) => {
                machine.on_marker(producer, outcome, now);
                Progress::Done
            }
        };
        home.hold(before, machine.tally().bytes);
        progress
    };
    let lost = coordinator_load::replay(&home.partition, &home.turns, replay).await?;
    home.has_lost.set(lost.ranges > 0);
    Ok(())
}

/// One batch of all records, as a producer would send it.
fn batch_of(
    records: &[Record],
    timestamp: TimestampMs,
) -> Result<(BytesMut, BatchSummary), String> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for record in records {
        let key = record.key().map_err(|error| error.to_string())?;
        let value = record.value().map_err(|error| error.to_string())?;
        builder
            .push(timestamp, Some(&key), value.as_deref(), &[])
            .map_err(|error| error.to_string())?;
    }
    let record_count = builder.record_count();
    let uncompressed_bytes = builder.uncompressed_bytes();
    let batch = builder
        .build(Codec::None)
        .map_err(|error| error.to_string())?;
    let summary = BatchSummary {
        bytes: batch.len(),
        record_count,
        last_offset_delta: record_count - 1,
        max_timestamp: timestamp,
        offset_delta_of_max_timestamp: 0,
        timestamp_type: TimestampType::CreateTime,
        codec: Codec::None,
        uncompressed_bytes,
        producer: None,
        is_transactional: false,
        is_control: false,
    };
    Ok((BytesMut::from(batch), summary))
}

fn count(counters: &mut Counters, happened: Happened) {
    counters.offsets_committed += happened.offsets_committed;
    counters.group_rebalances += happened.rebalances;
    counters.group_members_timed_out += happened.members_timed_out;
    counters.offsets_expired += happened.offsets_expired;
    counters.groups_expired += happened.groups_expired;
}

fn settings(config: &BrokerConfig) -> Settings {
    Settings {
        initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms(),
        session_timeout_ms: config.group_session_timeout_ms(),
        group_size_max: config.group_max_size(),
        offset_metadata_max: config.offset_metadata_max_bytes(),
        offsets_retention_ms: config.offsets_retention_ms(),
        offsets_check_interval_ms: config.offsets_retention_check_interval_ms(),
        consumer: ConsumerSettings {
            session_ms: config.group_consumer_session_timeout_ms(),
            heartbeat_ms: config.group_consumer_heartbeat_interval_ms(),
            assignment_ms: config.group_consumer_assignment_interval_ms(),
            size_max: config.group_consumer_max_size(),
            assignors: config
                .group_consumer_assignors()
                .iter()
                .filter_map(|name| Assignor::named(name))
                .collect(),
            migration: Migration::named(config.group_consumer_migration_policy())
                .unwrap_or(Migration::Bidirectional),
        },
        ..Settings::default()
    }
}

fn draw() -> Option<[u8; 16]> {
    process::random_bytes()
        .inspect_err(|error| tracing::error!(%error, "no random bytes: no member joins a group"))
        .ok()
}
