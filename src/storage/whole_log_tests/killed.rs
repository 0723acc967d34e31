//! What a kill leaves: all that was written is in the page cache, so that nothing but the last write can be torn.

use std::collections::BTreeSet;
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
async fn next_life(path: &Path) -> (LogDir, Unwritten) {
    let dir = LogDir::open(path, policy()).await.expect("opened");
    dir.begin().await.expect("begun");
    let unwritten = dir.opening(&name(), TOPIC_ID).unwritten;
    (dir, unwritten)
}

async fn is_told_from_others(path: &Path) -> bool {
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
        dir.record_whole(&BTreeSet::new()).await.expect("recorded");
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
        let not_open = BTreeSet::from([name()]);
        dir.record_whole(&not_open).await.expect("recorded");
        drop(dir);
        let (dir, unwritten) = next_life(&path).await;
        assert_eq!(unwritten, Unwritten::AnyBatch, "it was not opened");
        dir.record_whole(&BTreeSet::new()).await.expect("recorded");
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
        dir.record_whole(&BTreeSet::new()).await.expect("recorded");
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
