//! Kafka's primitive types on the wire: reading them within bounds, writing them.
//!
//! This room knows varints, strings, arrays and tagged sections, and no message. The generated
//! codec in [`crate::messages`] is written in these terms; `frame` and `records` use them too.
//!
//! # Bounds (rule BI-7)
//! A [`Decoder`] never believes a length: every count is compared with the bytes that are left
//! divided by the fewest bytes one element takes, before anything is reserved. Because an element
//! can be larger in memory than on the wire (an empty string is one byte there and 24 here), the
//! memory of arrays is metered as well: see [`Decoder::new`].
//!
//! # Errors
//! In both directions the first error sticks and is looked for at the end. That keeps the generated
//! code to straight lines, which builds in two thirds of the time that an early return per field
//! took. For the same reason what most fields call is not inlined.
//!
//! # Copies
//! `records` and `bytes` fields are split off the frame's buffer and share its memory. Strings are
//! copied, but for a client's name for itself. An [`Encoder`] leaves a [`Gap`] where record data comes from elsewhere.

mod decode;
mod encode;

pub use decode::{DecodeError, Decoder, Tag};
pub use encode::{EncodeError, Encoded, Encoder, Gap, TagMark};

use bytes::BytesMut;
use smallvec::SmallVec;
use std::fmt;

/// A list that nearly always has one element, which is kept in place; only more of them are allocated.
pub type Few<T> = SmallVec<[T; 1]>;

/// How lengths and counts are written (KIP-482).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Fixed-width lengths, -1 for null, no tagged section.
    Classic,
    /// Unsigned varints of length + 1, 0 for null; every struct ends with a tagged section.
    Compact,
}

impl Form {
    /// The form of `version` in a message that is flexible from `first_flexible` on.
    #[must_use]
    pub fn at(version: i16, first_flexible: i16) -> Form {
        if version >= first_flexible {
            Form::Compact
        } else {
            Form::Classic
        }
    }
}

/// Value of a `records` field: batches that the codec does not look into.
#[derive(Clone, PartialEq)]
pub enum Records {
    /// The bytes themselves. Decoding splits them off the frame without a copy; they may be
    /// changed in place. Encoding copies them.
    Held(BytesMut),
    /// So many bytes that are not here: encoding writes the length and leaves a [`Gap`].
    Extern(u32),
}

impl Records {
    /// Length in bytes on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Records::Held(bytes) => bytes.len(),
            Records::Extern(len) => *len as usize,
        }
    }

    /// True when there is not one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Records::Held(bytes) => write!(f, "Held({} bytes)", bytes.len()),
            Records::Extern(len) => write!(f, "Extern({len} bytes)"),
        }
    }
}
