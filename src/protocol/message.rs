//! What every message can do.

use std::ops::RangeInclusive;

use crate::api_key::ApiKey;
use crate::wire::{DecodeError, Decoder, EncodeError, Encoder};

/// A value with a place on the wire, in one or more versions.
pub trait Message: Sized {
    /// Kafka's name with the kind at its end, for example `FetchRequest`.
    const NAME: &'static str;
    /// Versions that the codec knows. What the broker advertises is decided elsewhere.
    const VERSIONS: RangeInclusive<i16>;
    /// First version with compact lengths and tagged fields (KIP-482).
    const FLEXIBLE_FROM: Option<i16>;

    /// Reads one value. Bytes after it stay in `d`; [`Decoder::finish`] refuses them.
    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Appends this value to `e`. After an error what `e` holds is of no use.
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>;
}

/// A message that a client sends.
pub trait Request: Message {
    /// The API.
    const KEY: ApiKey;
    /// Its answer; same versions.
    type Response: Message;
}

/// A record of the metadata log (KRaft): the body without its frame.
pub trait MetadataRecord: Message {
    /// The record type in the frame.
    const TYPE: u32;
}
