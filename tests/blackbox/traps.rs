//! What clients have stumbled on with other brokers, where no other file shows it. The list is in
//! docs/rules.md.

use std::time::{Duration, Instant};

use thalweg_protocol::messages::{
    DescribeClusterRequest, DescribeGroupsRequest, DescribeProducersRequest, DescribeQuorumRequest,
    DescribeUserScramCredentialsRequest, ElectLeadersRequest, FetchRequest, MetadataRequest,
    ProduceRequest, UpdateFeaturesRequest, describe_producers_request, describe_quorum_request,
    describe_user_scram_credentials_request, elect_leaders_request, update_features_request,
};
use thalweg_protocol::{ErrorCode, Message};
use thalweg_types::Uuid;

use crate::batch::{now_ms, plain, records_from};
use crate::broker::{Broker, Options};
use crate::groups::{fetch_all, join, with_coordinators};
use crate::idempotence::{batch, new_id};
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
    let mut took = |group: &str| {
        // Once its coordinator has loaded.
        fetch_all(&mut client, group);
        let began = Instant::now();
        let answer = join(&mut client, group, 9);
        let took = began.elapsed();
        assert_eq!(error(answer.error_code), ErrorCode::None);
        assert_eq!(
            (&*answer.leader, answer.generation_id),
            (&*answer.member_id, 1)
        );
        assert!(took >= delay, "{took:?}");
        took
    };
    // Of one that the machine held up there is another.
    let most = delay + Duration::from_secs(1);
    let mut groups = ["first", "second", "third"].into_iter();
    assert!(groups.any(|group| took(group) < most));
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

#[test]
fn one_broker_elects_nobody_else() {
    const PREFERRED: i8 = 0;
    const NO_ELECTION: i8 = 2;
    let broker = Broker::start();
    let mut client = broker.connect();
    client.create_topic("led", 2, &[]);
    let mut elect = |election_type, topics: Option<&[&str]>, version| {
        let asked = |name: &&str| elect_leaders_request::TopicPartitions {
            topic: (*name).to_owned(),
            partitions: vec![0, 2],
        };
        let request = ElectLeadersRequest {
            election_type,
            topic_partitions: topics.map(|names| names.iter().map(asked).collect()),
            timeout_ms: 1_000,
        };
        let answer = client.call(&request, version);
        let results = answer.replica_election_results.into_iter();
        let rows: Vec<_> = results
            .flat_map(|topic| {
                let name = topic.topic;
                let rows = topic.partition_result.into_iter();
                rows.map(move |row| (name.clone(), row.partition_id, error(row.error_code)))
            })
            .collect();
        (error(answer.error_code), rows)
    };
    let row = |name: &str, index, code| (name.to_owned(), index, code);
    let not_needed = ErrorCode::ElectionNotNeeded;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    for version in ElectLeadersRequest::VERSIONS {
        let (code, rows) = elect(PREFERRED, Some(&["led", "nowhere"]), version);
        assert_eq!(code, ErrorCode::None);
        let wanted = [
            row("led", 0, not_needed),
            row("led", 2, unknown),
            row("nowhere", 0, unknown),
            row("nowhere", 2, unknown),
        ];
        assert_eq!(rows, wanted, "version {version}");
        // Of all, those that need none are left out.
        assert_eq!(
            elect(PREFERRED, None, version),
            (ErrorCode::None, Vec::new())
        );
    }
    let (code, rows) = elect(NO_ELECTION, Some(&["led"]), 2);
    let invalid = ErrorCode::InvalidRequest;
    assert_eq!(code, invalid);
    assert_eq!(rows, [row("led", 0, invalid), row("led", 2, invalid)]);
}

