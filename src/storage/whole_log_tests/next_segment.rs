//! The file of the next segment: made ahead, taken by a roll, named by a start.

use std::path::{Path, PathBuf};

use thalweg_types::limits::NEXT_SEGMENTS_MAX;
use thalweg_types::{LeaderEpoch, Offset};

use super::{
    TestLog, edit, file, log_file, numbered, on_both_engines, on_plain_engine, small_segments,
};
use crate::name::NEXT_SEGMENT;
use crate::{LogOptions, Opening, Recovery, Unwritten};

const FROM_ZERO: Recovery = Recovery::AfterCrash {
    recovery_point: Offset(0),
};

fn next_file(parent: &Path) -> PathBuf {
    parent.join("t-0").join(NEXT_SEGMENT)
}

fn logs(parent: &Path) -> usize {
    let entries = std::fs::read_dir(parent.join("t-0")).expect("a listing");
    let names = entries.map(|entry| entry.expect("an entry").path());
    names
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .count()
}

/// Appends until the file of the next segment is there.
async fn fill_until_made(test: &TestLog, dir: &Path) {
    for _ in 0..30 {
        test.fill(1).await;
        if next_file(dir).exists() {
            return;
        }
    }
    panic!("it was never made");
}

#[test]
fn a_roll_takes_the_file_that_was_made_ahead() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        for segment in 1..4 {
            fill_until_made(&test, &dir).await;
            assert_eq!(logs(&dir), segment, "not begun");
            let base = loop {
                let base = test.log.assigned_end();
                test.fill(1).await;
                if test.log.segment_count() > segment {
                    break base;
                }
            };
            assert!(log_file(&dir, base.0).exists() && !next_file(&dir).exists());
            assert_eq!(logs(&dir), segment + 1);
        }
        // Who can not read what lies there says which segment it is.
        assert!(test.log.are_files_known_by_their_names());
        let all = test.read_all().await;
        fill_until_made(&test, &dir).await;
        test.log.close().await.expect("closed");
        assert!(!next_file(&dir).exists(), "a closed log needs none");
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (test, _) = opened.expect("opened");
        assert!(test.read_all().await.starts_with(&all));
    });
}

#[test]
fn st_14_a_segment_that_a_crash_left_without_its_name_gets_it() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        while test.log.segment_count() < 3 {
            test.fill(1).await;
        }
        test.fill(2).await;
        let (all, end) = (test.read_all().await, test.log.written_end());
        test.kill().await;
        let last = (0..end.0).rev().find(|base| log_file(&dir, *base).exists());
        let last = last.expect("a segment");
        std::fs::remove_file(next_file(&dir)).ok();
        std::fs::rename(log_file(&dir, last), next_file(&dir)).expect("renamed");
        let opened = TestLog::open(&dir, small_segments(), FROM_ZERO).await;
        let (test, report) = opened.expect("opened");
        assert_eq!((report.cut, test.log.written_end()), (None, end));
        assert_eq!(test.read_all().await, all);
        assert!(log_file(&dir, last).exists() && !next_file(&dir).exists());
    });
}

#[test]
fn st_14_what_is_no_segment_yet_is_removed() {
    let stale = numbered(Offset(0), LeaderEpoch(0), 3).bytes.to_vec();
    for left in [vec![], vec![0; 5], vec![0; 4_096], vec![0xff; 100], stale] {
        let left = &left;
        on_plain_engine(|dir| async move {
            let test = TestLog::create(&dir, small_segments()).await;
            test.fill(4).await;
            let all = test.read_all().await;
            test.kill().await;
            std::fs::write(next_file(&dir), left).expect("written");
            let opened = TestLog::open(&dir, small_segments(), FROM_ZERO).await;
            let (test, _) = opened.expect("opened");
            assert_eq!(test.read_all().await, all);
            assert!(!next_file(&dir).exists());
            test.fill(30).await;
            assert!(test.log.segment_count() > 2);
        });
    }
}

#[test]
fn few_logs_of_a_shard_have_one_at_a_time() {
    let options = LogOptions::default();
    let mut places = Vec::new();
    while let Some(place) = options.cache.place_for_next() {
        places.push(place);
    }
    assert_eq!(places.len(), NEXT_SEGMENTS_MAX);
    places.pop();
    assert!(options.cache.place_for_next().is_some());
}

#[test]
fn an_empty_log_has_no_index_files() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.log.close().await.expect("closed");
        assert!(!file(&dir, 0, "index").exists());
        for recovery in [Recovery::AfterCleanStop, FROM_ZERO] {
            let opened = TestLog::open(&dir, small_segments(), recovery).await;
            let (test, report) = opened.expect("opened");
            assert_eq!(report.indexes_rebuilt, 0);
            test.log.close().await.expect("closed");
            assert!(!file(&dir, 0, "index").exists());
        }
        let opened = TestLog::open(&dir, small_segments(), FROM_ZERO).await;
        let (test, _) = opened.expect("opened");
        test.fill(1).await;
        test.log.close().await.expect("closed");
        assert!(file(&dir, 0, "index").exists() && file(&dir, 0, "timeindex").exists());
    });
}

/// A start that removed it would leave nothing to repair, or to put back the bit in that has flipped.
#[test]
fn r7_a_segment_without_its_name_that_is_damaged_stays_where_the_log_was_written_further() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(25).await;
        let last = test.bases()[test.log.segment_count() - 1];
        let end = test.log.written_end();
        assert!(last < end.0);
        test.kill().await;
        let next = next_file(&dir);
        std::fs::rename(log_file(&dir, last), &next).expect("renamed");
        edit(&next, |bytes| bytes[70] ^= 1);
        let before = std::fs::read(&next).expect("a segment");
        let marked = Opening {
            unwritten: Unwritten::LastWrite,
            known_end: Some(end),
            ..Opening::from(FROM_ZERO)
        };
        let refused = TestLog::open(&dir, small_segments(), marked).await;
        let refused = refused.map(|_| ()).expect_err("its end is missing");
        assert!(refused.is_damage(), "{refused}");
        assert_eq!(std::fs::read(&next).expect("it is there"), before);
        // After a loss of power it may be what was being written.
        let opened = TestLog::open(&dir, small_segments(), FROM_ZERO).await;
        assert_eq!(opened.expect("opened").0.log.written_end(), Offset(last));
        assert!(!next.exists());
    });
}
