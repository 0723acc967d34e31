//! Making batches: for clients, benchmarks, the metadata log, and for a topic whose `compression.type`
//! differs from the producer's.

use bytes::Bytes;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use super::batches::next_batch;
use super::header::{
    AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_BATCH_LENGTH,
    AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID, AT_RECORD_COUNT, BATCH_LENGTH_END, CODEC_MASK, CONTROL_BIT,
    LOG_APPEND_TIME_BIT, MAGIC_V2, TRANSACTIONAL_BIT, put, seal,
};
use super::varint::{len_i32, len_i64, put_i32, put_i64};
use super::{
    BATCH_HEADER_BYTES, BatchError, Codec, CompressError, Level, ProducerSequence, TimestampType,
    compress, decompress,
};

/// Everything of a batch that is not its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// 0 from a client.
    pub base_offset: Offset,
    /// -1 from a client.
    pub leader_epoch: LeaderEpoch,
    /// Identity of an idempotent producer.
    pub producer: Option<ProducerSequence>,
    /// Part of a transaction.
    pub is_transactional: bool,
    /// The records are control records; see [`super::control`].
    pub is_control: bool,
    /// LogAppendTime only from a broker: readers then see the largest timestamp for every record.
    pub timestamp_type: TimestampType,
    /// For the codec.
    pub level: Level,
}

impl Default for BatchOptions {
    /// What a client without idempotence sends.
    fn default() -> Self {
        BatchOptions {
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::NONE,
            producer: None,
            is_transactional: false,
            is_control: false,
            timestamp_type: TimestampType::CreateTime,
            level: Level::Default,
        }
    }
}

/// A batch can not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A batch has at least one record.
    #[error("a record batch needs at least one record")]
    Empty,
    /// Lengths in a batch are 32-bit numbers.
    #[error("a record batch can not have {bytes} bytes")]
    TooLarge {
        /// Bytes it would have.
        bytes: usize,
    },
    /// The codec refused.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// The batch to change is none.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// A header to write: name, and value or null.
pub type RecordHeader<'a> = (&'a str, Option<&'a [u8]>);

/// Collects records and turns them into one batch. Can be used again after each [`BatchBuilder::build`].
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Encoded records.
    payload: Vec<u8>,
    record_count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder {
            options,
            payload: Vec::new(),
            record_count: 0,
            base_timestamp: TimestampMs::NONE.0,
            max_timestamp: TimestampMs::NONE.0,
        }
    }

    /// What the next batch will be, to change between batches.
    pub fn options_mut(&mut self) -> &mut BatchOptions {
        &mut self.options
    }

    /// Adds a record; its offset is the base offset plus the number of records before it.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`] when the batch would not fit 32-bit lengths any more; the record is then
    /// not added.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) -> Result<(), BuildError> {
        if self.record_count == 0 {
            self.base_timestamp = timestamp.0;
        }
        // Readers add with wrap-around, so even timestamps that lie 2^63 apart come back right.
        let timestamp_delta = timestamp.0.wrapping_sub(self.base_timestamp);
        let body = body_bytes(timestamp_delta, self.record_count, key, value, headers);
        // The length field needs at most 5 bytes.
        let total = BATCH_HEADER_BYTES + self.payload.len() + body + 5;
        let fits = i32::try_from(total).is_ok() && self.record_count < i32::MAX;
        let length = i32::try_from(body).ok().filter(|_| fits);
        let length = length.ok_or(BuildError::TooLarge { bytes: total })?;
        let out = &mut self.payload;
        put_i32(out, length);
        out.push(0); // attributes: unused
        put_i64(out, timestamp_delta);
        put_i32(out, self.record_count);
        put_nullable(out, key);
        put_nullable(out, value);
        put_i32(out, headers.len() as i32); // fits: each header counts 2 bytes of `length`
        for (name, value) in headers {
            put_nullable(out, Some(name.as_bytes()));
            put_nullable(out, *value);
        }
        self.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp.0);
        Ok(())
    }

    /// Records collected.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// True when no record is collected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes that the batch would have now without compression.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// Makes the batch and empties the builder. One allocation; compression needs its own.
    ///
    /// # Errors
    /// [`BuildError`]; the records are lost then too.
    pub fn build(&mut self, codec: Codec) -> Result<Bytes, BuildError> {
        let record_count = std::mem::take(&mut self.record_count);
        if record_count == 0 {
            return Err(BuildError::Empty);
        }
        let mut batch = Vec::with_capacity(BATCH_HEADER_BYTES + self.payload.len());
        batch.resize(BATCH_HEADER_BYTES, 0);
        let compressed = compress(codec, self.options.level, &self.payload, &mut batch);
        self.payload.clear();
        compressed?;
        let (base, max) = (self.base_timestamp, self.max_timestamp);
        self.base_timestamp = TimestampMs::NONE.0;
        self.max_timestamp = TimestampMs::NONE.0;
        let batch_length = batch_length(&batch)?;
        self.write_header(&mut batch, codec, record_count);
        put(&mut batch, AT_BATCH_LENGTH, batch_length.to_be_bytes());
        put(&mut batch, AT_BASE_TIMESTAMP, base.to_be_bytes());
        put(&mut batch, AT_MAX_TIMESTAMP, max.to_be_bytes());
        seal(&mut batch);
        Ok(Bytes::from(batch))
    }

    fn write_header(&self, batch: &mut [u8], codec: Codec, record_count: i32) {
        let options = &self.options;
        let (id, epoch, sequence) = match options.producer {
            Some(producer) => (producer.id.0, producer.epoch.0, producer.base_sequence),
            None => (-1, -1, -1),
        };
        put(batch, AT_BASE_OFFSET, options.base_offset.0.to_be_bytes());
        put(batch, AT_LEADER_EPOCH, options.leader_epoch.0.to_be_bytes());
        put(batch, AT_MAGIC, MAGIC_V2.to_be_bytes());
        put(
            batch,
            AT_ATTRIBUTES,
            attributes(options, codec).to_be_bytes(),
        );
        put(
            batch,
            AT_LAST_OFFSET_DELTA,
            (record_count - 1).to_be_bytes(),
        );
        put(batch, AT_PRODUCER_ID, id.to_be_bytes());
        put(batch, AT_PRODUCER_EPOCH, epoch.to_be_bytes());
        put(batch, AT_BASE_SEQUENCE, sequence.to_be_bytes());
        put(batch, AT_RECORD_COUNT, record_count.to_be_bytes());
    }
}

