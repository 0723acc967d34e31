//! Opening a log over arbitrary files (ST-1 to ST-5, ST-8, ST-9, BI-20).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::{AppendBatch, Log, LogOptions, PartitionName, Recovery, RecoveryReport};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

const FILES_MAX: usize = 8;
/// A log that ends near the last possible offset has no room for one more batch.
const OFFSET_MAX: Offset = Offset(i64::MAX - 8);
const SUFFIXES: [&str; 8] = [
    "log",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "log.deleted",
    "log.swap",
    "log.cleaned",
];
const NAMED: [&str; 2] = ["leader-epoch-checkpoint", "partition.metadata"];

thread_local! {
    /// A log needs a runtime; making one for each input would cost more than the rest.
    static RUNTIME: Runtime = Runtime::new(RuntimeOptions {
        name: "fuzz".to_owned(),
        engine: EngineChoice::Plain,
        plain_threads: 1,
        ..RuntimeOptions::default()
    })
    .expect("a runtime");
}

/// A partition directory as a fuzzer's input: a byte for the way of stopping, then per file a byte
/// for its kind, one for its base offset, two for its length, and its bytes.
///
/// Whatever stands in the directory, opening it ends: with an error that leaves it refused, or with
/// a log that reads, appends, and recovers to the same end again.
pub fn recovery(data: &[u8]) {
    let Some((stop, files)) = data.split_first() else {
        return;
    };
    let dir = scratch();
    let name = PartitionName::new("fuzz", 0);
    let partition = dir.path().join(name.to_string());
    std::fs::create_dir(&partition).expect("a scratch directory is writable");
    write_files(&partition, files);
    RUNTIME.with(|runtime| runtime.block_on(check(dir.path(), stop_of(*stop))));
}

/// In memory where there is such a place: a fuzzer makes thousands of directories.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    };
    made.expect("a scratch directory")
}

fn stop_of(byte: u8) -> Recovery {
    match byte % 4 {
        0 => Recovery::AfterCleanStop,
        1 => Recovery::AfterCrash {
            recovery_point: Offset(3),
        },
        _ => Recovery::AfterCrash {
            recovery_point: Offset::ZERO,
        },
    }
}

fn write_files(partition: &Path, mut input: &[u8]) {
    for _ in 0..FILES_MAX {
        let [kind, base, high, low, rest @ ..] = input else {
            return;
        };
        let wanted = usize::from(u16::from_be_bytes([*high, *low]));
        let mut rest = rest;
        let bytes = rest.copy_to_bytes(wanted.min(rest.len()));
        input = rest;
        std::fs::write(file_path(partition, *kind, *base), bytes).expect("scratch is writable");
    }
}

fn file_path(partition: &Path, kind: u8, base: u8) -> PathBuf {
    let kind = usize::from(kind) % (SUFFIXES.len() + NAMED.len());
    match kind.checked_sub(SUFFIXES.len()) {
        Some(named) => partition.join(NAMED[named]),
        None => partition.join(format!("{base:020}.{}", SUFFIXES[kind])),
    }
}

async fn open(parent: &Path, stop: Recovery) -> Option<(Log, RecoveryReport)> {
    let options = LogOptions {
        segment_bytes: 2_048,
        ..LogOptions::default()
    };
    let name = PartitionName::new("fuzz", 0);
    Log::open(parent, name, options, stop, Rc::new(|_| {}))
        .await
        .ok()
}

async fn check(parent: &Path, stop: Recovery) {
    let Some((log, _)) = open(parent, stop).await else {
        return;
    };
    let (start, end) = (log.start_offset(), log.written_end());
    assert!(start <= end && end == log.assigned_end());
    read_all(&log, start, end).await;
    if log.close().await.is_err() {
        return;
    }
    drop(log);
    let crash = Recovery::AfterCrash {
        recovery_point: Offset::ZERO,
    };
    let Some((log, report)) = open(parent, crash).await else {
        return;
    };
    let end = log.written_end();
    if end > OFFSET_MAX {
        return;
    }
    let epoch = report
        .epochs
        .latest()
        .map_or(LeaderEpoch(0), |latest| latest.epoch);
    append(&log, end, epoch).await;
    let _ = log.close().await;
    drop(log);
    let (log, report) = open(parent, crash)
        .await
        .expect("a recovered log opens again");
    assert_eq!(report.cut, None, "what recovery left is whole");
    assert_eq!(
        log.written_end(),
        end.plus(1),
        "and holds what was appended to it"
    );
    let _ = log.close().await;
}

/// Reads what a consumer would: every plan moves on, or says that there is nothing.
async fn read_all(log: &Log, start: Offset, end: Offset) {
    let mut from = start;
    for _ in 0..100 {
        let Ok(plan) = log.read_plan(from, end, 512).await else {
            return;
        };
        if plan.is_empty() {
            return;
        }
        assert!(plan.next_offset > from, "a plan moves on");
        from = plan.next_offset;
    }
    let _ = log.offset_for_timestamp(TimestampMs(5)).await;
    let _ = log.max_timestamp_offset().await;
}

async fn append(log: &Log, at: Offset, leader_epoch: LeaderEpoch) {
    let options = BatchOptions {
        base_offset: at,
        leader_epoch,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    builder
        .push(TimestampMs(1), None, Some(b"appended"), &[])
        .expect("it fits");
    let bytes: Bytes = builder.build(Codec::None).expect("one record");
    log.append(AppendBatch {
        bytes,
        base_offset: at,
        last_offset: at,
        max_timestamp: TimestampMs(1),
        offset_of_max_timestamp: at,
        leader_epoch,
    });
    log.flush().await.expect("scratch is writable");
}
