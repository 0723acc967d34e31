//! Damaged logs of a stopped broker, repaired and opened again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_protocol::records::BatchHeader;
use thalweg_types::{BrokerId, ClusterId, Offset, Uuid};

use super::{TOPIC_ID, TestLog, copy_dir, edit, log_file, name, on_plain_engine, small_segments};
use crate::name::NEXT_SEGMENT;
use crate::repair::{Expected, Repair, examine, repair, with_ending};
use crate::{
    Checkpoint, FormatPolicy, Gaps, LogDir, OpenPolicy, PartitionOffsets, Recovery, RecoveryReport,
};

pub(super) const EXPECTED: Expected = Expected {
    topic_id: TOPIC_ID,
    gaps: Gaps::Never,
};

pub(super) fn policy() -> OpenPolicy {
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
pub(super) async fn stopped(path: &Path) -> Vec<i64> {
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
    dir.begin().await.expect("begun");
    assert!(!dir.was_clean(), "leader epochs are to be raised");
    let opening = dir.opening(&name(), TOPIC_ID);
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
                Repair::GoOnAt {
                    end: Offset(last),
                    path: log_file(&path, 240),
                    at: Offset(240)
                },
                Repair::BeginAt(Offset(bases[1]))
            ]
        );
        assert_eq!(test.log.start_offset(), Offset(bases[1]));
        assert_eq!(test.log.written_end(), Offset(240));
        // With the one in which it goes on.
        let kept = bases.len() - 3 + 1;
        assert_eq!(test.log.segment_count(), kept);
    });
}

#[test]
fn r7_a_segment_that_lost_its_end_keeps_what_is_whole() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        let cut = log_file(&path, bases[1]);
        let at = *positions(&path, bases[1]).last().expect("a batch");
        edit(&cut, |bytes| bytes.truncate(bytes.len() - 1));
        let bytes = at as u64..std::fs::metadata(&cut).expect("a segment").len();
        let (repairs, test, report) = repaired(&path).await;
        let taken = Repair::TakeOut { path: cut, bytes };
        assert_eq!(repairs, [taken, Repair::AcceptGap]);
        assert_eq!(test.log.written_end(), Offset(240));
        assert_eq!(report.cut, None, "the repair took it");
        let kept: Vec<_> = (0..240).step_by(3).filter(|b| b + 3 != bases[2]).collect();
        assert_eq!(batches_of(&test).await, kept);
        test.fill(2).await;
        assert_eq!(test.log.written_end(), Offset(246));
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

#[test]
fn r7_an_emptied_log_begins_where_it_had_come_to_like_a_lost_one() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        std::fs::write(log_file(&path, 0), b"").expect("emptied");
        for base in &bases[1..] {
            std::fs::remove_file(log_file(&path, *base)).expect("removed");
        }
        let (_, test, _) = repaired(&path).await;
        assert_eq!(test.log.start_offset(), Offset(240));
        assert_eq!(test.log.written_end(), Offset(240));
        test.fill(1).await;
        assert_eq!(batches_of(&test).await, [240]);
    });
}

/// The bases of the batches of 3 records that the log holds.
async fn batches_of(test: &TestLog) -> Vec<i64> {
    let all = test.read_all().await;
    let mut rest = &all[..];
    let mut bases = Vec::new();
    while let Ok(header) = BatchHeader::parse(rest) {
        bases.push(header.base_offset.0);
        rest = &rest[header.total_bytes()..];
    }
    bases
}

/// Where the batches of the segment at `base` begin.
fn positions(path: &Path, base: i64) -> Vec<usize> {
    let bytes = std::fs::read(log_file(path, base)).expect("a segment");
    let mut at = 0;
    let mut all = Vec::new();
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        all.push(at);
        at += header.total_bytes();
    }
    all
}

