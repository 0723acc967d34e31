//! How a partition is opened: its log, what that says of epochs and producers, and what may be wrong
//! with it.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};

use thalweg_config::TopicConfig;
use thalweg_control::{DirIndex, OpeningProgress, PartitionToOpen};
use thalweg_metrics::CoreMetrics;
use thalweg_reactor::{LogGate, fs};
use thalweg_replica::{
    AckPoint, EpochCache, EpochEntry, Leadership, Producers, Replica, ReplicaStart, StaleLeadership,
};
use thalweg_storage::{
    Beginning, Gaps, Log, LogError, LogOptions, LogSink, PartitionName, ReadError, Recovery,
    RecoveryReport, missing_directory,
};
use thalweg_types::{BrokerId, Offset};

use super::{Partition, ack_point, compaction, sink_of};
use crate::flushing::Unmarked;
use crate::producers;

/// A partition can not be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartitionError {
    /// Its log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its log directory does not work, or is not here.
    #[error("its log directory is offline")]
    DirectoryOffline,
    /// Whether it has a directory can not be told.
    #[error("looking for {}: {source}", dir.display())]
    Look {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its directory belongs to another topic, or the file that says so is damaged.
    #[error("{} says topic id {found}, the metadata says {wanted}", file.display())]
    OtherTopic {
        /// The file.
        file: PathBuf,
        /// In `partition.metadata`.
        found: thalweg_types::TopicId,
        /// In the metadata.
        wanted: thalweg_types::TopicId,
    },
    /// Its producers can not be read out of the log.
    #[error("replaying producers: {0}")]
    Producers(#[from] ReadError),
    /// The metadata is older than the log.
    #[error(transparent)]
    Stale(#[from] StaleLeadership),
}

impl PartitionError {
    /// True when the system lacked something that it may have later: room, file handles, rights.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            PartitionError::Log(error) => error.may_pass(),
            PartitionError::Look { source, .. } => thalweg_storage::may_pass(source),
            PartitionError::DirectoryOffline
            | PartitionError::OtherTopic { .. }
            | PartitionError::Producers(_)
            | PartitionError::Stale(_) => false,
        }
    }

    /// True when its files are not what they were: see [`LogError::is_damage`].
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            PartitionError::Log(error) => error.is_damage(),
            PartitionError::OtherTopic { .. } => true,
            PartitionError::DirectoryOffline
            | PartitionError::Look { .. }
            | PartitionError::Producers(_)
            | PartitionError::Stale(_) => false,
        }
    }
}

/// What opening a partition needs to know of its shard and topic.
pub(crate) struct OpenContext<'a> {
    pub(crate) local: BrokerId,
    /// Number of the log directory whose health is in `options`.
    pub(crate) dir: DirIndex,
    pub(crate) config: &'a TopicConfig,
    pub(crate) options: LogOptions,
    pub(crate) metrics: &'a Rc<RefCell<CoreMetrics>>,
    /// Lets one line about failed appends through in a while, for the whole shard.
    pub(crate) failures: &'a Rc<LogGate>,
    /// Told what was checked.
    pub(crate) opening: &'a OpeningProgress,
    /// Told of each append.
    pub(crate) unmarked: &'a Rc<Unmarked>,
}

impl Partition {
    /// Opens the log, recovering it if the last stop was not clean, or creates it, and takes the
    /// leadership that the metadata names.
    ///
    /// # Errors
    /// See [`PartitionError`]; the partition stays offline then and its files are as they were.
    pub(crate) async fn open(
        wanted: &PartitionToOpen,
        context: OpenContext<'_>,
    ) -> Result<Rc<Partition>, PartitionError> {
        let target: Rc<RefCell<Weak<Partition>>> = Rc::default();
        let Opened {
            log,
            epochs,
            epochs_stored,
            producers,
            lasting_snapshot,
        } = open_judged(wanted, &context, sink_of(&target, 0)).await?;
        let ack_point = ack_point(&context.options);
        match ack_point {
            AckPoint::Written => {}
            // What the log has may be in the page cache only, and its directory new: nothing of it is
            // shown before it is durable, and the first acknowledgement does not wait for all of it.
            AckPoint::Durable => drop(log.flush().await?),
        }
        let mut replica = Replica::new(ReplicaStart {
            local: context.local,
            log_start: log.start_offset(),
            log_end: log.written_end(),
            durable_end: log.durable_end(),
            ack_point,
            // Without the word of a checkpoint nothing is known to be committed (R5).
            high_watermark: wanted.opening.high_watermark.unwrap_or_default(),
            epochs,
            producers,
        });
        // Nothing waits yet, so nothing is to be answered or woken.
        let mut effects = Vec::new();
        let leadership = Leadership {
            epoch: wanted.leader_epoch,
            replicas: vec![context.local],
            in_sync: vec![context.local],
            min_in_sync: context.config.min_insync_replicas(),
        };
        replica.become_leader(&leadership, &mut effects)?;
        if replica.epochs().entries() != epochs_stored {
            log.owe_epochs(replica.epochs());
        }
        let partition = Rc::new(Partition {
            id: wanted.id,
            topic: wanted.topic.clone(),
            dir: Cell::new(context.dir),
            log: RefCell::new(log),
            place: Cell::new(0),
            held: RefCell::default(),
            replica: RefCell::new(replica),
            produces: RefCell::default(),
            awaiting_flush: RefCell::default(),
            fetches: RefCell::default(),
            next_token: Cell::new(0),
            snapshot_kept: Rc::new(Cell::new(lasting_snapshot)),
            recorded: Cell::new(None),
            mark_recorded: Cell::new(None),
            metrics: Rc::clone(context.metrics),
            failures: Rc::clone(context.failures),
            unmarked: Rc::clone(context.unmarked),
            cleaning: compaction::Cleaning::default(),
            snapshot_stored: RefCell::default(),
        });
        *target.borrow_mut() = Rc::downgrade(&partition);
        Ok(partition)
    }
}

