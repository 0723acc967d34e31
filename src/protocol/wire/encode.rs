//! Writing.

use bytes::{Bytes, BytesMut};
use thalweg_types::Uuid;

use super::{Form, Records};

/// Why a value can not be written in a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The codec does not know this version.
    #[error("{message} has no version {version}")]
    Version {
        /// Name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field carries a value that this version has no place for and that must not be dropped.
    #[error("{field} has no place in version {version}")]
    NoPlace {
        /// Struct and field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null where the version knows no null.
    #[error("{field} is null, which version {version} does not allow")]
    Null {
        /// Struct and field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Longer than its length field can say.
    #[error("{0} bytes or elements are more than a length field can say")]
    TooLong(usize),
}

/// A place in [`Encoded::bytes`] where `len` bytes of record data from elsewhere belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Index into [`Encoded::bytes`]: the data goes before this byte.
    pub at: usize,
    /// Bytes that belong there; never 0.
    pub len: u32,
}

/// What an [`Encoder`] wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// All but the gaps.
    pub bytes: Bytes,
    /// Gaps in rising order of `at`.
    pub gaps: Vec<Gap>,
}

impl Encoded {
    /// Length in bytes with the gaps filled.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.bytes.len() + self.gaps.iter().map(|g| g.len as usize).sum::<usize>()
    }
}

/// Writes one message into a buffer that grows.
///
/// The first error sticks and [`Encoder::check`] returns it; what was written is then of no use.
#[derive(Debug, Default)]
pub struct Encoder {
    buf: Vec<u8>,
    gaps: Vec<Gap>,
    failed: Option<EncodeError>,
}

/// A tagged field being written: where it starts, which gap is its first.
#[derive(Debug)]
pub struct TagMark {
    at: usize,
    first_gap: usize,
}

