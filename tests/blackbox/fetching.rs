//! Fetch: where it starts, how much it brings, how it waits.

use std::time::{Duration, Instant};

use thalweg_protocol::messages::{FetchRequest, fetch_request as asked};
use thalweg_protocol::{ErrorCode, Message};

use crate::batch::{bytes_of, compressed, plain, records_from, values};
use crate::broker::{Broker, Options};
use crate::wire::{error, fetch_request, newest, single};
use thalweg_protocol::records::Codec;

#[test]
fn fetch_answers_in_every_version() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("fetch-versions", 1, &[]);
    client.append(&topic, 0, plain(&["a", "b"]));
    for version in FetchRequest::VERSIONS {
        let answer = single(client.call(&fetch_request(&topic, 0, 0), version));
        assert_eq!(
            error(answer.error_code),
            ErrorCode::None,
            "version {version}"
        );
        assert_eq!((answer.high_watermark, answer.last_stable_offset), (2, 2));
        assert_eq!(
            values(&records_from(&answer, 0)),
            [b"a", b"b"],
            "version {version}"
        );
    }
}

#[test]
fn a_fetch_starts_inside_a_batch_and_gets_it_whole() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("inside", 1, &[]);
    client.append(&topic, 0, compressed(Codec::Zstd, &["0", "1", "2"]));
    client.append(&topic, 0, plain(&["3"]));
    let answer = client.fetch(&topic, 0, 2);
    assert_eq!(values(&records_from(&answer, 0)), [b"0", b"1", b"2", b"3"]);
}

#[test]
fn rp_11_outside_the_log_is_out_of_range_and_its_end_is_not() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("range", 1, &[]);
    client.append(&topic, 0, plain(&["0"]));
    let at_end = client.fetch(&topic, 0, 1);
    assert_eq!(
        (error(at_end.error_code), bytes_of(&at_end).len()),
        (ErrorCode::None, 0)
    );
    for outside in [2, i64::MAX, -5] {
        let answer = client.fetch(&topic, 0, outside);
        assert_eq!(
            error(answer.error_code),
            ErrorCode::OffsetOutOfRange,
            "offset {outside}"
        );
    }
}

#[test]
fn rp_12_a_first_batch_over_every_limit_comes_whole() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("large", 2, &[]);
    let large = plain(&["x".repeat(500_000)]);
    for partition in 0..2 {
        client.append(&topic, partition, large.clone());
        client.append(&topic, partition, large.clone());
    }
    let mut request = fetch_request(&topic, 0, 0);
    request.max_bytes = 1_000;
    request.topics[0].partitions[0].partition_max_bytes = 1_000;
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(records_from(&answer, 0).len(), 1, "one batch, whole");
    // Only the first partition with data gets that grace.
    request.topics[0].partitions.push(asked::FetchPartition {
        partition: 1,
        partition_max_bytes: 1_000,
        ..Default::default()
    });
    let response = client.call(&request, newest::<FetchRequest>());
    let sizes: Vec<usize> = response.responses[0]
        .partitions
        .iter()
        .map(|p| bytes_of(p).len())
        .collect();
    assert_eq!(
        sizes.iter().filter(|size| **size > 0).count(),
        1,
        "{sizes:?}"
    );
}

#[test]
fn many_partitions_come_in_one_answer() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("wide", 8, &[]);
    for partition in 0..8 {
        client.append(&topic, partition, plain(&[format!("{partition}")]));
    }
    for version in [4, 12, newest::<FetchRequest>()] {
        let mut request = fetch_request(&topic, 0, 0);
        request.topics[0].partitions = (0..8)
            .map(|partition| asked::FetchPartition {
                partition,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            })
            .collect();
        let response = client.call(&request, version);
        for answer in &response.responses[0].partitions {
            let wanted = answer.partition_index.to_string().into_bytes();
            assert_eq!(
                values(&records_from(answer, 0)),
                [wanted],
                "version {version}"
            );
        }
    }
}

