//! Random events against a plain model: a list of batches and a list of sleepers.

use std::collections::{HashMap, HashSet};

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use thalweg_protocol::records::{BatchSummary, Codec, TimestampType};
use thalweg_replica::{
    Accepted, AckPoint, Acks, Effect, EpochCache, FetchAsk, Isolation, Leadership, Parking,
    Producers, Refused, Replica, ReplicaStart, StopReason, Token,
};
use thalweg_types::{BrokerId, LeaderEpoch, Offset, TimestampMs};

#[derive(Clone, Debug)]
enum Event {
    Produce {
        records: i32,
        bytes: usize,
        acks: i16,
    },
    /// So many of the batches in flight are written.
    Written(usize),
    /// So many of the batches that are written are on the disk.
    Durable(usize),
    /// The topic's flush.messages is 1 from now on, or is not.
    Point(bool),
    /// All in flight but so many are lost.
    Failed(usize),
    Park {
        back: i64,
        missing: u64,
    },
    Unpark(usize),
    Lead {
        step: i32,
        in_sync: usize,
        min: u32,
    },
    LogStart(i64),
    Fetch {
        offset: i64,
    },
    Stop,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..6i32, 61..300usize, -1..2i16)
            .prop_map(|(records, bytes, acks)| Event::Produce { records, bytes, acks }),
        6 => (1..4usize).prop_map(Event::Written),
        4 => (1..4usize).prop_map(Event::Durable),
        1 => proptest::bool::ANY.prop_map(Event::Point),
        1 => (0..3usize).prop_map(Event::Failed),
        4 => (0..3i64, 0..500u64).prop_map(|(back, missing)| Event::Park { back, missing }),
        1 => (0..30usize).prop_map(Event::Unpark),
        1 => (0..3i32, 1..4usize, 1..4u32)
            .prop_map(|(step, in_sync, min)| Event::Lead { step, in_sync, min }),
        1 => (0..40i64).prop_map(Event::LogStart),
        3 => (-1..60i64).prop_map(|offset| Event::Fetch { offset }),
        1 => Just(Event::Stop),
    ]
}

struct Batch {
    end: i64,
    bytes: u64,
    token: Token,
    acks: i16,
}

struct Sleeper {
    from: i64,
    seen: i64,
    missing: u64,
}

#[derive(Default)]
struct Model {
    batches: Vec<Batch>,
    written: usize,
    durable: usize,
    /// Only what is durable counts.
    waits: bool,
    /// So many of the first batches have counted once.
    acked: usize,
    hw: i64,
    start: i64,
    leading: bool,
    epoch: i32,
    in_sync: usize,
    min: u32,
    unanswered: HashSet<Token>,
    sleepers: HashMap<Token, Sleeper>,
    next_token: u64,
}

const REPLICAS: u32 = 3;

impl Model {
    fn end_of(&self, count: usize) -> i64 {
        count.checked_sub(1).map_or(0, |i| self.batches[i].end)
    }

    fn written_end(&self) -> i64 {
        self.end_of(self.written)
    }

    fn assigned_end(&self) -> i64 {
        self.end_of(self.batches.len())
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    fn enough(&self) -> bool {
        self.in_sync >= self.min.min(REPLICAS) as usize
    }

    fn settle(&mut self) {
        let counts = match self.waits {
            true => self.durable,
            false => self.written,
        };
        self.acked = self.acked.max(counts);
        if self.leading && self.enough() && self.in_sync == 1 {
            self.hw = self.hw.max(self.end_of(self.acked));
        }
    }

    /// Bytes of whole batches in `[max(from, seen), hw)`.
    fn bytes_for(&self, sleeper: &Sleeper) -> u64 {
        let low = sleeper.from.max(sleeper.seen);
        self.batches
            .iter()
            .filter(|b| b.end > low && b.end <= self.hw)
            .map(|b| b.bytes)
            .sum()
    }
}

struct Run {
    replica: Replica,
    model: Model,
}

impl Run {
    fn new() -> Run {
        let replica = Replica::new(ReplicaStart {
            local: BrokerId(1),
            log_start: Offset(0),
            log_end: Offset(0),
            durable_end: Offset(0),
            ack_point: AckPoint::Written,
            high_watermark: Offset(0),
            epochs: EpochCache::default(),
            producers: Producers::default(),
        });
        Run {
            replica,
            model: Model::default(),
        }
    }

