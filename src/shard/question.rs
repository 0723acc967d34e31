//! Questions about partitions that need no record and no wait: asked of every owner at once.

use std::rc::Rc;

use thalweg_control::DirIndex;
use thalweg_protocol::ErrorCode;
use thalweg_reactor::oneshot;
use thalweg_replica::{ActiveProducer, EpochEnd};
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
    /// Who writes to it with sequences.
    Producers,
    /// To move to another log directory.
    Move {
        /// Which.
        to: DirIndex,
    },
    /// To forget the records before an offset; -1 = everything that is committed.
    DeleteRecords {
        /// The offset.
        before: Offset,
    },
}

/// The answer to the [`Question`] of the same name.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// The epoch and its end.
    EpochEnd(EpochEnd),
    /// What it takes, and where.
    Size(LogSize),
    /// The producers that it remembers.
    Producers(Vec<ActiveProducer>),
    /// It moves, or is there.
    Moves,
    /// Where the log begins now.
    LogStart(Offset),
}

/// What a log takes on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSize {
    /// Bytes of its batches.
    pub bytes: u64,
    /// The log directory that it is in.
    pub dir: DirIndex,
    /// The copy that is to take its place.
    pub future: Option<FutureSize>,
}

/// The same of a copy that follows its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FutureSize {
    /// Bytes of its batches.
    pub bytes: u64,
    /// The log directory that it is in.
    pub dir: DirIndex,
    /// Offsets that it lacks.
    pub lag: i64,
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
#[derive(Debug, Clone)]
pub(crate) struct PartitionAnswer {
    /// Index of the partition in its request.
    pub slot: usize,
    /// Which.
    pub id: TopicPartition,
    /// The answer or Kafka's error.
    pub result: Result<Answer, ErrorCode>,
}

impl PartitionAsk {
    fn answered(self, result: Result<Answer, ErrorCode>) -> PartitionAnswer {
        PartitionAnswer {
            slot: self.slot,
            id: self.id,
            result,
        }
    }
}

impl Answer {
    /// The end of an epoch.
    ///
    /// # Errors
    /// It answers another question, which is a mistake of ours.
    pub(crate) fn epoch_end(self) -> Result<EpochEnd, ErrorCode> {
        match self {
            Answer::EpochEnd(found) => Ok(found),
            Answer::Size(_) | Answer::Producers(_) | Answer::Moves | Answer::LogStart(_) => {
                Err(ErrorCode::UnknownServerError)
            }
        }
    }

    /// Where the log begins.
    ///
    /// # Errors
    /// It answers another question, which is a mistake of ours.
    pub(crate) fn log_start(self) -> Result<Offset, ErrorCode> {
        match self {
            Answer::LogStart(start) => Ok(start),
            Answer::Size(_) | Answer::Producers(_) | Answer::Moves | Answer::EpochEnd(_) => {
                Err(ErrorCode::UnknownServerError)
            }
        }
    }

    /// The producers of the log.
    ///
    /// # Errors
    /// It answers another question, which is a mistake of ours.
    pub(crate) fn producers(self) -> Result<Vec<ActiveProducer>, ErrorCode> {
        match self {
            Answer::Producers(producers) => Ok(producers),
            Answer::Size(_) | Answer::LogStart(_) | Answer::Moves | Answer::EpochEnd(_) => {
                Err(ErrorCode::UnknownServerError)
            }
        }
    }
}

/// A row of an answer, about one partition.
pub(crate) trait Row {
    /// Its code on the wire.
    fn error_code(&mut self) -> &mut i16;
}

/// The questions of one request, and a row for each partition that it names.
pub(crate) struct Asking<R> {
    asks: Vec<(ShardId, PartitionAsk)>,
    rows: Vec<R>,
}

impl<R: Row> Asking<R> {
    /// Nothing so far.
    pub(crate) fn new() -> Asking<R> {
        Asking {
            asks: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// One more partition with its owner, or what is wrong with it.
    pub(crate) fn add(
        &mut self,
        owned: Result<(TopicPartition, ShardId), ErrorCode>,
        question: Question,
        mut row: R,
    ) {
        match owned {
            Ok((id, owner)) => {
                let slot = self.rows.len();
                let ask = PartitionAsk { slot, id, question };
                self.asks.push((owner, ask));
            }
            Err(error) => *row.error_code() = error.code(),
        }
        self.rows.push(row);
    }

    /// Asks every owner; `fill` puts an answer into its row. The rows are in the order of the request.
    pub(crate) async fn rows(
        self,
        shard: &Rc<Shard>,
        mut fill: impl FnMut(&mut R, TopicPartition, Answer) -> Result<(), ErrorCode>,
    ) -> Vec<R> {
        let Asking { asks, mut rows } = self;
        for PartitionAnswer { slot, id, result } in shard.ask_owners(asks).await {
            let row = &mut rows[slot];
            if let Err(error) = result.and_then(|answer| fill(row, id, answer)) {
                *row.error_code() = error.code();
            }
        }
        rows
    }
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
            let asked = asks.clone();
            let (reply, answer) = oneshot::channel();
            self.ask_peer(owner, PeerRequest::Questions { asks, reply })
                .await;
            coming.push((asked, answer));
        }
        for (asked, answer) in coming {
            let stopping = |ask: PartitionAsk| ask.answered(Err(ErrorCode::NotLeaderOrFollower));
            match answer.await {
                Some(told) => answers.extend(told),
                None => answers.extend(asked.into_iter().map(stopping)),
            }
        }
        answers
    }

    /// Asks partitions of this shard.
    pub(crate) async fn ask_here(self: &Rc<Self>, asks: Vec<PartitionAsk>) -> Vec<PartitionAnswer> {
        let mut answers = Vec::with_capacity(asks.len());
        let mut pace = Pace::default();
        for ask in asks {
            pace.step().await;
            let result = match (self.partition(ask.id), ask.question) {
                (Some(partition), Question::Move { to }) => self
                    .begin_move(&partition, to)
                    .await
                    .map(|()| Answer::Moves),
                (Some(partition), Question::Size) => {
                    let size = partition.ask(&Question::Size);
                    size.map(|size| self.moves.with_future(&partition, size))
                }
                (Some(partition), question) => partition.ask(&question),
                (None, _) => Err(self.absence(ask.id)),
            };
            answers.push(ask.answered(result));
        }
        answers
    }
}