/// A fetch at the end waits for a record, whichever shard it lands on, and not for its time to pass.
#[test]
fn a_waiting_fetch_is_woken_by_a_record() {
    let broker = Broker::start();
    let mut writer = broker.connect();
    let topic = writer.create_topic("waiting", 4, &[]);
    for partition in 0..4 {
        let mut reader = broker.connect();
        let mut request = fetch_request(&topic, partition, 0);
        request.max_wait_ms = 45_000;
        request.min_bytes = 1;
        let started = Instant::now();
        reader.send(&request, newest::<FetchRequest>());
        writer.append(&topic, partition, plain(&["now"]));
        let (_, response) = reader.receive::<FetchRequest>(newest::<FetchRequest>());
        assert_eq!(values(&records_from(&single(response), 0)), [b"now"]);
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_waiting_fetch_is_answered_when_its_time_has_passed() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("patient", 1, &[]);
    client.append(&topic, 0, plain(&["little"]));
    let mut request = fetch_request(&topic, 0, 0);
    request.max_wait_ms = 300;
    request.min_bytes = 1 << 20;
    let started = Instant::now();
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(records_from(&answer, 0).len(), 1, "what there was");
    assert!(
        started.elapsed() >= Duration::from_millis(290),
        "{:?}",
        started.elapsed()
    );
}

/// The bound of the whole answer holds where that of the partition is wider; the broker's own, too.
#[test]
fn a_fetch_brings_no_more_than_the_whole_answer_may_hold() {
    let broker = Broker::start_with(Options::with(&[("fetch.max.bytes", "6000")]));
    let mut client = broker.connect();
    let topic = client.create_topic("bounded", 2, &[]);
    for number in 0..16 {
        client.append(&topic, number % 2, plain(&["x".repeat(1_000)]));
    }
    let mut request = fetch_request(&topic, 0, 0);
    for version in FetchRequest::VERSIONS {
        for (max_bytes, records) in [(0, 1), (900, 1), (2_500, 2), (i32::MAX, 5)] {
            request.max_bytes = max_bytes;
            let answer = single(client.call(&request, version));
            assert_eq!(
                records_from(&answer, 0).len(),
                records,
                "{max_bytes} bytes, version {version}"
            );
        }
    }
}

/// A partition that is far behind gets what is left of the answer, though one before it has its few bytes each time.
#[test]
fn a_partition_that_does_not_fit_comes_as_far_as_it_does() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("behind", 3, &[]);
    client.append(&topic, 0, plain(&["few"]));
    for _ in 0..10 {
        client.append(&topic, 1, plain(&["x".repeat(1_000)]));
        client.append(&topic, 2, plain(&["x".repeat(1_000)]));
    }
    let mut request = fetch_request(&topic, 0, 0);
    let mut partitions: Vec<_> = (0..3)
        .map(|partition| asked::FetchPartition {
            partition,
            partition_max_bytes: 5_000,
            ..Default::default()
        })
        .collect();
    request.max_bytes = 4_000;
    for isolation in [0, 1] {
        request.isolation_level = isolation;
        for order in [[0, 1, 2], [0, 2, 1], [2, 0, 1]] {
            partitions.sort_by_key(|p| order.iter().position(|index| *index == p.partition));
            request.topics[0].partitions.clone_from(&partitions);
            let response = client.call(&request, newest::<FetchRequest>());
            let told = &response.responses[0].partitions;
            let records = |index: i32| {
                let told = told.iter().find(|told| told.partition_index == index);
                records_from(told.expect("asked for"), 0).len()
            };
            let got = order.map(records);
            let wanted = if order[0] == 0 { [1, 3, 0] } else { [3, 1, 0] };
            assert_eq!(got, wanted, "in the order {order:?}");
        }
    }
}

/// KIP-541: who wants at least more than may be sent is not kept waiting once that much is there.
#[test]
fn a_fetch_waits_for_no_more_than_may_be_sent() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("greedy", 1, &[]);
    for _ in 0..3 {
        client.append(&topic, 0, plain(&["x".repeat(1_000)]));
    }
    let mut request = fetch_request(&topic, 0, 0);
    request.max_wait_ms = 45_000;
    request.min_bytes = 100 << 20;
    request.max_bytes = 2_500;
    let started = Instant::now();
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(records_from(&answer, 0).len(), 2);
    // The same by the bound of the partition: it has more than may be asked of it, though whole batches are less.
    request.max_bytes = 1 << 20;
    request.topics[0].partitions[0].partition_max_bytes = 2_500;
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(records_from(&answer, 0).len(), 2);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn rp_35_leader_epochs_are_checked() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("fenced", 1, &[]);
    client.append(&topic, 0, plain(&["x"]));
    let epoch = client.leader_epoch(&topic, 0);
    let mut ask = |asked_epoch: i32, offset: i64| {
        let mut request = fetch_request(&topic, 0, offset);
        request.topics[0].partitions[0].current_leader_epoch = asked_epoch;
        let answer = single(client.call(&request, newest::<FetchRequest>()));
        error(answer.error_code)
    };
    assert_eq!(ask(epoch, 0), ErrorCode::None);
    assert_eq!(ask(-1, 0), ErrorCode::None);
    assert_eq!(ask(epoch + 1, 0), ErrorCode::UnknownLeaderEpoch);
    assert_eq!(
        ask(epoch + 1, 1_000),
        ErrorCode::UnknownLeaderEpoch,
        "before the offset"
    );
}

#[test]
fn unknown_topics_and_partitions_are_said_so() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("known", 1, &[]);
    for partition in [1, -1, i32::MAX] {
        let answer = client.fetch(&topic, partition, 0);
        assert_eq!(error(answer.error_code), ErrorCode::UnknownTopicOrPartition);
    }
    let mut by_name = fetch_request(&topic, 0, 0);
    by_name.topics[0].topic = "unknown".to_owned();
    let answer = single(client.call(&by_name, 12));
    assert_eq!(error(answer.error_code), ErrorCode::UnknownTopicOrPartition);
}

/// A session is refused or given; either way an incremental fetch in an unknown one is refused
/// (RP-55).
#[test]
fn rp_55_an_unknown_fetch_session_is_refused() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("session", 1, &[]);
    let mut request = fetch_request(&topic, 0, 0);
    request.session_id = 12_345;
    request.session_epoch = 7;
    let response = client.call(&request, newest::<FetchRequest>());
    assert_eq!(
        error(response.error_code),
        ErrorCode::FetchSessionIdNotFound
    );
}
