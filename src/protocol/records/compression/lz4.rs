//! One LZ4 frame with independent blocks: the form that Kafka's own clients read and write.
//!
//! The frame is read here rather than by `lz4_flex`'s frame decoder, because that one takes a missing
//! end mark for a good end, allocates what the header names, and accepts linked blocks, which Java
//! clients can not read. The blocks themselves are the library's (safe) work.

use std::hash::Hasher;
use std::io::{self, BufRead, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::bad;

const MAGIC: u32 = 0x184d_2204;

const FLAG_VERSION_MASK: u8 = 0xc0;
const FLAG_VERSION_1: u8 = 0x40;
const FLAG_INDEPENDENT: u8 = 0x20;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAG_RESERVED_OR_DICTIONARY: u8 = 0x03;

/// Set in a block's length when the block is stored as it is.
const STORED_BIT: u32 = 0x8000_0000;

/// An lz4 block gives at most 255 bytes for one of input; used to bound memory by bytes received.
const RATIO_MAX: usize = 256;

/// Yields the output block by block.
pub(super) struct Reader<'a> {
    /// What is not read yet; behind the header from the start.
    rest: &'a [u8],
    frame: Frame,
    content_hash: XxHash32,
    content_bytes: u64,
    block: Block<'a>,
    /// Bytes of `block` already consumed.
    used: usize,
    output: Vec<u8>,
}

struct Frame {
    block_bytes_max: usize,
    has_block_checksum: bool,
    has_content_checksum: bool,
    content_size: Option<u64>,
}

/// Where the current piece of output lies.
#[derive(Clone, Copy)]
enum Block<'a> {
    /// In the payload itself.
    Stored(&'a [u8]),
    /// In `output`.
    Decompressed,
    /// Behind the end mark.
    End,
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> io::Result<Self> {
        let (frame, rest) = read_frame_header(payload)?;
        Ok(Reader {
            rest,
            frame,
            content_hash: XxHash32::with_seed(0),
            content_bytes: 0,
            block: Block::Stored(&[]),
            used: 0,
            output: Vec::new(),
        })
    }

    fn piece(&self) -> &[u8] {
        match self.block {
            Block::Stored(bytes) => &bytes[self.used..],
            Block::Decompressed => &self.output[self.used..],
            Block::End => &[],
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        self.used = 0;
        let length = take_u32(&mut self.rest)?;
        if length == 0 {
            self.block = Block::End;
            return self.finish();
        }
        let bytes = (length & !STORED_BIT) as usize;
        if bytes > self.frame.block_bytes_max {
            return Err(bad("a block is larger than the frame allows"));
        }
        let Some((data, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(bad("the frame ends inside a block"));
        };
        self.rest = rest;
        if self.frame.has_block_checksum && take_u32(&mut self.rest)? != hash(data) {
            return Err(bad("a block checksum does not match"));
        }
        if length & STORED_BIT != 0 {
            self.block = Block::Stored(data);
        } else {
            let room = self
                .frame
                .block_bytes_max
                .min(data.len().saturating_mul(RATIO_MAX));
            self.output.resize(room, 0);
            let written =
                lz4_flex::block::decompress_into(data, &mut self.output).map_err(invalid)?;
            self.output.truncate(written);
            self.block = Block::Decompressed;
        }
        let bytes = self.piece().len() as u64;
        self.content_bytes += bytes;
        if self.frame.has_content_checksum {
            match self.block {
                Block::Stored(data) => self.content_hash.write(data),
                Block::Decompressed => self.content_hash.write(&self.output),
                Block::End => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.frame.has_content_checksum
            && u64::from(take_u32(&mut self.rest)?) != self.content_hash.finish()
        {
            return Err(bad("the content checksum does not match"));
        }
        if self
            .frame
            .content_size
            .is_some_and(|size| size != self.content_bytes)
        {
            return Err(bad("the content size does not match"));
        }
        // Java's reader stops at the first end mark; what follows would be read by some clients only.
        if !self.rest.is_empty() {
            return Err(bad("bytes follow the end of the frame"));
        }
        Ok(())
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece().is_empty() && !matches!(self.block, Block::End) {
            self.advance()?;
        }
        Ok(self.piece())
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes.min(self.piece().len());
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

fn read_frame_header(payload: &[u8]) -> io::Result<(Frame, &[u8])> {
    let mut rest = payload;
    if take_u32(&mut rest)? != MAGIC {
        return Err(bad("not an lz4 frame"));
    }
    let descriptor = rest;
    let [flags, block, tail @ ..] = rest else {
        return Err(bad("the frame header is cut"));
    };
    rest = tail;
    if flags & FLAG_VERSION_MASK != FLAG_VERSION_1 || flags & FLAG_RESERVED_OR_DICTIONARY != 0 {
        return Err(bad("the frame has a version or flag that is not supported"));
    }
    if flags & FLAG_INDEPENDENT == 0 {
        return Err(bad("the blocks of the frame depend on each other"));
    }
    let block_bytes_max = match block {
        0x40 => 64 * 1024,
        0x50 => 256 * 1024,
        0x60 => 1024 * 1024,
        0x70 => 4 * 1024 * 1024,
        _ => return Err(bad("the block size of the frame is not known")),
    };
    let content_size = if flags & FLAG_CONTENT_SIZE == 0 {
        None
    } else {
        let (size, tail) = rest
            .split_first_chunk::<8>()
            .ok_or_else(|| bad("the frame header is cut"))?;
        rest = tail;
        Some(u64::from_le_bytes(*size))
    };
    let described = &descriptor[..descriptor.len() - rest.len()];
    let [checksum, tail @ ..] = rest else {
        return Err(bad("the frame header is cut"));
    };
    if *checksum != (hash(described) >> 8) as u8 {
        return Err(bad("the header checksum does not match"));
    }
    let frame = Frame {
        block_bytes_max,
        has_block_checksum: flags & FLAG_BLOCK_CHECKSUM != 0,
        has_content_checksum: flags & FLAG_CONTENT_CHECKSUM != 0,
        content_size,
    };
    Ok((frame, tail))
}

fn take_u32(rest: &mut &[u8]) -> io::Result<u32> {
    let (bytes, tail) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| bad("the frame has no end mark"))?;
    *rest = tail;
    Ok(u32::from_le_bytes(*bytes))
}

fn hash(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

fn invalid(error: lz4_flex::block::DecompressError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

pub(super) fn write(payload: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(payload)?;
    encoder.finish().map(|_| ()).map_err(io::Error::from)
}
