//! A fetch that waits: its registrations at the owners, and their removal when it is over.

use std::rc::Rc;

use thalweg_reactor::event::Event;
use thalweg_types::TopicPartition;

use crate::peer::{Park, ParkId};
use crate::shard::Shard;

/// Holds the registrations of one fetch; dropping it, also when the client is gone, removes them.
pub(crate) struct Parking {
    shard: Rc<Shard>,
    /// With the shard that has each, those of one shard together.
    partitions: Vec<(usize, TopicPartition)>,
    enough_bytes: u64,
    id: ParkId,
    wake: Event,
}

impl Parking {
    /// For the given partitions, each with its owner and those of one owner together, of a fetch that wants
    /// `enough_bytes` in sum. Registers nothing yet. `None` when fetches that name
    /// [`thalweg_types::limits::PARKED_PARTITIONS_MAX`] are parked already.
    pub(crate) fn new(
        shard: Rc<Shard>,
        partitions: Vec<(usize, TopicPartition)>,
        enough_bytes: u64,
    ) -> Option<Parking> {
        if !shard.count_parked(partitions.len()) {
            return None;
        }
        let id = shard.next_park_id();
        Some(Parking {
            shard,
            partitions,
            enough_bytes,
            id,
            wake: Event::new(),
        })
    }

    /// What owners register, for a fetch that lacks `missing_bytes` in sum. A registration wakes once; a
    /// new one of the same fetch replaces it.
    pub(crate) fn register(&mut self, missing_bytes: u64) -> Park {
        self.wake = Event::new();
        let partitions = self.partitions.len().max(1) as u64;
        Park {
            id: self.id,
            wake: self.wake.clone(),
            missing_bytes: missing_bytes.div_ceil(partitions),
            enough_bytes: self.enough_bytes.max(1),
        }
    }

    /// Waits for the first wake since [`Parking::register`].
    pub(crate) async fn woken(&self) {
        self.wake.wait().await;
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        self.shard.count_unparked(self.partitions.len());
        for of_owner in self.partitions.chunk_by(|(a, _), (b, _)| a == b) {
            let partitions = of_owner.iter().map(|(_, id)| *id);
            self.shard.unpark_at(of_owner[0].0, self.id, partitions);
        }
    }
}
