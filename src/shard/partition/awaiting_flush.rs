//! When writes ended whose acknowledgements wait for a flush: how much of a wait is the flush's.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thalweg_types::Offset;
use thalweg_types::limits::UNFLUSHED_WRITES_TIMED_MAX;

/// Ends of writes, oldest first. Empty where acknowledgements wait for no flush.
#[derive(Debug, Default)]
pub(super) struct AwaitingFlush {
    writes: VecDeque<(Offset, Instant)>,
}

impl AwaitingFlush {
    /// Everything below `end` is written since `at`, and not acknowledged.
    pub(super) fn note(&mut self, end: Offset, at: Instant) {
        let is_full = self.writes.len() >= UNFLUSHED_WRITES_TIMED_MAX;
        match self.writes.back_mut() {
            // With the time of the write before: its flush has been waited for at least as long.
            Some((last, _)) if is_full => *last = end,
            Some(_) | None => self.writes.push_back((end, at)),
        }
    }

    /// How long the batch before `end`, which is durable since `now`, had waited for that.
    pub(super) fn waited(&self, end: Offset, now: Instant) -> Duration {
        let at = self.writes.partition_point(|(written, _)| *written < end);
        let write = self.writes.get(at);
        write.map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }

    /// Everything below `end` is acknowledged.
    pub(super) fn forget_below(&mut self, end: Offset) {
        while self
            .writes
            .front()
            .is_some_and(|(written, _)| *written <= end)
        {
            self.writes.pop_front();
        }
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use thalweg_types::Offset;
    use thalweg_types::limits::UNFLUSHED_WRITES_TIMED_MAX;

    use super::AwaitingFlush;

    #[test]
    fn each_batch_waits_since_the_write_that_held_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut waiting = AwaitingFlush::default();
        assert_eq!(waiting.waited(Offset(5), at(9)), Duration::ZERO);
        waiting.note(Offset(10), at(1));
        waiting.note(Offset(30), at(4));
        let waited = |waiting: &AwaitingFlush, end| waiting.waited(Offset(end), at(9)).as_millis();
        assert_eq!(
            [5, 10, 11, 30].map(|end| waited(&waiting, end)),
            [8, 8, 5, 5]
        );
        waiting.forget_below(Offset(10));
        assert_eq!(waited(&waiting, 30), 5);
        waiting.forget_below(Offset(30));
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_flush_that_never_ends_takes_no_memory() {
        let start = Instant::now();
        let mut waiting = AwaitingFlush::default();
        let writes = 2 * UNFLUSHED_WRITES_TIMED_MAX as i64;
        for n in 1..=writes {
            waiting.note(Offset(n), start);
        }
        assert_eq!(waiting.writes.len(), UNFLUSHED_WRITES_TIMED_MAX);
        let later = start + Duration::from_secs(1);
        assert_eq!(waiting.waited(Offset(writes), later).as_secs(), 1);
    }
}
