//! Settings changed while the broker runs, more partitions, deleted records, epochs and sizes.

use thalweg_protocol::messages::{
    CreateAclsRequest, CreatePartitionsRequest, DeleteRecordsRequest, DescribeAclsRequest,
    DescribeClientQuotasRequest, DescribeConfigsRequest, DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest, IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest, OffsetForLeaderEpochRequest, create_acls_request,
    create_partitions_request, delete_records_request, describe_configs_request,
    describe_configs_response, describe_log_dirs_request, describe_topic_partitions_request,
    describe_topic_partitions_response, incremental_alter_configs_request,
    offset_for_leader_epoch_request,
};
use thalweg_protocol::{ErrorCode, Message};

use thalweg_protocol::records::Codec;

use crate::batch::{compressed, plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::wire::{Connection, Topic, error, newest};

const TOPIC: i8 = 2;
pub const BROKER: i8 = 4;

/// Sets, or with `None` removes, one property.
pub fn alter(
    client: &mut Connection,
    kind: i8,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> ErrorCode {
    let config = incremental_alter_configs_request::AlterableConfig {
        name: key.to_owned(),
        config_operation: i8::from(value.is_none()),
        value: value.map(str::to_owned),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs_request::AlterConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            configs: vec![config],
        }],
        validate_only: false,
    };
    let response = client.call(&request, newest::<IncrementalAlterConfigsRequest>());
    error(response.responses[0].error_code)
}

pub fn describe(
    client: &mut Connection,
    kind: i8,
    name: &str,
    version: i16,
) -> describe_configs_response::DescribeConfigsResult {
    let request = DescribeConfigsRequest {
        resources: vec![describe_configs_request::DescribeConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            configuration_keys: None,
        }],
        include_synonyms: true,
        include_documentation: version >= 3,
    };
    client.call(&request, version).results.remove(0)
}

pub fn value_of(result: &describe_configs_response::DescribeConfigsResult, key: &str) -> String {
    let found = result.configs.iter().find(|config| config.name == key);
    let found = found.unwrap_or_else(|| panic!("{key} is not told"));
    found.value.clone().unwrap_or_default()
}

pub fn delete_records(client: &mut Connection, topic: &Topic, before: i64) -> (ErrorCode, i64) {
    let request = DeleteRecordsRequest {
        topics: vec![delete_records_request::DeleteRecordsTopic {
            name: topic.name.clone(),
            partitions: vec![delete_records_request::DeleteRecordsPartition {
                partition_index: 0,
                offset: before,
            }],
        }],
        timeout_ms: 30_000,
    };
    let mut response = client.call(&request, newest::<DeleteRecordsRequest>());
    let row = response.topics.remove(0).partitions.remove(0);
    (error(row.error_code), row.low_watermark)
}

/// Partition 0 of a topic as DescribeTopicPartitions tells it.
pub fn described_partition(
    client: &mut Connection,
    name: &str,
) -> describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition {
    let request = DescribeTopicPartitionsRequest {
        topics: vec![describe_topic_partitions_request::TopicRequest {
            name: name.to_owned(),
        }],
        response_partition_limit: 1,
        cursor: None,
    };
    let mut topics = client.call(&request, 0).topics;
    topics.remove(0).partitions.remove(0)
}

