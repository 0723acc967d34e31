//! Snapshots beside a log, and the walk over headers behind them.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;

use thalweg_types::Offset;

use super::{TestLog, on_both_engines, on_plain_engine, retention, small_segments};
use crate::name::snapshot_path;
use crate::{LogError, LogEvent, LogOptions, Opening, Recovery, RetentionLimits};

#[test]
fn st_10_snapshots_that_belong_to_nothing_are_removed_at_the_start() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        let bases: Vec<Offset> = test
            .events
            .borrow()
            .iter()
            .filter_map(|event| match event {
                LogEvent::Rolled { base } => Some(*base),
                LogEvent::Written { .. } | LogEvent::Durable { .. } | LogEvent::Failed { .. } => {
                    None
                }
            })
            .collect();
        assert!(bases.len() > 1, "{bases:?}");
        let end = test.log.written_end();
        let (log, stray) = (&test.log, bases[0].plus(1));
        for at in [bases[0], stray, bases[1], end, end.plus(1)] {
            let bytes = at.0.to_be_bytes().to_vec();
            log.store_snapshot(at, bytes).await.expect("stored");
        }
        test.kill().await;
        let recovery = Recovery::AfterCrash {
            recovery_point: Offset(0),
        };
        let opened = TestLog::open(&dir, small_segments(), recovery).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(report.snapshots, [end, bases[1], bases[0]]);
        assert_eq!(report.leftovers_removed, 2);
        for at in report.snapshots {
            let bytes = test.log.load_snapshot(at).await.expect("there");
            assert_eq!(bytes[..], at.0.to_be_bytes());
        }
        assert!(test.log.load_snapshot(stray).await.is_err());
        test.log.remove_snapshot(end).await.expect("removed");
        assert!(test.log.load_snapshot(end).await.is_err());
    });
}

/// Retention goes by a snapshot that is on the disk: one that may be in the page cache only takes neither its name nor
/// its place.
#[test]
fn rp_69_what_is_saved_for_a_kill_leaves_the_snapshot_that_outlives_a_loss_of_power() {
    on_plain_engine(|dir| async move {
        let inode = |at: Offset| {
            let found = std::fs::metadata(snapshot_path(&dir.join("t-0"), at));
            found.ok().map(|found| found.ino())
        };
        let test = TestLog::create(&dir, LogOptions::default()).await;
        let mut saved = Vec::new();
        let save = async |test: &TestLog, content| {
            let at = test.log.written_end();
            test.log.save_way(at, content).await.expect("saved");
            at
        };
        test.fill(3).await;
        let lasting = test.log.written_end();
        let stored = test.log.store_lasting_snapshot(lasting, vec![1]).await;
        stored.expect("stored");
        let of_lasting = inode(lasting);
        assert!(of_lasting.is_some());
        save(&test, vec![1]).await;
        assert_eq!(inode(lasting), of_lasting);
        for _ in 0..3 {
            test.fill(1).await;
            saved.push(save(&test, vec![1]).await);
        }
        assert_eq!(inode(lasting), of_lasting);
        let left: Vec<_> = saved.iter().filter(|at| inode(**at).is_some()).collect();
        assert_eq!(left, saved.last().as_slice());
        test.log.remove_useless_snapshots().await.expect("removed");
        assert_eq!(inode(lasting), of_lasting);
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop).await;
        let (test, report) = opened.expect("opened");
        let newest = report.snapshots[0];
        test.fill(1).await;
        save(&test, vec![1]).await;
        assert!(inode(newest).is_some());
        // Its owner does not believe it: the next one may have its name.
        test.log.remove_snapshot(newest).await.expect("removed");
        save(&test, vec![1]).await;
        assert!(inode(test.log.written_end()).is_some());
    });
}

