//! A log against a plain list of batches, under random operations, stops and crashes.

use std::path::Path;

use thalweg_types::{LeaderEpoch, Offset};

use super::{
    Dice, TestLog, bytes_of, log_file, numbered, on_both_engines, retention, small_segments,
};
use crate::{Opening, Recovery, RetentionLimits};

/// What the log should hold.
#[derive(Default)]
struct Model {
    /// (base offset, records, bytes), and how many of the first are on the disk.
    batches: Vec<(i64, i64, Vec<u8>)>,
    flushed: usize,
    epoch: i32,
    start: i64,
}

impl Model {
    fn end(&self) -> i64 {
        self.batches
            .last()
            .map_or(0, |(base, records, _)| base + records)
    }

    fn opening(&self, recovery: Recovery) -> Opening {
        Opening {
            log_start: Some(Offset(self.start)),
            ..Opening::from(recovery)
        }
    }

    fn end_of_first(&self, count: usize) -> i64 {
        self.batches[..count]
            .last()
            .map_or(0, |(base, records, _)| base + records)
    }
}

#[test]
fn random_operations_agree_with_a_list_of_batches() {
    on_both_engines(|dir| async move {
        for seed in 0..5 {
            let dir = dir.join(format!("seed-{seed}"));
            std::fs::create_dir(&dir).expect("a directory");
            run(&dir, seed).await;
        }
    });
}

async fn run(dir: &Path, seed: u64) {
    let mut dice = Dice::new(seed + 100);
    let mut model = Model::default();
    let mut test = TestLog::create(dir, small_segments()).await;
    for step in 0..150 {
        match dice.below(100) {
            0..50 => {
                for _ in 0..=dice.below(4) {
                    append(&test, &mut model, 1 + dice.below(6) as i64);
                }
            }
            50..60 => {
                test.settle().await;
                test.log.flush().await.expect("flushed");
                model.flushed = model.batches.len();
            }
            60..63 => {
                test.settle().await;
                let limits = RetentionLimits {
                    bytes: Some(dice.below(4_000)),
                    ..RetentionLimits::default()
                };
                if let Some(due) = retention::obey(&test, limits).await {
                    model.start = due.start.0;
                }
            }
            63..90 => check_read(&test, &model, &mut dice).await,
            90..93 => {
                test.log.close().await.expect("closed");
                model.flushed = model.batches.len();
                drop(test);
                let opened = TestLog::open(
                    dir,
                    small_segments(),
                    model.opening(Recovery::AfterCleanStop),
                )
                .await;
                let report;
                (test, report) = opened.unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}"));
                assert_eq!(report.segments_scanned, 0);
                assert_eq!(
                    test.log.written_end().0,
                    model.end(),
                    "seed {seed} step {step}"
                );
            }
            93.. => test = crash(dir, test, &mut model, &mut dice).await,
        }
        model.epoch += i32::from(dice.below(20) == 0);
    }
    test.settle().await;
    let all: Vec<u8> = model
        .batches
        .iter()
        .filter(|(base, _, _)| *base >= model.start)
        .flat_map(|(_, _, bytes)| bytes.clone())
        .collect();
    assert_eq!(test.read_all().await, all, "seed {seed}");
}

fn append(test: &TestLog, model: &mut Model, records: i64) {
    let batch = numbered(Offset(model.end()), LeaderEpoch(model.epoch), records);
    model
        .batches
        .push((model.end(), records, batch.bytes.to_vec()));
    test.log.append(batch);
}

async fn check_read(test: &TestLog, model: &Model, dice: &mut Dice) {
    let end = test.log.written_end();
    let from = model.start + dice.below((end.0 - model.start) as u64 + 1) as i64;
    let up_to = from + dice.below(60) as i64;
    let bytes_max = 1 + dice.below(2_000) as u32;
    let plan = test
        .log
        .read_plan(Offset(from), Offset(up_to), bytes_max)
        .await
        .expect("a plan");
    let read = bytes_of(&plan).await;
    let holding = model
        .batches
        .iter()
        .skip_while(|(base, records, _)| base + records <= from);
    let mut expected: Vec<u8> = Vec::new();
    for (base, records, bytes) in holding {
        let fits = expected.is_empty() || expected.len() + bytes.len() <= bytes_max as usize;
        if base + records > up_to.min(end.0) || !fits {
            break;
        }
        expected.extend(bytes);
    }
    // A plan may stop early, at the end of a segment, but never empty-handed.
    assert!(expected.starts_with(&read), "from {from} up to {up_to}");
    assert_eq!(
        read.is_empty(),
        expected.is_empty(),
        "from {from} up to {up_to}"
    );
}

/// Kills the log: what was not flushed may lose any number of bytes at its end.
async fn crash(dir: &Path, test: TestLog, model: &mut Model, dice: &mut Dice) -> TestLog {
    test.settle().await;
    // The flush after a roll may have moved it further than the model knows.
    let recovery_point = test.log.durable_end();
    assert!(recovery_point.0 >= model.end_of_first(model.flushed));
    let (base, size) = {
        let state = test.log.inner.state.borrow();
        (state.active().base.0, state.active().size.get())
    };
    let log = test.log.clone();
    test.kill().await;
    let recovery_point = recovery_point.max(log.durable_end());
    let mut lost = dice.below(120).min(size);
    let path = log_file(dir, base);
    // Only bytes above the recovery point can be lost.
    let kept_at_least: u64 = model
        .batches
        .iter()
        .filter(|(b, records, _)| *b >= base && b + records <= recovery_point.0)
        .map(|(_, _, bytes)| bytes.len() as u64)
        .sum();
    lost = lost.min(size - kept_at_least);
    // The last byte of a record is a zero: losing it alone would be undone by zeros behind it.
    lost = if lost == 1 { 0 } else { lost };
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("a file");
    file.set_len(size - lost).expect("cut");
    if dice.below(3) == 0 {
        // A preallocated or half-written tail.
        file.set_len(size - lost + dice.below(100)).expect("grown");
    }
    drop(file);
    let recovery = Recovery::AfterCrash { recovery_point };
    let (test, report) = TestLog::open(dir, small_segments(), model.opening(recovery))
        .await
        .expect("recovered");
    let mut left = size - lost;
    model.batches.retain(|(b, _, bytes)| {
        let whole = *b < base || bytes.len() as u64 <= left;
        if *b >= base {
            left = if whole { left - bytes.len() as u64 } else { 0 };
        }
        whole
    });
    assert_eq!(
        test.log.written_end().0,
        model.end(),
        "base {base} size {size} lost {lost} {report:?}"
    );
    assert!(report.segments_removed == 0);
    assert!(
        report
            .epochs
            .latest()
            .is_none_or(|latest| latest.epoch.0 <= model.epoch)
    );
    model.flushed = model.flushed.min(model.batches.len());
    test
}
