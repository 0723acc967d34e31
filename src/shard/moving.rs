//! Moves of partitions to other log directories (KIP-113), one at a time.
//!
//! A move is accepted when its folder is there, so that a restart goes on with it, and waits its turn. It is
//! called off when the partition is deleted or sent elsewhere. What it takes of the core and of the disks is
//! bounded: after each slice comes the other work of the core, and it rests as long as
//! `replica.alter.log.dirs.io.max.bytes.per.second` asks for.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use thalweg_control::{DirIndex, FutureFound, MoveOutcome};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::event::Event;
use thalweg_reactor::{task, time};
use thalweg_storage::{Found, FutureLog, Log, MoveError};
use thalweg_types::limits::{
    MOVE_AGAIN_AFTER_MS, MOVE_LAST_BYTES_MAX, MOVE_LAST_STEPS_MAX, MOVE_UNCLOSED_BYTES_MAX,
};
use thalweg_types::{Offset, TopicPartition, Uuid};

use crate::partition::{LastStep, Partition};
use crate::question::{Answer, FutureSize, LogSize};
use crate::shard::Shard;

/// Until the next look at a log of which nothing is missing that was not closed yet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// How long a stop waits for the control plane to take note of a move.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Shorter rests are added up.
const REST_MIN: Duration = Duration::from_millis(5);

/// What is to become of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// It goes on.
    Yes,
    /// It is called off, and its folder goes.
    No,
    /// The next start goes on with its folder.
    Later,
}

/// One partition on its way.
struct Move {
    id: TopicPartition,
    to: DirIndex,
    future: RefCell<Option<FutureLog>>,
    wanted: Cell<Wanted>,
    /// Opened when it is not wanted any more.
    called: Event,
    /// Opened when the step under way that can not be called off is over.
    last_step: RefCell<Option<Event>>,
    reached: Cell<Offset>,
    bytes: Cell<u64>,
}

/// The moves of one shard.
#[derive(Default)]
pub(crate) struct Moves {
    all: RefCell<HashMap<TopicPartition, Rc<Move>>>,
    waiting: RefCell<VecDeque<Rc<Move>>>,
    /// Opened when the worker has nothing to do.
    working: RefCell<Option<Event>>,
    stopping: Cell<bool>,
    made: Cell<u64>,
}

impl Move {
    fn new(id: TopicPartition, to: DirIndex, future: FutureLog) -> Rc<Move> {
        Rc::new(Move {
            id,
            to,
            future: RefCell::new(Some(future)),
            wanted: Cell::new(Wanted::Yes),
            called: Event::new(),
            last_step: RefCell::default(),
            reached: Cell::new(Offset::ZERO),
            bytes: Cell::new(0),
        })
    }

    fn call(&self, wanted: Wanted) {
        if self.wanted.get() == Wanted::Yes {
            self.wanted.set(wanted);
            self.called.open();
        }
    }

    fn is_wanted(&self) -> bool {
        self.wanted.get() == Wanted::Yes
    }

    /// Waits, unless it is called off.
    async fn rest(&self, time: Duration) {
        let _called = time::timeout(time, self.called.wait()).await;
    }

    fn note(&self, future: &FutureLog) {
        self.reached.set(future.reached());
        self.bytes.set(future.size_bytes());
    }
}

impl Moves {
    fn get(&self, id: TopicPartition) -> Option<Rc<Move>> {
        self.all.borrow().get(&id).cloned()
    }

    /// A part of a folder's name that no other folder of this partition has.
    fn unique(&self) -> Uuid {
        let made = self.made.get() + 1;
        self.made.set(made);
        let now = u128::from(time::unix_ms().unsigned_abs());
        Uuid((now << 64 | u128::from(made)).to_be_bytes())
    }

    /// The partition is about to be deleted: returns when nothing changes its place any more.
    pub(crate) async fn leave(&self, id: TopicPartition) {
        let Some(of) = self.get(id) else { return };
        of.call(Wanted::No);
        let step = of.last_step.borrow().clone();
        if let Some(step) = step {
            step.wait().await;
        }
    }

    /// Nothing more is copied there.
    pub(crate) fn lose_directory(&self, dir: DirIndex) {
        for of in self.all.borrow().values().filter(|of| of.to == dir) {
            of.call(Wanted::Later);
        }
    }