impl Encoder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// An empty one with room for `bytes` bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Encoder {
        Encoder {
            buf: Vec::with_capacity(bytes),
            ..Encoder::default()
        }
    }

    /// One that writes into `buf`, whatever that has room for, in place of what is there.
    pub(crate) fn over(mut buf: Vec<u8>) -> Encoder {
        buf.clear();
        Encoder {
            buf,
            ..Encoder::default()
        }
    }

    /// Bytes written so far, gaps not counted.
    pub(crate) fn len(&self) -> usize {
        self.buf.len()
    }

    /// The first error, if there was one.
    pub fn check(&self) -> Result<(), EncodeError> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Lets the writing fail with `error`, unless it failed before.
    #[cold]
    pub fn fail(&mut self, error: EncodeError) {
        self.failed.get_or_insert(error);
    }

    /// Fails: `field` is not in `version` and must not be dropped.
    #[cold]
    pub(crate) fn no_place(&mut self, field: &'static str, version: i16) {
        self.fail(EncodeError::NoPlace { field, version });
    }

    /// Fails: `field` is null, which `version` does not allow.
    #[cold]
    pub(crate) fn null(&mut self, field: &'static str, version: i16) {
        self.fail(EncodeError::Null { field, version });
    }

    /// What was written. Call [`Encoder::check`] first, or rely on [`crate::Message::encode`],
    /// which did.
    #[must_use]
    pub fn finish(self) -> Encoded {
        Encoded {
            bytes: Bytes::from(self.buf),
            gaps: self.gaps,
        }
    }

    /// As [`Encoder::finish`], in memory of its own; gives the buffer back.
    pub(crate) fn finish_copy(self) -> (Encoded, Vec<u8>) {
        let encoded = Encoded {
            bytes: Bytes::copy_from_slice(&self.buf),
            gaps: self.gaps,
        };
        (encoded, self.buf)
    }

    /// Overwrites the first four bytes with the length of all that follows them, gaps included.
    pub(crate) fn patch_size(&mut self) -> Result<(), EncodeError> {
        let gaps: usize = self.gaps.iter().map(|g| g.len as usize).sum();
        let total = self.buf.len() - 4 + gaps;
        let size = i32::try_from(total).map_err(|_| EncodeError::TooLong(total))?;
        self.buf[..4].copy_from_slice(&size.to_be_bytes());
        Ok(())
    }

    /// One byte.
    pub fn bool(&mut self, value: bool) {
        self.buf.push(u8::from(value));
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub fn f64(&mut self, value: f64) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.buf.extend_from_slice(&value.0);
    }

    /// Unsigned varint.
    #[inline(never)]
    pub fn uvarint(&mut self, value: u32) {
        if value < 0x80 {
            // Nearly all lengths and tag counts.
            self.buf.push(value as u8);
            return;
        }
        let (bytes, len) = uvarint_bytes(value);
        self.buf.extend_from_slice(&bytes[..len]);
    }

    /// Length or null with at most `max`.
    fn length(&mut self, length: Option<usize>, max: usize) -> i32 {
        match length {
            None => -1,
            Some(length) if length > max => {
                self.fail(EncodeError::TooLong(length));
                -1
            }
            Some(length) => length as i32,
        }
    }

    #[inline(never)]
    fn length_32(&mut self, form: Form, length: Option<usize>) {
        let length = self.length(length, i32::MAX as usize);
        match form {
            // Null is 0, everything else one more than its length.
            Form::Compact => self.uvarint((length as u32).wrapping_add(1)),
            Form::Classic => self.i32(length),
        }
    }

    #[inline(never)]
    fn length_16(&mut self, form: Form, length: Option<usize>) {
        // Strings keep to the classic maximum in both forms, as Kafka's do.
        let length = self.length(length, i16::MAX as usize);
        match form {
            Form::Compact => self.uvarint((length as u32).wrapping_add(1)),
            Form::Classic => self.i16(length as i16),
        }
    }

    /// A string or null; at most 32,767 bytes.
    #[inline(never)]
    pub fn string_opt(&mut self, form: Form, value: Option<&str>) {
        self.length_16(form, value.map(str::len));
        self.buf
            .extend_from_slice(value.unwrap_or_default().as_bytes());
    }

    /// A string; at most 32,767 bytes.
    pub fn string(&mut self, form: Form, value: &str) {
        self.string_opt(form, Some(value));
    }

    /// Bytes or null, copied.
    #[inline(never)]
    pub fn bytes_opt(&mut self, form: Form, value: Option<&[u8]>) {
        self.length_32(form, value.map(<[u8]>::len));
        self.buf.extend_from_slice(value.unwrap_or_default());
    }

    /// Bytes, copied.
    pub fn bytes(&mut self, form: Form, value: &[u8]) {
        self.bytes_opt(form, Some(value));
    }

    /// Record batches or null: held ones are copied, others leave a gap.
    #[inline(never)]
    pub fn records_opt(&mut self, form: Form, value: Option<&Records>) {
        self.length_32(form, value.map(Records::len));
        match value {
            Some(Records::Held(bytes)) => self.buf.extend_from_slice(bytes),
            Some(Records::Extern(len)) if *len > 0 => {
                self.gaps.push(Gap {
                    at: self.buf.len(),
                    len: *len,
                });
            }
            Some(Records::Extern(_)) | None => {}
        }
    }

    /// An array or null.
    pub fn array_opt<T>(
        &mut self,
        form: Form,
        value: Option<&[T]>,
        version: i16,
        write: fn(&T, &mut Encoder, i16),
    ) {
        self.length_32(form, value.map(<[T]>::len));
        for element in value.unwrap_or_default() {
            write(element, self, version);
        }
    }

    /// An array.
    pub fn array<T>(
        &mut self,
        form: Form,
        value: &[T],
        version: i16,
        write: fn(&T, &mut Encoder, i16),
    ) {
        self.array_opt(form, Some(value), version, write);
    }

    /// A struct that may be null.
    pub fn struct_opt<T>(
        &mut self,
        value: Option<&T>,
        version: i16,
        write: fn(&T, &mut Encoder, i16),
    ) {
        self.i8(if value.is_some() { 1 } else { -1 });
        if let Some(value) = value {
            write(value, self, version);
        }
    }

    /// An empty tagged section; nothing in the classic form.
    pub fn no_tags(&mut self, form: Form) {
        if form == Form::Compact {
            self.uvarint(0);
        }
    }

    /// Starts tagged field `tag`. The section's count comes first, fields in rising order.
    #[inline(never)]
    pub fn tag_begin(&mut self, tag: u32) -> TagMark {
        self.uvarint(tag);
        TagMark {
            at: self.buf.len(),
            first_gap: self.gaps.len(),
        }
    }

    /// Ends the tagged field: puts its size before it.
    #[inline(never)]
    pub fn tag_end(&mut self, mark: &TagMark) {
        let gaps = &mut self.gaps[mark.first_gap..];
        let external: usize = gaps.iter().map(|g| g.len as usize).sum();
        let length = self.buf.len() - mark.at + external;
        let Ok(size) = u32::try_from(length) else {
            self.fail(EncodeError::TooLong(length));
            return;
        };
        let (bytes, len) = uvarint_bytes(size);
        self.buf
            .splice(mark.at..mark.at, bytes[..len].iter().copied());
        for gap in gaps {
            gap.at += len;
        }
    }
}

fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0u8; 5];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = (value as u8) | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

impl From<BytesMut> for Records {
    fn from(bytes: BytesMut) -> Records {
        Records::Held(bytes)
    }
}
