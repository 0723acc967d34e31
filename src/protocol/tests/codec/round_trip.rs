//! Random valid bytes of every message and version come back equal; conversion between versions
//! either refuses or is stable.

use bytes::BytesMut;
use thalweg_protocol::messages::{CODECS, Codec};

use crate::all_messages;
use crate::twin::{Own, Rng, random_bytes};

const ROUNDS: u64 = 60;

#[test]
fn every_message_of_the_notation_has_a_codec() {
    let names: Vec<String> = all_messages().into_iter().map(|m| m.name).collect();
    let codecs: Vec<&str> = CODECS.iter().map(|c| c.name).collect();
    assert_eq!(names, codecs);
}

#[test]
fn random_values_come_back_equal_in_every_version() {
    let mut rng = Rng(1);
    for message in &all_messages() {
        let codec = Codec::named(&message.name).expect("a codec");
        for version in codec.versions.clone() {
            for _ in 0..ROUNDS {
                let bytes = random_bytes(message, version, Own::Included, &mut rng);
                let back = codec.convert(BytesMut::from(&bytes[..]), version, version);
                match back {
                    Ok(Ok(encoded)) => {
                        assert_eq!(encoded.bytes, bytes, "{} v{version}", codec.name);
                        assert!(encoded.gaps.is_empty());
                    }
                    other => panic!("{} v{version}: {other:?} of {bytes:02x?}", codec.name),
                }
            }
        }
    }
}

#[test]
fn a_value_read_in_one_version_is_written_in_another_or_refused() {
    let mut rng = Rng(2);
    let (mut written, mut refused) = (0, 0);
    for message in &all_messages() {
        let codec = Codec::named(&message.name).expect("a codec");
        for from in codec.versions.clone() {
            let bytes = random_bytes(message, from, Own::Included, &mut rng);
            for to in codec.versions.clone() {
                let converted = codec
                    .convert(BytesMut::from(&bytes[..]), from, to)
                    .unwrap_or_else(|e| panic!("{} v{from}: {e}", codec.name));
                let Ok(first) = converted else {
                    refused += 1;
                    continue;
                };
                written += 1;
                let second = codec.convert(BytesMut::from(&first.bytes[..]), to, to);
                assert_eq!(second, Ok(Ok(first)), "{} v{from} to v{to}", codec.name);
            }
        }
    }
    assert!(
        written > 500 && refused > 100,
        "{written} written, {refused} refused"
    );
}