    /// Returns when no move is under way any more, or only one that waits for the control plane, which may wait
    /// for this shard. The next start goes on with them.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        for of in self.all.borrow().values() {
            of.call(Wanted::Later);
        }
        let working = self.working.borrow().clone();
        if let Some(working) = working {
            let _ended = time::timeout(STOP_WAIT_MAX, working.wait()).await;
        }
        // A last step is short, and asks nobody.
        let all: Vec<_> = self.all.borrow().values().cloned().collect();
        for of in all {
            let step = of.last_step.borrow().clone();
            if let Some(step) = step {
                step.wait().await;
            }
        }
    }

    /// Tells of the copy, too.
    pub(crate) fn with_future(&self, partition: &Partition, answer: Answer) -> Answer {
        let Answer::Size(size) = answer else {
            return answer;
        };
        let of = self.get(partition.id()).filter(|of| of.is_wanted());
        let future = of.map(|of| FutureSize {
            bytes: of.bytes.get(),
            dir: of.to,
            lag: (partition.log().written_end().0 - of.reached.get().0).max(0),
        });
        Answer::Size(LogSize { future, ..size })
    }

    fn end(&self, of: &Rc<Move>) {
        let mut all = self.all.borrow_mut();
        if all.get(&of.id).is_some_and(|other| Rc::ptr_eq(other, of)) {
            all.remove(&of.id);
        }
    }
}

impl Shard {
    /// Accepts a move of this partition; where it is there already, calls another one off.
    ///
    /// # Errors
    /// Kafka's code: KAFKA_STORAGE_ERROR when one of the two places does not work.
    pub(crate) async fn begin_move(
        self: &Rc<Self>,
        partition: &Rc<Partition>,
        to: DirIndex,
    ) -> Result<(), ErrorCode> {
        let (id, log) = (partition.id(), partition.log());
        if partition.is_offline() || self.dir(to).failure().is_some() {
            return Err(ErrorCode::KafkaStorageError);
        }
        match self.moves.get(id) {
            Some(of) if of.to == to && of.is_wanted() => return Ok(()),
            Some(of) => {
                of.call(Wanted::No);
                // What has begun its last step is not called off any more: where it led is known then.
                let step = of.last_step.borrow().clone();
                if let Some(step) = step {
                    step.wait().await;
                }
            }
            None => {}
        }
        if partition.dir() == to {
            return Ok(());
        }
        let unique = self.moves.unique();
        let name = log.name().clone();
        let made = FutureLog::create(self.dir(to), name, id.topic, unique).await;
        let future = made.map_err(|error| {
            tracing::error!(partition = %log.name(), %error, "not moved");
            ErrorCode::KafkaStorageError
        })?;
        tracing::info!(partition = %log.name(), to = %future.dir().display(),
            "moving to another log directory");
        self.add_move(Move::new(id, to, future));
        Ok(())
    }

    /// Goes on with what a former life of the broker had begun. Of a log that is compacted nothing that is
    /// copied is believed.
    pub(crate) async fn resume_move(
        self: &Rc<Self>,
        partition: &Rc<Partition>,
        found: &FutureFound,
        compacts: bool,
    ) {
        let (id, log) = (partition.id(), partition.log());
        let believed = match compacts {
            true => Found::Ignored,
            false => Found::Believed,
        };
        let health = self.dir(found.dir);
        let name = log.name().clone();
        match FutureLog::resume(health, name, &found.folder, believed).await {
            Ok(future) => {
                tracing::info!(partition = %log.name(), to = %future.dir().display(),
                    "going on with a move to another log directory");
                self.add_move(Move::new(id, found.dir, future));
            }
            Err(error) => {
                tracing::error!(partition = %log.name(), %error, "a move does not go on");
            }
        }
    }

    fn add_move(self: &Rc<Self>, of: Rc<Move>) {
        let moves = &self.moves;
        if let Some(other) = moves.all.borrow_mut().insert(of.id, Rc::clone(&of)) {
            other.call(Wanted::No);
        }
        if moves.stopping.get() {
            of.call(Wanted::Later);
        }
        moves.waiting.borrow_mut().push_back(of);
        let mut working = moves.working.borrow_mut();
        if working.is_none() {
            *working = Some(Event::new());
            task::spawn(work(Rc::clone(self)));
        }
    }
}

/// Carries out moves until none waits.
async fn work(shard: Rc<Shard>) {
    loop {
        let next = shard.moves.waiting.borrow_mut().pop_front();
        let Some(of) = next else { break };
        carry_out(&shard, &of).await;
        shard.moves.end(&of);
    }
    if let Some(working) = shard.moves.working.take() {
        working.open();
    }
}