#[test]
fn trap_7_settings_are_told_in_every_version() {
    let broker = Broker::start();
    let mut client = broker.connect();
    client.create_topic("told", 1, &[("retention.ms", "3600000")]);
    for version in DescribeConfigsRequest::VERSIONS {
        let topic = describe(&mut client, TOPIC, "told", version);
        assert_eq!(error(topic.error_code), ErrorCode::None);
        assert!(topic.configs.len() >= 30, "{}", topic.configs.len());
        let retention = topic.configs.iter().find(|c| c.name == "retention.ms");
        let retention = retention.expect("told");
        assert_eq!(
            (retention.config_source, retention.value.as_deref()),
            (1, Some("3600000"))
        );
        assert_eq!(retention.synonyms[0].name, "retention.ms");
        let doc = retention.documentation.as_deref().unwrap_or_default();
        assert_eq!(!doc.is_empty(), version >= 3);
        let broker = describe(&mut client, BROKER, "1", version);
        assert_eq!(value_of(&broker, "num.partitions"), "1");
        let unknown = describe(&mut client, TOPIC, "nowhere", version);
        assert_eq!(
            error(unknown.error_code),
            ErrorCode::UnknownTopicOrPartition
        );
    }
}

#[test]
fn rp_107_a_smaller_limit_leaves_old_data_readable() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("limited", 1, &[]);
    let large = "x".repeat(5_000);
    client.append(&topic, 0, plain(&[&large]));
    let set = |client: &mut Connection, value| {
        alter(client, TOPIC, "limited", "max.message.bytes", value)
    };
    assert_eq!(set(&mut client, Some("1000")), ErrorCode::None);
    let refused = client.produce(&topic, 0, -1, plain(&[&large]));
    assert_eq!(error(refused.error_code), ErrorCode::MessageTooLarge);
    assert_eq!(
        values(&read_all(&mut client, &topic, 0, 0)),
        [large.clone().into_bytes()]
    );
    assert_eq!(set(&mut client, None), ErrorCode::None);
    client.append(&topic, 0, plain(&[&large]));
    assert_eq!(set(&mut client, Some("-1")), ErrorCode::InvalidConfig);
    assert_eq!(
        alter(
            &mut client,
            TOPIC,
            "nowhere",
            "max.message.bytes",
            Some("1")
        ),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn settings_reach_logs_that_are_open_and_outlive_a_restart() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("rolling", 1, &[]);
    let segments = |broker: &Broker| {
        let files = std::fs::read_dir(broker.partition("rolling", 0)).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        names
            .filter(|name| name.to_string_lossy().ends_with(".log"))
            .count()
    };
    let batch = || plain(&["y".repeat(600_000)]);
    for _ in 0..3 {
        client.append(&topic, 0, batch());
    }
    assert_eq!(segments(&broker), 1);
    let set = alter(
        &mut client,
        TOPIC,
        "rolling",
        "segment.bytes",
        Some("1048576"),
    );
    assert_eq!(set, ErrorCode::None);
    client.append(&topic, 0, batch());
    assert_eq!(segments(&broker), 2);
    // A broker's setting is the default of its topics.
    let set = alter(
        &mut client,
        BROKER,
        "",
        "log.message.timestamp.type",
        Some("LogAppendTime"),
    );
    assert_eq!(set, ErrorCode::None);
    assert!(client.produce(&topic, 0, -1, batch()).log_append_time_ms > 0);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    assert!(client.produce(&topic, 0, -1, batch()).log_append_time_ms > 0);
    let told = describe(
        &mut client,
        TOPIC,
        "rolling",
        newest::<DescribeConfigsRequest>(),
    );
    assert_eq!(value_of(&told, "segment.bytes"), "1048576");
    assert_eq!(value_of(&told, "message.timestamp.type"), "LogAppendTime");
    for (name, key) in [
        ("1", "log.dirs"),
        ("1", "node.id"),
        ("2", "message.max.bytes"),
    ] {
        let refused = alter(&mut client, BROKER, name, key, Some("7"));
        assert_eq!(refused, ErrorCode::InvalidRequest, "{name} {key}");
    }
}