/// What lies below the log's start may be all that tells of producers: a start leaves it, and the snapshot that
/// it goes on from.
#[test]
fn rp_69_what_a_snapshot_lacks_outlives_a_start() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(42).await;
        let bases = |test: &TestLog| -> Vec<Offset> {
            let segments = &test.log.inner.state.borrow().segments;
            segments.iter().map(|segment| segment.base).collect()
        };
        let bases = bases(&test);
        let [_, early, .., last] = bases[..] else {
            panic!("{bases:?}")
        };
        assert!(bases.len() > 3);
        let stored = test.log.store_snapshot(early, vec![1]).await;
        stored.expect("stored");
        test.kill().await;
        let begins_at = |start| Opening {
            log_start: Some(start),
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(0),
            })
        };
        let opened = TestLog::open(&dir, small_segments(), begins_at(last.plus(1))).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(report.snapshots, [early]);
        assert_eq!(test.log.start_offset(), last.plus(1));
        assert!(test.log.read_plan(last, last.plus(2), 100).await.is_err());
        let mut seen = Vec::new();
        test.log
            .walk_headers(early, |header, _| seen.push(header.base_offset))
            .await
            .expect("walked");
        assert_eq!(seen.first(), Some(&early));
        assert_eq!(seen.len() as i64, (test.log.written_end().0 - early.0) / 3);
        assert_eq!(test.log.removed_end(last.plus(1)), last);
        retention::obey(&test, RetentionLimits::default())
            .await
            .expect("due");
        test.kill().await;
        // Now it says less than there was, and nothing tells the rest.
        let opened = TestLog::open(&dir, small_segments(), begins_at(last.plus(1))).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(report.snapshots, []);
        // So it is with a log that lost its end and is emptied.
        let end = test.log.written_end();
        for at in [last, end] {
            let stored = test.log.store_snapshot(at, vec![1]).await;
            stored.expect("stored");
        }
        test.kill().await;
        let opened = TestLog::open(&dir, small_segments(), begins_at(end.plus(5))).await;
        let (_, report) = opened.expect("opened");
        assert!(report.log_start_ahead);
        assert_eq!(report.snapshots, []);
    });
}

#[test]
fn headers_are_walked_from_any_offset_over_all_segments() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        assert!(test.log.segment_count() > 2);
        let end = test.log.written_end().0;
        for from in 0..=end {
            let seen = RefCell::new(Vec::new());
            test.log
                .walk_headers(Offset(from), |header, _| {
                    seen.borrow_mut().push(header.base_offset.0);
                })
                .await
                .expect("walked");
            // Batches of 3 records.
            let wanted: Vec<i64> = (from / 3 * 3..end).step_by(3).collect();
            assert_eq!(seen.into_inner(), wanted, "from {from}");
        }
    });
}

#[test]
fn a_roll_is_told_between_what_is_written_before_and_after_it() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        for _ in 0..30 {
            test.append(3);
        }
        test.settle().await;
        let mut end = Offset(0);
        let mut rolls = 0;
        for event in test.events.borrow().iter() {
            match event {
                LogEvent::Written { end: to } => end = *to,
                LogEvent::Rolled { base } => {
                    assert_eq!(*base, end);
                    rolls += 1;
                }
                LogEvent::Durable { end: to } => assert!(*to <= end),
                LogEvent::Failed { .. } => panic!("{event:?}"),
            }
        }
        assert_eq!(rolls + 1, test.log.segment_count());
    });
}

/// A producer would be taken for the one that the other topic knew, and what it writes for a retry.
#[test]
fn st_15_a_deleted_log_leaves_no_snapshot_in_another_of_its_name() {
    on_plain_engine(|dir| async move {
        let old = TestLog::create(&dir, small_segments()).await;
        old.fill(2).await;
        old.log.delete().await.expect("deleted");
        let new = TestLog::create(&dir, small_segments()).await;
        new.fill(2).await;
        let stored = old.log.store_snapshot(Offset(3), vec![1]).await;
        assert!(matches!(stored, Err(LogError::Closed)), "{stored:?}");
        assert!(new.log.load_snapshot(Offset(3)).await.is_err());
        // A stop writes the last one when the log is closed.
        new.log.close().await.expect("closed");
        let stored = new.log.store_snapshot(Offset(6), vec![1]).await;
        stored.expect("stored");
    });
}
