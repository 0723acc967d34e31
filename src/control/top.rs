//! What the broker does now, as `/top` tells it for `thalweg top`: counters that whoever asks twice makes rates of.

use serde::{Deserialize, Serialize};
use thalweg_metrics::{Cause, CoreMetrics, Counters, PartitionTraffic, TimeBuckets};
use thalweg_reactor::time;

use crate::facts::Facts;

/// Name of the stage that is the whole of a request.
pub const WHOLE_REQUEST: &str = "total";

/// One core. Everything but `queued`, `in_flight`, `connections`, `partitions` and `memory_bytes` only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreLine {
    /// Index of the shard.
    pub core: u16,
    /// CPU time of its thread in microseconds.
    pub cpu_us: u64,
    /// Requests received.
    pub requests: u64,
    /// Bytes of request frames received.
    pub bytes_in: u64,
    /// Bytes of response frames sent.
    pub bytes_out: u64,
    /// Requests of other cores that wait for it now.
    pub queued: u64,
    /// File operations that it waits for now.
    pub in_flight: u64,
    /// Connections open now.
    pub connections: u64,
    /// Partitions that it leads.
    pub partitions: u64,
    /// Memory of requests that have arrived or are arriving.
    pub memory_bytes: u64,
}

/// The traffic of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLine {
    /// Topic and number.
    pub partition: String,
    /// Record bytes of producers per second.
    pub bytes_in_per_s: u64,
    /// Record bytes for consumers per second.
    pub bytes_out_per_s: u64,
}

/// Work in the background, of all cores together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLine {
    /// What it does.
    pub lane: String,
    /// How often it did that.
    pub rounds: u64,
    /// Bytes that it worked on.
    pub bytes: u64,
    /// Bytes that wait for it; `None` where nothing does.
    pub waiting_bytes: Option<u64>,
}

/// The times of one stage of all requests, since the start and of all cores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLine {
    /// Name of the stage, or [`WHOLE_REQUEST`].
    pub stage: String,
    /// Requests that were in it.
    pub count: u64,
    /// Sum of their times in microseconds.
    pub sum_us: u64,
    /// The longest time in microseconds that falls into a bucket, and how many did; empty ones are left out.
    pub buckets: Vec<(u32, u64)>,
}

/// What `/top` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopAnswer {
    /// `cluster.id`.
    pub cluster_id: String,
    /// `node.id`.
    pub node_id: i32,
    /// Version of the broker.
    pub version: String,
    /// When this was read, in milliseconds since 1970.
    pub at_ms: i64,
    /// The cores that answered.
    pub cores: Vec<CoreLine>,
    /// The busiest partitions since the look before, busiest first.
    pub partitions: Vec<PartitionLine>,
    /// Work in the background.
    pub lanes: Vec<LaneLine>,
    /// Where the time of requests went.
    pub stages: Vec<StageLine>,
}

/// What `cores` say, with the `count` busiest partitions.
pub(crate) fn of(cores: &[CoreMetrics], facts: &Facts, count: usize) -> TopAnswer {
    let process = facts.get();
    let traffic = cores.iter().map(|core| &core.traffic);
    let partitions = PartitionTraffic::busiest(traffic, count);
    let mut sum = CoreMetrics::of_control();
    cores.iter().for_each(|core| sum.merge(core));
    TopAnswer {
        cluster_id: process.cluster_id,
        node_id: process.node_id,
        version: process.version,
        at_ms: time::unix_ms(),
        cores: cores.iter().map(core_line).collect(),
        partitions: partitions
            .into_iter()
            .map(|(id, rate)| PartitionLine {
                partition: facts.name_of(id),
                bytes_in_per_s: rate.bytes_in,
                bytes_out_per_s: rate.bytes_out,
            })
            .collect(),
        lanes: lanes(&sum.counters),
        stages: stages(&sum),
    }
}

fn core_line(core: &CoreMetrics) -> CoreLine {
    let counters = &core.counters;
    CoreLine {
        core: core.core,
        cpu_us: counters.cpu_us,
        requests: core.apis.used().map(|api| api.requests).sum(),
        bytes_in: counters.bytes_in,
        bytes_out: counters.bytes_out,
        queued: counters.mailbox_depth,
        in_flight: counters.reactor_in_flight,
        connections: counters.connections_open,
        partitions: counters.partitions_led,
        memory_bytes: counters.memory_budget_used,
    }
}

