//! Questions about partitions that need no record and no wait: asked of every owner at once.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_reactor::oneshot;
use thalweg_replica::EpochEnd;
use thalweg_types::{LeaderEpoch, Offset, ShardId, TopicPartition};

use crate::pace::Pace;
use crate::peer::PeerRequest;
use crate::shard::Shard;

/// What is asked of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    /// Where an epoch ends.
    EpochEnd {
        /// Leader epoch that the client believes in, -1 for none.
        current: LeaderEpoch,
        /// The epoch in question.
        asked: LeaderEpoch,
    },
    /// How much the log takes on the disk.
    Size,
    /// To forget the records before an offset; -1 = everything that is committed.
    DeleteRecords {
        /// The offset.
        before: Offset,
    },
}

/// The answer to the [`Question`] of the same name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// The epoch and its end.
    EpochEnd(EpochEnd),
    /// Bytes.
    Size(u64),
    /// Where the log begins now.
    LogStart(Offset),
}

/// A question about one partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionAsk {
    /// Index of the partition in its request.
    pub slot: usize,
    /// Which.
    pub id: TopicPartition,
    /// What.
    pub question: Question,
}

/// What its owner says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionAnswer {
    /// Index of the partition in its request.
    pub slot: usize,
    /// The answer or Kafka's error.
    pub result: Result<Answer, ErrorCode>,
}

impl Shard {
    /// Asks every owner and returns when all have answered; in no certain order. An owner that is
    /// stopping answers NOT_LEADER_OR_FOLLOWER.
    pub(crate) async fn ask_owners(
        self: &Rc<Self>,
        asks: Vec<(ShardId, PartitionAsk)>,
    ) -> Vec<PartitionAnswer> {
        let mut by_owner: Vec<Vec<PartitionAsk>> = vec![Vec::new(); self.shard_count()];
        for (owner, ask) in asks {
            by_owner[usize::from(owner.0)].push(ask);
        }
        let mut answers = Vec::new();
        let mut coming = Vec::new();
        for (owner, asks) in by_owner.into_iter().enumerate() {
            if asks.is_empty() {
                continue;
            }
            if owner == usize::from(self.id.0) {
                answers.extend(self.ask_here(asks).await);
                continue;
            }
            let slots: Vec<usize> = asks.iter().map(|ask| ask.slot).collect();
            let (reply, answer) = oneshot::channel();
            self.ask_peer(owner, PeerRequest::Questions { asks, reply })
                .await;
            coming.push((slots, answer));
        }
        for (slots, answer) in coming {
            match answer.await {
                Some(told) => answers.extend(told),
                None => answers.extend(slots.into_iter().map(|slot| PartitionAnswer {
                    slot,
                    result: Err(ErrorCode::NotLeaderOrFollower),
                })),
            }
        }
        answers
    }

    /// Asks partitions of this shard.
    pub(crate) async fn ask_here(&self, asks: Vec<PartitionAsk>) -> Vec<PartitionAnswer> {
        let mut answers = Vec::with_capacity(asks.len());
        let mut pace = Pace::default();
        for ask in asks {
            pace.step().await;
            answers.push(PartitionAnswer {
                slot: ask.slot,
                result: match self.partition(ask.id) {
                    Some(partition) => partition.ask(&ask.question),
                    None => Err(self.absence(ask.id)),
                },
            });
        }
        answers
    }
}
