//! A cold start with many committed offsets: how long their coordinators take to read them, and what a steady produce
//! on the same core sees of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::OffsetFetchRequest;
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;

use super::{COMMIT_BY_NAME, commit_request, exchange, find_coordinator, refused};
use crate::backlog::evict_topic;
use crate::cpu;
use crate::idle::allow_files;
use crate::load::{self, LoadOptions};
use crate::process::{BrokerOptions, Server};
use crate::report::Percentiles;
use crate::stage;
use crate::workload::{Rate, Workload};

const TOPIC: &str = "bench-start";
const PRODUCE_TOPIC: &str = "bench-start-produce";
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Commits that are under way at once while the log is filled.
const COMMITS_AT_ONCE: usize = 8;
/// Pause between two looks at whether all is loaded.
const LOOK: Duration = Duration::from_millis(20);
const LOAD_MAX: Duration = Duration::from_secs(120);

/// Flags of `groups start`.
#[derive(clap::Args, Clone, Debug)]
pub struct StartOptions {
    /// The broker's binary (release build); it runs with one shard on the first CPU
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for the broker's data; removed at the end
    #[arg(long, default_value = "bench/results/local/start")]
    pub dir: PathBuf,
    /// Groups
    #[arg(long, default_value_t = 1_000)]
    pub groups: usize,
    /// Offsets of each; as many partitions has the topic
    #[arg(long, default_value_t = 1_000)]
    pub offsets: i32,
    /// Produces per second after the start
    #[arg(long, default_value_t = 1_000.0)]
    pub rate: f64,
    /// Seconds of the produce, from the first answer of the broker on; what lies behind the loading dilutes its percentiles
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Starts
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Further broker properties
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    groups: usize,
    offsets: usize,
    rounds: Vec<Round>,
    /// Latency of the produce in microseconds from its intended time of sending, over all rounds.
    produce_us: Percentiles,
}

