//! What the control plane has a shard do with its partitions: open, delete, let go of, obey other settings.

use std::rc::Rc;
use std::sync::Arc;

use thalweg_config::TopicConfig;
use thalweg_control::{
    Applied, ApplyFailure, ClusterView, DirIndex, NotOpen, PartitionToOpen, Reconfigured,
};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_reactor::{in_place, oneshot, task};
use thalweg_storage::{LogOptions, PartitionName, Recovery, Unwritten, set_partition_aside};
use thalweg_types::limits::PARTITIONS_AT_ONCE;
use thalweg_types::{Offset, TopicPartition};

use super::Lifecycle;
use crate::partition::{OpenContext, Partition, PartitionError};
use crate::together;

impl Lifecycle {
    pub(super) async fn open_waiting(self: &Rc<Self>) {
        let view = self.shard.view();
        for (wanted, opened) in self.open_all(&view, self.waiting.take()).await {
            let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
            match opened {
                Ok(partition) => {
                    tracing::info!(partition = %name, "opened: the cause has passed");
                    if let Some(start) = untold_start(&wanted, &partition) {
                        let shard = Rc::clone(&self.shard);
                        // The control plane may be waiting for this task. What fails is said there.
                        task::spawn(
                            async move { shard.control.record_log_starts(vec![start]).await },
                        );
                    }
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
    pub(super) async fn apply(
        self: &Rc<Self>,
        view: Arc<ClusterView>,
        open: Vec<PartitionToOpen>,
        delete: Vec<TopicPartition>,
    ) -> Applied {
        let Applied {
            mut failures,
            mut marks,
            mut starts,
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
                    starts.extend(untold_start(&wanted, &partition));
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
        self.begin_to_serve();
        for partition in of_offsets {
            let coordinators = &self.shard.coordinators;
            coordinators.open(partition, &self.shard.config);
        }
        Applied {
            failures,
            marks,
            starts,
        }
    }

    /// Nobody can ask for a coordinator before all shards of a start have come so far.
    fn begin_to_serve(&self) {
        if !self.serves.replace(true)
            && let Some(topic) = self.shard.offsets_topic()
        {
            self.shard.on_offsets_topic_open(topic);
        }
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
    pub(super) fn lose_directory(&self, dir: DirIndex, done: oneshot::Sender<()>) {
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
    pub(super) fn reconfigure(&self, reconfigured: &Reconfigured) {
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
}

/// Where a log begins that begins above what the checkpoint says, as after retention on a full disk, or a Kafka's: from here
/// on it is held against that.
fn untold_start(
    wanted: &PartitionToOpen,
    partition: &Partition,
) -> Option<(TopicPartition, Offset)> {
    let start = partition.log().start_offset();
    let told = wanted.opening.log_start.unwrap_or_default();
    (start > told).then(|| (partition.id(), start))
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
