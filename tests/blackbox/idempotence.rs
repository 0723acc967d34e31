//! Idempotent producers: ids, retries, and what restarts and kills leave of them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::frame;
use thalweg_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProduceRequest};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, ProducerSequence};
use thalweg_types::TimestampMs;

use crate::administering::delete_records;
use crate::batch::{now_ms, read_all, values};
use crate::broker::{Broker, Options, eventually, is_long};
use crate::retention::restless;
use crate::wire::{Connection, Topic, error, newest, only, produce_request};

/// A batch of these values from a producer.
pub fn batch<V: AsRef<[u8]>>(id: i64, epoch: i16, sequence: i32, values: &[V]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer: Some(ProducerSequence::new(id, epoch, sequence)),
        ..BatchOptions::default()
    });
    for value in values {
        builder
            .push(TimestampMs(now_ms()), None, Some(value.as_ref()), &[])
            .expect("a small record");
    }
    builder.build(Codec::None).expect("a batch").to_vec()
}

fn init(client: &mut Connection, version: i16) -> InitProducerIdResponse {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    client.call(&request, version)
}

pub fn new_id(client: &mut Connection) -> i64 {
    let answer = init(client, 5);
    assert_eq!(error(answer.error_code), ErrorCode::None);
    assert_eq!(answer.producer_epoch, 0);
    answer.producer_id
}

/// TRAP-4: KafkaJS and aiokafka ask in version 0 or 1, with a transactional id of null.
#[test]
fn trap_4_every_version_gives_a_producer_id() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let mut seen = HashSet::new();
    for version in 0..=5 {
        let answer = init(&mut client, version);
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "version {version}"
        );
        assert_eq!(answer.producer_epoch, 0);
        assert!(answer.producer_id >= 0);
        assert!(
            seen.insert(answer.producer_id),
            "{} twice",
            answer.producer_id
        );
    }
    // KIP-360: a producer that names the id it has gets a new one, which is never wrong.
    let request = |id, epoch| InitProducerIdRequest {
        transactional_id: None,
        producer_id: id,
        producer_epoch: epoch,
        ..Default::default()
    };
    let old = *seen.iter().next().expect("some");
    let answer = client.call(&request(old, 0), 5);
    assert_eq!(error(answer.error_code), ErrorCode::None);
    assert!(seen.insert(answer.producer_id));
    for half in [request(old, -1), request(-1, 0)] {
        let answer = client.call(&half, 5);
        assert_eq!(error(answer.error_code), ErrorCode::InvalidRequest);
        assert_eq!(answer.producer_id, -1);
    }
}

#[test]
fn transactional_producers_are_told_for_good() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    for (id, code) in [
        ("t", ErrorCode::TransactionalIdAuthorizationFailed),
        ("", ErrorCode::InvalidRequest),
    ] {
        let request = InitProducerIdRequest {
            transactional_id: Some(id.to_owned()),
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        for version in 0..=5 {
            let answer = client.call(&request, version);
            assert_eq!(error(answer.error_code), code, "version {version}");
            assert_eq!((answer.producer_id, answer.producer_epoch), (-1, -1));
            assert!(!code.is_retriable());
        }
    }
}

/// More than a block of them, over connections that live on different shards, over a stop and a kill.
#[test]
fn rp_72_no_producer_id_is_given_twice() {
    let mut broker = Broker::start_with(Options::default());
    let mut seen = HashSet::new();
    for round in 0..3 {
        let mut clients: Vec<Connection> = (0..4).map(|_| broker.connect()).collect();
        for number in 0..1_200 {
            let id = new_id(&mut clients[number % 4]);
            assert!(seen.insert(id), "{id} twice");
        }
        match round {
            0 => broker.stop(),
            _ => broker.kill(),
        }
        broker.start_again();
    }
}

/// Sends and expects the batch at `offset`.
fn lands(client: &mut Connection, topic: &Topic, batch: Vec<u8>, offset: i64) {
    for acks in [-1, 1] {
        let answer = client.produce(topic, 0, acks, batch.clone());
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "{:?}",
            answer.error_message
        );
        assert_eq!(answer.base_offset, offset, "acks {acks}");
    }
}

