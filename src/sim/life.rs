//! One life of a process: it opens the log directory, works, and ends in one way or another.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, ProducerSequence};
use thalweg_reactor::{fs, task};
use thalweg_replica::{EpochCache, Producers};
use thalweg_storage::{
    AppendBatch, Checkpoint, CleanMark, FormatPolicy, Log, LogDir, LogOptions, LogSink, OpenPolicy,
    Opening, PartitionName, PartitionOffsets, RecoveryReport, RetentionLimits, StartKept,
};
use thalweg_types::{
    BrokerId, ClusterId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, Uuid,
};

use crate::dice::Dice;
use crate::disk::{Faults, SimDisk};
use crate::model::{Appended, Found, Model};

/// Turns in which whatever was asked for must be over.
const PATIENCE_TURNS: u32 = 200_000;
/// Files that are replaced stay for the life of the process, for whose end timers do not wait.
const FILE_DELETE_DELAY: Duration = Duration::from_secs(3_600);
/// Bytes of one read of a log that is checked.
const READ_BYTES: u32 = 1_500;
/// Producers that write.
const PRODUCERS: u64 = 5;

/// A partition over all lives.
pub(crate) struct Partition {
    pub(crate) name: PartitionName,
    pub(crate) topic_id: Uuid,
    pub(crate) flush_messages: u64,
    pub(crate) model: Rc<RefCell<Model>>,
    /// Its directory was made durable once.
    pub(crate) is_made: bool,
    pub(crate) epoch: i32,
}

/// How the life before ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The clean marker was written.
    Cleanly,
    /// Without; what was written is in the page cache.
    Killed,
    /// The power went.
    PowerLost,
}

/// What has become of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The clean marker was written.
    StoppedCleanly,
    /// It ended without.
    Died,
}

/// Why a life can not go on.
pub(crate) enum End {
    /// The disk stopped or failed: what happens next is not asked.
    Disk(String),
    /// The rules are broken.
    Broken(String),
}

type Step<T> = Result<T, End>;

pub(crate) struct Life<'a> {
    pub(crate) disk: &'a Rc<SimDisk>,
    pub(crate) root: PathBuf,
    pub(crate) dice: Dice,
    pub(crate) before: Ended,
}

struct Open<'a> {
    partition: &'a mut Partition,
    log: Log,
    _way: WayToLog,
}

/// How a sink reaches its own log. The circle is broken when this goes.
struct WayToLog(Rc<RefCell<Option<Log>>>);

impl Drop for WayToLog {
    fn drop(&mut self) {
        let log = self.0.borrow_mut().take();
        drop(log);
    }
}

struct Checkpoints {
    dir: LogDir,
    recovery_points: PartitionOffsets,
    log_starts: PartitionOffsets,
    marks: PartitionOffsets,
}