async fn carry_out(shard: &Rc<Shard>, of: &Rc<Move>) {
    let Some(mut future) = of.future.take() else {
        return;
    };
    let mut steps = 0;
    loop {
        let copied = copy(shard, of, &mut future).await;
        let partition = match copied {
            Ok(Some(partition)) => partition,
            Ok(None) => return put_away(of, future).await,
            Err(error) => return give_up(shard, of, future, &error).await,
        };
        if partition.dir() == of.to {
            of.call(Wanted::No);
            return put_away(of, future).await;
        }
        let health = shard.dir(of.to);
        let begun = shard.control.begin_move(of.id, of.to, future.reached());
        if begun.await != Some(Ok(())) {
            of.rest(Duration::from_millis(MOVE_AGAIN_AFTER_MS)).await;
            continue;
        }
        if !of.is_wanted() {
            let _ = shard.control.end_move(of.id, MoveOutcome::Stayed).await;
            return put_away(of, future).await;
        }
        let over = Event::new();
        of.last_step.replace(Some(over.clone()));
        let outcome = partition.last_step(future, of.to, health).await;
        of.last_step.replace(None);
        over.open();
        match outcome {
            LastStep::Moved { left, future } => {
                if let Err(error) = future.arrive(&left).await {
                    tracing::warn!(partition = %left.name(), %error,
                        "moved; the next start removes what is left in its old place");
                }
                let _ = shard.control.end_move(of.id, MoveOutcome::Moved).await;
                tracing::info!(partition = %left.name(), dir = %health.path().display(),
                    "moved to another log directory");
                return;
            }
            LastStep::NotYet(error, back) => {
                let _ = shard.control.end_move(of.id, MoveOutcome::Stayed).await;
                steps += 1;
                if !error.may_pass() || steps >= MOVE_LAST_STEPS_MAX {
                    return give_up(shard, of, back, &error).await;
                }
                future = back;
                of.rest(Duration::from_millis(MOVE_AGAIN_AFTER_MS)).await;
            }
            LastStep::Stayed(error) => {
                let _ = shard.control.end_move(of.id, MoveOutcome::Stayed).await;
                tracing::error!(partition = %partition.name(), %error,
                    "NOT MOVED: it stays where it is; ask for the move again when the cause is gone");
                return;
            }
        }
    }
}

/// Copies until little is missing; `None` when the move is not wanted any more.
async fn copy(
    shard: &Shard,
    of: &Move,
    future: &mut FutureLog,
) -> Result<Option<Rc<Partition>>, MoveError> {
    let mut is_rolled = false;
    let mut due = Duration::ZERO;
    loop {
        let partition = shard.partition(of.id).filter(|p| !p.is_offline());
        let health = shard.dir(of.to);
        if health.failure().is_some() {
            of.call(Wanted::Later);
        }
        let Some(partition) = partition else {
            let is_known = shard.view().image.partition(of.id).is_some();
            of.call(if is_known { Wanted::Later } else { Wanted::No });
            return Ok(None);
        };
        if !of.is_wanted() {
            return Ok(None);
        }
        if health.is_full() {
            of.rest(Duration::from_millis(MOVE_AGAIN_AFTER_MS)).await;
            continue;
        }
        let log = partition.log();
        let mut stepped = future.step(&log).await;
        of.note(future);
        let is_near = future.missing_bytes(&log) <= MOVE_LAST_BYTES_MAX;
        if stepped.is_ok() && is_near && !is_rolled {
            stepped = roll(&log, &mut is_rolled).await.and(stepped);
        } else if stepped.is_ok()
            && is_near
            && future.unclosed_bytes(&log) <= MOVE_UNCLOSED_BYTES_MAX
        {
            return Ok(Some(partition));
        }
        match stepped {
            Ok(0) => of.rest(LOOK_AGAIN_AFTER).await,
            Ok(bytes) => {
                // Other work of the core comes in between, whatever the budget.
                task::yield_now().await;
                due += budget(shard, bytes);
                if due >= REST_MIN {
                    of.rest(std::mem::take(&mut due)).await;
                }
            }
            Err(error) if error.may_pass() => {
                of.rest(Duration::from_millis(MOVE_AGAIN_AFTER_MS)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn roll(log: &Log, is_rolled: &mut bool) -> Result<(), MoveError> {
    log.roll_for_move().await?;
    *is_rolled = true;
    Ok(())
}

/// How long so many bytes have to take.
fn budget(shard: &Shard, bytes: u64) -> Duration {
    let view = shard.view();
    let rate = view.config.replica_alter_log_dirs_io_max_bytes_per_second();
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

/// A move that is called off leaves nothing; one that a start is to go on with leaves its folder.
async fn put_away(of: &Move, future: FutureLog) {
    match of.wanted.get() {
        Wanted::Yes | Wanted::Later => {}
        Wanted::No => {
            let dir = future.dir().to_owned();
            if let Err(error) = future.remove().await {
                tracing::warn!(dir = %dir.display(), %error, "the next start removes it");
            }
        }
    }
}

async fn give_up(shard: &Shard, of: &Move, future: FutureLog, error: &MoveError) {
    let works = shard.dir(of.to).failure().is_none();
    let is_served = shard.partition(of.id).is_some_and(|p| !p.is_offline());
    match works && is_served {
        true => of.call(Wanted::No),
        false => of.call(Wanted::Later),
    }
    tracing::error!(to = %future.dir().display(), %error,
        "NOT MOVED: the partition stays where it is; ask for the move again when the cause is gone");
    put_away(of, future).await;
}
