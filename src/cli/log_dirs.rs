//! `thalweg log-dirs`: what is in which log directory, and moves between them.

mod moving;

use serde::{Deserialize, Serialize};
use thalweg_client::{LogDirectory, LogInDirectory};
use thalweg_protocol::ErrorCode;

use crate::args::{LogDirsCommand, LogDirsDescribeArgs};
use crate::broker_http::BrokerHttp;
use crate::exit::{Failure, connect};
use crate::output::{self, Align, or_dash};

/// Runs one subcommand of `thalweg log-dirs`.
pub(crate) fn run(command: LogDirsCommand) -> Result<(), Failure> {
    match command {
        LogDirsCommand::Describe(args) => describe(&args),
        LogDirsCommand::Move(args) => moving::run(&args),
    }
}

/// What `--json` prints; field names stay.
#[derive(Serialize)]
struct Report {
    directories: Vec<DirectoryLine>,
    /// Null when the HTTP endpoint does not answer.
    offline: Option<Vec<OfflineLine>>,
    /// Null when the HTTP endpoint does not answer.
    quarantined: Option<Vec<QuarantinedLine>>,
    /// Null when the HTTP endpoint does not answer.
    not_moved: Option<Vec<NotMovedLine>>,
}

/// The answer of `/log-dirs`.
#[derive(Deserialize)]
struct Told {
    broker: i32,
    directories: Vec<ToldDirectory>,
    offline: Vec<OfflineLine>,
    quarantined: Vec<QuarantinedLine>,
    /// Older brokers do not tell.
    #[serde(default)]
    not_moved: Vec<NotMovedLine>,
    shards_missing: usize,
    left_out: u64,
}

#[derive(Deserialize)]
struct ToldDirectory {
    directory: String,
    failure: Option<String>,
    full: bool,
}

#[derive(Serialize, Deserialize)]
struct OfflineLine {
    topic: String,
    partition: i32,
    directory: Option<String>,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct QuarantinedLine {
    topic: String,
    partition: i32,
    first_offset: i64,
    next_offset: i64,
    file: String,
    first_byte: u64,
    end_byte: u64,
    reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct NotMovedLine {
    topic: String,
    partition: i32,
    directory: String,
    reason: String,
}

#[derive(Serialize)]
struct DirectoryLine {
    broker: i32,
    directory: String,
    state: String,
    /// Why it is offline; null from brokers that do not tell.
    reason: Option<String>,
    usable_bytes: Option<i64>,
    total_bytes: Option<i64>,
    partitions: Vec<LogLine>,
}

#[derive(Serialize, Clone)]
struct LogLine {
    topic: String,
    partition: i32,
    bytes: i64,
    future: bool,
    lag: i64,
}

fn describe(args: &LogDirsDescribeArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.bootstrap)?;
    let brokers = match args.broker {
        Some(id) => vec![id],
        None => cluster
            .describe_cluster()?
            .brokers
            .iter()
            .map(|b| b.id)
            .collect(),
    };
    let mut lines = Vec::new();
    for broker in brokers {
        let found = cluster.describe_log_dirs(broker)?;
        lines.extend(found.into_iter().map(|dir| line(broker, dir)));
    }
    let http = BrokerHttp::of(&args.http, &args.bootstrap, cluster.cluster_id());
    let told: Option<Told> = http.find("/log-dirs", "why something is not served")?;
    if let Some(told) = &told {
        add_reasons(&mut lines, told);
    }
    if args.json {
        let mut report = Report {
            directories: lines,
            offline: None,
            quarantined: None,
            not_moved: None,
        };
        if let Some(told) = told {
            report.offline = Some(told.offline);
            report.quarantined = Some(told.quarantined);
            report.not_moved = Some(told.not_moved);
        }
        return Ok(output::json(&report)?);
    }
    print_directories(&lines)?;
    let logs = |wanted: fn(&LogLine) -> bool| {
        let rows = lines.iter().flat_map(move |dir| {
            let logs = dir.partitions.iter().filter(move |log| wanted(log));
            logs.map(|log| row(dir, log))
        });
        rows.collect::<Vec<_>>()
    };
    let rows = match args.partitions {
        true => logs(|_| true),
        false => logs(|log| log.future),
    };
    if !rows.is_empty() {
        print_logs(&rows)?;
    }
    match told {
        Some(told) => Ok(print_unserved(&told)?),
        None => Ok(()),
    }
}

fn add_reasons(lines: &mut [DirectoryLine], told: &Told) {
    for line in lines.iter_mut().filter(|line| line.broker == told.broker) {
        let is_same = |dir: &&ToldDirectory| {
            std::path::absolute(&dir.directory)
                .is_ok_and(|path| path.as_os_str() == line.directory.as_str())
                || dir.directory == line.directory
        };
        let Some(dir) = told.directories.iter().find(is_same) else {
            continue;
        };
        line.reason.clone_from(&dir.failure);
        if dir.full && dir.failure.is_none() {
            line.state = "full".to_owned();
        }
    }
}

fn print_unserved(told: &Told) -> std::io::Result<()> {
    for dir in &told.directories {
        if let Some(failure) = &dir.failure {
            output::line(&format!("\n{} is offline: {failure}", dir.directory))?;
        }
    }
    let offline = told.offline.iter().map(|line| {
        vec![
            line.topic.clone(),
            line.partition.to_string(),
            or_dash(line.directory.clone()),
            line.reason.clone(),
        ]
    });
    print_reasons("OFFLINE", "DIRECTORY", &offline.collect::<Vec<_>>())?;
    let not_moved = told.not_moved.iter().map(|line| {
        vec![
            line.topic.clone(),
            line.partition.to_string(),
            line.directory.clone(),
            line.reason.clone(),
        ]
    });
    print_reasons("NOT MOVED", "TO", &not_moved.collect::<Vec<_>>())?;
    if !told.quarantined.is_empty() {
        let headings = [
            ("QUARANTINED", Align::Left),
            ("PARTITION", Align::Right),
            ("OFFSETS", Align::Left),
            ("BYTES", Align::Left),
            ("FILE", Align::Left),
            ("REASON", Align::Left),
        ];
        let row = |line: &QuarantinedLine| {
            vec![
                line.topic.clone(),
                line.partition.to_string(),
                format!("{}-{}", line.first_offset, line.next_offset - 1),
                format!("{}-{}", line.first_byte, line.end_byte - 1),
                line.file.clone(),
                or_dash(line.reason.clone()),
            ]
        };
        output::line("")?;
        let rows: Vec<_> = told.quarantined.iter().map(row).collect();
        output::table(&headings, &rows)?;
    }
    if told.left_out > 0 || told.shards_missing > 0 {
        output::line(&format!(
            "\nnot shown: {} more, and what {} did not tell in time",
            told.left_out,
            output::count(told.shards_missing as u64, "core")
        ))?;
    }
    Ok(())
}

fn print_reasons(what: &str, directory: &str, rows: &[Vec<String>]) -> std::io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let headings = [
        (what, Align::Left),
        ("PARTITION", Align::Right),
        (directory, Align::Left),
        ("REASON", Align::Left),
    ];
    output::line("")?;
    output::table(&headings, rows)
}

