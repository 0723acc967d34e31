//! How much is appended and not yet written, over all logs of one shard.

use std::cell::Cell;

use thalweg_types::limits::APPEND_QUEUED_BYTES_MAX;

/// A count of bytes; the logs of one shard share it, since they share its memory.
#[derive(Debug, Default)]
pub struct QueuedBytes {
    bytes: Cell<usize>,
}

impl QueuedBytes {
    /// Bytes that wait for their write or are being written.
    #[must_use]
    pub fn get(&self) -> usize {
        self.bytes.get()
    }

    /// True while a batch of `bytes` may be appended.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes.get().saturating_add(bytes) <= APPEND_QUEUED_BYTES_MAX
    }

    /// Some more wait.
    pub fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Some were written, or never will be.
    ///
    /// # Panics
    /// When more go than came.
    pub fn remove(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::QueuedBytes;
    use thalweg_types::limits::APPEND_QUEUED_BYTES_MAX;

    #[test]
    fn full_is_full_until_something_is_written() {
        let queued = QueuedBytes::default();
        assert!(queued.has_room(APPEND_QUEUED_BYTES_MAX));
        queued.add(APPEND_QUEUED_BYTES_MAX);
        assert!(!queued.has_room(1));
        queued.remove(1);
        assert!(queued.has_room(1));
        assert!(!queued.has_room(2));
    }
}
