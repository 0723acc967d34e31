//! The strict pass over the records of a client's batch, which keeps none of them.
//!
//! One walk serves both forms: over a slice it runs without a copy, over a decompressing reader it
//! pulls pieces and forgets them. It checks structure; what a record may say (key, timestamp) is asked
//! of the caller per record.

use std::io::BufRead;

use super::compression::Capped;
use super::quick::quick_record;
use super::varint::{self, Varint, VarintError};
use super::{DecompressError, RecordFault};

/// Smallest record: one byte each for length, attributes, timestamp delta, offset delta, key length,
/// value length and header count.
pub(super) const RECORD_BYTES_MIN: usize = 7;

/// Smallest header of a record: a byte each for the lengths of key and value.
pub(super) const RECORD_HEADER_BYTES_MIN: usize = 2;

/// Why a walk stopped.
#[derive(Debug)]
pub(super) enum WalkError {
    /// The record at this index is malformed.
    Record { index: i32, fault: RecordFault },
    /// Bytes follow the last record.
    BytesAfterRecords,
    /// The payload can not be decompressed.
    Decompress(DecompressError),
}

/// What a walk tells of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) index: i32,
    pub(super) timestamp_delta: i64,
    pub(super) has_key: bool,
}

/// Why a source could not give bytes.
#[derive(Debug)]
enum Stop {
    /// It has no more.
    End,
    Decompress(DecompressError),
}

/// Why one record is not good.
enum Trouble {
    Fault(RecordFault),
    Decompress(DecompressError),
}

impl From<RecordFault> for Trouble {
    fn from(fault: RecordFault) -> Self {
        Trouble::Fault(fault)
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::End => Trouble::Fault(RecordFault::Cut),
            Stop::Decompress(error) => Trouble::Decompress(error),
        }
    }
}

/// Bytes in order.
trait Source {
    /// Takes a record by the short cut, if it lies whole and ordinary at hand.
    fn quick(&mut self, index: i32) -> Result<Option<Walked>, DecompressError>;
    fn byte(&mut self) -> Result<u8, Stop>;
    fn skip(&mut self, bytes: usize) -> Result<(), Stop>;
    /// Says early that `bytes` more can not come, where the source knows.
    fn expect(&self, bytes: usize) -> Result<(), Stop>;
    /// Bytes that are left; for a stream, those at hand (0 only at its end).
    fn left(&mut self) -> Result<usize, DecompressError>;
}

struct SliceSource<'a> {
    rest: &'a [u8],
}

