//! `run`: a workload in several rounds against one broker, and its result as JSON with all that it depends on.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::backlog;
use crate::end_to_end;
use crate::environment::Environment;
use crate::hgrm;
use crate::load::{self, LoadResult, Part};
use crate::overrides::Overrides;
use crate::report::{PartReport, Percentiles, RunReport, Spread};
use crate::stage;
use crate::target::{Target, TargetArgs, TargetReport};
use crate::workload::{Workload, WorkloadFile};

/// Version of the JSON's shape: changes with every field that goes or means something else.
const SCHEMA: u32 = 1;
const TOPIC: &str = "bench";

/// Flags of `run`.
#[derive(clap::Args, Clone, Debug)]
pub struct RunOptions {
    /// A workload of bench/workloads/ by name, or a .toml file
    pub workload: String,
    /// What to push at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What to change.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Rounds
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Load threads per part (producers, consumers)
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Seconds to wait at most after each round until little is dirty
    #[arg(long, value_name = "SECONDS", default_value = "15")]
    pub settle: f64,
    /// Leave out the readers of the backlog, for comparison
    #[arg(long)]
    pub without_cold: bool,
    /// Leave the backlog in the broker, for the next run
    #[arg(long)]
    pub keep_backlog: bool,
    /// The broker's data directory: the backlog's files there are pushed out of the page cache before each round
    #[arg(long, value_name = "DIR")]
    pub evict: Option<PathBuf>,
    /// Write the result to this file, and each histogram to an .hgrm file beside it
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything about one measurement; its JSON has stable names.
#[derive(Debug, Serialize)]
pub struct ResultFile {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was run.
    pub workload: WorkloadReport,
    /// Against what.
    pub target: TargetReport,
    /// On what.
    pub environment: Environment,
    /// Load threads per part.
    pub threads: usize,
    /// Medians and spread over the rounds.
    pub figures: Vec<Figure>,
    /// Every round.
    pub rounds: Vec<RunReport>,
    /// Names of the histogram files, which lie beside this one and hold all rounds.
    pub histograms: Vec<String>,
}

/// A workload as it was run, and the file that it comes from.
#[derive(Debug, Serialize)]
pub struct WorkloadReport {
    /// As it was asked for.
    pub file: String,
    /// CRC-32C of the file's bytes, as eight hexadecimal digits.
    pub file_crc32c: String,
    /// With all defaults and flags applied.
    pub effective: Workload,
}

impl WorkloadReport {
    /// Of a file and what flags made of it.
    #[must_use]
    pub fn of(name: &str, file: &WorkloadFile, effective: &Workload) -> WorkloadReport {
        WorkloadReport {
            file: name.to_owned(),
            file_crc32c: format!("{:08x}", crc32c::crc32c(file.text.as_bytes())),
            effective: effective.clone(),
        }
    }
}

/// One number over the rounds.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// Part and unit, as `produce.mb_per_second`.
    pub name: String,
    /// Its values.
    pub value: Spread,
}

/// One round: its numbers, and the histograms they come from.
pub struct Round {
    /// The numbers.
    pub report: RunReport,
    result: LoadResult,
    end_to_end_us: Option<Histogram<u64>>,
}

/// Runs the rounds and reports them.
///
/// # Errors
/// When the broker does not start, a request fails, or a file can not be written.
pub fn run(options: &RunOptions) -> Result<()> {
    let file = WorkloadFile::open(&options.workload)?;
    let mut workload = options.overrides.apply(&file.workload)?;
    workload.measure.rounds = options.rounds.unwrap_or(workload.measure.rounds);
    workload.check()?;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    if options.without_cold && workload.cold.take().is_some() {
        workload.name += " (without cold readers)";
    }
    if let Some(cold) = &workload.cold {
        backlog::ready(cold, &target.address().to_string())?;
    }
    let settle_max = Duration::try_from_secs_f64(options.settle).context("--settle")?;
    let mut rounds = Vec::new();
    for _ in 0..workload.measure.rounds {
        if let Some(dir) = &options.evict {
            backlog::evict(dir)?;
        }
        let round = one_round(&workload, &target, options.threads)?;
        eprintln!("{}", round.report.line());
        rounds.push(round);
        stage::settle(settle_max);
    }
    let merged = merged(&rounds)?;
    for (name, histogram) in &merged {
        print!("{}", hgrm::summary(&format!("{name} latency"), histogram));
    }
    let reports: Vec<RunReport> = rounds.into_iter().map(|round| round.report).collect();
    let figures = figures(&reports);
    print_figures(&workload, &figures);
    if let Some(path) = &options.json {
        let histograms = write_histograms(path, &merged)?;
        let result = ResultFile {
            schema: SCHEMA,
            workload: WorkloadReport::of(&options.workload, &file, &workload),
            target: target.report.clone(),
            environment,
            threads: options.threads,
            figures,
            rounds: reports,
            histograms,
        };
        write_json(path, &result)?;
    }
    if !options.keep_backlog {
        backlog::remove(&target.address().to_string())?;
    }
    target.stop()
}

