//! Random sequences of which a seed is all there is to know.

/// A small generator.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn of(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Runs `sequence` for the seeds from 1 on; the one that panics is named.
pub(super) fn for_each_seed(seeds: u64, sequence: fn(u64)) {
    for seed in 1..=seeds {
        if let Err(panic) = std::panic::catch_unwind(|| sequence(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
