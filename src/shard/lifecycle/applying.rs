//! What the control plane has a shard do with its partitions: open, delete, let go of, obey other settings.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::TopicConfig;
use thalweg_control::{
    ApplyFailure, ClusterView, DirIndex, NotOpen, PartitionToOpen, Reconfigured,
};
use thalweg_reactor::event::Event;
use thalweg_reactor::oneshot;
use thalweg_reactor::task::{self, Task};
use thalweg_storage::{LogOptions, PartitionName, Recovery, Unwritten, set_partition_aside};
use thalweg_types::{Offset, TopicPartition};

use super::Lifecycle;
use super::opening::{Applying, OPEN_PATIENCE};
use crate::partition::{OpenContext, Partition, PartitionError};

impl Lifecycle {
    /// Opens one partition and serves it from then on.
    pub(super) async fn open(
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
                health: Arc::clone(&health),
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
        if health.failure().is_some() {
            // Whoever is told of that may have looked for what is open here already.
            partition.fail();
            return Err(PartitionError::DirectoryOffline);
        }
        self.shard.insert_partition(Rc::clone(&partition));
        if let Some(found) = &wanted.future {
            let compacts = config.cleanup_policy().compact;
            self.shard.resume_move(&partition, found, compacts).await;
        }
        Ok(partition)
    }

    /// Stops serving partitions, and opens and closes logs; then routes by the new view. A disk that does not answer holds
    /// that up for no longer than [`OPEN_PATIENCE`]: what is opened there is not served until it is, and goes on being
    /// opened, as goes on what is deleted there. What is given back ends with that.
    ///
    /// Partitions of one name must not be among those that are being deleted and those to open, on whatever shard.
    pub(super) async fn apply(
        self: &Rc<Self>,
        view: Arc<ClusterView>,
        open: Vec<PartitionToOpen>,
        delete: Vec<TopicPartition>,
    ) -> Rc<Applying> {
        let parting = delete.into_iter().map(|id| self.part_from(id)).collect();
        let applying = Applying::new(&open, parting);
        self.begin_to_open(&view, open, &applying);
        match self.serves.get() {
            true => applying.wait(OPEN_PATIENCE).await,
            false => applying.wait(Duration::MAX).await,
        }
        for (id, dir) in applying.left() {
            let reason = "its disk does not answer; opened when it does".to_owned();
            self.shard.mark_offline(id, dir, reason);
        }
        if let Some(admission) = &self.admission
            && *view.config != *self.shard.view().config
        {
            admission.obey(&view.config);
        }
        self.shard.adopt_view(view);
        self.begin_to_serve();
        for partition in applying.adopted() {
            let coordinators = &self.shard.coordinators;
            coordinators.open(partition, &self.shard.config);
        }
        applying
    }

    /// Deletes a partition, beside all else. Gives what went wrong.
    fn part_from(self: &Rc<Self>, id: TopicPartition) -> Task<Option<ApplyFailure>> {
        self.waiting.borrow_mut().retain(|wanted| wanted.id != id);
        self.shard.coordinators.close(id);
        let view = self.shard.view();
        let topic = view.image.topic_by_id(id.topic);
        let name = topic.map(|topic| PartitionName::new(topic.name.to_string(), id.partition.0));
        let gone = Event::new();
        self.parting.borrow_mut().insert(id, gone.clone());
        let life = Rc::clone(self);
        task::spawn(async move {
            let failure = life.delete(id, name).await;
            life.parting.borrow_mut().remove(&id);
            gone.open();
            failure
        })
    }

    async fn delete(
        &self,
        id: TopicPartition,
        name: Option<PartitionName>,
    ) -> Option<ApplyFailure> {
        let opening = self.opening_now.borrow().get(&id).cloned();
        if let Some(opening) = opening {
            // It is not tried again: see `try_again`.
            opening.wait().await;
            self.shard.coordinators.close(id);
        }
        self.shard.moves.leave(id).await;
        let line = match self.shard.remove_partition(id) {
            Some(partition) => {
                let deleted = partition.delete().await;
                let said = |error| format!("{}: not deleted: {error}", partition.name());
                deleted.err().map(said)
            }
            None => self.free_name(id, name).await.err(),
        };
        line.map(|line| ApplyFailure {
            line,
            not_open: None,
        })
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
    /// next topic of that name finds none. In a directory that does not work it stays; the next start that finds it there
    /// sets it aside.
    async fn free_name(
        &self,
        id: TopicPartition,
        name: Option<PartitionName>,
    ) -> Result<(), String> {
        let dir = self.shard.forget_offline(id);
        let health = dir.map(|dir| self.shard.dir(dir));
        let Some(health) = health.filter(|health| health.failure().is_none()) else {
            return Ok(());
        };
        let Some(name) = name else {
            return Ok(());
        };
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
pub(super) fn untold_start(
    wanted: &PartitionToOpen,
    partition: &Partition,
) -> Option<(TopicPartition, Offset)> {
    let start = partition.log().start_offset();
    let told = wanted.opening.log_start.unwrap_or_default();
    (start > told).then(|| (partition.id(), start))
}

/// What to say of a partition that could not be opened. Of a whole directory it is said once, elsewhere.
pub(super) fn refused(wanted: &PartitionToOpen, error: &PartitionError) -> Option<ApplyFailure> {
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
pub(super) fn log_options(config: &TopicConfig, shared: &LogOptions) -> LogOptions {
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
