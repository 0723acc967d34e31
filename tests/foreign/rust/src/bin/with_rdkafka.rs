//! Writes and reads with the rdkafka crate, librdkafka. The steps are those of ../../../README.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use foreign_rust::{Arguments, Record, SHARED_PARTITIONS, records, same, same_values};
use futures::executor::block_on;
use futures::future::join_all;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);
const RETENTION: &str = "3600000";

type Admin = AdminClient<DefaultClientContext>;

fn main() {
    let arguments = Arguments::parse();
    let topic = format!("{}-codecs", arguments.prefix);
    let admin: Admin = client(&arguments).create().unwrap();
    make_topic(&admin, &topic);
    alter_topic(&admin, &topic);
    let sent = produce_each_codec(&arguments, &topic);
    same(&sent, &read(&arguments, &topic, sent.len()));
    let shared = format!("{}-shared", arguments.prefix);
    share_in_group(&arguments, &admin, &shared);
    delete_all(&arguments, &admin, &shared);
    println!("ok");
}

fn client(arguments: &Arguments) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments.bootstrap);
    config
}

fn create(admin: &Admin, topic: &str, partitions: i32) -> Result<(), RDKafkaErrorCode> {
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let results = block_on(admin.create_topics([&new], &AdminOptions::new())).unwrap();
    results[0].clone().map(|_| ()).map_err(|(_, code)| code)
}

fn is_listed(admin: &Admin, topic: &str) -> bool {
    let metadata = admin.inner().fetch_metadata(None, PATIENCE).unwrap();
    metadata.topics().iter().any(|each| each.name() == topic)
}

fn make_topic(admin: &Admin, topic: &str) {
    create(admin, topic, 2).unwrap();
    assert_eq!(
        create(admin, topic, 2),
        Err(RDKafkaErrorCode::TopicAlreadyExists)
    );
    assert!(is_listed(admin, topic));
}

fn alter_topic(admin: &Admin, topic: &str) {
    let options = AdminOptions::new();
    let altered = AlterConfig::new(ResourceSpecifier::Topic(topic)).set("retention.ms", RETENTION);
    block_on(admin.alter_configs([&altered], &options)).unwrap()[0]
        .as_ref()
        .unwrap();
    let asked = [ResourceSpecifier::Topic(topic)];
    let described = block_on(admin.describe_configs(&asked, &options))
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!(
        described.get("retention.ms").unwrap().value.as_deref(),
        Some(RETENTION)
    );
    let grown = NewPartitions::new(topic, 3);
    block_on(admin.create_partitions([&grown], &options)).unwrap()[0]
        .as_ref()
        .unwrap();
}

fn produce_each_codec(arguments: &Arguments, topic: &str) -> Vec<Record> {
    let mut all = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        for (kind, idempotent) in [("idempotent", "true"), ("plain", "false")] {
            let producer: FutureProducer = client(arguments)
                .set("compression.type", codec)
                .set("enable.idempotence", idempotent)
                .set("linger.ms", "5")
                .create()
                .unwrap();
            let batch = records(&format!("{codec}+{kind}"), arguments.count);
            let deliveries = batch.iter().map(|record| {
                producer
                    .send_result(outgoing(topic, record))
                    .unwrap_or_else(|(e, _)| panic!("{e}"))
            });
            let deliveries = block_on(join_all(deliveries.collect::<Vec<_>>()));
            for (delivery, wanted) in deliveries.into_iter().zip(all.len()..) {
                assert_eq!(delivery.unwrap().unwrap().offset, wanted as i64);
            }
            all.extend(batch);
        }
    }
    all
}

fn outgoing<'a>(topic: &'a str, record: &'a Record) -> FutureRecord<'a, [u8], [u8]> {
    let headers = record
        .headers
        .iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header {
                key,
                value: Some(value),
            })
        });
    FutureRecord {
        topic,
        partition: Some(1),
        payload: record.value.as_deref(),
        key: record.key.as_deref(),
        timestamp: None,
        headers: Some(headers),
    }
}

