//! Moves of partitions to other log directories (KIP-113), one at a time.
//!
//! A move is accepted when its folder is there, so that a restart goes on with it, and waits its turn. It is
//! called off when the partition is deleted or sent elsewhere. What it takes of the core and of the disks is
//! bounded: after each slice comes the other work of the core, and it rests as long as
//! `replica.alter.log.dirs.io.max.bytes.per.second` asks for. Producers on the target come first: nothing is copied
//! that does not fit above its headroom, and where it is full all the same, what was copied is given back.

mod copying;
mod patience;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use thalweg_control::{DirIndex, FutureFound, MoveOutcome};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::event::Event;
use thalweg_reactor::{task, time};
use thalweg_storage::{Found, FutureLog, Log, MoveError, MoveRoom};
use thalweg_types::limits::MOVE_AGAIN_AFTER_MS;
use thalweg_types::{Offset, TopicPartition, Uuid};

use self::copying::{Copied, copy};
use self::patience::Patience;
use crate::partition::{LastStep, Partition};
use crate::question::{Answer, FutureSize, LogSize};
use crate::shard::Shard;

/// How long a stop waits for the control plane to take note of a move.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A move is given up.
const STAYS: &str =
    "NOT MOVED: the partition stays where it is; ask for the move again when the cause is gone";

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
    /// Looks in a row that found no room on the target.
    looks_for_room: Cell<u32>,
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
    /// Where partitions were to move, and why they stay, until that is asked for again.
    given_up: RefCell<HashMap<TopicPartition, (DirIndex, String)>>,
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
            looks_for_room: Cell::new(0),
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
        self.given_up.borrow_mut().remove(&id);
        let Some(of) = self.get(id) else { return };
        of.call(Wanted::No);
        let step = of.last_step.borrow().clone();
        if let Some(step) = step {
            step.wait().await;
        }
    }

    /// Tells of each partition that was to move to a directory and stays, with the reason.
    pub(crate) fn each_given_up(&self, mut tell: impl FnMut(TopicPartition, DirIndex, &str)) {
        for (id, (to, reason)) in &*self.given_up.borrow() {
            tell(*id, *to, reason);
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

    /// Tells of the copy, too, until it has become the partition's log.
    pub(crate) fn with_future(&self, partition: &Partition, answer: Answer) -> Answer {
        let Answer::Size(size) = answer else {
            return answer;
        };
        let is_on_its_way = |of: &Rc<Move>| of.is_wanted() && of.to != partition.dir();
        let of = self.get(partition.id()).filter(is_on_its_way);
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
        self.moves.given_up.borrow_mut().remove(&id);
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

/// What comes of a move's turn.
enum Turn {
    /// It is over, or off.
    Over,
    /// It waits for its next one.
    Again,
}

/// Carries out moves until none waits. One whose target has no room holds up no others, which may make some.
async fn work(shard: Rc<Shard>) {
    loop {
        let next = shard.moves.waiting.borrow_mut().pop_front();
        let Some(of) = next else { break };
        match carry_out(&shard, &of).await {
            Turn::Over => shard.moves.end(&of),
            Turn::Again => shard.moves.waiting.borrow_mut().push_back(of),
        }
    }
    if let Some(working) = shard.moves.working.take() {
        working.open();
    }
}

async fn carry_out(shard: &Rc<Shard>, of: &Rc<Move>) -> Turn {
    let Some(mut future) = of.future.take() else {
        return Turn::Over;
    };
    let mut room = MoveRoom::none(shard.dir(of.to));
    let mut patience = Patience::default();
    loop {
        let copied = copy(shard, of, &mut future, &mut room).await;
        let partition = match copied {
            Ok(Copied::Near(partition)) => partition,
            Ok(Copied::NotWanted) => return put_away(of, future).await,
            Ok(Copied::NoRoom) => {
                of.future.replace(Some(future));
                return Turn::Again;
            }
            Err(error) => return give_up(shard, of, future, &error).await,
        };
        if partition.dir() == of.to {
            of.call(Wanted::No);
            return put_away(of, future).await;
        }
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
        let outcome = partition.last_step(future, of.to, shard.dir(of.to)).await;
        of.last_step.replace(None);
        over.open();
        let (error, back) = match outcome {
            LastStep::Moved { left, future } => {
                arrive(shard, of, &left, future).await;
                return Turn::Over;
            }
            LastStep::NotYet(error, back) => (error, Some(back)),
            LastStep::Stayed(error) => (error, None),
        };
        let _ = shard.control.end_move(of.id, MoveOutcome::Stayed).await;
        let (Some(back), wait) = (back, patience.after(&error)) else {
            note_given_up(shard, of, &error);
            return Turn::Over;
        };
        let Some(wait) = wait else {
            return give_up(shard, of, back, &error).await;
        };
        tracing::info!(partition = %partition.name(), %error,
            again_in_ms = wait.as_millis() as u64, "the move is not over yet");
        future = back;
        of.rest(wait).await;
    }
}

/// The log is in its new place: the old one goes.
async fn arrive(shard: &Shard, of: &Move, left: &Log, future: FutureLog) {
    if let Err(error) = future.arrive(left).await {
        tracing::warn!(partition = %left.name(), %error,
            "moved; the next start removes what is left in its old place");
    }
    let _ = shard.control.end_move(of.id, MoveOutcome::Moved).await;
    let dir = shard.dir(of.to).path().display();
    tracing::info!(partition = %left.name(), %dir, "moved to another log directory");
}

/// A move that is called off leaves nothing; one that a start is to go on with leaves its folder.
async fn put_away(of: &Move, future: FutureLog) -> Turn {
    match of.wanted.get() {
        Wanted::Yes | Wanted::Later => {}
        Wanted::No => {
            let dir = future.dir().to_owned();
            if let Err(error) = future.remove().await {
                tracing::warn!(dir = %dir.display(), %error, "the next start removes it");
            }
        }
    }
    Turn::Over
}

async fn give_up(shard: &Shard, of: &Move, future: FutureLog, error: &MoveError) -> Turn {
    if let MoveError::Unreadable { path, position, .. } = error
        && let Some(partition) = shard.partition(of.id)
    {
        // What of it is lost is known before anybody is told.
        let reason = error.to_string();
        partition
            .log()
            .note_unreadable(path, *position, &reason)
            .await;
    }
    note_given_up(shard, of, error);
    let works = shard.dir(of.to).failure().is_none();
    let is_served = shard.partition(of.id).is_some_and(|p| !p.is_offline());
    match works && is_served {
        true => of.call(Wanted::No),
        false => of.call(Wanted::Later),
    }
    put_away(of, future).await
}

fn note_given_up(shard: &Shard, of: &Move, error: &MoveError) {
    let partition = shard.partition(of.id).map(|partition| partition.name());
    let to = shard.dir(of.to).path().display();
    tracing::error!(partition, %to, %error, "{STAYS}");
    let mut given_up = shard.moves.given_up.borrow_mut();
    given_up.insert(of.id, (of.to, error.to_string()));
}
