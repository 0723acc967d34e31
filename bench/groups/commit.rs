//! Offset commits beside one-record produces, in pairs of rounds: CPU time of the broker per request.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection};

use super::find_coordinator;
use crate::job::CommitJob;
use crate::load::{self, Keep, LoadOptions, Part};
use crate::report::Spread;
use crate::stage;
use crate::target::{Target, TargetArgs};
use crate::workload::{Reader, Workload};

const TOPIC: &str = "bench-commit";

/// Flags of `groups commit`.
#[derive(clap::Args, Clone, Debug)]
pub struct CommitOptions {
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Connections, each with a group of its own that commits one offset per request
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Pairs of rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of each round
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

#[derive(Serialize)]
struct Report {
    connections: usize,
    commit_cpu_us: Spread,
    produce_cpu_us: Spread,
    /// Commit over produce, pair by pair.
    ratio: Spread,
    commits_per_second: Spread,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start, or refuses.
pub fn run(options: &CommitOptions) -> Result<()> {
    let target = Target::ready(&options.target)?;
    let pid = target
        .pid
        .context("whose CPU? give --broker-pid with --against")?;
    let address = target.address().to_string();
    let mut workload = Workload::named("one-record")?;
    if let Some(how) = &mut workload.produce {
        how.connections = options.connections;
    }
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, workload.partitions, &workload.topic)?;
    let mut connection = Connection::connect(&address, &ConnectOptions::default())?;
    find_coordinator(&mut connection, TOPIC)?;
    let how = LoadOptions {
        address: target.address(),
        threads: 1,
        warm_up: Duration::from_secs(1),
        measure: Duration::from_secs_f64(options.seconds),
        broker_pid: Some(pid),
    };
    let cost = |part: Part| -> Result<(f64, f64)> {
        let result = load::run(&[part], &how)?;
        let cost = result
            .cpu_us_per_request()
            .context("nothing was answered")?;
        Ok((
            cost,
            result.requests() as f64 / result.elapsed.as_secs_f64(),
        ))
    };
    let (mut commits, mut produces, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let produce = workload.produce.as_ref().context("a produce workload")?;
        produces.push(cost(stage::produce_part(&workload, produce, TOPIC)?)?.0);
        let (cost, rate) = cost(commit_part(options.connections)?)?;
        commits.push(cost);
        rates.push(rate);
    }
    let ratios = commits
        .iter()
        .zip(&produces)
        .map(|(commit, produce)| commit / produce);
    let report = Report {
        connections: options.connections,
        ratio: Spread::of(ratios.collect()),
        commit_cpu_us: Spread::of(commits),
        produce_cpu_us: Spread::of(produces),
        commits_per_second: Spread::of(rates),
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    target.stop()
}

fn commit_part(connections: usize) -> Result<Part> {
    Ok(Part {
        name: "commit",
        job: Box::new(CommitJob::new(TOPIC, connections)?),
        connections,
        in_flight: 1,
        rate: None,
        reader: Reader::Copy,
        keep: Keep::Latency,
        gives_way: false,
    })
}
