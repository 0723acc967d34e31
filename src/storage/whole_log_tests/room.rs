//! A full disk (R9, ST-20), on a small tmpfs, which needs the right to mount: where that is missing the
//! test says so and checks nothing. And one that has no room for a removal either, simulated.

use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::Runtime;
use thalweg_reactor::disk::{Disk, Operation, Verdict};
use thalweg_types::{Offset, TimestampMs};

use super::{TestLog, file, log_file, on_both_engines, small_segments};
use crate::name::deleted_path;
use crate::{AppendError, LogError, LogEvent, LogOptions, Recovery, RetentionLimits, StartKept};

struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<SmallDisk> {
        std::fs::create_dir(at).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn st_20_a_full_disk_refuses_appends_and_serves_on_once_there_is_room() {
    on_both_engines(|dir| async move {
        let Some(disk) = SmallDisk::mount(&dir.join("disk")) else {
            eprintln!("skipped: mounting a tmpfs is not allowed here");
            return;
        };
        let dir = disk.0.clone();
        let options = LogOptions {
            segment_bytes: 16_000,
            ..LogOptions::default()
        };
        let test = TestLog::create(&dir, options.clone()).await;
        let ballast = dir.join("ballast");
        std::fs::write(&ballast, vec![1; 20_000]).expect("written");
        let mut refused = 0;
        while refused == 0 {
            test.append(20);
            test.settle().await;
            for event in test.events.borrow_mut().drain(..) {
                match event {
                    LogEvent::Written { .. }
                    | LogEvent::Durable { .. }
                    | LogEvent::Rolled { .. } => {}
                    LogEvent::Failed { from, error } => {
                        assert!(matches!(error, AppendError::NoRoom(_)), "{error}");
                        assert!(!error.is_final());
                        assert_eq!(from, test.log.written_end());
                        refused += 1;
                    }
                }
            }
        }
        assert_eq!(test.log.assigned_end(), test.log.written_end());
        let end = test.log.written_end();
        assert!(end > Offset(0));
        // What is there is still read, and the file ends with its last whole batch.
        let all = test.read_all().await;
        let sizes: u64 = test
            .log
            .inner
            .state
            .borrow()
            .segments
            .iter()
            .map(|s| s.size.get())
            .sum();
        assert_eq!(sizes, all.len() as u64);
        let active = test.log.inner.state.borrow().active().base.0;
        let length = std::fs::metadata(log_file(&dir, active))
            .expect("a file")
            .len();
        assert_eq!(length, test.log.inner.state.borrow().active().size.get());
        // With room again it goes on, without a hole and without a restart.
        std::fs::remove_file(&ballast).expect("removed");
        test.append(20);
        test.settle().await;
        assert_eq!(test.log.written_end(), end.plus(20));
        let all = test.read_all().await;
        test.kill().await;
        let recovery = Recovery::AfterCrash {
            recovery_point: Offset(0),
        };
        let (test, report) = TestLog::open(&dir, options, recovery)
            .await
            .expect("opened");
        assert_eq!(report.cut, None);
        assert_eq!(test.read_all().await, all);
    });
}

#[test]
fn st_20_retention_makes_room_on_a_full_disk() {
    on_both_engines(|dir| async move {
        let Some(disk) = SmallDisk::mount(&dir.join("disk")) else {
            eprintln!("skipped: mounting a tmpfs is not allowed here");
            return;
        };
        let dir = disk.0.clone();
        let options = LogOptions {
            segment_bytes: 8_000,
            ..LogOptions::default()
        };
        let test = TestLog::create(&dir, options).await;
        let refused = || {
            let events = test.events.borrow();
            let failed = |event: &LogEvent| matches!(event, LogEvent::Failed { .. });
            events.iter().filter(|event| failed(event)).count()
        };
        while refused() == 0 {
            test.append(20);
            test.settle().await;
        }
        let all = test.read_all().await;
        let limits = RetentionLimits {
            bytes: Some(10_000),
            ..RetentionLimits::default()
        };
        let end = test.log.written_end();
        let due = test.log.due(limits, end, TimestampMs(0)).await;
        let start = due.expect("a look").expect("due").start;
        test.log.raise_start(start);
        let kept = StartKept::ByFirstSegment;
        let removed = test.log.remove_segments(start, kept, Duration::ZERO).await;
        let removed = removed.expect("removed");
        assert!(removed.segments >= 2, "{removed:?}");
        let left = test.read_all().await;
        assert_eq!(left, all[removed.bytes as usize..]);
        // The files go in the background.
        let gone = |name: std::ffi::OsString| !name.to_string_lossy().ends_with(".deleted");
        let names = || std::fs::read_dir(dir.join("t-0")).expect("a listing");
        while !names().all(|entry| gone(entry.expect("an entry").file_name())) {
            thalweg_reactor::task::yield_now().await;
        }
        let appended = test.append(20);
        test.settle().await;
        assert_eq!(refused(), 1);
        assert_eq!(test.read_all().await, [&left[..], &appended[..]].concat());
        // Without a checkpoint, the log begins where its first segment does.
        test.log.close().await.expect("closed");
        let opened = TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop).await;
        assert_eq!(opened.expect("opened").0.log.start_offset(), start);
    });
}

