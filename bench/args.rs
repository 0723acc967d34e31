//! The command line of `thalweg-bench`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use thalweg_client::{Cluster, MissingTopic};

use crate::beside::{self, BesideOptions};
use crate::compact::{self, CompactOptions};
use crate::compare::{self, CompareOptions};
use crate::durable::{self, DurableOptions};
use crate::flat::{self, FlatOptions};
use crate::floor::{self, EngineChoice, FloorOptions};
use crate::groups::{self, GroupsCommand};
use crate::hot_partition::{self, HotPartitionOptions};
use crate::idle::{self, IdleOptions};
use crate::knee::{self, KneeOptions};
use crate::load::{self, LoadOptions, Part};
use crate::overload::{self, OverloadOptions};
use crate::overrides::Overrides;
use crate::partitions::{self, PartitionsOptions};
use crate::process::Server;
use crate::reactor::{self, ReactorOptions};
use crate::recovery::{self, RecoveryOptions};
use crate::report::RunReport;
use crate::rolls::{self, RollsOptions};
use crate::rounds::{self, RunOptions};
use crate::spread::{self, SpreadOptions};
use crate::stage;
use crate::workload::Workload;

/// Load generator, floor and comparison reports of Thalweg.
#[derive(Parser, Debug)]
#[command(name = "thalweg-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// A workload in several rounds, against a broker that it starts or one that runs already
    Run(Box<RunOptions>),
    /// The highest open-loop rate of a workload that is answered to 99 % with a p99 of at most 50 ms
    Knee(Box<KneeOptions>),
    /// What consumer groups and their offsets cost
    #[command(subcommand)]
    Groups(GroupsCommand),
    /// Memory of a broker with empty partitions and idle connections
    Idle(IdleOptions),
    /// Very many empty partitions: time to create, stop and start them, memory and file handles
    Partitions(PartitionsOptions),
    /// The producers of a workload, once, against a broker that runs already
    Produce(LoadArgs),
    /// The consumers of a workload, once; fills the topic first
    Consume(LoadArgs),
    /// The producers or the consumers of a workload, once, against the floor, started for the purpose
    Floor(FloorArgs),
    /// Only the floor's server; ends by SIGTERM
    FloorServe(FloorOptions),
    /// Broker and floor in alternating rounds on one CPU, with the design's ratios
    CompareFloor(CompareOptions),
    /// Append latency of the reactor beside busy senders, ring against plain engine
    Reactor(ReactorOptions),
    /// Compaction of one log of keyed records, without a broker
    Compact(CompactOptions),
    /// Latency beside a compaction in the same broker, and alone
    BesideCompaction(BesideOptions),
    /// Acknowledgements that wait for the device, against one fdatasync per append on the same directory
    Durable(DurableOptions),
    /// Latency of requests near the beginning of a segment, against the rest
    Rolls(RollsOptions),
    /// System calls and instructions per request in a small log and in a large one
    Flat(FlatOptions),
    /// CPU per one-record request over few and many partitions, by few and many connections
    Spread(SpreadOptions),
    /// How long a broker takes to recover from several times its knee
    Overload(OverloadOptions),
    /// Latency on other cores beside one partition that gets all it can take, and without
    HotPartition(HotPartitionOptions),
    /// The start of a broker that was killed: time to ready, and bytes read for it
    Recovery(RecoveryOptions),
}

/// Flags of single runs.
#[derive(clap::Args, Clone, Debug)]
struct LoadArgs {
    /// A workload of bench/workloads/ by name, or a .toml file
    #[arg(long)]
    workload: Option<String>,
    /// Address of the broker
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap_server: String,
    /// Topic; created when missing, deleted at the end if this run created it
    #[arg(long, default_value = "bench")]
    topic: String,
    #[command(flatten)]
    overrides: Overrides,
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
struct FloorArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// How files are written
    #[arg(long, value_enum, default_value_t = EngineChoice::Inline)]
    engine: EngineChoice,
    /// Directory for the segments; removed at the end
    #[arg(long, default_value = "bench/results/local/floor")]
    dir: PathBuf,
    /// CPU that the floor is confined to
    #[arg(long)]
    cpu: Option<usize>,
}

