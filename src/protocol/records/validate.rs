//! What a client's batch must look like before it may be appended (rules BI-11 to BI-16).
//!
//! Everything is decided before a byte is written, and the bytes are never changed here: a batch is
//! stored as its producer compressed it. The cheap checks come first; the CRC before anything that
//! looks behind the header; records last.

use std::io::BufRead;

use thalweg_types::TimestampMs;
use thalweg_types::limits::{DECOMPRESSED_BATCH_BYTES_MAX, RECORD_REFUSALS_MAX};

use super::batches::next_batch;
use super::compression::{Capped, ReaderJob, output_limit, with_reader};
use super::header::{AT_BATCH_LENGTH, AT_MAGIC, computed_crc, set_timestamps};
use super::walk::{RECORD_BYTES_MIN, WalkError, Walked, walk_slice, walk_stream};
use super::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, Codec, DecompressError, ProducerSequence,
    RecordFault, RecordRefusal, RecordRefusalReason, Refusal, TimestampType,
};

/// First version of Produce that may carry zstd (KIP-110).
const PRODUCE_VERSION_ZSTD: i16 = 7;

/// What the partition's topic and the request ask of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRules {
    /// `max.message.bytes`: of the batch as sent, header included.
    pub max_batch_bytes: usize,
    /// `segment.bytes`.
    pub segment_bytes: usize,
    /// Largest output of decompression; beyond a free allowance it is also bound by
    /// [`thalweg_types::limits::DECOMPRESSION_RATIO_MAX`].
    pub decompressed_bytes_max: usize,
    /// `message.timestamp.*`.
    pub timestamps: TimestampRule,
    /// True for compacted topics.
    pub keys_required: bool,
    /// Version of the produce request.
    pub produce_version: i16,
}

/// `message.timestamp.type` and its bounds (KIP-32, KIP-937).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampRule {
    /// Records keep their own timestamps; one of -1 ("none") is never out of bounds.
    CreateTime {
        /// The broker's clock.
        now: TimestampMs,
        /// `message.timestamp.before.max.ms`: how far a record may lie in the past.
        before_max_ms: i64,
        /// `message.timestamp.after.max.ms`: how far a record may lie in the future.
        after_max_ms: i64,
    },
    /// Every record gets the broker's clock.
    LogAppendTime {
        /// The broker's clock.
        now: TimestampMs,
    },
}

impl ProduceRules {
    /// Kafka's defaults for a topic without configuration, and the newest request.
    #[must_use]
    pub fn defaults(now: TimestampMs) -> ProduceRules {
        ProduceRules {
            max_batch_bytes: 1_048_588,
            segment_bytes: 1 << 30,
            decompressed_bytes_max: DECOMPRESSED_BATCH_BYTES_MAX,
            timestamps: TimestampRule::CreateTime {
                now,
                before_max_ms: i64::MAX,
                after_max_ms: 3_600_000,
            },
            keys_required: false,
            produce_version: i16::MAX,
        }
    }
}

/// What a valid batch is, for those who place it in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// Bytes of the batch, header included.
    pub bytes: usize,
    /// At least 1.
    pub record_count: i32,
    /// `record_count - 1`.
    pub last_offset_delta: i32,
    /// What the header's max timestamp must be: the largest of the records (-1 when none has one), or
    /// the broker's clock under LogAppendTime.
    pub max_timestamp: TimestampMs,
    /// The first record that has it, counted from the base offset; 0 under LogAppendTime and when no
    /// record has a timestamp.
    pub offset_delta_of_max_timestamp: i32,
    /// What the header's timestamp type must be.
    pub timestamp_type: TimestampType,
    /// As the producer compressed it.
    pub codec: Codec,
    /// Bytes of the records without compression.
    pub uncompressed_bytes: usize,
    /// The identity of an idempotent producer.
    pub producer: Option<ProducerSequence>,
    /// Part of a transaction; then `producer` is there too.
    pub is_transactional: bool,
    /// Always false for a batch from a client.
    pub is_control: bool,
}

impl BatchSummary {
    /// Makes the header's timestamp type and max timestamp what they must be. Touches nothing, and
    /// costs nothing, when the producer got them right and the topic keeps its timestamps; else the
    /// CRC is computed again.
    ///
    /// # Panics
    /// When `batch` is not the validated batch but shorter than a header.
    pub fn settle(&self, batch: &mut [u8]) {
        set_timestamps(batch, self.timestamp_type, self.max_timestamp);
    }
}

