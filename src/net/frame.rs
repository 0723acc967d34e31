//! Cutting a byte stream into request frames. Pure: bytes go in, frames come out.

use bytes::{Buf, BytesMut};
use thalweg_types::limits::{
    FRAME_COPY_BYTES_MAX, FRAME_STEP_BYTES_MIN, READ_AHEAD_BYTES_MAX, SMALL_FRAMES_READ_BYTES_MAX,
};

use crate::read_buffers::Memory;

/// Bytes of the size prefix.
pub const PREFIX_BYTES: usize = 4;

/// Why a byte stream is not a sequence of request frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The size prefix is negative or zero.
    #[error("a size prefix of {0} bytes")]
    NotPositive(i32),
    /// The size prefix is above `socket.request.max.bytes`.
    #[error("a size prefix of {size} bytes, socket.request.max.bytes is {max}")]
    TooLarge {
        /// Declared size in bytes.
        size: u32,
        /// The limit in bytes.
        max: u32,
    },
    /// The first bytes are another protocol's.
    #[error("{0}; this is a plaintext Kafka port")]
    Foreign(Foreign),
}

/// A protocol that shows itself in its first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// An HTTP request line.
    #[error("the client speaks HTTP")]
    Http,
    /// A TLS handshake record.
    #[error("the client speaks TLS (is its security.protocol SSL or SASL_SSL?)")]
    Tls,
    /// An SSH banner.
    #[error("the client speaks SSH")]
    Ssh,
}

/// The bytes of one connection that are not frames yet.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    /// Where the socket's bytes are put.
    pub buf: BytesMut,
    /// Whose memory that is.
    pub(crate) memory: Memory,
    /// Bytes of the frame before with its prefix; 0 before the first.
    last: usize,
}

impl FrameBuffer {
    /// True when no byte of an unfinished frame is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Takes a size prefix, when all four bytes are there.
    ///
    /// # Errors
    /// When the prefix can not start a request. The stream is of no more use then.
    pub fn take_prefix(&mut self, max: u32) -> Result<Option<u32>, FrameError> {
        let Some(prefix) = self.buf.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let size = i32::from_be_bytes(*prefix);
        let size = match u32::try_from(size) {
            Ok(size) if (1..=max).contains(&size) => size,
            outside => {
                return Err(match (self.last, foreign(prefix), outside) {
                    (0, Some(foreign), _) => FrameError::Foreign(foreign),
                    (_, _, Ok(size)) if size > 0 => FrameError::TooLarge { size, max },
                    (_, _, _) => FrameError::NotPositive(size),
                });
            }
        };
        self.last = PREFIX_BYTES + size as usize;
        self.buf.advance(PREFIX_BYTES);
        Ok(Some(size))
    }

    /// True when all of a frame of `size` bytes is there.
    #[must_use]
    pub fn is_whole(&self, size: u32) -> bool {
        self.buf.len() >= size as usize
    }

    /// Takes a frame of `size` bytes, when all of it is there.
    ///
    /// A small frame is copied out of memory that is the connection's own, so that it does not hold the
    /// whole of it for as long as its request waits; others keep the memory they were read into.
    pub fn take_frame(&mut self, size: u32) -> Option<BytesMut> {
        let size = size as usize;
        if self.buf.len() < size {
            return None;
        }
        if size <= FRAME_COPY_BYTES_MAX && self.memory == Memory::Own {
            let frame = BytesMut::from(&self.buf[..size]);
            self.buf.advance(size);
            Some(frame)
        } else if size == self.buf.len() {
            Some(std::mem::take(&mut self.buf))
        } else {
            Some(self.buf.split_to(size))
        }
    }

