//! Logs that move to another log directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{fs, oneshot, task};
use thalweg_types::{Offset, Uuid};

use super::{TOPIC_ID, TestLog, bytes_of, name, on_plain_engine};
use crate::{
    DirHealth, Found, FutureLog, Log, LogError, LogOptions, MoveError, MoveRoom, Opening, Recovery,
    Rightful, Room, StartKept, Unclosed, rightful,
};

/// Two log directories, and a log of a few segments in the first.
async fn two(root: &Path) -> (TestLog, Arc<DirHealth>) {
    let (from, to) = (root.join("a"), root.join("b"));
    for dir in [&from, &to] {
        fs::create_dir(dir).await.expect("made");
    }
    let options = LogOptions {
        segment_bytes: 1_000,
        health: DirHealth::new(&from),
        ..LogOptions::default()
    };
    let log = TestLog::create(&from, options).await;
    fill(&log).await;
    (log, DirHealth::new(&to))
}

async fn fill(log: &TestLog) {
    for _ in 0..10 {
        log.append(20);
        log.settle().await;
    }
    assert!(log.log.segment_count() > 2);
    log.log.flush().await.expect("flushed");
}

async fn future_of(to: &Arc<DirHealth>) -> FutureLog {
    let made = FutureLog::create(to, name(), TOPIC_ID, Uuid([9; 16])).await;
    made.expect("made")
}

async fn copy_all(future: &mut FutureLog, log: &Log) -> u64 {
    let mut copied = 0;
    loop {
        match future.step(log).await.expect("copied") {
            0 => return copied,
            bytes => copied += bytes,
        }
    }
}

async fn open_moved(log: &TestLog, to: &Arc<DirHealth>) -> Log {
    let opened = log.log.open_moved(to, std::rc::Rc::new(|_| ())).await;
    opened.expect("opened").0
}

async fn all_of(log: &Log) -> Vec<u8> {
    let (mut at, mut bytes) = (log.start_offset(), Vec::new());
    while at < log.written_end() {
        let plan = log.read_plan(at, log.written_end(), u32::MAX).await;
        let plan = plan.expect("a plan");
        bytes.extend(bytes_of(&plan).await);
        at = plan.next_offset;
    }
    bytes
}

#[test]
fn kip_113_a_copy_follows_its_log_and_takes_its_place() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        let closed = log.log.segment_count() - 1;
        assert_eq!(future.unclosed(&log.log).segments, closed);
        assert_eq!(copy_all(&mut future, &log.log).await, log.log.size_bytes());
        assert_eq!(future.reached(), log.log.written_end());
        assert_eq!(future.unclosed(&log.log), Unclosed::default());
        let before = log.append(3);
        log.settle().await;
        assert!(!before.is_empty() && future.reached() < log.log.written_end());
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        let moved = open_moved(&log, &to).await;
        assert_eq!(all_of(&moved).await, all_of(&log.log).await);
        assert_eq!(moved.durable_end(), log.log.written_end());
        assert_eq!(moved.topic_id(), Some(TOPIC_ID));
        let left = log.log.dir().to_owned();
        future.arrive(&log.log).await.expect("arrived");
        assert!(!fs::exists(&left).await.expect("looked"));
        moved.close().await.expect("closed");
        // What is there is whole after a crash, too.
        let opening = Opening::from(Recovery::AfterCrash {
            recovery_point: Offset::ZERO,
        });
        let opened = TestLog::open(to.path(), LogOptions::default(), opening).await;
        let (again, report) = opened.expect("opened");
        assert_eq!(again.log.written_end(), moved.written_end());
        assert!(report.cut.is_none());
    });
}

#[test]
fn kip_113_what_retention_removes_is_removed_from_the_copy() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        copy_all(&mut future, &log.log).await;
        let start = Offset(60);
        log.log.raise_start(start);
        let removed = log
            .log
            .remove_segments(start, StartKept::Durable, Duration::ZERO)
            .await;
        assert!(removed.expect("removed").segments > 0);
        assert_eq!(copy_all(&mut future, &log.log).await, 0);
        assert_eq!(future.size_bytes(), log.log.size_bytes());
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        let moved = open_moved(&log, &to).await;
        assert_eq!(moved.start_offset(), start);
        assert_eq!(all_of(&moved).await, all_of(&log.log).await);
    });
}