    fn step(&mut self, event: &Event) {
        let mut out = Vec::new();
        match event {
            Event::Produce {
                records,
                bytes,
                acks,
            } => self.produce(*records, *bytes, *acks),
            Event::Written(count) => {
                let m = &mut self.model;
                m.written = (m.written + count).min(m.batches.len());
                self.replica
                    .on_written(Offset(self.model.written_end()), &mut out);
                self.model.settle();
            }
            Event::Durable(count) => {
                let m = &mut self.model;
                m.durable = (m.durable + count).min(m.written);
                let end = m.end_of(m.durable);
                self.replica.on_durable(Offset(end), &mut out);
                self.model.settle();
            }
            Event::Point(waits) => {
                self.model.waits = *waits;
                let point = match waits {
                    true => AckPoint::Durable,
                    false => AckPoint::Written,
                };
                self.replica.on_ack_point(point, &mut out);
                self.model.settle();
            }
            Event::Failed(kept) => {
                let m = &mut self.model;
                let keep = (m.written + kept).min(m.batches.len());
                m.batches.truncate(keep);
                self.replica
                    .on_write_failed(Offset(self.model.assigned_end()), &mut out);
            }
            Event::Park { back, missing } => self.park(*back, *missing),
            Event::Unpark(pick) => {
                let token = Token(*pick as u64);
                self.model.sleepers.remove(&token);
                self.replica.unpark_fetch(token);
            }
            Event::Lead { step, in_sync, min } => self.lead(*step, *in_sync, *min, &mut out),
            Event::LogStart(to) => {
                let to = (*to).min(self.model.hw);
                let moves = to > self.model.start;
                self.replica.on_log_start(Offset(to), &mut out);
                self.model.start = self.model.start.max(to);
                if moves {
                    self.everyone_is_woken(&mut out);
                }
            }
            Event::Fetch { offset } => self.fetch(*offset),
            Event::Stop => {
                self.replica.stop(StopReason::NotLeader, None, &mut out);
                self.model.leading = false;
                self.everyone_is_woken(&mut out);
            }
        }
        self.digest(&out);
        self.compare();
    }

    fn produce(&mut self, records: i32, bytes: usize, acks: i16) {
        let token = self.model.token();
        let batch = BatchSummary {
            bytes,
            record_count: records,
            last_offset_delta: records - 1,
            max_timestamp: TimestampMs(0),
            offset_delta_of_max_timestamp: 0,
            timestamp_type: TimestampType::CreateTime,
            codec: Codec::None,
            uncompressed_bytes: 0,
            producer: None,
            is_transactional: false,
            is_control: false,
        };
        let acks_of_wire = Acks::from_wire(acks).expect("legal");
        let mut out = Vec::new();
        let answer = self
            .replica
            .on_produce(TimestampMs(0), &batch, acks_of_wire, token, &mut out);
        assert_eq!(out, [], "a new batch waits for its write");
        let m = &mut self.model;
        if !m.leading {
            assert_eq!(answer, Err(Refused::NotLeader));
        } else if acks == -1 && !m.enough() {
            assert!(matches!(answer, Err(Refused::NotEnoughReplicas { .. })));
        } else {
            let Ok(Accepted::Append(assigned)) = answer else {
                panic!("a leader takes it: {answer:?}")
            };
            assert_eq!(assigned.base.0, m.assigned_end(), "offsets are dense");
            assert_eq!(assigned.epoch.0, m.epoch);
            let bytes = bytes as u64;
            m.batches.push(Batch {
                end: assigned.end.0,
                bytes,
                token,
                acks,
            });
            assert!(m.unanswered.insert(token));
        }
    }

    fn park(&mut self, back: i64, missing: u64) {
        let token = self.model.token();
        let from = (self.model.hw - back).max(0);
        let seen = self.model.hw - back % 2;
        let isolation = Isolation::ReadUncommitted;
        let parking =
            self.replica
                .park_fetch(token, Offset(from), Offset(seen), isolation, missing);
        if !self.model.leading || seen < self.model.hw {
            assert_eq!(parking, Parking::LookAgain);
        } else {
            assert_eq!(parking, Parking::Parked);
            self.model.sleepers.insert(
                token,
                Sleeper {
                    from,
                    seen,
                    missing: missing.max(1),
                },
            );
        }
    }

