//! ST-14: a crash at every step of a swap leaves the old content or the new.

use std::path::{Path, PathBuf};

use thalweg_protocol::records::{BatchOptions, batches};
use thalweg_types::Offset;

use super::{append, compact, content, names, narrow, roomy, small, twenty_deletes};
use crate::whole_log_tests::{TestLog, copy_dir, edit, file, on_plain_engine};
use crate::{LogError, Recovery};

const FROM_ZERO: Recovery = Recovery::AfterCrash {
    recovery_point: Offset(0),
};

/// The directory `old` of a log of four segments, three of which become one in the copy `new`.
async fn old_and_new(dir: &Path) -> (PathBuf, PathBuf) {
    let (old, new) = (dir.join("old"), dir.join("new"));
    std::fs::create_dir(&old).expect("a directory");
    let test = TestLog::create(&old, small()).await;
    for _ in 0..3 {
        for key in ["a", "b", "a"] {
            append(&test, &[(key, true)], BatchOptions::default()).await;
        }
        test.log.roll_active().await;
    }
    append(&test, &[("z", true)], BatchOptions::default()).await;
    test.log.close().await.expect("closed");
    copy_dir(&old, &new);
    let opened = TestLog::open(&new, small(), Recovery::AfterCleanStop).await;
    let (test, _) = opened.expect("opened");
    compact(&test, &roomy(), 1).await;
    assert_eq!(test.log.segment_count(), 2);
    test.log.close().await.expect("closed");
    (old, new)
}

async fn bytes_in(dir: &Path) -> (Vec<u8>, Vec<String>) {
    let opened = TestLog::open(dir, small(), FROM_ZERO).await;
    let (test, report) = opened.expect("opened");
    assert_eq!(report.cut, None);
    let bytes = test.read_all().await;
    test.log.close().await.expect("closed");
    (bytes, names(dir))
}

/// Renames in the order in which a swap of `olds` for `news` does them, and how many there are up to the point of no
/// return.
fn steps(olds: &[i64], news: &[i64]) -> (Vec<(String, String)>, usize) {
    let name = |base: i64, suffix: &str| format!("{base:020}.{suffix}");
    let step = |base, suffix: &str, from: &str, to: &str| {
        let name = name(base, suffix);
        (format!("{name}{from}"), format!("{name}{to}"))
    };
    let mut steps = Vec::new();
    for suffix in ["index", "timeindex"] {
        let of_all = news.iter();
        steps.extend(of_all.map(|base| step(*base, suffix, ".cleaned", ".swap")));
    }
    let backwards = news.iter().rev();
    steps.extend(backwards.map(|base| step(*base, "log", ".cleaned", ".swap")));
    let committed = steps.len();
    for base in olds {
        for suffix in ["log", "index", "timeindex"] {
            steps.push(step(*base, suffix, "", ".deleted"));
        }
    }
    for base in news {
        for suffix in ["index", "timeindex", "log"] {
            steps.push(step(*base, suffix, ".swap", ""));
        }
    }
    (steps, committed)
}

/// Tries a crash after each of the steps from `old` to `new`.
async fn try_each_step(dir: &Path, old: &Path, new: &Path, olds: &[i64], news: &[i64]) {
    let (was, is) = (bytes_in(old).await, bytes_in(new).await);
    assert_ne!(was.0, is.0);
    let (steps, committed) = steps(olds, news);
    for done in 0..=steps.len() {
        let copy = dir.join("copy");
        copy_dir(old, &copy);
        for base in news {
            for suffix in ["log", "index", "timeindex"] {
                let to = file(&copy, *base, &format!("{suffix}.cleaned"));
                std::fs::copy(file(new, *base, suffix), to).expect("a copy");
            }
        }
        for (from, to) in &steps[..done] {
            let at = copy.join("t-0");
            std::fs::rename(at.join(from), at.join(to)).expect("renamed");
        }
        let found = bytes_in(&copy).await;
        let wanted = if done < committed { &was } else { &is };
        assert_eq!(found.0, wanted.0, "after {done} steps");
        assert_eq!(found.1, wanted.1, "after {done} steps");
    }
}

#[test]
fn st_14_a_crash_at_any_step_of_a_swap_leaves_the_old_content_or_the_new() {
    on_plain_engine(|dir| async move {
        let (old, new) = old_and_new(&dir).await;
        try_each_step(&dir, &old, &new, &[0, 3, 6], &[0]).await;
    });
}

/// The most that the segments of a split hold here.
const NARROW: u64 = 400;

