//! BI-14: small batches that would become large, in each codec, and lies about sizes.

use std::io::Write;

use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};

use super::{check, rules, with_payload, with_records};
use crate::ErrorCode;
use crate::records::varint::{len_i32, put_i32};
use crate::records::{
    BATCH_HEADER_BYTES, Codec, DecompressError, Refusal, decompress, validate_produce,
};

const MIB: usize = 1 << 20;

/// The bytes of a record up to its value of `value_bytes`, and those after it.
fn record_around(index: i32, value_bytes: i32) -> (Vec<u8>, Vec<u8>) {
    let mut body = vec![0, 0]; // attributes, timestamp delta
    put_i32(&mut body, index);
    put_i32(&mut body, -1);
    put_i32(&mut body, value_bytes);
    let mut head = Vec::new();
    // One more byte: the header count behind the value.
    put_i32(&mut head, body.len() as i32 + value_bytes + 1);
    assert_eq!(head.len(), len_i32(body.len() as i32 + value_bytes + 1));
    head.extend_from_slice(&body);
    (head, vec![0])
}

/// `count` well-formed records of a MiB of zeros each.
fn zeros(count: i32) -> Vec<u8> {
    let mut out = Vec::new();
    for index in 0..count {
        let (head, tail) = record_around(index, MIB as i32);
        out.extend_from_slice(&head);
        out.resize(out.len() + MIB, 0);
        out.extend_from_slice(&tail);
    }
    out
}

#[test]
fn bombs_end_at_the_output_limit_in_every_codec() {
    let records = zeros(24);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = with_records(codec, 24, &records);
        let mut tight = rules();
        tight.max_batch_bytes = usize::MAX;
        tight.decompressed_bytes_max = 3 * MIB;
        let refusal = validate_produce(&batch, &tight).expect_err("beyond the limit");
        assert_eq!(
            refusal,
            Refusal::DecompressedTooLarge { limit: 3 * MIB },
            "{codec:?}"
        );
        assert_eq!(refusal.error_code(), ErrorCode::MessageTooLarge);
        let payload = &batch[BATCH_HEADER_BYTES..];
        assert_eq!(
            decompress(codec, payload, 3 * MIB),
            Err(DecompressError::TooLarge { limit: 3 * MIB })
        );
    }
    // Uncompressed, nothing is multiplied.
    let mut roomy = rules();
    roomy.max_batch_bytes = usize::MAX;
    assert!(validate_produce(&with_records(Codec::None, 24, &records), &roomy).is_ok());
}

#[test]
fn a_small_batch_may_not_become_large_by_ratio() {
    // 24 MiB of zeros in a few KB of zstd: below 128 MiB, and still refused at 16 MiB.
    let batch = with_records(Codec::Zstd, 24, &zeros(24));
    assert!(batch.len() < 64 * 1024);
    assert_eq!(
        check(&batch),
        Err(Refusal::DecompressedTooLarge { limit: 16 * MIB })
    );
    // Ten of them are honest enough.
    assert!(check(&with_records(Codec::Zstd, 10, &zeros(10))).is_ok());
}

/// A zstd frame by hand: raw blocks for what must be said, run-length blocks for the rest.
fn zstd_by_hand(records: i32) -> Vec<u8> {
    const RUN: usize = 128 * 1024;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58]; // 2 MiB window
    let block = |out: &mut Vec<u8>, kind: u32, size: usize, last: u32| {
        let header = last | kind << 1 | (size as u32) << 3;
        out.extend_from_slice(&header.to_le_bytes()[..3]);
    };
    for index in 0..records {
        let (head, tail) = record_around(index, MIB as i32);
        block(&mut out, 0, head.len(), 0);
        out.extend_from_slice(&head);
        for _ in 0..MIB / RUN {
            block(&mut out, 1, RUN, 0);
            out.push(0);
        }
        block(&mut out, 0, 1, u32::from(index + 1 == records));
        out.extend_from_slice(&tail);
    }
    out
}

#[test]
fn ten_gibibytes_in_half_a_mebibyte_cost_no_more_than_the_limit() {
    let few = with_payload(Codec::Zstd, 3, &zstd_by_hand(3));
    assert!(
        check(&few).is_ok(),
        "the bomb is well-formed: {:?}",
        check(&few)
    );
    let payload = zstd_by_hand(10 * 1024);
    assert!(payload.len() < MIB);
    let bomb = with_payload(Codec::Zstd, 10 * 1024, &payload);
    assert!(matches!(
        check(&bomb),
        Err(Refusal::DecompressedTooLarge { .. })
    ));
}

#[test]
fn a_record_that_claims_too_much_is_refused_before_it_is_decompressed() {
    let (mut head, _) = record_around(0, 1 << 30);
    head.resize(1000, 0);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = with_records(codec, 1, &head);
        assert_eq!(
            check(&batch),
            Err(Refusal::DecompressedTooLarge { limit: 16 * MIB })
        );
    }
}