fn refused(client: &mut Connection, topic: &Topic, batch: Vec<u8>, code: ErrorCode) {
    let answer = client.produce(topic, 0, -1, batch);
    assert_eq!(error(answer.error_code), code);
    assert_eq!(answer.base_offset, -1);
}

/// What [`rp_63_retries_append_nothing`] asks, again after each way to end a process.
fn retries_are_known(client: &mut Connection, topic: &Topic, id: i64) {
    for number in 0..5 {
        let values = [format!("a{number}"), format!("b{number}")];
        lands(
            client,
            topic,
            batch(id, 0, 2 + number * 2, &values),
            i64::from(2 + number * 2),
        );
    }
    for wrong in [
        // Older than the last five, cut differently, a gap.
        batch(id, 0, 0, &["a", "b"]),
        batch(id, 0, 10, &["a"]),
        batch(id, 0, 11, &["a", "b"]),
        batch(id, 0, 13, &["a"]),
    ] {
        refused(client, topic, wrong, ErrorCode::OutOfOrderSequenceNumber);
    }
    assert_eq!(client.end_offset(topic, 0), 12, "nothing was appended");
}

#[test]
fn rp_63_retries_append_nothing() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("retried", 1, &[]);
    let id = new_id(&mut client);
    lands(&mut client, &topic, batch(id, 0, 0, &["x", "y"]), 0);
    retries_are_known(&mut client, &topic, id);
    broker.stop();
    assert_eq!(snapshots(&broker, "retried"), [12]);
    broker.start_again();
    retries_are_known(&mut broker.connect(), &topic, id);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    retries_are_known(&mut client, &topic, id);

    // RP-66, RP-67.
    refused(
        &mut client,
        &topic,
        batch(id, 1, 12, &["z"]),
        ErrorCode::OutOfOrderSequenceNumber,
    );
    lands(&mut client, &topic, batch(id, 1, 0, &["z"]), 12);
    refused(
        &mut client,
        &topic,
        batch(id, 0, 12, &["z"]),
        ErrorCode::InvalidProducerEpoch,
    );
    lands(
        &mut client,
        &topic,
        batch(id + 50_000, 0, i32::MAX, &["m", "0"]),
        13,
    );
    lands(&mut client, &topic, batch(id + 50_000, 0, 1, &["1"]), 15);
}

/// The answer to a retry is the answer that was lost, its append time among it.
#[test]
fn rp_63_a_retry_gets_the_append_time_of_its_original() {
    let broker = Broker::start();
    let mut client = broker.connect();
    for (name, kind) in [("stamped", "LogAppendTime"), ("unstamped", "CreateTime")] {
        let topic = client.create_topic(name, 1, &[("message.timestamp.type", kind)]);
        let id = new_id(&mut client);
        let first = client.produce(&topic, 0, -1, batch(id, 0, 0, &["x"]));
        assert_eq!(first.log_append_time_ms == -1, kind == "CreateTime");
        if std::env::var_os("THALWEG_TEST_AGAINST").is_some() && kind == "CreateTime" {
            // Kafka answers a retry with the record's own time here.
            continue;
        }
        let before = now_ms();
        while now_ms() == before {
            thread::yield_now();
        }
        let again = client.produce(&topic, 0, -1, batch(id, 0, 0, &["x"]));
        assert_eq!(first, again);
    }
}

/// RP-63 while the original is still being written: both in one burst, many at a time.
#[test]
fn retries_of_batches_in_flight_wait_for_them() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("burst", 1, &[]);
    let id = new_id(&mut client);
    let version = newest::<ProduceRequest>();
    for number in 0..40 {
        let values = ["v".repeat(50_000), number.to_string()];
        let sent = batch(id, 0, number * 2, &values);
        let mut burst = Vec::new();
        for acks in [-1, 1, -1] {
            let request = produce_request(&topic, 0, acks, sent.clone());
            burst.extend(client.encode(&request, version).1);
        }
        client.send_bytes(&burst);
        for _ in 0..3 {
            let (_, answer) = client.receive::<ProduceRequest>(version);
            let answer = only(answer);
            assert_eq!(error(answer.error_code), ErrorCode::None);
            assert_eq!(answer.base_offset, i64::from(number) * 2);
        }
    }
    assert_eq!(client.end_offset(&topic, 0), 80);
}

