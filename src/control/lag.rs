//! How far groups are behind. Coordinators know what is committed and owners know their logs; this puts
//! the two together, when somebody asks and at no other time.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use thalweg_metrics::{GroupLag, LagRow};
use thalweg_reactor::{mailbox, oneshot};
use thalweg_types::TopicPartition;
use thalweg_types::limits::GROUP_LAG_ROWS_MAX;

use crate::history::RebalanceLine;
use crate::requests::ShardCommand;

/// Which groups are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Positioned {
    /// All, by name, up to so many rows.
    All {
        /// Bound of the answer.
        rows_max: usize,
    },
    /// One.
    Group(String),
}

/// What the control plane asks shards about groups.
pub enum GroupQuestion {
    /// What groups have committed.
    Positions {
        /// Which groups.
        of: Positioned,
        /// Gets what those of this shard have.
        reply: oneshot::Sender<Positions>,
    },
    /// The last rebalances of a group.
    History {
        /// Its name.
        group: String,
        /// Gets them, oldest first; `None` when the group is not on that shard.
        reply: oneshot::Sender<Option<Vec<RebalanceLine>>>,
    },
    /// How far offsets are behind the ends of partitions of this shard.
    Behind {
        /// Partitions and offsets.
        asks: Vec<(TopicPartition, i64)>,
        /// Gets one answer each, in order; `None` for a partition that is not here.
        reply: oneshot::Sender<Vec<Option<Behind>>>,
    },
}

/// What a group has committed for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPosition {
    /// Name of the group.
    pub group: String,
    /// Name of the topic.
    pub topic: String,
    /// The partition.
    pub id: TopicPartition,
    /// Offset of the next record to read.
    pub offset: i64,
    /// Index of the shard that owns the partition.
    pub owner: usize,
}

/// Answer of a shard to [`GroupQuestion::Positions`].
#[derive(Debug, Default)]
pub struct Positions {
    /// Committed offsets of the groups on that shard.
    pub rows: Vec<GroupPosition>,
    /// Offsets beyond the bound.
    pub left_out: u64,
}

/// How far an offset is behind the end of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// Records up to the high watermark, those that are gone included.
    pub records: i64,
    /// Of these, those up to the last stable offset: what a committed reader can read (RP-74).
    pub stable_records: i64,
    /// Bytes of batches; `None` when the log could not be looked at.
    pub bytes: Option<u64>,
    /// Age of the first unread record; `None` when it has no timestamp.
    pub age_ms: Option<i64>,
    /// Time until retention may take that record; `None` when it does not say.
    pub removal_ms: Option<i64>,
}

/// Asks every shard, none for longer than `wait_max`. What it does not answer is left out.
pub(crate) async fn look(
    shards: &[mailbox::Sender<ShardCommand>],
    of: Positioned,
    wait_max: Duration,
) -> GroupLag {
    let mut lag = GroupLag::default();
    let mut by_owner: BTreeMap<usize, Vec<GroupPosition>> = BTreeMap::new();
    for shard in shards {
        let (reply, answer) = oneshot::channel();
        let of = match &of {
            Positioned::All { rows_max } => Positioned::All {
                rows_max: rows_max.div_ceil(shards.len()),
            },
            Positioned::Group(name) => Positioned::Group(name.clone()),
        };
        let question = GroupQuestion::Positions { of, reply };
        let Some(positions) = ask(shard, question, answer, wait_max).await else {
            continue;
        };
        lag.left_out += positions.left_out;
        for row in positions.rows {
            by_owner.entry(row.owner).or_default().push(row);
        }
    }
    for (owner, positions) in by_owner {
        let (reply, answer) = oneshot::channel();
        let asks = positions.iter().map(|row| (row.id, row.offset)).collect();
        let behind = match shards.get(owner) {
            Some(shard) => {
                ask(
                    shard,
                    GroupQuestion::Behind { asks, reply },
                    answer,
                    wait_max,
                )
                .await
            }
            None => None,
        };
        let behind = behind.unwrap_or_default();
        let answered = behind.into_iter().chain(std::iter::repeat(None));
        for (position, behind) in positions.into_iter().zip(answered) {
            match behind {
                Some(behind) => lag.rows.push(row(position, behind)),
                None => lag.left_out += 1,
            }
        }
    }
    let key = |row: &LagRow| (row.group.clone(), row.topic.clone(), row.partition);
    lag.rows.sort_by_cached_key(key);
    lag
}

/// All groups, up to the bound of the metrics.
pub(crate) async fn of_all(
    shards: &[mailbox::Sender<ShardCommand>],
    wait_max: Duration,
) -> GroupLag {
    let rows_max = GROUP_LAG_ROWS_MAX;
    look(shards, Positioned::All { rows_max }, wait_max).await
}

pub(crate) async fn ask<A>(
    shard: &mailbox::Sender<ShardCommand>,
    question: GroupQuestion,
    answer: impl Future<Output = Option<A>>,
    wait_max: Duration,
) -> Option<A> {
    let both = async {
        shard.send(ShardCommand::Groups(question)).await.ok()?;
        answer.await
    };
    tokio::time::timeout(wait_max, both).await.ok().flatten()
}

fn row(position: GroupPosition, behind: Behind) -> LagRow {
    let seconds = |ms: i64| ms as f64 / 1_000.0;
    LagRow {
        group: position.group,
        topic: position.topic,
        partition: position.id.partition.0,
        committed_offset: position.offset,
        records: behind.records,
        stable_records: behind.stable_records,
        bytes: behind.bytes,
        seconds: behind.age_ms.map(seconds),
        removal_seconds: behind.removal_ms.map(seconds),
    }
}

/// The lag of one group, as `/groups/NAME/lag` tells it.
#[derive(Serialize)]
pub(crate) struct LagAnswer {
    pub(crate) group: String,
    pub(crate) cluster_id: String,
    pub(crate) partitions: Vec<LagLine>,
}

#[derive(Serialize)]
pub(crate) struct LagLine {
    topic: String,
    partition: i32,
    committed_offset: i64,
    records: i64,
    stable_records: i64,
    bytes: Option<u64>,
    seconds: Option<f64>,
    removal_seconds: Option<f64>,
}

impl From<LagRow> for LagLine {
    fn from(row: LagRow) -> LagLine {
        LagLine {
            topic: row.topic,
            partition: row.partition,
            committed_offset: row.committed_offset,
            records: row.records,
            stable_records: row.stable_records,
            bytes: row.bytes,
            seconds: row.seconds,
            removal_seconds: row.removal_seconds,
        }
    }
}
