//! The controller of a one-node cluster: one request at a time, each durable before it shows.

mod admin;
mod changes;
mod directories;
mod opening;
mod owed;
mod reading;
mod topics;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_config::BrokerConfig;
use thalweg_metadata::controller::{Registration, TopicRefusal, initial_records};
use thalweg_metadata::{
    ApplyError, BrokerEndpoint, Controller as Decisions, Delta, Image, Placement, Record, Resource,
};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::time::Instant;
use thalweg_reactor::{mailbox, oneshot, process, task, time};
use thalweg_storage::{LogError, PartitionName, Recovery};
use thalweg_types::limits::{HANDLES_KEPT_MAX, HANDLES_KEPT_MIN};
use thalweg_types::{Offset, ShardId, TimestampMs, TopicId, TopicPartition, Uuid};

use crate::facts::Facts;
use crate::log_dirs::{LogDirs, despite_lack_of_room};
use crate::loggers::Loggers;
use crate::metadata_log::{MetadataLog, MetadataLogError};
use crate::requests::{ControlRequest, PartitionToOpen, Reconfigured, ShardCommand};
use crate::view::{ClusterView, Endpoint};
use changes::{Rest, Unfinished, when_done};
use owed::Owed;
pub use reading::ReadMetadata;

/// Security protocol PLAINTEXT, as registrations number them.
const PLAINTEXT: i16 = 0;

/// How this start came about; it decides what is written before anything is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The data directory was formatted by this process.
    Formatted,
    /// The last stop closed every log.
    AfterCleanStop,
    /// The last process died: leader epochs are raised so that clients detect a cut tail (KIP-320), but for those that
    /// were not used yet, of logs that lost nothing.
    AfterCrash,
}

/// Everything the controller needs to begin.
pub struct ControllerSetup {
    /// The metadata as it was read.
    pub metadata: ReadMetadata,
    /// The log directories and their checkpoints.
    pub dirs: LogDirs,
    /// How this start came about.
    pub start: Start,
    /// The broker's properties.
    pub config: Arc<BrokerConfig>,
    /// Where clients reach this broker.
    pub endpoints: Vec<Endpoint>,
    /// One mailbox per shard, in order of shard id.
    pub shards: Vec<mailbox::Sender<ShardCommand>>,
    /// Source of random ids.
    pub random: Box<dyn FnMut() -> [u8; 16]>,
    /// Where the endpoints read what the controller knows.
    pub facts: Arc<Facts>,
    /// The log levels of this process.
    pub loggers: Arc<Loggers>,
}

/// The controller can not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metadata log refused a read or a write.
    #[error(transparent)]
    Log(#[from] MetadataLogError),
    /// The metadata log holds records that contradict each other.
    #[error("the metadata log can not be replayed: {0}")]
    Replay(#[from] ApplyError),
    /// The log directory.
    #[error(transparent)]
    Directory(#[from] LogError),
    /// `meta.properties` names another directory than the metadata log beside it (ST-28).
    #[error(
        "{}: directory.id is {}, and the metadata log was written beside directory {wanted}: one of \
         them is damaged or from elsewhere. Put the file right, or restore the directory from a backup. \
         Nothing was changed", file.display(), found.map_or_else(|| "missing".to_owned(), |id| id.to_string())
    )]
    OtherDirectory {
        /// The file.
        file: PathBuf,
        /// What it says.
        found: Option<Uuid>,
        /// What the metadata says.
        wanted: Uuid,
    },
    /// A partition was found in two log directories: which of them has its records, only an operator can
    /// tell.
    #[error(
        "{} and {} are folders of one partition: look into both (`thalweg inspect`), move the wrong one \
         away, and start again. Nothing was changed", first.display(), second.display()
    )]
    FoundTwice {
        /// One folder.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The metadata log is in another directory than the configuration says.
    #[error(
        "{} is a metadata log, and the directory of the metadata log is {}: name its directory in \
         metadata.log.dir, or put it first in log.dirs. Nothing was changed", found.display(), configured.display()
    )]
    MetadataElsewhere {
        /// Where there is one.
        found: PathBuf,
        /// Where it is to be.
        configured: PathBuf,
    },
    /// A shard could not take its partitions.
    #[error("shard {0} ended while it opened its partitions")]
    ShardGone(usize),
}

