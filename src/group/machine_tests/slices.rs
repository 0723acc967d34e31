//! What is much takes several turns: looks at all groups, answers about large ones, their end.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::group_metadata_value::MemberMetadata;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_protocol::messages::{
    ConsumerGroupMemberMetadataValue, GroupMetadataValue, JoinGroupRequest, OffsetCommitRequest,
};
use thalweg_types::limits::{
    COORDINATOR_SWEEP_ENDS, COORDINATOR_SWEEP_OFFSETS, COORDINATOR_SWEEP_WRITES_MAX,
    COORDINATOR_TIMERS_PER_TURN, GROUPS_LISTED_PER_TURN, OFFSET_COMMIT_ROWS_PER_TURN,
    OFFSET_FETCH_ROWS_PER_TURN, TURN_ELEMENTS_MAX,
};
use thalweg_types::{TimestampMs, TopicId};

use super::world::{EPOCH_MS, Logged, World};
use crate::{
    Answer, Ask, Caller, Committed, ConsumerRecord, GroupQuery, Now, Progress, Record, Settings,
    Stability, Tally, Token,
};

const MANY_ENDS: usize = 2 * COORDINATOR_SWEEP_ENDS + 1;

fn world_of(groups: usize, offsets: usize) -> World {
    let mut world = World::new(Settings {
        offsets_retention_ms: 1_000,
        offsets_check_interval_ms: 5_000,
        ..Settings::default()
    });
    for group in 0..groups {
        for partition in 0..offsets {
            world.log.push(Logged::Record(Record::Offset {
                group: Rc::from(format!("g{group}")),
                topic: Rc::from(if partition % 2 == 0 { "t" } else { "u" }),
                partition: partition as i32,
                value: Some(Committed {
                    offset: 1,
                    leader_epoch: -1,
                    metadata: Box::default(),
                    at: TimestampMs(EPOCH_MS),
                    expires: TimestampMs::NONE,
                    topic_id: TopicId::ZERO,
                }),
            }));
        }
    }
    world
}

/// Ends written since it was last asked, batch by batch.
fn ended(world: &mut World) -> Vec<usize> {
    std::mem::take(&mut world.written)
        .iter()
        .map(Vec::len)
        .collect()
}

#[test]
fn rp_115_loading_goes_in_slices_also_within_a_group() {
    let mut world = world_of(3, COORDINATOR_SWEEP_OFFSETS / 2);
    let steps = world.restart();
    assert_eq!(steps, [Progress::More, Progress::Done]);
    let mut world = world_of(1, 2 * COORDINATOR_SWEEP_OFFSETS + 1);
    let steps = world.restart();
    assert_eq!(steps, [Progress::More, Progress::More, Progress::Done]);
    assert_eq!(ended(&mut world), [0; 0]);
}

#[test]
fn rp_115_members_of_a_large_group_are_made_ready_in_slices() {
    const MANY: usize = 2 * COORDINATOR_SWEEP_OFFSETS + 1;
    let ids = || (0..MANY).map(|nth| format!("m{nth:06}"));
    let member = |member_id| MemberMetadata {
        member_id,
        session_timeout: 10_000,
        ..MemberMetadata::default()
    };
    let classic = Record::Group {
        group: Rc::from("g"),
        value: Some(GroupMetadataValue {
            protocol_type: "consumer".to_owned(),
            protocol: Some("range".to_owned()),
            members: ids().map(member).collect(),
            ..GroupMetadataValue::default()
        }),
    };
    let newer = ids().map(|id| Record::Consumer {
        group: Rc::from("g"),
        record: ConsumerRecord::Member(
            Rc::from(id),
            Some(ConsumerGroupMemberMetadataValue::default()),
        ),
    });
    for records in [vec![classic], newer.collect()] {
        let mut world = world_of(0, 0);
        world.log = records.into_iter().map(Logged::Record).collect();
        let steps = world.restart();
        assert_eq!(steps, [Progress::More, Progress::More, Progress::Done]);
        assert_eq!(world.machine.tally().members, MANY);
    }
}

