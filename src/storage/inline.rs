//! Whether small appends are written on the shard's own thread.
//!
//! A buffered write of a few KiB costs less than its hand-over to a ring worker and back, but it
//! waits when the kernel throttles writers. So small writes go inline until one takes too long; then
//! all go through the ring for a while, as large ones always do.

use std::cell::Cell;
use std::time::{Duration, Instant};

use thalweg_types::limits::INLINE_APPEND_BYTES_MAX;

/// An inline write that takes longer is a stall: other connections of the core have waited for it.
const STALL: Duration = Duration::from_millis(1);

/// How long writes go through the ring after a stall.
const HOLD_OFF: Duration = Duration::from_secs(1);

/// The choice of one shard; its logs share it, since they share its thread and mostly its disk.
#[derive(Debug, Default)]
pub struct InlineAppends {
    held_off_until: Cell<Option<Instant>>,
    stalls: Cell<u64>,
}

impl InlineAppends {
    /// True when a write of `bytes` may be made on this thread.
    #[must_use]
    pub fn allows(&self, bytes: u64, now: Instant) -> bool {
        bytes <= INLINE_APPEND_BYTES_MAX
            && self.held_off_until.get().is_none_or(|until| now >= until)
    }

    /// An inline write began at `began` and has ended.
    pub fn note(&self, began: Instant, now: Instant) {
        if now.saturating_duration_since(began) > STALL {
            self.held_off_until.set(Some(now + HOLD_OFF));
            self.stalls.set(self.stalls.get() + 1);
        }
    }

    /// Stalls since the start.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.stalls.get()
    }
}

#[cfg(test)]
mod tests {
    use super::{HOLD_OFF, InlineAppends, STALL};
    use std::time::{Duration, Instant};
    use thalweg_types::limits::INLINE_APPEND_BYTES_MAX;

    #[test]
    fn small_writes_are_inline_until_one_stalls() {
        let inline = InlineAppends::default();
        let now = Instant::now();
        assert!(inline.allows(INLINE_APPEND_BYTES_MAX, now));
        assert!(!inline.allows(INLINE_APPEND_BYTES_MAX + 1, now));
        inline.note(now, now + STALL);
        assert!(inline.allows(1, now + STALL));
        let stalled = now + STALL + Duration::from_nanos(1);
        inline.note(now, stalled);
        assert_eq!(inline.stalls(), 1);
        assert!(!inline.allows(1, stalled + HOLD_OFF - Duration::from_nanos(1)));
        assert!(inline.allows(1, stalled + HOLD_OFF));
    }
}
