//! `compare-floor`: broker and floor in one run, turn by turn, on the same CPU.
//!
//! Each round runs every contender once, in an order that turns from round to round; ratios are taken
//! within a round, and reported as median and range over the rounds. The floor's engines compete too: per
//! workload the one with the better median is the floor.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use thalweg_client::Cluster;

use crate::cpu;
use crate::environment::Environment;
use crate::floor::EngineChoice;
use crate::load::{self, LoadOptions, Part};
use crate::process::{BrokerOptions, Server};
use crate::report::{RunReport, Spread};
use crate::stage::{self, SETTLE_MAX, settle};
use crate::workload::{Consume, Produce, Reader, Workload};

const TOPIC: &str = "bench";
/// What is compared when nothing else is said; `start` is start and memory.
const DEFAULT: [&str; 4] = ["start", "bulk-produce", "hot-consume", "one-record"];
const IDLE: Duration = Duration::from_secs(10);
const STARTS: usize = 5;

/// Flags of `compare-floor`.
#[derive(clap::Args, Clone, Debug)]
pub struct CompareOptions {
    /// The broker's binary (release build)
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for data of broker and floor; emptied between rounds
    #[arg(long, default_value = "bench/results/local/data")]
    pub dir: PathBuf,
    /// CPU that broker and floor are confined to
    #[arg(long)]
    pub broker_cpu: Option<usize>,
    /// CPU of the load generator
    #[arg(long)]
    pub load_cpu: Option<usize>,
    /// Rounds per workload
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measured seconds per run
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Seconds before measuring
    #[arg(long, default_value_t = 0.5)]
    pub warm_up: f64,
    /// Megabytes of batches that are read in a consume workload, instead of its own number
    #[arg(long)]
    pub fill_mb: Option<usize>,
    /// What becomes of the records that are read, instead of what the workload says
    #[arg(long, value_enum)]
    pub reader: Option<Reader>,
    /// Further broker properties
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
    /// Compare these workloads, each with producers or with consumers of what lies there, instead of start,
    /// bulk-produce, hot-consume and one-record; `start` is start and memory; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Everything that was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
pub struct CompareReport {
    /// What it was measured on.
    pub environment: Environment,
    /// The broker's command line.
    pub command_line: Vec<String>,
    /// Per workload.
    pub workloads: Vec<WorkloadReport>,
    /// Start and memory.
    pub footprint: Option<Footprint>,
    /// Every single run.
    pub runs: Vec<RunReport>,
}

/// One workload, broker against floor.
#[derive(Debug, Serialize)]
pub struct WorkloadReport {
    /// Name of the workload.
    pub name: String,
    /// Engine of the floor that was the fastest.
    pub floor_engine: &'static str,
    /// What is compared.
    pub metric: &'static str,
    /// The broker's values.
    pub broker: Spread,
    /// The floor's values.
    pub floor: Spread,
    /// broker / floor, round by round.
    pub ratio: Spread,
    /// What the design asks for.
    pub target: &'static str,
}

/// Start and memory.
#[derive(Debug, Serialize)]
pub struct Footprint {
    /// From exec to the first Metadata answer on an empty directory, in milliseconds.
    pub start_ms: Spread,
    /// Resident memory after 10 s without a client, in MiB; 2 shards.
    pub idle_rss_mib: f64,
}

/// A number of one run that is compared.
#[derive(Clone, Copy)]
enum Metric {
    MbPerSecond,
    CpuPerGb,
    CpuPerRequest,
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Metric::MbPerSecond => "MB/s",
            Metric::CpuPerGb => "CPU s/GB",
            Metric::CpuPerRequest => "CPU us/request",
        }
    }

    fn of(self, run: &RunReport) -> f64 {
        let value = match self {
            Metric::MbPerSecond => Some(run.mb_per_second()),
            Metric::CpuPerGb => run.broker_cpu_s_per_gb,
            Metric::CpuPerRequest => run.broker_cpu_us_per_request,
        };
        value.unwrap_or(f64::NAN)
    }

    fn more_is_better(self) -> bool {
        match self {
            Metric::MbPerSecond => true,
            Metric::CpuPerGb | Metric::CpuPerRequest => false,
        }
    }
}

