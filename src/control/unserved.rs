//! What a broker does not serve, and why: log directories that failed, partitions that are offline, ranges in
//! quarantine; and moves between log directories that were given up. Told over HTTP (`/log-dirs`), for people and `thalweg log-dirs describe`.

use std::time::Duration;

use serde::Serialize;
use thalweg_metrics::LogDirFacts;
use thalweg_reactor::{mailbox, oneshot};

use crate::requests::ShardCommand;

/// What one shard does not serve.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Partitions of which nothing is served.
    pub offline: Vec<OfflineLine>,
    /// Ranges of those that are served.
    pub quarantined: Vec<QuarantinedLine>,
    /// Moves that were given up, and were not asked for again.
    pub not_moved: Vec<NotMovedLine>,
    /// Lines beyond the bound of the answer.
    pub left_out: u64,
}

/// A partition that is offline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OfflineLine {
    /// Its topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// The log directory that it is in; `None` when that is not here.
    pub directory: Option<String>,
    /// Why.
    pub reason: String,
}

/// A damaged range that is not served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct QuarantinedLine {
    /// Its topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// First offset that is not served.
    pub first_offset: i64,
    /// The offset behind the last one.
    pub next_offset: i64,
    /// The segment.
    pub file: String,
    /// Where the range begins in it, in bytes.
    pub first_byte: u64,
    /// Where it ends.
    pub end_byte: u64,
    /// What is wrong; `None` when that is known from an earlier life of the broker only.
    pub reason: Option<String>,
}

/// A partition whose move to another log directory was given up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotMovedLine {
    /// Its topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// The log directory that it was to move to.
    pub directory: String,
    /// Why it stays.
    pub reason: String,
}

/// A log directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DirectoryLine {
    directory: String,
    /// `None` while it works.
    failure: Option<String>,
    /// Produce is refused for lack of room.
    full: bool,
    usable_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

/// The answer of `/log-dirs`.
#[derive(Debug, Serialize)]
pub(crate) struct LogDirsAnswer {
    pub(crate) cluster_id: String,
    pub(crate) broker: i32,
    pub(crate) directories: Vec<DirectoryLine>,
    pub(crate) offline: Vec<OfflineLine>,
    pub(crate) quarantined: Vec<QuarantinedLine>,
    pub(crate) not_moved: Vec<NotMovedLine>,
    /// Shards that did not answer in time, and lines beyond the bound.
    pub(crate) shards_missing: usize,
    pub(crate) left_out: u64,
}

impl From<LogDirFacts> for DirectoryLine {
    fn from(facts: LogDirFacts) -> DirectoryLine {
        DirectoryLine {
            directory: facts.path,
            failure: facts.failure,
            full: facts.is_full,
            usable_bytes: facts.usable_bytes,
            total_bytes: facts.total_bytes,
        }
    }
}

/// Asks every shard, none for longer than `wait_max`. Lines are sorted; with them, how many shards did not
/// answer.
pub(crate) async fn look(
    shards: &[mailbox::Sender<ShardCommand>],
    wait_max: Duration,
) -> (Unserved, usize) {
    let (mut all, mut missing) = (Unserved::default(), 0);
    for shard in shards {
        let (reply, answer) = oneshot::channel();
        let ask = async {
            shard.send(ShardCommand::Unserved { reply }).await.ok()?;
            answer.await
        };
        match tokio::time::timeout(wait_max, ask).await.ok().flatten() {
            Some(found) => {
                all.offline.extend(found.offline);
                all.quarantined.extend(found.quarantined);
                all.not_moved.extend(found.not_moved);
                all.left_out += found.left_out;
            }
            None => missing += 1,
        }
    }
    all.offline.sort();
    all.quarantined.sort();
    all.not_moved.sort();
    (all, missing)
}