/// A log and what its files say of epochs and producers.
struct Opened {
    log: Log,
    epochs: EpochCache,
    epochs_stored: Vec<EpochEntry>,
    producers: Producers,
    lasting_snapshot: Offset,
}

/// As [`open_log`]; a failure of the disk condemns the log directory.
async fn open_judged(
    wanted: &PartitionToOpen,
    context: &OpenContext<'_>,
    sink: LogSink,
) -> Result<Opened, PartitionError> {
    let opened = open_log(wanted, context, sink).await;
    if let Err(PartitionError::Log(error)) = &opened {
        context.options.health.judge_opening(error);
    }
    opened
}

async fn open_log(
    wanted: &PartitionToOpen,
    context: &OpenContext<'_>,
    sink: LogSink,
) -> Result<Opened, PartitionError> {
    let name = PartitionName::new(wanted.topic.clone(), wanted.id.partition.0);
    let options = context.options.clone();
    let parent = options.health.path().to_owned();
    let dir = parent.join(name.to_string());
    let exists = match fs::exists(&dir).await {
        Err(source) => return Err(PartitionError::Look { dir, source }),
        Ok(exists) => exists,
    };
    let mut opening = wanted.opening;
    if !exists {
        if let Some(missing) = missing_directory(&dir, &opening) {
            return Err(PartitionError::Log(missing));
        }
        let start = opening.log_start.unwrap_or_default();
        // The epoch of its first leader is written with the file: no other write of it follows.
        let mut epochs = EpochCache::default();
        let _ = epochs.assign(wanted.leader_epoch, start);
        let epochs_stored = epochs.entries().to_vec();
        let beginning = Beginning { start, epochs };
        let topic = wanted.id.topic;
        let log = Log::create_at(beginning, &parent, name, topic, options, sink).await?;
        return Ok(Opened {
            log,
            epochs: EpochCache::default(),
            epochs_stored,
            producers: Producers::default(),
            lasting_snapshot: Offset::ZERO,
        });
    }
    let found = Log::topic_id_in(&dir).await?;
    if let Some(found) = found.filter(|found| *found != wanted.id.topic) {
        return Err(PartitionError::OtherTopic {
            file: dir.join("partition.metadata"),
            found,
            wanted: wanted.id.topic,
        });
    }
    if context.config.cleanup_policy().compact {
        opening.gaps = Gaps::MayBe;
    }
    let (log, report) = Log::open(&parent, name, options, opening, sink).await?;
    if found.is_none() {
        tracing::warn!(partition = %log.name(), topic_id = %wanted.id.topic,
            "partition.metadata is missing or can not be read: written anew from the metadata");
        log.store_topic_id(wanted.id.topic).await?;
    }
    context
        .opening
        .checked(report.bytes_scanned, report.bytes_trusted);
    note_recovery(context.metrics, &log, &report);
    let (producers, snapshot) = producers::load(&log, &report).await?;
    // After a kill it may be in the page cache only.
    let lasting = snapshot.filter(|_| opening.recovery == Recovery::AfterCleanStop);
    Ok(Opened {
        log,
        epochs: report.epochs,
        epochs_stored: report.epochs_stored,
        producers,
        lasting_snapshot: lasting.unwrap_or_default(),
    })
}

fn note_recovery(metrics: &Rc<RefCell<CoreMetrics>>, log: &Log, report: &RecoveryReport) {
    let mut metrics = metrics.borrow_mut();
    let counters = &mut metrics.counters;
    counters.recovery_logs += u64::from(report.segments_scanned > 0);
    counters.recovery_bytes_scanned += report.bytes_scanned;
    counters.recovery_bytes_trusted += report.bytes_trusted;
    counters.recovery_indexes_rebuilt += report.indexes_rebuilt as u64;
    if let Some(cut) = &report.cut {
        counters.recovery_torn_tails += 1;
        counters.recovery_bytes_cut += report.bytes_removed;
        tracing::warn!(
            partition = %log.name(),
            end = cut.offset.0,
            bytes = report.bytes_removed,
            reason = %cut.reason,
            "torn tail cut: the last process ended before these bytes were all written"
        );
    }
}
