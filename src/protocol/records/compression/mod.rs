//! The four codecs of record batches, as bounded readers and as writers.
//!
//! Every reader takes the whole compressed payload as a slice (it already lies in a frame) and yields
//! the output piece by piece through [`BufRead`]; `Capped` stands in front of each and ends it when
//! the output passes a limit. What a reader allocates depends on bytes received or on fixed windows,
//! never on a length the payload claims:
//!
//! | codec | reads | own memory |
//! |---|---|---|
//! | gzip | RFC 1952, several members | 32 KiB window + 16 KiB |
//! | snappy | Java's chunked form, else one raw block | one chunk; at most 64 times its compressed size |
//! | lz4 | one frame, independent blocks, all checksums verified | one block; at most 256 times its compressed size |
//! | zstd | RFC 8878, several frames | the frame's window, capped at 2^27 as Kafka's clients do; pages of it become real only as output fills them |
//!
//! The writers produce what Java's producer does (chunked snappy, 64 KiB independent lz4 blocks), so
//! that every client reads it.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::io::{self, BufRead};

use thalweg_types::limits::{DECOMPRESSION_RATIO_MAX, DECOMPRESSION_UNRATED_BYTES};

/// How the records of a batch are compressed: bits 0 to 2 of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// Deflate in gzip members.
    Gzip,
    /// Snappy; since Kafka 0.8.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard (KIP-110).
    Zstd,
}

impl Codec {
    /// All of them, for tables and tests.
    pub const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    /// Bits 0 to 2 of a batch's attributes.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Kafka's name, as in `compression.type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The codec of a name as in `compression.type`, without Kafka's aliases.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

/// A compressed payload can not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The payload breaks the rules of its codec, or ends too early.
    #[error("bad {} data: {detail}", codec.name())]
    Corrupt {
        /// The codec of the batch.
        codec: Codec,
        /// What the decoder said.
        detail: String,
    },
    /// The output is larger than allowed.
    #[error("more than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit it passed, in bytes.
        limit: usize,
    },
}

/// A payload can not be compressed: the codec's library refused (an impossible level, for example).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} can not compress: {detail}", codec.name())]
pub struct CompressError {
    /// The codec.
    pub codec: Codec,
    /// What the encoder said.
    pub detail: String,
}

/// How hard to try (KIP-390).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// The codec's own default.
    #[default]
    Default,
    /// The codec's own scale. Snappy has none and ignores it; so does lz4, whose library has one level.
    Of(i32),
}

/// Largest output allowed for a payload: `bytes_max`, and beyond a free allowance no more than a
/// fixed multiple of the compressed size. Bombs are refused by the second rule long before the first.
#[must_use]
pub fn output_limit(compressed_bytes: usize, bytes_max: usize) -> usize {
    let by_ratio = compressed_bytes.saturating_mul(DECOMPRESSION_RATIO_MAX);
    bytes_max.min(by_ratio.max(DECOMPRESSION_UNRATED_BYTES))
}

/// Decompresses a whole payload, within [`output_limit`]. Memory grows with the output.
///
/// # Errors
/// [`DecompressError`]; [`Codec::None`] copies and is bound by the limit too.
pub fn decompress(
    codec: Codec,
    payload: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    let limit = output_limit(payload.len(), bytes_max);
    with_reader(codec, payload, limit, Collect)
}

/// Appends the compressed form of `payload` to `out`.
///
/// # Errors
/// [`CompressError`] for an impossible level.
pub fn compress(
    codec: Codec,
    level: Level,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressError> {
    let done = match codec {
        Codec::None => {
            out.extend_from_slice(payload);
            Ok(())
        }
        Codec::Gzip => gzip::write(payload, level, out),
        Codec::Snappy => snappy::write(payload, out),
        Codec::Lz4 => lz4::write(payload, out),
        Codec::Zstd => zstd::write(payload, level, out),
    };
    done.map_err(|error| CompressError {
        codec,
        detail: error.to_string(),
    })
}

/// Work to do over a decompressing reader, whichever codec it is: a closure generic over its reader.
pub(super) trait ReaderJob {
    type Output;
    fn run<R: BufRead>(self, reader: Capped<R>) -> Self::Output;
}

/// Opens the right reader over `payload` and does `job` with it. Output beyond `limit` bytes is an
/// error of the reader.
pub(super) fn with_reader<J, T>(
    codec: Codec,
    payload: &[u8],
    limit: usize,
    job: J,
) -> Result<T, DecompressError>
where
    J: ReaderJob<Output = Result<T, DecompressError>>,
{
    match codec {
        Codec::None => job.run(Capped::new(codec, payload, limit)),
        Codec::Gzip => job.run(Capped::new(codec, gzip::reader(payload), limit)),
        Codec::Snappy => job.run(Capped::new(codec, snappy::Reader::new(payload), limit)),
        Codec::Lz4 => match lz4::Reader::new(payload) {
            Ok(reader) => job.run(Capped::new(codec, reader, limit)),
            Err(error) => Err(corrupt(codec, &error)),
        },
        Codec::Zstd => {
            zstd::with_reader(payload, |reader| job.run(Capped::new(codec, reader, limit)))
                .unwrap_or_else(|error| Err(corrupt(codec, &error)))
        }
    }
}

/// A reader that ends with [`DecompressError::TooLarge`] once its output passes a limit.
pub(super) struct Capped<R> {
    codec: Codec,
    reader: R,
    /// Bytes consumed so far.
    taken: usize,
    limit: usize,
}

impl<R: BufRead> Capped<R> {
    fn new(codec: Codec, reader: R, limit: usize) -> Self {
        Capped {
            codec,
            reader,
            taken: 0,
            limit,
        }
    }

    /// The next piece of output, not yet consumed; empty at the end of the stream.
    pub(super) fn piece(&mut self) -> Result<&[u8], DecompressError> {
        let left = self.limit - self.taken;
        match self.reader.fill_buf() {
            Ok(piece) if piece.len() > left => Err(DecompressError::TooLarge { limit: self.limit }),
            Ok(piece) => Ok(piece),
            Err(error) => Err(corrupt(self.codec, &error)),
        }
    }

    /// Marks `bytes` of the last piece as used.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
        self.reader.consume(bytes);
    }

    /// Refuses to go on when `bytes` more would pass the limit, without decompressing them first.
    pub(super) fn expect(&self, bytes: usize) -> Result<(), DecompressError> {
        if bytes > self.limit - self.taken {
            return Err(DecompressError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    /// Bytes consumed so far.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }
}

fn corrupt(codec: Codec, error: &io::Error) -> DecompressError {
    DecompressError::Corrupt {
        codec,
        detail: error.to_string(),
    }
}

fn bad(detail: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

struct Collect;

impl ReaderJob for Collect {
    type Output = Result<Vec<u8>, DecompressError>;

    fn run<R: BufRead>(self, mut reader: Capped<R>) -> Self::Output {
        let mut out = Vec::new();
        loop {
            let piece = reader.piece()?;
            if piece.is_empty() {
                return Ok(out);
            }
            out.extend_from_slice(piece);
            let bytes = piece.len();
            reader.consume(bytes);
        }
    }
}
