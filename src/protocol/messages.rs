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
use crate::wire::{DecodeError, Decoder, EncodeError, Encoded, Encoder, Few, Form, Records};

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
    convert: Convert,
}

type Convert =
    fn(&mut Decoder, i16, &mut Encoder, i16) -> Result<Result<(), EncodeError>, DecodeError>;

impl Codec {
    const fn of<M: Message>() -> Codec {
        Codec {
            name: M::NAME,
            versions: M::VERSIONS,
            flexible_from: M::FLEXIBLE_FROM,
            convert: convert::<M>,
        }
    }

    /// Decodes all of `bytes` in version `from` and encodes the value in version `to`.
    pub fn convert(
        &self,
        bytes: BytesMut,
        from: i16,
        to: i16,
    ) -> Result<Result<Encoded, EncodeError>, DecodeError> {
        let (mut decoder, mut encoder) = (Decoder::new(bytes), Encoder::new());
        let written = (self.convert)(&mut decoder, from, &mut encoder, to)?;
        decoder.finish()?;
        Ok(written.map(|()| encoder.finish()))
    }

    /// The codec of a message by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Codec> {
        CODECS.iter().find(|codec| codec.name == name)
    }
}

fn convert<M: Message>(
    decoder: &mut Decoder,
    from: i16,
    encoder: &mut Encoder,
    to: i16,
) -> Result<Result<(), EncodeError>, DecodeError> {
    match M::decode(decoder, from) {
        Ok(message) => Ok(message.encode(encoder, to)),
        Err(error) => Err(error),
    }
}

fn check_decode(d: &mut Decoder, message: &'static str, versions: RangeInclusive<i16>, v: i16) {
    if !versions.contains(&v) {
        d.fail(DecodeError::Version {
            message,
            version: v,
        });
    }
}

fn check_encode(e: &mut Encoder, message: &'static str, versions: RangeInclusive<i16>, v: i16) {
    if !versions.contains(&v) {
        e.fail(EncodeError::Version {
            message,
            version: v,
        });
    }
}
