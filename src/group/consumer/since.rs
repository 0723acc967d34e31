//! Since when a member has its partitions (KIP-1251): a commit in an older epoch of its own is as good as
//! one in its epoch, for what it has had since then.

use std::collections::BTreeMap;

use thalweg_types::TopicId;

use super::partitions::Partitions;

/// Partitions by the epoch in which the member got them. No epoch is without partitions, and each
/// partition is there once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since(BTreeMap<i32, Partitions>);

impl Since {
    /// The member holds these now: what it did not hold before, since `epoch`.
    pub(crate) fn hold(&mut self, epoch: i32, held: &Partitions) {
        for before in self.0.values_mut() {
            *before = before.in_common(held);
        }
        self.0.retain(|_, partitions| !partitions.is_empty());
        let known = Partitions::of_pairs(self.0.values().flat_map(Partitions::iter));
        let new = held.without(&known);
        if !new.is_empty() {
            let of_epoch = self.0.entry(epoch).or_default();
            *of_epoch = of_epoch.with(&new);
        }
    }

    /// Since when the member has a partition; `None` when it does not.
    pub(crate) fn of(&self, topic: TopicId, partition: i32) -> Option<i32> {
        let mut epochs = self.0.iter();
        epochs
            .find(|(_, partitions)| partitions.contains(topic, partition))
            .map(|(epoch, _)| *epoch)
    }

    /// All of it, by partition.
    pub(crate) fn by_partition(&self) -> BTreeMap<(TopicId, i32), i32> {
        let each = self.0.iter().flat_map(|(epoch, partitions)| {
            let partitions = partitions.iter();
            partitions.map(move |partition| (partition, *epoch))
        });
        each.collect()
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const EPOCH_BYTES: usize = 48;
        let each = self.0.values().map(|of| EPOCH_BYTES + of.bytes());
        each.sum()
    }

    /// Checks that it is about what is held, and about nothing else.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn check(&self, held: &Partitions) {
        let count: usize = self.0.values().map(Partitions::len).sum();
        assert_eq!(count, held.len(), "since when: {self:?}");
        for (topic, partition) in held.iter() {
            assert!(self.of(topic, partition).is_some(), "{topic} {partition}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Partitions, Since};
    use thalweg_types::Uuid;

    #[test]
    fn what_is_kept_keeps_its_epoch() {
        let topic = Uuid([1; 16]);
        let held = |list: &[i32]| Partitions::of([(topic, list.to_vec())]);
        let mut since = Since::default();
        since.hold(3, &held(&[0, 1, 2]));
        since.hold(5, &held(&[1, 2, 3]));
        let told = [0, 1, 2, 3].map(|partition| since.of(topic, partition));
        assert_eq!(told, [None, Some(3), Some(3), Some(5)]);
        // What was given up and comes again is new.
        since.hold(6, &held(&[3]));
        since.hold(7, &held(&[2, 3]));
        assert_eq!((since.of(topic, 2), since.of(topic, 3)), (Some(7), Some(5)));
        since.check(&held(&[2, 3]));
    }
}
