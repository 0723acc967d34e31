//! `flush.messages`: what becomes durable when, and who is told.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::time;
use thalweg_types::Offset;

use super::{Dice, TestLog, on_both_engines, on_plain_engine, small_segments};
use crate::{LogEvent, LogOptions, Opening, Recovery};

fn durable(options: LogOptions) -> LogOptions {
    LogOptions {
        flush_messages: 1,
        ..options
    }
}

impl TestLog {
    async fn settle_on_disk(&self) {
        self.settle().await;
        while self.log.durable_end() < self.log.written_end() {
            thalweg_reactor::task::yield_now().await;
        }
    }

    fn ack_flushes(&self) -> u64 {
        let state = self.log.inner.state.borrow();
        state.options.metrics.borrow().counters.ack_flushes
    }
}

/// The durable end follows the written one, never passes it, and ends where it ends.
fn check_events(events: &[LogEvent]) -> Offset {
    let (mut written, mut durable) = (Offset(0), Offset(0));
    for event in events {
        match event {
            LogEvent::Written { end } => written = *end,
            LogEvent::Durable { end } => {
                assert!(*end > durable && *end <= written, "{event:?} at {written}");
                durable = *end;
            }
            LogEvent::Rolled { .. } => {}
            LogEvent::Failed { .. } => panic!("{event:?}"),
        }
    }
    assert_eq!(written, durable);
    durable
}

#[test]
fn r2_each_write_is_followed_by_a_flush_and_newcomers_ride_the_next() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, durable(LogOptions::default())).await;
        for _ in 0..50 {
            test.append(2);
            thalweg_reactor::task::yield_now().await;
        }
        test.settle_on_disk().await;
        assert_eq!(check_events(&test.events.borrow()), Offset(100));
        let rounds = test.ack_flushes();
        assert!((1..=50).contains(&rounds), "{rounds}");
        // Nothing to do, nothing done.
        test.log.set_options(durable(LogOptions::default()));
        assert!(!test.log.inner.state.borrow().syncing);
    });
}

#[test]
fn random_appends_and_rolls_are_all_durable_at_last() {
    on_both_engines(|dir| async move {
        for seed in 0..4 {
            let dir = dir.join(format!("seed-{seed}"));
            std::fs::create_dir(&dir).expect("a directory");
            run(&dir, seed).await;
        }
    });
}

async fn run(dir: &Path, seed: u64) {
    let mut dice = Dice::new(seed);
    let options = small_segments();
    let test = TestLog::create(dir, durable(options.clone())).await;
    let mut waits = true;
    for _ in 0..200 {
        match dice.below(20) {
            0..14 => drop(test.append(1 + dice.below(4) as i64)),
            14..16 => test.settle().await,
            16 => test.settle_if(waits).await,
            17 => {
                waits = !waits;
                let options = match waits {
                    true => durable(options.clone()),
                    false => options.clone(),
                };
                test.log.set_options(options);
            }
            18 => drop(test.log.flush().await.expect("flushed")),
            19.. => thalweg_reactor::task::yield_now().await,
        }
    }
    test.log.set_options(durable(options));
    test.settle_on_disk().await;
    let end = check_events(&test.events.borrow());
    assert_eq!(end, test.log.assigned_end(), "seed {seed}");
    assert!(test.log.recovery_point() <= end);
    test.log.flush().await.expect("flushed");
    assert_eq!(test.log.recovery_point(), end);
    assert_eq!(test.log.unflushed_bytes(), 0);
}

impl TestLog {
    async fn settle_if(&self, waits: bool) {
        if waits {
            self.settle_on_disk().await;
        }
    }
}

/// What a checkpoint is to say soon: that closed segments are on the disk, where that is promised.
#[test]
fn a_closed_segment_is_news_when_acknowledgements_wait_for_it() {
    on_both_engines(|dir| async move {
        for (nth, options) in [durable(small_segments()), small_segments()]
            .into_iter()
            .enumerate()
        {
            let dir = dir.join(nth.to_string());
            std::fs::create_dir(&dir).expect("a directory");
            let waits = options.acks_wait();
            let test = TestLog::create(&dir, options).await;
            test.fill(1).await;
            test.log.flush().await.expect("flushed");
            assert!(!test.log.has_durable_segment_above(Offset(0)));
            test.fill(30).await;
            test.log.flush().await.expect("flushed");
            assert_eq!(test.log.has_durable_segment_above(Offset(0)), waits);
            let told = test.log.recovery_point();
            assert_eq!(told, test.log.written_end());
            assert!(!test.log.has_durable_segment_above(told));
        }
    });
}

