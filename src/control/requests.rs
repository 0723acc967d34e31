//! What shards ask of the control plane, and what it tells them.

use std::sync::Arc;

use thalweg_metadata::controller::{InternalTopic, ProducerIdBlock, TopicRefusal};
use thalweg_metadata::loggers::LogLevels;
use thalweg_metadata::{Delta, Image, Resource};
use thalweg_metrics::CoreMetrics;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use thalweg_reactor::{mailbox, oneshot};
use thalweg_storage::{Opening, PartitionName, StartKept};
use thalweg_types::{LeaderEpoch, Offset, TopicId, TopicPartition, Uuid};

use crate::lag::GroupQuestion;
use crate::log_dirs::DirIndex;
use crate::loggers::Loggers;
use crate::offline::OfflinePartitions;
use crate::unserved::Unserved;
use crate::view::ClusterView;

/// What becomes of a topic that was to be created automatically.
pub type AutoCreated = (String, Result<TopicId, TopicRefusal>);

/// A change of metadata that a client asked for. Each is answered once, after it is durable and
/// every shard has applied it.
pub enum ControlRequest {
    /// Nothing more will be asked: close the metadata log.
    Stop,
    /// CreateTopics.
    CreateTopics {
        /// As the client sent it.
        request: CreateTopicsRequest,
        /// Gets the answer.
        reply: oneshot::Sender<CreateTopicsResponse>,
    },
    /// Topics named in a Metadata request that do not exist.
    AutoCreate {
        /// Their names.
        names: Vec<String>,
        /// Gets one outcome per name.
        reply: oneshot::Sender<Vec<AutoCreated>>,
    },
    /// A topic that the broker keeps for itself is needed.
    CreateInternal {
        /// Which.
        topic: InternalTopic,
        /// Gets its id, also when it existed before.
        reply: oneshot::Sender<Result<TopicId, TopicRefusal>>,
    },
    /// A shard has given out its last producer id.
    ProducerIds {
        /// Gets a block of them that is durably this broker's.
        reply: oneshot::Sender<Result<ProducerIdBlock, ErrorCode>>,
    },
    /// What an administrator asks for.
    Admin(AdminRequest),
    /// A log directory has failed, and others go on.
    DirectoryFailed(DirIndex),
    /// DeleteTopics.
    DeleteTopics {
        /// As the client sent it.
        request: DeleteTopicsRequest,
        /// Version of the request.
        version: i16,
        /// Gets the answer.
        reply: oneshot::Sender<DeleteTopicsResponse>,
    },
}

