//! `overload`: how long a broker takes to recover from far more than it can do (BI-33).
//!
//! A probe sends at a small part of the knee all the time, over connections of its own. Then others ask for several times
//! the knee for a while and go. Each second of the probe is judged by its own p99; the broker has recovered with the
//! first of several seconds in a row that are about as good as the worst one before the overload.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;

use crate::cpu;
use crate::environment::Environment;
use crate::knee;
use crate::load::{self, Keep, LoadOptions, Part, new_histogram, record};
use crate::report::{Percentiles, RunReport, Spread};
use crate::rounds::write_json;
use crate::stage::{self, SETTLE_MAX, settle};
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::{Rate, Workload};

const PROBED: &str = "bench-overload-probe";
const OVERLOADED: &str = "bench-overload";
/// A second is as good as before when its p99 is at most so many times that of the worst second before.
const RECOVERED_RATIO: f64 = 1.5;
/// So many good seconds in a row are no accident.
const RECOVERED_SECONDS: usize = 3;
/// The probe's part of the knee.
const PROBE_SHARE: f64 = 0.05;
const PROBE_CONNECTIONS: usize = 8;
/// Requests in flight on each connection, at most, whatever the workload says: clients that overload do not hold back.
const IN_FLIGHT: usize = 16;
/// How long the probe goes on for itself first.
const BEFORE: Duration = Duration::from_secs(10);

/// Flags of `overload`.
#[derive(clap::Args, Clone, Debug)]
pub struct OverloadOptions {
    /// What to push at
    #[command(flatten)]
    pub target: TargetArgs,
    /// A workload of bench/workloads/ with producers, by name, or a .toml file
    #[arg(long, default_value = "one-record-1000")]
    pub workload: String,
    /// Its knee, as `knee` finds it; else that is searched first
    #[arg(long, value_name = "REQUESTS_PER_SECOND")]
    pub knee: Option<f64>,
    /// How many times the knee is asked for
    #[arg(long, default_value_t = 5.0)]
    pub times: f64,
    /// Seconds of overload
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Seconds that are watched after it
    #[arg(long, default_value_t = 45.0)]
    pub after: f64,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Minutes that the search for the knee may take
    #[arg(long, default_value_t = 5.0)]
    pub minutes: f64,
    /// Load threads of the overload
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
struct OverloadReport {
    environment: Environment,
    target: TargetReport,
    knee_requests_per_second: f64,
    times: f64,
    seconds: f64,
    rounds: Vec<OverloadRound>,
    /// Seconds until it had recovered, round by round.
    recovery_seconds: Spread,
}

#[derive(Debug, Serialize)]
struct OverloadRound {
    /// What the overload got.
    overload: RunReport,
    /// The probe's p99 in each second before it.
    before_p99_us: Vec<u64>,
    /// During it.
    during_p99_us: Vec<u64>,
    /// From its end on.
    after_p99_us: Vec<u64>,
    /// Seconds from its end until the broker had recovered.
    recovery_seconds: f64,
    /// What the broker had in memory; absent of a broker whose process is not known.
    resident_mib: Option<Resident>,
}

/// Resident memory of the broker in MiB. What it keeps for requests, it keeps: it should be no more in a later round
/// than it was after the first.
#[derive(Clone, Copy, Debug, Serialize)]
struct Resident {
    /// Right before the overload.
    before: f64,
    /// As it ends.
    during: f64,
    /// When it is no longer watched.
    after: f64,
}

impl Resident {
    /// Of bytes; `None` where one is not known.
    fn of(before: Option<u64>, during: Option<u64>, after: Option<u64>) -> Option<Resident> {
        let mib = |bytes: Option<u64>| Some(bytes? as f64 / f64::from(1 << 20));
        Some(Resident {
            before: mib(before)?,
            during: mib(during)?,
            after: mib(after)?,
        })
    }
}

/// Runs the rounds and prints how long the recovery took.
///
/// # Errors
/// When the broker does not start, a request fails, or it does not recover while it is watched.
pub fn run(options: &OverloadOptions) -> Result<()> {
    let workload = Workload::named(&options.workload)?;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let knee = match options.knee {
        Some(knee) => knee,
        None => {
            let minutes = Duration::from_secs_f64(options.minutes * 60.0);
            let end = Instant::now() + minutes;
            let found = knee::search(&workload, &target, options.threads, None, end)?;
            found.held().context("no rate was held: give --knee")?
        }
    };
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let round = one_round(&workload, &target, knee, options)?;
        eprintln!(
            "{}; p99 at most {} us before, {} us during; recovered after {:.0} s",
            round.overload.line(),
            worst(&round.before_p99_us),
            worst(&round.during_p99_us),
            round.recovery_seconds
        );
        if let Some(resident) = round.resident_mib {
            let Resident {
                before,
                during,
                after,
            } = resident;
            eprintln!(
                "resident MiB: {before:.1} before, {during:.1} as it ended, {after:.1} after"
            );
        }
        rounds.push(round);
        settle(SETTLE_MAX);
    }
    let recovery_seconds = rounds.iter().map(|round| round.recovery_seconds);
    let recovery_seconds = Spread::of(recovery_seconds.collect());
    println!(
        "seconds until recovered from {} times the knee of {knee:.0} requests/s: {}",
        options.times,
        recovery_seconds.shown(0)
    );
    if let Some(path) = &options.json {
        let report = OverloadReport {
            environment,
            target: target.report.clone(),
            knee_requests_per_second: knee,
            times: options.times,
            seconds: options.seconds,
            rounds,
            recovery_seconds,
        };
        write_json(path, &report)?;
    }
    target.stop()
}

