//! Rules BI-11 to BI-16, RP-93, RP-99, RP-101: each way in which a client's batch may be wrong.

use thalweg_types::{LeaderEpoch, Offset, ProducerEpoch, TimestampMs};

use super::{NOW, check, patched, rules, three, three_with, with_payload, with_records};
use crate::ErrorCode;
use crate::records::header::{
    AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_BATCH_LENGTH,
    AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_RECORD_COUNT,
    CONTROL_BIT, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT,
};
use crate::records::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchOptions, Codec, ProducerSequence, RecordFault,
    RecordRefusalReason, Refusal, TimestampRule, TimestampType, assign, batches, crc_matches,
    records_of, set_log_append_time, validate_produce,
};

fn code(batch: &[u8]) -> ErrorCode {
    check(batch).expect_err("a refusal").error_code()
}

#[test]
fn bi_11_crc_magic_and_number_of_batches() {
    let good = three(Codec::None);
    assert!(check(&good).is_ok());

    let mut flipped = good.clone();
    flipped[BATCH_HEADER_BYTES + 5] ^= 1;
    assert_eq!(code(&flipped), ErrorCode::CorruptMessage);

    for (magic, expected) in [
        (0u8, ErrorCode::InvalidRecord),
        (1, ErrorCode::InvalidRecord),
        (3, ErrorCode::CorruptMessage),
        (0xff, ErrorCode::CorruptMessage),
    ] {
        assert_eq!(code(&patched(good.clone(), AT_MAGIC, [magic])), expected);
    }

    // One message of an old client is shorter than a batch can be. Damaged it is not: that would be sent again.
    for magic in [0u8, 1] {
        let mut old = vec![0; AT_MAGIC + 18];
        old[AT_BATCH_LENGTH + 3] = 22;
        old[AT_MAGIC] = magic;
        let magic = magic as i8;
        assert_eq!(check(&old), Err(Refusal::Magic { magic }));
        assert_eq!(code(&old), ErrorCode::InvalidRecord);
    }
    assert_eq!(code(&[0; 100]), ErrorCode::CorruptMessage);

    let two = [good.clone(), good.clone()].concat();
    assert_eq!(
        check(&two),
        Err(Refusal::MoreThanOneBatch { extra: good.len() })
    );
    assert_eq!(code(&two), ErrorCode::InvalidRecord);
    assert_eq!(
        code(&[good.clone(), vec![0]].concat()),
        ErrorCode::InvalidRecord
    );
    assert_eq!(
        check(&[]),
        Err(Refusal::NoBatch {
            have: 0,
            need: BATCH_HEADER_BYTES
        })
    );
    for cut in 0..good.len() {
        assert!(
            matches!(check(&good[..cut]), Err(Refusal::NoBatch { .. })),
            "cut at {cut}"
        );
    }
}

#[test]
fn bi_12_header_fields() {
    let good = three(Codec::None);
    for (at, field) in [
        (AT_RECORD_COUNT, 0i32),
        (AT_RECORD_COUNT, -1),
        (AT_RECORD_COUNT, i32::MIN),
        (AT_RECORD_COUNT, 2),
        (AT_LAST_OFFSET_DELTA, 3),
        (AT_LAST_OFFSET_DELTA, -1),
        (AT_LAST_OFFSET_DELTA, i32::MAX),
    ] {
        let bad = patched(good.clone(), at, field.to_be_bytes());
        assert!(
            matches!(check(&bad), Err(Refusal::Count { .. })),
            "{at} {field}"
        );
        assert_eq!(code(&bad), ErrorCode::InvalidRecord);
    }
    let moved = patched(good.clone(), AT_BASE_OFFSET, 5i64.to_be_bytes());
    assert_eq!(check(&moved), Err(Refusal::BaseOffset { base_offset: 5 }));
    for length in [0i32, 48, -1, i32::MIN] {
        let bad = patched(good.clone(), AT_BATCH_LENGTH, length.to_be_bytes());
        assert_eq!(
            check(&bad),
            Err(Refusal::BatchLength {
                batch_length: length
            })
        );
        assert_eq!(code(&bad), ErrorCode::CorruptMessage);
    }
    let long = patched(good, AT_BATCH_LENGTH, i32::MAX.to_be_bytes());
    assert!(matches!(check(&long), Err(Refusal::NoBatch { .. })));
}

