//! What compaction does to a log, one rule at a time.

use std::collections::HashMap;
use std::time::Duration;

use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchOptions, Codec};
use thalweg_replica::LastOfProducer;
use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{
    RETENTION_MS, append, budget, cleaner, compact, content, dirt, names, of_records, order,
    producer, put, roomy, small, survivors, try_compact,
};
use crate::whole_log_tests::{TestLog, bytes_of, edit, log_file, on_both_engines, on_plain_engine};
use crate::{Budget, CleanError, CleanerPool, CompactionLimits, Opening, Recovery};

fn plain() -> BatchOptions {
    BatchOptions::default()
}

/// Appends one batch per key, and then batches of `filler` until all of them lie in closed segments.
async fn write(test: &TestLog, keys: &[&str]) {
    for key in keys {
        append(test, &[(key, true)], plain()).await;
    }
}

async fn close_segment(test: &TestLog) {
    test.log.roll_active().await;
}

#[test]
fn rp_101_the_last_of_each_key_stays_where_it_was_and_the_active_segment_as_it_is() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "b", "a", "c", "b"]).await;
        close_segment(&test).await;
        write(&test, &["a", "a"]).await;
        let plan = test
            .log
            .read_plan(Offset(0), Offset(7), 80)
            .await
            .expect("a plan");
        let was = bytes_of(&plan).await;
        assert_eq!(dirt(&test, 5_000).await.end, Offset(5));
        let report = compact(&test, &roomy(), 5_000).await;
        assert_eq!(report.end, Offset(5));
        assert_eq!((report.records_read, report.records_kept), (5, 3));
        let left = [(2, "a"), (3, "c"), (4, "b"), (5, "a"), (6, "a")];
        let left: Vec<_> = left.map(|(at, key)| (at, key.to_owned())).into();
        assert_eq!(survivors(&test).await, left);
        // A read in flight keeps the file that it has.
        assert_eq!(bytes_of(&plan).await, was);
        // Offsets that are gone are read past.
        let first = test
            .log
            .read_plan(Offset(0), Offset(7), 80)
            .await
            .expect("a plan");
        assert_eq!(first.first_offset, Offset(2));
        assert_eq!(test.log.first_dirty(), Offset(5));
        assert!(test.log.are_files_known_by_their_names());
        assert_eq!(dirt(&test, 5_000).await.dirty_bytes, 0);
        assert!(
            names(&dir)
                .iter()
                .all(|n| !n.ends_with("cleaned") && !n.ends_with("swap"))
        );
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, small(), Recovery::AfterCleanStop).await;
        assert_eq!(survivors(&opened.expect("opened").0).await, left);
    });
}

#[test]
fn rp_101_small_segments_become_one() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        let keys: Vec<String> = (0..60).map(|i| format!("key {}", i % 7)).collect();
        for key in &keys {
            append(&test, &[(key, true)], plain()).await;
        }
        close_segment(&test).await;
        let before = test.log.segment_count();
        compact(&test, &roomy(), 5_000).await;
        assert!(before > 6, "{before}");
        // First each segment loses what it can, then what is left fits together.
        compact_again(&test).await;
        assert_eq!(test.log.segment_count(), 2);
        let left: Vec<i64> = survivors(&test).await.iter().map(|(at, _)| *at).collect();
        assert_eq!(left, [53, 54, 55, 57, 58, 59, 60]);
    });
}

async fn compact_again(test: &TestLog) {
    append(test, &[("key 0", true)], plain()).await;
    close_segment(test).await;
    compact(test, &roomy(), 5_000).await;
    test.log.inner.state.borrow_mut().cleaned_to = Some(Offset(0));
    compact(test, &roomy(), 5_000).await;
}

#[test]
fn rp_101_what_is_young_or_not_stable_is_left_alone() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        for _ in 0..3 {
            write(&test, &["a", "a"]).await;
            close_segment(&test).await;
        }
        let limits = CompactionLimits {
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            stable_end: Offset(6),
            now: TimestampMs(2_000),
        };
        let look = |limits| {
            let log = test.log.clone();
            async move { log.dirt(limits).await.expect("a look") }
        };
        assert_eq!(look(limits).await.end, Offset(6));
        for (stable, end) in [(0, 0), (1, 0), (2, 2), (3, 2), (5, 4)] {
            let stable_end = Offset(stable);
            let found = look(CompactionLimits {
                stable_end,
                ..limits
            })
            .await;
            assert_eq!(found.end, Offset(end), "stable to {stable}");
        }
        // Timestamps are 1,000 and the offset.
        for (min_lag_ms, end) in [(995, 6), (996, 4), (998, 2), (1_001, 0)] {
            let found = look(CompactionLimits {
                min_lag_ms,
                ..limits
            })
            .await;
            assert_eq!(found.end, Offset(end), "lag {min_lag_ms}");
        }
        for (max_lag_ms, overdue) in [(1_000, false), (999, true)] {
            let found = look(CompactionLimits {
                max_lag_ms,
                ..limits
            })
            .await;
            assert_eq!(found.overdue, overdue);
        }
        let found = look(limits).await;
        assert_eq!((found.clean_bytes, found.ratio()), (0, 1.0));
    });
}

