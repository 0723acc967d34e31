//! Who leads a partition, and on which shard and in which log directory it is.

use super::common::{LOCAL, config, create, draws, formatted, topic};
use thalweg_metadata::{
    Controller, Directories, DirectoryRoom, Image, Placement, Record, ReplicaHome,
};
use thalweg_protocol::messages::{CreateTopicsRequest, DeleteTopicsRequest, PartitionChangeRecord};
use thalweg_types::{BrokerId, LeaderEpoch, PartitionIndex, ShardId, TopicPartition, Uuid};

#[test]
fn an_unclean_start_raises_every_led_epoch_in_one_batch() {
    let (image, _) = create(&formatted(), vec![topic("a", 3), topic("b", 2)]);
    let records = image.raise_leader_epochs(LOCAL, |_| true);
    assert_eq!(records.len(), 5);
    let (raised, delta) = image.apply(&records).expect("they apply");
    assert_eq!(delta.partitions_changed.len(), 5);
    for partition in raised.topics().flat_map(|t| t.partitions.values()) {
        assert_eq!(
            (partition.leader, partition.leader_epoch),
            (Some(LOCAL), LeaderEpoch(1))
        );
        assert_eq!(partition.partition_epoch, 1);
    }
    assert!(image.raise_leader_epochs(BrokerId(2), |_| true).is_empty());
}

/// What Kafka leaves behind when its only broker stops: no leader, and with KIP-966 nobody in sync.
#[test]
fn partitions_without_leader_are_led_by_who_has_their_data() {
    let (image, _) = create(&formatted(), vec![topic("a", 4)]);
    let led = image.elect_for_leaderless(LOCAL, |_| true);
    assert!(led.is_empty(), "all are led");
    let id = image.topic("a").expect("it exists").id;
    let left = |index, isr: Option<Vec<i32>>, eligible: Option<Vec<i32>>| {
        Record::from(PartitionChangeRecord {
            partition_id: index,
            topic_id: id,
            leader: -1,
            isr,
            last_known_elr: eligible.clone(),
            eligible_leader_replicas: eligible,
            ..PartitionChangeRecord::default()
        })
    };
    let left = [
        left(0, None, None),
        left(1, Some(vec![]), Some(vec![LOCAL.0])),
        left(2, Some(vec![]), Some(vec![])),
    ];
    let (image, _) = image.apply(&left).expect("they apply");
    assert!(image.elect_for_leaderless(BrokerId(2), |_| true).is_empty());
    assert!(image.elect_for_leaderless(LOCAL, |_| false).is_empty());
    let records = image.elect_for_leaderless(LOCAL, |_| true);
    assert_eq!(records.len(), 2);
    let (image, _) = image.apply(&records).expect("they apply");
    let partitions = &image.topic("a").expect("it exists").partitions;
    let leaders: Vec<_> = partitions.values().map(|p| p.leader).collect();
    assert_eq!(leaders, [Some(LOCAL), Some(LOCAL), None, Some(LOCAL)]);
    let elected = &partitions[&PartitionIndex(1)];
    assert_eq!(elected.in_sync, [LOCAL]);
    assert!(elected.eligible.is_empty() && elected.last_known_eligible.is_empty());
    assert_eq!(elected.leader_epoch, LeaderEpoch(2), "one for each change");
}

#[test]
fn placement_is_balanced_and_the_same_again() {
    let (image, _) = create(
        &formatted(),
        vec![topic("a", 7), topic("b", 5), topic("c", 1)],
    );
    let placement = Placement::new(&image, LOCAL, 4);
    assert_eq!(placement, Placement::new(&image, LOCAL, 4));
    assert_eq!(placement.loads(), [4, 3, 3, 3]);
    assert_eq!(Placement::new(&image, BrokerId(2), 4).loads(), [0; 4]);
    let id = image.topic("a").expect("it exists").id;
    let at = |index| TopicPartition {
        topic: id,
        partition: PartitionIndex(index),
    };
    assert_eq!(placement.shard_of(at(0)), Some(ShardId(0)));
    assert_eq!(placement.shard_of(at(7)), None);
}

