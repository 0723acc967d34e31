//! Appending and reading without accidents.

use std::io::Write;

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::{LeaderEpoch, Offset};

use super::{TestLog, bytes_of, log_file, numbered, on_both_engines, small_segments};
use crate::indexes::Indexes;
use crate::{AppendError, LogError, LogEvent, LogOptions, ReadError, Recovery};

#[test]
fn a_burst_is_written_in_order_and_read_back() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        let mut expected = Vec::new();
        for _ in 0..100 {
            expected.extend(test.append(2));
        }
        assert_eq!(test.log.assigned_end(), Offset(200));
        assert_eq!(test.log.written_end(), Offset(0));
        assert_eq!(test.log.pending_bytes(), expected.len());
        test.settle().await;
        assert_eq!(test.log.written_end(), Offset(200));
        assert_eq!(test.log.durable_end(), Offset(0));
        assert_eq!(test.log.pending_bytes(), 0);
        // The burst went out as one write.
        assert_eq!(
            *test.events.borrow(),
            [LogEvent::Written { end: Offset(200) }]
        );
        assert_eq!(test.read(0, 200, u32::MAX).await, expected);
        assert_eq!(std::fs::read(log_file(&dir, 0)).expect("a file"), expected);
        assert_eq!(test.log.flush().await.expect("flushed"), Offset(200));
        assert_eq!(test.log.durable_end(), Offset(200));
        assert_eq!(test.log.unflushed_bytes(), 0);
    });
}

#[test]
fn plans_are_whole_batches_within_bounds_from_tail_and_index_alike() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(40).await;
        let end = 120;
        for forget in [false, true] {
            if forget {
                test.log.inner.state.borrow_mut().tail.clear();
            }
            for from in 0..=end {
                for (up_to, bytes_max) in [
                    (end, 1),
                    (end, 250),
                    (end, 1_000_000),
                    (from + 4, 1_000),
                    (from, 1_000),
                ] {
                    let hot = test
                        .log
                        .try_read_plan(Offset(from), Offset(up_to), bytes_max);
                    let asked = test
                        .log
                        .read_plan(Offset(from), Offset(up_to), bytes_max)
                        .await;
                    let plan = asked.expect("a plan");
                    if let Some(hot) = hot {
                        assert_eq!((hot.position, hot.len), (plan.position, plan.len));
                    } else {
                        assert!(forget && from < up_to);
                    }
                    let first = from / 3 * 3;
                    if first + 3 > up_to.min(end) {
                        assert!(plan.is_empty(), "{from} {up_to}");
                        continue;
                    }
                    assert_eq!(plan.first_offset, Offset(first));
                    let read = bytes_of(&plan).await;
                    let mut expected = Vec::new();
                    let mut at = first;
                    while at < plan.next_offset.0 {
                        expected.extend(numbered(Offset(at), LeaderEpoch(0), 3).bytes);
                        at += 3;
                    }
                    assert_eq!(read, expected, "{from} {up_to} {bytes_max}");
                    assert!(at <= up_to && (read.len() <= bytes_max as usize || at == first + 3));
                }
            }
        }
        assert!(test.log.segment_count() > 3);
    });
}

#[test]
fn offsets_outside_of_the_log_are_refused() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.fill(2).await;
        for offset in [-1, 7, i64::MAX] {
            let asked = test.log.read_plan(Offset(offset), Offset(6), 100).await;
            assert!(
                matches!(asked, Err(ReadError::OutOfRange { .. })),
                "{offset}"
            );
            assert!(
                test.log
                    .try_read_plan(Offset(offset), Offset(6), 100)
                    .is_none()
            );
        }
        let at_end = test
            .log
            .read_plan(Offset(6), Offset(i64::MAX), 100)
            .await
            .expect("a plan");
        assert!(at_end.is_empty());
        assert_eq!(at_end.next_offset, Offset(6));
    });
}

