//! `flat`: whether a request costs the same in a small log and in a large one: system calls, by strace, and instructions,
//! by callgrind.
//!
//! The broker is started under the tool on a log that is there already, once for few requests and once for many. The
//! difference is what the requests cost; starting and stopping cancel out. Times are not looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection, MissingTopic, OffsetSpec};

use crate::environment::Environment;
use crate::floor::wire::FETCH_VERSION;
use crate::job::{ProduceJob, SampleBatch, fetch_request};
use crate::process::{BrokerOptions, Server};
use crate::rounds::write_json;
use crate::stage;
use crate::workload::Workload;

const TOPIC: &str = "bench-flat";
/// Requests of a run that the others are compared with.
const FEW: usize = 100;
const FETCH_BYTES: i32 = 65_536;
/// Batches at the end of the log that are fetched in turn.
const FETCHED_BATCHES: i64 = 100;
const SUMMARY_MAX: Duration = Duration::from_secs(20);

/// Flags of `flat`.
#[derive(clap::Args, Clone, Debug)]
pub struct FlatOptions {
    /// The broker's binary (release build)
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for the log, with room for the large one; removed at the end
    #[arg(long, default_value = "bench/results/local/flat")]
    pub dir: PathBuf,
    /// Megabytes of the small log
    #[arg(long, default_value_t = 10)]
    pub small_mb: usize,
    /// Megabytes of the large log
    #[arg(long, default_value_t = 20_000)]
    pub large_mb: usize,
    /// Requests that are counted, of each kind
    #[arg(long, default_value_t = 2_000)]
    pub requests: usize,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Everything that was counted; its JSON has stable names.
#[derive(Debug, Serialize)]
struct FlatReport {
    environment: Environment,
    small_mb: usize,
    large_mb: usize,
    requests: usize,
    costs: Vec<Cost>,
}

/// What one request costs.
#[derive(Clone, Debug, Serialize)]
struct Cost {
    request: Kind,
    of: Counter,
    small: f64,
    large: f64,
    /// large / small.
    ratio: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Produce,
    Fetch,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Counter {
    SystemCalls,
    Instructions,
}

impl Counter {
    /// The program that counts, and how it is told to write its summary to `file`.
    fn wrapper(self, file: &Path) -> Vec<String> {
        let file = file.display();
        match self {
            // The broker keeps the process id that was started.
            Counter::SystemCalls => ["strace", "-D", "-f", "-q", "-c", "-o"]
                .map(str::to_owned)
                .into_iter()
                .chain([file.to_string()])
                .collect(),
            Counter::Instructions => vec![
                "valgrind".to_owned(),
                "--tool=callgrind".to_owned(),
                "--callgrind-out-file=/dev/null".to_owned(),
                format!("--log-file={file}"),
            ],
        }
    }