/// Writes a result.
///
/// # Errors
/// When the file can not be written.
pub fn write_json(path: &Path, result: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(result)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// One round on a topic of its own, which is deleted afterwards.
///
/// # Errors
/// When a request fails.
pub fn one_round(workload: &Workload, target: &Target, threads: usize) -> Result<Round> {
    let address = target.address().to_string();
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, workload.partitions, &workload.topic)?;
    let outcome = stage::parts(workload, TOPIC, &address)
        .and_then(|parts| loaded(workload, &parts, target, threads));
    let deleted = cluster.delete_topic(TOPIC);
    let round = outcome?;
    deleted?;
    Ok(round)
}

fn loaded(workload: &Workload, parts: &[Part], target: &Target, threads: usize) -> Result<Round> {
    let options = target.load_of(workload, threads);
    let probe = workload.end_to_end.clone().map(|how| {
        let options = options.clone();
        thread::spawn(move || end_to_end::probe(&how, &options))
    });
    let result = load::run(parts, &options);
    let probed = probe.map(|thread| {
        let joined = thread.join();
        joined.unwrap_or_else(|_| Err(anyhow!("the end-to-end probe panicked")))
    });
    let result = result?;
    ensure!(result.requests() > 0, "no request was answered");
    let end_to_end_us = probed.transpose()?;
    let mut report = RunReport::of(&workload.name, &result);
    report.end_to_end_us = end_to_end_us.as_ref().map(Percentiles::of);
    Ok(Round {
        report,
        result,
        end_to_end_us,
    })
}

/// The histograms of all rounds, by name.
fn merged(rounds: &[Round]) -> Result<Vec<(String, Histogram<u64>)>> {
    let mut sums: Vec<(String, Histogram<u64>)> = Vec::new();
    for round in rounds {
        let parts = round.result.parts.iter();
        let named = parts
            .map(|part| (part.name, &part.latency_us))
            .chain(round.end_to_end_us.iter().map(|us| ("end-to-end", us)));
        for (name, histogram) in named {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => load::add(sum, histogram)?,
                None => sums.push((name.to_owned(), histogram.clone())),
            }
        }
    }
    Ok(sums)
}

