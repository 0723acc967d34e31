//! Why a client's batch is not taken, and what the wire says then.

use thalweg_types::TimestampMs;

use super::{Codec, RecordFault, UnknownCodec};
use crate::ErrorCode;

/// A partition entry of a produce request that is refused as a whole. `Display` gives the text for the
/// `error_message` of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The entry holds no whole batch.
    #[error("no whole record batch: {have} bytes of at least {need}")]
    NoBatch {
        /// Bytes in the entry.
        have: usize,
        /// Bytes that its batch needs.
        need: usize,
    },
    /// Bytes follow the batch: a second one, or rubbish. Produce from v3 on carries exactly one (KIP-98).
    #[error("{extra} bytes follow the one record batch of the partition")]
    MoreThanOneBatch {
        /// Bytes behind the first batch.
        extra: usize,
    },
    /// The length field can not be.
    #[error("a record batch can not have a length of {batch_length}")]
    BatchLength {
        /// The field.
        batch_length: i32,
    },
    /// An old batch format (0 or 1), or none that ever was.
    #[error("record batch format {magic} is not taken, only 2 is")]
    Magic {
        /// The field.
        magic: i8,
    },
    /// Larger than `max.message.bytes`.
    #[error("the record batch has {bytes} bytes, max.message.bytes is {max}")]
    TooLarge {
        /// Bytes of the batch.
        bytes: usize,
        /// The topic's limit.
        max: usize,
    },
    /// Larger than `segment.bytes`.
    #[error("the record batch has {bytes} bytes, segment.bytes is {max}")]
    LargerThanSegment {
        /// Bytes of the batch.
        bytes: usize,
        /// The topic's limit.
        max: usize,
    },
    /// The CRC-32C does not match the bytes.
    #[error("the record batch is corrupt: CRC is {computed:#010x}, stored is {stored:#010x}")]
    Crc {
        /// CRC in the header.
        stored: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// Only the broker assigns offsets.
    #[error("the base offset of the record batch is {base_offset} where 0 is due")]
    BaseOffset {
        /// The field.
        base_offset: i64,
    },
    /// Record count and last offset delta do not say the same, or no records.
    #[error(
        "the record batch claims {record_count} records and a last offset delta of {last_offset_delta}"
    )]
    Count {
        /// The field.
        record_count: i32,
        /// The field.
        last_offset_delta: i32,
    },
    /// Only the broker writes control records.
    #[error("clients may not write control records")]
    Control,
    /// Only compaction sets the delete horizon (KIP-534).
    #[error("clients may not set the delete horizon of a record batch")]
    DeleteHorizon,
    /// A producer id with an impossible epoch or sequence, or a transaction without a producer id.
    #[error("producer id {id} with epoch {epoch} and sequence {base_sequence} can not be")]
    Producer {
        /// The field.
        id: i64,
        /// The field.
        epoch: i16,
        /// The field.
        base_sequence: i32,
    },
    /// Only the broker stamps batches with the append time (KIP-32).
    #[error("producers may not set the timestamp type to LogAppendTime")]
    LogAppendTime,
    /// The codec id is not assigned.
    #[error(transparent)]
    Codec(#[from] UnknownCodec),
    /// zstd before Produce v7 (KIP-110).
    #[error("zstd needs Produce v7 or later, the request is v{produce_version}")]
    ZstdTooEarly {
        /// Version of the request.
        produce_version: i16,
    },
    /// The payload can not be decompressed.
    #[error("bad {} data: {detail}", codec.name())]
    Payload {
        /// The codec of the batch.
        codec: Codec,
        /// What the decoder said.
        detail: String,
    },
    /// The payload decompresses to more than allowed.
    #[error("the record batch has more than {limit} bytes when decompressed")]
    DecompressedTooLarge {
        /// The limit it passed.
        limit: usize,
    },
    /// A record is malformed.
    #[error("record {index} of the batch is malformed: {fault}")]
    Malformed {
        /// Its index in the batch.
        index: i32,
        /// What is wrong.
        fault: RecordFault,
    },
    /// More bytes than the header's record count accounts for.
    #[error("bytes follow the last of the {record_count} records of the batch")]
    BytesAfterRecords {
        /// The header's count.
        record_count: i32,
    },
    /// Well-formed records that the topic does not take. Never empty; at most
    /// [`thalweg_types::limits::RECORD_REFUSALS_MAX`] of them are listed.
    #[error("{}", summary_of(.0))]
    Records(Vec<RecordRefusal>),
}

