//! One partition that this shard leads: its machine and its log, tied together.
//!
//! Requests become events of [`Replica`]; its effects become appends, answers and wakes here; the
//! log's completions come back as events. Nothing in this file decides a rule of Kafka.

mod admin;
mod awaiting_flush;
mod compaction;
mod flushing;
mod lag;
mod moving;
mod retention;
mod scrub;

pub(crate) use moving::LastStep;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;

use thalweg_config::TopicConfig;
use thalweg_control::{DirIndex, LogProgress, OpeningProgress, PartitionToOpen, StoppedPartition};
use thalweg_metrics::CoreMetrics;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{self, TimestampType};
use thalweg_reactor::event::Event;
use thalweg_reactor::{LogGate, fs, task, time};
use thalweg_replica::{
    Accepted, AckPoint, Acks, Assigned, Effect, EpochCache, EpochEntry, FetchBound, Isolation,
    Leadership, Parking, Producers, Refused, Replica, ReplicaStart, StaleLeadership, StopReason,
    Token,
};
use thalweg_storage::{
    AppendBatch, Beginning, Gaps, Log, LogError, LogEvent, LogOptions, LogSink, PartitionName,
    ReadError, RecoveryReport, missing_directory,
};
use thalweg_types::{BrokerId, IdMap, LeaderEpoch, Offset, TimestampMs, TopicPartition};

use self::awaiting_flush::AwaitingFlush;
use crate::append_group::{AppendGroup, Owed, Placed, Row};
use crate::flushing::Unmarked;
use crate::peer::{AppendAsk, FetchAsk, FetchFound, OffsetAsk, OffsetFound, Park, ParkId};
use crate::producers;

/// Owner of one log. Lives on one shard, shared inside it by `Rc`.
pub(crate) struct Partition {
    id: TopicPartition,
    topic: String,
    dir: Cell<DirIndex>,
    log: RefCell<Log>,
    /// How often the log has got another place; what a log says in an earlier one does not count.
    place: Cell<u64>,
    /// Appends that wait for that.
    held: RefCell<Option<moving::Held>>,
    replica: RefCell<Replica>,
    /// Appends whose answer the machine still owes.
    produces: RefCell<IdMap<Token, WaitingProduce>>,
    /// What is written and waits for a flush to be acknowledged.
    awaiting_flush: RefCell<AwaitingFlush>,
    /// Fetches whose wake the machine still owes.
    fetches: RefCell<IdMap<Token, Event>>,
    next_token: Cell<u64>,
    /// Offset of the producer snapshot that the log was opened with; 0 without one.
    snapshot_loaded: Offset,
    /// What the checkpoints say of the log, if they have been told.
    recorded: Cell<Option<LogProgress>>,
    /// What the file of marks says of it.
    mark_recorded: Cell<Option<Offset>>,
    metrics: Rc<RefCell<CoreMetrics>>,
    failures: Rc<LogGate>,
    unmarked: Rc<Unmarked>,
    cleaning: compaction::Cleaning,
    /// The newest snapshot of producers that is on its way to the disk.
    snapshot_stored: RefCell<Option<task::Task<()>>>,
}

