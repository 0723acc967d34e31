//! Flushes in the background, and the checkpoints that follow them.
//!
//! What is due is `thalweg_storage`'s rule over the properties; this looks at every log of the shard now
//! and then and flushes the old ones, a few at a time. Recovery points are read before they are sent to
//! the control plane, so a checkpoint never runs ahead of the disk (R6).

use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::{task, time};
use thalweg_types::limits::{FLUSH_LOOK_MS, FLUSHES_TOGETHER, TURN_ELEMENTS_MAX};

use crate::partition::Partition;
use crate::shard::Shard;
use crate::together;

/// Flushes what has become old. Never ends.
pub(crate) async fn keep_up(shard: Rc<Shard>) {
    let every = shard.config.log_flush_scheduler_interval_ms();
    let every = Duration::from_millis(every.clamp(1, FLUSH_LOOK_MS));
    loop {
        time::sleep(every).await;
        let due = due(&shard).await;
        together::each(due, FLUSHES_TOGETHER, Partition::flush).await;
    }
}

async fn due(shard: &Shard) -> Vec<Rc<Partition>> {
    let mut due = Vec::new();
    for some in shard.partitions().chunks(TURN_ELEMENTS_MAX) {
        let now = time::now();
        due.extend(some.iter().filter(|p| p.is_flush_due(now)).cloned());
        task::yield_now().await;
    }
    due
}

/// Has the checkpoints say how far the logs are, every
/// `log.flush.offset.checkpoint.interval.ms`. Never ends.
pub(crate) async fn record(shard: Rc<Shard>) {
    let every = shard.config.log_flush_offset_checkpoint_interval_ms();
    let every = Duration::from_millis(every.max(1));
    loop {
        time::sleep(every).await;
        let mut news = Vec::new();
        for some in shard.partitions().chunks(TURN_ELEMENTS_MAX) {
            news.extend(some.iter().filter_map(|p| Some((Rc::clone(p), p.news()?))));
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