/// A change that an administrator asks for.
pub enum AdminRequest {
    /// IncrementalAlterConfigs.
    AlterConfigsBySteps {
        /// As the client sent it.
        request: IncrementalAlterConfigsRequest,
        /// Gets the answer.
        reply: oneshot::Sender<IncrementalAlterConfigsResponse>,
    },
    /// AlterConfigs.
    AlterConfigs {
        /// As the client sent it.
        request: AlterConfigsRequest,
        /// Gets the answer.
        reply: oneshot::Sender<AlterConfigsResponse>,
    },
    /// CreatePartitions.
    CreatePartitions {
        /// As the client sent it.
        request: CreatePartitionsRequest,
        /// Gets the answer.
        reply: oneshot::Sender<CreatePartitionsResponse>,
    },
    /// Logs begin later than before: write it down.
    LogStarts {
        /// Their first offsets.
        starts: Vec<(TopicPartition, Offset)>,
        /// Told how far that went.
        reply: oneshot::Sender<Result<StartKept, ErrorCode>>,
    },
    /// How far logs are now: write it into the checkpoints.
    Progress {
        /// Those that went on.
        progress: Vec<(TopicPartition, LogProgress)>,
        /// Told when it is durable.
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// Logs were compacted: write it down.
    Cleaned {
        /// Up to where.
        cleaned: Vec<(TopicPartition, Offset)>,
        /// Told when it is durable.
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// A copy in another log directory is about to take the place of a log.
    BeginMove {
        /// Of which partition.
        id: TopicPartition,
        /// Where the copy is.
        to: DirIndex,
        /// Everything below is on the disk in the copy.
        durable: Offset,
        /// Told when the checkpoints of that directory say what those of the present one say.
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// That is over.
    EndMove {
        /// Of which partition.
        id: TopicPartition,
        /// How.
        outcome: MoveOutcome,
        /// Told when the metadata says so.
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// Logs were marked as written up to here.
    Marks {
        /// Their marks.
        marks: Vec<(TopicPartition, Offset)>,
        /// Told when it is written down.
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    },
    /// How far the metadata log is.
    Quorum {
        /// Gets the answer.
        reply: oneshot::Sender<QuorumState>,
    },
}

/// The metadata log as its only voter has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumState {
    /// The epoch that this start leads.
    pub epoch: LeaderEpoch,
    /// Offset that the next record will get; everything below is durable.
    pub end: Offset,
    /// The log directory that it is in, if that has an id.
    pub directory: Option<Uuid>,
}

/// How far a log is, for the checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogProgress {
    /// Everything below is on the disk.
    pub recovery_point: Offset,
    /// The same as `thalweg-recovery-points` is to have it ([`Log::known_point`](thalweg_storage::Log::known_point)).
    pub known_point: Offset,
    /// High watermark.
    pub high_watermark: Offset,
}

/// How a move to another log directory ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The log is served from the other directory.
    Moved,
    /// It is where it was.
    Stayed,
}

/// A copy of a partition that a move in a former life of the broker has left.
#[derive(Debug, Clone)]
pub struct FutureFound {
    /// The log directory that it is in.
    pub dir: DirIndex,
    /// The name of its folder.
    pub folder: String,
}

/// Topics whose settings changed.
#[derive(Debug, Clone, Default)]
pub enum Reconfigured {
    /// None.
    #[default]
    Nothing,
    /// These.
    Topics(Vec<TopicId>),
    /// All: the broker's own settings changed, which give theirs.
    All,
}

impl Reconfigured {
    /// What `delta`, which led to `image`, means for settings.
    pub(crate) fn of(image: &Image, delta: &Delta) -> Reconfigured {
        let mut topics = Vec::new();
        for resource in &delta.configs_changed {
            match resource {
                Resource::Broker(_) => return Reconfigured::All,
                Resource::Topic(name) => topics.extend(image.topic(name).map(|topic| topic.id)),
                // Coordinators look at them with every heartbeat.
                Resource::Group(_) => {}
                Resource::Other(..) => {}
            }
        }
        match topics.is_empty() {
            true => Reconfigured::Nothing,
            false => Reconfigured::Topics(topics),
        }
    }

    /// Whether it concerns a topic.
    #[must_use]
    pub fn concerns(&self, topic: TopicId) -> bool {
        match self {
            Reconfigured::Nothing => false,
            Reconfigured::Topics(topics) => topics.contains(&topic),
            Reconfigured::All => true,
        }
    }
}

/// A partition that a shard must open and lead.
#[derive(Debug, Clone)]
pub struct PartitionToOpen {
    /// Topic id and index.
    pub id: TopicPartition,
    /// Topic name: with the index it names the directory.
    pub topic: String,
    /// Epoch in which this broker leads it.
    pub leader_epoch: LeaderEpoch,
    /// The log directory that it is in; `None` when that is not here.
    pub dir: Option<DirIndex>,
    /// How its log was left, where it is not new.
    pub opening: Opening,
    /// A copy that is to take its place.
    pub future: Option<FutureFound>,
}

/// A shard did not do something that it was told to do.
#[derive(Debug, Clone)]
pub struct ApplyFailure {
    /// What to log.
    pub line: String,
    /// The partition that could not be opened, and how it is.
    pub not_open: Option<(PartitionName, NotOpen)>,
}

/// How a partition is that could not be opened. Nothing was written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOpen {
    /// What a clean stop had left of it is damaged.
    DamagedAfterStop,
    /// What a kill had left of it is damaged.
    DamagedAfterKill,
    /// Anything else.
    Otherwise,
}

/// What a shard made of [`ShardCommand::Apply`].
#[derive(Debug, Default)]
pub struct Applied {
    /// What could not be done.
    pub failures: Vec<ApplyFailure>,
    /// Up to where the logs that were opened need no check after a kill.
    pub marks: Vec<(TopicPartition, Offset)>,
    /// Where those of them begin that begin above what the checkpoint says.
    pub starts: Vec<(TopicPartition, Offset)>,
}