impl Source for SliceSource<'_> {
    #[inline]
    fn quick(&mut self, index: i32) -> Result<Option<Walked>, DecompressError> {
        let Some((walked, bytes)) = quick_record(self.rest, index) else {
            return Ok(None);
        };
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        Ok(Some(walked))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Stop> {
        let (byte, rest) = self.rest.split_first().ok_or(Stop::End)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn skip(&mut self, bytes: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(bytes..).ok_or(Stop::End)?;
        Ok(())
    }

    #[inline]
    fn expect(&self, bytes: usize) -> Result<(), Stop> {
        if bytes > self.rest.len() {
            Err(Stop::End)
        } else {
            Ok(())
        }
    }

    fn left(&mut self) -> Result<usize, DecompressError> {
        Ok(self.rest.len())
    }
}

struct StreamSource<R> {
    reader: Capped<R>,
}

impl<R: BufRead> Source for StreamSource<R> {
    #[inline]
    fn quick(&mut self, index: i32) -> Result<Option<Walked>, DecompressError> {
        let found = quick_record(self.reader.piece()?, index);
        let Some((walked, bytes)) = found else {
            return Ok(None);
        };
        self.reader.consume(bytes);
        Ok(Some(walked))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Stop> {
        let piece = self.reader.piece().map_err(Stop::Decompress)?;
        let byte = *piece.first().ok_or(Stop::End)?;
        self.reader.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, mut bytes: usize) -> Result<(), Stop> {
        while bytes > 0 {
            let piece = self.reader.piece().map_err(Stop::Decompress)?;
            if piece.is_empty() {
                return Err(Stop::End);
            }
            let step = piece.len().min(bytes);
            self.reader.consume(step);
            bytes -= step;
        }
        Ok(())
    }

    fn expect(&self, bytes: usize) -> Result<(), Stop> {
        self.reader.expect(bytes).map_err(Stop::Decompress)
    }

    fn left(&mut self) -> Result<usize, DecompressError> {
        Ok(self.reader.piece()?.len())
    }
}

/// Walks `record_count` records of an uncompressed payload, which must end with the last.
pub(super) fn walk_slice(
    payload: &[u8],
    record_count: i32,
    visit: impl FnMut(Walked) -> Result<(), RecordFault>,
) -> Result<(), WalkError> {
    walk(&mut SliceSource { rest: payload }, record_count, visit)
}

/// Walks `record_count` records of a decompressing reader, which must end with the last. Returns the
/// decompressed size.
pub(super) fn walk_stream<R: BufRead>(
    reader: Capped<R>,
    record_count: i32,
    visit: impl FnMut(Walked) -> Result<(), RecordFault>,
) -> Result<usize, WalkError> {
    let mut source = StreamSource { reader };
    walk(&mut source, record_count, visit)?;
    Ok(source.reader.taken())
}

fn walk<S: Source>(
    source: &mut S,
    record_count: i32,
    mut visit: impl FnMut(Walked) -> Result<(), RecordFault>,
) -> Result<(), WalkError> {
    for index in 0..record_count {
        let walked = match source.quick(index).map_err(WalkError::Decompress)? {
            Some(walked) => walked,
            None => walk_record(source, index).map_err(|trouble| stop_at(index, trouble))?,
        };
        visit(walked).map_err(|fault| WalkError::Record { index, fault })?;
    }
    match source.left() {
        Ok(0) => Ok(()),
        Ok(_) => Err(WalkError::BytesAfterRecords),
        Err(error) => Err(WalkError::Decompress(error)),
    }
}

fn stop_at(index: i32, trouble: Trouble) -> WalkError {
    match trouble {
        Trouble::Fault(fault) => WalkError::Record { index, fault },
        Trouble::Decompress(error) => WalkError::Decompress(error),
    }
}

fn walk_record<S: Source>(source: &mut S, index: i32) -> Result<Walked, Trouble> {
    let length = strict(varint::take_i32(|| source.byte()).map_err(outer)?)?;
    let left = usize::try_from(length).ok().filter(|left| *left > 0);
    let left = left.ok_or(RecordFault::Length { length })?;
    source.expect(left)?;
    let mut body = Body { source, left };
    body.byte()?; // attributes: no bit has a meaning, and Kafka ignores them
    let timestamp_delta = strict(varint::take_i64(|| body.byte()).map_err(inner)?)?;
    let found = body.varint()?;
    if found != index {
        return Err(RecordFault::OffsetDelta {
            expected: index,
            found,
        }
        .into());
    }
    let has_key = body.skip_nullable()?;
    body.skip_nullable()?;
    let count = body.varint()?;
    let headers = usize::try_from(count).map_err(|_| RecordFault::HeaderCount { count })?;
    if headers > body.left / RECORD_HEADER_BYTES_MIN {
        return Err(RecordFault::HeaderCount { count }.into());
    }
    for _ in 0..headers {
        let length = body.varint()?;
        let bytes = usize::try_from(length).map_err(|_| RecordFault::FieldLength { length })?;
        body.skip(bytes)?;
        body.skip_nullable()?;
    }
    match body.left {
        0 => Ok(Walked {
            index,
            timestamp_delta,
            has_key,
        }),
        extra => Err(RecordFault::BytesAfterFields { extra }.into()),
    }
}

/// The part of the source that one record's length field counts.
struct Body<'a, S> {
    source: &'a mut S,
    left: usize,
}

impl<S: Source> Body<'_, S> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Trouble> {
        self.left = self.left.checked_sub(1).ok_or(RecordFault::FieldTooLong)?;
        Ok(self.source.byte()?)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(RecordFault::FieldTooLong)?;
        Ok(self.source.skip(bytes)?)
    }

    #[inline]
    fn varint(&mut self) -> Result<i32, Trouble> {
        strict(varint::take_i32(|| self.byte()).map_err(inner)?)
    }

    /// Skips a length and its bytes. True unless the length is -1, which means null.
    #[inline]
    fn skip_nullable(&mut self) -> Result<bool, Trouble> {
        let length = self.varint()?;
        match usize::try_from(length) {
            Ok(bytes) => self.skip(bytes).map(|()| true),
            Err(_) if length == -1 => Ok(false),
            Err(_) => Err(RecordFault::FieldLength { length }.into()),
        }
    }
}

#[inline]
fn strict<T>(varint: Varint<T>) -> Result<T, Trouble> {
    if varint.padded {
        return Err(RecordFault::Padded.into());
    }
    Ok(varint.value)
}

fn outer(error: VarintError<Stop>) -> Trouble {
    match error {
        VarintError::Supply(stop) => stop.into(),
        VarintError::Overlong => RecordFault::Overlong.into(),
    }
}

fn inner(error: VarintError<Trouble>) -> Trouble {
    match error {
        VarintError::Supply(trouble) => trouble,
        VarintError::Overlong => RecordFault::Overlong.into(),
    }
}
