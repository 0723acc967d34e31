//! `thalweg log-dirs move`.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use thalweg_client::{Cluster, LogDirectory, LogInDirectory, MissingTopic};

use super::{NotMovedLine, Told};
use crate::args::{LogDirsMoveArgs, TopicChoice};
use crate::broker_http::BrokerHttp;
use crate::exit::{Exit, Failure, connect};
use crate::output;

/// Between two looks at how far a move is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct MoveLine {
    topic: String,
    partition: i32,
    moving: bool,
    error: Option<String>,
}

/// Runs `thalweg log-dirs move`.
pub(super) fn run(args: &LogDirsMoveArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.bootstrap)?;
    let broker = only_broker(&mut cluster, args.broker)?;
    let partitions = partitions(&mut cluster, &args.topics)?;
    let outcomes = cluster.move_to_log_dir(broker, &args.to, &partitions)?;
    let mut refused = None;
    let mut lines = Vec::new();
    for (topic, partition, outcome) in outcomes {
        let error = outcome.as_ref().err().map(ToString::to_string);
        lines.push(MoveLine {
            topic,
            partition,
            moving: error.is_none(),
            error,
        });
        refused = refused.or(outcome.err());
    }
    if args.wait {
        for line in lines.iter().filter(|line| line.moving) {
            wait_for(&mut cluster, broker, args, line)?;
        }
    }
    match args.json {
        true => output::json(&lines)?,
        false => {
            for line in &lines {
                let did = match (&line.error, args.wait) {
                    (Some(error), _) => error.clone(),
                    (None, true) => format!("{}-{} is in {}", line.topic, line.partition, args.to),
                    (None, false) => {
                        format!("{}-{} moves to {}", line.topic, line.partition, args.to)
                    }
                };
                output::line(&did)?;
            }
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// The broker that is meant.
fn only_broker(cluster: &mut Cluster, asked: Option<i32>) -> Result<i32, Failure> {
    if let Some(id) = asked {
        return Ok(id);
    }
    let brokers = cluster.describe_cluster()?.brokers;
    match &brokers[..] {
        [only] => Ok(only.id),
        several => {
            let ids: Vec<String> = several.iter().map(|b| b.id.to_string()).collect();
            let text = format!("say which broker by --broker: {}", ids.join(", "));
            Err(Failure::new(Exit::Usage, text))
        }
    }
}

/// The partitions that are named, or all of their topic.
fn partitions(
    cluster: &mut Cluster,
    topics: &[TopicChoice],
) -> Result<BTreeMap<String, Vec<i32>>, Failure> {
    let mut partitions = BTreeMap::new();
    for choice in topics {
        let of_topic = match choice.partitions.is_empty() {
            true => {
                let topic = cluster.topic(&choice.name, MissingTopic::Refuse)?;
                topic.partitions.iter().map(|p| p.index).collect()
            }
            false => choice.partitions.clone(),
        };
        partitions
            .entry(choice.name.clone())
            .or_insert_with(Vec::new)
            .extend(of_topic);
    }
    Ok(partitions)
}

/// Returns when the partition is in the directory. Says so when its move is given up, or when nothing at all was
/// copied on that broker for as long as an operation may take.
fn wait_for(
    cluster: &mut Cluster,
    broker: i32,
    args: &LogDirsMoveArgs,
    line: &MoveLine,
) -> Result<(), Failure> {
    let patience = Duration::from_secs(args.bootstrap.timeout.into());
    let (mut copied, mut since) = (Vec::new(), Instant::now());
    loop {
        let dirs = cluster.describe_log_dirs(broker)?;
        let there = dirs.iter().find(|dir| dir.path == args.to);
        let found = there.and_then(|dir| dir.logs.iter().find(|log| line.is_of(log)));
        let text = match found {
            Some(log) if !log.is_future => return Ok(()),
            Some(log) => {
                let now = under_way(&dirs);
                if now != copied {
                    (copied, since) = (now, Instant::now());
                }
                if since.elapsed() < patience {
                    thread::sleep(LOOK_EVERY);
                    continue;
                }
                let usable = there.and_then(|dir| dir.usable_bytes);
                stuck(args, line, missing(&dirs, line, log), usable)
            }
            None => {
                let (name, to) = (format!("{}-{}", line.topic, line.partition), &args.to);
                match why_not(cluster, args, line)? {
                    Some(reason) => format!("{name} was not moved to {to}: {reason}"),
                    None => {
                        format!("{name} does not move to {to} any more: the broker's log says why")
                    }
                }
            }
        };
        return Err(Failure::new(Exit::Failed, text));
    }
}

/// Why its move was given up, if the broker tells.
fn why_not(
    cluster: &Cluster,
    args: &LogDirsMoveArgs,
    line: &MoveLine,
) -> Result<Option<String>, Failure> {
    let http = BrokerHttp::of(&args.http, &args.bootstrap, cluster.cluster_id());
    let told: Option<Told> = http.find("/log-dirs", "why it was not moved")?;
    let mut not_moved = told
        .map(|told| told.not_moved)
        .unwrap_or_default()
        .into_iter();
    let is_it = |told: &NotMovedLine| told.topic == line.topic && told.partition == line.partition;
    Ok(not_moved.find(is_it).map(|told| told.reason))
}

impl MoveLine {
    fn is_of(&self, log: &LogInDirectory) -> bool {
        log.topic == self.topic && log.partition == self.partition
    }
}

/// The copies of a broker, with their bytes.
fn under_way(dirs: &[LogDirectory]) -> Vec<(String, i32, i64)> {
    let logs = dirs.iter().flat_map(|dir| &dir.logs);
    let copies = logs.filter(|log| log.is_future);
    copies
        .map(|log| (log.topic.clone(), log.partition, log.bytes))
        .collect()
}

fn missing(dirs: &[LogDirectory], line: &MoveLine, copy: &LogInDirectory) -> i64 {
    let mut logs = dirs.iter().flat_map(|dir| &dir.logs);
    let here = logs.find(|log| line.is_of(log) && !log.is_future);
    here.map_or(0, |log| (log.bytes - copy.bytes).max(0))
}

fn stuck(args: &LogDirsMoveArgs, line: &MoveLine, missing: i64, usable: Option<i64>) -> String {
    let room = usable.map_or(String::new(), |usable| {
        format!(
            " {} has {usable} bytes of room, of which it keeps its headroom \
             (thalweg.log.dirs.headroom.bytes) for producers.",
            args.to
        )
    });
    format!(
        "{}-{} does not come nearer to {}: nothing was copied for {} s (--timeout), {missing} bytes are \
         missing.{room} The move stays, and goes on by itself when it can; the broker's log says what it waits \
         for. To call it off, ask for the directory that the partition is in",
        line.topic, line.partition, args.to, args.bootstrap.timeout
    )
}

#[cfg(test)]
mod tests {
    use thalweg_client::{LogDirectory, LogInDirectory};

    use super::{MoveLine, missing, under_way};

    fn log(bytes: i64, is_future: bool) -> LogInDirectory {
        LogInDirectory {
            topic: "t".to_owned(),
            partition: 0,
            bytes,
            lag: 0,
            is_future,
        }
    }

    #[test]
    fn a_move_comes_nearer_while_a_copy_grows() {
        let dirs = |copied| {
            let dir = |path: &str, log| LogDirectory {
                path: path.to_owned(),
                error_code: 0,
                usable_bytes: None,
                total_bytes: None,
                logs: vec![log],
            };
            [dir("/a", log(100, false)), dir("/b", log(copied, true))]
        };
        assert_ne!(under_way(&dirs(1)), under_way(&dirs(2)));
        let line = MoveLine {
            topic: "t".to_owned(),
            partition: 0,
            moving: true,
            error: None,
        };
        assert_eq!(missing(&dirs(40), &line, &log(40, true)), 60);
    }
}
