//! Settings and numbers of partitions, changed and told.

use thalweg_metadata::configs::{Describing, list_config_resources};
use thalweg_metadata::loggers::{LogLevel, LogLevels};
use thalweg_metadata::{Controller, Image, Record, describe_topic_partitions};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use thalweg_protocol::messages::describe_configs_request::DescribeConfigsResource;
use thalweg_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use thalweg_protocol::messages::{
    AlterConfigsRequest, ConfigRecord, CreatePartitionsRequest, DescribeConfigsRequest,
    DescribeTopicPartitionsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest,
    alter_configs_request, incremental_alter_configs_request,
};

use crate::common::{LOCAL, after, config, create, draws, formatted, topic};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

type Step<'s> = (&'s str, i8, Option<&'s str>);

fn steps(
    kind: i8,
    name: &str,
    steps: &[Step<'_>],
) -> incremental_alter_configs_request::AlterConfigsResource {
    let configs = steps.iter().map(|(key, operation, value)| {
        incremental_alter_configs_request::AlterableConfig {
            name: (*key).into(),
            config_operation: *operation,
            value: value.map(str::to_owned),
        }
    });
    incremental_alter_configs_request::AlterConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configs: configs.collect(),
    }
}

/// The image afterwards, and the code and text of each resource.
fn alter(
    image: &Image,
    resources: Vec<incremental_alter_configs_request::AlterConfigsResource>,
) -> (Image, Vec<(ErrorCode, String)>) {
    let (config, mut draw) = (config(&[]), draws());
    let request = IncrementalAlterConfigsRequest {
        resources,
        ..Default::default()
    };
    let decision = Controller::new(image, &config, &mut draw).alter_configs_by_steps(&request);
    let told = decision.answer.responses.into_iter().map(|row| {
        let code = ErrorCode::from_code(row.error_code).expect("known");
        (code, row.error_message.unwrap_or_default())
    });
    (after(image, &decision.records), told.collect())
}

fn alter_one(image: &Image, kind: i8, name: &str, all: &[Step<'_>]) -> (Image, ErrorCode) {
    let (image, told) = alter(image, vec![steps(kind, name, all)]);
    (image, told[0].0)
}

fn settings(image: &Image, topic: &str) -> Vec<(String, String)> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    image.topic_overrides(topic).map(owned).collect()
}

fn one_topic() -> Image {
    create(&formatted(), vec![topic("t", 2)]).0
}

#[test]
fn steps_set_remove_add_and_take_out() {
    let image = one_topic();
    let (image, code) = alter_one(
        &image,
        TOPIC,
        "t",
        &[
            ("segment.bytes", SET, Some("2097152")),
            ("cleanup.policy", APPEND, Some("compact")),
        ],
    );
    assert_eq!(code, ErrorCode::None);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        settings(&image, "t"),
        [
            pair("cleanup.policy", "delete,compact"),
            pair("segment.bytes", "2097152"),
        ]
    );
    let (image, code) = alter_one(
        &image,
        TOPIC,
        "t",
        &[
            ("segment.bytes", DELETE, None),
            ("cleanup.policy", SUBTRACT, Some("delete")),
            ("retention.ms", DELETE, None),
        ],
    );
    assert_eq!(code, ErrorCode::None);
    assert_eq!(settings(&image, "t"), [pair("cleanup.policy", "compact")]);
}

/// A metadata log of Kafka's may have settings that later releases dropped (KAFKA-19851).
#[test]
fn what_nobody_knows_any_more_stands_in_no_ones_way() {
    let left = |kind, name: &str, key: &str| {
        Record::Config(ConfigRecord {
            resource_type: kind,
            resource_name: name.into(),
            name: key.into(),
            value: Some("2.8".into()),
        })
    };
    let image = after(
        &one_topic(),
        &[
            left(TOPIC, "t", "message.format.version"),
            left(GROUP, "g", "share.of.tomorrow"),
        ],
    );
    let retention = ("retention.ms", SET, Some("60000"));
    let (image, code) = alter_one(&image, TOPIC, "t", &[retention]);
    assert_eq!(code, ErrorCode::None);
    assert!(settings(&image, "t").contains(&("retention.ms".to_owned(), "60000".to_owned())));
    let session = ("consumer.session.timeout.ms", SET, Some("50000"));
    assert_eq!(alter_one(&image, GROUP, "g", &[session]).1, ErrorCode::None);
    // It can go, and can not be set anew.
    let other = ("message.format.version", SET, Some("3.0"));
    let (_, code) = alter_one(&image, TOPIC, "t", &[other]);
    assert_eq!(code, ErrorCode::InvalidConfig);
    let gone = ("message.format.version", DELETE, None);
    let (image, code) = alter_one(&image, TOPIC, "t", &[gone]);
    assert_eq!(code, ErrorCode::None);
    assert_eq!(settings(&image, "t").len(), 1);
}

