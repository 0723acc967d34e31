//! The threads that compact logs, shared by the shards.

use std::io;
use std::thread::JoinHandle;

use anyhow::Context;
use thalweg_config::BrokerConfig;
use thalweg_storage::{Budget, Cleaner};

use super::fatal;

/// The cleaners of the process.
pub(super) struct Cleaners {
    running: Vec<(Cleaner, JoinHandle<io::Result<()>>)>,
}

impl Cleaners {
    /// Starts as many as are configured, at most one per shard; none when compaction is switched off.
    ///
    /// # Errors
    /// A thread can not be started.
    pub(super) fn start(config: &BrokerConfig, shards: usize) -> anyhow::Result<Cleaners> {
        let count = match config.log_cleaner_enable() {
            true => config.log_cleaner_threads().min(shards),
            false => 0,
        };
        let budget = budget_of_one(config, count.max(1));
        let running = (0..count)
            .map(|i| {
                Cleaner::start(&format!("cleaner-{i}"), budget)
                    .with_context(|| format!("starting the thread of cleaner {i}"))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Cleaners { running })
    }

    /// The cleaner of a shard.
    pub(super) fn of_shard(&self, shard: usize) -> Option<Cleaner> {
        let count = self.running.len();
        let (cleaner, _) = self.running.get(shard.checked_rem(count)?)?;
        Some(cleaner.clone())
    }

    /// Rounds that are under way end soon.
    pub(super) fn begin_stop(&self) {
        self.running.iter().for_each(|(cleaner, _)| cleaner.stop());
    }

    /// Waits for the threads. The shards must be gone.
    pub(super) fn join(&mut self) {
        for (cleaner, thread) in self.running.drain(..) {
            drop(cleaner);
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a cleaner had no runtime"),
                Err(_) => fatal("a cleaner's thread ended by a panic"),
            }
        }
    }
}

/// What is configured for all, divided.
fn budget_of_one(config: &BrokerConfig, count: usize) -> Budget {
    const IO_BYTES_MIN: usize = 16 * 1024;
    Budget {
        map_bytes: config.log_cleaner_dedupe_buffer_size() / count as u64,
        map_load: config.log_cleaner_io_buffer_load_factor(),
        // One half for reading, one for writing.
        io_bytes: (config.log_cleaner_io_buffer_size() / count / 2).max(IO_BYTES_MIN),
        bytes_per_second: config.log_cleaner_io_max_bytes_per_second() / count as f64,
    }
}
