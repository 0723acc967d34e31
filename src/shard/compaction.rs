//! Compaction: has the logs of this shard cleaned, the dirtiest first, one at a time.
//!
//! The work is done by a [`Cleaner`], a thread of low priority, within what is configured at that moment; here it
//! is decided which log is next, and each new segment is swapped in. A log that could not be cleaned is tried again in
//! a while, ever later; one with a damaged segment up to that segment, which is in the quarantine then. One with a
//! segment that can not be read although no damage is found in it is not tried at all until it was opened anew. The
//! others go on.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::{BrokerConfig, TopicConfig};
use thalweg_reactor::{failpoint, task, time};
use thalweg_storage::{Budget, CleanError, CleanReport, Cleaner, CleanerPool, Dirt};
use thalweg_types::limits::COMPACTION_BACKOFF_MS_MAX;

use crate::partition::Partition;
use crate::shard::Shard;

/// Least memory of a cleaner to read or to write with.
const IO_BYTES_MIN: usize = 16 * 1024;

/// How soon a round that is under way goes by another rate.
const RATE_LOOK: Duration = Duration::from_secs(1);

/// A log that is to be cleaned.
struct Due {
    partition: Rc<Partition>,
    config: Arc<TopicConfig>,
    dirt: Dirt,
}

/// Cleans whatever is due, and looks again after `log.cleaner.backoff.ms` when nothing is. Never ends.
pub(crate) async fn enforce(shard: Rc<Shard>, cleaners: CleanerPool) {
    loop {
        // Anew each time: it can be changed while the broker runs.
        let backoff = Duration::from_millis(shard.view().config.log_cleaner_backoff_ms());
        let backoff = backoff.max(Duration::from_millis(1));
        match dirtiest(&shard).await {
            Some(due) if !shard.is_stopping() => match cleaner_of(&shard, &cleaners) {
                Ok(cleaner) => clean(&shard, &cleaner, due, backoff).await,
                Err(error) => {
                    tracing::warn!(%error, "the thread of a cleaner can not be started");
                    time::sleep(backoff).await;
                }
            },
            Some(_) | None => time::sleep(backoff).await,
        }
    }
}

/// The cleaner of the shard, for a round that begins now.
fn cleaner_of(shard: &Shard, cleaners: &CleanerPool) -> io::Result<Cleaner> {
    let (count, budget) = budget_of_one(&shard.view().config, shard.shard_count());
    cleaners.get(usize::from(shard.id.0) % count, budget)
}

/// How many cleaners there are, at most one per shard, and what is configured for all of them, divided.
fn budget_of_one(config: &BrokerConfig, shards: usize) -> (usize, Budget) {
    let count = config.log_cleaner_threads().clamp(1, shards.max(1));
    let budget = Budget {
        map_bytes: config.log_cleaner_dedupe_buffer_size() / count as u64,
        map_load: config.log_cleaner_io_buffer_load_factor(),
        // One half for reading, one for writing.
        io_bytes: (config.log_cleaner_io_buffer_size() / count / 2).max(IO_BYTES_MIN),
        bytes_per_second: config.log_cleaner_io_max_bytes_per_second() / count as f64,
    };
    (count, budget)
}

/// Of the logs that are due, the one with the largest share of dirty bytes.
async fn dirtiest(shard: &Shard) -> Option<Due> {
    let mut found: Option<Due> = None;
    let (mut debt, mut uncleanable) = (0, 0);
    for partition in shard.partitions() {
        let Some(config) = shard.topic_config(partition.id().topic) else {
            continue;
        };
        if !config.cleanup_policy().compact {
            continue;
        }
        let damaged = partition.quarantined_size().0 > 0;
        uncleanable += u64::from(damaged || partition.cleaning().is_given_up());
        if let Some(dirt) = partition.dirt(&config).await {
            debt += dirt.dirty_bytes;
            let ready = partition.cleaning().is_ready(time::now()) && is_due(&dirt, &config);
            if ready && found.as_ref().is_none_or(|f| f.dirt.ratio() < dirt.ratio()) {
                found = Some(Due {
                    partition,
                    config,
                    dirt,
                });
            }
        }
        task::yield_now().await;
    }
    let counters = &mut shard.metrics.borrow_mut().counters;
    counters.compaction_debt_bytes = debt;
    counters.compaction_uncleanable = uncleanable;
    found
}

/// Kafka's rule: enough of it is dirty, or something has waited for too long (KIP-354).
fn is_due(dirt: &Dirt, config: &TopicConfig) -> bool {
    let dirty = dirt.ratio() > config.min_cleanable_dirty_ratio();
    dirt.dirty_bytes > 0 && (dirty || dirt.overdue)
}