#[test]
fn one_bad_step_spoils_its_resource_only() {
    let image = create(&one_topic(), vec![topic("u", 1)]).0;
    let (image, told) = alter(
        &image,
        vec![
            steps(
                TOPIC,
                "t",
                &[
                    ("segment.ms", SET, Some("5")),
                    ("segment.bytes", SET, Some("1")),
                ],
            ),
            steps(TOPIC, "u", &[("segment.ms", SET, Some("5"))]),
        ],
    );
    assert_eq!(told[0].0, ErrorCode::InvalidConfig);
    assert!(told[0].1.contains("segment.bytes"), "{}", told[0].1);
    assert_eq!(told[1].0, ErrorCode::None);
    assert!(settings(&image, "t").is_empty());
    assert_eq!(settings(&image, "u").len(), 1);
}

#[test]
fn refusals_are_kafkas() {
    let image = one_topic();
    let code = |kind, name, all: &[Step<'_>]| {
        let (same, code) = alter_one(&image, kind, name, all);
        assert_eq!(same, image, "a refusal changes nothing");
        code
    };
    let set = |key, value| [(key, SET, Some(value))];
    let ok = set("segment.ms", "5");
    for (kind, name, expected) in [
        (TOPIC, "unknown", ErrorCode::UnknownTopicOrPartition),
        (TOPIC, "a b", ErrorCode::InvalidTopicException),
        (TOPIC, "", ErrorCode::InvalidRequest),
        (BROKER, "2", ErrorCode::InvalidRequest),
        (BROKER, "x", ErrorCode::InvalidRequest),
        (8, "2", ErrorCode::InvalidRequest),
        (99, "t", ErrorCode::InvalidRequest),
    ] {
        assert_eq!(code(kind, name, &ok), expected, "{kind} {name}");
    }
    for (step, expected) in [
        (("no.such", SET, Some("1")), ErrorCode::InvalidConfig),
        (("segment.ms", SET, None), ErrorCode::InvalidRequest),
        (("segment.ms", 9, Some("1")), ErrorCode::InvalidRequest),
        (("segment.ms", APPEND, Some("1")), ErrorCode::InvalidConfig),
        (
            ("cleanup.policy", APPEND, Some("x")),
            ErrorCode::InvalidConfig,
        ),
    ] {
        assert_eq!(code(TOPIC, "t", &[step]), expected, "{step:?}");
    }
    let twice = [("segment.ms", SET, Some("5")), ("segment.ms", DELETE, None)];
    assert_eq!(code(TOPIC, "t", &twice), ErrorCode::InvalidRequest);
    let (_, told) = alter(&image, vec![steps(TOPIC, "t", &ok), steps(TOPIC, "t", &ok)]);
    let codes: Vec<_> = told.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [ErrorCode::InvalidRequest; 2]);
}

#[test]
fn bi_52_brokers_change_only_what_a_running_broker_can() {
    let image = one_topic();
    for name in ["", "1"] {
        let (changed, code) = alter_one(
            &image,
            BROKER,
            name,
            &[("message.max.bytes", SET, Some("5000"))],
        );
        assert_eq!(code, ErrorCode::None);
        let id = (!name.is_empty()).then_some(LOCAL);
        let stored: Vec<_> = changed.broker_overrides(id).collect();
        assert_eq!(stored, [("message.max.bytes", "5000")]);
    }
    for key in [
        "log.dirs",
        "listeners",
        "node.id",
        "metric.reporters",
        "ssl.keystore.location",
    ] {
        let (_, code) = alter_one(&image, BROKER, "1", &[(key, SET, Some("/etc/passwd"))]);
        assert_eq!(code, ErrorCode::InvalidRequest, "{key}");
    }
}

