//! Records against bytes that Kafka 4.1 writes (MetadataRecordSerde of the kafka-metadata jar).

use thalweg_metadata::{Record, RecordError};
use thalweg_protocol::messages::register_broker_record::{BrokerEndpoint, BrokerFeature};
use thalweg_protocol::messages::{
    AbortTransactionRecord, BeginTransactionRecord, BrokerRegistrationChangeRecord, ConfigRecord,
    EndTransactionRecord, FeatureLevelRecord, NoOpRecord, PartitionChangeRecord, PartitionRecord,
    ProducerIdsRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};
use thalweg_types::Uuid;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"))
        .collect()
}

fn uuid(hex: &str) -> Uuid {
    Uuid(bytes(hex).try_into().expect("16 bytes"))
}

fn topic_id() -> Uuid {
    uuid("0102030405064708890a0b0c0d0e0f10")
}

fn directory() -> Uuid {
    uuid("1112131415164718991a1b1c1d1e1f20")
}

fn partition_vectors() -> Vec<(Record, &'static str)> {
    let plain = PartitionRecord {
        partition_id: 3,
        topic_id: topic_id(),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![directory()],
        ..PartitionRecord::default()
    };
    let full = PartitionRecord {
        partition_id: 0,
        topic_id: topic_id(),
        replicas: vec![1, 2],
        isr: vec![2],
        leader: 2,
        leader_recovery_state: 1,
        leader_epoch: 5,
        partition_epoch: 7,
        directories: vec![directory(), directory()],
        eligible_leader_replicas: Some(vec![1]),
        last_known_elr: Some(vec![1, 2]),
        ..PartitionRecord::default()
    };
    let change = |leader| PartitionChangeRecord {
        partition_id: 3,
        topic_id: topic_id(),
        leader,
        ..PartitionChangeRecord::default()
    };
    let in_sync = PartitionChangeRecord {
        isr: Some(vec![1, 2]),
        directories: Some(vec![directory()]),
        ..change(-2)
    };
    vec![
        (
            plain.into(),
            "010302000000030102030405064708890a0b0c0d0e0f10020000000102000000010101000000010000000000\
             000000021112131415164718991a1b1c1d1e1f2000",
        ),
        (
            full.into(),
            "010302000000000102030405064708890a0b0c0d0e0f100300000001000000020200000002010100000002\
             0000000500000007031112131415164718991a1b1c1d1e1f201112131415164718991a1b1c1d1e1f200300\
             0101010502000000010209030000000100000002",
        ),
        (
            change(1).into(),
            "010502000000030102030405064708890a0b0c0d0e0f1001010400000001",
        ),
        (
            in_sync.into(),
            "010502000000030102030405064708890a0b0c0d0e0f1002000903000000010000000208110211121314151\
             64718991a1b1c1d1e1f20",
        ),
    ]
}

fn register() -> RegisterBrokerRecord {
    RegisterBrokerRecord {
        broker_id: 1,
        incarnation_id: topic_id(),
        broker_epoch: 2,
        end_points: vec![BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            security_protocol: 0,
        }],
        features: vec![BrokerFeature {
            name: "metadata.version".into(),
            min_supported_version: 27,
            max_supported_version: 27,
        }],
        rack: None,
        fenced: false,
        log_dirs: vec![directory()],
        ..RegisterBrokerRecord::default()
    }
}

fn vectors() -> Vec<(Record, &'static str)> {
    let config = |value: Option<&str>| ConfigRecord {
        resource_type: 2,
        resource_name: "orders".into(),
        name: "retention.ms".into(),
        value: value.map(str::to_string),
    };
    let change = BrokerRegistrationChangeRecord {
        broker_id: 1,
        broker_epoch: 2,
        fenced: -1,
        ..BrokerRegistrationChangeRecord::default()
    };
    let level = FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level: 27,
    };
    let topic = TopicRecord {
        name: "orders".into(),
        topic_id: topic_id(),
    };
    let ids = ProducerIdsRecord {
        broker_id: 1,
        broker_epoch: 2,
        next_producer_id: 1_000,
    };
    let mut all = partition_vectors();
    all.extend([
        (level.into(), "010c00116d657461646174612e76657273696f6e001b00"),
        (topic.into(), "010200076f72646572730102030405064708890a0b0c0d0e0f1000"),
        (
            config(Some("1000")).into(),
            "01040002076f72646572730d726574656e74696f6e2e6d73053130303000",
        ),
        (config(None).into(), "01040002076f72646572730d726574656e74696f6e2e6d730000"),
        (
            RemoveTopicRecord { topic_id: topic_id() }.into(),
            "0109000102030405064708890a0b0c0d0e0f1000",
        ),
        (
            register().into(),
            "01000300000001000102030405064708890a0b0c0d0e0f100000000000000002020a504c41494e544558540a\
             6c6f63616c686f7374238400000002116d657461646174612e76657273696f6e001b001b00000000010011021\
             112131415164718991a1b1c1d1e1f20",
        ),
        (change.into(), "011102000000010000000000000002010001ff"),
        (ids.into(), "010f0000000001000000000000000200000000000003e800"),
        (NoOpRecord {}.into(), "01140000"),
        (BeginTransactionRecord { name: Some("x".into()) }.into(), "0117000100020278"),
        (EndTransactionRecord {}.into(), "01180000"),
        (AbortTransactionRecord { reason: Some("y".into()) }.into(), "0119000100020279"),
    ]);
    all
}

#[test]
fn bytes_are_those_of_kafka_both_ways() {
    for (record, hex) in vectors() {
        let kafka = bytes(&hex.replace(char::is_whitespace, ""));
        assert_eq!(
            record.encode().expect("it has a place").as_ref(),
            kafka,
            "{}",
            record.name()
        );
        assert_eq!(Record::decode(&kafka).expect("readable"), record);
    }
}

#[test]
fn every_cut_and_every_changed_byte_is_refused_or_read_without_a_panic() {
    for (record, _) in vectors() {
        let whole = record.encode().expect("it has a place");
        for end in 0..whole.len() {
            assert!(
                Record::decode(&whole[..end]).is_err(),
                "{} cut at {end}",
                record.name()
            );
        }
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.to_vec();
                damaged[at] ^= flip;
                let _ = Record::decode(&damaged);
            }
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert!(matches!(
            Record::decode(&longer),
            Err(RecordError::Malformed(_))
        ));
    }
}

#[test]
fn what_is_not_known_is_named() {
    assert!(matches!(
        Record::decode(&[2, 20, 0, 0]),
        Err(RecordError::FrameVersion(2))
    ));
    let of_acls = Record::decode(&[1, 18, 0, 0]).expect_err("no access control");
    assert!(matches!(of_acls, RecordError::UnknownType(18)));
    let said = of_acls.to_string();
    assert!(
        said.contains("type 18") && said.contains("access control"),
        "{said}"
    );
    let newer = Record::decode(&[1, 20, 9, 0]);
    assert!(matches!(
        newer,
        Err(RecordError::UnknownVersion {
            record_type: 20,
            version: 9
        })
    ));
}
