//! `idle`: what connections and partitions cost in memory when nothing happens on them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection};

use crate::cpu;
use crate::environment::Environment;
use crate::rounds::write_json;
use crate::stage;
use crate::target::{Target, TargetArgs, TargetReport};

/// Files that this process needs besides its connections.
const SPARE_FILES: u64 = 64;

/// Flags of `idle`.
#[derive(clap::Args, Clone, Debug)]
pub struct IdleOptions {
    /// What to look at; memory is measured with `--shards 2`
    #[command(flatten)]
    pub target: TargetArgs,
    /// Connections to open; each asks for ApiVersions once and is then left alone
    #[arg(long, default_value_t = 0)]
    pub connections: usize,
    /// Topics to create first, which nothing is written to
    #[arg(long, default_value_t = 0)]
    pub topics: usize,
    /// Partitions of each
    #[arg(long, default_value_t = 100)]
    pub partitions: usize,
    /// Seconds of quiet before each look at the memory
    #[arg(long, default_value_t = 10.0)]
    pub wait: f64,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Resident memory at each step; its JSON has stable names.
#[derive(Debug, Serialize)]
pub struct IdleReport {
    /// On what.
    pub environment: Environment,
    /// Of whom.
    pub target: TargetReport,
    /// Seconds of quiet before each look.
    pub wait_seconds: f64,
    /// Bytes before anything was done.
    pub rss_at_first: u64,
    /// Empty partitions, and bytes with them.
    pub partitions: usize,
    /// Bytes with the partitions; as at first if there are none.
    pub rss_with_partitions: u64,
    /// Idle connections.
    pub connections: usize,
    /// Bytes with partitions and connections.
    pub rss_with_connections: u64,
    /// Bytes that each connection added; absent without connections. The first connections of a process cost more.
    pub bytes_per_connection: Option<f64>,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start or refuses, its process is not known, or files may not be opened in such numbers.
pub fn run(options: &IdleOptions) -> Result<()> {
    allow_files(options.connections as u64)?;
    let environment = Environment::of(&options.target.dir);
    let target = Target::ready(&options.target)?;
    let pid = target
        .pid
        .context("whose memory? give --broker-pid with --against")?;
    let quiet = || -> Result<u64> {
        thread::sleep(Duration::from_secs_f64(options.wait));
        cpu::resident_bytes(pid)
    };
    let address = target.address().to_string();
    let rss_at_first = quiet()?;
    let mut rss_with_partitions = rss_at_first;
    if options.topics > 0 {
        create_topics(options, &address)?;
        rss_with_partitions = quiet()?;
    }
    let mut rss_with_connections = rss_with_partitions;
    let held = connect(options.connections, &address)?;
    if !held.is_empty() {
        rss_with_connections = quiet()?;
    }
    drop(held);
    let added = rss_with_connections.saturating_sub(rss_with_partitions);
    let report = IdleReport {
        environment,
        target: target.report.clone(),
        wait_seconds: options.wait,
        rss_at_first,
        partitions: options.topics * options.partitions,
        rss_with_partitions,
        connections: options.connections,
        rss_with_connections,
        bytes_per_connection: (options.connections > 0)
            .then(|| added as f64 / options.connections as f64),
    };
    print_report(&report);
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    if options.target.against.is_some() && options.topics > 0 {
        delete_topics(options, &address)?;
    }
    target.stop()
}

fn print_report(report: &IdleReport) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("RSS at first: {:.1} MiB", mib(report.rss_at_first));
    if report.partitions > 0 {
        let with = mib(report.rss_with_partitions);
        println!("with {} empty partitions: {with:.1} MiB", report.partitions);
    }
    if let Some(each) = report.bytes_per_connection {
        println!(
            "with {} idle connections: {:.1} MiB, {each:.0} bytes each",
            report.connections,
            mib(report.rss_with_connections)
        );
    }
}

fn topic_name(n: usize) -> String {
    format!("bench-idle-{n}")
}

/// The client's own connections are closed again, so that they are not counted.
fn create_topics(options: &IdleOptions, address: &str) -> Result<()> {
    let mut cluster = stage::cluster(address)?;
    for n in 0..options.topics {
        stage::create_topic(
            &mut cluster,
            &topic_name(n),
            options.partitions,
            &BTreeMap::new(),
        )?;
    }
    Ok(())
}

fn delete_topics(options: &IdleOptions, address: &str) -> Result<()> {
    let mut cluster = stage::cluster(address)?;
    for n in 0..options.topics {
        cluster.delete_topic(&topic_name(n))?;
    }
    Ok(())
}

fn connect(connections: usize, address: &str) -> Result<Vec<Connection>> {
    let options = ConnectOptions::default();
    (0..connections)
        .map(|n| {
            Connection::connect(address, &options).with_context(|| {
                format!("connection {n} of {connections}; see the broker's max.connections and its limit of open files")
            })
        })
        .collect()
}

/// Raises this process's limit of open files, which a broker started from here inherits.
pub(crate) fn allow_files(connections: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = connections + SPARE_FILES;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard).max(soft), hard)?;
    if hard < wanted {
        anyhow::bail!(
            "{connections} connections need {wanted} open files; raise `ulimit -Hn` from {hard}"
        );
    }
    Ok(())
}
