//! Zstandard (KIP-110).
//!
//! Making a decompression context costs more than decompressing a small batch, so each thread keeps one,
//! as long as no frame has made it large.

use std::cell::Cell;
use std::io::{self, BufReader};

use thalweg_types::limits::{ZSTD_CONTEXT_KEPT_BYTES, ZSTD_WINDOW_LOG_MAX};
use zstd::stream::read::Decoder;
use zstd::zstd_safe::{self, DCtx, DParameter, ResetDirective};

use super::Level;

/// Bytes decompressed at a time.
const STEP_BYTES: usize = 16 * 1024;

thread_local! {
    static CONTEXT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// Calls `job` with a reader over `payload`.
pub(super) fn with_reader<T>(
    payload: &[u8],
    job: impl FnOnce(BufReader<Decoder<'_, &[u8]>>) -> T,
) -> io::Result<T> {
    let mut context = CONTEXT
        .take()
        .or_else(DCtx::try_create)
        .ok_or_else(out_of_memory)?;
    // The last payload may have been left in the middle: refused, damaged, or not read to its end.
    context.reset(ResetDirective::SessionOnly).map_err(named)?;
    context
        .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
        .map_err(named)?;
    let decoder = Decoder::with_context(payload, &mut context);
    let done = job(BufReader::with_capacity(STEP_BYTES, decoder));
    if context.sizeof() <= ZSTD_CONTEXT_KEPT_BYTES {
        CONTEXT.set(Some(context));
    }
    Ok(done)
}

fn out_of_memory() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

fn named(code: zstd_safe::ErrorCode) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
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

#[cfg(test)]
mod tests {
    use crate::records::{Codec, DecompressError, Level, compress, decompress};

    /// The context of a thread is used again, whatever became of the payload before.
    #[test]
    fn bi15_a_payload_left_in_the_middle_spoils_no_later_one() {
        let plain = "a real text, more or less. ".repeat(20_000).into_bytes();
        let mut packed = Vec::new();
        compress(Codec::Zstd, Level::Default, &plain, &mut packed).expect("a level that exists");
        for cut in [packed.len() - 1, packed.len() / 2, packed.len()] {
            let limit = if cut == packed.len() {
                1_000
            } else {
                plain.len()
            };
            let first = decompress(Codec::Zstd, &packed[..cut], limit);
            assert!(first.is_err(), "cut at {cut}");
            let second = decompress(Codec::Zstd, &packed, plain.len());
            assert_eq!(second.as_deref(), Ok(&plain[..]), "after a cut at {cut}");
        }
        let too_large = decompress(Codec::Zstd, &packed, 1_000);
        assert_eq!(too_large, Err(DecompressError::TooLarge { limit: 1_000 }));
    }
}
