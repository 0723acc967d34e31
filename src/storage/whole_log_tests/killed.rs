//! What a kill leaves: all that was written is in the page cache, so that nothing but the last write can be torn.

use std::collections::BTreeMap;
use std::path::Path;

use thalweg_types::Offset;

use super::repairing::{EXPECTED, policy};
use super::{
    TOPIC_ID, TestLog, copy_dir, edit, log_file, name, on_both_engines, on_plain_engine,
    small_segments,
};
use crate::repair::{examine, repair};
use crate::{
    Checkpoint, Gaps, LogDir, LogError, Missing, Opening, PartitionOffsets, Recovery, Unwritten,
};

/// Nothing is known to be on the disk.
fn after_kill() -> Opening {
    Opening {
        gaps: Gaps::Never,
        unwritten: Unwritten::LastWrite,
        ..Opening::from(Recovery::AfterCrash {
            recovery_point: Offset(0),
        })
    }
}

/// A log of 40 batches of 3 records that was killed; the bases of its segments.
async fn killed(path: &Path) -> Vec<i64> {
    let test = TestLog::create(path, small_segments()).await;
    test.fill(40).await;
    let bases = {
        let state = test.log.inner.state.borrow();
        state.segments.iter().map(|s| s.base.0).collect()
    };
    test.kill().await;
    bases
}

fn logs(path: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(path.join("t-0")).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut logs: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs.iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect()
}

type Harm = fn(&Path);

/// What is done to a segment that others follow.
const HARMS: [(&str, Harm); 6] = [
    ("flipped", |path| edit(path, |bytes| bytes[500] ^= 1)),
    ("zeroed to its end", |path| {
        edit(path, |bytes| bytes[500..].fill(0))
    }),
    ("cut in a batch", |path| {
        edit(path, |bytes| bytes.truncate(500))
    }),
    ("cut between batches", |path| {
        edit(path, |bytes| {
            let first = thalweg_protocol::records::BatchHeader::parse(bytes).expect("a batch");
            bytes.truncate(first.total_bytes());
        });
    }),
    ("emptied", |path| edit(path, |bytes| bytes.clear())),
    ("gone", |path| std::fs::remove_file(path).expect("removed")),
];

#[test]
fn st_3_after_a_kill_damage_before_later_segments_is_no_torn_tail() {
    on_both_engines(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        std::fs::create_dir(&one).expect("a directory");
        let bases = killed(&one).await;
        for (what, harm) in HARMS {
            copy_dir(&one, &two);
            harm(&log_file(&two, bases[1]));
            let before = logs(&two);
            let refused = TestLog::open(&two, small_segments(), after_kill()).await;
            let error = refused.map(|_| ()).expect_err(what);
            let is_told = match &error {
                LogError::DamagedBeforeWhole { path, .. } => *path == log_file(&two, bases[1]),
                LogError::RecordsMissing { what, .. } => *what == Missing::Between,
                _other => false,
            };
            assert!(is_told && error.is_damage(), "{what}: {error}");
            assert_eq!(logs(&two), before, "{what}: untouched");
            // After a loss of power the kernel may have written the later ones first.
            let opening = Opening {
                unwritten: Unwritten::AnyBatch,
                ..after_kill()
            };
            let (_, report) = TestLog::open(&two, small_segments(), opening)
                .await
                .expect(what);
            assert_eq!(report.segments_removed, bases.len() - 2);
        }
    });
}

#[test]
fn st_1_after_a_kill_the_last_write_is_cut_and_nothing_before_it() {
    on_plain_engine(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        std::fs::create_dir(&one).expect("a directory");
        let last = *killed(&one).await.last().expect("a segment");
        let whole = std::fs::read(log_file(&one, last)).expect("a segment");
        assert!(whole.len() > 300);
        for cut in 2..100 {
            copy_dir(&one, &two);
            edit(&log_file(&two, last), |bytes| {
                bytes.truncate(bytes.len() - cut);
                // As zeros that were written ahead.
                bytes.resize(whole.len() + 500, 0);
            });
            let (test, report) = TestLog::open(&two, small_segments(), after_kill())
                .await
                .expect("opened");
            assert_eq!(test.log.written_end(), Offset(117), "{cut}");
            assert!(report.cut.is_some());
        }
        copy_dir(&one, &two);
        edit(&log_file(&two, last), |bytes| bytes[100] ^= 1);
        let refused = TestLog::open(&two, small_segments(), after_kill()).await;
        let error = refused
            .map(|_| ())
            .expect_err("whole batches are behind it");
        assert!(
            matches!(error, LogError::DamagedBeforeWhole { .. }),
            "{error}"
        );
    });
}

