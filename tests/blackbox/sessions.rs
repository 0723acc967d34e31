//! Fetch sessions (KIP-227).

use thalweg_protocol::messages::{FetchRequest, FetchResponse, fetch_request};
use thalweg_protocol::{ErrorCode, Message};

use crate::batch::{plain, records_from, values};
use crate::broker::{Broker, Options};
use crate::wire::{Connection, Topic, error, newest};

/// A fetch in a session; the topic is named both ways, each version takes its own.
fn session_fetch(session: (i32, i32), topic: &Topic, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions: Vec<_> = partitions
        .iter()
        .map(|(partition, offset)| fetch_request::FetchPartition {
            partition: *partition,
            fetch_offset: *offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        })
        .collect();
    let topics = match partitions.is_empty() {
        true => Vec::new(),
        false => vec![fetch_request::FetchTopic {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partitions,
        }],
    };
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_id: session.0,
        session_epoch: session.1,
        topics,
        ..Default::default()
    }
}

fn told(response: &FetchResponse) -> Vec<i32> {
    let rows = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
    rows.map(|row| row.partition_index).collect()
}

#[test]
fn rp_55_a_session_tells_only_what_changed() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("session", 3, &[]);
    client.append(&topic, 0, plain(&["a"]));
    for version in 7..=newest::<FetchRequest>() {
        let all = [(0, 0), (1, 0), (2, 0)];
        let full = client.call(&session_fetch((0, 0), &topic, &all), version);
        assert_eq!(told(&full), [0, 1, 2], "version {version}");
        let id = full.session_id;
        assert!(id > 0, "version {version}");
        // Only partition 0 has records; its offset did not move, so they come again.
        let again = client.call(&session_fetch((id, 1), &topic, &[]), version);
        assert_eq!((again.session_id, told(&again)), (id, vec![0]));
        // Read on: nothing new.
        let end = client.end_offset(&topic, 0);
        let quiet = client.call(&session_fetch((id, 2), &topic, &[(0, end)]), version);
        assert_eq!(told(&quiet), [0; 0]);
        let at = client.append(&topic, 0, plain(&["b"]));
        let news = client.call(&session_fetch((id, 3), &topic, &[]), version);
        assert_eq!(told(&news), [0]);
        let got = records_from(&news.responses[0].partitions[0], at);
        assert_eq!(values(&got), [b"b".to_vec()]);
        // Out of turn, and unknown.
        let late = client.call(&session_fetch((id, 3), &topic, &[]), version);
        assert_eq!(error(late.error_code), ErrorCode::InvalidFetchSessionEpoch);
        // The last epoch ends it and is answered in full.
        let last = client.call(&session_fetch((id, -1), &topic, &[(0, end)]), version);
        assert_eq!((last.session_id, told(&last)), (0, vec![0]));
        let gone = client.call(&session_fetch((id, 4), &topic, &[]), version);
        assert_eq!(error(gone.error_code), ErrorCode::FetchSessionIdNotFound);
    }
    assert!(FetchRequest::VERSIONS.contains(&7));
}

#[test]
fn rp_55_every_partition_has_its_turn() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("turns", 3, &[]);
    for partition in 0..3 {
        client.append(&topic, partition, plain(&["x".repeat(2_000)]));
    }
    let version = newest::<FetchRequest>();
    let narrow = |session, partitions: &[(i32, i64)]| FetchRequest {
        max_bytes: 1,
        ..session_fetch(session, &topic, partitions)
    };
    let with_records = |client: &mut Connection, request: &FetchRequest| {
        let response = client.call(request, version);
        let rows = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        let full = rows.filter(|row| !records_from(row, 0).is_empty());
        let full: Vec<i32> = full.map(|row| row.partition_index).collect();
        (response.session_id, full)
    };
    let (id, first) = with_records(&mut client, &narrow((0, 0), &[(0, 0), (1, 0), (2, 0)]));
    let mut turns = first;
    for epoch in 1..6 {
        turns.extend(with_records(&mut client, &narrow((id, epoch), &[])).1);
    }
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn rp_54_a_session_learns_that_its_topic_is_gone() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("going", 1, &[]);
    let version = newest::<FetchRequest>();
    let full = client.call(&session_fetch((0, 0), &topic, &[(0, 0)]), version);
    assert_eq!(client.delete_topic("going"), ErrorCode::None);
    client.create_topic("going", 1, &[]);
    for epoch in 1..3 {
        let next = client.call(
            &session_fetch((full.session_id, epoch), &topic, &[]),
            version,
        );
        let row = &next.responses[0].partitions[0];
        assert_eq!(
            error(row.error_code),
            ErrorCode::UnknownTopicId,
            "told each time"
        );
    }
}