fn line(broker: i32, dir: LogDirectory) -> DirectoryLine {
    let state = match ErrorCode::from_code(dir.error_code) {
        Some(ErrorCode::None) => "works".to_owned(),
        Some(ErrorCode::KafkaStorageError) => "offline".to_owned(),
        Some(other) => other.name().to_owned(),
        None => dir.error_code.to_string(),
    };
    let log = |log: LogInDirectory| LogLine {
        topic: log.topic,
        partition: log.partition,
        bytes: log.bytes,
        future: log.is_future,
        lag: log.lag,
    };
    DirectoryLine {
        broker,
        directory: dir.path,
        state,
        reason: None,
        usable_bytes: dir.usable_bytes,
        total_bytes: dir.total_bytes,
        partitions: dir.logs.into_iter().map(log).collect(),
    }
}

fn print_directories(lines: &[DirectoryLine]) -> std::io::Result<()> {
    let headings = [
        ("BROKER", Align::Right),
        ("DIRECTORY", Align::Left),
        ("STATE", Align::Left),
        ("PARTITIONS", Align::Right),
        ("BYTES", Align::Right),
        ("USABLE", Align::Right),
        ("TOTAL", Align::Right),
    ];
    let row = |dir: &DirectoryLine| {
        let held = dir.partitions.iter().filter(|log| !log.future);
        let bytes: i64 = dir.partitions.iter().map(|log| log.bytes).sum();
        vec![
            dir.broker.to_string(),
            dir.directory.clone(),
            dir.state.clone(),
            held.count().to_string(),
            bytes.to_string(),
            or_dash(dir.usable_bytes),
            or_dash(dir.total_bytes),
        ]
    };
    output::table(&headings, &lines.iter().map(row).collect::<Vec<_>>())
}

fn row(dir: &DirectoryLine, log: &LogLine) -> Vec<String> {
    let moves = log.future.then(|| format!("{} behind", log.lag));
    vec![
        log.topic.clone(),
        log.partition.to_string(),
        dir.directory.clone(),
        log.bytes.to_string(),
        or_dash(moves),
    ]
}

fn print_logs(rows: &[Vec<String>]) -> std::io::Result<()> {
    let headings = [
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("DIRECTORY", Align::Left),
        ("BYTES", Align::Right),
        ("MOVING", Align::Left),
    ];
    output::line("")?;
    output::table(&headings, rows)
}
