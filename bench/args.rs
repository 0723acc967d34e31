//! The command line of `thalweg-bench`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use thalweg_client::{Cluster, ClusterOptions, MissingTopic, NewTopic, OffsetSpec};

use crate::compare::{self, CompareOptions};
use crate::floor::{self, EngineChoice, FloorOptions};
use crate::job::{FetchJob, ProduceJob, probe_fetch};
use crate::load::{self, Job, LoadOptions};
use crate::process::Server;
use crate::reactor::{self, ReactorOptions};
use crate::report::RunReport;
use crate::workload::{BULK_PRODUCE, HOT_CONSUME, Workload};

/// Load generator, floor and comparison reports of Thalweg.
#[derive(Parser, Debug)]
#[command(name = "thalweg-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Closed-loop produce against a broker
    Produce(LoadArgs),
    /// Closed-loop consume of what lies in the page cache; fills the topic first
    Consume(ConsumeArgs),
    /// The same load against the floor, started for the purpose
    Floor(FloorArgs),
    /// Only the floor's server; ends by SIGTERM
    FloorServe(FloorOptions),
    /// Broker and floor in alternating rounds on one CPU, with the design's ratios
    CompareFloor(CompareOptions),
    /// Append latency of the reactor beside busy senders, ring against plain engine
    Reactor(ReactorOptions),
}

/// Flags shared by all loads. Those of the workload override it.
#[derive(clap::Args, Clone, Debug)]
struct LoadArgs {
    /// Named workload: bulk-produce, one-record, lone-record, hot-consume, hot-consume-64k
    #[arg(long, value_parser = Workload::named)]
    workload: Option<Workload>,
    /// Address of the broker
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap_server: String,
    /// Topic; created when missing, deleted at the end if this run created it
    #[arg(long, default_value = "bench")]
    topic: String,
    /// Connections
    #[arg(long)]
    connections: Option<usize>,
    /// Requests in flight per connection
    #[arg(long)]
    in_flight: Option<usize>,
    /// Partitions of the topic
    #[arg(long)]
    partitions: Option<usize>,
    /// Bytes of a record's value
    #[arg(long)]
    record_bytes: Option<usize>,
    /// Bytes of a batch; at least one record
    #[arg(long)]
    batch_bytes: Option<usize>,
    /// acks: 0, 1 or -1
    #[arg(long, allow_negative_numbers = true)]
    acks: Option<i16>,
    /// partition_max_bytes of Fetch
    #[arg(long)]
    fetch_bytes: Option<usize>,
    /// Measured seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before measuring
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Load threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Process whose CPU time is reported
    #[arg(long)]
    broker_pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Clone, Debug)]
struct ConsumeArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Megabytes of batches that are produced first
    #[arg(long, default_value_t = 512)]
    fill_mb: usize,
}

#[derive(clap::Args, Clone, Debug)]
struct FloorArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// How files are written
    #[arg(long, value_enum, default_value_t = EngineChoice::Inline)]
    engine: EngineChoice,
    /// Directory for the segments; removed at the end
    #[arg(long, default_value = "bench/results/local/floor")]
    dir: std::path::PathBuf,
    /// CPU that the floor is confined to
    #[arg(long)]
    cpu: Option<usize>,
    /// Megabytes of batches to fill with, then consume instead of produce
    #[arg(long)]
    consume_mb: Option<usize>,
}

impl LoadArgs {
    fn workload(&self, default: &Workload) -> Workload {
        let base = self.workload.clone().unwrap_or_else(|| default.clone());
        Workload {
            name: base.name,
            connections: self.connections.unwrap_or(base.connections),
            in_flight: self.in_flight.unwrap_or(base.in_flight),
            partitions: self.partitions.unwrap_or(base.partitions),
            record_bytes: self.record_bytes.unwrap_or(base.record_bytes),
            batch_bytes: self.batch_bytes.unwrap_or(base.batch_bytes),
            acks: self.acks.unwrap_or(base.acks),
            fetch_bytes: self.fetch_bytes.unwrap_or(base.fetch_bytes),
        }
    }

