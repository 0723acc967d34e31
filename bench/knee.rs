//! `knee`: the highest open-loop rate that a broker keeps up with.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::environment::Environment;
use crate::overrides::Overrides;
use crate::report::RunReport;
use crate::rounds::{WorkloadReport, one_round, write_json};
use crate::stage;
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::{Rate, Workload, WorkloadFile};

/// A rate is held when this share of its requests is answered in the window and latency stays below the limit.
const ACHIEVED_SHARE_MIN: f64 = 0.99;
const P99_US_MAX: u64 = 50_000;
/// While no rate was too high, the next is so many times the last; while none was held, it is this part of it.
const STEP: f64 = 2.0;
/// The search ends when held and missed rates are so close.
const RESOLUTION: f64 = 0.05;
/// Rates outside are no longer sensible.
const RATE_MIN: f64 = 1.0;
const RATE_MAX: f64 = 100_000_000.0;

/// Flags of `knee`.
#[derive(clap::Args, Clone, Debug)]
pub struct KneeOptions {
    /// A workload of bench/workloads/ by name, or a .toml file; its producers get the rate, without any its consumers
    pub workload: String,
    /// What to push at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What to change; a rate is where the search begins
    #[command(flatten)]
    pub overrides: Overrides,
    /// No further step is begun after so many minutes
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Load threads per part
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The result; its JSON has stable names.
#[derive(Debug, Serialize)]
pub struct KneeReport {
    /// What was run.
    pub workload: WorkloadReport,
    /// Against what.
    pub target: TargetReport,
    /// On what.
    pub environment: Environment,
    /// Highest rate that was held, in requests per second; absent if none was.
    pub knee_requests_per_second: Option<f64>,
    /// The same in 10^6 bytes of record batches per second.
    pub knee_mb_per_second: Option<f64>,
    /// Lowest rate that was missed; absent if none was.
    pub missed_requests_per_second: Option<f64>,
    /// Whether the search came to its end before its time did.
    pub is_resolved: bool,
    /// Every step.
    pub steps: Vec<Step>,
}

/// One rate that was tried.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Requests per second.
    pub rate: f64,
    /// Whether it was held.
    pub is_held: bool,
    /// Its numbers.
    pub run: RunReport,
}

/// Doubles until a rate is missed (or halves until one is held), then halves the distance between them.
#[derive(Clone, Copy, Debug)]
struct Search {
    from: f64,
    held: Option<f64>,
    missed: Option<f64>,
}

impl Search {
    fn new(from: f64) -> Search {
        Search {
            from,
            held: None,
            missed: None,
        }
    }

    /// The next rate to try; `None` at the end.
    fn next(&self) -> Option<f64> {
        let rate = match (self.held, self.missed) {
            (None, None) => self.from,
            (Some(held), None) => held * STEP,
            (None, Some(missed)) => missed / STEP,
            (Some(held), Some(missed)) if missed <= held * (1.0 + RESOLUTION) => return None,
            (Some(held), Some(missed)) => f64::midpoint(held, missed),
        };
        (RATE_MIN..=RATE_MAX).contains(&rate).then_some(rate)
    }

    /// A noisy miss below a rate that was held does not count against it, and the other way round.
    fn on_result(&mut self, rate: f64, is_held: bool) {
        if is_held {
            self.held = Some(self.held.map_or(rate, |held| held.max(rate)));
        } else {
            self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
        }
    }
}

/// Whether every open-loop part kept up.
fn is_held(run: &RunReport) -> bool {
    run.parts.iter().all(|part| {
        part.open_loop.is_none_or(|open| {
            open.achieved_share >= ACHIEVED_SHARE_MIN && part.latency_us.p99 <= P99_US_MAX
        })
    })
}

/// Searches and reports.
///
/// # Errors
/// When the broker does not start, a request fails, or the file can not be written.
pub fn run(options: &KneeOptions) -> Result<()> {
    let file = WorkloadFile::open(&options.workload)?;
    ensure!(
        options.overrides.mb_per_second.is_none(),
        "--mb-per-second: the search is in requests; give --requests-per-second to begin with"
    );
    let workload = options.overrides.apply(&file.workload)?;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let from = options.overrides.requests_per_second;
    let Found { search, steps } = search(&workload, &target, options.threads, from, end)?;
    let at_knee = steps.iter().find(|step| Some(step.rate) == search.held);
    let report = KneeReport {
        workload: WorkloadReport::of(&options.workload, &file, &workload),
        target: target.report.clone(),
        environment,
        knee_requests_per_second: search.held,
        knee_mb_per_second: at_knee.and_then(|step| Some(step.run.parts.first()?.mb_per_second)),
        missed_requests_per_second: search.missed,
        is_resolved: search.next().is_none(),
        steps,
    };
    print_report(&report);
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    target.stop()
}

/// Where a search came to.
pub(crate) struct Found {
    search: Search,
    steps: Vec<Step>,
}

