//! Kafka's messages, generated at build time from `notation/*.api` (docs/formats/notation.md).
//!
//! A request `Fetch` is [`FetchRequest`], its answer [`FetchResponse`]; structs inside them stand
//! in a module of the message's name, for example `fetch_request::FetchTopic`. `Default` gives the
//! protocol's defaults, and each field's documentation says in which versions it is on the wire.
//!
//! # Versions
//! One struct serves all versions. Decoding leaves fields that the version does not have at their
//! default. Encoding drops an *ignorable* value silently when the version has no place for it and
//! refuses another with [`EncodeError::NoPlace`]. Tagged fields with default values are omitted;
//! unknown ones are skipped.

// The generated text repeats what is right for all messages: a function per struct, however long
// its table is, and the names of the parent module in each child.
#![allow(clippy::too_many_lines, clippy::wildcard_imports)]

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use thalweg_types::Uuid;

use crate::api_key::ApiKey;
use crate::message::{Message, MetadataRecord, Request};
use crate::wire::{DecodeError, Decoder, Encoded, EncodeError, Encoder, Form, Records};

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// One message's codec without its type, for tests, fuzzing and tools.
#[derive(Debug, Clone)]
pub struct Codec {
    /// Name of the message, for example `FetchRequest`.
    pub name: &'static str,
    /// Versions that the codec knows.
    pub versions: RangeInclusive<i16>,
    /// First flexible version.
    pub flexible_from: Option<i16>,
    /// Decodes all the bytes in the first version and encodes the value in the second.
    pub convert: fn(BytesMut, i16, i16) -> Result<Result<Encoded, EncodeError>, DecodeError>,
}

impl Codec {
    const fn of<M: Message>() -> Codec {
        Codec {
            name: M::NAME,
            versions: M::VERSIONS,
            flexible_from: M::FLEXIBLE_FROM,
            convert: convert::<M>,
        }
    }

    /// The codec of a message by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Codec> {
        CODECS.iter().find(|codec| codec.name == name)
    }
}

fn convert<M: Message>(
    bytes: BytesMut,
    from: i16,
    to: i16,
) -> Result<Result<Encoded, EncodeError>, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let message = M::decode(&mut decoder, from)?;
    decoder.finish()?;
    let mut encoder = Encoder::new();
    Ok(message.encode(&mut encoder, to).map(|()| encoder.finish()))
}

fn check_decode<M: Message>(version: i16) -> Result<(), DecodeError> {
    if M::VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(DecodeError::Version { message: M::NAME, version })
}

fn check_encode<M: Message>(version: i16) -> Result<(), EncodeError> {
    if M::VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(EncodeError::Version { message: M::NAME, version })
}

#[cold]
fn no_place(field: &'static str, version: i16) -> Result<(), EncodeError> {
    Err(EncodeError::NoPlace { field, version })
}

#[cold]
fn null(field: &'static str, version: i16) -> Result<(), EncodeError> {
    Err(EncodeError::Null { field, version })
}
