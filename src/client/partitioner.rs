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

/// Chooses partitions for the records of one topic.
#[derive(Clone, Debug)]
pub struct Partitioner {
    partitions: u32,
    sticky: u32,
}

impl Partitioner {
    /// For a topic of so many partitions (at least one); `start` picks the first sticky one.
    #[must_use]
    pub fn new(partitions: usize, start: u32) -> Partitioner {
        let partitions = u32::try_from(partitions).unwrap_or(u32::MAX).max(1);
        Partitioner {
            partitions,
            sticky: start % partitions,
        }
    }

    /// Partition of a record.
    #[must_use]
    pub fn choose(&self, key: Option<&[u8]>) -> i32 {
        let index = match key {
            Some(key) => (murmur2(key) & 0x7fff_ffff) % self.partitions,
            None => self.sticky,
        };
        index as i32
    }

    /// A batch of records without keys is full: the next ones go to the next partition.
    pub fn next_sticky(&mut self) {
        self.sticky = (self.sticky + 1) % self.partitions;
    }
}

#[cfg(test)]
mod tests {
    use super::{Partitioner, murmur2};

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
    fn keys_stick_and_the_rest_moves_on() {
        let mut p = Partitioner::new(3, 7);
        assert_eq!(p.choose(Some(b"k")), p.choose(Some(b"k")));
        assert_eq!(p.choose(None), 1);
        p.next_sticky();
        p.next_sticky();
        assert_eq!(p.choose(None), 0);
    }
}