#[test]
fn one_broker_is_its_quorum() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let mut quorum = |name: &str, version| {
        let request = DescribeQuorumRequest {
            topics: vec![describe_quorum_request::TopicData {
                topic_name: name.to_owned(),
                partitions: vec![describe_quorum_request::PartitionData { partition_index: 0 }],
            }],
        };
        let answer = client.call(&request, version);
        assert_eq!(error(answer.error_code), ErrorCode::None);
        (answer.topics[0].partitions[0].clone(), answer.nodes)
    };
    for version in DescribeQuorumRequest::VERSIONS {
        let (partition, nodes) = quorum("__cluster_metadata", version);
        assert_eq!(error(partition.error_code), ErrorCode::None);
        assert!(partition.leader_epoch > 0 && partition.high_watermark > 0);
        assert_eq!(
            (partition.current_voters.len(), partition.observers.len()),
            (1, 0)
        );
        let voter = &partition.current_voters[0];
        assert_eq!(voter.replica_id, partition.leader_id);
        assert_eq!(voter.log_end_offset, partition.high_watermark);
        assert_eq!(voter.last_caught_up_timestamp > 0, version >= 1);
        assert_eq!(!voter.replica_directory_id.is_zero(), version >= 2);
        assert_eq!(nodes.len(), usize::from(version >= 2));
        let other = quorum("elsewhere", version).0;
        assert_eq!(error(other.error_code), ErrorCode::UnknownTopicOrPartition);
    }
    let before = quorum("__cluster_metadata", 2).0.high_watermark;
    broker.connect().create_topic("more", 1, &[]);
    assert!(quorum("__cluster_metadata", 2).0.high_watermark > before);
}

#[test]
fn the_producers_of_a_partition_are_told() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("written", 2, &[]);
    let (first, second) = (new_id(&mut client), new_id(&mut client));
    client.append(&topic, 1, batch(first, 0, 0, &["a", "b"]));
    client.append(&topic, 1, batch(second, 3, 0, &["c"]));
    client.append(&topic, 1, batch(first, 0, 2, &["d"]));
    client.append(&topic, 1, plain(&["of nobody"]));
    let asked = |name: &str, partition_indexes: &[i32]| describe_producers_request::TopicRequest {
        name: name.to_owned(),
        partition_indexes: partition_indexes.to_vec(),
    };
    let request = DescribeProducersRequest {
        topics: vec![
            asked("written", &[1, 0, 1]),
            asked("nowhere", &[0]),
            asked("written", &[1, 2]),
        ],
    };
    let answer = client.call(&request, 0);
    let told: Vec<_> = answer
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|row| (&*topic.name, row)))
        .map(|(name, row)| (name, row.partition_index, error(row.error_code)))
        .collect();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    let wanted = [
        ("written", 1, ErrorCode::None),
        ("written", 0, ErrorCode::None),
        ("written", 2, unknown),
        ("nowhere", 0, unknown),
    ];
    assert_eq!(told, wanted);
    let partitions = &answer.topics[0].partitions;
    assert!(partitions[1].active_producers.is_empty());
    let mut producers: Vec<_> = partitions[0]
        .active_producers
        .iter()
        .map(|one| (one.producer_id, one.producer_epoch, one.last_sequence))
        .collect();
    producers.sort_unstable();
    assert_eq!(producers, [(first, 0, 2), (second, 3, 0)]);
    let row = &partitions[0].active_producers[0];
    assert!((now_ms() - row.last_timestamp).abs() < 60_000);
    assert_eq!(
        (row.coordinator_epoch, row.current_txn_start_offset),
        (-1, -1)
    );
}

#[test]
fn features_stay_as_the_release_has_them() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let mut update = |features: &[(&str, i16)], version| {
        let update = |(name, level): &(&str, i16)| update_features_request::FeatureUpdateKey {
            feature: (*name).to_owned(),
            max_version_level: *level,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest {
            feature_updates: features.iter().map(update).collect(),
            ..Default::default()
        };
        let answer = client.call(&request, version);
        assert_eq!(answer.error_message.is_some(), answer.error_code != 0);
        (error(answer.error_code), answer.results.len())
    };
    for version in UpdateFeaturesRequest::VERSIONS {
        let told = usize::from(version <= 1);
        assert_eq!(
            update(&[("group.version", 1)], version),
            (ErrorCode::None, told)
        );
        let refused = update(&[("metadata.version", 7)], version);
        assert_eq!(refused, (ErrorCode::InvalidUpdateVersion, 0));
        let refused = update(&[("group.version", 1), ("no.feature", 1)], version);
        assert_eq!(refused, (ErrorCode::InvalidUpdateVersion, 0));
    }
}
