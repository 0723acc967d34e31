//! Damage that is found while the broker runs: reported, kept from readers, gone around.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thalweg_protocol::ErrorCode;

use crate::administering::{BROKER, alter};
use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::tool::against;
use crate::wire::{Connection, Topic, error};

/// Looks at once, and again and again.
fn scrubbing() -> Options {
    Options::with(&[
        ("log.segment.bytes", "1048576"),
        ("log.initial.task.delay.ms", "0"),
        ("thalweg.log.scrub.interval.ms", "200"),
        ("thalweg.log.scrub.max.bytes.per.second", "1000000000"),
    ])
}

/// Batches of one record of 100,000 bytes or more each, so that a segment takes ten at most.
fn fill(client: &mut Connection, topic: &Topic, batches: usize) {
    for i in 0..batches {
        client.append(topic, 0, plain(&[format!("{i}").repeat(100_000)]));
    }
}

fn segments(broker: &Broker, topic: &Topic) -> Vec<PathBuf> {
    let entries = fs::read_dir(broker.partition(&topic.name, 0)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    logs.sort();
    logs
}

/// Flips a bit in the last byte of the batch at this place of a segment; tells its offset and where it
/// begins.
pub fn flip(segment: &Path, batch: usize) -> (i64, usize) {
    let bytes = fs::read(segment).expect("a segment");
    let length = |at: usize| {
        let length = bytes[at + 8..at + 12].try_into().expect("four bytes");
        12 + u32::from_be_bytes(length) as usize
    };
    let mut at = 0;
    for _ in 0..batch {
        at += length(at);
    }
    let last = at + length(at) - 1;
    let offset = bytes[at..at + 8].try_into().expect("eight bytes");
    // As a disk would do it: who reads the file meanwhile, such as the scrub, never finds it shorter.
    let file = OpenOptions::new().write(true).open(segment);
    file.and_then(|file| file.write_all_at(&[bytes[last] ^ 1], last as u64))
        .expect("written");
    (i64::from_be_bytes(offset), at)
}

fn refusal(client: &mut Connection, topic: &Topic, offset: i64) -> ErrorCode {
    error(client.fetch(topic, 0, offset).error_code)
}

/// ST-19, ST-33: a bit that flipped in a closed segment is found before anybody reads it. Nobody gets
/// that batch from then on, everybody the others, after a clean stop and after a kill.
#[test]
fn st_33_a_flipped_bit_is_found_reported_and_not_served() {
    let mut broker = Broker::start_with(scrubbing());
    let mut client = broker.connect();
    let topic = client.create_topic("rotten", 1, &[]);
    fill(&mut client, &topic, 50);
    let logs = segments(&broker, &topic);
    assert!(logs.len() >= 3, "{logs:?}");
    let (offset, at) = flip(&logs[1], 4);
    let line = broker.wait_for_log("DAMAGED");
    for says in [
        logs[1].to_str().expect("UTF-8"),
        &format!("offset={offset} "),
        &format!("next={} ", offset + 1),
        &format!("position={at} "),
        "the checksum does not match",
        "thalweg repair",
    ] {
        assert!(line.contains(says), "{says}: {line}");
    }
    for life in ["same", "after a clean stop", "after a kill"] {
        let mut client = broker.connect();
        assert_eq!(
            refusal(&mut client, &topic, offset),
            ErrorCode::CorruptMessage,
            "{life}"
        );
        // What lies before is given up to the damage, what lies behind from there on.
        let before = read_all_up_to(&mut client, &topic, 0, offset);
        assert_eq!(before, offset as usize, "{life}");
        let behind = values(&read_all(&mut client, &topic, 0, offset + 1));
        assert_eq!(behind.len() as i64, 49 - offset, "{life}");
        assert_eq!(broker.metric("thalweg_quarantined_ranges", &[]) as u64, 1);
        let http = broker.metrics_address().to_string();
        let describe = ["log-dirs", "describe", "--json", "--http", &http];
        let told: serde_json::Value =
            serde_json::from_str(&against(&broker, &describe, 0)).expect("JSON");
        let [range] = &told["quarantined"].as_array().expect("a list")[..] else {
            panic!("{life}: {told}");
        };
        assert_eq!(range["topic"], topic.name, "{life}");
        assert_eq!(range["first_offset"], offset, "{life}");
        assert_eq!(range["next_offset"], offset + 1, "{life}");
        match life {
            "same" => broker.stop(),
            _other => broker.kill(),
        }
        broker.start_again();
    }
    // Put back, it is served again.
    flip(&logs[1], 4);
    broker.wait_for_log("is whole again and served");
    let all = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    assert_eq!(all.len(), 50);
}

/// Reads from `from` on until `end`, which a fetch must not go beyond; the number of records.
fn read_all_up_to(client: &mut Connection, topic: &Topic, from: i64, end: i64) -> usize {
    let (mut at, mut count) = (from, 0);
    while at < end {
        let fetched = client.fetch(topic, 0, at);
        assert_eq!(error(fetched.error_code), ErrorCode::None, "at {at}");
        let records = crate::batch::records_from(&fetched, at);
        assert!(!records.is_empty(), "at {at}");
        count += records.len();
        at = records.last().map_or(end, |record| record.offset + 1);
        assert!(at <= end, "{at} is beyond the damage");
    }
    count
}

/// The interval is obeyed as it is set: -1 stops it, and another starts it again.
#[test]
fn the_scrub_obeys_its_interval_while_the_broker_runs() {
    let mut options = scrubbing();
    options.properties[2].1 = "-1".to_owned();
    let broker = Broker::start_with(options);
    let mut client = broker.connect();
    let topic = client.create_topic("rotten", 1, &[]);
    fill(&mut client, &topic, 40);
    let logs = segments(&broker, &topic);
    flip(&logs[0], 4);
    assert_eq!(broker.metric("thalweg_scrub_segments_total", &[]) as u64, 0);
    let key = "thalweg.log.scrub.interval.ms";
    let set = alter(&mut client, BROKER, "", key, Some("200"));
    assert_eq!(set, ErrorCode::None);
    broker.wait_for_log("DAMAGED");
}
