//! Which partitions are busy now: bytes per partition, for as many as there is room for.
//!
//! No series of a scrape: it would have as many labels as there are partitions. Whoever looks turns the window, and
//! reads what went through since the look before.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use thalweg_types::limits::BUSY_PARTITIONS_PER_CORE;
use thalweg_types::{IdMap, TopicPartition};

/// A window is at least so long: who looks more often sees the same again.
const WINDOW_MIN: Duration = Duration::from_millis(500);

/// Bytes of one partition that went through a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Record bytes of producers, counted by the partition's owner.
    pub bytes_in: u64,
    /// Record bytes for consumers, counted by the core of their connection.
    pub bytes_out: u64,
}

impl Traffic {
    /// Both directions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bytes_in + self.bytes_out
    }

    /// Adds the bytes of `other`.
    pub fn add(&mut self, other: Traffic) {
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// The traffic of at most [`BUSY_PARTITIONS_PER_CORE`] partitions; in a window that has more of them, those that come
/// first are told.
#[derive(Clone, Debug, Default)]
pub struct PartitionTraffic {
    current: IdMap<TopicPartition, Traffic>,
    began: Option<Instant>,
    /// Of the window before.
    last: Vec<(TopicPartition, Traffic)>,
    /// Its length.
    lasted: Duration,
}

impl PartitionTraffic {
    /// Counts bytes of producers.
    pub fn count_in(&mut self, id: TopicPartition, bytes_in: u64) {
        let bytes_out = 0;
        self.count(
            id,
            Traffic {
                bytes_in,
                bytes_out,
            },
        );
    }

    /// Counts bytes for consumers.
    pub fn count_out(&mut self, id: TopicPartition, bytes_out: u64) {
        let bytes_in = 0;
        self.count(
            id,
            Traffic {
                bytes_in,
                bytes_out,
            },
        );
    }

    fn count(&mut self, id: TopicPartition, bytes: Traffic) {
        if let Some(traffic) = self.current.get_mut(&id) {
            traffic.add(bytes);
        } else if self.current.len() < BUSY_PARTITIONS_PER_CORE {
            self.current.insert(id, bytes);
        }
    }

    /// Somebody looks: the window ends `now`, unless it has hardly begun.
    pub fn turn(&mut self, now: Instant) {
        let Some(began) = self.began else {
            // Since when it was counted before is not known.
            self.current.clear();
            self.began = Some(now);
            return;
        };
        let lasted = now.saturating_duration_since(began);
        if lasted >= WINDOW_MIN {
            self.began = Some(now);
            self.lasted = lasted;
            self.last = self.current.drain().collect();
        }
    }

    /// What went through in the last whole window.
    #[must_use]
    pub fn last(&self) -> &[(TopicPartition, Traffic)] {
        &self.last
    }

    /// How long that window was; zero when none is whole.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        self.lasted
    }

    /// The `count` busiest partitions of several cores with their bytes per second, busiest first.
    pub fn busiest<'a>(
        cores: impl Iterator<Item = &'a PartitionTraffic>,
        count: usize,
    ) -> Vec<(TopicPartition, Traffic)> {
        let mut rates: HashMap<TopicPartition, Traffic> = HashMap::new();
        for core in cores {
            let millis = u64::try_from(core.lasted.as_millis()).unwrap_or(u64::MAX);
            let rate = |bytes: u64| bytes.saturating_mul(1_000) / millis.max(1);
            for (id, traffic) in &core.last {
                rates.entry(*id).or_default().add(Traffic {
                    bytes_in: rate(traffic.bytes_in),
                    bytes_out: rate(traffic.bytes_out),
                });
            }
        }
        let mut rates: Vec<_> = rates.into_iter().collect();
        rates.sort_unstable_by_key(|(id, rate)| (Reverse(rate.total()), *id));
        rates.truncate(count);
        rates
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use thalweg_types::limits::BUSY_PARTITIONS_PER_CORE;
    use thalweg_types::{PartitionIndex, TopicPartition, Uuid};

    use super::{PartitionTraffic, Traffic};

    fn id(n: usize) -> TopicPartition {
        TopicPartition {
            topic: Uuid([1; 16]),
            partition: PartitionIndex(i32::try_from(n).expect("small")),
        }
    }

    fn bytes(bytes_in: u64, bytes_out: u64) -> Traffic {
        Traffic {
            bytes_in,
            bytes_out,
        }
    }

    #[test]
    fn rates_are_those_of_the_last_whole_window_over_all_cores() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut cores = [PartitionTraffic::default(), PartitionTraffic::default()];
        for core in &mut cores {
            core.turn(start);
            core.count_in(id(1), 1_000);
            core.count_out(id(2), 500);
        }
        cores[1].count_in(id(3), 10_000);
        assert!(PartitionTraffic::busiest(cores.iter(), 9).is_empty());
        cores[0].turn(after(2_000));
        cores[1].turn(after(1_000));
        // Who looks again at once sees the same.
        cores[1].count_in(id(4), 1);
        cores[1].turn(after(1_100));
        let busiest = PartitionTraffic::busiest(cores.iter(), 2);
        assert_eq!(
            busiest,
            [(id(3), bytes(10_000, 0)), (id(1), bytes(1_500, 0))]
        );
        let all = PartitionTraffic::busiest(cores.iter(), 9);
        assert_eq!(all[2], (id(2), bytes(0, 750)));
        cores.iter_mut().for_each(|core| core.turn(after(9_000)));
        assert_eq!(
            PartitionTraffic::busiest(cores.iter(), 9),
            [(id(4), bytes(0, 0))]
        );
    }

    #[test]
    fn bi10_partitions_beyond_the_bound_take_no_memory() {
        let mut core = PartitionTraffic::default();
        for n in 0..2 * BUSY_PARTITIONS_PER_CORE {
            core.count_in(id(n), 1);
            core.count_in(id(n), 1);
        }
        assert_eq!(core.current.len(), BUSY_PARTITIONS_PER_CORE);
        assert_eq!(core.current[&id(0)], bytes(2, 0));
    }
}
