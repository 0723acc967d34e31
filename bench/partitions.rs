//! `partitions`: what a broker with very many partitions costs: to create them, in memory and file handles, to stop
//! and to start again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::cpu;
use crate::environment::Environment;
use crate::process::{BrokerOptions, Server};
use crate::rounds::write_json;
use crate::stage;

/// Flags of `partitions`.
#[derive(clap::Args, Clone, Debug)]
pub struct PartitionsOptions {
    /// Empty partitions
    #[arg(long, default_value_t = 10_000)]
    pub count: usize,
    /// Topics that they are of, each made by a request of its own
    #[arg(long, default_value_t = 1)]
    pub topics: usize,
    /// The broker's limit of open files
    #[arg(long, default_value_t = 20_000)]
    pub open_files: u64,
    /// The broker's shards
    #[arg(long, default_value_t = 2)]
    pub shards: usize,
    /// Seconds of quiet before each look at memory and handles
    #[arg(long, default_value_t = 5.0)]
    pub wait: f64,
    /// The broker's binary (release build)
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for the broker's data; removed at the end
    #[arg(long, default_value = "bench/results/local/data")]
    pub dir: PathBuf,
    /// Further broker properties
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Memory and handles at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Held {
    /// Resident bytes.
    pub rss: u64,
    /// Open files.
    pub handles: usize,
}

/// What was measured; its JSON has stable names.
#[derive(Debug, Serialize)]
pub struct PartitionsReport {
    /// On what.
    pub environment: Environment,
    /// Empty partitions.
    pub count: usize,
    /// Topics that they are of.
    pub topics: usize,
    /// The broker's limit of open files.
    pub open_files: u64,
    /// Before anything was done.
    pub at_first: Held,
    /// From the first request until the last partition leads, in seconds.
    pub create_seconds: f64,
    /// With the partitions.
    pub created: Held,
    /// From SIGTERM to the end of the process, in seconds.
    pub stop_seconds: f64,
    /// From exec to the first Metadata answer after that, in seconds.
    pub start_seconds: f64,
    /// After that start.
    pub started: Held,
    /// The same after SIGKILL.
    pub start_after_kill_seconds: f64,
    /// After that start.
    pub started_after_kill: Held,
    /// From SIGTERM to the end of the process after that start, in seconds.
    pub last_stop_seconds: f64,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start, refuses or does not end, or the limit of open files can not be set.
pub fn run(options: &PartitionsOptions) -> Result<()> {
    ensure!(
        options.topics > 0 && options.count.is_multiple_of(options.topics),
        "--count is not a multiple of --topics"
    );
    limit_files(options.open_files)?;
    fs::create_dir_all(&options.dir)
        .with_context(|| format!("cannot create {}", options.dir.display()))?;
    let environment = Environment::of(&options.dir);
    let broker = BrokerOptions {
        binary: options.binary.clone(),
        dir: options.dir.join("broker"),
        data: Some(options.dir.join("many")),
        wrapper: Vec::new(),
        cpu: None,
        shards: options.shards,
        properties: options.properties.clone(),
    };
    let held = |server: &Server| -> Result<Held> {
        thread::sleep(Duration::from_secs_f64(options.wait));
        let handles = fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count();
        let rss = cpu::resident_bytes(server.pid())?;
        Ok(Held { rss, handles })
    };
    let (server, _) = Server::broker(&broker)?;
    let at_first = held(&server)?;
    let create_seconds = create(options, &server)?;
    let created = held(&server)?;
    let stop_seconds = server.end(Signal::SIGTERM)?.as_secs_f64();
    let (server, start) = Server::broker(&broker)?;
    let started = held(&server)?;
    server.end(Signal::SIGKILL)?;
    let (server, start_after_kill) = Server::broker(&broker)?;
    let report = PartitionsReport {
        environment,
        count: options.count,
        topics: options.topics,
        open_files: options.open_files,
        at_first,
        create_seconds,
        created,
        stop_seconds,
        start_seconds: start.as_secs_f64(),
        started,
        start_after_kill_seconds: start_after_kill.as_secs_f64(),
        started_after_kill: held(&server)?,
        last_stop_seconds: server.end(Signal::SIGTERM)?.as_secs_f64(),
    };
    fs::remove_dir_all(options.dir.join("many"))?;
    print_report(&report);
    match &options.json {
        Some(path) => write_json(path, &report),
        None => Ok(()),
    }
}

fn create(options: &PartitionsOptions, server: &Server) -> Result<f64> {
    let mut cluster = stage::cluster(&server.address.to_string())?;
    let each = options.count / options.topics;
    let begin = Instant::now();
    for n in 0..options.topics {
        let name = format!("bench-many-{n}");
        stage::create_topic(&mut cluster, &name, each, &BTreeMap::new())?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

fn print_report(report: &PartitionsReport) {
    let (count, topics) = (report.count, report.topics);
    println!(
        "{count} partitions of {topics} topics, {} open files allowed",
        report.open_files
    );
    let held = |what: &str, held: Held| {
        let mib = held.rss as f64 / f64::from(1 << 20);
        println!("{what:<28}{mib:>8.1} MiB RSS, {} handles", held.handles);
    };
    let took = |what: &str, seconds: f64| println!("{what:<28}{seconds:>8.2} s");
    held("at first", report.at_first);
    took("creating them", report.create_seconds);
    held("with them", report.created);
    took("stop", report.stop_seconds);
    took("start after the stop", report.start_seconds);
    held("then", report.started);
    took("start after a kill", report.start_after_kill_seconds);
    held("then", report.started_after_kill);
    took("stop", report.last_stop_seconds);
}

/// Sets this process's limit of open files, which the broker inherits.
fn limit_files(open_files: u64) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    ensure!(
        open_files <= hard,
        "{open_files} open files are not allowed; raise `ulimit -Hn` from {hard}"
    );
    setrlimit(Resource::RLIMIT_NOFILE, open_files, open_files)?;
    Ok(())
}
