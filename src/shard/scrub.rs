//! The scrub: has the closed segments of this shard's logs checked, each once in
//! `thalweg.log.scrub.interval.ms`, one at a time and as fast as the rate for all shards lets it.
//!
//! The work is done by a thread of low priority; here it is decided what is next. Partitions come in an
//! order that differs from start to start, so that a broker that is often restarted comes to all of them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{task, time};

use crate::partition::Partition;
use crate::shard::Shard;

/// Shortest and longest time between two looks for something to do.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Between two looks at the interval while it is off.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Checks what is due, for the first time after `log.initial.task.delay.ms`. Never ends.
pub(crate) async fn enforce(shard: Rc<Shard>) {
    let delay = shard.config.log_initial_task_delay_ms();
    time::sleep(Duration::from_millis(delay)).await;
    loop {
        let wait = match interval(&shard) {
            Some(interval) => {
                look_through(&shard).await;
                interval.clamp(LOOK_EVERY.0, LOOK_EVERY.1)
            }
            None => ASK_EVERY,
        };
        time::sleep(wait).await;
    }
}

/// As set at this moment.
fn interval(shard: &Shard) -> Option<Duration> {
    let interval = shard.view().config.log_scrub_interval_ms();
    interval.map(Duration::from_millis)
}

async fn look_through(shard: &Shard) {
    let partitions = shard.partitions();
    let mut due_bytes = 0;
    for partition in &partitions {
        if let Some(interval) = interval(shard) {
            due_bytes += partition.scrub_due_bytes(interval);
        }
        task::yield_now().await;
    }
    shard.metrics.borrow_mut().counters.scrub_due_bytes = due_bytes;
    for partition in partitions {
        scrub(shard, &partition).await;
        task::yield_now().await;
    }
}

/// Checks all that is due of one log.
async fn scrub(shard: &Shard, partition: &Rc<Partition>) {
    while !shard.is_stopping()
        && let Some(interval) = interval(shard)
    {
        let config = Arc::clone(&shard.view().config);
        let rate = config.log_scrub_max_bytes_per_second();
        match partition.scrub_next(interval, rate).await {
            Ok(Some(scrubbed)) => {
                let due = &mut shard.metrics.borrow_mut().counters.scrub_due_bytes;
                *due = due.saturating_sub(scrubbed.bytes);
            }
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return,
            Err(error) => {
                shard.metrics.borrow_mut().counters.scrub_failures += 1;
                tracing::error!(partition = %partition.name(), %error,
                    "a segment can not be read to be checked: look at the disk's errors");
            }
        }
    }
}