fn worst(seconds: &[u64]) -> u64 {
    seconds.iter().copied().max().unwrap_or(0)
}

fn one_round(
    workload: &Workload,
    target: &Target,
    knee: f64,
    options: &OverloadOptions,
) -> Result<OverloadRound> {
    let mut cluster = stage::cluster(&target.address().to_string())?;
    for topic in [PROBED, OVERLOADED] {
        stage::create_topic(&mut cluster, topic, workload.partitions, &workload.topic)?;
    }
    let outcome = overloaded(workload, target, knee, options);
    for topic in [PROBED, OVERLOADED] {
        cluster.delete_topic(topic)?;
    }
    outcome
}

/// The producers of the workload at this rate, by so many connections.
fn part(workload: &Workload, topic: &str, rate: f64, connections: Option<usize>) -> Result<Part> {
    let mut how = workload.produce.clone().context("it does not produce")?;
    how.rate = Some(Rate::RequestsPerSecond(rate));
    how.connections = connections.unwrap_or(how.connections);
    how.in_flight = IN_FLIGHT;
    stage::produce_part(workload, &how, topic)
}

fn overloaded(
    workload: &Workload,
    target: &Target,
    knee: f64,
    options: &OverloadOptions,
) -> Result<OverloadRound> {
    let overload = Duration::from_secs_f64(options.seconds);
    let watched = BEFORE + overload + Duration::from_secs_f64(options.after);
    let mut probe = part(
        workload,
        PROBED,
        knee * PROBE_SHARE,
        Some(PROBE_CONNECTIONS),
    )?;
    probe.keep = Keep::Times;
    let pushed = part(workload, OVERLOADED, knee * options.times, None)?;
    let load = |measure, threads| LoadOptions {
        address: target.address(),
        threads,
        warm_up: Duration::ZERO,
        measure,
        broker_pid: target.pid,
    };
    let began = Instant::now();
    let probe_load = load(watched, 1);
    let probing = thread::spawn(move || load::run(&[probe], &probe_load));
    let resident = || target.pid.map(cpu::resident_bytes).transpose();
    thread::sleep(BEFORE);
    let resident_before = resident()?;
    let pushed_from = began.elapsed();
    let result = load::run(&[pushed], &load(overload, options.threads));
    let pushed_to = began.elapsed();
    let resident_during = resident()?;
    let probed = probing
        .join()
        .map_err(|_| anyhow!("the probe panicked"))??;
    let resident_after = resident()?;
    let probe = probed.parts.first().context("the probe reports")?;
    let seconds = by_second(&probe.times, began)?;
    let split = |duration: Duration| (duration.as_secs() as usize).min(seconds.len());
    // A request counts in the second in which it was due: one from during the overload is not one after it.
    let (from, to) = (
        split(pushed_from),
        split(pushed_to + Duration::from_secs(1)),
    );
    ensure!(from < to && to < seconds.len(), "the probe ended too early");
    let (before, during, after) = (&seconds[..from], &seconds[from..to], &seconds[to..]);
    Ok(OverloadRound {
        overload: RunReport::of(&workload.name, &result?),
        before_p99_us: before.to_vec(),
        during_p99_us: during.to_vec(),
        after_p99_us: after.to_vec(),
        recovery_seconds: recovered(worst(before), after).with_context(|| {
            format!(
                "no recovery within {} s: p99 by second {after:?} us",
                after.len()
            )
        })?,
        resident_mib: Resident::of(resident_before, resident_during, resident_after),
    })
}

/// The p99 in microseconds of what was due in each whole second from `began` on.
fn by_second(times: &[(Instant, Instant)], began: Instant) -> Result<Vec<u64>> {
    let mut seconds = Vec::new();
    for (due, ended) in times {
        let second = due.saturating_duration_since(began).as_secs() as usize;
        while seconds.len() <= second {
            seconds.push(new_histogram()?);
        }
        record(&mut seconds[second], ended.saturating_duration_since(*due));
    }
    // The last one is cut short.
    seconds.pop();
    Ok(seconds.iter().map(|us| Percentiles::of(us).p99).collect())
}

/// Whole seconds until [`RECOVERED_SECONDS`] in a row are no worse than they were; `None` when that does not come.
fn recovered(before: u64, after: &[u64]) -> Option<f64> {
    let limit = before as f64 * RECOVERED_RATIO;
    let good = |seconds: &[u64]| seconds.iter().all(|p99| *p99 as f64 <= limit);
    let at = after.windows(RECOVERED_SECONDS).position(good)?;
    Some(at as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{by_second, recovered};

    #[test]
    fn recovered_is_with_the_first_of_several_good_seconds() {
        assert_eq!(recovered(100, &[90, 150, 100]), Some(0.0));
        assert_eq!(recovered(100, &[9_000, 90, 151, 90, 90, 90]), Some(3.0));
        assert_eq!(recovered(100, &[90, 90, 900]), None);
        assert_eq!(recovered(100, &[]), None);
    }

    #[test]
    fn a_late_answer_counts_in_the_second_in_which_it_was_due() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let times = [
            (at(2_500), at(2_501)),
            (at(100), at(101)),
            (at(900), at(2_900)),
            (at(1_100), at(1_103)),
        ];
        let seconds = by_second(&times, began).expect("histograms");
        assert_eq!(seconds.len(), 2, "without the last");
        assert!((1_990_000..2_010_000).contains(&seconds[0]), "{seconds:?}");
        assert!((2_990..3_010).contains(&seconds[1]), "{seconds:?}");
    }
}
