//! What becomes of committed offsets when their topic goes, and topics by id (KIP-848).

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::{
    HeartbeatRequest, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
    OffsetFetchResponse,
};
use thalweg_types::Uuid;

use crate::administering::delete_records;
use crate::batch::plain;
use crate::broker::{Broker, eventually, is_long};
use crate::groups::{
    commit_patiently, commit_request, fetch_all, join, once_loaded, options, sync_request,
    with_coordinators,
};
use crate::scrubbing::flip;
use crate::tool::thalweg;
use crate::wire::{Connection, error};

fn of(topic: &str, offset: i64) -> BTreeMap<(String, i32), i64> {
    BTreeMap::from([((topic.to_owned(), 0), offset)])
}

#[test]
fn rp_116_a_topic_made_anew_inherits_no_offsets() {
    let mut broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    client.create_topic("other", 1, &[]);
    let groups: Vec<String> = (0..8).map(|n| format!("group-{n}")).collect();
    for group in &groups {
        commit_patiently(&mut client, group, &[("t", 0, 5), ("other", 0, 6)]);
    }
    assert_eq!(client.delete_topic("t"), ErrorCode::None);
    for group in &groups {
        assert_eq!(fetch_all(&mut client, group), of("other", 6));
    }
    client.create_topic("t", 1, &[]);
    for group in &groups {
        assert_eq!(fetch_all(&mut client, group), of("other", 6));
    }
    // Nor does a restart bring them back.
    drop(client);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    for group in &groups {
        assert_eq!(fetch_all(&mut client, group), of("other", 6));
        commit_patiently(&mut client, group, &[("t", 0, 1)]);
    }
    // Those of the new topic are as good as any.
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    for group in &groups {
        let mut wanted = of("other", 6);
        wanted.extend(of("t", 1));
        assert_eq!(fetch_all(&mut client, group), wanted);
    }
}

#[test]
fn rp_116_a_kill_right_after_the_deletion_brings_no_offset_back() {
    let mut broker = Broker::start_with(options());
    drop(with_coordinators(&broker));
    for round in 0..3 {
        let mut client = broker.connect();
        client.create_topic("t", 1, &[]);
        for group in ["a", "b", "c"] {
            assert_eq!(
                fetch_all(&mut client, group),
                BTreeMap::new(),
                "round {round}"
            );
            commit_patiently(&mut client, group, &[("t", 0, 5)]);
        }
        assert_eq!(client.delete_topic("t"), ErrorCode::None);
        drop(client);
        broker.kill();
        broker.start_again();
    }
}

#[test]
fn rp_116_offsets_expire_while_the_broker_runs() {
    let mut options = options();
    for (key, value) in [
        ("offsets.retention.minutes", "1"),
        ("offsets.retention.check.interval.ms", "50"),
    ] {
        options.properties.push((key, value.to_owned()));
    }
    let broker = Broker::start_with(options);
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    commit_patiently(&mut client, "kept", &[("t", 0, 3)]);
    // An old client says itself how long: here, not at all.
    let mut request = commit_request("over", &[("t", 0, 3)]);
    request.retention_time_ms = 1;
    once_loaded(|| {
        let answer = client.call(&request, 4);
        (error(answer.topics[0].partitions[0].error_code), ())
    });
    eventually("the offset is over", || {
        fetch_all(&mut client, "over").is_empty().then_some(())
    });
    assert_eq!(fetch_all(&mut client, "kept"), of("t", 3));
    let groups = client.call(&ListGroupsRequest::default(), 4).groups;
    assert_eq!(groups.len(), 1, "a group goes with its last offset");
    for (name, value) in [
        ("thalweg_group_offsets_committed_total", 2.0),
        ("thalweg_group_offsets_expired_total", 1.0),
        ("thalweg_group_offsets", 1.0),
        ("thalweg_groups_empty", 1.0),
        ("thalweg_groups_stable", 0.0),
        ("thalweg_group_coordinators_loading", 0.0),
        ("thalweg_group_loads_total", 8.0),
    ] {
        assert_eq!(broker.metric(name, &[]), value, "{name}");
    }
    if is_long() {
        // A minute, and the time until the next look.
        let longest = Duration::from_secs(90);
        let began = Instant::now();
        while !fetch_all(&mut client, "kept").is_empty() {
            assert!(began.elapsed() < longest, "still there");
        }
    }
}

