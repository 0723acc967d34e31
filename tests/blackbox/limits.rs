//! Load and limits: what one client may take from the others.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::produce_request::PartitionProduceData;
use thalweg_protocol::messages::{
    ApiVersionsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
    fetch_request, list_offsets_request,
};
use thalweg_protocol::records::Codec;
use thalweg_types::limits::CONNECTION_BACKLOG_BYTES_MAX;

use crate::administering::alter;
use crate::batch::{compressed, plain};
use crate::broker::{Broker, Options, eventually, is_long};
use crate::wire::{
    Connection, MayCreate, Topic, error, fetch_request, metadata_request, newest, only,
    produce_request,
};

/// `thalweg_types::limits::REQUEST_ELEMENTS_MAX`, to the outside a documented number.
const ELEMENTS_MAX: i32 = 100_000;

fn one_shard() -> Options {
    Options {
        shards: Some(1),
        ..Options::default()
    }
}

fn assert_serves(client: &mut Connection) {
    assert_eq!(client.call(&ApiVersionsRequest::default(), 2).error_code, 0);
}

/// A fetch that names the first partition of `topic` so many times.
fn wide_fetch(topic: &Topic, times: i32) -> FetchRequest {
    let mut request = fetch_request(topic, 0, 0);
    let named = fetch_request::FetchPartition {
        partition_max_bytes: 1 << 20,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        ..Default::default()
    };
    request.topics[0].partitions = vec![named; usize::try_from(times).expect("a count")];
    request
}

/// Each of another partition: one that is named twice is refused.
fn wide_list_offsets(topic: &Topic, times: i32) -> ListOffsetsRequest {
    let named = |partition_index| list_offsets_request::ListOffsetsPartition {
        partition_index,
        current_leader_epoch: -1,
        ..Default::default()
    };
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![list_offsets_request::ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: (0..times).map(named).collect(),
        }],
        ..Default::default()
    }
}

/// Each is refused, which is found out one by one.
fn wide_produce(topic: &Topic, times: i32) -> ProduceRequest {
    let mut request = produce_request(topic, 0, 1, Vec::new());
    let named = PartitionProduceData {
        records: None,
        ..Default::default()
    };
    request.topic_data[0].partition_data =
        vec![named; usize::try_from(times).expect("a count")].into();
    request
}