#[test]
fn new_partitions_are_served_at_once() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("growing", 1, &[]);
    let grow = |client: &mut Connection, count, version| {
        let request = CreatePartitionsRequest {
            topics: vec![create_partitions_request::CreatePartitionsTopic {
                name: "growing".to_owned(),
                count,
                assignments: None,
            }],
            timeout_ms: 30_000,
            validate_only: false,
        };
        let response = client.call(&request, version);
        error(response.results[0].error_code)
    };
    for (count, version) in (2..).zip(CreatePartitionsRequest::VERSIONS) {
        assert_eq!(grow(&mut client, count, version), ErrorCode::None);
        assert_eq!(client.append(&topic, count - 1, plain(&["new"])), 0);
        assert_eq!(
            grow(&mut client, count, version),
            ErrorCode::InvalidPartitions
        );
    }
    let request = DescribeTopicPartitionsRequest {
        topics: vec![describe_topic_partitions_request::TopicRequest {
            name: "growing".to_owned(),
        }],
        response_partition_limit: 3,
        cursor: None,
    };
    let page = client.call(&request, 0);
    assert_eq!(page.topics[0].partitions.len(), 3);
    assert_eq!(page.next_cursor.expect("more to tell").partition_index, 3);
}

#[test]
fn rp_97_deleted_records_do_not_come_back() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("forgetting", 1, &[]);
    for value in ["a", "b", "c", "d"] {
        client.append(&topic, 0, plain(&[value]));
    }
    assert_eq!(
        delete_records(&mut client, &topic, 5).0,
        ErrorCode::OffsetOutOfRange
    );
    assert_eq!(
        delete_records(&mut client, &topic, -2).0,
        ErrorCode::OffsetOutOfRange
    );
    assert_eq!(delete_records(&mut client, &topic, 2), (ErrorCode::None, 2));
    // Lower than before: nothing happens.
    assert_eq!(delete_records(&mut client, &topic, 1), (ErrorCode::None, 2));
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    let below = client.fetch(&topic, 0, 1);
    assert_eq!(error(below.error_code), ErrorCode::OffsetOutOfRange);
    assert_eq!(
        values(&read_all(&mut client, &topic, 0, 2)),
        [b"c".to_vec(), b"d".to_vec()]
    );
    let earliest = client.list_offset(&topic, 0, -2, 7);
    assert_eq!(earliest.offset, 2);
    assert_eq!(
        delete_records(&mut client, &topic, -1),
        (ErrorCode::None, 4)
    );
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.list_offset(&topic, 0, -2, 7).offset, 4);
    assert_eq!(client.append(&topic, 0, plain(&["e"])), 4);

    let compacted = client.create_topic("kept", 1, &[("cleanup.policy", "compact")]);
    assert_eq!(
        delete_records(&mut client, &compacted, 0).0,
        ErrorCode::PolicyViolation
    );
    let nowhere = Topic {
        name: "nowhere".to_owned(),
        ..topic
    };
    assert_eq!(
        delete_records(&mut client, &nowhere, 0).0,
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn rp_23_epochs_end_where_the_next_begins() {
    let mut broker = Broker::start_with(Options::default());
    let topic = broker.connect().create_topic("epochs", 1, &[]);
    broker.connect().append(&topic, 0, plain(&["a", "b"]));
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    client.append(&topic, 0, plain(&["c"]));
    let now = client.leader_epoch(&topic, 0);
    assert!(now > 0, "a crash begins an epoch");
    for version in OffsetForLeaderEpochRequest::VERSIONS {
        let mut ask = |current, asked| {
            let request = OffsetForLeaderEpochRequest {
                topics: vec![offset_for_leader_epoch_request::OffsetForLeaderTopic {
                    topic: "epochs".to_owned(),
                    partitions: vec![offset_for_leader_epoch_request::OffsetForLeaderPartition {
                        partition: 0,
                        current_leader_epoch: current,
                        leader_epoch: asked,
                    }],
                }],
                ..Default::default()
            };
            let mut response = client.call(&request, version);
            let row = response.topics.remove(0).partitions.remove(0);
            (error(row.error_code), row.leader_epoch, row.end_offset)
        };
        assert_eq!(ask(-1, 0), (ErrorCode::None, 0, 2));
        assert_eq!(ask(now, now), (ErrorCode::None, now, 3));
        assert_eq!(ask(-1, now + 1), (ErrorCode::None, -1, -1));
        assert_eq!(ask(0, 0).0, ErrorCode::FencedLeaderEpoch);
        assert_eq!(ask(now + 1, 0).0, ErrorCode::UnknownLeaderEpoch);
    }
}

#[test]
fn tools_get_small_true_answers() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("sized", 2, &[]);
    client.append(&topic, 1, plain(&["some bytes"]));
    for version in DescribeLogDirsRequest::VERSIONS {
        for topics in [
            None,
            Some(vec![describe_log_dirs_request::DescribableLogDirTopic {
                topic: "sized".to_owned(),
                partitions: vec![0, 1, 7],
            }]),
        ] {
            let response = client.call(&DescribeLogDirsRequest { topics }, version);
            let dir = &response.results[0];
            assert!(dir.log_dir.starts_with('/'), "{}", dir.log_dir);
            let sizes: Vec<i64> = dir.topics[0]
                .partitions
                .iter()
                .map(|p| p.partition_size)
                .collect();
            assert!(
                sizes.len() == 2 && sizes[0] == 0 && sizes[1] > 60,
                "{sizes:?}"
            );
            assert_eq!(dir.total_bytes > dir.usable_bytes, version >= 4);
        }
    }
    let acls = client.call(&DescribeAclsRequest::default(), 3);
    assert_eq!(error(acls.error_code), ErrorCode::SecurityDisabled);
    let creation = create_acls_request::AclCreation::default();
    let request = CreateAclsRequest {
        creations: vec![creation.clone(), creation],
    };
    let created = client.call(&request, 3);
    let codes: Vec<_> = created
        .results
        .iter()
        .map(|row| error(row.error_code))
        .collect();
    assert_eq!(codes, [ErrorCode::SecurityDisabled; 2]);
    let moves = client.call(&ListPartitionReassignmentsRequest::default(), 0);
    assert_eq!((moves.error_code, moves.topics.len()), (0, 0));
    assert_eq!(moves.error_message, None);
    let quotas = client.call(&DescribeClientQuotasRequest::default(), 1);
    assert_eq!((quotas.error_code, quotas.entries), (0, Some(Vec::new())));
}