#[test]
fn r7_damaged_batches_in_the_middle_are_found_all_at_once_and_taken_out() {
    for clean in [true, false] {
        on_plain_engine(|path| async move {
            let bases = stopped(&path).await;
            let last = bases[bases.len() - 1];
            // The first batch of a segment, two in the middle of one, its last, and one of the active segment: by
            // content, by epoch, which is in no checksum, and by length.
            let flips = [
                (bases[0], 0, 70, 1),
                (bases[2], 1, 70, 1),
                (bases[2], 3, 15, 1),
                (bases[3], usize::MAX, 70, 1),
                (last, 1, 10, 1),
            ];
            let mut lost = BTreeSet::new();
            for (base, batch, byte, mask) in flips {
                let all = positions(&path, base);
                let batch = batch.min(all.len() - 1);
                lost.insert(base + 3 * batch as i64);
                edit(&log_file(&path, base), |bytes| {
                    bytes[all[batch] + byte] ^= mask;
                });
            }
            if !clean {
                let dir = LogDir::examine(&path).await.expect("nobody has it");
                dir.begin().await.expect("begun");
            }
            let before = std::fs::read(log_file(&path, bases[2])).expect("a segment");
            let (repairs, test, report) = repaired(&path).await;
            let taken = repairs
                .iter()
                .filter(|one| matches!(one, Repair::TakeOut { .. }));
            assert_eq!(taken.count(), 5, "{repairs:?}");
            assert_eq!(report.cut, None);
            assert_eq!(test.log.written_end(), Offset(240));
            let kept: Vec<_> = (0..240).step_by(3).filter(|b| !lost.contains(b)).collect();
            assert_eq!(batches_of(&test).await, kept);
            let aside = format!("{}.cut-away", log_file(&path, bases[2]).display());
            assert_eq!(std::fs::read(aside).expect("kept"), before);
        });
    }
}

#[test]
fn r7_a_damaged_last_batch_and_a_segment_of_damage_leave_the_rest() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        let last = bases[bases.len() - 1];
        let end = last + 3 * (positions(&path, last).len() as i64 - 1);
        let at = *positions(&path, last).last().expect("a batch");
        edit(&log_file(&path, last), |bytes| bytes[at + 70] ^= 1);
        edit(&log_file(&path, bases[1]), |bytes| bytes.fill(7));
        let (_, test, _) = repaired(&path).await;
        assert_eq!((test.log.written_end(), end), (Offset(240), 237));
        let whole = |b: &i64| *b < bases[1] || *b >= bases[2];
        let kept: Vec<_> = (0..end).step_by(3).filter(whole).collect();
        test.fill(1).await;
        assert_eq!(test.log.written_end(), Offset(243));
        assert_eq!(batches_of(&test).await, [&kept[..], &[240]].concat());
    });
}

/// Its batches are on the disk below the recovery point, and only their name was not: none of them is given up
/// for an end that seems lost.
#[test]
fn st_14_a_segment_without_its_name_is_no_lost_end() {
    on_plain_engine(|path| async move {
        let bases = stopped(&path).await;
        std::fs::remove_file(path.join(".kafka_cleanshutdown")).expect("removed");
        let logs = bases.iter().map(|base| log_file(&path, *base));
        let wanted = logs.flat_map(|log| std::fs::read(log).expect("a segment"));
        let wanted: Vec<u8> = wanted.collect();
        let last = log_file(&path, *bases.last().expect("segments"));
        let next = last.with_file_name(NEXT_SEGMENT);
        std::fs::rename(&last, &next).expect("renamed");
        let (repairs, test, report) = repaired(&path).await;
        let (from, to) = (next, last);
        assert_eq!(repairs, [Repair::GiveName { from, to }]);
        assert_eq!((report.cut, test.log.written_end()), (None, Offset(240)));
        assert_eq!(test.read_all().await, wanted);
    });
}

/// What a compaction has put aside is in its new segment, below the recovery point.
#[test]
fn st_14_a_compaction_that_was_interrupted_is_no_lost_begin() {
    for all in [false, true] {
        on_plain_engine(|path| async move {
            let bases = stopped(&path).await;
            let logs = bases.iter().map(|base| log_file(&path, *base));
            let wanted = logs.flat_map(|log| std::fs::read(log).expect("a segment"));
            let wanted: Vec<u8> = wanted.collect();
            let set_aside = if all { &bases[..] } else { &bases[..2] };
            for base in set_aside {
                let log = log_file(&path, *base);
                let swap = format!("{}.swap", log.display());
                std::fs::rename(&log, swap).expect("renamed");
            }
            let (repairs, test, report) = repaired(&path).await;
            let dir = path.join("t-0");
            assert_eq!(repairs, [Repair::FinishSwap { dir }]);
            assert_eq!((report.cut, test.log.written_end()), (None, Offset(240)));
            assert_eq!(test.read_all().await, wanted);
        });
    }
}