/// Who serves a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Broker,
    Floor(EngineChoice),
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Broker => "broker",
            Contender::Floor(EngineChoice::Inline) => "floor-inline",
            Contender::Floor(EngineChoice::Ring) => "floor-ring",
        }
    }
}

struct Compare {
    options: CompareOptions,
    broker_cpu: usize,
    broker: Server,
    report: CompareReport,
}

/// Runs the comparison and prints it.
///
/// # Errors
/// When a server does not start or a request fails.
pub fn run(options: CompareOptions) -> Result<()> {
    let allowed = cpu::allowed();
    let broker_cpu = options
        .broker_cpu
        .or(allowed.first().copied())
        .context("no CPU")?;
    let load_cpu = options
        .load_cpu
        .or(allowed.last().copied())
        .context("no CPU")?;
    if broker_cpu == load_cpu {
        eprintln!("note: broker and load share CPU {broker_cpu}; the figures mean little");
    }
    let mut wanted = options.only.clone();
    if wanted.is_empty() {
        wanted = DEFAULT.map(str::to_owned).to_vec();
    }
    // All of them first: a typing error should not show after an hour.
    let workloads = wanted
        .iter()
        .filter(|name| *name != "start")
        .map(|name| Workload::named(name))
        .collect::<Result<Vec<_>>>()?;
    let footprint = if wanted.iter().any(|name| name == "start") {
        Some(measure_footprint(&options)?)
    } else {
        None
    };
    cpu::confine_to(load_cpu)?;
    let (broker, _) = Server::broker(&broker_options(&options, Some(broker_cpu), 1, "broker"))?;
    let report = CompareReport {
        environment: Environment::of(&options.dir),
        command_line: broker.command_line.clone(),
        workloads: Vec::new(),
        footprint,
        runs: Vec::new(),
    };
    let mut compare = Compare {
        options: options.clone(),
        broker_cpu,
        broker,
        report,
    };
    for workload in &workloads {
        compare.workload(workload)?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&compare.report)?);
    } else {
        print_report(&compare.report);
    }
    compare.broker.stop()?;
    // Left alone when it holds something that is not ours.
    let _ = std::fs::remove_dir(&options.dir);
    Ok(())
}

fn broker_options(
    options: &CompareOptions,
    cpu: Option<usize>,
    shards: usize,
    name: &str,
) -> BrokerOptions {
    BrokerOptions {
        binary: options.binary.clone(),
        dir: options.dir.join(name),
        data: None,
        wrapper: Vec::new(),
        cpu,
        shards,
        properties: options.properties.clone(),
    }
}

fn measure_footprint(options: &CompareOptions) -> Result<Footprint> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let (server, time) = Server::broker(&broker_options(options, None, 2, "start"))?;
        starts.push(time.as_secs_f64() * 1e3);
        server.stop()?;
    }
    let (server, _) = Server::broker(&broker_options(options, None, 2, "idle"))?;
    thread::sleep(IDLE);
    let idle_rss_mib = cpu::resident_bytes(server.pid())? as f64 / f64::from(1 << 20);
    server.stop()?;
    Ok(Footprint {
        start_ms: Spread::of(starts),
        idle_rss_mib,
    })
}

impl Compare {
    fn workload(&mut self, workload: &Workload) -> Result<()> {
        match (&workload.produce, &workload.consume) {
            (Some(how), None) if workload.batch_bytes <= workload.record_bytes => {
                self.produce(workload, how, &[Metric::CpuPerRequest])
            }
            (Some(how), None) => {
                self.produce(workload, how, &[Metric::MbPerSecond, Metric::CpuPerGb])
            }
            (None, Some(how)) => self.consume(workload, how),
            (Some(_), Some(_)) | (None, None) => {
                bail!(
                    "{}: the floor has no turn for a mixed workload",
                    workload.name
                )
            }
        }
    }

