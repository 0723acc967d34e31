//! `kill -9` under load, again and again: what was acknowledged is there (process kill, acks=1 and
//! all; RP-16 as far as one broker shows it).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use thalweg_protocol::frame;
use thalweg_protocol::messages::ProduceRequest;

use crate::batch::{CODECS, compressed, plain, read_all, values};
use crate::broker::{Broker, Options, eventually, is_long};
use crate::wire::{Connection, Topic, newest, only, produce_request};

const PARTITIONS: i32 = 4;
const WRITERS: usize = 4;
const REQUESTS_IN_FLIGHT: usize = 8;
/// Acknowledged batches between two kills.
const ACKS_PER_ROUND: u64 = 400;

/// Everything that was acknowledged: partition and offset to value.
type Acked = Mutex<HashMap<(i32, i64), Vec<u8>>>;

#[test]
fn rp_16_what_was_acknowledged_survives_every_kill() {
    let rounds = if is_long() { 200 } else { 5 };
    let settings = [("segment.bytes", "1048576")];
    let mut broker = Broker::start_with(Options::default());
    let topic = broker
        .connect()
        .create_topic("killed", PARTITIONS, &settings);
    let acked = Arc::new(Acked::default());
    for round in 0..rounds {
        write_until_end(&mut broker, &topic, &acked, round, Broker::kill);
        broker.start_again();
        check(&mut broker.connect(), &topic, &acked);
    }
}

/// Without acknowledgements only what is still on its way is lost: what the broker has taken before it answers a later
/// request of the connection is there after a kill.
#[test]
fn rp_6_what_was_taken_without_acks_survives_a_kill() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("unanswered", 1, &[]);
    let version = newest::<ProduceRequest>();
    for number in 0..50 {
        let request = produce_request(&topic, 0, 0, plain(&[format!("{number}")]));
        client.send(&request, version);
    }
    assert_eq!(client.append(&topic, 0, plain(&["answered"])), 50);
    broker.kill();
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    let wanted = (0..50).map(|number| format!("{number}").into_bytes());
    let wanted: Vec<_> = wanted.chain([b"answered".to_vec()]).collect();
    assert_eq!(got, wanted);
}

/// BI-38: a stop in the midst of writing ends in time, in order, and loses nothing either.
#[test]
fn bi_38_a_stop_under_load_ends_in_order() {
    let mut broker = Broker::start_with(Options::default());
    let topic = broker.connect().create_topic("stopped", PARTITIONS, &[]);
    let acked = Arc::new(Acked::default());
    for round in 0..if is_long() { 20 } else { 2 } {
        write_until_end(&mut broker, &topic, &acked, round, Broker::stop);
        let epoch = |broker: &Broker| broker.connect().leader_epoch(&topic, 0);
        broker.start_again();
        check(&mut broker.connect(), &topic, &acked);
        let before = epoch(&broker);
        broker.stop();
        broker.start_again();
        assert_eq!(epoch(&broker), before, "a stop in order raises no epoch");
    }
}

/// Writers run until the broker is killed or stopped, which happens after so many acknowledgements.
fn write_until_end(
    broker: &mut Broker,
    topic: &Topic,
    acked: &Arc<Acked>,
    round: usize,
    end: fn(&mut Broker),
) {
    let count = Arc::new(AtomicU64::new(0));
    let ending = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|id| {
            // Here and not in its thread, which may be late for the end.
            let writer = Writer {
                connection: broker.connect(),
                topic: topic.clone(),
                name: format!("round {round} writer {id}"),
                acks: if id % 2 == 0 { 1 } else { -1 },
                acked: Arc::clone(acked),
                count: Arc::clone(&count),
            };
            let ending = Arc::clone(&ending);
            thread::spawn(move || {
                let reason = writer.run();
                assert!(
                    ending.load(Ordering::SeqCst),
                    "ended before the broker did: {reason}"
                );
            })
        })
        .collect();
    eventually("acknowledgements", || {
        thread::park_timeout(Duration::from_millis(1));
        (count.load(Ordering::Relaxed) >= ACKS_PER_ROUND).then_some(())
    });
    ending.store(true, Ordering::SeqCst);
    end(broker);
    for writer in writers {
        writer.join().expect("writers end with the broker");
    }
}

struct Writer {
    connection: Connection,
    topic: Topic,
    name: String,
    acks: i16,
    acked: Arc<Acked>,
    count: Arc<AtomicU64>,
}

impl Writer {
    /// Pipelines batches until the connection breaks, and says why it ended.
    fn run(mut self) -> String {
        let connection = &mut self.connection;
        let version = newest::<ProduceRequest>();
        let mut waiting = std::collections::VecDeque::new();
        for number in 0_usize.. {
            let values: Vec<Vec<u8>> = (0..=number % 5)
                .map(|nth| format!("{} {number} {nth} {}", self.name, "x".repeat(300)).into_bytes())
                .collect();
            let partition = i32::try_from(number).expect("small") % PARTITIONS;
            let batch = compressed(CODECS[number % CODECS.len()], &values);
            connection.send(
                &produce_request(&self.topic, partition, self.acks, batch),
                version,
            );
            waiting.push_back((partition, values));
            if waiting.len() < REQUESTS_IN_FLIGHT {
                continue;
            }
            let Some(frame) = connection.read_frame() else {
                return "closed".to_owned();
            };
            let (_, response) = frame::decode_response::<ProduceRequest>(frame, version)
                .expect("a response that decodes");
            let answer = only(response);
            if answer.error_code != 0 {
                return format!("error {} {:?}", answer.error_code, answer.error_message);
            }
            let (partition, values) = waiting.pop_front().expect("a request in flight");
            let mut acked = self.acked.lock().expect("no writer panicked");
            for (offset, value) in (answer.base_offset..).zip(values) {
                let before = acked.insert((partition, offset), value);
                assert!(
                    before.is_none(),
                    "offset {offset} of {partition} was given twice"
                );
            }
            drop(acked);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        unreachable!("writers run until the end")
    }
}

/// Every acknowledged record is at its offset; offsets have no gaps (`read_all` looks).
fn check(connection: &mut Connection, topic: &Topic, acked: &Acked) {
    let acked = acked.lock().expect("no writer panicked");
    let mut found = 0;
    for partition in 0..PARTITIONS {
        for record in read_all(connection, topic, partition, 0) {
            if let Some(value) = acked.get(&(partition, record.offset)) {
                assert_eq!(
                    *value, record.value,
                    "partition {partition}, offset {}",
                    record.offset
                );
                found += 1;
            }
        }
    }
    assert_eq!(found, acked.len(), "acknowledged records that are missing");
}