fn read(arguments: &Arguments, topic: &str, count: usize) -> Vec<Record> {
    let consumer: BaseConsumer = client(arguments)
        .set("group.id", "unused")
        .set("check.crcs", "true")
        .create()
        .unwrap();
    let mut assigned = TopicPartitionList::new();
    assigned
        .add_partition_offset(topic, 1, Offset::Beginning)
        .unwrap();
    consumer.assign(&assigned).unwrap();
    let mut got = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while got.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", got.len());
        // Nothing may also mean an event that is no message.
        let Some(message) = consumer.poll(Duration::from_millis(500)) else {
            continue;
        };
        let message = message.unwrap();
        let headers = message.headers().unwrap().iter();
        got.push(Record {
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.unwrap().to_vec()))
                .collect(),
        });
    }
    assert_eq!(
        consumer.fetch_watermarks(topic, 1, PATIENCE).unwrap(),
        (0, count as i64)
    );
    got
}

/// What the members of a group have and what they read.
struct Members {
    assigned: Vec<usize>,
    values: Vec<String>,
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn member(
    arguments: &Arguments,
    topic: &str,
    number: usize,
    all: &Mutex<Members>,
    stop: &AtomicBool,
) {
    let consumer: BaseConsumer = client(arguments)
        .set("group.id", &arguments.prefix)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    consumer.subscribe(&[topic]).unwrap();
    while !stop.load(Ordering::Relaxed) {
        if let Some(message) = consumer.poll(Duration::from_millis(50)) {
            let message = message.unwrap();
            let value = message.payload_view::<str>().unwrap().unwrap().to_owned();
            all.lock().unwrap().values.push(value);
        }
        all.lock().unwrap().assigned[number] = consumer.assignment().unwrap().count();
    }
    match consumer.commit_consumer_state(CommitMode::Sync) {
        Ok(()) => {}
        // It had read nothing.
        Err(error) => assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::NoOffset)),
    }
}

/// Starts members, calls once each has its partitions, and returns what they read by then.
fn consume(
    arguments: &Arguments,
    topic: &str,
    count: usize,
    once_assigned: impl FnOnce(),
) -> Vec<String> {
    let all = Mutex::new(Members {
        assigned: vec![0; count],
        values: Vec::new(),
    });
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..count {
            let (all, stop) = (&all, Arc::clone(&stop));
            scope.spawn(move || member(arguments, topic, number, all, &stop));
        }
        let own = SHARED_PARTITIONS as usize / count;
        until("partitions", || {
            all.lock().unwrap().assigned.iter().all(|&each| each == own)
        });
        once_assigned();
        until("all records", || {
            all.lock().unwrap().values.len() >= arguments.count
        });
        thread::sleep(Duration::from_millis(100)); // for what must not come
        stop.store(true, Ordering::Relaxed);
    });
    all.into_inner().unwrap().values
}

fn share_in_group(arguments: &Arguments, admin: &Admin, topic: &str) {
    create(admin, topic, SHARED_PARTITIONS).unwrap();
    let producer: FutureProducer = client(arguments).create().unwrap();
    let produce = |round: &str| -> Vec<String> {
        let sent: Vec<_> = (0..arguments.count)
            .map(|n| format!("{round} {n}"))
            .collect();
        let deliveries =
            sent.iter()
                .zip((0..SHARED_PARTITIONS).cycle())
                .map(|(value, partition)| {
                    let record = FutureRecord::<str, str>::to(topic)
                        .payload(value)
                        .partition(partition);
                    producer
                        .send_result(record)
                        .unwrap_or_else(|(e, _)| panic!("{e}"))
                });
        for delivery in block_on(join_all(deliveries.collect::<Vec<_>>())) {
            delivery.unwrap().unwrap();
        }
        sent
    };
    let mut sent = Vec::new();
    let got = consume(arguments, topic, arguments.members, || {
        sent = produce("first")
    });
    same_values(sent, got);
    let sent = produce("second");
    same_values(sent, consume(arguments, topic, 1, || ()));
}

fn delete_all(arguments: &Arguments, admin: &Admin, topic: &str) {
    let group = &arguments.prefix;
    let state = || {
        let groups = admin.inner().fetch_group_list(None, PATIENCE).unwrap();
        let found = groups.groups().iter().find(|each| each.name() == group);
        found.map(|found| found.state().to_owned())
    };
    assert_eq!(state().as_deref(), Some("Empty"));
    block_on(admin.delete_groups(&[group], &AdminOptions::new())).unwrap()[0]
        .as_ref()
        .unwrap();
    assert_eq!(state(), None);
    block_on(admin.delete_topics(&[topic], &AdminOptions::new())).unwrap()[0]
        .as_ref()
        .unwrap();
    assert!(!is_listed(admin, topic));
}