/// What a shard knew of a partition when it stopped.
#[derive(Debug, Clone)]
pub struct StoppedPartition {
    /// Topic and index.
    pub name: PartitionName,
    /// The same by the topic's id.
    pub id: TopicPartition,
    /// Everything below is on the disk.
    pub recovery_point: Offset,
    /// The same as `thalweg-recovery-points` is to have it ([`Log::known_point`](thalweg_storage::Log::known_point)).
    pub known_point: Offset,
    /// High watermark.
    pub high_watermark: Offset,
    /// First offset of the log.
    pub log_start: Offset,
    /// True when the log was closed with everything flushed.
    pub closed_well: bool,
}

/// What the control plane tells a shard.
pub enum ShardCommand {
    /// Metadata changed.
    Apply {
        /// The new picture.
        view: Arc<ClusterView>,
        /// Partitions of this shard to open before it routes requests by the new view.
        open: Vec<PartitionToOpen>,
        /// Partitions of this shard whose topic is gone: close them and remove their files.
        delete: Vec<TopicPartition>,
        /// Names of topics that are gone, on whichever shard they were. There may be new ones of the
        /// same names in `view`.
        removed: Arc<[Arc<str>]>,
        /// Topics whose open partitions must obey other settings.
        reconfigured: Reconfigured,
        /// Told when all of it is done.
        done: oneshot::Sender<Applied>,
    },
    /// Serve nothing of a log directory from here on: it has failed.
    DirectoryFailed {
        /// Which.
        dir: DirIndex,
        /// Told when nothing is.
        done: oneshot::Sender<()>,
    },
    /// Copy the shard's metrics.
    Scrape {
        /// Gets the copy.
        reply: oneshot::Sender<CoreMetrics>,
    },
    /// Tell what is not served.
    Unserved {
        /// Gets it.
        reply: oneshot::Sender<Unserved>,
    },
    /// Tell something about groups.
    Groups(GroupQuestion),
    /// Stop intake, finish what is in flight, flush and close every log.
    Stop {
        /// Gets the state to write into the checkpoints.
        reply: oneshot::Sender<Vec<StoppedPartition>>,
    },
}

/// Handle by which shards reach the control plane.
#[derive(Clone)]
pub struct ControlHandle {
    requests: mailbox::Sender<ControlRequest>,
    loggers: Arc<Loggers>,
    offline: Arc<OfflinePartitions>,
}

impl ControlHandle {
    /// Wraps the sending end of the controller's mailbox, and the log levels that it changes.
    #[must_use]
    pub fn new(requests: mailbox::Sender<ControlRequest>, loggers: Arc<Loggers>) -> Self {
        Self {
            requests,
            loggers,
            offline: Arc::default(),
        }
    }

    /// The partitions that no shard can serve.
    #[must_use]
    pub fn offline(&self) -> &OfflinePartitions {
        &self.offline
    }

    /// Tells that a log directory has failed, while others go on.
    pub async fn directory_failed(&self, dir: DirIndex) {
        // Refused only while stopping.
        let _ = self
            .requests
            .send(ControlRequest::DirectoryFailed(dir))
            .await;
    }

    /// The log levels in force.
    #[must_use]
    pub fn log_levels(&self) -> LogLevels {
        self.loggers.levels()
    }

    /// Ends the controller, once the shards have stopped.
    pub async fn stop(&self) {
        // Refused only when it has ended already.
        let _ = self.requests.send(ControlRequest::Stop).await;
    }

    /// Creates topics. `None` means that the broker is stopping.
    pub async fn create_topics(
        &self,
        request: CreateTopicsRequest,
    ) -> Option<CreateTopicsResponse> {
        self.ask(|reply| ControlRequest::CreateTopics { request, reply })
            .await
    }

    /// Creates topics with the broker's defaults. `None` means that the broker is stopping.
    pub async fn auto_create(&self, names: Vec<String>) -> Option<Vec<AutoCreated>> {
        self.ask(|reply| ControlRequest::AutoCreate { names, reply })
            .await
    }

    /// Makes sure that an internal topic exists. `None` means that the broker is stopping.
    pub async fn create_internal(
        &self,
        topic: InternalTopic,
    ) -> Option<Result<TopicId, TopicRefusal>> {
        self.ask(|reply| ControlRequest::CreateInternal { topic, reply })
            .await
    }