#[test]
fn bi_12_count_must_be_the_real_one_in_every_codec() {
    for codec in Codec::ALL {
        let good = three(codec);
        for count in [1i32, 2, 4, 1_000_000, i32::MAX] {
            let bad = patched(good.clone(), AT_RECORD_COUNT, count.to_be_bytes());
            let bad = patched(bad, AT_LAST_OFFSET_DELTA, (count - 1).to_be_bytes());
            let refusal = check(&bad).expect_err("a refusal");
            let lost_in_limit = codec != Codec::None && count == i32::MAX;
            let expected = if lost_in_limit {
                ErrorCode::MessageTooLarge
            } else {
                ErrorCode::InvalidRecord
            };
            assert_eq!(
                refusal.error_code(),
                expected,
                "{codec:?} {count} {refusal}"
            );
        }
    }
}

#[test]
fn bi_12_producer_fields() {
    let producer = ProducerSequence::new(9, 0, 0);
    let options = BatchOptions {
        producer: Some(producer),
        ..BatchOptions::default()
    };
    let good = three_with(options.clone(), Codec::None);
    assert_eq!(
        check(&good).map(|summary| summary.producer),
        Ok(Some(producer))
    );
    for sequence in [-1i32, i32::MIN] {
        let bad = patched(good.clone(), AT_BASE_SEQUENCE, sequence.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::InvalidRecord);
    }
    let epochless = ProducerSequence {
        epoch: ProducerEpoch(-1),
        ..producer
    };
    let options = BatchOptions {
        producer: Some(epochless),
        ..options
    };
    assert_eq!(
        code(&three_with(options, Codec::None)),
        ErrorCode::InvalidRecord
    );
    // A transaction without a producer id.
    let bad = patched(
        three(Codec::None),
        AT_ATTRIBUTES,
        TRANSACTIONAL_BIT.to_be_bytes(),
    );
    assert!(matches!(check(&bad), Err(Refusal::Producer { .. })));
}

/// Length, attributes, timestamp delta, offset delta, key, value, header count; and what is wrong.
const RECORDS: &[(&str, &[u8], Option<RecordFault>)] = {
    use RecordFault as F;
    &[
        ("null key and value", &[12, 0, 0, 0, 1, 1, 0], None),
        ("empty key and value", &[12, 0, 0, 0, 0, 0, 0], None),
        ("unused attributes", &[12, 0xff, 0, 0, 1, 1, 0], None),
        (
            "offset delta",
            &[12, 0, 0, 2, 1, 1, 0],
            Some(F::OffsetDelta {
                expected: 0,
                found: 1,
            }),
        ),
        (
            "length 0",
            &[0, 0, 0, 0, 1, 1, 0],
            Some(F::Length { length: 0 }),
        ),
        (
            "length -1",
            &[1, 0, 0, 0, 1, 1, 0],
            Some(F::Length { length: -1 }),
        ),
        (
            "length too short",
            &[10, 0, 0, 0, 1, 1, 0],
            Some(F::FieldTooLong),
        ),
        ("length too long", &[14, 0, 0, 0, 1, 1, 0], Some(F::Cut)),
        (
            "bytes unused",
            &[14, 0, 0, 0, 1, 1, 0, 9],
            Some(F::BytesAfterFields { extra: 1 }),
        ),
        (
            "key too long",
            &[12, 0, 0, 0, 8, 1, 0],
            Some(F::FieldTooLong),
        ),
        (
            "key length -2",
            &[12, 0, 0, 0, 3, 1, 0],
            Some(F::FieldLength { length: -2 }),
        ),
        (
            "value too long",
            &[12, 0, 0, 0, 1, 4, 0],
            Some(F::FieldTooLong),
        ),
        (
            "headers -1",
            &[12, 0, 0, 0, 1, 1, 1],
            Some(F::HeaderCount { count: -1 }),
        ),
        (
            "headers beyond",
            &[14, 0, 0, 0, 1, 1, 2, 0],
            Some(F::HeaderCount { count: 1 }),
        ),
        ("header", &[16, 0, 0, 0, 1, 1, 2, 0, 1], None),
        (
            "header name null",
            &[16, 0, 0, 0, 1, 1, 2, 1, 1],
            Some(F::FieldLength { length: -1 }),
        ),
        ("padded", &[14, 0, 0x80, 0, 0, 1, 1, 0], Some(F::Padded)),
        (
            "overlong",
            &[22, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0],
            Some(F::Overlong),
        ),
        ("cut", &[12, 0, 0, 0, 1, 1], Some(F::Cut)),
    ]
};

