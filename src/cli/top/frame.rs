//! Two looks at a broker, and what happened between them.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_control::{CoreLine, LaneLine, PartitionLine, SlowLine, StageLine, TopAnswer};

/// One frame, as `--json` prints it. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Frame {
    pub(super) cluster_id: String,
    pub(super) node_id: i32,
    pub(super) version: String,
    /// End of the interval, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// Its length.
    pub(super) seconds: f64,
    pub(super) cores: Vec<CoreRate>,
    pub(super) partitions: Vec<PartitionLine>,
    pub(super) lanes: Vec<LaneRate>,
    pub(super) stages: Vec<StageTimes>,
    pub(super) slow: Vec<SlowLine>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct CoreRate {
    pub(super) core: u16,
    /// CPU time of its thread, in percent of the interval.
    pub(super) busy_percent: f64,
    pub(super) requests_per_s: f64,
    pub(super) bytes_in_per_s: f64,
    pub(super) bytes_out_per_s: f64,
    pub(super) queued: u64,
    pub(super) in_flight: u64,
    pub(super) connections: u64,
    pub(super) partitions: u64,
    pub(super) memory_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct LaneRate {
    pub(super) lane: String,
    pub(super) rounds_per_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) waiting_bytes: Option<u64>,
}

/// Times of the requests of the interval that were in a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StageTimes {
    pub(super) stage: String,
    pub(super) requests_per_s: f64,
    /// Seconds that requests spent in it, per second of the interval.
    pub(super) waiting: f64,
    /// `None` where no request was in it.
    pub(super) p50_us: Option<u32>,
    pub(super) p99_us: Option<u32>,
    pub(super) p999_us: Option<u32>,
}

impl Frame {
    /// What happened from `before` to `now`. Of a broker that was started anew in between, only what is true now is told.
    pub(super) fn between(before: &TopAnswer, now: &TopAnswer, slow: Vec<SlowLine>) -> Frame {
        let seconds = (now.at_ms - before.at_ms).max(1) as f64 / 1_000.0;
        let core = |after: &CoreLine| {
            let found = before.cores.iter().find(|line| line.core == after.core);
            core_rate(found.unwrap_or(after), after, seconds)
        };
        let lane = |after: &LaneLine| {
            let found = before.lanes.iter().find(|line| line.lane == after.lane);
            let first = found.unwrap_or(after);
            LaneRate {
                lane: after.lane.clone(),
                rounds_per_s: grown(first.rounds, after.rounds) / seconds,
                bytes_per_s: grown(first.bytes, after.bytes) / seconds,
                waiting_bytes: after.waiting_bytes,
            }
        };
        let stage = |after: &StageLine| {
            let found = before.stages.iter().find(|line| line.stage == after.stage);
            stage_times(found.unwrap_or(after), after, seconds)
        };
        Frame {
            cluster_id: now.cluster_id.clone(),
            node_id: now.node_id,
            version: now.version.clone(),
            at_ms: now.at_ms,
            seconds,
            cores: now.cores.iter().map(core).collect(),
            partitions: now.partitions.clone(),
            lanes: now.lanes.iter().map(lane).collect(),
            stages: now.stages.iter().map(stage).collect(),
            slow,
        }
    }
}