    fn produce(&mut self, workload: &Workload, how: &Produce, metrics: &[Metric]) -> Result<()> {
        let contenders = [
            Contender::Broker,
            Contender::Floor(EngineChoice::Inline),
            Contender::Floor(EngineChoice::Ring),
        ];
        let part = stage::produce_part(workload, how, TOPIC)?;
        let mut runs: Vec<Vec<RunReport>> = vec![Vec::new(); contenders.len()];
        for round in 0..self.options.rounds {
            for turn in 0..contenders.len() {
                let which = (round + turn) % contenders.len();
                let contender = contenders[which];
                let run = match contender {
                    Contender::Broker => self.produce_to_broker(workload, &part),
                    Contender::Floor(engine) => self.produce_to_floor(workload, &part, engine),
                };
                let run =
                    run.with_context(|| format!("{} on {}", workload.name, contender.name()))?;
                self.progress(&run);
                runs[which].push(run);
                settle(SETTLE_MAX);
            }
        }
        self.conclude(workload, metrics, &contenders, runs);
        Ok(())
    }

    fn produce_to_broker(&self, workload: &Workload, part: &Part) -> Result<RunReport> {
        let mut cluster = self.fresh_topic(workload)?;
        let run = self.load(part, &self.broker, run_name(workload, Contender::Broker))?;
        cluster.delete_topic(TOPIC)?;
        Ok(run)
    }

    fn fresh_topic(&self, workload: &Workload) -> Result<Cluster> {
        let mut cluster = stage::cluster(&self.broker.address.to_string())?;
        stage::create_topic(&mut cluster, TOPIC, workload.partitions, &workload.topic)?;
        Ok(cluster)
    }

    fn floor(&self, workload: &Workload, engine: EngineChoice) -> Result<Server> {
        let dir = self.options.dir.join("floor");
        Server::floor(&dir, Some(self.broker_cpu), engine, workload.partitions)
    }

    fn produce_to_floor(
        &self,
        workload: &Workload,
        part: &Part,
        engine: EngineChoice,
    ) -> Result<RunReport> {
        let server = self.floor(workload, engine)?;
        let run = self.load(part, &server, run_name(workload, Contender::Floor(engine)))?;
        server.stop()?;
        Ok(run)
    }

    fn consume(&mut self, workload: &Workload, how: &Consume) -> Result<()> {
        let mut cluster = self.fresh_topic(workload)?;
        let floor = self.floor(workload, EngineChoice::Inline)?;
        let how = &Consume {
            fill_mb: self.options.fill_mb.unwrap_or(how.fill_mb),
            reader: self.options.reader.unwrap_or(how.reader),
            ..how.clone()
        };
        let addresses = [self.broker.address.to_string(), floor.address.to_string()];
        let mut batches = 0;
        for address in &addresses {
            batches = stage::fill(workload, TOPIC, address, how.fill_mb)?;
        }
        let job = stage::fetch_job(workload, how, TOPIC, batches, &addresses)?;
        let part = stage::consume_part(how, Box::new(job));
        let contenders = [Contender::Broker, Contender::Floor(EngineChoice::Inline)];
        let mut runs: Vec<Vec<RunReport>> = vec![Vec::new(); contenders.len()];
        for round in 0..self.options.rounds {
            for turn in 0..contenders.len() {
                let which = (round + turn) % contenders.len();
                let server = match contenders[which] {
                    Contender::Broker => &self.broker,
                    Contender::Floor(_) => &floor,
                };
                let run = self.load(&part, server, run_name(workload, contenders[which]))?;
                self.progress(&run);
                runs[which].push(run);
            }
        }
        let metrics = [Metric::CpuPerGb, Metric::MbPerSecond];
        self.conclude(workload, &metrics, &contenders, runs);
        floor.stop()?;
        Ok(cluster.delete_topic(TOPIC)?)
    }

