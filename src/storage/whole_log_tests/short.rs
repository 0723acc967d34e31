//! Logs that end before their marks: after a kill nothing of what was written is missing.

use std::path::Path;
use std::time::Duration;

use thalweg_protocol::records::BatchHeader;
use thalweg_types::{Offset, TimestampMs, Uuid};

use super::killed::{
    bases_of_batches, is_told_from_others, killed_in_directory, next_life, refusal, repaired,
};
use super::{TOPIC_ID, TestLog, copy_dir, edit, log_file, name, on_plain_engine, small_segments};
use crate::recovery::missing_directory;
use crate::repair::{Expected, examine, repair};
use crate::{
    BoundOffsets, Checkpoint, Gaps, LogDir, LogError, Missing, PartitionOffsets, RetentionLimits,
    StartKept, Unwritten,
};

/// Has the file of marks say that the log of `topic` was written up to `end`.
async fn mark(path: &Path, topic: Uuid, end: Offset) {
    let (dir, _) = next_life(path).await;
    let mut marks = BoundOffsets::default();
    marks.insert(name(), topic, end);
    dir.write_marks(&marks).await.expect("marked");
}

/// A directory with a log of 40 batches of 3 records that was marked and killed; the bases of its segments.
async fn marked(path: &Path) -> Vec<i64> {
    let bases = killed_in_directory(path).await;
    mark(path, TOPIC_ID, Offset(120)).await;
    bases
}

fn first_batch(bytes: &[u8]) -> usize {
    BatchHeader::parse(bytes).expect("a batch").total_bytes()
}

