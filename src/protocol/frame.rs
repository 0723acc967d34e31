//! Requests and responses as they stand in a connection: header, then body.
//!
//! On the wire a 4-byte size comes first. Encoding writes it; decoding gets the bytes after it.
//! Header versions follow from API and version: see [`ApiKey::request_header_version`].

use bytes::BytesMut;

use crate::api_key::ApiKey;
use crate::message::{Message, Request};
pub use crate::messages::RequestHeader;
use crate::wire::{DecodeError, Decoder, EncodeError, Encoded, Encoder, Form};

/// Room that most headers and small bodies fit in.
const FIRST_CAPACITY_BYTES: usize = 256;

/// Reads the header of a request; the decoder then stands at its body.
///
/// An API key that is not in Kafka's table is an error, a version out of range is not: the caller
/// answers or closes as the API asks (KIP-511 for ApiVersions).
pub fn decode_request_header(frame: BytesMut) -> Result<(RequestHeader, Decoder), DecodeError> {
    // Key and version come first in all header versions.
    let [k0, k1, v0, v1, ..] = frame[..] else {
        return Err(DecodeError::Short {
            wanted: 4,
            left: frame.len(),
        });
    };
    let key = ApiKey::try_from(i16::from_be_bytes([k0, k1]))?;
    let version = i16::from_be_bytes([v0, v1]);
    let mut decoder = Decoder::new(frame);
    let header = RequestHeader::decode(&mut decoder, key.request_header_version(version))?;
    Ok((header, decoder))
}

/// Writes a whole request with its size.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Encoded, EncodeError> {
    let header = RequestHeader {
        api_key: R::KEY as i16,
        api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
    };
    let mut encoder = Encoder::with_capacity(FIRST_CAPACITY_BYTES);
    encoder.i32(0);
    header.encode(&mut encoder, R::KEY.request_header_version(version))?;
    request.encode(&mut encoder, version)?;
    encoder.patch_size()?;
    Ok(encoder.finish())
}

/// Writes a whole response with its size; gaps count in it.
pub fn encode_response<M: Message>(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &M,
) -> Result<Encoded, EncodeError> {
    let mut encoder = Encoder::with_capacity(FIRST_CAPACITY_BYTES);
    encoder.i32(0);
    encoder.i32(correlation_id);
    if key.response_header_version(version) >= 1 {
        encoder.no_tags(Form::Compact);
    }
    body.encode(&mut encoder, version)?;
    encoder.patch_size()?;
    Ok(encoder.finish())
}

/// Reads a whole response to a request `R` of `version`: its correlation id and body.
pub fn decode_response<R: Request>(
    frame: BytesMut,
    version: i16,
) -> Result<(i32, R::Response), DecodeError> {
    let mut decoder = Decoder::new(frame);
    let correlation_id = decoder.i32();
    if R::KEY.response_header_version(version) >= 1 {
        decoder.skip_tags(Form::Compact);
    }
    let body = R::Response::decode(&mut decoder, version)?;
    decoder.finish()?;
    Ok((correlation_id, body))
}