fn wide_metadata(times: i32) -> MetadataRequest {
    let names: Vec<String> = (0..times).map(|n| format!("unknown-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    metadata_request(&names, MayCreate::No)
}

/// Requests of another connection that are answered while the one of `bytes` is worked on.
fn answered_meanwhile(broker: &Broker, bytes: &[u8]) -> usize {
    let mut other = broker.connect();
    assert_serves(&mut other);
    let mut large = broker.connect();
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    large.send_bytes(bytes);
    let reading = std::thread::spawn(move || {
        let answer = large.read_frame();
        told.store(true, Ordering::Release);
        answer.expect("an answer").len()
    });
    let mut answered = 0;
    while !done.load(Ordering::Acquire) {
        assert_serves(&mut other);
        answered += 1;
    }
    assert!(reading.join().expect("no panic") > 1_000);
    answered
}

/// BI-8: the largest request that is served is worked on in slices, so its shard serves others.
#[test]
fn bi_8_a_wide_request_does_not_hold_up_its_shard() {
    let broker = Broker::start_with(one_shard());
    let mut client = broker.connect();
    let topic = client.create_topic("narrow", 1, &[]);
    client.append(&topic, 0, plain(&["x"]));
    let most = ELEMENTS_MAX - 10;
    let (_, fetch) = client.encode(&wide_fetch(&topic, most), newest::<FetchRequest>());
    let (_, offsets) = client.encode(&wide_list_offsets(&topic, most), 5);
    let (_, metadata) = client.encode(&wide_metadata(most), newest::<MetadataRequest>());
    let (_, produce) = client.encode(&wide_produce(&topic, most), newest::<ProduceRequest>());
    for (what, bytes) in [
        ("Fetch", fetch),
        ("Produce", produce),
        ("ListOffsets", offsets),
        ("Metadata", metadata),
    ] {
        // Who asks may stand still meanwhile, on a busy machine: of such a one there is another.
        let mut tries = (0..5).map(|_| answered_meanwhile(&broker, &bytes));
        assert!(tries.any(|answered| answered >= 10), "{what}");
    }
}

/// BI-4, BI-8: the turn of large requests passes on behind a client that does not read.
#[test]
fn bi_4_a_large_request_of_a_client_that_does_not_read_holds_up_no_other() {
    let broker = Broker::start_with(one_shard());
    let mut client = broker.connect();
    client.create_topic("large", 2_000, &[]);
    let request = metadata_request(&["large"], MayCreate::No);
    let (_, ask) = client.encode(&request, newest::<MetadataRequest>());
    // Little more than a small one: it is there before the first answer is sent.
    let wide = wide_metadata(2_600);
    let (_, large) = client.encode(&wide, newest::<MetadataRequest>());
    let mut stuck = broker.connect();
    // Answers of some 52 kB each, of which the sockets take some.
    stuck.send_bytes(&[ask.repeat(14), large].concat());
    broker.wait_for_more("thalweg_response_memory_used_bytes", &[], 52_000.0);
    let answer = client.call(&wide, newest::<MetadataRequest>());
    assert_eq!(answer.topics.len(), 2_600);
    for _ in 0..15 {
        assert!(stuck.read_frame().is_some(), "an answer");
    }
}

/// BI-8: above the bound a request closes its connection, whatever it asks for.
#[test]
fn bi_8_a_request_that_names_too_many_things_is_closed() {
    let broker = Broker::start();
    let mut witness = broker.connect();
    let topic = witness.create_topic("named", 1, &[]);
    let (_, fetch) = witness.encode(&wide_fetch(&topic, ELEMENTS_MAX), newest::<FetchRequest>());
    let (_, offsets) = witness.encode(&wide_list_offsets(&topic, ELEMENTS_MAX), 5);
    let (_, metadata) = witness.encode(
        &wide_metadata(ELEMENTS_MAX + 1),
        newest::<MetadataRequest>(),
    );
    for (what, bytes) in [
        ("Fetch", fetch),
        ("ListOffsets", offsets),
        ("Metadata", metadata),
    ] {
        let mut client = broker.connect();
        client.send_bytes(&bytes);
        client.assert_closed(what);
        assert_serves(&mut witness);
    }
}

/// BI-8: naming the same topic again and again adds nothing to the answer.
#[test]
fn bi_8_a_repeated_name_is_described_once() {
    let broker = Broker::start();
    let mut client = broker.connect();
    client.create_topic("wide", 100, &[]);
    let names = vec!["wide"; 50_000];
    let request = metadata_request(&names, MayCreate::No);
    let answer = client.call(&request, newest::<MetadataRequest>());
    assert_eq!(answer.topics.len(), 1);
    assert_eq!(answer.topics[0].partitions.len(), 100);
}

/// BI-29: one address's surplus is closed; an override and a live change hold for it.
#[test]
fn bi_29_connections_of_one_address_are_limited() {
    let broker = Broker::start_with(Options::with(&[("max.connections.per.ip", "2")]));
    let mut first = broker.connect();
    let mut second = broker.connect();
    assert_serves(&mut first);
    assert_serves(&mut second);
    broker.connect().assert_closed("the third of its address");
    let key = "max.connections.per.ip.overrides";
    assert_eq!(
        alter(&mut first, 4, "1", key, Some("127.0.0.1:x")),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        alter(&mut first, 4, "1", key, Some("127.0.0.1:3")),
        ErrorCode::None
    );
    let mut third = broker.retry_connect();
    assert_serves(&mut third);
    broker.connect().assert_closed("the fourth of its address");
    assert!(
        broker.metric(
            "thalweg_connections_refused_total",
            &["max_connections_per_ip"]
        ) >= 2.0
    );
}

/// BI-29: at `max.connections` the next one waits, as with Kafka, until there is room. The half about
/// brokers' own listeners is owed to replication.
#[test]
fn bi_29_at_the_limit_of_connections_the_next_one_waits() {
    let broker = Broker::start_with(Options::with(&[("max.connections", "2")]));
    let mut first = broker.connect();
    let mut second = broker.connect();
    assert_serves(&mut first);
    assert_serves(&mut second);
    let mut third = broker.connect();
    third.send(&ApiVersionsRequest::default(), 2);
    assert_serves(&mut first);
    assert_eq!(broker.metric("thalweg_connections_open", &[]), 2.0);
    drop(second);
    let (_, answer) = third.receive::<ApiVersionsRequest>(2);
    assert_eq!(answer.error_code, 0);
}

/// Kafka completes an append that is satisfied when it is first looked at, whatever the timeout.
#[test]
fn an_append_that_only_waits_for_this_broker_outlives_a_timeout_of_zero() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("impatient", 2, &[]);
    for nth in 0..50 {
        let mut request = produce_request(&topic, nth % 2, -1, plain(&["x"]));
        request.timeout_ms = 0;
        let answer = only(client.call(&request, newest::<ProduceRequest>()));
        assert_eq!(error(answer.error_code), ErrorCode::None, "append {nth}");
    }
}

/// BI-4, BI-31: clients that ask for much and read nothing hold a bounded memory, each for itself and
/// in the long form, which takes a minute to fill it, all together: after a while they give way.
#[test]
fn bi_31_answers_that_nobody_reads_do_not_fill_the_memory() {
    let broker = Broker::start_with(one_shard());
    let mut witness = broker.connect();
    // Answers of some 130 kB each, or 52: 13 MB in sum for each client, which may have 16 of them waiting.
    let partitions = if is_long() { 5_000 } else { 2_000 };
    witness.create_topic("large", partitions, &[]);
    let request = metadata_request(&["large"], MayCreate::No);
    let (_, ask) = witness.encode(&request, newest::<MetadataRequest>());
    let answer = witness.call(&request, newest::<MetadataRequest>());
    assert_eq!(answer.topics[0].partitions.len(), partitions as usize);
    let clients = if is_long() { 100 } else { 3 };
    let greedy: Vec<Connection> = (0..clients)
        .map(|_| {
            let mut client = broker.connect();
            client.send_bytes(&ask.repeat(500_000 / partitions as usize));
            client
        })
        .collect();
    let each = |bytes: usize| f64::from(clients) * bytes as f64;
    if is_long() {
        broker.wait_for_metric("thalweg_connections_closed_total", &["slow_reader"]);
    } else {
        broker.wait_for_more("thalweg_response_memory_used_bytes", &[], each(1 << 18));
    }
    assert_serves(&mut witness);
    let used = broker.metric("thalweg_response_memory_used_bytes", &[]);
    assert!(used <= each(CONNECTION_BACKLOG_BYTES_MAX), "{used} bytes");
    let resident = broker.resident_bytes();
    assert!(resident < 400 << 20, "{resident} bytes resident");
    drop(greedy);
}

/// BI-2, BI-31: sizes that are only declared use up nobody's memory: with 1,000 requests that never arrive,
/// and as many that trickle, others produce as before, small and large, whole and in pieces.
#[test]
fn bi_31_requests_that_do_not_arrive_hold_up_nobody() {
    const SLOW: usize = 1_000;
    may_open(SLOW + 1_000);
    let broker = Broker::start_with(one_shard());
    let mut witness = broker.connect();
    let topic = witness.create_topic("served", 1, &[]);
    let mut slow = Vec::new();
    for declared in [65_000_i32, 1_000_000] {
        for _ in 0..SLOW / 2 {
            let mut client = broker.connect();
            client.send_bytes(&declared.to_be_bytes());
            client.send_bytes(&[0; 100]);
            slow.push(client);
        }
    }
    for _ in 0..3 {
        slow.iter_mut().for_each(|client| client.send_bytes(&[0]));
        for size in [10, 50_000, 500_000] {
            let mut honest = broker.connect();
            let started = Instant::now();
            honest.append(&topic, 0, plain(&["x".repeat(size)]));
            let took = started.elapsed();
            // Half of the time after which the slow ones would be closed.
            assert!(took < Duration::from_secs(15), "{size} bytes took {took:?}");
        }
    }
    assert!(broker.metric("thalweg_request_memory_used_bytes", &[]) < f64::from(8 << 20));
    assert_eq!(
        broker.metric("thalweg_request_memory_waits_total", &[]),
        0.0
    );
}

/// Raises the limit of open files of this process, which has all the tests in it, where it is lower.
fn may_open(files: usize) {
    let files = files as u64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("readable");
    if soft < files {
        setrlimit(Resource::RLIMIT_NOFILE, files.min(hard), hard).expect("up to the hard one");
    }
}

/// ST-21, BI-29: with few file handles topics are refused, and connections are served.
#[test]
fn bi_29_partitions_leave_file_handles_for_connections() {
    let broker = Broker::start_with(few_handles());
    let mut client = broker.connect();
    client.create_topic("fits", 100, &[]);
    let refused = client.try_create_topic("too-many", 100, &[]);
    assert_eq!(error(refused.error_code), ErrorCode::PolicyViolation);
    let text = refused.error_message.unwrap_or_default();
    assert!(text.contains("ulimit -n"), "{text}");
    let mut others: Vec<Connection> = (0..50).map(|_| broker.connect()).collect();
    others.iter_mut().for_each(assert_serves);
}

/// ST-21: a partition that found no file handle is served once there are some.
#[test]
fn st_21_a_partition_without_a_file_handle_is_opened_later() {
    let broker = Broker::start_with(few_handles());
    let mut client = broker.connect();
    let hoard = all_handles(&broker, &mut client);
    client.create_topic("late", 1, &[]);
    broker.wait_for_log("tried again until the cause has passed");
    let topic = Topic {
        name: "late".to_owned(),
        id: client.metadata(&["late"]).topics[0].topic_id,
    };
    let refused = client.produce(&topic, 0, 1, plain(&["x"]));
    assert_eq!(error(refused.error_code), ErrorCode::KafkaStorageError);
    let leader = |client: &mut Connection| {
        let row = client
            .metadata(&["late"])
            .topics
            .remove(0)
            .partitions
            .remove(0);
        (error(row.error_code), row.leader_id, row.offline_replicas)
    };
    let none = (ErrorCode::LeaderNotAvailable, -1, vec![1]);
    assert_eq!(leader(&mut client), none);
    drop(hoard);
    broker.wait_for_log("opened: the cause has passed");
    assert_eq!(leader(&mut client), (ErrorCode::None, 1, vec![]));
    assert_eq!(client.append(&topic, 0, plain(&["x"])), 0);
    let pauses = broker.log();
    let told = pauses
        .iter()
        .filter(|line| line.contains("accepting connections pauses"));
    assert!(told.count() < 5);
}

/// Again and again, although nobody says anything to the broker meanwhile: it ends, as the test wants it, the third time.
#[test]
fn st_21_a_partition_without_a_file_handle_is_tried_again_and_again() {
    let mut options = few_handles();
    let wrapped = ["env", "THALWEG_FAILPOINTS=open again=abort@3"];
    options.wrapper.splice(0..0, wrapped);
    let mut broker = Broker::start_with(options);
    let mut client = broker.connect();
    let _hoard = all_handles(&broker, &mut client);
    client.create_topic("late", 1, &[]);
    let status = broker.wait_for_end();
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32));
}

