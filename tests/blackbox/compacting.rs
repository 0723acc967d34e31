//! Of each key the last record stays: while clients go on, over kills and stops, and for groups.

use std::collections::BTreeMap;
use std::path::Path;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, batches};
use thalweg_types::TimestampMs;

use crate::administering::alter;
use crate::batch::{CODECS, bytes_of, now_ms};
use crate::broker::{Broker, Options, eventually};
use crate::groups::{commit_patiently, fetch_all, options, with_coordinators};
use crate::wire::{Connection, Topic};

const OUTPUT_MAX: usize = 64 << 20;
const KEYS: i64 = 7;
const TOPIC: i8 = 2;

/// Compacts whatever can be compacted, all the time.
fn eager(mut options: Options) -> Options {
    let more = [
        ("log.cleaner.backoff.ms", "10"),
        ("log.cleaner.min.cleanable.ratio", "0"),
        ("log.segment.delete.delay.ms", "0"),
    ];
    let more = more.map(|(key, value)| (key, value.to_owned()));
    options.properties.extend(more);
    options
}

fn value_of(offset: i64) -> Vec<u8> {
    // Not to be compressed away.
    let mut state = offset as u64 + 1;
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend((0..99_992).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    }));
    bytes
}

/// Appends records of 100 KB under keys in turn, each batch in another codec.
fn append(client: &mut Connection, topic: &Topic, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        let codec = CODECS[offset as usize % CODECS.len()];
        let key = (offset % KEYS).to_string();
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let value = value_of(offset);
        let pushed = builder.push(
            TimestampMs(now_ms()),
            Some(key.as_bytes()),
            Some(&value),
            &[],
        );
        pushed.expect("a record");
        let batch = builder.build(codec).expect("a batch");
        assert_eq!(client.append(topic, 0, batch.to_vec()), offset);
    }
}

/// The last offset of each key, by reading from the start; every value is looked at.
fn view(client: &mut Connection, topic: &Topic, end: i64) -> (usize, BTreeMap<String, i64>) {
    let (mut at, mut count, mut view) = (0, 0, BTreeMap::new());
    while at < end {
        let found = client.fetch(topic, 0, at);
        for batch in batches(bytes_of(&found)) {
            let batch = batch.expect("a batch");
            assert!(batch.crc_matches());
            at = batch.header.last_offset().0 + 1;
            for record in &batch.records(OUTPUT_MAX).expect("records") {
                let record = record.expect("a record");
                assert!(record.value == Some(&value_of(record.offset.0)[..]));
                let key = String::from_utf8_lossy(record.key.expect("a key")).into_owned();
                view.insert(key, record.offset.0);
                count += 1;
            }
        }
    }
    (count, view)
}

fn expected(end: i64) -> BTreeMap<String, i64> {
    (0..end).map(|at| ((at % KEYS).to_string(), at)).collect()
}

fn bytes_in(partition: &Path) -> u64 {
    let files = std::fs::read_dir(partition).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let logs = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "log"));
    logs.filter_map(|log| log.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}

#[test]
fn rp_101_rp_104_the_last_of_each_key_stays_over_kills_and_stops() {
    let mut broker = Broker::start_with(eager(Options::default()));
    let mut client = broker.connect();
    let compacted = [("cleanup.policy", "compact"), ("segment.bytes", "1048576")];
    let topic = client.create_topic("compacted", 1, &compacted);
    append(&mut client, &topic, 0..40);
    // The active segment holds up to ten records and is left alone.
    let folder = broker.partition(&topic.name, 0);
    eventually("a smaller log", || {
        (bytes_in(&folder) < 2_000_000).then_some(())
    });
    let (count, found) = view(&mut client, &topic, 40);
    assert_eq!(found, expected(40));
    assert!(count < 20, "{count}");
    assert!(broker.metric("thalweg_compactions_total", &[]) >= 1.0);
    assert!(broker.metric("thalweg_compaction_removed_records_total", &[]) >= 20.0);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(view(&mut client, &topic, 40).1, expected(40));
    append(&mut client, &topic, 40..60);
    eventually("a smaller log", || {
        (bytes_in(&folder) < 2_000_000).then_some(())
    });
    broker.stop();
    let checkpoint = broker.data().join("cleaner-offset-checkpoint");
    let checkpoint = std::fs::read_to_string(checkpoint).expect("a checkpoint");
    assert!(checkpoint.contains("\ncompacted 0 "), "{checkpoint}");
    broker.start_again();
    assert_eq!(view(&mut broker.connect(), &topic, 60).1, expected(60));
}

#[test]
fn rp_115_committed_offsets_outlive_compaction() {
    let mut broker = Broker::start_with(eager(options()));
    let mut client = with_coordinators(&broker);
    let small = ("internal.segment.bytes", Some("4096"));
    let set = alter(&mut client, TOPIC, "__consumer_offsets", small.0, small.1);
    assert_eq!(set, ErrorCode::None);
    client.create_topic("read", 3, &[]);
    for round in 0..60 {
        let rows: Vec<_> = (0..3)
            .map(|partition| ("read", partition, round * 10))
            .collect();
        commit_patiently(&mut client, "readers", &rows);
    }
    let once = ("read".to_owned(), 0);
    commit_patiently(&mut client, "others", &[("read", 0, 77)]);
    eventually("a compaction", || {
        (broker.metric("thalweg_compaction_removed_records_total", &[]) > 100.0).then_some(())
    });
    for restart in [Broker::kill, Broker::stop] {
        restart(&mut broker);
        broker.start_again();
        let mut client = broker.connect();
        let found = fetch_all(&mut client, "readers");
        let wanted: BTreeMap<_, _> = (0..3).map(|p| (("read".to_owned(), p), 590)).collect();
        assert_eq!(found, wanted);
        let found = fetch_all(&mut client, "others");
        assert_eq!(found, BTreeMap::from([(once.clone(), 77)]));
    }
}
