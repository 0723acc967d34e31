//! The slowest requests of late, as `/slow` tells them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_metrics::{Cause, CoreMetrics, SlowRequest};

use crate::facts::Facts;

/// One slow request. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLine {
    /// When the last byte of its answer was given to the socket, in milliseconds since 1970.
    pub ended_ms: i64,
    /// The core of its connection.
    pub core: u16,
    /// Kafka's name of the API.
    pub api: String,
    /// Topic and number of the only partition that it was about, if there is but one.
    pub partition: Option<String>,
    /// `client_id`, escaped and cut.
    pub client_id: Option<String>,
    /// Address of the client.
    pub client: String,
    /// Size of the request in bytes.
    pub request_bytes: u32,
    /// Size of the answer in bytes.
    pub response_bytes: u64,
    /// From its first byte to the last of its answer, without `parked_us`.
    pub total_us: u32,
    /// What it was meant to wait: a fetch for records, a join for other members.
    pub parked_us: u32,
    /// What it waited for, by stage.
    pub stages_us: BTreeMap<String, u32>,
    /// The rest of `total_us`: work, and the turns of others on the core.
    pub other_us: u32,
}

/// What `/slow` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowAnswer {
    /// `cluster.id`.
    pub cluster_id: String,
    /// Slowest first.
    pub requests: Vec<SlowLine>,
}

/// The slowest `count` requests of all cores.
pub(crate) fn of(cores: &[CoreMetrics], facts: &Facts, count: usize) -> SlowAnswer {
    let each = cores.iter().flat_map(|core| {
        let slowest = core.blame.slow.slowest(count).into_iter();
        slowest.map(|slow| (core.core, slow))
    });
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.total_us));
    all.truncate(count);
    SlowAnswer {
        cluster_id: facts.get().cluster_id,
        requests: all
            .into_iter()
            .map(|(core, slow)| line(core, slow, facts))
            .collect(),
    }
}

fn line(core: u16, slow: &SlowRequest, facts: &Facts) -> SlowLine {
    let stage = |(cause, us): (Cause, u32)| (cause.label().to_owned(), us);
    let waited: u64 = slow.spent.stages().map(|(_, us)| u64::from(us)).sum();
    let waited = u32::try_from(waited).unwrap_or(u32::MAX);
    SlowLine {
        ended_ms: slow.ended_ms,
        core,
        api: slow.api.to_owned(),
        partition: slow.partition.map(|id| facts.name_of(id)),
        client_id: slow.client_id.clone(),
        client: slow.peer.clone(),
        request_bytes: slow.request_bytes,
        response_bytes: slow.response_bytes,
        total_us: slow.total_us,
        parked_us: slow.parked_us,
        stages_us: slow.spent.stages().map(stage).collect(),
        other_us: slow.total_us.saturating_sub(waited),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_metrics::{Cause, CoreMetrics, ProcessFacts, SlowRequest, Spent};
    use thalweg_types::{PartitionIndex, TopicPartition, Uuid};

    use super::of;
    use crate::facts::Facts;

    fn request(total_us: u32, append_ms: u64) -> SlowRequest {
        let mut spent = Spent::default();
        spent.add(Cause::Append, Duration::from_millis(append_ms));
        SlowRequest {
            ended_ms: 9,
            total_us,
            parked_us: 0,
            spent,
            api: "Produce",
            partition: Some(TopicPartition {
                topic: Uuid([0; 16]),
                partition: PartitionIndex(3),
            }),
            request_bytes: 1,
            response_bytes: 2,
            client_id: None,
            peer: "127.0.0.1:1".to_owned(),
        }
    }

    #[test]
    fn the_slowest_of_all_cores_come_first_with_all_their_time() {
        let facts = Facts::new(ProcessFacts::default());
        let mut cores = vec![CoreMetrics::new(0, 2), CoreMetrics::new(1, 2)];
        for (core, total) in [(0, 5_000), (1, 9_000), (0, 7_000), (1, 2_000)] {
            cores[core].blame.slow.push(request(total, 1));
        }
        let told = of(&cores, &facts, 3).requests;
        let seen: Vec<_> = told
            .iter()
            .map(|line| (line.core, line.total_us, line.other_us))
            .collect();
        assert_eq!(
            seen,
            [(1, 9_000, 8_000), (0, 7_000, 6_000), (0, 5_000, 4_000)]
        );
        assert_eq!(told[0].stages_us.get("append"), Some(&1_000));
        // Its topic is gone, or not known yet.
        let name = told[0].partition.as_deref();
        assert_eq!(name, Some("AAAAAAAAAAAAAAAAAAAAAA-3"));
    }
}
