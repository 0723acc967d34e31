//! What is printed: one run, and medians over rounds.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::{LoadResult, PartResult};

/// One run in numbers; the JSON of `produce` and `consume`, and one round in that of `run`.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Workload and contender, or what the caller calls it.
    pub name: String,
    /// Length of the measured window.
    pub seconds: f64,
    /// Producers and consumers apart.
    pub parts: Vec<PartReport>,
    /// From producing to consuming one record beside the load, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_us: Option<Percentiles>,
    /// CPU seconds of the broker per 10^9 bytes of record batches.
    pub broker_cpu_s_per_gb: Option<f64>,
    /// CPU microseconds of the broker per request.
    pub broker_cpu_us_per_request: Option<f64>,
    /// CPU seconds of the broker per second.
    pub broker_cpus: Option<f64>,
    /// CPU seconds of the whole machine per second.
    pub machine_cpus: f64,
}

/// One part of a run in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct PartReport {
    /// `produce` or `consume`.
    pub name: &'static str,
    /// Requests answered.
    pub requests: u64,
    /// 10^6 bytes of record batches per second.
    pub mb_per_second: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Latency percentiles in microseconds; of an open loop from the intended time of sending.
    pub latency_us: Percentiles,
    /// Of an open loop only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenReport>,
}

/// How well an open loop kept its schedule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OpenReport {
    /// Requests per second that the schedule asked for.
    pub intended_per_second: f64,
    /// Answered requests per intended request.
    pub achieved_share: f64,
    /// Requests that were due and not begun, at their most.
    pub backlog_max: u64,
    /// Requests that were due and had no answer at the end; they count in the latency with their age.
    pub unanswered: u64,
    /// From the intended time to the first attempt to send, in microseconds.
    pub send_delay_us: Percentiles,
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

impl Percentiles {
    /// Of one histogram.
    #[must_use]
    pub fn of(h: &Histogram<u64>) -> Percentiles {
        let samples = h.len();
        Percentiles {
            samples,
            p50: h.value_at_quantile(0.5),
            p90: h.value_at_quantile(0.9),
            p99: h.value_at_quantile(0.99),
            p999: (samples >= SAMPLES_FOR_P999).then(|| h.value_at_quantile(0.999)),
            max: h.max(),
        }
    }
}

impl PartReport {
    fn of(part: &PartResult, seconds: f64) -> PartReport {
        PartReport {
            name: part.name,
            requests: part.requests,
            mb_per_second: part.bytes as f64 / 1e6 / seconds,
            requests_per_second: part.requests as f64 / seconds,
            latency_us: Percentiles::of(&part.latency_us),
            open_loop: part.open.as_ref().map(|open| OpenReport {
                intended_per_second: open.intended as f64 / seconds,
                achieved_share: part.requests as f64 / open.intended.max(1) as f64,
                backlog_max: open.backlog_max,
                unanswered: open.unanswered,
                send_delay_us: Percentiles::of(&open.send_delay_us),
            }),
        }
    }

    fn line(&self) -> String {
        let l = &self.latency_us;
        let open = self.open_loop.map_or_else(String::new, |open| {
            format!(
                "  achieved {:.2} % of {:.0}/s, backlog {}, unanswered {}",
                open.achieved_share * 100.0,
                open.intended_per_second,
                open.backlog_max,
                open.unanswered
            )
        });
        format!(
            "{:>8.1} MB/s {:>9.0} requests/s  p50 {} p99 {} max {} us{open}",
            self.mb_per_second, self.requests_per_second, l.p50, l.p99, l.max
        )
    }
}

impl RunReport {
    /// Numbers of `result`.
    #[must_use]
    pub fn of(name: impl Into<String>, result: &LoadResult) -> RunReport {
        let seconds = result.elapsed.as_secs_f64();
        RunReport {
            name: name.into(),
            seconds,
            parts: result
                .parts
                .iter()
                .map(|part| PartReport::of(part, seconds))
                .collect(),
            end_to_end_us: None,
            broker_cpu_s_per_gb: result.cpu_seconds_per_gb(),
            broker_cpu_us_per_request: result.cpu_us_per_request(),
            broker_cpus: result.broker_cpu.map(|c| c.as_secs_f64() / seconds),
            machine_cpus: result.machine_busy.as_secs_f64() / seconds,
        }
    }

    /// 10^6 bytes of record batches per second, over all parts.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        self.parts.iter().map(|part| part.mb_per_second).sum()
    }

    /// One line for people, or one per part.
    #[must_use]
    pub fn line(&self) -> String {
        let cpu = match (self.broker_cpu_s_per_gb, self.broker_cpu_us_per_request) {
            (Some(gb), Some(request)) => {
                format!("  broker CPU {gb:.3} s/GB {request:.2} us/request")
            }
            (_, _) => String::new(),
        };
        let machine = format!("{cpu}  machine {:.2} CPUs", self.machine_cpus);
        if let [part] = &self.parts[..] {
            return format!("{:<24} {}{machine}", self.name, part.line());
        }
        let mut text = format!("{:<24}{machine}", self.name);
        for part in &self.parts {
            text += &format!("\n  {:<22} {}", part.name, part.line());
        }
        text
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
