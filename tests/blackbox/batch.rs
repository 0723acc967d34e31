//! Batches to send, and what came back.

use thalweg_protocol::messages::fetch_response::PartitionData;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, batches};
use thalweg_protocol::{ErrorCode, Records};
use thalweg_types::TimestampMs;

use crate::wire::{Connection, Topic, error};

/// All codecs.
pub const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

const DECOMPRESSED_MAX: usize = 64 << 20;

/// A timestamp that is recent, whatever the day of the test.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("a clock after 1970").as_millis()).expect("fits")
}

/// A batch of these values, without keys, in `codec`.
pub fn compressed<V: AsRef<[u8]>>(codec: Codec, values: &[V]) -> Vec<u8> {
    stamped(
        codec,
        &values
            .iter()
            .map(|value| (now_ms(), value.as_ref()))
            .collect::<Vec<_>>(),
    )
}

/// A batch of these values, uncompressed.
pub fn plain<V: AsRef<[u8]>>(values: &[V]) -> Vec<u8> {
    compressed(Codec::None, values)
}

/// A batch of timestamps and values.
pub fn stamped(codec: Codec, records: &[(i64, &[u8])]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for (timestamp, value) in records {
        builder
            .push(TimestampMs(*timestamp), None, Some(value), &[])
            .expect("a small record");
    }
    builder.build(codec).expect("a batch of records").to_vec()
}

/// A batch of one record under a key.
pub fn keyed(codec: Codec, at_ms: i64, key: &str, value: &[u8], options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    let at = TimestampMs(at_ms);
    let pushed = builder.push(at, Some(key.as_bytes()), Some(value), &[]);
    pushed.expect("a record");
    builder.build(codec).expect("a batch").to_vec()
}

/// A record that came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub offset: i64,
    pub value: Vec<u8>,
    pub leader_epoch: i32,
    pub codec: Codec,
}

/// The bytes of a fetched partition.
pub fn bytes_of(partition: &PartitionData) -> &[u8] {
    match &partition.records {
        Some(Records::Held(bytes)) => bytes,
        Some(Records::Extern(_)) => panic!("decoding holds records"),
        None => &[],
    }
}

/// The records of a fetched partition from `offset` on; every checksum is looked at.
pub fn records_from(partition: &PartitionData, offset: i64) -> Vec<Got> {
    let mut got = Vec::new();
    for batch in batches(bytes_of(partition)) {
        let batch = batch.expect("whole batches");
        assert!(
            batch.crc_matches(),
            "checksum of the batch at {:?}",
            batch.header.base_offset
        );
        for record in &batch.records(DECOMPRESSED_MAX).expect("readable records") {
            let record = record.expect("a readable record");
            got.push(Got {
                offset: record.offset.0,
                value: record.value.unwrap_or_default().to_vec(),
                leader_epoch: batch.header.partition_leader_epoch.0,
                codec: batch.header.codec().expect("a known codec"),
            });
        }
    }
    got.retain(|record| record.offset >= offset);
    got
}

/// Everything in a partition from `offset` on; offsets must be without gaps.
pub fn read_all(
    connection: &mut Connection,
    topic: &Topic,
    partition: i32,
    offset: i64,
) -> Vec<Got> {
    let mut all: Vec<Got> = Vec::new();
    loop {
        let next = all.last().map_or(offset, |record| record.offset + 1);
        let answer = connection.fetch(topic, partition, next);
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "fetching from {next}"
        );
        let got = records_from(&answer, next);
        if got.is_empty() {
            assert_eq!(
                answer.high_watermark, next,
                "nothing more below the high watermark"
            );
            return all;
        }
        for (at, record) in got.iter().enumerate() {
            assert_eq!(
                record.offset,
                next + i64::try_from(at).expect("small"),
                "no gaps"
            );
        }
        all.extend(got);
    }
}

/// The values of records.
pub fn values(records: &[Got]) -> Vec<Vec<u8>> {
    records.iter().map(|record| record.value.clone()).collect()
}
