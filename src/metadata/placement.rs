//! Which shard serves which partition.

use std::collections::BTreeMap;

use thalweg_types::{BrokerId, IdMap, ShardId, TopicPartition};

use crate::delta::Delta;
use crate::image::Image;

/// The shard of every partition that this broker holds.
///
/// Computed at start from the image alone: the same image and number of shards give the same
/// placement, and nothing on disk depends on it. Partitions that come later go where the fewest
/// are; none moves while the process runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    local: BrokerId,
    /// Partitions per shard.
    loads: Vec<usize>,
    shards: IdMap<TopicPartition, ShardId>,
}

impl Placement {
    /// The placement of `image` for broker `local` over `shard_count` shards (at least one).
    #[must_use]
    pub fn new(image: &Image, local: BrokerId, shard_count: u16) -> Placement {
        let loads = vec![0; usize::from(shard_count.max(1))];
        let mut placement = Placement {
            local,
            loads,
            shards: IdMap::default(),
        };
        for topic in image.topics() {
            let all = topic.partitions.keys().map(|index| TopicPartition {
                topic: topic.id,
                partition: *index,
            });
            placement.place(image, all);
        }
        placement
    }

    /// Follows a change: new partitions get a shard, removed ones give theirs back.
    ///
    /// `image` is the one that `delta` led to. Returns what was placed anew.
    pub fn follow(&mut self, image: &Image, delta: &Delta) -> Vec<(TopicPartition, ShardId)> {
        for topic in delta.topics_removed.values() {
            for index in topic.partitions.keys() {
                self.take_out(TopicPartition {
                    topic: topic.id,
                    partition: *index,
                });
            }
        }
        let mut by_topic: BTreeMap<_, Vec<TopicPartition>> = BTreeMap::new();
        for at in &delta.partitions_changed {
            by_topic.entry(at.topic).or_default().push(*at);
        }
        by_topic
            .into_values()
            .flat_map(|all| self.place(image, all.into_iter()))
            .collect()
    }

    /// The shard that serves the partition; `None` when this broker does not hold it.
    #[must_use]
    pub fn shard_of(&self, at: TopicPartition) -> Option<ShardId> {
        self.shards.get(&at).copied()
    }

    /// Number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.loads.len()
    }

    /// Partitions of each shard, by its number.
    #[must_use]
    pub fn loads(&self) -> &[usize] {
        &self.loads
    }

    /// Places partitions of one topic, those that are held here and have no shard yet. Fewest
    /// partitions first, then fewest of the same topic, then the lowest number.
    fn place(
        &mut self,
        image: &Image,
        partitions: impl Iterator<Item = TopicPartition>,
    ) -> Vec<(TopicPartition, ShardId)> {
        let mut of_topic = vec![0usize; self.loads.len()];
        let mut placed = Vec::new();
        for at in partitions {
            let held = image
                .partition(at)
                .is_some_and(|p| p.replicas.contains(&self.local));
            if !held {
                self.take_out(at);
                continue;
            }
            if let Some(shard) = self.shards.get(&at) {
                of_topic[usize::from(shard.0)] += 1;
                continue;
            }
            let fewest = (0..self.loads.len()).min_by_key(|i| (self.loads[*i], of_topic[*i], *i));
            let index = fewest.unwrap_or(0);
            let shard = ShardId(u16::try_from(index).expect("made from a u16 count"));
            self.loads[index] += 1;
            of_topic[index] += 1;
            self.shards.insert(at, shard);
            placed.push((at, shard));
        }
        placed
    }

    fn take_out(&mut self, at: TopicPartition) {
        if let Some(shard) = self.shards.remove(&at) {
            self.loads[usize::from(shard.0)] -= 1;
        }
    }
}
