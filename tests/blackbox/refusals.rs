//! Bad input: what is refused, what is closed, and that nobody else notices.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_protocol::messages::{
    ApiVersionsRequest, DescribeAclsRequest, ListGroupsRequest, MetadataRequest, ProduceRequest,
    produce_request as sent,
};
use thalweg_protocol::records::{BATCH_HEADER_BYTES, Codec};
use thalweg_protocol::{ErrorCode, Records, Request};

use crate::batch::{compressed, plain};
use crate::broker::{Broker, Options};
use crate::wire::{
    Connection, MayCreate, Topic, error, metadata_request, newest, only, produce_request,
};

/// Another client, which must keep being served.
fn assert_serves(client: &mut Connection) {
    assert_eq!(client.call(&ApiVersionsRequest::default(), 2).error_code, 0);
}

#[test]
fn bi_1_other_protocols_are_closed_and_told_about_once() {
    let broker = Broker::start_with(Options::default());
    let mut witness = broker.connect();
    assert_serves(&mut witness);
    let random: Vec<u8> = (0..512_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let hellos: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &random,
    ];
    let before = broker.log().len();
    for _ in 0..25 {
        for hello in hellos {
            let mut client = broker.connect();
            client.send_bytes(hello);
            client.finish_sending();
            client.assert_closed("another protocol");
        }
    }
    assert_serves(&mut witness);
    let lines = broker.log().len() - before;
    assert!(lines <= 20, "{lines} lines about 100 strangers");
}

#[test]
fn bi_2_impossible_sizes_are_closed() {
    let broker = Broker::start();
    let mut witness = broker.connect();
    for size in [-1, i32::MIN, 0, i32::MAX, 104_857_601] {
        let mut client = broker.connect();
        client.send_bytes(&size.to_be_bytes());
        client.send_bytes(&[0; 64]);
        client.assert_closed(&format!("size {size}"));
        assert_serves(&mut witness);
    }
}

/// A declared size takes no memory; bytes that arrive do.
#[test]
fn bi_2_a_declared_size_allocates_nothing() {
    let broker = Broker::start_with(Options::default());
    let mut witness = broker.connect();
    assert_serves(&mut witness);
    let before = broker.resident_bytes();
    let mut waiting: Vec<Connection> = (0..50).map(|_| broker.connect()).collect();
    for client in &mut waiting {
        client.send_bytes(&100_000_000_i32.to_be_bytes());
        client.send_bytes(&[0, 0, 0, 9, 0, 0]);
    }
    assert_serves(&mut witness);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(
        grown < 50 << 20,
        "{grown} bytes for 5 GB that were only announced"
    );
}

#[test]
fn bi_4_a_request_that_stops_arriving_is_closed() {
    let options = Options::with(&[("thalweg.request.progress.timeout.ms", "300")]);
    let broker = Broker::start_with(options);
    let mut witness = broker.connect();
    let mut half = broker.connect();
    let (_, bytes) = half.encode(&ApiVersionsRequest::default(), 2);
    half.send_bytes(&bytes[..bytes.len() / 2]);
    let mut size_only = broker.connect();
    size_only.send_bytes(&bytes[..3]);
    let started = Instant::now();
    half.assert_closed("half a request");
    size_only.assert_closed("three bytes of a size");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_serves(&mut witness);
}

#[test]
fn bi_4_an_idle_connection_is_closed() {
    let broker = Broker::start_with(Options::with(&[("connections.max.idle.ms", "300")]));
    // One that this test was too slow for is closed before it has asked for anything.
    let mut idle = broker.retry_connect();
    idle.assert_closed("an idle connection");
}

/// Answers that nobody takes stop the reading of further requests, and in the end the connection.
#[test]
fn bi_4_a_client_that_reads_nothing_is_closed() {
    let options = Options::with(&[("thalweg.response.write.timeout.ms", "500")]);
    let broker = Broker::start_with(options);
    let mut writer = broker.connect();
    let topic = writer.create_topic("unread", 1, &[]);
    for _ in 0..8 {
        writer.append(&topic, 0, plain(&["x".repeat(900_000)]));
    }
    let before = broker.resident_bytes();
    let mut greedy = broker.connect();
    let request = crate::wire::fetch_request(&topic, 0, 0);
    let version = newest::<thalweg_protocol::messages::FetchRequest>();
    let (_, bytes) = greedy.encode(&request, version);
    // Far more than both sockets hold; how much of it is taken does not matter.
    greedy.send_bytes(&bytes.repeat(200));
    let closed = broker.wait_for_metric("thalweg_connections_closed_total", &["slow_reader"]);
    assert!(closed >= 1.0);
    assert_serves(&mut writer);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(
        grown < 100 << 20,
        "{grown} bytes for answers that nobody took"
    );
}