/// Opens the directory and says what it expects of the log.
pub(super) async fn next_life(path: &Path) -> (LogDir, Unwritten) {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    dir.begin().await.expect("begun");
    let unwritten = dir.opening(&name(), TOPIC_ID).unwritten;
    (dir, unwritten)
}

pub(super) async fn is_told_from_others(path: &Path) -> bool {
    let lifetime = thalweg_reactor::fs::cache_lifetime(path).await;
    lifetime.expect("told").is_some()
}

#[test]
fn a_log_is_whole_after_a_kill_if_this_boot_has_opened_it_before() {
    on_plain_engine(|path| async move {
        let (dir, _) = next_life(&path).await;
        if !is_told_from_others(&path).await {
            return;
        }
        dir.record_whole(&BTreeMap::new()).await.expect("recorded");
        drop(dir);
        let file = path.join(crate::page_cache::FILE);
        // A life that was killed while it opened its logs changes nothing.
        for _ in 0..2 {
            let (_, unwritten) = next_life(&path).await;
            assert_eq!(unwritten, Unwritten::LastWrite);
        }
        // Another boot: any log may be torn, until it is opened.
        std::fs::write(&file, "another").expect("written");
        for _ in 0..2 {
            let (_, unwritten) = next_life(&path).await;
            assert_eq!(unwritten, Unwritten::AnyBatch);
            assert!(!file.exists());
        }
        let (dir, _) = next_life(&path).await;
        let not_open = BTreeMap::from([(name(), TOPIC_ID)]);
        dir.record_whole(&not_open).await.expect("recorded");
        drop(dir);
        let (dir, unwritten) = next_life(&path).await;
        assert_eq!(unwritten, Unwritten::AnyBatch, "it was not opened");
        dir.record_whole(&BTreeMap::new()).await.expect("recorded");
        drop(dir);
        let (dir, unwritten) = next_life(&path).await;
        assert_eq!(unwritten, Unwritten::LastWrite);
        // It was whole, and still is when it can not be opened.
        dir.record_whole(&not_open).await.expect("recorded");
        drop(dir);
        assert_eq!(next_life(&path).await.1, Unwritten::LastWrite);
        // A disk that failed may have dropped anything from the page cache.
        crate::leave_trace(&path, "an fsync failed")
            .await
            .expect("left");
        assert_eq!(next_life(&path).await.1, Unwritten::AnyBatch);
        assert_eq!(next_life(&path).await.1, Unwritten::AnyBatch);
        // What was found once stays true over a boot.
        let (dir, _) = next_life(&path).await;
        let found = PartitionOffsets::from([(name(), Offset(0))]);
        let written = dir
            .write_checkpoint(Checkpoint::DamagedAfterKill, &found)
            .await;
        written.expect("written");
        drop(dir);
        assert_eq!(next_life(&path).await.1, Unwritten::LastWrite);
    });
}

#[test]
fn r7_damage_that_a_kill_does_not_make_is_repaired_above_the_recovery_point() {
    on_plain_engine(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        std::fs::create_dir(&one).expect("a directory");
        if !is_told_from_others(&one).await {
            return;
        }
        let (dir, _) = next_life(&one).await;
        dir.record_whole(&BTreeMap::new()).await.expect("recorded");
        drop(dir);
        let bases = killed(&one).await;
        for (what, harm) in HARMS {
            copy_dir(&one, &two);
            harm(&log_file(&two, bases[1]));
            let dir = LogDir::open(&two, policy()).await.expect("opened");
            let opening = dir.opening(&name(), TOPIC_ID);
            let refused = TestLog::open(&two, small_segments(), opening).await;
            assert!(refused.is_err_and(|error| error.is_damage()), "{what}");
            drop(dir);
            let dir = LogDir::examine(&two).await.expect("nobody has it");
            let found = examine(&dir, &name(), EXPECTED).await.expect("examined");
            let found = found.expect(what);
            repair(&dir, &[found]).await.expect("repaired");
            let again = LogDir::examine(&two);
            drop(dir);
            let dir = again.await.expect("nobody has it");
            let again = examine(&dir, &name(), EXPECTED).await.expect("examined");
            assert_eq!(again, None, "{what}: repaired once is repaired");
            drop(dir);
            let (dir, unwritten) = next_life(&two).await;
            assert_eq!(unwritten, Unwritten::LastWrite);
            let opening = dir.opening(&name(), TOPIC_ID);
            let (test, report) = TestLog::open(&two, small_segments(), opening)
                .await
                .expect(what);
            assert_eq!(test.log.written_end(), Offset(120), "{what}");
            assert_eq!(report.cut, None, "{what}");
        }
    });
}

