//! What goes into the machine of a partition and what comes out of it.

use thalweg_types::{BrokerId, LeaderEpoch, Offset, TimestampMs};

use crate::acked::AckPoint;
use crate::epoch_cache::{EpochCache, EpochEnd};
use crate::producers::Producers;
use crate::refused::Refused;

/// Names a request that waits. The shell chooses it, unique per replica while it is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// When a producer wants its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// Never. The machine answers its token like [`Acks::Leader`], so that the shell can close the
    /// connection when the write failed (RP-6).
    None,
    /// When the batch counts on the leader ([`AckPoint`]): it is written, or durable.
    Leader,
    /// When the high watermark has passed it.
    All,
}

impl Acks {
    /// Reads the `acks` field of a Produce request.
    ///
    /// # Errors
    /// [`Refused::InvalidAcks`] when it is none of -1, 0, 1.
    pub fn from_wire(acks: i16) -> Result<Acks, Refused> {
        match acks {
            0 => Ok(Acks::None),
            1 => Ok(Acks::Leader),
            -1 => Ok(Acks::All),
            other => Err(Refused::InvalidAcks(other)),
        }
    }
}

/// Offsets given to a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// Offset of the first record.
    pub base: Offset,
    /// Offset after the last record.
    pub end: Offset,
    /// Leader epoch to write into the batch.
    pub epoch: LeaderEpoch,
}

/// What becomes of a batch that is not refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Accepted {
    /// It is new: patch the offsets in and hand it to storage.
    Append(Assigned),
    /// It is a retry of a batch that has its offsets already (RP-63): append nothing. The answer comes
    /// as an effect like any other, with the offsets of the original, once the original is as far as
    /// `acks` asks (RP-14), and fails with it.
    Retry {
        /// Max timestamp of the original: its append time where the broker stamps batches.
        timestamp: TimestampMs,
    },
}

/// A produce that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The offsets it got.
    pub assigned: Assigned,
    /// First offset of the log, as the answer carries it.
    pub log_start: Offset,
}

/// What the shell has to do. Effects are in the order in which they came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A leader epoch began. The epoch file must be durable before anything is appended in it.
    EpochStarted {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its first offset.
        start: Offset,
    },
    /// Old epochs went; the file may follow late.
    EpochsTrimmed,
    /// Consumers may read up to here now.
    HighWatermarkMoved(Offset),
    /// Answer the produce of this token; it comes once per token.
    AnswerProduce {
        /// As given to [`Replica::on_produce`].
        token: Token,
        /// What became of it.
        outcome: Result<Appended, Refused>,
    },
    /// Look at the parked fetch of this token again. It is no longer registered.
    WakeFetch {
        /// As given to [`Replica::park_fetch`].
        token: Token,
    },
}

/// What a recovered log says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaStart {
    /// This broker.
    pub local: BrokerId,
    /// First offset of the log.
    pub log_start: Offset,
    /// End of the log.
    pub log_end: Offset,
    /// End of what is on the disk for certain.
    pub durable_end: Offset,
    /// From where on records count, as the topic says.
    pub ack_point: AckPoint,
    /// High watermark as last written down; brought within the log.
    pub high_watermark: Offset,
    /// Leader epochs, from their file or rebuilt from the log.
    pub epochs: EpochCache,
    /// Producers as the log has them, from a snapshot and the batches behind it.
    pub producers: Producers,
}

/// A leadership of this broker over the partition, as the metadata says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leadership {
    /// The leader epoch.
    pub epoch: LeaderEpoch,
    /// All replicas.
    pub replicas: Vec<BrokerId>,
    /// Replicas in sync, this broker among them.
    pub in_sync: Vec<BrokerId>,
    /// min.insync.replicas of the topic; above the number of replicas it means all of them (RP-5).
    pub min_in_sync: u32,
}

/// The metadata names a leader epoch below one that this replica has seen already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("leader epoch {given} of the metadata is below {known}, which the log has seen")]
pub struct StaleLeadership {
    /// The metadata's.
    pub given: LeaderEpoch,
    /// The replica's.
    pub known: LeaderEpoch,
}

/// Why a partition stops being served here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Another broker leads, or none.
    NotLeader,
    /// The topic was deleted.
    Deleted,
    /// The log can not be used.
    StorageFailed,
}

impl StopReason {
    pub(crate) fn refusal(self) -> Refused {
        match self {
            StopReason::NotLeader => Refused::NotLeader,
            StopReason::Deleted => Refused::Deleted,
            StopReason::StorageFailed => Refused::StorageFailed,
        }
    }
}

/// How far a consumer may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset (KIP-98).
    ReadCommitted,
}

/// A consumer's fetch from this partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchAsk {
    /// First offset wanted.
    pub offset: Offset,
    /// Leader epoch that the client believes in; [`LeaderEpoch::NONE`] = unchecked.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record it has (v12+); [`LeaderEpoch::NONE`] = no check for divergence.
    pub last_fetched_epoch: LeaderEpoch,
    /// How far it may read.
    pub isolation: Isolation,
}

/// What a fetch may be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchBound {
    /// High watermark.
    pub high_watermark: Offset,
    /// Last stable offset: the first of a transaction that is not ended, at most the high watermark.
    pub last_stable: Offset,
    /// First offset of the log.
    pub log_start: Offset,
    /// Records below it may be read. May lie at or below the offset asked for: then there is
    /// nothing to read yet and the fetch waits (RP-11).
    pub up_to: Offset,
    /// The fetcher's log diverged: answer this at once, without records (RP-24).
    pub diverging: Option<EpochEnd>,
}

/// Outcome of [`Replica::park_fetch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Parking {
    /// Registered; a [`Effect::WakeFetch`] will come, once.
    Parked,
    /// What can be read has grown since, or the partition is no longer served: look again.
    LookAgain,
    /// `limits::PARKED_FETCHES_MAX` fetches wait already: answer with what there is.
    Full,
}
