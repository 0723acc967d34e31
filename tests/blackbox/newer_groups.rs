//! Groups of the newer protocol over the wire: their settings, and groups that are told in pages.

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    ListGroupsRequest,
};

use crate::administering::{BROKER, alter, describe, value_of};
use crate::broker::{Broker, Options};
use crate::groups;
use crate::wire::{Connection, error, newest};

const GROUP: i8 = 32;

/// A heartbeat that says all, of a member that has nothing and subscribes to `t`.
fn beat(
    client: &mut Connection,
    group: &str,
    member: &str,
    epoch: i32,
) -> ConsumerGroupHeartbeatResponse {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: group.to_owned(),
        member_id: member.to_owned(),
        member_epoch: epoch,
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".to_owned()]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    groups::once_loaded(|| {
        let answer = client.call(&request, newest::<ConsumerGroupHeartbeatRequest>());
        (error(answer.error_code), answer)
    })
}

#[test]
fn rp_113_settings_of_a_group_reach_its_members_at_their_next_heartbeat() {
    const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
    let mut broker = Broker::start_with(groups::options());
    let mut client = groups::with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    let told = describe(&mut client, GROUP, "g", 4);
    assert_eq!(value_of(&told, HEARTBEAT), "5000");
    let joined = beat(&mut client, "g", "m", 0);
    assert_eq!(
        (joined.member_epoch, joined.heartbeat_interval_ms),
        (1, 5_000)
    );
    let code = alter(&mut client, GROUP, "g", HEARTBEAT, Some("7000"));
    assert_eq!(code, ErrorCode::None);
    assert_eq!(beat(&mut client, "g", "m", 1).heartbeat_interval_ms, 7_000);
    for (name, value, code) in [
        ("g", "20000", ErrorCode::InvalidConfig),
        ("g", "soon", ErrorCode::InvalidConfig),
        ("", "7000", ErrorCode::InvalidRequest),
    ] {
        assert_eq!(
            alter(&mut client, GROUP, name, HEARTBEAT, Some(value)),
            code
        );
    }
    let code = alter(
        &mut client,
        GROUP,
        "g",
        "share.session.timeout.ms",
        Some("45000"),
    );
    assert_eq!(code, ErrorCode::InvalidConfig);

    drop(client);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    let told = describe(&mut client, GROUP, "g", 4);
    assert_eq!(value_of(&told, HEARTBEAT), "7000");
    let mut own = told.configs.iter().filter(|c| c.config_source == 8);
    assert!(own.all(|config| config.name == HEARTBEAT));
    assert_eq!(beat(&mut client, "g", "m", 1).heartbeat_interval_ms, 7_000);
    assert_eq!(
        alter(&mut client, GROUP, "g", HEARTBEAT, None),
        ErrorCode::None
    );
    assert_eq!(beat(&mut client, "g", "m", 1).heartbeat_interval_ms, 5_000);
}

#[test]
fn rp_113_distributions_are_as_far_apart_as_the_group_or_the_broker_says() {
    const OF_GROUP: &str = "consumer.assignment.interval.ms";
    const OF_BROKER: &str = "group.consumer.assignment.interval.ms";
    let broker = Broker::start_with(groups::options());
    let mut client = groups::with_coordinators(&broker);
    client.create_topic("t", 2, &[]);
    let told = describe(&mut client, GROUP, "g", 4);
    assert_eq!(value_of(&told, OF_GROUP), "1000");
    let code = alter(&mut client, BROKER, "", OF_BROKER, Some("15000"));
    assert_eq!(code, ErrorCode::None);
    let mut beat = |member: &str, epoch| {
        let answer = beat(&mut client, "g", member, epoch);
        let topics = answer.assignment.unwrap_or_default().topic_partitions;
        let partitions = topics.iter().map(|topic| topic.partitions.len());
        (answer.member_epoch, partitions.sum::<usize>())
    };
    assert_eq!(beat("first", 0), (1, 2));
    // The first one has all of it until the next distribution, which is far off.
    assert_eq!(beat("second", 0), (1, 0));
    assert_eq!(beat("first", 1), (1, 2));
    // A time of the group's own wins.
    let mut admin = broker.connect();
    let mut set = |ms| alter(&mut admin, GROUP, "g", OF_GROUP, Some(ms));
    assert_eq!(set("15001"), ErrorCode::InvalidConfig);
    assert_eq!(set("0"), ErrorCode::None);
    assert_eq!(beat("first", 1), (2, 1));
    assert_eq!(beat("second", 1), (2, 1));
}

#[test]
fn bi_8_large_groups_and_many_groups_are_told_whole() {
    // More than a coordinator tells of in one turn of its core.
    const MEMBERS: usize = 1_100;
    const GROUPS: usize = 1_100;
    let broker = Broker::start_with(Options::with(&[
        ("offsets.topic.num.partitions", "1"),
        // Nobody's session ends before the last one has joined.
        ("group.consumer.max.session.timeout.ms", "3600000"),
        ("group.consumer.session.timeout.ms", "3600000"),
    ]));
    let mut client = groups::with_coordinators(&broker);
    client.create_topic("t", 1, &[]);
    let names = |what: &str, count: usize| -> Vec<String> {
        (0..count).map(|nth| format!("{what}-{nth:04}")).collect()
    };
    let members = names("member", MEMBERS);
    for member in &members {
        beat(&mut client, "large", member, 0);
    }
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec!["large".to_owned()],
        include_authorized_operations: true,
    };
    let answer = client.call(&request, newest::<ConsumerGroupDescribeRequest>());
    let told = answer.groups.into_iter().next().expect("one group");
    assert_eq!(error(told.error_code), ErrorCode::None);
    assert_eq!(told.assignor_name, "uniform");
    let ids: Vec<String> = told.members.into_iter().map(|m| m.member_id).collect();
    assert_eq!(ids, members);

    let mut all = names("group", GROUPS);
    for group in &all {
        assert_eq!(
            groups::commit(&mut client, group, &[("t", 0, 1)]),
            [ErrorCode::None]
        );
    }
    all.push("large".to_owned());
    let answer = client.call(&ListGroupsRequest::default(), newest::<ListGroupsRequest>());
    let mut listed: Vec<String> = answer.groups.into_iter().map(|g| g.group_id).collect();
    listed.sort_unstable();
    assert_eq!(listed, all);
}
