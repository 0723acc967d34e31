//! Batches as compaction leaves them: fewer records, or none, under the same offsets and sequences.
//!
//! What a reader or the next leader derives from a batch must come out the same: base offset, last
//! offset delta, leader epoch and the producer's fields stay, so sequences go on where they were and the
//! log's offsets have no hole at a batch that is kept (KIP-98, KIP-534).

use bytes::Bytes;
use thalweg_types::TimestampMs;

use super::builder::batch_length;
use super::header::{
    AT_BATCH_LENGTH, BATCH_LENGTH_MIN, CONTROL_BIT, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT, put, seal,
};
use super::iterate::around_timestamp;
use super::varint::{len_i64, put_i32, put_i64};
use super::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, BuildError, Level, Record, RecordSet,
    TimestampType, compress,
};

/// The batch of `set` with only the records that `keep` picks, in the batch's own codec. Those records
/// keep offsets and timestamps. With a `horizon` the batch gets that delete horizon (KIP-534), which
/// stands in the place of its base timestamp; without one, what it has stays. `None` when no record is
/// kept.
///
/// # Errors
/// [`BuildError::Batch`] when a record can not be read; [`BuildError::Compress`];
/// [`BuildError::TooLarge`].
pub fn retain(
    set: &RecordSet<'_>,
    horizon: Option<TimestampMs>,
    level: Level,
    mut keep: impl FnMut(&Record<'_>) -> bool,
) -> Result<Option<Bytes>, BuildError> {
    let mut header = set.header().clone();
    let mut payload = Vec::with_capacity(set.payload().len());
    let (mut count, mut max) = (0, TimestampMs::NONE);
    let mut records = set.iter();
    loop {
        let before = records.rest();
        let Some(record) = records.next().transpose()? else {
            break;
        };
        if !keep(&record) {
            continue;
        }
        let bytes = &before[..before.len() - records.rest().len()];
        match horizon {
            None => payload.extend_from_slice(bytes),
            Some(base) => put_rebased(&mut payload, bytes, record.timestamp, base, count)?,
        }
        count += 1;
        max = max.max(record.timestamp);
    }
    if count == 0 {
        return Ok(None);
    }
    let codec = header.codec().map_err(BatchError::from)?;
    let mut out = vec![0; BATCH_HEADER_BYTES];
    compress(codec, level, &payload, &mut out)?;
    if let Some(horizon) = horizon {
        header.attributes |= DELETE_HORIZON_BIT;
        header.base_timestamp = horizon;
    }
    if header.timestamp_type() == TimestampType::CreateTime {
        header.max_timestamp = max;
    }
    header.record_count = count;
    header.write(&mut out);
    let length = batch_length(&out)?;
    put(&mut out, AT_BATCH_LENGTH, length.to_be_bytes());
    seal(&mut out);
    Ok(Some(Bytes::from(out)))
}

/// The batch of `header` without records: what is kept of a batch that only says how far the log and
/// its producer had come.
#[must_use]
pub fn emptied(header: &BatchHeader) -> Bytes {
    let mut out = vec![0; BATCH_HEADER_BYTES];
    let empty = BatchHeader {
        batch_length: BATCH_LENGTH_MIN,
        attributes: header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        base_timestamp: TimestampMs::NONE,
        record_count: 0,
        ..header.clone()
    };
    empty.write(&mut out);
    seal(&mut out);
    Bytes::from(out)
}

/// Appends a record with its timestamp counted from another base.
fn put_rebased(
    out: &mut Vec<u8>,
    record: &[u8],
    timestamp: TimestampMs,
    base: TimestampMs,
    index: i32,
) -> Result<(), BuildError> {
    let (attributes, rest) =
        around_timestamp(record).map_err(|fault| BatchError::Record { index, fault })?;
    // Readers add with wrap-around.
    let delta = timestamp.0.wrapping_sub(base.0);
    let length = 1 + len_i64(delta) + rest.len();
    let length = i32::try_from(length).map_err(|_| BuildError::TooLarge { bytes: length })?;
    put_i32(out, length);
    out.push(attributes);
    put_i64(out, delta);
    out.extend_from_slice(rest);
    Ok(())
}