#[test]
fn kip_113_a_copy_is_gone_on_with_where_it_is_the_same() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        copy_all(&mut future, &log.log).await;
        let folder = future.dir().file_name().expect("a name").to_owned();
        let folder = folder.to_str().expect("ASCII");
        drop(future);
        for (found, all) in [(Found::Believed, false), (Found::Ignored, true)] {
            let resumed = FutureLog::resume(&to, name(), folder, found).await;
            let mut future = resumed.expect("resumed");
            let copied = copy_all(&mut future, &log.log).await;
            assert_eq!(copied == log.log.size_bytes(), all, "{found:?}");
            assert_eq!(future.size_bytes(), log.log.size_bytes());
            future.complete(&log.log).await.expect("complete");
        }
        // A closed segment that is another one.
        let path = to.path().join(folder).join(format!("{:020}.log", 0));
        let file = fs::open(&path, fs::OpenMode::ReadWrite)
            .await
            .expect("open");
        fs::set_modified(&file, 1_000).await.expect("set");
        let resumed = FutureLog::resume(&to, name(), folder, Found::Believed).await;
        let mut future = resumed.expect("resumed");
        assert!(copy_all(&mut future, &log.log).await > 300);
    });
}

#[test]
fn kip_113_a_move_that_is_taken_back_leaves_the_log_as_it_was() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        let (here, there) = (log.log.dir(), to.path().join("t-0"));
        let found = rightful(here, &there).await.expect("looked");
        assert_eq!(found, Some(Rightful::Second));
        let broken = MoveError::Log(LogError::Closed);
        assert!(future.take_back(&log.log, &broken).await.is_none());
        assert!(!fs::exists(&there).await.expect("looked"));
        assert!(std::fs::read_dir(to.path()).expect("read").next().is_none());
        log.append(1);
        log.settle().await;
        assert!(!log.log.is_offline());
        log.log.close().await.expect("closed");
    });
}

/// What comes in between at the last step costs the copy of one segment, and what differs all of it.
#[test]
fn kip_113_a_move_that_is_taken_back_goes_on_with_its_copy() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        let differs = MoveError::Differs {
            dir: to.path().to_owned(),
            copy: Offset(0),
            copy_bytes: 0,
            log: Offset(1),
            log_bytes: 1,
        };
        for (error, all) in [(MoveError::Changed, false), (differs, true)] {
            future.complete(&log.log).await.expect("complete");
            future.take_place(&log.log).await.expect("in place");
            assert!(fs::exists(&to.path().join("t-0")).await.expect("looked"));
            future = future.take_back(&log.log, &error).await.expect("kept");
            assert!(!fs::exists(&to.path().join("t-0")).await.expect("looked"));
            let copied = copy_all(&mut future, &log.log).await;
            assert_eq!(copied == log.log.size_bytes(), all, "{error}");
        }
        log.append(1);
        log.settle().await;
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        let moved = open_moved(&log, &to).await;
        assert_eq!(all_of(&moved).await, all_of(&log.log).await);
    });
}

/// DeleteRecords moves the start at once; the files go at some later look.
#[test]
fn kip_113_what_lies_below_the_start_is_neither_copied_nor_missed() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let (all, mut future) = (log.log.size_bytes(), future_of(&to).await);
        log.log.raise_start(Offset(60));
        let copied = copy_all(&mut future, &log.log).await;
        assert!(copied < all && log.log.size_bytes() == all);
        assert_eq!(
            (future.missing_bytes(&log.log), future.room_needed(&log.log)),
            (0, 0)
        );
        // And once more when half of that is copied already.
        log.log.raise_start(Offset(120));
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        let moved = open_moved(&log, &to).await;
        assert_eq!(moved.start_offset(), Offset(120));
        assert_eq!(all_of(&moved).await, all_of(&log.log).await);
    });
}

/// From the last look on until the copy is served, nothing is removed from the log or replaced in it.
#[test]
fn kip_113_a_log_stands_still_while_its_copy_takes_its_place() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        let standing = future.complete(&log.log).await.expect("complete");
        let (start, before) = (Offset(60), log.log.segment_count());
        log.log.raise_start(start);
        let removing = log.log.clone();
        let (done, removed) = oneshot::channel();
        task::spawn(async move {
            let removed = removing.remove_segments(start, StartKept::Durable, Duration::ZERO);
            let _ = done.send(removed.await.expect("removed"));
        });
        future.take_place(&log.log).await.expect("in place");
        let moved = open_moved(&log, &to).await;
        assert_eq!(log.log.segment_count(), before);
        assert_eq!(moved.start_offset(), start);
        assert_eq!(all_of(&moved).await, all_of(&log.log).await);
        drop(standing);
        assert!(removed.await.expect("it goes on").segments > 0);
        assert!(log.log.segment_count() < before);
    });
}