#[test]
fn rp_115_a_record_of_many_members_is_replayed_in_slices() {
    const MANY: usize = 2 * TURN_ELEMENTS_MAX + 1;
    let member = |nth: usize| MemberMetadata {
        member_id: format!("m{nth:06}"),
        session_timeout: 10_000,
        ..MemberMetadata::default()
    };
    let record = |members: usize| Record::Group {
        group: Rc::from("g"),
        value: Some(GroupMetadataValue {
            protocol_type: "consumer".to_owned(),
            protocol: Some("range".to_owned()),
            leader: Some("gone".to_owned()),
            members: (0..members).map(member).collect(),
            ..GroupMetadataValue::default()
        }),
    };
    let mut world = world_of(0, 0);
    let now = Now {
        ms: 0,
        wall: world.wall(),
    };
    // The second takes the place of all of the first.
    for (members, steps) in [(MANY, 3), (TURN_ELEMENTS_MAX, 1), (MANY, 3), (0, 1), (1, 1)] {
        let mut progress = world.machine.on_record(record(members), now);
        let mut count = 1;
        while progress == Progress::More {
            progress = world.machine.on_record_rest(now);
            count += 1;
        }
        assert_eq!((world.machine.tally().members, count), (members, steps));
    }
}

#[test]
fn rp_115_offsets_whose_time_is_over_end_in_slices() {
    let mut world = world_of(1, MANY_ENDS);
    world.restart();
    world.pass_to(4_999);
    assert_eq!(ended(&mut world), [0; 0]);
    world.pass_to(5_000);
    assert_eq!(ended(&mut world), [COORDINATOR_SWEEP_ENDS]);
    world.pass_to(5_001);
    assert_eq!(ended(&mut world), [COORDINATOR_SWEEP_ENDS]);
    world.pass_to(5_010);
    assert_eq!(ended(&mut world), [1]);
    while !world.writes.is_empty() {
        world.commit_write();
    }
    assert_eq!(world.machine.tally().offsets, 0);
    // The next look begins when the last one has ended, and finds nothing.
    world.pass_to(11_000);
    assert!(world.writes.is_empty());
}

#[test]
fn a_topic_that_goes_is_looked_for_in_slices() {
    let mut world = world_of(2, COORDINATOR_SWEEP_ENDS);
    world.restart();
    world.remove_topic("t");
    world.remove_topic("u");
    world.tell_removed("t");
    // Half of a group is of the topic.
    assert_eq!(ended(&mut world), [COORDINATOR_SWEEP_ENDS / 2; 2]);
    // Another one waits for the first.
    world.tell_removed("u");
    world.pass_to(world.now + 1);
    assert_eq!(ended(&mut world), [COORDINATOR_SWEEP_ENDS / 2; 2]);
    world.pass_to(world.now + 10);
    assert_eq!(ended(&mut world), [0; 0]);
}

#[test]
fn rp_115_orphans_of_a_large_group_end_in_slices_before_it_is_served() {
    let mut world = world_of(1, MANY_ENDS);
    world.remove_topic("t");
    world.remove_topic("u");
    let steps = world.restart();
    assert_eq!(steps, [Progress::More, Progress::More, Progress::Done]);
    let full = COORDINATOR_SWEEP_ENDS;
    assert_eq!(ended(&mut world), [full, full, 1]);
}

#[test]
fn a_look_waits_for_the_ends_that_it_has_written() {
    let all = (COORDINATOR_SWEEP_WRITES_MAX + 2) * COORDINATOR_SWEEP_ENDS;
    let mut world = world_of(1, all);
    world.restart();
    world.pass_to(5_100);
    assert_eq!(ended(&mut world).len(), COORDINATOR_SWEEP_WRITES_MAX);
    world.commit_write();
    world.pass_to(5_200);
    assert_eq!(ended(&mut world).len(), 1);
    while !world.writes.is_empty() {
        world.commit_write();
        world.pass_to(world.now + 1);
    }
    assert_eq!(world.machine.tally().offsets, 0);
}

