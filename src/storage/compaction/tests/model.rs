//! Random logs and rounds against a dumb twin.

use std::collections::HashMap;

use thalweg_protocol::records::{BatchOptions, Codec};
use thalweg_types::{Offset, TimestampMs};

use super::{RETENTION_MS, Rec, cleaner, compact, content, of_records, small};
use crate::Recovery;
use crate::whole_log_tests::{Dice, TestLog, on_plain_engine};

/// A batch as the model has it.
struct ModelBatch {
    horizon: Option<i64>,
    records: Vec<Rec>,
}

#[derive(Default)]
struct Model {
    batches: Vec<ModelBatch>,
    /// The last of each key over all that was ever written.
    truth: HashMap<String, Option<String>>,
}

impl Model {
    fn records(&self) -> Vec<Rec> {
        self.batches
            .iter()
            .flat_map(|b| b.records.clone())
            .collect()
    }

    /// A round that knew every record below `end` and wrote anew what lies below `reached`.
    fn clean(&mut self, end: i64, reached: i64, now: i64) {
        let mut last: HashMap<String, i64> = HashMap::new();
        for record in self.records().into_iter().filter(|r| r.offset < end) {
            last.insert(record.key, record.offset);
        }
        for batch in &mut self.batches {
            let deletes_stay = batch.horizon.is_none_or(|horizon| now < horizon);
            batch.records.retain(|r| {
                let newest = last.get(&r.key) == Some(&r.offset);
                r.offset >= end || newest && (r.value.is_some() || deletes_stay)
            });
            let below = batch
                .records
                .iter()
                .any(|r| r.offset < reached && r.value.is_none());
            if below && batch.horizon.is_none() {
                batch.horizon = Some(now + RETENTION_MS);
            }
        }
    }
}

fn random_batch(dice: &mut Dice, base: i64, keys: u64) -> Vec<Rec> {
    let count = 1 + dice.below(6) as i64;
    (base..base + count)
        .map(|offset| {
            let key = format!("key {}", dice.below(keys));
            let text = "v".repeat(dice.below(40) as usize);
            Rec {
                offset,
                // Not in order.
                timestamp: 1_000 + dice.below(500) as i64,
                key,
                value: (dice.below(4) > 0).then(|| format!("{offset} {text}")),
            }
        })
        .collect()
}

#[test]
fn rp_98_rp_101_rp_102_rp_104_random_rounds_agree_with_a_dumb_model() {
    on_plain_engine(|dir| async move {
        for seed in 1..=12 {
            let dir = dir.join(seed.to_string());
            std::fs::create_dir(&dir).expect("a directory");
            one_run(&dir, seed).await;
        }
    });
}

/// RP-98: lookups by timestamp agree with a full scan of what is left.
async fn check_lookups(test: &TestLog, records: &[Rec], dice: &mut Dice) {
    let of = |hit: Option<crate::TimestampHit>| hit.map(|hit| (hit.offset.0, hit.timestamp.0));
    let found = |record: Option<&Rec>| record.map(|record| (record.offset, record.timestamp));
    for _ in 0..5 {
        let target = 990 + dice.below(530) as i64;
        let hit = test.log.offset_for_timestamp(TimestampMs(target)).await;
        let first = records.iter().find(|record| record.timestamp >= target);
        assert_eq!(of(hit.expect("a lookup")), found(first), "at {target}");
    }
    let hit = test.log.max_timestamp_offset().await.expect("a lookup");
    let largest = records.iter().map(|record| record.timestamp).max();
    let first = records
        .iter()
        .find(|record| Some(record.timestamp) == largest);
    assert_eq!(of(hit), found(first));
}

async fn one_run(dir: &std::path::Path, seed: u64) {
    let dice = &mut Dice::new(seed);
    let keys = 2 + dice.below(30);
    // Sometimes far too little for the keys of a round.
    let cleaner = cleaner([60, 200, 1 << 20][dice.below(3) as usize]);
    let test = TestLog::create(dir, small()).await;
    let mut model = Model::default();
    let mut now = 10_000;
    for _ in 0..6 {
        for _ in 0..dice.below(25) {
            let base = test.log.assigned_end().0;
            let records = random_batch(dice, base, keys);
            let codec = Codec::ALL[dice.below(5) as usize];
            test.log
                .append(of_records(&records, codec, BatchOptions::default()));
            test.settle().await;
            for record in &records {
                model.truth.insert(record.key.clone(), record.value.clone());
            }
            let horizon = None;
            model.batches.push(ModelBatch { horizon, records });
        }
        now += dice.below(2 * RETENTION_MS as u64) as i64;
        let end = test.log.written_end();
        let bases: Vec<Offset> = test
            .log
            .inner
            .state
            .borrow()
            .segments
            .iter()
            .map(|s| s.base)
            .collect();
        let report = compact(&test, &cleaner, now).await;
        let reached = bases.iter().find(|base| **base >= report.end).copied();
        let reached = reached.unwrap_or(*bases.last().expect("a segment"));
        model.clean(report.end.0, reached.0, now);
        let (headers, records) = content(&test).await;
        assert_eq!(records, model.records(), "seed {seed}");
        assert_eq!(test.log.written_end(), end);
        assert!(
            headers
                .windows(2)
                .all(|p| p[0].last_offset() < p[1].base_offset)
        );
        check_lookups(&test, &records, dice).await;
        let mut view: HashMap<String, Option<String>> = HashMap::new();
        for record in records {
            view.insert(record.key, record.value);
        }
        view.retain(|_, value| value.is_some());
        let mut truth = model.truth.clone();
        truth.retain(|_, value| value.is_some());
        assert_eq!(view, truth, "seed {seed}");
    }
    let before = test.read_all().await;
    test.kill().await;
    let recovery = Recovery::AfterCrash {
        recovery_point: Offset(0),
    };
    let (test, report) = TestLog::open(dir, small(), recovery).await.expect("opened");
    assert_eq!(
        (report.cut, report.indexes_rebuilt),
        (None, 0),
        "seed {seed}"
    );
    assert_eq!(test.read_all().await, before);
}