#[test]
fn zstd_windows_are_capped() {
    // Windows of 2^27 and 2^28 bytes; the frame then holds one raw byte.
    let frame = |descriptor: u8| {
        [
            &[0x28, 0xb5, 0x2f, 0xfd, 0x00, descriptor][..],
            &[0x09, 0, 0, 7],
        ]
        .concat()
    };
    assert_eq!(
        decompress(Codec::Zstd, &frame((27 - 10) << 3), MIB),
        Ok(vec![7])
    );
    assert!(decompress(Codec::Zstd, &frame((28 - 10) << 3), MIB).is_err());
}

#[test]
fn snappy_chunk_lengths_are_checked() {
    let mut header = vec![
        0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
    ];
    for length in [-1i32, i32::MIN, i32::MAX, 5, 1000] {
        let mut payload = header.clone();
        payload.extend_from_slice(&length.to_be_bytes());
        payload.extend_from_slice(&[1, 0, b'x']);
        assert!(
            decompress(Codec::Snappy, &payload, MIB).is_err(),
            "{length}"
        );
    }
    // A block that claims 4 GiB, alone and in a chunk (CVE-2023-34455 and its kin).
    let block = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
    assert!(decompress(Codec::Snappy, &block, usize::MAX).is_err());
    let mut payload = header.clone();
    payload.extend_from_slice(&(block.len() as i32).to_be_bytes());
    payload.extend_from_slice(&block);
    assert!(decompress(Codec::Snappy, &payload, usize::MAX).is_err());
    // Two streams joined are read as one; a version of 0 is not.
    let chunk = [&3i32.to_be_bytes()[..], &[1, 0, b'x']].concat();
    let joined = [header.clone(), chunk.clone(), header.clone(), chunk].concat();
    assert_eq!(decompress(Codec::Snappy, &joined, MIB), Ok(b"xx".to_vec()));
    header[11] = 0;
    assert!(decompress(Codec::Snappy, &header, MIB).is_err());
}

#[test]
fn raw_snappy_as_librdkafka_sends_it() {
    let (mut records, tail) = record_around(0, 100_000);
    records.extend((0..100_000u32).map(|index| (index / 3) as u8));
    records.extend_from_slice(&tail);
    let block = snap::raw::Encoder::new()
        .compress_vec(&records)
        .expect("compressible");
    assert!(check(&with_payload(Codec::Snappy, 1, &block)).is_ok());
    assert_eq!(decompress(Codec::Snappy, &block, MIB), Ok(records));
}

fn lz4_frame(info: FrameInfo, content: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(content).expect("to memory");
    encoder.finish().expect("a frame")
}

#[test]
fn lz4_frames_are_read_with_all_their_checks() {
    let mut noise = 7u64;
    let content: Vec<u8> = (0..300_000u32)
        .map(|index| {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // The first block does not compress and is stored as it is.
            if index < 70_000 {
                (noise >> 33) as u8
            } else {
                (index / 100) as u8
            }
        })
        .collect();
    let plain = FrameInfo::new().block_mode(BlockMode::Independent);
    for info in [
        plain.clone(),
        plain.clone().block_checksums(true),
        plain.clone().content_checksum(true),
        plain.clone().content_size(Some(content.len() as u64)),
    ] {
        let frame = lz4_frame(info, &content);
        assert_eq!(
            decompress(Codec::Lz4, &frame, MIB).as_deref(),
            Ok(&content[..])
        );
        for at in [4, 5, 6, frame.len() - 1] {
            let mut bad = frame.clone();
            bad[at] ^= 1;
            assert!(decompress(Codec::Lz4, &bad, MIB).is_err(), "byte {at}");
        }
        for cut in [0, 3, 5, 6, 7, 20, 70_000, frame.len() - 4, frame.len() - 1] {
            assert!(
                decompress(Codec::Lz4, &frame[..cut], MIB).is_err(),
                "cut at {cut}"
            );
        }
    }
    let checked = lz4_frame(plain.block_checksums(true), &content);
    let mut bad = checked.clone();
    bad[1000] ^= 1;
    assert!(decompress(Codec::Lz4, &bad, MIB).is_err());
    let linked = lz4_frame(FrameInfo::new().block_mode(BlockMode::Linked), &content);
    assert!(
        decompress(Codec::Lz4, &linked, MIB).is_err(),
        "Java can not read it"
    );
}

#[test]
fn gzip_may_have_several_members() {
    let mut payload = Vec::new();
    for part in [&b"ab"[..], b"cd"] {
        crate::records::compress(Codec::Gzip, Default::default(), part, &mut payload)
            .expect("compressible");
    }
    assert_eq!(decompress(Codec::Gzip, &payload, MIB), Ok(b"abcd".to_vec()));
}
