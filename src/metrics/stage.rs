//! Histograms of how long each stage of a request takes.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Smallest difference that is kept, in ns.
const RESOLUTION_NS: u64 = 1_000;
/// Longest time that is kept as itself, in ns; longer ones count as this in quantiles (their sum is
/// exact).
const LONGEST_NS: u64 = 60_000_000_000;
/// With 2 digits and this range a histogram costs about 20 KiB.
const SIGNIFICANT_DIGITS: u8 = 2;

macro_rules! stages {
    ($($variant:ident = $metric:literal, $help:literal;)*) => {
        /// A measured stretch of a request's way through one core.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Stage {
            $(#[doc = $help] $variant,)*
        }

        impl Stage {
            /// Every stage, in the order of [`Stage::index`].
            pub const ALL: &'static [Stage] = &[$(Stage::$variant,)*];
            /// Number of stages.
            pub const COUNT: usize = Self::ALL.len();

            /// Position in arrays of [`Stage::COUNT`] elements.
            #[must_use]
            pub fn index(self) -> usize {
                self as usize
            }

            /// Metric name; the unit is seconds.
            #[must_use]
            pub fn metric(self) -> &'static str {
                match self {
                    $(Stage::$variant => $metric,)*
                }
            }

            /// Help text.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self {
                    $(Stage::$variant => $help,)*
                }
            }
        }
    };
}

stages! {
    RequestQueue = "thalweg_request_queue_seconds", "From the last byte of a request frame to the end of its dispatch.";
    AppendWrite = "thalweg_append_write_seconds", "One vectored write to a log, from submission to completion.";
    AckFlush = "thalweg_log_ack_flush_seconds", "One round of flushes that acknowledgements wait for, its wait for a thread included.";
    Produce = "thalweg_produce_seconds", "A produce request, from its last byte to its answer being ready.";
    Fetch = "thalweg_fetch_seconds", "A fetch request without its wait for records.";
    FetchWait = "thalweg_fetch_wait_seconds", "The wait of a fetch for records (long polling).";
    ColdRead = "thalweg_cold_read_seconds", "One stride that was not in the page cache, from asking the lane for it to having it.";
    CrossCoreHop = "thalweg_cross_core_hop_seconds", "From putting a request in another core's mailbox to its being taken out.";
    ResponseWrite = "thalweg_response_write_seconds", "From an answer being ready to its last byte being given to the socket.";
}

/// Times of one [`Stage`]: quantiles over the current and the previous window, count and sum since
/// the start.
#[derive(Clone, Debug, Default)]
pub struct StageHistogram {
    current: Option<Histogram<u64>>,
    previous: Option<Histogram<u64>>,
    count: u64,
    sum_ns: u64,
}

impl StageHistogram {
    /// Adds one time.
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.current.get_or_insert_with(empty).saturating_record(ns);
    }

    /// Begins a new window; the one before the last is forgotten.
    pub fn rotate(&mut self) {
        if self.current.is_none() && self.previous.is_none() {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        if let Some(histogram) = &mut self.current {
            histogram.reset();
        }
    }

    /// Number of times recorded since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all times since the start.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The given quantiles (0 to 1) over the last two windows; `None` where nothing was recorded in
    /// them.
    #[must_use]
    pub fn quantiles(&self, which: &[f64]) -> Option<Vec<Duration>> {
        let merged = self.recent()?;
        Some(
            which
                .iter()
                .map(|q| Duration::from_nanos(merged.value_at_quantile(*q)))
                .collect(),
        )
    }

    /// Adds the times of `other`.
    pub fn merge(&mut self, other: &StageHistogram) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        for (mine, theirs) in [
            (&mut self.current, &other.current),
            (&mut self.previous, &other.previous),
        ] {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(empty);
            mine.add(theirs).expect("both have the same bounds");
        }
    }

    fn recent(&self) -> Option<Histogram<u64>> {
        let mut merged = match (&self.current, &self.previous) {
            (Some(current), Some(previous)) => {
                let mut merged = current.clone();
                merged.add(previous).expect("both have the same bounds");
                merged
            }
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => return None,
        };
        merged.auto(false);
        (!merged.is_empty()).then_some(merged)
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(RESOLUTION_NS, LONGEST_NS, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that the library accepts")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::StageHistogram;

    #[test]
    fn costs_nothing_before_its_first_use() {
        let mut unused = StageHistogram::default();
        unused.rotate();
        assert!(unused.current.is_none() && unused.previous.is_none());
        assert_eq!(unused.quantiles(&[0.5]), None);
    }

    #[test]
    fn quantiles_keep_two_digits_and_the_sum_is_exact() {
        let mut times = StageHistogram::default();
        for us in 1..=1_000 {
            times.record(Duration::from_micros(us));
        }
        let got = times.quantiles(&[0.5, 0.99]).expect("times were recorded");
        assert!(got[0] >= Duration::from_micros(495) && got[0] <= Duration::from_micros(510));
        assert!(got[1] >= Duration::from_micros(985) && got[1] <= Duration::from_micros(1_010));
        assert_eq!(
            (times.count(), times.sum()),
            (1_000, Duration::from_micros(500_500))
        );
    }

    #[test]
    fn two_rotations_forget_old_times_but_not_their_count() {
        let mut times = StageHistogram::default();
        times.record(Duration::from_secs(1));
        times.rotate();
        times.record(Duration::from_micros(10));
        let both = times.quantiles(&[1.0]).expect("two windows");
        assert!(both[0] >= Duration::from_millis(990));
        times.rotate();
        let last = times.quantiles(&[1.0]).expect("one window");
        assert!(last[0] < Duration::from_millis(1));
        times.rotate();
        assert_eq!(times.quantiles(&[1.0]), None);
        assert_eq!(times.count(), 2);
    }

    #[test]
    fn an_hour_counts_as_the_longest() {
        let mut times = StageHistogram::default();
        times.record(Duration::from_secs(3_600));
        let got = times.quantiles(&[0.5]).expect("one time");
        assert!(got[0] >= Duration::from_secs(59));
        assert_eq!(times.sum(), Duration::from_secs(3_600));
    }

    #[test]
    fn merge_adds_windows_and_totals() {
        let mut one = StageHistogram::default();
        one.record(Duration::from_micros(100));
        let mut two = StageHistogram::default();
        two.record(Duration::from_millis(100));
        two.rotate();
        one.merge(&two);
        assert_eq!(one.count(), 2);
        assert!(one.quantiles(&[1.0]).expect("times")[0] >= Duration::from_millis(99));
    }
}