#[test]
fn bi_12_records() {
    for (what, records, fault) in RECORDS {
        for codec in Codec::ALL {
            let found = check(&with_records(codec, 1, records));
            let Some(fault) = *fault else {
                assert!(found.is_ok(), "{what}: {found:?}");
                continue;
            };
            let refusal = found.expect_err(what);
            assert_eq!(refusal.error_code(), ErrorCode::InvalidRecord);
            // A stream does not know how much is left, so it may find another fault first.
            if codec == Codec::None || fault != RecordFault::Cut {
                assert_eq!(refusal, Refusal::Malformed { index: 0, fault }, "{what}");
            }
        }
    }
    let trailing = with_records(Codec::None, 1, &[12, 0, 0, 0, 1, 1, 0, 7]);
    assert_eq!(
        check(&trailing),
        Err(Refusal::BytesAfterRecords { record_count: 1 })
    );
}

#[test]
fn bi_13_sizes() {
    let good = three(Codec::None);
    let mut small = rules();
    small.max_batch_bytes = good.len();
    assert!(validate_produce(&good, &small).is_ok());
    small.max_batch_bytes = good.len() - 1;
    let refusal = validate_produce(&good, &small).expect_err("too large");
    assert_eq!(refusal.error_code(), ErrorCode::MessageTooLarge);
    let mut small = rules();
    small.segment_bytes = good.len() - 1;
    let refusal = validate_produce(&good, &small).expect_err("too large");
    assert_eq!(refusal.error_code(), ErrorCode::RecordListTooLarge);
}

#[test]
fn bi_15_codecs() {
    for id in 5i16..8 {
        let bad = patched(three(Codec::None), AT_ATTRIBUTES, id.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::UnsupportedCompressionType);
    }
    let mut old = rules();
    old.produce_version = 6;
    let refusal = validate_produce(&three(Codec::Zstd), &old).expect_err("KIP-110");
    assert_eq!(refusal.error_code(), ErrorCode::UnsupportedCompressionType);
    assert!(validate_produce(&three(Codec::Lz4), &old).is_ok());

    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        // Nothing at all, an empty stream, rubbish, a stream that is cut, a stream with a tail.
        for payload in [
            &[][..],
            &[0; 40],
            &[0xff; 40],
            &[0x82, b'S', b'N', b'A', b'P'],
        ] {
            assert_eq!(
                code(&with_payload(codec, 1, payload)),
                ErrorCode::InvalidRecord
            );
        }
        assert_eq!(code(&with_records(codec, 1, &[])), ErrorCode::InvalidRecord);
        let good = three(codec);
        for cut in BATCH_HEADER_BYTES..good.len() {
            let bad = with_payload(codec, 3, &good[BATCH_HEADER_BYTES..cut]);
            assert_eq!(
                code(&bad),
                ErrorCode::InvalidRecord,
                "{codec:?} cut at {cut}"
            );
        }
        let tail = [&good[BATCH_HEADER_BYTES..], &[1, 2, 3]].concat();
        assert_eq!(
            code(&with_payload(codec, 3, &tail)),
            ErrorCode::InvalidRecord,
            "{codec:?}"
        );
    }
}

#[test]
fn bi_16_a_valid_batch_is_not_touched() {
    for codec in Codec::ALL {
        let mut batch = three(codec);
        let before = batch.clone();
        let summary = check(&batch).expect("valid");
        summary.settle(&mut batch);
        assert_eq!(batch, before);
        assign(&mut batch, Offset(1_000), LeaderEpoch(7));
        assert!(crc_matches(&batch));
        assert_eq!(batch[AT_MAGIC..], before[AT_MAGIC..]);
        let header = batches(&batch).next().expect("one").expect("valid").header;
        assert_eq!(header.base_offset, Offset(1_000));
        assert_eq!(header.partition_leader_epoch, LeaderEpoch(7));
        assert_eq!(header.last_offset(), Offset(1_002));
    }
}

#[test]
fn a_wrong_max_timestamp_is_corrected_as_kafka_does() {
    for codec in Codec::ALL {
        let mut batch = patched(three(codec), AT_MAX_TIMESTAMP, 12i64.to_be_bytes());
        let summary = check(&batch).expect("valid");
        assert_eq!(summary.max_timestamp, TimestampMs(NOW.0 + 2));
        summary.settle(&mut batch);
        assert_eq!(batch, three(codec));
    }
}

#[test]
fn rp_93_control_batches_and_delete_horizons_are_the_brokers() {
    for bit in [CONTROL_BIT, DELETE_HORIZON_BIT] {
        let bad = patched(three(Codec::None), AT_ATTRIBUTES, bit.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::InvalidRecord);
    }
}