fn commit_by_id(client: &mut Connection, topics: &[(Uuid, i32, i64)]) -> Vec<(Uuid, ErrorCode)> {
    let request = OffsetCommitRequest {
        group_id: "g".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: topics
            .iter()
            .map(|(id, partition, offset)| OffsetCommitRequestTopic {
                topic_id: *id,
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: *partition,
                    committed_offset: *offset,
                    ..Default::default()
                }],
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let answer = client.call(&request, 10);
    let rows = answer.topics.iter();
    rows.map(|topic| (topic.topic_id, error(topic.partitions[0].error_code)))
        .collect()
}

fn fetch_by_id(client: &mut Connection, ids: Option<&[Uuid]>) -> OffsetFetchResponse {
    let topics = ids.map(|ids| {
        let topic = |id: &Uuid| OffsetFetchRequestTopics {
            topic_id: *id,
            partition_indexes: vec![0],
            ..Default::default()
        };
        ids.iter().map(topic).collect()
    });
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".to_owned(),
            topics,
            ..Default::default()
        }],
        ..Default::default()
    };
    client.call(&request, 10)
}

/// Topic id, offset and error of each row.
fn rows(answer: &OffsetFetchResponse) -> Vec<(Uuid, i64, ErrorCode)> {
    let topics = answer.groups[0].topics.iter();
    topics
        .map(|topic| {
            let row = &topic.partitions[0];
            (topic.topic_id, row.committed_offset, error(row.error_code))
        })
        .collect()
}

#[test]
fn rp_118_an_offset_that_fell_out_of_the_log_is_an_error_at_the_fetch() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let topic = client.create_topic("t", 2, &[]);
    for text in ["a", "b", "c"] {
        client.append(&topic, 0, plain(&[text]));
    }
    commit_patiently(&mut client, "g", &[("t", 0, 1)]);
    assert_eq!(delete_records(&mut client, &topic, 2).0, ErrorCode::None);
    // The coordinator tells it as it was committed, and nothing of a partition without one.
    assert_eq!(fetch_all(&mut client, "g"), of("t", 1));
    let found = fetch_by_id(&mut client, Some(&[topic.id]));
    assert_eq!(rows(&found), [(topic.id, 1, ErrorCode::None)]);
    let mut request = OffsetFetchRequest {
        group_id: "g".to_owned(),
        ..Default::default()
    };
    request.topics = Some(vec![OffsetFetchRequestTopic {
        name: "t".to_owned(),
        partition_indexes: vec![1],
    }]);
    let row = client
        .call(&request, 7)
        .topics
        .remove(0)
        .partitions
        .remove(0);
    assert_eq!((row.committed_offset, row.error_code), (-1, 0));
    let mut fetched = |offset| error(client.fetch(&topic, 0, offset).error_code);
    assert_eq!(fetched(1), ErrorCode::OffsetOutOfRange);
    assert_eq!(fetched(2), ErrorCode::None);
}

