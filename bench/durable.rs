//! `durable`: acknowledgements that wait for the device, beside one fdatasync per append on the same directory.
//!
//! Each round runs both, who begins turning from round to round; ratios are of a round.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::environment::Environment;
use crate::idle::allow_files;
use crate::job::SampleBatch;
use crate::plain::{self, PlainOptions};
use crate::report::{Percentiles, Spread};
use crate::rounds::{one_round, write_json};
use crate::stage::{SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::Workload;

/// Files that a broker needs for a partition, and some more.
const FILES_PER_PARTITION: usize = 4;

/// Flags of `durable`.
#[derive(clap::Args, Clone, Debug)]
pub struct DurableOptions {
    /// What to push at
    #[command(flatten)]
    pub target: TargetArgs,
    /// Workloads, by name; those of 1, 10, 100 and 1,000 partitions where none is given
    #[arg(long)]
    pub only: Vec<String>,
    /// Threads that append and sync without a broker
    #[arg(long, default_value_t = 16)]
    pub plain_threads: usize,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per run
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Load threads
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct DurableReport {
    environment: Environment,
    target: TargetReport,
    plain_threads: usize,
    workloads: Vec<Compared>,
}

/// One workload, broker against plain appends.
#[derive(Debug, Serialize)]
struct Compared {
    name: String,
    partitions: usize,
    producers: usize,
    broker: Vec<Acks>,
    plain: Vec<Acks>,
    /// Broker / plain, round by round.
    acks_ratio: Spread,
    p999_ratio: Option<Spread>,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Acks {
    acks_per_second: f64,
    latency_us: Percentiles,
}

/// Runs the workloads and prints the figures.
///
/// # Errors
/// When the broker does not start, a request fails, or the directory can not be written.
pub fn run(options: &DurableOptions) -> Result<()> {
    let default = [
        "1-partition",
        "10-partitions",
        "100-partitions",
        "1000-partitions",
    ];
    let names: Vec<String> = match options.only.is_empty() {
        true => default.map(|size| format!("durable-{size}")).into(),
        false => options.only.clone(),
    };
    let workloads: Vec<Workload> = names
        .iter()
        .map(|name| Workload::named(name))
        .collect::<Result<_>>()?;
    let files = |w: &Workload| {
        let producers = w.produce.as_ref().map_or(0, |produce| produce.connections);
        producers + w.partitions * FILES_PER_PARTITION
    };
    allow_files(workloads.iter().map(files).max().unwrap_or(0) as u64)?;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let mut compared = Vec::new();
    for mut workload in workloads {
        workload.measure.seconds = options.seconds;
        compared.push(compare(&workload, &target, options)?);
    }
    if let Some(path) = &options.json {
        let report = DurableReport {
            environment,
            target: target.report.clone(),
            plain_threads: options.plain_threads,
            workloads: compared,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

fn compare(workload: &Workload, target: &Target, options: &DurableOptions) -> Result<Compared> {
    let produce = workload.produce.as_ref();
    let producers = produce
        .context("the workload does not produce")?
        .connections;
    let (mut broker, mut plain) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let broker_first = round % 2 == 0;
        if !broker_first {
            plain.push(plainly(workload, producers, target, options)?);
        }
        let report = one_round(workload, target, options.threads)?.report;
        let part = report.parts.first().context("producers report")?;
        broker.push(Acks {
            acks_per_second: part.requests_per_second,
            latency_us: part.latency_us,
        });
        settle(SETTLE_MAX);
        if broker_first {
            plain.push(plainly(workload, producers, target, options)?);
        }
        if let (Some(broker), Some(plain)) = (broker.last(), plain.last()) {
            eprintln!(
                "{}: broker {} | plain {}",
                workload.name,
                broker.line(),
                plain.line()
            );
        }
    }
    let pairs = || broker.iter().zip(&plain);
    let acks_ratio = pairs().map(|(b, p)| b.acks_per_second / p.acks_per_second);
    let far = |acks: &Acks| acks.latency_us.p999.map(|us| us as f64);
    let p999_ratio: Option<Vec<f64>> = pairs().map(|(b, p)| Some(far(b)? / far(p)?)).collect();
    let compared = Compared {
        name: workload.name.clone(),
        partitions: workload.partitions,
        producers,
        acks_ratio: Spread::of(acks_ratio.collect()),
        p999_ratio: p999_ratio.map(Spread::of),
        broker,
        plain,
    };
    println!("{}", compared.line());
    Ok(compared)
}

fn plainly(
    workload: &Workload,
    producers: usize,
    target: &Target,
    options: &DurableOptions,
) -> Result<Acks> {
    let plain = plain::run(&PlainOptions {
        dir: &options.target.dir.join("plain"),
        files: workload.partitions,
        threads: producers.min(options.plain_threads).max(1),
        bytes: &SampleBatch::of(workload, 0)?.bytes,
        cpu: target.report.broker_cpu,
        warm_up: Duration::from_secs_f64(workload.measure.warm_up_seconds),
        measure: Duration::from_secs_f64(workload.measure.seconds),
    })?;
    settle(SETTLE_MAX);
    Ok(Acks {
        acks_per_second: plain.acks_per_second,
        latency_us: Percentiles::of(&plain.latency_us),
    })
}

impl Acks {
    fn line(&self) -> String {
        let l = &self.latency_us;
        let far = l.p999.map_or("-".to_owned(), |us| us.to_string());
        format!(
            "{:.0} acks/s, p50 {} p99 {} p99.9 {far} us",
            self.acks_per_second, l.p50, l.p99
        )
    }
}

impl Compared {
    fn line(&self) -> String {
        let of = |acks: &[Acks], value: fn(&Acks) -> f64| {
            Spread::of(acks.iter().map(value).collect()).shown(0)
        };
        let far = |ratio: &Spread| ratio.shown(2);
        format!(
            "{}: {} partitions, {} producers: {} acks/s, plain {}; acks ratio {}, p99.9 ratio {}",
            self.name,
            self.partitions,
            self.producers,
            of(&self.broker, |acks| acks.acks_per_second),
            of(&self.plain, |acks| acks.acks_per_second),
            self.acks_ratio.shown(2),
            self.p999_ratio.as_ref().map_or("absent".to_owned(), far),
        )
    }
}