impl LoadArgs {
    fn workload(&self, default: &str) -> Result<Workload> {
        let base = Workload::named(self.workload.as_deref().unwrap_or(default))?;
        self.overrides.apply(&base)
    }

    fn run(&self, part: Part, w: &Workload, to: SocketAddr, pid: Option<u32>) -> Result<()> {
        let options = LoadOptions {
            address: to,
            threads: self.threads,
            warm_up: Duration::from_secs_f64(w.measure.warm_up_seconds),
            measure: Duration::from_secs_f64(w.measure.seconds),
            broker_pid: pid,
        };
        let report = RunReport::of(&w.name, &load::run(&[part], &options)?);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("{}", report.line());
        }
        Ok(())
    }

    /// Makes sure of the topic; true when it was created here.
    fn topic(&self, w: &Workload) -> Result<(Cluster, bool, SocketAddr)> {
        let mut cluster = stage::cluster(&self.bootstrap_server)?;
        let known = cluster
            .topic(&self.topic, MissingTopic::Refuse)
            .map(|t| t.partitions.len());
        let created = match known {
            Ok(n) if n >= w.partitions => false,
            Ok(n) => anyhow::bail!("topic {} has only {n} partitions", self.topic),
            Err(_) => {
                stage::create_topic(&mut cluster, &self.topic, w.partitions, &w.topic)?;
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
    let mut workload = args.workload("bulk-produce")?;
    workload.consume = None;
    let (mut cluster, created, address) = args.topic(&workload)?;
    let outcome = single_part(&workload, &args.topic, address)
        .and_then(|part| args.run(part, &workload, address, args.broker_pid));
    if created {
        cluster.delete_topic(&args.topic)?;
    }
    outcome
}

fn consume(args: &LoadArgs) -> Result<()> {
    let mut workload = args.workload("hot-consume")?;
    workload.produce = None;
    workload.check()?;
    let (mut cluster, created, address) = args.topic(&workload)?;
    ensure!(
        created,
        "topic {} exists: consume wants one of its own",
        args.topic
    );
    let outcome = single_part(&workload, &args.topic, address)
        .and_then(|part| args.run(part, &workload, address, args.broker_pid));
    cluster.delete_topic(&args.topic)?;
    outcome
}

/// The only part of a workload that has one; fills the topic for consumers.
fn single_part(workload: &Workload, topic: &str, address: SocketAddr) -> Result<Part> {
    let mut parts = stage::parts(workload, topic, &address.to_string())?;
    ensure!(
        parts.len() == 1,
        "{} has producers and consumers; `run` runs both",
        workload.name
    );
    parts.pop().context("nothing would be sent")
}

fn floor_load(args: &FloorArgs) -> Result<()> {
    let workload = args.load.workload("bulk-produce")?;
    let server = Server::floor(&args.dir, args.cpu, args.engine, workload.partitions)?;
    let pid = Some(server.pid());
    let part = single_part(&workload, "bench", server.address)?;
    args.load.run(part, &workload, server.address, pid)?;
    server.stop()
}

/// Parses the command line and runs.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(options) => rounds::run(&options),
        Command::Knee(options) => knee::run(&options),
        Command::Groups(command) => groups::run(&command),
        Command::Idle(options) => idle::run(&options),
        Command::Partitions(options) => partitions::run(&options),
        Command::Produce(args) => produce(&args),
        Command::Consume(args) => consume(&args),
        Command::Floor(args) => floor_load(&args),
        Command::FloorServe(options) => floor::serve(options),
        Command::CompareFloor(options) => compare::run(options),
        Command::Reactor(options) => reactor::run(&options),
        Command::Compact(options) => compact::run(&options),
        Command::BesideCompaction(options) => beside::run(&options),
        Command::Durable(options) => durable::run(&options),
        Command::Rolls(options) => rolls::run(&options),
        Command::Flat(options) => flat::run(&options),
        Command::Spread(options) => spread::run(&options),
        Command::Overload(options) => overload::run(&options),
        Command::HotPartition(options) => hot_partition::run(&options),
        Command::Recovery(options) => recovery::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thalweg-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
