//! What happens to a log while a process lives.

use thalweg_reactor::{fs, task};
use thalweg_storage::{
    Checkpoint, CompactionLimits, CompactionOrder, LogError, RetentionLimits, StartKept,
};
use thalweg_types::{Offset, TimestampMs};

use crate::disk::Faults;
use crate::life::{Checkpoints, End, FILE_DELETE_DELAY, Life, Open, Step};
use crate::reads::{self, READ_BYTES};
use crate::writes::{append, options, sink};

/// `delete.retention.ms`.
const DELETE_RETENTION_MS: i64 = 3_000;

impl Life<'_> {
    /// Does something that the dice draw.
    pub(crate) async fn step(
        &mut self,
        open: &mut [Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<()> {
        let which_drawn = self.dice.below_len(open.len());
        let one = &mut open[which_drawn];
        match self.dice.below(110) {
            0..47 => {
                for _ in 0..=self.dice.below(4) {
                    append(one, &mut self.dice);
                }
                if self.dice.once_in(2) {
                    self.settle(one).await?;
                }
            }
            47..58 => self.flush(one).await?,
            58..66 => self.retain(one, checkpoints).await?,
            66..74 => self.record_progress(open, checkpoints).await?,
            74..78 => self.check_read(one).await?,
            78..82 => self.check_time(one).await?,
            82..86 => self.check_committed(one).await?,
            86..90 => self.mark(one, checkpoints).await?,
            90..99 => {
                let which = open.iter().position(|one| one.partition.policy.compacts());
                let which = which.unwrap_or(0).max(which_drawn);
                self.compact(&mut open[which], checkpoints).await?;
            }
            99 => self.replace_topic(one, checkpoints).await?,
            100..103 => self.set_short(true, false),
            103..105 => self.set_short(false, true),
            105.. => self.set_short(false, false),
        }
        for _ in 0..self.dice.below(8) {
            task::yield_now().await;
        }
        Ok(())
    }

    async fn flush(&mut self, one: &mut Open<'_>) -> Step<()> {
        let log = one.log.clone();
        if self.dice.once_in(3) {
            // Others go on meanwhile.
            drop(task::spawn(async move { log.flush().await }));
            return Ok(());
        }
        if self.may_lack_handles(log.flush().await)?.is_some() {
            one.partition.is_made = true;
        }
        Ok(())
    }

    async fn record_progress(
        &mut self,
        open: &mut [Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<()> {
        for one in open.iter() {
            // What it is to be told of transactions belongs below its recovery point, too.
            self.settle(one).await?;
            checkpoints.note_point(one.partition, one.log.recovery_point());
        }
        let written = checkpoints.write_points().await;
        self.may_lack_room(written)?;
        Ok(())
    }

    async fn retain(&mut self, one: &mut Open<'_>, checkpoints: &mut Checkpoints) -> Step<()> {
        if !one.partition.policy.deletes() {
            return Ok(());
        }
        let end = one.log.written_end();
        let start = if self.dice.once_in(4) {
            // DeleteRecords, in the middle of a batch or wherever.
            let start = one.log.start_offset().0;
            Offset(start + self.dice.below((end.0 - start).unsigned_abs() + 1) as i64)
        } else {
            let limits = RetentionLimits {
                age_ms: None,
                bytes: Some(self.dice.below(12_000)),
                ahead_max_ms: i64::MAX,
            };
            let due = one.log.due(limits, end, TimestampMs(0)).await;
            let Some(due) = self.may_fail_reading(due)?.flatten() else {
                return Ok(());
            };
            due.start
        };
        one.log.raise_start(start);
        one.partition.model.borrow_mut().start = start.0;
        let (name, topic) = (one.partition.name.clone(), one.partition.topic_id);
        checkpoints.log_starts.raise(name, topic, start);
        let starts = &checkpoints.log_starts;
        let written = checkpoints.dir.write_bound(Checkpoint::LogStart, starts);
        let written = written.await;
        let holds = matches!(written, Err(LogError::StartsHold(_)));
        let kept = match self.may_lack_room(written)? {
            None if holds => return Ok(()),
            Some(()) => {
                one.partition.model.borrow_mut().start_kept = start.0;
                StartKept::Durable
            }
            None => StartKept::ByFirstSegment,
        };
        self.keep_producers(one, one.log.removed_end(start)).await?;
        let removed = one.log.remove_segments(start, kept, FILE_DELETE_DELAY);
        let removed = removed.await;
        self.may_lack_handles(removed)?;
        Ok(())
    }

    /// Stores what the batches below `end` say of their producers, before they go (RP-69).
    async fn keep_producers(&mut self, one: &Open<'_>, end: Offset) -> Step<()> {
        let (kept, at, snapshot) = {
            let model = one.partition.model.borrow();
            let at = Offset(model.written);
            (model.snapshot_kept, at, model.producers.to_snapshot())
        };
        if one.log.snapshot_lasts(Offset(kept), end) {
            return Ok(());
        }
        let stored = one.log.store_lasting_snapshot(at, snapshot).await;
        let stored = self.may_lack_room(stored)?;
        let mut model = one.partition.model.borrow_mut();
        match stored {
            Some(()) => model.snapshot_kept = at.0,
            None => model.may_forget = true,
        }
        Ok(())
    }

    /// Lets a start after a kill check only what comes now.
    async fn mark(&mut self, one: &Open<'_>, checkpoints: &mut Checkpoints) -> Step<()> {
        self.settle(one).await?;
        let (at, snapshot) = {
            let model = one.partition.model.borrow();
            (Offset(model.written), model.producers.to_snapshot())
        };
        if self.dice.once_in(2) {
            let saved = one.log.save_way(at, snapshot).await;
            self.may_lack_room(saved)?;
        }
        one.partition.mark(&one.log, &mut checkpoints.marks);
        let written = checkpoints.dir.write_marks(&checkpoints.marks).await;
        self.may_lack_room(written)?;
        Ok(())
    }

    async fn check_read(&mut self, one: &Open<'_>) -> Step<()> {
        let (start, end) = (one.log.start_offset().0, one.log.written_end().0);
        let from = start + self.dice.below((end - start).unsigned_abs() + 1) as i64;
        let plan = one.log.read_plan(Offset(from), Offset(end), READ_BYTES);
        let Some(plan) = self.may_fail_reading(plan.await)? else {
            return Ok(());
        };
        let read = fs::read_at(&plan.file, plan.position, plan.len as usize).await;
        let Some(bytes) = self.may_fail_reading(read)? else {
            return Ok(());
        };
        let checked = one.partition.model.borrow().check_part(from, end, &bytes);
        checked.map_err(|text| self.broken_in(one, &text))
    }

    /// A lookup by time is what a look at every record gives (RP-98).
    async fn check_time(&mut self, one: &Open<'_>) -> Step<()> {
        self.settle(one).await?;
        let end = one.log.written_end().0;
        let target = 900 + self.dice.below(10 * end.unsigned_abs() + 300) as i64;
        let found = one.log.offset_for_timestamp(TimestampMs(target)).await;
        let Some(found) = self.may_fail_reading(found)? else {
            return Ok(());
        };
        let found = found.map(|hit| hit.offset.0);
        let start = one.log.start_offset().0;
        let wanted = one.partition.model.borrow().first_at(target, start);
        match found == wanted {
            true => Ok(()),
            false => {
                let text = format!("the time {target} is at {found:?} and not at {wanted:?}");
                Err(self.broken_in(one, &text))
            }
        }
    }

    /// Readers of committed data get what was committed, and no less (RP-75).
    pub(crate) async fn check_committed(&mut self, one: &Open<'_>) -> Step<()> {
        self.settle(one).await?;
        let (stable, known, wanted) = {
            let model = one.partition.model.borrow();
            let known = model.producers.first_unstable();
            let known = known.map_or(model.written, |first| first.0);
            let wanted = model.committed(one.log.start_offset().0);
            (model.last_stable(), known, wanted)
        };
        if known != stable && known >= one.log.start_offset().0 {
            let text = format!("stable up to {known}, by its batches up to {stable}");
            return Err(self.broken_in(one, &text));
        }
        let found = reads::committed(&one.log, Offset(stable)).await;
        let Some(found) = self.may_fail_reading(found)? else {
            return Ok(());
        };
        match found == wanted {
            true => Ok(()),
            false => {
                let text = format!("committed are {wanted:?}, read are {found:?}");
                Err(self.broken_in(one, &text))
            }
        }
    }

    /// Has the log cleaned while appends go on.
    async fn compact(&mut self, one: &mut Open<'_>, checkpoints: &mut Checkpoints) -> Step<()> {
        let Some(cleaner) = self.cleaner.clone() else {
            return Ok(());
        };
        let start_is_kept = {
            let model = one.partition.model.borrow();
            model.start == model.start_kept
        };
        // What lies below a start that a crash takes back would be compacted unseen.
        if !one.partition.policy.compacts() || !start_is_kept {
            return Ok(());
        }
        self.settle(one).await?;
        one.partition.clock += self.dice.below(4_000) as i64;
        let now = TimestampMs(one.partition.clock);
        let limits = CompactionLimits {
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            stable_end: Offset(one.partition.model.borrow().last_stable()),
            now,
        };
        let dirt = one.log.dirt(limits).await;
        let Some(dirt) = self.may_fail_reading(dirt)? else {
            return Ok(());
        };
        if dirt.dirty_bytes == 0 {
            return Ok(());
        }
        let live = {
            let mut model = one.partition.model.borrow_mut();
            model.on_cleaning(dirt.end.0, now.0);
            model.producers.last_written()
        };
        let order = CompactionOrder {
            dirt,
            now,
            delete_retention_ms: DELETE_RETENTION_MS,
            file_delete_delay: FILE_DELETE_DELAY,
            live,
        };
        let log = one.log.clone();
        let round = task::spawn(async move { log.compact(&cleaner, order).await });
        for _ in 0..self.dice.below(4) {
            append(one, &mut self.dice);
            for _ in 0..self.dice.below(30) {
                task::yield_now().await;
            }
        }
        let Some(done) = round.await else {
            return Err(End::Broken("a round of compaction was dropped".to_owned()));
        };
        let report = self.may_fail_reading(done)?;
        self.settle(one).await?;
        self.look_at_cleaned(one, report.map(|report| report.end.0))
            .await?;
        if report.is_some() && self.dice.once_in(2) {
            let (name, topic) = (one.partition.name.clone(), one.partition.topic_id);
            checkpoints
                .cleaned
                .insert(name, topic, one.log.first_dirty());
            let (which, cleaned) = (Checkpoint::Cleaner, &checkpoints.cleaned);
            let written = checkpoints.dir.write_bound(which, cleaned).await;
            self.may_lack_room(written)?;
        }
        Ok(())
    }

    async fn look_at_cleaned(&mut self, one: &Open<'_>, end: Option<i64>) -> Step<()> {
        let faults = self.disk.set_faults(Faults::default());
        let read = reads::read_range(&one.log, one.log.written_end()).await;
        self.disk.set_faults(faults);
        let bytes = self.ok(read)?;
        let checked = one.partition.model.borrow_mut().on_cleaned(&bytes, end);
        self.done.compactions += 1;
        checked.map_err(|text| self.broken_in(one, &text))
    }

    /// Deletes the topic and makes one of the same name. From the begin on the broker's metadata say that
    /// it is gone.
    async fn replace_topic(
        &mut self,
        one: &mut Open<'_>,
        checkpoints: &mut Checkpoints,
    ) -> Step<()> {
        if let Some(text) = one.partition.model.borrow_mut().broken.pop() {
            return Err(self.broken_in(one, &text));
        }
        one.partition.replace();
        let deleted = one.log.delete().await;
        self.or_end(deleted)?;
        one.partition.is_going = false;
        self.done.deletions += 1;
        let forgotten = checkpoints.forget_former(one.partition).await;
        self.or_end(forgotten)?;
        let options = options(one.partition, &checkpoints.dir);
        let (sink, way) = sink(one.partition);
        let (name, topic_id) = (one.partition.name.clone(), one.partition.topic_id);
        let made = thalweg_storage::Log::create(&self.root, name, topic_id, options, sink).await;
        // As the broker does.
        let made = made.inspect_err(|error| checkpoints.dir.health().judge_opening(error));
        one.log = self.or_end(made)?;
        way.lead_to(&one.log);
        one.way = way;
        let stored = self.begin_epoch(one.partition, &one.log, Default::default());
        let stored = stored.await;
        self.or_end(stored)
    }

    fn broken_in(&self, one: &Open<'_>, text: &str) -> End {
        End::Broken(format!("{}: {text}", one.log.name()))
    }
}
