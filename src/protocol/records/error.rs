//! Why bytes are not the batch or record they claim to be.

use super::{Codec, DecompressError};

/// A batch, or a record in it, can not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the batch needs {need} bytes and {have} are there")]
    Short {
        /// Bytes at hand.
        have: usize,
        /// Bytes needed at least.
        need: usize,
    },
    /// The length field is zero: preallocated space behind the last batch of a log.
    #[error("a batch length of zero marks the end of the log")]
    EndOfLog,
    /// The length field is negative or too small for a header.
    #[error("a batch can not have a length of {batch_length}")]
    Length {
        /// The field.
        batch_length: i32,
    },
    /// Not format v2.
    #[error("the batch format is {magic}, only 2 is supported")]
    Magic {
        /// The field.
        magic: i8,
    },
    /// The attributes name no known codec.
    #[error(transparent)]
    Codec(#[from] UnknownCodec),
    /// The records can not be decompressed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// One record is malformed.
    #[error("record {index}: {fault}")]
    Record {
        /// Its index in the batch, from 0.
        index: i32,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// The batch goes on behind the number of records that its header promises.
    #[error("{extra} bytes follow the last of {record_count} records")]
    BytesAfterRecords {
        /// The header's count.
        record_count: i32,
        /// Bytes too many; at least this many.
        extra: usize,
    },
}

/// The codec id in a batch's attributes is not assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compression codec {id} is not known")]
pub struct UnknownCodec {
    /// Bits 0 to 2 of the attributes.
    pub id: u8,
}

/// What is wrong with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The batch ends inside the record, or before it.
    #[error("the batch ends inside it")]
    Cut,
    /// A varint does not end in time or has bits beyond its type.
    #[error("a variable-length number is too long")]
    Overlong,
    /// A varint uses more bytes than it needs.
    #[error("a variable-length number is padded with zeros")]
    Padded,
    /// The record's length field is zero or less.
    #[error("its length is {length}")]
    Length {
        /// The field.
        length: i32,
    },
    /// A field reaches beyond the record's length.
    #[error("a field reaches beyond its length")]
    FieldTooLong,
    /// A length is negative where only -1 (null) or nothing negative is allowed.
    #[error("a field has a length of {length}")]
    FieldLength {
        /// The field.
        length: i32,
    },
    /// The header count is negative or can not fit what is left of the record.
    #[error("it can not have {count} headers")]
    HeaderCount {
        /// The field.
        count: i32,
    },
    /// The record's length field counts more bytes than its fields use.
    #[error("{extra} bytes of it belong to no field")]
    BytesAfterFields {
        /// Bytes too many.
        extra: usize,
    },
    /// Offset deltas of a client's batch count 0, 1, 2...
    #[error("its offset delta is {found} where {expected} is due")]
    OffsetDelta {
        /// The record's index.
        expected: i32,
        /// The field.
        found: i32,
    },
    /// Base timestamp plus delta leaves the range of a 64-bit number.
    #[error("its timestamp does not fit 64 bits")]
    TimestampRange,
}

impl Codec {
    /// The codec of an id in a batch's attributes.
    ///
    /// # Errors
    /// Ids above 4 are not assigned.
    pub fn from_id(id: u8) -> Result<Codec, UnknownCodec> {
        match id {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            5..=u8::MAX => Err(UnknownCodec { id }),
        }
    }
}