/// A copy-on-write disk that has no room even for a removal, or for another name, of files whose names end like one of
/// these.
#[derive(Default)]
pub(crate) struct Stuck(pub(crate) Cell<&'static [&'static str]>);

impl Disk for Stuck {
    fn before(&self, operation: &Operation<'_>) -> Verdict {
        const ENOSPC: i32 = 28;
        let (Operation::Rename(path, _) | Operation::Unlink(path)) = operation else {
            return Verdict::Goes;
        };
        let name = path.to_string_lossy();
        let is_stuck = self.0.get().iter().any(|end| name.ends_with(end));
        match is_stuck && path.exists() {
            true => Verdict::Fails(ENOSPC),
            false => Verdict::Goes,
        }
    }

    fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

    fn delay(&self) -> u32 {
        0
    }

    fn lifetime(&self) -> String {
        "test".to_owned()
    }
}

/// Runs a test in a directory on a disk that is not stuck yet.
pub(crate) fn on_stuck_disk<F: Future<Output = ()>>(test: impl FnOnce(Rc<Stuck>, PathBuf) -> F) {
    let root = tempfile::tempdir().expect("a directory");
    let disk = Rc::new(Stuck::default());
    let runtime = Runtime::simulated(Rc::clone(&disk) as Rc<dyn Disk>).expect("a runtime");
    runtime.block_on(test(disk, root.path().to_owned()));
}

/// The same with a log of several segments.
fn on_stuck_log<F: Future<Output = ()>>(test: impl FnOnce(Rc<Stuck>, PathBuf, TestLog) -> F) {
    on_stuck_disk(|disk, root| async move {
        let log = TestLog::create(&root, small_segments()).await;
        log.fill(30).await;
        test(disk, root, log).await;
    });
}

#[test]
fn st_20_segments_that_can_not_be_removed_for_lack_of_room_stay_until_they_can() {
    on_stuck_log(|disk, _, test| async move {
        let limits = RetentionLimits {
            bytes: Some(test.log.size_bytes() / 2),
            ..RetentionLimits::default()
        };
        let end = test.log.written_end();
        let due = test.log.due(limits, end, TimestampMs(0)).await;
        let start = due.expect("a look").expect("due").start;
        test.log.raise_start(start);
        let bases = test.bases();
        let left = test.read_all().await;
        for stuck in [true, false] {
            disk.0.set(if stuck { &[""] } else { &[] });
            for kept in [StartKept::ByFirstSegment, StartKept::Durable] {
                let removed = test.log.remove_segments(start, kept, Duration::ZERO).await;
                let removed = removed.expect("it is not offline").segments;
                let goes = !stuck && kept == StartKept::ByFirstSegment;
                assert_eq!(removed > 0, goes, "{kept:?}");
            }
            assert_eq!(test.bases() == bases, stuck);
            // What is not on the disk of those that stay is flushed as before.
            test.log.flush().await.expect("flushed");
            assert_eq!(test.read_all().await, left);
        }
        assert_eq!(test.bases()[0], start.0);
    });
}

