//! Numbers that look random and are the same in every run.

/// A small generator (xorshift64*), begun from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        // Neighbouring seeds must not begin alike.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Dice((mixed ^ (mixed >> 31)) | 1)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    /// As [`Dice::below`], of sizes in memory.
    pub fn below_len(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
