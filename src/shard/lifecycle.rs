//! A shard's life: its thread, its first view, the commands of the control plane, its end.

mod applying;
mod opening;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_config::BrokerConfig;
use thalweg_control::{
    ClusterView, ControlHandle, DirIndex, OpeningProgress, PartitionToOpen, ShardCommand,
    StoppedPartition,
};
use thalweg_metrics::{CoreMetrics, Engine, Stage};
use thalweg_net::{ConnectionSlots, Incoming, Limits, ShardNet};
use thalweg_reactor::event::Event;
use thalweg_reactor::net::Stream;
use thalweg_reactor::{
    LogGate, Pinning, Runtime, RuntimeOptions, mailbox, process, spawn_shard_thread, task, time,
};
use thalweg_storage::{CleanerPool, DirHealth, Log, LogOptions, Scrubber};
use thalweg_types::limits::{MAILBOX_MESSAGES_MAX, PARTITIONS_AT_ONCE};
use thalweg_types::{IdMap, ShardId, TopicPartition};

use crate::admission::Admission;
use crate::append_group::AppendGroup;
use crate::compaction;
use crate::flushing;
use crate::partition::Partition;
use crate::peer::{Mail, PeerRequest};
use crate::retention;
use crate::scrub;
use crate::shard::{Shard, ShardParts};
use crate::together;

/// Requests taken from the mailbox in one turn before other tasks of the shard run.
const PEER_REQUESTS_PER_TURN: usize = 64;

/// Length of a window of histograms.
const METRICS_WINDOW: Duration = Duration::from_secs(60);

/// How long a stopping shard waits for its connections to flush their answers.
const CONNECTION_DRAIN_MAX: Duration = Duration::from_secs(5);

/// How long a stopping shard waits for partitions that are being opened or deleted.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// How often partitions that could not be opened for lack of room or rights are tried again.
const OPEN_AGAIN_EVERY: Duration = Duration::from_secs(2);

/// The mailbox of one shard and the way to those of all others.
pub struct PeerLink {
    inbox: mailbox::Receiver<Mail>,
    peers: Vec<mailbox::Sender<Mail>>,
}

/// Connects `shards` shards with each other; one link per shard, in order of id.
#[must_use]
pub fn connect(shards: usize) -> Vec<PeerLink> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards)
        .map(|_| mailbox::channel(MAILBOX_MESSAGES_MAX))
        .unzip();
    receivers
        .into_iter()
        .map(|inbox| PeerLink {
            inbox,
            peers: senders.clone(),
        })
        .collect()
}

/// What a shard is started with.
pub struct ShardSetup {
    /// Index of the shard.
    pub id: ShardId,
    /// The broker's properties.
    pub config: Arc<BrokerConfig>,
    /// The log directories, and whether they work.
    pub dirs: Arc<[Arc<DirHealth>]>,
    /// Told of each log that is opened.
    pub opening: Arc<OpeningProgress>,
    /// Way to the controller.
    pub control: ControlHandle,
    /// Commands of the control plane.
    pub commands: mailbox::Receiver<ShardCommand>,
    /// Accepted connections.
    pub sockets: mailbox::Receiver<Incoming>,
    /// Way to the other shards.
    pub link: PeerLink,
    /// Connections that this shard serves, for the acceptor's choice.
    pub connections: Arc<AtomicUsize>,
    /// The view before anything is in it.
    pub view: Arc<ClusterView>,
    /// The cleaners that compact logs; `None` when nothing is to be compacted.
    pub cleaners: Option<CleanerPool>,
    /// Checks the logs of this shard.
    pub scrubber: Scrubber,
    /// The places of connections, when this shard tells the accept loop of changed limits.
    pub slots: Option<Arc<ConnectionSlots>>,
}

/// Starts the thread of a shard. It ends after [`ShardCommand::Stop`].
///
/// # Errors
/// The thread can not be started. The thread's own result is an error when it got no runtime; its
/// mailboxes are closed then.
pub fn spawn(setup: ShardSetup, options: RuntimeOptions) -> io::Result<JoinHandle<io::Result<()>>> {
    spawn_shard_thread(options, move |runtime| {
        let engine = describe_engine(runtime, setup.id);
        runtime.block_on(run(setup, engine));
    })
}

