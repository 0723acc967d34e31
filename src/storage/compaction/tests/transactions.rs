//! RP-103: what compaction makes of transactions.

use std::collections::HashMap;

use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{BatchHeader, BatchOptions};
use thalweg_replica::LastOfProducer;
use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{
    RETENTION_MS, append, cleaner, compact, content, producer, roomy, small, survivors, try_compact,
};
use crate::AbortedTxn;
use crate::txn_index::decode;
use crate::whole_log_tests::aborted::transactional as transactional_batch;
use crate::whole_log_tests::{TestLog, file, on_plain_engine};

fn transactional(id: i64, sequence: i32) -> BatchOptions {
    BatchOptions {
        is_transactional: true,
        ..producer(id, sequence)
    }
}

async fn end(test: &TestLog, id: i64, kind: ControlRecordType) {
    test.log.append(transactional_batch(
        test.log.assigned_end(),
        id,
        -1,
        Some(kind),
    ));
    test.settle().await;
}

fn aborted(id: i64, first: i64, last: i64) -> AbortedTxn {
    AbortedTxn {
        producer_id: ProducerId(id),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(last + 1),
    }
}

fn read_index(dir: &std::path::Path, base: i64) -> Vec<AbortedTxn> {
    let bytes = std::fs::read(file(dir, base, "txnindex")).expect("a file");
    decode(&bytes, Offset(base)).expect("valid")
}

async fn markers(test: &TestLog) -> Vec<i64> {
    let (headers, _) = content(test).await;
    let markers = headers.iter().filter(|h| h.is_control());
    markers.map(|h| h.base_offset.0).collect()
}

async fn clean_all(test: &TestLog, now: i64) {
    test.log.inner.state.borrow_mut().cleaned_to = Some(Offset(0));
    let done = try_compact(test, &roomy(), now, HashMap::new()).await;
    done.expect("cleaned");
}

#[test]
fn rp_103_aborted_records_go_and_a_marker_stays_as_long_as_it_is_needed_and_its_horizon_after() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        // 0: committed a. 2: aborted a, b. 5: committed c that lasts. 7: plain b.
        append(&test, &[("a", true)], transactional(1, 0)).await;
        end(&test, 1, ControlRecordType::Commit).await;
        append(&test, &[("a", true), ("b", true)], transactional(2, 0)).await;
        end(&test, 2, ControlRecordType::Abort).await;
        append(&test, &[("c", true)], transactional(2, 2)).await;
        end(&test, 2, ControlRecordType::Commit).await;
        append(&test, &[("b", true)], BatchOptions::default()).await;
        test.log.roll_active().await;
        test.log
            .note_aborted(&[aborted(2, 2, 4)])
            .await
            .expect("noted");
        clean_all(&test, 100_000).await;
        let left = [(0, "a"), (5, "c"), (7, "b")];
        let left: Vec<_> = left.map(|(at, key)| (at, key.to_owned())).into();
        // The aborted `a` did not take the place of the committed one.
        assert_eq!(survivors(&test).await, left);
        assert_eq!(markers(&test).await, [1, 4, 6]);
        // Readers may be in the middle of it: they still learn of the abort.
        assert_eq!(read_index(&dir, 0), [aborted(2, 2, 4)]);
        // From now on the marker of the abort marks nothing.
        clean_all(&test, 200_000).await;
        assert_eq!(markers(&test).await, [1, 4, 6]);
        assert_eq!(read_index(&dir, 0), []);
        let (headers, _) = content(&test).await;
        let horizon = headers.iter().find_map(BatchHeader::delete_horizon);
        assert_eq!(horizon, Some(TimestampMs(200_000 + RETENTION_MS)));
        clean_all(&test, 200_000 + RETENTION_MS - 1).await;
        assert_eq!(markers(&test).await, [1, 4, 6]);
        clean_all(&test, 200_000 + RETENTION_MS).await;
        assert_eq!(markers(&test).await, [1, 6]);
        assert_eq!(survivors(&test).await, left);
    });
}

