//! Tests of this room that need more than one of its files.

mod bombs;
mod refusals;
mod retained;
mod twins;
mod vectors;

use bytes::Bytes;
use thalweg_types::TimestampMs;

use super::header::{put, seal};
use super::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchOptions, BatchSummary, Codec, ProduceRules, Refusal,
    validate_produce,
};

const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn rules() -> ProduceRules {
    ProduceRules::defaults(NOW)
}

/// Three records with growing timestamps.
fn three(codec: Codec) -> Vec<u8> {
    three_with(BatchOptions::default(), codec)
}

fn three_with(options: BatchOptions, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for index in 0..3i64 {
        let at = TimestampMs(NOW.0 + index);
        let headers: &[(&str, Option<&[u8]>)] = &[("trace", Some(b"abc")), ("none", None)];
        builder
            .push(at, Some(b"key"), Some(b"some value"), headers)
            .expect("small");
    }
    builder.build(codec).expect("three records").to_vec()
}

fn check(batch: &[u8]) -> Result<BatchSummary, Refusal> {
    validate_produce(batch, &rules())
}

/// The batch with other bytes at a place in its header, and a right CRC.
fn patched<const N: usize>(mut batch: Vec<u8>, at: usize, bytes: [u8; N]) -> Vec<u8> {
    put(&mut batch, at, bytes);
    seal(&mut batch);
    batch
}

/// The header of a batch of `record_count` records under `codec`, before any payload.
fn with_payload(codec: Codec, record_count: i32, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(NOW, None, None, &[]).expect("small");
    let plain: Bytes = builder.build(Codec::None).expect("one record");
    let mut batch = plain[..BATCH_HEADER_BYTES].to_vec();
    batch.extend_from_slice(payload);
    let length = (batch.len() - super::header::BATCH_LENGTH_END) as i32;
    put(
        &mut batch,
        super::header::AT_BATCH_LENGTH,
        length.to_be_bytes(),
    );
    put(
        &mut batch,
        super::header::AT_ATTRIBUTES,
        i16::from(codec.id()).to_be_bytes(),
    );
    put(
        &mut batch,
        super::header::AT_LAST_OFFSET_DELTA,
        (record_count - 1).to_be_bytes(),
    );
    patched(
        batch,
        super::header::AT_RECORD_COUNT,
        record_count.to_be_bytes(),
    )
}

/// A compressed batch of these uncompressed record bytes.
fn with_records(codec: Codec, record_count: i32, records: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    super::compress(codec, super::Level::Default, records, &mut payload).expect("compressible");
    with_payload(codec, record_count, &payload)
}