    fn run<J: Job>(&self, job: &J, w: &Workload, to: SocketAddr, pid: Option<u32>) -> Result<()> {
        let result = load::run(
            job,
            &LoadOptions {
                address: to,
                connections: w.connections,
                in_flight: w.in_flight,
                threads: self.threads,
                warm_up: Duration::from_secs_f64(self.warm_up),
                measure: Duration::from_secs_f64(self.seconds),
                broker_pid: pid,
            },
        )?;
        let report = RunReport::of(w.name, &result);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("{}", report.line());
        }
        Ok(())
    }

    /// Makes sure of the topic; true when it was created here.
    fn topic(&self, w: &Workload) -> Result<(Cluster, bool, SocketAddr)> {
        let mut cluster = Cluster::connect(&self.bootstrap_server, ClusterOptions::default())?;
        let known = cluster
            .topic(&self.topic, MissingTopic::Refuse)
            .map(|t| t.partitions.len());
        let created = match known {
            Ok(n) if n >= w.partitions => false,
            Ok(n) => anyhow::bail!("topic {} has only {n} partitions", self.topic),
            Err(_) => {
                cluster.create_topic(&NewTopic {
                    name: self.topic.clone(),
                    partitions: Some(i32::try_from(w.partitions)?),
                    replication_factor: Some(1),
                    configs: Vec::new(),
                })?;
                // Leaders may take a moment until they lead.
                let all: Vec<i32> = (0..i32::try_from(w.partitions)?).collect();
                cluster.offsets(&self.topic, &all, OffsetSpec::Latest)?;
                true
            }
        };
        let mut addresses = self.bootstrap_server.to_socket_addrs()?;
        Ok((
            cluster,
            created,
            addresses.next().context("the name has no address")?,
        ))
    }
}

fn produce(args: &LoadArgs) -> Result<()> {
    let workload = args.workload(&BULK_PRODUCE);
    let (mut cluster, created, address) = args.topic(&workload)?;
    let job = ProduceJob::new(&args.topic, &workload)?;
    let outcome = args.run(&job, &workload, address, args.broker_pid);
    if created {
        cluster.delete_topic(&args.topic)?;
    }
    outcome
}

fn consume(args: &ConsumeArgs) -> Result<()> {
    let load = &args.load;
    let workload = load.workload(&HOT_CONSUME);
    let (mut cluster, created, address) = load.topic(&workload)?;
    anyhow::ensure!(
        created,
        "topic {} exists: consume wants one of its own",
        load.topic
    );
    let to = address.to_string();
    let outcome = filled(&workload, &load.topic, &to, args.fill_mb)
        .and_then(|job| load.run(&job, &workload, address, load.broker_pid));
    cluster.delete_topic(&load.topic)?;
    outcome
}

fn filled(workload: &Workload, topic: &str, to: &str, fill_mb: usize) -> Result<FetchJob> {
    let mut fill = ProduceJob::new(topic, workload)?;
    let per_round = fill.batch_bytes() as usize * workload.partitions;
    let batches = (fill_mb * 1_000_000).div_ceil(per_round);
    fill.fill(to, batches)?;
    let mut job = FetchJob::new(topic, workload, batches)?;
    probe_fetch(&mut job, to)?;
    Ok(job)
}

fn floor_load(args: &FloorArgs) -> Result<()> {
    let default = if args.consume_mb.is_some() {
        &HOT_CONSUME
    } else {
        &BULK_PRODUCE
    };
    let workload = args.load.workload(default);
    let server = Server::floor(&args.dir, args.cpu, args.engine, workload.partitions)?;
    let (address, pid) = (server.address, Some(server.pid()));
    match args.consume_mb {
        None => {
            let job = ProduceJob::new("bench", &workload)?;
            args.load.run(&job, &workload, address, pid)?;
        }
        Some(mb) => {
            let job = filled(&workload, "bench", &address.to_string(), mb)?;
            args.load.run(&job, &workload, address, pid)?;
        }
    }
    server.stop()
}

/// Parses the command line and runs.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Produce(args) => produce(&args),
        Command::Consume(args) => consume(&args),
        Command::Floor(args) => floor_load(&args),
        Command::FloorServe(options) => floor::serve(options),
        Command::CompareFloor(options) => compare::run(options),
        Command::Reactor(options) => reactor::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thalweg-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