#[test]
fn placement_follows_changes_and_moves_nothing() {
    let (image, _) = create(&formatted(), vec![topic("a", 4)]);
    let mut placement = Placement::new(&image, LOCAL, 2);
    let before = placement.clone();
    let (config, mut draw) = (config(&[]), draws());
    let request = CreateTopicsRequest {
        topics: vec![topic("b", 3)],
        ..Default::default()
    };
    let decision = Controller::new(&image, &config, &mut draw).create_topics(&request);
    let (image, delta) = image.apply(&decision.records).expect("they apply");
    let placed = placement.follow(&image, &delta);
    assert_eq!((placed.len(), placement.loads()), (3, &[4, 3][..]));
    // A change of an old partition places nothing anew.
    let (image, delta) = image
        .apply(&image.raise_leader_epochs(LOCAL, |_| true))
        .expect("they apply");
    assert_eq!(placement.follow(&image, &delta), vec![]);
    let gone: Vec<Record> = {
        let named = DeleteTopicsRequest {
            topic_names: vec!["b".into()],
            ..Default::default()
        };
        Controller::new(&image, &config, &mut draw)
            .delete_topics(&named, 1)
            .records
    };
    let (image, delta) = image.apply(&gone).expect("they apply");
    assert_eq!(placement.follow(&image, &delta), vec![]);
    assert_eq!(placement, before);
}

/// KIP-858: a new replica is given one of the directories that work, and the record says which.
#[test]
fn new_partitions_are_shared_out_over_the_log_directories() {
    let image = formatted();
    let (config, mut draw) = (config(&[]), draws());
    let room = |byte| DirectoryRoom {
        id: Uuid([byte; 16]),
        free_bytes: 1_000,
        partitions: 0,
    };
    let directories = Directories::new(vec![room(7), room(8)]);
    let request = CreateTopicsRequest {
        topics: vec![topic("a", 4)],
        ..Default::default()
    };
    let decision = Controller::new(&image, &config, &mut draw)
        .with_directories(LOCAL, directories)
        .create_topics(&request);
    let (image, _) = image.apply(&decision.records).expect("they apply");
    let partitions = &image.topic("a").expect("it exists").partitions;
    let given: Vec<_> = partitions.values().map(|p| p.directories[0].0[0]).collect();
    assert_eq!(given, [7, 8, 7, 8]);
}

/// ST-25: what lies in a directory that does not work has no leader, and its replica is offline, until the
/// directory works again.
#[test]
fn st_25_partitions_of_a_lost_directory_have_no_leader_until_it_is_back() {
    let (image, _) = create(&formatted(), vec![topic("a", 2)]);
    let (good, bad) = (Uuid([9; 16]), Uuid([8; 16]));
    let is_lost = |at: TopicPartition| at.partition == PartitionIndex(1);
    let home = |at| Some(ReplicaHome::In(if is_lost(at) { bad } else { good }));
    let told = image.settle_directories(LOCAL, home);
    assert_eq!(told.len(), 1, "one was elsewhere than the metadata said");
    let (image, _) = image.apply(&told).expect("they apply");
    let both = image.change_log_dirs(LOCAL, vec![good, bad]);
    let (image, _) = image.apply(&Vec::from_iter(both)).expect("it applies");
    assert_eq!(image.settle_directories(LOCAL, home), vec![]);
    let partition = |image: &Image, index| {
        let topic = image.topic("a").expect("it exists");
        topic.partitions[&PartitionIndex(index)].clone()
    };
    assert_eq!(image.offline_replicas(&partition(&image, 1)), []);

    let home = |at| (is_lost(at)).then_some(ReplicaHome::Offline);
    let mut lost = image.settle_directories(LOCAL, home);
    lost.extend(image.change_log_dirs(LOCAL, vec![good]));
    let (image, _) = image.apply(&lost).expect("they apply");
    let (kept, gone) = (partition(&image, 0), partition(&image, 1));
    assert_eq!((kept.leader, gone.leader), (Some(LOCAL), None));
    assert_eq!(gone.in_sync, [LOCAL], "what it has is all there is");
    assert_eq!(image.offline_replicas(&kept), []);
    assert_eq!(image.offline_replicas(&gone), [LOCAL]);
    assert_eq!(image.settle_directories(LOCAL, home), vec![], "told once");
    let still = image.elect_for_leaderless(LOCAL, |at| !is_lost(at));
    assert_eq!(still, vec![]);
    let back = image.elect_for_leaderless(LOCAL, |_| true);
    let (image, _) = image.apply(&back).expect("they apply");
    let back = partition(&image, 1);
    assert_eq!(
        (back.leader, back.leader_epoch),
        (Some(LOCAL), LeaderEpoch(2))
    );
}