/// A `.log.deleted` that was gone before the indexes of its segment would leave nothing to tell that it is not lost.
#[test]
fn st_20_a_start_that_can_not_remove_an_index_can_be_tried_again() {
    on_stuck_log(|disk, root, test| async move {
        let (second, end) = (Offset(test.bases()[1]), test.log.written_end());
        test.log.flush().await.expect("flushed");
        test.kill().await;
        // As a crash of a broker leaves it that takes the `.log` away first.
        let log = log_file(&root, 0);
        let aside = deleted_path(&log);
        std::fs::rename(&log, &aside).expect("renamed");
        let recovery = Recovery::AfterCrash {
            recovery_point: end,
        };
        for suffix in ["index", "timeindex"] {
            assert!(file(&root, 0, suffix).exists(), "{suffix}");
        }
        for ends in [&[".index"], &[".timeindex"]] {
            disk.0.set(ends);
            let [stuck] = ends;
            let opened = TestLog::open(&root, small_segments(), recovery).await;
            match opened {
                Err(LogError::Io { path, .. }) => assert!(path.to_string_lossy().ends_with(stuck)),
                Err(error) => panic!("{stuck}: {error}"),
                Ok(_) => panic!("{stuck}: can not be removed"),
            }
            assert!(aside.exists(), "{stuck}");
        }
        disk.0.set(&[]);
        let opened = TestLog::open(&root, small_segments(), recovery).await;
        assert_eq!(opened.expect("opened").0.log.start_offset(), second);
        assert!(!aside.exists());
    });
}

/// Retention would count it as gone otherwise, and it would keep its room until the next start.
#[test]
fn st_20_a_segment_of_which_a_file_can_not_be_removed_is_removed_at_a_later_look() {
    for ends in [&[".index"], &[".timeindex"], &[".log"]] {
        let [stuck] = ends;
        on_stuck_log(|disk, root, test| async move {
            test.log.flush().await.expect("flushed");
            let (bases, start) = (test.bases(), Offset(test.bases()[2]));
            test.log.raise_start(start);
            let remove = async || {
                let kept = StartKept::ByFirstSegment;
                let removed = test.log.remove_segments(start, kept, Duration::ZERO).await;
                removed.expect("it is not offline").segments
            };
            disk.0.set(ends);
            assert_eq!(remove().await, 0, "{stuck}");
            assert_eq!(test.bases(), bases, "{stuck}");
            assert!(log_file(&root, 0).exists(), "{stuck}");
            // What went of it is unlinked without waiting for that.
            assert!(is_gone_soon(&root, ".deleted").await, "{stuck}");
            disk.0.set(&[]);
            assert_eq!(remove().await, 2, "{stuck}");
            assert!(is_gone_soon(&root, ".deleted").await, "{stuck}");
            for suffix in ["log", "index", "timeindex"] {
                assert!(!file(&root, 0, suffix).exists(), "{stuck}: {suffix}");
            }
        });
    }
}

/// Whether all files whose names end like this go in the background.
async fn is_gone_soon(root: &Path, end: &str) -> bool {
    for _ in 0..1_000 {
        let names = std::fs::read_dir(root.join("t-0")).expect("a listing");
        let mut names = names.map(|entry| entry.expect("an entry").file_name());
        if !names.any(|name| name.to_string_lossy().ends_with(end)) {
            return true;
        }
        thalweg_reactor::task::yield_now().await;
    }
    false
}

/// A disk that promised more room than it has, and finds out when it is asked to flush a file, or a directory.
#[derive(Default)]
struct Overcommitted {
    at_files: Cell<bool>,
    at_directories: Cell<bool>,
}

impl Disk for Overcommitted {
    fn before(&self, operation: &Operation<'_>) -> Verdict {
        let finds_out = match operation {
            Operation::Sync(_) => self.at_files.get(),
            Operation::SyncDir(_) => self.at_directories.get(),
            _other => false,
        };
        match finds_out {
            true => Verdict::Fails(28),
            false => Verdict::Goes,
        }
    }

    fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

    fn delay(&self) -> u32 {
        0
    }

    fn lifetime(&self) -> String {
        "test".to_owned()
    }
}

/// Who flushes the same directory next is told that all is well (rig B).
#[test]
fn r_1_no_room_at_the_flush_of_a_small_file_is_no_lack_that_passes() {
    for at_files in [true, false] {
        let root = tempfile::tempdir().expect("a directory");
        let disk = Rc::new(Overcommitted::default());
        let runtime = Runtime::simulated(Rc::clone(&disk) as Rc<dyn Disk>).expect("a runtime");
        runtime.block_on(async {
            let test = TestLog::create(root.path(), small_segments()).await;
            test.fill(1).await;
            disk.at_files.set(at_files);
            disk.at_directories.set(!at_files);
            let stored = test.log.store_snapshot(Offset(3), vec![1]).await;
            let stored = stored.expect_err("it is lost");
            assert!(!stored.may_pass() && test.log.is_offline(), "{stored}");
        });
    }
}
