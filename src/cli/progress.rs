//! A line of progress on stderr, when that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// Counts records and bytes and shows them now and then.
pub(crate) struct Progress {
    started: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
    records: u64,
    bytes: u64,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            started: Instant::now(),
            shown: None,
            is_terminal: io::stderr().is_terminal(),
            records: 0,
            bytes: 0,
        }
    }

    /// Counts; cheap when nothing is to be shown.
    pub(crate) fn add(&mut self, records: u64, bytes: u64) {
        self.records += records;
        self.bytes += bytes;
    }

    /// Shows the counts if that is due.
    pub(crate) fn show(&mut self) {
        let last = self.shown.unwrap_or(self.started);
        if self.is_terminal && last.elapsed() >= EVERY {
            self.shown = Some(Instant::now());
            // Nobody is told when stderr is gone.
            let _ = write!(io::stderr(), "\r{}\x1b[K", self.text());
        }
    }

    /// Shows the final counts.
    pub(crate) fn finish(&mut self) {
        if self.is_terminal {
            let _ = writeln!(io::stderr(), "\r{}\x1b[K", self.text());
        }
    }

    fn text(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-6);
        let mb = self.bytes as f64 / 1e6;
        let rate = self.records as f64 / seconds;
        format!(
            "{} records, {mb:.1} MB, {rate:.0} records/s, {:.1} MB/s",
            self.records,
            mb / seconds
        )
    }
}