async fn clean(shard: &Shard, cleaner: &Cleaner, due: Due, backoff: Duration) {
    let Due {
        partition,
        config,
        dirt,
    } = due;
    let began = time::now();
    let mut round = pin!(partition.compact(cleaner, dirt, &config));
    let ended = loop {
        match time::timeout(RATE_LOOK, round.as_mut()).await {
            Ok(ended) => break ended,
            // It may go on for hours, and somebody may want it to be slower, or done.
            Err(_) => {
                let (_, budget) = budget_of_one(&shard.view().config, shard.shard_count());
                cleaner.set_rate(budget.bytes_per_second);
            }
        }
    };
    match ended {
        Ok(report) => {
            partition.cleaning().on_cleaned();
            note(shard, &partition, &report, time::now() - began);
            failpoint::pass("compaction: round ended");
            // Without it the next life cleans again what is clean.
            let cleaned = vec![(partition.id(), report.end)];
            let _recorded = shard.control.record_cleaned(cleaned).await;
            failpoint::pass("compaction: checkpoint written");
        }
        Err(error) if error.is_ordinary() => {
            partition.cleaning().try_again_at(time::now() + backoff);
        }
        Err(error @ CleanError::Quarantined { .. }) => {
            tracing::warn!(partition = %partition.name(), %error,
                "compaction met a damage, which is in the quarantine now: it goes up to that segment until \
                 the file is whole again");
        }
        Err(error) => give_up(shard, &partition, &error, backoff),
    }
}

fn note(shard: &Shard, partition: &Partition, report: &CleanReport, took: Duration) {
    let removed = report.records_read - report.records_kept;
    tracing::info!(partition = %partition.name(), end = report.end.0, keys = report.keys,
        read = report.bytes_read, kept = report.bytes_kept, removed,
        took_ms = took.as_millis() as u64, "compacted");
    let counters = &mut shard.metrics.borrow_mut().counters;
    counters.compactions += 1;
    counters.compaction_read_bytes += report.bytes_read;
    counters.compaction_kept_bytes += report.bytes_kept;
    counters.compaction_removed_records += removed;
}

/// For a while, or for good.
fn give_up(shard: &Shard, partition: &Partition, error: &CleanError, backoff: Duration) {
    shard.metrics.borrow_mut().counters.compaction_failures += 1;
    let name = partition.name();
    let cleaning = partition.cleaning();
    if error.is_final() {
        cleaning.give_up();
        tracing::error!(partition = %name, %error,
            "NOT COMPACTED ANY MORE: records can not be read in a segment in which no damaged batch is found; \
             delete the records up to there or the topic, then restart");
        return;
    }
    let most = Duration::from_millis(COMPACTION_BACKOFF_MS_MAX);
    let wait = cleaning.on_failed(backoff, most);
    cleaning.try_again_at(time::now() + wait);
    tracing::warn!(partition = %name, %error, again_ms = wait.as_millis() as u64,
        "compaction failed; free space on the disk or look at its errors");
}

#[cfg(test)]
mod tests {
    use thalweg_config::{BrokerConfig, TopicConfig};
    use thalweg_storage::Dirt;
    use thalweg_types::Offset;

    use super::{budget_of_one, is_due};

    #[test]
    fn what_is_configured_for_all_cleaners_is_divided_among_as_many_as_there_are() {
        let (config, _) = BrokerConfig::default().with_dynamic(
            [
                ("log.cleaner.threads", "4"),
                ("log.cleaner.io.max.bytes.per.second", "1000"),
                ("log.cleaner.dedupe.buffer.size", "4000"),
                ("log.cleaner.io.buffer.size", "1048576"),
            ],
            [],
        );
        let of = |shards| {
            let (count, budget) = budget_of_one(&config, shards);
            (count, budget.bytes_per_second, budget.map_bytes)
        };
        assert_eq!(of(0), (1, 1_000.0, 4_000));
        assert_eq!(of(1), (1, 1_000.0, 4_000));
        assert_eq!(of(16), (4, 250.0, 1_000));
        assert_eq!(budget_of_one(&config, 2).1.io_bytes, 256 * 1024);
        let (_, budget) = budget_of_one(&BrokerConfig::default(), 9);
        assert_eq!(budget.bytes_per_second, f64::MAX);
    }

    #[test]
    fn rp_101_a_log_is_due_by_its_dirty_share_or_by_what_has_waited_too_long() {
        let (config, _) = TopicConfig::resolve(&BrokerConfig::default(), std::iter::empty());
        assert_eq!(config.min_cleanable_dirty_ratio(), 0.5);
        let dirt = |clean_bytes, dirty_bytes, overdue| Dirt {
            first_dirty: Offset(1),
            end: Offset(9),
            clean_bytes,
            dirty_bytes,
            overdue,
        };
        assert!(!is_due(&dirt(0, 0, false), &config));
        assert!(!is_due(&dirt(50, 50, false), &config));
        assert!(is_due(&dirt(49, 50, false), &config));
        assert!(is_due(&dirt(1_000, 1, true), &config));
        assert!(!is_due(&dirt(1_000, 0, true), &config));
    }
}
