//! Reading.

use bytes::{Buf, Bytes, BytesMut};
use thalweg_types::{Uuid, limits};

use super::{Form, Records};

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
    NegativeLength(i64),
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

type Result<T> = std::result::Result<T, DecodeError>;

/// Reads one frame from front to back.
///
/// The methods return `Short` when the value is not whole, and leave the position undefined after
/// any error: a frame that failed once is not read on.
#[derive(Debug)]
pub struct Decoder {
    buf: BytesMut,
    /// Bytes at the front of `buf` that are read.
    at: usize,
    /// Bytes that arrays may still take in memory.
    memory_left: usize,
}

/// A tagged section being read.
#[derive(Debug)]
pub struct Tag {
    left: u32,
    floor: u32,
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
        Decoder { buf: frame, at: 0, memory_left }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Ends the reading; bytes left over are an error.
    pub fn finish(self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.buf[self.at..].first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(DecodeError::Short { wanted: N, left: self.remaining() }),
        }
    }

    fn slice(&mut self, len: usize) -> Result<&[u8]> {
        let left = self.remaining();
        if len > left {
            return Err(DecodeError::Short { wanted: len, left });
        }
        self.at += len;
        Ok(&self.buf[self.at - len..self.at])
    }

    /// Splits `len` bytes off the frame; they share its memory.
    fn split(&mut self, len: usize) -> Result<BytesMut> {
        let left = self.remaining();
        if len > left {
            return Err(DecodeError::Short { wanted: len, left });
        }
        self.buf.advance(self.at);
        self.at = 0;
        Ok(self.buf.split_to(len))
    }

    /// One byte, 0 is false, anything else true.
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.take::<1>()? != [0])
    }

    /// One byte.
    pub fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_be_bytes(self.take()?))
    }

    /// Two bytes.
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    /// Four bytes.
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    /// Eight bytes.
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_be_bytes(self.take()?))
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid(self.take()?))
    }

    /// Unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            let low = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return Err(DecodeError::Varint);
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    /// Length written as `width` says, `None` for null.
    fn compact_length(&mut self) -> Result<Option<usize>> {
        Ok((self.uvarint()? as usize).checked_sub(1))
    }

    fn length_32(&mut self, form: Form) -> Result<Option<usize>> {
        match form {
            Form::Compact => self.compact_length(),
            Form::Classic => signed_length(i64::from(self.i32()?)),
        }
    }

    fn length_16(&mut self, form: Form) -> Result<Option<usize>> {
        match form {
            Form::Compact => self.compact_length(),
            Form::Classic => signed_length(i64::from(self.i16()?)),
        }
    }

    /// A string or null.
    pub fn string_opt(&mut self, form: Form) -> Result<Option<String>> {
        let Some(len) = self.length_16(form)? else { return Ok(None) };
        let text = std::str::from_utf8(self.slice(len)?).map_err(|_| DecodeError::Utf8)?;
        Ok(Some(text.to_owned()))
    }

    /// A string.
    pub fn string(&mut self, form: Form) -> Result<String> {
        self.string_opt(form)?.ok_or(DecodeError::Null)
    }

    /// Bytes or null, sharing the frame's memory.
    pub fn bytes_opt(&mut self, form: Form) -> Result<Option<Bytes>> {
        let Some(len) = self.length_32(form)? else { return Ok(None) };
        Ok(Some(self.split(len)?.freeze()))
    }

    /// Bytes, sharing the frame's memory.
    pub fn bytes(&mut self, form: Form) -> Result<Bytes> {
        self.bytes_opt(form)?.ok_or(DecodeError::Null)
    }

    /// Record batches or null, sharing the frame's memory and unique in it, so that they can be
    /// changed in place.
    pub fn records_opt(&mut self, form: Form) -> Result<Option<Records>> {
        let Some(len) = self.length_32(form)? else { return Ok(None) };
        Ok(Some(Records::Held(self.split(len)?)))
    }

    /// Record batches.
    pub fn records(&mut self, form: Form) -> Result<Option<Records>> {
        self.records_opt(form)?.map(Some).ok_or(DecodeError::Null)
    }

    /// An array or null. `min` is the fewest bytes one element takes; `read` gets `version`.
    pub fn array_opt<T>(
        &mut self,
        form: Form,
        min: usize,
        version: i16,
        read: fn(&mut Decoder, i16) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(count) = self.length_32(form)? else { return Ok(None) };
        self.admit(count, min, size_of::<T>())?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(read(self, version)?);
        }
        Ok(Some(elements))
    }

    /// An array; as [`Decoder::array_opt`].
    pub fn array<T>(
        &mut self,
        form: Form,
        min: usize,
        version: i16,
        read: fn(&mut Decoder, i16) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.array_opt(form, min, version, read)?.ok_or(DecodeError::Null)
    }

    /// Lets `count` elements through that take at least `min` bytes each here and `size` bytes each
    /// in memory.
    fn admit(&mut self, count: usize, min: usize, size: usize) -> Result<()> {
        let left = self.remaining();
        if count > left / min.max(1) {
            return Err(DecodeError::Count { count, left });
        }
        let memory = count.saturating_mul(size);
        self.memory_left = self.memory_left.checked_sub(memory).ok_or(DecodeError::Memory)?;
        Ok(())
    }

    /// A struct that may be null: one byte says which.
    pub fn struct_opt<T>(
        &mut self,
        version: i16,
        read: fn(&mut Decoder, i16) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.i8()? {
            1 => read(self, version).map(Some),
            below if below < 0 => Ok(None),
            other => Err(DecodeError::Presence(other)),
        }
    }

    /// Skips a tagged section of which no tag is known.
    pub fn skip_tags(&mut self, form: Form) -> Result<()> {
        let mut tags = self.tags(form)?;
        while self.next_tag(&mut tags)?.is_some() {
            self.skip_tag(&tags)?;
        }
        Ok(())
    }

    /// Starts a tagged section; empty in the classic form, which has none.
    pub fn tags(&mut self, form: Form) -> Result<Tag> {
        let count = match form {
            Form::Classic => 0,
            Form::Compact => self.uvarint()?,
        };
        // A tag and a size take a byte each at least.
        let left = self.remaining();
        if count as usize > left / 2 {
            return Err(DecodeError::Count { count: count as usize, left });
        }
        Ok(Tag { left: count, floor: 0, id: 0, size: 0, bytes_left_after: left })
    }

    /// Moves to the next tagged field and returns its tag. The one before must have been read to
    /// its end.
    pub fn next_tag(&mut self, tag: &mut Tag) -> Result<Option<u32>> {
        if self.remaining() != tag.bytes_left_after {
            let took = (tag.bytes_left_after + tag.size).saturating_sub(self.remaining());
            return Err(DecodeError::TagSize { tag: tag.id, size: tag.size, took });
        }
        if tag.left == 0 {
            return Ok(None);
        }
        tag.left -= 1;
        tag.id = self.uvarint()?;
        if tag.id < tag.floor {
            return Err(DecodeError::TagOrder(tag.id));
        }
        tag.floor = tag.id.saturating_add(1);
        tag.size = self.uvarint()? as usize;
        let left = self.remaining();
        tag.bytes_left_after = left
            .checked_sub(tag.size)
            .ok_or(DecodeError::Short { wanted: tag.size, left })?;
        Ok(Some(tag.id))
    }

    /// Skips the tagged field that [`Decoder::next_tag`] announced.
    pub fn skip_tag(&mut self, tag: &Tag) -> Result<()> {
        self.slice(tag.size).map(|_| ())
    }
}

fn signed_length(length: i64) -> Result<Option<usize>> {
    match length {
        -1 => Ok(None),
        _ => usize::try_from(length).map(Some).map_err(|_| DecodeError::NegativeLength(length)),
    }
}
