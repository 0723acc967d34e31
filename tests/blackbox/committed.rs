//! Readers of committed records, over a log that holds transactions (of a Kafka that served the
//! directory before, or of a leader elsewhere).

use std::fs::OpenOptions;
use std::io::Write;

use thalweg_protocol::messages::fetch_response::PartitionData;
use thalweg_protocol::messages::{ListOffsetsRequest, list_offsets_request};
use thalweg_protocol::records::control::{ControlRecordType, end_marker};
use thalweg_protocol::records::{BatchOptions, Codec, ProducerSequence, batches};
use thalweg_protocol::{ErrorCode, Records};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::batch::{bytes_of, keyed, now_ms};
use crate::broker::Broker;
use crate::wire::{Connection, Topic, error, fetch_request, single};

const READ_COMMITTED: i8 = 1;

/// One record of a transaction, or the marker that ends one.
fn batch(at: i64, id: i64, sequence: i32, marker: Option<ControlRecordType>) -> Vec<u8> {
    let options = BatchOptions {
        base_offset: Offset(at),
        leader_epoch: LeaderEpoch(0),
        producer: Some(ProducerSequence::new(id, 0, sequence)),
        is_transactional: true,
        ..BatchOptions::default()
    };
    match marker {
        Some(kind) => end_marker(kind, 1, TimestampMs(now_ms()), options)
            .expect("a marker")
            .to_vec(),
        None => keyed(Codec::None, now_ms(), "key", b"value", options),
    }
}

fn fetch(client: &mut Connection, topic: &Topic, from: i64, isolation: i8) -> PartitionData {
    let mut request = fetch_request(topic, 0, from);
    request.isolation_level = isolation;
    single(client.call(&request, 13))
}

/// Base offsets of the batches, the first offsets of the aborted transactions, the last stable offset.
fn seen(client: &mut Connection, topic: &Topic, from: i64) -> (Vec<i64>, Vec<i64>, i64) {
    let found = fetch(client, topic, from, READ_COMMITTED);
    assert_eq!(error(found.error_code), ErrorCode::None);
    let all = batches(bytes_of(&found)).map(|batch| batch.expect("whole").header.base_offset.0);
    let aborted = found.aborted_transactions.clone().expect("a list");
    let aborted = aborted.iter().map(|a| a.first_offset);
    (all.collect(), aborted.collect(), found.last_stable_offset)
}

fn latest(client: &mut Connection, topic: &Topic, isolation: i8) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation,
        topics: vec![list_offsets_request::ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: vec![list_offsets_request::ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: -1,
                timestamp: -1,
            }],
        }],
        ..Default::default()
    };
    client.call(&request, 7).topics[0].partitions[0].offset
}

#[test]
fn rp_74_rp_75_rp_81_committed_readers_stop_at_open_transactions_and_learn_of_aborted_ones() {
    let mut broker = Broker::start();
    let topic = broker.connect().create_topic("transactions", 1, &[]);
    broker.kill();
    // 0 to 2: aborted. 3 to 4: committed, with the first of an open one behind it at 5, and 6.
    let log = broker
        .partition(&topic.name, 0)
        .join("00000000000000000000.log");
    let mut file = OpenOptions::new().append(true).open(log).expect("the log");
    for bytes in [
        batch(0, 1, 0, None),
        batch(1, 1, 1, None),
        batch(2, 1, 0, Some(ControlRecordType::Abort)),
        batch(3, 2, 0, None),
        batch(4, 2, 0, Some(ControlRecordType::Commit)),
        batch(5, 3, 0, None),
        batch(6, 2, 1, None),
    ] {
        file.write_all(&bytes).expect("written");
    }
    drop(file);
    // After a crash, a clean stop and a crash again: from the log, from the index, from both.
    for restart in [Broker::stop, Broker::kill, Broker::stop] {
        broker.start_again();
        let mut client = broker.connect();
        assert_eq!(
            seen(&mut client, &topic, 0),
            (vec![0, 1, 2, 3, 4], vec![0], 5)
        );
        // From the middle of the aborted one, and behind it.
        assert_eq!(seen(&mut client, &topic, 1), (vec![1, 2, 3, 4], vec![0], 5));
        assert_eq!(seen(&mut client, &topic, 3), (vec![3, 4], vec![], 5));
        let all = fetch(&mut client, &topic, 5, 0);
        assert_eq!(batches(bytes_of(&all)).count(), 2);
        assert_eq!((all.high_watermark, all.last_stable_offset), (7, 5));
        assert_eq!(all.aborted_transactions, None);
        // Nothing yet, and no error.
        let waiting = fetch(&mut client, &topic, 5, READ_COMMITTED);
        assert_eq!(error(waiting.error_code), ErrorCode::None);
        assert!(matches!(&waiting.records, Some(Records::Held(bytes)) if bytes.is_empty()));
        assert_eq!(latest(&mut client, &topic, READ_COMMITTED), 5);
        assert_eq!(latest(&mut client, &topic, 0), 7);
        // The producer of the open one; a retry of what another wrote outside of any is none of that.
        for (id, sequence, code, at) in [
            (3, 1, ErrorCode::InvalidTxnState, -1),
            (2, 1, ErrorCode::None, 6),
        ] {
            let sent = crate::idempotence::batch(id, 0, sequence, &["outside"]);
            let answer = client.produce(&topic, 0, 1, sent);
            assert_eq!(error(answer.error_code), code);
            assert_eq!(answer.base_offset, at);
        }
        restart(&mut broker);
    }
    assert!(
        broker
            .partition(&topic.name, 0)
            .join("00000000000000000000.txnindex")
            .exists()
    );
}