fn lanes(sum: &Counters) -> Vec<LaneLine> {
    let lane = |lane: &str, rounds, bytes, waiting_bytes| LaneLine {
        lane: lane.to_owned(),
        rounds,
        bytes,
        waiting_bytes,
    };
    vec![
        lane("writes", sum.append_writes, sum.append_bytes, None),
        lane("ack flushes", sum.ack_flushes, 0, None),
        lane(
            "flushes",
            sum.flushes,
            sum.flushed_bytes,
            Some(sum.unflushed_bytes),
        ),
        lane(
            "compaction",
            sum.compactions,
            sum.compaction_read_bytes,
            Some(sum.compaction_debt_bytes),
        ),
        lane(
            "scrub",
            sum.scrub_segments,
            sum.scrub_bytes,
            Some(sum.scrub_due_bytes),
        ),
        lane(
            "retention",
            sum.segments_deleted,
            sum.segments_deleted_bytes,
            None,
        ),
        lane("cold reads", sum.cold_reads, sum.cold_read_bytes, None),
        lane("sendfile stalls", sum.sendfile_stalls, 0, None),
    ]
}

fn stages(sum: &CoreMetrics) -> Vec<StageLine> {
    let line = |stage: &str, times: &TimeBuckets| StageLine {
        stage: stage.to_owned(),
        count: times.count(),
        sum_us: times.sum_us(),
        buckets: times.used().collect(),
    };
    let total = line(WHOLE_REQUEST, sum.blame.total());
    let each = Cause::ALL
        .iter()
        .map(|cause| line(cause.label(), sum.blame.stage(*cause)));
    each.chain([total]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use thalweg_metrics::{Cause, CoreMetrics, ProcessFacts, Spent};
    use thalweg_types::{PartitionIndex, TopicPartition, Uuid};

    use super::{LaneLine, WHOLE_REQUEST, of};
    use crate::facts::Facts;

    #[test]
    fn cores_stay_apart_and_the_rest_is_summed_up() {
        let facts = Facts::new(ProcessFacts::default());
        let id = TopicPartition {
            topic: Uuid([0; 16]),
            partition: PartitionIndex(4),
        };
        let start = Instant::now();
        let mut cores = vec![CoreMetrics::new(0, 2), CoreMetrics::new(1, 2)];
        for (core, us) in cores.iter_mut().zip([10, 30]) {
            core.counters.cpu_us = us;
            core.counters.compaction_debt_bytes = 100;
            core.apis.count_request(0, "Produce");
            core.apis.count_request(1, "Fetch");
            let mut spent = Spent::default();
            spent.add(Cause::Append, Duration::from_micros(us));
            core.blame.count(&spent, 40);
            core.traffic.turn(start);
            core.traffic.count_in(id, 1_000);
            core.traffic.turn(start + Duration::from_secs(1));
        }
        let told = of(&cores, &facts, 10);
        let seen: Vec<_> = told
            .cores
            .iter()
            .map(|core| (core.core, core.cpu_us, core.requests))
            .collect();
        assert_eq!(seen, [(0, 10, 2), (1, 30, 2)]);
        assert_eq!(told.partitions[0].partition, "AAAAAAAAAAAAAAAAAAAAAA-4");
        assert_eq!(told.partitions[0].bytes_in_per_s, 2_000);
        let compaction = LaneLine {
            lane: "compaction".to_owned(),
            waiting_bytes: Some(200),
            ..LaneLine::default()
        };
        assert!(told.lanes.contains(&compaction));
        let stage = |name: &str| {
            let mut all = told.stages.iter();
            all.find(|line| line.stage == name).expect("told").clone()
        };
        assert_eq!((stage("append").count, stage("append").sum_us), (2, 40));
        assert_eq!(stage("append").buckets, [(10, 1), (31, 1)]);
        assert_eq!(stage(WHOLE_REQUEST).count, 2);
        assert!(stage("flush_wait").buckets.is_empty());
    }
}
