//! ListOffsets: by time, and the values below zero that mean something else.

use thalweg_protocol::messages::{ListOffsetsRequest, list_offsets_request};
use thalweg_protocol::records::Codec;
use thalweg_protocol::{ErrorCode, Message};

use crate::batch::{now_ms, stamped};
use crate::broker::{Broker, Options};
use crate::wire::{Connection, Topic, error, newest};

/// Timestamps out of order, over several batches: -1 looks for 4, the largest.
fn filled(client: &mut Connection, name: &str, codec: Codec) -> (Topic, i64) {
    let topic = client.create_topic(name, 1, &[]);
    let start = now_ms() - 100_000;
    for batch in [[10, 30, 20], [15, 60, 90], [70, 50, 80]] {
        let records: Vec<(i64, &[u8])> = batch.iter().map(|ms| (start + ms, &b"x"[..])).collect();
        client.append(&topic, 0, stamped(codec, &records));
    }
    (topic, start)
}

#[test]
fn rp_98_a_time_finds_the_first_record_at_or_after_it() {
    let broker = Broker::start();
    let mut client = broker.connect();
    for (nth, codec) in crate::batch::CODECS.into_iter().enumerate() {
        let (topic, start) = filled(&mut client, &format!("by-time-{nth}"), codec);
        for version in ListOffsetsRequest::VERSIONS {
            let mut find = |after: i64| {
                let answer = client.list_offset(&topic, 0, start + after, version);
                assert_eq!(error(answer.error_code), ErrorCode::None);
                (answer.offset, answer.timestamp - start)
            };
            assert_eq!(find(0), (0, 10), "{codec:?}, version {version}");
            assert_eq!(find(11), (1, 30));
            assert_eq!(find(31), (4, 60));
            assert_eq!(find(60), (4, 60));
            assert_eq!(find(61), (5, 90));
            assert_eq!(find(91).0, -1);
        }
    }
}

#[test]
fn rp_98_special_values_work_from_their_version_on() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let (topic, start) = filled(&mut client, "special", Codec::None);
    for version in ListOffsetsRequest::VERSIONS {
        let mut find = |special: i64| {
            let answer = client.list_offset(&topic, 0, special, version);
            (error(answer.error_code), answer.offset, answer.timestamp)
        };
        assert_eq!(
            find(-1),
            (ErrorCode::None, 9, -1),
            "latest, version {version}"
        );
        assert_eq!(find(-2), (ErrorCode::None, 0, -1), "earliest");
        let since = [
            (-3, 7, 5, start + 90),
            (-4, 8, 0, -1),
            (-5, 9, -1, -1),
            (-6, 11, -1, -1),
        ];
        for (special, first_version, offset, timestamp) in since {
            let got = find(special);
            if version >= first_version {
                assert_eq!(
                    got,
                    (ErrorCode::None, offset, timestamp),
                    "{special}, version {version}"
                );
            } else {
                assert_eq!(
                    got.0,
                    ErrorCode::UnsupportedVersion,
                    "{special}, version {version}"
                );
            }
        }
    }
}

#[test]
fn an_empty_partition_has_ends_and_no_times() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("empty", 1, &[]);
    let version = newest::<ListOffsetsRequest>();
    let mut find = |special: i64| client.list_offset(&topic, 0, special, version).offset;
    assert_eq!((find(-1), find(-2), find(-3), find(0)), (0, 0, -1, -1));
    let unknown = client.list_offset(&topic, 5, -1, version);
    assert_eq!(
        error(unknown.error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

/// As Kafka refuses it: the answer would not say which of the two it is to.
#[test]
fn a_partition_that_is_named_twice_is_refused() {
    let broker = Broker::start();
    let mut client = broker.connect();
    client.create_topic("twice", 2, &[]);
    let asked = |partition_index, timestamp| list_offsets_request::ListOffsetsPartition {
        partition_index,
        timestamp,
        ..Default::default()
    };
    let named = |partitions| list_offsets_request::ListOffsetsTopic {
        name: "twice".to_owned(),
        partitions,
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![
            named(vec![asked(0, -1), asked(1, -1)]),
            named(vec![asked(0, -2)]),
        ],
        ..Default::default()
    };
    for version in ListOffsetsRequest::VERSIONS {
        let topics = client.call(&request, version).topics.into_iter();
        for row in topics.flat_map(|topic| topic.partitions) {
            let code = match row.partition_index {
                0 => ErrorCode::InvalidRequest,
                _once => ErrorCode::None,
            };
            assert_eq!(error(row.error_code), code, "version {version}");
        }
    }
}

#[test]
fn rp_98_times_are_found_across_segments_and_restarts() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("segments", 1, &[("segment.bytes", "1048576")]);
    let start = now_ms() - 1_000_000;
    let value = "x".repeat(200_000);
    for number in 0..20 {
        let records = [(start + number * 1_000, value.as_bytes())];
        client.append(&topic, 0, stamped(Codec::None, &records));
    }
    let check = |client: &mut Connection| {
        let version = newest::<ListOffsetsRequest>();
        for number in 0..20 {
            let found = client.list_offset(&topic, 0, start + number * 1_000 - 1, version);
            assert_eq!(found.offset, number);
        }
        assert_eq!(client.list_offset(&topic, 0, -3, version).offset, 19);
    };
    check(&mut client);
    broker.stop();
    broker.start_again();
    check(&mut broker.connect());
    broker.kill();
    broker.start_again();
    check(&mut broker.connect());
}