#[test]
fn rp_69_a_retry_is_known_after_its_original_was_deleted() {
    let mut broker = Broker::start_with(restless());
    let mut client = broker.connect();
    let topic = client.create_topic("fleeting", 1, &[("retention.ms", "1")]);
    let original = batch(new_id(&mut client), 0, 0, &["gone"]);
    lands(&mut client, &topic, original.clone(), 0);
    broker.wait_for_log("1 by retention.ms");
    let below = client.fetch(&topic, 0, 0);
    assert_eq!(error(below.error_code), ErrorCode::OffsetOutOfRange);
    lands(&mut client, &topic, original.clone(), 0);
    assert_eq!(client.end_offset(&topic, 0), 1);
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    lands(&mut client, &topic, original, 0);
    assert_eq!(client.end_offset(&topic, 0), 1);
}

/// Offsets of a partition's snapshots, ascending.
fn snapshots(broker: &Broker, topic: &str) -> Vec<i64> {
    let files = fs::read_dir(broker.partition(topic, 0)).expect("the partition");
    let mut found: Vec<i64> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".snapshot")?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

fn snapshot(broker: &Broker, topic: &str, at: i64) -> PathBuf {
    broker
        .partition(topic, 0)
        .join(format!("{at:020}.snapshot"))
}

/// ST-10, ST-32: whatever is left of the snapshots, the same retries are known.
#[test]
fn st_10_damaged_snapshots_are_passed_over() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("rolled", 1, &[("segment.bytes", "1048576")]);
    let id = new_id(&mut client);
    let mut sequence = 0;
    for _ in 0..8 {
        let sent = batch(id, 0, sequence, &["v".repeat(400_000)]);
        lands(&mut client, &topic, sent, i64::from(sequence));
        sequence += 1;
    }
    drop(client);
    eventually("one snapshot per roll", || {
        (snapshots(&broker, "rolled") == [2, 4, 6]).then_some(())
    });
    for damage in 0..4 {
        match damage {
            0 => broker.kill(),
            _ => broker.stop(),
        }
        let there = snapshots(&broker, "rolled");
        match damage {
            0 => {}
            1 => {
                assert_eq!(there, [2, 4, 6, 8]);
                let path = snapshot(&broker, "rolled", 8);
                let mut bytes = fs::read(&path).expect("a snapshot");
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                fs::write(&path, bytes).expect("damaged");
            }
            2 => {
                for at in there {
                    fs::write(snapshot(&broker, "rolled", at), b"no").expect("damaged");
                }
            }
            _ => {
                for at in there {
                    fs::remove_file(snapshot(&broker, "rolled", at)).expect("removed");
                }
                // Of a log that was longer once.
                fs::write(snapshot(&broker, "rolled", 9), b"no").expect("written");
            }
        }
        broker.start_again();
        let mut client = broker.connect();
        for back in 1..=5 {
            let old = sequence - back;
            let sent = batch(id, 0, old, &["v".repeat(400_000)]);
            lands(&mut client, &topic, sent, i64::from(old));
        }
        let sent = batch(id, 0, sequence + 1, &["gap"]);
        refused(
            &mut client,
            &topic,
            sent,
            ErrorCode::OutOfOrderSequenceNumber,
        );
        assert!(!snapshot(&broker, "rolled", 9).exists());
    }
}

