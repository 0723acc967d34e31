//! What a batch of records changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_types::{BrokerId, TopicId, TopicPartition};

use crate::image::{Resource, Topic};

/// The difference between two images, for those who act on it. Partitions of created topics are in
/// `partitions_changed` too; those of removed topics are not.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Delta {
    /// Topics that are new.
    pub topics_created: BTreeSet<TopicId>,
    /// Topics that are gone, as they were before. Act on these first.
    pub topics_removed: BTreeMap<TopicId, Arc<Topic>>,
    /// Partitions that are new or different.
    pub partitions_changed: BTreeSet<TopicPartition>,
    /// Topics and brokers whose properties are different.
    pub configs_changed: BTreeSet<Resource>,
    /// Brokers that are new, different or gone.
    pub brokers_changed: BTreeSet<BrokerId>,
    /// Features whose level is different.
    pub features_changed: BTreeSet<String>,
}

impl Delta {
    /// True when nothing is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Delta::default()
    }
}
