//! A hash map for keys that this process gave out itself.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by ids that no client can choose: topic ids and partitions that exist, tokens, counters. What a
/// client sends may be looked up in it and never be put into it, since it does not defend itself against
/// keys that were made to collide; maps of what clients name keep the standard hasher.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The hasher of [`IdMap`]: a multiplication and a fold per 8 bytes, a tenth of the standard one's work.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    /// Odd, without a pattern (2^64 over the golden ratio).
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(Self::FACTOR);
        // Both halves count: the table takes its bits from either end.
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.mix(u64::from_le_bytes(eight));
        }
        for &byte in words.remainder() {
            self.mix(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_i64(&mut self, word: i64) {
        self.mix(word as u64);
    }

    fn write_i32(&mut self, word: i32) {
        self.mix(u64::from(word as u32));
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::IdHasher;
    use crate::{PartitionIndex, TopicPartition, Uuid};

    /// Of all keys there are few in each of 1,024 places, whichever end of the hash says which.
    fn assert_spread(keys: impl Iterator<Item = u64>) {
        let (mut low, mut high) = ([0u32; 1_024], [0u32; 1_024]);
        let mut all = HashSet::new();
        let mut count = 0;
        for hash in keys {
            low[(hash % 1_024) as usize] += 1;
            high[(hash >> 54) as usize] += 1;
            all.insert(hash);
            count += 1;
        }
        assert_eq!(all.len(), count, "no two alike");
        let most = count as u32 / 1_024 * 4;
        for places in [low, high] {
            let fullest = places.iter().max().copied().unwrap_or(0);
            assert!(fullest <= most, "{fullest} of {count} in one place");
        }
    }

    #[test]
    fn tokens_and_partitions_spread_over_the_table() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        assert_spread((0..100_000u64).map(|token| hasher.hash_one(token)));
        let partitions = (0..100u8).flat_map(|topic| {
            (0..1_000).map(move |index| TopicPartition {
                topic: Uuid([topic; 16]),
                partition: PartitionIndex(index),
            })
        });
        assert_spread(partitions.map(|at| hasher.hash_one(at)));
    }
}
