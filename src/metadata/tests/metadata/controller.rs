//! What the controller decides, on a cluster of one broker.

use super::common::{LOCAL, after, config, create, draws, formatted, registration, topic};
use thalweg_metadata::controller::{InternalTopic, METADATA_VERSION};
use thalweg_metadata::{Controller, Image};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_protocol::messages::create_topics_response::CreatableTopicResult;
use thalweg_protocol::messages::delete_topics_request::DeleteTopicState;
use thalweg_protocol::messages::{CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicsResponse};
use thalweg_types::limits::CREATE_PARTITIONS_MAX;
use thalweg_types::{PartitionIndex, Uuid};

fn code(result: &CreatableTopicResult) -> ErrorCode {
    ErrorCode::from_code(result.error_code).expect("a known code")
}

/// The refusal of the one topic.
fn refusal(image: &Image, topic: CreatableTopic) -> (ErrorCode, String) {
    let (same, answer) = create(image, vec![topic]);
    assert_eq!(&same, image, "a refused topic leaves no record");
    let result = &answer.topics[0];
    (
        code(result),
        result.error_message.clone().unwrap_or_default(),
    )
}

fn with_configs(name: &str, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let configs = configs.iter().map(|(key, value)| CreatableTopicConfig {
        name: (*key).into(),
        value: value.map(str::to_string),
    });
    CreatableTopic {
        configs: configs.collect(),
        ..topic(name, -1)
    }
}

fn assigned(name: &str, partitions: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = partitions
        .iter()
        .map(|(index, brokers)| CreatableReplicaAssignment {
            partition_index: *index,
            broker_ids: brokers.to_vec(),
        });
    CreatableTopic {
        assignments: assignments.collect(),
        ..topic(name, -1)
    }
}

fn delete(image: &Image, request: &DeleteTopicsRequest) -> (Image, DeleteTopicsResponse) {
    let (config, mut draw) = (config(&[]), draws());
    let decision = Controller::new(image, &config, &mut draw).delete_topics(request, 6);
    (after(image, &decision.records), decision.answer)
}

#[test]
fn formatting_states_the_metadata_version_first() {
    let image = formatted();
    assert_eq!(image.feature("metadata.version"), METADATA_VERSION);
    assert_eq!(
        image.broker(LOCAL).map(|b| (b.epoch, b.fenced)),
        Some((1, false))
    );
    let again = after(&image, &[image.register_broker(&registration(LOCAL))]);
    assert_eq!(
        again.broker(LOCAL).map(|b| b.epoch),
        Some(2),
        "broker epochs rise (RP-43)"
    );
}

#[test]
fn a_created_topic_is_whole() {
    let (image, answer) = create(
        &formatted(),
        vec![with_configs(
            "orders",
            &[
                ("segment.bytes", Some("1048576")),
                ("retention.ms", Some("1")),
                ("retention.ms", Some("2")),
            ],
        )],
    );
    let result = &answer.topics[0];
    assert_eq!(
        (
            code(result),
            result.num_partitions,
            result.replication_factor
        ),
        (ErrorCode::None, 1, 1)
    );
    let topic = image.topic("orders").expect("it exists");
    assert_eq!(topic.id, result.topic_id);
    assert_eq!(topic.id.0[6] >> 4, 4, "a version 4 id");
    let partition = &topic.partitions[&PartitionIndex(0)];
    assert_eq!(
        (partition.leader, partition.leader_epoch.0),
        (Some(LOCAL), 0)
    );
    assert_eq!(
        (&partition.replicas, &partition.in_sync),
        (&vec![LOCAL], &vec![LOCAL])
    );
    assert_eq!(partition.directories, vec![Uuid([9; 16])]);
    let overrides: Vec<_> = image.topic_overrides("orders").collect();
    assert_eq!(
        overrides,
        [("retention.ms", "2"), ("segment.bytes", "1048576")]
    );
    // KIP-525: the whole configuration, with where each value comes from.
    let configs = result.configs.as_deref().expect("v5 carries them");
    let entry = |name: &str| {
        configs
            .iter()
            .find(|c| c.name == name)
            .map(|c| (c.value.clone(), c.config_source))
    };
    assert_eq!(entry("retention.ms"), Some((Some("2".into()), 1)));
    assert_eq!(entry("cleanup.policy"), Some((Some("delete".into()), 5)));
    assert_eq!(configs.len(), 33);
}