impl Life<'_> {
    /// Lives it.
    pub(crate) async fn live(&mut self, partitions: &mut [Partition]) -> Step<Outcome> {
        let policy = OpenPolicy {
            node_id: BrokerId(1),
            cluster_id: None,
            format: FormatPolicy::WhenEmpty {
                cluster_id: ClusterId("simulated".to_owned()),
                directory_id: Uuid([9; 16]),
            },
        };
        let opened = LogDir::open(&self.root, policy).await;
        let dir = self.ok(opened)?;
        if self.before == Ended::Cleanly && !dir.was_clean() {
            return Err(End::Broken("the clean marker is gone".to_owned()));
        }
        self.ok(dir.begin().await)?;
        let found = self.ok(dir.partitions().await)?;
        let found: BTreeSet<_> = found.into_iter().map(|found| found.name).collect();
        let mut checkpoints = Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            log_starts: dir.loaded(Checkpoint::LogStart).clone(),
            marks: PartitionOffsets::new(),
            dir,
        };
        let mut open = Vec::new();
        for partition in partitions {
            let there = found.contains(&partition.name);
            open.push(self.open(partition, there, &checkpoints).await?);
        }
        let ended = self.work(&mut open, &mut checkpoints).await;
        let broken: Vec<String> = open
            .iter()
            .flat_map(|open| std::mem::take(&mut open.partition.model.borrow_mut().broken))
            .collect();
        match broken.first() {
            Some(text) => Err(End::Broken(text.clone())),
            None => ended,
        }
    }

    async fn work(
        &mut self,
        open: &mut [Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<Outcome> {
        let steps = self.dice.below(60);
        for _ in 0..steps {
            self.step(open, checkpoints).await?;
            self.check_online(open)?;
        }
        if self.dice.once_in(3) {
            return Ok(Outcome::Died);
        }
        self.set_full(false);
        for one in open.iter_mut() {
            self.settle(&one.log).await?;
            append(one, &mut self.dice);
            self.settle(&one.log).await?;
            self.check_appended(one)?;
        }
        self.stop(open, checkpoints).await
    }

    async fn step(&mut self, open: &mut [Open<'_>], checkpoints: &mut Checkpoints) -> Step<()> {
        let which = self.dice.below_len(open.len());
        let one = &mut open[which];
        match self.dice.below(100) {
            0..50 => {
                for _ in 0..=self.dice.below(4) {
                    append(one, &mut self.dice);
                }
                if self.dice.once_in(2) {
                    self.settle(&one.log).await?;
                }
            }
            50..62 => {
                let log = one.log.clone();
                match self.dice.once_in(3) {
                    // Others go on meanwhile.
                    true => drop(task::spawn(async move { log.flush().await })),
                    false => {
                        let flushed = log.flush().await;
                        self.ok(flushed)?;
                        one.partition.is_made = true;
                    }
                }
            }
            62..72 => self.retain(one, checkpoints).await?,
            72..80 => {
                for open in open.iter() {
                    let at = open.log.recovery_point();
                    let name = open.partition.name.clone();
                    checkpoints.recovery_points.insert(name, at);
                }
                let points = &checkpoints.recovery_points;
                let checkpoint = Checkpoint::RecoveryPoint;
                let written = checkpoints.dir.write_checkpoint(checkpoint, points).await;
                self.may_lack_room(written)?;
            }
            80..86 => self.check_read(one).await?,
            86..90 => self.mark(one, checkpoints).await?,
            90..94 => self.set_full(true),
            94.. => self.set_full(false),
        }
        for _ in 0..self.dice.below(8) {
            task::yield_now().await;
        }
        Ok(())
    }

    async fn open<'p>(
        &mut self,
        partition: &'p mut Partition,
        there: bool,
        checkpoints: &Checkpoints,
    ) -> Step<Open<'p>> {
        let options = options(partition, &checkpoints.dir);
        let (sink, way) = sink(partition);
        let name = partition.name.clone();
        if !there {
            if partition.is_made || partition.model.borrow().durable > 0 {
                return Err(End::Broken(format!("{name}: its directory is gone")));
            }
            *partition.model.borrow_mut() = Model::default();
            let made = Log::create(&self.root, name, partition.topic_id, options, sink).await;
            let log = self.ok(made)?;
            return self.lead(partition, log, way, EpochCache::default()).await;
        }
        let opening: Opening = checkpoints.dir.opening(&name, partition.topic_id);
        let opened = Log::open(&self.root, name, options, opening, sink).await;
        let (log, report) = self.ok(opened)?;
        if log.topic_id().is_none() {
            self.ok(log.store_topic_id(partition.topic_id).await)?;
        }
        let found = self.look_at(&log, &report).await?;
        let at_least = partition.model.borrow().written;
        let checked = partition.model.borrow_mut().reopened(&found, at_least);
        checked.map_err(|text| End::Broken(format!("{}: {text}", log.name())))?;
        self.lead(partition, log, way, report.epochs).await
    }

    /// Begins a leader epoch, as a broker does before it appends.
    async fn lead<'p>(
        &self,
        partition: &'p mut Partition,
        log: Log,
        way: WayToLog,
        mut epochs: EpochCache,
    ) -> Step<Open<'p>> {
        *way.0.borrow_mut() = Some(log.clone());
        partition.epoch += 1;
        let begins = log.written_end();
        // Whether the store's entries change is of no matter: it is stored anyway.
        let _change = epochs.assign(LeaderEpoch(partition.epoch), begins);
        self.ok(log.store_epochs(&epochs).await)?;
        Ok(Open {
            partition,
            log,
            _way: way,
        })
    }

    /// Reads all of an opened log. The disk is at peace meanwhile.
    async fn look_at(&mut self, log: &Log, report: &RecoveryReport) -> Step<Found> {
        let faults = self.disk.set_faults(Faults::default());
        let found = read_all(log, report).await;
        self.disk.set_faults(faults);
        self.ok(found)
    }

    async fn retain(&mut self, one: &mut Open<'_>, checkpoints: &mut Checkpoints) -> Step<()> {
        let limits = RetentionLimits {
            age_ms: None,
            bytes: Some(self.dice.below(12_000)),
            ahead_max_ms: i64::MAX,
        };
        let end = one.log.written_end();
        let due = one.log.due(limits, end, TimestampMs(0)).await;
        let Some(due) = self.may_fail_reading(due)?.flatten() else {
            return Ok(());
        };
        one.log.raise_start(due.start);
        one.partition.model.borrow_mut().start = due.start.0;
        let name = one.partition.name.clone();
        checkpoints.log_starts.insert(name, due.start);
        let starts = &checkpoints.log_starts;
        let written = checkpoints
            .dir
            .write_checkpoint(Checkpoint::LogStart, starts);
        let kept = match self.may_lack_room(written.await)? {
            Some(()) => {
                one.partition.model.borrow_mut().start_kept = due.start.0;
                StartKept::Durable
            }
            None => StartKept::ByFirstSegment,
        };
        let removed = one
            .log
            .remove_segments(due.start, kept, FILE_DELETE_DELAY)
            .await;
        self.ok(removed)?;
        Ok(())
    }

    /// Lets a start after a kill check only what comes now.
    async fn mark(&mut self, one: &Open<'_>, checkpoints: &mut Checkpoints) -> Step<()> {
        let (at, snapshot) = {
            let model = one.partition.model.borrow();
            (Offset(model.written), model.producers.to_snapshot())
        };
        let marked = one.log.set_mark(at, snapshot).await;
        if self.may_lack_room(marked)?.is_none() {
            return Ok(());
        }
        if let Some(mark) = one.log.mark() {
            checkpoints.marks.insert(one.partition.name.clone(), mark);
        }
        let written = checkpoints.dir.write_marks(&checkpoints.marks).await;
        self.may_lack_room(written)?;
        Ok(())
    }

    async fn check_read(&mut self, one: &Open<'_>) -> Step<()> {
        let (start, end) = (one.log.start_offset().0, one.log.written_end().0);
        let from = start + self.dice.below((end - start).unsigned_abs() + 1) as i64;
        let plan = one
            .log
            .read_plan(Offset(from), Offset(end), READ_BYTES)
            .await;
        let Some(plan) = self.may_fail_reading(plan)? else {
            return Ok(());
        };
        let read = fs::read_at(&plan.file, plan.position, plan.len as usize).await;
        let Some(bytes) = self.may_fail_reading(read)? else {
            return Ok(());
        };
        let checked = one.partition.model.borrow().check_part(from, end, &bytes);
        checked.map_err(End::Broken)
    }

    async fn stop(
        &mut self,
        open: &mut [Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<Outcome> {
        let mut closed = BTreeSet::new();
        for one in open.iter_mut() {
            let result = one.log.close().await;
            self.ok(result)?;
            one.partition.is_made = true;
            let name = one.partition.name.clone();
            closed.insert(name.clone());
            let (point, start) = (one.log.recovery_point(), one.log.start_offset());
            checkpoints.recovery_points.insert(name.clone(), point);
            checkpoints.log_starts.insert(name, start);
        }
        for (checkpoint, offsets) in [
            (Checkpoint::RecoveryPoint, &checkpoints.recovery_points),
            (Checkpoint::LogStart, &checkpoints.log_starts),
        ] {
            let written = checkpoints.dir.write_checkpoint(checkpoint, offsets).await;
            self.ok(written)?;
        }
        for one in open.iter() {
            let mut model = one.partition.model.borrow_mut();
            model.start_kept = model.start;
        }
        match self.ok(checkpoints.dir.mark_clean(-1, &closed).await)? {
            CleanMark::Written => Ok(Outcome::StoppedCleanly),
            CleanMark::Withheld(names) => Err(End::Broken(format!("no marker for {names:?}"))),
        }
    }

    async fn settle(&mut self, log: &Log) -> Step<()> {
        for _ in 0..PATIENCE_TURNS {
            if !log.is_writing() {
                return Ok(());
            }
            task::yield_now().await;
        }
        Err(End::Broken(format!("{} writes for ever", log.name())))
    }

    fn set_full(&mut self, full: bool) {
        let faults = self.disk.set_faults(Faults::default());
        self.disk.set_faults(Faults { full, ..faults });
    }

    /// With room there again, appends go on (ST-20).
    fn check_appended(&self, one: &Open<'_>) -> Step<()> {
        let happened = self.disk.happened();
        let (written, assigned) = (one.log.written_end(), one.log.assigned_end());
        let whole = one.partition.model.borrow().appended() == written.0;
        match whole && written == assigned {
            true => Ok(()),
            false if happened.crashed || happened.io_errors > 0 => {
                Err(End::Disk("not appended".to_owned()))
            }
            false => Err(End::Broken(format!("{} takes no appends", one.log.name()))),
        }
    }

    /// A lack of room takes no log offline (ST-20).
    fn check_online(&self, open: &[Open<'_>]) -> Step<()> {
        let happened = self.disk.happened();
        if happened.crashed {
            return Err(End::Disk("stopped".to_owned()));
        }
        let offline = open.iter().find(|open| open.log.is_offline());
        match offline {
            Some(open) if happened.io_errors == 0 => {
                Err(End::Broken(format!("{} is offline", open.log.name())))
            }
            Some(_) => Err(End::Disk("offline".to_owned())),
            None => Ok(()),
        }
    }

    /// An error is the disk's if the disk has given one, else it breaks the rules.
    fn ok<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Step<T> {
        let happened = self.disk.happened();
        result.map_err(|error| match happened.crashed || happened.io_errors > 0 {
            true => End::Disk(error.to_string()),
            false => broken(error),
        })
    }

    fn may_lack_room<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.disk.happened().no_room > 0 => Ok(None),
            Err(error) => self.ok(Err(error)),
        }
    }

    fn may_fail_reading<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.disk.happened().io_errors > 0 => Ok(None),
            Err(error) => self.ok(Err(error)),
        }
    }
}

