//! Lookups by timestamp against a full scan.

use thalweg_protocol::records::Codec;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use super::{Dice, TestLog, batch, on_both_engines, small_segments};
use crate::{Log, Opening, Recovery};

const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

#[test]
fn rp_98_lookups_agree_with_a_full_scan() {
    on_both_engines(|dir| async move {
        for seed in 0..6 {
            let dir = dir.join(format!("seed-{seed}"));
            std::fs::create_dir(&dir).expect("a directory");
            let mut dice = Dice::new(seed);
            let test = TestLog::create(&dir, small_segments()).await;
            let mut records: Vec<i64> = Vec::new();
            for _ in 0..80 {
                let count = 1 + dice.below(5);
                let around = records.len() as u64 * 3;
                let timestamps: Vec<i64> = (0..count)
                    .map(|_| (around + dice.below(300)) as i64)
                    .collect();
                let base = Offset(records.len() as i64);
                let codec = CODECS[dice.below(5) as usize];
                test.log
                    .append(batch(base, LeaderEpoch(2), &timestamps, codec));
                records.extend(timestamps);
                if dice.below(3) == 0 {
                    test.settle().await;
                }
            }
            test.settle().await;
            assert!(test.log.segment_count() > 3);
            check(&test, &records, 0).await;
            test.log.close().await.expect("closed");
            for start in [0, 1, records.len() as i64 / 2, records.len() as i64 - 1] {
                let opening = Opening {
                    log_start: Some(Offset(start)),
                    ..Opening::from(Recovery::AfterCleanStop)
                };
                let opened = TestLog::open(&dir, small_segments(), opening).await;
                let (test, _) = opened.expect("opened");
                check(&test, &records, start as usize).await;
                test.log.close().await.expect("closed");
            }
        }
    });
}

pub(super) async fn check(test: &TestLog, records: &[i64], start: usize) {
    let served = || records.iter().enumerate().skip(start);
    let top = served().map(|(_, t)| *t).max().expect("records");
    for target in (0..top + 3).step_by(7).chain([0, top, top + 1, i64::MAX]) {
        let expected = served().find(|(_, t)| **t >= target);
        let hit = test
            .log
            .offset_for_timestamp(TimestampMs(target))
            .await
            .expect("a lookup");
        assert_eq!(
            hit.map(|hit| (hit.offset.0 as usize, hit.timestamp.0, hit.leader_epoch.0)),
            expected.map(|(offset, timestamp)| (offset, *timestamp, 2)),
            "target {target}, start {start}"
        );
    }
    let expected = served().find(|(_, t)| **t == top).map(|(offset, _)| offset);
    let hit = test
        .log
        .max_timestamp_offset()
        .await
        .expect("a lookup")
        .expect("records");
    assert_eq!(
        (Some(hit.offset.0 as usize), hit.timestamp.0),
        (expected, top)
    );
}

async fn assert_no_timestamps(log: &Log) {
    let newest = log.max_timestamp_offset().await;
    assert_eq!(newest.expect("a lookup"), None);
    let first = log.offset_for_timestamp(TimestampMs(0)).await;
    assert_eq!(first.expect("a lookup"), None);
}

#[test]
fn rp_98_an_empty_log_and_records_without_timestamps_have_no_answer() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        assert_no_timestamps(&test.log).await;
        for i in 0..30 {
            test.log
                .append(batch(Offset(i * 2), LeaderEpoch(0), &[-1, -1], Codec::None));
        }
        test.settle().await;
        assert_no_timestamps(&test.log).await;
        test.log.close().await.expect("closed");
    });
}

#[test]
fn rp_100_segments_roll_by_the_distance_of_timestamps() {
    on_both_engines(|dir| async move {
        let options = crate::LogOptions {
            segment_ms: 1_000,
            ..crate::LogOptions::default()
        };
        let test = TestLog::create(&dir, options).await;
        // The first batch's timestamp counts, not the wall clock; a jump back rolls nothing.
        for (i, (timestamp, segments)) in [
            (5_000, 1),
            (6_000, 1),
            (6_001, 2),
            (3_000, 2),
            (7_001, 2),
            (7_002, 3),
            (-1, 3),
        ]
        .into_iter()
        .enumerate()
        {
            test.log.append(batch(
                Offset(i as i64),
                LeaderEpoch(0),
                &[timestamp],
                Codec::None,
            ));
            test.settle().await;
            assert_eq!(test.log.segment_count(), segments, "{timestamp}");
        }
    });
}

#[test]
fn rp_100_segments_roll_by_size_full_index_and_offset_span() {
    on_both_engines(|dir| async move {
        let options = crate::LogOptions {
            index_interval_bytes: 0,
            segment_index_bytes: 60,
            ..crate::LogOptions::default()
        };
        let test = TestLog::create(&dir, options).await;
        // 60 bytes hold 5 time entries; the last place is kept for the close.
        test.fill(12).await;
        let bases = test.bases();
        assert_eq!(bases, [0, 15, 30]);
        let far = Offset(30 + i64::from(i32::MAX) + 1);
        test.log
            .append(batch(Offset(36), LeaderEpoch(0), &[1], Codec::None));
        test.log
            .append(batch(far, LeaderEpoch(0), &[1], Codec::None));
        test.settle().await;
        let last = test.log.inner.state.borrow().active().base;
        assert_eq!(last, far);
        assert_eq!(test.log.written_end(), far.plus(1));
        // An empty segment whose base is too far below is replaced.
        let farther = far.plus(i64::from(i32::MAX) * 2);
        test.log
            .append(batch(farther, LeaderEpoch(0), &[1], Codec::None));
        test.settle().await;
        assert_eq!(test.log.inner.state.borrow().active().base, farther);
        // Across gaps a read goes on with the next batch.
        let plan = test
            .log
            .read_plan(Offset(37), farther, 1_000)
            .await
            .expect("a plan");
        assert_eq!(plan.first_offset, far);
    });
}
