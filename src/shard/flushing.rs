//! Flushes in the background, the checkpoints that follow them, and the marks of what is written.
//!
//! What is due is `thalweg_storage`'s rule over the properties; this looks at every log of the shard now
//! and then and flushes the old ones, a few at a time. Recovery points are read before they are sent to
//! the control plane, so a checkpoint never runs ahead of the disk (R6).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::event::Event;
use thalweg_reactor::time::Instant;
use thalweg_reactor::{task, time};
use thalweg_types::limits::{
    DURABLE_SEGMENT_LOOK_MS, FLUSH_LOOK_MS, FLUSHES_TOGETHER, MARK_AGE_MS_MAX, MARK_SHARD_BYTES,
    MARKS_TOGETHER, TURN_ELEMENTS_MAX,
};

use crate::partition::Partition;
use crate::shard::Shard;
use crate::together;

/// Flushes what has become old. Never ends.
pub(crate) async fn keep_up(shard: Rc<Shard>) {
    loop {
        time::sleep(look_every(&shard)).await;
        let due = due(&shard, Partition::is_flush_due).await;
        together::each(due, FLUSHES_TOGETHER, Partition::flush).await;
    }
}

fn look_every(shard: &Shard) -> Duration {
    let every = shard.config.log_flush_scheduler_interval_ms();
    Duration::from_millis(every.clamp(1, FLUSH_LOOK_MS))
}

async fn due(shard: &Shard, is_due: fn(&Partition, Instant) -> bool) -> Vec<Rc<Partition>> {
    let mut due = Vec::new();
    for some in shard.partitions().chunks(TURN_ELEMENTS_MAX) {
        let now = time::now();
        due.extend(some.iter().filter(|p| is_due(p, now)).cloned());
        task::yield_now().await;
    }
    due
}

/// Bytes that the logs of a shard were given since they were marked.
#[derive(Default)]
pub(crate) struct Unmarked {
    bytes: Cell<u64>,
    /// They are many.
    due: Event,
}

impl Unmarked {
    /// A log was given `bytes` more.
    pub(crate) fn add(&self, bytes: usize) {
        let before = self.bytes.get();
        let now = before.saturating_add(bytes as u64);
        self.bytes.set(now);
        if before < MARK_SHARD_BYTES && now >= MARK_SHARD_BYTES {
            self.due.notify();
        }
    }
}

/// Marks logs as written, so that a start after a kill has little to check: all that have gone on at once,
/// when the shard has written much or some time has passed. Never ends.
pub(crate) async fn mark(shard: Rc<Shard>) {
    let age_max = Duration::from_millis(MARK_AGE_MS_MAX);
    let mut marked = time::now();
    loop {
        let many = shard.unmarked.due.wait();
        let _many = time::timeout(look_every(&shard), many).await;
        let long = due(&shard, |partition, _| partition.is_way_long()).await;
        let is_long = !long.is_empty();
        let is_much = shard.unmarked.bytes.get() >= MARK_SHARD_BYTES;
        let is_old = time::now().saturating_duration_since(marked) >= age_max;
        if is_much || is_old || is_long {
            // What comes meanwhile counts for the next.
            shard.unmarked.bytes.set(0);
            marked = time::now();
            record_marks(&shard).await;
        }
        together::each(long, MARKS_TOGETHER, Partition::save_way).await;
    }
}

async fn record_marks(shard: &Shard) {
    let mut new = Vec::new();
    for some in shard.partitions().chunks(TURN_ELEMENTS_MAX) {
        new.extend(
            some.iter()
                .filter_map(|p| Some((Rc::clone(p), p.new_mark()?))),
        );
        task::yield_now().await;
    }
    if new.is_empty() || shard.is_stopping() {
        return;
    }
    let told = new.iter().map(|(p, mark)| (p.id(), *mark));
    if let Some(Ok(())) = shard.control.record_marks(told.collect()).await {
        for (partition, mark) in new {
            partition.on_mark_recorded(mark);
        }
    }
}

/// Has the checkpoints say how far the logs are, every
/// `log.flush.offset.checkpoint.interval.ms`, and sooner of those of which closed segments are durable by promise: what
/// is damaged below a recovery point is not taken for a torn tail after a loss of power. Never ends.
pub(crate) async fn record(shard: Rc<Shard>) {
    let every = shard.config.log_flush_offset_checkpoint_interval_ms();
    let every = Duration::from_millis(every.max(1));
    let look = every.min(Duration::from_millis(DURABLE_SEGMENT_LOOK_MS));
    let mut last = time::now();
    loop {
        time::sleep(look).await;
        let now = time::now();
        let all = now.saturating_duration_since(last) >= every;
        if all {
            last = now;
        }
        let mut news = Vec::new();
        for some in shard.partitions().chunks(TURN_ELEMENTS_MAX) {
            let some = some.iter().filter(|p| all || p.has_new_durable_segment());
            news.extend(some.filter_map(|p| Some((Rc::clone(p), p.news()?))));
            task::yield_now().await;
        }
        if news.is_empty() || shard.is_stopping() {
            continue;
        }
        let told = news.iter().map(|(p, progress)| (p.id(), *progress));
        if let Some(Ok(())) = shard.control.record_progress(told.collect()).await {
            for (partition, progress) in news {
                partition.on_recorded(progress);
            }
        }
    }
}