/// Checks one partition entry of a produce request (v3 and later): exactly one batch of format v2 that
/// a client may write, whose records are well-formed, countable and allowed by `rules`.
///
/// # Errors
/// The first [`Refusal`]; refusals of single records are collected.
pub fn validate_produce(batch: &[u8], rules: &ProduceRules) -> Result<BatchSummary, Refusal> {
    let header = only_batch(batch)?;
    check_sizes(batch.len(), rules)?;
    check_crc(&header, batch)?;
    check_header(&header)?;
    let codec = header.codec()?;
    if codec == Codec::Zstd && rules.produce_version < PRODUCE_VERSION_ZSTD {
        return Err(Refusal::ZstdTooEarly {
            produce_version: rules.produce_version,
        });
    }
    let payload = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    let mut gate = Gate::new(&header, rules);
    let uncompressed_bytes = walk_payload(&header, codec, payload, rules, &mut gate)?;
    let (max_timestamp, offset_delta_of_max_timestamp) = gate.finish()?;
    let (timestamp_type, max_timestamp, offset_delta_of_max_timestamp) = match rules.timestamps {
        TimestampRule::CreateTime { .. } => (
            TimestampType::CreateTime,
            max_timestamp,
            offset_delta_of_max_timestamp,
        ),
        TimestampRule::LogAppendTime { now } => (TimestampType::LogAppendTime, now, 0),
    };
    Ok(BatchSummary {
        bytes: batch.len(),
        record_count: header.record_count,
        last_offset_delta: header.last_offset_delta,
        max_timestamp,
        offset_delta_of_max_timestamp,
        timestamp_type,
        codec,
        uncompressed_bytes,
        producer: header.producer(),
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
    })
}

/// Smallest length of a message in format 0, which has the least before its key.
const OLD_LENGTH_MIN: i32 = 14;

/// A message in one of the old formats, as far as its length and format say. It may be shorter than any batch, and its
/// sender must not take it for one that was damaged on its way: clients send those again.
fn old_format(bytes: &[u8]) -> Option<i8> {
    let length = bytes.get(AT_BATCH_LENGTH..)?.first_chunk()?;
    match bytes.get(AT_MAGIC) {
        Some(magic @ (0 | 1)) if i32::from_be_bytes(*length) >= OLD_LENGTH_MIN => {
            Some(*magic as i8)
        }
        Some(_) | None => None,
    }
}

fn only_batch(bytes: &[u8]) -> Result<BatchHeader, Refusal> {
    if let Some(magic) = old_format(bytes) {
        return Err(Refusal::Magic { magic });
    }
    match next_batch(bytes) {
        Ok((header, batch)) if batch.len() == bytes.len() => Ok(header),
        Ok((_, batch)) => Err(Refusal::MoreThanOneBatch {
            extra: bytes.len() - batch.len(),
        }),
        Err(BatchError::Magic { magic }) => Err(Refusal::Magic { magic }),
        Err(BatchError::Length { batch_length }) => Err(Refusal::BatchLength { batch_length }),
        Err(BatchError::EndOfLog) => Err(Refusal::BatchLength { batch_length: 0 }),
        Err(BatchError::Short { have, need }) => Err(Refusal::NoBatch { have, need }),
        Err(
            BatchError::Codec(_)
            | BatchError::Decompress(_)
            | BatchError::Record { .. }
            | BatchError::BytesAfterRecords { .. },
        ) => unreachable!("a header alone says nothing of records"),
    }
}

fn check_sizes(bytes: usize, rules: &ProduceRules) -> Result<(), Refusal> {
    if bytes > rules.max_batch_bytes {
        return Err(Refusal::TooLarge {
            bytes,
            max: rules.max_batch_bytes,
        });
    }
    if bytes > rules.segment_bytes {
        return Err(Refusal::LargerThanSegment {
            bytes,
            max: rules.segment_bytes,
        });
    }
    Ok(())
}

fn check_crc(header: &BatchHeader, batch: &[u8]) -> Result<(), Refusal> {
    let computed = computed_crc(batch);
    if computed != header.crc {
        return Err(Refusal::Crc {
            stored: header.crc,
            computed,
        });
    }
    Ok(())
}

fn check_header(header: &BatchHeader) -> Result<(), Refusal> {
    if header.base_offset.0 != 0 {
        return Err(Refusal::BaseOffset {
            base_offset: header.base_offset.0,
        });
    }
    let (record_count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    if record_count <= 0 || last_offset_delta != record_count - 1 {
        return Err(Refusal::Count {
            record_count,
            last_offset_delta,
        });
    }
    if header.is_control() {
        return Err(Refusal::Control);
    }
    if header.has_delete_horizon() {
        return Err(Refusal::DeleteHorizon);
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(Refusal::LogAppendTime);
    }
    let producer_is_whole = match header.producer() {
        Some(producer) => producer.epoch.0 >= 0 && producer.base_sequence >= 0,
        None => !header.is_transactional(),
    };
    if !producer_is_whole {
        return Err(Refusal::Producer {
            id: header.producer_id.0,
            epoch: header.producer_epoch.0,
            base_sequence: header.base_sequence,
        });
    }
    Ok(())
}

/// Walks the records, whichever form they have. Returns their uncompressed size.
fn walk_payload(
    header: &BatchHeader,
    codec: Codec,
    payload: &[u8],
    rules: &ProduceRules,
    gate: &mut Gate,
) -> Result<usize, Refusal> {
    let record_count = header.record_count;
    // A count that can not be true is refused before the work, not after it.
    let bytes_min = (record_count as usize).saturating_mul(RECORD_BYTES_MIN);
    if codec == Codec::None {
        if bytes_min > payload.len() {
            return Err(Refusal::Malformed {
                index: record_count - 1,
                fault: RecordFault::Cut,
            });
        }
        return walk_slice(payload, record_count, |record| gate.admit(record))
            .map(|()| payload.len())
            .map_err(|error| refuse(error, header, codec));
    }
    let limit = output_limit(payload.len(), rules.decompressed_bytes_max);
    if bytes_min > limit {
        return Err(Refusal::DecompressedTooLarge { limit });
    }
    match with_reader(codec, payload, limit, Walk { record_count, gate }) {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(refuse(error, header, codec)),
        Err(error) => Err(refuse(WalkError::Decompress(error), header, codec)),
    }
}

struct Walk<'a> {
    record_count: i32,
    gate: &'a mut Gate,
}

