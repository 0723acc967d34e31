//! `hot-partition`: what one partition that is asked for more than its core can do does to those of other cores (BI-34).
//!
//! Pairs of runs, in turns: one-record requests at a stated rate to partitions that live on other cores than the hot one,
//! with a closed loop of large batches to that, and without. What sends the large batches runs only while nobody else wants
//! its CPU: where there is none for it alone, it would be what the others wait for.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use thalweg_client::{Cluster, MissingTopic};

use crate::environment::Environment;
use crate::job::ProduceJob;
use crate::load::{self, Part};
use crate::report::{RunReport, Spread};
use crate::rounds::write_json;
use crate::stage::{self, SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::{Rate, Workload};

const HOT: &str = "bench-hot";
const OTHERS: &str = "bench-others";

/// Flags of `hot-partition`.
#[derive(clap::Args, Clone, Debug)]
pub struct HotPartitionOptions {
    /// What to push at; more than one shard is needed
    #[command(flatten)]
    pub target: TargetArgs,
    /// What the hot partition gets, as fast as it takes it
    #[arg(long, default_value = "bulk-1-partition")]
    pub hot: String,
    /// What the others get
    #[arg(long, default_value = "open-one-record-5k")]
    pub others: String,
    /// Requests per second of the others, instead of the workload's
    #[arg(long)]
    pub requests_per_second: Option<f64>,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per run
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct HotPartitionReport {
    environment: Environment,
    target: TargetReport,
    /// Partitions of the others that are on other cores.
    partitions: usize,
    with: Vec<RunReport>,
    without: Vec<RunReport>,
    /// p99 of the others with over without, round by round.
    p99_ratio: Spread,
}

/// Runs the pairs and prints the ratio.
///
/// # Errors
/// When the broker does not start, has one shard, or a request fails.
pub fn run(options: &HotPartitionOptions) -> Result<()> {
    let hot = Workload::named(&options.hot)?;
    let mut others = Workload::named(&options.others)?;
    others.measure.seconds = options.seconds;
    if let (Some(rate), Some(produce)) = (options.requests_per_second, &mut others.produce) {
        produce.rate = Some(Rate::RequestsPerSecond(rate));
    }
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let mut cluster = stage::cluster(&target.address().to_string())?;
    stage::create_topic(&mut cluster, HOT, 1, &hot.topic)?;
    stage::create_topic(&mut cluster, OTHERS, others.partitions, &others.topic)?;
    let elsewhere = elsewhere(&mut cluster)?;
    ensure!(
        !elsewhere.is_empty(),
        "every partition is on the core of the hot one: --shards 2 or more"
    );
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let mut both = [true, false];
        if round % 2 == 0 {
            both.reverse();
        }
        for is_hot in both {
            let mut parts = vec![others_part(&others, &elsewhere)?];
            if is_hot {
                parts.push(hot_part(&hot)?);
            }
            let report = one_run(&others, &parts, &target)?;
            eprintln!(
                "{}: {}",
                if is_hot { "with" } else { "without" },
                report.line()
            );
            if is_hot { &mut with } else { &mut without }.push(report);
            settle(SETTLE_MAX);
        }
    }
    for topic in [HOT, OTHERS] {
        cluster.delete_topic(topic)?;
    }
    let ratios = with.iter().zip(&without);
    let ratios = ratios.map(|(with, without)| Ok(p99(with)? / p99(without)?));
    let p99_ratio = Spread::of(ratios.collect::<Result<_>>()?);
    println!(
        "p99 of {} partitions on other cores, with a hot one / without: {}",
        elsewhere.len(),
        p99_ratio.shown(2)
    );
    if let Some(path) = &options.json {
        let report = HotPartitionReport {
            environment,
            target: target.report.clone(),
            partitions: elsewhere.len(),
            with,
            without,
            p99_ratio,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

/// The first part is that of the others.
fn p99(report: &RunReport) -> Result<f64> {
    let part = report.parts.first().context("producers report")?;
    Ok(part.latency_us.p99 as f64)
}

/// Partitions of the others that do not live on the core of the hot one.
fn elsewhere(cluster: &mut Cluster) -> Result<Vec<usize>> {
    let mut cores = |topic| -> Result<Vec<i32>> {
        let found = cluster.topic(topic, MissingTopic::Refuse)?;
        let cores = found.partitions.iter().map(|partition| partition.core);
        cores
            .collect::<Option<_>>()
            .context("the broker does not tell the cores of partitions")
    };
    let hot = *cores(HOT)?.first().context("one partition")?;
    let others = cores(OTHERS)?;
    let others = others.iter().enumerate();
    Ok(others
        .filter(|(_, core)| **core != hot)
        .map(|(partition, _)| partition)
        .collect())
}

fn others_part(workload: &Workload, partitions: &[usize]) -> Result<Part> {
    let how = workload.produce.as_ref().context("others do not produce")?;
    let job = ProduceJob::new(OTHERS, workload, how)?;
    Ok(Part {
        job: Box::new(job.only(partitions)),
        ..stage::produce_part(workload, how, OTHERS)?
    })
}

fn hot_part(workload: &Workload) -> Result<Part> {
    let how = workload.produce.as_ref().context("hot does not produce")?;
    Ok(Part {
        name: "hot",
        gives_way: true,
        ..stage::produce_part(workload, how, HOT)?
    })
}

fn one_run(workload: &Workload, parts: &[Part], target: &Target) -> Result<RunReport> {
    let options = target.load_of(workload, 1);
    Ok(RunReport::of(&workload.name, &load::run(parts, &options)?))
}
