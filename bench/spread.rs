//! `spread`: whether a one-record request costs the same over few partitions and many, by few connections and many.
//!
//! CPU per request, in rounds in which every width has its turn. Over partitions a closed loop keeps 64 requests in
//! flight; over connections an open loop keeps the rate the same.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::environment::Environment;
use crate::report::{RunReport, Spread};
use crate::rounds::{one_round, write_json};
use crate::stage::{SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::{Rate, Workload};

const WORKLOAD: &str = "one-record";

/// Flags of `spread`.
#[derive(clap::Args, Clone, Debug)]
pub struct SpreadOptions {
    /// What to push at
    #[command(flatten)]
    pub target: TargetArgs,
    /// Partitions, with 64 requests in flight over 64 connections
    #[arg(long, value_delimiter = ',', default_value = "1,16,256,2000")]
    pub partitions: Vec<usize>,
    /// Connections, at the rate below
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    pub connections: Vec<usize>,
    /// Requests per second over connections
    #[arg(long, default_value_t = 10_000.0)]
    pub requests_per_second: f64,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per run
    #[arg(long, default_value_t = 8.0)]
    pub seconds: f64,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct SpreadReport {
    environment: Environment,
    target: TargetReport,
    requests_per_second: f64,
    widths: Vec<Width>,
    /// CPU per request of the widest over the narrowest, round by round.
    partitions_ratio: Spread,
    /// The dearest over the cheapest, round by round.
    connections_ratio: Spread,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Over {
    Partitions,
    Connections,
}

/// One width in all rounds.
#[derive(Debug, Serialize)]
struct Width {
    over: Over,
    count: usize,
    cpu_us_per_request: Spread,
    runs: Vec<RunReport>,
}

impl Over {
    /// The workload so wide.
    fn workload(self, options: &SpreadOptions, count: usize) -> Result<Workload> {
        let mut workload = Workload::named(WORKLOAD)?;
        workload.measure.seconds = options.seconds;
        let produce = workload.produce.as_mut().context("it does not produce")?;
        match self {
            Over::Partitions => workload.partitions = count,
            Over::Connections => {
                produce.connections = count;
                produce.in_flight = 16;
                produce.rate = Some(Rate::RequestsPerSecond(options.requests_per_second));
            }
        }
        workload.check()?;
        Ok(workload)
    }

    fn name(self) -> &'static str {
        match self {
            Over::Partitions => "partitions",
            Over::Connections => "connections",
        }
    }
}

/// Runs the rounds and prints the ratios.
///
/// # Errors
/// When the broker does not start, or a request fails.
pub fn run(options: &SpreadOptions) -> Result<()> {
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    target
        .pid
        .context("--against needs --broker-pid, for the CPU time")?;
    let partitions = options.partitions.iter().map(|n| (Over::Partitions, *n));
    let connections = options.connections.iter().map(|n| (Over::Connections, *n));
    let all: Vec<(Over, usize)> = partitions.chain(connections).collect();
    let mut runs: Vec<Vec<RunReport>> = all.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for ((over, count), runs) in all.iter().zip(&mut runs) {
            let workload = over.workload(options, *count)?;
            let run = one_round(&workload, &target, 1)?.report;
            eprintln!("{count:>6} {}: {}", over.name(), run.line());
            runs.push(run);
            settle(SETTLE_MAX);
        }
    }
    let mut widths = Vec::new();
    for ((over, count), runs) in all.into_iter().zip(runs) {
        let cpu = runs.iter().map(|run| run.broker_cpu_us_per_request);
        let cpu = cpu.collect::<Option<_>>().context("no CPU time is known")?;
        let cpu_us_per_request = Spread::of(cpu);
        println!(
            "{count:>6} {:<12} {:>24} us of CPU per request",
            over.name(),
            cpu_us_per_request.shown(1)
        );
        widths.push(Width {
            over,
            count,
            cpu_us_per_request,
            runs,
        });
    }
    let partitions_ratio = Spread::of(by_round(&widths, Over::Partitions, |costs| {
        Some(costs.last()? / costs.first()?)
    }));
    let connections_ratio = Spread::of(by_round(&widths, Over::Connections, |costs| {
        let dearest = costs.iter().copied().reduce(f64::max)?;
        Some(dearest / costs.iter().copied().reduce(f64::min)?)
    }));
    println!("most partitions / fewest: {}", partitions_ratio.shown(2));
    println!(
        "connections, dearest / cheapest: {}",
        connections_ratio.shown(2)
    );
    if let Some(path) = &options.json {
        let report = SpreadReport {
            environment,
            target: target.report.clone(),
            requests_per_second: options.requests_per_second,
            widths,
            partitions_ratio,
            connections_ratio,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

/// What `ratio` makes of the costs of all widths of one kind, in their order, round by round.
fn by_round(widths: &[Width], over: Over, ratio: impl Fn(&[f64]) -> Option<f64>) -> Vec<f64> {
    let costs: Vec<&[f64]> = widths
        .iter()
        .filter(|width| width.over == over)
        .map(|width| &width.cpu_us_per_request.rounds[..])
        .collect();
    let rounds = costs.first().map_or(0, |first| first.len());
    let of_round = |round| {
        let costs: Vec<f64> = costs.iter().map(|costs: &&[f64]| costs[round]).collect();
        ratio(&costs)
    };
    (0..rounds).filter_map(of_round).collect()
}

#[cfg(test)]
mod tests {
    use super::{Over, Width, by_round};
    use crate::report::Spread;

    #[test]
    fn ratios_are_taken_within_each_round() {
        let width = |over, count, rounds: &[f64]| Width {
            over,
            count,
            cpu_us_per_request: Spread::of(rounds.to_vec()),
            runs: Vec::new(),
        };
        let widths = [
            width(Over::Partitions, 1, &[10.0, 20.0]),
            width(Over::Connections, 10, &[7.0, 7.0]),
            width(Over::Partitions, 16, &[15.0, 30.0]),
            width(Over::Partitions, 256, &[20.0, 60.0]),
        ];
        let last_by_first = |costs: &[f64]| Some(costs.last()? / costs.first()?);
        assert_eq!(
            by_round(&widths, Over::Partitions, last_by_first),
            [2.0, 3.0]
        );
        assert_eq!(
            by_round(&widths, Over::Connections, last_by_first),
            [1.0, 1.0]
        );
        assert!(by_round(&[], Over::Partitions, last_by_first).is_empty());
    }
}