/// The directory `old` of a log whose closed segment has grown, in the copy `new`, beyond what one may hold; and the
/// bases that took its place.
async fn old_and_split(dir: &Path) -> (PathBuf, PathBuf, Vec<i64>) {
    let (old, new) = (dir.join("old"), dir.join("new"));
    std::fs::create_dir(&old).expect("a directory");
    let test = TestLog::create(&old, small()).await;
    twenty_deletes(&test).await;
    assert!(test.log.segment_count() == 2 && test.log.size_bytes() < 2 * NARROW);
    test.log.close().await.expect("closed");
    copy_dir(&old, &new);
    let opened = TestLog::open(&new, small(), Recovery::AfterCleanStop).await;
    let (test, _) = opened.expect("opened");
    let (_, was) = content(&test).await;
    // From the delete horizon on, timestamps are counted from there.
    compact(&test, &narrow(NARROW), i64::MAX / 2).await;
    assert_eq!(content(&test).await.1, was);
    let bases = |test: &TestLog| {
        let state = test.log.inner.state.borrow();
        let closed = &state.segments[..state.segments.len() - 1];
        assert!(closed.iter().all(|segment| segment.size.get() <= NARROW));
        closed.iter().map(|segment| segment.base.0).collect()
    };
    let bases: Vec<i64> = bases(&test);
    test.log.close().await.expect("closed");
    (old, new, bases)
}

#[test]
fn st_29_st_14_what_has_grown_beyond_a_segment_becomes_several_at_once_or_not_at_all() {
    on_plain_engine(|dir| async move {
        let (old, new, news) = old_and_split(&dir).await;
        assert!(news.len() >= 2 && news[0] == 0, "{news:?}");
        try_each_step(&dir, &old, &new, &[0], &news).await;
    });
}

#[test]
fn st_14_a_split_of_which_a_part_is_damaged_replaces_nothing() {
    on_plain_engine(|dir| async move {
        let (old, new, news) = old_and_split(&dir).await;
        let was = bytes_in(&old).await;
        let copy = dir.join("copy");
        for damaged in &news {
            copy_dir(&old, &copy);
            for base in &news {
                let swap = file(&copy, *base, "log.swap");
                std::fs::copy(file(&new, *base, "log"), &swap).expect("a copy");
                if base == damaged {
                    edit(&swap, |bytes| bytes[70] ^= 1);
                }
            }
            assert_eq!(bytes_in(&copy).await, was, "{damaged}");
        }
    });
}

#[test]
fn st_14_a_crash_while_a_swap_is_finished_is_finished_again() {
    on_plain_engine(|dir| async move {
        let (old, new) = old_and_new(&dir).await;
        let is = bytes_in(&new).await;
        for gone in 0..=6 {
            let copy = dir.join("copy");
            copy_dir(&old, &copy);
            for suffix in ["log", "index", "timeindex"] {
                let to = file(&copy, 0, &format!("{suffix}.swap"));
                std::fs::copy(file(&new, 0, suffix), to).expect("a copy");
            }
            let olds = [3, 6].map(|base| ["log", "index", "timeindex"].map(|s| (base, s)));
            for (base, suffix) in olds.as_flattened().iter().take(gone) {
                std::fs::remove_file(file(&copy, *base, suffix)).expect("removed");
            }
            if gone == 6 {
                let to = file(&copy, 0, "index");
                std::fs::rename(file(&copy, 0, "index.swap"), to).expect("renamed");
            }
            assert_eq!(bytes_in(&copy).await, is, "{gone} gone");
        }
    });
}

#[test]
fn st_14_a_swap_that_is_not_whole_replaces_nothing() {
    on_plain_engine(|dir| async move {
        let (old, new) = old_and_new(&dir).await;
        let was = bytes_in(&old).await;
        let whole = std::fs::read(file(&new, 0, "log")).expect("a segment");
        let first = batches(&whole).next().expect("a batch").expect("whole");
        let mut flipped = whole.clone();
        flipped[70] ^= 1;
        let bad = [&[][..], &whole[..first.bytes.len()], &whole[..70], &flipped];
        for bytes in bad {
            std::fs::write(file(&old, 0, "log.swap"), bytes).expect("written");
            assert_eq!(bytes_in(&old).await, was, "{} bytes", bytes.len());
        }
    });
}

#[test]
fn st_14_a_damaged_swap_whose_old_segment_is_gone_is_refused_and_nothing_is_changed() {
    on_plain_engine(|dir| async move {
        let (old, new) = old_and_new(&dir).await;
        let swap = file(&old, 0, "log.swap");
        std::fs::copy(file(&new, 0, "log"), &swap).expect("a copy");
        edit(&swap, |bytes| bytes[70] ^= 1);
        std::fs::remove_file(file(&old, 0, "log")).expect("removed");
        let before = names(&old);
        let refused = TestLog::open(&old, small(), FROM_ZERO).await;
        assert!(matches!(
            refused.map(|_| ()),
            Err(LogError::UnfinishedCompaction { .. })
        ));
        assert_eq!(names(&old), before);
    });
}

#[test]
fn st_14_parts_of_a_split_that_was_not_finished_are_removed() {
    on_plain_engine(|dir| async move {
        let (old, _) = old_and_new(&dir).await;
        let was = bytes_in(&old).await;
        for name in ["log.swap", "index.swap"] {
            std::fs::write(file(&old, 4, name), b"").expect("written");
        }
        std::fs::write(file(&old, 3, "log.cleaned"), b"x").expect("written");
        assert_eq!(bytes_in(&old).await, was);
    });
}