#[test]
fn altering_as_a_whole_replaces_everything() {
    let (image, _) = alter_one(&one_topic(), TOPIC, "t", &[("segment.ms", SET, Some("5"))]);
    let (config, mut draw) = (config(&[]), draws());
    let mut request = AlterConfigsRequest {
        resources: vec![alter_configs_request::AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configs: vec![alter_configs_request::AlterableConfig {
                name: "retention.ms".into(),
                value: Some("7".into()),
            }],
        }],
        validate_only: true,
    };
    let validated = Controller::new(&image, &config, &mut draw).alter_configs(&request);
    assert_eq!(validated.answer.responses[0].error_code, 0);
    assert!(validated.records.is_empty());
    request.validate_only = false;
    let decision = Controller::new(&image, &config, &mut draw).alter_configs(&request);
    let image = after(&image, &decision.records);
    assert_eq!(
        settings(&image, "t"),
        [("retention.ms".to_owned(), "7".to_owned())]
    );
}

fn more(image: &Image, name: &str, count: i32, by_hand: Option<&[i32]>) -> (Image, ErrorCode) {
    let (config, mut draw) = (config(&[]), draws());
    let assignments = by_hand.map(|brokers| {
        let one = |id: &i32| CreatePartitionsAssignment {
            broker_ids: vec![*id],
        };
        brokers.iter().map(one).collect()
    });
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: name.into(),
            count,
            assignments,
        }],
        ..Default::default()
    };
    let decision = Controller::new(image, &config, &mut draw).create_partitions(&request);
    let code = ErrorCode::from_code(decision.answer.results[0].error_code).expect("known");
    (after(image, &decision.records), code)
}

#[test]
fn partitions_are_added_behind_those_there_are() {
    let image = one_topic();
    let (image, code) = more(&image, "t", 5, None);
    assert_eq!(code, ErrorCode::None);
    let topic = image.topic("t").expect("made");
    let indexes: Vec<i32> = topic.partitions.keys().map(|index| index.0).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4]);
    assert!(topic.partitions.values().all(|p| p.leader == Some(LOCAL)));
    let (image, code) = more(&image, "t", 6, Some(&[1]));
    assert_eq!(
        (code, image.topic("t").map(|t| t.partitions.len())),
        (ErrorCode::None, Some(6))
    );
}

#[test]
fn bi_37_no_bomb_of_partitions() {
    let image = one_topic();
    for (name, count, by_hand, expected) in [
        ("t", 2, None, ErrorCode::InvalidPartitions),
        ("t", 1, None, ErrorCode::InvalidPartitions),
        ("t", -1, None, ErrorCode::InvalidPartitions),
        ("t", i32::MAX, None, ErrorCode::PolicyViolation),
        ("t", 10_003, None, ErrorCode::PolicyViolation),
        ("u", 3, None, ErrorCode::UnknownTopicOrPartition),
        ("t", 4, Some(&[1][..]), ErrorCode::InvalidReplicaAssignment),
        ("t", 3, Some(&[9][..]), ErrorCode::InvalidReplicaAssignment),
    ] {
        let (same, code) = more(&image, name, count, by_hand);
        assert_eq!((code, same == image), (expected, true), "{name} {count}");
    }
}

fn pages(image: &Image, topics: &[&str], limit: i32) -> Vec<Vec<(String, Vec<i32>)>> {
    let topics: Vec<_> = topics
        .iter()
        .map(|name| TopicRequest {
            name: (*name).into(),
        })
        .collect();
    let mut cursor = None;
    let mut pages = Vec::new();
    loop {
        let request = DescribeTopicPartitionsRequest {
            topics: topics.clone(),
            response_partition_limit: limit,
            cursor: cursor.take(),
        };
        let answer = describe_topic_partitions(image, &request, 0, |_| None);
        let page = answer.topics.into_iter().map(|topic| {
            let indexes = topic.partitions.iter().map(|p| p.partition_index).collect();
            (topic.name.unwrap_or_default(), indexes)
        });
        pages.push(page.collect());
        match answer.next_cursor {
            None => return pages,
            Some(next) => {
                cursor = Some(Cursor {
                    topic_name: next.topic_name,
                    partition_index: next.partition_index,
                });
            }
        }
    }
}

