//! How long a broker takes to be ready after a kill, and how much it reads for it.
//!
//! A broker is filled through its own protocol, killed by SIGKILL, and started again on the same files. What
//! a loss of power leaves is simulated by taking the marks away that only hold on the same boot: then
//! everything above the recovery points is checked.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use thalweg_client::OffsetSpec;

use crate::process::{BrokerOptions, Server};
use crate::stage;
use crate::workload::Workload;

const TOPIC: &str = "recovered";
/// Marks of what was written; of use after a kill only.
const MARKS: &str = "thalweg-written-checkpoint";
/// Partitions whose ends are asked for in one request.
const ASKED_AT_ONCE: usize = 1_000;

/// What ended the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// SIGKILL: what was written is in the page cache.
    Kill,
    /// The same, and nothing is known of the page cache.
    PowerLoss,
}

/// Flags of `recovery`.
#[derive(clap::Args, Clone, Debug)]
pub struct RecoveryOptions {
    /// The broker to start
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for its data, which are removed at the end; must be empty or missing
    #[arg(long, default_value = "bench/results/local/recovery")]
    pub dir: PathBuf,
    /// Partitions that are filled
    #[arg(long, default_value_t = 100)]
    pub partitions: usize,
    /// MB in all of them together
    #[arg(long, default_value_t = 10_000)]
    pub megabytes: usize,
    /// Bytes of one batch
    #[arg(long, default_value_t = 65_536)]
    pub batch_bytes: usize,
    /// What ends the broker
    #[arg(long, value_enum, default_value = "kill")]
    pub after: EndedBy,
    /// How often it is started again
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Shards of the broker
    #[arg(long, default_value_t = 2)]
    pub shards: usize,
    /// Properties of the broker
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    partitions: usize,
    megabytes: usize,
    after: EndedBy,
    starts: Vec<Started>,
}

/// One start after an end.
#[derive(Serialize)]
struct Started {
    /// From exec to the first answer.
    seconds_to_ready: f64,
    /// Bytes of logs that were checked.
    checked_mb: f64,
    /// Bytes above the recovery points that were believed to be as they were marked.
    trusted_mb: f64,
    /// All bytes that the process read by system calls.
    read_mb: f64,
    checked_mb_per_second: f64,
}

/// Fills a broker, ends and starts it, and prints the figures as JSON.
///
/// # Errors
/// The broker can not be started, or has not what it had.
pub fn run(options: &RecoveryOptions) -> Result<()> {
    let broker = BrokerOptions {
        binary: options.binary.clone(),
        dir: options.dir.join("broker"),
        data: Some(options.dir.join("data")),
        wrapper: Vec::new(),
        cpu: None,
        shards: options.shards,
        properties: options.properties.clone(),
    };
    let (mut server, _) = Server::broker(&broker)?;
    let address = server.address.to_string();
    let workload = Workload {
        partitions: options.partitions,
        ..Workload::plain(TOPIC, 1_000, options.batch_bytes)
    };
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, options.partitions, &workload.topic)?;
    stage::fill(&workload, TOPIC, &address, options.megabytes)?;
    let filled = ends(&address, options.partitions)?;
    let mut starts = Vec::new();
    for _ in 0..options.rounds {
        // Whoever drops it kills it, and its data stay.
        drop(server);
        if options.after == EndedBy::PowerLoss {
            forget_marks(options)?;
        }
        let (again, took) = Server::broker(&broker)?;
        server = again;
        starts.push(started(&server, took, options)?);
        let found = ends(&server.address.to_string(), options.partitions)?;
        ensure!(found == filled, "records are missing after the start");
    }
    server.stop()?;
    fs::remove_dir_all(options.dir.join("data"))?;
    let report = Report {
        partitions: options.partitions,
        megabytes: options.megabytes,
        after: options.after,
        starts,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn forget_marks(options: &RecoveryOptions) -> Result<()> {
    match fs::remove_file(options.dir.join("data").join(MARKS)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn ends(address: &str, partitions: usize) -> Result<Vec<Option<i64>>> {
    let mut cluster = stage::cluster(address)?;
    let all: Vec<i32> = (0..i32::try_from(partitions)?).collect();
    let mut ends = Vec::with_capacity(partitions);
    for some in all.chunks(ASKED_AT_ONCE) {
        let found = cluster.offsets(TOPIC, some, OffsetSpec::Latest)?;
        ends.extend(found.values().map(|end| end.offset));
    }
    Ok(ends)
}

fn started(server: &Server, took: Duration, options: &RecoveryOptions) -> Result<Started> {
    const MB: f64 = 1e6;
    let log = fs::read_to_string(options.dir.join("broker/broker.log"))?;
    let line = log.lines().find(|line| line.contains("all logs are open"));
    let line = line.context("the broker did not say what it checked")?;
    let checked = number_after(line, "bytes_checked=")? as f64 / MB;
    let io = fs::read_to_string(format!("/proc/{}/io", server.pid()))?;
    Ok(Started {
        seconds_to_ready: took.as_secs_f64(),
        checked_mb: checked,
        trusted_mb: number_after(line, "bytes_trusted=")? as f64 / MB,
        read_mb: number_after(&io, "rchar: ")? as f64 / MB,
        checked_mb_per_second: checked / took.as_secs_f64(),
    })
}

fn number_after(text: &str, key: &str) -> Result<u64> {
    let rest = text.split_once(key).map(|(_, rest)| rest);
    let rest = rest.with_context(|| format!("no {key} in {text:?}"))?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    Ok(rest[..digits].parse()?)
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn numbers_are_read_out_of_the_brokers_line() {
        let line = "INFO all logs are open logs=3 bytes_checked=120 bytes_trusted=7";
        assert_eq!(number_after(line, "bytes_checked=").ok(), Some(120));
        assert_eq!(number_after(line, "bytes_trusted=").ok(), Some(7));
        assert!(number_after(line, "rchar: ").is_err());
    }
}
