//! Reading the records of a batch that is already trusted to be one: from a log, or from a fetch
//! answer.
//!
//! More lenient than [`super::validate_produce`], because what stands in a log may have been
//! compacted (offset deltas with gaps, fewer records than offsets) or written by other brokers.

use std::borrow::Cow;
use std::ops::Range;

use thalweg_types::{Offset, TimestampMs};

use super::batches::next_batch;
use super::varint::{self, VarintError};
use super::walk::{RECORD_BYTES_MIN, RECORD_HEADER_BYTES_MIN};
use super::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, Codec, RecordFault, TimestampType, decompress,
};

/// Opens the records of the batch at the start of `batch`. Uncompressed records stay where they are;
/// compressed ones are decompressed into one buffer of at most `decompressed_bytes_max` bytes (and
/// within the ratio cap).
///
/// The CRC is not looked at: use [`super::crc_matches`] where the bytes may be damaged.
///
/// # Errors
/// [`BatchError`] when there is no whole batch, its codec is unknown, or its payload is not readable.
pub fn records_of(
    batch: &[u8],
    decompressed_bytes_max: usize,
) -> Result<RecordSet<'_>, BatchError> {
    let (header, bytes) = next_batch(batch)?;
    let payload = bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    let payload = match header.codec()? {
        Codec::None => Cow::Borrowed(payload),
        // A batch that compaction emptied has no stream behind its header (KIP-98).
        Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd if header.record_count <= 0 => {
            Cow::Borrowed(&[][..])
        }
        codec @ (Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd) => {
            Cow::Owned(decompress(codec, payload, decompressed_bytes_max)?)
        }
    };
    Ok(RecordSet { header, payload })
}

/// The records of one batch, decompressed if need be.
#[derive(Clone, Debug)]
pub struct RecordSet<'a> {
    header: BatchHeader,
    payload: Cow<'a, [u8]>,
}

impl RecordSet<'_> {
    /// The same on its own, for another thread. Copies what was not compressed.
    #[must_use]
    pub fn into_owned(self) -> RecordSet<'static> {
        RecordSet {
            header: self.header,
            payload: Cow::Owned(self.payload.into_owned()),
        }
    }

    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records as bytes, without compression.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Most records that there can be: as many as the header says and the bytes have room for.
    #[must_use]
    pub fn count_max(&self) -> usize {
        let said = usize::try_from(self.header.record_count).unwrap_or(0);
        said.min(self.payload.len() / RECORD_BYTES_MIN)
    }

    /// Walks the records from the first, each with the place of its bytes in [`RecordSet::payload`].
    pub fn spans(&self) -> impl Iterator<Item = Result<(Record<'_>, Range<usize>), BatchError>> {
        let all = self.payload.len();
        let mut records = self.iter();
        std::iter::from_fn(move || {
            let start = all - records.rest.len();
            let record = records.next()?;
            Some(record.map(|record| (record, start..all - records.rest.len())))
        })
    }

    /// Walks the records from the first.
    #[must_use]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter {
            header: &self.header,
            rest: &self.payload,
            next_index: 0,
            ended: false,
        }
    }
}

impl<'a> IntoIterator for &'a RecordSet<'_> {
    type Item = Result<Record<'a>, BatchError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

/// One record. Key, value and headers are slices of the batch or of its decompressed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// Its own, or the batch's append time under LogAppendTime.
    pub timestamp: TimestampMs,
    /// `None` is null, not empty.
    pub key: Option<&'a [u8]>,
    /// `None` is null: a tombstone where the topic is compacted.
    pub value: Option<&'a [u8]>,
    /// In the order they were written; names may repeat.
    pub headers: Headers<'a>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// UTF-8 by Kafka's rule, which nobody checks.
    pub key: &'a [u8],
    /// `None` is null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Headers<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Walks them in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut fields = Fields { rest: self.bytes };
        // The same bytes were read once already, so no header fails here.
        (0..self.count).map_while(move |_| fields.header().ok())
    }
}

/// See [`RecordSet::iter`]. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    header: &'a BatchHeader,
    rest: &'a [u8],
    next_index: i32,
    ended: bool,
}

impl<'a> RecordIter<'a> {
    fn read(&mut self) -> Result<Record<'a>, RecordFault> {
        let mut outer = Fields { rest: self.rest };
        let length = outer.int()?;
        let body = usize::try_from(length).ok().filter(|length| *length > 0);
        let body = outer.bytes(
            body.ok_or(RecordFault::Length { length })?,
            RecordFault::Cut,
        )?;
        self.rest = outer.rest;

