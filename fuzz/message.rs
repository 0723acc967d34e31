//! The message codec (BI-7, BI-17).

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_protocol::ApiKey;
use thalweg_protocol::frame::decode_request_header;
use thalweg_protocol::messages::{CODECS, Codec};

/// The first byte picks the API, the second the version (a few versions beyond the range too); the
/// rest is the frame from the correlation id on.
pub fn requests(data: &[u8]) {
    let [key, version, rest @ ..] = data else {
        return;
    };
    let key = ApiKey::ALL[usize::from(*key) % ApiKey::ALL.len()];
    let Some(codec) = Codec::named(&format!("{}Request", key.name())) else {
        return;
    };
    let version = pick_version(codec, *version);
    let mut frame = BytesMut::new();
    frame.put_i16(key as i16);
    frame.put_i16(version);
    frame.put_slice(rest);
    let whole = frame.clone();
    let Ok((head, decoder)) = decode_request_header(frame, |id| str::from_utf8(id).map(drop))
    else {
        return;
    };
    assert_eq!((head.key, head.version), (key, version));
    let body = &whole[whole.len() - decoder.remaining()..];
    convert(codec, version, body);
}

/// The first byte picks the message (requests, answers, headers, metadata records), the second the
/// version; the rest is its body.
pub fn messages(data: &[u8]) {
    let [which, version, body @ ..] = data else {
        return;
    };
    let codec = &CODECS[usize::from(*which) % CODECS.len()];
    convert(codec, pick_version(codec, *version), body);
}

fn pick_version(codec: &Codec, byte: u8) -> i16 {
    let (first, last) = (*codec.versions.start(), *codec.versions.end());
    let span = last - first + 3;
    first - 1 + i16::from(byte) % span
}

/// What decodes can be written and reads back as the same.
fn convert(codec: &Codec, version: i16, body: &[u8]) {
    let Ok(written) = codec.convert(BytesMut::from(body), version, version) else {
        return;
    };
    let Ok(first) = written else {
        // Some values that may be received may not be sent, for example null for a key field.
        return;
    };
    assert!(
        first.gaps.is_empty(),
        "{} v{version}: what was held is written whole",
        codec.name
    );
    let again = codec.convert(BytesMut::from(&first.bytes[..]), version, version);
    let second = match again {
        Ok(Ok(second)) => second.bytes,
        other => panic!(
            "{} v{version}: own bytes do not read back: {other:?}",
            codec.name
        ),
    };
    assert!(
        first.bytes == second,
        "{} v{version}: not a fixed point",
        codec.name
    );
    let _: Bytes = second;
}