#[test]
fn other_values_flush_after_so_many_records() {
    on_plain_engine(|dir| async move {
        let options = LogOptions {
            flush_messages: 10,
            ..LogOptions::default()
        };
        let test = TestLog::create(&dir, options).await;
        test.fill(3).await;
        assert_eq!(test.log.durable_end(), Offset(0));
        assert!(!test.log.inner.state.borrow().syncing);
        test.fill(1).await;
        test.settle_on_disk().await;
        assert_eq!(test.log.durable_end(), Offset(12));
        assert_eq!(test.ack_flushes(), 0, "nobody waited");
    });
}

/// R4: what a durable acknowledgement needs of names is synced before it: the new directory of the
/// partition with the first, the file of a new segment with the first in it.
#[test]
fn r4_names_are_on_the_disk_before_the_first_durable_end_in_them() {
    on_plain_engine(|dir| async move {
        let seen: Rc<RefCell<Vec<crate::log::Names>>> = Rc::default();
        let slot: Rc<RefCell<Option<crate::Log>>> = Rc::default();
        let sink: crate::LogSink = {
            let (seen, slot) = (Rc::clone(&seen), Rc::clone(&slot));
            Rc::new(move |event| {
                if let (LogEvent::Durable { .. }, Some(log)) = (event, &*slot.borrow()) {
                    seen.borrow_mut().push(log.inner.state.borrow().names);
                }
            })
        };
        let options = durable(small_segments());
        let log = crate::Log::create(&dir, super::name(), super::TOPIC_ID, options, sink)
            .await
            .expect("created");
        *slot.borrow_mut() = Some(log.clone());
        let (_, events) = super::collector();
        let test = TestLog { log, events };
        for _ in 0..40 {
            test.append(3);
            test.settle_on_disk().await;
        }
        assert!(test.log.segment_count() > 2);
        let seen = seen.borrow();
        assert!(seen.len() >= 40);
        assert!(seen.iter().all(|names| *names == crate::log::Names::Synced));
    });
}

/// What a kill leaves of a durable log is all that was told to be durable.
#[test]
fn st_16_after_a_crash_nothing_below_the_durable_end_is_missing() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, durable(small_segments())).await;
        for _ in 0..30 {
            test.append(3);
        }
        test.settle_on_disk().await;
        let end = test.log.durable_end();
        let all = test.read_all().await;
        let recovery_point = test.log.recovery_point();
        test.kill().await;
        let recovery = Recovery::AfterCrash { recovery_point };
        let (test, report) = TestLog::open(&dir, durable(small_segments()), recovery)
            .await
            .expect("recovered");
        assert_eq!(report.cut, None);
        assert_eq!((test.log.written_end(), end), (Offset(90), Offset(90)));
        assert_eq!(test.read_all().await, all);
    });
}

#[test]
fn what_is_written_and_old_is_due_for_a_flush() {
    const HOUR_MS: u64 = 3_600_000;
    on_plain_engine(|dir| async move {
        let options = LogOptions {
            flush_ms: HOUR_MS,
            ..small_segments()
        };
        let test = TestLog::create(&dir, options.clone()).await;
        let later = || time::now() + Duration::from_millis(HOUR_MS);
        assert!(!test.log.is_flush_due(later()), "nothing is written");
        test.fill(1).await;
        assert!(!test.log.is_flush_due(time::now()), "it is young");
        assert!(test.log.is_flush_due(later()));
        test.log.flush().await.expect("flushed");
        assert!(!test.log.is_flush_due(later()), "it is on the disk");
        // What a former life left unflushed is as old as this one.
        test.fill(1).await;
        let recovery_point = test.log.recovery_point();
        test.kill().await;
        let recovery = Recovery::AfterCrash { recovery_point };
        let (test, _) = TestLog::open(&dir, options, recovery)
            .await
            .expect("opened");
        assert!(test.log.is_flush_due(later()));
    });
}

#[test]
fn so_many_unflushed_bytes_are_flushed_and_the_recovery_point_follows() {
    on_both_engines(|dir| async move {
        let options = LogOptions {
            flush_bytes: 500,
            ..LogOptions::default()
        };
        let test = TestLog::create(&dir, options).await;
        let mut most = 0;
        for _ in 0..200 {
            test.append(3);
            test.settle().await;
            if test.log.inner.state.borrow().syncing {
                test.settle_rounds().await;
            }
            most = most.max(test.log.unflushed_bytes());
            assert_eq!(test.log.recovery_point(), test.log.durable_end());
        }
        assert!((300..500).contains(&most), "{most}");
        assert!(test.log.durable_end() > Offset(500));
    });
}

impl TestLog {
    async fn settle_rounds(&self) {
        while self.log.inner.state.borrow().syncing {
            thalweg_reactor::task::yield_now().await;
        }
    }
}

fn with_zeros(options: LogOptions) -> LogOptions {
    LogOptions {
        segment_bytes: 200_000,
        ..durable(options)
    }
}

/// Length of the newest segment's file.
fn file_bytes(dir: &Path, test: &TestLog) -> u64 {
    let base = test.log.inner.state.borrow().active().base;
    let path = super::log_file(dir, base.0);
    std::fs::metadata(path).expect("a segment").len()
}