#[test]
fn bi_5_a_request_may_be_cut_anywhere() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("cut", 1, &[]);
    let version = newest::<ProduceRequest>();
    let (_, bytes) = client.encode(&produce_request(&topic, 0, 1, plain(&["x"])), version);
    for (nth, cut) in (1..bytes.len()).enumerate() {
        client.send_bytes(&bytes[..cut]);
        client.send_bytes(&bytes[cut..]);
        let (_, response) = client.receive::<ProduceRequest>(version);
        assert_eq!(
            only(response).base_offset,
            i64::try_from(nth).expect("small"),
            "cut at {cut}"
        );
    }
    // Many in one piece, the last one in two.
    let end = client.end_offset(&topic, 0);
    let many = bytes.repeat(50);
    client.send_bytes(&many[..many.len() - 5]);
    client.send_bytes(&many[many.len() - 5..]);
    for nth in 0..50 {
        let (_, response) = client.receive::<ProduceRequest>(version);
        assert_eq!(only(response).base_offset, end + nth);
    }
}

#[test]
fn bi_6_trap_11_what_can_not_be_decoded_is_closed() {
    let broker = Broker::start();
    let mut witness = broker.connect();
    let frame = |body: &[u8]| {
        let size = i32::try_from(body.len()).expect("small");
        [&size.to_be_bytes(), body].concat()
    };
    let header = |key: i16, version: i16| {
        [
            &key.to_be_bytes()[..],
            &version.to_be_bytes(),
            &[0, 0, 0, 1, 0xff, 0xff],
        ]
        .concat()
    };
    let cases = [
        ("an unknown key", header(4_242, 0)),
        ("a negative key", header(-7, 0)),
        ("a key that clients may not use", header(62, 0)),
        ("a header cut short", vec![0, 3, 0]),
        (
            "a client id longer than the frame",
            [&header(3, 1)[..8], &[0x7f, 0xff, b'x']].concat(),
        ),
        ("Produce 0", header(0, 0)),
        ("Produce 2", header(0, 2)),
        ("Fetch 3", header(1, 3)),
        ("a Metadata of the future", header(3, 99)),
        ("a Metadata of the past", header(3, -1)),
        ("an empty body", header(1, 4)),
    ];
    for (what, body) in cases {
        let mut client = broker.connect();
        client.send_bytes(&frame(&body));
        client.assert_closed(what);
        assert_serves(&mut witness);
    }
}

