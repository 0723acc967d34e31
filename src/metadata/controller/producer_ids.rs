//! Handing out producer ids in blocks.

use std::ops::Range;

use thalweg_protocol::messages::ProducerIdsRecord;
use thalweg_types::limits::PRODUCER_ID_BLOCK;
use thalweg_types::{BrokerId, ProducerId};

use super::{Controller, Decision};

/// Producer ids that one broker may give out, each to one producer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProducerIdBlock {
    left: Range<i64>,
}

impl ProducerIdBlock {
    /// Takes one.
    pub fn take_one(&mut self) -> Option<ProducerId> {
        self.left.next().map(ProducerId)
    }
}

impl Controller<'_> {
    /// Reserves a block for `broker`: once the record is durable nobody else ever gets an id of it
    /// (RP-72). `None` when there are no ids left, after 2^63 of them.
    pub fn producer_ids(&self, broker: BrokerId) -> Decision<Option<ProducerIdBlock>> {
        let first = self.image.next_producer_id().max(0);
        let Some(next) = first.checked_add(PRODUCER_ID_BLOCK) else {
            return Decision {
                records: Vec::new(),
                answer: None,
            };
        };
        let record = ProducerIdsRecord {
            broker_id: broker.0,
            broker_epoch: self.image.broker(broker).map_or(-1, |found| found.epoch),
            next_producer_id: next,
        };
        Decision {
            records: vec![record.into()],
            answer: Some(ProducerIdBlock { left: first..next }),
        }
    }
}
