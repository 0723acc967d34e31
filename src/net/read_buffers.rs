//! Memory to read the beginnings of frames into, shared by the connections of one shard.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;
use thalweg_types::limits::{
    LARGE_BUFFERS_KEPT_BYTES_MAX, READ_CHUNK_BYTES, READ_CHUNKS_MAX, SMALL_FRAMES_READ_BYTES_MAX,
};

/// Chunks that reads fill one after the other, whichever connection reads, and buffers for large frames.
///
/// A connection takes the chunk when its socket has bytes, keeps the part that it filled and gives the
/// rest back at once. So one that waits holds nothing (BI-30), and a small request costs neither an
/// allocation nor a copy: its frame is a part of the chunk, which is filled anew when the last of
/// its frames is gone.
///
/// One frame that stays for long holds a whole chunk. When [`READ_CHUNKS_MAX`] are held, reads go to
/// memory of their own, out of which small frames are copied.
///
/// A large frame has a buffer to itself, which is filled anew when the frame is gone: the allocator would
/// give such memory back to the system and fault it in again with each. What was not used between two
/// sweeps is freed.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers {
    chunks: RefCell<Chunks>,
    large: RefCell<LargeBuffers>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// The one that is being filled.
    filling: Option<BytesMut>,
    /// Full ones, the oldest first, until their frames are gone.
    full: VecDeque<BytesMut>,
}

#[derive(Debug, Default)]
struct LargeBuffers {
    /// The one that was used last at the end.
    kept: VecDeque<LargeBuffer>,
    kept_bytes: usize,
}

#[derive(Debug)]
struct LargeBuffer {
    /// An empty rest of the buffer, through which it is had again when nothing else holds it.
    handle: BytesMut,
    bytes: usize,
    used: bool,
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
            return (self.large.borrow_mut().take(at_most), Memory::Own);
        }
        match self.chunks.borrow_mut().take() {
            Some(chunk) => (chunk, Memory::Shared),
            None => (BytesMut::with_capacity(at_most), Memory::Own),
        }
    }

    /// Takes back what was not filled of a chunk.
    pub(crate) fn give_back(&self, rest: BytesMut) {
        let mut chunks = self.chunks.borrow_mut();
        match rest.capacity() >= SMALL_FRAMES_READ_BYTES_MAX {
            true => chunks.filling = Some(rest),
            false => chunks.full.push_back(rest),
        }
    }

    /// Frees the buffers for large frames that were not used since the last call.
    pub(crate) fn free_unused(&self) {
        self.large.borrow_mut().free_unused();
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

impl LargeBuffers {
    fn take(&mut self, at_most: usize) -> BytesMut {
        // The oldest is the likeliest to be free; a look at each of those in flight would cost more than
        // a newer one's place in the processor's cache saves.
        for _ in 0..self.kept.len() {
            let Some(mut kept) = self.kept.pop_front() else {
                break;
            };
            // Much larger than asked for: its frame would hold what it is not charged.
            let fits = (at_most..=2 * at_most).contains(&kept.bytes);
            let mut found = None;
            if fits && kept.handle.try_reclaim(at_most) {
                let handle = kept.handle.split_off(kept.handle.capacity());
                found = Some(std::mem::replace(&mut kept.handle, handle));
                kept.used = true;
            }
            self.kept.push_back(kept);
            if let Some(buffer) = found {
                return buffer;
            }
        }
        let mut buffer = BytesMut::with_capacity(at_most);
        let bytes = buffer.capacity();
        if self.kept_bytes + bytes <= LARGE_BUFFERS_KEPT_BYTES_MAX {
            self.kept_bytes += bytes;
            self.kept.push_back(LargeBuffer {
                handle: buffer.split_off(bytes),
                bytes,
                used: true,
            });
        }
        buffer
    }

    fn free_unused(&mut self) {
        self.kept.retain_mut(|kept| kept.used);
        self.kept_bytes = self.kept.iter().map(|kept| kept.bytes).sum();
        self.kept.iter_mut().for_each(|kept| kept.used = false);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use thalweg_types::limits::{
        LARGE_BUFFERS_KEPT_BYTES_MAX, READ_CHUNK_BYTES, READ_CHUNKS_MAX,
        SMALL_FRAMES_READ_BYTES_MAX,
    };

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
            buffers.chunks.borrow().full.len(),
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
        assert!(buffers.chunks.borrow().full.len() <= READ_CHUNKS_MAX);
        held.clear();
        assert_eq!(fill(&buffers, 1).1, Memory::Shared);
    }

    #[test]
    fn a_large_buffer_is_filled_again_when_its_frame_is_gone() {
        let buffers = ReadBuffers::default();
        let (mut first, _) = buffers.take(65_540);
        first.resize(65_540, 1);
        let at = first.as_ptr() as usize;
        let frame = first.split_to(65_000).freeze();
        let (second, _) = buffers.take(65_540);
        assert_ne!(second.as_ptr() as usize, at, "held by a frame and its rest");
        drop((first, second));
        assert_ne!(buffers.take(65_540).0.as_ptr() as usize, at);
        drop(frame);
        let (one, other) = (buffers.take(65_540).0, buffers.take(65_540).0);
        assert!(one.capacity() >= 65_540 && other.capacity() >= 65_540);
        assert!([&one, &other].iter().any(|b| b.as_ptr() as usize == at));
        assert_ne!(buffers.take(20_000).0.as_ptr() as usize, at, "too large");
    }

    #[test]
    fn bi31_large_buffers_that_are_kept_are_bounded_and_go_when_unused() {
        let buffers = ReadBuffers::default();
        let size = 256 * 1024;
        let many = 2 * LARGE_BUFFERS_KEPT_BYTES_MAX / size;
        let held: Vec<_> = (0..many).map(|_| buffers.take(size).0).collect();
        let kept = || {
            let large = buffers.large.borrow();
            assert_eq!(large.kept.len() * size, large.kept_bytes);
            large.kept_bytes
        };
        assert_eq!(kept(), LARGE_BUFFERS_KEPT_BYTES_MAX);
        drop(held);
        buffers.free_unused();
        assert_eq!(kept(), LARGE_BUFFERS_KEPT_BYTES_MAX, "all were used");
        drop(buffers.take(size));
        buffers.free_unused();
        assert_eq!(kept(), size);
        buffers.free_unused();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_large_frame_gets_memory_of_its_own() {
        let (buffer, memory) = ReadBuffers::default().take(SMALL_FRAMES_READ_BYTES_MAX + 1);
        assert_eq!(memory, Memory::Own);
        assert!(buffer.capacity() > SMALL_FRAMES_READ_BYTES_MAX);
    }
}
