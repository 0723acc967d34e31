//! The state of one core, and the ways to the owners of partitions.
//!
//! Every `*_at` function asks the owner of some partitions: by a call when it is this shard, by
//! mailbox when it is another. Callers do not see the difference.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_config::{BrokerConfig, TopicConfig};
use thalweg_control::{ClusterView, ControlHandle, DirIndex};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_metrics::CoreMetrics;
use thalweg_protocol::{ApiKey, ErrorCode};
use thalweg_reactor::{mailbox, oneshot, task, time};
use thalweg_replica::{Acks, FetchSessions};
use thalweg_storage::DirHealth;
use thalweg_types::limits::{
    PARKED_PARTITIONS_MAX, PRODUCERS_PER_PARTITION_MAX, PRODUCERS_PER_PARTITION_MIN,
    PRODUCERS_PER_SHARD_MAX,
};
use thalweg_types::{IdMap, ShardId, TopicId, TopicPartition};

use crate::append_group::{AppendGroup, Outcomes};
use crate::coordinator::Coordinators;
use crate::flushing::Unmarked;
use crate::moving::Moves;
use crate::pace::{LargeTurn, Pace};
use crate::partition::Partition;
use crate::peer::{
    AppendAsk, FetchAsk, FetchFound, Mail, OffsetAsk, OffsetFound, Park, ParkId, PeerRequest,
};
use crate::producer_ids::ProducerIds;

/// The current picture of the cluster, replaced as a whole.
pub(crate) type SharedView = Rc<RefCell<Arc<ClusterView>>>;

/// The numbers of one core.
pub(crate) type SharedMetrics = Rc<RefCell<CoreMetrics>>;

/// One core's state, shared by its tasks through `Rc`; no borrow is held across an await.
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) control: ControlHandle,
    pub(crate) dirs: Arc<[Arc<DirHealth>]>,
    pub(crate) metrics: SharedMetrics,
    peers: Vec<mailbox::Sender<Mail>>,
    view: SharedView,
    partitions: RefCell<IdMap<TopicPartition, Rc<Partition>>>,
    topic_configs: RefCell<IdMap<TopicId, Arc<TopicConfig>>>,
    /// Partitions of this shard whose log could not be opened, or whose directory failed.
    pub(crate) offline: RefCell<IdMap<TopicPartition, Offline>>,
    stopping: Cell<bool>,
    parks: Cell<ParkId>,
    pub(crate) fetch_sessions: RefCell<FetchSessions>,
    pub(crate) producer_ids: Rc<ProducerIds>,
    pub(crate) coordinators: Coordinators,
    pub(crate) large_turn: LargeTurn,
    /// Partitions on their way to other log directories.
    pub(crate) moves: Moves,
    pub(crate) unmarked: Rc<Unmarked>,
    /// Partitions named by the parked fetches of this shard's connections.
    parked_partitions: Cell<usize>,
    /// The last one of which that is known.
    offsets_topic_open: Cell<Option<OffsetsTopic>>,
}

/// The offsets topic, with so many partitions.
pub(crate) type OffsetsTopic = (TopicId, usize);

/// Answer of an owner: there already, or on its way from another core.
pub(crate) enum FetchAnswer {
    /// This core owns the partitions.
    Here(Vec<FetchFound>),
    /// Another core does. Without an answer it is stopping.
    Coming(oneshot::Receiver<Vec<FetchFound>>),
}

impl FetchAnswer {
    /// The answer; empty when the owner is stopping.
    pub(crate) async fn get(self) -> Vec<FetchFound> {
        match self {
            FetchAnswer::Here(found) => found,
            FetchAnswer::Coming(coming) => coming.await.unwrap_or_default(),
        }
    }
}

/// A partition that is not served.
pub(crate) struct Offline {
    /// The log directory that it is in, if that is here.
    pub(crate) dir: Option<DirIndex>,
    /// Why.
    pub(crate) reason: String,
}

/// What a shard is made of.
pub(crate) struct ShardParts {
    pub(crate) id: ShardId,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) control: ControlHandle,
    pub(crate) dirs: Arc<[Arc<DirHealth>]>,
    pub(crate) metrics: Rc<RefCell<CoreMetrics>>,
    pub(crate) peers: Vec<mailbox::Sender<Mail>>,
    pub(crate) view: Arc<ClusterView>,
}

