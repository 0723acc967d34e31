//! Flags that change single numbers of a workload, for experiments.

use anyhow::{Result, ensure};

use crate::workload::{Rate, Reader, Workload};

/// Flags of all loads. A workload that they change is no longer reported under its plain name.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Connections, of producers and of consumers
    #[arg(long)]
    pub connections: Option<usize>,
    /// Requests in flight per connection
    #[arg(long)]
    pub in_flight: Option<usize>,
    /// Partitions of the topic
    #[arg(long)]
    pub partitions: Option<usize>,
    /// Bytes of a record's value
    #[arg(long)]
    pub record_bytes: Option<usize>,
    /// Bytes of a batch; at least one record
    #[arg(long)]
    pub batch_bytes: Option<usize>,
    /// acks: 0, 1 or -1
    #[arg(long, allow_negative_numbers = true)]
    pub acks: Option<i16>,
    /// partition_max_bytes of Fetch
    #[arg(long)]
    pub fetch_bytes: Option<usize>,
    /// Megabytes of batches that are produced first where consumers read what lies there
    #[arg(long)]
    pub fill_mb: Option<usize>,
    /// What becomes of the records that were asked for
    #[arg(long, value_enum)]
    pub reader: Option<Reader>,
    /// Open loop at so many requests per second
    #[arg(long, conflicts_with = "mb_per_second")]
    pub requests_per_second: Option<f64>,
    /// Open loop at so many 10^6 bytes of record batches per second
    #[arg(long)]
    pub mb_per_second: Option<f64>,
    /// Measured seconds per round
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seconds before measuring
    #[arg(long)]
    pub warm_up: Option<f64>,
}

impl Overrides {
    /// The workload with these numbers.
    ///
    /// # Errors
    /// When they make no sense; names the key as it is called in a workload file.
    pub fn apply(&self, base: &Workload) -> Result<Workload> {
        let mut w = base.clone();
        set(&mut w.partitions, self.partitions);
        set(&mut w.record_bytes, self.record_bytes);
        set(&mut w.batch_bytes, self.batch_bytes);
        let requests = self.requests_per_second.map(Rate::RequestsPerSecond);
        let rate = requests.or(self.mb_per_second.map(Rate::MbPerSecond));
        if let Some(produce) = &mut w.produce {
            set(&mut produce.connections, self.connections);
            set(&mut produce.in_flight, self.in_flight);
            set(&mut produce.acks, self.acks);
            produce.rate = rate.or(produce.rate);
        } else {
            ensure!(self.acks.is_none(), "--acks: {} does not produce", w.name);
        }
        let is_producing = w.produce.is_some();
        if let Some(consume) = &mut w.consume {
            set(&mut consume.connections, self.connections);
            set(&mut consume.fetch_bytes, self.fetch_bytes);
            set(&mut consume.fill_mb, self.fill_mb);
            set(&mut consume.reader, self.reader);
            if !is_producing {
                set(&mut consume.in_flight, self.in_flight);
                consume.rate = rate.or(consume.rate);
            }
        }
        if w != *base {
            w.name += " (changed)";
        }
        set(&mut w.measure.seconds, self.seconds);
        set(&mut w.measure.warm_up_seconds, self.warm_up);
        w.check()?;
        Ok(w)
    }
}

fn set<T: Copy>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

#[cfg(test)]
mod tests {
    use super::Overrides;
    use crate::workload::{Rate, Workload};

    #[test]
    fn a_changed_workload_says_so() {
        let base = Workload::named("bulk-produce").unwrap();
        let longer = Overrides {
            seconds: Some(30.0),
            ..Overrides::default()
        };
        assert_eq!(longer.apply(&base).unwrap().name, "bulk-produce");
        let open = Overrides {
            mb_per_second: Some(20.0),
            ..Overrides::default()
        };
        let open = open.apply(&base).unwrap();
        assert_eq!(open.name, "bulk-produce (changed)");
        assert_eq!(open.produce.unwrap().rate, Some(Rate::MbPerSecond(20.0)));
    }

    #[test]
    fn nonsense_is_refused_by_key() {
        let base = Workload::named("bulk-produce").unwrap();
        let none = Overrides {
            connections: Some(0),
            ..Overrides::default()
        };
        let error = none.apply(&base).unwrap_err().to_string();
        assert!(error.contains("produce.connections"), "{error}");
    }

    #[test]
    fn consumers_that_follow_producers_keep_one_request_in_flight() {
        let base = Workload::named("mixed").unwrap();
        let more = Overrides {
            in_flight: Some(8),
            ..Overrides::default()
        };
        let mixed = more.apply(&base).unwrap();
        assert_eq!(mixed.produce.unwrap().in_flight, 8);
        assert_eq!(mixed.consume.unwrap().in_flight, 1);
    }
}
