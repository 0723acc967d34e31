//! Snappy in the two forms that Kafka clients send.
//!
//! Java's stream (also called xerial): `82 "SNAPPY" 00`, version and lowest compatible version (each
//! i32, 1), then chunks of an i32 length and a raw snappy block. Everything else is one raw block.

use std::io::{self, BufRead, Read};

use super::bad;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
const VERSION: i32 = 1;

/// Input bytes of one chunk that we write; Java's default.
const CHUNK_BYTES: usize = 32 * 1024;

/// No copy element of snappy gives more than 64 bytes for one byte of input, so a block that claims
/// more than this multiple of its size is a lie and gets no memory.
const RATIO_MAX: usize = 64;

/// Yields the output chunk by chunk.
pub(super) struct Reader<'a> {
    /// What is not decompressed yet.
    rest: &'a [u8],
    form: Form,
    output: Vec<u8>,
    /// Bytes of `output` already consumed.
    used: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The stream's header has not been looked for.
    Unknown,
    /// Chunks follow.
    Chunked,
    /// The one raw block has been read.
    Done,
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Reader {
            rest: payload,
            form: Form::Unknown,
            output: Vec::new(),
            used: 0,
        }
    }

    /// Decompresses the next non-empty block; leaves `output` empty at the end.
    fn advance(&mut self) -> io::Result<()> {
        self.output.clear();
        self.used = 0;
        while self.output.is_empty() {
            match self.form {
                Form::Unknown if self.rest.starts_with(&MAGIC) => {
                    self.take_header()?;
                    self.form = Form::Chunked;
                }
                Form::Unknown => {
                    self.form = Form::Done;
                    let block = std::mem::take(&mut self.rest);
                    return self.decompress(block);
                }
                Form::Chunked if self.rest.is_empty() => return Ok(()),
                // A producer may have joined two streams: a header may stand where a chunk is due.
                Form::Chunked if self.rest.starts_with(&MAGIC) => self.take_header()?,
                Form::Chunked => {
                    let block = self.take_chunk()?;
                    self.decompress(block)?;
                }
                Form::Done => return Ok(()),
            }
        }
        Ok(())
    }

    fn take_header(&mut self) -> io::Result<()> {
        let (header, rest) = self
            .rest
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| bad("the stream header is cut"))?;
        let [.., v0, v1, v2, v3, _, _, _, _] = *header;
        if i32::from_be_bytes([v0, v1, v2, v3]) < VERSION {
            return Err(bad("the stream version is not known"));
        }
        self.rest = rest;
        Ok(())
    }

    fn take_chunk(&mut self) -> io::Result<&'a [u8]> {
        let (length, rest) = self
            .rest
            .split_first_chunk::<4>()
            .ok_or_else(|| bad("a chunk length is cut"))?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| bad("a chunk length is negative"))?;
        let chunk = rest
            .get(..length)
            .ok_or_else(|| bad("a chunk reaches beyond the batch"))?;
        self.rest = &rest[length..];
        Ok(chunk)
    }

    fn decompress(&mut self, block: &[u8]) -> io::Result<()> {
        let claimed = snap::raw::decompress_len(block)?;
        if claimed > block.len().saturating_mul(RATIO_MAX) {
            return Err(bad("a block claims an impossible size"));
        }
        self.output.resize(claimed, 0);
        let written = snap::raw::Decoder::new().decompress(block, &mut self.output)?;
        self.output.truncate(written);
        Ok(())
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.output.len() {
            self.advance()?;
        }
        Ok(&self.output[self.used..])
    }

    fn consume(&mut self, bytes: usize) {
        self.used = self.output.len().min(self.used + bytes);
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

pub(super) fn write(payload: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(payload.len().min(CHUNK_BYTES))];
    for chunk in payload.chunks(CHUNK_BYTES) {
        let bytes = encoder.compress(chunk, &mut block)?;
        let length = i32::try_from(bytes).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&block[..bytes]);
    }
    Ok(())
}
