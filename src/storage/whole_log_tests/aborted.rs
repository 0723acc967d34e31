//! RP-75: readers of committed records learn of the aborted transactions among them.

use std::path::Path;

use thalweg_protocol::records::control::{ControlRecordType, end_marker};
use thalweg_protocol::records::{BatchBuilder, BatchHeader, BatchOptions, Codec, ProducerSequence};
use thalweg_types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

use super::room::on_stuck_disk;
use super::{TestLog, copy_dir, edit, file, on_both_engines, on_plain_engine, small_segments};
use crate::{AbortedTxn, AppendBatch, Recovery, StartKept};

const FROM_ZERO: Recovery = Recovery::AfterCrash {
    recovery_point: Offset(0),
};

/// A segment of plain batches, and one that begins with an aborted transaction.
async fn one_aborted(test: &TestLog) {
    test.fill(2).await;
    test.log.roll_active().await;
    for marker in [None, Some(ControlRecordType::Abort)] {
        let batch = transactional(test.log.assigned_end(), 1, 0, marker);
        test.log.append(batch);
        test.settle().await;
    }
}

/// A batch of a transaction, or the marker that ends one.
pub(crate) fn transactional(
    base: Offset,
    id: i64,
    sequence: i32,
    marker: Option<ControlRecordType>,
) -> AppendBatch {
    let options = BatchOptions {
        base_offset: base,
        leader_epoch: LeaderEpoch(0),
        producer: Some(ProducerSequence::new(id, 0, sequence)),
        is_transactional: true,
        ..BatchOptions::default()
    };
    let at = TimestampMs(1_000 + base.0);
    let bytes = match marker {
        Some(kind) => end_marker(kind, 1, at, options),
        None => {
            let mut builder = BatchBuilder::new(options);
            let pushed = builder.push(at, Some(b"key"), Some(b"value"), &[]);
            pushed.expect("small");
            builder.build(Codec::None)
        }
    };
    let bytes = bytes.expect("a batch");
    let header = BatchHeader::parse(&bytes).expect("a header");
    AppendBatch {
        bytes,
        base_offset: base,
        last_offset: base,
        max_timestamp: header.max_timestamp,
        offset_of_max_timestamp: base,
        leader_epoch: LeaderEpoch(0),
    }
}

fn aborted(id: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
    AbortedTxn {
        producer_id: ProducerId(id),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(stable),
    }
}

async fn found(test: &TestLog, from: i64, up_to: i64) -> Vec<i64> {
    let found = test.log.aborted_in(Offset(from), Offset(up_to)).await;
    let found = found.expect("read");
    found.iter().map(|t| t.producer_id.0).collect()
}

/// Three segments of ten batches. Transaction 1 from 2 to 20, in the second segment; 2 from 5 to 7; 3
/// from 25 to 40, in the third.
async fn three_segments(dir: &Path) -> TestLog {
    let test = TestLog::create(dir, small_segments()).await;
    for _ in 0..3 {
        test.fill(6).await;
        test.log.roll_active().await;
    }
    for transaction in [
        aborted(2, 5, 7, 2),
        aborted(1, 2, 20, 21),
        aborted(3, 25, 40, 41),
    ] {
        for _ in 0..2 {
            let noted = test.log.note_aborted(&[transaction]).await;
            noted.expect("noted, and told twice counted once");
        }
    }
    test
}

async fn check(test: &TestLog) {
    assert_eq!(found(test, 0, 2).await, []);
    assert_eq!(found(test, 0, 3).await, [1]);
    assert_eq!(found(test, 0, 50).await, [2, 1, 3]);
    // From the middle of one, and after one.
    assert_eq!(found(test, 6, 7).await, [2, 1]);
    assert_eq!(found(test, 8, 19).await, [1]);
    assert_eq!(found(test, 21, 25).await, []);
    assert_eq!(found(test, 30, 31).await, [3]);
    assert_eq!(found(test, 41, 50).await, []);
}

