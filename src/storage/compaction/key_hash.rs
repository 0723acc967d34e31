//! SipHash with 128 bits of output, keyed: what a key is known by in the offset map.
//!
//! Aumasson and Bernstein, "SipHash: a fast short-input PRF", with the longer output of their reference code. One and
//! three rounds, as in Rust's own hash maps.

/// Hash of a key: its identity within one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyHash(pub(super) [u64; 2]);

/// Hashes by one seed.
pub(super) struct KeyHasher {
    seed: [u64; 2],
}

impl KeyHasher {
    pub(super) fn new(seed: [u64; 2]) -> KeyHasher {
        KeyHasher { seed }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        siphash::<1, 3>(self.seed, key)
    }
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline(always)]
    fn take<const ROUNDS: usize>(&mut self, word: u64) {
        self.v3 ^= word;
        (0..ROUNDS).for_each(|_| self.round());
        self.v0 ^= word;
    }

    #[inline(always)]
    fn finish<const ROUNDS: usize>(&mut self) -> u64 {
        (0..ROUNDS).for_each(|_| self.round());
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}

#[inline(always)]
fn siphash<const EACH: usize, const LAST: usize>(seed: [u64; 2], bytes: &[u8]) -> KeyHash {
    let [k0, k1] = seed;
    let mut state = State {
        v0: k0 ^ 0x736f_6d65_7073_6575,
        v1: k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        v2: k0 ^ 0x6c79_6765_6e65_7261,
        v3: k1 ^ 0x7465_6462_7974_6573,
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.take::<EACH>(u64::from_le_bytes(*word));
    }
    let length = (bytes.len() as u64) << 56;
    let last = rest
        .iter()
        .rev()
        .fold(0, |last, byte| last << 8 | u64::from(*byte));
    state.take::<EACH>(length | last);
    state.v2 ^= 0xee;
    let low = state.finish::<LAST>();
    state.v1 ^= 0xdd;
    KeyHash([low, state.finish::<LAST>()])
}

#[cfg(test)]
mod tests {
    use super::{KeyHasher, siphash};

    /// `vectors_sip128` of the authors' reference code: SipHash-2-4-128, key 00 to 0f, input 00, 01 and so on.
    #[test]
    fn it_agrees_with_the_authors() {
        let seed = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let input: Vec<u8> = (0..64).collect();
        let expected = [
            (0, "a3817f04ba25a8e66df67214c7550293"),
            (1, "da87c1d86b99af44347659119b22fc45"),
            (2, "8177228da4a45dc7fca38bdef60affe4"),
        ];
        for (bytes, hex) in expected {
            let [low, high] = siphash::<2, 4>(seed, &input[..bytes]).0;
            let both = [low.to_le_bytes(), high.to_le_bytes()].concat();
            let shown: String = both.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(shown, hex, "{bytes} bytes");
        }
    }

    #[test]
    fn seeds_and_lengths_tell_keys_apart() {
        let one = KeyHasher::new([1, 2]);
        let other = KeyHasher::new([1, 3]);
        assert_eq!(one.hash(b"key"), one.hash(b"key"));
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
        let zeros = [0; 40];
        let mut all: Vec<_> = (0..40).map(|n| one.hash(&zeros[..n]).0).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
    }
}
