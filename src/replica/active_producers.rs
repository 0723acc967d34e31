//! What administrators are told of the producers of a log (KIP-664).

use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::producers::Producers;

/// A producer that the log remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveProducer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its newest record; -1 when no record of this epoch is known.
    pub last_sequence: i32,
    /// Largest timestamp of its newest batch; [`TimestampMs::NONE`] when none of this epoch is known.
    pub last_timestamp: TimestampMs,
    /// Where the transaction begins that it has open.
    pub transaction: Option<Offset>,
}

impl Producers {
    /// The producers as of the written end, those that wrote least recently first.
    #[must_use]
    pub fn active(&self) -> Vec<ActiveProducer> {
        let written = self.as_written().into_iter();
        written
            .map(|(id, producer)| {
                let last = producer.batches().last();
                ActiveProducer {
                    id,
                    epoch: producer.epoch(),
                    last_sequence: last.map_or(-1, |batch| batch.last_sequence),
                    last_timestamp: last.map_or(TimestampMs::NONE, |batch| batch.timestamp),
                    transaction: producer.transaction(),
                }
            })
            .collect()
    }
}