#[test]
fn validate_only_changes_nothing() {
    let (image, config, mut draw) = (formatted(), config(&["num.partitions=4"]), draws());
    let request = CreateTopicsRequest {
        topics: vec![topic("a", -1), topic("", 1)],
        validate_only: true,
        ..CreateTopicsRequest::default()
    };
    let decision = Controller::new(&image, &config, &mut draw).create_topics(&request);
    assert!(decision.records.is_empty());
    let codes: Vec<_> = decision.answer.topics.iter().map(code).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::InvalidTopicException]);
    assert_eq!(decision.answer.topics[0].num_partitions, 4);
    assert!(decision.answer.topics[0].topic_id.is_zero());
}

#[test]
fn bi_9_names_and_collisions() {
    let (image, _) = create(&formatted(), vec![topic("a.b", 1)]);
    let of = |name: &str| refusal(&image, topic(name, 1)).0;
    for bad in ["", ".", "..", "a/b", "a\0b", "é", &"x".repeat(250)] {
        assert_eq!(of(bad), ErrorCode::InvalidTopicException, "{bad:?}");
    }
    assert_eq!(of("a.b"), ErrorCode::TopicAlreadyExists);
    assert_eq!(of("__cluster_metadata"), ErrorCode::InvalidRequest);
    let (code, text) = refusal(&image, topic("a_b", 1));
    assert_eq!(code, ErrorCode::InvalidTopicException);
    assert_eq!(text, "Topic 'a_b' collides with existing topic: a.b");
    // Also within one request: the first one wins.
    let (image, answer) = create(&formatted(), vec![topic("c_d", 1), topic("c.d", 1)]);
    assert_eq!(
        answer
            .topics
            .iter()
            .map(|t| t.error_code)
            .collect::<Vec<_>>(),
        [0, 17]
    );
    assert!(image.topic("c_d").is_some() && image.topic("c.d").is_none());
    // A deleted topic frees its form.
    let named = DeleteTopicsRequest {
        topic_names: vec!["c_d".into()],
        ..Default::default()
    };
    let (image, _) = delete(&image, &named);
    assert_eq!(
        create(&image, vec![topic("c.d", 1)]).1.topics[0].error_code,
        0
    );
}

#[test]
fn one_bad_topic_does_not_stop_the_others() {
    let topics = vec![
        topic("a", 2),
        topic("b", 0),
        topic("c", 1),
        topic("a", 3),
        topic("d", -7),
    ];
    let (image, answer) = create(&formatted(), topics);
    let codes: Vec<_> = answer
        .topics
        .iter()
        .map(|t| (t.name.as_str(), code(t)))
        .collect();
    assert_eq!(
        codes,
        [
            ("a", ErrorCode::InvalidRequest),
            ("b", ErrorCode::InvalidPartitions),
            ("c", ErrorCode::None),
            ("d", ErrorCode::InvalidPartitions)
        ]
    );
    assert_eq!(image.topics().len(), 1);
}

/// ST-21: each partition needs a file handle, and connections need some too.
#[test]
fn bi_37_more_partitions_than_file_handles_are_refused_per_topic() {
    let image = formatted();
    let (config, mut draw) = (config(&[]), draws());
    let mut controller = Controller::new(&image, &config, &mut draw).with_partitions_max(10);
    let request = CreateTopicsRequest {
        topics: vec![topic("a", 8), topic("b", 3), topic("c", 2)],
        ..CreateTopicsRequest::default()
    };
    let decision = controller.create_topics(&request);
    let codes: Vec<_> = decision.answer.topics.iter().map(code).collect();
    assert_eq!(
        codes,
        [ErrorCode::None, ErrorCode::PolicyViolation, ErrorCode::None]
    );
    let text = decision.answer.topics[1].error_message.as_deref();
    assert!(
        text.is_some_and(|text| text.contains("ulimit -n")),
        "{text:?}"
    );
}