fn caller(version: i16) -> Caller {
    Caller {
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        version,
    }
}

#[test]
fn bi_8_a_large_group_is_deleted_in_parts() {
    const PART: usize = OFFSET_COMMIT_ROWS_PER_TURN;
    let mut world = world_of(1, 2 * PART + 1);
    world.restart();
    let delete = || Ask::Delete("g0".to_owned());
    let told = |world: &mut World| match world.answers.pop_back() {
        Some((_, Answer::Delete(answer))) => ErrorCode::from_code(answer.error_code),
        other => panic!("{other:?}"),
    };
    world.ask(&caller(2), delete(), Token(0));
    world.commit_write();
    assert_eq!(ended(&mut world), [PART, PART]);
    // What is done is done, and the rest is as it was.
    world.fail_writes(ErrorCode::KafkaStorageError);
    assert_eq!(told(&mut world), Some(ErrorCode::NotCoordinator));
    assert_eq!(world.machine.tally().offsets, PART + 1);
    assert_eq!(world.machine.tally().empty, 1);
    world.ask(&caller(2), delete(), Token(1));
    assert_eq!(ended(&mut world), [PART]);
    world.commit_write();
    assert!(world.answers.is_empty(), "it is not gone yet");
    // The last offset, and the group.
    assert_eq!(ended(&mut world), [2]);
    world.commit_write();
    assert_eq!(told(&mut world), Some(ErrorCode::None));
    assert_eq!(world.machine.tally(), Tally::default());
}

#[test]
fn bi_8_what_a_large_group_has_committed_is_told_in_pages() {
    let mut world = world_of(1, 2 * OFFSET_FETCH_ROWS_PER_TURN + 1);
    world.restart();
    let (mut sizes, mut places, mut last) = (Vec::new(), Vec::new(), None);
    loop {
        let page = world.machine.positions("g0", last.as_ref());
        if page.is_empty() {
            break;
        }
        sizes.push(page.len());
        places.extend(
            page.iter()
                .map(|row| (Rc::clone(&row.topic), row.partition)),
        );
        last = page.into_iter().next_back();
    }
    let full = OFFSET_FETCH_ROWS_PER_TURN;
    assert_eq!(sizes, [full, full, 1]);
    assert!(places.is_sorted(), "each once");
    assert!(world.machine.positions("none", None).is_empty());
}

#[test]
fn bi_8_groups_that_have_committed_are_named_in_pages() {
    let mut world = world_of(GROUPS_LISTED_PER_TURN + 1, 1);
    world.restart();
    let (first, rest) = world.machine.groups_with_offsets(None);
    assert_eq!(first.len(), GROUPS_LISTED_PER_TURN);
    let (second, end) = world.machine.groups_with_offsets(rest.as_deref());
    assert_eq!((second.len(), end), (1, None));
    assert!(first.is_sorted() && first.last() < second.first());
}

#[test]
fn bi_8_timers_that_run_out_together_fire_in_several_turns() {
    const MANY: usize = 3 * COORDINATOR_TIMERS_PER_TURN;
    let mut world = World::new(Settings::default());
    for nth in 0..MANY {
        let request = JoinGroupRequest {
            group_id: format!("g{nth}"),
            session_timeout_ms: 10_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol::default()],
            ..JoinGroupRequest::default()
        };
        // An id is handed out, and never used.
        world.ask(&caller(9), Ask::Join(request), Token(nth as u64));
    }
    let now = Now {
        ms: 10_000,
        wall: world.wall(),
    };
    let mut left = Vec::new();
    while world
        .machine
        .next_deadline()
        .is_some_and(|due| due <= now.ms)
    {
        world.machine.on_time(now, &mut Vec::new());
        left.push(world.machine.groups.len());
    }
    let turn = COORDINATOR_TIMERS_PER_TURN;
    assert_eq!(left, [2 * turn, turn, 0]);
}

