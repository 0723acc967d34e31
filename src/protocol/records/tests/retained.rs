//! What compaction makes of batches: RP-102, RP-103.

use bytes::Bytes;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use super::super::{
    Batch, BatchBuilder, BatchOptions, Codec, Level, ProducerSequence, Record, RecordSet,
    TimestampType, batches, emptied, retain,
};

const OUTPUT_MAX: usize = 1 << 20;

fn options() -> BatchOptions {
    BatchOptions {
        base_offset: Offset(100),
        leader_epoch: LeaderEpoch(4),
        producer: Some(ProducerSequence::new(7, 2, 50)),
        ..BatchOptions::default()
    }
}

/// Five records: keys 0 to 4, timestamps that fall, tombstones at odd places.
fn five(options: BatchOptions, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for i in 0..5u8 {
        let value: &[u8] = b"some value";
        let value = (i % 2 == 0).then_some(value);
        let at = TimestampMs(9_000 - i64::from(i));
        let header: &[u8] = &[i];
        let headers = [("h", Some(header))];
        builder
            .push(at, Some(&[i]), value, &headers)
            .expect("small");
    }
    builder.build(codec).expect("five records").to_vec()
}

fn only(bytes: &[u8]) -> Batch<'_> {
    let mut found = batches(bytes);
    let batch = found.next().expect("a batch").expect("readable");
    assert!(batch.crc_matches());
    assert_eq!(batch.bytes.len(), bytes.len());
    batch
}

/// The batch with the records that `keep` picks.
fn picked(
    set: &RecordSet<'_>,
    horizon: Option<TimestampMs>,
    keep: impl Fn(&Record<'_>) -> bool,
) -> Option<Bytes> {
    let all = set.spans().map(|found| found.expect("a record"));
    let kept = all.filter(|(record, _)| keep(record));
    let kept: Vec<_> = kept
        .map(|(record, span)| (span, record.timestamp))
        .collect();
    retain(set, horizon, Level::Default, &kept).expect("made")
}

fn key_of(record: &Record<'_>) -> u8 {
    record.key.expect("a key")[0]
}

#[test]
fn rp_103_records_that_stay_keep_everything_and_the_batch_its_place() {
    for codec in Codec::ALL {
        let bytes = five(options(), codec);
        let before = only(&bytes);
        let set = before.records(OUTPUT_MAX).expect("records");
        for horizon in [None, Some(TimestampMs(1_000_000)), Some(TimestampMs(3))] {
            let kept = picked(&set, horizon, |record| key_of(record) > 2);
            let kept = kept.expect("some stay");
            let after = only(&kept);
            let mut expected = before.header.clone();
            expected.batch_length = after.header.batch_length;
            expected.crc = after.header.crc;
            expected.record_count = 2;
            expected.max_timestamp = TimestampMs(8_997);
            if let Some(horizon) = horizon {
                expected.base_timestamp = horizon;
                expected.attributes |= 0x40;
            }
            assert_eq!(after.header, expected);
            assert_eq!(after.header.delete_horizon(), horizon);
            let left = after.records(OUTPUT_MAX).expect("records");
            let left: Vec<_> = left.iter().map(|r| r.expect("a record")).collect();
            let wanted: Vec<_> = set.iter().map(|r| r.expect("a record")).collect();
            assert_eq!(left, wanted[3..], "{codec:?} {horizon:?}");
        }
    }
}

#[test]
fn rp_102_a_horizon_stays_when_more_records_go() {
    let bytes = five(options(), Codec::Lz4);
    let set = only(&bytes).records(OUTPUT_MAX).expect("records");
    let once = picked(&set, Some(TimestampMs(77)), |_| true).expect("all stay");
    let set = only(&once).records(OUTPUT_MAX).expect("records");
    let twice = picked(&set, None, |record| key_of(record) == 1).expect("one stays");
    let after = only(&twice);
    assert_eq!(after.header.delete_horizon(), Some(TimestampMs(77)));
    let records = after.records(OUTPUT_MAX).expect("records");
    let record = records.iter().next().expect("one").expect("readable");
    assert_eq!(
        (record.offset, record.timestamp, record.value),
        (Offset(101), TimestampMs(8_999), None)
    );
    assert_eq!(picked(&set, None, |_| false), None);
    let outside = [(0..bytes.len() + 100, TimestampMs(1))];
    assert!(retain(&set, None, Level::Default, &outside).is_err());
}

#[test]
fn rp_102_the_append_time_outlives_a_horizon() {
    let stamped = BatchOptions {
        timestamp_type: TimestampType::LogAppendTime,
        ..options()
    };
    let bytes = five(stamped, Codec::None);
    let set = only(&bytes).records(OUTPUT_MAX).expect("records");
    let kept = picked(&set, Some(TimestampMs(1)), |r| key_of(r) == 4).expect("one stays");
    let after = only(&kept);
    assert_eq!(after.header.max_timestamp, TimestampMs(9_000));
    let records = after.records(OUTPUT_MAX).expect("records");
    let record = records.iter().next().expect("one").expect("readable");
    assert_eq!(record.timestamp, TimestampMs(9_000));
}

#[test]
fn rp_103_an_emptied_batch_says_how_far_log_and_producer_had_come() {
    for codec in Codec::ALL {
        let transactional = BatchOptions {
            is_transactional: true,
            ..options()
        };
        let bytes = five(transactional, codec);
        let before = only(&bytes);
        let empty = emptied(&before.header);
        let after = only(&empty);
        assert_eq!(empty.len(), super::BATCH_HEADER_BYTES);
        assert_eq!(after.header.last_offset(), Offset(104));
        assert_eq!(after.header.producer(), before.header.producer());
        assert_eq!(after.header.partition_leader_epoch, LeaderEpoch(4));
        assert!(after.header.is_transactional() && !after.header.has_delete_horizon());
        assert_eq!(after.header.record_count, 0);
        assert_eq!(after.records(OUTPUT_MAX).expect("none").iter().count(), 0);
    }
}
