//! Old segments go: by age, by size, on request; and a kill in the middle does no harm.

use std::path::PathBuf;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::Codec;

use crate::administering::{alter, delete_records};
use crate::batch::{now_ms, plain, read_all, stamped};
use crate::broker::{Broker, Options};
use crate::wire::{Connection, Topic, error};

const TOPIC: i8 = 2;
const EARLIEST: i64 = -2;

/// Looks for old segments all the time, and unlinks files at once.
pub fn restless() -> Options {
    Options::with(&[
        ("log.initial.task.delay.ms", "0"),
        ("log.retention.check.interval.ms", "10"),
        ("log.segment.delete.delay.ms", "0"),
    ])
}

fn set(client: &mut Connection, topic: &Topic, key: &str, value: &str) {
    let set = alter(client, TOPIC, &topic.name, key, Some(value));
    assert_eq!(set, ErrorCode::None, "{key}={value}");
}

pub fn earliest(client: &mut Connection, topic: &Topic) -> i64 {
    let found = client.list_offset(topic, 0, EARLIEST, 7);
    assert_eq!(error(found.error_code), ErrorCode::None);
    found.offset
}

/// The `.log` files of a partition.
pub fn segments(broker: &Broker, topic: &Topic) -> Vec<PathBuf> {
    let files = std::fs::read_dir(broker.partition(&topic.name, 0)).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    paths
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .collect()
}

/// A value that tells its offset; three of them fill a segment of the smallest size.
pub fn large(offset: i64) -> String {
    format!("{offset:060}").repeat(5_000)
}

/// Appends one batch per offset.
fn append_large(client: &mut Connection, topic: &Topic, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        assert_eq!(client.append(topic, 0, plain(&[large(offset)])), offset);
    }
}

/// Every offset from the first to the end is there and has its own value.
pub fn check_whole(client: &mut Connection, topic: &Topic, end: i64) -> i64 {
    let first = earliest(client, topic);
    let records = read_all(client, topic, 0, first);
    let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (first..end).collect::<Vec<_>>());
    for record in records {
        assert!(record.value == large(record.offset).into_bytes());
    }
    first
}

#[test]
fn rp_94_rp_96_old_segments_go_and_stay_gone() {
    let mut broker = Broker::start_with(restless());
    let mut client = broker.connect();
    let topic = client.create_topic("aged", 1, &[]);
    let hour_ago = now_ms() - 3_600_000;
    for number in 0..4 {
        let records = [(hour_ago + number, &b"old"[..]), (hour_ago, b"older")];
        client.append(&topic, 0, stamped(Codec::None, &records));
    }
    assert_eq!(earliest(&mut client, &topic), 0);
    set(&mut client, &topic, "retention.ms", "600000");
    let line = broker.wait_for_log("deleted segments");
    assert!(
        line.contains("aged-0") && line.contains("1 by retention.ms"),
        "{line}"
    );
    assert_eq!(earliest(&mut client, &topic), 8);
    let below = client.fetch(&topic, 0, 7);
    assert_eq!(error(below.error_code), ErrorCode::OffsetOutOfRange);
    assert_eq!(segments(&broker, &topic).len(), 1);
    assert!(broker.metric("thalweg_segments_deleted_total", &[]) >= 1.0);
    assert!(broker.metric("thalweg_segments_deleted_bytes_total", &[]) > 100.0);
    // Young ones stay, and offsets go on.
    assert_eq!(client.append(&topic, 0, plain(&["young"])), 8);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(earliest(&mut client, &topic), 8);
    assert_eq!(read_all(&mut client, &topic, 0, 8).len(), 1);
    broker.stop();
    broker.start_again();
    assert_eq!(earliest(&mut broker.connect(), &topic), 8);
}

#[test]
fn rp_95_a_log_shrinks_to_its_size() {
    let broker = Broker::start_with(restless());
    let mut client = broker.connect();
    let topic = client.create_topic("sized", 1, &[("segment.bytes", "1048576")]);
    append_large(&mut client, &topic, 0..20);
    assert_eq!(segments(&broker, &topic).len(), 7);
    set(&mut client, &topic, "retention.bytes", "2000000");
    broker.wait_for_log("by retention.bytes");
    let bytes: u64 = segments(&broker, &topic)
        .iter()
        .map(|path| path.metadata().expect("a file").len())
        .sum();
    assert!((2_000_000..3_048_576).contains(&bytes), "{bytes}");
    assert_eq!(check_whole(&mut client, &topic, 20), 12);
}