/// One record that the topic does not take: an element of `record_errors` of the answer (KIP-467).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRefusal {
    /// Its index in the batch.
    pub index: i32,
    /// Why. `Display` gives the text for `batch_index_error_message`.
    pub reason: RecordRefusalReason,
}

/// Why a topic does not take a well-formed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordRefusalReason {
    /// Compacted topics need keys.
    #[error("a compacted topic takes no record without a key")]
    NoKey,
    /// Outside `message.timestamp.before.max.ms` / `.after.max.ms` (KIP-937).
    #[error("timestamp {timestamp} is not within {earliest} to {latest}")]
    Timestamp {
        /// The record's.
        timestamp: TimestampMs,
        /// Lowest that is taken.
        earliest: TimestampMs,
        /// Highest that is taken.
        latest: TimestampMs,
    },
}

impl Refusal {
    /// The code for the wire. Codes that clients retry are used only where sending the same bytes
    /// again may help.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            // Formats 0 and 1 are well known and not taken; anything else is noise.
            Refusal::Magic { magic: 0 | 1 } => ErrorCode::InvalidRecord,
            Refusal::Magic { .. } | Refusal::BatchLength { .. } | Refusal::Crc { .. } => {
                ErrorCode::CorruptMessage
            }
            // A producer that is told so splits the batch and sends the parts (KIP-126).
            Refusal::TooLarge { .. } | Refusal::DecompressedTooLarge { .. } => {
                ErrorCode::MessageTooLarge
            }
            Refusal::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            Refusal::Codec(_) | Refusal::ZstdTooEarly { .. } => {
                ErrorCode::UnsupportedCompressionType
            }
            Refusal::LogAppendTime => ErrorCode::InvalidTimestamp,
            Refusal::Records(records) if records.iter().any(RecordRefusal::is_about_time) => {
                ErrorCode::InvalidTimestamp
            }
            Refusal::Malformed {
                fault: RecordFault::TimestampRange,
                ..
            } => ErrorCode::InvalidTimestamp,
            Refusal::NoBatch { .. }
            | Refusal::MoreThanOneBatch { .. }
            | Refusal::BaseOffset { .. }
            | Refusal::Count { .. }
            | Refusal::Control
            | Refusal::DeleteHorizon
            | Refusal::Producer { .. }
            | Refusal::Payload { .. }
            | Refusal::Malformed { .. }
            | Refusal::BytesAfterRecords { .. }
            | Refusal::Records(_) => ErrorCode::InvalidRecord,
        }
    }

    /// The records to name in the answer; empty unless single records are the reason.
    #[must_use]
    pub fn record_refusals(&self) -> &[RecordRefusal] {
        match self {
            Refusal::Records(records) => records,
            Refusal::NoBatch { .. }
            | Refusal::MoreThanOneBatch { .. }
            | Refusal::BatchLength { .. }
            | Refusal::Magic { .. }
            | Refusal::TooLarge { .. }
            | Refusal::LargerThanSegment { .. }
            | Refusal::Crc { .. }
            | Refusal::BaseOffset { .. }
            | Refusal::Count { .. }
            | Refusal::Control
            | Refusal::DeleteHorizon
            | Refusal::Producer { .. }
            | Refusal::LogAppendTime
            | Refusal::Codec(_)
            | Refusal::ZstdTooEarly { .. }
            | Refusal::Payload { .. }
            | Refusal::DecompressedTooLarge { .. }
            | Refusal::Malformed { .. }
            | Refusal::BytesAfterRecords { .. } => &[],
        }
    }
}

impl RecordRefusal {
    fn is_about_time(&self) -> bool {
        match self.reason {
            RecordRefusalReason::Timestamp { .. } => true,
            RecordRefusalReason::NoKey => false,
        }
    }
}

fn summary_of(records: &[RecordRefusal]) -> String {
    match records {
        [] => "records are refused".to_owned(),
        [one] => format!(
            "record {} of the batch is refused: {}",
            one.index, one.reason
        ),
        [first, ..] => format!(
            "{} records of the batch are refused, the first ({}) because: {}",
            records.len(),
            first.index,
            first.reason
        ),
    }
}