fn attributes(options: &BatchOptions, codec: Codec) -> i16 {
    let mut attributes = i16::from(codec.id());
    if options.timestamp_type == TimestampType::LogAppendTime {
        attributes |= LOG_APPEND_TIME_BIT;
    }
    if options.is_transactional {
        attributes |= TRANSACTIONAL_BIT;
    }
    if options.is_control {
        attributes |= CONTROL_BIT;
    }
    attributes
}

/// The same batch under another codec: every field but length, codec and CRC stays.
///
/// # Errors
/// [`BuildError::Batch`] when `batch` is not one whole readable batch; [`BuildError::Compress`].
pub fn recompress(
    batch: &[u8],
    codec: Codec,
    level: Level,
    decompressed_bytes_max: usize,
) -> Result<Bytes, BuildError> {
    let (header, bytes) = next_batch(batch)?;
    let from = header.codec().map_err(BatchError::from)?;
    let (head, payload) = bytes
        .split_at_checked(BATCH_HEADER_BYTES)
        .unwrap_or((bytes, &[]));
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(head);
    if from == Codec::None {
        compress(codec, level, payload, &mut out)?;
    } else {
        let plain = decompress(from, payload, decompressed_bytes_max).map_err(BatchError::from)?;
        compress(codec, level, &plain, &mut out)?;
    }
    let batch_length = batch_length(&out)?;
    let attributes = (header.attributes & !CODEC_MASK) | i16::from(codec.id());
    put(&mut out, AT_BATCH_LENGTH, batch_length.to_be_bytes());
    put(&mut out, AT_ATTRIBUTES, attributes.to_be_bytes());
    seal(&mut out);
    Ok(Bytes::from(out))
}

pub(super) fn batch_length(batch: &[u8]) -> Result<i32, BuildError> {
    i32::try_from(batch.len() - BATCH_LENGTH_END)
        .map_err(|_| BuildError::TooLarge { bytes: batch.len() })
}

fn body_bytes(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader<'_>],
) -> usize {
    let headers_bytes: usize = headers
        .iter()
        .map(|(name, value)| nullable_bytes(Some(name.as_bytes())) + nullable_bytes(*value))
        .sum();
    1 + len_i64(timestamp_delta)
        + len_i32(offset_delta)
        + nullable_bytes(key)
        + nullable_bytes(value)
        + len_i32(headers.len() as i32)
        + headers_bytes
}

fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    match bytes {
        // A length that does not fit an i32 makes a body that does not fit either, which `push` refuses.
        Some(bytes) => len_i32(bytes.len() as i32).saturating_add(bytes.len()),
        None => 1,
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_i32(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => put_i32(out, -1),
    }
}
