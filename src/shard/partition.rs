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
mod opening;
mod reading;
mod retention;
mod scrub;

pub(crate) use moving::LastStep;
pub(crate) use opening::{OpenContext, PartitionError};

use std::cell::{Cell, LazyCell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Instant;

use thalweg_control::{DirIndex, LogProgress, StoppedPartition};
use thalweg_metrics::CoreMetrics;
use thalweg_protocol::records::{self, TimestampType};
use thalweg_reactor::event::Event;
use thalweg_reactor::{LogGate, task, time};
use thalweg_replica::{
    Accepted, AckPoint, Acks, Assigned, Effect, Refused, Replica, StopReason, Token,
};
use thalweg_storage::{AppendBatch, Log, LogError, LogEvent, LogOptions, LogSink};
use thalweg_types::{IdMap, Offset, TimestampMs, TopicPartition};

use self::awaiting_flush::AwaitingFlush;
use crate::append_group::{AppendGroup, Owed, Placed, Row};
use crate::flushing::Unmarked;
use crate::peer::AppendAsk;
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
    /// Offset of the newest producer snapshot that is known to be whole and on the disk; 0 without one.
    snapshot_kept: Rc<Cell<Offset>>,
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

impl Partition {
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
        if !self.log.borrow().has_room(ask.batch.len()) {
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
        group.settle(row, Err(refused.code()), time::now());
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
        self.log.borrow().append(AppendBatch {
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
        let (log, kept) = (self.log(), Rc::clone(&self.snapshot_kept));
        let storing = task::spawn(async move {
            if producers::store(&log, at, bytes).await.is_ok() {
                kept.set(at.max(kept.get()));
            }
        });
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
        if self.log.borrow().is_offline() && self.replica.borrow().is_leader() {
            self.retire(StopReason::StorageFailed);
        }
    }

    /// Producers remembered here.
    pub(crate) fn producer_count(&self) -> usize {
        self.replica.borrow().producers().len()
    }

    fn carry_out(&self, effects: Vec<Effect>) {
        // One time for all that a write has decided, and none where it has decided nothing.
        let now = LazyCell::new(time::now);
        for effect in effects {
            match effect {
                Effect::AnswerProduce { token, outcome } => {
                    let Some(waiting) = self.produces.borrow_mut().remove(&token) else {
                        continue;
                    };
                    if let Ok(appended) = &outcome {
                        self.note_flush_wait(&waiting.owed, appended.assigned.end, *now);
                    }
                    let result = outcome.map_err(Refused::code).map(|appended| Placed {
                        base_offset: appended.assigned.base,
                        log_append_time: waiting.append_time,
                        log_start: appended.log_start,
                    });
                    waiting.owed.settle(result, *now);
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
    fn note_flush_wait(&self, owed: &Owed, end: Offset, now: Instant) {
        let waiting = self.awaiting_flush.borrow();
        if !waiting.is_empty() {
            owed.note_flush_wait(waiting.waited(end, now));
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
            if at != self.snapshot_kept.get() {
                // It has said so, and the next start replays more.
                let _stored = producers::store(&self.log(), at, bytes).await;
            }
        }
        StoppedPartition {
            name: self.log().name().clone(),
            id: self.id,
            recovery_point: self.log().recovery_point(),
            known_point: self.log().known_point(),
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