#[test]
fn bi_37_bombs_are_refused_per_topic() {
    let image = formatted();
    let most = i32::try_from(CREATE_PARTITIONS_MAX).expect("it fits");
    for count in [most + 1, 1_000_000, i32::MAX] {
        assert_eq!(
            refusal(&image, topic("bomb", count)).0,
            ErrorCode::PolicyViolation
        );
    }
    let (_, answer) = create(&image, vec![topic("a", most), topic("b", 1)]);
    assert!(
        answer
            .topics
            .iter()
            .all(|t| code(t) == ErrorCode::PolicyViolation)
    );
    assert_eq!(
        create(&image, vec![topic("a", most)]).1.topics[0].error_code,
        0
    );
    for factor in [2, i16::MAX] {
        let many = CreatableTopic {
            replication_factor: factor,
            ..topic("a", 1)
        };
        assert_eq!(refusal(&image, many).0, ErrorCode::InvalidReplicationFactor);
    }
    for factor in [0, -2] {
        let none = CreatableTopic {
            replication_factor: factor,
            ..topic("a", 1)
        };
        assert_eq!(refusal(&image, none).0, ErrorCode::InvalidReplicationFactor);
    }
}

#[test]
fn configs_are_checked() {
    let image = formatted();
    let of = |key: &str, value: Option<&str>| refusal(&image, with_configs("a", &[(key, value)]));
    for (key, value) in [
        ("no.such", Some("1")),
        ("retention.ms", Some("abc")),
        ("retention.ms", None),
        ("remote.storage.enable", Some("true")),
    ] {
        assert_eq!(of(key, value).0, ErrorCode::InvalidConfig, "{key}");
    }
    assert!(
        of("cleanup.polic", Some("x"))
            .1
            .contains("did you mean cleanup.policy?")
    );
}

#[test]
fn assignments_by_hand() {
    let image = formatted();
    let (created, answer) = create(&image, vec![assigned("a", &[(1, &[1]), (0, &[1])])]);
    assert_eq!(
        (answer.topics[0].error_code, answer.topics[0].num_partitions),
        (0, 2)
    );
    assert_eq!(created.topic("a").map(|t| t.partitions.len()), Some(2));
    let of = |partitions: &[(i32, &[i32])]| refusal(&image, assigned("a", partitions)).0;
    for bad in [
        &[(0, &[] as &[i32])] as &[(i32, &[i32])],
        &[(0, &[2])],
        &[(0, &[1, 1])],
        &[(0, &[1]), (0, &[1])],
        &[(0, &[1]), (2, &[1])],
        &[(-1, &[1])],
        &[(0, &[1]), (1, &[1, 2])],
    ] {
        assert_eq!(of(bad), ErrorCode::InvalidReplicaAssignment, "{bad:?}");
    }
    let counted = CreatableTopic {
        num_partitions: 1,
        ..assigned("a", &[(0, &[1])])
    };
    assert_eq!(refusal(&image, counted).0, ErrorCode::InvalidRequest);
    let factored = CreatableTopic {
        replication_factor: 1,
        ..assigned("a", &[(0, &[1])])
    };
    assert_eq!(refusal(&image, factored).0, ErrorCode::InvalidRequest);
}

#[test]
fn no_live_broker_no_topic() {
    assert_eq!(
        refusal(&Image::default(), topic("a", 1)).0,
        ErrorCode::InvalidReplicationFactor
    );
}

#[test]
fn auto_creation_takes_the_brokers_defaults() {
    let (image, config, mut draw) = (formatted(), config(&["num.partitions=3"]), draws());
    let wanted = ["logs", "bad/name", "__consumer_offsets"];
    let decision = Controller::new(&image, &config, &mut draw).auto_create(&wanted);
    let image = after(&image, &decision.records);
    let of = |name: &str| {
        let found = decision
            .answer
            .iter()
            .find(|(n, _)| n == name)
            .expect("one answer each");
        found.1.as_ref().map_err(|refusal| refusal.code)
    };
    assert_eq!(of("logs").ok(), image.topic("logs").map(|t| &t.id));
    assert_eq!(image.topic("logs").map(|t| t.partitions.len()), Some(3));
    assert_eq!(of("bad/name"), Err(ErrorCode::InvalidTopicException));
    assert_eq!(
        of("__consumer_offsets"),
        Err(ErrorCode::UnknownTopicOrPartition)
    );
}

