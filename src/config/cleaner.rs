//! What the broker says of work in the background: `log.cleaner.*` and `thalweg.log.scrub.*`.

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

    /// `thalweg.log.scrub.interval.ms`; `None` when nothing is to be checked by itself.
    #[must_use]
    pub fn log_scrub_interval_ms(&self) -> Option<u64> {
        let interval = u64::try_from(self.long("thalweg.log.scrub.interval.ms"));
        interval.ok().filter(|interval| *interval > 0)
    }

    /// `thalweg.log.scrub.max.bytes.per.second`, of all logs together.
    #[must_use]
    pub fn log_scrub_max_bytes_per_second(&self) -> u64 {
        self.long("thalweg.log.scrub.max.bytes.per.second")
            .unsigned_abs()
    }

    fn natural(&self, key: &'static str) -> usize {
        usize::try_from(self.long(key)).unwrap_or(usize::MAX)
    }
}
