//! What must not be read or written.

use bytes::{Bytes, BytesMut};
use thalweg_protocol::messages::{
    ApiVersionsResponse, FetchResponse, MetadataRequest, MetadataResponse, ProduceRequest,
    RequestHeader, SaslAuthenticateRequest, fetch_response, metadata_request, metadata_response,
};
use thalweg_protocol::wire::{DecodeError, Decoder, EncodeError, Encoder, Form, Gap};
use thalweg_protocol::{ApiKey, Message, Records, frame};

fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, DecodeError> {
    let mut decoder = Decoder::new(BytesMut::from(bytes));
    let message = M::decode(&mut decoder, version)?;
    decoder.finish().map(|()| message)
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder, version)?;
    Ok(encoder.finish().bytes.to_vec())
}

#[test]
fn bi_7_a_count_beyond_the_bytes_left_is_refused() {
    // Two topic names at least two bytes each can not be in three bytes.
    let bytes = [0, 0, 0, 2, 0, 1, b'a'];
    let error = DecodeError::Count { count: 2, left: 3 };
    assert_eq!(decode::<MetadataRequest>(&bytes, 0), Err(error));
    let huge = [0x7f, 0xff, 0xff, 0xff];
    assert!(matches!(
        decode::<MetadataRequest>(&huge, 0),
        Err(DecodeError::Count { .. })
    ));
    let negative = [0x80, 0, 0, 0];
    assert_eq!(
        decode::<MetadataRequest>(&negative, 0),
        Err(DecodeError::NegativeLength(i32::MIN))
    );
}

#[test]
fn bi_7_null_is_refused_where_the_version_has_none() {
    let null = [0xff; 4];
    assert_eq!(decode::<MetadataRequest>(&null, 0), Err(DecodeError::Null));
    assert_eq!(
        decode::<MetadataRequest>(&null, 1).map(|m| m.topics),
        Ok(None)
    );
    assert_eq!(
        decode::<SaslAuthenticateRequest>(&null, 0),
        Err(DecodeError::Null)
    );
    let request = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    let field = "MetadataRequest.topics";
    assert_eq!(
        encode(&request, 0),
        Err(EncodeError::Null { field, version: 0 })
    );
}

#[test]
fn bi_7_trailing_bytes_are_refused() {
    assert_eq!(
        decode::<MetadataRequest>(&[0, 0, 0, 0, 9], 0),
        Err(DecodeError::Trailing(1))
    );
}

#[test]
fn bi_7_tags_rise_and_keep_to_their_size() {
    // SaslAuthenticate 2: compact bytes, then tags.
    let with_tags =
        |tags: &[u8]| decode::<SaslAuthenticateRequest>(&[&[1][..], tags].concat(), 2).map(|_| ());
    assert_eq!(with_tags(&[0]), Ok(()));
    assert_eq!(
        with_tags(&[2, 5, 1, 0, 7, 0]),
        Ok(()),
        "unknown tags are skipped"
    );
    assert_eq!(with_tags(&[2, 5, 0, 5, 0]), Err(DecodeError::TagOrder(5)));
    assert_eq!(with_tags(&[2, 5, 0, 4, 0]), Err(DecodeError::TagOrder(4)));
    assert!(matches!(
        with_tags(&[1, 5, 9, 0]),
        Err(DecodeError::Short { .. })
    ));
    assert!(matches!(
        with_tags(&[9, 5, 0]),
        Err(DecodeError::Count { .. })
    ));
    let last = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let twice = [&[2][..], &last, &[0], &last, &[0]].concat();
    assert_eq!(with_tags(&twice), Err(DecodeError::TagOrder(u32::MAX)));
}

#[test]
fn bi_7_a_known_tag_fills_exactly_its_size() {
    let response = ApiVersionsResponse {
        zk_migration_ready: true,
        ..Default::default()
    };
    let good = encode(&response, 3).expect("encoded");
    assert_eq!(decode::<ApiVersionsResponse>(&good, 3), Ok(response));
    // The tag's size is the last byte but one.
    let mut bad = good.clone();
    let size_at = bad.len() - 2;
    bad[size_at] = 0;
    let error = DecodeError::TagSize {
        tag: 3,
        size: 0,
        took: 1,
    };
    assert_eq!(decode::<ApiVersionsResponse>(&bad, 3), Err(error));
    bad[size_at] = 2;
    bad.push(0);
    let error = DecodeError::TagSize {
        tag: 3,
        size: 2,
        took: 1,
    };
    assert_eq!(decode::<ApiVersionsResponse>(&bad, 3), Err(error));
}

