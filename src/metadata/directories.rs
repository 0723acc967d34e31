//! The log directories of a broker (KIP-858): which of them gets a new partition, and what follows for
//! partitions from those that do not work.

use thalweg_protocol::messages::{BrokerRegistrationChangeRecord, PartitionChangeRecord};
use thalweg_types::{BrokerId, TopicPartition, Uuid};

use crate::image::{Image, Partition};
use crate::record::Record;

/// Kafka keeps the first ids for itself: "not assigned", "lost", "being moved" and some that may come.
const RESERVED_IDS: u128 = 100;
/// Of a replica whose directory its broker has not any more.
const LOST: Uuid = Uuid(1u128.to_be_bytes());

/// A log directory that new partitions may be given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryRoom {
    /// Its id.
    pub id: Uuid,
    /// Bytes that may be written beyond the headroom.
    pub free_bytes: u64,
    /// Partitions in it.
    pub partitions: u64,
}

/// The working log directories of the broker that decides, in the order of its configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directories {
    rooms: Vec<DirectoryRoom>,
}

impl Directories {
    /// These.
    #[must_use]
    pub fn new(rooms: Vec<DirectoryRoom>) -> Directories {
        Directories { rooms }
    }

    /// Where the next new partition goes, which is counted: where there is most free room for each
    /// partition, itself included. So directories fill in proportion to their room, equal ones get
    /// equally many, and a full one gets none while another has room. Equals: fewest partitions, then
    /// the first. `None` when there is no directory.
    pub fn assign(&mut self) -> Option<Uuid> {
        let share = |room: &DirectoryRoom| room.free_bytes / (room.partitions + 1);
        let best = self.rooms.iter_mut().rev().max_by(|a, b| {
            let by_share = share(a).cmp(&share(b));
            by_share.then(b.partitions.cmp(&a.partitions))
        })?;
        best.partitions += 1;
        Some(best.id)
    }
}

/// Where this broker's replica of a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaHome {
    /// In a directory that works; the zero id when that has none.
    In(Uuid),
    /// In one that does not work, or is not there.
    Offline,
}

impl Partition {
    /// Log directory of a broker's replica; the zero id when it is not told.
    #[must_use]
    pub fn directory_of(&self, broker: BrokerId) -> Uuid {
        let at = self.replicas.iter().position(|id| *id == broker);
        let directory = at.and_then(|at| self.directories.get(at));
        directory.copied().unwrap_or_default()
    }

    fn directories_with(&self, broker: BrokerId, directory: Uuid) -> Vec<Uuid> {
        let of = |id: &BrokerId| match *id == broker {
            true => directory,
            false => self.directory_of(*id),
        };
        self.replicas.iter().map(of).collect()
    }
}

/// True for an id that is no directory's.
#[must_use]
pub fn is_reserved(id: Uuid) -> bool {
    u128::from_be_bytes(id.0) < RESERVED_IDS
}

impl Image {
    /// The records after which the metadata says where the replicas of `local` are: other directories
    /// where it was wrong, and no leader where `local` leads and can not. One batch for all.
    #[must_use]
    pub fn settle_directories(
        &self,
        local: BrokerId,
        home: impl Fn(TopicPartition) -> Option<ReplicaHome>,
    ) -> Vec<Record> {
        self.changed_partitions(|at, partition| {
            let mut change = PartitionChangeRecord::default();
            match home(at)? {
                ReplicaHome::In(id) if id.is_zero() || id == partition.directory_of(local) => None,
                ReplicaHome::In(id) => {
                    change.directories = Some(partition.directories_with(local, id));
                    Some(change)
                }
                // Kafka leaves the last replica in sync: what it has is all there is.
                ReplicaHome::Offline => (partition.leader == Some(local)).then(|| {
                    change.leader = -1;
                    change
                }),
            }
        })
    }

    /// The record that says which log directories of `local` work. `None` when it is not registered.
    #[must_use]
    pub fn change_log_dirs(&self, local: BrokerId, log_dirs: Vec<Uuid>) -> Option<Record> {
        let change = BrokerRegistrationChangeRecord {
            broker_id: local.0,
            broker_epoch: self.broker(local)?.epoch,
            log_dirs,
            ..BrokerRegistrationChangeRecord::default()
        };
        Some(change.into())
    }

    /// Replicas of a partition that can not be used: their brokers are not there, or the log directory is
    /// none of those that work.
    #[must_use]
    pub fn offline_replicas(&self, partition: &Partition) -> Vec<BrokerId> {
        let works = |id: &BrokerId| {
            let directory = partition.directory_of(*id);
            self.broker(*id).is_some_and(|broker| {
                let known = broker.log_dirs.is_empty() || broker.log_dirs.contains(&directory);
                !broker.fenced && (known || (is_reserved(directory) && directory != LOST))
            })
        };
        let replicas = partition.replicas.iter();
        replicas.filter(|id| !works(id)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::Uuid;

    use super::{Directories, DirectoryRoom, is_reserved};

    fn directories(rooms: &[(u64, u64)]) -> Directories {
        let room = |(i, (free_bytes, partitions)): (usize, &(u64, u64))| DirectoryRoom {
            id: Uuid([i as u8 + 1; 16]),
            free_bytes: *free_bytes,
            partitions: *partitions,
        };
        Directories::new(rooms.iter().enumerate().map(room).collect())
    }

    fn given(directories: &mut Directories, count: usize) -> Vec<u8> {
        let mut given: Vec<u8> = (0..count)
            .map(|_| directories.assign().expect("some").0[0])
            .collect();
        given.sort_unstable();
        given
    }

    #[test]
    fn equal_directories_get_equally_many_partitions() {
        assert_eq!(
            given(&mut directories(&[(900, 0), (900, 0)]), 4),
            [1, 1, 2, 2]
        );
        assert_eq!(given(&mut directories(&[(900, 3), (900, 0)]), 3), [2, 2, 2]);
        assert_eq!(directories(&[]).assign(), None);
    }

    #[test]
    fn new_partitions_follow_the_free_room() {
        let spread = given(&mut directories(&[(100, 0), (300, 0)]), 8);
        assert_eq!(spread, [1, 1, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn st_20_a_full_directory_gets_none_while_another_has_room() {
        assert_eq!(given(&mut directories(&[(0, 0), (9_000, 7)]), 3), [2, 2, 2]);
        // All full: as evenly as can be.
        assert_eq!(given(&mut directories(&[(0, 1), (0, 0)]), 3), [1, 2, 2]);
    }

    #[test]
    fn kafkas_own_ids_are_no_directories() {
        assert!(is_reserved(Uuid::ZERO) && is_reserved(Uuid(99u128.to_be_bytes())));
        assert!(!is_reserved(Uuid(100u128.to_be_bytes())));
    }
}