fn describe_engine(runtime: &Runtime, id: ShardId) -> Engine {
    let report = runtime.engine();
    let pinned_to = match runtime.pinning() {
        Pinning::Free => None,
        Pinning::Pinned(core) => Some(core),
        Pinning::Refused { core, reason } => {
            tracing::warn!(
                shard = id.0,
                core,
                reason,
                "not pinned: the shard runs on any core"
            );
            None
        }
    };
    let engine = report.kind.name();
    if let Some(reason) = &report.reason {
        tracing::warn!(
            shard = id.0,
            engine,
            reason,
            "io_uring is limited on this machine"
        );
    }
    tracing::debug!(shard = id.0, engine, core = ?pinned_to, "shard started");
    Engine {
        kind: engine,
        reason: report.reason.unwrap_or_default(),
        pinned_to,
    }
}

/// The commands of one shard and what they need beside the shared state.
struct Lifecycle {
    shard: Rc<Shard>,
    net: Rc<ShardNet>,
    log_options: LogOptions,
    admission: Option<Admission>,
    append_failures: Rc<LogGate>,
    opening: Arc<OpeningProgress>,
    /// The first view is adopted.
    serves: Cell<bool>,
    /// Partitions that the system had no room or no right to open, tried again in a while.
    waiting: RefCell<Vec<PartitionToOpen>>,
    /// Partitions that are being opened, and what their end opens.
    opening_now: RefCell<IdMap<TopicPartition, Event>>,
    /// Partitions that are being deleted.
    parting: RefCell<IdMap<TopicPartition, Event>>,
}

async fn run(setup: ShardSetup, engine: Engine) {
    let PeerLink { inbox, peers } = setup.link;
    let mut metrics = CoreMetrics::new(setup.id.0, peers.len() as u16);
    metrics.engine = Some(engine);
    let metrics = Rc::new(RefCell::new(metrics));
    let net = ShardNet::new(limits(&setup.config, peers.len()), Rc::clone(&metrics));
    let shard = Shard::new(ShardParts {
        id: setup.id,
        config: setup.config,
        control: setup.control,
        dirs: setup.dirs,
        metrics,
        peers,
        view: setup.view,
    });
    let peer_loop = task::spawn(serve_peers(Rc::clone(&shard), inbox));
    let housekeeping = keep_house(&shard, setup.cleaners);
    let acceptor = task::spawn(adopt_all(
        setup.sockets,
        Rc::clone(&shard),
        Rc::clone(&net),
        setup.connections,
    ));
    let log_options = shared_options(&shard, setup.scrubber);
    let life = Rc::new(Lifecycle {
        shard,
        net,
        log_options,
        admission: setup.slots.map(Admission::new),
        append_failures: Rc::default(),
        opening: setup.opening,
        serves: Cell::new(false),
        waiting: RefCell::default(),
        opening_now: RefCell::default(),
        parting: RefCell::default(),
    });
    let mut commands = setup.commands;
    while let Some(command) = life.next_command(&mut commands).await {
        match command {
            ShardCommand::Apply {
                view,
                open,
                delete,
                removed,
                reconfigured,
                done,
            } => {
                let applying = life.apply(view, open, delete).await;
                life.shard.coordinators.on_topics_removed(&removed);
                life.reconfigure(&reconfigured);
                // What waits for a disk yet holds up no other command.
                task::spawn(async move { drop(done.send(applying.ended().await)) });
            }
            ShardCommand::DirectoryFailed { dir, done } => life.lose_directory(dir, done),
            ShardCommand::Scrape { reply } => {
                let _ = reply.send(life.scrape());
            }
            ShardCommand::Unserved { reply } => life.shard.tell_unserved(reply),
            ShardCommand::Groups(question) => life.shard.answer_about_groups(question),
            ShardCommand::Stop { reply } => {
                acceptor.abort();
                let _ = reply.send(life.stop().await);
                break;
            }
        }
    }
    peer_loop.abort();
    housekeeping.iter().for_each(task::Task::abort);
}

/// What the logs of a shard have in common.
fn shared_options(shard: &Shard, scrubber: Scrubber) -> LogOptions {
    LogOptions {
        metrics: Rc::clone(&shard.metrics),
        flush_bytes: shard.config.log_flush_interval_bytes(),
        flush_ms: shard.config.log_flush_interval_ms(),
        scrubber: Some(scrubber),
        ..LogOptions::default()
    }
}

/// What a shard does of its own accord, now and then.
fn keep_house(shard: &Rc<Shard>, cleaners: Option<CleanerPool>) -> Vec<task::Task<()>> {
    let compaction = cleaners.map(|cleaners| {
        let compacting = compaction::enforce(Rc::clone(shard), cleaners);
        task::spawn(compacting)
    });
    let others = [
        task::spawn(expire_producers(Rc::clone(shard))),
        task::spawn(retention::enforce(Rc::clone(shard))),
        task::spawn(scrub::enforce(Rc::clone(shard))),
        task::spawn(flushing::keep_up(Rc::clone(shard))),
        task::spawn(flushing::record(Rc::clone(shard))),
        task::spawn(flushing::mark(Rc::clone(shard))),
        task::spawn(rotate_metrics(Rc::clone(&shard.metrics))),
    ];
    others.into_iter().chain(compaction).collect()
}

