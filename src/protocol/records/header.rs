//! The 61-byte header of a record batch of format v2 (KIP-98): parsing, checksum, and the few fields
//! that a broker may write.
//!
//! ```text
//!  0 base offset      i64 |  outside the CRC: the broker assigns it
//!  8 batch length     i32 |  bytes after this field
//! 12 leader epoch     i32 |  outside the CRC: the broker assigns it
//! 16 magic            i8  |  2
//! 17 crc              u32 |  CRC-32C of everything from byte 21 on
//! 21 attributes       i16 |  bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
//! 23 last offset delta i32
//! 27 base timestamp   i64
//! 35 max timestamp    i64
//! 43 producer id      i64 | 51 producer epoch i16 | 53 base sequence i32
//! 57 record count     i32
//! ```

use thalweg_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{BatchError, Codec, UnknownCodec};

/// Bytes of the batch header; the records follow.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes before the part that `batch_length` counts.
pub const BATCH_LENGTH_END: usize = 12;

/// Smallest value of the `batch_length` field: a header and no records.
pub const BATCH_LENGTH_MIN: i32 = (BATCH_HEADER_BYTES - BATCH_LENGTH_END) as i32;

/// The only batch format the broker stores.
pub const MAGIC_V2: i8 = 2;

pub(super) const AT_BASE_OFFSET: usize = 0;
pub(super) const AT_BATCH_LENGTH: usize = 8;
pub(super) const AT_LEADER_EPOCH: usize = 12;
pub(super) const AT_MAGIC: usize = 16;
pub(super) const AT_CRC: usize = 17;
pub(super) const AT_ATTRIBUTES: usize = 21;
pub(super) const AT_LAST_OFFSET_DELTA: usize = 23;
pub(super) const AT_BASE_TIMESTAMP: usize = 27;
pub(super) const AT_MAX_TIMESTAMP: usize = 35;
pub(super) const AT_PRODUCER_ID: usize = 43;
pub(super) const AT_PRODUCER_EPOCH: usize = 51;
pub(super) const AT_BASE_SEQUENCE: usize = 53;
pub(super) const AT_RECORD_COUNT: usize = 57;

pub(super) const CODEC_MASK: i16 = 0x07;
pub(super) const LOG_APPEND_TIME_BIT: i16 = 0x08;
pub(super) const TRANSACTIONAL_BIT: i16 = 0x10;
pub(super) const CONTROL_BIT: i16 = 0x20;
pub(super) const DELETE_HORIZON_BIT: i16 = 0x40;

/// Who set the timestamps of a batch (KIP-32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer, per record.
    CreateTime,
    /// The broker at append: every record has the batch's max timestamp.
    LogAppendTime,
}

/// The identity that an idempotent producer puts on a batch (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerSequence {
    /// Never negative.
    pub id: ProducerId,
    /// Never negative in a batch that [`super::validate_produce`] let through.
    pub epoch: ProducerEpoch,
    /// Sequence number of the first record; -1 in control batches.
    pub base_sequence: i32,
}

impl ProducerSequence {
    /// Of the numbers as they stand in a header.
    #[must_use]
    pub fn new(id: i64, epoch: i16, base_sequence: i32) -> ProducerSequence {
        ProducerSequence {
            id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
            base_sequence,
        }
    }
}

