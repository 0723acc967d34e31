//! Bytes and records per topic, with a cap on the number of topics.

use std::collections::BTreeMap;

/// Label value of the topics above the cap. A topic of this very name is counted with them, so that
/// no label appears twice.
pub const OTHER_TOPIC: &str = "__other";

/// Counts of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// Record bytes accepted from producers.
    pub produced_bytes: u64,
    /// Records accepted from producers.
    pub produced_records: u64,
    /// Record bytes sent to consumers.
    pub fetched_bytes: u64,
    /// Produce requests of a partition that were refused.
    pub produce_failures: u64,
}

impl TopicCounts {
    fn add(&mut self, other: &TopicCounts) {
        self.produced_bytes += other.produced_bytes;
        self.produced_records += other.produced_records;
        self.fetched_bytes += other.fetched_bytes;
        self.produce_failures += other.produce_failures;
    }
}

/// Counts by topic name, at most `cap` names; the rest is counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicTable {
    by_name: BTreeMap<String, TopicCounts>,
    other: TopicCounts,
    cap: usize,
}

impl TopicTable {
    /// A table that tells at most `cap` topics apart.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        TopicTable {
            by_name: BTreeMap::new(),
            other: TopicCounts::default(),
            cap,
        }
    }

    /// Counts of `topic`, or those of all topics above the cap. Only names of existing topics may be
    /// passed: a name costs a slot for as long as it is not [forgotten](TopicTable::forget).
    pub fn of(&mut self, topic: &str) -> &mut TopicCounts {
        if !self.by_name.contains_key(topic) {
            if self.by_name.len() >= self.cap || topic == OTHER_TOPIC {
                return &mut self.other;
            }
            self.by_name
                .insert(topic.to_owned(), TopicCounts::default());
        }
        self.by_name.get_mut(topic).unwrap_or(&mut self.other)
    }

    /// Frees the slot of a deleted topic.
    pub fn forget(&mut self, topic: &str) {
        self.by_name.remove(topic);
    }

    /// Adds the counts of another core. The caps add up too: each core holds its share.
    pub fn merge(&mut self, from: &TopicTable) {
        self.cap += from.cap;
        self.other.add(&from.other);
        for (name, counts) in &from.by_name {
            self.by_name.entry(name.clone()).or_default().add(counts);
        }
    }

    /// Label and counts of every topic, by name; [`OTHER_TOPIC`] last, when anything fell to it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TopicCounts)> {
        let other = (self.other != TopicCounts::default()).then_some((OTHER_TOPIC, &self.other));
        self.by_name
            .iter()
            .map(|(name, counts)| (name.as_str(), counts))
            .chain(other)
    }
}

#[cfg(test)]
mod tests {
    use super::{OTHER_TOPIC, TopicTable};

    #[test]
    fn bi10_topics_above_the_cap_are_counted_together() {
        let mut table = TopicTable::new(2);
        for topic in ["a", "b", "c", "d", "a"] {
            table.of(topic).produced_bytes += 10;
        }
        let seen: Vec<_> = table
            .iter()
            .map(|(name, c)| (name, c.produced_bytes))
            .collect();
        assert_eq!(seen, [("a", 20), ("b", 10), (OTHER_TOPIC, 20)]);
    }

    #[test]
    fn a_topic_named_like_the_rest_is_counted_with_it() {
        let mut table = TopicTable::new(5);
        table.of(OTHER_TOPIC).produced_bytes += 1;
        assert_eq!(table.iter().count(), 1);
        assert!(table.by_name.is_empty());
    }

    #[test]
    fn a_deleted_topic_frees_its_slot() {
        let mut table = TopicTable::new(1);
        table.of("a").produced_records += 1;
        table.forget("a");
        table.of("b").produced_records += 5;
        assert_eq!(
            table
                .iter()
                .map(|(n, c)| (n, c.produced_records))
                .collect::<Vec<_>>(),
            [("b", 5)]
        );
    }

    #[test]
    fn shares_of_cores_add_up() {
        let mut one = TopicTable::new(1);
        one.of("a").fetched_bytes = 1;
        let mut two = TopicTable::new(1);
        two.of("a").fetched_bytes = 2;
        two.of("b").fetched_bytes = 4;
        one.merge(&two);
        let seen: Vec<_> = one.iter().map(|(n, c)| (n, c.fetched_bytes)).collect();
        assert_eq!(seen, [("a", 3), (OTHER_TOPIC, 4)]);
    }
}
