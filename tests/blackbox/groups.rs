//! Consumer groups over the wire, and what restarts and kills leave of them. The rules themselves are
//! held by the scenarios of `src/group`.

use std::collections::BTreeMap;
use std::thread;

use bytes::Bytes;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
    offset_delete_request,
};
use thalweg_protocol::{ErrorCode, Message};

use crate::batch::plain;
use crate::broker::{Broker, Options, eventually};
use crate::wire::{Connection, Topic, error, newest};

const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Small and quick: few partitions, no wait for more members.
pub fn options() -> Options {
    Options::with(&[
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.num.partitions", "8"),
    ])
}

fn find(client: &mut Connection, kind: i8, version: i16) -> FindCoordinatorResponse {
    let request = FindCoordinatorRequest {
        key: if version < 4 {
            "g".to_owned()
        } else {
            String::new()
        },
        key_type: kind,
        coordinator_keys: if version < 4 {
            Vec::new()
        } else {
            vec!["g".to_owned()]
        },
    };
    client.call(&request, version)
}

/// Makes the offsets topic, and waits until its coordinators have loaded nothing.
pub fn with_coordinators(broker: &Broker) -> Connection {
    let mut client = broker.connect();
    assert_eq!(error(find(&mut client, 0, 3).error_code), ErrorCode::None);
    eventually("the coordinators have loaded", || {
        (broker.metric("thalweg_group_coordinators_loading", &[]) == 0.0).then_some(())
    });
    client
}

pub fn join_request(group: &str, member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.to_owned(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 60_000,
        member_id: member.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"),
        }],
        ..Default::default()
    }
}

/// Joins through the handshake of KIP-394 where the version has it.
pub fn join(client: &mut Connection, group: &str, version: i16) -> JoinGroupResponse {
    let mut request = join_request(group, "");
    if version == 0 {
        request.rebalance_timeout_ms = -1;
    }
    let mut answer = client.call(&request, version);
    if version >= 4 {
        assert_eq!(error(answer.error_code), ErrorCode::MemberIdRequired);
        request.member_id = answer.member_id;
        answer = client.call(&request, version);
    }
    answer
}

/// The only member of the first generation shares out to itself.
pub fn sync_request(group: &str, member: &str) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: group.to_owned(),
        generation_id: 1,
        member_id: member.to_owned(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: member.to_owned(),
            assignment: Bytes::from_static(b"share"),
        }],
        ..Default::default()
    }
}

pub fn commit_request(group: &str, rows: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topics = rows
        .iter()
        .map(|(topic, partition, offset)| OffsetCommitRequestTopic {
            name: (*topic).to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *offset,
                committed_metadata: Some("note".to_owned()),
                ..Default::default()
            }],
            ..Default::default()
        });
    OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        retention_time_ms: -1,
        topics: topics.collect(),
        ..Default::default()
    }
}

pub fn commit(client: &mut Connection, group: &str, rows: &[(&str, i32, i64)]) -> Vec<ErrorCode> {
    let answer = client.call(&commit_request(group, rows), 9);
    let rows = answer.topics.iter().flat_map(|topic| &topic.partitions);
    rows.map(|row| error(row.error_code)).collect()
}

/// Asks until the coordinator has loaded; each answer comes with its code.
pub fn once_loaded<A>(mut ask: impl FnMut() -> (ErrorCode, A)) -> A {
    eventually("the coordinator has loaded", || match ask() {
        (ErrorCode::None, answer) => Some(answer),
        (ErrorCode::CoordinatorLoadInProgress, _) => None,
        (other, _) => panic!("{other:?}"),
    })
}

/// Commits until the coordinator has loaded.
pub fn commit_patiently(client: &mut Connection, group: &str, rows: &[(&str, i32, i64)]) {
    once_loaded(|| {
        let codes = commit(client, group, rows);
        assert!(codes.iter().all(|code| *code == codes[0]), "{codes:?}");
        (codes[0], ())
    });
}