#[test]
fn rp_99_timestamps() {
    let stamped = patched(
        three(Codec::None),
        AT_ATTRIBUTES,
        LOG_APPEND_TIME_BIT.to_be_bytes(),
    );
    assert_eq!(check(&stamped), Err(Refusal::LogAppendTime));
    assert_eq!(code(&stamped), ErrorCode::InvalidTimestamp);

    let mut builder = BatchBuilder::new(BatchOptions::default());
    for at in [NOW.0 - 1001, NOW.0 - 1000, -1, NOW.0 + 500, NOW.0 + 501] {
        builder
            .push(TimestampMs(at), None, None, &[])
            .expect("small");
    }
    let batch = builder.build(Codec::Lz4).expect("records");
    let mut bounded = rules();
    bounded.timestamps = TimestampRule::CreateTime {
        now: NOW,
        before_max_ms: 1000,
        after_max_ms: 500,
    };
    let refusal = validate_produce(&batch, &bounded).expect_err("out of bounds");
    assert_eq!(refusal.error_code(), ErrorCode::InvalidTimestamp);
    let indexes: Vec<i32> = refusal
        .record_refusals()
        .iter()
        .map(|one| one.index)
        .collect();
    assert_eq!(indexes, [0, 4]);
    assert_eq!(
        refusal.record_refusals()[0].reason.to_string(),
        format!(
            "timestamp {} is not within {} to {}",
            NOW.0 - 1001,
            NOW.0 - 1000,
            NOW.0 + 500
        )
    );

    // A bound that reaches back beyond all time does not reach to its very beginning.
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder
        .push(TimestampMs(i64::MIN), None, None, &[])
        .expect("small");
    let ancient = builder.build(Codec::None).expect("records");
    let refusal = validate_produce(&ancient, &rules()).expect_err("out of bounds");
    assert_eq!(refusal.error_code(), ErrorCode::InvalidTimestamp);

    // Under LogAppendTime the producer's timestamps do not matter.
    let now = TimestampMs(NOW.0 + 77);
    bounded.timestamps = TimestampRule::LogAppendTime { now };
    let summary = validate_produce(&batch, &bounded).expect("valid");
    assert_eq!(
        (summary.max_timestamp, summary.offset_delta_of_max_timestamp),
        (now, 0)
    );
    let mut settled = batch.to_vec();
    summary.settle(&mut settled);
    let mut stamped = batch.to_vec();
    set_log_append_time(&mut stamped, now);
    assert_eq!(settled, stamped);
    assert!(crc_matches(&settled));
    let set = records_of(&settled, 1 << 20).expect("readable");
    assert_eq!(set.header().timestamp_type(), TimestampType::LogAppendTime);
    assert!(
        set.iter()
            .all(|record| record.is_ok_and(|record| record.timestamp == now))
    );
}

#[test]
fn timestamps_at_the_edge_of_their_range() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for at in [i64::MAX, i64::MIN, 0, -5, -1] {
        builder
            .push(TimestampMs(at), None, None, &[])
            .expect("small");
    }
    let batch = builder.build(Codec::None).expect("records");
    let set = records_of(&batch, 0).expect("readable");
    let read: Vec<i64> = set
        .iter()
        .map(|one| one.expect("readable").timestamp.0)
        .collect();
    assert_eq!(read, [i64::MAX, i64::MIN, 0, -5, -1]);
    assert!(check(&batch).is_err());

    let overflow = patched(
        three(Codec::None),
        AT_BASE_TIMESTAMP,
        i64::MAX.to_be_bytes(),
    );
    assert_eq!(code(&overflow), ErrorCode::InvalidTimestamp);
    let none = patched(three(Codec::None), AT_BASE_TIMESTAMP, (-3i64).to_be_bytes());
    assert_eq!(
        check(&none).map(|summary| summary.max_timestamp),
        Ok(TimestampMs(-1))
    );
}

#[test]
fn rp_101_keys_where_the_topic_is_compacted() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for key in [Some(&b"k"[..]), None, Some(b""), None] {
        builder.push(NOW, key, None, &[]).expect("small");
    }
    for codec in Codec::ALL {
        let mut builder = builder.clone();
        let batch = builder.build(codec).expect("records");
        let mut compacted = rules();
        assert!(validate_produce(&batch, &compacted).is_ok());
        compacted.keys_required = true;
        let refusal = validate_produce(&batch, &compacted).expect_err("keys missing");
        assert_eq!(refusal.error_code(), ErrorCode::InvalidRecord);
        let refused = refusal.record_refusals();
        assert_eq!(
            refused.iter().map(|one| one.index).collect::<Vec<_>>(),
            [1, 3]
        );
        assert!(
            refused
                .iter()
                .all(|one| one.reason == RecordRefusalReason::NoKey)
        );
    }
}

#[test]
fn the_leader_epoch_of_a_client_is_ignored() {
    let mut batch = three(Codec::None);
    batch[AT_LEADER_EPOCH..AT_LEADER_EPOCH + 4].copy_from_slice(&5i32.to_be_bytes());
    assert!(check(&batch).is_ok());
}