#[test]
fn bi_8_many_groups_are_listed_in_pages() {
    let mut world = world_of(2 * GROUPS_LISTED_PER_TURN + 1, 1);
    world.restart();
    let (mut sizes, mut names, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let ask = Ask::List(GroupQuery::new(&[], &[]), after.take());
        world.ask(&caller(5), ask, Token(sizes.len() as u64));
        let Some((_, Answer::List(Ok(page)))) = world.answers.pop_back() else {
            panic!("a list is answered at once");
        };
        sizes.push(page.groups.len());
        names.extend(page.groups.into_iter().map(|group| group.group_id));
        after = page.rest;
        if after.is_none() {
            break;
        }
    }
    let full = GROUPS_LISTED_PER_TURN;
    assert_eq!(sizes, [full, full, 1]);
    assert!(names.is_sorted(), "each once");
}

#[test]
fn bi_8_no_more_fetches_wait_for_a_commit_than_one_turn_answers() {
    let mut world = world_of(1, OFFSET_FETCH_ROWS_PER_TURN);
    world.restart();
    let place = OffsetCommitRequestTopic {
        name: "t".to_owned(),
        topic_id: world.topics.id("t").expect("always there"),
        partitions: vec![OffsetCommitRequestPartition::default()],
    };
    let commit = OffsetCommitRequest {
        group_id: "g0".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![place],
        ..OffsetCommitRequest::default()
    };
    world.ask(&caller(9), Ask::Commit(commit), Token(0));
    for nth in 1..=3 {
        let group = OffsetFetchRequestGroup {
            group_id: "g0".to_owned(),
            topics: None,
            member_epoch: -1,
            ..OffsetFetchRequestGroup::default()
        };
        let ask = Ask::FetchOffsets(group, Stability::Stable, None);
        world.ask(&caller(9), ask, Token(nth));
    }
    let told = |world: &mut World| {
        let answers = std::mem::take(&mut world.answers).into_iter();
        let fetched = answers.filter_map(|(token, answer)| match answer {
            Answer::FetchOffsets(page) => Some((token.0, page.group.error_code)),
            _ => None,
        });
        fetched.collect::<Vec<_>>()
    };
    let again = ErrorCode::CoordinatorLoadInProgress.code();
    assert_eq!(told(&mut world), [(2, again), (3, again)]);
    world.commit_write();
    assert_eq!(told(&mut world), [(1, 0)]);
}

#[test]
fn rp_118_all_offsets_of_a_large_group_are_told_in_pages() {
    const ALL: usize = 2 * OFFSET_FETCH_ROWS_PER_TURN + 1;
    let mut world = world_of(1, ALL);
    world.restart();
    let caller = caller(8);
    let (mut sizes, mut places, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let group = OffsetFetchRequestGroup {
            group_id: "g0".to_owned(),
            topics: None,
            member_epoch: -1,
            ..OffsetFetchRequestGroup::default()
        };
        let ask = Ask::FetchOffsets(group, Stability::Any, after.take());
        world.ask(&caller, ask, Token(sizes.len() as u64));
        let Some((_, Answer::FetchOffsets(page))) = world.answers.pop_back() else {
            panic!("a fetch is answered at once");
        };
        let before = places.len();
        for topic in page.group.topics {
            let rows = topic.partitions.iter();
            places.extend(rows.map(|row| (topic.name.clone(), row.partition_index)));
        }
        sizes.push(places.len() - before);
        after = page.rest;
        if after.is_none() {
            break;
        }
    }
    let page = OFFSET_FETCH_ROWS_PER_TURN;
    assert_eq!(sizes, [page, page, 1]);
    assert!(places.is_sorted(), "by topic and partition, each once");
    places.dedup();
    assert_eq!(places.len(), ALL);
}