/// All offsets of a group, once its coordinator has loaded.
pub fn fetch_all(client: &mut Connection, group: &str) -> BTreeMap<(String, i32), i64> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: None,
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = once_loaded(|| {
        let answer = client.call(&request, 8).groups.remove(0);
        (error(answer.error_code), answer)
    });
    let mut found = BTreeMap::new();
    for topic in answer.topics {
        for row in topic.partitions {
            found.insert(
                (topic.name.clone(), row.partition_index),
                row.committed_offset,
            );
        }
    }
    found
}

#[test]
fn the_offsets_topic_is_made_when_a_coordinator_is_first_looked_for() {
    let broker = Broker::start_with(options());
    let mut client = broker.connect();
    // Naming it does not make it.
    let known = client.metadata(&[OFFSETS_TOPIC]).topics.remove(0);
    assert_eq!(error(known.error_code), ErrorCode::UnknownTopicOrPartition);
    for version in FindCoordinatorRequest::VERSIONS {
        let answer = find(&mut client, 0, version);
        let (code, port) = match version {
            0..4 => (answer.error_code, answer.port),
            _ => (
                answer.coordinators[0].error_code,
                answer.coordinators[0].port,
            ),
        };
        assert_eq!(error(code), ErrorCode::None, "version {version}");
        assert_eq!(port, i32::from(broker.address().port()));
    }
    let known = client.metadata(&[OFFSETS_TOPIC]).topics.remove(0);
    assert!(known.is_internal);
    assert_eq!(known.partitions.len(), 8);
    // Only the broker writes to it.
    let topic = Topic {
        name: OFFSETS_TOPIC.to_owned(),
        id: known.topic_id,
    };
    let refused = client.produce(&topic, 0, -1, plain(&[b"x"]));
    assert_eq!(error(refused.error_code), ErrorCode::InvalidTopicException);
    // Transactions are refused for good, share groups as unknown.
    for version in 1..=newest::<FindCoordinatorRequest>() {
        for (kind, wanted) in [
            (1, ErrorCode::TransactionalIdAuthorizationFailed),
            (9, ErrorCode::InvalidRequest),
        ] {
            let answer = find(&mut client, kind, version);
            let code = match version {
                0..4 => answer.error_code,
                _ => answer.coordinators[0].error_code,
            };
            assert_eq!(error(code), wanted, "type {kind}, version {version}");
        }
    }
}

#[test]
fn every_version_of_the_group_apis_works() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 2, &[]);
    for version in JoinGroupRequest::VERSIONS {
        let group = format!("g{version}");
        let joined = join(&mut client, &group, version);
        assert_eq!(
            error(joined.error_code),
            ErrorCode::None,
            "version {version}"
        );
        assert_eq!(
            (joined.generation_id, &joined.leader),
            (1, &joined.member_id)
        );
        assert_eq!(joined.members.len(), 1);
        let sync_version = version.min(newest::<SyncGroupRequest>());
        let synced = client.call(&sync_request(&group, &joined.member_id), sync_version);
        assert_eq!(
            error(synced.error_code),
            ErrorCode::None,
            "version {version}"
        );
        assert_eq!(&synced.assignment[..], b"share");
        let beat = client.call(
            &HeartbeatRequest {
                group_id: group.clone(),
                generation_id: 1,
                member_id: joined.member_id.clone(),
                ..Default::default()
            },
            version.min(newest::<HeartbeatRequest>()),
        );
        assert_eq!(error(beat.error_code), ErrorCode::None);
        commits_of_a_member(&mut client, &group, &joined.member_id, version);
        describes(
            &mut client,
            &group,
            version.min(newest::<DescribeGroupsRequest>()),
        );
        leaves(
            &mut client,
            &group,
            joined.member_id,
            version.min(newest::<LeaveGroupRequest>()),
        );
    }
    lists_and_deletes(&mut client, 10);
}

