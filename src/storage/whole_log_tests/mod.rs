//! Logs and log directories against real files, on both engines of the reactor.

pub(crate) mod aborted;
mod append_read;
mod bounded;
mod crash;
mod damaging;
mod deleting;
mod dirs;
mod flushing;
mod holes;
mod indexes;
mod inspection;
mod killed;
mod lost;
mod lying_times;
mod marks;
mod model;
mod moving;
mod next_segment;
mod repairing;
mod retention;
pub(crate) mod room;
mod scrubbing;
mod short;
mod snapshots;
mod timestamps;
mod unread;

use std::cell::RefCell;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::records::{BatchBuilder, BatchHeader, BatchOptions, Codec};
use thalweg_reactor::fs;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs, Uuid};

use crate::flush::Reach;
use crate::{
    AppendBatch, Log, LogError, LogEvent, LogOptions, LogSink, Opening, PartitionName, ReadPlan,
    RecoveryReport,
};

pub(super) const TOPIC_ID: Uuid = Uuid([7; 16]);

/// Runs a test in a directory of its own, on the plain engine and on the best one of this machine.
pub(super) fn on_both_engines<F: Future<Output = ()>>(test: impl Fn(PathBuf) -> F) {
    for engine in [EngineChoice::Plain, EngineChoice::Auto] {
        on(engine, &test);
    }
}

/// Runs a test in a directory of its own on the plain engine.
pub(crate) fn on_plain_engine<F: Future<Output = ()>>(test: impl Fn(PathBuf) -> F) {
    on(EngineChoice::Plain, test);
}

fn on<F: Future<Output = ()>>(engine: EngineChoice, test: impl Fn(PathBuf) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtime = Runtime::new(RuntimeOptions {
        engine,
        ..RuntimeOptions::default()
    })
    .expect("a runtime");
    runtime.block_on(test(dir.path().to_owned()));
}

/// A log with the events it sent.
pub(super) struct TestLog {
    pub(super) log: Log,
    pub(super) events: Rc<RefCell<Vec<LogEvent>>>,
}

fn collector() -> (LogSink, Rc<RefCell<Vec<LogEvent>>>) {
    let events: Rc<RefCell<Vec<LogEvent>>> = Rc::default();
    let sink = Rc::clone(&events);
    (Rc::new(move |event| sink.borrow_mut().push(event)), events)
}

pub(super) fn name() -> PartitionName {
    PartitionName::new("t", 0)
}

impl Log {
    /// Whether those in memory are found by the paths of their handles.
    pub(crate) fn are_files_known_by_their_names(&self) -> bool {
        let state = self.inner.state.borrow();
        let mut all = state.segments.iter();
        all.all(|segment| {
            let warm = segment.warm_now();
            warm.is_none_or(|warm| warm.file.path() == segment.path())
        })
    }
}

impl TestLog {
    pub(super) async fn create(parent: &Path, options: LogOptions) -> TestLog {
        let (sink, events) = collector();
        let log = Log::create(parent, name(), TOPIC_ID, options, sink)
            .await
            .expect("created");
        TestLog { log, events }
    }

    pub(super) async fn open(
        parent: &Path,
        options: LogOptions,
        opening: impl Into<Opening>,
    ) -> Result<(TestLog, RecoveryReport), LogError> {
        let (sink, events) = collector();
        let (log, report) = Log::open(parent, name(), options, opening, sink).await?;
        Ok((TestLog { log, events }, report))
    }

    /// Appends a batch of `records` records at the end and gives its bytes.
    pub(super) fn append(&self, records: i64) -> Bytes {
        let base = self.log.assigned_end();
        let batch = numbered(base, LeaderEpoch(0), records);
        let bytes = batch.bytes.clone();
        self.log.append(batch);
        bytes
    }

    /// Waits until nothing is queued.
    pub(super) async fn settle(&self) {
        self.log.inner.idle.until(|| !self.log.is_writing()).await;
        crate::next_segment::settled(&self.log.inner).await;
    }