impl TestLog {
    /// Waits for what was begun in the background.
    async fn settle_zeros(&self) {
        while self.log.inner.state.borrow().zeroing.is_some() {
            thalweg_reactor::task::yield_now().await;
        }
    }
}

#[test]
fn st_30_zeros_ahead_are_no_part_of_the_log_and_go_at_a_clean_stop() {
    on_both_engines(|dir| async move {
        let options = with_zeros(LogOptions::default());
        let test = TestLog::create(&dir, options.clone()).await;
        test.append(3);
        test.settle_on_disk().await;
        test.settle_zeros().await;
        let size = test.log.size_bytes();
        let ahead = file_bytes(&dir, &test) - size;
        assert!((32 * 1024..=64 * 1024).contains(&ahead), "{ahead}");
        assert_eq!(test.log.unflushed_bytes(), 0);
        // A start after a crash takes them for the end, and nothing for torn.
        let copy = dir.join("copy");
        super::copy_dir(&dir.join("t-0"), &copy.join("t-0"));
        for recovery_point in [Offset(0), Offset(3)] {
            let crash = Recovery::AfterCrash { recovery_point };
            let opened = TestLog::open(&copy, options.clone(), crash).await;
            let (crashed, report) = opened.expect("recovered");
            assert_eq!((report.cut, crashed.log.written_end()), (None, Offset(3)));
            assert_eq!(crashed.log.size_bytes(), size);
            assert_eq!(file_bytes(&copy, &crashed), size);
        }
        // Batches take the place of the zeros.
        test.append(3);
        test.settle_on_disk().await;
        assert_eq!(file_bytes(&dir, &test), size + ahead);
        let all = test.read_all().await;
        assert_eq!(all.len() as u64, test.log.size_bytes());
        test.log.close().await.expect("closed");
        assert_eq!(file_bytes(&dir, &test), all.len() as u64);
        let (test, _) = TestLog::open(&dir, options, Recovery::AfterCleanStop)
            .await
            .expect("opened");
        assert_eq!(test.read_all().await, all);
    });
}

#[test]
fn st_30_a_log_that_only_schedules_flushes_has_no_zeros_ahead() {
    on_plain_engine(|dir| async move {
        let options = LogOptions {
            flush_messages: 3,
            ..with_zeros(LogOptions::default())
        };
        let test = TestLog::create(&dir, options).await;
        for _ in 0..4 {
            test.append(3);
            test.settle_on_disk().await;
            test.settle_zeros().await;
            assert_eq!(file_bytes(&dir, &test), test.log.size_bytes());
        }
    });
}

/// Random appends, crashes with and without marks, and stops of a log with zeros ahead, against a list of
/// its bytes.
#[test]
fn st_30_whatever_happens_between_rolls_the_zeros_hide_nothing() {
    on_both_engines(|dir| async move {
        for seed in 0..3 {
            let dir = dir.join(format!("seed-{seed}"));
            std::fs::create_dir(&dir).expect("a directory");
            lives_with_zeros(&dir, seed).await;
        }
    });
}

async fn lives_with_zeros(dir: &Path, seed: u64) {
    let options = with_zeros(small_segments());
    let mut dice = Dice::new(seed + 40);
    let mut test = TestLog::create(dir, options.clone()).await;
    let mut all: Vec<u8> = Vec::new();
    let mut zeroed = false;
    for life in 0..6 {
        for _ in 0..60 {
            for _ in 0..=dice.below(3) {
                all.extend(test.append(1 + dice.below(60) as i64));
            }
            if dice.below(3) == 0 {
                test.settle_on_disk().await;
            }
            let state = test.log.inner.state.borrow();
            zeroed |= state.active().has_zeros();
        }
        test.settle_on_disk().await;
        test.settle_zeros().await;
        assert!(test.read_all().await == all, "seed {seed} life {life}");
        assert_eq!(test.log.size_bytes(), all.len() as u64);
        let mut opening = Opening::from(Recovery::AfterCleanStop);
        if life % 3 == 2 {
            test.log.close().await.expect("closed");
        } else {
            if life % 3 == 1 {
                let at = test.log.written_end();
                test.log.save_way(at, vec![7]).await.expect("saved");
            }
            let recovery_point = test.log.recovery_point();
            opening = Opening::from(Recovery::AfterCrash { recovery_point });
            opening.written = test.log.mark();
            test.kill().await;
        }
        let report;
        (test, report) = TestLog::open(dir, options.clone(), opening)
            .await
            .expect("opened");
        assert_eq!(report.cut, None, "seed {seed} life {life}");
        assert!(test.read_all().await == all, "seed {seed} life {life}");
    }
    assert!(zeroed && test.log.segment_count() > 1, "seed {seed}");
}