#[derive(Serialize)]
struct Round {
    /// From exec to the first Metadata answer, which comes no later than `/readyz` tells ready.
    start_seconds: f64,
    /// From there until every coordinator had loaded.
    load_seconds: f64,
    /// The slowest produce, in microseconds.
    produce_max_us: u64,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start, or refuses.
pub fn run(options: &StartOptions) -> Result<()> {
    // Each partition of the topics holds files open in the broker.
    allow_files(8 * u64::try_from(options.offsets)?)?;
    let allowed = cpu::allowed();
    let broker = BrokerOptions {
        binary: options.binary.clone(),
        dir: options.dir.join("broker"),
        // It outlives the broker.
        data: Some(options.dir.join("data")),
        wrapper: Vec::new(),
        cpu: allowed.first().copied(),
        shards: 1,
        properties: options.properties.clone(),
    };
    let (server, _) = Server::broker(&broker)?;
    if let Some(last) = allowed.last() {
        cpu::confine_to(*last)?;
    }
    fill(options, server.address)?;
    server.stop()?;
    let (mut rounds, mut latency) = (Vec::new(), load::new_histogram()?);
    for _ in 0..options.rounds {
        evict_topic(&options.dir.join("data"), OFFSETS_TOPIC)?;
        let (server, started) = Server::broker(&broker)?;
        let (round, of_round) = one_round(options, server.address, started)?;
        rounds.push(round);
        load::add(&mut latency, &of_round)?;
        server.stop()?;
    }
    std::fs::remove_dir_all(&options.dir)?;
    let report = Report {
        groups: options.groups,
        offsets: options.groups * usize::try_from(options.offsets)?,
        rounds,
        produce_us: Percentiles::of(&latency),
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn name(n: usize) -> String {
    format!("bench-start-{n}")
}

/// Commits each offset once, which is what compaction leaves of a longer life.
fn fill(options: &StartOptions, address: SocketAddr) -> Result<()> {
    let address = address.to_string();
    let mut cluster = stage::cluster(&address)?;
    let partitions = usize::try_from(options.offsets)?;
    stage::create_topic(&mut cluster, TOPIC, partitions, &Default::default())?;
    stage::create_topic(&mut cluster, PRODUCE_TOPIC, 1, &Default::default())?;
    let mut connection = Connection::connect(&address, &ConnectOptions::default())?;
    find_coordinator(&mut connection, &name(0))?;
    let all: Vec<usize> = (0..options.groups).collect();
    for some in all.chunks(COMMITS_AT_ONCE) {
        let commit = |n: &usize| commit_request(&name(*n), ("", -1), TOPIC, 0..options.offsets, 7);
        let commits: Vec<_> = some.iter().map(commit).collect();
        for answer in exchange(&mut connection, &commits, Some(COMMIT_BY_NAME))? {
            for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                refused("OffsetCommit", row.error_code)?;
            }
        }
    }
    Ok(())
}

fn one_round(
    options: &StartOptions,
    address: SocketAddr,
    started: Duration,
) -> Result<(Round, Histogram<u64>)> {
    let ready = Instant::now();
    let groups = options.groups;
    let loading = thread::spawn(move || wait_until_loaded(address, groups, ready));
    let mut workload = Workload::named("one-record")?;
    workload.partitions = 1;
    let mut how = workload.filling();
    (how.connections, how.in_flight) = (16, 16);
    how.rate = Some(Rate::RequestsPerSecond(options.rate));
    let result = load::run(
        &[stage::produce_part(&workload, &how, PRODUCE_TOPIC)?],
        &LoadOptions {
            address,
            threads: 1,
            warm_up: Duration::ZERO,
            measure: Duration::from_secs_f64(options.seconds),
            broker_pid: None,
        },
    )?;
    let loading = loading.join();
    let load = loading.map_err(|_| anyhow!("the look at the groups panicked"))??;
    holds_all(options, address)?;
    let produce = result.parts.into_iter().next().context("one part")?;
    let round = Round {
        start_seconds: started.as_secs_f64(),
        load_seconds: load.as_secs_f64(),
        produce_max_us: produce.latency_us.max(),
    };
    Ok((round, produce.latency_us))
}

fn fetch_request(group_id: String, topics: Option<Vec<Topic>>) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id,
        topics,
        ..Default::default()
    }
}
type Topic = thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;

/// Asks for no offset of every group, until none of them is still being loaded.
fn wait_until_loaded(address: SocketAddr, groups: usize, since: Instant) -> Result<Duration> {
    let mut connection = Connection::connect(&address.to_string(), &ConnectOptions::default())?;
    let one = |n| fetch_request(name(n), Some(Vec::new()));
    let request = OffsetFetchRequest {
        groups: (0..groups).map(one).collect(),
        ..Default::default()
    };
    while since.elapsed() < LOAD_MAX {
        let answer = connection.call_at(&request, 8)?;
        let elapsed = since.elapsed();
        let loading = ErrorCode::CoordinatorLoadInProgress as i16;
        if !answer
            .groups
            .iter()
            .any(|group| group.error_code == loading)
        {
            for group in &answer.groups {
                refused("OffsetFetch", group.error_code)?;
            }
            return Ok(elapsed);
        }
        thread::sleep(LOOK);
    }
    Err(anyhow!("not loaded after {} s", LOAD_MAX.as_secs()))
}

/// The last group has all its offsets.
fn holds_all(options: &StartOptions, address: SocketAddr) -> Result<()> {
    let mut connection = Connection::connect(&address.to_string(), &ConnectOptions::default())?;
    let request = OffsetFetchRequest {
        groups: vec![fetch_request(name(options.groups - 1), None)],
        ..Default::default()
    };
    let answer = connection.call_at(&request, 8)?;
    let topics = answer.groups.iter().flat_map(|group| &group.topics);
    let held = topics.map(|topic| topic.partitions.len()).sum::<usize>();
    let wanted = usize::try_from(options.offsets)?;
    ensure!(held == wanted, "{held} offsets of {wanted} are there");
    Ok(())
}
