//! Memory to read the beginnings of frames into, shared by the connections of one shard.

use std::cell::RefCell;

use bytes::BytesMut;
use thalweg_types::limits::{READ_BUFFERS_SPARE_MAX, SMALL_FRAMES_READ_BYTES_MAX};

/// Buffers that no connection holds.
///
/// A connection takes one when its socket has bytes and gives it back when nothing of a frame is
/// left in it, so that one that waits holds none (BI-30), and small requests of thousands of
/// connections are read into the same few pages, which stay in the core's cache.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers(RefCell<Vec<BytesMut>>);

impl ReadBuffers {
    /// An empty buffer with room for a read of `at_most` bytes.
    pub(crate) fn take(&self, at_most: usize) -> BytesMut {
        if at_most > SMALL_FRAMES_READ_BYTES_MAX {
            // A large frame keeps the memory it was read into, so it is its own from the beginning.
            return BytesMut::with_capacity(at_most);
        }
        let spare = self.0.borrow_mut().pop();
        spare.unwrap_or_else(|| BytesMut::with_capacity(SMALL_FRAMES_READ_BYTES_MAX))
    }

    /// Takes an empty buffer back, unless frames still hold its memory or there are enough.
    pub(crate) fn give_back(&self, mut buffer: BytesMut) {
        let mut spare = self.0.borrow_mut();
        let whole = buffer.try_reclaim(SMALL_FRAMES_READ_BYTES_MAX);
        let usual = buffer.capacity() <= 2 * SMALL_FRAMES_READ_BYTES_MAX;
        if buffer.is_empty() && whole && usual && spare.len() < READ_BUFFERS_SPARE_MAX {
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BytesMut};
    use thalweg_types::limits::{READ_BUFFERS_SPARE_MAX, SMALL_FRAMES_READ_BYTES_MAX};

    use super::ReadBuffers;

    #[test]
    fn bi30_a_buffer_serves_one_connection_after_the_other() {
        let buffers = ReadBuffers::default();
        let mut first = buffers.take(10);
        let at = first.as_ptr();
        first.extend_from_slice(&[7; 100]);
        first.advance(100);
        buffers.give_back(first);
        let second = buffers.take(SMALL_FRAMES_READ_BYTES_MAX);
        assert_eq!(second.as_ptr(), at);
        assert!(second.is_empty() && second.capacity() >= SMALL_FRAMES_READ_BYTES_MAX);
    }

    #[test]
    fn bi30_what_is_held_or_unusual_is_not_kept() {
        let buffers = ReadBuffers::default();
        let mut shared = buffers.take(10);
        shared.extend_from_slice(&[7; 100]);
        let frame = shared.split_to(100);
        buffers.give_back(shared);
        buffers.give_back(BytesMut::new());
        buffers.give_back(BytesMut::with_capacity(1 << 20));
        assert_eq!(buffers.0.borrow().len(), 0);
        assert_eq!(&frame[..], [7; 100]);
        let lent: Vec<_> = (0..2 * READ_BUFFERS_SPARE_MAX)
            .map(|_| buffers.take(1))
            .collect();
        lent.into_iter()
            .for_each(|buffer| buffers.give_back(buffer));
        assert_eq!(buffers.0.borrow().len(), READ_BUFFERS_SPARE_MAX);
    }
}