/// Connections until accepting pauses, which is said once, however long it lasts.
fn all_handles(broker: &Broker, client: &mut Connection) -> Vec<Connection> {
    let mut hoard = Vec::new();
    let pauses = |line: &String| line.contains("accepting connections pauses");
    while !broker.log().iter().any(pauses) {
        hoard.push(broker.connect());
        assert!(hoard.len() < 2_000, "handles never run out");
        assert_serves(client);
    }
    hoard
}

/// A broker that may have 256 files open, half of which partitions may take.
fn few_handles() -> Options {
    Options {
        shards: Some(1),
        wrapper: vec!["prlimit", "--nofile=256:256"],
        ..Options::default()
    }
}

/// BI-14: what readers would take for a bomb is not made by the broker itself.
#[test]
fn bi_14_recompression_stores_nothing_that_readers_refuse() {
    let broker = Broker::start_with(one_shard());
    let mut client = broker.connect();
    let topic = client.create_topic("shrunk", 1, &[("compression.type", "zstd")]);
    let zeros = "\0".repeat(20 << 20);
    // Snappy shrinks zeros some twenty times, which is no bomb.
    let batch = compressed(Codec::Snappy, &[&zeros]);
    assert!(batch.len() < 2 << 20, "{} bytes", batch.len());
    let roomy = [
        ("max.message.bytes", "2000000"),
        ("compression.type", "zstd"),
    ];
    let roomy = client.create_topic("roomy", 1, &roomy);
    let answer = client.produce(&roomy, 0, 1, batch.clone());
    assert_eq!(error(answer.error_code), ErrorCode::MessageTooLarge);
    let text = answer.error_message.unwrap_or_default();
    assert!(text.contains("readers"), "{text}");
    assert_eq!(client.end_offset(&roomy, 0), 0);
    // Below the free allowance any ratio is honest.
    let small = "\0".repeat(10 << 20);
    let batch = compressed(Codec::Snappy, &[&small]);
    assert_eq!(client.append(&topic, 0, batch), 0);
}

