//! One partition over all lives.

use std::cell::RefCell;
use std::rc::Rc;

use thalweg_storage::{BoundOffsets, Gaps, Log, LogDir, Opening, PartitionName};
use thalweg_types::{Offset, TopicPartition, Uuid};

use crate::model::Model;

/// `cleanup.policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Delete,
    Compact,
    Both,
}

impl Policy {
    pub(crate) fn compacts(self) -> bool {
        match self {
            Policy::Delete => false,
            Policy::Compact | Policy::Both => true,
        }
    }

    pub(crate) fn deletes(self) -> bool {
        match self {
            Policy::Compact => false,
            Policy::Delete | Policy::Both => true,
        }
    }
}

/// A partition over all lives, and over all topics that had its name.
pub(crate) struct Partition {
    pub(crate) name: PartitionName,
    pub(crate) topic_id: Uuid,
    pub(crate) flush_messages: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) policy: Policy,
    pub(crate) model: Rc<RefCell<Model>>,
    /// Its directory was made durable once.
    pub(crate) is_made: bool,
    /// The topic that had the name before is being deleted, and nobody was told yet that it is.
    pub(crate) is_going: bool,
    pub(crate) epoch: i32,
    pub(crate) transactions_ended: u64,
    /// The broker's clock, as compaction is told.
    pub(crate) clock: i64,
}

impl Partition {
    pub(crate) fn new(
        number: i32,
        flush_messages: u64,
        segment_bytes: u32,
        policy: Policy,
    ) -> Partition {
        Partition {
            name: PartitionName::new("t", number),
            topic_id: Uuid([7; 16]),
            flush_messages,
            segment_bytes,
            policy,
            model: Rc::new(RefCell::new(Model::default())),
            is_made: false,
            is_going: false,
            epoch: 0,
            transactions_ended: 0,
            clock: 1_000,
        }
    }

    /// Its topic's id, and which partition of that it is.
    pub(crate) fn id(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic_id,
            partition: self.name.partition,
        }
    }

    /// What is known of it before it is opened.
    pub(crate) fn opening(&self, dir: &LogDir) -> Opening {
        let opening = dir.opening(&self.name, self.topic_id);
        match self.policy.compacts() {
            // Compaction may have come further than its checkpoint says. No Kafka has made holes here.
            true => Opening {
                gaps: Gaps::MayBe,
                compacted_to: opening.compacted_to.or(Some(Offset::ZERO)),
                ..opening
            },
            false => opening,
        }
    }

    /// Adds the mark of its log.
    pub(crate) fn mark(&self, log: &Log, marks: &mut BoundOffsets) {
        if let Some(end) = log.mark() {
            marks.insert(self.name.clone(), self.topic_id, end);
        }
    }

    /// From now on the name is that of another topic.
    pub(crate) fn replace(&mut self) {
        let id = u128::from_be_bytes(self.topic_id.0).wrapping_add(1);
        self.topic_id = Uuid(id.to_be_bytes());
        self.model = Rc::new(RefCell::new(Model::default()));
        self.is_made = false;
        self.is_going = true;
    }
}
