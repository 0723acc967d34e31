//! What is told of groups beside Kafka's protocol: how far they have come, for whoever compares it with the
//! ends of logs, and their last rebalances.

use std::rc::Rc;

use thalweg_types::TopicId;
use thalweg_types::limits::OFFSET_FETCH_ROWS_PER_TURN;

use crate::ask::Now;
use crate::coordinator::Coordinator;
use crate::history::Rebalance;

/// What a group has committed for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Name of the topic.
    pub topic: Rc<str>,
    /// Which topic of that name; zero when the record does not say.
    pub topic_id: TopicId,
    /// Index in the topic.
    pub partition: i32,
    /// Offset of the next record to read.
    pub offset: i64,
}

impl Coordinator {
    /// Names of the groups that have committed something, in their order.
    pub fn groups_with_offsets(&self) -> impl Iterator<Item = &Rc<str>> {
        let groups = self.groups.values();
        groups
            .filter(|group| !group.offsets.is_empty())
            .map(|group| &group.id)
    }

    /// The last rebalances of a group, oldest first; `None` when it is not here.
    #[must_use]
    pub fn history(&self, group: &str, now: Now) -> Option<Vec<Rebalance>> {
        Some(self.groups.get(group)?.history.told(now))
    }

    /// What a group has committed behind `after`, by topic and partition, as much as one turn of the core may look
    /// up; nothing at the end of it, and while it is loaded.
    #[must_use]
    pub fn positions(&self, group: &str, after: Option<&Position>) -> Vec<Position> {
        let Some(group) = self.groups.get(group).filter(|_| !self.is_loading()) else {
            return Vec::new();
        };
        let after = after.map(|last| (Rc::clone(&last.topic), last.partition));
        let behind = group.offsets.behind(after.as_ref());
        let told = behind.take(OFFSET_FETCH_ROWS_PER_TURN);
        told.map(|(topic, partition, committed)| Position {
            topic: Rc::clone(topic),
            topic_id: committed.topic_id,
            partition,
            offset: committed.offset,
        })
        .collect()
    }
}
