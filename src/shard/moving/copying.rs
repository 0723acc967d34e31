//! The long part of a move: copying until little is missing, at the pace that the core, its disks and the room on the
//! target allow.

use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::task;
use thalweg_storage::{DirHealth, FutureLog, Log, MoveError, MoveRoom, Unclosed};
use thalweg_types::limits::{
    MOVE_LAST_BYTES_MAX, MOVE_ROOM_AGAIN_AFTER_MS, MOVE_UNCLOSED_BYTES_MAX,
    MOVE_UNCLOSED_SEGMENTS_MAX,
};

use super::patience::Patience;
use super::{Move, Wanted};
use crate::partition::Partition;
use crate::shard::Shard;

/// Until the next look at a log of which nothing is missing that was not closed yet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// It is said that a move waits for room when that was so at so many looks in a row: what comes in between two
/// looks at a disk counts twice for a moment.
const ROOM_TOLD_AT: u32 = 3;

/// Shorter rests are added up.
const REST_MIN: Duration = Duration::from_millis(5);

/// How far the copy of a move has come.
pub(super) enum Copied {
    /// Little is missing.
    Near(Rc<Partition>),
    /// It is not wanted any more.
    NotWanted,
    /// Its target has no room, and others wait.
    NoRoom,
}

/// How a copy comes nearer to a log that closes segments meanwhile.
#[derive(Default)]
struct Closing {
    /// The least that was left so far: segments, and bytes that were missing.
    least: Option<(usize, u64)>,
}

impl Closing {
    /// True when what is left to be made durable may be done with appends held back: it is little, or gets no less.
    fn is_near(&mut self, unclosed: Unclosed, missing: u64) -> bool {
        let left = (unclosed.segments, missing);
        let gets_less = self.least.is_none_or(|least| left < least);
        if gets_less {
            self.least = Some(left);
        }
        let is_few = unclosed.segments <= MOVE_UNCLOSED_SEGMENTS_MAX;
        unclosed.bytes <= MOVE_UNCLOSED_BYTES_MAX && (is_few || !gets_less)
    }
}

/// Copies until little is missing.
pub(super) async fn copy(
    shard: &Shard,
    of: &Move,
    future: &mut FutureLog,
    room: &mut MoveRoom,
) -> Result<Copied, MoveError> {
    let mut is_rolled = false;
    let mut closing = Closing::default();
    let mut due = Duration::ZERO;
    let mut patience = Patience::default();
    loop {
        let Some(partition) = still_wanted(shard, of) else {
            return Ok(Copied::NotWanted);
        };
        let log = partition.log();
        if !room.has(future.room_needed(&log)) {
            wait_for_room(of, future, &log, shard.dir(of.to)).await;
            match shard.moves.waiting.borrow().is_empty() {
                true => continue,
                false => return Ok(Copied::NoRoom),
            }
        }
        if of.looks_for_room.take() >= ROOM_TOLD_AT {
            tracing::info!(partition = %log.name(), "there is room: the move goes on");
        }
        let mut stepped = future.step(&log).await;
        of.note(future);
        let missing = future.missing_bytes(&log);
        let is_near = missing <= MOVE_LAST_BYTES_MAX;
        if stepped.is_ok() && is_near && !is_rolled {
            stepped = roll(&log, &mut is_rolled).await.and(stepped);
        } else if stepped.is_ok() && is_near && closing.is_near(future.unclosed(&log), missing) {
            return Ok(Copied::Near(partition));
        }
        match stepped {
            Ok(0) => of.rest(LOOK_AGAIN_AFTER).await,
            Ok(bytes) => {
                patience.on_progress();
                room.spend(bytes);
                // Other work of the core comes in between, whatever the budget.
                task::yield_now().await;
                due += budget(shard, bytes);
                if due >= REST_MIN {
                    of.rest(std::mem::take(&mut due)).await;
                }
            }
            Err(error) => match patience.after(&error) {
                Some(wait) => of.rest(wait).await,
                None => return Err(error),
            },
        }
    }
}

/// The partition, if its move goes on.
fn still_wanted(shard: &Shard, of: &Move) -> Option<Rc<Partition>> {
    if shard.dir(of.to).failure().is_some() {
        of.call(Wanted::Later);
    }
    let partition = shard.partition(of.id).filter(|p| !p.is_offline());
    if partition.is_none() {
        let is_known = shard.view().image.partition(of.id).is_some();
        of.call(if is_known { Wanted::Later } else { Wanted::No });
    }
    partition.filter(|_| of.is_wanted())
}

/// What is still to be copied does not fit above the headroom of the target.
async fn wait_for_room(of: &Move, future: &mut FutureLog, log: &Log, target: &DirHealth) {
    let to = target.path().display();
    let looks = of.looks_for_room.get().saturating_add(1);
    of.looks_for_room.set(looks);
    if looks == ROOM_TOLD_AT {
        tracing::warn!(partition = %log.name(), %to, missing = future.room_needed(log),
            free = target.free_bytes(),
            "the move waits for room: what is missing does not fit above the headroom of its target, which is \
             for producers; it goes on by itself when it does. Delete topics there or lower their retention, or call \
             the move off by asking for the directory that the partition is in");
    }
    if target.is_full() && future.size_bytes() > 0 {
        match future.give_back().await {
            Ok(bytes) => tracing::warn!(partition = %log.name(), %to, bytes,
                "the target is full: it gets the room back that the copy took"),
            Err(error) => tracing::warn!(partition = %log.name(), %to, %error,
                "the target is full, and the copy can not be removed"),
        }
        of.note(future);
    }
    of.rest(Duration::from_millis(MOVE_ROOM_AGAIN_AFTER_MS))
        .await;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn unclosed(segments: usize, bytes: u64) -> Unclosed {
        Unclosed { segments, bytes }
    }

    #[test]
    fn kip_113_many_small_segments_are_made_durable_before_appends_are_held_back() {
        let mut closing = Closing::default();
        assert!(!closing.is_near(unclosed(168, 1_000), 1_000));
        assert!(!closing.is_near(unclosed(168, 1_000), 900));
        assert!(!closing.is_near(unclosed(20, 1_000), 950));
        assert!(closing.is_near(unclosed(MOVE_UNCLOSED_SEGMENTS_MAX, 1_000), 0));
        assert!(!closing.is_near(unclosed(1, MOVE_UNCLOSED_BYTES_MAX + 1), 0));
    }

    /// Where segments are begun faster than their copies are made durable, that would never end.
    #[test]
    fn kip_113_appends_are_held_back_where_the_segments_get_no_fewer() {
        let mut closing = Closing::default();
        assert!(!closing.is_near(unclosed(168, 1_000), 0));
        assert!(!closing.is_near(unclosed(167, 1_000), 0));
        assert!(closing.is_near(unclosed(167, 1_000), 10));
        assert!(closing.is_near(unclosed(168, 1_000), 0));
    }
}
