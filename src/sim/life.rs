//! One life of a process: it opens the log directory, works, and ends in one way or another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::task;
use thalweg_replica::EpochCache;
use thalweg_storage::{
    BoundOffsets, Budget, Checkpoint, CleanMark, Cleaner, DirHealth, FormatPolicy, Log, LogDir,
    LogError, OpenPolicy, PartitionDir, PartitionName, PartitionOffsets, RecoveryPoints,
    RecoveryReport,
};
use thalweg_types::{BrokerId, ClusterId, LeaderEpoch, Offset, Uuid};

use crate::dice::Dice;
use crate::disk::{Faults, SimDisk};
use crate::model::{Found, Model};
use crate::panics;
use crate::partition::Partition;
use crate::reads::{check_names, read_all};
use crate::writes::{WayToLog, append, options, sink};

/// Turns in which whatever was asked for must be over.
const PATIENCE_TURNS: u32 = 200_000;
/// Turns in which whoever waits for an operation has been told that it failed.
const TELLING_TURNS: u32 = 10_000;
/// Files that are replaced stay for the life of the process, for whose end timers do not wait.
pub(crate) const FILE_DELETE_DELAY: Duration = Duration::from_secs(3_600);

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

pub(crate) type Step<T> = Result<T, End>;

pub(crate) struct Life<'a> {
    pub(crate) disk: &'a Rc<SimDisk>,
    pub(crate) root: PathBuf,
    pub(crate) dice: Dice,
    pub(crate) before: Ended,
    pub(crate) cleaner: Option<Cleaner>,
    /// Of the directory, once its logs are open.
    pub(crate) health: Option<Arc<DirHealth>>,
    /// Says that logs have to begin at their starts, as a broker does.
    pub(crate) keeps_starts: bool,
    pub(crate) done: Done,
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) compactions: u64,
    pub(crate) deletions: u64,
}

pub(crate) struct Open<'a> {
    pub(crate) partition: &'a mut Partition,
    pub(crate) log: Log,
    pub(crate) way: WayToLog,
}

/// The files in the root of the log directory, as this life will leave them.
pub(crate) struct Checkpoints {
    pub(crate) dir: LogDir,
    recovery_points: PartitionOffsets,
    /// The same by topic ids.
    known_points: RecoveryPoints,
    pub(crate) log_starts: BoundOffsets,
    pub(crate) cleaned: BoundOffsets,
    pub(crate) marks: BoundOffsets,
}

impl Checkpoints {
    fn of(dir: LogDir) -> Checkpoints {
        Checkpoints {
            recovery_points: dir.loaded(Checkpoint::RecoveryPoint).clone(),
            known_points: dir.known_points().cloned().unwrap_or_default(),
            log_starts: dir.bound(Checkpoint::LogStart).clone(),
            cleaned: dir.bound(Checkpoint::Cleaner).clone(),
            marks: dir.found_marks().clone(),
            dir,
        }
    }

    /// Writes all that are durable.
    pub(crate) async fn write(&self) -> Result<(), LogError> {
        for (checkpoint, entries) in [
            (Checkpoint::LogStart, &self.log_starts),
            (Checkpoint::Cleaner, &self.cleaned),
        ] {
            self.dir.write_bound(checkpoint, entries).await?;
        }
        self.write_points().await
    }

    /// Writes down how far the logs are on the disk.
    pub(crate) async fn write_points(&self) -> Result<(), LogError> {
        let (checkpoint, offsets) = (Checkpoint::RecoveryPoint, &self.recovery_points);
        self.dir.write_checkpoint(checkpoint, offsets).await?;
        self.dir.write_known_points(&self.known_points).await
    }

    /// The log of this partition is on the disk below `at`.
    pub(crate) fn note_point(&mut self, partition: &Partition, at: Offset) {
        self.recovery_points.insert(partition.name.clone(), at);
        self.known_points.insert(partition.id(), at);
    }