/// All `count` groups are listed; those of the first versions are then deleted.
fn lists_and_deletes(client: &mut Connection, count: usize) {
    for version in ListGroupsRequest::VERSIONS {
        let answer = client.call(&ListGroupsRequest::default(), version);
        assert_eq!(error(answer.error_code), ErrorCode::None);
        assert_eq!(answer.groups.len(), count, "version {version}");
    }
    for version in DeleteGroupsRequest::VERSIONS {
        let names = [
            format!("g{version}"),
            "none".to_owned(),
            format!("g{version}"),
        ];
        let answer = client.call(
            &DeleteGroupsRequest {
                groups_names: names.to_vec(),
            },
            version,
        );
        let codes: Vec<ErrorCode> = answer.results.iter().map(|r| error(r.error_code)).collect();
        assert_eq!(codes, [ErrorCode::None, ErrorCode::GroupIdNotFound]);
    }
}

fn commits_of_a_member(client: &mut Connection, group: &str, member: &str, version: i16) {
    let version = version.clamp(2, 9);
    let mut request = commit_request(group, &[("t", 0, 7), ("none", 0, 1), ("t", 9, 1)]);
    request.generation_id_or_member_epoch = 1;
    request.member_id = member.to_owned();
    let answer = client.call(&request, version);
    let codes: Vec<ErrorCode> = answer
        .topics
        .iter()
        .map(|topic| error(topic.partitions[0].error_code))
        .collect();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(
        codes,
        [ErrorCode::None, unknown, unknown],
        "version {version}"
    );
    // RP-118: no offset is -1 and no error.
    for version in 1..=9 {
        let mut request = OffsetFetchRequest::default();
        if version < 8 {
            request.group_id = group.to_owned();
            request.topics = Some(vec![OffsetFetchRequestTopic {
                name: "t".to_owned(),
                partition_indexes: vec![0, 1],
            }]);
            let answer = client.call(&request, version);
            let rows = &answer.topics[0].partitions;
            assert_eq!(
                (rows[0].committed_offset, rows[1].committed_offset),
                (7, -1)
            );
            assert_eq!(rows[0].metadata.as_deref(), Some("note"));
            assert_eq!((rows[1].error_code, answer.error_code), (0, 0));
        } else {
            request.groups = vec![OffsetFetchRequestGroup {
                group_id: group.to_owned(),
                member_epoch: -1,
                topics: Some(vec![OffsetFetchRequestTopics {
                    name: "t".to_owned(),
                    partition_indexes: vec![0, 1],
                    ..Default::default()
                }]),
                ..Default::default()
            }];
            let answer = client.call(&request, version);
            let rows = &answer.groups[0].topics[0].partitions;
            assert_eq!(
                (rows[0].committed_offset, rows[1].committed_offset),
                (7, -1)
            );
        }
    }
}

fn describes(client: &mut Connection, group: &str, version: i16) {
    let request = DescribeGroupsRequest {
        groups: vec![group.to_owned(), "none".to_owned()],
        include_authorized_operations: false,
    };
    let answer = client.call(&request, version);
    let [found, none] = &answer.groups[..] else {
        panic!("one row per group");
    };
    assert_eq!((found.error_code, &*found.group_state), (0, "Stable"));
    assert_eq!(
        (&*found.protocol_type, &*found.protocol_data),
        ("consumer", "range")
    );
    let member = &found.members[0];
    assert_eq!(member.client_id, "blackbox");
    assert_eq!(member.client_host, "/127.0.0.1");
    assert_eq!(&member.member_assignment[..], b"share");
    // TRAP-6.
    assert_eq!(found.authorized_operations, i32::MIN);
    let wanted = match version {
        0..6 => ErrorCode::None,
        _ => ErrorCode::GroupIdNotFound,
    };
    assert_eq!(
        (error(none.error_code), &*none.group_state),
        (wanted, "Dead")
    );
}

