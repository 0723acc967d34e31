//! What the broker says of compaction: `log.cleaner.*`.

use crate::broker::BrokerConfig;

impl BrokerConfig {
    /// `log.cleaner.enable`.
    #[must_use]
    pub fn log_cleaner_enable(&self) -> bool {
        self.flag("log.cleaner.enable")
    }

    /// `log.cleaner.threads`, at least 1.
    #[must_use]
    pub fn log_cleaner_threads(&self) -> usize {
        self.natural("log.cleaner.threads")
    }

    /// `log.cleaner.backoff.ms`.
    #[must_use]
    pub fn log_cleaner_backoff_ms(&self) -> u64 {
        self.long("log.cleaner.backoff.ms").unsigned_abs()
    }

    /// `log.cleaner.dedupe.buffer.size`, of all cleaners together.
    #[must_use]
    pub fn log_cleaner_dedupe_buffer_size(&self) -> u64 {
        self.long("log.cleaner.dedupe.buffer.size").unsigned_abs()
    }

    /// `log.cleaner.io.buffer.load.factor`, 0 to 1.
    #[must_use]
    pub fn log_cleaner_io_buffer_load_factor(&self) -> f64 {
        self.double("log.cleaner.io.buffer.load.factor")
    }

    /// `log.cleaner.io.buffer.size`, of all cleaners together.
    #[must_use]
    pub fn log_cleaner_io_buffer_size(&self) -> usize {
        self.natural("log.cleaner.io.buffer.size")
    }

    /// `log.cleaner.io.max.bytes.per.second`, of all cleaners together.
    #[must_use]
    pub fn log_cleaner_io_max_bytes_per_second(&self) -> f64 {
        self.double("log.cleaner.io.max.bytes.per.second")
    }

    fn natural(&self, key: &'static str) -> usize {
        usize::try_from(self.long(key)).unwrap_or(usize::MAX)
    }
}