impl Shard {
    pub(crate) fn new(parts: ShardParts) -> Rc<Shard> {
        let shard_count = u16::try_from(parts.peers.len()).unwrap_or(u16::MAX);
        let view = Rc::new(RefCell::new(parts.view));
        Rc::new(Shard {
            id: parts.id,
            config: parts.config,
            control: parts.control,
            dirs: parts.dirs,
            metrics: Rc::clone(&parts.metrics),
            peers: parts.peers,
            view: Rc::clone(&view),
            partitions: RefCell::default(),
            topic_configs: RefCell::default(),
            offline: RefCell::default(),
            stopping: Cell::new(false),
            parks: Cell::new(0),
            fetch_sessions: RefCell::new(FetchSessions::new(parts.id.0, shard_count)),
            producer_ids: Rc::default(),
            coordinators: Coordinators::new(view, parts.metrics),
            large_turn: LargeTurn::default(),
            moves: Moves::default(),
            unmarked: Rc::default(),
            parked_partitions: Cell::new(0),
            offsets_topic_open: Cell::new(None),
        })
    }

    /// The current picture of the cluster.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.view.borrow())
    }

    /// Routes by `view` from now on.
    pub(crate) fn adopt_view(&self, view: Arc<ClusterView>) {
        self.topic_configs.borrow_mut().clear();
        *self.view.borrow_mut() = view;
    }

    /// The offsets topic as this shard routes by it.
    pub(crate) fn offsets_topic(&self) -> Option<OffsetsTopic> {
        let view = self.view();
        let topic = view.image.topic(OFFSETS_TOPIC)?;
        Some((topic.id, topic.partitions.len()))
    }

    /// Every shard has opened its partitions of this one.
    pub(crate) fn on_offsets_topic_open(&self, topic: OffsetsTopic) {
        self.offsets_topic_open.set(Some(topic));
    }

    /// Whether [`Shard::on_offsets_topic_open`] was said of this one.
    pub(crate) fn is_offsets_topic_open(&self, topic: OffsetsTopic) -> bool {
        self.offsets_topic_open.get() == Some(topic)
    }

    /// Number of shards of the process.
    pub(crate) fn shard_count(&self) -> usize {
        self.peers.len()
    }

    /// Most bytes of records in one fetch answer, whatever the client allows.
    pub(crate) fn fetch_bytes_max(&self) -> u64 {
        u64::from(self.config.fetch_max_bytes())
    }

    /// Resolved configuration of a topic, cached until the view changes.
    pub(crate) fn topic_config(&self, topic: TopicId) -> Option<Arc<TopicConfig>> {
        if let Some(config) = self.topic_configs.borrow().get(&topic) {
            return Some(Arc::clone(config));
        }
        let view = self.view();
        let name = &view.image.topic_by_id(topic)?.name;
        let (config, _) = TopicConfig::resolve(&view.config, view.image.topic_overrides(name));
        let config = Arc::new(config);
        self.topic_configs
            .borrow_mut()
            .insert(topic, Arc::clone(&config));
        Some(config)
    }

    /// The partition, if this shard leads it.
    pub(crate) fn partition(&self, id: TopicPartition) -> Option<Rc<Partition>> {
        self.partitions.borrow().get(&id).cloned()
    }

    /// Why this shard does not serve a partition that it was asked for.
    pub(crate) fn absence(&self, id: TopicPartition) -> ErrorCode {
        match self.offline.borrow().contains_key(&id) {
            true => ErrorCode::KafkaStorageError,
            false => ErrorCode::NotLeaderOrFollower,
        }
    }

    /// The log of this partition, in that directory, can not be opened: whoever asks is told so.
    pub(crate) fn mark_offline(&self, id: TopicPartition, dir: Option<DirIndex>, reason: String) {
        let offline = Offline { dir, reason };
        self.offline.borrow_mut().insert(id, offline);
        self.control.offline().add(id);
    }

    /// A partition that may be offline is gone. Returns the directory that it was in.
    pub(crate) fn forget_offline(&self, id: TopicPartition) -> Option<DirIndex> {
        self.control.offline().remove(id);
        self.offline.borrow_mut().remove(&id)?.dir
    }

    /// Whether a log directory works, and where it is.
    pub(crate) fn dir(&self, dir: DirIndex) -> &Arc<DirHealth> {
        &self.dirs[dir.0]
    }

    /// Nothing waits from here on: parked fetches are answered with what there is.
    pub(crate) fn begin_stop(&self) {
        self.stopping.set(true);
        self.coordinators.begin_stop();
        for partition in self.partitions.borrow().values() {
            partition.wake_parked();
        }
    }

    /// True after [`Shard::begin_stop`].
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(crate) fn insert_partition(&self, partition: Rc<Partition>) {
        self.offline.borrow_mut().remove(&partition.id());
        self.control.offline().remove(partition.id());
        self.partitions
            .borrow_mut()
            .insert(partition.id(), partition);
    }

    pub(crate) fn remove_partition(&self, id: TopicPartition) -> Option<Rc<Partition>> {
        self.partitions.borrow_mut().remove(&id)
    }

    pub(crate) fn take_partitions(&self) -> Vec<Rc<Partition>> {
        self.partitions
            .borrow_mut()
            .drain()
            .map(|(_, partition)| partition)
            .collect()
    }

    /// All partitions that this shard leads.
    pub(crate) fn partitions(&self) -> Vec<Rc<Partition>> {
        self.partitions.borrow().values().cloned().collect()
    }

    /// Partitions whose logs could not be opened or have failed since.
    pub(crate) fn offline_count(&self) -> u64 {
        let partitions = self.partitions.borrow();
        let failed = partitions.values().filter(|p| p.is_offline()).count();
        (self.offline.borrow().len() + failed) as u64
    }

    /// Partitions that this shard serves.
    pub(crate) fn led_count(&self) -> u64 {
        let partitions = self.partitions.borrow();
        partitions.values().filter(|p| !p.is_offline()).count() as u64
    }

    pub(crate) fn parked_fetches(&self) -> u64 {
        self.partitions
            .borrow()
            .values()
            .map(|p| p.parked_fetches() as u64)
            .sum()
    }

    /// Lets every partition forget idempotent producers: old ones, and those beyond its share of what
    /// the shard remembers.
    pub(crate) async fn expire_producers(&self) {
        let keep_ms = self.view().config.producer_id_expiration_ms();
        let partitions: Vec<_> = self.partitions.borrow().values().cloned().collect();
        let share = PRODUCERS_PER_SHARD_MAX / partitions.len().max(1);
        let share = share.clamp(PRODUCERS_PER_PARTITION_MIN, PRODUCERS_PER_PARTITION_MAX);
        for partition in partitions {
            partition.expire_producers(keep_ms, share);
            task::yield_now().await;
        }
    }

    /// Bytes of logs that are written and not known to be on the disk.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let partitions = self.partitions.borrow();
        partitions.values().map(|p| p.unflushed_bytes()).sum()
    }

    /// Number and bytes of the damaged ranges of all logs that are not served.
    pub(crate) fn quarantined(&self) -> (u64, u64) {
        let partitions = self.partitions.borrow();
        let sizes = partitions.values().map(|p| p.quarantined_size());
        sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub(crate) fn producers(&self) -> u64 {
        self.partitions
            .borrow()
            .values()
            .map(|p| p.producer_count() as u64)
            .sum()
    }

    /// Counts `partitions` as parked if there is room for so many; [`Shard::count_unparked`] takes
    /// them out again.
    pub(crate) fn count_parked(&self, partitions: usize) -> bool {
        let parked = self.parked_partitions.get() + partitions;
        let fits = parked <= PARKED_PARTITIONS_MAX;
        if fits {
            self.parked_partitions.set(parked);
        }
        fits
    }

    pub(crate) fn count_unparked(&self, partitions: usize) {
        let parked = self.parked_partitions.get();
        self.parked_partitions
            .set(parked.saturating_sub(partitions));
    }

    /// A name for a parked fetch that no other fetch of the process has.
    pub(crate) fn next_park_id(&self) -> ParkId {
        let next = self.parks.get() + 1;
        self.parks.set(next);
        (u64::from(self.id.0) << 48) | next
    }

    /// Requests waiting in this shard's mailbox.
    pub(crate) fn mailbox_depth(&self) -> u64 {
        self.peers[usize::from(self.id.0)].len() as u64
    }

    /// Sends a request to another shard. When that shard is stopping, the request is dropped and
    /// with it the channel for its answer, which the asker sees closed.
    pub(crate) async fn ask_peer(&self, owner: usize, request: PeerRequest) {
        self.metrics.borrow_mut().counters.cross_core_requests += 1;
        let _ = self.peers[owner]
            .send(Mail {
                sent: time::now(),
                request,
            })
            .await;
    }

    /// Counts an error that a client was told.
    pub(crate) fn count_error(&self, key: ApiKey, error: i16) {
        if error != ErrorCode::None.code() {
            let name = ErrorCode::from_code(error).map_or("UNKNOWN", ErrorCode::name);
            self.metrics
                .borrow_mut()
                .apis
                .count_error(key as i16, key.name(), name);
        }
    }

    /// Queues batches at another core, which owns their partitions, in this order. It tells what became of them,
    /// or is stopping, and the outcome is not known.
    pub(crate) async fn append_at(
        &self,
        owner: usize,
        asks: Vec<AppendAsk>,
        acks: Acks,
    ) -> oneshot::Receiver<Outcomes> {
        let (reply, answer) = oneshot::channel();
        self.ask_peer(owner, PeerRequest::Append { asks, acks, reply })
            .await;
        answer
    }

    /// Appends to a partition of this shard; `group`, which counts on it, gets the outcome.
    pub(crate) fn append_here(&self, ask: AppendAsk, acks: Acks, group: &Rc<AppendGroup>) {
        match self.partition(ask.id) {
            Some(partition) if !self.dir(partition.dir()).take_room(ask.batch.len()) => {
                partition.refuse_for_room(ask.row, group);
            }
            Some(partition) => partition.append(ask, acks, group),
            None => group.settle(ask.row, Err(self.absence(ask.id)), time::now()),
        }
    }

    /// Asks the owner of them all what there is to send.
    pub(crate) async fn fetch_at(
        &self,
        owner: usize,
        asks: &[FetchAsk],
        park: Option<&Park>,
    ) -> FetchAnswer {
        if owner == usize::from(self.id.0) {
            return FetchAnswer::Here(self.fetch_here(asks, park).await);
        }
        let (reply, answer) = oneshot::channel();
        let (asks, park) = (asks.to_vec(), park.cloned());
        self.ask_peer(owner, PeerRequest::Fetch { asks, park, reply })
            .await;
        FetchAnswer::Coming(answer)
    }

    /// Looks on behalf of another shard. Its fetch may be over before this is: its unpark has then
    /// overtaken the registrations made here, which nobody else would remove.
    pub(crate) async fn fetch_for_peer(
        &self,
        asks: Vec<FetchAsk>,
        park: Option<Park>,
        reply: oneshot::Sender<Vec<FetchFound>>,
    ) {
        let found = self.fetch_here(&asks, park.as_ref()).await;
        if reply.send(found).is_err()
            && let Some(park) = park
        {
            self.unpark_here(park.id, asks.iter().map(|ask| ask.id));
        }
    }

    /// Looks into partitions of this shard.
    pub(crate) async fn fetch_here(
        &self,
        asks: &[FetchAsk],
        park: Option<&Park>,
    ) -> Vec<FetchFound> {
        let mut found = Vec::with_capacity(asks.len());
        let mut pace = Pace::default();
        for ask in asks {
            pace.step().await;
            // Asked again each time: the stop may begin between two looks into logs.
            let stopping = self.is_stopping();
            let park = park.filter(|_| !stopping);
            let mut one = match self.partition(ask.id) {
                Some(partition) => partition.fetch(ask, park).await,
                None => FetchFound::refused(ask.slot, self.absence(ask.id)),
            };
            one.crowded |= stopping;
            found.push(one);
        }
        found
    }

    /// Removes the registrations of a fetch that waits no longer.
    pub(crate) fn unpark_at(
        &self,
        owner: usize,
        id: ParkId,
        partitions: impl Iterator<Item = TopicPartition>,
    ) {
        if owner == usize::from(self.id.0) {
            self.unpark_here(id, partitions);
            return;
        }
        let peer = self.peers[owner].clone();
        if self.is_stopping() {
            // The owner wakes what is parked by itself, and this runtime may take no more tasks.
            return;
        }
        // Called from a destructor: the send may have to wait for room, so it gets its own task.
        let partitions = partitions.collect();
        let request = PeerRequest::Unpark { id, partitions };
        let mail = Mail {
            sent: time::now(),
            request,
        };
        if let Err(mailbox::TrySendError::Full(mail)) = peer.try_send(mail) {
            task::spawn(async move {
                let _ = peer.send(mail).await;
            });
        }
    }

    /// Removes registrations at partitions of this shard.
    pub(crate) fn unpark_here(
        &self,
        id: ParkId,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) {
        for partition in partitions {
            if let Some(partition) = self.partition(partition) {
                partition.unpark(id);
            }
        }
    }

    /// Asks the owner for offsets.
    pub(crate) async fn list_offsets_at(
        self: &Rc<Self>,
        owner: usize,
        asks: Vec<OffsetAsk>,
    ) -> oneshot::Receiver<Vec<OffsetFound>> {
        let (reply, answer) = oneshot::channel();
        if owner == usize::from(self.id.0) {
            let shard = Rc::clone(self);
            task::spawn(async move {
                let _ = reply.send(shard.list_offsets_here(asks).await);
            });
        } else {
            self.ask_peer(owner, PeerRequest::ListOffsets { asks, reply })
                .await;
        }
        answer
    }

    /// Finds offsets in partitions of this shard.
    pub(crate) async fn list_offsets_here(&self, asks: Vec<OffsetAsk>) -> Vec<OffsetFound> {
        let mut found = Vec::with_capacity(asks.len());
        let mut pace = Pace::default();
        for ask in asks {
            pace.step().await;
            found.push(match self.partition(ask.id) {
                Some(partition) => partition.list_offset(&ask).await,
                None => OffsetFound {
                    slot: ask.slot,
                    result: Err(self.absence(ask.id)),
                },
            });
        }
        found
    }
}
