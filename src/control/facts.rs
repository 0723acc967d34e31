//! Facts about the process that the metrics endpoint shows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thalweg_metrics::{LogDirFacts, ProcessFacts};

use crate::controller::Start;
use crate::view::ClusterView;

/// Written by the control plane, read by scrapes; never touched by a shard.
#[derive(Debug, Default)]
pub struct Facts(Mutex<ProcessFacts>);

impl Facts {
    /// Facts that are known before anything is opened.
    #[must_use]
    pub fn new(first: ProcessFacts) -> Facts {
        Facts(Mutex::new(first))
    }

    /// A copy.
    #[must_use]
    pub fn get(&self) -> ProcessFacts {
        self.lock().clone()
    }

    /// How this start came about, and how long opening and recovering the logs took.
    pub fn set_start(&self, took: Duration, start: Start) {
        let mut facts = self.lock();
        facts.recovery = Some(took);
        facts.unclean_start = start == Start::AfterCrash;
    }

    /// Which cluster this is, and the topics and partitions in it.
    pub fn set_cluster(&self, view: &ClusterView) {
        let image = &view.image;
        let mut facts = self.lock();
        facts.cluster_id.clone_from(&view.cluster_id.0);
        facts.topics = image.topics().len() as u64;
        facts.partitions = image
            .topics()
            .map(|topic| topic.partitions.len() as u64)
            .sum();
    }

    /// The state of the log directories.
    pub fn set_log_dirs(&self, dirs: Vec<LogDirFacts>) {
        self.lock().log_dirs = dirs;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ProcessFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