#[test]
fn rp_103_a_transaction_over_several_segments_is_known_in_each() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true)], BatchOptions::default()).await;
        append(&test, &[("a", true)], transactional(1, 0)).await;
        test.log.roll_active().await;
        append(&test, &[("a", true)], transactional(1, 1)).await;
        end(&test, 1, ControlRecordType::Abort).await;
        append(&test, &[("d", true)], transactional(1, 2)).await;
        end(&test, 1, ControlRecordType::Commit).await;
        test.log.roll_active().await;
        test.log
            .note_aborted(&[aborted(1, 1, 3)])
            .await
            .expect("noted");
        clean_all(&test, 1).await;
        let left: Vec<i64> = survivors(&test).await.iter().map(|(at, _)| *at).collect();
        assert_eq!(left, [0, 4]);
    });
}

#[test]
fn rp_103_a_transaction_whose_abort_lies_behind_the_round_takes_nobodys_place() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true)], BatchOptions::default()).await;
        append(&test, &[("a", true)], transactional(1, 0)).await;
        test.log.roll_active().await;
        // In the active segment, which no round touches.
        end(&test, 1, ControlRecordType::Abort).await;
        let noted = test.log.note_aborted(&[aborted(1, 1, 2)]).await;
        noted.expect("noted");
        clean_all(&test, 1).await;
        assert_eq!(survivors(&test).await, [(0, "a".to_owned())]);
    });
}

#[test]
fn rp_101_rp_103_an_abort_below_the_dirty_part_says_nothing_of_what_its_producer_commits_there() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true)], BatchOptions::default()).await;
        append(&test, &[("b", true)], transactional(1, 0)).await;
        end(&test, 1, ControlRecordType::Abort).await;
        test.log.roll_active().await;
        let noted = test.log.note_aborted(&[aborted(1, 1, 2)]).await;
        noted.expect("noted");
        assert_eq!(compact(&test, &roomy(), 1).await.end, Offset(3));
        append(&test, &[("a", true)], transactional(1, 1)).await;
        end(&test, 1, ControlRecordType::Commit).await;
        test.log.roll_active().await;
        assert_eq!(compact(&test, &roomy(), 1).await.end, Offset(5));
        assert_eq!(survivors(&test).await, [(3, "a".to_owned())]);
    });
}

/// The map has room for one key, so that the round ends in the middle of a segment.
#[test]
fn rp_103_behind_the_end_of_a_round_the_batches_of_an_aborted_transaction_stay() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true)], transactional(1, 0)).await;
        append(&test, &[("a", true)], BatchOptions::default()).await;
        append(&test, &[("b", true)], BatchOptions::default()).await;
        append(&test, &[("a", true)], transactional(1, 1)).await;
        end(&test, 1, ControlRecordType::Abort).await;
        test.log.roll_active().await;
        let noted = test.log.note_aborted(&[aborted(1, 0, 4)]).await;
        noted.expect("noted");
        let last = LastOfProducer {
            epoch: ProducerEpoch(0),
            last_offset: Some(Offset(3)),
        };
        let live = HashMap::from([(ProducerId(1), last)]);
        let left = async || {
            let (headers, _) = content(&test).await;
            let left = headers.iter().map(|h| (h.base_offset.0, h.record_count));
            left.collect::<Vec<_>>()
        };
        let done = try_compact(&test, &cleaner(0), 1, live.clone()).await;
        assert_eq!(done.expect("cleaned").end, Offset(2));
        let kept = [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)];
        assert_eq!(left().await, kept);
        let done = try_compact(&test, &roomy(), 1, live).await;
        assert_eq!(done.expect("cleaned").end, Offset(5));
        // Nobody reads it, and it is the last of its producer.
        assert_eq!(left().await, [(1, 1), (2, 1), (3, 0), (4, 1)]);
    });
}

/// A loss of power may not take the marker away: what was replaced by its transaction is gone for good.
#[test]
fn rp_103_st_14_the_marker_of_what_a_round_counts_on_is_durable_before_it_begins() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true)], BatchOptions::default()).await;
        append(&test, &[("a", true)], transactional(1, 0)).await;
        test.log.roll_active().await;
        end(&test, 1, ControlRecordType::Commit).await;
        assert!(test.log.durable_end() < Offset(3));
        assert_eq!(compact(&test, &roomy(), 1).await.end, Offset(2));
        assert_eq!(survivors(&test).await, [(1, "a".to_owned())]);
        assert_eq!(test.log.durable_end(), Offset(3));
    });
}