fn broken(error: impl std::fmt::Display) -> End {
    End::Broken(error.to_string())
}

fn options(partition: &Partition, dir: &LogDir) -> LogOptions {
    LogOptions {
        segment_bytes: 4_000,
        index_interval_bytes: 300,
        flush_messages: partition.flush_messages,
        health: std::sync::Arc::clone(dir.health()),
        ..LogOptions::default()
    }
}

/// Tells the model what the log says, and stores the snapshots that are due then.
fn sink(partition: &Partition) -> (LogSink, WayToLog) {
    let log: Rc<RefCell<Option<Log>>> = Rc::default();
    let (model, inside) = (Rc::clone(&partition.model), Rc::clone(&log));
    let sink = Rc::new(move |event| {
        let snapshot = model.borrow_mut().on_event(&event);
        if let (Some((at, bytes)), Some(log)) = (snapshot, inside.borrow().clone()) {
            // Without it more is replayed, no more than that.
            task::spawn(async move { drop(log.store_snapshot(at, bytes).await) });
        }
    });
    (sink, WayToLog(log))
}

fn append(one: &mut Open<'_>, dice: &mut Dice) {
    let base = one.log.assigned_end();
    let epoch = LeaderEpoch(one.partition.epoch);
    let records = 1 + dice.below(6);
    let producer = dice.below(PRODUCERS);
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: base,
        leader_epoch: epoch,
        producer: (producer > 0).then(|| ProducerSequence {
            id: ProducerId(producer as i64),
            epoch: ProducerEpoch(0),
            base_sequence: dice.below(1_000_000) as i32,
        }),
        ..BatchOptions::default()
    });
    for i in 0..records {
        let value: Vec<u8> = (0..dice.below(300))
            .map(|_| dice.below(256) as u8)
            .collect();
        let timestamp = TimestampMs(1_000 + base.0 + i as i64);
        let pushed = builder.push(timestamp, None, Some(&value), &[]);
        pushed.expect("a small record");
    }
    let bytes = builder.build(Codec::None).expect("a small batch");
    let last = base.plus(records as i64 - 1);
    one.partition.model.borrow_mut().append(Appended {
        base: base.0,
        end: last.0 + 1,
        bytes: bytes.clone(),
    });
    one.log.append(AppendBatch {
        bytes,
        base_offset: base,
        last_offset: last,
        max_timestamp: TimestampMs(1_000 + last.0),
        offset_of_max_timestamp: last,
        leader_epoch: epoch,
    });
}