/// The header of one batch, as it stands on the wire and on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes after the length field; at least [`BATCH_LENGTH_MIN`].
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch; -1 from a client.
    pub partition_leader_epoch: LeaderEpoch,
    /// Always [`MAGIC_V2`] after [`BatchHeader::parse`].
    pub magic: i8,
    /// CRC-32C from the attributes to the end of the batch.
    pub crc: u32,
    /// Codec and flags; see the module's table.
    pub attributes: i16,
    /// Offset of the last record minus the base offset. Compaction may remove records and leave it.
    pub last_offset_delta: i32,
    /// What the records' timestamp deltas are added to.
    pub base_timestamp: TimestampMs,
    /// Largest timestamp of the records, or the append time.
    pub max_timestamp: TimestampMs,
    /// -1 means none.
    pub producer_id: ProducerId,
    /// -1 means none.
    pub producer_epoch: ProducerEpoch,
    /// -1 means none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may end inside the records.
    ///
    /// # Errors
    /// [`BatchError::Short`] when fewer than 61 bytes are there, [`BatchError::EndOfLog`] for a
    /// length of zero, [`BatchError::Length`] and [`BatchError::Magic`] for impossible values.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        check_length_and_magic(bytes)?;
        let Some(head) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Short {
                have: bytes.len(),
                need: BATCH_HEADER_BYTES,
            });
        };
        Ok(BatchHeader {
            base_offset: Offset(i64::from_be_bytes(field(head, AT_BASE_OFFSET))),
            batch_length: i32::from_be_bytes(field(head, AT_BATCH_LENGTH)),
            partition_leader_epoch: LeaderEpoch(i32::from_be_bytes(field(head, AT_LEADER_EPOCH))),
            magic: head[AT_MAGIC] as i8,
            crc: u32::from_be_bytes(field(head, AT_CRC)),
            attributes: i16::from_be_bytes(field(head, AT_ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(head, AT_LAST_OFFSET_DELTA)),
            base_timestamp: TimestampMs(i64::from_be_bytes(field(head, AT_BASE_TIMESTAMP))),
            max_timestamp: TimestampMs(i64::from_be_bytes(field(head, AT_MAX_TIMESTAMP))),
            producer_id: ProducerId(i64::from_be_bytes(field(head, AT_PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(head, AT_PRODUCER_EPOCH))),
            base_sequence: i32::from_be_bytes(field(head, AT_BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(head, AT_RECORD_COUNT)),
        })
    }

    /// Writes every field to the start of `batch`, the CRC as it stands.
    pub(super) fn write(&self, batch: &mut [u8]) {
        put(batch, AT_BASE_OFFSET, self.base_offset.0.to_be_bytes());
        put(batch, AT_BATCH_LENGTH, self.batch_length.to_be_bytes());
        put(
            batch,
            AT_LEADER_EPOCH,
            self.partition_leader_epoch.0.to_be_bytes(),
        );
        put(batch, AT_MAGIC, self.magic.to_be_bytes());
        put(batch, AT_CRC, self.crc.to_be_bytes());
        put(batch, AT_ATTRIBUTES, self.attributes.to_be_bytes());
        put(
            batch,
            AT_LAST_OFFSET_DELTA,
            self.last_offset_delta.to_be_bytes(),
        );
        put(
            batch,
            AT_BASE_TIMESTAMP,
            self.base_timestamp.0.to_be_bytes(),
        );
        put(batch, AT_MAX_TIMESTAMP, self.max_timestamp.0.to_be_bytes());
        put(batch, AT_PRODUCER_ID, self.producer_id.0.to_be_bytes());
        put(
            batch,
            AT_PRODUCER_EPOCH,
            self.producer_epoch.0.to_be_bytes(),
        );
        put(batch, AT_BASE_SEQUENCE, self.base_sequence.to_be_bytes());
        put(batch, AT_RECORD_COUNT, self.record_count.to_be_bytes());
    }

    /// The delete horizon that compaction gave the batch: from then on its tombstones may go (KIP-534).
    #[must_use]
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Bytes of the whole batch, header included.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        BATCH_LENGTH_END + usize::try_from(self.batch_length).unwrap_or(0)
    }

    /// Offset of the last record. Saturates on absurd headers; the caller compares it with the log.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(
            self.base_offset
                .0
                .saturating_add(i64::from(self.last_offset_delta)),
        )
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// Ids 5 to 7 are not assigned.
    pub fn codec(&self) -> Result<Codec, UnknownCodec> {
        Codec::from_id((self.attributes & CODEC_MASK) as u8)
    }

    /// Part of a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Holds control records (markers, KRaft control), which applications never see.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Compaction has written the delete horizon in place of the base timestamp (KIP-534).
    #[must_use]
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    /// Who set the timestamps.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// The producer's identity, if it has one.
    #[must_use]
    pub fn producer(&self) -> Option<ProducerSequence> {
        (self.producer_id.0 >= 0).then_some(ProducerSequence {
            id: self.producer_id,
            epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
        })
    }
}

