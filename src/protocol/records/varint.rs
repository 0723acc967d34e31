//! Zigzag variable-length integers, as records of format v2 use them.
//!
//! 7 bits per byte, low bits first, top bit set on all but the last byte; the value is zigzag coded so
//! that small negative numbers stay short. An `int` takes 1 to 5 bytes, a `long` 1 to 10.

/// Most bytes of a 32-bit varint.
pub const VARINT_BYTES_MAX: usize = 5;

/// Most bytes of a 64-bit varint.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Bits that the last byte of the longest 64-bit varint may use.
pub(super) const VARLONG_LAST_MASK: u8 = 0x01;

/// A decoded varint and whether it was written with more bytes than it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varint<T> {
    pub(super) value: T,
    /// Bytes it took.
    pub(super) bytes: usize,
    /// The last byte added nothing: the same value has a shorter form.
    pub(super) padded: bool,
}

/// Why a varint could not be had from a byte supply that may itself fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VarintError<E> {
    Supply(E),
    Overlong,
}

/// Takes one 32-bit varint from `next`.
#[inline]
pub(super) fn take_i32<E>(
    mut next: impl FnMut() -> Result<u8, E>,
) -> Result<Varint<i32>, VarintError<E>> {
    let first = next().map_err(VarintError::Supply)?;
    if first < 0x80 {
        return Ok(Varint {
            value: unzigzag_i32(u32::from(first)),
            bytes: 1,
            padded: false,
        });
    }
    let raw = take_rest(first, VARINT_BYTES_MAX, 0x0f, next)?;
    // The mask of the fifth byte keeps the value within 32 bits.
    Ok(Varint {
        value: unzigzag_i32(raw.value as u32),
        bytes: raw.bytes,
        padded: raw.padded,
    })
}

/// Takes one 64-bit varint from `next`.
#[inline]
pub(super) fn take_i64<E>(
    mut next: impl FnMut() -> Result<u8, E>,
) -> Result<Varint<i64>, VarintError<E>> {
    let first = next().map_err(VarintError::Supply)?;
    if first < 0x80 {
        return Ok(Varint {
            value: unzigzag_i64(u64::from(first)),
            bytes: 1,
            padded: false,
        });
    }
    let raw = take_rest(first, VARLONG_BYTES_MAX, VARLONG_LAST_MASK, next)?;
    Ok(Varint {
        value: unzigzag_i64(raw.value),
        bytes: raw.bytes,
        padded: raw.padded,
    })
}

/// The bytes after a first one whose top bit is set. `last_mask` = bits the longest form may use in
/// its last byte.
pub(super) fn take_rest<E>(
    first: u8,
    bytes_max: usize,
    last_mask: u8,
    mut next: impl FnMut() -> Result<u8, E>,
) -> Result<Varint<u64>, VarintError<E>> {
    let mut value = u64::from(first & 0x7f);
    for index in 1..bytes_max {
        let byte = next().map_err(VarintError::Supply)?;
        if index + 1 == bytes_max && byte & !last_mask != 0 {
            return Err(VarintError::Overlong);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok(Varint {
                value,
                bytes: index + 1,
                padded: byte == 0,
            });
        }
    }
    Err(VarintError::Overlong)
}

#[inline]
pub(super) fn unzigzag_i32(raw: u32) -> i32 {
    ((raw >> 1) as i32) ^ -((raw & 1) as i32)
}

#[inline]
pub(super) fn unzigzag_i64(raw: u64) -> i64 {
    ((raw >> 1) as i64) ^ -((raw & 1) as i64)
}

/// Appends `value` in its shortest form.
pub(super) fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_raw(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

/// Appends `value` in its shortest form.
pub(super) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_raw(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_raw(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push((raw as u8) | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Bytes of the shortest form of `value`.
pub(super) fn len_i32(value: i32) -> usize {
    len_raw(u64::from(((value << 1) ^ (value >> 31)) as u32))
}

/// Bytes of the shortest form of `value`.
pub(super) fn len_i64(value: i64) -> usize {
    len_raw(((value << 1) ^ (value >> 63)) as u64)
}

fn len_raw(raw: u64) -> usize {
    let bits = (64 - (raw | 1).leading_zeros()) as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::{Varint, VarintError, len_i32, len_i64, put_i32, put_i64, take_i32, take_i64};
    use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

    fn from(bytes: &[u8]) -> impl FnMut() -> Result<u8, ()> + use<'_> {
        let mut bytes = bytes.iter().copied();
        move || bytes.next().ok_or(())
    }

    fn read_i32(bytes: &[u8]) -> Result<Varint<i32>, VarintError<()>> {
        take_i32(from(bytes))
    }

    proptest! {
        // Seeds are not kept: the folder that proptest would make for them breaks the workspace.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn ints_round_trip(value in any::<i32>()) {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            prop_assert_eq!(out.len(), len_i32(value));
            prop_assert_eq!(read_i32(&out), Ok(Varint { value, bytes: out.len(), padded: false }));
        }

        #[test]
        fn longs_round_trip(value in any::<i64>()) {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            prop_assert_eq!(out.len(), len_i64(value));
            prop_assert_eq!(take_i64(from(&out)), Ok(Varint { value, bytes: out.len(), padded: false }));
        }
    }

    #[test]
    fn known_forms() {
        for (value, bytes) in [
            (0, &[0u8][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (64, &[0x80, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn overlong_padded_and_cut_forms_are_told_apart() {
        assert_eq!(
            read_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]),
            Err(VarintError::Overlong)
        );
        assert_eq!(
            read_i32(&[0xff, 0xff, 0xff, 0xff, 0x1f]),
            Err(VarintError::Overlong)
        );
        assert_eq!(
            read_i32(&[0x82, 0]),
            Ok(Varint {
                value: 1,
                bytes: 2,
                padded: true
            })
        );
        assert_eq!(read_i32(&[0x82]), Err(VarintError::Supply(())));
        assert_eq!(
            take_i64(from(&[
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03
            ])),
            Err(VarintError::Overlong)
        );
    }
}