#[test]
fn topics_are_told_page_by_page() {
    let image = create(
        &formatted(),
        vec![topic("a", 2), topic("b", 3), topic("c", 1)],
    )
    .0;
    let page = |name: &str, indexes: &[i32]| (name.to_owned(), indexes.to_vec());
    assert_eq!(
        pages(&image, &[], 2),
        [
            vec![page("a", &[0, 1])],
            vec![page("b", &[0, 1])],
            vec![page("b", &[2]), page("c", &[0])],
        ]
    );
    assert_eq!(
        pages(&image, &["c", "nope", "c"], 2_000),
        [vec![page("c", &[0]), page("nope", &[])]]
    );
    // A limit that makes no sense still goes on.
    assert_eq!(pages(&image, &["a"], -5).len(), 2);
}

#[test]
fn trap_7_settings_are_told_whole_and_refused_by_resource() {
    let image = one_topic();
    let config = config(&[]);
    let describing = Describing {
        image: &image,
        config: &config,
        local: LOCAL,
        log_levels: &LogLevels::all(LogLevel::Info),
    };
    let resource = |kind, name: &str, keys: Option<&[&str]>| DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configuration_keys: keys.map(|keys| keys.iter().map(|k| (*k).to_owned()).collect()),
    };
    let request = DescribeConfigsRequest {
        resources: vec![
            resource(TOPIC, "t", None),
            resource(TOPIC, "t", Some(&["segment.bytes", "no.such"])),
            resource(BROKER, "1", None),
            resource(BROKER, "", None),
            resource(TOPIC, "u", None),
            resource(BROKER, "2", None),
            resource(8, "1", None),
            resource(8, "", None),
            resource(8, "1", Some(&["thalweg_net", "no.such"])),
            resource(32, "g", None),
            resource(32, "", None),
            resource(TOPIC, "t", Some(&[])),
            resource(8, "1", Some(&[])),
        ],
        include_synonyms: true,
        include_documentation: true,
    };
    let each = |resource| describing.result(resource, &request);
    let results: Vec<_> = request.resources.iter().map(each).collect();
    let told: Vec<_> = results
        .iter()
        .map(|r| {
            (
                ErrorCode::from_code(r.error_code).expect("known"),
                r.configs.len(),
            )
        })
        .collect();
    assert_eq!(told[0], (ErrorCode::None, 33));
    assert_eq!(told[1], (ErrorCode::None, 1));
    assert!(told[2].0 == ErrorCode::None && told[2].1 > 40);
    assert_eq!(told[3], (ErrorCode::None, 0));
    assert_eq!(told[4], (ErrorCode::UnknownTopicOrPartition, 0));
    assert_eq!(told[5], (ErrorCode::InvalidRequest, 0));
    assert_eq!(told[6], (ErrorCode::None, 7), "the root and six rooms");
    assert_eq!(told[7], (ErrorCode::InvalidRequest, 0));
    assert_eq!(told[8], (ErrorCode::None, 1));
    assert_eq!(told[9], (ErrorCode::None, 3));
    assert_eq!(told[10], (ErrorCode::InvalidRequest, 0));
    // An empty list asks for all, as null does.
    assert_eq!((told[11], told[12]), (told[0], told[6]));
    let root = &results[6].configs[0];
    assert_eq!((root.name.as_str(), root.config_source), ("root", 6));
    let segment = &results[1].configs[0];
    assert_eq!((segment.config_type, segment.config_source), (3, 5));
    assert_eq!(segment.synonyms[0].name, "log.segment.bytes");
    assert!(segment.documentation.is_some() && !segment.read_only && !segment.is_sensitive);
}