#[test]
fn rp_116_offsets_by_topic_id_are_those_of_that_topic() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let before = client.create_topic("t", 1, &[]).id;
    commit_patiently(&mut client, "g", &[("t", 0, 3)]);
    let nobody = Uuid([9; 16]);
    let committed = commit_by_id(
        &mut client,
        &[(before, 0, 4), (nobody, 0, 1), (before, 7, 1)],
    );
    let wanted = [
        (before, ErrorCode::None),
        (nobody, ErrorCode::UnknownTopicId),
        (before, ErrorCode::UnknownTopicOrPartition),
    ];
    assert_eq!(committed, wanted);
    assert_eq!(fetch_all(&mut client, "g"), of("t", 4));
    let found = fetch_by_id(&mut client, Some(&[before, nobody]));
    let wanted = [
        (before, 4, ErrorCode::None),
        (nobody, -1, ErrorCode::UnknownTopicId),
    ];
    assert_eq!(rows(&found), wanted);
    let all = fetch_by_id(&mut client, None);
    assert_eq!(rows(&all), [(before, 4, ErrorCode::None)]);

    assert_eq!(client.delete_topic("t"), ErrorCode::None);
    let after = client.create_topic("t", 1, &[]).id;
    let committed = commit_by_id(&mut client, &[(before, 0, 8)]);
    assert_eq!(committed, [(before, ErrorCode::UnknownTopicId)]);
    let found = fetch_by_id(&mut client, Some(&[before, after]));
    let wanted = [
        (after, -1, ErrorCode::None),
        (before, -1, ErrorCode::UnknownTopicId),
    ];
    assert_eq!(rows(&found), wanted);
    assert_eq!(rows(&fetch_by_id(&mut client, None)), []);
}

fn fetch_one(client: &mut Connection, group: &str) -> (i64, ErrorCode) {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: "t".to_owned(),
                partition_indexes: vec![0],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = client.call(&request, 8).groups.remove(0);
    let row = &answer.topics[0].partitions[0];
    (row.committed_offset, error(row.error_code))
}

/// Two damaged batches in a partition of the offsets topic take what was in them and nothing else: its
/// other groups go on, all are listed, and an offset that may have been in them is not denied.
#[test]
fn groups_are_loaded_around_what_is_damaged() {
    let mut options = options();
    options.properties[1].1 = "1".to_owned();
    let mut broker = Broker::start_with(options);
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 2, &[]);
    for (group, partition, offset) in [
        ("old", 0, 3),
        ("lost", 0, 5),
        ("whole", 0, 7),
        ("old", 0, 9),
        ("whole", 1, 1),
    ] {
        commit_patiently(&mut client, group, &[("t", partition, offset)]);
    }
    broker.stop();
    let segment = broker.partition("__consumer_offsets", 0);
    let segment = segment.join("00000000000000000000.log");
    let places = [flip(&segment, 1), flip(&segment, 3)];
    for life in ["first", "second"] {
        broker.start_again();
        let mut client = broker.connect();
        assert_eq!(fetch_all(&mut client, "whole").len(), 2, "{life}");
        let lines = eventually("a line about each damage", || {
            let mut lines = broker.log();
            lines.retain(|line| line.contains("GROUPS LOADED AROUND DAMAGE"));
            (lines.len() >= places.len()).then_some(lines)
        });
        assert_eq!(lines.len(), 2, "{life}: {lines:?}");
        for (line, (offset, at)) in lines.iter().zip(places) {
            assert!(line.contains(segment.to_str().expect("UTF-8")), "{line}");
            assert!(line.contains(&format!("position={at} ")), "{line}");
            assert!(line.contains(&format!("offset={offset} ")), "{line}");
        }
        assert_eq!(fetch_one(&mut client, "whole"), (7, ErrorCode::None));
        assert_eq!(fetch_one(&mut client, "old"), (3, ErrorCode::None));
        let unknown = (-1, ErrorCode::KafkaStorageError);
        assert_eq!(fetch_one(&mut client, "lost"), unknown, "{life}");
        let listed = client.call(&ListGroupsRequest::default(), 4);
        assert_eq!(error(listed.error_code), ErrorCode::None);
        let names = listed.groups.iter().map(|group| &*group.group_id);
        let names = names.collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names, ["old", "whole"].into());
        assert_eq!(broker.metric("thalweg_coordinators_damaged", &[]), 1.0);
        broker.kill();
    }
    // Committed anew it is known again; with the damage taken out, what is not there was never there.
    broker.start_again();
    let mut client = broker.connect();
    commit_patiently(&mut client, "lost", &[("t", 0, 5)]);
    assert_eq!(fetch_one(&mut client, "lost"), (5, ErrorCode::None));
    broker.stop();
    let data = broker.data();
    let data = data.to_str().expect("UTF-8");
    let repaired = thalweg(&["repair", "--data-dir", data, "--yes"]);
    assert!(repaired.status.success(), "{repaired:?}");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(fetch_all(&mut client, "lost"), of("t", 5));
    assert_eq!(fetch_one(&mut client, "never"), (-1, ErrorCode::None));
    assert_eq!(broker.metric("thalweg_coordinators_damaged", &[]), 0.0);
}

