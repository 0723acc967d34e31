//! Our bytes through the `kafka-protocol` crate, and its bytes through ours.
//!
//! Random values are made as bytes by the twin. If both codecs give the same bytes back, each
//! reads what the other one writes. Versions that the crate does not know are left to `vectors`.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as _, VersionRange};
use thalweg_protocol::messages::Codec;

use crate::all_messages;
use crate::model::Message;
use crate::twin::{Own, Rng, random_bytes};

const ROUNDS: u64 = 40;

include!(concat!(env!("OUT_DIR"), "/every_api.rs"));

fn compare<T: Decodable + Encodable>(message: &Message, theirs: VersionRange, rng: &mut Rng) {
    let codec = Codec::named(&message.name).expect("a codec");
    let name = &message.name;
    for version in codec
        .versions
        .clone()
        .filter(|v| (theirs.min..=theirs.max).contains(v))
    {
        for _ in 0..ROUNDS {
            let made = random_bytes(message, version, Own::Included, rng);
            let mut input = Bytes::copy_from_slice(&made);
            let value = T::decode(&mut input, version)
                .unwrap_or_else(|e| panic!("{name} v{version}: {e}: {made:02x?}"));
            assert!(input.is_empty(), "{name} v{version}");
            let mut output = BytesMut::new();
            value
                .encode(&mut output, version)
                .unwrap_or_else(|e| panic!("{name} v{version}: {e}"));
            assert_eq!(output, made, "{name} v{version}: their bytes");
            let ours = codec
                .convert(output, version, version)
                .expect("decoded")
                .expect("encoded");
            assert_eq!(ours.bytes, made, "{name} v{version}: our bytes");
        }
    }
}

#[test]
fn both_codecs_read_what_the_other_writes() {
    let messages = all_messages();
    let (mut rng, mut compared) = (Rng(3), 0);
    macro_rules! each {
        ($name:ident) => {
            let message = messages
                .iter()
                .find(|m| m.name == stringify!($name))
                .expect("known");
            compare::<theirs::$name>(message, theirs::$name::VERSIONS, &mut rng);
            compared += 1;
        };
    }
    every_api!(each);
    assert!(compared >= 20);
}

/// Versions that we know and the crate does not, as `name version`.
pub fn beyond() -> BTreeSet<String> {
    let mut beyond = BTreeSet::new();
    macro_rules! each {
        ($name:ident) => {
            let theirs = theirs::$name::VERSIONS;
            let codec = Codec::named(stringify!($name)).expect("a codec");
            for version in codec.versions.clone() {
                if !(theirs.min..=theirs.max).contains(&version) {
                    beyond.insert(format!("{} {version}", codec.name));
                }
            }
        };
    }
    every_api!(each);
    beyond
}

#[test]
fn what_the_crate_does_not_know_is_among_the_vectors() {
    let covered = crate::vectors::covered();
    let missing: Vec<_> = beyond().difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "checked by nobody: {missing:?}");
}
