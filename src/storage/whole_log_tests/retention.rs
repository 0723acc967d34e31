//! Segments that leave the start of a log, and crashes while they do.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use super::{
    TestLog, batch, bytes_of, copy_dir, edit, file, log_file, numbered, on_both_engines,
    on_plain_engine, small_segments,
};
use crate::name::deleted_path;
use crate::removal::in_order_of_removal;
use crate::{Due, Opening, ReadError, Recovery, RetentionLimits, StartKept};
use thalweg_protocol::records::Codec;

/// Later than every timestamp of the batches here by more than any limit.
const NOW: TimestampMs = TimestampMs(1_000_000);

fn by_age(age_ms: i64) -> RetentionLimits {
    RetentionLimits {
        age_ms: Some(age_ms),
        ..RetentionLimits::default()
    }
}

fn by_bytes(bytes: u64) -> RetentionLimits {
    RetentionLimits {
        bytes: Some(bytes),
        ..RetentionLimits::default()
    }
}

async fn due(test: &TestLog, limits: RetentionLimits) -> Option<Due> {
    let end = test.log.written_end();
    test.log.due(limits, end, NOW).await.expect("a look")
}

/// As the owner of a log does it, but for the checkpoint.
pub(super) async fn obey(test: &TestLog, limits: RetentionLimits) -> Option<Due> {
    let found = due(test, limits).await?;
    test.log.raise_start(found.start);
    let removed = test
        .log
        .remove_segments(found.start, StartKept::Durable, Duration::ZERO)
        .await;
    let removed = removed.expect("removed");
    assert_eq!(removed.segments, found.reasons.segments());
    Some(found)
}

fn bases(parent: &Path) -> BTreeSet<i64> {
    names(parent)
        .iter()
        .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
        .collect()
}

fn names(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent.join("t-0")).expect("a listing");
    entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a name of ours"))
        .collect()
}

fn is_removed_name(name: &str) -> bool {
    name.ends_with(".deleted")
}

#[test]
fn rp_94_a_log_that_is_old_as_a_whole_is_emptied_and_goes_on_where_it_ended() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        let end = test.log.written_end();
        let before = bases(&dir);
        assert!(before.len() > 2);
        // The last batch is at NOW - 1_000_000 + 1_095.
        let youngest = NOW.0 - (1_000 + end.0 - 1);
        assert_eq!(due(&test, by_age(youngest + 96)).await, None);
        assert_eq!(
            due(&test, by_age(youngest)).await.map(|d| d.start),
            before.last().map(|b| Offset(*b))
        );
        assert_eq!(bases(&dir), before, "looking removes nothing");
        let plan = test
            .log
            .read_plan(Offset(0), end, 500)
            .await
            .expect("a plan");
        let found = obey(&test, by_age(youngest - 1)).await.expect("due");
        assert_eq!(found.start, end);
        assert_eq!(found.reasons.by_age, before.len());
        assert_eq!((test.log.segment_count(), test.log.size_bytes()), (1, 0));
        assert_eq!(bases(&dir), BTreeSet::from([end.0]));
        assert!(matches!(
            test.log.read_plan(Offset(0), end, 500).await,
            Err(ReadError::OutOfRange { .. })
        ));
        // A read that was planned before is not harmed, and the log goes on.
        assert!(
            numbered(Offset(0), LeaderEpoch(0), 3)
                .bytes
                .starts_with(&bytes_of(&plan).await[..50])
        );
        assert_eq!(due(&test, by_age(0)).await, None);
        let bytes = test.append(3);
        test.settle().await;
        assert_eq!(test.read_all().await, bytes);
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (test, _) = opened.expect("opened");
        assert_eq!(test.log.start_offset(), end);
        assert_eq!(test.read_all().await, bytes);
        assert!(!names(&dir).iter().any(|name| is_removed_name(name)));
    });
}

