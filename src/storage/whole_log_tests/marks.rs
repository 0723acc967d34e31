//! Marks: a start after a kill that believes them finds what one that checks everything finds.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thalweg_reactor::task;
use thalweg_replica::EpochCache;
use thalweg_types::{LeaderEpoch, Offset};

use super::{
    Dice, TestLog, copy_dir, edit, file, log_file, numbered, on_both_engines, on_plain_engine,
    small_segments,
};
use crate::name::snapshot_path;
use crate::{Log, LogOptions, Opening, Recovery, RecoveryReport};

/// Index entries each few batches, segments of some hundred.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 20_000,
        ..small_segments()
    }
}

fn after_kill(recovery_point: Offset, written: Option<Offset>) -> Opening {
    Opening {
        written,
        ..Opening::from(Recovery::AfterCrash { recovery_point })
    }
}

/// Everything that reads go by.
fn facts(log: &Log) -> Vec<(Offset, u64, String)> {
    let state = log.inner.state.borrow();
    let segments = state.segments.iter().map(|segment| {
        let warm = segment.warm_now();
        // A clean stop leaves one entry of the time index more.
        let indexes = warm.map(|warm| {
            let indexes = warm.indexes.borrow();
            let max = indexes.max_timestamp();
            (indexes.offsets.encode(), max, indexes.end())
        });
        // Which closed segments stay in memory differs.
        let told = match segment.base == state.active().base {
            true => format!("{indexes:?}"),
            false => String::new(),
        };
        (segment.base, segment.size.get(), told)
    });
    segments.collect()
}

#[test]
fn a_start_by_marks_finds_what_a_full_check_finds() {
    on_plain_engine(|dir| async move {
        for seed in 0..6 {
            let dir = dir.join(format!("seed-{seed}"));
            std::fs::create_dir(&dir).expect("a directory");
            lives(&dir, seed).await;
        }
    });
}

async fn lives(dir: &Path, seed: u64) {
    let (one, two) = (dir.join("one"), dir.join("two"));
    std::fs::create_dir(&one).expect("a directory");
    let mut dice = Dice::new(seed + 7);
    let mut test = TestLog::create(&one, options()).await;
    let mut trusted = 0;
    let mut epoch = 0;
    // As the file of marks has it: not of the last life.
    let mut mark = None;
    for life in 0..8 {
        for _ in 0..dice.below(200) {
            match dice.below(40) {
                0 => test.settle().await,
                1 => drop(test.log.flush().await.expect("flushed")),
                2..4 => {
                    let at = test.log.written_end();
                    test.log.save_way(at, vec![7]).await.expect("saved");
                    assert_eq!(test.log.mark(), Some(test.log.written_end()));
                    mark = mark.max(test.log.mark());
                }
                7 => mark = mark.max(test.log.mark()),
                4 => epoch += 1,
                _ => {
                    let records = 1 + dice.below(5) as i64;
                    let base = test.log.assigned_end();
                    test.log.append(numbered(base, LeaderEpoch(epoch), records));
                }
            }
        }
        test.settle().await;
        let recovery_point = test.log.recovery_point();
        let all = test.read_all().await;
        test.kill().await;
        copy_dir(&one, &two);
        let full = TestLog::open(&two, options(), after_kill(recovery_point, None)).await;
        let (full, _) = full.expect("recovered");
        let opened = TestLog::open(&one, options(), after_kill(recovery_point, mark)).await;
        let report: RecoveryReport;
        (test, report) = opened.expect("recovered");
        trusted += report.bytes_trusted;
        assert_eq!(report.cut, None, "seed {seed} life {life}");
        let same = facts(&test.log) == facts(&full.log);
        assert!(same, "seed {seed} life {life}");
        assert_eq!(test.read_all().await, all);
        if dice.below(2) == 0 {
            // A start replaces the marks by those of what it has opened.
            mark = test.log.mark();
            assert_eq!(mark, Some(test.log.written_end()));
        }
        // What was trusted is not on the disk for that, and is flushed like all else.
        test.log.flush().await.expect("flushed");
        assert_eq!(test.log.recovery_point(), test.log.written_end());
        if life % 3 == 2 {
            test.log.close().await.expect("closed");
            let opening = Opening::from(Recovery::AfterCleanStop);
            (test, _) = TestLog::open(&one, options(), opening)
                .await
                .expect("opened");
            assert_eq!(test.log.mark(), Some(test.log.written_end()));
        }
    }
    assert!(trusted > 0, "seed {seed}");
}