/// Counts that the frame can not hold, tags that are not there.
#[test]
fn bi_7_impossible_counts_are_closed_without_memory() {
    let broker = Broker::start_with(Options::default());
    let mut witness = broker.connect();
    assert_serves(&mut witness);
    let before = broker.resident_bytes();
    let mut client = broker.connect();
    let request = metadata_request(&["a"], MayCreate::Yes);
    let (_, whole) = client.encode(&request, 1);
    let count_at = whole.len() - 4 - 3; // the array's count, before the one name
    let (_, flexible) = client.encode(&request, 12);
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for count in [i32::MAX, 1_000_000, 2, i32::MIN, -2] {
        let mut bytes = whole.clone();
        bytes[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        cases.push((format!("an array of {count}"), bytes));
    }
    let mut tags = flexible.clone();
    let last = tags.len() - 1;
    tags[last] = 0x7f; // so many tags
    cases.push(("tags that are not there".to_owned(), tags));
    for (what, bytes) in cases {
        for _ in 0..20 {
            let mut client = broker.connect();
            client.send_bytes(&bytes);
            client.finish_sending();
            client.assert_closed(&what);
        }
    }
    assert_serves(&mut witness);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes for counts");
}

/// Kafka looks at nothing behind a request, and clients rely on it: librdkafka's Metadata has three bytes
/// too many in flexible versions, kafka-go's DescribeAcls one.
#[test]
fn bi_7_bytes_behind_a_request_are_not_looked_at() {
    fn assert_answered<R: Request>(client: &mut Connection, request: &R, version: i16) {
        let (correlation_id, mut bytes) = client.encode(request, version);
        bytes.extend(*b"behind it");
        let size = u32::try_from(bytes.len() - 4).expect("a small request");
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        client.send_bytes(&bytes);
        assert_eq!(client.receive::<R>(version).0, correlation_id);
    }
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    for version in [1, newest::<MetadataRequest>()] {
        assert_answered(&mut client, &metadata_request(&[], MayCreate::Yes), version);
    }
    for version in [0, newest::<ListGroupsRequest>()] {
        assert_answered(&mut client, &ListGroupsRequest::default(), version);
    }
    let acls = DescribeAclsRequest::default();
    assert_answered(&mut client, &acls, newest::<DescribeAclsRequest>());
    // One that is decoded apart, because it is large.
    let names: Vec<String> = (0..20_000).map(|n| format!("unknown-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_answered(&mut client, &metadata_request(&names, MayCreate::No), 4);
    assert_serves(&mut client);
}

#[test]
fn bi_9_forbidden_topic_names_reach_no_file() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let long = "x".repeat(250);
    let names = [
        "", ".", "..", "../up", "a/b", "nul\0", "blank ", "übel", &long,
    ];
    for name in names {
        let created = client.try_create_topic(name, 1, &[]);
        assert_eq!(
            error(created.error_code),
            ErrorCode::InvalidTopicException,
            "{name:?}"
        );
        let asked = metadata_request(&[name], MayCreate::Yes);
        let found = client.call(&asked, newest::<MetadataRequest>());
        assert_eq!(
            error(found.topics[0].error_code),
            ErrorCode::InvalidTopicException,
            "{name:?}"
        );
    }
    assert!(
        !broker
            .data()
            .parent()
            .expect("a folder")
            .join("up-0")
            .exists()
    );
    // A dot and an underscore would be the same metric name.
    client.create_topic("colliding.name", 1, &[]);
    let collides = client.try_create_topic("colliding_name", 1, &[]);
    assert_eq!(error(collides.error_code), ErrorCode::InvalidTopicException);
}

#[test]
fn bi_9_impossible_partitions_are_unknown() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("few", 1, &[]);
    for partition in [1, -1, i32::MIN, i32::MAX] {
        let answer = client.produce(&topic, partition, 1, plain(&["x"]));
        assert_eq!(
            error(answer.error_code),
            ErrorCode::UnknownTopicOrPartition,
            "{partition}"
        );
    }
}

/// Sends `batch` and returns what the broker says; nothing may be appended.
fn refused(client: &mut Connection, topic: &Topic, batch: Vec<u8>) -> ErrorCode {
    let before = client.end_offset(topic, 0);
    let answer = client.produce(topic, 0, 1, batch);
    let code = error(answer.error_code);
    if code != ErrorCode::None {
        assert_eq!(
            client.end_offset(topic, 0),
            before,
            "{code}: nothing is appended"
        );
    }
    code
}

#[test]
fn bi_11_damaged_and_miscounted_batches_are_refused() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("damaged", 1, &[]);
    let whole = plain(&["a", "b"]);
    let changed = |at: usize, to: u8| {
        let mut batch = whole.clone();
        batch[at] ^= to;
        batch
    };
    let last = whole.len() - 1;
    assert_eq!(
        refused(&mut client, &topic, changed(last, 0x40)),
        ErrorCode::CorruptMessage
    );
    assert_eq!(
        refused(&mut client, &topic, changed(17, 0x01)),
        ErrorCode::CorruptMessage
    );
    let two = [&whole[..], &whole[..]].concat();
    assert_eq!(refused(&mut client, &topic, two), ErrorCode::InvalidRecord);
    assert_eq!(
        refused(&mut client, &topic, Vec::new()),
        ErrorCode::InvalidRecord
    );
    assert_ne!(
        refused(&mut client, &topic, whole[..last].to_vec()),
        ErrorCode::None
    );
    assert_ne!(
        refused(&mut client, &topic, whole[..20].to_vec()),
        ErrorCode::None
    );
    assert_eq!(refused(&mut client, &topic, whole), ErrorCode::None);
}

#[test]
fn bi_13_a_batch_over_the_limit_is_too_large() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("limited", 1, &[("max.message.bytes", "1000")]);
    let large = plain(&["x".repeat(1_000)]);
    assert_eq!(
        refused(&mut client, &topic, large),
        ErrorCode::MessageTooLarge
    );
    let fits = plain(&["x".repeat(1_000 - BATCH_HEADER_BYTES - 20)]);
    assert_eq!(refused(&mut client, &topic, fits), ErrorCode::None);
}

/// BI-14, BI-15: a payload that is no stream of its codec, and one that unpacks to far too much.
#[test]
fn bi_14_bombs_and_broken_streams_are_refused() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("bombs", 1, &[]);
    let zeros = "\0".repeat(63 << 20);
    for codec in [Codec::Gzip, Codec::Zstd] {
        let bomb = compressed(codec, &[&zeros, &zeros, &zeros]);
        assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
        let code = refused(&mut client, &topic, bomb);
        assert_ne!(code, ErrorCode::None, "{codec:?}");
    }
    let peak = broker.resident_bytes();
    assert!(peak < 300 << 20, "{peak} bytes resident after bombs");
}

/// One bad partition does not spoil the others of its request.
#[test]
fn bi_11_a_bad_batch_spoils_only_its_own_partition() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("mixed", 4, &[]);
    let mut request = produce_request(&topic, 0, -1, plain(&["good"]));
    for partition in 1..4 {
        let mut batch = plain(&["good"]);
        if partition == 2 {
            batch[17] ^= 1;
        }
        request.topic_data[0]
            .partition_data
            .push(sent::PartitionProduceData {
                index: partition,
                records: Some(Records::Held(BytesMut::from(&batch[..]))),
            });
    }
    let response = client.call(&request, newest::<ProduceRequest>());
    for answer in &response.responses[0].partition_responses {
        let wanted = if answer.index == 2 {
            ErrorCode::CorruptMessage
        } else {
            ErrorCode::None
        };
        assert_eq!(
            error(answer.error_code),
            wanted,
            "partition {}",
            answer.index
        );
    }
}
