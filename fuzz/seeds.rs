//! First inputs of each corpus: honest ones, from which a fuzzer's damage gets deep.

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_protocol::ApiKey;
use thalweg_protocol::messages::{CODECS, Codec as MessageCodec};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, ProducerSequence};
use thalweg_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Codecs of record batches, by the name in file names.
pub const CODEC_NAMES: [(&str, Codec); 5] = [
    ("none", Codec::None),
    ("gzip", Codec::Gzip),
    ("snappy", Codec::Snappy),
    ("lz4", Codec::Lz4),
    ("zstd", Codec::Zstd),
];

/// A named input.
pub type Seed = (String, Vec<u8>);

/// A batch as a client sends it, or as the log keeps it from `base` on.
#[must_use]
pub fn batch(codec: Codec, base: Offset, records: usize) -> Bytes {
    let producer = (base == Offset::ZERO).then_some(ProducerSequence {
        id: ProducerId(5),
        epoch: ProducerEpoch(1),
        base_sequence: 0,
    });
    let options = BatchOptions {
        base_offset: base,
        leader_epoch: LeaderEpoch(base.0.min(3) as i32),
        producer,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    for at in 0..records {
        let stamp = TimestampMs(1_699_999_999_000 + at as i64);
        let value = format!("value {at} of a batch, with some text that repeats, repeats, repeats");
        let headers = [("h", Some(&b"x"[..])), ("empty", None)];
        let headers = if at % 2 == 0 { &headers[..] } else { &[] };
        builder
            .push(stamp, Some(b"key"), Some(value.as_bytes()), headers)
            .expect("it fits");
    }
    builder.build(codec).expect("records are there")
}

/// Seeds of the target `frames`.
#[must_use]
pub fn frames() -> Vec<Seed> {
    let mut two = vec![3];
    for body in [&b"first"[..], b"second frame"] {
        two.put_u32(body.len() as u32);
        two.put_slice(body);
    }
    let mut large = vec![255];
    large.put_u32(17_000);
    large.resize(1 + 4 + 17_000, b'z');
    large.put_slice(&[0, 0, 0, 1, 9]);
    vec![
        ("two".into(), two),
        ("large".into(), large),
        ("http".into(), b"\x07GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("tls".into(), b"\x00\x16\x03\x01\x02\x00\x01".to_vec()),
        ("negative".into(), b"\x00\xff\xff\xff\xff".to_vec()),
    ]
}

/// Seeds of the target `requests`: for some APIs, first and last version.
#[must_use]
pub fn requests() -> Vec<Seed> {
    const APIS: [ApiKey; 12] = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::ApiVersions,
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
        ApiKey::DescribeCluster,
        ApiKey::SaslHandshake,
        ApiKey::SaslAuthenticate,
        ApiKey::JoinGroup,
        ApiKey::OffsetCommit,
    ];
    let mut seeds = Vec::new();
    for api in APIS {
        let Some(codec) = MessageCodec::named(&format!("{}Request", api.name())) else {
            continue;
        };
        let key = ApiKey::ALL.iter().position(|a| *a == api).unwrap_or(0) as u8;
        let versions = codec.versions.end() - codec.versions.start();
        for version in [0, versions] {
            let number = codec.versions.start() + version;
            let mut seed = vec![key, (version + 1) as u8];
            seed.put_i32(77);
            seed.put_i16(4);
            seed.put_slice(b"fuzz");
            if api.request_header_version(number) >= 2 {
                seed.put_u8(0);
            }
            // No body is right for every API; zeros are null or empty fields of most.
            seed.put_bytes(0, 24);
            seeds.push((format!("{}-v{number}", api.name()), seed));
        }
    }
    seeds
}

/// Seeds of the target `messages`.
#[must_use]
pub fn messages() -> Vec<Seed> {
    let wanted = [
        "ProduceRequest",
        "FetchResponse",
        "MetadataResponse",
        "TopicRecord",
    ];
    let mut seeds = Vec::new();
    for (at, codec) in CODECS.iter().enumerate() {
        let Ok(which) = u8::try_from(at) else { break };
        if !wanted.contains(&codec.name) {
            continue;
        }
        let last = (codec.versions.end() - codec.versions.start() + 1) as u8;
        let mut seed = vec![which, last];
        seed.put_bytes(0, 40);
        seeds.push((codec.name.to_owned(), seed));
    }
    seeds
}

/// Seeds of the target `batches`: each codec, straight and under each rule.
#[must_use]
pub fn batches() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, codec) in CODEC_NAMES {
        for flags in [0u8, 1, 2] {
            let mut seed = vec![flags];
            let mut batch = BytesMut::from(&batch(codec, Offset::ZERO, 5)[..]);
            batch[12..16].copy_from_slice(&(-1i32).to_be_bytes());
            seed.extend_from_slice(&batch);
            seeds.push((format!("{name}-{flags}"), seed));
        }
    }
    seeds
}

/// Seeds of the target `recovery`: whole, torn, and followed by zeros, after each way of stopping.
#[must_use]
pub fn recovery() -> Vec<Seed> {
    let segment = |base: i64, codec| -> Vec<u8> {
        let batches = (0..3).map(|at| batch(codec, Offset(base + 2 * at), 2));
        batches.flat_map(|bytes| bytes.to_vec()).collect()
    };
    let file = |kind: u8, base: u8, bytes: &[u8]| -> Vec<u8> {
        let mut entry = vec![kind, base];
        entry.put_u16(bytes.len() as u16);
        entry.extend_from_slice(bytes);
        entry
    };
    let epochs = file(8, 0, b"0\n1\n0 0\n");
    let meta = file(9, 0, b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAA");
    let index = file(1, 0, &[0, 0, 0, 2, 0, 0, 0, 200]);
    let times = file(2, 0, &[0, 0, 1, 0x8b, 0xcf, 0xe5, 0x6b, 0xe9, 0, 0, 0, 1]);
    let (first, second) = (segment(0, Codec::None), segment(6, Codec::Lz4));
    let torn = &second[..second.len() - 9];
    let zeros = [&first[..], &[0; 300]].concat();
    let mut seeds = Vec::new();
    for stop in 0..3u8 {
        let mut whole = vec![stop];
        for part in [
            &file(0, 0, &first),
            &file(0, 6, &second),
            &epochs,
            &meta,
            &index,
            &times,
        ] {
            whole.extend_from_slice(part);
        }
        seeds.push((format!("whole-{stop}"), whole));
        let torn = [&[stop][..], &file(0, 0, &first), &file(0, 6, torn), &epochs].concat();
        seeds.push((format!("torn-{stop}"), torn));
        let zeros = [&[stop][..], &file(0, 0, &zeros), &meta].concat();
        seeds.push((format!("zeros-{stop}"), zeros));
        let gap = [&[stop][..], &file(0, 0, &first), &file(0, 200, &second)].concat();
        seeds.push((format!("gap-{stop}"), gap));
        let leftovers = [
            &[stop][..],
            &file(0, 0, &first),
            &file(6, 6, &second),
            &file(5, 9, &second),
        ]
        .concat();
        seeds.push((format!("leftovers-{stop}"), leftovers));
    }
    seeds
}

/// The seeds of a target.
#[must_use]
pub fn of(target: &str) -> Vec<Seed> {
    match target {
        "frames" => frames(),
        "requests" => requests(),
        "messages" => messages(),
        "batches" => batches(),
        "recovery" => recovery(),
        _ => Vec::new(),
    }
}