/// BI-38: SIGTERM while producers send without pause, and one has stopped in the middle of a request.
#[test]
fn bi_38_a_stop_does_not_wait_for_half_a_request() {
    // It would wait for 5 s more than a stop takes on this disk. Of one that the machine held up there is another.
    let more = Duration::from_secs(4);
    let mut tries = 0..3;
    assert!(tries.any(|_| time_of_stop(5_000) < time_of_stop(0) + more));
}

/// How long a stop takes after a request and so many bytes of the next one.
fn time_of_stop(next: usize) -> Duration {
    let mut broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("halved", 1, &[]);
    let mut half = broker.connect();
    let version = newest::<ProduceRequest>();
    let request = produce_request(&topic, 0, 0, plain(&["x".repeat(10_000)]));
    let (_, bytes) = half.encode(&request, version);
    half.send_bytes(&bytes);
    half.send_bytes(&bytes[..next]);
    // The first one is appended, so the half has been read too, or soon is.
    while client.end_offset(&topic, 0) < 1 {}
    let began = Instant::now();
    broker.stop();
    began.elapsed()
}

/// BI-38: a second SIGTERM ends at once what the first one would have done in order, and nothing that
/// was acknowledged is lost.
#[test]
fn bi_38_a_second_signal_ends_the_stop() {
    let mut broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("hurried", 1, &[]);
    for _ in 0..8 {
        client.append(&topic, 0, plain(&["x".repeat(900_000)]));
    }
    // An answer that is never taken keeps the stop waiting for 5 s. Where this test stands still for as long, the stop has
    // ended in order before the second signal.
    eventually("the second signal comes in time", || {
        let mut greedy = broker.connect();
        let (_, ask) = greedy.encode(&fetch_request(&topic, 0, 0), newest::<FetchRequest>());
        greedy.send_bytes(&ask.repeat(16));
        broker.wait_for_metric("thalweg_fetch_sendfile_bytes_total", &[]);
        broker.begin_stop();
        broker.wait_for_log("stopping");
        let status = broker.stop_at_once();
        if status.success() {
            broker.start_again();
            return None;
        }
        assert_eq!(status.code(), Some(1));
        Some(())
    });
    broker.wait_for_log("while stopping: ended at once");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.end_offset(&topic, 0), 8);
}

/// BI-35: a fetch may ask to wait for ever for more than there can be; it parks, and is forgotten with
/// its client.
#[test]
fn bi_35_an_absurd_fetch_is_forgotten_with_its_client() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("absurd", 1, &[]);
    client.append(&topic, 0, plain(&["x"]));
    let mut request = fetch_request(&topic, 0, 0);
    request.max_wait_ms = i32::MAX;
    request.min_bytes = i32::MAX;
    request.max_bytes = i32::MAX;
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    let mut waiting = broker.connect();
    waiting.send(&request, newest::<FetchRequest>());
    assert!(broker.wait_for_metric("thalweg_fetches_parked", &[]) >= 1.0);
    drop(waiting);
    eventually("nothing is parked", || {
        (broker.metric("thalweg_fetches_parked", &[]) == 0.0).then_some(())
    });
    // Negative numbers are none at all.
    request.max_wait_ms = -1;
    request.min_bytes = -1;
    request.max_bytes = -1;
    request.topics[0].partitions[0].partition_max_bytes = -1;
    let answer = client.call(&request, newest::<FetchRequest>());
    assert_eq!(error(answer.error_code), ErrorCode::None);
}