struct WaitingProduce {
    owed: Owed,
    append_time: TimestampMs,
}

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
            snapshot_loaded,
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
            snapshot_loaded,
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

    pub(crate) fn id(&self) -> TopicPartition {
        self.id
    }

    /// Its log, in the place where it is now.
    pub(crate) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Number of its log directory.
    pub(crate) fn dir(&self) -> DirIndex {
        self.dir.get()
    }

    /// Its log directory has failed: everything that waits here is told so.
    pub(crate) fn fail(&self) {
        self.retire(StopReason::StorageFailed);
        self.wake_parked();
    }

    /// `<topic>-<partition>`, for log lines.
    pub(crate) fn name(&self) -> String {
        self.log().name().to_string()
    }

    /// Gives the batch its offsets and queues it; the outcome goes to `group`.
    pub(crate) fn append(&self, ask: AppendAsk, acks: Acks, group: &Rc<AppendGroup>) {
        let Some(ask) = self.unless_held(ask, acks, group) else {
            return;
        };
        self.follow_log();
        if !self.log().has_room(ask.batch.len()) {
            self.refuse_append(ask.row, Refused::Congested, group);
            return;
        }
        let token = Token(self.next_token.get());
        let mut effects = Vec::new();
        let accepted = self.replica.borrow_mut().on_produce(
            ask.received,
            &ask.summary,
            acks,
            token,
            &mut effects,
        );
        match accepted {
            Ok(Accepted::Append(assigned)) => {
                self.await_answer(token, &ask, ask.summary.max_timestamp, group);
                self.write(ask, assigned);
            }
            Ok(Accepted::Retry { timestamp }) => {
                self.await_answer(token, &ask, timestamp, group);
                self.metrics.borrow_mut().counters.produce_retries += 1;
            }
            Err(refused) => self.refuse_append(ask.row, refused, group),
        }
        self.carry_out(effects);
    }

    /// `timestamp` is the batch's own, or its original's: told only where the broker stamps batches.
    fn await_answer(
        &self,
        token: Token,
        ask: &AppendAsk,
        timestamp: TimestampMs,
        group: &Rc<AppendGroup>,
    ) {
        let append_time = match ask.summary.timestamp_type {
            TimestampType::CreateTime => TimestampMs::NONE,
            TimestampType::LogAppendTime => timestamp,
        };
        self.next_token.set(token.0 + 1);
        self.produces.borrow_mut().insert(
            token,
            WaitingProduce {
                owed: Owed::new(group, ask.row),
                append_time,
            },
        );
    }

    /// Refuses a client's batch: the disk has less room than its headroom. What the broker writes for
    /// itself, such as commits of groups, is not asked this.
    pub(crate) fn refuse_for_room(&self, row: Row, group: &Rc<AppendGroup>) {
        self.refuse_append(row, Refused::StorageFailed, group);
    }

    fn refuse_append(&self, row: Row, refused: Refused, group: &Rc<AppendGroup>) {
        self.metrics
            .borrow_mut()
            .topics
            .of(&self.topic)
            .produce_failures += 1;
        group.settle(row, Err(refused.code()));
    }

    /// Patches the offsets in and queues the batch.
    fn write(&self, mut ask: AppendAsk, assigned: Assigned) {
        records::assign(&mut ask.batch, assigned.base, assigned.epoch);
        let offset_of_max_timestamp = assigned
            .base
            .plus(i64::from(ask.summary.offset_delta_of_max_timestamp));
        {
            let mut metrics = self.metrics.borrow_mut();
            let bytes_in = ask.batch.len() as u64;
            metrics.traffic.count_in(self.id, bytes_in);
            let topic = metrics.topics.of(&self.topic);
            topic.produced_bytes += bytes_in;
            topic.produced_records += ask.summary.record_count as u64;
        }
        self.unmarked.add(ask.batch.len());
        self.log().append(AppendBatch {
            bytes: ask.batch.freeze(),
            base_offset: assigned.base,
            last_offset: Offset(assigned.end.0 - 1),
            max_timestamp: ask.summary.max_timestamp,
            offset_of_max_timestamp,
            leader_epoch: assigned.epoch,
        });
    }

    fn on_log_event(&self, event: LogEvent) {
        let mut effects = Vec::new();
        match event {
            LogEvent::Written { end } => {
                let mut replica = self.replica.borrow_mut();
                replica.on_written(end, &mut effects);
                if replica.high_watermark() < end {
                    self.awaiting_flush.borrow_mut().note(end, time::now());
                }
            }
            LogEvent::Durable { end } => {
                self.replica.borrow_mut().on_durable(end, &mut effects);
                self.carry_out(effects);
                self.awaiting_flush.borrow_mut().forget_below(end);
                return;
            }
            LogEvent::Rolled { base } => self.snapshot_producers(base),
            LogEvent::Failed { from, error } => {
                if let Some(more) = self.failures.admit(time::now()) {
                    tracing::error!(partition = %self.log().name(), offset = from.0, %error,
                        left_out = more,
                        "append failed: free space on the disk or look at its errors");
                }
                self.awaiting_flush.borrow_mut().clear();
                let mut replica = self.replica.borrow_mut();
                replica.on_write_failed(from, &mut effects);
                self.metrics.borrow_mut().counters.append_failures += 1;
                if error.is_final() && replica.is_leader() {
                    replica.stop(StopReason::StorageFailed, None, &mut effects);
                }
            }
        }
        self.carry_out(effects);
    }

    /// Of what is below the new segment, which is written and all that is.
    fn snapshot_producers(&self, base: Offset) {
        let (at, bytes) = self.replica.borrow().producer_snapshot();
        if at != base {
            tracing::warn!(partition = %self.log().name(), at = at.0, base = base.0,
                "no producer snapshot: the written end is not where the segment begins");
            return;
        }
        let log = self.log().clone();
        let storing = task::spawn(async move { producers::store(&log, at, bytes).await });
        self.snapshot_stored.replace(Some(storing));
    }

    /// Forgets producers by age, then by number. Says how many are left.
    pub(crate) fn expire_producers(&self, keep_ms: i64, max: usize) -> usize {
        let now = TimestampMs(time::unix_ms());
        let mut replica = self.replica.borrow_mut();
        replica.expire_producers(now, keep_ms, max)
    }

    /// True when its log has failed: it is served no more.
    pub(crate) fn is_offline(&self) -> bool {
        !self.replica.borrow().is_leader() || self.log().is_offline()
    }

    /// Stops serving when the log directory failed by another log's doing.
    fn follow_log(&self) {
        if self.log().is_offline() && self.replica.borrow().is_leader() {
            self.retire(StopReason::StorageFailed);
        }
    }

    /// Producers remembered here.
    pub(crate) fn producer_count(&self) -> usize {
        self.replica.borrow().producers().len()
    }

    fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::AnswerProduce { token, outcome } => {
                    let Some(waiting) = self.produces.borrow_mut().remove(&token) else {
                        continue;
                    };
                    if let Ok(appended) = &outcome {
                        self.note_flush_wait(&waiting.owed, appended.assigned.end);
                    }
                    let result = outcome.map_err(Refused::code).map(|appended| Placed {
                        base_offset: appended.assigned.base,
                        log_append_time: waiting.append_time,
                        log_start: appended.log_start,
                    });
                    waiting.owed.settle(result);
                }
                Effect::WakeFetch { token } => {
                    if let Some(wake) = self.fetches.borrow_mut().remove(&token) {
                        wake.open();
                    }
                }
                // Consumers learn of it by their wakes; epochs are stored where they begin.
                Effect::HighWatermarkMoved(_)
                | Effect::EpochStarted { .. }
                | Effect::EpochsTrimmed => {}
            }
        }
    }

    /// Tells that a batch before `end`, which is acknowledged now, has waited for a flush.
    fn note_flush_wait(&self, owed: &Owed, end: Offset) {
        let waiting = self.awaiting_flush.borrow();
        if !waiting.is_empty() {
            owed.note_flush_wait(waiting.waited(end, time::now()));
        }
    }

    /// Finds what to send; registers the fetch in the same step when `park` is given.
    pub(crate) async fn fetch(&self, ask: &FetchAsk, park: Option<&Park>) -> FetchFound {
        self.follow_log();
        let query = thalweg_replica::FetchAsk {
            offset: ask.offset,
            current_leader_epoch: ask.current_leader_epoch,
            last_fetched_epoch: ask.last_fetched_epoch,
            isolation: ask.isolation,
        };
        let bound = match self.replica.borrow().on_fetch(&query) {
            Ok(bound) => bound,
            Err(refused) => return FetchFound::refused(ask.slot, refused.code()),
        };
        let mut found = FetchFound {
            slot: ask.slot,
            error: ErrorCode::None,
            high_watermark: bound.high_watermark,
            last_stable: bound.last_stable,
            log_start: bound.log_start,
            diverging: bound.diverging.map(|end| (end.epoch, end.end)),
            crowded: false,
            disk_wait: Duration::ZERO,
            plan: None,
            aborted: None,
        };
        if bound.diverging.is_none() && bound.up_to > ask.offset {
            let (from, up_to, most) = (ask.offset, bound.up_to, ask.bytes_max);
            let planning = self.reading(async |log| log.read_plan(from, up_to, most).await);
            let (planned, waited) = time::waited(planning).await;
            found.disk_wait += waited;
            match planned {
                Ok(plan) => found.plan = (!plan.is_empty()).then_some(plan),
                Err(error) => return self.refuse_read(ask.slot, &error),
            }
        }
        if ask.isolation == Isolation::ReadCommitted {
            let up_to = found
                .plan
                .as_ref()
                .map_or(ask.offset, |plan| plan.next_offset);
            let looking = self.reading(async |log| log.aborted_in(ask.offset, up_to).await);
            let (aborted, waited) = time::waited(looking).await;
            found.disk_wait += waited;
            match aborted {
                Ok(aborted) => found.aborted = Some(aborted),
                Err(error) => return self.refuse_read(ask.slot, &error),
            }
        }
        if let Some(park) = park {
            self.park(ask, &bound, park, &mut found);
        }
        found
    }

    fn park(&self, ask: &FetchAsk, bound: &FetchBound, park: &Park, found: &mut FetchFound) {
        let token = Token(park.id);
        let parking = self.replica.borrow_mut().park_fetch(
            token,
            ask.offset,
            bound.up_to,
            ask.isolation,
            park.missing_bytes,
        );
        match parking {
            Parking::Parked => {
                self.fetches.borrow_mut().insert(token, park.wake.clone());
            }
            Parking::LookAgain => park.wake.open(),
            Parking::Full => found.crowded = true,
        }
    }

    /// Forgets a parked fetch.
    pub(crate) fn unpark(&self, id: ParkId) {
        self.replica.borrow_mut().unpark_fetch(Token(id));
        self.fetches.borrow_mut().remove(&Token(id));
    }

    /// Wakes every parked fetch.
    pub(crate) fn wake_parked(&self) {
        for (token, wake) in self.fetches.borrow_mut().drain() {
            self.replica.borrow_mut().unpark_fetch(token);
            wake.open();
        }
    }

    /// Fetches parked here.
    pub(crate) fn parked_fetches(&self) -> usize {
        self.fetches.borrow().len()
    }

    fn refuse_read(&self, slot: usize, error: &ReadError) -> FetchFound {
        FetchFound::refused(slot, self.read_error(error))
    }

    fn read_error(&self, error: &ReadError) -> ErrorCode {
        match error {
            ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Closed => ErrorCode::NotLeaderOrFollower,
            // Reads look again by themselves; whoever sees it has clients do so.
            ReadError::Replaced | ReadError::Offline { .. } => ErrorCode::KafkaStorageError,
            // A retry is of no use, so the error is not one of those that clients retry in silence.
            ReadError::Quarantined { .. } => {
                tracing::debug!(partition = %self.log().name(), %error, "read refused");
                ErrorCode::CorruptMessage
            }
            ReadError::Damaged { .. } => {
                tracing::error!(partition = %self.log().name(), %error, "read failed");
                ErrorCode::CorruptMessage
            }
            ReadError::Io { .. } | ReadError::Records { .. } => {
                tracing::error!(partition = %self.log().name(), %error, "read failed");
                ErrorCode::KafkaStorageError
            }
        }
    }

    /// Answers one partition of ListOffsets.
    pub(crate) async fn list_offset(&self, ask: &OffsetAsk) -> OffsetFound {
        OffsetFound {
            slot: ask.slot,
            result: self.find_offset(ask).await,
        }
    }

    async fn find_offset(
        &self,
        ask: &OffsetAsk,
    ) -> Result<(Offset, TimestampMs, LeaderEpoch), ErrorCode> {
        const NONE: (Offset, TimestampMs, LeaderEpoch) =
            (Offset(-1), TimestampMs::NONE, LeaderEpoch::NONE);
        self.follow_log();
        let bounds = self
            .replica
            .borrow()
            .on_list_offsets(ask.current_leader_epoch, ask.isolation)
            .map_err(Refused::code)?;
        match ask.timestamp {
            -1 => Ok((bounds.latest, TimestampMs::NONE, bounds.leader_epoch)),
            // Nothing is tiered: the local log starts where the log starts.
            -2 | -4 => {
                let epoch = self.replica.borrow().epochs().epoch_at(bounds.log_start);
                Ok((
                    bounds.log_start,
                    TimestampMs::NONE,
                    epoch.unwrap_or(LeaderEpoch::NONE),
                ))
            }
            // Nothing is tiered, so there is no last tiered offset (KIP-1005) and nothing waits to
            // be uploaded (KIP-1023).
            -5 | -6 => Ok(NONE),
            special_or_time => {
                let hit = self.reading(async |log| match special_or_time {
                    -3 => log.max_timestamp_offset().await,
                    time => log.offset_for_timestamp(TimestampMs(time)).await,
                });
                let hit = hit.await;
                match hit {
                    Ok(Some(hit)) if hit.offset < bounds.latest => {
                        Ok((hit.offset, hit.timestamp, hit.leader_epoch))
                    }
                    Ok(_) => Ok(NONE),
                    Err(error) => Err(self.read_error(&error)),
                }
            }
        }
    }

    /// Stops serving, flushes and closes the log.
    pub(crate) async fn close(&self) -> StoppedPartition {
        self.retire(StopReason::NotLeader);
        let closed = self.log().close().await;
        if let Err(error) = &closed {
            tracing::error!(partition = %self.log().name(), %error, "not closed well");
        } else {
            let (at, bytes) = self.replica.borrow().producer_snapshot();
            if at != self.snapshot_loaded {
                producers::store(&self.log(), at, bytes).await;
            }
        }
        StoppedPartition {
            name: self.log().name().clone(),
            id: self.id,
            recovery_point: self.log().recovery_point(),
            high_watermark: self.replica.borrow().high_watermark(),
            log_start: self.log().start_offset(),
            closed_well: closed.is_ok(),
        }
    }

    /// Stops serving and removes the files.
    ///
    /// # Errors
    /// See [`LogError`]; what is left of the directory is set aside at the next start.
    pub(crate) async fn delete(&self) -> Result<(), LogError> {
        self.retire(StopReason::Deleted);
        self.metrics.borrow_mut().topics.forget(&self.topic);
        self.log().delete().await
    }

    /// Answers everything that waits here.
    fn retire(&self, why: StopReason) {
        let mut effects = Vec::new();
        self.replica.borrow_mut().stop(why, None, &mut effects);
        self.carry_out(effects);
    }
}

/// From where on records of a log with these options count.
fn ack_point(options: &LogOptions) -> AckPoint {
    match options.acks_wait() {
        true => AckPoint::Durable,
        false => AckPoint::Written,
    }
}

/// A log and what its files say of epochs and producers.
struct Opened {
    log: Log,
    epochs: EpochCache,
    epochs_stored: Vec<EpochEntry>,
    producers: Producers,
    snapshot_loaded: Offset,
}

/// Tells a partition, once there is one, of what its log does.
fn sink_of(target: &Rc<RefCell<Weak<Partition>>>, place: u64) -> LogSink {
    let target = Rc::clone(target);
    Rc::new(move |event| {
        if let Some(partition) = target.borrow().upgrade()
            && partition.place.get() == place
        {
            partition.on_log_event(event);
        }
    })
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
            snapshot_loaded: Offset::ZERO,
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
    Ok(Opened {
        log,
        epochs: report.epochs,
        epochs_stored: report.epochs_stored,
        producers,
        snapshot_loaded: snapshot.unwrap_or_default(),
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
