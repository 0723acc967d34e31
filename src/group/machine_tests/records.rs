//! Records and the place of groups, against Kafka's own numbers.

use thalweg_types::{TimestampMs, Uuid};

use crate::offsets::Committed;
use crate::{Record, partition_of};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hex")
        })
        .collect()
}

fn offset(value: Option<Committed>) -> Record {
    Record::Offset {
        group: "g".into(),
        topic: "t".into(),
        partition: 2,
        value,
    }
}

#[test]
fn groups_lie_where_java_puts_them() {
    // Utils.abs(group.hashCode()) % 50, computed with a JVM.
    for (group, partition) in [
        ("", 0),
        ("grp", 29),
        ("jgrp", 25),
        ("pgrp", 21),
        ("polygenelubricants", 0),
        ("gr\u{fc}n \u{1f600}", 48),
    ] {
        assert_eq!(partition_of(group, 50), partition, "{group:?}");
    }
}

#[test]
fn an_offset_is_what_kafka_writes() {
    let committed = Committed {
        offset: 1000,
        leader_epoch: 3,
        metadata: "m".into(),
        at: TimestampMs(0x0102),
        expires: TimestampMs::NONE,
        topic_id: Uuid([0x11; 16]),
    };
    let record = offset(Some(committed.clone()));
    assert_eq!(
        record.key().expect("fits"),
        hex("0001 0001 67 0001 74 00000002")
    );
    let value = record.value().expect("fits").expect("no tombstone");
    assert_eq!(
        value,
        hex("0004 00000000000003e8 00000003 02 6d 0000000000000102 \
             01 00 10 11111111111111111111111111111111")
    );
    // With an end of its own it has the older form, which has no epoch.
    let expiring = offset(Some(Committed {
        expires: TimestampMs(0x0203),
        ..committed
    }));
    let value = expiring.value().expect("fits").expect("no tombstone");
    assert_eq!(
        value,
        hex("0001 00000000000003e8 0001 6d 0000000000000102 0000000000000203")
    );
}

#[test]
fn what_kafka_writes_is_read() {
    // Version 4 with a topic id, and a tagged field of the future.
    let key = hex("0001 0001 67 0001 74 00000002");
    let value = hex("0004 000000000000000a ffffffff 02 6d 0000000000000007 \
         02 00 10 00000000000000000000000000000001 05 01 ff");
    let read = Record::decode(Some(&key), Some(&value)).expect("readable");
    let wanted = offset(Some(Committed {
        offset: 10,
        leader_epoch: -1,
        metadata: "m".into(),
        at: TimestampMs(7),
        expires: TimestampMs::NONE,
        topic_id: {
            let mut id = [0; 16];
            id[15] = 1;
            Uuid(id)
        },
    }));
    assert_eq!(read, Some(wanted));
    // The legacy type has the same key.
    let legacy = hex("0000 0001 67 0001 74 00000002");
    let read = Record::decode(Some(&legacy), None).expect("readable");
    assert_eq!(read, Some(offset(None)));
}

#[test]
fn other_types_are_passed_over_and_damage_is_told() {
    // ShareGroupMetadataKey.
    let newer = hex("000b 0001 67");
    assert_eq!(Record::decode(Some(&newer), None).expect("skipped"), None);
    let group = hex("0002 0001 67");
    for (key, value) in [
        (None, None),
        (Some(&b"\0"[..]), None),
        (Some(b"\0\x01\0\x09g"), None),
        (Some(&group[..]), Some(&b"\0"[..])),
        (Some(&group), Some(b"\0\x63")),
        (Some(&group), Some(b"\0\x03\x7f\xff")),
    ] {
        assert!(Record::decode(key, value).is_err(), "{key:?} {value:?}");
    }
}