/// `out.json` gets `out.produce.hgrm` and so on beside it; returns their names.
fn write_histograms(json: &Path, histograms: &[(String, Histogram<u64>)]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, histogram) in histograms {
        let path = json.with_extension(format!("{name}.hgrm"));
        fs::write(&path, hgrm::table(histogram))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let file = path.file_name().context("a file has a name")?;
        names.push(file.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The numbers that matter, over the rounds.
fn figures(rounds: &[RunReport]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |name: String, of: &dyn Fn(&RunReport) -> Option<f64>| {
        let values: Option<Vec<f64>> = rounds.iter().map(of).collect();
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let value = Spread::of(values);
            figures.push(Figure { name, value });
        }
    };
    let parts = rounds.first().map_or(0, |first| first.parts.len());
    for which in 0..parts {
        for (unit, of) in PART_FIGURES {
            let name = format!("{}.{unit}", rounds[0].parts[which].name);
            add(name, &|round| of(round.parts.get(which)?));
        }
    }
    for (name, of) in RUN_FIGURES {
        add(name.to_owned(), &of);
    }
    figures
}

type PartFigure = (&'static str, fn(&PartReport) -> Option<f64>);
type RunFigure = (&'static str, fn(&RunReport) -> Option<f64>);

const PART_FIGURES: [PartFigure; 7] = [
    ("mb_per_second", |part| Some(part.mb_per_second)),
    ("requests_per_second", |part| Some(part.requests_per_second)),
    ("p50_us", |part| Some(part.latency_us.p50 as f64)),
    ("p99_us", |part| Some(part.latency_us.p99 as f64)),
    ("p999_us", |part| part.latency_us.p999.map(|us| us as f64)),
    ("achieved_share", |part| {
        part.open_loop.map(|open| open.achieved_share)
    }),
    ("send_delay_p99_us", |part| {
        part.open_loop.map(|open| open.send_delay_us.p99 as f64)
    }),
];

const RUN_FIGURES: [RunFigure; 6] = [
    ("end_to_end.p50_us", |run| {
        run.end_to_end_us.map(|us| us.p50 as f64)
    }),
    ("end_to_end.p99_us", |run| {
        run.end_to_end_us.map(|us| us.p99 as f64)
    }),
    ("broker_cpu_s_per_gb", |run| run.broker_cpu_s_per_gb),
    ("broker_cpu_us_per_request", |run| {
        run.broker_cpu_us_per_request
    }),
    ("broker_cpus", |run| run.broker_cpus),
    ("machine_cpus", |run| Some(run.machine_cpus)),
];

fn print_figures(workload: &Workload, figures: &[Figure]) {
    println!(
        "{}: medians (min-max) of {} rounds",
        workload.name, workload.measure.rounds
    );
    for figure in figures {
        println!("  {:<28} {:>32}", figure.name, figure.value.shown(3));
    }
}

#[cfg(test)]
mod tests {
    use super::{ResultFile, SCHEMA, WorkloadReport, figures, merged, write_histograms};
    use crate::environment::Environment;
    use crate::load::{LoadResult, OpenResult, PartResult, new_histogram};
    use crate::report::RunReport;
    use crate::rounds::Round;
    use crate::target::TargetReport;
    use crate::workload::WorkloadFile;
    use std::path::Path;
    use std::time::Duration;

    fn part(name: &'static str, requests: u64, open: Option<OpenResult>) -> PartResult {
        let mut latency_us = new_histogram().unwrap();
        latency_us.record_n(100, requests).unwrap();
        PartResult {
            name,
            requests,
            bytes: requests * 1_000_000,
            latency_us,
            times: Vec::new(),
            open,
        }
    }

    /// Two seconds in which so many requests of 1 MB were answered, ten more than that were due, and half as many read.
    fn round(requests: u64) -> Round {
        let open = OpenResult {
            intended: requests + 10,
            backlog_max: 7,
            unanswered: 10,
            send_delay_us: new_histogram().unwrap(),
        };
        let result = LoadResult {
            elapsed: Duration::from_secs(2),
            parts: vec![
                part("produce", requests, Some(open)),
                part("consume", requests / 2, None),
            ],
            broker_cpu: Some(Duration::from_secs(1)),
            machine_busy: Duration::from_secs(3),
        };
        Round {
            report: RunReport::of("x", &result),
            result,
            end_to_end_us: None,
        }
    }

    #[test]
    fn figures_are_medians_of_each_part_and_of_the_run() {
        let rounds: Vec<RunReport> = [90, 190, 990].map(|n| round(n).report).into();
        let figures = figures(&rounds);
        let median = |name: &str| {
            let found = figures.iter().find(|figure| figure.name == name);
            found.unwrap_or_else(|| panic!("no {name}")).value.median
        };
        assert_eq!(median("produce.mb_per_second"), 95.0);
        assert_eq!(median("produce.achieved_share"), 0.95);
        assert_eq!(median("consume.requests_per_second"), 47.5);
        assert_eq!(median("broker_cpus"), 0.5);
        assert_eq!(median("machine_cpus"), 1.5);
        // Consumers are closed-loop here, and there are too few samples for the far tail.
        let names: Vec<&str> = figures.iter().map(|f| &f.name[..]).collect();
        assert!(!names.contains(&"consume.achieved_share"));
        assert!(!names.contains(&"produce.p999_us"));
    }

    #[test]
    fn the_json_has_its_shape() {
        let file = WorkloadFile::open("open-mixed").unwrap();
        let rounds = [round(100), round(200)];
        let reports: Vec<RunReport> = rounds.iter().map(|r| r.report.clone()).collect();
        let result = ResultFile {
            schema: SCHEMA,
            workload: WorkloadReport::of("open-mixed", &file, &file.workload),
            target: TargetReport {
                address: "127.0.0.1:9092".parse().unwrap(),
                is_ours: true,
                command_line: vec!["thalweg".to_owned(), "serve".to_owned()],
                broker_cpu: Some(0),
                load_cpu: Some(1),
            },
            environment: Environment::of(Path::new(".")),
            threads: 1,
            figures: figures(&reports),
            rounds: reports,
            histograms: vec!["x.produce.hgrm".to_owned()],
        };
        let json = serde_json::to_value(&result).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        let expected = [
            "environment",
            "figures",
            "histograms",
            "rounds",
            "schema",
            "target",
            "threads",
            "workload",
        ];
        assert_eq!(keys, expected);
        let at = |path: &str| {
            json.pointer(path)
                .unwrap_or_else(|| panic!("no {path}"))
                .clone()
        };
        assert_eq!(at("/schema"), 1);
        assert_eq!(at("/workload/effective/produce/rate/mb_per_second"), 50.0);
        assert_eq!(at("/workload/file_crc32c").as_str().unwrap().len(), 8);
        assert_eq!(at("/target/command_line/1"), "serve");
        assert_eq!(at("/rounds/1/parts/0/open_loop/unanswered"), 10);
        assert_eq!(at("/rounds/0/parts/1/latency_us/p99"), 100);
        assert_eq!(at("/figures/0/name"), "produce.mb_per_second");
        assert_eq!(at("/figures/0/value/rounds").as_array().unwrap().len(), 2);
        for key in ["commit", "kernel", "cpu", "disk", "filesystem", "settings"] {
            at(&format!("/environment/{key}"));
        }
    }

    #[test]
    fn histograms_of_all_rounds_lie_beside_the_json() {
        let folder = tempfile::tempdir().unwrap();
        let merged = merged(&[round(100), round(200)]).unwrap();
        let names = write_histograms(&folder.path().join("out.json"), &merged).unwrap();
        assert_eq!(names, ["out.produce.hgrm", "out.consume.hgrm"]);
        let text = std::fs::read_to_string(folder.path().join("out.produce.hgrm")).unwrap();
        assert!(text.contains("Total count    =          300]"), "{text}");
    }
}
