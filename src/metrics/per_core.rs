//! All numbers of one core, and what a scrape puts together.

use std::time::Duration;

use thalweg_types::limits::METRIC_LABELS_MAX;

use crate::{
    ApiTable, Blame, CloseReason, Counters, GroupLag, PartitionTraffic, RefuseReason, Stage,
    StageHistogram, TopicTable,
};

/// What drives the file operations of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// `ring` or `plain`.
    pub kind: &'static str,
    /// Why it is not the best one; empty when it is.
    pub reason: String,
    /// The CPU that the core is pinned to.
    pub pinned_to: Option<usize>,
}

/// The numbers of one core (one shard). Owned by its thread; [`Clone`] is the snapshot.
#[derive(Clone, Debug)]
pub struct CoreMetrics {
    /// Index of the shard; the label `core`.
    pub core: u16,
    /// Numbers without further labels.
    pub counters: Counters,
    /// Requests and errors per API.
    pub apis: ApiTable,
    /// Bytes and records per topic.
    pub topics: TopicTable,
    /// Which partitions are busy; not merged, because windows of cores differ.
    pub traffic: PartitionTraffic,
    /// What requests waited for.
    pub blame: Blame,
    /// What drives file operations; `None` until the runtime has started.
    pub engine: Option<Engine>,
    refused: [u64; RefuseReason::COUNT],
    closed: [u64; CloseReason::COUNT],
    stages: [StageHistogram; Stage::COUNT],
}

impl CoreMetrics {
    /// Numbers of shard `core` of `cores`; each gets its share of the topic labels.
    #[must_use]
    pub fn new(core: u16, cores: u16) -> Self {
        CoreMetrics {
            core,
            counters: Counters::default(),
            apis: ApiTable::default(),
            topics: TopicTable::new(METRIC_LABELS_MAX / usize::from(cores.max(1))),
            traffic: PartitionTraffic::default(),
            blame: Blame::default(),
            engine: None,
            refused: [0; RefuseReason::COUNT],
            closed: [0; CloseReason::COUNT],
            stages: std::array::from_fn(|_| StageHistogram::default()),
        }
    }

    /// Numbers of the control plane, which is no shard: what the accept loop counts.
    #[must_use]
    pub fn of_control() -> Self {
        CoreMetrics::new(CONTROL, 1)
    }

    /// True for the numbers of the control plane.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.core == CONTROL
    }

    /// Value of the label `core`: the shard's index, or `control`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.core {
            CONTROL => "control".to_owned(),
            shard => shard.to_string(),
        }
    }

    /// Adds one time to a stage.
    pub fn record(&mut self, stage: Stage, took: Duration) {
        self.stages[stage.index()].record(took);
    }

    /// Counts a connection that was closed before it was served.
    pub fn count_refused(&mut self, reason: RefuseReason) {
        self.refused[reason.index()] += 1;
    }

    /// Counts a served connection that was closed.
    pub fn count_closed(&mut self, reason: CloseReason) {
        self.closed[reason.index()] += 1;
    }

    /// Connections refused for `reason`.
    #[must_use]
    pub fn refused(&self, reason: RefuseReason) -> u64 {
        self.refused[reason.index()]
    }

    /// Connections closed for `reason`.
    #[must_use]
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason.index()]
    }

    /// The histogram of one stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> &StageHistogram {
        &self.stages[stage.index()]
    }

    /// Begins a new window of quantiles and of slow requests. The shard calls it about once a minute.
    pub fn rotate(&mut self) {
        self.blame.slow.rotate();
        self.stages.iter_mut().for_each(StageHistogram::rotate);
    }

    /// Adds the numbers of another core. `core` and `engine` stay those of `self`.
    pub fn merge(&mut self, other: &CoreMetrics) {
        self.counters.merge(&other.counters);
        self.apis.merge(&other.apis);
        self.topics.merge(&other.topics);
        self.blame.merge(&other.blame);
        for (mine, theirs) in self.refused.iter_mut().zip(other.refused) {
            *mine += theirs;
        }
        for (mine, theirs) in self.closed.iter_mut().zip(other.closed) {
            *mine += theirs;
        }
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(theirs);
        }
    }
}

/// Stands for the control plane where a shard's index is expected.
const CONTROL: u16 = u16::MAX;

/// Facts about the process, known to the control plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    /// Version of the binary.
    pub version: String,
    /// `cluster.id`; empty before it is known.
    pub cluster_id: String,
    /// `node.id`.
    pub node_id: i32,
    /// Start of the process, in seconds since 1970-01-01 UTC.
    pub start_unix_seconds: f64,
    /// How long opening and recovering the logs took; `None` before it is done.
    pub recovery: Option<Duration>,
    /// Logs that the start has not opened yet.
    pub logs_to_open: u64,
    /// True when the last stop was not clean.
    pub unclean_start: bool,
    /// Topics in the metadata image.
    pub topics: u64,
    /// Partitions in the metadata image.
    pub partitions: u64,
    /// The log directories.
    pub log_dirs: Vec<LogDirFacts>,
}

/// The state of a log directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogDirFacts {
    /// Why nothing of it is served; `None` while it works.
    pub failure: Option<String>,
    /// As the configuration names it.
    pub path: String,
    /// Its disk has failed.
    pub is_offline: bool,
    /// Produce is refused for lack of room.
    pub is_full: bool,
    /// Size of its file system; `None` when that can not be told.
    pub total_bytes: Option<u64>,
    /// What may still be written; `None` when that can not be told.
    pub usable_bytes: Option<u64>,
    /// Age of the oldest write or flush that its disk has not answered.
    pub oldest_operation: Duration,
}

/// What one scrape renders.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Facts about the process.
    pub process: ProcessFacts,
    /// One entry per core that answered; the control plane's own numbers may be among them.
    pub cores: Vec<CoreMetrics>,
    /// How far groups are behind; `None` when nobody was asked.
    pub lag: Option<GroupLag>,
}

impl Snapshot {
    /// The sum over all cores, under the `core` of the first; `None` without cores.
    #[must_use]
    pub fn merged(&self) -> Option<CoreMetrics> {
        let (first, rest) = self.cores.split_first()?;
        let mut sum = first.clone();
        for core in rest {
            sum.merge(core);
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CoreMetrics, Snapshot};
    use crate::{CloseReason, RefuseReason, Stage};

    #[test]
    fn a_snapshot_travels_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<Snapshot>();
    }

    #[test]
    fn merged_adds_everything() {
        let mut cores = vec![CoreMetrics::new(0, 2), CoreMetrics::new(1, 2)];
        for core in &mut cores {
            core.counters.bytes_in += 5;
            core.count_closed(CloseReason::Idle);
            core.count_refused(RefuseReason::PerIpLimit);
            core.record(Stage::Produce, Duration::from_micros(7));
            core.topics.of("t").produced_records += 1;
        }
        let sum = Snapshot {
            cores,
            ..Snapshot::default()
        }
        .merged()
        .expect("two cores");
        assert_eq!(sum.counters.bytes_in, 10);
        assert_eq!(sum.closed(CloseReason::Idle), 2);
        assert_eq!(sum.refused(RefuseReason::PerIpLimit), 2);
        assert_eq!(sum.stage(Stage::Produce).count(), 2);
        assert_eq!(sum.topics.iter().count(), 1);
        assert!(Snapshot::default().merged().is_none());
    }
}