/// What was done to the files, and whether it was done to the log itself.
type Harm = (fn(&Path), bool);

const HARMS: [Harm; 6] = [
    (
        |one| edit(&log_file(one, 0), |bytes| bytes.truncate(bytes.len() / 2)),
        true,
    ),
    (|one| edit(&log_file(one, 0), |bytes| bytes.clear()), true),
    // Without its indexes the log is gone by, header by header.
    (
        |one| edit(&file(one, 0, "index"), |bytes| bytes.clear()),
        false,
    ),
    (
        |one| edit(&file(one, 0, "index"), |bytes| bytes.fill(0xff)),
        false,
    ),
    (
        |one| edit(&file(one, 0, "timeindex"), |bytes| bytes.truncate(5)),
        false,
    ),
    (
        |one| std::fs::remove_file(file(one, 0, "index")).expect("an index"),
        false,
    ),
];

#[test]
fn a_mark_that_the_files_contradict_is_not_believed() {
    on_plain_engine(|dir| async move {
        let one = dir.join("one");
        std::fs::create_dir(&one).expect("a directory");
        let test = TestLog::create(
            &one,
            LogOptions {
                segment_bytes: 1 << 30,
                ..options()
            },
        )
        .await;
        test.fill(100).await;
        test.log
            .save_way(Offset(300), vec![7])
            .await
            .expect("saved");
        test.fill(10).await;
        test.kill().await;
        let size = std::fs::metadata(log_file(&one, 0)).expect("a log").len();
        let two = dir.join("two");
        let opening = after_kill(Offset(0), Some(Offset(300)));
        // Bytes below the mark are not looked at.
        let believed = |report: &RecoveryReport| report.bytes_trusted > size / 2;
        for (nth, (harm, is_of_the_log)) in HARMS.into_iter().enumerate() {
            copy_dir(&one, &two);
            harm(&two);
            let marks = two.join("thalweg-written-checkpoint");
            std::fs::write(&marks, "of all").expect("marks");
            let harmed = std::fs::read(log_file(&two, 0)).expect("a log");
            let opened = TestLog::open(&two, options(), opening).await;
            assert!(marks.exists(), "harm {nth}");
            if is_of_the_log {
                // It was there when it was killed: to cut, and to write anew below the mark, would lose it.
                assert!(opened.is_err_and(|error| error.is_damage()), "harm {nth}");
                let left = std::fs::read(log_file(&two, 0)).expect("a log");
                assert_eq!(left, harmed, "harm {nth}");
                continue;
            }
            let (test, report) = opened.expect("opened");
            assert!(believed(&report), "harm {nth}: {report:?}");
            assert_eq!(test.log.written_end(), Offset(330), "harm {nth}");
            assert_eq!(test.read_all().await.len() as u64, test.log.size_bytes());
        }
        copy_dir(&one, &two);
        let (test, report) = TestLog::open(&two, options(), opening)
            .await
            .expect("opened");
        assert!(believed(&report), "{report:?}");
        assert_eq!(test.log.written_end(), Offset(330));
        // Above the mark a torn tail is a torn tail.
        copy_dir(&one, &two);
        edit(&log_file(&two, 0), |bytes| bytes.truncate(bytes.len() - 1));
        let (test, report) = TestLog::open(&two, options(), opening)
            .await
            .expect("opened");
        assert!(believed(&report) && report.cut.is_some(), "{report:?}");
        assert_eq!(test.log.written_end(), Offset(327));
    });
}