/// What the swap was to replace is gone, all of it or only the first, and one batch of it is damaged: everything else is
/// kept, and what is damaged is there to be looked at.
#[test]
fn st_14_a_damaged_segment_of_a_compaction_is_repaired_like_any_other() {
    for all_gone in [true, false] {
        on_plain_engine(|path| async move {
            let bases = stopped(&path).await;
            let logs: Vec<_> = bases.iter().map(|base| log_file(&path, *base)).collect();
            let bytes: Vec<_> = logs
                .iter()
                .map(|log| std::fs::read(log).expect("a segment"))
                .collect();
            let mut compacted = [&bytes[0][..], &bytes[1]].concat();
            let mut batches = batch_ranges(&bytes[0]).into_iter();
            let gone = batches.nth(2).expect("a third batch");
            compacted[gone.start + 70] ^= 1;
            let swap = with_ending(&logs[0], ".swap");
            std::fs::write(&swap, &compacted).expect("written");
            std::fs::remove_file(&logs[0]).expect("removed");
            if all_gone {
                std::fs::remove_file(&logs[1]).expect("removed");
            }
            let (dir, base) = (path.join("t-0"), Offset(0));
            assert_eq!(
                repair_once(&path).await,
                [Repair::NameDamaged { dir, base }]
            );
            while !repair_once(&path).await.is_empty() {}
            let aside = std::fs::read(with_ending(&logs[0], ".cut-away"));
            assert_eq!(aside.expect("kept"), compacted);
            let dir = LogDir::open(&path, policy()).await.expect("opened");
            dir.begin().await.expect("begun");
            let opening = dir.opening(&name(), TOPIC_ID);
            let opened = TestLog::open(&path, small_segments(), opening).await;
            let (test, report) = opened.expect("opened");
            assert_eq!((report.cut, test.log.written_end()), (None, Offset(240)));
            let mut wanted = bytes.concat();
            wanted.drain(gone);
            assert_eq!(test.read_all().await, wanted, "all gone: {all_gone}");
        });
    }
}

/// A compaction may leave several segments, of which any may be damaged and some of the old ones still there.
#[test]
fn st_14_of_several_segments_of_a_compaction_only_damaged_batches_are_lost() {
    on_plain_engine(|root| async move {
        let bases = stopped(&root.join("stopped")).await;
        let path = root.join("copy");
        let logs: Vec<_> = bases.iter().map(|base| log_file(&path, *base)).collect();
        for (damaged, gone_min) in [(&[0][..], 1), (&[1], 3), (&[0, 1], 3)] {
            for gone in gone_min..=4 {
                copy_dir(&root.join("stopped"), &path);
                let wanted = replace_by_two(&logs, damaged);
                for log in &logs[..gone] {
                    std::fs::remove_file(log).expect("removed");
                }
                while !repair_once(&path).await.is_empty() {}
                let dir = LogDir::open(&path, policy()).await.expect("opened");
                dir.begin().await.expect("begun");
                let opening = dir.opening(&name(), TOPIC_ID);
                let opened = TestLog::open(&path, small_segments(), opening).await;
                let (test, _) = opened.expect("opened");
                assert_eq!(test.log.written_end(), Offset(240));
                let read = test.read_all().await;
                assert_eq!(read, wanted, "{damaged:?}, {gone} gone");
            }
        }
    });
}

/// Puts two new segments beside the first four, each for two of them, some of them with a damaged batch; what is left of
/// the log without that.
fn replace_by_two(logs: &[PathBuf], damaged: &[usize]) -> Vec<u8> {
    let read = |log| std::fs::read(log).expect("a segment");
    let bytes: Vec<_> = logs.iter().map(read).collect();
    let mut left = bytes.clone();
    for nth in [0, 1] {
        let mut new = bytes[2 * nth..2 * nth + 2].concat();
        if damaged.contains(&nth) {
            let lost = batch_ranges(&bytes[2 * nth]).remove(2);
            new[lost.start + 70] ^= 1;
            left[2 * nth].drain(lost);
        }
        std::fs::write(with_ending(&logs[2 * nth], ".swap"), new).expect("written");
    }
    left.concat()
}

/// What is done by one call of the tool.
async fn repair_once(path: &Path) -> Vec<Repair> {
    let dir = LogDir::examine(path).await.expect("nobody has it");
    let found = examine(&dir, &name(), EXPECTED).await.expect("examined");
    let Some(found) = found else {
        return Vec::new();
    };
    let repairs = found.findings.iter().map(|one| one.repair.clone());
    let repairs = repairs.collect();
    repair(&dir, &[found]).await.expect("repaired");
    repairs
}

fn batch_ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut ranges = Vec::new();
    while at < bytes.len() {
        let header = BatchHeader::parse(&bytes[at..]).expect("a header");
        ranges.push(at..at + header.total_bytes());
        at += header.total_bytes();
    }
    ranges
}