/// A directory whose log was killed; every log in it is whole.
pub(super) async fn killed_in_directory(path: &Path) -> Vec<i64> {
    std::fs::create_dir(path).expect("a directory");
    let (dir, _) = next_life(path).await;
    dir.record_whole(&BTreeMap::new()).await.expect("recorded");
    drop(dir);
    killed(path).await
}

/// What a start refuses the log for.
pub(super) async fn refusal(path: &Path) -> LogError {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    let opening = dir.opening(&name(), TOPIC_ID);
    let before = logs(path);
    let refused = TestLog::open(path, small_segments(), opening).await;
    let error = refused.map(|_| ()).expect_err("refused");
    assert!(error.is_damage(), "{error}");
    assert_eq!(logs(path), before, "untouched");
    error
}

/// Repairs the log, and opens it.
pub(super) async fn repaired(path: &Path) -> TestLog {
    let dir = LogDir::examine(path).await.expect("nobody has it");
    let found = examine(&dir, &name(), EXPECTED).await.expect("examined");
    let found = found.expect("something is wrong");
    repair(&dir, &[found]).await.expect("repaired");
    drop(dir);
    let dir = LogDir::examine(path).await.expect("nobody has it");
    let again = examine(&dir, &name(), EXPECTED).await.expect("examined");
    assert_eq!(again, None, "repaired once is repaired");
    drop(dir);
    let (dir, _) = next_life(path).await;
    let opening = dir.opening(&name(), TOPIC_ID);
    let opened = TestLog::open(path, small_segments(), opening).await;
    let (test, report) = opened.expect("opened");
    assert_eq!(report.cut, None);
    test
}

pub(super) async fn bases_of_batches(test: &TestLog) -> Vec<i64> {
    let all = test.read_all().await;
    let mut rest = &all[..];
    let mut bases = Vec::new();
    while let Ok(header) = thalweg_protocol::records::BatchHeader::parse(rest) {
        bases.push(header.base_offset.0);
        rest = &rest[header.total_bytes()..];
    }
    bases
}