/// Runs a broker whose wall clock is as many seconds off as a file says.
struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    fn new() -> Clock {
        let folder = tempfile::tempdir().expect("a folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/blackbox/clock.c");
        let library = folder.path().join("clock.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([library.as_os_str(), source.as_ref()])
            .status();
        assert!(built.expect("the compiler that links Rust").success());
        let clock = Clock { folder };
        clock.jump_to(0);
        clock
    }

    fn jump_to(&self, seconds: i64) {
        let file = self.folder.path().join("seconds");
        // In place: the broker has it mapped.
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(file)
            .expect("writable");
        file.write_all(&seconds.to_ne_bytes()).expect("written");
    }

    /// What becomes the broker.
    fn wrapper(&self) -> Vec<&'static str> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let set = [
            format!("LD_PRELOAD={}", at("clock.so")),
            format!("TEST_CLOCK_SECONDS={}", at("seconds")),
        ];
        // A few short texts for the length of the tests.
        let leaked = set.map(|text| &*Box::leak(text.into_boxed_str()));
        [&["env"][..], &leaked].concat()
    }
}

#[test]
fn rp_119_a_wall_clock_that_jumps_ends_no_session_and_no_offset() {
    let clock = Clock::new();
    let mut options = options();
    options.wrapper = clock.wrapper();
    for (key, value) in [
        ("offsets.retention.minutes", "5"),
        ("offsets.retention.check.interval.ms", "50"),
    ] {
        options.properties.push((key, value.to_owned()));
    }
    let broker = Broker::start_with(options);
    let mut client = with_coordinators(&broker);
    let topic = client.create_topic("t", 1, &[]);
    commit_patiently(&mut client, "kept", &[("t", 0, 3)]);
    let joined = once_loaded(|| {
        let answer = join(&mut client, "at-work", 3);
        (error(answer.error_code), answer)
    });
    let beat = HeartbeatRequest {
        group_id: "at-work".to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id,
        group_instance_id: None,
    };
    let sync = sync_request("at-work", &beat.member_id);
    assert_eq!(error(client.call(&sync, 3).error_code), ErrorCode::None);
    // Each look that comes after a jump ends what was to end by then, and nothing else.
    for (nth, seconds) in [3_600, -3_000].into_iter().enumerate() {
        let over = format!("over-{nth}");
        let mut request = commit_request(&over, &[("t", 0, 3)]);
        request.retention_time_ms = 400;
        once_loaded(|| {
            let answer = client.call(&request, 4);
            (error(answer.topics[0].partitions[0].error_code), ())
        });
        clock.jump_to(seconds);
        assert_eq!(client.append(&topic, 0, plain(&["x"])), nth as i64);
        if seconds > 0 {
            eventually("the offset is over", || {
                fetch_all(&mut client, &over).is_empty().then_some(())
            });
        }
        assert_eq!(fetch_all(&mut client, "kept"), of("t", 3), "{seconds} s");
        let alive = client.call(&beat, 4);
        assert_eq!(error(alive.error_code), ErrorCode::None, "{seconds} s");
        commit_patiently(&mut client, "kept", &[("t", 0, 3)]);
    }
    let timed_out = "thalweg_group_members_timed_out_total";
    assert_eq!(broker.metric(timed_out, &[]), 0.0);
    assert_eq!(
        broker.metric("thalweg_group_offsets_expired_total", &[]),
        1.0
    );
}
