//! The machine of one partition.

mod reading;
mod telling;

use thalweg_protocol::records::BatchSummary;
use thalweg_types::{BrokerId, LeaderEpoch, Offset, TimestampMs};

use crate::acked::{AckPoint, Acked};
use crate::epoch_cache::{EpochCache, EpochChange};
use crate::events::{
    Accepted, Acks, Appended, Assigned, Effect, Isolation, Leadership, ReplicaStart,
    StaleLeadership, StopReason, Token,
};
use crate::parked::{ByteCounts, ParkedFetches, ParkedProduce, ProduceQueue};
use crate::producers::{ProducerBatch, Producers, Verdict};
use crate::refused::Refused;

#[derive(Debug)]
enum Role {
    Leader(Leading),
    Stopped(StopReason),
}

#[derive(Debug)]
struct Leading {
    in_sync: Vec<BrokerId>,
    replica_count: u32,
    min_in_sync: u32,
    /// Log end when this leadership began (RP-9).
    epoch_start: Offset,
}

impl Leading {
    fn in_sync_count(&self) -> u32 {
        u32::try_from(self.in_sync.len()).unwrap_or(u32::MAX)
    }

    /// RP-5: more than there are replicas means all of them.
    fn needed(&self) -> u32 {
        self.min_in_sync.min(self.replica_count)
    }
}

/// One partition: leader with itself in sync, so far. Followers come later and have their place beside
/// these fields; of transactions it knows what stands in its log.
#[derive(Debug)]
pub struct Replica {
    local: BrokerId,
    role: Role,
    /// Newest leader epoch that the metadata named.
    epoch: LeaderEpoch,
    epochs: EpochCache,
    log_start: Offset,
    assigned_end: Offset,
    written_end: Offset,
    acked: Acked,
    high_watermark: Offset,
    await_acked: ProduceQueue,
    await_committed: ProduceQueue,
    byte_counts: ByteCounts,
    fetches: ParkedFetches,
    producers: Producers,
}

impl Replica {
    /// A replica over a recovered log. It serves nothing before [`Replica::become_leader`].
    ///
    /// # Panics
    /// When the start of the log, or what is durable of it, lies above its end.
    #[must_use]
    pub fn new(start: ReplicaStart) -> Replica {
        assert!(
            start.log_start <= start.log_end,
            "a log starts at or before its end"
        );
        assert!(
            start.durable_end <= start.log_end,
            "what is durable is written"
        );
        let high_watermark = start.high_watermark.clamp(start.log_start, start.log_end);
        let mut producers = start.producers;
        producers.on_committed(high_watermark);
        Replica {
            local: start.local,
            role: Role::Stopped(StopReason::NotLeader),
            epoch: LeaderEpoch::NONE,
            epochs: start.epochs,
            log_start: start.log_start,
            assigned_end: start.log_end,
            written_end: start.log_end,
            // What a former life has written may have been shown: it is not hidden again.
            acked: Acked::new(start.ack_point, start.durable_end, start.log_end),
            high_watermark,
            await_acked: ProduceQueue::default(),
            await_committed: ProduceQueue::default(),
            byte_counts: ByteCounts::default(),
            fetches: ParkedFetches::default(),
            producers,
        }
    }

    /// Takes a leadership, or an update of one: a higher epoch begins at the log's end, also when
    /// nothing is ever written in it (RP-20); the same epoch only brings other replicas in sync.
    ///
    /// # Errors
    /// [`StaleLeadership`] when the epoch is below one already known (RP-42, or metadata that lost
    /// its end). Nothing has changed then.
    ///
    /// # Panics
    /// When a new epoch begins while writes are in flight: a role change waits for them.
    pub fn become_leader(
        &mut self,
        leadership: &Leadership,
        out: &mut Vec<Effect>,
    ) -> Result<(), StaleLeadership> {
        let in_log = self
            .epochs
            .latest()
            .map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        let known = self.epoch.max(in_log);
        if leadership.epoch < known {
            return Err(StaleLeadership {
                given: leadership.epoch,
                known,
            });
        }
        assert!(leadership.epoch.0 >= 0, "the metadata gives epochs from 0");
        let epoch_start = match &self.role {
            Role::Leader(leading) if leadership.epoch == self.epoch => leading.epoch_start,
            Role::Leader(_) | Role::Stopped(_) => self.begin_epoch(leadership.epoch, out),
        };
        self.role = Role::Leader(Leading {
            in_sync: leadership.in_sync.clone(),
            replica_count: u32::try_from(leadership.replicas.len()).unwrap_or(u32::MAX),
            min_in_sync: leadership.min_in_sync,
            epoch_start,
        });
        self.move_high_watermark(out);
        Ok(())
    }

    fn begin_epoch(&mut self, epoch: LeaderEpoch, out: &mut Vec<Effect>) -> Offset {
        assert_eq!(
            self.assigned_end, self.written_end,
            "nothing is in flight at a role change"
        );
        self.epoch = epoch;
        let start = self.written_end;
        if self.epochs.assign(epoch, start) == EpochChange::Changed {
            out.push(Effect::EpochStarted { epoch, start });
        }
        self.wake_all(out);
        start
    }