impl Found {
    /// The highest rate that was held, in requests per second.
    pub(crate) fn held(&self) -> Option<f64> {
        self.search.held
    }
}

/// Searches from a rate on, else from half of what a closed loop reaches; begins no step after `end`.
///
/// # Errors
/// When a request fails.
pub(crate) fn search(
    workload: &Workload,
    target: &Target,
    threads: usize,
    from: Option<f64>,
    end: Instant,
) -> Result<Found> {
    let mut workload = workload.clone();
    let from = match from {
        Some(rate) => rate,
        None => beginning(&workload, target, threads)?,
    };
    let mut search = Search::new(from);
    let mut steps: Vec<Step> = Vec::new();
    while Instant::now() < end
        && let Some(rate) = search.next()
    {
        set_rate(&mut workload, Some(Rate::RequestsPerSecond(rate)))?;
        let run = one_round(&workload, target, threads)?.report;
        stage::settle(stage::SETTLE_MAX);
        let is_held = is_held(&run);
        let verdict = if is_held { "held" } else { "missed" };
        eprintln!("{rate:>10.0} requests/s {verdict:<6} {}", run.line());
        search.on_result(rate, is_held);
        steps.push(Step { rate, is_held, run });
    }
    Ok(Found { search, steps })
}

/// Half of what a closed loop reaches.
fn beginning(workload: &Workload, target: &Target, threads: usize) -> Result<f64> {
    let mut closed = workload.clone();
    set_rate(&mut closed, None)?;
    let run = one_round(&closed, target, threads)?.report;
    stage::settle(stage::SETTLE_MAX);
    eprintln!("closed loop: {}", run.line());
    let part = run.parts.first().context("nothing was sent")?;
    Ok((part.requests_per_second / STEP).max(RATE_MIN))
}

/// The rate of the producers, or of the consumers where nobody produces.
fn set_rate(workload: &mut Workload, rate: Option<Rate>) -> Result<()> {
    match (&mut workload.produce, &mut workload.consume) {
        (Some(produce), _) => produce.rate = rate,
        (None, Some(consume)) => consume.rate = rate,
        (None, None) => {}
    }
    workload.check()
}

fn print_report(report: &KneeReport) {
    let missed = report
        .missed_requests_per_second
        .map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}"));
    match (report.knee_requests_per_second, report.knee_mb_per_second) {
        (Some(rate), Some(mb)) => println!(
            "{}: knee at {rate:.0} requests/s, {mb:.1} MB/s; lowest rate that was missed: {missed}",
            report.workload.file
        ),
        (_, _) => println!(
            "{}: no rate was held; missed: {missed}",
            report.workload.file
        ),
    }
    if !report.is_resolved {
        println!("the time was over before the search was; raise --minutes");
    }
}

#[cfg(test)]
mod tests {
    use super::{RESOLUTION, Search, set_rate};
    use crate::workload::{Rate, Workload};

    /// The knee that the search finds, and in how many steps, when rates up to `limit` are held.
    fn found(from: f64, limit: f64) -> (f64, usize) {
        let mut search = Search::new(from);
        let mut steps = 0;
        while let Some(rate) = search.next() {
            search.on_result(rate, rate <= limit);
            steps += 1;
            assert!(steps < 100, "the search does not end");
        }
        (search.held.unwrap_or(0.0), steps)
    }

    #[test]
    fn the_search_comes_close_from_below_and_from_above() {
        for from in [10.0, 900.0, 1_000.0, 5_000.0] {
            let (knee, steps) = found(from, 1_000.0);
            assert!(
                knee <= 1_000.0 && knee * (1.0 + RESOLUTION) >= 950.0,
                "{knee}"
            );
            assert!(steps <= 14, "{steps} steps from {from}");
        }
    }

    #[test]
    fn a_broker_that_holds_nothing_or_everything_ends_the_search() {
        assert_eq!(found(1_000.0, 0.0).0, 0.0);
        assert!(found(1_000.0, f64::INFINITY).0 > 50_000_000.0);
    }

    #[test]
    fn noise_does_not_turn_the_search_around() {
        let mut search = Search::new(100.0);
        search.on_result(100.0, true);
        search.on_result(200.0, false);
        search.on_result(150.0, true);
        search.on_result(120.0, true);
        assert_eq!((search.held, search.missed), (Some(150.0), Some(200.0)));
        assert_eq!(search.next(), Some(175.0));
    }

    #[test]
    fn the_rate_goes_to_the_producers_if_there_are_any() {
        let rate = Some(Rate::RequestsPerSecond(5.0));
        let mut mixed = Workload::named("mixed").unwrap();
        set_rate(&mut mixed, rate).unwrap();
        assert_eq!(mixed.produce.unwrap().rate, rate);
        assert_eq!(mixed.consume.unwrap().rate, None);
        let mut hot = Workload::named("hot-consume").unwrap();
        set_rate(&mut hot, rate).unwrap();
        assert_eq!(hot.consume.unwrap().rate, rate);
    }
}