    fn exists(self) -> bool {
        let program = match self {
            Counter::SystemCalls => "strace",
            Counter::Instructions => "valgrind",
        };
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// The count in a summary; `None` while it is not whole.
    fn count_in(self, summary: &str) -> Option<u64> {
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        match self {
            Counter::SystemCalls => {
                let total = summary
                    .lines()
                    .map(words)
                    .find(|words| words.last().is_some_and(|word| word == "total"))?;
                total.get(3)?.parse().ok()
            }
            Counter::Instructions => {
                let line = summary.lines().find(|line| line.contains("Collected :"))?;
                words(line).last()?.parse().ok()
            }
        }
    }
}

/// Fills the log, counts, fills on and counts again.
///
/// # Errors
/// When a tool is missing, the broker does not start, or a request fails.
pub fn run(options: &FlatOptions) -> Result<()> {
    let environment = Environment::of(&options.dir);
    let counters: Vec<Counter> = [Counter::SystemCalls, Counter::Instructions]
        .into_iter()
        .filter(|counter| {
            let exists = counter.exists();
            if !exists {
                eprintln!("{counter:?} are not counted: the tool is not installed");
            }
            exists
        })
        .collect();
    ensure!(!counters.is_empty(), "install strace or valgrind");
    let small = costs(options, options.small_mb, &counters)?;
    let large = costs(options, options.large_mb, &counters)?;
    fs::remove_dir_all(&options.dir)?;
    let costs = small
        .into_iter()
        .zip(large)
        .map(|((request, of, small), (_, _, large))| Cost {
            request,
            of,
            small,
            large,
            ratio: large / small,
        });
    let costs: Vec<Cost> = costs.collect();
    for cost in &costs {
        println!(
            "{:?}: {:.2} {:?} per request at {} MB, {:.2} at {} MB: {:.3}",
            cost.request,
            cost.small,
            cost.of,
            options.small_mb,
            cost.large,
            options.large_mb,
            cost.ratio
        );
    }
    let Some(path) = &options.json else {
        return Ok(());
    };
    let report = FlatReport {
        environment,
        small_mb: options.small_mb,
        large_mb: options.large_mb,
        requests: options.requests,
        costs,
    };
    write_json(path, &report)
}

/// What each kind of request costs in a log of that size.
fn costs(
    options: &FlatOptions,
    megabytes: usize,
    counters: &[Counter],
) -> Result<Vec<(Kind, Counter, f64)>> {
    fill(options, megabytes)?;
    let mut found = Vec::new();
    for counter in counters {
        for kind in [Kind::Produce, Kind::Fetch] {
            let few = counted(options, *counter, kind, FEW)?;
            let many = counted(options, *counter, kind, FEW + options.requests)?;
            let more = many.saturating_sub(few) as f64;
            found.push((kind, *counter, more / options.requests.max(1) as f64));
        }
    }
    Ok(found)
}

fn broker(options: &FlatOptions, wrapper: Vec<String>) -> Result<Server> {
    let plain = match wrapper.is_empty() {
        true => Vec::new(),
        // Callgrind counts what threads of the process do, and nothing that a ring does for it.
        false => vec!["thalweg.engine=plain".to_owned()],
    };
    let (server, _) = Server::broker(&BrokerOptions {
        binary: options.binary.clone(),
        dir: options.dir.join("broker"),
        data: Some(options.dir.join("data")),
        wrapper,
        cpu: None,
        shards: 1,
        properties: plain,
    })?;
    Ok(server)
}

/// Makes the log as large as asked for, and stops the broker in order.
fn fill(options: &FlatOptions, megabytes: usize) -> Result<()> {
    let server = broker(options, Vec::new())?;
    let address = server.address.to_string();
    let workload = workload()?;
    let mut cluster = stage::cluster(&address)?;
    if cluster.topic(TOPIC, MissingTopic::Refuse).is_err() {
        stage::create_topic(&mut cluster, TOPIC, 1, &workload.topic)?;
    }
    let batch = SampleBatch::of(&workload, 0)?;
    let batches = stage::batches_for(batch.bytes.len(), 1, megabytes);
    let there = end(&address)? / batch.records as i64;
    let missing = batches.saturating_sub(usize::try_from(there)?);
    ProduceJob::new(TOPIC, &workload, &workload.filling())?.fill(&address, missing)?;
    server.stop()
}

/// Batches of 64 KiB in one partition.
fn workload() -> Result<Workload> {
    Workload::named("bulk-1-partition")
}

fn end(address: &str) -> Result<i64> {
    let found = stage::cluster(address)?.offsets(TOPIC, &[0], OffsetSpec::Latest)?;
    let end = found.get(&0).and_then(|found| found.offset);
    end.context("the broker does not say where the log ends")
}

/// What the tool counts in a life of the broker with so many requests.
fn counted(options: &FlatOptions, counter: Counter, kind: Kind, requests: usize) -> Result<u64> {
    let summary = options.dir.join("summary.txt");
    fs::remove_file(&summary).ok();
    let server = broker(options, counter.wrapper(&summary))?;
    let address = server.address.to_string();
    match kind {
        Kind::Produce => {
            let one = Workload {
                batch_bytes: 1,
                ..workload()?
            };
            ProduceJob::new(TOPIC, &one, &one.filling())?.fill(&address, requests)?;
        }
        Kind::Fetch => fetch(&address, requests)?,
    }
    server.stop()?;
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(&summary).unwrap_or_default();
        if let Some(count) = counter.count_in(&text) {
            return Ok(count);
        }
        if began.elapsed() > SUMMARY_MAX {
            bail!("{counter:?}: no summary in {}: {text}", summary.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Fetches of 64 KiB near the end of the log.
fn fetch(address: &str, requests: usize) -> Result<()> {
    let records = SampleBatch::of(&workload()?, 0)?.records as i64;
    let end = end(address)?;
    let mut connection = Connection::connect(address, &ConnectOptions::default())?;
    for n in 0..requests as i64 {
        let back = (1 + n % FETCHED_BATCHES) * records;
        let request = fetch_request(TOPIC, 0, (end - back).max(0), FETCH_BYTES);
        let answer = connection.call_at(&request, FETCH_VERSION)?;
        let part = answer
            .responses
            .first()
            .and_then(|topic| topic.partitions.first());
        let part = part.context("an answer without the partition")?;
        ensure!(
            part.error_code == 0,
            "fetch answered error {}",
            part.error_code
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn summaries_are_understood() {
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.000600           6       100         3 read\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.001000           5       173         3 total\n";
        assert_eq!(Counter::SystemCalls.count_in(strace), Some(173));
        assert_eq!(Counter::SystemCalls.count_in(&strace[..200]), None);
        let callgrind = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(Counter::Instructions.count_in(callgrind), Some(123_456));
    }
}