#[test]
fn rp_107_another_codec_is_for_new_batches_only() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("codecs", 1, &[]);
    let text = "z".repeat(3_000);
    client.append(&topic, 0, compressed(Codec::Gzip, &[&text]));
    for (word, codec) in [
        ("zstd", Codec::Zstd),
        ("lz4", Codec::Lz4),
        ("snappy", Codec::Snappy),
        ("uncompressed", Codec::None),
        ("producer", Codec::Gzip),
    ] {
        let set = alter(&mut client, TOPIC, "codecs", "compression.type", Some(word));
        assert_eq!(set, ErrorCode::None);
        let at = client.append(&topic, 0, compressed(Codec::Gzip, &[&text]));
        let got = read_all(&mut client, &topic, 0, at);
        assert_eq!((got[0].codec, got.len()), (codec, 1), "{word}");
    }
    let all = read_all(&mut client, &topic, 0, 0);
    assert!(values(&all).iter().all(|value| value == text.as_bytes()));
    assert_eq!((all.len(), all[0].codec), (6, Codec::Gzip));
    // What is small on the wire and large in the log is refused by its size in the log.
    alter(
        &mut client,
        TOPIC,
        "codecs",
        "compression.type",
        Some("uncompressed"),
    );
    alter(
        &mut client,
        TOPIC,
        "codecs",
        "max.message.bytes",
        Some("2000"),
    );
    let refused = client.produce(&topic, 0, -1, compressed(Codec::Gzip, &[&text]));
    assert_eq!(error(refused.error_code), ErrorCode::MessageTooLarge);
}
