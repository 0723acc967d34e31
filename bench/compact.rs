//! How fast a cleaner compacts one log of small keyed records, with nothing else going on.
//!
//! The log is written and compacted by the storage room itself: no broker, no network. Figures are bytes of
//! batches that went in, per second of the rounds.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde::Serialize;
use thalweg_protocol::records::{BatchBuilder, BatchHeader, BatchOptions, Codec};
use thalweg_reactor::{Runtime, RuntimeOptions, task, time};
use thalweg_storage::{
    AppendBatch, Budget, Cleaner, CompactionLimits, CompactionOrder, Log, LogOptions, PartitionName,
};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs, Uuid};

/// Bytes of values in one batch.
const BATCH_BYTES: usize = 16 * 1024;
/// Bytes that may wait for their write while the log is filled.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of a segment; a small log has an eighth of itself in each.
const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
const MB: u64 = 1_000_000;

/// Flags of `compact`.
#[derive(clap::Args, Clone, Debug)]
pub struct CompactOptions {
    /// Directory for the log; must be empty or missing, and on the file system of interest
    #[arg(long, default_value = "bench/results/local/compact")]
    pub dir: PathBuf,
    /// Size of the log in MB
    #[arg(long, default_value_t = 5_000)]
    pub megabytes: u64,
    /// Different keys; each record has one of them, in no order
    #[arg(long, default_value_t = 4_000_000)]
    pub keys: u64,
    /// Bytes of key and value of a record
    #[arg(long, default_value_t = 100)]
    pub record_bytes: usize,
    /// Memory for keys in MiB, as log.cleaner.dedupe.buffer.size
    #[arg(long, default_value_t = 128)]
    pub dedupe_mib: u64,
}

#[derive(Serialize)]
struct Report {
    input_mb: u64,
    kept_mb: u64,
    records_removed: u64,
    rounds: u32,
    seconds: f64,
    input_mb_per_second: f64,
}

/// Fills a log, compacts it and prints the figures as JSON.
///
/// # Errors
/// The directory can not be written, or a round fails.
pub fn run(options: &CompactOptions) -> Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    let report = Runtime::new(RuntimeOptions::default())?.block_on(measure(options))?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

async fn measure(options: &CompactOptions) -> Result<Report> {
    let name = PartitionName::new("compacted", 0);
    let settings = LogOptions {
        segment_bytes: u32::try_from((options.megabytes * MB / 8).clamp(MB, SEGMENT_BYTES_MAX))?,
        ..LogOptions::default()
    };
    let log = Log::create(&options.dir, name, Uuid([1; 16]), settings, Rc::new(|_| {})).await?;
    fill(&log, options).await?;
    log.flush().await?;
    let budget = Budget {
        map_bytes: options.dedupe_mib * 1024 * 1024,
        map_load: 0.9,
        io_bytes: 256 * 1024,
        bytes_per_second: f64::MAX,
    };
    let (cleaner, thread) = Cleaner::start("cleaner-0", budget)?;
    let report = clean(&log, &cleaner).await;
    drop(cleaner);
    log.delete().await?;
    let ended = thread.join().ok();
    ended.context("the cleaner panicked")??;
    report
}

async fn clean(log: &Log, cleaner: &Cleaner) -> Result<Report> {
    let mut report = Report {
        input_mb: 0,
        kept_mb: 0,
        records_removed: 0,
        rounds: 0,
        seconds: 0.0,
        input_mb_per_second: 0.0,
    };
    let limits = CompactionLimits {
        min_lag_ms: 0,
        max_lag_ms: i64::MAX,
        stable_end: log.written_end(),
        now: TimestampMs(time::unix_ms()),
    };
    let input = log.dirt(limits).await?.dirty_bytes;
    let began = Instant::now();
    loop {
        let dirt = log.dirt(limits).await?;
        if dirt.dirty_bytes == 0 {
            break;
        }
        let order = CompactionOrder {
            dirt,
            now: limits.now,
            delete_retention_ms: 86_400_000,
            file_delete_delay: Duration::ZERO,
            live: HashMap::new(),
        };
        let done = log.compact(cleaner, order).await?;
        report.rounds += 1;
        report.records_removed += done.records_read - done.records_kept;
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.input_mb = input / MB;
    report.kept_mb = log.size_bytes() / MB;
    report.input_mb_per_second = input as f64 / MB as f64 / report.seconds;
    Ok(report)
}

/// Batches of small records whose keys come in no order, the same ones in every run.
pub(crate) struct KeyedBatches {
    keys: u64,
    value: Vec<u8>,
    records: usize,
    dice: u64,
}

impl KeyedBatches {
    const KEY_BYTES: usize = 16;

    /// Batches of about so many bytes of records, each of `record_bytes` of key and value.
    ///
    /// # Errors
    /// When a record has no room for its key.
    pub(crate) fn new(keys: u64, record_bytes: usize, batch_bytes: usize) -> Result<KeyedBatches> {
        ensure!(
            record_bytes > Self::KEY_BYTES,
            "a record has more than its key's {} bytes",
            Self::KEY_BYTES
        );
        Ok(KeyedBatches {
            keys: keys.max(1),
            value: vec![b'v'; record_bytes - Self::KEY_BYTES],
            records: (batch_bytes / record_bytes).max(1),
            dice: 1,
        })
    }

    /// The next batch, dated now.
    ///
    /// # Errors
    /// When the numbers make no batch.
    pub(crate) fn next(&mut self, base_offset: Offset) -> Result<Bytes> {
        const KEY_BYTES: usize = KeyedBatches::KEY_BYTES;
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            leader_epoch: LeaderEpoch(0),
            ..BatchOptions::default()
        });
        for _ in 0..self.records {
            let dice = self.dice.wrapping_mul(6_364_136_223_846_793_005);
            self.dice = dice.wrapping_add(1);
            let key = format!("{:0KEY_BYTES$}", (self.dice >> 20) % self.keys);
            let now = TimestampMs(time::unix_ms());
            builder.push(now, Some(key.as_bytes()), Some(&self.value), &[])?;
        }
        Ok(builder.build(Codec::None)?)
    }
}

async fn fill(log: &Log, options: &CompactOptions) -> Result<()> {
    let mut batches = KeyedBatches::new(options.keys, options.record_bytes, BATCH_BYTES)?;
    let mut written = 0;
    while written < options.megabytes * MB {
        let bytes = batches.next(log.assigned_end())?;
        let header = BatchHeader::parse(&bytes)?;
        written += bytes.len() as u64;
        log.append(AppendBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            offset_of_max_timestamp: header.base_offset,
            leader_epoch: LeaderEpoch(0),
            bytes,
        });
        while log.pending_bytes() > WAITING_BYTES_MAX {
            task::yield_now().await;
        }
    }
    while log.is_writing() {
        task::yield_now().await;
    }
    ensure!(log.written_end() > Offset::ZERO, "nothing was written");
    Ok(())
}