/// Checks the two fields that decide how the rest is read, as far as `bytes` reach.
pub(super) fn check_length_and_magic(bytes: &[u8]) -> Result<(), BatchError> {
    let Some(head) = bytes.first_chunk::<BATCH_LENGTH_END>() else {
        return Err(BatchError::Short {
            have: bytes.len(),
            need: BATCH_HEADER_BYTES,
        });
    };
    let batch_length = i32::from_be_bytes(field(head, AT_BATCH_LENGTH));
    if batch_length == 0 {
        return Err(BatchError::EndOfLog);
    }
    if batch_length < BATCH_LENGTH_MIN {
        return Err(BatchError::Length { batch_length });
    }
    match bytes.get(AT_MAGIC) {
        Some(magic) if *magic as i8 != MAGIC_V2 => Err(BatchError::Magic {
            magic: *magic as i8,
        }),
        Some(_) | None => Ok(()),
    }
}

/// `N` bytes of a header at a position known when compiling.
#[inline]
fn field<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}

/// True when the stored CRC-32C is that of the bytes. `batch` must be exactly one batch.
#[must_use]
pub fn crc_matches(batch: &[u8]) -> bool {
    match batch.get(AT_CRC..AT_ATTRIBUTES) {
        Some(stored) => stored == computed_crc(batch).to_be_bytes(),
        None => false,
    }
}

/// CRC-32C of everything behind the CRC field.
pub(super) fn computed_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(AT_ATTRIBUTES..).unwrap_or_default())
}

/// Gives the batch its place in the log. Both fields lie outside the CRC, so the records stay
/// untouched.
///
/// # Panics
/// When `batch` is shorter than a header: callers pass what [`super::validate_produce`] let through.
pub fn assign(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    assert!(
        batch.len() >= BATCH_HEADER_BYTES,
        "assign wants a whole batch"
    );
    put(batch, AT_BASE_OFFSET, base_offset.0.to_be_bytes());
    put(batch, AT_LEADER_EPOCH, leader_epoch.0.to_be_bytes());
}

/// Marks the batch as stamped by the broker at `now` and recomputes the CRC (one pass over the batch).
///
/// # Panics
/// When `batch` is shorter than a header: callers pass what [`super::validate_produce`] let through.
pub fn set_log_append_time(batch: &mut [u8], now: TimestampMs) {
    set_timestamps(batch, TimestampType::LogAppendTime, now);
}

/// Writes timestamp type and max timestamp, and recomputes the CRC only when one of them changed.
/// A broker does this after validation, because a client's max timestamp may be wrong: Kafka corrects
/// it rather than refusing the batch.
///
/// # Panics
/// When `batch` is shorter than a header: callers pass what [`super::validate_produce`] let through.
pub fn set_timestamps(batch: &mut [u8], timestamp_type: TimestampType, max: TimestampMs) {
    assert!(
        batch.len() >= BATCH_HEADER_BYTES,
        "set_timestamps wants a whole batch"
    );
    let attributes = i16::from_be_bytes(field(batch, AT_ATTRIBUTES));
    let wanted = match timestamp_type {
        TimestampType::CreateTime => attributes & !LOG_APPEND_TIME_BIT,
        TimestampType::LogAppendTime => attributes | LOG_APPEND_TIME_BIT,
    };
    let max_now = i64::from_be_bytes(field(batch, AT_MAX_TIMESTAMP));
    if attributes == wanted && max_now == max.0 {
        return;
    }
    put(batch, AT_ATTRIBUTES, wanted.to_be_bytes());
    put(batch, AT_MAX_TIMESTAMP, max.0.to_be_bytes());
    seal(batch);
}

/// Computes and stores the CRC.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = computed_crc(batch);
    put(batch, AT_CRC, crc.to_be_bytes());
}

#[inline]
pub(super) fn put<const N: usize>(batch: &mut [u8], at: usize, bytes: [u8; N]) {
    batch[at..at + N].copy_from_slice(&bytes);
}
