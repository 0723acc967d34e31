//! Gets a server ready for a workload: its topic, filled where it is to be read, and the parts of the load.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use thalweg_client::{Cluster, ClusterOptions, MissingTopic, NewTopic, OffsetSpec};
use thalweg_protocol::ErrorCode;

use crate::backlog;
use crate::job::{FetchJob, ProduceJob, TailJob, probe_fetch};
use crate::load::{Job, Keep, Part};
use crate::workload::{Consume, Produce, ReadFrom, Workload};

/// Dirty pages below this let the next round begin.
const DIRTY_KIB_MAX: u64 = 64 * 1024;
/// How long to wait for that where nothing else is said.
pub const SETTLE_MAX: Duration = Duration::from_secs(15);
/// Partitions asked for at once: Kafka's controller refuses requests that make more than 10,000 records of metadata.
const PARTITIONS_TOGETHER: usize = 5_000;
/// How long new partitions may take to be known and led, and between two looks. A JVM on one CPU needs most of a
/// minute for 10,000.
const PARTITIONS_PATIENCE: Duration = Duration::from_secs(180);
const PARTITIONS_PAUSE: Duration = Duration::from_millis(50);

/// Creates a topic with these properties, and returns when all its partitions have leaders that lead.
///
/// # Errors
/// When it exists, or the broker refuses. Nothing is left of a topic that does not get so far.
pub fn create_topic(
    cluster: &mut Cluster,
    name: &str,
    partitions: usize,
    settings: &BTreeMap<String, String>,
) -> Result<()> {
    let pair = |(key, value): (&String, &String)| (key.clone(), value.clone());
    let first = partitions.min(PARTITIONS_TOGETHER);
    cluster.create_topic(&NewTopic {
        name: name.to_owned(),
        partitions: Some(i32::try_from(first)?),
        replication_factor: Some(1),
        configs: settings.iter().map(pair).collect(),
    })?;
    let ready = complete(cluster, name, first, partitions);
    if ready.is_err() {
        let _deleted = cluster.delete_topic(name);
    }
    ready
}

/// Adds what lacks of `partitions`, and waits until all are led.
fn complete(cluster: &mut Cluster, name: &str, first: usize, partitions: usize) -> Result<()> {
    let mut created = first;
    wait_for_partitions(cluster, name, created)?;
    while created < partitions {
        created = partitions.min(created + PARTITIONS_TOGETHER);
        cluster.create_partitions(name, i32::try_from(created)?)?;
        wait_for_partitions(cluster, name, created)?;
    }
    // Leaders may take a moment until they lead.
    let all: Vec<i32> = (0..i32::try_from(partitions)?).collect();
    cluster.offsets(name, &all, OffsetSpec::Latest)?;
    Ok(())
}

/// Kafka answers before its brokers know of new partitions.
fn wait_for_partitions(cluster: &mut Cluster, name: &str, count: usize) -> Result<()> {
    let end = Instant::now() + PARTITIONS_PATIENCE;
    loop {
        cluster.forget_topics();
        let known = match cluster.topic(name, MissingTopic::Refuse) {
            Ok(topic) => topic.partitions.len(),
            // Nor of a topic, while those of the one before it are being deleted.
            Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => 0,
            Err(error) => return Err(error.into()),
        };
        if known >= count {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "topic {name} has {known} of {count} partitions after {PARTITIONS_PATIENCE:?}"
        );
        thread::sleep(PARTITIONS_PAUSE);
    }
}

/// A connection to the cluster that `address` belongs to.
///
/// # Errors
/// When nobody answers there.
pub fn cluster(address: &str) -> Result<Cluster> {
    let options = ClusterOptions {
        retry_for: PARTITIONS_PATIENCE,
        ..ClusterOptions::default()
    };
    Ok(Cluster::connect(address, options)?)
}

/// Produces so many megabytes of the workload's batches, equally to all partitions; returns how many batches each
/// partition has then.
///
/// # Errors
/// When a request fails.
pub fn fill(workload: &Workload, topic: &str, address: &str, fill_mb: usize) -> Result<usize> {
    let how = Produce {
        acks: 1,
        ..workload.filling()
    };
    let mut job = ProduceJob::new(topic, workload, &how)?;
    let batches = batches_for(
        job.bytes_per_request() as usize,
        workload.partitions,
        fill_mb,
    );
    job.fill(address, batches)?;
    Ok(batches)
}

/// Batches of this size that each partition gets, so that all of them together have so many megabytes at least.
#[must_use]
pub fn batches_for(batch_bytes: usize, partitions: usize, megabytes: usize) -> usize {
    (megabytes * 1_000_000).div_ceil(batch_bytes * partitions)
}

/// The producers of a workload.
///
/// # Errors
/// When the numbers make no batch.
pub fn produce_part(workload: &Workload, how: &Produce, topic: &str) -> Result<Part> {
    Ok(Part {
        name: "produce",
        job: Box::new(ProduceJob::new(topic, workload, how)?),
        connections: how.connections,
        in_flight: how.in_flight,
        rate: how.rate,
        reader: crate::workload::Reader::Copy,
        keep: Keep::Latency,
        gives_way: false,
    })
}

/// The consumers of a workload, with a job of [`FetchJob`] or [`TailJob`].
#[must_use]
pub fn consume_part(how: &Consume, job: Box<dyn Job>) -> Part {
    Part {
        name: "consume",
        job,
        connections: how.connections,
        in_flight: how.in_flight,
        rate: how.rate,
        reader: how.reader,
        keep: Keep::Latency,
        gives_way: false,
    }
}

/// Requests that read a topic with so many batches in each partition, after a look at an answer of each server.
///
/// # Errors
/// When an answer is not understood.
pub fn fetch_job(
    workload: &Workload,
    how: &Consume,
    topic: &str,
    batches: usize,
    addresses: &[String],
) -> Result<FetchJob> {
    let mut job = FetchJob::new(topic, workload, how, batches)?;
    for address in addresses {
        probe_fetch(&mut job, address).with_context(|| format!("probing {address}"))?;
    }
    Ok(job)
}

/// All parts of a workload; fills the topic where consumers read what lies there.
///
/// # Errors
/// When filling fails, or an answer is not understood.
pub fn parts(workload: &Workload, topic: &str, address: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    if let Some(how) = &workload.produce {
        parts.push(produce_part(workload, how, topic)?);
    }
    if let Some(how) = &workload.cold {
        parts.push(backlog::cold_part(how, address)?);
    }
    if let Some(how) = &workload.consume {
        let job: Box<dyn Job> = match how.from {
            ReadFrom::Filled => {
                let batches = fill(workload, topic, address, how.fill_mb)?;
                let addresses = [address.to_owned()];
                Box::new(fetch_job(workload, how, topic, batches, &addresses)?)
            }
            ReadFrom::Tail => Box::new(TailJob::new(topic, workload, how)?),
        };
        parts.push(consume_part(how, job));
    }
    ensure!(!parts.is_empty(), "nothing would be sent");
    Ok(parts)
}

/// Waits until what the last run left dirty is written or gone, so that it does not weigh on the next; so long at most.
pub fn settle(at_most: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < at_most {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let dirty: u64 = text
            .lines()
            .filter(|l| l.starts_with("Dirty:") || l.starts_with("Writeback:"))
            .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum();
        if dirty < DIRTY_KIB_MAX {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}
