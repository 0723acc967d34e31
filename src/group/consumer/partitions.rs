//! Sets of partitions by topic id.

use std::cmp::Ordering;

use thalweg_types::TopicId;

/// A set is held against each of another one by search, and not by walking both, when it is so many times smaller.
const MUCH_SMALLER: usize = 16;

/// Partitions of topics. Flat and in order, since members that subscribe to thousands of topics have sets of
/// thousands: two sets are held against each other in one walk, and none of it allocates per topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partitions {
    /// Each topic, and where its partitions end in `list`. No topic is without any.
    ends: Vec<(TopicId, usize)>,
    /// Ascending within each topic.
    list: Vec<i32>,
}

/// Which of two sets has a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    First,
    Second,
    Both,
}

impl Partitions {
    /// Of any lists, in any order, repeated or not.
    pub(crate) fn of(lists: impl IntoIterator<Item = (TopicId, Vec<i32>)>) -> Partitions {
        let one = |(topic, list): (TopicId, Vec<i32>)| {
            let list = list.into_iter();
            list.map(move |partition| (topic, partition))
        };
        Partitions::of_pairs(lists.into_iter().flat_map(one))
    }

    /// Of any pairs, in any order, repeated or not.
    pub(crate) fn of_pairs(pairs: impl Iterator<Item = (TopicId, i32)>) -> Partitions {
        let mut pairs: Vec<(TopicId, i32)> = pairs.collect();
        pairs.sort_unstable();
        pairs.dedup();
        Partitions::ascending(pairs.into_iter())
    }

    /// Of pairs that ascend, each there once.
    fn ascending(pairs: impl Iterator<Item = (TopicId, i32)>) -> Partitions {
        let mut all = Partitions::default();
        for (topic, partition) in pairs {
            all.list.push(partition);
            let end = all.list.len();
            match all.ends.last_mut() {
                Some((last, at)) if *last == topic => *at = end,
                Some(_) | None => all.ends.push((topic, end)),
            }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many partitions.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Of how many topics.
    pub(crate) fn topic_count(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn contains(&self, topic: TopicId, partition: i32) -> bool {
        let Ok(at) = self.ends.binary_search_by_key(&topic, |(id, _)| *id) else {
            return false;
        };
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.list[begin..self.ends[at].1]
            .binary_search(&partition)
            .is_ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.topics()
            .flat_map(|(topic, list)| list.iter().map(move |partition| (topic, *partition)))
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (TopicId, &[i32])> {
        let mut begin = 0;
        self.ends.iter().map(move |(topic, end)| {
            let list = &self.list[begin..*end];
            begin = *end;
            (*topic, list)
        })
    }

    /// All of both sets in order.
    fn beside(&self, other: &Partitions) -> impl Iterator<Item = ((TopicId, i32), In)> {
        let (mut first, mut second) = (self.iter().peekable(), other.iter().peekable());
        std::iter::from_fn(move || {
            let order = match (first.peek(), second.peek()) {
                (Some(one), Some(another)) => one.cmp(another),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            let (next, of) = match order {
                Ordering::Less => (first.next(), In::First),
                Ordering::Greater => (second.next(), In::Second),
                Ordering::Equal => {
                    second.next();
                    (first.next(), In::Both)
                }
            };
            next.map(|next| (next, of))
        })
    }

    /// All of both sets for which `keep` holds.
    fn chosen(&self, other: &Partitions, keep: impl Fn(In) -> bool) -> Partitions {
        let all = self.beside(other);
        Partitions::ascending(all.filter(|(_, of)| keep(*of)).map(|(pair, _)| pair))
    }

    /// Those for which `keep` holds.
    pub(crate) fn filtered(&self, keep: impl Fn(TopicId, i32) -> bool) -> Partitions {
        Partitions::ascending(self.iter().filter(|(topic, p)| keep(*topic, *p)))
    }

    pub(crate) fn in_common(&self, other: &Partitions) -> Partitions {
        match self.len().saturating_mul(MUCH_SMALLER) < other.len() {
            true => self.filtered(|topic, partition| other.contains(topic, partition)),
            false => self.chosen(other, |of| of == In::Both),
        }
    }

    pub(crate) fn without(&self, other: &Partitions) -> Partitions {
        self.chosen(other, |of| of == In::First)
    }

    pub(crate) fn with(&self, other: &Partitions) -> Partitions {
        self.chosen(other, |_| true)
    }

    pub(crate) fn overlaps(&self, other: &Partitions) -> bool {
        self.beside(other).any(|(_, of)| of == In::Both)
    }

    pub(crate) fn is_within(&self, other: &Partitions) -> bool {
        self.beside(other).all(|(_, of)| of != In::First)
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ends.len() * size_of::<(TopicId, usize)>() + self.list.len() * size_of::<i32>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_types::{TopicId, Uuid};

    use super::Partitions;

    #[test]
    fn sets_are_normal_whatever_they_are_made_of() {
        let (a, b) = (Uuid([1; 16]), Uuid([2; 16]));
        let some = Partitions::of([(a, vec![3, 1]), (b, vec![]), (a, vec![1, 2])]);
        assert_eq!(some, Partitions::of([(a, vec![1, 2, 3])]));
        assert_eq!(some.topics().collect::<Vec<_>>(), [(a, &[1, 2, 3][..])]);
        let other = Partitions::of([(a, vec![2]), (b, vec![0])]);
        assert_eq!(some.in_common(&other), Partitions::of([(a, vec![2])]));
        assert_eq!(some.without(&other), Partitions::of([(a, vec![1, 3])]));
        assert_eq!((some.with(&other).len(), other.topic_count()), (4, 2));
        assert!(some.overlaps(&other) && !other.is_within(&some));
        assert!(some.without(&some).is_empty());
    }

    #[test]
    fn sets_are_held_against_each_other_as_sets_of_pairs_are() {
        let pairs_of = |set: &Partitions| set.iter().collect::<BTreeSet<(TopicId, i32)>>();
        // Of every kind: empty, equal, disjoint, small beside large, with holes.
        let sizes = [0, 1, 3, 40, 900];
        let sets: Vec<Partitions> = (0..3u8)
            .flat_map(|shift| {
                sizes.map(|size| {
                    let pairs = (0..size).map(|n| {
                        let topic = Uuid([(n % 7) as u8 * (shift + 1); 16]);
                        (topic, n * (1 + i32::from(shift)))
                    });
                    Partitions::of_pairs(pairs)
                })
            })
            .collect();
        for one in &sets {
            for another in &sets {
                let (a, b) = (pairs_of(one), pairs_of(another));
                assert_eq!(pairs_of(&one.in_common(another)), &a & &b);
                assert_eq!(pairs_of(&one.without(another)), &a - &b);
                assert_eq!(pairs_of(&one.with(another)), &a | &b);
                assert_eq!(one.overlaps(another), !a.is_disjoint(&b));
                assert_eq!(one.is_within(another), a.is_subset(&b));
                assert!(
                    b.iter()
                        .all(|(t, p)| one.contains(*t, *p) == a.contains(&(*t, *p)))
                );
            }
        }
    }
}
