//! The walk's short cut: one whole, ordinary record in a slice.
//!
//! Answers `None` to anything unusual (cut, malformed, another offset delta than expected); the exact walk then
//! finds out what it is. So this path needs no error values and stays in registers, and is put into the walk
//! whole: by calls it takes twice the instructions (docs/adr/0014-what-stays-as-it-is-on-the-hot-path.md). It must
//! never accept what the exact walk refuses; the twin tests hold both against the same third opinion.
//!
//! Varints are compared and halved as they lie there, zigzag coded: even ones are twice a number from 0 up, 1 is -1.
//! A length of more than 31 bits needs no look of its own: no record has so many bytes.

use super::varint::{self, VARLONG_BYTES_MAX};
use super::walk::Walked;

/// -1, which as a length means null.
const NULL: u64 = 1;

/// Reads the record at the start of `bytes`. Returns it and the bytes it takes.
#[inline(always)]
pub(super) fn quick_record(bytes: &[u8], index: i32) -> Option<(Walked, usize)> {
    let mut at = 0;
    let length = raw(bytes, &mut at)?;
    let end = skip(at, length)?;
    // From here on the record ends where its length says, or is not ours to judge.
    let bytes = bytes.get(..end)?;
    at += 1; // attributes
    let timestamp_delta = raw(bytes, &mut at)?;
    if raw(bytes, &mut at)? != u64::from(index.unsigned_abs()) << 1 {
        return None;
    }
    let key = raw(bytes, &mut at)?;
    at = skip_nullable(at, key)?;
    let value = raw(bytes, &mut at)?;
    at = skip_nullable(at, value)?;
    let headers = raw(bytes, &mut at)?;
    if headers != 0 {
        at = skip_headers(bytes, at, headers)?;
    }
    (at == end).then_some((
        Walked {
            index,
            timestamp_delta: varint::unzigzag_i64(timestamp_delta),
            has_key: key != NULL,
        },
        end,
    ))
}

#[inline(never)]
fn skip_headers(bytes: &[u8], mut at: usize, headers: u64) -> Option<usize> {
    let count = skip(0, headers)?;
    // Each turn takes at least two bytes or gives up, so a false count costs no more than `bytes`.
    for _ in 0..count {
        let name = raw(bytes, &mut at)?;
        at = skip(at, name)?;
        let value = raw(bytes, &mut at)?;
        at = skip_nullable(at, value)?;
    }
    Some(at)
}

/// Behind a field of this length. May lie behind the end, where the next read fails.
#[inline(always)]
fn skip(at: usize, length: u64) -> Option<usize> {
    match length & 1 == 0 {
        true => at.checked_add(usize::try_from(length >> 1).ok()?),
        false => None,
    }
}

#[inline(always)]
fn skip_nullable(at: usize, length: u64) -> Option<usize> {
    match length {
        NULL => Some(at),
        length => skip(at, length),
    }
}

/// The varint at `at` as it lies there. One and two bytes by hand; they are nearly all of them.
#[inline(always)]
fn raw(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    let second = *bytes.get(*at + 1)?;
    if second < 0x80 && second != 0 {
        *at += 2;
        return Some(u64::from(first & 0x7f) | u64::from(second) << 7);
    }
    longer_raw(bytes, at)
}

#[cold]
#[inline(never)]
fn longer_raw(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (first, rest) = bytes.get(*at..)?.split_first()?;
    let mut rest = rest.iter();
    let next = || rest.next().copied().ok_or(());
    let found =
        varint::take_rest(*first, VARLONG_BYTES_MAX, varint::VARLONG_LAST_MASK, next).ok()?;
    *at += found.bytes;
    (!found.padded).then_some(found.value)
}
