//! Batches that Kafka's own Java client made (tests/vectors/RecordVectors.java, clients 4.3.1).

use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::records::control::ControlRecordType;
use crate::records::header::{AT_BASE_OFFSET, AT_LEADER_EPOCH};
use crate::records::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchOptions, BatchesEnd, Codec, ProduceRules,
    ProducerSequence, TimestampType, batches, recompress, records_of, validate_produce,
};

/// A record as both sides of the test know it.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn known(timestamp: i64, key: Option<&[u8]>, value: Option<Vec<u8>>) -> Known {
    Known {
        timestamp,
        key: key.map(<[u8]>::to_vec),
        value,
        headers: Vec::new(),
    }
}

fn small() -> Vec<Known> {
    let mut first = known(1000, Some(b"k0"), Some(b"v0".to_vec()));
    first.headers = vec![
        ("h".into(), Some(b"x".to_vec())),
        ("n".into(), None),
        ("h".into(), Some(Vec::new())),
    ];
    let mut third = known(70_000, Some(b""), None);
    third.headers = vec![("\u{fc}".into(), Some("\u{20ac}".as_bytes().to_vec()))];
    vec![
        first,
        known(990, None, Some(Vec::new())),
        third,
        known(70_000, Some(b"k3"), Some("v3".repeat(100).into_bytes())),
    ]
}

fn large() -> Vec<Known> {
    (0..60u32)
        .map(|i| {
            let value = (0..4000u32)
                .map(|j| ((i * 31 + j / 7) % 251) as u8)
                .collect();
            let key = format!("key-{i}");
            known(
                1_700_000_000_000 + i64::from(i),
                Some(key.as_bytes()),
                Some(value),
            )
        })
        .collect()
}

fn hex(name: &str) -> Vec<u8> {
    let path = format!("{}/records/testdata/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the vector is in the repository");
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("hex") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn read(batch: &[u8]) -> Vec<Known> {
    let set = records_of(batch, DECOMPRESSED_BATCH_BYTES_MAX).expect("a readable batch");
    set.iter()
        .enumerate()
        .map(|(index, record)| {
            let record = record.expect("a readable record");
            assert_eq!(record.offset.0, set.header().base_offset.0 + index as i64);
            Known {
                timestamp: record.timestamp.0,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .iter()
                    .map(|header| {
                        let name = String::from_utf8(header.key.to_vec()).expect("UTF-8");
                        (name, header.value.map(<[u8]>::to_vec))
                    })
                    .collect(),
            }
        })
        .collect()
}

fn build(records: &[Known], options: BatchOptions, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<(&str, Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        builder
            .push(
                TimestampMs(record.timestamp),
                record.key.as_deref(),
                record.value.as_deref(),
                &headers,
            )
            .expect("small");
    }
    builder.build(codec).expect("records").to_vec()
}

/// As a client would have sent it: offset 0, no epoch.
fn unassigned(mut batch: Vec<u8>) -> Vec<u8> {
    batch[AT_BASE_OFFSET..AT_BASE_OFFSET + 8].fill(0);
    batch[AT_LEADER_EPOCH..AT_LEADER_EPOCH + 4].fill(0xff);
    batch
}

#[test]
fn small_batches_of_java_read_the_same_in_every_codec() {
    for codec in Codec::ALL {
        let bytes = hex(&format!("small-{}", codec.name()));
        let mut iter = batches(&bytes);
        let batch = iter.next().expect("one batch").expect("well-formed");
        assert!(batch.crc_matches());
        assert_eq!(batch.header.codec(), Ok(codec));
        assert_eq!(batch.header.base_offset, Offset(7));
        assert_eq!(batch.header.partition_leader_epoch, LeaderEpoch(3));
        assert_eq!(batch.header.max_timestamp, TimestampMs(70_000));
        assert_eq!(read(batch.bytes), small(), "{codec:?}");
        assert!(iter.next().is_none());
        assert_eq!(iter.end(), Some(BatchesEnd::Exhausted));

        let summary = validate_produce(
            &unassigned(bytes.clone()),
            &ProduceRules::defaults(TimestampMs(70_000)),
        )
        .expect("valid");
        assert_eq!(summary.max_timestamp, TimestampMs(70_000));
        assert_eq!(summary.offset_delta_of_max_timestamp, 2);
        assert_eq!((summary.record_count, summary.last_offset_delta), (4, 3));
        assert_eq!(summary.bytes, bytes.len());
    }
}

#[test]
fn large_batches_of_java_take_several_chunks_and_blocks() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bytes = hex(&format!("large-{}", codec.name()));
        assert_eq!(read(&bytes), large(), "{codec:?}");
        let rules = ProduceRules::defaults(TimestampMs(1_700_000_000_000));
        let summary = validate_produce(&unassigned(bytes), &rules).expect("valid");
        assert_eq!(summary.offset_delta_of_max_timestamp, 59);
        assert!(
            summary.uncompressed_bytes > 240_000,
            "several chunks and blocks"
        );
    }
}

