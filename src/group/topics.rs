//! What a coordinator asks about topics, and about the settings of groups.

use std::sync::Arc;

use thalweg_types::TopicId;

/// A topic as a coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicShape {
    /// Its id.
    pub id: TopicId,
    /// Partitions, from 0 on.
    pub partitions: i32,
}

/// Settings of one group (resource type GROUP); `None` where the broker's hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// `consumer.session.timeout.ms`.
    pub session_ms: Option<i32>,
    /// `consumer.heartbeat.interval.ms`.
    pub heartbeat_ms: Option<i32>,
    /// `consumer.assignment.interval.ms`.
    pub assignment_ms: Option<i32>,
}

/// What the shell knows when it is asked. It may be ahead of the requests.
pub trait TopicCatalog {
    /// The topic that has the name now.
    fn topic(&self, name: &str) -> Option<TopicShape>;

    /// The id of the topic that has the name now.
    fn id(&self, name: &str) -> Option<TopicId> {
        self.topic(name).map(|shape| shape.id)
    }

    /// The name of a topic.
    fn name(&self, id: TopicId) -> Option<Arc<str>>;

    /// All names, sorted.
    fn names(&self) -> Vec<Arc<str>>;

    /// Grows whenever a topic came, went or got partitions.
    fn version(&self) -> u64;

    /// What was set for a group.
    fn group(&self, id: &str) -> GroupSettings;
}

/// The catalog of a coordinator.
pub type Topics = Box<dyn TopicCatalog>;