#[test]
fn rp_95_the_oldest_go_while_the_rest_reaches_the_limit() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(50).await;
        let all = test.read_all().await;
        let total = test.log.size_bytes();
        let limit = total / 2;
        let found = obey(&test, by_bytes(limit)).await.expect("due");
        let left = test.log.size_bytes();
        assert!(left >= limit && left < limit + 1_100, "{left} of {total}");
        assert_eq!(test.read_all().await, all[all.len() - left as usize..]);
        assert_eq!(bases(&dir).first(), Some(&found.start.0));
        assert_eq!(due(&test, by_bytes(limit)).await, None);
        // Nothing above the high watermark goes.
        let bound = test.log.due(by_bytes(0), found.start, NOW).await;
        assert_eq!(bound.expect("a look"), None);
        let metrics = test.log.inner.state.borrow().options.metrics.clone();
        let counters = &metrics.borrow().counters;
        assert_eq!(counters.segments_deleted, found.reasons.segments() as u64);
        assert_eq!(counters.segments_deleted_bytes, total - left);
    });
}

#[test]
fn rp_97_segments_below_the_log_start_go_without_any_limit() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        let second = *bases(&dir).iter().nth(1).expect("a second segment");
        test.log.raise_start(Offset(second - 1));
        assert_eq!(obey(&test, RetentionLimits::default()).await, None);
        test.log.raise_start(Offset(second + 1));
        let found = obey(&test, RetentionLimits::default()).await.expect("due");
        assert_eq!(
            (found.start, found.reasons.below_start),
            (Offset(second + 1), 1)
        );
        assert_eq!(bases(&dir).first(), Some(&second));
        // All of it: the active segment goes too.
        let end = test.log.written_end();
        test.log.raise_start(end);
        obey(&test, RetentionLimits::default()).await.expect("due");
        assert_eq!(bases(&dir), BTreeSet::from([end.0]));
    });
}

#[test]
fn a_record_dated_in_the_future_does_not_pin_a_log() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        let far = i64::MAX / 2;
        test.log
            .append(batch(Offset(0), LeaderEpoch(0), &[5, far, 6], Codec::None));
        test.settle().await;
        // The clock of the file is this machine's.
        let now = TimestampMs(thalweg_reactor::time::unix_ms() + 60_000);
        let look = async |limits| {
            let found = test.log.due(limits, test.log.written_end(), now).await;
            found.expect("a look").is_some()
        };
        let believing = RetentionLimits {
            ahead_max_ms: far,
            ..by_age(30_000)
        };
        assert!(!look(believing).await);
        assert!(!look(by_age(120_000)).await);
        assert!(look(by_age(30_000)).await);
    });
}

#[test]
fn damage_does_not_pin_a_log() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        test.log.close().await.expect("closed");
        edit(&log_file(&dir, 0), |bytes| bytes[16] = 9);
        std::fs::remove_file(file(&dir, 0, "index")).expect("removed");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (test, _) = opened.expect("opened");
        let now = TimestampMs(thalweg_reactor::time::unix_ms() + 60_000);
        let found = test
            .log
            .due(by_age(30_000), test.log.written_end(), now)
            .await;
        assert!(found.expect("a look").is_some());
    });
}

#[test]
fn rp_69_snapshots_go_with_their_segments_and_none_outlives_what_is_behind_it() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        let all: Vec<i64> = bases(&dir).into_iter().collect();
        let [first, second, third] = all[..3] else {
            panic!("{all:?}")
        };
        let store = async |at| {
            let stored = test.log.store_snapshot(Offset(at), vec![1]).await;
            stored.expect("stored");
        };
        store(first).await;
        store(second).await;
        let snapshots = || {
            let is_one = |name: &String| name.ends_with(".snapshot");
            names(&dir).into_iter().filter(is_one).count()
        };
        test.log.raise_start(Offset(second + 1));
        assert_eq!(test.log.removed_end(Offset(second + 1)), Offset(second));
        obey(&test, RetentionLimits::default()).await.expect("due");
        assert_eq!(snapshots(), 1);
        assert!(test.log.load_snapshot(Offset(second)).await.is_ok());
        // The batches from there to the first segment left are gone.
        test.log.raise_start(Offset(third));
        obey(&test, RetentionLimits::default()).await.expect("due");
        assert_eq!(snapshots(), 0);
    });
}

