//! Compaction of real logs: against a model, in stories, and with crashes at every step.

mod crash;
mod model;
mod room;
mod stories;
mod transactions;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use thalweg_protocol::records::{
    BatchBuilder, BatchHeader, BatchOptions, Codec, ProducerSequence, batches,
};
use thalweg_replica::LastOfProducer;
use thalweg_types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

use super::{Budget, CleanError, CleanReport, Cleaner, CompactionLimits, CompactionOrder, Dirt};
use crate::whole_log_tests::TestLog;
use crate::{AppendBatch, LogOptions};

/// `delete.retention.ms` of these tests.
const RETENTION_MS: i64 = 1_000;

fn budget(map_bytes: u64) -> Budget {
    Budget {
        map_bytes,
        map_load: 0.9,
        io_bytes: 300,
        bytes_per_second: f64::MAX,
    }
}

pub(super) fn cleaner(map_bytes: u64) -> Cleaner {
    let (cleaner, _thread) = Cleaner::start("cleaner", budget(map_bytes)).expect("a thread");
    cleaner
}

/// As [`roomy`], for segments of at most so many bytes.
pub(super) fn narrow(segment_bytes_max: u64) -> Cleaner {
    let budget = budget(1 << 20);
    let started = Cleaner::start_within("cleaner", budget, segment_bytes_max);
    started.expect("a thread").0
}

/// The same as a task of this thread, for simulated disks.
pub(super) fn beside(segment_bytes_max: u64) -> Cleaner {
    Cleaner::on_this_thread(budget(1 << 20), segment_bytes_max)
}

/// Enough memory for every key of a test.
pub(super) fn roomy() -> Cleaner {
    cleaner(1 << 20)
}

pub(super) fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 700,
        index_interval_bytes: 100,
        ..LogOptions::default()
    }
}

/// A record to write, or as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rec {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// A record of `key` at the time `1_000 + offset`, with its offset as value.
pub(super) fn put(offset: i64, key: &str) -> Rec {
    Rec {
        offset,
        timestamp: 1_000 + offset,
        key: key.to_owned(),
        value: Some(format!("{key} at {offset}")),
    }
}

/// A tombstone.
pub(super) fn del(offset: i64, key: &str) -> Rec {
    Rec {
        value: None,
        ..put(offset, key)
    }
}

pub(super) fn of_records(records: &[Rec], codec: Codec, options: BatchOptions) -> AppendBatch {
    let base = Offset(records[0].offset);
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: base,
        leader_epoch: LeaderEpoch(0),
        ..options
    });
    for record in records {
        let value = record.value.as_ref().map(|value| value.as_bytes());
        let key = Some(record.key.as_bytes());
        builder
            .push(TimestampMs(record.timestamp), key, value, &[])
            .expect("small");
    }
    let bytes = builder.build(codec).expect("a batch");
    let header = BatchHeader::parse(&bytes).expect("a header");
    AppendBatch {
        base_offset: base,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        offset_of_max_timestamp: base,
        leader_epoch: LeaderEpoch(0),
        bytes,
    }
}

pub(super) fn producer(id: i64, sequence: i32) -> BatchOptions {
    BatchOptions {
        producer: Some(ProducerSequence::new(id, 0, sequence)),
        ..BatchOptions::default()
    }
}

/// Appends `what` as one batch at the end and waits for it.
pub(super) async fn append(test: &TestLog, what: &[(&str, bool)], options: BatchOptions) {
    let base = test.log.assigned_end().0;
    let records: Vec<Rec> = what
        .iter()
        .zip(base..)
        .map(|((key, alive), offset)| match alive {
            true => put(offset, key),
            false => del(offset, key),
        })
        .collect();
    test.log.append(of_records(&records, Codec::None, options));
    test.settle().await;
}

/// Fills a segment with deletes of twenty keys in four batches, and begins the next one.
pub(super) async fn twenty_deletes(test: &TestLog) {
    for batch in 0..4 {
        let offsets = batch * 5..batch * 5 + 5;
        let deletes: Vec<_> = offsets.map(|at| del(at, &format!("k{at}"))).collect();
        let plain = BatchOptions::default();
        test.log.append(of_records(&deletes, Codec::None, plain));
        test.settle().await;
    }
    test.log.roll_active().await;
    append(test, &[("z", true)], BatchOptions::default()).await;
}

pub(super) async fn dirt(test: &TestLog, now: i64) -> Dirt {
    let limits = CompactionLimits {
        min_lag_ms: 0,
        max_lag_ms: i64::MAX,
        stable_end: test.log.written_end(),
        now: TimestampMs(now),
    };
    test.log.dirt(limits).await.expect("a look")
}

pub(super) async fn try_compact(
    test: &TestLog,
    cleaner: &Cleaner,
    now: i64,
    live: HashMap<ProducerId, LastOfProducer>,
) -> Result<CleanReport, CleanError> {
    let order = order(test, now, live).await;
    test.log.compact(cleaner, order).await
}

pub(super) async fn order(
    test: &TestLog,
    now: i64,
    live: HashMap<ProducerId, LastOfProducer>,
) -> CompactionOrder {
    CompactionOrder {
        dirt: dirt(test, now).await,
        now: TimestampMs(now),
        delete_retention_ms: RETENTION_MS,
        file_delete_delay: Duration::ZERO,
        live,
    }
}

pub(super) async fn compact(test: &TestLog, cleaner: &Cleaner, now: i64) -> CleanReport {
    let done = try_compact(test, cleaner, now, HashMap::new()).await;
    done.expect("cleaned")
}

/// Headers of all batches of the log, and all records but those of markers.
pub(super) async fn content(test: &TestLog) -> (Vec<BatchHeader>, Vec<Rec>) {
    let bytes = test.read_all().await;
    let (mut headers, mut records) = (Vec::new(), Vec::new());
    for batch in batches(&bytes) {
        let batch = batch.expect("a batch");
        assert!(batch.crc_matches());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let set = batch.records(1 << 20).expect("records");
        for record in set.iter().filter(|_| !batch.header.is_control()) {
            let record = record.expect("a record");
            records.push(Rec {
                offset: record.offset.0,
                timestamp: record.timestamp.0,
                key: text(record.key.expect("a key")),
                value: record.value.map(text),
            });
        }
        headers.push(batch.header);
    }
    (headers, records)
}

/// Keys and offsets of all records.
pub(super) async fn survivors(test: &TestLog) -> Vec<(i64, String)> {
    let (_, records) = content(test).await;
    records.into_iter().map(|r| (r.offset, r.key)).collect()
}

pub(super) fn names(parent: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(parent.join("t-0")).expect("a listing");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a name of ours"))
        .collect();
    names.sort();
    names
}
