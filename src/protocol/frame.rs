//! Requests and responses as they stand in a connection: header, then body.
//!
//! On the wire a 4-byte size comes first. Encoding writes it; decoding gets the bytes after it.
//! Header versions follow from API and version: see [`ApiKey::request_header_version`].

use std::cell::Cell;
use std::str::Utf8Error;

use bytes::BytesMut;
use thalweg_types::limits::DRAFT_BYTES_MAX;

use crate::api_key::ApiKey;
use crate::message::{Message, Request};
use crate::messages::RequestHeader;
use crate::wire::{DecodeError, Decoder, EncodeError, Encoded, Encoder, Form};

thread_local! {
    /// What answers are written into, whose size is not known before. A small one is copied out of it into memory of
    /// just its size, which takes one allocation where a buffer that was handed on took two.
    static DRAFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room that most headers and small bodies fit in.
const FIRST_CAPACITY_BYTES: usize = 256;

/// What stands before the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead<C> {
    /// The API.
    pub key: ApiKey,
    /// Its version.
    pub version: i16,
    /// Comes back with the answer.
    pub correlation_id: i32,
    /// What was kept of the client's name for itself, if it said one.
    pub client_id: Option<C>,
}

/// Reads the header of a request; the decoder then stands at its body. `client_id` makes of the client's name
/// for itself, which lies in the frame, what is to be kept of it, and says whether it is UTF-8: it is the same in
/// request after request.
///
/// An API key that is not in Kafka's table is an error, a version out of range is not: the caller
/// answers or closes as the API asks (KIP-511 for ApiVersions).
pub fn decode_request_header<C>(
    frame: BytesMut,
    client_id: impl FnOnce(&[u8]) -> Result<C, Utf8Error>,
) -> Result<(RequestHead<C>, Decoder), DecodeError> {
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
    decoder.i32();
    let head = RequestHead {
        key,
        version,
        correlation_id: decoder.i32(),
        client_id: decoder.string_by(Form::Classic, client_id),
    };
    if key.request_header_version(version) >= 2 {
        decoder.skip_tags(Form::Compact);
    }
    decoder.check()?;
    Ok((head, decoder))
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
    let mut encoder = Encoder::over(DRAFT.take());
    encoder.i32(0);
    encoder.i32(correlation_id);
    if key.response_header_version(version) >= 1 {
        encoder.no_tags(Form::Compact);
    }
    body.encode(&mut encoder, version)?;
    encoder.patch_size()?;
    if encoder.len() > DRAFT_BYTES_MAX {
        return Ok(encoder.finish());
    }
    let (encoded, draft) = encoder.finish_copy();
    DRAFT.set(draft);
    Ok(encoded)
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use thalweg_types::limits::DRAFT_BYTES_MAX;

    use super::{decode_response, encode_response};
    use crate::messages::{
        FetchResponse, ProduceRequest, ProduceResponse, fetch_response, produce_response,
    };
    use crate::wire::{DecodeError, Decoder, Records};
    use crate::{ApiKey, Message};

    fn produced(topics: usize) -> ProduceResponse {
        let topic = |n| produce_response::TopicProduceResponse {
            name: format!("topic-{n}"),
            partition_responses: [Default::default()].into(),
            ..Default::default()
        };
        ProduceResponse {
            responses: (0..topics).map(topic).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn answers_of_all_sizes_follow_each_other() {
        for topics in [1, 0, 3, 1_000, 1, 200, 0, 1] {
            let answer = produced(topics);
            let encoded = encode_response(ApiKey::Produce, 12, 7, &answer).expect("encoded");
            let (size, frame) = encoded.bytes.split_at(4);
            assert_eq!(size, (frame.len() as u32).to_be_bytes());
            assert_eq!(topics >= 200, frame.len() > DRAFT_BYTES_MAX);
            let back = decode_response::<ProduceRequest>(BytesMut::from(frame), 12);
            assert_eq!(back, Ok((7, answer)), "{topics} topics");
        }
    }

    #[test]
    fn an_answer_that_can_not_be_written_spoils_none_after_it() {
        let gap = fetch_response::PartitionData {
            records: Some(Records::Extern(5)),
            ..Default::default()
        };
        let topic = fetch_response::FetchableTopicResponse {
            partitions: vec![gap],
            ..Default::default()
        };
        let fetched = FetchResponse {
            responses: vec![topic],
            ..Default::default()
        };
        let first = encode_response(ApiKey::Fetch, 12, 1, &fetched).expect("encoded");
        assert_eq!(first.gaps.len(), 1);
        assert!(encode_response(ApiKey::Fetch, i16::MAX, 2, &fetched).is_err());
        let again = encode_response(ApiKey::Fetch, 12, 1, &fetched);
        assert_eq!(again, Ok(first));
    }

    #[test]
    fn a_list_of_few_is_never_null() {
        let null = &b"\xff\xff\0\x01\0\0\0\0\xff\xff\xff\xff"[..];
        let mut decoder = Decoder::new(BytesMut::from(null));
        let decoded = ProduceRequest::decode(&mut decoder, 3);
        assert_eq!(decoded, Err(DecodeError::Null));
    }
}
