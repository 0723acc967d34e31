//! A shard's life: its thread, its first view, the commands of the control plane, its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_config::{BrokerConfig, TopicConfig};
use thalweg_control::{
    Applied, ApplyFailure, ClusterView, ControlHandle, DirIndex, NotOpen, OpeningProgress,
    PartitionToOpen, Reconfigured, ShardCommand, StoppedPartition,
};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_metrics::{CoreMetrics, Engine, Stage};
use thalweg_net::{ConnectionSlots, Incoming, Limits, ShardNet};
use thalweg_reactor::net::Stream;
use thalweg_reactor::{
    LogGate, Pinning, Runtime, RuntimeOptions, in_place, mailbox, oneshot, process,
    spawn_shard_thread, task, time,
};
use thalweg_storage::{
    Cleaner, DirHealth, Log, LogOptions, PartitionName, Recovery, Scrubber, Unwritten,
    set_partition_aside,
};
use thalweg_types::limits::{MAILBOX_MESSAGES_MAX, PARTITIONS_AT_ONCE};
use thalweg_types::{ShardId, TopicPartition};

use crate::admission::Admission;
use crate::append_group::AppendGroup;
use crate::compaction;
use crate::flushing;
use crate::partition::{OpenContext, Partition, PartitionError};
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
    /// The cleaner that compacts the logs of this shard; `None` when nothing is to be compacted.
    pub cleaner: Option<Cleaner>,
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
    let housekeeping = keep_house(&shard, setup.cleaner);
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
                let applied = life.apply(view, open, delete).await;
                life.shard.coordinators.on_topics_removed(&removed);
                life.reconfigure(&reconfigured);
                let _ = done.send(applied);
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
fn keep_house(shard: &Rc<Shard>, cleaner: Option<Cleaner>) -> Vec<task::Task<()>> {
    let compaction = cleaner.map(|cleaner| {
        let compacting = compaction::enforce(Rc::clone(shard), cleaner);
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
            shard.append_here(asks, acks, &group);
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
        PeerRequest::Unpark { id, partitions } => shard.unpark_here(id, &partitions),
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
            if self.waiting.borrow().is_empty() {
                return commands.recv().await;
            }
            match time::timeout(OPEN_AGAIN_EVERY, commands.recv()).await {
                Ok(command) => return command,
                Err(_) => self.open_waiting().await,
            }
        }
    }

    async fn open_waiting(self: &Rc<Self>) {
        let view = self.shard.view();
        for (wanted, opened) in self.open_all(&view, self.waiting.take()).await {
            let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
            match opened {
                Ok(partition) => {
                    tracing::info!(partition = %name, "opened: the cause has passed");
                    if let Some(partition) = Self::of_offsets(&wanted, partition) {
                        let coordinators = &self.shard.coordinators;
                        coordinators.open(partition, &self.shard.config);
                    }
                }
                Err(error) if error.may_pass() => self.waiting.borrow_mut().push(wanted),
                Err(error) => {
                    tracing::error!(partition = %name, %error, "offline, and not tried again");
                }
            }
        }
    }

    /// Opens partitions, several at a time; in no certain order.
    async fn open_all(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        wanted: Vec<PartitionToOpen>,
    ) -> Vec<(PartitionToOpen, Result<Rc<Partition>, PartitionError>)> {
        let (life, view) = (Rc::clone(self), Arc::clone(view));
        together::each(wanted, PARTITIONS_AT_ONCE, move |wanted| {
            let (life, view) = (Rc::clone(&life), Arc::clone(&view));
            async move {
                let opening = life.open(&view, &wanted);
                let opened = match life.serves.get() {
                    true => opening.await,
                    // Nobody waits for this core yet, and the logs of a start are many.
                    false => in_place(opening).await,
                };
                (wanted, opened)
            }
        })
        .await
    }

    /// Opens one partition and serves it from then on.
    async fn open(
        &self,
        view: &ClusterView,
        wanted: &PartitionToOpen,
    ) -> Result<Rc<Partition>, PartitionError> {
        let health = wanted.dir.map(|dir| Arc::clone(self.shard.dir(dir)));
        let health = health.filter(|health| health.failure().is_none());
        let (Some(dir), Some(health)) = (wanted.dir, health) else {
            self.opening.one_done();
            return Err(PartitionError::DirectoryOffline);
        };
        let overrides = view.image.topic_overrides(&wanted.topic);
        let (config, warnings) = TopicConfig::resolve(&view.config, overrides);
        for warning in warnings {
            tracing::warn!(topic = wanted.topic, "{warning}");
        }
        let context = OpenContext {
            local: self.shard.config.node_id(),
            dir,
            options: LogOptions {
                health,
                ..log_options(&config, &self.log_options)
            },
            config: &config,
            metrics: &self.shard.metrics,
            failures: &self.append_failures,
            opening: &self.opening,
            unmarked: &self.shard.unmarked,
        };
        let opened = Partition::open(wanted, context).await;
        self.opening.one_done();
        let partition = opened?;
        self.shard.insert_partition(Rc::clone(&partition));
        if let Some(found) = &wanted.future {
            let compacts = config.cleanup_policy().compact;
            self.shard.resume_move(&partition, found, compacts).await;
        }
        Ok(partition)
    }

    /// The partition, if its groups are to be loaded; that needs the view that the partition is in.
    fn of_offsets(wanted: &PartitionToOpen, partition: Rc<Partition>) -> Option<Rc<Partition>> {
        (wanted.topic == OFFSETS_TOPIC).then_some(partition)
    }

    /// Opens and closes logs, then routes by the new view.
    async fn apply(
        self: &Rc<Self>,
        view: Arc<ClusterView>,
        open: Vec<PartitionToOpen>,
        delete: Vec<TopicPartition>,
    ) -> Applied {
        let Applied {
            mut failures,
            mut marks,
        } = Applied::default();
        for id in delete {
            self.waiting.borrow_mut().retain(|wanted| wanted.id != id);
            self.shard.coordinators.close(id);
            self.shard.moves.leave(id).await;
            match self.shard.remove_partition(id) {
                Some(partition) => {
                    if let Err(error) = partition.delete().await {
                        failures.push(ApplyFailure {
                            line: format!("{}: not deleted: {error}", partition.name()),
                            not_open: None,
                        });
                    }
                }
                None => {
                    let freed = self.free_name(id).await;
                    failures.extend(freed.err().map(|line| ApplyFailure {
                        line,
                        not_open: None,
                    }));
                }
            }
        }
        let mut of_offsets = Vec::new();
        for (wanted, opened) in self.open_all(&view, open).await {
            let error = match opened {
                Ok(partition) => {
                    if !self.serves.get()
                        && let Some(mark) = partition.new_mark()
                    {
                        // The file gets it with all others of the start.
                        partition.on_mark_recorded(mark);
                        marks.push((partition.id(), mark));
                    }
                    of_offsets.extend(Self::of_offsets(&wanted, partition));
                    continue;
                }
                Err(error) => error,
            };
            let reason = error.to_string();
            self.shard.mark_offline(wanted.id, wanted.dir, reason);
            failures.extend(refused(&wanted, &error));
            if error.may_pass() {
                self.waiting.borrow_mut().push(wanted);
            }
        }
        if let Some(admission) = &self.admission
            && *view.config != *self.shard.view().config
        {
            admission.obey(&view.config);
        }
        self.shard.adopt_view(view);
        self.serves.set(true);
        for partition in of_offsets {
            let coordinators = &self.shard.coordinators;
            coordinators.open(partition, &self.shard.config);
        }
        Applied { failures, marks }
    }

    /// The log of a deleted partition could not be opened: what is in its directory is kept, and the
    /// next topic of that name finds none. Must run before the view without the topic is adopted. In a
    /// directory that does not work it stays; the next start that finds it there sets it aside.
    async fn free_name(&self, id: TopicPartition) -> Result<(), String> {
        let dir = self.shard.forget_offline(id);
        let health = dir.map(|dir| self.shard.dir(dir));
        let Some(health) = health.filter(|health| health.failure().is_none()) else {
            return Ok(());
        };
        let view = self.shard.view();
        let Some(topic) = view.image.topic_by_id(id.topic) else {
            return Ok(());
        };
        let name = PartitionName::new(topic.name.to_string(), id.partition.0);
        match set_partition_aside(health.path(), name.clone()).await {
            Ok(Some(to)) => {
                tracing::warn!(partition = %name, to = %to.display(),
                    "deleted, but its log could not be opened: set aside, delete it when you are sure");
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(format!("{name}: not set aside: {error}")),
        }
    }

    /// Answers everything that waits for something in a directory that failed, and serves nothing of it.
    fn lose_directory(&self, dir: DirIndex, done: oneshot::Sender<()>) {
        self.shard.moves.lose_directory(dir);
        for partition in self.shard.partitions() {
            if partition.dir() == dir {
                self.shard.coordinators.close(partition.id());
                self.shard.remove_partition(partition.id());
                partition.fail();
                let reason = PartitionError::DirectoryOffline.to_string();
                self.shard.mark_offline(partition.id(), Some(dir), reason);
            }
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|wanted| wanted.dir != Some(dir));
        let _ = done.send(());
    }

    /// Lets partitions that are open obey the settings of the current view.
    fn reconfigure(&self, reconfigured: &Reconfigured) {
        for partition in self.shard.partitions() {
            let topic = partition.id().topic;
            if !reconfigured.concerns(topic) {
                continue;
            }
            if let Some(config) = self.shard.topic_config(topic) {
                partition.reconfigure(&config, log_options(&config, &self.log_options));
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
        self.shard.coordinators.close_all();
        self.shard.moves.stop().await;
        let partitions = self.shard.take_partitions();
        let logs: Vec<_> = partitions.iter().map(|p| p.log()).collect();
        Log::sync_new(&logs).await;
        let close = |partition: Rc<Partition>| async move { partition.close().await };
        together::each(partitions, PARTITIONS_AT_ONCE, close).await
    }
}

/// What to say of a partition that could not be opened. Of a whole directory it is said once, elsewhere.
fn refused(wanted: &PartitionToOpen, error: &PartitionError) -> Option<ApplyFailure> {
    if matches!(error, PartitionError::DirectoryOffline) {
        return None;
    }
    let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
    let advice = match (error.may_pass(), error.is_damage()) {
        (true, _) => "; tried again until the cause has passed",
        (false, true) => {
            "; put the file back from a backup, or stop the broker and see what `thalweg repair` can do"
        }
        (false, false) => "",
    };
    let how = match (wanted.opening.recovery, wanted.opening.unwritten) {
        (Recovery::AfterCleanStop, _) if error.is_damage() => NotOpen::DamagedAfterStop,
        (_, Unwritten::LastWrite) if error.is_damage() => NotOpen::DamagedAfterKill,
        (_, Unwritten::LastWrite | Unwritten::AnyBatch) => NotOpen::Otherwise,
    };
    Some(ApplyFailure {
        line: format!("{name}: offline: {error}{advice}"),
        not_open: Some((name, how)),
    })
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
        request_memory_bytes: config
            .queued_max_request_bytes()
            .map_or(defaults.request_memory_bytes, |total| {
                total / shards.max(1) as u64
            }),
        ..defaults
    }
}

/// `segment.ms`; where records must be compacted in a certain time, their segment must be closed by
/// then (KIP-354).
fn segment_ms(config: &TopicConfig) -> i64 {
    match config.cleanup_policy().compact {
        true => config.segment_ms().min(config.max_compaction_lag_ms()),
        false => config.segment_ms(),
    }
}

/// A topic's properties as its logs obey them.
fn log_options(config: &TopicConfig, shared: &LogOptions) -> LogOptions {
    LogOptions {
        segment_bytes: config.segment_bytes(),
        segment_ms: segment_ms(config),
        segment_jitter_ms: config.segment_jitter_ms(),
        index_interval_bytes: config.index_interval_bytes(),
        segment_index_bytes: config.segment_index_bytes(),
        flush_messages: config.flush_messages().unsigned_abs(),
        flush_ms: config.flush_ms().unsigned_abs().min(shared.flush_ms),
        ..shared.clone()
    }
}
