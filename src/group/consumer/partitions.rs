//! Sets of partitions by topic id.

use std::collections::BTreeMap;

use thalweg_types::TopicId;

/// Partitions of topics. No topic is without partitions; numbers ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partitions(BTreeMap<TopicId, Vec<i32>>);

impl Partitions {
    /// Of any pairs, in any order, repeated or not.
    pub(crate) fn of(pairs: impl IntoIterator<Item = (TopicId, Vec<i32>)>) -> Partitions {
        let mut all: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for (topic, mut some) in pairs {
            all.entry(topic).or_default().append(&mut some);
        }
        for list in all.values_mut() {
            list.sort_unstable();
            list.dedup();
        }
        all.retain(|_, list| !list.is_empty());
        Partitions(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many partitions.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Of how many topics.
    pub(crate) fn topic_count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, topic: TopicId, partition: i32) -> bool {
        let list = self.0.get(&topic);
        list.is_some_and(|list| list.binary_search(&partition).is_ok())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.0
            .iter()
            .flat_map(|(topic, list)| list.iter().map(move |partition| (*topic, *partition)))
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (TopicId, &[i32])> {
        self.0.iter().map(|(topic, list)| (*topic, list.as_slice()))
    }

    /// Those for which `keep` holds.
    pub(crate) fn filtered(&self, keep: impl Fn(TopicId, i32) -> bool) -> Partitions {
        let topics = self.0.iter().map(|(topic, list)| {
            let kept = list.iter().copied().filter(|p| keep(*topic, *p));
            (*topic, kept.collect::<Vec<i32>>())
        });
        Partitions(topics.filter(|(_, list)| !list.is_empty()).collect())
    }

    pub(crate) fn in_common(&self, other: &Partitions) -> Partitions {
        self.filtered(|topic, partition| other.contains(topic, partition))
    }

    pub(crate) fn without(&self, other: &Partitions) -> Partitions {
        self.filtered(|topic, partition| !other.contains(topic, partition))
    }

    pub(crate) fn with(&self, other: Partitions) -> Partitions {
        Partitions::of(self.0.clone().into_iter().chain(other.0))
    }

    pub(crate) fn overlaps(&self, other: &Partitions) -> bool {
        self.iter()
            .any(|(topic, partition)| other.contains(topic, partition))
    }

    pub(crate) fn is_within(&self, other: &Partitions) -> bool {
        self.iter()
            .all(|(topic, partition)| other.contains(topic, partition))
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 64;
        self.0.len() * TOPIC_BYTES + self.len() * size_of::<i32>()
    }
}

#[cfg(test)]
mod tests {
    use super::Partitions;
    use thalweg_types::Uuid;

    #[test]
    fn sets_are_normal_whatever_they_are_made_of() {
        let (a, b) = (Uuid([1; 16]), Uuid([2; 16]));
        let some = Partitions::of([(a, vec![3, 1]), (b, vec![]), (a, vec![1, 2])]);
        assert_eq!(some, Partitions::of([(a, vec![1, 2, 3])]));
        let other = Partitions::of([(a, vec![2]), (b, vec![0])]);
        assert_eq!(some.in_common(&other), Partitions::of([(a, vec![2])]));
        assert_eq!(some.without(&other), Partitions::of([(a, vec![1, 3])]));
        assert_eq!(some.with(other.clone()).len(), 4);
        assert!(some.overlaps(&other) && !other.is_within(&some));
        assert!(some.without(&some).is_empty());
    }
}