    fn load(&self, part: &Part, server: &Server, name: String) -> Result<RunReport> {
        let options = LoadOptions {
            address: server.address,
            threads: 1,
            warm_up: Duration::from_secs_f64(self.options.warm_up),
            measure: Duration::from_secs_f64(self.options.seconds),
            broker_pid: Some(server.pid()),
        };
        let result = load::run(std::slice::from_ref(part), &options)?;
        ensure!(result.requests() > 0, "no request was answered");
        Ok(RunReport::of(name, &result))
    }

    fn progress(&self, run: &RunReport) {
        eprintln!("{}", run.line());
    }

    /// Chooses the floor's engine per metric and takes ratios round by round.
    fn conclude(
        &mut self,
        workload: &Workload,
        metrics: &[Metric],
        contenders: &[Contender],
        runs: Vec<Vec<RunReport>>,
    ) {
        for &metric in metrics {
            let values = |which: usize| -> Vec<f64> {
                runs[which].iter().map(|run| metric.of(run)).collect()
            };
            let mut best: Option<(EngineChoice, Spread)> = None;
            for (which, contender) in contenders.iter().enumerate() {
                let Contender::Floor(engine) = *contender else {
                    continue;
                };
                let spread = Spread::of(values(which));
                let wins = best.as_ref().is_none_or(|(_, b)| {
                    if metric.more_is_better() {
                        spread.median > b.median
                    } else {
                        spread.median < b.median
                    }
                });
                if wins {
                    best = Some((engine, spread));
                }
            }
            let Some((engine, floor)) = best else {
                continue;
            };
            let broker = Spread::of(values(0));
            let ratios = broker
                .rounds
                .iter()
                .zip(&floor.rounds)
                .map(|(b, f)| b / f)
                .collect();
            self.report.workloads.push(WorkloadReport {
                name: workload.name.clone(),
                floor_engine: engine.name(),
                metric: metric.name(),
                ratio: Spread::of(ratios),
                target: target(&workload.name, metric),
                broker,
                floor,
            });
        }
        self.report.runs.extend(runs.into_iter().flatten());
    }
}

fn run_name(workload: &Workload, contender: Contender) -> String {
    format!("{} {}", workload.name, contender.name())
}

fn target(workload: &str, metric: Metric) -> &'static str {
    match (workload, metric) {
        ("bulk-produce", Metric::MbPerSecond) => ">= 0.80",
        ("hot-consume", Metric::CpuPerGb) => "<= 1.25",
        ("one-record" | "lone-record" | "one-record-1000", Metric::CpuPerRequest) => "<= 1.40",
        (_, Metric::MbPerSecond | Metric::CpuPerGb | Metric::CpuPerRequest) => "-",
    }
}

fn print_report(report: &CompareReport) {
    println!(
        "kernel {}; medians (min-max) over rounds; ratio = broker / floor",
        report.environment.kernel
    );
    println!(
        "{:<18} {:<15} {:>24} {:>24} {:<7} {:>20}  target",
        "workload", "metric", "broker", "floor", "engine", "ratio"
    );
    for w in &report.workloads {
        let decimals = if w.metric == Metric::MbPerSecond.name() {
            0
        } else {
            3
        };
        println!(
            "{:<18} {:<15} {:>24} {:>24} {:<7} {:>20}  {}",
            w.name,
            w.metric,
            w.broker.shown(decimals),
            w.floor.shown(decimals),
            w.floor_engine,
            w.ratio.shown(2),
            w.target
        );
    }
    if let Some(f) = &report.footprint {
        println!(
            "start to Metadata, empty directory: {} ms  (target <= 100)",
            f.start_ms.shown(1)
        );
        println!(
            "idle RSS after 10 s, 2 shards: {:.1} MiB  (target <= 20)",
            f.idle_rss_mib
        );
    }
}