/// What is done to the last segment, and where the batches end that are left.
type Harm = (&'static str, fn(&Path), i64);

const HARMS: [Harm; 6] = [
    (
        "gone",
        |path| std::fs::remove_file(path).expect("removed"),
        0,
    ),
    ("emptied", |path| edit(path, Vec::clear), 0),
    (
        "cut behind its first batch",
        |path| edit(path, |bytes| bytes.truncate(first_batch(bytes))),
        3,
    ),
    (
        "cut in its second batch",
        |path| edit(path, |bytes| bytes.truncate(first_batch(bytes) + 70)),
        3,
    ),
    (
        "zeroed from its second batch on",
        |path| {
            edit(path, |bytes| {
                let first = first_batch(bytes);
                bytes[first..].fill(0);
            });
        },
        3,
    ),
    (
        "flipped from its second batch on",
        |path| {
            edit(path, |bytes| {
                let first = first_batch(bytes);
                bytes[first..].iter_mut().for_each(|byte| *byte ^= 0x11);
            });
        },
        3,
    ),
];

#[test]
fn st_12_after_a_kill_a_log_that_does_not_reach_to_its_mark_is_damaged() {
    on_plain_engine(|path| async move {
        if !is_told_from_others(&path).await {
            return;
        }
        let (one, two) = (path.join("one"), path.join("two"));
        let bases = marked(&one).await;
        let last = bases[bases.len() - 1];
        assert!(last + 6 <= 120, "{bases:?}");
        for (what, harm, left) in HARMS {
            copy_dir(&one, &two);
            harm(&log_file(&two, last));
            let error = refusal(&two).await;
            let is_told = match &error {
                LogError::RecordsMissing { what, up_to, .. } => {
                    (*what, *up_to) == (Missing::End, Offset(120))
                }
                LogError::DamagedBelowMark {
                    offset, written, ..
                } => (*offset, *written) == (Offset(last + left), Offset(120)),
                _other => false,
            };
            assert!(is_told, "{what}: {error}");
            // No offset is given out twice.
            let test = repaired(&two).await;
            assert_eq!(test.log.written_end(), Offset(120), "{what}");
            test.fill(1).await;
            let kept: Vec<i64> = (0..last + left).step_by(3).chain([120]).collect();
            assert_eq!(bases_of_batches(&test).await, kept, "{what}");
        }
        // What was written behind the mark can not be told from what never was.
        copy_dir(&one, &two);
        mark(&two, TOPIC_ID, Offset(last + 3)).await;
        edit(&log_file(&two, last), |bytes| {
            bytes.truncate(first_batch(bytes))
        });
        let opened = opened(&two).await;
        assert_eq!(opened.log.written_end(), Offset(last + 3));
    });
}

async fn opened(path: &Path) -> TestLog {
    let (dir, _) = next_life(path).await;
    let opening = dir.opening(&name(), TOPIC_ID);
    let opened = TestLog::open(path, small_segments(), opening).await;
    opened.expect("opened").0
}

#[test]
fn st_12_after_a_kill_a_marked_log_without_segments_or_directory_is_damaged() {
    on_plain_engine(|path| async move {
        if !is_told_from_others(&path).await {
            return;
        }
        let (one, two) = (path.join("one"), path.join("two"));
        let bases = marked(&one).await;
        copy_dir(&one, &two);
        for base in &bases {
            std::fs::remove_file(log_file(&two, *base)).expect("removed");
        }
        assert!(matches!(
            refusal(&two).await,
            LogError::RecordsMissing {
                what: Missing::End,
                up_to: Offset(120),
                ..
            }
        ));
        let test = repaired(&two).await;
        assert_eq!(test.log.start_offset(), Offset(120));
        drop(test);
        copy_dir(&one, &two);
        let folder = two.join("t-0");
        std::fs::remove_dir_all(&folder).expect("removed");
        let (dir, _) = next_life(&two).await;
        let missing = missing_directory(&folder, &dir.opening(&name(), TOPIC_ID));
        assert!(matches!(
            missing,
            Some(LogError::RecordsMissing {
                what: Missing::Directory,
                up_to: Offset(120),
                ..
            })
        ));
        // Another topic of that name never had it.
        let other = dir.opening(&name(), Uuid([8; 16]));
        assert!(missing_directory(&folder, &other).is_none());
    });
}

/// The mark goes with the boot; that something was missing then does not.
#[test]
fn st_12_what_was_found_missing_after_a_kill_stays_missing_over_a_boot() {
    on_plain_engine(|path| async move {
        if !is_told_from_others(&path).await {
            return;
        }
        let path = path.join("one");
        let bases = marked(&path).await;
        let last = bases[bases.len() - 1];
        edit(&log_file(&path, last), |bytes| {
            bytes.truncate(first_batch(bytes))
        });
        let (dir, _) = next_life(&path).await;
        let found = PartitionOffsets::from([(name(), Offset(120))]);
        let written = dir.write_checkpoint(Checkpoint::DamagedAfterKill, &found);
        written.await.expect("written");
        drop(dir);
        for file in [crate::written::FILE, crate::page_cache::FILE] {
            std::fs::write(path.join(file), "another boot").expect("written");
        }
        let (dir, unwritten) = next_life(&path).await;
        assert_eq!(unwritten, Unwritten::LastWrite);
        drop(dir);
        let error = refusal(&path).await;
        assert!(matches!(
            error,
            LogError::RecordsMissing {
                what: Missing::End,
                up_to: Offset(120),
                ..
            }
        ));
        let test = repaired(&path).await;
        assert_eq!(test.log.written_end(), Offset(120));
    });
}

/// Whatever takes files away from a log leaves its end where it was.
#[test]
fn st_14_nothing_that_makes_a_log_smaller_makes_it_end_before_its_mark() {
    on_plain_engine(|path| async move {
        if !is_told_from_others(&path).await {
            return;
        }
        let (one, two) = (path.join("one"), path.join("two"));
        marked(&one).await;
        for kept in [StartKept::Durable, StartKept::ByFirstSegment] {
            copy_dir(&one, &two);
            let test = opened(&two).await;
            assert_eq!(test.log.mark(), Some(Offset(120)));
            let limits = RetentionLimits {
                bytes: Some(0),
                ..RetentionLimits::default()
            };
            // All of it: a segment is begun that nothing is written to.
            let due = test.log.due(limits, Offset(120), TimestampMs(0)).await;
            let start = due.expect("a look").expect("due").start;
            assert_eq!(start, Offset(120));
            test.log.raise_start(start);
            if kept == StartKept::Durable {
                let (dir, _) = next_life(&two).await;
                let starts = PartitionOffsets::from([(name(), start)]);
                let written = dir.write_checkpoint(Checkpoint::LogStart, &starts).await;
                written.expect("written");
            }
            let delay = Duration::from_secs(3_600);
            let removed = test.log.remove_segments(start, kept, delay).await;
            removed.expect("removed");
            test.settle().await;
            // As if it was killed now.
            copy_dir(&two, &path.join("three"));
            let again = opened(&path.join("three")).await;
            assert_eq!(again.log.written_end(), Offset(120), "{kept:?}");
            test.kill().await;
        }
        // Another topic of the name may be shorter.
        copy_dir(&one, &two);
        mark(&two, Uuid([8; 16]), Offset(9_000)).await;
        assert_eq!(opened(&two).await.log.written_end(), Offset(120));
    });
}

#[test]
fn st_12_a_repair_makes_durable_what_its_recovery_point_says() {
    on_plain_engine(|path| async move {
        if !is_told_from_others(&path).await {
            return;
        }
        let path = path.join("one");
        let bases = marked(&path).await;
        let last = bases[bases.len() - 1];
        std::fs::remove_file(log_file(&path, last)).expect("removed");
        let dir = LogDir::examine(&path).await.expect("nobody has it");
        let expected = Expected {
            topic_id: TOPIC_ID,
            gaps: Gaps::MayBe,
        };
        let found = examine(&dir, &name(), expected).await.expect("examined");
        let found = found.expect("the end is missing");
        repair(&dir, &[found]).await.expect("repaired");
        drop(dir);
        // The next boot has no marks.
        std::fs::write(path.join(crate::written::FILE), "another boot").expect("written");
        std::fs::write(path.join(crate::page_cache::FILE), "another boot").expect("written");
        assert_eq!(opened(&path).await.log.written_end(), Offset(120));
    });
}