#[test]
fn rp_75_a_read_from_the_middle_of_a_transaction_learns_of_its_abort_after_restarts_too() {
    on_both_engines(|dir| async move {
        let test = three_segments(&dir).await;
        check(&test).await;
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(report.transactions_from, None);
        check(&test).await;
        let kept = StartKept::Durable;
        test.log.raise_start(Offset(18));
        let gone = test
            .log
            .remove_segments(Offset(18), kept, std::time::Duration::ZERO);
        assert_eq!(gone.await.expect("removed").segments, 1);
        assert_eq!(found(&test, 18, 19).await, [1]);
        assert!(!file(&dir, 0, "txnindex").exists());
    });
}

#[test]
fn st_9_a_damaged_index_of_aborted_transactions_is_told_again() {
    on_plain_engine(|dir| async move {
        let test = three_segments(&dir).await;
        test.log.close().await.expect("closed");
        edit(&file(&dir, 18, "txnindex"), |bytes| bytes.truncate(30));
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(report.transactions_from, Some(Offset(18)));
        for transaction in [aborted(1, 2, 20, 21), aborted(3, 25, 40, 41)] {
            test.log.note_aborted(&[transaction]).await.expect("noted");
        }
        check(&test).await;
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        check(&opened.expect("opened").0).await;
    });
}

#[test]
fn rp_75_after_a_crash_what_was_scanned_is_told_again() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        one_aborted(&test).await;
        test.log
            .note_aborted(&[aborted(1, 6, 7, 8)])
            .await
            .expect("noted");
        test.kill().await;
        // Of a tail that is gone by now.
        let stale = crate::txn_index::encode(&[aborted(9, 8, 9, 10)]);
        std::fs::write(file(&dir, 6, "txnindex"), stale).expect("written");
        let (test, report) = TestLog::open(&dir, small_segments(), FROM_ZERO)
            .await
            .expect("opened");
        assert_eq!(report.transactions_from, Some(Offset(6)));
        assert_eq!(found(&test, 0, 8).await, []);
        let mut markers = Vec::new();
        let walked = test.log.walk_headers(Offset(0), |header, marker| {
            markers.extend(marker.map(|kind| (header.base_offset.0, kind)));
        });
        walked.await.expect("walked");
        assert_eq!(markers, [(7, ControlRecordType::Abort)]);
        test.log
            .note_aborted(&[aborted(1, 6, 7, 8)])
            .await
            .expect("noted");
        assert_eq!(found(&test, 0, 8).await, [1]);
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        assert_eq!(found(&opened.expect("opened").0, 6, 8).await, [1]);
    });
}

/// A start looks for it above the recovery point, and not at all after a clean stop.
#[test]
fn rp_75_st_20_what_was_aborted_is_not_forgotten_for_lack_of_room() {
    for has_room_again in [true, false] {
        on_stuck_disk(|disk, root| async move {
            let test = TestLog::create(&root, small_segments()).await;
            one_aborted(&test).await;
            disk.0.set(&["txnindex.tmp"]);
            let noted = test.log.note_aborted(&[aborted(1, 6, 7, 8)]).await;
            noted.expect("known in memory");
            test.log.flush().await.expect("flushed");
            assert_eq!(test.log.durable_end(), Offset(8));
            assert_eq!(test.log.recovery_point(), Offset(6));
            if !has_room_again {
                test.log.close().await.expect_err("it would be forgotten");
                assert_eq!(test.log.recovery_point(), Offset(6));
            }
            disk.0.set(&[]);
            let copy = root.join("copy");
            copy_dir(&root.join("t-0"), &copy.join("t-0"));
            let recovery_point = Offset(6);
            let crash = Recovery::AfterCrash { recovery_point };
            let opened = TestLog::open(&copy, small_segments(), crash).await;
            assert_eq!(opened.expect("opened").1.transactions_from, Some(Offset(6)));
            if has_room_again {
                test.log.flush().await.expect("flushed");
                assert_eq!(test.log.recovery_point(), Offset(8));
                test.log.close().await.expect("closed");
                let opened = TestLog::open(&root, small_segments(), Recovery::AfterCleanStop).await;
                assert_eq!(found(&opened.expect("opened").0, 0, 8).await, [1]);
            }
        });
    }
}