#[test]
fn kip_113_a_copy_is_given_back_and_begins_anew() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        let all = log.log.size_bytes();
        assert!(future.room_needed(&log.log) > all);
        copy_all(&mut future, &log.log).await;
        assert_eq!(future.give_back().await.expect("given back"), all);
        let logs = || {
            let listed = std::fs::read_dir(future.dir()).expect("listed");
            let names = listed.map(|entry| entry.expect("an entry").file_name());
            names
                .filter(|name| name.to_string_lossy().ends_with(".log"))
                .count()
        };
        assert_eq!((logs(), future.size_bytes()), (0, 0));
        assert_eq!(copy_all(&mut future, &log.log).await, all);
        // What a start finds takes no room again, believed or not.
        let folder = future.dir().file_name().expect("a name").to_owned();
        let folder = folder.to_str().expect("ASCII");
        drop(future);
        for found in [Found::Believed, Found::Ignored] {
            let resumed = FutureLog::resume(&to, name(), folder, found).await;
            let mut future = resumed.expect("resumed");
            assert_eq!(future.room_needed(&log.log), 0);
            copy_all(&mut future, &log.log).await;
            assert_eq!(future.room_needed(&log.log), 0);
        }
    });
}

/// ST-20: moves take no more of their target than lies above its headroom, together.
#[test]
fn st_20_a_move_takes_no_headroom() {
    on_plain_engine(|root| async move {
        let health = DirHealth::new(&root);
        let room = |usable| Room {
            total: 1 << 40,
            usable,
            headroom: 400,
        };
        let (mut one, mut other) = (MoveRoom::none(&health), MoveRoom::none(&health));
        assert!(!one.has(1), "nobody has looked");
        health.on_room(room(1_000)).await;
        assert!(!one.has(601) && one.has(600) && !other.has(1) && other.has(0));
        one.spend(500);
        assert!(one.has(100) && !other.has(1));
        // Somebody else has written 50.
        health.on_room(room(450)).await;
        assert!(!one.has(100) && other.has(50));
        drop(other);
        assert!(one.has(50));
        health.on_room(room(399)).await;
        assert!(!one.has(0) && health.is_full());
    });
}

#[test]
fn kip_113_a_copy_that_differs_is_not_served() {
    on_plain_engine(|root| async move {
        let (log, to) = two(&root).await;
        let mut future = future_of(&to).await;
        future.complete(&log.log).await.expect("complete");
        future.take_place(&log.log).await.expect("in place");
        log.append(1);
        log.settle().await;
        let opened = log.log.open_moved(&to, std::rc::Rc::new(|_| ())).await;
        assert!(matches!(opened, Err(MoveError::Differs { .. })));
    });
}

#[test]
fn kip_113_two_folders_are_told_apart_by_their_marks() {
    on_plain_engine(|root| async move {
        let (first, second) = (root.join("a"), root.join("b"));
        for (in_first, in_second, found) in [
            (&[][..], &[][..], None),
            (
                &["thalweg-leaving"],
                &["thalweg-arriving"],
                Some(Rightful::Second),
            ),
            (
                &["thalweg-arriving"],
                &["thalweg-leaving"],
                Some(Rightful::First),
            ),
            // Of a move before that one.
            (
                &["thalweg-leaving", "thalweg-arriving"],
                &["thalweg-arriving"],
                Some(Rightful::Second),
            ),
            // Taken back.
            (&[], &["thalweg-arriving"], Some(Rightful::First)),
            (&["thalweg-arriving"], &[], Some(Rightful::Second)),
            (&["thalweg-leaving"], &["thalweg-leaving"], None),
            (&["thalweg-leaving"], &[], None),
            (&["thalweg-arriving"], &["thalweg-arriving"], None),
        ] {
            for (dir, marks) in [(&first, in_first), (&second, in_second)] {
                let _ = std::fs::remove_dir_all(dir);
                std::fs::create_dir(dir).expect("made");
                for mark in marks {
                    std::fs::write(dir.join(mark), "").expect("written");
                }
            }
            let told = rightful(&first, &second).await.expect("looked");
            assert_eq!(told, found, "{in_first:?} {in_second:?}");
        }
    });
}
