//! Batches as compaction leaves them: fewer records, or none, under the same offsets and sequences.
//!
//! What a reader or the next leader derives from a batch must come out the same: base offset, last
//! offset delta, leader epoch and the producer's fields stay, so sequences go on where they were and the
//! log's offsets have no hole at a batch that is kept (KIP-98, KIP-534).

use std::ops::Range;

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
    BATCH_HEADER_BYTES, BatchError, BatchHeader, BuildError, Codec, Level, RecordFault, RecordSet,
    TimestampType, compress,
};

/// The batch of `set` with only the records `kept`, in the batch's own codec: each as its place
/// ([`RecordSet::spans`]) and its timestamp, in order. They keep offsets and timestamps. With a `horizon` the batch gets that delete horizon (KIP-534), which
/// stands in the place of its base timestamp; without one, what it has stays. `None` when no record is
/// kept.
///
/// # Errors
/// [`BuildError::Batch`] when there is no record at a place; [`BuildError::Compress`];
/// [`BuildError::TooLarge`].
pub fn retain(
    set: &RecordSet<'_>,
    horizon: Option<TimestampMs>,
    level: Level,
    kept: &[(Range<usize>, TimestampMs)],
) -> Result<Option<Bytes>, BuildError> {
    let Some(max) = kept.iter().map(|(_, timestamp)| *timestamp).max() else {
        return Ok(None);
    };
    let mut header = set.header().clone();
    let codec = header.codec().map_err(BatchError::from)?;
    let bytes: usize = kept.iter().map(|(span, _)| span.len()).sum();
    let mut out = Vec::with_capacity(BATCH_HEADER_BYTES + bytes);
    out.resize(BATCH_HEADER_BYTES, 0);
    match codec {
        Codec::None => put_records(&mut out, set, horizon, kept)?,
        Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd => {
            let mut payload = Vec::with_capacity(bytes);
            put_records(&mut payload, set, horizon, kept)?;
            compress(codec, level, &payload, &mut out)?;
        }
    }
    let count = kept.len();
    let count = i32::try_from(count).map_err(|_| BuildError::TooLarge { bytes: count })?;
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

fn put_records(
    out: &mut Vec<u8>,
    set: &RecordSet<'_>,
    horizon: Option<TimestampMs>,
    kept: &[(Range<usize>, TimestampMs)],
) -> Result<(), BuildError> {
    for (index, (span, timestamp)) in (0..).zip(kept) {
        let fault = RecordFault::Cut;
        let bytes = set.payload().get(span.clone());
        let bytes = bytes.ok_or(BatchError::Record { index, fault })?;
        match horizon {
            None => out.extend_from_slice(bytes),
            Some(base) => put_rebased(out, bytes, *timestamp, base, index)?,
        }
    }
    Ok(())
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
