//! `beside-compaction`: what a compaction does to the latency of other partitions.
//!
//! A pair of runs of one workload, of which one goes on beside the compaction of a large log in the same broker; which of
//! the two comes first turns from round to round. That the log is compacted all the while is seen from the CPU time of
//! the broker's cleaner threads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use thalweg_client::{Change, Cluster, ConfigChange, ConfigOwner, ConnectOptions, Connection};
use thalweg_types::Offset;

use crate::compact::KeyedBatches;
use crate::cpu;
use crate::environment::Environment;
use crate::job::send_batch;
use crate::report::{RunReport, Spread};
use crate::rounds::{one_round, write_json};
use crate::stage::{self, SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::Workload;

const TOPIC: &str = "bench-compacted";
/// A share that no log is above: it waits.
const NEVER: &str = "1";
const ALWAYS: &str = "0";
const CLEANERS: &str = "cleaner";
/// How long a compaction may take to begin: `log.cleaner.backoff.ms` and a look at all logs.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// CPU time that cleaners take within this is looked at behind the measured window.
const STILL: Duration = Duration::from_millis(300);

/// Flags of `beside-compaction`.
#[derive(clap::Args, Clone, Debug)]
pub struct BesideOptions {
    /// What to push at
    #[command(flatten)]
    pub target: TargetArgs,
    /// What the other partitions get
    #[arg(long, default_value = "beside-compaction")]
    pub workload: String,
    /// Megabytes of 100-byte keyed records to compact in each round
    #[arg(long, default_value_t = 4_000)]
    pub backlog_mb: u64,
    /// Different keys among them
    #[arg(long, default_value_t = 2_000_000)]
    pub keys: u64,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per run
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct BesideReport {
    environment: Environment,
    target: TargetReport,
    backlog_mb: u64,
    with: Vec<RunReport>,
    without: Vec<RunReport>,
    /// CPU seconds of the cleaners per second of the runs beside them.
    cleaner_cpus: Vec<f64>,
    /// p99.9 with over without, round by round.
    p999_ratio: Spread,
}

/// Runs the pairs and prints the ratio.
///
/// # Errors
/// When the broker does not start, a request fails, or the compaction ends too early.
pub fn run(options: &BesideOptions) -> Result<()> {
    let mut workload = Workload::named(&options.workload)?;
    workload.measure.seconds = options.seconds;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let pid = target
        .pid
        .context("--against needs --broker-pid, to see the cleaners")?;
    let (mut with, mut without, mut cleaner_cpus) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let alone_first = round % 2 == 0;
        if alone_first {
            without.push(alone(&workload, &target)?);
        }
        let (report, cpus) = beside(&workload, &target, pid, options)?;
        with.push(report);
        cleaner_cpus.push(cpus);
        if !alone_first {
            without.push(alone(&workload, &target)?);
        }
        eprintln!("round {}: cleaners took {cpus:.2} CPUs", round + 1);
    }
    let ratios = with.iter().zip(&without);
    let ratios = ratios.map(|(with, without)| Ok(far(with)? / far(without)?));
    let p999_ratio = Spread::of(ratios.collect::<Result<_>>()?);
    println!("p99.9 beside a compaction / alone: {}", p999_ratio.shown(2));
    if let Some(path) = &options.json {
        let report = BesideReport {
            environment,
            target: target.report.clone(),
            backlog_mb: options.backlog_mb,
            with,
            without,
            cleaner_cpus,
            p999_ratio,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

fn far(report: &RunReport) -> Result<f64> {
    let part = report.parts.first().context("producers report")?;
    let far = part.latency_us.p999;
    Ok(far.context("too few samples for a p99.9: --seconds")? as f64)
}

fn alone(workload: &Workload, target: &Target) -> Result<RunReport> {
    let report = one_round(workload, target, 1)?.report;
    eprintln!("alone:  {} p99.9 {} us", report.line(), far(&report)?);
    settle(SETTLE_MAX);
    Ok(report)
}

/// One run beside a compaction, and the CPUs that this took.
fn beside(
    workload: &Workload,
    target: &Target,
    pid: u32,
    options: &BesideOptions,
) -> Result<(RunReport, f64)> {
    let address = target.address().to_string();
    let mut cluster = stage::cluster(&address)?;
    let mut outcome = make_backlog(&mut cluster, &address, options);
    settle(SETTLE_MAX);
    outcome = outcome.and_then(|()| begin(&mut cluster, pid));
    let outcome = outcome.and_then(|()| {
        let (began, before) = (Instant::now(), cpu::thread_time(pid, CLEANERS)?);
        let report = one_round(workload, target, 1)?.report;
        let (took, after) = (began.elapsed(), cpu::thread_time(pid, CLEANERS)?);
        thread::sleep(STILL);
        ensure!(
            cpu::thread_time(pid, CLEANERS)? > after,
            "the compaction ended before the run: raise --backlog-mb"
        );
        Ok((report, (after - before).as_secs_f64() / took.as_secs_f64()))
    });
    cluster.delete_topic(TOPIC)?;
    let (report, cpus) = outcome?;
    eprintln!("beside: {} p99.9 {} us", report.line(), far(&report)?);
    settle(SETTLE_MAX);
    Ok((report, cpus))
}

fn make_backlog(cluster: &mut Cluster, address: &str, options: &BesideOptions) -> Result<()> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", NEVER),
        ("segment.bytes", "268435456"),
    ];
    let settings: BTreeMap<String, String> = settings
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    stage::create_topic(cluster, TOPIC, 1, &settings)?;
    let mut batches = KeyedBatches::new(options.keys, 100, 64 * 1024)?;
    let mut connection = Connection::open(address, &ConnectOptions::default())?;
    let mut written = 0;
    while written < options.backlog_mb * 1_000_000 {
        let batch = batches.next(Offset::ZERO)?;
        written += batch.len() as u64;
        send_batch(&mut connection, TOPIC, &batch)?;
    }
    Ok(())
}

/// Lets the log be compacted, and returns when that has begun.
fn begin(cluster: &mut Cluster, pid: u32) -> Result<()> {
    let before = cpu::thread_time(pid, CLEANERS)?;
    let owner = ConfigOwner::Topic(TOPIC.to_owned());
    let ratio = "min.cleanable.dirty.ratio".to_owned();
    let change = ConfigChange::Set(ratio, ALWAYS.to_owned());
    cluster.alter_configs(&owner, &[change], Change::Make)?;
    let began = Instant::now();
    while cpu::thread_time(pid, CLEANERS)? < before + STILL / 10 {
        if began.elapsed() > BEGIN_MAX {
            bail!("no compaction began within {} s", BEGIN_MAX.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
