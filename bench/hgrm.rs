//! HdrHistogram's percentile table, as its tools and plotters read it (`.hgrm`), and a short one for people.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

/// Lines per halving of the distance to 100 %, as HdrHistogram's own default.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
const US_PER_MS: f64 = 1_000.0;
const SHOWN: [f64; 7] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// The whole distribution of a histogram in microseconds; values in the table are milliseconds.
#[must_use]
pub fn table(us: &Histogram<u64>) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut total = 0;
    for step in us.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value = step.value_iterated_to() as f64 / US_PER_MS;
        // Writing to a string does not fail.
        let _ = write!(text, "{value:12.3} {quantile:.12} {total:10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean, deviation) = (us.mean() / US_PER_MS, us.stdev() / US_PER_MS);
    let max = us.max() as f64 / US_PER_MS;
    let _ = writeln!(
        text,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    );
    let _ = writeln!(
        text,
        "#[Max     = {max:12.3}, Total count    = {:12}]",
        us.len()
    );
    let _ = writeln!(
        text,
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        us.buckets(),
        sub_buckets(us.sigfig())
    );
    text
}

/// Slots of one bucket: the power of two that holds twice the wanted precision.
fn sub_buckets(significant_digits: u8) -> u64 {
    (2 * 10u64.pow(u32::from(significant_digits))).next_power_of_two()
}

/// A few percentiles in one line each.
#[must_use]
pub fn summary(name: &str, us: &Histogram<u64>) -> String {
    let mut text = format!("{name}: {} samples\n", us.len());
    for quantile in SHOWN {
        let value = us.value_at_quantile(quantile) as f64 / US_PER_MS;
        let _ = writeln!(text, "  {:>8.3} %  {value:>12.3} ms", quantile * 100.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{sub_buckets, summary, table};
    use hdrhistogram::Histogram;

    fn thousand() -> Histogram<u64> {
        let mut us = Histogram::new_with_bounds(1, 120_000_000, 3).unwrap();
        for value in 1..=1_000 {
            us.record(value).unwrap();
        }
        us
    }

    #[test]
    fn the_table_counts_every_sample_and_ends_at_the_maximum() {
        let text = table(&thousand());
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                line.split_whitespace()
                    .map(|f| f.parse().unwrap())
                    .collect()
            })
            .collect();
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert_eq!((median[0], median[2], median[3]), (0.5, 500.0, 2.0));
        let last = rows.last().unwrap();
        assert_eq!(last[..], [1.0, 1.0, 1_000.0]);
        assert!(rows.is_sorted_by(|a, b| a[1] <= b[1] && a[2] <= b[2]));
    }

    #[test]
    fn the_head_and_the_foot_are_those_of_hdrhistogram() {
        let text = table(&thousand());
        assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"));
        let foot: Vec<&str> = text.lines().filter(|l| l.starts_with("#[")).collect();
        assert_eq!(foot.len(), 3);
        assert_eq!(
            foot[1],
            "#[Max     =        1.000, Total count    =         1000]"
        );
        assert_eq!(sub_buckets(3), 2_048);
    }

    #[test]
    fn an_empty_histogram_has_a_table_without_samples() {
        let empty = Histogram::<u64>::new_with_bounds(1, 1_000, 3).unwrap();
        assert!(table(&empty).contains("Total count    =            0]"));
        assert!(summary("produce", &empty).starts_with("produce: 0 samples"));
    }

    #[test]
    fn the_summary_shows_the_tail() {
        let text = summary("produce", &thousand());
        assert!(text.contains("  99.000 %         0.990 ms"), "{text}");
    }
}
