//! Gzip, by miniz (all safe Rust).

use std::io::{self, BufReader, Write};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::Level;

/// Bytes decompressed at a time.
const STEP_BYTES: usize = 16 * 1024;

/// Lowest and highest level of zlib that makes sense here (KIP-390).
const LEVELS: std::ops::RangeInclusive<i32> = 1..=9;

pub(super) fn reader(payload: &[u8]) -> BufReader<MultiGzDecoder<&[u8]>> {
    BufReader::with_capacity(STEP_BYTES, MultiGzDecoder::new(payload))
}

pub(super) fn write(payload: &[u8], level: Level, out: &mut Vec<u8>) -> io::Result<()> {
    let level = match level {
        Level::Default => Compression::default(),
        Level::Of(level) if LEVELS.contains(&level) => Compression::new(level as u32),
        Level::Of(_) => return Err(io::Error::other("gzip levels are 1 to 9")),
    };
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(payload)?;
    encoder.finish().map(|_| ())
}
