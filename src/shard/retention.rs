//! Retention: looks through the logs of this shard for segments that are due, and removes them.
//!
//! Order (ST-14): log starts move in memory, which hides the records; they are made durable in the
//! checkpoint, many partitions in one write (a full disk apart); then files go. What is due is `thalweg_storage`'s rule
//! over the topic's properties as they are at that moment, so that changes are obeyed by the next look.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use thalweg_config::TopicConfig;
use thalweg_control::DirIndex;
use thalweg_reactor::{task, time};
use thalweg_storage::{Due, RetentionLimits};
use thalweg_types::limits::RETENTION_PARTITIONS_TOGETHER;

use crate::partition::Partition;
use crate::shard::Shard;

/// Segments of one partition that are hidden and whose files are to go.
struct Hidden {
    partition: Rc<Partition>,
    due: Due,
    delay: Duration,
}

/// Looks every `log.retention.check.interval.ms`, for the first time after
/// `log.initial.task.delay.ms`. Never ends.
pub(crate) async fn enforce(shard: Rc<Shard>) {
    let config = &shard.config;
    let every = Duration::from_millis(config.log_retention_check_interval_ms());
    time::sleep(Duration::from_millis(config.log_initial_task_delay_ms())).await;
    loop {
        look_through(&shard).await;
        time::sleep(every).await;
    }
}

/// One look at all logs of the shard.
pub(crate) async fn look_through(shard: &Shard) {
    for partitions in shard.partitions().chunks(RETENTION_PARTITIONS_TOGETHER) {
        let mut hidden = Vec::new();
        for partition in partitions {
            if shard.is_stopping() {
                return;
            }
            hidden.extend(hide(shard, partition).await);
            task::yield_now().await;
        }
        remove(shard, hidden).await;
    }
}

/// Moves the start of a partition behind the segments that are due.
async fn hide(shard: &Shard, partition: &Rc<Partition>) -> Option<Hidden> {
    // A topic that is being deleted has none: its files go anyway.
    let config = shard.topic_config(partition.id().topic)?;
    let due = partition.hide_due(limits_of(&config)).await?;
    Some(Hidden {
        partition: Rc::clone(partition),
        due,
        delay: Duration::from_millis(config.file_delete_delay_ms()),
    })
}

/// A log directory whose log starts can not be written holds up no other.
async fn remove(shard: &Shard, hidden: Vec<Hidden>) {
    let mut by_dir: BTreeMap<DirIndex, Vec<Hidden>> = BTreeMap::new();
    for one in hidden {
        by_dir.entry(one.partition.dir()).or_default().push(one);
    }
    for hidden in by_dir.into_values() {
        remove_in_one(shard, hidden).await;
    }
}

/// Makes the new starts durable, and only then removes files. On a full disk the checkpoint can not be
/// written; the files must go all the same, or nothing would ever make room.
async fn remove_in_one(shard: &Shard, hidden: Vec<Hidden>) {
    let starts = hidden.iter().map(|one| (one.partition.id(), one.due.start));
    // The next look tries what is refused again, and when the broker is stopping the next life does. What is wrong is
    // said by the control plane.
    let Some(Ok(kept)) = shard.control.record_log_starts(starts.collect()).await else {
        return;
    };
    for one in hidden {
        let Hidden {
            partition,
            due,
            delay,
        } = one;
        partition.remove_hidden(&due, kept, delay).await;
        task::yield_now().await;
    }
}

/// Without `delete` in `cleanup.policy` only what lies below the log's start goes.
pub(crate) fn limits_of(config: &TopicConfig) -> RetentionLimits {
    let deletes = config.cleanup_policy().delete;
    RetentionLimits {
        age_ms: config.retention_ms().filter(|_| deletes),
        bytes: config
            .retention_bytes()
            .and_then(|bytes| u64::try_from(bytes).ok())
            .filter(|_| deletes),
        ahead_max_ms: config.message_timestamp_after_max_ms(),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_config::{BrokerConfig, TopicConfig};
    use thalweg_storage::RetentionLimits;

    use super::limits_of;

    #[test]
    fn only_the_delete_policy_deletes_by_age_and_size() {
        let of = |policy: &str, ms: &str, bytes: &str| {
            let settings = [
                ("cleanup.policy", Some(policy)),
                ("retention.ms", Some(ms)),
                ("retention.bytes", Some(bytes)),
                ("message.timestamp.after.max.ms", Some("7")),
            ];
            let config = TopicConfig::validate(&BrokerConfig::default(), settings);
            limits_of(&config.expect("valid"))
        };
        let limits = |age_ms, bytes| RetentionLimits {
            age_ms,
            bytes,
            ahead_max_ms: 7,
        };
        assert_eq!(of("delete", "5", "6"), limits(Some(5), Some(6)));
        assert_eq!(of("compact,delete", "0", "0"), limits(Some(0), Some(0)));
        assert_eq!(of("delete", "-1", "-1"), limits(None, None));
        assert_eq!(of("compact", "5", "6"), limits(None, None));
        assert_eq!(of("", "5", "6"), limits(None, None));
    }
}