/// Serves the mailbox until every other shard is gone or the task is aborted.
async fn serve_peers(shard: Rc<Shard>, mut inbox: mailbox::Receiver<Mail>) {
    let mut batch = Vec::with_capacity(PEER_REQUESTS_PER_TURN);
    while inbox.recv_many(&mut batch, PEER_REQUESTS_PER_TURN).await > 0 {
        for Mail { sent, request } in batch.drain(..) {
            let waited = time::now().saturating_duration_since(sent);
            shard
                .metrics
                .borrow_mut()
                .record(Stage::CrossCoreHop, waited);
            serve_peer(&shard, request);
        }
        task::yield_now().await;
    }
}

/// Forgets producers that have been silent for `producer.id.expiration.ms`.
async fn expire_producers(shard: Rc<Shard>) {
    let every = Duration::from_millis(shard.config.producer_id_expiration_check_interval_ms());
    loop {
        time::sleep(every).await;
        shard.expire_producers().await;
    }
}

/// Quantiles cover the current and the previous window.
async fn rotate_metrics(metrics: Rc<RefCell<CoreMetrics>>) {
    loop {
        time::sleep(METRICS_WINDOW).await;
        metrics.borrow_mut().rotate();
    }
}

/// Takes one request of another shard. Appends are queued here and now, in the order of the
/// mailbox; everything that may wait for the disk gets its own task.
fn serve_peer(shard: &Rc<Shard>, request: PeerRequest) {
    match request {
        PeerRequest::Append { asks, acks, reply } => {
            let group = AppendGroup::answering(asks.len(), reply);
            for ask in asks {
                shard.append_here(ask, acks, &group);
            }
        }
        PeerRequest::Fetch { asks, park, reply } => {
            let shard = Rc::clone(shard);
            task::spawn(async move { shard.fetch_for_peer(asks, park, reply).await });
        }
        PeerRequest::Group(request) => shard.coordinators.ask(*request),
        PeerRequest::Questions { asks, reply } => {
            let shard = Rc::clone(shard);
            task::spawn(async move {
                let _ = reply.send(shard.ask_here(asks).await);
            });
        }
        PeerRequest::Unpark { id, partitions } => shard.unpark_here(id, partitions),
        PeerRequest::Unread { id, unread } => shard.find_lost(id, unread),
        PeerRequest::ListOffsets { asks, reply } => {
            let shard = Rc::clone(shard);
            task::spawn(async move {
                let _ = reply.send(shard.list_offsets_here(asks).await);
            });
        }
    }
}

impl Lifecycle {
    /// The next command. In between, partitions that could not be opened are tried again: never at
    /// once with a command that may delete them.
    async fn next_command(
        self: &Rc<Self>,
        commands: &mut mailbox::Receiver<ShardCommand>,
    ) -> Option<ShardCommand> {
        loop {
            // One that is being opened may come to wait while nobody says anything.
            if self.waiting.borrow().is_empty() && self.opening_now.borrow().is_empty() {
                return commands.recv().await;
            }
            match time::timeout(OPEN_AGAIN_EVERY, commands.recv()).await {
                Ok(command) => return command,
                Err(_) => self.open_waiting(),
            }
        }
    }

    fn scrape(&self) -> CoreMetrics {
        self.net.refresh_gauges();
        let parked = self.shard.parked_fetches();
        let (led, offline) = (self.shard.led_count(), self.shard.offline_count());
        let producers = self.shard.producers();
        let waiting = self.shard.mailbox_depth();
        let unflushed = self.shard.unflushed_bytes();
        let quarantined = self.shard.quarantined();
        let mut metrics = self.shard.metrics.borrow_mut();
        let stats = thalweg_reactor::stats::read();
        metrics.traffic.turn(time::now());
        let cpu = process::thread_cpu().unwrap_or_default().as_micros();
        metrics.counters.cpu_us = u64::try_from(cpu).unwrap_or(u64::MAX);
        metrics.counters.partitions_led = led;
        metrics.counters.partitions_offline = offline;
        metrics.counters.fetches_parked = parked;
        metrics.counters.producers = producers;
        metrics.counters.unflushed_bytes = unflushed;
        metrics.counters.quarantined_ranges = quarantined.0;
        metrics.counters.quarantined_bytes = quarantined.1;
        self.shard.coordinators.gauge(&mut metrics.counters);
        metrics.counters.mailbox_depth = waiting;
        metrics.counters.reactor_ops = stats.ops_started;
        metrics.counters.reactor_short_writes = stats.short_ops_resubmitted;
        metrics.counters.reactor_in_flight = stats.ops_started - stats.ops_finished;
        metrics.counters.sendfile_stalls = stats.sendfile_stalls;
        let (cold, oldest) = thalweg_reactor::lane::waiting();
        let waited = oldest.map_or(Duration::ZERO, |asked| asked.elapsed());
        metrics.counters.cold_reads_waiting = cold as u64;
        metrics.counters.cold_read_oldest_ms = u64::try_from(waited.as_millis()).unwrap_or(0);
        metrics.clone()
    }

