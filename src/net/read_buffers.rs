//! Memory to read the beginnings of frames into, shared by the connections of one shard.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;
use thalweg_types::limits::{READ_CHUNK_BYTES, READ_CHUNKS_MAX, SMALL_FRAMES_READ_BYTES_MAX};

/// Chunks that reads fill one after the other, whichever connection reads.
///
/// A connection takes the chunk when its socket has bytes, keeps the part that it filled and gives the
/// rest back at once. So one that waits holds nothing (BI-30), and a small request costs neither an
/// allocation nor a copy: its frame is a part of the chunk, which is filled anew when the last of
/// its frames is gone.
///
/// One frame that stays for long holds a whole chunk. When [`READ_CHUNKS_MAX`] are held, reads go to
/// memory of their own, out of which small frames are copied.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers(RefCell<Chunks>);

#[derive(Debug, Default)]
struct Chunks {
    /// The one that is being filled.
    filling: Option<BytesMut>,
    /// Full ones, the oldest first, until their frames are gone.
    full: VecDeque<BytesMut>,
}

/// Whose memory was read into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Memory {
    /// A part of a chunk: frames may keep it.
    Shared,
    /// The connection's: a small frame that kept it would hold far more than its own size.
    #[default]
    Own,
}

impl ReadBuffers {
    /// An empty buffer with room for a read of `at_most` bytes.
    pub(crate) fn take(&self, at_most: usize) -> (BytesMut, Memory) {
        if at_most > SMALL_FRAMES_READ_BYTES_MAX {
            // A large frame keeps the memory it was read into, so it is its own from the beginning.
            return (BytesMut::with_capacity(at_most), Memory::Own);
        }
        match self.0.borrow_mut().take() {
            Some(chunk) => (chunk, Memory::Shared),
            None => (BytesMut::with_capacity(at_most), Memory::Own),
        }
    }

    /// Takes back what was not filled of a chunk.
    pub(crate) fn give_back(&self, rest: BytesMut) {
        let mut chunks = self.0.borrow_mut();
        match rest.capacity() >= SMALL_FRAMES_READ_BYTES_MAX {
            true => chunks.filling = Some(rest),
            false => chunks.full.push_back(rest),
        }
    }
}

impl Chunks {
    fn take(&mut self) -> Option<BytesMut> {
        if let Some(chunk) = self.filling.take() {
            return Some(chunk);
        }
        // The oldest is the likeliest to be free; where one of its frames stays, the next may be.
        for _ in 0..self.full.len() {
            let mut chunk = self.full.pop_front()?;
            if chunk.try_reclaim(READ_CHUNK_BYTES) {
                return Some(chunk);
            }
            self.full.push_back(chunk);
        }
        (self.full.len() < READ_CHUNKS_MAX).then(|| BytesMut::with_capacity(READ_CHUNK_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use thalweg_types::limits::{READ_CHUNK_BYTES, READ_CHUNKS_MAX, SMALL_FRAMES_READ_BYTES_MAX};

    use super::{Memory, ReadBuffers};

    fn fill(buffers: &ReadBuffers, bytes: usize) -> (BytesMut, Memory) {
        let (mut chunk, memory) = buffers.take(SMALL_FRAMES_READ_BYTES_MAX);
        assert!(chunk.is_empty() && chunk.capacity() >= SMALL_FRAMES_READ_BYTES_MAX);
        chunk.resize(bytes, 7);
        let filled = chunk.split();
        if memory == Memory::Shared {
            buffers.give_back(chunk);
        }
        (filled, memory)
    }

    #[test]
    fn bi30_a_chunk_is_filled_again_when_its_frames_are_gone() {
        let buffers = ReadBuffers::default();
        let first = fill(&buffers, 100).0;
        let at = first.as_ptr() as usize;
        let reads = 3 * READ_CHUNK_BYTES / SMALL_FRAMES_READ_BYTES_MAX;
        for _ in 0..reads {
            assert_eq!(
                fill(&buffers, SMALL_FRAMES_READ_BYTES_MAX).1,
                Memory::Shared
            );
        }
        assert_eq!(&first[..], [7; 100], "held by a frame");
        assert_eq!(
            buffers.0.borrow().full.len(),
            1,
            "the others were free again"
        );
        drop(first);
        let again = (0..2 * reads).any(|_| {
            let filled = fill(&buffers, SMALL_FRAMES_READ_BYTES_MAX).0;
            filled.as_ptr() as usize == at
        });
        assert!(again);
    }

    #[test]
    fn bi31_frames_that_stay_hold_a_bounded_number_of_chunks() {
        let buffers = ReadBuffers::default();
        let mut held = Vec::new();
        let memory = loop {
            let (filled, memory) = fill(&buffers, SMALL_FRAMES_READ_BYTES_MAX);
            held.push(filled);
            if memory == Memory::Own {
                break held.len() * SMALL_FRAMES_READ_BYTES_MAX;
            }
        };
        assert!(
            memory <= (READ_CHUNKS_MAX + 1) * READ_CHUNK_BYTES,
            "{memory}"
        );
        assert!(buffers.0.borrow().full.len() <= READ_CHUNKS_MAX);
        held.clear();
        assert_eq!(fill(&buffers, 1).1, Memory::Shared);
    }

    #[test]
    fn a_large_frame_gets_memory_of_its_own() {
        let (buffer, memory) = ReadBuffers::default().take(SMALL_FRAMES_READ_BYTES_MAX + 1);
        assert_eq!(memory, Memory::Own);
        assert!(buffer.capacity() > SMALL_FRAMES_READ_BYTES_MAX);
    }
}
