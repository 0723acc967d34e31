//! Reading.

use std::str::Utf8Error;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_types::{Uuid, limits};

use super::{Few, Form, Records};

/// Why bytes are not the message they were taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value reaches beyond the end.
    #[error("{wanted} bytes wanted where {left} are left")]
    Short {
        /// Bytes that the value takes at least.
        wanted: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// A length or count below -1.
    #[error("length {0} is below -1")]
    NegativeLength(i32),
    /// A string longer than 32,767 bytes.
    #[error("a string of {0} bytes")]
    LongString(usize),
    /// A count that can not be true for the bytes that are left.
    #[error("{count} elements can not be in {left} bytes")]
    Count {
        /// Elements claimed.
        count: usize,
        /// Bytes left for them.
        left: usize,
    },
    /// The arrays of this message take more memory than its size allows.
    #[error("the arrays of this message take more memory than allowed for its size")]
    Memory,
    /// The arrays of this message have more elements than one may have.
    #[error("the arrays of this message have more than the {allowed} elements allowed together")]
    Elements {
        /// Elements that all arrays together may have.
        allowed: usize,
    },
    /// Null where the version knows no null.
    #[error("null where a value is needed")]
    Null,
    /// The presence byte of a struct is neither 1 nor below 0.
    #[error("presence byte {0} of a struct")]
    Presence(i8),
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// A varint has more bits than its type.
    #[error("a varint is too long")]
    Varint,
    /// Tags are not in strictly rising order.
    #[error("tag {0} is repeated or out of order")]
    TagOrder(u32),
    /// A tagged field did not fill exactly the size given for it.
    #[error("tagged field {tag} took {took} bytes of {size}")]
    TagSize {
        /// The field's tag.
        tag: u32,
        /// Size written before it.
        size: usize,
        /// Bytes its value took.
        took: usize,
    },
    /// Bytes are left after the message.
    #[error("{0} bytes are left after the message")]
    Trailing(usize),
    /// The codec does not know this version.
    #[error("{message} has no version {version}")]
    Version {
        /// Name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// The codec does not know this API.
    #[error("no API has key {0}")]
    ApiKey(i16),
}

/// Reads one frame from front to back.
///
/// The first error sticks: from then on nothing is left to read, every read gives its type's empty
/// value, and [`Decoder::check`] and [`Decoder::finish`] return the error. So the generated code
/// reads a struct in a straight line and looks for the error once, at the message's end; what runs
/// after an error is bounded by the fields of the structs that were open.
#[derive(Debug)]
pub struct Decoder {
    buf: BytesMut,
    /// Bytes at the front of `buf` that are read.
    at: usize,
    /// Bytes that arrays may still take in memory.
    memory_left: usize,
    /// Elements that arrays may have together, and how many of those are left.
    elements_allowed: usize,
    elements_left: usize,
    failed: Option<DecodeError>,
}

/// A tagged section being read.
#[derive(Debug)]
pub struct Tag {
    left: u32,
    /// The next tag is at least this one.
    floor: u64,
    id: u32,
    size: usize,
    bytes_left_after: usize,
}

impl Decoder {
    /// Reads `frame`. Its arrays may take [`limits::DECODED_MEMORY_BASE_BYTES`] plus
    /// [`limits::DECODED_MEMORY_FACTOR`] times its length in memory.
    #[must_use]
    pub fn new(frame: BytesMut) -> Decoder {
        let memory_left = frame
            .len()
            .saturating_mul(limits::DECODED_MEMORY_FACTOR)
            .saturating_add(limits::DECODED_MEMORY_BASE_BYTES);
        Decoder {
            buf: frame,
            at: 0,
            memory_left,
            elements_allowed: usize::MAX,
            elements_left: usize::MAX,
            failed: None,
        }
    }

    /// Bounds the elements of all arrays read from now on. For requests: what a message names is
    /// worked on one by one, and memory alone would allow millions.
    pub fn limit_elements(&mut self, allowed: usize) {
        self.elements_allowed = allowed;
        self.elements_left = allowed;
    }

    /// Bytes not read yet; 0 after an error.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.at
    }

    /// The first error, if there was one.
    pub fn check(&self) -> Result<(), DecodeError> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Ends the reading: returns the first error; bytes left over are one.
    pub fn finish(self) -> Result<(), DecodeError> {
        self.check()?;
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// Lets the reading fail with `error`, unless it failed before.
    #[cold]
    pub fn fail(&mut self, error: DecodeError) {
        self.failed.get_or_insert(error);
        self.buf.clear();
        self.at = 0;
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.buf[self.at..].first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                *chunk
            }
            None => {
                self.fail(DecodeError::Short {
                    wanted: N,
                    left: self.remaining(),
                });
                [0; N]
            }
        }
    }

    /// Is `len` within what is left? If not, the reading fails.
    fn holds(&mut self, len: usize) -> bool {
        let left = self.remaining();
        if len > left {
            self.fail(DecodeError::Short { wanted: len, left });
        }
        len <= left
    }

    /// Splits `len` bytes off the frame; they share its memory.
    fn split(&mut self, len: usize) -> BytesMut {
        if !self.holds(len) {
            return BytesMut::new();
        }
        self.buf.advance(self.at);
        self.at = 0;
        self.buf.split_to(len)
    }

    /// One byte, 0 is false, anything else true.
    pub fn bool(&mut self) -> bool {
        self.take::<1>() != [0]
    }

    /// One byte.
    pub fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take())
    }

    /// Two bytes.
    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    /// Four bytes.
    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }

    /// Eight bytes.
    pub fn f64(&mut self) -> f64 {
        f64::from_be_bytes(self.take())
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Uuid {
        Uuid(self.take())
    }

    /// Unsigned varint of at most 32 bits.
    #[inline(never)]
    pub fn uvarint(&mut self) -> u32 {
        if let Some(&byte) = self.buf.get(self.at)
            && byte < 0x80
        {
            // Nearly all lengths and tag counts.
            self.at += 1;
            return byte.into();
        }
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take();
            // The fifth byte has room for four bits and no successor.
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
        }
        self.fail(DecodeError::Varint);
        0
    }

    /// A length of up to 32 bits; `None` for null.
    #[inline(never)]
    fn length_32(&mut self, form: Form) -> Option<usize> {
        match form {
            Form::Compact => (self.uvarint() as usize).checked_sub(1),
            Form::Classic => {
                let length = self.i32();
                self.signed_length(length)
            }
        }
    }

    /// A string's length; `None` for null.
    #[inline(never)]
    fn length_16(&mut self, form: Form) -> Option<usize> {
        match form {
            Form::Compact => (self.uvarint() as usize).checked_sub(1),
            Form::Classic => {
                let length = self.i16();
                self.signed_length(i32::from(length))
            }
        }
    }

    fn signed_length(&mut self, length: i32) -> Option<usize> {
        if length < -1 {
            self.fail(DecodeError::NegativeLength(length));
        }
        usize::try_from(length).ok()
    }

    /// A value that null may not stand for.
    fn some<T: Default>(&mut self, value: Option<T>) -> T {
        if value.is_none() {
            self.fail(DecodeError::Null);
        }
        value.unwrap_or_default()
    }

    /// A string or null.
    #[inline(never)]
    pub fn string_opt(&mut self, form: Form) -> Option<String> {
        self.string_by(form, |bytes| str::from_utf8(bytes).map(str::to_owned))
    }

    /// What `keep` makes of the bytes of a string, or null. It says whether they are UTF-8.
    pub fn string_by<T>(
        &mut self,
        form: Form,
        keep: impl FnOnce(&[u8]) -> Result<T, Utf8Error>,
    ) -> Option<T> {
        let len = self.length_16(form)?;
        if len > i16::MAX as usize {
            self.fail(DecodeError::LongString(len));
        }
        if !self.holds(len) {
            return None;
        }
        self.at += len;
        match keep(&self.buf[self.at - len..self.at]) {
            Ok(text) => Some(text),
            Err(_) => {
                self.fail(DecodeError::Utf8);
                None
            }
        }
    }

    /// A string.
    pub fn string(&mut self, form: Form) -> String {
        let value = self.string_opt(form);
        self.some(value)
    }

    /// Bytes or null, sharing the frame's memory.
    #[inline(never)]
    pub fn bytes_opt(&mut self, form: Form) -> Option<Bytes> {
        let len = self.length_32(form)?;
        Some(self.split(len).freeze())
    }

    /// Bytes, sharing the frame's memory.
    pub fn bytes(&mut self, form: Form) -> Bytes {
        let value = self.bytes_opt(form);
        self.some(value)
    }

    /// Record batches or null, sharing the frame's memory and unique in it, so that they can be
    /// changed in place.
    #[inline(never)]
    pub fn records_opt(&mut self, form: Form) -> Option<Records> {
        let len = self.length_32(form)?;
        Some(Records::Held(self.split(len)))
    }

    /// Record batches; null is an error, `None` comes only after one.
    pub fn records(&mut self, form: Form) -> Option<Records> {
        let value = self.records_opt(form);
        if value.is_none() {
            self.fail(DecodeError::Null);
        }
        value
    }

    /// An array or null. `min` is the fewest bytes one element takes; `read` gets `version`.
    pub fn array_opt<T>(
        &mut self,
        form: Form,
        min: usize,
        version: i16,
        read: fn(&mut Decoder, i16) -> T,
    ) -> Option<Vec<T>> {
        let count = self.length_32(form)?;
        let count = self.admit(count, min, size_of::<T>());
        let mut elements = Vec::with_capacity(count);
        while elements.len() < count && self.failed.is_none() {
            elements.push(read(self, version));
        }
        Some(elements)
    }

    /// An array; as [`Decoder::array_opt`].
    pub fn array<T>(
        &mut self,
        form: Form,
        min: usize,
        version: i16,
        read: fn(&mut Decoder, i16) -> T,
    ) -> Vec<T> {
        let value = self.array_opt(form, min, version, read);
        self.some(value)
    }

    /// As [`Decoder::array`], for one that nearly always has one element.
    pub fn few<T>(
        &mut self,
        form: Form,
        min: usize,
        version: i16,
        read: fn(&mut Decoder, i16) -> T,
    ) -> Few<T> {
        let Some(count) = self.length_32(form) else {
            self.fail(DecodeError::Null);
            return Few::new();
        };
        let count = self.admit(count, min, size_of::<T>());
        let mut elements = Few::with_capacity(count);
        while elements.len() < count && self.failed.is_none() {
            elements.push(read(self, version));
        }
        elements
    }

    /// `count` if so many elements that take at least `min` bytes each here and `size` bytes each
    /// in memory may come; else fails and returns 0.
    #[inline(never)]
    fn admit(&mut self, count: usize, min: usize, size: usize) -> usize {
        let left = self.remaining();
        if count > left / min.max(1) {
            self.fail(DecodeError::Count { count, left });
            return 0;
        }
        match self.elements_left.checked_sub(count) {
            Some(left) => self.elements_left = left,
            None => {
                self.fail(DecodeError::Elements {
                    allowed: self.elements_allowed,
                });
                return 0;
            }
        }
        match self.memory_left.checked_sub(count.saturating_mul(size)) {
            Some(left) => {
                self.memory_left = left;
                count
            }
            None => {
                self.fail(DecodeError::Memory);
                0
            }
        }
    }

    /// A struct that may be null: one byte says which.
    pub fn struct_opt<T>(&mut self, version: i16, read: fn(&mut Decoder, i16) -> T) -> Option<T> {
        match self.i8() {
            1 => Some(read(self, version)),
            below if below < 0 => None,
            other => {
                self.fail(DecodeError::Presence(other));
                None
            }
        }
    }

    /// Skips a tagged section of which no tag is known.
    #[inline(never)]
    pub fn skip_tags(&mut self, form: Form) {
        if form == Form::Compact && self.buf.get(self.at) == Some(&0) {
            // An empty one, as nearly all are.
            self.at += 1;
            return;
        }
        let mut tags = self.tags(form);
        while self.next_tag(&mut tags).is_some() {
            self.skip_tag(&tags);
        }
    }

    /// Starts a tagged section; empty in the classic form, which has none.
    #[inline(never)]
    pub fn tags(&mut self, form: Form) -> Tag {
        let count = match form {
            Form::Classic => 0,
            Form::Compact => self.uvarint(),
        };
        let left = self.remaining();
        // A tag and a size take a byte each at least.
        if count as usize > left / 2 {
            self.fail(DecodeError::Count {
                count: count as usize,
                left,
            });
        }
        Tag {
            left: count,
            floor: 0,
            id: 0,
            size: 0,
            bytes_left_after: left,
        }
    }

    /// Moves to the next tagged field and returns its tag. The one before must have been read to
    /// its end.
    #[inline(never)]
    pub fn next_tag(&mut self, tag: &mut Tag) -> Option<u32> {
        let left = self.remaining();
        if self.failed.is_none() && left != tag.bytes_left_after {
            let took = (tag.bytes_left_after + tag.size).saturating_sub(left);
            self.fail(DecodeError::TagSize {
                tag: tag.id,
                size: tag.size,
                took,
            });
        }
        if self.failed.is_some() || tag.left == 0 {
            return None;
        }
        tag.left -= 1;
        tag.id = self.uvarint();
        tag.size = self.uvarint() as usize;
        if u64::from(tag.id) < tag.floor {
            self.fail(DecodeError::TagOrder(tag.id));
        }
        tag.floor = u64::from(tag.id) + 1;
        if !self.holds(tag.size) || self.failed.is_some() {
            return None;
        }
        tag.bytes_left_after = self.remaining() - tag.size;
        Some(tag.id)
    }

    /// Skips the tagged field that [`Decoder::next_tag`] announced.
    pub fn skip_tag(&mut self, tag: &Tag) {
        if self.holds(tag.size) {
            self.at += tag.size;
        }
    }
}
