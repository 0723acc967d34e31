//! Zstandard (KIP-110).

use std::io::{self, BufReader};

use thalweg_types::limits::ZSTD_WINDOW_LOG_MAX;

use super::Level;

/// Bytes decompressed at a time.
const STEP_BYTES: usize = 16 * 1024;

type Decoder<'a> = zstd::stream::read::Decoder<'static, &'a [u8]>;

pub(super) fn reader(payload: &[u8]) -> io::Result<BufReader<Decoder<'_>>> {
    let mut decoder = Decoder::with_buffer(payload)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(BufReader::with_capacity(STEP_BYTES, decoder))
}

pub(super) fn write(payload: &[u8], level: Level, out: &mut Vec<u8>) -> io::Result<()> {
    let level = match level {
        Level::Default => zstd::DEFAULT_COMPRESSION_LEVEL,
        Level::Of(level) if zstd::compression_level_range().contains(&level) => level,
        Level::Of(_) => return Err(io::Error::other("no such zstd level")),
    };
    out.extend_from_slice(&zstd::bulk::compress(payload, level)?);
    Ok(())
}
