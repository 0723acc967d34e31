//! Bytes that no honest peer sends: no panic, and no memory out of proportion (rule BI-7).
//!
//! One test function only: memory is counted for the whole process.

use std::alloc::System;

use bytes::BytesMut;
use cap::Cap;
use thalweg_protocol::messages::{CODECS, Codec};
use thalweg_protocol::{frame, wire::DecodeError};
use thalweg_types::limits;

#[path = "../codegen/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../codegen/notation.rs"]
#[allow(dead_code)]
mod notation;
#[path = "codec/twin.rs"]
#[allow(dead_code)]
mod twin;

use twin::{Own, Rng, random_bytes};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What a small frame may cost above a multiple of its length.
const SLACK_BYTES: usize = 4 * 1024;
/// Largest struct in memory over its fewest bytes on the wire, with room.
const BYTES_PER_BYTE_MAX: usize = 200;

/// Runs `codec` over `bytes` and returns the bytes allocated on the way, freed ones too.
fn cost(codec: &Codec, bytes: &[u8], version: i16) -> usize {
    let frame = BytesMut::from(bytes);
    let before = MEMORY.total_allocated();
    let _ = codec.convert(frame, version, version);
    MEMORY.total_allocated() - before
}

fn check_cost(codec: &Codec, bytes: &[u8], version: i16) {
    let cost = cost(codec, bytes, version);
    let allowed = bytes.len() * BYTES_PER_BYTE_MAX + SLACK_BYTES;
    assert!(
        cost <= allowed,
        "{} v{version}: {cost} bytes allocated for {} received: {bytes:02x?}",
        codec.name,
        bytes.len()
    );
}

fn messages() -> Vec<model::Message> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/notation");
    std::fs::read_dir(dir)
        .expect("notation is there")
        .map(|entry| std::fs::read_to_string(entry.expect("entry").path()).expect("text"))
        .flat_map(|text| notation::parse(&text).expect("the build parsed it too"))
        .collect()
}

/// Every prefix, and every byte replaced by ones that matter for lengths and tags.
fn damage_valid_messages(rng: &mut Rng) {
    for message in &messages() {
        let codec = Codec::named(&message.name).expect("a codec");
        for version in codec.versions.clone() {
            let bytes = random_bytes(message, version, Own::Included, rng);
            let step = 1 + bytes.len() / 100;
            for cut in (0..bytes.len()).step_by(step) {
                check_cost(codec, &bytes[..cut], version);
            }
            for at in (0..bytes.len()).step_by(step) {
                let mut damaged = bytes.clone();
                for new in [0x00, 0x01, 0x7f, 0x80, 0xff, rng.next() as u8] {
                    damaged[at] = new;
                    check_cost(codec, &damaged, version);
                }
                if let Some(four) = damaged.get_mut(at..at + 4) {
                    four.copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
                    check_cost(codec, &damaged, version);
                }
            }
        }
    }
}

fn random_garbage(rng: &mut Rng) {
    for codec in CODECS {
        for version in codec.versions.clone() {
            for _ in 0..20 {
                let len = rng.below(200) as usize;
                // Small bytes get further into a message than evenly spread ones.
                let low = rng.one_in(2);
                let bytes: Vec<u8> = (0..len)
                    .map(|_| {
                        if low {
                            rng.below(4) as u8
                        } else {
                            rng.next() as u8
                        }
                    })
                    .collect();
                check_cost(codec, &bytes, version);
            }
        }
    }
}

/// A frame of the largest elements-per-byte kinds: empty compact strings and empty structs.
fn refuse_amplification() {
    let frame_len = 24 * 1024 * 1024;
    for (name, version, head) in [
        // Topics: an array of structs; then nothing but ones.
        ("MetadataRequest", 9, 4usize),
        ("DeleteTopicsRequest", 5, 4),
        ("FetchRequest", 18, 4),
    ] {
        let codec = Codec::named(name).expect("a codec");
        let bytes = vec![1u8; frame_len];
        // At each place where an array may start: a count of 8 million.
        for at in [0, head, 17, 21, 25] {
            let mut frame = bytes.clone();
            frame[at..at + 4].copy_from_slice(&[0x81, 0x80, 0x80, 0x04]);
            let cost = cost(codec, &frame, version);
            let allowed =
                limits::DECODED_MEMORY_BASE_BYTES + (limits::DECODED_MEMORY_FACTOR + 2) * frame_len;
            assert!(
                cost <= allowed,
                "{name} v{version}: {cost} bytes of {allowed}"
            );
        }
    }
    // Six million empty topic names would be 24 bytes each in memory.
    let mut bytes = vec![1u8; frame_len];
    bytes[..5].copy_from_slice(&[0x81, 0x80, 0x80, 0x03, 1]);
    let codec = Codec::named("DeleteTopicsRequest").expect("a codec");
    let answer = codec.convert(BytesMut::from(&bytes[..]), 5, 5);
    assert_eq!(answer, Err(DecodeError::Memory));
}

fn random_frames(rng: &mut Rng) {
    for _ in 0..20_000 {
        let len = rng.below(64) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        if len > 3 && rng.one_in(2) {
            bytes[0] = 0;
            bytes[1] = rng.below(95) as u8;
            bytes[2] = 0;
            bytes[3] = rng.below(20) as u8;
        }
        let _ = frame::decode_request_header(BytesMut::from(&bytes[..]), |_| Ok(()));
    }
}

#[test]
fn bi_7_hostile_bytes_neither_panic_nor_cost_more_than_their_share() {
    let mut rng = Rng(11);
    random_frames(&mut rng);
    random_garbage(&mut rng);
    damage_valid_messages(&mut rng);
    refuse_amplification();
}
