//! Many groups of one member, which do nothing: what they hold in the broker's memory.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::messages::SyncGroupRequest;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;

use super::{COMMIT_BY_NAME, commit_request, exchange, find_coordinator, join_request, refused};
use crate::cpu;
use crate::environment::Environment;
use crate::rounds::write_json;
use crate::stage;
use crate::target::{Target, TargetArgs, TargetReport};

const TOPIC: &str = "bench-held";
/// Groups that are made side by side.
const AT_ONCE: usize = 200;
/// Bytes of a member's share.
const SHARE_BYTES: usize = 60;

/// Flags of `groups held`.
#[derive(clap::Args, Clone, Debug)]
pub struct HeldOptions {
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Groups, of one member each
    #[arg(long, default_value_t = 10_000)]
    pub groups: usize,
    /// Offsets that each has committed
    #[arg(long, default_value_t = 10)]
    pub offsets: i32,
    /// Seconds of quiet before each look at the memory
    #[arg(long, default_value_t = 10.0)]
    pub wait: f64,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    environment: Environment,
    target: TargetReport,
    groups: usize,
    offsets_of_each: i32,
    /// With the topics, and no group.
    rss_before: u64,
    rss_with_groups: u64,
    mib_of_groups: f64,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start, or refuses.
pub fn run(options: &HeldOptions) -> Result<()> {
    let environment = Environment::of(&options.target.dir);
    let mut args = options.target.clone();
    args.properties
        .push("group.initial.rebalance.delay.ms=0".to_owned());
    let target = Target::ready(&args)?;
    let pid = target
        .pid
        .context("whose memory? give --broker-pid with --against")?;
    let address = target.address().to_string();
    let mut cluster = stage::cluster(&address)?;
    let partitions = usize::try_from(options.offsets)?;
    stage::create_topic(&mut cluster, TOPIC, partitions, &Default::default())?;
    drop(cluster);
    let mut connection = Connection::connect(&address, &ConnectOptions::default())?;
    find_coordinator(&mut connection, &name(0))?;
    let quiet = || -> Result<u64> {
        thread::sleep(Duration::from_secs_f64(options.wait));
        cpu::resident_bytes(pid)
    };
    let rss_before = quiet()?;
    let all: Vec<usize> = (0..options.groups).collect();
    for some in all.chunks(AT_ONCE) {
        make(&mut connection, some, options.offsets)?;
    }
    let rss_with_groups = quiet()?;
    let report = Report {
        environment,
        target: target.report.clone(),
        groups: options.groups,
        offsets_of_each: options.offsets,
        rss_before,
        rss_with_groups,
        mib_of_groups: rss_with_groups.saturating_sub(rss_before) as f64 / f64::from(1 << 20),
    };
    println!(
        "RSS before: {rss_before} bytes; with {} groups of one member and {} offsets: {rss_with_groups} bytes, \
         {:.1} MiB more",
        options.groups, options.offsets, report.mib_of_groups
    );
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    target.stop()
}

fn name(n: usize) -> String {
    format!("bench-held-{n}")
}

/// Joins, shares out and commits, as the only member of each group.
fn make(connection: &mut Connection, some: &[usize], offsets: i32) -> Result<()> {
    let joins: Vec<_> = some
        .iter()
        .map(|n| join_request(&name(*n), "", TOPIC))
        .collect();
    let named = exchange(connection, &joins, None)?;
    let ids = named.into_iter().map(|answer| answer.member_id);
    let ids: Vec<String> = ids.collect();
    let groups = || some.iter().zip(&ids);
    let joins: Vec<_> = groups()
        .map(|(n, id)| join_request(&name(*n), id, TOPIC))
        .collect();
    for answer in exchange(connection, &joins, None)? {
        refused("JoinGroup", answer.error_code)?;
    }
    let sync = |(n, id): (&usize, &String)| SyncGroupRequest {
        group_id: name(*n),
        generation_id: 1,
        member_id: id.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: id.clone(),
            assignment: Bytes::from_static(&[7; SHARE_BYTES]),
        }],
        ..Default::default()
    };
    let syncs: Vec<_> = groups().map(sync).collect();
    for answer in exchange(connection, &syncs, None)? {
        refused("SyncGroup", answer.error_code)?;
    }
    let commit =
        |(n, id): (&usize, &String)| commit_request(&name(*n), (id, 1), TOPIC, 0..offsets, 7);
    let commits: Vec<_> = groups().map(commit).collect();
    for answer in exchange(connection, &commits, Some(COMMIT_BY_NAME))? {
        for row in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            refused("OffsetCommit", row.error_code)?;
        }
    }
    Ok(())
}
