//! Creating, finding and deleting topics.

use std::collections::BTreeSet;

use thalweg_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest, create_topics_request,
    delete_topics_request, metadata_request as asked,
};
use thalweg_protocol::{ErrorCode, Message};
use thalweg_types::Uuid;

use crate::batch::plain;
use crate::broker::{Broker, Options};
use crate::wire::{MayCreate, error, metadata_request, newest};

#[test]
fn topics_are_made_described_and_deleted() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("made", 3, &[("retention.ms", "3600000")]);
    assert!(!topic.id.is_zero());

    let response = client.metadata(&["made"]);
    assert_eq!(response.brokers.len(), 1);
    assert_eq!(response.brokers[0].port, i32::from(broker.address().port()));
    let described = &response.topics[0];
    assert_eq!(
        (described.topic_id, described.partitions.len()),
        (topic.id, 3)
    );
    assert_eq!(
        described.topic_authorized_operations,
        i32::MIN,
        "not asked for"
    );
    for partition in &described.partitions {
        let node = response.brokers[0].node_id;
        assert_eq!(partition.leader_id, node);
        assert_eq!(
            (&partition.replica_nodes, &partition.isr_nodes),
            (&vec![node], &vec![node])
        );
    }

    assert_eq!(
        error(client.try_create_topic("made", 1, &[]).error_code),
        ErrorCode::TopicAlreadyExists
    );
    assert_eq!(client.delete_topic("made"), ErrorCode::None);
    assert_eq!(
        client.delete_topic("made"),
        ErrorCode::UnknownTopicOrPartition
    );
    let gone = client.metadata(&["made"]);
    assert_eq!(
        error(gone.topics[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn creation_answers_alike_in_every_version() {
    let broker = Broker::start();
    let mut client = broker.connect();
    for version in CreateTopicsRequest::VERSIONS {
        let topic = |name: String, replicas| create_topics_request::CreatableTopic {
            name,
            num_partitions: 2,
            replication_factor: replicas,
            ..Default::default()
        };
        let topics = vec![
            topic(format!("version-{version}"), 1),
            topic(format!("replicated-{version}"), 3),
        ];
        let request = CreateTopicsRequest {
            topics,
            ..Default::default()
        };
        let response = client.call(&request, version);
        let codes: Vec<_> = response
            .topics
            .iter()
            .map(|topic| (topic.name.starts_with("version"), error(topic.error_code)))
            .collect();
        assert!(
            codes.contains(&(true, ErrorCode::None)),
            "version {version}: {codes:?}"
        );
        assert!(
            codes.contains(&(false, ErrorCode::InvalidReplicationFactor)),
            "{codes:?}"
        );
        assert_eq!(
            client.metadata(&[&format!("version-{version}")]).topics[0]
                .partitions
                .len(),
            2
        );
    }
}

#[test]
fn creation_only_checks_when_asked_to() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = create_topics_request::CreatableTopic {
        name: "checked".to_owned(),
        num_partitions: 2,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        validate_only: true,
        ..Default::default()
    };
    let response = client.call(&request, newest::<CreateTopicsRequest>());
    assert_eq!(error(response.topics[0].error_code), ErrorCode::None);
    let found = client.metadata(&["checked"]);
    assert_eq!(
        error(found.topics[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn bi_37_senseless_creations_are_refused_topic_by_topic() {
    let broker = Broker::start();
    let mut client = broker.connect();
    assert_eq!(
        error(client.try_create_topic("none", 0, &[]).error_code),
        ErrorCode::InvalidPartitions
    );
    let unknown = client.try_create_topic("config", 1, &[("no.such.config", "1")]);
    assert_eq!(error(unknown.error_code), ErrorCode::InvalidConfig);
    let wrong = client.try_create_topic("config", 1, &[("segment.bytes", "many")]);
    assert_eq!(error(wrong.error_code), ErrorCode::InvalidConfig);
    // The broker's default number of partitions and replicas.
    let by_default = client.try_create_topic("by-default", -1, &[]);
    assert_eq!(error(by_default.error_code), ErrorCode::None);
}

/// RP-54, as far as one broker shows it: ids are new after re-creation, and old ones are unknown.
#[test]
fn rp_54_trap_5_a_topic_made_again_has_a_new_id_and_no_records() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let first = client.create_topic("again", 1, &[]);
    client.append(&first, 0, plain(&["old"]));
    assert_eq!(client.delete_topic("again"), ErrorCode::None);
    let second = client.create_topic("again", 1, &[]);
    assert_ne!(first.id, second.id);
    assert_eq!(client.end_offset(&second, 0), 0);
    let stale = client.produce(&first, 0, 1, plain(&["late"]));
    assert_eq!(error(stale.error_code), ErrorCode::UnknownTopicId);
    let stale = client.fetch(&first, 0, 0);
    assert_eq!(error(stale.error_code), ErrorCode::UnknownTopicId);
    assert_eq!(client.append(&second, 0, plain(&["new"])), 0);
}

#[test]
fn topics_are_deleted_by_id_too() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("by-id", 1, &[]);
    let mut delete = |id: Uuid| {
        let topics = vec![delete_topics_request::DeleteTopicState {
            name: None,
            topic_id: id,
        }];
        let request = DeleteTopicsRequest {
            topics,
            timeout_ms: 30_000,
            ..Default::default()
        };
        let response = client.call(&request, 6);
        error(response.responses[0].error_code)
    };
    assert_eq!(delete(topic.id), ErrorCode::None);
    assert_eq!(delete(topic.id), ErrorCode::UnknownTopicId);
}

#[test]
fn metadata_lists_what_each_version_means_by_all() {
    let broker = Broker::start();
    let mut client = broker.connect();
    for name in ["all-a", "all-b"] {
        client.create_topic(name, 1, &[]);
    }
    for version in MetadataRequest::VERSIONS {
        // Version 0 has no null; there an empty list means all.
        let topics = if version == 0 { Some(Vec::new()) } else { None };
        let request = MetadataRequest {
            topics,
            ..Default::default()
        };
        let response = client.call(&request, version);
        let names: BTreeSet<_> = response
            .topics
            .iter()
            .filter_map(|topic| topic.name.as_deref())
            .collect();
        assert!(
            names.is_superset(&["all-a", "all-b"].into()),
            "version {version}: {names:?}"
        );
        if version > 0 {
            let none = MetadataRequest {
                topics: Some(Vec::new()),
                ..Default::default()
            };
            assert!(
                client.call(&none, version).topics.is_empty(),
                "version {version}"
            );
        }
    }
}

/// librdkafka asks for all topics with four zero bytes where flexible versions have one.
#[test]
fn metadata_forgives_librdkafka_three_bytes() {
    let broker = Broker::start();
    let mut client = broker.connect();
    client.create_topic("for-all", 1, &[]);
    for version in 9..=newest::<MetadataRequest>() {
        let all = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        let (_, mut bytes) = client.encode(&all, version);
        // Size, header with the client id and an empty tag section; then the null array.
        let array_at = 4 + 8 + 2 + "blackbox".len() + 1;
        assert_eq!(bytes[array_at], 0, "null");
        bytes.splice(array_at..array_at, [0; 3]);
        bytes[3] += 3;
        client.send_bytes(&bytes);
        let (_, response) = client.receive::<MetadataRequest>(version);
        assert!(!response.topics.is_empty(), "version {version}");
    }
}

#[test]
fn metadata_finds_topics_by_id() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("found-by-id", 2, &[]);
    let ask = |id| MetadataRequest {
        topics: Some(vec![asked::MetadataRequestTopic {
            topic_id: id,
            name: None,
        }]),
        ..Default::default()
    };
    for version in 12..=newest::<MetadataRequest>() {
        let found = client.call(&ask(topic.id), version);
        assert_eq!(found.topics[0].name.as_deref(), Some("found-by-id"));
        let unknown = client.call(&ask(Uuid([7; 16])), version);
        assert_eq!(
            error(unknown.topics[0].error_code),
            ErrorCode::UnknownTopicId
        );
    }
}

/// Versions 10 and 11 have the field of the id, and no place for the answer: Kafka refuses the request.
#[test]
fn metadata_by_id_is_refused_before_version_12() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("not-by-id", 1, &[]);
    let named = |name: Option<&str>, id| asked::MetadataRequestTopic {
        name: name.map(str::to_owned),
        topic_id: id,
    };
    for version in 10..12 {
        for (name, id) in [
            (None, topic.id),
            (None, Uuid::ZERO),
            (Some("not-by-id"), topic.id),
        ] {
            let request = MetadataRequest {
                topics: Some(vec![named(name, id)]),
                ..Default::default()
            };
            let row = client.call(&request, version).topics.remove(0);
            assert_eq!(error(row.error_code), ErrorCode::InvalidRequest);
            assert_eq!(
                (row.name.as_deref(), row.topic_id),
                (Some(name.unwrap_or("")), id)
            );
        }
        let by_name = metadata_request(&["not-by-id"], MayCreate::No);
        assert_eq!(client.call(&by_name, version).topics[0].error_code, 0);
    }
}

#[test]
fn asking_for_a_topic_makes_it_when_allowed() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let version = newest::<MetadataRequest>();
    let refused = client.call(&metadata_request(&["by-asking"], MayCreate::No), version);
    assert_eq!(
        error(refused.topics[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    // As in Kafka: the first who asks is told of none, and the next of all.
    let asked = metadata_request(&["by-asking"], MayCreate::Yes);
    let mut ask = || client.call(&asked, version).topics.remove(0);
    let first = ask();
    assert_eq!(error(first.error_code), ErrorCode::UnknownTopicOrPartition);
    assert!(first.partitions.is_empty());
    let next = ask();
    assert_eq!(error(next.error_code), ErrorCode::None);
    assert_eq!(next.partitions.len(), 1);
}

#[test]
fn asking_makes_nothing_when_the_broker_does_not_want_it() {
    let broker = Broker::start_with(Options::with(&[("auto.create.topics.enable", "false")]));
    let mut client = broker.connect();
    let request = metadata_request(&["by-asking"], MayCreate::Yes);
    for version in MetadataRequest::VERSIONS {
        let response = client.call(&request, version);
        assert_eq!(
            error(response.topics[0].error_code),
            ErrorCode::UnknownTopicOrPartition
        );
    }
}

#[test]
fn trap_5_topic_ids_are_the_same_after_a_restart() {
    let mut broker = Broker::start_with(Options::default());
    let topic = broker.connect().create_topic("stays", 2, &[]);
    broker.connect().create_topic("goes", 1, &[]);
    assert_eq!(broker.connect().delete_topic("goes"), ErrorCode::None);
    broker.stop();
    broker.start_again();
    let found = broker.connect().metadata(&["stays", "goes"]);
    let by_name = |name| {
        found
            .topics
            .iter()
            .find(|topic| topic.name.as_deref() == Some(name))
            .expect("asked for")
    };
    assert_eq!(
        (by_name("stays").topic_id, by_name("stays").partitions.len()),
        (topic.id, 2)
    );
    assert_eq!(
        error(by_name("goes").error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    assert!(!broker.partition("goes", 0).exists());
}