#[test]
fn a_reopened_log_goes_on_where_it_was() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(25).await;
        let before = test.read_all().await;
        test.log.close().await.expect("closed");
        assert!(matches!(test.log.flush().await, Err(LogError::Closed)));
        let (test, report) = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop)
            .await
            .expect("opened");
        assert_eq!(report.segments_scanned, 0);
        assert_eq!(report.indexes_rebuilt, 0);
        assert_eq!(test.log.topic_id(), Some(super::TOPIC_ID));
        assert_eq!(test.log.written_end(), Offset(75));
        assert_eq!(test.log.durable_end(), Offset(75));
        assert_eq!(test.read_all().await, before);
        test.fill(25).await;
        assert_eq!(test.log.written_end(), Offset(150));
        let all = test.read_all().await;
        assert_eq!(all[..before.len()], before);
    });
}

#[test]
fn appends_to_a_closed_log_fail_and_queued_ones_are_written() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.append(3);
        test.log.close().await.expect("closed");
        test.append(3);
        for _ in 0..3 {
            thalweg_reactor::task::yield_now().await;
        }
        let end = Offset(3);
        assert_eq!(
            *test.events.borrow(),
            [
                LogEvent::Written { end },
                LogEvent::Durable { end },
                LogEvent::Failed {
                    from: end,
                    error: AppendError::Closed
                },
            ]
        );
    });
}

#[test]
fn append_durable_returns_when_it_is_on_the_disk() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        for i in 0..5 {
            let batch = numbered(Offset(i * 3), LeaderEpoch(0), 3);
            let end = test.log.append_durable(batch).await.expect("durable");
            assert_eq!(end, Offset(i * 3 + 3));
        }
        assert_eq!(test.log.durable_end(), Offset(15));
    });
}

#[test]
fn r_1_a_failed_write_takes_the_log_offline_and_everything_queued_back() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.fill(1).await;
        // A handle that can not write stands for a disk that does not.
        let read_only = fs::open(&log_file(&dir, 0), OpenMode::Read)
            .await
            .expect("opened");
        let active = std::rc::Rc::clone(test.log.inner.state.borrow().active());
        active.set_warm(read_only, Indexes::new(Offset(0), 4_096));
        test.append(3);
        test.append(3);
        test.settle().await;
        assert_eq!(test.log.assigned_end(), Offset(3));
        assert_eq!(test.log.pending_bytes(), 0);
        let failed = test.events.borrow().last().cloned().expect("an event");
        let LogEvent::Failed {
            from: Offset(3),
            error: error @ AppendError::Offline(_),
        } = failed
        else {
            panic!("{failed:?}")
        };
        assert!(error.is_final());
        let read = test.log.read_plan(Offset(0), Offset(3), 100).await;
        assert!(matches!(read, Err(ReadError::Offline { .. })));
        assert!(matches!(
            test.log.flush().await,
            Err(LogError::Offline { .. })
        ));
        assert!(matches!(
            test.log.close().await,
            Err(LogError::Offline { .. })
        ));
        // It can still be deleted.
        test.log.delete().await.expect("deleted");
    });
}

#[test]
fn r_1_a_failed_flush_takes_the_log_offline() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.fill(1).await;
        // A pipe can not be synced.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (&writer).write_all(b"x").expect("written");
        let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
        let file = fs::File::from_std(file, "pipe".into());
        let active = std::rc::Rc::clone(test.log.inner.state.borrow().active());
        active.set_warm(file, Indexes::new(Offset(0), 4_096));
        assert!(matches!(test.log.flush().await, Err(LogError::Io { .. })));
        assert_eq!(test.log.durable_end(), Offset(0));
        let failed = test.events.borrow().last().cloned();
        assert!(matches!(
            failed,
            Some(LogEvent::Failed {
                from: Offset(3),
                error: AppendError::Offline(_)
            })
        ));
        assert!(matches!(
            test.log.flush().await,
            Err(LogError::Offline { .. })
        ));
    });
}

#[test]
fn a_deleted_log_is_renamed_and_removed_while_plans_stay_readable() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        let written = test.append(3);
        test.settle().await;
        let plan = test
            .log
            .read_plan(Offset(0), Offset(3), 1_000)
            .await
            .expect("a plan");
        test.log.delete().await.expect("deleted");
        assert!(!fs::exists(&dir.join("t-0")).await.expect("told"));
        assert_eq!(bytes_of(&plan).await, written);
        let read = test.log.read_plan(Offset(0), Offset(3), 100).await;
        assert!(matches!(read, Err(ReadError::Closed)));
        // The same partition can be made again at once.
        TestLog::create(&dir, LogOptions::default()).await;
    });
}