#[test]
fn what_has_settings_is_listed_by_type() {
    let image = one_topic();
    let list = |types: &[i8], version| {
        let request = ListConfigResourcesRequest {
            resource_types: types.to_vec(),
        };
        let answer = list_config_resources(&image, &request, version);
        let listed = answer.config_resources.into_iter();
        let listed: Vec<_> = listed.map(|r| (r.resource_type, r.resource_name)).collect();
        (
            ErrorCode::from_code(answer.error_code).expect("known"),
            listed,
        )
    };
    let topic = (TOPIC, "t".to_owned());
    assert_eq!(list(&[TOPIC], 1), (ErrorCode::None, vec![topic.clone()]));
    assert_eq!(
        list(&[], 1).1,
        [topic, (BROKER, "1".to_owned()), (8, "1".to_owned())]
    );
    // Version 0 lists subscriptions to clients' metrics, and there are none.
    assert_eq!(list(&[], 0), (ErrorCode::None, vec![]));
    assert_eq!(list(&[77], 1).0, ErrorCode::UnsupportedVersion);
}

const SESSION: &str = "consumer.session.timeout.ms";

#[test]
fn groups_have_settings_of_their_own() {
    let image = one_topic();
    let set = |image: &Image, name: &str, key: &str, value| {
        let (image, told) = alter(image, vec![steps(GROUP, name, &[(key, SET, value)])]);
        (image, told[0].clone())
    };
    let of = |image: &Image, name: &str| -> Vec<String> {
        let pairs = image.group_overrides(name);
        pairs.map(|(key, value)| format!("{key}={value}")).collect()
    };
    let (image, told) = set(&image, "g", SESSION, Some("50000"));
    assert_eq!(told.0, ErrorCode::None);
    assert_eq!(of(&image, "g"), ["consumer.session.timeout.ms=50000"]);
    assert_eq!(of(&image, "h"), [""; 0]);
    for (name, key, value, code, text) in [
        (
            "",
            SESSION,
            Some("50000"),
            ErrorCode::InvalidRequest,
            "Default group resources",
        ),
        (
            "g",
            "retention.ms",
            Some("1"),
            ErrorCode::InvalidConfig,
            "Unknown group config name",
        ),
        (
            "g",
            SESSION,
            Some("1"),
            ErrorCode::InvalidConfig,
            "group.consumer.min.session",
        ),
        ("g", SESSION, None, ErrorCode::InvalidRequest, "Null value"),
    ] {
        let (after, told) = set(&image, name, key, value);
        assert_eq!(told.0, code, "{name} {key}: {}", told.1);
        assert!(told.1.contains(text), "{name} {key}: {}", told.1);
        assert_eq!(of(&after, "g"), of(&image, "g"));
    }
    let long = "g".repeat(40_000);
    let (_, told) = set(&image, &long, SESSION, Some("50000"));
    assert_eq!(told.0, ErrorCode::InvalidRequest);

    let listed = list_config_resources(&image, &ListConfigResourcesRequest::default(), 1);
    let groups = listed.config_resources.iter();
    let groups: Vec<_> = groups.filter(|r| r.resource_type == GROUP).collect();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].resource_name, "g");

    let (image, code) = alter_one(&image, GROUP, "g", &[(SESSION, DELETE, None)]);
    assert_eq!(code, ErrorCode::None);
    assert_eq!(image.groups_with_settings().count(), 0);
}

#[test]
fn bi_36_so_many_groups_have_settings_and_no_more() {
    let many = |from: usize, to: usize| {
        let one = |n| steps(GROUP, &format!("g{n}"), &[(SESSION, SET, Some("50000"))]);
        (from..to).map(one).collect::<Vec<_>>()
    };
    let room = thalweg_types::limits::GROUPS_WITH_SETTINGS_MAX;
    let (image, told) = alter(&one_topic(), many(0, room + 2));
    let refused: Vec<_> = told.iter().filter(|row| row.0 != ErrorCode::None).collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused
            .iter()
            .all(|row| row.0 == ErrorCode::PolicyViolation)
    );
    // Those that have some can change them.
    let (image, told) = alter(&image, many(5, 6));
    assert_eq!(told[0].0, ErrorCode::None);
    let gone = vec![steps(GROUP, "g5", &[(SESSION, DELETE, None)])];
    let (image, _) = alter(&image, gone);
    let (_, told) = alter(&image, many(room + 5, room + 6));
    assert_eq!(told[0].0, ErrorCode::None);
}