#[test]
fn appends_during_a_look_are_all_kept() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(5).await;
        let mut kept = Vec::new();
        for _ in 0..20 {
            // Queued before the look; the high watermark of the look does not cover them.
            let bound = test.log.written_end();
            for _ in 0..3 {
                kept.extend(test.append(2));
            }
            let found = test.log.due(by_age(0), bound, NOW).await.expect("a look");
            test.settle().await;
            if let Some(found) = found {
                assert!(found.start <= bound);
                test.log.raise_start(found.start);
                let removed = test
                    .log
                    .remove_segments(found.start, StartKept::Durable, Duration::ZERO)
                    .await;
                removed.expect("removed");
            }
            let left = test.read_all().await;
            assert!(left.len() >= 3 * numbered(bound, LeaderEpoch(0), 2).bytes.len());
            assert!(
                kept.ends_with(&left) || left.ends_with(&kept),
                "a batch is missing"
            );
        }
    });
}

fn assert_no_file_of(parent: &Path, bases: &[i64]) {
    for stale in bases.iter().map(|base| format!("{base:020}.")) {
        let left = names(parent);
        assert!(
            !left.iter().any(|name| name.starts_with(&stale)),
            "{left:?}"
        );
    }
}

#[test]
fn st_14_a_crash_at_any_step_of_a_deletion_leaves_the_old_content_or_the_new() {
    on_plain_engine(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        let test = TestLog::create(&source, small_segments()).await;
        test.fill(40).await;
        let old = test.read_all().await;
        let end = test.log.written_end();
        test.log.flush().await.expect("flushed");
        let found = due(&test, by_bytes(1_500)).await.expect("due");
        test.kill().await;
        let all = bases(&source);
        let gone: Vec<i64> = all.range(..found.start.0).copied().collect();
        assert!(gone.len() >= 2 && all.contains(&found.start.0));
        let steps: Vec<_> = gone
            .iter()
            .flat_map(|base| in_order_of_removal(Path::new("t-0"), Offset(*base)))
            .collect();
        let tail: u64 = all
            .range(found.start.0..)
            .map(|base| {
                std::fs::metadata(log_file(&source, *base))
                    .expect("a file")
                    .len()
            })
            .sum();
        let new = &old[old.len() - tail as usize..];
        for recovery in [
            Recovery::AfterCrash {
                recovery_point: Offset(0),
            },
            Recovery::AfterCrash {
                recovery_point: end,
            },
        ] {
            // Before the checkpoint: the old content. After it: the new one, whatever was renamed.
            let copy = dir.join("copy");
            copy_dir(&source, &copy);
            let (test, _) = TestLog::open(&copy, small_segments(), recovery)
                .await
                .expect("opened");
            assert_eq!(test.read_all().await, old);
            test.kill().await;
            for done in 0..=steps.len() {
                copy_dir(&source, &copy);
                for path in steps[..done].iter().map(|step| copy.join(step)) {
                    if path.exists() {
                        std::fs::rename(&path, deleted_path(&path)).expect("renamed");
                    }
                }
                let opening = Opening {
                    log_start: Some(found.start),
                    ..Opening::from(recovery)
                };
                let opened = TestLog::open(&copy, small_segments(), opening).await;
                let (test, report) = opened.unwrap_or_else(|error| panic!("step {done}: {error}"));
                assert_eq!(test.log.start_offset(), found.start, "step {done}");
                assert_eq!(test.log.written_end(), end, "step {done}");
                assert_eq!(test.read_all().await, new, "step {done}");
                assert_eq!(report.leftovers_removed > 0, done > 0, "step {done}");
                // What the crash kept from going is hidden, and goes at the next look.
                let _due = obey(&test, RetentionLimits::default()).await;
                while names(&copy).iter().any(|name| is_removed_name(name)) {
                    thalweg_reactor::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(bases(&copy).first(), Some(&found.start.0), "step {done}");
                assert_no_file_of(&copy, &gone);
                test.kill().await;
            }
        }
    });
}
