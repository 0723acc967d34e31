//! Keys and the last offset of each, in bounded memory: 24 bytes per key, whatever its length.
//!
//! A key is known by a 128-bit hash, as in Kafka. Kafka's is MD5, for which anybody can make two keys
//! that collide, and so delete another's record; this one is seeded anew in each map.

use std::hash::{BuildHasher, RandomState};

use thalweg_types::Offset;

use super::key_hash::{KeyHash, KeyHasher};

/// 64-bit words of a slot: the hash, and the offset plus one (0 = free).
const SLOT_WORDS: usize = 3;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: u64 = SLOT_WORDS as u64 * 8;

/// An open-addressing table that is never resized. Memory that is not used is not touched, so the
/// system does not provide it.
pub(super) struct OffsetMap {
    words: Vec<u64>,
    slots: usize,
    keys: usize,
    keys_max: usize,
    hasher: KeyHasher,
}

impl OffsetMap {
    /// Room for `keys` keys at most `load` full, as far as `bytes` allow; one slot at least.
    pub(super) fn new(bytes: u64, load: f64, keys: u64) -> OffsetMap {
        let load = load.clamp(0.01, 0.99);
        let most = (bytes / SLOT_BYTES).max(2);
        // A table that is half full has short chains.
        let wanted = keys.saturating_mul(2).clamp(2, most);
        let slots = usize::try_from(wanted).unwrap_or(usize::MAX / SLOT_WORDS);
        let keys_max = ((slots as f64) * load) as usize;
        OffsetMap {
            words: vec![0; slots * SLOT_WORDS],
            slots,
            keys: 0,
            keys_max: keys_max.clamp(1, slots - 1),
            // Where else the system's randomness is to be had without asking for it.
            hasher: KeyHasher::new([0, 1].map(|word: u64| RandomState::new().hash_one(word))),
        }
    }

    /// True when a further key would be one too many.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.keys_max
    }

    /// Keys in the map.
    pub(super) fn len(&self) -> usize {
        self.keys
    }

    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The last offset of the key is `offset` now. False, and nothing has changed, when the key is new
    /// and the map full.
    #[must_use]
    pub(super) fn put(&mut self, hash: KeyHash, offset: Offset) -> bool {
        let at = self.find(hash);
        if self.words[at + 2] == 0 {
            if self.is_full() {
                return false;
            }
            self.keys += 1;
            self.words[at..at + 2].copy_from_slice(&hash.0);
        }
        self.words[at + 2] = offset.0.unsigned_abs().saturating_add(1);
        true
    }

    /// The last offset of the key, if it was put.
    pub(super) fn get(&self, hash: KeyHash) -> Option<Offset> {
        let found = self.words[self.find(hash) + 2];
        found.checked_sub(1).map(|offset| Offset(offset as i64))
    }

    /// First word of the slot that has the key, or of the free one where it belongs. One slot is always
    /// free, so the search ends.
    fn find(&self, hash: KeyHash) -> usize {
        // The hash as a share of all slots: a division would take longer than the rest.
        let slot = (u128::from(hash.0[0]) * self.slots as u128) >> 64;
        let mut at = slot as usize * SLOT_WORDS;
        while self.words[at + 2] != 0 && self.words[at..at + 2] != hash.0 {
            at += SLOT_WORDS;
            if at == self.words.len() {
                at = 0;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use thalweg_types::Offset;

    use super::OffsetMap;

    #[test]
    fn it_agrees_with_a_plain_map_until_it_is_full() {
        for bytes in [0, 24 * 100, 24 * 1_000] {
            let mut map = OffsetMap::new(bytes, 0.9, 100_000);
            let mut plain = HashMap::new();
            for i in 0..2_000u64 {
                let key = (i * i % 1_009).to_string();
                let hash = map.hash(key.as_bytes());
                let known = plain.contains_key(&key);
                let taken = map.put(hash, Offset(i as i64));
                assert_eq!(taken, known || plain.len() < map.keys_max);
                if taken {
                    plain.insert(key, Offset(i as i64));
                }
            }
            assert_eq!(map.len(), plain.len());
            assert!(map.len() <= map.keys_max.max(1));
            for key in 0..1_009 {
                let key = key.to_string();
                let found = map.get(map.hash(key.as_bytes()));
                assert_eq!(found, plain.get(&key).copied(), "{key}");
            }
        }
    }

    #[test]
    fn its_memory_is_what_the_work_needs_and_no_more_than_allowed() {
        assert_eq!(OffsetMap::new(1 << 30, 0.9, 10).slots, 20);
        assert_eq!(OffsetMap::new(2_400, 0.9, u64::MAX).slots, 100);
        assert_eq!(OffsetMap::new(2_400, 0.9, u64::MAX).keys_max, 90);
    }
}