/// ST-11: an append that brings an epoch and retention that cuts epochs write one after the other. At the same time one took the
/// other's new file away, and the log went offline.
#[test]
fn st_11_one_at_a_time_writes_leader_epochs() {
    on_both_engines(|path| async move {
        let test = TestLog::create(&path, small_segments()).await;
        let mut epochs = EpochCache::default();
        for epoch in 1..60 {
            let _change = epochs.assign(LeaderEpoch(epoch), test.log.written_end());
            test.log.owe_epochs(&epochs);
            let (log, kept) = (test.log.clone(), epochs.clone());
            let storing = task::spawn(async move { log.store_epochs(&kept).await });
            test.fill(1).await;
            storing.await.expect("no panic").expect("stored");
        }
        assert_eq!(
            test.log.check_open().map_err(|error| error.to_string()),
            Ok(())
        );
    });
}

/// ST-11: a mark says that nothing below needs a look, so there is none while the file of leader epochs lacks one
/// that has batches.
#[test]
fn st_11_no_mark_while_there_is_no_room_for_leader_epochs() {
    on_both_engines(|path| async move {
        let test = TestLog::create(&path, small_segments()).await;
        test.fill(2).await;
        let mut epochs = EpochCache::default();
        let _change = epochs.assign(LeaderEpoch(7), Offset(3));
        // As after an append whose file of epochs did not fit on the disk.
        test.log.owe_epochs(&epochs);
        assert_eq!(test.log.mark(), None);
        test.log.store_epochs(&epochs).await.expect("stored");
        assert_eq!(test.log.mark(), Some(Offset(6)));
    });
}

/// Each file that is made costs a file system more than the bytes in it.
#[test]
fn what_is_saved_again_and_again_makes_no_new_files() {
    on_plain_engine(|dir| async move {
        let one = dir.join("one");
        std::fs::create_dir(&one).expect("a directory");
        let test = TestLog::create(&one, LogOptions::default()).await;
        let files = || -> Vec<(String, u64)> {
            let entries = std::fs::read_dir(one.join("t-0")).expect("a listing");
            let mut files: Vec<_> = entries
                .map(|entry| {
                    let entry = entry.expect("an entry");
                    let name = entry.file_name().into_string().expect("a name");
                    (name, entry.metadata().expect("facts").ino())
                })
                .collect();
            files.sort();
            files
        };
        let save = async |content: Vec<u8>| {
            test.fill(100).await;
            let at = test.log.written_end();
            test.log.save_way(at, content).await.expect("saved");
            let named = snapshot_path(&one.join("t-0"), at);
            let is_there = std::fs::exists(&named).expect("looked");
            assert!(is_there, "{}", named.display());
            files()
        };
        let inodes = |files: Vec<(String, u64)>| -> BTreeSet<u64> {
            files.into_iter().map(|(_, inode)| inode).collect()
        };
        let first = inodes(save(vec![7]).await);
        assert_eq!(inodes(save(vec![7]).await), first);
        assert_eq!(inodes(save(vec![7]).await), first);
        // What says something else is another file, and the one before it goes.
        let other = save(vec![8]).await;
        assert_eq!(other.len(), first.len());
        assert_ne!(inodes(other), first);
        // One that is gone is no reason to fail.
        let gone = snapshot_path(&one.join("t-0"), test.log.written_end());
        std::fs::remove_file(gone).expect("removed");
        assert_eq!(save(vec![8]).await.len(), first.len());
        test.fill(10).await;
        let all = test.read_all().await;
        let end = test.log.written_end();
        test.kill().await;
        let opening = after_kill(Offset(0), Some(end));
        let (test, report) = TestLog::open(&one, LogOptions::default(), opening)
            .await
            .expect("opened");
        assert!(report.bytes_trusted > 0, "{report:?}");
        assert_eq!(test.read_all().await, all);
    });
}
