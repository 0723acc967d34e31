//! A fetch that waits: its registrations at the owners, and their removal when it is over.

use std::rc::Rc;

use thalweg_reactor::event::Event;
use thalweg_types::TopicPartition;

use crate::peer::{Park, ParkId};
use crate::shard::Shard;

/// Holds the registrations of one fetch; dropping it, also when the client is gone, removes them.
pub(crate) struct Parking {
    shard: Rc<Shard>,
    partitions: Vec<Vec<TopicPartition>>,
    count: usize,
    id: ParkId,
    wake: Event,
}

impl Parking {
    /// For the given partitions, listed by owner. Registers nothing yet. `None` when fetches that
    /// name [`thalweg_types::limits::PARKED_PARTITIONS_MAX`] are parked already.
    pub(crate) fn new(shard: Rc<Shard>, partitions: Vec<Vec<TopicPartition>>) -> Option<Parking> {
        let count = partitions.iter().map(Vec::len).sum();
        if !shard.count_parked(count) {
            return None;
        }
        let id = shard.next_park_id();
        Some(Parking {
            shard,
            partitions,
            count,
            id,
            wake: Event::new(),
        })
    }

    /// What owners register, for a fetch that lacks `missing_bytes` in sum. A registration wakes once; a
    /// new one of the same fetch replaces it.
    pub(crate) fn register(&mut self, missing_bytes: u64) -> Park {
        self.wake = Event::new();
        let partitions = self.count.max(1) as u64;
        Park {
            id: self.id,
            wake: self.wake.clone(),
            missing_bytes: missing_bytes.div_ceil(partitions),
        }
    }

    /// Waits for the first wake since [`Parking::register`].
    pub(crate) async fn woken(&self) {
        self.wake.wait().await;
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        self.shard.count_unparked(self.count);
        for (owner, partitions) in self.partitions.drain(..).enumerate() {
            if !partitions.is_empty() {
                self.shard.unpark_at(owner, self.id, partitions);
            }
        }
    }
}
