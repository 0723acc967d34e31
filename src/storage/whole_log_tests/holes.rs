//! A segment of a compacted log is gone: whether a loss of power has taken it or compaction its records (ST-5).

use std::path::Path;

use thalweg_types::{Offset, TopicPartition};

use super::repairing::policy;
use super::room::on_stuck_disk;
use super::{TOPIC_ID, TestLog, copy_dir, edit, log_file, name, on_plain_engine, small_segments};
use crate::recovery_points::RecoveryPoints;
use crate::{
    Checkpoint, Gaps, LogDir, LogError, MAY_HAVE_HOLES, Missing, Opening, PartitionOffsets,
    Recovery, Unwritten,
};

/// Where the log ends.
const END: i64 = 120;

/// A directory with a log of 40 batches of 3 records, without its third segment: where the second begins, the third and
/// the fourth.
async fn with_hole(path: &Path) -> (i64, i64, i64) {
    std::fs::create_dir(path).expect("a directory");
    drop(LogDir::open(path, policy()).await.expect("formatted"));
    let test = TestLog::create(path, small_segments()).await;
    test.fill(40).await;
    let bases = test.bases();
    test.kill().await;
    let [_, second, lost, next, ..] = bases[..] else {
        panic!("few segments: {bases:?}")
    };
    std::fs::remove_file(log_file(path, lost)).expect("removed");
    (second, lost, next)
}

/// What the checkpoints say.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Kafka's recovery point.
    by_name: Option<i64>,
    /// Ours, if there is the file.
    known: Option<Option<i64>>,
    cleaned: Option<i64>,
}

async fn write(path: &Path, told: Told) {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    for (checkpoint, at) in [
        (Checkpoint::RecoveryPoint, told.by_name),
        (Checkpoint::Cleaner, told.cleaned),
    ] {
        let offsets = at.map(|at| (name(), Offset(at)));
        let offsets: PartitionOffsets = offsets.into_iter().collect();
        let written = dir.write_checkpoint(checkpoint, &offsets).await;
        written.expect("written");
    }
    if let Some(known) = told.known {
        let id = TopicPartition {
            topic: TOPIC_ID,
            partition: name().partition,
        };
        let points = known.map(|at| (id, Offset(at)));
        let points: RecoveryPoints = points.into_iter().collect();
        dir.write_known_points(&points).await.expect("written");
    }
}

/// As a start finds a log that is compacted.
async fn found(path: &Path) -> Opening {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    Opening {
        gaps: Gaps::MayBe,
        ..dir.opening(&name(), TOPIC_ID)
    }
}

/// What may be told of such a log, and where it ends then.
fn cases((second, lost, next): (i64, i64, i64)) -> Vec<(Told, i64)> {
    let told = |by_name, known, cleaned| Told {
        by_name,
        known,
        cleaned,
    };
    let of = Some(second);
    let by_us = |cleaned| told(of, Some(of), cleaned);
    let by_kafka = |cleaned| told(of, None, cleaned);
    vec![
        (by_us(None), lost),
        (told(None, Some(None), None), lost),
        (by_us(of), lost),
        // Kafka had the directory after us.
        (by_us(Some(next)), END),
        (told(Some(lost), Some(of), None), END),
        (by_kafka(None), END),
        // It may have been at work again when it ended.
        (by_kafka(of), END),
        (told(None, None, None), END),
        (told(of, Some(Some(MAY_HAVE_HOLES.0)), None), END),
    ]
}

#[test]
fn st_5_a_hole_is_a_loss_where_nobody_but_us_has_written_above_the_recovery_point() {
    on_plain_engine(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = with_hole(&source).await;
        for (told, end) in cases(bases) {
            copy_dir(&source, &copy);
            write(&copy, told).await;
            let opened = TestLog::open(&copy, small_segments(), found(&copy).await).await;
            let (test, report) = opened.expect("opened");
            assert_eq!(test.log.written_end(), Offset(end), "{told:?}");
            assert_eq!(report.segments_removed > 0, end < END, "{told:?}");
        }
        // A kill takes no segment.
        let (by_us, _) = cases(bases)[0];
        copy_dir(&source, &copy);
        write(&copy, by_us).await;
        let killed = Opening {
            unwritten: Unwritten::LastWrite,
            ..found(&copy).await
        };
        let refused = TestLog::open(&copy, small_segments(), killed).await;
        let (_, lost, next) = bases;
        let is_between = matches!(
            refused.map(|_| ()),
            Err(LogError::RecordsMissing { what: Missing::Between, from, up_to, .. })
                if (from, up_to) == (Offset(lost), Offset(next))
        );
        assert!(is_between);
    });
}

/// Until the recovery point has passed it, also where a start comes upon it on the way to the mark of the log.
#[test]
fn st_5_a_hole_of_kafkas_is_no_loss_at_the_next_start_either() {
    on_plain_engine(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let (second, _, next) = with_hole(&source).await;
        let crash = Opening::from(Recovery::AfterCrash {
            recovery_point: Offset(second),
        });
        let marked = Opening {
            written: Some(Offset(END)),
            known_end: Some(Offset(END)),
            unwritten: Unwritten::LastWrite,
            ..crash
        };
        for opening in [crash, marked] {
            copy_dir(&source, &copy);
            let opened = TestLog::open(&copy, small_segments(), opening).await;
            let (test, report) = opened.expect("opened");
            assert_eq!(report.bytes_trusted > 0, opening.written.is_some());
            assert_eq!(test.log.recovery_point(), Offset(second));
            assert_eq!(test.log.known_point(), MAY_HAVE_HOLES, "{opening:?}");
            test.log.flush().await.expect("flushed");
            assert_eq!(test.log.recovery_point(), Offset(END));
            assert_eq!(test.log.known_point(), Offset(END));
        }
        // What is below the recovery point is looked at no more.
        copy_dir(&source, &copy);
        let below = Opening::from(Recovery::AfterCrash {
            recovery_point: Offset(next),
        });
        let opened = TestLog::open(&copy, small_segments(), below).await;
        let (test, _) = opened.expect("opened");
        assert_eq!(test.log.known_point(), Offset(next));
    });
}

/// Where the torn end is cut first, the next start finds a whole batch and a hole behind it.
#[test]
fn st_20_a_start_that_can_not_remove_what_is_behind_a_torn_end_has_not_cut_it() {
    on_stuck_disk(|disk, root| async move {
        let test = TestLog::create(&root, small_segments()).await;
        test.fill(40).await;
        let bases = test.bases();
        test.kill().await;
        let [_, second, third, ..] = bases[..] else {
            panic!("few segments: {bases:?}")
        };
        edit(&log_file(&root, second), |bytes| {
            bytes.truncate(bytes.len() - 10);
        });
        let crash = Recovery::AfterCrash {
            recovery_point: Offset(second),
        };
        disk.0.set(&[".log"]);
        let refused = TestLog::open(&root, small_segments(), crash).await;
        let refused = refused.map(|_| ()).expect_err("no room");
        assert!(refused.may_pass(), "{refused}");
        disk.0.set(&[]);
        let opened = TestLog::open(&root, small_segments(), crash).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(test.log.written_end(), Offset(third - 3));
        assert_eq!(report.segments_removed, bases.len() - 2);
    });
}