impl ReaderJob for Walk<'_> {
    type Output = Result<Result<usize, WalkError>, DecompressError>;

    fn run<R: BufRead>(self, reader: Capped<R>) -> Self::Output {
        Ok(walk_stream(reader, self.record_count, |record| {
            self.gate.admit(record)
        }))
    }
}

fn refuse(error: WalkError, header: &BatchHeader, codec: Codec) -> Refusal {
    match error {
        WalkError::Record { index, fault } => Refusal::Malformed { index, fault },
        WalkError::BytesAfterRecords => Refusal::BytesAfterRecords {
            record_count: header.record_count,
        },
        WalkError::Decompress(DecompressError::TooLarge { limit }) => {
            Refusal::DecompressedTooLarge { limit }
        }
        WalkError::Decompress(DecompressError::Corrupt { codec: _, detail }) => {
            Refusal::Payload { codec, detail }
        }
    }
}

/// Asks each well-formed record what the topic asks, and remembers the largest timestamp.
struct Gate {
    base_timestamp: i64,
    keys_required: bool,
    /// Now, and how far before and after it a timestamp may lie; none under LogAppendTime.
    bounds: Option<Bounds>,
    max_timestamp: TimestampMs,
    index_of_max: i32,
    refused: Vec<RecordRefusal>,
}

#[derive(Clone, Copy)]
struct Bounds {
    now: i64,
    before_max_ms: i64,
    after_max_ms: i64,
}

impl Bounds {
    fn earliest(&self) -> i64 {
        self.now.saturating_sub(self.before_max_ms)
    }

    fn latest(&self) -> i64 {
        self.now.saturating_add(self.after_max_ms)
    }

    fn contain(&self, timestamp: i64) -> bool {
        self.earliest() <= timestamp && timestamp <= self.latest()
    }
}

impl Gate {
    fn new(header: &BatchHeader, rules: &ProduceRules) -> Gate {
        let bounds = match rules.timestamps {
            TimestampRule::CreateTime {
                now,
                before_max_ms,
                after_max_ms,
            } => Some(Bounds {
                now: now.0,
                before_max_ms,
                after_max_ms,
            }),
            TimestampRule::LogAppendTime { now: _ } => None,
        };
        Gate {
            base_timestamp: header.base_timestamp.0,
            keys_required: rules.keys_required,
            bounds,
            max_timestamp: TimestampMs::NONE,
            index_of_max: 0,
            refused: Vec::new(),
        }
    }

    #[inline]
    fn admit(&mut self, record: Walked) -> Result<(), RecordFault> {
        let timestamp = self
            .base_timestamp
            .checked_add(record.timestamp_delta)
            .ok_or(RecordFault::TimestampRange)?;
        if self.keys_required && !record.has_key {
            self.refuse(record.index, RecordRefusalReason::NoKey);
        } else if let Some(bounds) = self.bounds
            && timestamp != TimestampMs::NONE.0
            && !bounds.contain(timestamp)
        {
            self.refuse_timestamp(record.index, timestamp, bounds);
        }
        if timestamp > self.max_timestamp.0 {
            self.max_timestamp = TimestampMs(timestamp);
            self.index_of_max = record.index;
        }
        Ok(())
    }

    #[cold]
    fn refuse_timestamp(&mut self, index: i32, timestamp: i64, bounds: Bounds) {
        self.refuse(
            index,
            RecordRefusalReason::Timestamp {
                timestamp: TimestampMs(timestamp),
                earliest: TimestampMs(bounds.earliest()),
                latest: TimestampMs(bounds.latest()),
            },
        );
    }

    #[cold]
    fn refuse(&mut self, index: i32, reason: RecordRefusalReason) {
        if self.refused.len() < RECORD_REFUSALS_MAX {
            self.refused.push(RecordRefusal { index, reason });
        }
    }

    /// The largest timestamp and the first record that has it.
    fn finish(self) -> Result<(TimestampMs, i32), Refusal> {
        if self.refused.is_empty() {
            Ok((self.max_timestamp, self.index_of_max))
        } else {
            Err(Refusal::Records(self.refused))
        }
    }
}