#[test]
fn rp_102_rp_104_a_tombstone_stays_for_its_time_from_the_first_cleaning() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true), ("b", true)], plain()).await;
        append(&test, &[("a", false)], plain()).await;
        close_segment(&test).await;
        let first = 50_000;
        compact(&test, &roomy(), first).await;
        let all = vec![(1, "b".to_owned()), (2, "a".to_owned())];
        assert_eq!(survivors(&test).await, all);
        let (headers, records) = content(&test).await;
        let horizon = Some(TimestampMs(first + RETENTION_MS));
        assert_eq!(headers[1].delete_horizon(), horizon);
        assert_eq!((records[1].timestamp, &records[1].value), (1_002, &None));
        for (now, stays) in [
            (first + RETENTION_MS - 1, true),
            (first + RETENTION_MS, false),
        ] {
            append(&test, &[("c", true)], plain()).await;
            close_segment(&test).await;
            compact(&test, &roomy(), now).await;
            let left = survivors(&test).await;
            assert_eq!(left.contains(&all[1]), stays, "at {now}");
            assert!(left.contains(&all[0]));
        }
    });
}

#[test]
fn rp_103_producers_and_the_end_of_the_log_outlive_their_records() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true), ("b", true)], producer(7, 0)).await;
        append(&test, &[("a", true), ("b", true)], producer(7, 2)).await;
        append(&test, &[("a", true)], producer(8, 40)).await;
        append(&test, &[("a", true), ("b", true)], plain()).await;
        append(&test, &[("c", false)], plain()).await;
        close_segment(&test).await;
        let last = |offset| LastOfProducer {
            epoch: ProducerEpoch(0),
            last_offset: Some(Offset(offset)),
        };
        let live = HashMap::from([(ProducerId(7), last(3)), (ProducerId(8), last(4))]);
        try_compact(&test, &roomy(), 1, live.clone())
            .await
            .expect("cleaned");
        test.log.inner.state.borrow_mut().cleaned_to = Some(Offset(0));
        // The tombstone at the end goes, its batch does not.
        try_compact(&test, &roomy(), 9_999_999, live)
            .await
            .expect("cleaned");
        let (headers, _) = content(&test).await;
        let left: Vec<_> = headers
            .iter()
            .map(|h| {
                (
                    h.base_offset.0,
                    h.last_offset().0,
                    h.base_sequence,
                    h.record_count,
                )
            })
            .collect();
        assert_eq!(
            left,
            [(2, 3, 2, 0), (4, 4, 40, 0), (5, 6, -1, 2), (7, 7, -1, 0)]
        );
        // A producer that is forgotten leaves nothing; the last batch lasts.
        test.log.inner.state.borrow_mut().cleaned_to = Some(Offset(0));
        compact(&test, &roomy(), 9_999_999).await;
        let (headers, _) = content(&test).await;
        let left: Vec<_> = headers.iter().map(|h| h.base_offset.0).collect();
        assert_eq!(left, [5, 7]);
    });
}

