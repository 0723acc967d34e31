//! Partitions that the metadata has and this broker can not serve, known to all shards: whoever asks for
//! their leader is told that there is none.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_types::TopicPartition;

/// The set of them. Asking costs one look at a number while it is empty.
#[derive(Debug, Default)]
pub struct OfflinePartitions {
    count: AtomicUsize,
    ids: Mutex<HashSet<TopicPartition>>,
}

impl OfflinePartitions {
    /// Its log can not be opened or made.
    pub fn add(&self, id: TopicPartition) {
        let mut ids = self.lock();
        ids.insert(id);
        self.count.store(ids.len(), Ordering::Release);
    }

    /// It is served, or gone.
    pub fn remove(&self, id: TopicPartition) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut ids = self.lock();
            ids.remove(&id);
            self.count.store(ids.len(), Ordering::Release);
        }
    }

    /// True when it is not served.
    #[must_use]
    pub fn contains(&self, id: TopicPartition) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.lock().contains(&id)
    }

    /// A set is whole whatever happened to whoever held it.
    fn lock(&self) -> MutexGuard<'_, HashSet<TopicPartition>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
