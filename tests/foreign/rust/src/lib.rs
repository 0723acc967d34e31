//! What the programs of ../../README.md share: records and comparisons.

use std::collections::BTreeMap;
use std::env;

pub const SHARED_PARTITIONS: i32 = 6;

pub struct Arguments {
    pub bootstrap: String,
    pub prefix: String,
    pub count: usize,
    pub members: usize,
}

impl Arguments {
    pub fn parse() -> Self {
        let given: Vec<String> = env::args().skip(1).collect();
        let [bootstrap, prefix, count, members] = &given[..] else {
            panic!("usage: HOST:PORT PREFIX COUNT MEMBERS");
        };
        Self {
            bootstrap: bootstrap.clone(),
            prefix: prefix.clone(),
            count: count.parse().expect("COUNT"),
            members: members.parse().expect("MEMBERS"),
        }
    }
}

/// A record as sent and as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: BTreeMap<String, Vec<u8>>,
}

/// Those that are sent under a label.
pub fn records(label: &str, count: usize) -> Vec<Record> {
    (0..count)
        .map(|n| Record {
            key: (n % 3 != 0).then(|| format!("key-{n}").into_bytes()),
            value: (n % 6 != 4).then(|| format!("{label} {n}").into_bytes()),
            headers: [("number", n.to_string()), ("empty", String::new())]
                .map(|(key, value)| (key.to_owned(), value.into_bytes()))
                .into(),
        })
        .collect()
}

/// Panics unless both are the same, in order.
pub fn same(sent: &[Record], got: &[Record]) {
    assert_eq!(sent.len(), got.len());
    for (n, (sent, got)) in sent.iter().zip(got).enumerate() {
        assert_eq!(sent, got, "record {n}");
    }
}

/// Panics unless each value was read once, in any order.
pub fn same_values(mut sent: Vec<String>, mut got: Vec<String>) {
    sent.sort();
    got.sort();
    assert_eq!(sent, got);
}