/// What they have written behind the end of the round may be cut off, where another leads.
#[test]
fn rp_103_the_last_batch_below_the_end_stays_of_a_producer_that_is_ahead() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        append(&test, &[("a", true), ("b", true)], producer(7, 0)).await;
        append(&test, &[("a", true), ("b", true)], producer(7, 2)).await;
        append(&test, &[("a", true), ("b", true)], plain()).await;
        close_segment(&test).await;
        let far = |offset| LastOfProducer {
            epoch: ProducerEpoch(0),
            last_offset: Some(Offset(offset)),
        };
        let live = HashMap::from([(ProducerId(7), far(1_000))]);
        let left = async || {
            let (headers, _) = content(&test).await;
            let left = headers.iter().map(|h| (h.base_offset.0, h.record_count));
            left.collect::<Vec<_>>()
        };
        try_compact(&test, &roomy(), 1, live.clone())
            .await
            .expect("cleaned");
        assert_eq!(left().await, [(2, 0), (4, 2)]);
        // The next round sees nothing of it.
        append(&test, &[("c", true)], plain()).await;
        close_segment(&test).await;
        try_compact(&test, &roomy(), 1, live)
            .await
            .expect("cleaned");
        assert_eq!(left().await, [(2, 0), (4, 2), (6, 1)]);
        append(&test, &[("d", true)], plain()).await;
        close_segment(&test).await;
        compact(&test, &roomy(), 1).await;
        assert_eq!(left().await, [(4, 2), (6, 1), (7, 1)]);
    });
}

#[test]
fn rp_105_a_damaged_segment_ends_the_round_and_nothing_else() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "a", "b"]).await;
        close_segment(&test).await;
        test.log.flush().await.expect("flushed");
        let before = test.read_all().await;
        edit(&log_file(&dir, 0), |bytes| bytes[200] ^= 1);
        let refused = try_compact(&test, &roomy(), 1, HashMap::new()).await;
        let refused = refused.expect_err("damaged");
        assert!(!refused.is_final() && !refused.is_ordinary(), "{refused}");
        assert!(
            matches!(refused, CleanError::Quarantined { .. }),
            "{refused}"
        );
        assert!(names(&dir).iter().all(|name| !name.ends_with("cleaned")));
        // What the round met is not served and no round comes near it, until it is whole again.
        assert_eq!(test.log.quarantined().len(), 1);
        assert_eq!(dirt(&test, 1).await.dirty_bytes, 0);
        edit(&log_file(&dir, 0), |bytes| bytes[200] ^= 1);
        let looked = test.log.scrub_next(Duration::ZERO, u64::MAX).await;
        assert!(looked.is_ok_and(|looked| looked.is_some()));
        assert_eq!(test.read_all().await, before);
        compact(&test, &roomy(), 1).await;
        assert_eq!(survivors(&test).await.len(), 2);
    });
}

#[test]
fn rp_105_what_a_round_meets_damaged_goes_into_the_quarantine_and_the_next_goes_up_to_it() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        for keys in [["a", "a", "b"], ["a", "b", "b"], ["c", "c", "a"]] {
            write(&test, &keys).await;
            close_segment(&test).await;
        }
        test.log.flush().await.expect("flushed");
        edit(&log_file(&dir, 3), |bytes| bytes[70] ^= 1);
        assert_eq!(dirt(&test, 1).await.end, Offset(9));
        let refused = try_compact(&test, &roomy(), 1, HashMap::new()).await;
        let refused = refused.expect_err("damaged");
        assert!(!refused.is_final(), "{refused}");
        // It is known by then how far the damage reaches, as if the scrub had come first.
        let found = test.log.quarantined();
        let found: Vec<_> = found
            .iter()
            .map(|range| (range.first, range.next))
            .collect();
        assert_eq!(found, [(Offset(3), Offset(4))]);
        assert_eq!(dirt(&test, 1).await.end, Offset(3));
        let report = compact(&test, &roomy(), 1).await;
        assert_eq!((report.end, report.records_kept), (Offset(3), 2));
        let left = dirt(&test, 1).await;
        assert_eq!((left.end, left.dirty_bytes), (Offset(3), 0));
    });
}

#[test]
fn rp_105_a_batch_whose_checksum_holds_and_whose_records_can_not_be_read_ends_compaction() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "a"]).await;
        let mut batch = of_records(&[put(2, "b")], Codec::None, plain());
        let mut bytes = batch.bytes.to_vec();
        // The length of the only record.
        bytes[BATCH_HEADER_BYTES] = 0x7f;
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        batch.bytes = bytes.into();
        test.log.append(batch);
        test.settle().await;
        close_segment(&test).await;
        let refused = try_compact(&test, &roomy(), 1, HashMap::new()).await;
        let refused = refused.expect_err("unreadable");
        assert!(refused.is_final(), "{refused}");
        assert!(matches!(refused, CleanError::Damaged { .. }), "{refused}");
        // Readers get it as it was sent.
        assert_eq!(test.log.quarantined(), []);
    });
}