#[test]
fn what_we_build_uncompressed_is_what_java_builds() {
    let options = BatchOptions {
        base_offset: Offset(7),
        leader_epoch: LeaderEpoch(3),
        ..BatchOptions::default()
    };
    assert_eq!(
        build(&small(), options.clone(), Codec::None),
        hex("small-none")
    );
    let transactional = BatchOptions {
        producer: Some(ProducerSequence::new(4000, 2, 90)),
        is_transactional: true,
        ..options
    };
    assert_eq!(
        build(&small(), transactional, Codec::None),
        hex("small-none-transactional")
    );
}

#[test]
fn what_we_compress_reads_back_and_validates() {
    for codec in Codec::ALL {
        for records in [small(), large()] {
            let batch = build(&records, BatchOptions::default(), codec);
            assert_eq!(read(&batch), records, "{codec:?}");
            let rules = ProduceRules::defaults(TimestampMs(1_700_000_000_000));
            let summary = validate_produce(&batch, &rules).expect("valid");
            assert_eq!(summary.codec, codec);
            for other in Codec::ALL {
                let again = recompress(&batch, other, Default::default(), 1 << 20).expect("fits");
                assert_eq!(read(&again), records, "{codec:?} to {other:?}");
                assert!(validate_produce(&again, &rules).is_ok());
            }
        }
    }
}

#[test]
fn log_append_time_stands_for_every_record() {
    let bytes = hex("small-lz4-stamped");
    let set = records_of(&bytes, 1 << 20).expect("readable");
    assert_eq!(set.header().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(set.iter().count(), 4);
    for record in &set {
        assert_eq!(
            record.expect("readable").timestamp,
            TimestampMs(123_456_789)
        );
    }
}

#[test]
fn control_batches_of_java_name_their_type() {
    for (name, kind, value_bytes) in [
        ("commit-marker", ControlRecordType::Commit, 6),
        ("leader-change", ControlRecordType::LeaderChange, 9),
    ] {
        let bytes = hex(name);
        let set = records_of(&bytes, 1 << 20).expect("readable");
        assert!(set.header().is_control());
        let record = set.iter().next().expect("one").expect("readable");
        assert_eq!(
            ControlRecordType::of_key(record.key.expect("a key")),
            Some(kind)
        );
        assert_eq!(record.key.expect("a key"), kind.key());
        assert_eq!(record.value.expect("a value").len(), value_bytes, "{name}");
    }
}

#[test]
fn a_control_batch_is_built_as_java_builds_it() {
    let java = hex("commit-marker");
    let options = BatchOptions {
        base_offset: Offset(11),
        leader_epoch: LeaderEpoch(3),
        producer: Some(ProducerSequence::new(4000, 2, -1)),
        is_transactional: true,
        is_control: true,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    // EndTxnMarker: version 0, coordinator epoch 9.
    let value = [0, 0, 0, 0, 0, 9];
    builder
        .push(
            TimestampMs(5000),
            Some(&ControlRecordType::Commit.key()),
            Some(&value),
            &[],
        )
        .expect("small");
    assert_eq!(builder.build(Codec::None).expect("one record"), java);
}

/// For `RecordVectors.java read`: `THALWEG_VECTORS_OUT=DIR cargo test ... -- --ignored write_batches`.
#[test]
#[ignore = "writes files for the Java program to read"]
fn write_batches_for_java() {
    let dir = std::env::var("THALWEG_VECTORS_OUT").expect("THALWEG_VECTORS_OUT names a directory");
    for codec in Codec::ALL {
        for (name, records) in [("small", small()), ("large", large())] {
            let batch = build(&records, BatchOptions::default(), codec);
            let text: String = batch.iter().map(|byte| format!("{byte:02x}")).collect();
            std::fs::write(format!("{dir}/{name}-{}.hex", codec.name()), text).expect("writable");
        }
    }
}

#[test]
fn a_fetch_answer_may_end_anywhere() {
    let mut bytes = hex("small-none");
    bytes.extend_from_slice(&hex("small-zstd"));
    let first = hex("small-none").len();
    for cut in 0..bytes.len() {
        let mut iter = batches(&bytes[..cut]);
        let whole = iter.by_ref().filter(|batch| batch.is_ok()).count();
        assert_eq!(whole, usize::from(cut >= first));
        let expected_whole = [0, first].contains(&cut);
        match iter.end() {
            Some(BatchesEnd::Exhausted) => assert!(expected_whole),
            Some(BatchesEnd::Partial { have, need }) => {
                assert!(!expected_whole && have < need);
                assert!(need == BATCH_HEADER_BYTES || have >= BATCH_HEADER_BYTES);
            }
            other => panic!("{other:?} at {cut}"),
        }
    }
    bytes.extend_from_slice(&[0; 100]);
    let mut iter = batches(&bytes);
    assert_eq!(iter.by_ref().count(), 2);
    assert_eq!(iter.end(), Some(BatchesEnd::Zeros));
}
