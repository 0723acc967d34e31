//! Of each key the last record stays: while clients go on, over kills and stops, and for groups.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchOptions, Codec, ProducerSequence, batches};

use crate::administering::alter;
use crate::batch::{CODECS, bytes_of, keyed, now_ms};
use crate::broker::{Broker, Options, eventually};
use crate::groups::{commit_patiently, fetch_all, options, with_coordinators};
use crate::idempotence;
use crate::retention::{earliest, restless};
use crate::wire::{Connection, Topic, error};

const OUTPUT_MAX: usize = 64 << 20;
const KEYS: i64 = 7;
const TOPIC: i8 = 2;

/// Segments of two or three batches of [`small`].
pub const SMALL_SEGMENTS: [(&str, &str); 2] = [
    ("cleanup.policy", "compact"),
    ("internal.segment.bytes", "600"),
];

/// A value of 150 bytes.
pub fn small(offset: i64) -> Vec<u8> {
    format!("{offset:0150}").into_bytes()
}

/// Appends records of 150 bytes under four keys in turn.
pub fn append_small(client: &mut Connection, topic: &Topic, offsets: Range<i64>) {
    for offset in offsets {
        let key = (offset % 4).to_string();
        let value = small(offset);
        let batch = keyed(Codec::None, now_ms(), &key, &value, BatchOptions::default());
        assert_eq!(client.append(topic, 0, batch), offset);
    }
}

/// All bytes of a partition, and the offsets of its records.
pub fn all_of(client: &mut Connection, topic: &Topic, range: Range<i64>) -> (Vec<u8>, Vec<i64>) {
    let (mut at, mut bytes, mut offsets) = (range.start, Vec::new(), Vec::new());
    while at < range.end {
        let found = client.fetch(topic, 0, at);
        assert_eq!(error(found.error_code), ErrorCode::None);
        for batch in batches(bytes_of(&found)) {
            let batch = batch.expect("a batch");
            assert!(batch.crc_matches());
            at = batch.header.last_offset().0 + 1;
            bytes.extend_from_slice(batch.bytes);
            let records = batch.records(OUTPUT_MAX).expect("records");
            offsets.extend(records.iter().map(|r| r.expect("a record").offset.0));
        }
    }
    (bytes, offsets)
}

/// Compacts nothing.
pub fn without_cleaner() -> Options {
    Options::with(&[("log.cleaner.enable", "false")])
}

/// Compacts whatever can be compacted, all the time.
pub fn eager(mut options: Options) -> Options {
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
fn append(client: &mut Connection, topic: &Topic, offsets: Range<i64>) {
    for offset in offsets {
        let codec = CODECS[offset as usize % CODECS.len()];
        let key = (offset % KEYS).to_string();
        let value = value_of(offset);
        let batch = keyed(codec, now_ms(), &key, &value, BatchOptions::default());
        assert_eq!(client.append(topic, 0, batch), offset);
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
    // Counted at the end of a round, when its files are in place.
    broker.wait_for_more("thalweg_compaction_removed_records_total", &[], 19.0);
    assert!(broker.metric("thalweg_compactions_total", &[]) >= 1.0);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(view(&mut client, &topic, 40).1, expected(40));
    append(&mut client, &topic, 40..60);
    eventually("a smaller log", || {
        (bytes_in(&folder) < 2_000_000).then_some(())
    });
    let checkpoint = broker.data().join("cleaner-offset-checkpoint");
    let checkpoint = || std::fs::read_to_string(&checkpoint).unwrap_or_default();
    let is_told = || checkpoint().contains("\ncompacted 0 ");
    eventually("a checkpoint", || is_told().then_some(()));
    broker.stop();
    assert!(is_told(), "{}", checkpoint());
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

/// RP-103 in practice: compaction took the records, not what the log knows of their producer.
#[test]
fn rp_69_rp_103_a_retry_is_known_after_its_original_was_compacted() {
    let mut broker = Broker::start_with(eager(Options::default()));
    let mut client = broker.connect();
    let topic = client.create_topic("retried", 1, &SMALL_SEGMENTS);
    let id = idempotence::new_id(&mut client);
    let original = keyed(Codec::None, now_ms(), "0", &small(0), producer(id));
    assert_eq!(client.append(&topic, 0, original.clone()), 0);
    append_small(&mut client, &topic, 1..12);
    let gone = |client: &mut Connection| {
        let (_, offsets) = all_of(client, &topic, 0..12);
        (!offsets.contains(&0)).then_some(())
    };
    eventually("the original is gone", || gone(&mut client));
    assert_eq!(client.append(&topic, 0, original.clone()), 0);
    broker.kill();
    // Only the log itself is left to say it.
    for file in std::fs::read_dir(broker.partition(&topic.name, 0)).expect("a folder") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|suffix| suffix == "snapshot") {
            std::fs::remove_file(path).expect("removed");
        }
    }
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.append(&topic, 0, original), 0);
    assert_eq!(client.end_offset(&topic, 0), 12);
}

fn producer(id: i64) -> BatchOptions {
    BatchOptions {
        producer: Some(ProducerSequence::new(id, 0, 0)),
        ..BatchOptions::default()
    }
}

