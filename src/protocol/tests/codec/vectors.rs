//! Bytes that Kafka's own classes wrote. How the file is made: tests/vectors/README.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bytes::BytesMut;
use serde_json::{Map, Value};
use thalweg_protocol::messages::Codec;

use crate::all_messages;
use crate::model::{Kind, Message};
use crate::twin::{Own, Rng, hex, random_bytes, to_json};

/// APIs of the broker's first step: in the file in all versions.
const FIRST_APIS: [&str; 10] = [
    "ApiVersions",
    "Metadata",
    "Produce",
    "Fetch",
    "ListOffsets",
    "CreateTopics",
    "DeleteTopics",
    "DescribeCluster",
    "SaslHandshake",
    "SaslAuthenticate",
];
const PER_VERSION: usize = 2;

struct Vector {
    name: String,
    version: i16,
    bytes: Vec<u8>,
    json: Value,
}

fn vectors() -> Vec<Vector> {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/vectors.txt");
    let path = std::env::var("VECTORS_FILE").unwrap_or_else(|_| here.to_owned());
    let text = std::fs::read_to_string(path).expect("the vectors are there");
    text.lines().map(parse).collect()
}

fn parse(line: &str) -> Vector {
    let [name, version, hex, json] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("not a vector: {line}");
    };
    let digits = if hex == "-" { "" } else { hex };
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex"))
        .collect();
    Vector {
        name: name.to_owned(),
        version: version.parse().expect("a version"),
        bytes,
        json: normal(serde_json::from_str(json).expect("JSON")),
    }
}

/// Kafka's `throttleTimeMs` and our `throttle_time_ms` become `throttletimems`.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), normal(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(elements) => elements.into_iter().map(normal).collect(),
        other => other,
    }
}

/// Names and versions in the file, as `name version`.
pub fn covered() -> BTreeSet<String> {
    vectors()
        .iter()
        .map(|v| format!("{} {}", v.name, v.version))
        .collect()
}

#[test]
fn what_kafka_writes_means_the_same_here_and_comes_back_equal() {
    let messages = all_messages();
    let vectors = vectors();
    assert!(vectors.len() > 200);
    for Vector {
        name,
        version,
        bytes,
        json,
    } in vectors
    {
        let message = messages.iter().find(|m| m.name == name).expect("a message");
        let codec = Codec::named(&name).expect("a codec");
        let back = codec.convert(BytesMut::from(&bytes[..]), version, version);
        let back = back.expect("decoded").expect("encoded");
        assert_eq!(back.bytes, bytes, "{name} v{version}");
        // Its fields have shorter names in our notation.
        if name != "RequestHeader" {
            let meaning = to_json(message, version, &bytes);
            assert_eq!(meaning, json, "{name} v{version}");
        }
    }
}

fn is_chosen(message: &Message, version: i16, beyond: &BTreeSet<String>) -> bool {
    match message.kind {
        Kind::Record | Kind::Data => true,
        Kind::Request | Kind::Response => {
            let api = message
                .name
                .trim_end_matches("Request")
                .trim_end_matches("Response");
            FIRST_APIS.contains(&api) || beyond.contains(&format!("{} {version}", message.name))
        }
    }
}

#[test]
#[ignore = "writes the seeds for tests/vectors/emit"]
fn write_seeds() {
    let beyond = crate::differential::beyond();
    let every = std::env::var("VECTOR_CHOICE").is_ok_and(|choice| choice == "every");
    let (mut rng, mut out) = (Rng(5), String::new());
    for message in &all_messages() {
        for version in message.versions.low..=message.versions.high {
            if !every && !is_chosen(message, version, &beyond) {
                continue;
            }
            let mut seen = BTreeSet::new();
            for _ in 0..PER_VERSION {
                let bytes = random_bytes(message, version, Own::LeftOut, &mut rng);
                if seen.insert(bytes.clone()) {
                    let _ = writeln!(out, "{} {version} {}", message.name, hex(&bytes));
                }
            }
        }
    }
    let path = std::env::var("VECTOR_SEEDS").expect("VECTOR_SEEDS names the file to write");
    std::fs::write(path, out).expect("written");
}