    /// Appends `batches` batches of 3 records and waits for each, so that each is one write.
    pub(super) async fn fill(&self, batches: usize) {
        for _ in 0..batches {
            self.append(3);
            self.settle().await;
        }
    }

    /// Ends this life of the log as a killed process does, once nothing runs in the background that
    /// could write into the next life.
    pub(super) async fn kill(self) {
        self.settle().await;
        self.log
            .flush_reaching(Reach::ClosedSegments)
            .await
            .expect("flushed");
    }

    /// Where its segments begin.
    pub(super) fn bases(&self) -> Vec<i64> {
        let segments = &self.log.inner.state.borrow().segments;
        segments.iter().map(|segment| segment.base.0).collect()
    }

    pub(super) async fn read(&self, from: i64, up_to: i64, bytes_max: u32) -> Vec<u8> {
        let plan = self
            .log
            .read_plan(Offset(from), Offset(up_to), bytes_max)
            .await;
        bytes_of(&plan.expect("a plan")).await
    }

    /// Every batch of the log.
    pub(super) async fn read_all(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let (mut at, end) = (self.log.start_offset(), self.log.written_end());
        while at < end {
            let plan = self.log.read_plan(at, end, 1_000).await.expect("a plan");
            assert!(plan.next_offset > at, "no progress at {at}");
            all.extend(bytes_of(&plan).await);
            at = plan.next_offset;
        }
        all
    }
}

pub(super) async fn bytes_of(plan: &ReadPlan) -> Vec<u8> {
    let bytes = fs::read_at(&plan.file, plan.position, plan.len as usize)
        .await
        .expect("readable");
    assert_eq!(bytes.len(), plan.len as usize);
    bytes.to_vec()
}

/// A batch whose records have their offset as timestamp and value.
pub(super) fn numbered(base: Offset, epoch: LeaderEpoch, records: i64) -> AppendBatch {
    let timestamps: Vec<i64> = (0..records).map(|i| 1_000 + base.0 + i).collect();
    batch(base, epoch, &timestamps, Codec::None)
}

pub(super) fn batch(
    base: Offset,
    epoch: LeaderEpoch,
    timestamps: &[i64],
    codec: Codec,
) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: base,
        leader_epoch: epoch,
        ..BatchOptions::default()
    });
    for (i, timestamp) in timestamps.iter().enumerate() {
        let value = format!("value {}", base.0 + i as i64);
        builder
            .push(TimestampMs(*timestamp), None, Some(value.as_bytes()), &[])
            .expect("a small record");
    }
    let bytes = builder.build(codec).expect("a batch");
    let header = BatchHeader::parse(&bytes).expect("a header");
    let max = timestamps.iter().max().copied().unwrap_or(-1);
    let of_max = timestamps.iter().position(|t| *t == max).unwrap_or(0) as i64;
    AppendBatch {
        base_offset: base,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        offset_of_max_timestamp: base.plus(of_max),
        leader_epoch: epoch,
        bytes,
    }
}

/// Options with segments of about ten small batches and an index entry every second one.
pub(super) fn small_segments() -> LogOptions {
    LogOptions {
        segment_bytes: 1_100,
        index_interval_bytes: 150,
        ..LogOptions::default()
    }
}

pub(super) fn log_file(parent: &Path, base: i64) -> PathBuf {
    file(parent, base, "log")
}

pub(super) fn file(parent: &Path, base: i64, suffix: &str) -> PathBuf {
    parent.join("t-0").join(format!("{base:020}.{suffix}"))
}

/// Copies a log directory, so that one state can be damaged in many ways.
pub(super) fn copy_dir(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a listing") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Changes a file in its place, as a disk would: who reads it meanwhile never finds it empty.
pub(super) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("a file");
    change(&mut bytes);
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("a file");
    file.write_all_at(&bytes, 0).expect("written");
    file.set_len(bytes.len() as u64).expect("cut");
}

/// A small generator of numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
