//! Random records, sound and not: an image refuses or stays whole, and how records are cut into
//! batches makes no difference.

use super::common::{LOCAL, formatted};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
};
use thalweg_metadata::{Delta, Image, Placement, Record};
use thalweg_protocol::messages::{
    AbortTransactionRecord, BeginTransactionRecord, BrokerRegistrationChangeRecord, ClearElrRecord,
    ConfigRecord, EndTransactionRecord, FeatureLevelRecord, FenceBrokerRecord, NoOpRecord,
    PartitionChangeRecord, PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord,
    RemoveTopicRecord, TopicRecord, UnfenceBrokerRecord, UnregisterBrokerRecord,
};
use thalweg_types::{TopicPartition, Uuid};

fn topic_id() -> impl Strategy<Value = Uuid> {
    (0..5u8).prop_map(|n| Uuid([n; 16]))
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a"),
        Just("b.c"),
        Just("b_c"),
        Just("d_e"),
        Just("x/y")
    ]
    .prop_map(str::to_string)
}

fn ids() -> impl Strategy<Value = Vec<i32>> {
    prop_oneof![
        6 => Just(vec![1]),
        2 => Just(vec![1, 2]),
        1 => proptest::collection::vec(0..3i32, 0..3),
    ]
}

fn optional_ids() -> impl Strategy<Value = Option<Vec<i32>>> {
    prop_oneof![3 => Just(None), 1 => ids().prop_map(Some)]
}

fn partition() -> impl Strategy<Value = Record> {
    (
        -1..4i32,
        topic_id(),
        ids(),
        -1..3i32,
        -1..9i32,
        0..2i8,
        optional_ids(),
    )
        .prop_map(
            |(partition_id, topic_id, replicas, leader, epoch, recovery, eligible)| {
                PartitionRecord {
                    partition_id,
                    topic_id,
                    isr: replicas.clone(),
                    directories: replicas.iter().map(|_| Uuid([8; 16])).collect(),
                    replicas,
                    leader,
                    leader_recovery_state: recovery,
                    leader_epoch: epoch,
                    partition_epoch: epoch,
                    eligible_leader_replicas: eligible,
                    ..PartitionRecord::default()
                }
                .into()
            },
        )
}

fn partition_change() -> impl Strategy<Value = Record> {
    let fields = (
        0..4i32,
        topic_id(),
        optional_ids(),
        optional_ids(),
        -2..3i32,
        -1..2i8,
    );
    fields.prop_map(
        |(partition_id, topic_id, isr, replicas, leader, recovery)| {
            PartitionChangeRecord {
                partition_id,
                topic_id,
                isr,
                replicas,
                leader,
                leader_recovery_state: recovery,
                ..PartitionChangeRecord::default()
            }
            .into()
        },
    )
}

fn broker_record() -> impl Strategy<Value = Record> {
    (0..3i32, any::<i64>(), -1..2i8, any::<bool>(), 0..5u8).prop_map(
        |(id, epoch, fenced, flag, which)| match which {
            0 => RegisterBrokerRecord {
                broker_id: id,
                broker_epoch: epoch,
                fenced: flag,
                rack: flag.then(|| "r".to_string()),
                ..RegisterBrokerRecord::default()
            }
            .into(),
            1 => UnregisterBrokerRecord {
                broker_id: id,
                broker_epoch: epoch,
            }
            .into(),
            2 => FenceBrokerRecord { id, epoch }.into(),
            3 => UnfenceBrokerRecord { id, epoch }.into(),
            _ => BrokerRegistrationChangeRecord {
                broker_id: id,
                broker_epoch: epoch,
                fenced,
                ..BrokerRegistrationChangeRecord::default()
            }
            .into(),
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let config =
        (0..5i8, name(), proptest::option::of("[a-z]{0,3}")).prop_map(|(kind, on, value)| {
            ConfigRecord {
                resource_type: kind,
                resource_name: on,
                name: "retention.ms".into(),
                value,
            }
            .into()
        });
    let topic =
        (name(), topic_id()).prop_map(|(name, topic_id)| TopicRecord { name, topic_id }.into());
    prop_oneof![
        4 => topic,
        6 => partition(),
        4 => partition_change(),
        2 => topic_id().prop_map(|topic_id| RemoveTopicRecord { topic_id }.into()),
        2 => config,
        2 => broker_record(),
        1 => (0..3i16).prop_map(|level| FeatureLevelRecord {
            name: "f".into(),
            feature_level: level,
        }.into()),
        1 => any::<i64>().prop_map(|next| ProducerIdsRecord {
            broker_id: 1,
            broker_epoch: 1,
            next_producer_id: next,
        }.into()),
        1 => Just(NoOpRecord {}.into()),
        1 => prop_oneof![Just(String::new()), name()]
            .prop_map(|topic_name| ClearElrRecord { topic_name }.into()),
        1 => Just(BeginTransactionRecord::default().into()),
        1 => Just(EndTransactionRecord {}.into()),
        1 => Just(AbortTransactionRecord::default().into()),
    ]
}

/// What `delta` must say, by comparing the images themselves.
fn check_delta(before: &Image, after: &Image, delta: &Delta) {
    for topic in before.topics() {
        let gone = after.topic_by_id(topic.id).is_none();
        let removed = delta.topics_removed.contains_key(&topic.id);
        // Removed, and another created with its id: both are said. No controller does that.
        let replaced = removed && delta.topics_created.contains(&topic.id);
        assert_eq!(gone || replaced, removed, "removed {}", topic.name);
    }
    for topic in after.topics() {
        let old = before.topic_by_id(topic.id);
        if old.is_none() {
            assert!(
                delta.topics_created.contains(&topic.id),
                "created {}",
                topic.name
            );
        }
        for (index, partition) in &topic.partitions {
            let at = TopicPartition {
                topic: topic.id,
                partition: *index,
            };
            if before.partition(at) != Some(partition) {
                assert!(delta.partitions_changed.contains(&at), "changed {at}");
            }
        }
    }
    assert!(
        delta
            .partitions_changed
            .iter()
            .all(|at| after.partition(*at).is_some())
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_survive_their_bytes(record in record()) {
        let bytes = record.encode().expect("it has a place");
        prop_assert_eq!(Record::decode(&bytes).expect("own bytes"), record);
    }

    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..30u8) {
        let _ = Record::decode(&bytes);
        let framed: Vec<u8> = [1, kind, 0].into_iter().chain(bytes).collect();
        let _ = Record::decode(&framed);
    }

    #[test]
    fn an_image_refuses_or_stays_whole(records in proptest::collection::vec(record(), 1..120)) {
        let mut image = formatted();
        let mut placement = Placement::new(&image, LOCAL, 3);
        let mut accepted = Vec::new();
        for record in &records {
            let kept = image.clone();
            if let Ok((next, delta)) = image.apply(std::slice::from_ref(record)) {
                next.check();
                check_delta(&image, &next, &delta);
                let _ = placement.follow(&next, &delta);
                accepted.push(record.clone());
                image = next;
            } else {
                prop_assert_eq!(&image, &kept);
            }
            let held = image.topics().flat_map(|t| t.partitions.values())
                .filter(|p| p.replicas.contains(&LOCAL)).count();
            prop_assert_eq!(placement.loads().iter().sum::<usize>(), held);
        }
        let start = formatted();
        let (at_once, delta) = start.apply(&accepted).expect("each applied by itself");
        at_once.check();
        check_delta(&start, &at_once, &delta);
        prop_assert_eq!(&at_once, &image);
    }
}
