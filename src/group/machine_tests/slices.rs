//! Looks at all groups take several turns when there is much to look at.

use std::rc::Rc;

use thalweg_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use thalweg_types::limits::{
    COORDINATOR_SWEEP_ENDS, COORDINATOR_SWEEP_OFFSETS, COORDINATOR_SWEEP_WRITES_MAX,
    OFFSET_FETCH_ROWS_PER_TURN,
};
use thalweg_types::{TimestampMs, TopicId};

use super::world::{EPOCH_MS, Logged, World};
use crate::{Answer, Ask, Caller, Committed, Progress, Record, Settings, Stability, Token};

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

#[test]
fn rp_118_all_offsets_of_a_large_group_are_told_in_pages() {
    const ALL: usize = 2 * OFFSET_FETCH_ROWS_PER_TURN + 1;
    let mut world = world_of(1, ALL);
    world.restart();
    let caller = Caller {
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        version: 8,
    };
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
