//! What is printed: one run, and medians over rounds.

use serde::Serialize;

use crate::load::LoadResult;

/// One run in numbers; the JSON of `produce` and `consume`.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Workload and contender, or what the caller calls it.
    pub name: String,
    /// Length of the measured window.
    pub seconds: f64,
    /// Requests answered.
    pub requests: u64,
    /// 10^6 bytes of record batches per second.
    pub mb_per_second: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Latency percentiles in microseconds.
    pub latency_us: Percentiles,
    /// CPU seconds of the broker per 10^9 bytes of record batches.
    pub broker_cpu_s_per_gb: Option<f64>,
    /// CPU microseconds of the broker per request.
    pub broker_cpu_us_per_request: Option<f64>,
    /// CPU seconds of the broker per second.
    pub broker_cpus: Option<f64>,
    /// CPU seconds of the whole machine per second.
    pub machine_cpus: f64,
}

/// Percentiles of one histogram.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub samples: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    /// Absent below 10,000 samples.
    pub p999: Option<u64>,
    pub max: u64,
}

const SAMPLES_FOR_P999: u64 = 10_000;

impl RunReport {
    /// Numbers of `result`.
    #[must_use]
    pub fn of(name: impl Into<String>, result: &LoadResult) -> RunReport {
        let seconds = result.elapsed.as_secs_f64();
        let h = &result.latency_us;
        let samples = h.len();
        let p999 = (samples >= SAMPLES_FOR_P999).then(|| h.value_at_quantile(0.999));
        RunReport {
            name: name.into(),
            seconds,
            requests: result.requests,
            mb_per_second: result.mb_per_second(),
            requests_per_second: result.requests_per_second(),
            latency_us: Percentiles {
                samples,
                p50: h.value_at_quantile(0.5),
                p90: h.value_at_quantile(0.9),
                p99: h.value_at_quantile(0.99),
                p999,
                max: h.max(),
            },
            broker_cpu_s_per_gb: result.cpu_seconds_per_gb(),
            broker_cpu_us_per_request: result.cpu_us_per_request(),
            broker_cpus: result.broker_cpu.map(|c| c.as_secs_f64() / seconds),
            machine_cpus: result.machine_busy.as_secs_f64() / seconds,
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let l = &self.latency_us;
        let cpu = match (self.broker_cpu_s_per_gb, self.broker_cpu_us_per_request) {
            (Some(gb), Some(request)) => {
                format!("  broker CPU {gb:.3} s/GB {request:.2} us/request")
            }
            (_, _) => String::new(),
        };
        format!(
            "{:<24} {:>8.1} MB/s {:>9.0} requests/s  p50 {} p99 {} max {} us{cpu}  machine {:.2} CPUs",
            self.name,
            self.mb_per_second,
            self.requests_per_second,
            l.p50,
            l.p99,
            l.max,
            self.machine_cpus
        )
    }
}

/// Median and range of one number over rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// The middle value (of two, their mean).
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// In order of the rounds.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Of at least one value; of none all numbers are NaN.
    #[must_use]
    pub fn of(rounds: Vec<f64>) -> Spread {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        let min = sorted.first().copied().unwrap_or(f64::NAN);
        let max = sorted.last().copied().unwrap_or(f64::NAN);
        Spread {
            median,
            min,
            max,
            rounds,
        }
    }

    /// `median (min-max)` with so many decimals.
    #[must_use]
    pub fn shown(&self, decimals: usize) -> String {
        format!(
            "{:.decimals$} ({:.decimals$}-{:.decimals$})",
            self.median, self.min, self.max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn medians() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(vec![3.0, 1.0]).shown(1), "2.0 (1.0-3.0)");
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