#[test]
fn rp_101_debt_is_told_and_the_ratio_changes_while_the_broker_runs() {
    let broker = Broker::start_with(eager(Options::default()));
    let mut client = broker.connect();
    let settings = [
        SMALL_SEGMENTS[0],
        SMALL_SEGMENTS[1],
        ("min.cleanable.dirty.ratio", "1"),
    ];
    let topic = client.create_topic("owing", 1, &settings);
    append_small(&mut client, &topic, 0..12);
    let debt = || broker.metric("thalweg_compaction_debt_bytes", &[]);
    // All but the active segment, which is one batch or two.
    let whole = bytes_in(&broker.partition(&topic.name, 0)) as f64;
    eventually("a debt", || (debt() > whole / 2.0).then_some(()));
    assert!(debt() < whole);
    let (_, offsets) = all_of(&mut client, &topic, 0..12);
    assert_eq!(offsets, (0..12).collect::<Vec<_>>());
    let ratio = "min.cleanable.dirty.ratio";
    let set = alter(&mut client, TOPIC, "owing", ratio, Some("0"));
    assert_eq!(set, ErrorCode::None);
    eventually("no debt", || (debt() == 0.0).then_some(()));
    assert!(all_of(&mut client, &topic, 0..12).1.len() < 8);
}

#[test]
fn rp_105_a_damaged_segment_is_told_and_the_other_logs_are_compacted() {
    let mut broker = Broker::start_with(without_cleaner());
    let mut client = broker.connect();
    for name in ["whole", "damaged"] {
        let topic = client.create_topic(name, 1, &SMALL_SEGMENTS);
        append_small(&mut client, &topic, 0..12);
    }
    broker.stop();
    let log = broker
        .partition("damaged", 0)
        .join("00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("a segment");
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).expect("written");
    broker.start_again_with(eager(Options::default()));
    let told = broker.wait_for_log("compaction met a damage");
    assert!(
        told.contains("damaged-0") && told.contains("byte 0"),
        "{told}"
    );
    eventually("the whole one is compacted", || {
        let rounds = broker.metric("thalweg_compactions_total", &[]);
        let given_up = broker.metric("thalweg_compaction_uncleanable_partitions", &[]);
        (rounds >= 1.0 && given_up == 1.0).then_some(())
    });
    let failures = broker.metric("thalweg_compaction_failures_total", &[]);
    assert_eq!(failures, 0.0, "it needs no restart");
    let ranges = broker.wait_for_metric("thalweg_quarantined_ranges", &[]);
    assert_eq!(ranges, 1.0);
}

#[test]
fn rp_94_rp_101_a_log_of_both_policies_is_deleted_by_age_and_compacted_otherwise() {
    let mut options = without_cleaner();
    options.properties.extend(restless().properties);
    let mut broker = Broker::start_with(options);
    let mut client = broker.connect();
    let settings = [
        ("cleanup.policy", "compact,delete"),
        SMALL_SEGMENTS[1],
        ("retention.ms", "86400000"),
    ];
    let topic = client.create_topic("both", 1, &settings);
    // The only ones of their keys.
    let ten_days_ago = now_ms() - 10 * 86_400_000;
    for offset in 0..6 {
        let key = format!("old {offset}");
        let plain = BatchOptions::default();
        let batch = keyed(Codec::None, ten_days_ago, &key, &small(offset), plain);
        assert_eq!(client.append(&topic, 0, batch), offset);
    }
    append_small(&mut client, &topic, 6..20);
    eventually("what is old goes", || {
        (earliest(&mut client, &topic) == 6).then_some(())
    });
    broker.stop();
    broker.start_again_with(eager(Options::default()));
    let mut client = broker.connect();
    eventually("what is young is compacted", || {
        let (_, offsets) = all_of(&mut client, &topic, 6..20);
        (offsets.len() < 10 && offsets.ends_with(&[19])).then_some(())
    });
    assert_eq!(earliest(&mut client, &topic), 6);
}

/// Takes what room the disk of `folder` has, but for so many bytes.
fn fill_disk(folder: &Path, left: u64) -> std::path::PathBuf {
    let path = folder.join("filler");
    let mut file = std::fs::File::create(&path).expect("a file");
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let len = file.metadata().expect("a file").len();
    file.set_len(len - left).expect("shorter");
    path
}

#[test]
fn st_20_rp_105_a_round_without_room_is_tried_again_until_there_is_some() {
    let mut options = without_cleaner();
    let headroom = ("thalweg.log.dirs.headroom.bytes", "0".to_owned());
    options.properties.push(headroom.clone());
    let Some(mut broker) = Broker::start_on_small_disk("12m", options) else {
        return;
    };
    let mut client = broker.connect();
    let settings = [("cleanup.policy", "compact"), ("segment.bytes", "1048576")];
    let topic = client.create_topic("tight", 1, &settings);
    // Each under a key of its own: what compaction writes is as large as what it reads.
    for offset in 0..25 {
        let (key, value) = (format!("only {offset}"), value_of(offset));
        let batch = keyed(Codec::None, now_ms(), &key, &value, BatchOptions::default());
        assert_eq!(client.append(&topic, 0, batch), offset);
    }
    let before = all_of(&mut client, &topic, 0..25);
    broker.stop();
    let filler = fill_disk(&broker.data(), 400_000);
    let mut options = eager(Options::default());
    options.properties.push(headroom);
    broker.start_again_with(options);
    let failures = || broker.metric("thalweg_compaction_failures_total", &[]);
    let rounds = || broker.metric("thalweg_compactions_total", &[]);
    eventually("a second try", || (failures() >= 2.0).then_some(()));
    assert_eq!(rounds(), 0.0);
    let mut client = broker.connect();
    assert!(all_of(&mut client, &topic, 0..25) == before);
    std::fs::remove_file(filler).expect("removed");
    eventually("a round", || (rounds() >= 1.0).then_some(()));
    assert!(all_of(&mut client, &topic, 0..25) == before);
    broker.stop();
}
