//! The threads that compact logs, shared by the shards.

use thalweg_config::BrokerConfig;
use thalweg_storage::CleanerPool;

use super::fatal;

/// The cleaners of the process; none when compaction is switched off.
pub(super) struct Cleaners {
    pool: Option<CleanerPool>,
}

impl Cleaners {
    pub(super) fn new(config: &BrokerConfig) -> Cleaners {
        let is_on = config.log_cleaner_enable();
        Cleaners {
            pool: is_on.then(CleanerPool::default),
        }
    }

    /// For a shard.
    pub(super) fn pool(&self) -> Option<CleanerPool> {
        self.pool.clone()
    }

    /// Rounds that are under way end soon.
    pub(super) fn begin_stop(&self) {
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }

    /// Waits for the threads. The shards must be gone.
    pub(super) fn join(&mut self) {
        for ended in self.pool.iter().flat_map(CleanerPool::join) {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a cleaner had no runtime"),
                Err(_) => fatal("a cleaner's thread ended by a panic"),
            }
        }
    }
}
