//! The walk's short cut: one whole, ordinary record in a slice.
//!
//! Answers `None` to anything unusual (cut, malformed, another offset delta than expected, a varint of
//! five bytes and more where two are common); the exact walk then finds out what it is. So this path
//! needs no error values and stays in registers. It must never accept what the exact walk refuses; the
//! twin tests hold both against the same third opinion.

use super::varint;
use super::walk::Walked;

/// Reads the record at the start of `bytes`. Returns it and the bytes it takes.
#[inline]
pub(super) fn quick_record(bytes: &[u8], index: i32) -> Option<(Walked, usize)> {
    let mut at = 0;
    let length = usize::try_from(int(bytes, &mut at)?).ok()?;
    let end = at.checked_add(length)?;
    // From here on the record ends where its length says, or is not ours to judge.
    let bytes = bytes.get(..end)?;
    at += 1; // attributes
    let timestamp_delta = long(bytes, &mut at)?;
    if int(bytes, &mut at)? != index {
        return None;
    }
    let has_key = skip_nullable(bytes, &mut at)?;
    skip_nullable(bytes, &mut at)?;
    let headers = int(bytes, &mut at)?;
    if headers < 0 {
        return None;
    }
    // Each turn takes at least two bytes or gives up, so a false count costs no more than `bytes`.
    for _ in 0..headers {
        let name = usize::try_from(int(bytes, &mut at)?).ok()?;
        at = at.checked_add(name)?;
        skip_nullable(bytes, &mut at)?;
    }
    (at == end).then_some((
        Walked {
            index,
            timestamp_delta,
            has_key,
        },
        end,
    ))
}

/// True unless the length is -1 (null). May move `at` behind the end, where the next read fails.
#[inline]
fn skip_nullable(bytes: &[u8], at: &mut usize) -> Option<bool> {
    let length = int(bytes, at)?;
    match usize::try_from(length) {
        Ok(length) => {
            *at = at.checked_add(length)?;
            Some(true)
        }
        Err(_) => (length == -1).then_some(false),
    }
}

/// One and two bytes by hand; they are nearly all of them.
#[inline]
fn int(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(varint::unzigzag_i32(u32::from(first)));
    }
    let second = *bytes.get(*at + 1)?;
    if second < 0x80 && second != 0 {
        *at += 2;
        let raw = u32::from(first & 0x7f) | u32::from(second) << 7;
        return Some(varint::unzigzag_i32(raw));
    }
    let found = varint::take_i32(supply(bytes, *at)).ok()?;
    *at += found.bytes;
    (!found.padded).then_some(found.value)
}

#[inline]
fn long(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(varint::unzigzag_i64(u64::from(first)));
    }
    let found = varint::take_i64(supply(bytes, *at)).ok()?;
    *at += found.bytes;
    (!found.padded).then_some(found.value)
}

#[inline]
fn supply(bytes: &[u8], at: usize) -> impl FnMut() -> Result<u8, ()> + use<'_> {
    let mut rest = bytes.get(at..).unwrap_or_default().iter();
    move || rest.next().copied().ok_or(())
}