#[test]
fn rp_94_only_the_delete_policy_deletes() {
    let broker = Broker::start_with(Options {
        shards: Some(1),
        ..restless()
    });
    let mut client = broker.connect();
    let aged = [("retention.ms", "1"), ("retention.bytes", "0")];
    let kept = client.create_topic("kept", 1, &[&aged[..], &[("cleanup.policy", "")]].concat());
    let gone = client.create_topic("gone", 1, &aged);
    client.append(&kept, 0, plain(&["kept"]));
    // The second deletion is a later look than the first: a whole one lies between.
    for start in [1, 2] {
        client.append(&gone, 0, plain(&["gone"]));
        broker.wait_for_log(&format!("start={start} reason"));
        assert_eq!(earliest(&mut client, &gone), start);
    }
    assert_eq!(earliest(&mut client, &kept), 0);
    assert!(!broker.log().iter().any(|line| line.contains("kept-0")));
    set(&mut client, &kept, "cleanup.policy", "delete");
    broker.wait_for_log("kept-0");
    assert_eq!(earliest(&mut client, &kept), 1);
}

#[test]
fn rp_94_a_record_dated_in_the_future_does_not_pin_a_log() {
    let broker = Broker::start_with(restless());
    let mut client = broker.connect();
    let any = ("message.timestamp.after.max.ms", "9223372036854775807");
    let topic = client.create_topic("dated", 1, &[any, ("retention.ms", "1")]);
    let in_ten_years = now_ms() + 10 * 365 * 86_400_000;
    let records = [(in_ten_years, &b"from the future"[..])];
    client.append(&topic, 0, stamped(Codec::None, &records));
    assert_eq!(earliest(&mut client, &topic), 0);
    set(&mut client, &topic, any.0, "3600000");
    broker.wait_for_log("1 by retention.ms");
    assert_eq!(earliest(&mut client, &topic), 1);
}

#[test]
fn rp_97_segments_of_deleted_records_are_removed() {
    let mut broker = Broker::start_with(restless());
    let mut client = broker.connect();
    let topic = client.create_topic("asked", 1, &[("segment.bytes", "1048576")]);
    append_large(&mut client, &topic, 0..10);
    assert_eq!(segments(&broker, &topic).len(), 4);
    assert_eq!(delete_records(&mut client, &topic, 7), (ErrorCode::None, 7));
    broker.wait_for_log("2 below the log start");
    assert_eq!(segments(&broker, &topic).len(), 2);
    assert_eq!(check_whole(&mut client, &topic, 10), 7);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(check_whole(&mut client, &topic, 10), 7);
    assert_eq!(delete_records(&mut client, &topic, -1).1, 10);
    broker.wait_for_log("2 below the log start");
    assert_eq!(segments(&broker, &topic).len(), 1);
    append_large(&mut client, &topic, 10..11);
    assert_eq!(check_whole(&mut client, &topic, 11), 10);
}

#[test]
fn st_14_a_kill_during_deletions_leaves_no_hole() {
    let mut broker = Broker::start_with(restless());
    let configs = [("segment.bytes", "1048576"), ("retention.bytes", "1000000")];
    let topic = broker.connect().create_topic("killed", 1, &configs);
    let (mut end, mut first) = (0, 0);
    for life in 0..5 {
        let mut client = broker.connect();
        append_large(&mut client, &topic, end..end + 9);
        end += 9;
        broker.wait_for_log("deleted segments");
        broker.kill();
        // The next one takes its first look after half a minute.
        broker.start_again_with(Options::default());
        let now_first = check_whole(&mut broker.connect(), &topic, end);
        // What the line told of was durable before.
        assert!(now_first > first, "life {life}: {now_first} after {first}");
        first = now_first;
        broker.kill();
        broker.start_again_with(restless());
    }
}
