//! What a partition knows of the transactions in its log: RP-70, RP-74.

use thalweg_protocol::records::{BatchBuilder, BatchHeader, BatchOptions, Codec, ProducerSequence};
use thalweg_replica::{
    AckPoint, EndedTransaction, EpochCache, FetchAsk, Isolation, Leadership, Listed, Parking,
    Producers, Replica, ReplicaStart, Sought, Token,
};
use thalweg_types::{BrokerId, LeaderEpoch, Offset, ProducerId, TimestampMs};

const NOW: TimestampMs = TimestampMs(1);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Transactional,
    Marker,
}

/// The header of one batch of one record of producer `id` in epoch `epoch`.
fn batch(at: i64, id: i64, epoch: i16, kind: Kind) -> BatchHeader {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: Offset(at),
        producer: Some(ProducerSequence::new(
            id,
            epoch,
            if kind == Kind::Marker { -1 } else { 0 },
        )),
        is_transactional: kind != Kind::Plain,
        is_control: kind == Kind::Marker,
        ..BatchOptions::default()
    });
    builder.push(NOW, Some(b"k"), None, &[]).expect("small");
    let bytes = builder.build(Codec::None).expect("a batch");
    BatchHeader::parse(&bytes).expect("a header")
}

fn replayed(batches: &[(i64, i64, Kind)]) -> Producers {
    let mut producers = Producers::default();
    for (at, id, kind) in batches {
        producers.replay(&batch(*at, *id, 0, *kind), NOW);
        producers.check();
    }
    producers
}

#[test]
fn rp_74_the_first_open_transaction_is_unstable_until_its_marker_is_committed() {
    use Kind::{Marker, Plain, Transactional};
    let mut producers = replayed(&[
        (0, 9, Plain),
        (1, 1, Transactional),
        (2, 2, Transactional),
        (3, 1, Transactional),
    ]);
    assert_eq!(producers.first_unstable(), Some(Offset(1)));
    // In the next epoch, as each end of a transaction has it since KIP-890.
    let ended = producers.replay(&batch(4, 1, 1, Marker), NOW);
    let ended_at_4 = EndedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(1),
        last_offset: Offset(4),
        last_stable_offset: Offset(2),
    };
    assert_eq!(ended, Some(ended_at_4));
    producers.on_committed(Offset(4));
    assert_eq!(producers.first_unstable(), Some(Offset(1)));
    producers.on_committed(Offset(5));
    assert_eq!(producers.first_unstable(), Some(Offset(2)));
    let ended = producers
        .replay(&batch(5, 2, 0, Marker), NOW)
        .expect("ended");
    assert_eq!(ended.last_stable_offset, Offset(6));
    producers.on_committed(Offset(6));
    assert_eq!(producers.first_unstable(), None);
    // A marker of what was deleted, or told twice.
    assert_eq!(producers.replay(&batch(6, 2, 0, Marker), NOW), None);
    producers.check();
}

#[test]
fn rp_70_an_open_transaction_is_not_forgotten_and_st_32_outlives_a_snapshot() {
    let mut producers = replayed(&[(0, 1, Kind::Transactional), (1, 2, Kind::Plain)]);
    let mut limited = producers.clone();
    limited.limit(1);
    limited.check();
    assert_eq!(
        (limited.len(), limited.first_unstable()),
        (1, Some(Offset(0)))
    );
    assert_eq!(producers.expire(TimestampMs(1_000), 10), 1);
    producers.check();
    assert_eq!(producers.len(), 1);
    let bytes = producers.to_snapshot();
    let again = Producers::from_snapshot(&bytes, Offset(2), NOW).expect("valid");
    again.check();
    assert_eq!(again, producers);
    assert_eq!(again.first_unstable(), Some(Offset(0)));
    // One that begins where the snapshot ends can not be.
    assert!(Producers::from_snapshot(&bytes, Offset(0), NOW).is_err());
}

#[test]
fn rp_74_committed_readers_stop_at_the_first_open_transaction() {
    let producers = replayed(&[(4, 1, Kind::Transactional), (6, 1, Kind::Transactional)]);
    let mut replica = Replica::new(ReplicaStart {
        local: BrokerId(1),
        log_start: Offset(0),
        log_end: Offset(10),
        durable_end: Offset(10),
        ack_point: AckPoint::Written,
        high_watermark: Offset(3),
        epochs: EpochCache::default(),
        producers,
    });
    assert_eq!(
        replica.stable_end(),
        Offset(3),
        "bounded by the high watermark"
    );
    let mut effects = Vec::new();
    let leadership = Leadership {
        epoch: LeaderEpoch(0),
        replicas: vec![BrokerId(1)],
        in_sync: vec![BrokerId(1)],
        min_in_sync: 1,
    };
    replica
        .become_leader(&leadership, &mut effects)
        .expect("leads");
    replica.check();
    let ask = |isolation| FetchAsk {
        offset: Offset(4),
        current_leader_epoch: LeaderEpoch(0),
        last_fetched_epoch: LeaderEpoch::NONE,
        isolation,
    };
    let committed = replica
        .on_fetch(&ask(Isolation::ReadCommitted))
        .expect("a bound");
    assert_eq!(
        (
            committed.high_watermark,
            committed.last_stable,
            committed.up_to
        ),
        (Offset(10), Offset(4), Offset(4))
    );
    let all = replica
        .on_fetch(&ask(Isolation::ReadUncommitted))
        .expect("a bound");
    assert_eq!(all.up_to, Offset(10));
    let latest = |isolation| replica.on_list_offsets(LeaderEpoch(0), isolation, Sought::Latest);
    for (isolation, offset) in [
        (Isolation::ReadCommitted, Offset(4)),
        (Isolation::ReadUncommitted, Offset(10)),
    ] {
        let epoch = LeaderEpoch(0);
        assert_eq!(latest(isolation), Ok(Listed::Known { offset, epoch }));
    }
    // It waits for the end of the transaction, not for the bytes that are there.
    let parked = replica.park_fetch(Token(1), Offset(4), Offset(4), Isolation::ReadCommitted, 1);
    assert_eq!(parked, Parking::Parked);
    replica.check();
}
