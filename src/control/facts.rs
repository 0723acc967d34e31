//! Facts about the process that the metrics endpoint shows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_metadata::Image;
use thalweg_metrics::{LogDirFacts, ProcessFacts};
use thalweg_types::TopicPartition;

use crate::controller::Start;
use crate::progress::OpeningProgress;
use crate::view::ClusterView;

/// Written by the control plane, read by scrapes; never touched by a shard.
#[derive(Debug, Default)]
pub struct Facts {
    process: Mutex<ProcessFacts>,
    /// What the ids of topics stand for; `None` before the metadata is read.
    image: Mutex<Option<Arc<Image>>>,
    opening: Arc<OpeningProgress>,
}

impl Facts {
    /// Facts that are known before anything is opened.
    #[must_use]
    pub fn new(first: ProcessFacts) -> Facts {
        Facts {
            process: Mutex::new(first),
            image: Mutex::default(),
            opening: Arc::default(),
        }
    }

    /// A copy.
    #[must_use]
    pub fn get(&self) -> ProcessFacts {
        let so_far = self.opening.get();
        ProcessFacts {
            logs_to_open: so_far.logs - so_far.open,
            ..self.lock().clone()
        }
    }

    /// How far the start is with opening logs.
    #[must_use]
    pub fn opening(&self) -> &Arc<OpeningProgress> {
        &self.opening
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
        *lock(&self.image) = Some(Arc::clone(image));
        let mut facts = self.lock();
        facts.cluster_id.clone_from(&view.cluster_id.0);
        facts.topics = image.topics().len() as u64;
        facts.partitions = image
            .topics()
            .map(|topic| topic.partitions.len() as u64)
            .sum();
    }

    /// Topic and number of a partition; where the topic is gone, its id stands for it.
    #[must_use]
    pub fn name_of(&self, id: TopicPartition) -> String {
        let image = lock(&self.image).clone();
        let topic = image
            .as_deref()
            .and_then(|image| image.topic_by_id(id.topic));
        match topic {
            Some(topic) => format!("{}-{}", topic.name, id.partition),
            None => format!("{}-{}", id.topic, id.partition),
        }
    }

    /// The state of a log directory, by its number.
    pub fn set_log_dir(&self, index: usize, dir: LogDirFacts) {
        let dirs = &mut self.lock().log_dirs;
        if dirs.len() <= index {
            dirs.resize_with(index + 1, LogDirFacts::default);
        }
        dirs[index] = dir;
    }

    fn lock(&self) -> MutexGuard<'_, ProcessFacts> {
        lock(&self.process)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