/// A changed offset, and a segment in the place of another: no checksum says so.
#[test]
fn r7_what_has_anothers_offsets_is_no_torn_tail_and_is_taken_out() {
    on_plain_engine(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        let bases = killed_in_directory(&one).await;
        let last = bases[bases.len() - 1];
        let second = |base: i64| {
            let whole = std::fs::read(log_file(&one, base)).expect("a segment");
            let first = thalweg_protocol::records::BatchHeader::parse(&whole).expect("a batch");
            first.total_bytes()
        };
        let all: Vec<i64> = (0..120).step_by(3).collect();
        let raised: [(i64, usize, i64); 4] = [
            (bases[1], 0, bases[1]),
            (bases[1], second(bases[1]), bases[1] + 3),
            (last, 0, last),
            (last, second(last), last + 3),
        ];
        for (base, position, lost) in raised {
            copy_dir(&one, &two);
            edit(&log_file(&two, base), |bytes| bytes[position + 5] ^= 1);
            let error = refusal(&two).await;
            assert!(matches!(error, LogError::OutOfPlace { .. }), "{error}");
            let test = repaired(&two).await;
            assert_eq!(test.log.written_end(), Offset(120));
            let kept: Vec<i64> = all.iter().copied().filter(|b| *b != lost).collect();
            assert_eq!(bases_of_batches(&test).await, kept, "{base} {position}");
        }
        // The last batch of all, which nothing behind it contradicts.
        copy_dir(&one, &two);
        edit(&log_file(&two, last), |bytes| {
            let at = (0..bytes.len()).rev().find(|at| {
                thalweg_protocol::records::BatchHeader::parse(&bytes[*at..])
                    .is_ok_and(|header| header.base_offset == Offset(117))
            });
            let at = at.expect("the last batch");
            bytes[at + 5] ^= 1;
        });
        let error = refusal(&two).await;
        assert!(matches!(error, LogError::OutOfPlace { .. }), "{error}");
        let test = repaired(&two).await;
        assert_eq!(bases_of_batches(&test).await, all[..39]);
        for (from, to) in [(1, 2), (2, 1), (0, bases.len() - 1)] {
            copy_dir(&one, &two);
            let (from, to) = (bases[from], bases[to]);
            std::fs::copy(log_file(&two, from), log_file(&two, to)).expect("copied");
            let error = refusal(&two).await;
            assert!(matches!(error, LogError::OutOfPlace { .. }), "{error}");
            let test = repaired(&two).await;
            let next = bases.iter().copied().find(|b| *b > to).unwrap_or(120);
            let kept: Vec<i64> = all
                .iter()
                .copied()
                .filter(|b| *b < to || *b >= next)
                .collect();
            assert_eq!(
                bases_of_batches(&test).await,
                kept,
                "{from} in the place of {to}"
            );
            test.fill(1).await;
        }
    });
}

#[test]
fn st_12_after_a_kill_the_first_segment_is_not_taken_for_retention() {
    on_plain_engine(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        let bases = killed_in_directory(&one).await;
        copy_dir(&one, &two);
        std::fs::remove_file(log_file(&two, 0)).expect("removed");
        let LogError::RecordsMissing {
            what: Missing::Start,
            from,
            up_to,
            ..
        } = refusal(&two).await
        else {
            panic!("another damage")
        };
        assert_eq!((from.0, up_to.0), (0, bases[1]));
        let test = repaired(&two).await;
        assert_eq!(test.log.start_offset(), Offset(bases[1]));
        assert_eq!(test.log.written_end(), Offset(120));
        // As a kill in the middle of retention leaves it.
        copy_dir(&one, &two);
        let gone = log_file(&two, 0);
        std::fs::rename(&gone, gone.with_extension("log.deleted")).expect("renamed");
        let (dir, _) = next_life(&two).await;
        let opening = dir.opening(&name(), TOPIC_ID);
        let opened = TestLog::open(&two, small_segments(), opening).await;
        let start = opened.expect("opened").0.log.start_offset();
        assert_eq!(start, Offset(bases[1]));
    });
}

/// The checkpoint of log starts says more than the log has.
#[test]
fn st_13_only_a_loss_of_power_explains_a_start_beyond_the_end() {
    on_plain_engine(|path| async move {
        let (one, two) = (path.join("one"), path.join("two"));
        killed_in_directory(&one).await;
        let starts = PartitionOffsets::from([(name(), Offset(500))]);
        let (dir, _) = next_life(&one).await;
        let written = dir.write_checkpoint(Checkpoint::LogStart, &starts).await;
        written.expect("written");
        drop(dir);
        copy_dir(&one, &two);
        let error = refusal(&two).await;
        let is_missing = matches!(
            error,
            LogError::RecordsMissing {
                what: Missing::End,
                up_to: Offset(500),
                ..
            }
        );
        assert!(is_missing, "{error}");
        let test = repaired(&two).await;
        assert_eq!(test.log.start_offset(), Offset(500));
        assert_eq!(test.log.written_end(), Offset(500));
        // After a stop in order it is the checkpoint that is damaged.
        for known_end in [Some(Offset(120)), None] {
            copy_dir(&one, &two);
            let clean = Opening {
                log_start: Some(Offset(500)),
                known_end,
                gaps: Gaps::Never,
                ..Opening::from(Recovery::AfterCleanStop)
            };
            let (test, report) = TestLog::open(&two, small_segments(), clean)
                .await
                .expect("opened");
            assert!(!report.log_start_ahead);
            assert_eq!(test.log.start_offset(), Offset(0));
            assert_eq!(test.log.written_end(), Offset(120));
        }
    });
}