#[test]
fn varints_end_within_their_type() {
    let mut decoder = Decoder::new(BytesMut::from(&[0xff, 0xff, 0xff, 0xff, 0x0f][..]));
    assert_eq!(decoder.uvarint(), u32::MAX);
    assert_eq!(decoder.finish(), Ok(()));
    for bad in [
        [0xff, 0xff, 0xff, 0xff, 0x1f],
        [0x80, 0x80, 0x80, 0x80, 0x80],
    ] {
        let mut decoder = Decoder::new(BytesMut::from(&bad[..]));
        assert_eq!(decoder.uvarint(), 0);
        assert_eq!(decoder.check(), Err(DecodeError::Varint));
    }
}

#[test]
fn the_first_error_sticks_and_nothing_is_left() {
    let mut decoder = Decoder::new(BytesMut::from(&[0xff, 0xfe, 1, 2, 3][..]));
    assert_eq!(decoder.string_opt(Form::Classic), None);
    assert_eq!((decoder.i8(), decoder.remaining()), (0, 0));
    assert_eq!(decoder.finish(), Err(DecodeError::NegativeLength(-2)));
}

#[test]
fn a_value_without_a_place_is_refused_unless_it_is_ignorable() {
    let mut response = FetchResponse {
        session_id: 7,
        ..Default::default()
    };
    let field = "FetchResponse.session_id";
    assert_eq!(
        encode(&response, 6),
        Err(EncodeError::NoPlace { field, version: 6 })
    );
    assert!(encode(&response, 7).is_ok());
    response.session_id = 0;
    response.throttle_time_ms = 5;
    assert!(encode(&response, 4).is_ok());
    let error = EncodeError::Version {
        message: "FetchResponse",
        version: 3,
    };
    assert_eq!(encode(&response, 3), Err(error));
    let error = DecodeError::Version {
        message: "ProduceRequest",
        version: 2,
    };
    assert_eq!(decode::<ProduceRequest>(&[], 2), Err(error));
}

#[test]
fn a_string_keeps_to_its_length_field() {
    let topics = Some(vec![metadata_request::MetadataRequestTopic {
        name: Some("x".repeat(32_768)),
        ..Default::default()
    }]);
    let request = MetadataRequest {
        topics,
        ..Default::default()
    };
    assert_eq!(encode(&request, 1), Err(EncodeError::TooLong(32_768)));
    assert_eq!(encode(&request, 12), Err(EncodeError::TooLong(32_768)));
}

#[test]
fn records_are_split_off_without_a_copy_and_external_ones_leave_gaps() {
    let partition = |records| fetch_response::PartitionData {
        records,
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            partitions: vec![
                partition(Some(Records::Extern(1_000))),
                partition(Some(Records::Extern(0))),
                partition(None),
                partition(Some(Records::Extern(5))),
            ],
            ..Default::default()
        }],
        ..Default::default()
    };
    for version in [4, 12, 18] {
        let encoded =
            frame::encode_response(ApiKey::Fetch, version, 3, &response).expect("encoded");
        let lengths: Vec<u32> = encoded.gaps.iter().map(|g| g.len).collect();
        assert_eq!(lengths, [1_000, 5]);
        let mut whole = BytesMut::new();
        let mut from = 0;
        for Gap { at, len } in &encoded.gaps {
            whole.extend_from_slice(&encoded.bytes[from..*at]);
            whole.extend_from_slice(&vec![0xab; *len as usize]);
            from = *at;
        }
        whole.extend_from_slice(&encoded.bytes[from..]);
        assert_eq!(whole.len(), encoded.total_len());
        let size = whole.split_to(4);
        assert_eq!(size[..], (whole.len() as u32).to_be_bytes());
        let memory = whole.as_ptr_range();
        let (id, back) =
            frame::decode_response::<thalweg_protocol::messages::FetchRequest>(whole, version)
                .expect("decoded");
        assert_eq!(id, 3);
        let Some(Records::Held(first)) = &back.responses[0].partitions[0].records else {
            panic!("no records");
        };
        assert_eq!(first[..], [0xab; 1_000]);
        assert!(memory.contains(&first.as_ptr()), "the records were copied");
    }
}