fn leaves(client: &mut Connection, group: &str, member_id: String, version: i16) {
    let mut request = LeaveGroupRequest {
        group_id: group.to_owned(),
        ..Default::default()
    };
    if version < 3 {
        request.member_id = member_id;
    } else {
        request.members = vec![MemberIdentity {
            member_id,
            ..Default::default()
        }];
    }
    let answer = client.call(&request, version);
    assert_eq!(error(answer.error_code), ErrorCode::None);
    let again = client.call(&request, version);
    let code = match version {
        0..3 => again.error_code,
        _ => again.members[0].error_code,
    };
    assert_eq!(error(code), ErrorCode::UnknownMemberId, "version {version}");
}

/// BI-8: a coordinator lets many go in several turns, and each is answered in its place.
#[test]
fn bi_8_many_members_leave_at_once() {
    const MANY: usize = 1_201;
    const KNOWN: usize = 700;
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let joined = join(&mut client, "g", 9);
    let names = (0..MANY).map(|nth| MemberIdentity {
        member_id: match nth {
            KNOWN => joined.member_id.clone(),
            _ => format!("unknown-{nth}"),
        },
        ..Default::default()
    });
    let request = LeaveGroupRequest {
        group_id: "g".to_owned(),
        members: names.collect(),
        ..Default::default()
    };
    let answer = client.call(&request, newest::<LeaveGroupRequest>());
    assert_eq!(error(answer.error_code), ErrorCode::None);
    let asked = request.members.iter().map(|member| &member.member_id);
    let told = answer.members.iter().map(|member| &member.member_id);
    assert!(asked.eq(told), "in the order of the request");
    for (nth, member) in answer.members.iter().enumerate() {
        let wanted = match nth {
            KNOWN => ErrorCode::None,
            _ => ErrorCode::UnknownMemberId,
        };
        assert_eq!(error(member.error_code), wanted, "member {nth}");
    }
    let empty = LeaveGroupRequest {
        group_id: "g".to_owned(),
        ..Default::default()
    };
    let answer = client.call(&empty, newest::<LeaveGroupRequest>());
    assert_eq!((answer.error_code, answer.members.len()), (0, 0));
}