async fn read_all(log: &Log, report: &RecoveryReport) -> Result<Found, String> {
    let (start, end) = (log.start_offset(), log.written_end());
    let mut bytes = Vec::new();
    let mut at = start;
    while at < end {
        let plan = log.read_plan(at, end, READ_BYTES).await.map_err(text)?;
        if plan.next_offset <= at {
            return Err(format!("nothing is read at {at}"));
        }
        let read = fs::read_at(&plan.file, plan.position, plan.len as usize).await;
        bytes.extend_from_slice(&read.map_err(text)?);
        at = plan.next_offset;
    }
    Ok(Found {
        start: start.0,
        end: end.0,
        durable: log.durable_end().0,
        bytes,
        epochs: report.epochs.entries().to_vec(),
        producers: producers_of(log, report).await?,
    })
}

/// As the owner of a partition does when it opens one.
async fn producers_of(log: &Log, report: &RecoveryReport) -> Result<Producers, String> {
    let now = TimestampMs(0);
    let mut found = None;
    for at in &report.snapshots {
        let bytes = log.load_snapshot(*at).await.map_err(text)?;
        if let Ok(producers) = Producers::from_snapshot(&bytes, *at, now) {
            found = Some((producers, *at));
            break;
        }
    }
    let (mut producers, from) = found.unwrap_or_default();
    log.walk_headers(from, |header, _marker| {
        let _ended = producers.replay(header, now);
    })
    .await
    .map_err(text)?;
    Ok(producers)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