    /// Bytes that the next read may bring at most, with `frame` bytes of a frame awaited (`None`
    /// before its prefix).
    ///
    /// Before a frame this is the size of the one before, within bounds: a client that sends frames
    /// of one size gets each of them with one read into memory of its own. Small ones come by several.
    #[must_use]
    pub fn read_at_most(&self, frame: Option<u32>) -> usize {
        match frame {
            None => self
                .last
                .clamp(SMALL_FRAMES_READ_BYTES_MAX, READ_AHEAD_BYTES_MAX),
            Some(size) => {
                let missing = (size as usize).saturating_sub(self.buf.len());
                missing.min(self.buf.len().max(FRAME_STEP_BYTES_MIN)).max(1)
            }
        }
    }

    /// Moves the beginning of a frame out of memory that was taken for far more: what a connection holds
    /// while its client is slow is about what has arrived.
    pub fn fit(&mut self) {
        let enough = 2 * self.buf.len() + FRAME_STEP_BYTES_MIN;
        if self.memory == Memory::Own && self.buf.capacity() > enough {
            self.buf = BytesMut::from(&self.buf[..]);
        }
    }

    /// Makes room for a read of `at_most` bytes. The buffer never grows beyond twice of what has
    /// arrived plus one read, whatever size was declared (BI-2).
    pub fn make_room(&mut self, at_most: usize) {
        if self.buf.capacity() - self.buf.len() < at_most {
            // What is left of a chunk has no room: its bytes move.
            self.memory = Memory::Own;
            self.buf.reserve(at_most);
        }
    }
}