/// The segments below a log's start may be all that tells of its producers: they go when a snapshot does.
#[test]
fn rp_69_a_kill_before_deleted_records_went_hurts_no_producer() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("begun", 1, &[("segment.bytes", "1048576")]);
    let (early, late) = (new_id(&mut client), new_id(&mut client));
    let large = |id, sequence| batch(id, 0, sequence, &["v".repeat(400_000)]);
    for sequence in 0..6 {
        lands(
            &mut client,
            &topic,
            large(early, sequence),
            i64::from(sequence),
        );
    }
    for sequence in 0..3 {
        lands(
            &mut client,
            &topic,
            large(late, sequence),
            i64::from(6 + sequence),
        );
    }
    let (code, start) = delete_records(&mut client, &topic, 7);
    assert_eq!((code, start), (ErrorCode::None, 7));
    // They are stored in the background.
    eventually("a snapshot per roll", || {
        (snapshots(&broker, "begun").len() > 2).then_some(())
    });
    broker.kill();
    // One is left, of before the last batches of the early producer.
    let all = snapshots(&broker, "begun");
    assert!(all.len() > 2 && all[0] < 6, "{all:?}");
    for at in &all[1..] {
        fs::remove_file(snapshot(&broker, "begun", *at)).expect("removed");
    }
    broker.start_again_with(restless());
    let mut client = broker.connect();
    lands(&mut client, &topic, large(early, 6), 9);
    lands(&mut client, &topic, large(late, 3), 10);
    let below = client.fetch(&topic, 0, 6);
    assert_eq!(error(below.error_code), ErrorCode::OffsetOutOfRange);
    broker.wait_for_log("below the log start");
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    lands(&mut client, &topic, large(early, 6), 9);
    lands(&mut client, &topic, large(early, 7), 11);
}

/// TRAP-12, short: a producer that retries what it got no answer to, over kill after kill. Nothing is
/// missing, nothing is there twice, all is in order.
#[test]
fn trap_12_kills_leave_no_duplicates() {
    let rounds = if is_long() { 20 } else { 4 };
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("once", 1, &[("segment.bytes", "1048576")]);
    let mut producer = Producer {
        topic: topic.clone(),
        id: new_id(&mut client),
        sent: BTreeMap::new(),
        acked: 0,
        next: 0,
    };
    drop(client);
    for round in 0..rounds {
        // Here and not in its thread, which may be late for the kill.
        let connection = broker.connect();
        let until = producer.next + 1_000_000;
        let run = thread::spawn(move || {
            producer.run(connection, until);
            producer
        });
        // Not at a point that the protocol knows of.
        thread::park_timeout(Duration::from_millis(20 + 37 * round));
        broker.kill();
        producer = run.join().expect("it ends by the kill");
        assert!(!producer.sent.is_empty(), "killed between two batches");
        broker.start_again();
    }
    eventually("all acknowledgements", || {
        let until = producer.next;
        producer.run(broker.connect(), until);
        (producer.acked == producer.next).then_some(())
    });
    let wanted: Vec<Vec<u8>> = (0..producer.next).map(value).collect();
    let got = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    assert_eq!(got.len(), wanted.len());
    assert!(got == wanted, "each record once, in order");
}

fn value(number: i32) -> Vec<u8> {
    format!("{number} {}", "x".repeat(300)).into_bytes()
}

/// One record per batch, at most five batches in flight, like Java's.
struct Producer {
    topic: Topic,
    id: i64,
    /// In flight when the connection broke: to be sent again, as they were.
    sent: BTreeMap<i32, Vec<u8>>,
    acked: i32,
    next: i32,
}

impl Producer {
    /// Until all below `until` is acknowledged or the connection breaks.
    fn run(&mut self, mut connection: Connection, until: i32) {
        let version = newest::<ProduceRequest>();
        let mut waiting: Vec<i32> = self.sent.keys().copied().collect();
        for batch in self.sent.values() {
            connection.send(&produce_request(&self.topic, 0, -1, batch.clone()), version);
        }
        loop {
            while self.sent.len() < 5 && self.next < until {
                let batch = batch(self.id, 0, self.next, &[value(self.next)]);
                self.sent.insert(self.next, batch.clone());
                connection.send(&produce_request(&self.topic, 0, -1, batch), version);
                waiting.push(self.next);
                self.next += 1;
            }
            if waiting.is_empty() {
                return;
            }
            let Some(answer) = connection.read_frame() else {
                return;
            };
            let (_, answer) = frame::decode_response::<ProduceRequest>(answer, version)
                .expect("a response that decodes");
            let answer = only(answer);
            let number = waiting.remove(0);
            assert_eq!(
                error(answer.error_code),
                ErrorCode::None,
                "record {number}: {:?}",
                answer.error_message
            );
            assert_eq!(answer.base_offset, i64::from(number));
            self.sent.remove(&number);
            self.acked = self.acked.max(number + 1);
        }
    }
}