        let mut fields = Fields { rest: body };
        fields.bytes(1, RecordFault::FieldTooLong)?; // attributes: unused
        let timestamp_delta = fields.long()?;
        let offset_delta = fields.int()?;
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        let count = fields.int()?;
        let header_count = usize::try_from(count)
            .ok()
            .filter(|headers| *headers <= fields.rest.len() / RECORD_HEADER_BYTES_MIN)
            .ok_or(RecordFault::HeaderCount { count })?;
        let headers = Headers {
            bytes: fields.rest,
            count: header_count,
        };
        for _ in 0..header_count {
            fields.header()?;
        }
        if !fields.rest.is_empty() {
            return Err(RecordFault::BytesAfterFields {
                extra: fields.rest.len(),
            });
        }
        let timestamp = match self.header.timestamp_type() {
            TimestampType::CreateTime => {
                TimestampMs(self.header.base_timestamp.0.wrapping_add(timestamp_delta))
            }
            TimestampType::LogAppendTime => self.header.max_timestamp,
        };
        let offset = Offset(
            self.header
                .base_offset
                .0
                .wrapping_add(i64::from(offset_delta)),
        );
        Ok(Record {
            offset,
            timestamp,
            key,
            value,
            headers,
        })
    }

    fn finish(&mut self) -> Option<Result<Record<'a>, BatchError>> {
        self.ended = true;
        (!self.rest.is_empty()).then_some(Err(BatchError::BytesAfterRecords {
            record_count: self.header.record_count,
            extra: self.rest.len(),
        }))
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let index = self.next_index;
        if index >= self.header.record_count {
            return self.finish();
        }
        self.next_index += 1;
        match self.read() {
            Ok(record) => Some(Ok(record)),
            Err(fault) => {
                self.ended = true;
                Some(Err(BatchError::Record { index, fault }))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.rest.len() / RECORD_BYTES_MIN + 1))
    }
}

/// The attributes of one whole record, and what follows its timestamp.
pub(super) fn around_timestamp(record: &[u8]) -> Result<(u8, &[u8]), RecordFault> {
    let mut fields = Fields { rest: record };
    fields.int()?; // its length
    let attributes = fields.byte()?;
    fields.long()?;
    Ok((attributes, fields.rest))
}

/// Fields in order over a slice.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[inline]
    fn byte(&mut self) -> Result<u8, RecordFault> {
        let (byte, rest) = self.rest.split_first().ok_or(RecordFault::Cut)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn int(&mut self) -> Result<i32, RecordFault> {
        match self.short() {
            Some(raw) => Ok(varint::unzigzag_i32(raw)),
            None => varint::take_i32(|| self.byte())
                .map(|int| int.value)
                .map_err(overlong),
        }
    }

    #[inline]
    fn long(&mut self) -> Result<i64, RecordFault> {
        match self.short() {
            Some(raw) => Ok(varint::unzigzag_i64(u64::from(raw))),
            None => varint::take_i64(|| self.byte())
                .map(|long| long.value)
                .map_err(overlong),
        }
    }

    /// A varint of one byte or two, which nearly all are, as it stands there; nothing is taken of a longer one.
    #[inline]
    fn short(&mut self) -> Option<u32> {
        let (raw, rest) = match self.rest {
            [one, rest @ ..] if *one < 0x80 => (u32::from(*one), rest),
            [one, two, rest @ ..] if *two < 0x80 => {
                (u32::from(*one & 0x7f) | u32::from(*two) << 7, rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(raw)
    }

    #[inline]
    fn bytes(&mut self, count: usize, missing: RecordFault) -> Result<&'a [u8], RecordFault> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(missing)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        let length = self.int()?;
        match usize::try_from(length) {
            Ok(count) => self.bytes(count, RecordFault::FieldTooLong).map(Some),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(RecordFault::FieldLength { length }),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordFault> {
        let length = self.int()?;
        let count = usize::try_from(length).map_err(|_| RecordFault::FieldLength { length })?;
        let key = self.bytes(count, RecordFault::FieldTooLong)?;
        let value = self.nullable()?;
        Ok(Header { key, value })
    }
}

fn overlong(error: VarintError<RecordFault>) -> RecordFault {
    match error {
        VarintError::Supply(fault) => fault,
        VarintError::Overlong => RecordFault::Overlong,
    }
}
