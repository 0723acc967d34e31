//! One log line per cause and interval, so that a flood of what it tells of does not become a flood of
//! log lines.

use std::cell::Cell;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one line through per interval and counts the rest.
#[derive(Debug, Default)]
pub struct LogGate {
    last: Cell<Option<Instant>>,
    suppressed: Cell<u64>,
}

impl LogGate {
    /// `Some(n)` when a line may be written now; `n` like it were left out since the last one.
    #[must_use]
    pub fn admit(&self, now: Instant) -> Option<u64> {
        if self.last.get().is_some_and(|last| now < last + INTERVAL) {
            self.suppressed.set(self.suppressed.get() + 1);
            return None;
        }
        self.last.set(Some(now));
        Some(self.suppressed.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::LogGate;

    #[test]
    fn bi1_one_line_per_interval() {
        let gate = LogGate::default();
        let start = Instant::now();
        assert_eq!(gate.admit(start), Some(0));
        for ms in 0..500 {
            assert_eq!(gate.admit(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(gate.admit(start + Duration::from_secs(10)), Some(500));
    }
}
