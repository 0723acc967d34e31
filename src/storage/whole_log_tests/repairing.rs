//! Damaged logs of a stopped broker, repaired and opened again.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_types::{BrokerId, ClusterId, Offset, Uuid};

use super::{TOPIC_ID, TestLog, log_file, name, on_plain_engine, small_segments};
use crate::repair::{Expected, Repair, examine, repair};
use crate::{
    Checkpoint, FormatPolicy, Gaps, LogDir, OpenPolicy, PartitionOffsets, Recovery, RecoveryReport,
};

const EXPECTED: Expected = Expected {
    topic_id: TOPIC_ID,
    gaps: Gaps::Never,
};

fn policy() -> OpenPolicy {
    OpenPolicy {
        node_id: BrokerId(1),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId("cluster".into()),
            directory_id: Uuid([3; 16]),
        },
    }
}

/// A directory with one log of 80 batches of 3 records, stopped in order; the bases of its segments.
async fn stopped(path: &Path) -> Vec<i64> {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    let test = TestLog::create(path, small_segments()).await;
    test.fill(80).await;
    test.log.close().await.expect("closed");
    for (checkpoint, offset) in [(Checkpoint::RecoveryPoint, 240), (Checkpoint::LogStart, 0)] {
        let offsets = PartitionOffsets::from([(name(), Offset(offset))]);
        dir.write_checkpoint(checkpoint, &offsets)
            .await
            .expect("written");
    }
    dir.mark_clean(-1, &BTreeSet::from([name()]))
        .await
        .expect("marked");
    let segments = &test.log.inner.state.borrow().segments;
    segments.iter().map(|segment| segment.base.0).collect()
}

/// Repairs the log, and opens it as the next start does.
async fn repaired(path: &Path) -> (Vec<Repair>, TestLog, RecoveryReport) {
    let dir = LogDir::examine(path).await.expect("nobody has it");
    let found = examine(&dir, &name(), EXPECTED).await.expect("examined");
    let found = found.expect("something is wrong");
    let repairs = found.findings.iter().map(|one| one.repair.clone());
    let repairs = repairs.collect();
    repair(&dir, &[found]).await.expect("repaired");
    drop(dir);
    let dir = LogDir::examine(path).await.expect("nobody has it");
    let again = examine(&dir, &name(), EXPECTED).await.expect("examined");
    assert_eq!(again, None, "repaired once is repaired");
    drop(dir);
    let dir = LogDir::open(path, policy()).await.expect("opened");
    assert!(!dir.was_clean(), "leader epochs are to be raised");
    let opening = dir.opening(&name());
    assert!(matches!(opening.recovery, Recovery::AfterCrash { .. }));
    let opened = TestLog::open(path, small_segments(), opening).await;
    let (test, report) = opened.expect("opened");
    (repairs, test, report)
}

#[test]
fn r7_holes_at_begin_middle_and_end_are_taken_as_they_are() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        let last = bases[bases.len() - 1];
        for base in [0, bases[2], last] {
            std::fs::remove_file(log_file(&path, base)).expect("removed");
        }
        let (repairs, test, _) = repaired(&path).await;
        // The begin is found when the rest can be believed.
        assert_eq!(
            repairs,
            [
                Repair::AcceptGap,
                Repair::EndAt(Offset(last)),
                Repair::BeginAt(Offset(bases[1]))
            ]
        );
        assert_eq!(test.log.start_offset(), Offset(bases[1]));
        assert_eq!(test.log.written_end(), Offset(last));
        let kept = bases.len() - 3;
        assert_eq!(test.log.segment_count(), kept);
    });
}

#[test]
fn r7_a_log_is_cut_at_what_is_no_batch() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        let cut = log_file(&path, bases[1]);
        let whole = std::fs::read(&cut).expect("a segment");
        std::fs::write(&cut, &whole[..whole.len() - 1]).expect("cut");
        let (repairs, test, report) = repaired(&path).await;
        let [
            Repair::Cut {
                path: file,
                end,
                behind,
                ..
            },
        ] = &repairs[..]
        else {
            panic!("{repairs:?}")
        };
        assert_eq!((file, behind.len()), (&cut, bases.len() - 2));
        assert_eq!(test.log.written_end(), *end);
        assert!(Offset(bases[1]) < *end && *end < Offset(bases[2]));
        assert_eq!(report.cut, None, "the repair cut it");
        let aside = format!("{}.cut-away", log_file(&path, bases[2]).display());
        assert!(Path::new(&aside).exists(), "what was whole is kept");
        test.fill(2).await;
        assert_eq!(test.log.written_end(), Offset(end.0 + 6));
    });
}

#[test]
fn r7_a_lost_log_begins_where_it_had_come_to() {
    on_plain_engine(|path| async move {
        stopped(&path).await;
        std::fs::remove_dir_all(path.join("t-0")).expect("removed");
        let (repairs, test, _) = repaired(&path).await;
        assert!(matches!(
            repairs[..],
            [Repair::BeginAnew {
                at: Offset(240),
                ..
            }]
        ));
        assert_eq!(test.log.start_offset(), Offset(240));
        assert_eq!(test.log.written_end(), Offset(240));
    });
}