/// By how much a counter has grown; nothing where it began anew.
fn grown(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

fn core_rate(before: &CoreLine, after: &CoreLine, seconds: f64) -> CoreRate {
    CoreRate {
        core: after.core,
        busy_percent: grown(before.cpu_us, after.cpu_us) / seconds / 1e4,
        requests_per_s: grown(before.requests, after.requests) / seconds,
        bytes_in_per_s: grown(before.bytes_in, after.bytes_in) / seconds,
        bytes_out_per_s: grown(before.bytes_out, after.bytes_out) / seconds,
        queued: after.queued,
        in_flight: after.in_flight,
        connections: after.connections,
        partitions: after.partitions,
        memory_bytes: after.memory_bytes,
    }
}

fn stage_times(before: &StageLine, after: &StageLine, seconds: f64) -> StageTimes {
    let earlier: BTreeMap<u32, u64> = before.buckets.iter().copied().collect();
    let fresh = after.buckets.iter().map(|(largest_us, count)| {
        let known = earlier.get(largest_us).copied().unwrap_or(0);
        (*largest_us, count.saturating_sub(known))
    });
    let fresh: Vec<(u32, u64)> = fresh.collect();
    StageTimes {
        stage: after.stage.clone(),
        requests_per_s: grown(before.count, after.count) / seconds,
        waiting: grown(before.sum_us, after.sum_us) / 1e6 / seconds,
        p50_us: quantile(&fresh, 0.5),
        p99_us: quantile(&fresh, 0.99),
        p999_us: quantile(&fresh, 0.999),
    }
}

/// The largest time of the bucket that the quantile falls into; buckets ascend.
fn quantile(buckets: &[(u32, u64)], q: f64) -> Option<u32> {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * q).ceil() as u64;
    let mut seen = 0;
    let found = buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted.max(1)
    });
    found.map(|(largest_us, _)| *largest_us)
}

#[cfg(test)]
pub(super) mod tests {
    use thalweg_control::{CoreLine, LaneLine, PartitionLine, StageLine, TopAnswer};

    use super::{Frame, quantile};

    pub(in crate::top) fn look(at_ms: i64, times: u64) -> TopAnswer {
        TopAnswer {
            cluster_id: "c".to_owned(),
            at_ms,
            cores: vec![CoreLine {
                cpu_us: 500_000 * times,
                requests: 100 * times,
                bytes_in: 2_000 * times,
                queued: 3,
                ..CoreLine::default()
            }],
            partitions: vec![PartitionLine {
                partition: "t-0".to_owned(),
                bytes_in_per_s: 1_500_000,
                bytes_out_per_s: 7,
            }],
            lanes: vec![LaneLine {
                lane: "flushes".to_owned(),
                rounds: 8 * times,
                bytes: 0,
                waiting_bytes: Some(9),
            }],
            stages: vec![StageLine {
                stage: "append".to_owned(),
                count: 10 * times,
                sum_us: 4_000 * times,
                buckets: vec![(127, 9 * times), (9_215, times)],
            }],
            ..TopAnswer::default()
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let frame = Frame::between(&look(10_000, 1), &look(12_000, 3), Vec::new());
        assert_eq!(frame.seconds, 2.0);
        let core = &frame.cores[0];
        assert_eq!((core.busy_percent, core.requests_per_s), (50.0, 100.0));
        assert_eq!((core.bytes_in_per_s, core.queued), (2_000.0, 3));
        assert_eq!(frame.lanes[0].rounds_per_s, 8.0);
        let stage = &frame.stages[0];
        assert_eq!((stage.requests_per_s, stage.waiting), (10.0, 0.004));
        assert_eq!([stage.p50_us, stage.p99_us], [Some(127), Some(9_215)]);
    }

    #[test]
    fn a_broker_that_was_started_anew_has_no_negative_rates() {
        let frame = Frame::between(&look(10_000, 5), &look(12_000, 1), Vec::new());
        assert_eq!(frame.cores[0].requests_per_s, 0.0);
        assert_eq!(frame.stages[0].p50_us, None);
        let strange = TopAnswer::default();
        let frame = Frame::between(&strange, &look(12_000, 1), Vec::new());
        assert_eq!(frame.cores[0].requests_per_s, 0.0);
    }

    #[test]
    fn quantiles_take_the_bucket_that_holds_them() {
        let buckets = [(10, 98), (20, 1), (30, 1)];
        assert_eq!(quantile(&buckets, 0.5), Some(10));
        assert_eq!(quantile(&buckets, 0.99), Some(20));
        assert_eq!(quantile(&buckets, 0.999), Some(30));
        assert_eq!(quantile(&[(10, 0)], 0.5), None);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
