//! Which partition a record goes to: by its key as the Java client does, else sticky.

/// MurmurHash2 (32 bits) with the seed of Kafka's Java client, so that equal keys from both land in one partition.
#[must_use]
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut h = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in words.by_ref() {
        let word: [u8; 4] = [word[0], word[1], word[2], word[3]];
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// How a topic's records spread over its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spread {
    /// By the key as the Java client does; without one as [`Spread::Sticky`].
    #[default]
    Key,
    /// One batch after the other, each to the next partition, whatever the key.
    Sticky,
    /// Each record to the next partition, whatever the key.
    RoundRobin,
}

/// Chooses partitions for the records of one topic.
#[derive(Clone, Debug)]
pub struct Partitioner {
    spread: Spread,
    partitions: u32,
    /// Where the next record without place goes.
    next: u32,
    /// Partitions that only records go to whose place a rule fixes; never all.
    avoided: Vec<u32>,
}

impl Partitioner {
    /// For a topic of so many partitions (at least one); `start` picks the first one for [`Spread::Sticky`]
    /// and [`Spread::RoundRobin`].
    #[must_use]
    pub fn new(spread: Spread, partitions: usize, start: u32) -> Partitioner {
        let partitions = u32::try_from(partitions).unwrap_or(u32::MAX).max(1);
        Partitioner {
            spread,
            partitions,
            next: start % partitions,
            avoided: Vec::new(),
        }
    }

    /// From now on records without a place of their own go to no partition of these, unless they are all
    /// there are.
    pub fn avoid(&mut self, leaderless: impl Iterator<Item = i32>) {
        let known = leaderless.filter_map(|p| u32::try_from(p).ok());
        self.avoided = known.filter(|p| *p < self.partitions).collect();
        if self.avoided.len() >= self.partitions as usize {
            self.avoided.clear();
        }
        if self.avoided.contains(&self.next) {
            self.move_on();
        }
    }

    /// Partition of the next record.
    #[must_use]
    pub fn choose(&mut self, key: Option<&[u8]>) -> i32 {
        let index = match (self.spread, key) {
            (Spread::Key, Some(key)) => (murmur2(key) & 0x7fff_ffff) % self.partitions,
            (Spread::Key, None) | (Spread::Sticky, _) => self.next,
            (Spread::RoundRobin, _) => {
                let index = self.next;
                self.move_on();
                index
            }
        };
        index as i32
    }

    /// The batch that a record was chosen for is full: the partition that the record goes to instead, which
    /// is the same one where a rule fixes it.
    #[must_use]
    pub fn choose_after_full(&mut self, key: Option<&[u8]>, full: i32) -> i32 {
        match (self.spread, key) {
            (Spread::Key, Some(_)) | (Spread::RoundRobin, _) => full,
            (Spread::Key, None) | (Spread::Sticky, _) => {
                self.move_on();
                self.next as i32
            }
        }
    }

    fn move_on(&mut self) {
        for _ in 0..self.partitions {
            self.next = (self.next + 1) % self.partitions;
            if !self.avoided.contains(&self.next) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Partitioner, Spread, murmur2};

    /// Values printed by `org.apache.kafka.common.utils.Utils.murmur2` of kafka-clients 4.3.1.
    #[test]
    fn hashes_agree_with_the_java_client() {
        for (text, expected) in JAVA {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
    }

    const JAVA: [(&str, i32); 9] = [
        ("", 275_646_681),
        ("a", -1_563_381_124),
        ("ab", 316_155_434),
        ("abc", 479_470_107),
        ("abcd", -1_323_649_548),
        ("thalweg", -731_721_117),
        ("key-12345", -952_703_915),
        ("The line of fastest flow", 1_652_356_484),
        ("äöü", -2_070_914_556),
    ];

    #[test]
    fn keys_stick_and_the_rest_moves_on_with_each_batch() {
        let mut p = Partitioner::new(Spread::Key, 3, 7);
        let of_key = p.choose(Some(b"k"));
        assert_eq!(p.choose(Some(b"k")), of_key);
        assert_eq!(p.choose_after_full(Some(b"k"), of_key), of_key);
        assert_eq!((p.choose(None), p.choose(None)), (1, 1));
        assert_eq!(p.choose_after_full(None, 1), 2);
        assert_eq!(p.choose_after_full(None, 2), 0);
        assert_eq!(p.choose(None), 0);
    }

    #[test]
    fn only_keys_go_to_partitions_without_leader() {
        let mut sticky = Partitioner::new(Spread::Key, 4, 1);
        let keyed = sticky.choose(Some(b"k"));
        sticky.avoid([keyed, 1, 2].into_iter());
        assert_eq!(sticky.choose(Some(b"k")), keyed);
        assert!(![keyed, 1, 2].contains(&sticky.choose(None)));
        let mut each = Partitioner::new(Spread::RoundRobin, 3, 0);
        each.avoid([1].into_iter());
        let places: Vec<i32> = (0..4).map(|_| each.choose(None)).collect();
        assert_eq!(places, [0, 2, 0, 2]);
        each.avoid([].into_iter());
        let places: Vec<i32> = (0..3).map(|_| each.choose(None)).collect();
        assert_eq!(places, [0, 1, 2]);
        each.avoid(0..3);
        assert_eq!(each.choose(None), 0);
    }

    #[test]
    fn sticky_and_round_robin_do_not_look_at_keys() {
        let mut sticky = Partitioner::new(Spread::Sticky, 2, 0);
        assert_eq!((sticky.choose(Some(b"a")), sticky.choose(None)), (0, 0));
        assert_eq!(sticky.choose_after_full(Some(b"a"), 0), 1);
        let mut each = Partitioner::new(Spread::RoundRobin, 3, 0);
        let places: Vec<i32> = (0..4).map(|_| each.choose(Some(b"a"))).collect();
        assert_eq!(places, [0, 1, 2, 0]);
        assert_eq!(each.choose_after_full(None, 2), 2);
    }
}