#[test]
fn rp_105_a_checkpoint_that_lies_elsewhere_starts_over() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "a", "b"]).await;
        close_segment(&test).await;
        test.log.close().await.expect("closed");
        for (cleaned_to, first) in [(None, 1), (Some(0), 1), (Some(2), 2), (Some(4), 1)] {
            let opening = Opening {
                cleaned_to: cleaned_to.map(Offset),
                log_start: Some(Offset(1)),
                ..Opening::from(Recovery::AfterCleanStop)
            };
            let (test, _) = TestLog::open(&dir, small(), opening).await.expect("opened");
            assert_eq!(test.log.first_dirty(), Offset(first), "{cleaned_to:?}");
        }
    });
}

#[test]
fn rp_105_rp_107_a_batch_larger_than_the_buffer_and_the_segment_is_cleaned_too() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        let mut records: Vec<_> = (0..200).map(|at| put(at, "same")).collect();
        records.push(put(200, "other"));
        test.log.append(of_records(&records, Codec::Zstd, plain()));
        test.settle().await;
        close_segment(&test).await;
        // Room for a key or so.
        let tight = cleaner(0);
        compact(&test, &tight, 1).await;
        compact(&test, &tight, 1).await;
        let left = survivors(&test).await;
        assert_eq!(left, [(199, "same".to_owned()), (200, "other".to_owned())]);
    });
}

#[test]
fn rp_96_a_round_whose_segments_are_deleted_meanwhile_changes_nothing() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "a"]).await;
        close_segment(&test).await;
        write(&test, &["a"]).await;
        let cleaner = roomy();
        let round = compact_in_background(&test, &cleaner);
        test.log.raise_start(Offset(2));
        let kept = crate::StartKept::Durable;
        let gone = test.log.remove_segments(Offset(2), kept, Duration::ZERO);
        gone.await.expect("removed");
        if let Some(Err(error)) = round.await {
            assert!(error.is_ordinary(), "{error}");
        }
        assert_eq!(survivors(&test).await, [(2, "a".to_owned())]);
    });
}

#[test]
fn rp_101_what_takes_the_place_of_a_durable_record_is_durable_before_that_goes() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a"]).await;
        test.log.flush().await.expect("flushed");
        write(&test, &["a"]).await;
        // Its own flush goes on in the background.
        close_segment(&test).await;
        let order = order(&test, 1, HashMap::new()).await;
        let end = order.dirt.end;
        assert_eq!(end, Offset(2));
        let _files = test.log.by_files(order).await.expect("an order");
        assert!(test.log.durable_end() >= end);
    });
}

fn compact_in_background(
    test: &TestLog,
    cleaner: &crate::Cleaner,
) -> thalweg_reactor::task::Task<Result<crate::CleanReport, CleanError>> {
    let test = TestLog {
        log: test.log.clone(),
        events: std::rc::Rc::clone(&test.events),
    };
    let cleaner = cleaner.clone();
    thalweg_reactor::task::spawn(
        async move { try_compact(&test, &cleaner, 1, HashMap::new()).await },
    )
}

/// KAFKA-6244: more cleaners, and other bounds, for rounds that begin from now on.
#[test]
fn cleaners_of_a_pool_begin_when_they_are_needed_and_work_within_what_is_said_then() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small()).await;
        write(&test, &["a", "b", "c", "a", "b", "c"]).await;
        close_segment(&test).await;
        let pool = CleanerPool::default();
        // Memory for one key only.
        let narrow = pool.get(0, budget(30)).expect("a thread");
        let report = compact(&test, &narrow, 5_000).await;
        assert!(report.end < Offset(6), "{report:?}");
        let wide = Budget {
            bytes_per_second: 1.0,
            ..budget(1 << 20)
        };
        let second = pool.get(1, wide).expect("another thread");
        // The newest word counts, for all that lead to the same one.
        pool.get(1, budget(1 << 20)).expect("the same");
        let report = compact(&test, &second, 5_000).await;
        assert_eq!(report.end, Offset(6));
        assert_eq!(survivors(&test).await.len(), 3);
        pool.stop();
        append(&test, &[("d", true)], plain()).await;
        close_segment(&test).await;
        let third = pool.get(2, budget(1 << 20)).expect("a thread");
        let stopped = try_compact(&test, &third, 5_000, HashMap::new()).await;
        assert!(matches!(stopped, Err(CleanError::Stopped)), "{stopped:?}");
        drop((narrow, second, third));
        let ended = pool.join();
        assert_eq!(ended.len(), 3);
        assert!(ended.into_iter().all(|thread| matches!(thread, Ok(Ok(())))));
    });
}
