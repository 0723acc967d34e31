//! Where the time of requests goes: per request, and summed up for a core.

use std::time::Duration;

use crate::prometheus::Page;
use crate::{Cause, CoreMetrics, SlowRequests, TimeBuckets};

/// What one request spent in each stage that it went through, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    us: [u32; Cause::COUNT],
}

impl Spent {
    /// Adds a time, which is not taken for nothing however short: the request was in this stage.
    pub fn add(&mut self, cause: Cause, took: Duration) {
        self.add_us(cause, micros(took).max(1));
    }

    /// Adds the times of `other`.
    pub fn merge(&mut self, other: &Spent) {
        for (mine, theirs) in self.us.iter_mut().zip(other.us) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// The time in all stages in microseconds.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.us.iter().copied().map(u64::from).sum()
    }

    /// Time in one stage in microseconds; 0 where the request has not been in it.
    #[must_use]
    pub fn us(&self, cause: Cause) -> u32 {
        self.us[cause.index()]
    }

    /// The stages that the request was in, with their times in microseconds.
    pub fn stages(&self) -> impl Iterator<Item = (Cause, u32)> {
        let all = Cause::ALL.iter().map(|cause| (*cause, self.us(*cause)));
        all.filter(|(_, us)| *us > 0)
    }

    fn add_us(&mut self, cause: Cause, us: u32) {
        let sum = &mut self.us[cause.index()];
        *sum = sum.saturating_add(us);
    }
}

/// A time in whole microseconds, up to about 71 minutes.
#[must_use]
pub fn micros(took: Duration) -> u32 {
    u32::try_from(took.as_micros()).unwrap_or(u32::MAX)
}

/// What the requests of one core waited for.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    /// The slowest requests of late.
    pub slow: SlowRequests,
    total: TimeBuckets,
    stages: [TimeBuckets; Cause::COUNT],
}

impl Blame {
    /// Counts a request that took `total_us` microseconds from its first byte to the last of its answer, without
    /// what it was meant to wait.
    pub fn count(&mut self, spent: &Spent, total_us: u32) {
        self.total.record(total_us);
        for (cause, us) in spent.stages() {
            self.stages[cause.index()].record(us);
        }
    }

    /// Times of whole requests.
    #[must_use]
    pub fn total(&self) -> &TimeBuckets {
        &self.total
    }

    /// Times in one stage, of the requests that were in it.
    #[must_use]
    pub fn stage(&self, cause: Cause) -> &TimeBuckets {
        &self.stages[cause.index()]
    }

    /// Adds what another core has.
    pub fn merge(&mut self, other: &Blame) {
        self.slow.merge(&other.slow);
        self.total.merge(&other.total);
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(theirs);
        }
    }
}

/// Upper bounds of the buckets that are shown of [`TimeBuckets`], in microseconds: every second power of two, less the
/// one, because there the counts are exact.
const BLAME_BOUNDS_US: [u32; 11] = [
    63, 255, 1_023, 4_095, 16_383, 65_535, 262_143, 1_048_575, 4_194_303, 16_777_215, 67_108_863,
];

/// The page's part about what requests waited for.
pub(crate) fn render(page: &mut Page, cores: &[CoreMetrics]) {
    const TOTAL: &str = "thalweg_request_seconds";
    const STAGE: &str = "thalweg_request_stage_seconds";
    let shards = || cores.iter().filter(|core| !core.is_control());
    page.head(
        TOTAL,
        "histogram",
        "Requests from their first byte to the last of their answer, without what they were meant to wait.",
    );
    for core in shards() {
        histogram(page, TOTAL, &[("core", &core.label())], core.blame.total());
    }
    page.head(
        STAGE,
        "histogram",
        "What requests spent their time in; a request counts in the stages that it was in.",
    );
    for core in shards() {
        let label = core.label();
        for cause in Cause::ALL {
            let labels = [("core", &*label), ("stage", cause.label())];
            histogram(page, STAGE, &labels, core.blame.stage(*cause));
        }
    }
}

fn histogram(page: &mut Page, metric: &str, labels: &[(&str, &str)], times: &TimeBuckets) {
    let bucket = format!("{metric}_bucket");
    for bound in BLAME_BOUNDS_US {
        let le = (f64::from(bound) / 1e6).to_string();
        let labels: Vec<_> = labels.iter().copied().chain([("le", &*le)]).collect();
        page.sample(&bucket, &labels, times.count_up_to(bound));
    }
    let all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
    page.sample(&bucket, &all, times.count());
    let sum = times.sum_us() as f64 / 1e6;
    page.sample(&format!("{metric}_sum"), labels, sum);
    page.sample(&format!("{metric}_count"), labels, times.count());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Blame, Spent};
    use crate::Cause;

    #[test]
    fn a_stage_that_a_request_was_not_in_counts_nothing() {
        let mut spent = Spent::default();
        spent.add(Cause::Append, Duration::from_micros(300));
        spent.add(Cause::Queue, Duration::ZERO);
        spent.add(Cause::Append, Duration::from_micros(50));
        assert_eq!(
            spent.stages().collect::<Vec<_>>(),
            [(Cause::Queue, 1), (Cause::Append, 350)]
        );
        let mut blame = Blame::default();
        blame.count(&spent, 400);
        blame.count(&Spent::default(), 7);
        assert_eq!(blame.total().count(), 2);
        assert_eq!(blame.stage(Cause::Append).count(), 1);
        assert_eq!(blame.stage(Cause::FlushWait).count(), 0);
    }

    #[test]
    fn times_beyond_all_measure_stay_the_longest() {
        let mut spent = Spent::default();
        spent.add(Cause::ColdRead, Duration::MAX);
        spent.add(Cause::ColdRead, Duration::from_secs(1));
        let mut twice = spent;
        twice.merge(&spent);
        assert_eq!(twice.us(Cause::ColdRead), u32::MAX);
    }
}