    /// Returns when no partition is being opened or deleted.
    async fn settled(&self) {
        for of in [&self.opening_now, &self.parting] {
            let under_way: Vec<_> = of.borrow().values().cloned().collect();
            for one in under_way {
                one.wait().await;
            }
        }
    }

    /// Answers what was admitted, then closes every log with everything flushed.
    async fn stop(&self) -> Vec<StoppedPartition> {
        self.net.begin_stop();
        self.shard.begin_stop();
        if time::timeout(CONNECTION_DRAIN_MAX, self.net.wait_empty())
            .await
            .is_err()
        {
            self.net.close_all();
        }
        if time::timeout(SETTLE_MAX, self.settled()).await.is_err() {
            tracing::warn!(
                "a disk does not answer: stopping before all partitions are opened and deleted"
            );
        }
        self.shard.coordinators.close_all();
        if time::timeout(SETTLE_MAX, self.shard.moves.stop())
            .await
            .is_err()
        {
            tracing::warn!("a disk does not answer: stopping amid a move to another log directory");
        }
        let mut by_dir: BTreeMap<DirIndex, Vec<Rc<Partition>>> = BTreeMap::new();
        for partition in self.shard.take_partitions() {
            by_dir.entry(partition.dir()).or_default().push(partition);
        }
        // Each directory by itself: one whose disk does not answer is left behind.
        let closing = by_dir
            .into_iter()
            .map(|(dir, partitions)| (dir, task::spawn(close_all(partitions))));
        let closing: Vec<_> = closing.collect();
        let mut stopped = Vec::new();
        for (dir, closing) in closing {
            let closed = self.shard.dir(dir).unless_stalled(closing).await;
            stopped.extend(closed.unwrap_or_default());
        }
        stopped
    }
}

async fn close_all(partitions: Vec<Rc<Partition>>) -> Vec<StoppedPartition> {
    let logs: Vec<_> = partitions.iter().map(|p| p.log()).collect();
    Log::sync_new(&logs).await;
    let close = |partition: Rc<Partition>| async move { partition.close().await };
    together::each(partitions, PARTITIONS_AT_ONCE, close).await
}

/// Serves every connection that the acceptor hands over.
async fn adopt_all(
    mut sockets: mailbox::Receiver<Incoming>,
    shard: Rc<Shard>,
    net: Rc<ShardNet>,
    connections: Arc<AtomicUsize>,
) {
    while let Some(Incoming {
        accepted,
        listener,
        peer,
        slot,
    }) = sockets.recv().await
    {
        let stream = match Stream::adopt(accepted) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%peer, %error, "connection not adopted");
                connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
        };
        let serving = thalweg_net::serve(stream, listener, Rc::clone(&shard), Rc::clone(&net));
        let connections = Arc::clone(&connections);
        task::spawn(async move {
            serving.await;
            connections.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        });
    }
}

/// The properties as one shard obeys them: process-wide memory is divided among the shards.
fn limits(config: &BrokerConfig, shards: usize) -> Limits {
    let defaults = Limits::default();
    let milliseconds = Duration::from_millis;
    Limits {
        request_bytes_max: config.socket_request_max_bytes(),
        idle: config
            .connections_max_idle_ms()
            .map_or(Duration::MAX, milliseconds),
        frame_window: milliseconds(config.request_progress_timeout_ms()),
        write_window: milliseconds(config.response_write_timeout_ms()),
        send_buffer_bytes: config.socket_send_buffer_bytes(),
        receive_buffer_bytes: config.socket_receive_buffer_bytes(),
        request_memory_bytes: config
            .queued_max_request_bytes()
            .map_or(defaults.request_memory_bytes, |total| {
                total / shards.max(1) as u64
            }),
        ..defaults
    }
}
