//! Why a partition refuses a request.

use thalweg_protocol::ErrorCode;
use thalweg_types::{LeaderEpoch, Offset, ProducerEpoch};

/// A refusal. The text is for the broker's log and for answers that carry a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// `acks` is none of -1, 0, 1 (RP-6).
    #[error("acks is {0}; it must be -1, 0 or 1")]
    InvalidAcks(i16),
    /// This broker does not lead the partition.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// The client knows an older leader epoch than the broker (RP-35).
    #[error("leader epoch {asked} is older than {current}")]
    FencedEpoch {
        /// As the client said.
        asked: LeaderEpoch,
        /// As the broker knows.
        current: LeaderEpoch,
    },
    /// The client knows a newer leader epoch than the broker (RP-35).
    #[error("leader epoch {asked} is newer than {current}")]
    UnknownEpoch {
        /// As the client said.
        asked: LeaderEpoch,
        /// As the broker knows.
        current: LeaderEpoch,
    },
    /// The fetch offset is outside the log (RP-11, RP-25).
    #[error("offset {offset} is outside {start}..={end}")]
    OutOfRange {
        /// As asked.
        offset: Offset,
        /// First offset of the log.
        start: Offset,
        /// End of the log.
        end: Offset,
    },
    /// The end of the epoch that the fetcher last saw is not known (RP-25).
    #[error("the end of leader epoch {0} is not known")]
    EpochEndUnknown(LeaderEpoch),
    /// The high watermark has not reached this leader's first offset yet (RP-9).
    #[error("the high watermark of this leader is not known yet")]
    OffsetNotAvailable,
    /// Too few replicas in sync for acks=all (RP-2).
    #[error("{in_sync} replicas are in sync, {needed} are needed")]
    NotEnoughReplicas {
        /// Replicas in sync.
        in_sync: u32,
        /// min.insync.replicas, at most the replication factor (RP-5).
        needed: u32,
    },
    /// A client sent a control batch (RP-93).
    #[error("clients may not write control batches")]
    ControlBatch,
    /// A batch of a transaction: those do not exist in this version.
    ///
    /// Its code is one that clients take as fatal for the producer; a retriable one would have them
    /// resend for ever.
    #[error("transactions are not supported in this version")]
    TransactionsNotSupported,
    /// The producer has a newer epoch (RP-66).
    #[error("producer epoch {given} is older than {known}")]
    StaleProducerEpoch {
        /// As the batch says.
        given: ProducerEpoch,
        /// Newest that the log knows.
        known: ProducerEpoch,
    },
    /// The batch neither goes on where its producer stopped nor is a retry that is remembered (RP-64).
    #[error("the batch begins at sequence {given}, the producer's next one is {expected}")]
    OutOfSequence {
        /// As the batch says.
        given: i32,
        /// As the log has it.
        expected: i32,
    },
    /// The producer has a transaction open that the batch does not belong to (RP-81).
    #[error("the producer has a transaction open since offset {first}; end it first")]
    OpenTransaction {
        /// Of its first record.
        first: Offset,
    },
    /// The write of the batch failed, or the log is offline.
    #[error("the partition's log can not be written")]
    StorageFailed,
    /// So much waits to be written already that no more may.
    #[error("too much waits to be written to the log")]
    Congested,
    /// The partition was deleted.
    #[error("the partition was deleted")]
    Deleted,
}

impl Refused {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Refused::InvalidAcks(_) => ErrorCode::InvalidRequiredAcks,
            Refused::NotLeader => ErrorCode::NotLeaderOrFollower,
            Refused::FencedEpoch { .. } => ErrorCode::FencedLeaderEpoch,
            Refused::UnknownEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
            Refused::OutOfRange { .. } | Refused::EpochEndUnknown(_) => ErrorCode::OffsetOutOfRange,
            Refused::OffsetNotAvailable => ErrorCode::OffsetNotAvailable,
            Refused::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
            Refused::ControlBatch => ErrorCode::InvalidRecord,
            Refused::TransactionsNotSupported => ErrorCode::TransactionalIdAuthorizationFailed,
            Refused::StaleProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            Refused::OutOfSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            Refused::OpenTransaction { .. } => ErrorCode::InvalidTxnState,
            Refused::StorageFailed => ErrorCode::KafkaStorageError,
            Refused::Deleted => ErrorCode::UnknownTopicOrPartition,
            // One that every client answers with a retry, and none with a look for another leader.
            Refused::Congested => ErrorCode::RequestTimedOut,
        }
    }
}