    /// A block of producer ids. `None` means that the broker is stopping.
    pub async fn producer_ids(&self) -> Option<Result<ProducerIdBlock, ErrorCode>> {
        self.ask(|reply| ControlRequest::ProducerIds { reply })
            .await
    }

    async fn administer<A: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<A>) -> AdminRequest,
    ) -> Option<A> {
        self.ask(|reply| ControlRequest::Admin(request(reply)))
            .await
    }

    /// `None` means that the broker is stopping.
    async fn ask<A: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<A>) -> ControlRequest,
    ) -> Option<A> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.ok()?;
        answer.await
    }

    /// Changes settings step by step. `None` means that the broker is stopping.
    pub async fn alter_configs_by_steps(
        &self,
        request: IncrementalAlterConfigsRequest,
    ) -> Option<IncrementalAlterConfigsResponse> {
        self.administer(|reply| AdminRequest::AlterConfigsBySteps { request, reply })
            .await
    }

    /// Replaces settings. `None` means that the broker is stopping.
    pub async fn alter_configs(
        &self,
        request: AlterConfigsRequest,
    ) -> Option<AlterConfigsResponse> {
        self.administer(|reply| AdminRequest::AlterConfigs { request, reply })
            .await
    }

    /// Adds partitions. `None` means that the broker is stopping.
    pub async fn create_partitions(
        &self,
        request: CreatePartitionsRequest,
    ) -> Option<CreatePartitionsResponse> {
        self.administer(|reply| AdminRequest::CreatePartitions { request, reply })
            .await
    }

    /// Makes durable where logs begin, and says how far that went. Where it is refused, no segment of these logs may be
    /// removed. `None` means that the broker is stopping.
    pub async fn record_log_starts(
        &self,
        starts: Vec<(TopicPartition, Offset)>,
    ) -> Option<Result<StartKept, ErrorCode>> {
        self.administer(|reply| AdminRequest::LogStarts { starts, reply })
            .await
    }

    /// Makes durable how far logs are. `None` means that the broker is stopping.
    pub async fn record_progress(
        &self,
        progress: Vec<(TopicPartition, LogProgress)>,
    ) -> Option<Result<(), ErrorCode>> {
        self.administer(|reply| AdminRequest::Progress { progress, reply })
            .await
    }

    /// Makes durable how far logs are compacted. `None` means that the broker is stopping.
    pub async fn record_cleaned(
        &self,
        cleaned: Vec<(TopicPartition, Offset)>,
    ) -> Option<Result<(), ErrorCode>> {
        self.administer(|reply| AdminRequest::Cleaned { cleaned, reply })
            .await
    }

    /// A copy in `to` is about to take the place of a log, on the disk below `durable`. `None` means that the
    /// broker is stopping.
    pub async fn begin_move(
        &self,
        id: TopicPartition,
        to: DirIndex,
        durable: Offset,
    ) -> Option<Result<(), ErrorCode>> {
        self.administer(|reply| AdminRequest::BeginMove {
            id,
            to,
            durable,
            reply,
        })
        .await
    }

    /// That is over. `None` means that the broker is stopping.
    pub async fn end_move(
        &self,
        id: TopicPartition,
        outcome: MoveOutcome,
    ) -> Option<Result<(), ErrorCode>> {
        self.administer(|reply| AdminRequest::EndMove { id, outcome, reply })
            .await
    }

    /// Writes down, not durably, up to where logs are marked. `None` means that the broker is stopping.
    pub async fn record_marks(
        &self,
        marks: Vec<(TopicPartition, Offset)>,
    ) -> Option<Result<(), ErrorCode>> {
        self.administer(|reply| AdminRequest::Marks { marks, reply })
            .await
    }

    /// How far the metadata log is. `None` means that the broker is stopping.
    pub async fn quorum(&self) -> Option<QuorumState> {
        self.administer(|reply| AdminRequest::Quorum { reply })
            .await
    }

    /// Deletes topics. `None` means that the broker is stopping.
    pub async fn delete_topics(
        &self,
        request: DeleteTopicsRequest,
        version: i16,
    ) -> Option<DeleteTopicsResponse> {
        self.ask(|reply| ControlRequest::DeleteTopics {
            request,
            version,
            reply,
        })
        .await
    }
}