#[test]
fn the_offsets_topic_gets_the_settings_it_must_have_once() {
    let (image, mut draw) = (formatted(), draws());
    let config = config(&["offsets.topic.num.partitions=7"]);
    let mut controller = Controller::new(&image, &config, &mut draw);
    let decision = controller.create_internal(InternalTopic::ConsumerOffsets);
    let image = after(&image, &decision.records);
    let topic = image.topic("__consumer_offsets").expect("created");
    assert_eq!(decision.answer.as_ref().ok(), Some(&topic.id));
    assert_eq!((topic.partitions.len(), topic.is_internal()), (7, true));
    // Three replicas are the default; there is one broker.
    assert!(topic.partitions.values().all(|p| p.replicas.len() == 1));
    let set = |key| {
        image
            .topic_overrides("__consumer_offsets")
            .find_map(|(name, value)| (name == key).then_some(value))
    };
    assert_eq!(set("cleanup.policy"), Some("compact"));
    assert_eq!(set("segment.bytes"), Some("104857600"));

    let mut controller = Controller::new(&image, &config, &mut draw);
    let again = controller.create_internal(InternalTopic::ConsumerOffsets);
    assert_eq!(again.answer.as_ref().ok(), Some(&topic.id));
    assert!(again.records.is_empty());
}

#[test]
fn rp_54_a_topic_created_again_has_another_id() {
    let (config, mut draw) = (config(&[]), draws());
    let mut image = formatted();
    let request = CreateTopicsRequest {
        topics: vec![topic("a", 1)],
        ..Default::default()
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let decision = Controller::new(&image, &config, &mut draw).create_topics(&request);
        image = after(&image, &decision.records);
        let id = image.topic("a").expect("created").id;
        ids.push(id);
        let by_id = DeleteTopicState {
            name: None,
            topic_id: id,
        };
        let request = DeleteTopicsRequest {
            topics: vec![by_id],
            ..Default::default()
        };
        let decision = Controller::new(&image, &config, &mut draw).delete_topics(&request, 6);
        assert_eq!(decision.answer.responses[0].name.as_deref(), Some("a"));
        image = after(&image, &decision.records);
        assert!(image.topic("a").is_none() && image.topic_by_id(id).is_none());
    }
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn deletion_by_name_and_by_id() {
    let topics = vec![
        with_configs("a", &[("retention.ms", Some("5"))]),
        topic("b", 1),
        topic("c", 1),
    ];
    let (image, _) = create(&formatted(), topics);
    let id = |name: &str| image.topic(name).expect("it exists").id;
    let state = |name: Option<&str>, id| DeleteTopicState {
        name: name.map(str::to_string),
        topic_id: id,
    };
    let request = DeleteTopicsRequest {
        topics: vec![
            state(Some("a"), Uuid::ZERO),
            state(None, id("b")),
            state(Some("c"), id("c")),
            state(None, Uuid::ZERO),
            state(Some("nope"), Uuid::ZERO),
            state(None, Uuid([3; 16])),
        ],
        ..Default::default()
    };
    let (gone, answer) = delete(&image, &request);
    let codes: Vec<_> = answer.responses.iter().map(|r| r.error_code).collect();
    assert_eq!(codes, [0, 0, 42, 42, 3, 100]);
    assert_eq!(
        gone.topics()
            .map(|t| t.name.to_string())
            .collect::<Vec<_>>(),
        ["c"]
    );
    assert_eq!(gone.topic_overrides("a").count(), 0);
    // Twice the same topic, once by name and once by id: neither counts.
    let twice = DeleteTopicsRequest {
        topics: vec![state(Some("a"), Uuid::ZERO), state(None, id("a"))],
        ..Default::default()
    };
    let (same, answer) = delete(&image, &twice);
    assert_eq!((same.topics().len(), answer.responses.len()), (3, 1));
    assert_eq!(
        answer.responses[0].error_code,
        ErrorCode::InvalidRequest.code()
    );
}

#[test]
fn deletion_can_be_turned_off_and_spares_internal_topics() {
    let (image, _) = create(
        &formatted(),
        vec![topic("a", 1), topic("__consumer_offsets", 1)],
    );
    let named = |name: &str| DeleteTopicsRequest {
        topic_names: vec![name.into()],
        ..Default::default()
    };
    let (off, mut draw) = (config(&["delete.topic.enable=false"]), draws());
    let controller = Controller::new(&image, &off, &mut draw);
    for (version, expected) in [
        (2, ErrorCode::InvalidRequest),
        (3, ErrorCode::TopicDeletionDisabled),
    ] {
        let decision = controller.delete_topics(&named("a"), version);
        assert!(decision.records.is_empty());
        assert_eq!(decision.answer.responses[0].error_code, expected.code());
    }
    let (same, answer) = delete(&image, &named("__consumer_offsets"));
    assert_eq!(
        answer.responses[0].error_code,
        ErrorCode::InvalidTopicException.code()
    );
    assert_eq!(same.topics().len(), 2);
}