    /// The topic's min.insync.replicas changed.
    pub fn on_min_in_sync(&mut self, min_in_sync: u32, out: &mut Vec<Effect>) {
        if let Role::Leader(leading) = &mut self.role {
            leading.min_in_sync = min_in_sync;
        }
        self.move_high_watermark(out);
    }

    /// Stops serving: everything parked is answered or woken. `epoch` is the leader epoch that the
    /// metadata names with it, if it does; later requests are fenced by it.
    pub fn stop(&mut self, why: StopReason, epoch: Option<LeaderEpoch>, out: &mut Vec<Effect>) {
        self.role = Role::Stopped(why);
        self.epoch = self.epoch.max(epoch.unwrap_or(LeaderEpoch::NONE));
        self.fail_produces(Offset(-1), why.refusal(), out);
        self.wake_all(out);
    }

    /// A producer's batch, already validated. Its offsets are assigned now; the shell patches them
    /// in and hands the batch to storage before anything else of this partition. A retry of a batch
    /// that is remembered is answered with the original's offsets instead, perhaps at once by `out`
    /// (RP-63, RP-14). `now` is the broker's clock.
    ///
    /// # Errors
    /// A refusal: nothing is assigned and the token is not taken.
    pub fn on_produce(
        &mut self,
        now: TimestampMs,
        batch: &BatchSummary,
        acks: Acks,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Result<Accepted, Refused> {
        let leading = self.leading()?;
        if batch.is_control {
            return Err(Refused::ControlBatch);
        }
        if batch.is_transactional {
            return Err(Refused::TransactionsNotSupported);
        }
        let (in_sync, needed) = (leading.in_sync_count(), leading.needed());
        if acks == Acks::All && in_sync < needed {
            return Err(Refused::NotEnoughReplicas { in_sync, needed });
        }
        let delta = batch.last_offset_delta;
        if let Some(claim) = batch.producer {
            match self.producers.judge(claim, delta)? {
                Verdict::New => {}
                Verdict::Retry(original) => {
                    return Ok(self.on_retry(&original, acks, token, out));
                }
            }
        }
        let base = self.assigned_end;
        let end = base.plus(i64::from(delta) + 1);
        let assigned = Assigned {
            base,
            end,
            epoch: self.epoch,
        };
        assert!(end > base, "a validated batch has records");
        self.assigned_end = end;
        if let Some(claim) = batch.producer {
            let (last, timestamp) = (Offset(end.0 - 1), batch.max_timestamp);
            self.producers
                .on_assigned(claim, delta, last, timestamp, now);
        }
        self.byte_counts
            .on_assigned(end, u64::try_from(batch.bytes).unwrap_or(u64::MAX));
        let parked = ParkedProduce { token, assigned };
        match acks {
            Acks::None | Acks::Leader => self.await_acked.push(parked),
            Acks::All => self.await_committed.push(parked),
        }
        Ok(Accepted::Append(assigned))
    }

    /// The original may be in flight, written, or deleted long ago (RP-69).
    fn on_retry(
        &mut self,
        original: &ProducerBatch,
        acks: Acks,
        token: Token,
        out: &mut Vec<Effect>,
    ) -> Accepted {
        let assigned = Assigned {
            base: original.base_offset(),
            end: original.last_offset.plus(1),
            epoch: self.epoch,
        };
        let parked = ParkedProduce { token, assigned };
        let (queue, passed) = match acks {
            Acks::None | Acks::Leader => (&mut self.await_acked, self.acked.end()),
            Acks::All => (&mut self.await_committed, self.high_watermark),
        };
        if assigned.end <= passed {
            self.answer(parked, out);
        } else {
            queue.insert(parked);
        }
        Accepted::Retry {
            timestamp: original.timestamp,
        }
    }

    /// Storage has written everything below `end`.
    ///
    /// # Panics
    /// When `end` lies outside what was assigned and not yet written.
    pub fn on_written(&mut self, end: Offset, out: &mut Vec<Effect>) {
        assert!(
            self.written_end <= end && end <= self.assigned_end,
            "written what was assigned"
        );
        self.written_end = end;
        self.producers.on_written(end);
        self.acked.on_written(end);
        self.move_acked(out);
    }

    /// Storage has everything below `end` on the disk.
    ///
    /// # Panics
    /// When `end` lies above what is written.
    pub fn on_durable(&mut self, end: Offset, out: &mut Vec<Effect>) {
        assert!(end <= self.written_end, "durable what was written");
        self.acked.on_durable(end);
        self.move_acked(out);
    }

    /// The topic's flush.messages changed. What has counted goes on to count.
    pub fn on_ack_point(&mut self, point: AckPoint, out: &mut Vec<Effect>) {
        self.acked.set_point(point, self.written_end);
        self.move_acked(out);
    }

    fn move_acked(&mut self, out: &mut Vec<Effect>) {
        while let Some(parked) = self.await_acked.pop_before(self.acked.end()) {
            self.answer(parked, out);
        }
        self.move_high_watermark(out);
    }

    /// Storage could not write what begins at `from`, and dropped all that was queued behind it:
    /// the offsets are free again.
    ///
    /// # Panics
    /// When `from` lies outside what was assigned and not yet written.
    pub fn on_write_failed(&mut self, from: Offset, out: &mut Vec<Effect>) {
        assert!(
            self.written_end <= from && from <= self.assigned_end,
            "failed what was assigned"
        );
        self.assigned_end = from;
        self.byte_counts.on_rewound(from);
        self.producers.on_rewound(from);
        self.fail_produces(from, Refused::StorageFailed, out);
    }

    /// The log now starts at `start` (deleted segments, DeleteRecords). Lower than before: ignored.
    ///
    /// # Panics
    /// When `start` lies above the high watermark: nothing uncommitted is ever deleted.
    pub fn on_log_start(&mut self, start: Offset, out: &mut Vec<Effect>) {
        if start <= self.log_start {
            return;
        }
        assert!(
            start <= self.high_watermark,
            "the log start stays at or below the high watermark"
        );
        self.log_start = start;
        if self.epochs.truncate_from_start(start) == EpochChange::Changed {
            out.push(Effect::EpochsTrimmed);
        }
        self.wake_all(out);
    }

    /// Forgets producers that have not written for `keep_ms` (`producer.id.expiration.ms`), and keeps
    /// at most `max`. Says how many are left.
    pub fn expire_producers(&mut self, now: TimestampMs, keep_ms: i64, max: usize) -> usize {
        self.producers.expire(now, keep_ms);
        self.producers.limit(max);
        self.producers.len()
    }

    /// What the log says of its producers up to the written end: the content of a `.snapshot` file,
    /// and the offset that names it.
    #[must_use]
    pub fn producer_snapshot(&self) -> (Offset, Vec<u8>) {
        (self.written_end, self.producers.to_snapshot())
    }

    fn leading(&self) -> Result<&Leading, Refused> {
        match &self.role {
            Role::Leader(leading) => Ok(leading),
            Role::Stopped(why) => Err(why.refusal()),
        }
    }

    /// RP-35.
    fn check_epoch(&self, asked: LeaderEpoch) -> Result<(), Refused> {
        let current = self.epoch;
        if asked == LeaderEpoch::NONE || asked == current {
            Ok(())
        } else if asked < current {
            Err(Refused::FencedEpoch { asked, current })
        } else {
            Err(Refused::UnknownEpoch { asked, current })
        }
    }

    fn out_of_range(&self, offset: Offset) -> Refused {
        Refused::OutOfRange {
            offset,
            start: self.log_start,
            end: self.written_end,
        }
    }

    /// Where the first open transaction begins, or the high watermark: what a committed reader may read
    /// ends there (RP-74).
    #[must_use]
    pub fn last_stable(&self) -> Offset {
        let unstable = self.producers.first_unstable();
        unstable.map_or(self.high_watermark, |first| first.min(self.high_watermark))
    }

    fn visible_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable(),
        }
    }

    /// Up to where every replica in sync has the log. Followers' progress is not known yet, so
    /// with one in sync it stays where it is.
    fn committed_end(&self, leading: &Leading) -> Offset {
        let alone = leading.in_sync.iter().all(|id| *id == self.local);
        let enough = leading.in_sync_count() >= leading.needed();
        if alone && enough {
            self.acked.end()
        } else {
            self.high_watermark
        }
    }

    fn move_high_watermark(&mut self, out: &mut Vec<Effect>) {
        let Role::Leader(leading) = &self.role else {
            return;
        };
        let to = self.committed_end(leading);
        if to <= self.high_watermark {
            return;
        }
        self.high_watermark = to;
        self.producers.on_committed(to);
        self.byte_counts.on_visible(to);
        out.push(Effect::HighWatermarkMoved(to));
        while let Some(parked) = self.await_committed.pop_before(to) {
            self.answer(parked, out);
        }
        while let Some(token) = self.fetches.pop_due(self.byte_counts.visible()) {
            out.push(Effect::WakeFetch { token });
        }
    }

    fn answer(&self, parked: ParkedProduce, out: &mut Vec<Effect>) {
        let appended = Appended {
            assigned: parked.assigned,
            log_start: self.log_start,
        };
        out.push(Effect::AnswerProduce {
            token: parked.token,
            outcome: Ok(appended),
        });
    }

    fn fail_produces(&mut self, from: Offset, why: Refused, out: &mut Vec<Effect>) {
        for queue in [&mut self.await_acked, &mut self.await_committed] {
            while let Some(parked) = queue.pop_from(from) {
                out.push(Effect::AnswerProduce {
                    token: parked.token,
                    outcome: Err(why),
                });
            }
        }
    }

    fn wake_all(&mut self, out: &mut Vec<Effect>) {
        while let Some(token) = self.fetches.pop_any() {
            out.push(Effect::WakeFetch { token });
        }
    }
}
