//! What is told of groups beside Kafka's protocol: how far they have come, for whoever compares it with the
//! ends of logs, and their last rebalances.

use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use thalweg_types::TopicId;
use thalweg_types::limits::{GROUPS_LISTED_PER_TURN, OFFSET_FETCH_ROWS_PER_TURN};

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
    /// Names of the groups that have committed something behind `after`, in their order, among as many as one turn of
    /// the core may look at; and the last one looked at, where there are more behind it.
    #[must_use]
    pub fn groups_with_offsets(&self, after: Option<&str>) -> (Vec<Rc<str>>, Option<Rc<str>>) {
        let from = after.map_or(Unbounded, Excluded);
        let mut behind = self.groups.range::<str, _>((from, Unbounded));
        let (mut names, mut last) = (Vec::new(), None);
        for (id, group) in behind.by_ref().take(GROUPS_LISTED_PER_TURN) {
            last = Some(id);
            if !group.offsets.is_empty() {
                names.push(Rc::clone(id));
            }
        }
        let rest = last.filter(|_| behind.next().is_some());
        (names, rest.cloned())
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