#[test]
fn rp_111_a_static_member_comes_again_over_a_restart_of_the_broker() {
    let mut broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let mut request = join_request("g", "");
    request.group_instance_id = Some("one".to_owned());
    let first = client.call(&request, 9);
    assert_eq!(error(first.error_code), ErrorCode::None);
    assert!(first.member_id.starts_with("one-"), "{}", first.member_id);
    let mut sync = sync_request("g", &first.member_id);
    sync.group_instance_id = Some("one".to_owned());
    assert_eq!(client.call(&sync, 5).error_code, 0);
    broker.kill();
    broker.start_again();
    let mut client = with_coordinators(&broker);
    let again = eventually("the coordinator has loaded", || {
        let answer = client.call(&request, 9);
        let is_loading = error(answer.error_code) == ErrorCode::CoordinatorLoadInProgress;
        (!is_loading).then_some(answer)
    });
    assert_eq!(error(again.error_code), ErrorCode::None);
    assert_eq!(again.generation_id, first.generation_id, "no rebalance");
    assert!(again.skip_assignment, "KIP-814");
    sync.member_id.clone_from(&again.member_id);
    sync.assignments.clear();
    assert_eq!(client.call(&sync, 5).assignment, &b"share"[..]);
    let mut heartbeat = HeartbeatRequest {
        group_id: "g".to_owned(),
        generation_id: again.generation_id,
        member_id: first.member_id,
        group_instance_id: Some("one".to_owned()),
    };
    let fenced = client.call(&heartbeat, 4);
    assert_eq!(error(fenced.error_code), ErrorCode::FencedInstanceId);
    heartbeat.member_id = again.member_id;
    assert_eq!(client.call(&heartbeat, 3).error_code, 0);
    // An operator knows the instance only.
    let leave = LeaveGroupRequest {
        group_id: "g".to_owned(),
        members: vec![MemberIdentity {
            group_instance_id: Some("one".to_owned()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let left = client.call(&leave, 5);
    assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
}

#[test]
fn rp_117_offsets_in_use_are_not_deleted() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    client.create_topic("u", 1, &[]);
    commit_patiently(&mut client, "g", &[("t", 0, 1), ("u", 0, 1)]);
    let joined = join(&mut client, "g", 9);
    assert_eq!(error(joined.error_code), ErrorCode::None);
    let request = OffsetDeleteRequest {
        group_id: "g".to_owned(),
        topics: ["t", "u", "none"]
            .map(|name| offset_delete_request::OffsetDeleteRequestTopic {
                name: name.to_owned(),
                partitions: vec![offset_delete_request::OffsetDeleteRequestPartition {
                    partition_index: 0,
                }],
            })
            .to_vec(),
    };
    let answer = client.call(&request, 0);
    let codes: Vec<ErrorCode> = answer
        .topics
        .iter()
        .map(|topic| error(topic.partitions[0].error_code))
        .collect();
    // The member subscribes to t only.
    let wanted = [
        ErrorCode::GroupSubscribedToTopic,
        ErrorCode::None,
        ErrorCode::UnknownTopicOrPartition,
    ];
    assert_eq!(codes, wanted);
    let left = fetch_all(&mut client, "g");
    assert_eq!(left, BTreeMap::from([(("t".to_owned(), 0), 1)]));
    let answer = client.call(
        &DeleteGroupsRequest {
            groups_names: vec!["g".to_owned()],
        },
        2,
    );
    assert_eq!(
        error(answer.results[0].error_code),
        ErrorCode::NonEmptyGroup
    );
}

#[test]
fn rp_114_acknowledged_commits_survive_kills() {
    let mut broker = Broker::start_with(options());
    drop(with_coordinators(&broker));
    broker.connect().create_topic("t", 4, &[]);
    let groups: Vec<String> = (0..12).map(|n| format!("group-{n}")).collect();
    let mut acked: BTreeMap<(usize, i32), i64> = BTreeMap::new();
    for round in 0..4 {
        let mut client = broker.connect();
        for (nth, group) in groups.iter().enumerate() {
            let found = fetch_all(&mut client, group);
            for partition in 0..4 {
                let known = acked.get(&(nth, partition)).copied();
                let here = found.get(&("t".to_owned(), partition)).copied();
                assert_eq!(here, known, "{group}, partition {partition}, round {round}");
            }
        }
        for step in 0..3 {
            for (nth, group) in groups.iter().enumerate() {
                let partition = (round + step) % 4;
                let offset = i64::from(round * 10 + step);
                commit_patiently(&mut client, group, &[("t", partition, offset)]);
                acked.insert((nth, partition), offset);
            }
        }
        match round % 2 {
            0 => broker.kill(),
            _ => broker.stop(),
        }
        broker.start_again();
    }
}

#[test]
fn rp_112_members_keep_their_shares_over_a_restart() {
    let mut broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let joined = join(&mut client, "g", 9);
    let mut sync = sync_request("g", &joined.member_id);
    // Groups of many members and topics have shares of megabytes in sum, and go on all the same (KAFKA-3810).
    let share = Bytes::from(vec![7; 4 << 20]);
    sync.assignments[0].assignment = share.clone();
    assert_eq!(error(client.call(&sync, 5).error_code), ErrorCode::None);
    drop(client);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    let heartbeat = HeartbeatRequest {
        group_id: "g".to_owned(),
        generation_id: 1,
        member_id: joined.member_id,
        ..Default::default()
    };
    once_loaded(|| (error(client.call(&heartbeat, 4).error_code), ()));
    let again = client.call(&sync, 5);
    assert_eq!((again.error_code, again.assignment == share), (0, true));
}

#[test]
fn a_stop_does_not_wait_for_members_that_wait_for_others() {
    let mut broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let first = join(&mut client, "g", 9);
    assert_eq!(error(first.error_code), ErrorCode::None);
    // The second waits for the first, which does not know.
    let mut second = broker.connect();
    let asked = second.call(&join_request("g", ""), 9);
    second.send(&join_request("g", &asked.member_id), 9);
    // Its request has arrived once the first is told to join again.
    let heartbeat = HeartbeatRequest {
        group_id: "g".to_owned(),
        generation_id: 1,
        member_id: first.member_id,
        ..Default::default()
    };
    eventually("the first one is to join again", || {
        let told = error(client.call(&heartbeat, 4).error_code);
        (told == ErrorCode::RebalanceInProgress).then_some(())
    });
    let answered = thread::spawn(move || second.receive::<JoinGroupRequest>(9).1);
    broker.stop();
    // A stop that waited would have closed its connection in the end.
    let answer = answered.join().expect("answered");
    assert_eq!(error(answer.error_code), ErrorCode::NotCoordinator);
}

#[test]
fn bi_10_ids_forge_no_log_lines_and_no_metrics() {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    let long = "g".repeat(i16::MAX as usize);
    let ids = [
        "forged\n\u{1b}[31mERROR thalweg",
        "forged\" 1\n# TYPE",
        &long,
    ];
    for id in ids {
        commit_patiently(&mut client, id, &[("t", 0, 1)]);
        let joined = join(&mut client, id, 9);
        assert_eq!(error(joined.error_code), ErrorCode::None);
        let again = client.call(&join_request(id, id), 9);
        assert_eq!(error(again.error_code), ErrorCode::UnknownMemberId);
        let request = DescribeGroupsRequest {
            groups: vec![id.to_owned()],
            include_authorized_operations: false,
        };
        let described = client.call(&request, 6).groups.remove(0);
        assert_eq!((described.error_code, &*described.group_id), (0, id));
        assert_eq!(fetch_all(&mut client, id).len(), 1);
    }
    for request in [join_request("", ""), join_request("", "m")] {
        let refused = client.call(&request, 9);
        assert_eq!(error(refused.error_code), ErrorCode::InvalidGroupId);
    }
    let page = broker.metrics();
    // Where a name stands as a label, it is escaped: every line is of our own.
    let is_ours = |line: &str| line.starts_with("# ") || line.starts_with("thalweg_");
    assert!(page.lines().all(is_ours) && page.len() < 1_000_000);
    assert!(
        !page.contains('\u{1b}') && !page.contains("# TYPE\"}"),
        "{page}"
    );
    assert_eq!(broker.metric("thalweg_group_members", &[]), 3.0);
    let log = broker.log();
    assert!(!log.iter().any(|line| line.contains("forged")), "{log:?}");
}

#[test]
fn bi_36_text_beside_an_offset_is_bounded() {
    let mut options = options();
    let bound = ("offset.metadata.max.bytes", "100".to_owned());
    options.properties.push(bound);
    let broker = Broker::start_with(options);
    let mut client = with_coordinators(&broker);
    client.create_topic("t", 2, &[]);
    commit_patiently(&mut client, "g", &[("t", 0, 1)]);
    let mut request = commit_request("g", &[("t", 0, 2), ("t", 1, 3)]);
    request.topics[0].partitions[0].committed_metadata = Some("é".repeat(101));
    request.topics[1].partitions[0].committed_metadata = Some("é".repeat(100));
    let answer = client.call(&request, 9);
    let rows = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let codes: Vec<ErrorCode> = rows.map(|row| error(row.error_code)).collect();
    assert_eq!(codes, [ErrorCode::OffsetMetadataTooLarge, ErrorCode::None]);
    let wanted = BTreeMap::from([(("t".to_owned(), 0), 1), (("t".to_owned(), 1), 3)]);
    assert_eq!(fetch_all(&mut client, "g"), wanted);
}
