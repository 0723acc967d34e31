//! Looks at all groups take several turns when there is much to look at.

use std::rc::Rc;

use thalweg_types::limits::COORDINATOR_SWEEP_OFFSETS;
use thalweg_types::{TimestampMs, TopicId};

use super::world::{EPOCH_MS, Logged, World};
use crate::{Committed, Progress, Record, Settings};

const GROUPS: usize = 4;
/// Two groups are one slice.
const OFFSETS: usize = COORDINATOR_SWEEP_OFFSETS / 2 + 1;

fn world_of_many() -> World {
    world_of(GROUPS, OFFSETS)
}

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
                topic: Rc::from("t"),
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

#[test]
fn rp_115_loading_and_expiry_go_in_slices() {
    let mut world = world_of_many();
    let steps = world.restart();
    assert_eq!(steps, [Progress::More, Progress::Done]);
    let mut slices = Vec::new();
    for ms in 4_999..5_010 {
        world.pass_to(ms);
        let ended: usize = std::mem::take(&mut world.written)
            .iter()
            .map(Vec::len)
            .sum();
        if ended > 0 {
            slices.push((ms, ended));
        }
    }
    assert_eq!(slices, [(5_000, 2 * OFFSETS), (5_001, 2 * OFFSETS)]);
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
    let mut world = world_of_many();
    world.restart();
    world.remove_topic("t");
    world.tell_removed("t");
    let ended = |world: &World| world.written.iter().map(Vec::len).sum::<usize>();
    assert_eq!(ended(&world), 2 * OFFSETS);
    // Another one waits for the first.
    world.tell_removed("u");
    world.pass_to(world.now + 1);
    assert_eq!(ended(&world), 4 * OFFSETS);
    world.pass_to(world.now + 10);
    assert_eq!(ended(&world), 4 * OFFSETS);
}

#[test]
fn rp_115_one_group_of_many_offsets_ends_in_slices() {
    const MANY: usize = 2 * COORDINATOR_SWEEP_OFFSETS + 1;
    let ended = |world: &World| world.written.iter().map(Vec::len).sum::<usize>();
    // Their topic went while the broker was down.
    let mut world = world_of(1, MANY);
    world.remove_topic("t");
    let steps = world.restart();
    assert_eq!(steps, [Progress::More, Progress::More, Progress::Done]);
    assert_eq!(ended(&world), MANY);
    // It goes now.
    let mut world = world_of(1, MANY);
    world.restart();
    world.remove_topic("t");
    world.tell_removed("t");
    assert_eq!(ended(&world), COORDINATOR_SWEEP_OFFSETS);
    world.pass_to(world.now + 1);
    assert_eq!(ended(&world), 2 * COORDINATOR_SWEEP_OFFSETS);
    world.pass_to(world.now + 1);
    assert_eq!(ended(&world), MANY);
    // Their time is over.
    let mut world = world_of(1, MANY);
    world.restart();
    world.pass_to(5_000);
    assert_eq!(ended(&world), COORDINATOR_SWEEP_OFFSETS);
    world.pass_to(5_010);
    assert_eq!(ended(&world), MANY);
    while !world.writes.is_empty() {
        world.commit_write();
    }
    assert_eq!(world.machine.tally().offsets, 0);
}
