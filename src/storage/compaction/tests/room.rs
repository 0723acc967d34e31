//! ST-20: a swap on a copy-on-write disk that has no room for another name or a removal.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use thalweg_protocol::records::BatchOptions;
use thalweg_types::Offset;

use super::{
    append, beside, compact, content, dirt, names, small, survivors, try_compact, twenty_deletes,
};
use crate::whole_log_tests::room::on_stuck_disk;
use crate::whole_log_tests::{TestLog, copy_dir, file};
use crate::{Cleaner, Recovery, StartKept};

/// A log of three closed segments that become one, and what is left of its keys then.
async fn of_three(root: &Path) -> (TestLog, Vec<(i64, String)>) {
    let test = TestLog::create(root, small()).await;
    for _ in 0..3 {
        for key in ["a", "b", "a"] {
            append(&test, &[(key, true)], BatchOptions::default()).await;
        }
        test.log.roll_active().await;
    }
    append(&test, &[("z", true)], BatchOptions::default()).await;
    let left = [(7, "b"), (8, "a"), (9, "z")].map(|(at, key)| (at, key.to_owned()));
    (test, left.into())
}

/// It fails for lack of room, and the log is as it was.
async fn is_refused(test: &TestLog, cleaner: &Cleaner, what: &str) {
    let refused = try_compact(test, cleaner, 1, HashMap::new()).await;
    let refused = refused.expect_err(what);
    assert!(refused.may_pass() && !refused.is_ordinary(), "{refused}");
    assert!(!test.log.is_offline(), "{what}");
}

/// What a start after a crash finds.
async fn after_crash(root: &Path, copy: &Path) -> TestLog {
    let _ = std::fs::remove_dir_all(copy);
    copy_dir(&root.join("t-0"), &copy.join("t-0"));
    let recovery_point = Offset(0);
    let opened = TestLog::open(copy, small(), Recovery::AfterCrash { recovery_point }).await;
    let (test, report) = opened.expect("opened");
    assert_eq!(report.cut, None);
    assert!(is_clean(copy));
    test
}

fn is_clean(root: &Path) -> bool {
    let is_left = |name: &String| name.ends_with("cleaned") || name.ends_with("swap");
    !names(root).iter().any(is_left)
}

/// Of files that are to be set aside, and of those that are to get their names then.
const ENDS: [&[&str]; 6] = [
    &["0.log"],
    &["3.log"],
    &["3.index"],
    &["6.timeindex"],
    &[".index.swap"],
    &[".log.swap"],
];

#[test]
fn st_20_a_swap_that_has_begun_goes_on_when_there_is_room() {
    for ends in ENDS {
        let what = ends[0];
        on_stuck_disk(|disk, root| async move {
            let (test, left) = of_three(&root).await;
            let cleaner = beside(u64::MAX);
            disk.0.set(ends);
            // Once more changes nothing.
            for _ in 0..2 {
                is_refused(&test, &cleaner, what).await;
                assert_eq!(survivors(&test).await, left, "{what}");
            }
            append(&test, &[("y", true)], BatchOptions::default()).await;
            test.log.flush().await.expect("flushed");
            // What has the name of a new segment is not what is looked through.
            let looked = test.log.scrub_next(Duration::ZERO, u64::MAX).await;
            assert!(looked.is_ok() && test.log.quarantined().is_empty());
            disk.0.set(&[]);
            let all = survivors(&test).await;
            let again = after_crash(&root, &root.join("copy")).await;
            assert_eq!(survivors(&again).await, all, "{what}");
            compact(&test, &cleaner, 1).await;
            assert!(is_clean(&root), "{what}: {:?}", names(&root));
            assert_eq!(survivors(&test).await, all, "{what}");
        });
    }
}

#[test]
fn st_20_retention_waits_for_a_swap_that_has_begun() {
    for ends in ENDS {
        let what = ends[0];
        on_stuck_disk(|disk, root| async move {
            let (test, _) = of_three(&root).await;
            disk.0.set(ends);
            is_refused(&test, &beside(u64::MAX), what).await;
            test.log.raise_start(Offset(9));
            for removed in [0, 1] {
                let kept = StartKept::Durable;
                let done = test
                    .log
                    .remove_segments(Offset(9), kept, Duration::ZERO)
                    .await;
                assert_eq!(done.expect("it is not offline").segments, removed, "{what}");
                disk.0.set(&[]);
            }
            assert!(is_clean(&root), "{what}: {:?}", names(&root));
            let again = after_crash(&root, &root.join("copy")).await;
            assert_eq!(survivors(&again).await, [(9, "z".to_owned())], "{what}");
        });
    }
}

#[test]
fn st_20_a_close_does_what_a_swap_owes_or_leaves_it_to_the_next_start() {
    for stays_stuck in [true, false] {
        on_stuck_disk(|disk, root| async move {
            let (test, left) = of_three(&root).await;
            disk.0.set(&["3.log"]);
            is_refused(&test, &beside(u64::MAX), "stuck").await;
            if !stays_stuck {
                disk.0.set(&[]);
            }
            test.log.close().await.expect("closed");
            assert_eq!(is_clean(&root), !stays_stuck);
            disk.0.set(&[]);
            let opened = TestLog::open(&root, small(), Recovery::AfterCleanStop).await;
            let (test, _) = opened.expect("opened");
            assert_eq!(survivors(&test).await, left);
            assert!(is_clean(&root));
        });
    }
}

/// Parts of a split that have their names, of which the first has none, are no swap as long as that is seen.
#[test]
fn st_20_a_swap_that_has_not_begun_is_taken_back_before_anything_else() {
    const NARROW: u64 = 400;
    const STUCK: &[&str] = &["00000000000000000000.log.cleaned", ".log.swap"];
    on_stuck_disk(|disk, root| async move {
        let test = TestLog::create(&root, small()).await;
        twenty_deletes(&test).await;
        let (was, records) = (test.read_all().await, content(&test).await.1);
        let (narrow, wide) = (beside(NARROW), beside(u64::MAX));
        let late = i64::MAX / 2;
        disk.0.set(STUCK);
        for cleaner in [&narrow, &wide] {
            let refused = try_compact(&test, cleaner, late, HashMap::new()).await;
            assert!(refused.expect_err("stuck").may_pass());
            assert!(!test.log.is_offline());
            assert_eq!(test.read_all().await, was);
        }
        let left = names(&root);
        assert!(
            left.iter().any(|name| name.ends_with(".log.swap")),
            "{left:?}"
        );
        disk.0.set(&[]);
        let again = after_crash(&root, &root.join("copy")).await;
        assert_eq!(again.read_all().await, was);
        compact(&test, &wide, late).await;
        assert!(is_clean(&root), "{:?}", names(&root));
        assert_eq!(content(&test).await.1, records);
    });
}

/// A start would take a swap behind it for a part that was not finished, with the old segments gone.
#[test]
fn st_14_no_round_begins_before_what_an_earlier_one_has_left_is_gone() {
    on_stuck_disk(|disk, root| async move {
        let (test, left) = of_three(&root).await;
        let stale = file(&root, 1, "log.cleaned");
        std::fs::write(&stale, b"x").expect("written");
        disk.0.set(&["1.log.cleaned"]);
        let cleaner = beside(u64::MAX);
        is_refused(&test, &cleaner, "stuck").await;
        assert_eq!(test.log.segment_count(), 4);
        assert_eq!(dirt(&test, 1).await.first_dirty, Offset(0));
        disk.0.set(&[]);
        compact(&test, &cleaner, 1).await;
        assert_eq!(survivors(&test).await, left);
        assert!(is_clean(&root));
    });
}
