//! What clients have stumbled on with other brokers, where no other file shows it. The list is in
//! docs/rules.md.

use std::time::{Duration, Instant};

use thalweg_protocol::messages::{
    DescribeClusterRequest, DescribeGroupsRequest, DescribeUserScramCredentialsRequest,
    FetchRequest, MetadataRequest, ProduceRequest, describe_user_scram_credentials_request,
};
use thalweg_protocol::{ErrorCode, Message};
use thalweg_types::Uuid;

use crate::batch::{plain, records_from};
use crate::broker::{Broker, Options};
use crate::groups::{fetch_all, join, with_coordinators};
use crate::wire::{error, fetch_request, metadata_request, only, produce_request, single};

/// The first version that has topic ids, of Metadata and of Fetch and Produce.
const METADATA_BY_ID: i16 = 10;
const RECORDS_BY_ID: i16 = 13;

#[test]
fn trap_5_one_topic_id_serves_in_every_version_that_has_ids() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("ids", 1, &[]);
    assert_ne!(topic.id, Uuid::ZERO);
    for version in METADATA_BY_ID..=*MetadataRequest::VERSIONS.end() {
        let request = metadata_request(&["ids"], crate::wire::MayCreate::No);
        assert_eq!(client.call(&request, version).topics[0].topic_id, topic.id);
    }
    for (version, offset) in (RECORDS_BY_ID..=*ProduceRequest::VERSIONS.end()).zip(0..) {
        let request = produce_request(&topic, 0, -1, plain(&["one"]));
        assert_eq!(only(client.call(&request, version)).base_offset, offset);
    }
    for version in RECORDS_BY_ID..=*FetchRequest::VERSIONS.end() {
        let got = single(client.call(&fetch_request(&topic, 0, 0), version));
        assert!(!records_from(&got, 0).is_empty(), "version {version}");
    }
}

#[test]
fn trap_6_operations_that_were_not_asked_for_are_unset() {
    let broker = Broker::start();
    let mut client = with_coordinators(&broker);
    client.create_topic("unasked", 1, &[]);
    for version in 8..=*MetadataRequest::VERSIONS.end() {
        let request = metadata_request(&["unasked"], crate::wire::MayCreate::No);
        let answer = client.call(&request, version);
        assert_eq!(answer.topics[0].topic_authorized_operations, i32::MIN);
        assert_eq!(answer.cluster_authorized_operations, i32::MIN);
    }
    for version in DescribeClusterRequest::VERSIONS {
        let answer = client.call(&DescribeClusterRequest::default(), version);
        assert_eq!(answer.cluster_authorized_operations, i32::MIN);
    }
    for version in 3..=*DescribeGroupsRequest::VERSIONS.end() {
        let request = DescribeGroupsRequest {
            groups: vec!["nobody".to_owned()],
            include_authorized_operations: false,
        };
        let answer = client.call(&request, version);
        assert_eq!(answer.groups[0].authorized_operations, i32::MIN);
    }
}

#[test]
fn trap_8_the_first_assignment_waits_for_the_delay_and_no_longer() {
    let delay = Duration::from_millis(700);
    let broker = Broker::start_with(Options::with(&[
        ("group.initial.rebalance.delay.ms", "700"),
        ("offsets.topic.num.partitions", "8"),
    ]));
    let mut client = with_coordinators(&broker);
    // Once its coordinator has loaded.
    fetch_all(&mut client, "first");
    let began = Instant::now();
    let answer = join(&mut client, "first", 9);
    let took = began.elapsed();
    assert_eq!(error(answer.error_code), ErrorCode::None);
    assert_eq!(
        (&*answer.leader, answer.generation_id),
        (&*answer.member_id, 1)
    );
    let allowed = delay..delay + Duration::from_secs(1);
    assert!(allowed.contains(&took), "{took:?}");
}

#[test]
fn no_user_has_scram_credentials() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let mut ask = |users: Option<&[&str]>| {
        let user = |name: &&str| describe_user_scram_credentials_request::UserName {
            name: (*name).to_owned(),
        };
        let request = DescribeUserScramCredentialsRequest {
            users: users.map(|names| names.iter().map(user).collect()),
        };
        let answer = client.call(&request, 0);
        assert_eq!(error(answer.error_code), ErrorCode::None);
        let mut rows: Vec<_> = answer
            .results
            .into_iter()
            .map(|row| (row.user, error(row.error_code)))
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    };
    assert_eq!(ask(None), []);
    assert_eq!(ask(Some(&[])), []);
    assert_eq!(
        ask(Some(&["twice", "once", "twice"])),
        [
            ("once".to_owned(), ErrorCode::ResourceNotFound),
            ("twice".to_owned(), ErrorCode::DuplicateResource),
        ]
    );
}
