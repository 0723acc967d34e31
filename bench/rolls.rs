//! `rolls`: whether requests near the beginning of a segment wait longer than the rest.
//!
//! The workload has one partition and one record per batch, so that the offset in an answer says which request began a
//! segment. A request is near when any of its time lies within a stated time of such an answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::environment::Environment;
use crate::job::ProduceJob;
use crate::load::{self, Job, Keep, new_histogram};
use crate::report::{Percentiles, Spread};
use crate::rounds::write_json;
use crate::stage::{self, SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::Workload;

const TOPIC: &str = "bench-rolls";

/// Flags of `rolls`.
#[derive(clap::Args, Clone, Debug)]
pub struct RollsOptions {
    /// What to push at
    #[command(flatten)]
    pub target: TargetArgs,
    /// A workload of one partition, one record per batch and a stated `segment.bytes`
    #[arg(long, default_value = "rolling")]
    pub workload: String,
    /// Milliseconds around a roll within which a request is near it
    #[arg(long, default_value_t = 50)]
    pub near_ms: u64,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per round, instead of the workload's
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct RollsReport {
    environment: Environment,
    target: TargetReport,
    near_ms: u64,
    rounds: Vec<RollsRound>,
    /// p99.9 near a roll over that of the rest, round by round.
    p999_ratio: Spread,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct RollsRound {
    rolls: usize,
    near_us: Percentiles,
    rest_us: Percentiles,
}

/// Runs the rounds and prints the ratio.
///
/// # Errors
/// When the workload is of another shape, the broker does not start, or a request fails.
pub fn run(options: &RollsOptions) -> Result<()> {
    let mut workload = Workload::named(&options.workload)?;
    workload.measure.seconds = options.seconds.unwrap_or(workload.measure.seconds);
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let near = Duration::from_millis(options.near_ms);
    let mut rounds = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..options.rounds {
        let round = one_round(&workload, &target, near)?;
        let far = |us: &Percentiles| us.p999.context("too few samples for a p99.9: --seconds");
        let ratio = far(&round.near_us)? as f64 / far(&round.rest_us)? as f64;
        eprintln!(
            "{} rolls: p99.9 near {} us of {}, rest {} us of {}: {ratio:.2}",
            round.rolls,
            far(&round.near_us)?,
            round.near_us.samples,
            far(&round.rest_us)?,
            round.rest_us.samples
        );
        rounds.push(round);
        ratios.push(ratio);
        settle(SETTLE_MAX);
    }
    let p999_ratio = Spread::of(ratios);
    println!("p99.9 near a roll / of the rest: {}", p999_ratio.shown(2));
    if let Some(path) = &options.json {
        let report = RollsReport {
            environment,
            target: target.report.clone(),
            near_ms: options.near_ms,
            rounds,
            p999_ratio,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

fn one_round(workload: &Workload, target: &Target, near: Duration) -> Result<RollsRound> {
    let address = target.address().to_string();
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, 1, &workload.topic)?;
    let outcome = loaded(workload, target, near);
    cluster.delete_topic(TOPIC)?;
    outcome
}

fn loaded(workload: &Workload, target: &Target, near: Duration) -> Result<RollsRound> {
    let how = workload.produce.as_ref().context("it does not produce")?;
    let mut part = stage::produce_part(workload, how, TOPIC)?;
    let rolls = Rolls::default();
    part.job = Box::new(WatchedJob::of(workload, &rolls)?);
    part.keep = Keep::Times;
    let options = target.load_of(workload, 1);
    let result = load::run(&[part], &options)?;
    let part = result.parts.first().context("producers report")?;
    let rolls = rolls.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(!rolls.is_empty(), "no segment was begun: --seconds");
    let (near_us, rest_us) = split(&part.times, &rolls, near)?;
    Ok(RollsRound {
        rolls: rolls.len(),
        near_us: Percentiles::of(&near_us),
        rest_us: Percentiles::of(&rest_us),
    })
}

/// Latencies near one of `rolls`, which ascend, and all others.
fn split(
    times: &[(Instant, Instant)],
    rolls: &[Instant],
    near: Duration,
) -> Result<(Histogram<u64>, Histogram<u64>)> {
    let (mut is_near, mut rest) = (new_histogram()?, new_histogram()?);
    for (from, to) in times {
        // The first roll that is not over for so long already when the request begins.
        let after = rolls.partition_point(|roll| *roll + near < *from);
        let touches = rolls.get(after).is_some_and(|roll| *roll <= *to + near);
        let histogram = if touches { &mut is_near } else { &mut rest };
        load::record(histogram, to.saturating_duration_since(*from));
    }
    Ok((is_near, rest))
}

/// When segments were begun, as far as answers say.
type Rolls = Arc<Mutex<Vec<Instant>>>;

/// Produce requests whose answers are looked at for the first offset of a segment.
#[derive(Clone)]
struct WatchedJob {
    job: ProduceJob,
    /// Batches of a whole segment.
    per_segment: i64,
    rolls: Rolls,
}

impl WatchedJob {
    fn of(workload: &Workload, rolls: &Rolls) -> Result<WatchedJob> {
        let how = workload.produce.as_ref().context("it does not produce")?;
        let job = ProduceJob::new(TOPIC, workload, how)?;
        ensure!(
            workload.partitions == 1 && workload.batch_bytes == 1 && how.acks != 0,
            "offsets say where segments begin only with one partition, one record per batch and acks"
        );
        let segment = workload.topic.get("segment.bytes");
        let segment: u64 = segment.context("no `segment.bytes`")?.parse()?;
        Ok(WatchedJob {
            per_segment: i64::try_from(segment / job.bytes_per_request())?,
            job,
            rolls: Arc::clone(rolls),
        })
    }
}

impl Job for WatchedJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        self.job.next(conn, correlation, head)
    }

    fn tail(&self, token: usize) -> &[u8] {
        self.job.tail(token)
    }

    fn check(&mut self, conn: usize, head: &[u8]) -> Result<u64> {
        let bytes = self.job.check(conn, head)?;
        let offset = self.job.base_offset(head)?;
        if offset > 0 && offset % self.per_segment == 0 {
            let mut rolls = self.rolls.lock().unwrap_or_else(PoisonError::into_inner);
            rolls.push(Instant::now());
        }
        Ok(bytes)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        self.job.unanswered_bytes()
    }

    fn bytes_per_request(&self) -> u64 {
        self.job.bytes_per_request()
    }

    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::split;
    use crate::workload::Workload;

    #[test]
    fn requests_are_near_a_roll_or_not() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let rolls = [at(1_000), at(2_000)];
        let times = [
            (at(0), at(949)),
            (at(0), at(950)),
            (at(1_050), at(1_060)),
            (at(1_051), at(1_949)),
            (at(1_500), at(3_000)),
            (at(2_051), at(9_000)),
        ];
        let (near, rest) = split(&times, &rolls, Duration::from_millis(50)).unwrap();
        assert_eq!((near.len(), rest.len()), (3, 3));
        assert_eq!(near.min(), 10_000);
    }

    #[test]
    fn the_named_workload_rolls_about_once_a_second() {
        let workload = Workload::named("rolling").unwrap();
        let job = super::WatchedJob::of(&workload, &super::Rolls::default()).unwrap();
        assert!((9_000..11_000).contains(&job.per_segment));
        let other = Workload::named("bulk-produce").unwrap();
        assert!(super::WatchedJob::of(&other, &super::Rolls::default()).is_err());
    }
}