#[test]
fn request_headers_are_version_1_or_2_and_the_client_id_stays_classic() {
    let header = RequestHeader {
        api_key: ApiKey::ApiVersions as i16,
        api_version: 9,
        correlation_id: 4,
        client_id: Some("me".into()),
    };
    // Version 9 of ApiVersions does not exist; its header is readable all the same (KIP-511).
    let bytes = encode(&header, 2).expect("encoded");
    assert_eq!(bytes, b"\0\x12\0\x09\0\0\0\x04\0\x02me\0");
    let owned = |id: &[u8]| str::from_utf8(id).map(str::to_owned);
    let (back, body) =
        frame::decode_request_header(BytesMut::from(&bytes[..]), owned).expect("decoded");
    assert_eq!(
        (back.key as i16, back.version, back.correlation_id),
        (header.api_key, header.api_version, header.correlation_id)
    );
    assert_eq!((back.client_id, body.remaining()), (header.client_id, 0));
    let foreign = BytesMut::from(&b"\0\x12\0\0\0\0\0\x04\0\x01\xff"[..]);
    assert_eq!(
        frame::decode_request_header(foreign, owned).err(),
        Some(DecodeError::Utf8)
    );
    let unknown = BytesMut::from(&[0x7f, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..]);
    assert_eq!(
        frame::decode_request_header(unknown, owned).err(),
        Some(DecodeError::ApiKey(0x7fff))
    );
    let short = BytesMut::from(&[0, 1, 0][..]);
    assert!(matches!(
        frame::decode_request_header(short, owned),
        Err(DecodeError::Short { .. })
    ));
}

#[test]
fn the_answer_to_api_versions_has_the_oldest_header() {
    let body = ApiVersionsResponse::default();
    let encoded = frame::encode_response(ApiKey::ApiVersions, 3, 1, &body).expect("encoded");
    // Size, correlation id, then the error code at once.
    assert_eq!(encoded.bytes[4..10], [0, 0, 0, 1, 0, 0]);
    assert_eq!(encoded.bytes.len(), 4 + 4 + 2 + 1 + 4 + 1);
}

#[test]
fn default_tagged_fields_are_omitted() {
    let bytes = encode(&ApiVersionsResponse::default(), 4).expect("encoded");
    assert_eq!(bytes.last(), Some(&0), "no tags");
}

#[test]
fn our_own_core_hint_travels_as_a_tag_that_others_skip() {
    let response = |core| MetadataResponse {
        topics: vec![metadata_response::MetadataResponseTopic {
            partitions: vec![metadata_response::MetadataResponsePartition {
                core,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let (with, without) = (response(3), response(-1));
    for version in 9..=13 {
        let bytes = encode(&with, version).expect("encoded");
        assert_eq!(
            decode::<MetadataResponse>(&bytes, version).as_ref(),
            Ok(&with)
        );
        let plain = encode(&without, version).expect("encoded");
        // Tag 29800 in three bytes, its size in one, four bytes of value.
        assert_eq!(bytes.len(), plain.len() + 8);
    }
    assert_eq!(
        encode(&with, 8),
        encode(&without, 8),
        "older versions drop it"
    );
}

#[test]
fn bytes_share_the_frame() {
    let frame = BytesMut::from(&[0, 0, 0, 3, 1, 2, 3][..]);
    let memory = frame.as_ptr_range();
    let mut decoder = Decoder::new(frame);
    let request = SaslAuthenticateRequest::decode(&mut decoder, 0).expect("decoded");
    assert_eq!(request.auth_bytes, Bytes::from_static(&[1, 2, 3]));
    assert!(memory.contains(&request.auth_bytes.as_ptr()));
}