fn foreign(first: &[u8; PREFIX_BYTES]) -> Option<Foreign> {
    match first {
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"PRI "
        | b"TRAC" => Some(Foreign::Http),
        // Record type 22 (handshake), then the legacy version 3.x.
        [0x16, 0x03, _, _] => Some(Foreign::Tls),
        b"SSH-" => Some(Foreign::Ssh),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::{Foreign, FrameBuffer, FrameError};
    use thalweg_types::limits::{FRAME_COPY_BYTES_MAX, FRAME_STEP_BYTES_MIN};

    const MAX: u32 = 100 * 1024 * 1024;

    fn prefix_of(bytes: &[u8]) -> Result<Option<u32>, FrameError> {
        let mut frames = FrameBuffer::default();
        frames.buf.extend_from_slice(bytes);
        frames.take_prefix(MAX)
    }

    #[test]
    fn bi2_size_prefixes_outside_the_limits_are_refused() {
        assert_eq!(prefix_of(&[0, 0, 0, 0]), Err(FrameError::NotPositive(0)));
        assert_eq!(
            prefix_of(&(-1i32).to_be_bytes()),
            Err(FrameError::NotPositive(-1))
        );
        assert_eq!(
            prefix_of(&i32::MIN.to_be_bytes()),
            Err(FrameError::NotPositive(i32::MIN))
        );
        let over = MAX + 1;
        assert_eq!(
            prefix_of(&over.to_be_bytes()),
            Err(FrameError::TooLarge {
                size: over,
                max: MAX
            })
        );
        let largest = i32::MAX as u32;
        assert_eq!(
            prefix_of(&largest.to_be_bytes()),
            Err(FrameError::TooLarge {
                size: largest,
                max: MAX
            })
        );
        assert_eq!(prefix_of(&MAX.to_be_bytes()), Ok(Some(MAX)));
        assert_eq!(prefix_of(&[0, 0, 0]), Ok(None));
    }

    #[test]
    fn bi1_other_protocols_are_named() {
        for (bytes, kind) in [
            (&b"GET / HTTP/1.1"[..], Foreign::Http),
            (b"POST /", Foreign::Http),
            (b"PRI * HTTP/2.0", Foreign::Http),
            (&[0x16, 3, 1, 2, 0, 1], Foreign::Tls),
            (b"SSH-2.0-x", Foreign::Ssh),
        ] {
            assert_eq!(prefix_of(bytes), Err(FrameError::Foreign(kind)));
        }
    }

    #[test]
    fn bi1_a_later_frame_is_not_taken_for_another_protocol() {
        let mut frames = FrameBuffer::default();
        frames.buf.extend_from_slice(&[0, 0, 0, 1, 7]);
        frames.buf.extend_from_slice(b"GET ");
        assert_eq!(frames.take_prefix(MAX), Ok(Some(1)));
        assert_eq!(frames.take_frame(1).as_deref(), Some(&[7u8][..]));
        assert!(matches!(
            frames.take_prefix(MAX),
            Err(FrameError::TooLarge { .. })
        ));
    }

    #[test]
    fn bi2_memory_grows_with_what_arrived_not_with_what_was_declared() {
        let mut frames = FrameBuffer::default();
        frames.buf.extend_from_slice(&MAX.to_be_bytes());
        let size = frames
            .take_prefix(MAX)
            .expect("a good prefix")
            .expect("four bytes");
        let mut arrived = 0;
        while arrived < 8 * 1024 * 1024 {
            let at_most = frames.read_at_most(Some(size));
            frames.make_room(at_most);
            let allowed = 2 * arrived + at_most + FRAME_STEP_BYTES_MIN;
            assert!(
                frames.buf.capacity() <= allowed,
                "{} at {arrived}",
                frames.buf.capacity()
            );
            frames.buf.resize(arrived + at_most, 0);
            arrived += at_most;
        }
    }

    #[test]
    fn bi2_a_slow_frame_does_not_hold_the_room_of_the_one_before() {
        let mut frames = FrameBuffer {
            buf: BytesMut::with_capacity(200_000),
            ..FrameBuffer::default()
        };
        frames.buf.extend_from_slice(&[0, 0, 250, 0, 1, 2, 3]);
        frames.fit();
        assert_eq!(frames.take_prefix(MAX), Ok(Some(64_000)));
        assert_eq!(&frames.buf[..], &[1, 2, 3]);
        assert!(frames.buf.capacity() < 100);
        assert_eq!(frames.read_at_most(Some(64_000)), FRAME_STEP_BYTES_MIN);
    }

    #[test]
    fn frames_of_one_size_are_read_at_once_and_keep_their_memory() {
        let size = 70_000u32;
        let mut frames = FrameBuffer::default();
        for round in 0..5 {
            let at_most = frames.read_at_most(None);
            frames.make_room(at_most);
            if round > 0 {
                assert_eq!(at_most, size as usize + 4);
            }
            frames.buf.extend_from_slice(&size.to_be_bytes());
            frames.buf.resize(4 + size as usize, 7);
            let at = frames.buf.as_ptr() as usize;
            assert_eq!(frames.take_prefix(MAX), Ok(Some(size)));
            let frame = frames.take_frame(size).expect("all of it");
            assert_eq!(
                (frame.len(), frame.as_ptr() as usize),
                (size as usize, at + 4)
            );
        }
    }

    #[test]
    fn bi5_a_stream_cut_at_every_byte_gives_the_same_frames() {
        let mut stream = Vec::new();
        let big = vec![9u8; FRAME_COPY_BYTES_MAX + 1];
        let frames: [&[u8]; 4] = [b"a", b"bcd", &big, b"e"];
        for frame in frames {
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(frame);
        }
        let near_edges = (0..40).chain(stream.len() - 40..=stream.len());
        for cut in near_edges {
            let mut buffer = FrameBuffer::default();
            let mut got = Vec::new();
            let mut awaited = None;
            for piece in [&stream[..cut], &stream[cut..]] {
                buffer.buf.extend_from_slice(piece);
                loop {
                    if awaited.is_none() {
                        awaited = buffer.take_prefix(MAX).expect("a good prefix");
                    }
                    let Some(frame) = awaited.and_then(|size| buffer.take_frame(size)) else {
                        break;
                    };
                    awaited = None;
                    got.push(frame);
                }
            }
            assert!(got.iter().map(|f| &f[..]).eq(frames), "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }
}
