//! The frame decoder (BI-2, BI-5, BI-17).

use thalweg_net::{FrameBuffer, FrameError};
use thalweg_types::limits::READ_AHEAD_BYTES_MAX;

/// Small, so that frames above it are within a fuzzer's reach.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// The first byte says how long the pieces are in which the rest arrives. However a stream is cut,
/// the same frames and the same error come out, and memory follows what arrived.
pub fn frames(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let whole = cut(stream, stream.len().max(1));
    let pieces = cut(stream, usize::from(*piece) + 1);
    assert_eq!(whole, pieces, "the way a stream is cut must not matter");
}

type Outcome = (Vec<Vec<u8>>, Option<FrameError>);

fn cut(stream: &[u8], piece: usize) -> Outcome {
    let mut buffer = FrameBuffer::default();
    let mut frames = Vec::new();
    let mut awaited = None;
    for bytes in stream.chunks(piece) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let at_most = buffer.read_at_most(awaited).min(rest.len());
            buffer.make_room(at_most);
            buffer.buf.extend_from_slice(&rest[..at_most]);
            rest = &rest[at_most..];
            if let Err(error) = drain(&mut buffer, &mut awaited, &mut frames) {
                return (frames, Some(error));
            }
            let bound = 2 * stream.len() + 2 * READ_AHEAD_BYTES_MAX;
            assert!(buffer.buf.capacity() <= bound, "memory by a declared size");
        }
    }
    (frames, None)
}

fn drain(
    buffer: &mut FrameBuffer,
    awaited: &mut Option<u32>,
    frames: &mut Vec<Vec<u8>>,
) -> Result<(), FrameError> {
    loop {
        if awaited.is_none() {
            *awaited = buffer.take_prefix(FRAME_BYTES_MAX)?;
        }
        let Some(frame) = awaited.and_then(|size| buffer.take_frame(size)) else {
            return Ok(());
        };
        *awaited = None;
        frames.push(frame.to_vec());
    }
}