/// A change was not made.
#[derive(Debug, thiserror::Error)]
enum CommitError {
    #[error(transparent)]
    Log(#[from] MetadataLogError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A disk that new partitions go to does not answer.
    #[error("the disk of a log directory that new partitions go to does not answer")]
    Silent,
    /// Entries of deleted partitions are still in the checkpoints, and new ones of their names would have them.
    #[error("the checkpoints still have deleted partitions: {0}")]
    Checkpoints(#[from] LogError),
}

/// Owns the metadata log and the current view.
pub struct Controller {
    log: MetadataLog,
    owed: Owed,
    view: Arc<ClusterView>,
    dirs: LogDirs,
    /// As this process was started.
    at_start: Arc<BrokerConfig>,
    /// With what was set since.
    config: Arc<BrokerConfig>,
    shards: Vec<mailbox::Sender<ShardCommand>>,
    random: Box<dyn FnMut() -> [u8; 16]>,
    facts: Arc<Facts>,
    /// Partitions that the limit of open files leaves room for.
    partitions_max: usize,
    loggers: Arc<Loggers>,
    /// What could not be made durable, and when that was last said.
    not_recorded: Rc<RefCell<BTreeMap<&'static str, Instant>>>,
    unfinished: Rc<RefCell<Unfinished>>,
}

/// What the controller leaves to whoever stops the broker.
pub struct Ended {
    /// The log directories and their checkpoints.
    pub dirs: LogDirs,
    /// Everything below is durable in the metadata log.
    pub metadata_end: Offset,
}

impl Controller {
    /// Replays the records, writes what this start must record, sets stray directories aside, and
    /// lets every shard open its partitions (in parallel).
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(setup: ControllerSetup) -> Result<Controller, StartError> {
        let ControllerSetup {
            metadata,
            mut dirs,
            start,
            config,
            ..
        } = setup;
        let mut random = setup.random;
        let cluster_id = dirs.metadata().meta().cluster_id.clone();
        let local = config.node_id();

        let ReadMetadata {
            mut log,
            records,
            mut image,
            survey,
        } = metadata;
        dirs.begin().await?;
        dirs.give_ids(|| Uuid::from_random(random())).await?;
        dirs.settle(&image, local, &survey).await;
        let mut first = Vec::new();
        if records.is_empty() {
            first.extend(initial_records());
        }
        let incarnation = Uuid::from_random(random());
        let registration = registration(&config, &setup.endpoints, incarnation, &dirs);
        first.push(image.register_broker(&registration));
        first.extend(owed::of_leaders(&image, &dirs, local, start, log.end()).await);
        let owed = Owed::write(&mut log, &first).await?;
        if start == Start::AfterCrash && owed.is_settled(&log) {
            dirs.note_epochs_unseen(log.end()).await?;
        }
        image = image.apply(&first)?.0;

        dirs.clear_away(&survey).await?;
        despite_lack_of_room(dirs.keep_known(&image).await)?;
        let at_start = config;
        let config = with_dynamic(&at_start, &image);
        let shard_count = u16::try_from(setup.shards.len()).unwrap_or(u16::MAX);
        let view = Arc::new(ClusterView {
            placement: Placement::new(&image, local, shard_count),
            image: Arc::new(image),
            cluster_id,
            config: Arc::clone(&config),
            broker_id: local,
            endpoints: setup.endpoints,
        });
        let mut controller = Controller {
            log,
            owed,
            view,
            dirs,
            at_start,
            config,
            shards: setup.shards,
            random,
            facts: setup.facts,
            partitions_max: partitions_max(),
            loggers: setup.loggers,
            not_recorded: Rc::default(),
            unfinished: Rc::default(),
        };
        controller.open().await?;
        controller.facts.set_cluster(&controller.view);
        Ok(controller)
    }

    /// Serves requests until it is told to stop, then closes the metadata log.
    ///
    /// # Errors
    /// The error of closing the log.
    pub async fn run(
        mut self,
        mut requests: mailbox::Receiver<ControlRequest>,
    ) -> Result<Ended, MetadataLogError> {
        while let Some(request) = self.next_request(&mut requests).await {
            match request {
                ControlRequest::Stop => break,
                ControlRequest::CreateTopics { request, reply } => {
                    let (answer, rest) = self.create_topics(&request).await;
                    when_done(rest, request.timeout_ms, answer, reply);
                }
                ControlRequest::AutoCreate { names, reply } => {
                    let _ = reply.send(self.auto_create(&names).await);
                }
                ControlRequest::CreateInternal { topic, reply } => {
                    let _ = reply.send(self.create_internal(topic).await);
                }
                ControlRequest::ProducerIds { reply } => {
                    let _ = reply.send(self.producer_ids().await);
                }
                ControlRequest::Admin(request) => self.administer(request).await,
                ControlRequest::DirectoryFailed(dir) => self.on_directory_failed(dir).await,
                ControlRequest::DeleteTopics {
                    request,
                    version,
                    reply,
                } => {
                    let (answer, rest) = self.delete_topics(&request, version).await;
                    when_done(rest, request.timeout_ms, answer, reply);
                }
            }
        }
        self.log.close().await?;
        Ok(Ended {
            metadata_end: self.log.durable_end(),
            dirs: self.dirs,
        })
    }

    fn decisions<'a>(&'a mut self, image: &'a Image) -> Decisions<'a> {
        Decisions::new(image, &self.config, &mut *self.random)
            .with_partitions_max(self.partitions_max)
            .with_directories(self.config.node_id(), self.dirs.rooms())
    }

    /// Makes records durable and visible. If that fails it logs `failure`, and every row of the answer
    /// that was to tell of success, given as its code and text, tells that it is not durable.
    async fn commit_or_refuse<'r>(
        &mut self,
        failure: &'static str,
        records: Vec<Record>,
        rows: impl Iterator<Item = (&'r mut i16, &'r mut Option<String>)>,
    ) -> Rest {
        let error = match self.commit(records).await {
            Ok(rest) => return rest,
            Err(error) => error,
        };
        tracing::error!(%error, "{failure}");
        for (code, message) in rows.filter(|(code, _)| **code == 0) {
            let refusal = refused(&error);
            *code = refusal.code.code();
            *message = Some(refusal.message);
        }
        Rest::default()
    }

    /// Durable first, visible second. What is left to do then waits for a disk that does not answer.
    async fn commit(&mut self, records: Vec<Record>) -> Result<Rest, CommitError> {
        if records.is_empty() {
            return Ok(Rest::default());
        }
        // Applied before the append, so that records which contradict the image are never written.
        let (image, delta) = self.view.image.apply(&records)?;
        self.catch_up(&image, &delta).await?;
        self.settle().await?;
        self.log
            .append(&records, TimestampMs(time::unix_ms()))
            .await?;
        let rest = self.publish(image, &delta).await;
        self.facts.set_cluster(&self.view);
        Ok(rest)
    }

    /// Gives every shard the new view and waits until each has applied it, so that a client that
    /// was told of a topic can use it at once; but not for a disk that does not answer.
    async fn publish(&mut self, image: Image, delta: &Delta) -> Rest {
        let reconfigured = Reconfigured::of(&image, delta);
        let (delete, deleted) = self.removed(delta);
        if delta.configs_changed.iter().any(is_of_brokers) {
            self.config = with_dynamic(&self.at_start, &image);
        }
        let mut placement = self.view.placement.clone();
        let placed = placement.follow(&image, delta);
        let view = Arc::new(ClusterView {
            image: Arc::new(image),
            placement,
            cluster_id: self.view.cluster_id.clone(),
            config: Arc::clone(&self.config),
            broker_id: self.view.broker_id,
            endpoints: self.view.endpoints.clone(),
        });
        let open = self.place(&view, placed.into_iter().collect());
        self.view = Arc::clone(&view);
        let removed = delta.topics_removed.values();
        let removed: Arc<[_]> = removed.map(|topic| Arc::clone(&topic.name)).collect();
        let mut applying = Vec::new();
        for (shard, (open, delete)) in open.into_iter().zip(delete).enumerate() {
            let (done, applied) = oneshot::channel();
            let command = ShardCommand::Apply {
                view: Arc::clone(&view),
                open,
                delete,
                removed: Arc::clone(&removed),
                reconfigured: reconfigured.clone(),
                done,
            };
            if self.shards[shard].send(command).await.is_ok() {
                applying.push((shard, applied));
            }
        }
        let gone: BTreeSet<TopicId> = delta.topics_removed.keys().copied().collect();
        let forgotten = self
            .dirs
            .forget(&deleted, move |id| gone.contains(&id.topic));
        let rest = Unfinished::note(&self.unfinished, delta);
        let over = rest.clone();
        task::spawn(async move {
            for (shard, applied) in applying {
                for failure in applied.await.unwrap_or_default().failures {
                    tracing::error!(shard, "{}", failure.line);
                }
            }
            if let Err(error) = forgotten.await {
                tracing::error!(%error, "checkpoints of deleted partitions not removed");
            }
            over.end();
        });
        rest.within_patience().await
    }

    /// Places the new partitions of `view`, and gives them by the shard that is to open them.
    fn place(
        &mut self,
        view: &ClusterView,
        placed: Vec<(TopicPartition, ShardId)>,
    ) -> Vec<Vec<PartitionToOpen>> {
        let mut open = vec![Vec::new(); self.shards.len()];
        for (id, ShardId(owner)) in placed {
            let Some(topic) = view.image.topic_by_id(id.topic) else {
                continue;
            };
            let Some(partition) = topic.partitions.get(&id.partition) else {
                continue;
            };
            let name = PartitionName::new(topic.name.to_string(), id.partition.0);
            let told = partition.directory_of(view.broker_id);
            open[usize::from(owner)].push(PartitionToOpen {
                id,
                topic: topic.name.to_string(),
                leader_epoch: partition.leader_epoch,
                dir: self.dirs.place_new(name, told),
                opening: Recovery::AfterCleanStop.into(),
                future: None,
            });
        }
        open
    }

    /// Partitions that are gone: by shard that led them, and by name.
    fn removed(&self, delta: &Delta) -> (Vec<Vec<TopicPartition>>, BTreeSet<PartitionName>) {
        let mut by_shard = vec![Vec::new(); self.shards.len()];
        let mut names = BTreeSet::new();
        for topic in delta.topics_removed.values() {
            for index in topic.partitions.keys() {
                let id = TopicPartition {
                    topic: topic.id,
                    partition: *index,
                };
                names.insert(PartitionName::new(topic.name.to_string(), index.0));
                if let Some(owner) = self.view.owner(id) {
                    by_shard[usize::from(owner.0)].push(id);
                }
            }
        }
        (by_shard, names)
    }
}

/// What this broker says of itself when it starts.
fn registration(
    config: &BrokerConfig,
    endpoints: &[Endpoint],
    incarnation: Uuid,
    dirs: &LogDirs,
) -> Registration {
    Registration {
        id: config.node_id(),
        incarnation,
        endpoints: endpoints.iter().map(registered).collect(),
        features: Vec::new(),
        rack: config.broker_rack().map(str::to_owned),
        log_dirs: dirs.working_ids(),
    }
}

fn is_of_brokers(resource: &Resource) -> bool {
    match resource {
        Resource::Broker(_) => true,
        Resource::Topic(_) | Resource::Group(_) | Resource::Other(..) => false,
    }
}

/// What a client is told of a change that was not made.
fn refused(error: &CommitError) -> TopicRefusal {
    match error {
        CommitError::Silent => TopicRefusal {
            code: ErrorCode::RequestTimedOut,
            message: error.to_string(),
        },
        CommitError::Log(_) | CommitError::Apply(_) | CommitError::Checkpoints(_) => not_durable(),
    }
}

/// What a client is told when the metadata log refuses a write.
fn not_durable() -> TopicRefusal {
    TopicRefusal {
        code: ErrorCode::KafkaStorageError,
        message: "the metadata log can not be written; see the broker's log".to_owned(),
    }
}

/// Partitions that may exist, one file handle each, so that some are left for connections.
fn partitions_max() -> usize {
    match process::open_files_limit() {
        Ok(limit) => {
            let kept = (limit / 4).clamp(HANDLES_KEPT_MIN, HANDLES_KEPT_MAX);
            usize::try_from(limit.saturating_sub(kept)).unwrap_or(usize::MAX)
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of open files is not known; none is kept back");
            usize::MAX
        }
    }
}

/// The properties of this broker under those that were set while it ran.
fn with_dynamic(at_start: &BrokerConfig, image: &Image) -> Arc<BrokerConfig> {
    let own = image.broker_overrides(Some(at_start.node_id()));
    let (config, warnings) = at_start.with_dynamic(image.broker_overrides(None), own);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Arc::new(config)
}

fn registered(endpoint: &Endpoint) -> BrokerEndpoint {
    BrokerEndpoint {
        name: endpoint.name.clone(),
        host: endpoint.host.clone(),
        port: endpoint.port,
        security_protocol: PLAINTEXT,
    }
}

/// The cluster before anything is known of it: what shards begin with.
#[must_use]
pub fn empty_view(
    dirs: &LogDirs,
    config: &BrokerConfig,
    endpoints: &[Endpoint],
    shards: u16,
) -> ClusterView {
    let image = Image::default();
    ClusterView {
        placement: Placement::new(&image, config.node_id(), shards),
        image: Arc::new(image),
        cluster_id: dirs.metadata().meta().cluster_id.clone(),
        config: Arc::new(config.clone()),
        broker_id: config.node_id(),
        endpoints: endpoints.to_vec(),
    }
}