    /// Takes away what they say of a log that is gone.
    pub(crate) async fn forget(&mut self, name: &PartitionName) -> Result<(), LogError> {
        let known = [
            self.recovery_points.remove(name).is_some(),
            self.log_starts.remove(name),
            self.cleaned.remove(name),
        ];
        if known.contains(&true) {
            self.write().await?;
        }
        match self.marks.remove(name) {
            true => self.dir.write_marks(&self.marks).await,
            false => Ok(()),
        }
    }

    /// As [`Checkpoints::forget`], where another topic has the name now: every third time not at all, because all of it
    /// names the topic.
    pub(crate) async fn forget_former(&mut self, partition: &Partition) -> Result<(), LogError> {
        match partition.topic_id.0[15] % 3 {
            0 => Ok(()),
            _others => self.forget(&partition.name).await,
        }
    }
}

impl Life<'_> {
    /// Lives it.
    pub(crate) async fn live(&mut self, partitions: &mut [Partition]) -> Step<Outcome> {
        self.cleaner = Some(self.begin_cleaner());
        let opened = LogDir::open(&self.root, policy()).await;
        let dir = self.ok(opened)?;
        if self.before == Ended::Cleanly && !dir.was_clean() {
            return Err(End::Broken("the clean marker is gone".to_owned()));
        }
        self.ok(dir.begin().await)?;
        let found = self.ok(dir.partitions().await)?;
        check_names(&self.root).map_err(End::Broken)?;
        let mut checkpoints = Checkpoints::of(dir);
        let mut open = Vec::new();
        for partition in partitions {
            let there = found.iter().find(|found| found.name == partition.name);
            let there = self.is_there(partition, there, &checkpoints).await?;
            open.push(self.open(partition, there, &mut checkpoints).await?);
        }
        let recorded = checkpoints.dir.record_whole(&BTreeMap::new()).await;
        self.ok(recorded)?;
        self.replace_marks(&open, &mut checkpoints).await?;
        if self.keeps_starts {
            self.keep_starts(&open, &mut checkpoints).await?;
        }
        self.health = Some(Arc::clone(checkpoints.dir.health()));
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

    /// A change that failed has condemned the directory, whoever had asked for it (R1).
    pub(crate) async fn check_condemned(&self) -> Step<()> {
        let happened = self.disk.happened();
        let Some(health) = &self.health else {
            return Ok(());
        };
        if happened.changes_failed == 0 || happened.crashed {
            return Ok(());
        }
        for _ in 0..TELLING_TURNS {
            if health.failure().is_some() {
                return Ok(());
            }
            task::yield_now().await;
        }
        let text = "a change of a file failed with an EIO, and its directory goes on";
        Err(End::Broken(text.to_owned()))
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
        self.set_short(false, false);
        for one in open.iter_mut() {
            self.settle(one).await?;
            append(one, &mut self.dice);
            self.settle(one).await?;
            self.check_appended(one)?;
            self.check_committed(one).await?;
        }
        self.stop(open, checkpoints).await
    }

    fn begin_cleaner(&mut self) -> Cleaner {
        let budget = Budget {
            // Sometimes not enough for all keys: then a round ends early.
            map_bytes: [150, 1 << 20][self.dice.below_len(2)],
            map_load: 0.9,
            io_bytes: 700,
            bytes_per_second: f64::MAX,
        };
        // Sometimes so little that what is left of a segment becomes several.
        let segment_bytes_max = [1_500, 1 << 30][self.dice.below_len(2)];
        Cleaner::on_this_thread(budget, segment_bytes_max)
    }

    /// Whether the partition has a directory. One of a topic that was being deleted is set aside, as the
    /// broker does with what it does not know (ST-15).
    async fn is_there(
        &mut self,
        partition: &mut Partition,
        found: Option<&PartitionDir>,
        checkpoints: &Checkpoints,
    ) -> Step<bool> {
        let was_going = std::mem::take(&mut partition.is_going);
        let Some(found) = found else {
            return Ok(false);
        };
        if was_going {
            let aside = checkpoints.dir.set_aside(found).await;
            self.ok(aside)?;
            return Ok(false);
        }
        match found.topic_id {
            Some(id) if id != partition.topic_id => Err(End::Broken(format!(
                "{}: a deleted topic is back",
                partition.name
            ))),
            Some(_) | None => Ok(true),
        }
    }

    async fn open<'p>(
        &mut self,
        partition: &'p mut Partition,
        there: bool,
        checkpoints: &mut Checkpoints,
    ) -> Step<Open<'p>> {
        let options = options(partition, &checkpoints.dir);
        let (sink, way) = sink(partition);
        let name = partition.name.clone();
        if !there {
            if partition.is_made || partition.model.borrow().durable > 0 {
                return Err(End::Broken(format!("{name}: its directory is gone")));
            }
            *partition.model.borrow_mut() = Model::default();
            // What they say of another topic of this name must not be taken for what they say of this one.
            self.ok(checkpoints.forget(&name).await)?;
            let made = Log::create(&self.root, name, partition.topic_id, options, sink).await;
            let log = self.ok(made)?;
            return self.lead(partition, log, way, EpochCache::default()).await;
        }
        let opening = partition.opening(&checkpoints.dir);
        let opened = Log::open(&self.root, name, options, opening, sink).await;
        let (log, report) = self.ok(opened)?;
        if log.topic_id().is_none() {
            self.ok(log.store_topic_id(partition.topic_id).await)?;
        }
        check_names(log.dir()).map_err(End::Broken)?;
        let found = self.look_at(&log, &report).await?;
        let at_least = partition.model.borrow().written;
        let checked = partition.model.borrow_mut().reopened(&found, at_least);
        checked.map_err(|text| End::Broken(format!("{}: {text}", log.name())))?;
        self.lead(partition, log, way, report.epochs).await
    }

    async fn lead<'p>(
        &mut self,
        partition: &'p mut Partition,
        log: Log,
        way: WayToLog,
        epochs: EpochCache,
    ) -> Step<Open<'p>> {
        way.lead_to(&log);
        let stored = self.begin_epoch(partition, &log, epochs).await;
        self.ok(stored)?;
        Ok(Open {
            partition,
            log,
            way,
        })
    }

    /// Begins a leader epoch, as a broker does before it appends.
    pub(crate) async fn begin_epoch(
        &mut self,
        partition: &mut Partition,
        log: &Log,
        mut epochs: EpochCache,
    ) -> Result<(), LogError> {
        partition.epoch += 1;
        let begins = log.written_end();
        // Whether the store's entries change is of no matter: it is stored anyway.
        let _change = epochs.assign(LeaderEpoch(partition.epoch), begins);
        if self.dice.once_in(2) {
            log.owe_epochs(&epochs);
            return Ok(());
        }
        log.store_epochs(&epochs).await
    }

    /// As a broker does before anything is written to the logs of a start.
    async fn replace_marks(
        &mut self,
        open: &[Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<()> {
        checkpoints.marks = BoundOffsets::default();
        for one in open {
            one.partition.mark(&one.log, &mut checkpoints.marks);
        }
        let written = checkpoints.dir.write_marks(&checkpoints.marks).await;
        if self.may_lack_room(written)?.is_none() {
            self.or_end(checkpoints.dir.forget_marks().await)?;
        }
        Ok(())
    }

    /// As a broker does when its logs are open.
    async fn keep_starts(&mut self, open: &[Open<'_>], checkpoints: &mut Checkpoints) -> Step<()> {
        for one in open {
            let (name, topic) = (one.partition.name.clone(), one.partition.topic_id);
            let start = one.log.start_offset();
            checkpoints.log_starts.raise(name, topic, start);
        }
        let starts = &checkpoints.log_starts;
        let written = checkpoints.dir.write_bound(Checkpoint::LogStart, starts);
        if self.may_lack_room(written.await)?.is_some() {
            for one in open {
                let mut model = one.partition.model.borrow_mut();
                model.start_kept = model.start;
            }
            checkpoints.dir.keep_starts().await;
        }
        Ok(())
    }

    /// Reads all of an opened log. The disk is at peace meanwhile.
    async fn look_at(&mut self, log: &Log, report: &RecoveryReport) -> Step<Found> {
        let faults = self.disk.set_faults(Faults::default());
        let found = read_all(log, report).await;
        self.disk.set_faults(faults);
        self.ok(found)
    }

    async fn stop(
        &mut self,
        open: &mut [Open<'_>],
        checkpoints: &mut Checkpoints,
    ) -> Step<Outcome> {
        let mut closed = BTreeSet::new();
        for one in open.iter_mut() {
            let has_to_tell = one.partition.model.borrow().has_to_tell();
            if has_to_tell {
                self.settle(one).await?;
            }
            let result = one.log.close().await;
            self.ok(result)?;
            one.partition.is_made = true;
            let name = one.partition.name.clone();
            closed.insert(name.clone());
            checkpoints.note_point(one.partition, one.log.recovery_point());
            let (topic, start) = (one.partition.topic_id, one.log.start_offset());
            checkpoints.log_starts.insert(name, topic, start);
        }
        self.ok(checkpoints.write().await)?;
        for one in open.iter() {
            let mut model = one.partition.model.borrow_mut();
            model.start_kept = model.start;
        }
        match self.ok(checkpoints.dir.mark_clean(-1, &closed).await)? {
            CleanMark::Written => Ok(Outcome::StoppedCleanly),
            CleanMark::Withheld(names) => Err(End::Broken(format!("no marker for {names:?}"))),
        }
    }

    /// Waits until nothing is written and the log knows of every transaction that was aborted.
    pub(crate) async fn settle(&mut self, one: &Open<'_>) -> Step<()> {
        for _ in 0..PATIENCE_TURNS {
            if let Some(text) = panics::take() {
                return Err(End::Broken(format!("a task panics: {text}")));
            }
            if !one.log.is_writing() && one.partition.model.borrow().telling == 0 {
                let not_told = one.partition.model.borrow_mut().not_told.take();
                return self.ok(not_told.map_or(Ok(()), Err));
            }
            task::yield_now().await;
        }
        Err(End::Broken(format!("{} writes for ever", one.log.name())))
    }

    /// The disk is full, or the process has no file handles left, or both, or neither.
    pub(crate) fn set_short(&mut self, full: bool, out_of_handles: bool) {
        let faults = self.disk.set_faults(Faults::default());
        self.disk.set_faults(Faults {
            full,
            out_of_handles,
            ..faults
        });
    }

    /// With room there again, appends go on (ST-20).
    pub(crate) fn check_appended(&self, one: &Open<'_>) -> Step<()> {
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
    pub(crate) fn ok<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Step<T> {
        let happened = self.disk.happened();
        result.map_err(|error| match happened.crashed || happened.io_errors > 0 {
            true => End::Disk(error.to_string()),
            false => broken(error),
        })
    }

    /// What can not be done now is done in the next life.
    pub(crate) fn or_end<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Step<T> {
        let done = self.may_lack_room(result)?;
        done.ok_or_else(|| End::Disk("not now".to_owned()))
    }

    /// Without a file handle some things wait; nothing is lost then (ST-21).
    pub(crate) fn may_lack_handles<T, E: std::fmt::Display>(
        &self,
        result: Result<T, E>,
    ) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.disk.happened().no_handles > 0 => Ok(None),
            Err(error) => self.ok(Err(error)),
        }
    }

    pub(crate) fn may_lack_room<T, E: std::fmt::Display>(
        &self,
        result: Result<T, E>,
    ) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.disk.happened().lacks() => Ok(None),
            Err(error) => self.ok(Err(error)),
        }
    }

    pub(crate) fn may_fail_reading<T, E: std::fmt::Display>(
        &self,
        result: Result<T, E>,
    ) -> Step<Option<T>> {
        let happened = self.disk.happened();
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if happened.io_errors > 0 || happened.lacks() => Ok(None),
            Err(error) => self.ok(Err(error)),
        }
    }
}

/// The directory is this broker's, and is made if it is missing.
pub(crate) fn policy() -> OpenPolicy {
    OpenPolicy {
        node_id: BrokerId(1),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId("simulated".to_owned()),
            directory_id: Uuid([9; 16]),
        },
    }
}

fn broken(error: impl std::fmt::Display) -> End {
    End::Broken(error.to_string())
}