    fn lead(&mut self, step: i32, in_sync: usize, min: u32, out: &mut Vec<Effect>) {
        let m = &mut self.model;
        let new_epoch = step > 0 || !m.leading;
        if new_epoch && m.written < m.batches.len() {
            return; // A role change waits until nothing is in flight.
        }
        m.epoch += step;
        (m.in_sync, m.min) = (in_sync, min);
        let brokers: Vec<BrokerId> = [1, 2, 3].map(BrokerId).to_vec();
        let leadership = Leadership {
            epoch: LeaderEpoch(m.epoch),
            in_sync: brokers[..in_sync].to_vec(),
            replicas: brokers,
            min_in_sync: min,
        };
        self.replica
            .become_leader(&leadership, out)
            .expect("epochs rise");
        self.model.leading = true;
        self.model.settle();
        if new_epoch {
            self.everyone_is_woken(out);
        }
    }

    fn fetch(&self, offset: i64) {
        let ask = FetchAsk {
            offset: Offset(offset),
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
            isolation: Isolation::ReadUncommitted,
        };
        let m = &self.model;
        match self.replica.on_fetch(&ask) {
            Ok(bound) => {
                assert!(m.leading && (m.start..=m.written_end()).contains(&offset));
                assert_eq!(bound.up_to.0, m.hw);
            }
            Err(Refused::NotLeader) => assert!(!m.leading),
            Err(Refused::OutOfRange { .. }) => {
                assert!(!(m.start..=m.written_end()).contains(&offset));
            }
            Err(other) => panic!("not expected: {other}"),
        }
    }

    /// Takes all wake-ups out of `out`: exactly the sleepers.
    fn everyone_is_woken(&mut self, out: &mut Vec<Effect>) {
        let woken: HashSet<Token> = out
            .iter()
            .filter_map(|e| {
                if let Effect::WakeFetch { token } = e {
                    Some(*token)
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(
            woken,
            self.model.sleepers.keys().copied().collect::<HashSet<_>>()
        );
        out.retain(|e| !matches!(e, Effect::WakeFetch { .. }));
        self.model.sleepers.clear();
    }

    fn digest(&mut self, out: &[Effect]) {
        let m = &mut self.model;
        for effect in out {
            match effect {
                Effect::AnswerProduce { token, outcome } => {
                    assert!(m.unanswered.remove(token), "each token is answered once");
                    let batch = m.batches.iter().find(|b| b.token == *token);
                    if outcome.is_ok() {
                        let batch = batch.expect("an acknowledged batch is in the log");
                        let passed = if batch.acks == -1 {
                            m.hw
                        } else {
                            m.end_of(m.acked)
                        };
                        assert!(batch.end <= passed, "no answer runs ahead of its end");
                    } else {
                        assert!(batch.is_none() || !m.leading, "it failed for a reason");
                    }
                }
                Effect::WakeFetch { token } => {
                    let sleeper = m
                        .sleepers
                        .remove(token)
                        .expect("woken once, and only if parked");
                    assert!(
                        m.bytes_for(&sleeper) >= sleeper.missing,
                        "woken by enough bytes"
                    );
                }
                Effect::HighWatermarkMoved(to) => assert_eq!(to.0, m.hw),
                Effect::EpochStarted { epoch, start } => {
                    assert_eq!((epoch.0, start.0), (m.epoch, m.end_of(m.written)));
                }
                Effect::EpochsTrimmed => {}
            }
        }
    }

    fn compare(&self) {
        let (r, m) = (&self.replica, &self.model);
        r.check();
        assert_eq!(r.assigned_end().0, m.assigned_end());
        assert_eq!(r.written_end().0, m.written_end());
        assert_eq!(r.durable_end().0, m.end_of(m.durable));
        assert_eq!(r.acked_end().0, m.end_of(m.acked));
        assert_eq!(r.high_watermark().0, m.hw);
        assert_eq!(r.log_start().0, m.start);
        assert_eq!(r.is_leader(), m.leading);
        assert_eq!(r.parked_produces(), m.unanswered.len());
        assert_eq!(r.parked_fetches(), m.sleepers.len());
        for sleeper in m.sleepers.values() {
            assert!(
                m.bytes_for(sleeper) < sleeper.missing,
                "nobody sleeps over enough bytes"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(events in proptest::collection::vec(events(), 1..120)) {
        let mut run = Run::new();
        run.step(&Event::Lead { step: 0, in_sync: 1, min: 1 });
        for event in &events {
            run.step(event);
        }
    }
}
