//! A histogram that is cheap enough for every request, and that any reader can take an interval of.
//!
//! [`StageHistogram`](crate::StageHistogram) keeps two digits over the last minutes. This one keeps an eighth of a power
//! of two, for as long as the process lives: two copies of it, subtracted, are the time between them, whoever looks and
//! however often.

/// Buckets of one power of two.
const STEPS: u32 = 8;
/// `log2` of [`STEPS`].
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// A bucket for each value below [`STEPS`], then [`STEPS`] for each power of two up to that of the largest value.
const BUCKETS: usize = bucket_of(u32::MAX) + 1;

/// Times in microseconds: how many fell into each bucket since the start. No bucket is wider than an eighth of its
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeBuckets {
    /// `None` until the first use.
    counts: Option<Box<[u64; BUCKETS]>>,
    count: u64,
    sum_us: u64,
}

impl TimeBuckets {
    /// Adds one time.
    pub fn record(&mut self, us: u32) {
        self.counts.get_or_insert_with(empty)[bucket_of(us)] += 1;
        self.count += 1;
        self.sum_us += u64::from(us);
    }

    /// Number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all times in microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Number of times that were `us` microseconds at most, exact where `us` is one less than a power of two.
    #[must_use]
    pub fn count_up_to(&self, us: u32) -> u64 {
        let counts = self.counts.iter().flat_map(|counts| counts.iter());
        counts.take(bucket_of(us) + 1).sum()
    }

    /// The buckets that are not empty: the largest time in microseconds that falls into it, and how many did.
    pub fn used(&self) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.counts.iter().flat_map(|counts| counts.iter());
        let used = counts.enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (largest_in(bucket), *count))
    }

    /// Adds the times of `other`.
    pub fn merge(&mut self, other: &TimeBuckets) {
        self.count += other.count;
        self.sum_us += other.sum_us;
        if let Some(theirs) = &other.counts {
            let mine = self.counts.get_or_insert_with(empty);
            for (mine, theirs) in mine.iter_mut().zip(theirs.iter()) {
                *mine += theirs;
            }
        }
    }
}

fn empty() -> Box<[u64; BUCKETS]> {
    Box::new([0; BUCKETS])
}

const fn bucket_of(us: u32) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let power = us.ilog2();
    let step = (us >> (power - STEP_BITS)) & (STEPS - 1);
    ((power - STEP_BITS + 1) * STEPS + step) as usize
}

fn largest_in(bucket: usize) -> u32 {
    let bucket = bucket as u32;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let next = u64::from(STEPS + bucket % STEPS + 1) << shift;
    u32::try_from(next - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, TimeBuckets, bucket_of, largest_in};

    #[test]
    fn every_time_falls_into_a_bucket_that_is_hardly_larger() {
        let edges = (0..32).flat_map(|power| {
            let edge = 1u32 << power;
            [edge.saturating_sub(1), edge, edge + 1, edge + edge / 3]
        });
        for us in edges.chain(0..5_000).chain([u32::MAX]) {
            let largest = largest_in(bucket_of(us));
            assert!(largest >= us, "{us} in {largest}");
            assert!(largest - us <= us / 8, "{us} in {largest}");
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        for bucket in 1..BUCKETS {
            let first = largest_in(bucket - 1) + 1;
            assert_eq!(bucket_of(first), bucket);
            assert_eq!(bucket_of(largest_in(bucket)), bucket);
        }
        assert_eq!(largest_in(BUCKETS - 1), u32::MAX);
    }

    #[test]
    fn costs_nothing_before_its_first_use() {
        let mut unused = TimeBuckets::default();
        unused.merge(&TimeBuckets::default());
        assert!(unused.counts.is_none());
        assert_eq!(unused.used().count(), 0);
        assert_eq!(unused.count_up_to(u32::MAX), 0);
    }

    #[test]
    fn counts_and_sums_add_up() {
        let mut one = TimeBuckets::default();
        [3, 3, 1_000].into_iter().for_each(|us| one.record(us));
        let mut two = TimeBuckets::default();
        two.record(70_000);
        one.merge(&two);
        assert_eq!((one.count(), one.sum_us()), (4, 71_006));
        assert_eq!(
            one.used().collect::<Vec<_>>(),
            [(3, 2), (1_023, 1), (73_727, 1)]
        );
        assert_eq!((one.count_up_to(2), one.count_up_to(1_023)), (0, 3));
    }
}
