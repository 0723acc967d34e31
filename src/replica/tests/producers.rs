//! Producers against a plain model: the list of all batches. And their snapshots against replays.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use thalweg_protocol::records::{
    BatchBuilder, BatchHeader, BatchOptions, BatchSummary, Codec, ProducerSequence, TimestampType,
};
use thalweg_replica::{
    Accepted, AckPoint, Acks, Effect, EpochCache, Leadership, PRODUCER_BATCHES_KEPT, Producers,
    Refused, Replica, ReplicaStart, SnapshotError, Token,
};
use thalweg_types::limits::PRODUCERS_PER_PARTITION_MAX;
use thalweg_types::{BrokerId, LeaderEpoch, Offset, ProducerId, TimestampMs};

const NOW: TimestampMs = TimestampMs(1);
/// Sequences are counted from here, so that they wrap soon (RP-65).
const FIRST_SEQUENCE: i64 = (1 << 31) - 20;

#[derive(Clone, Debug)]
enum Event {
    /// The producer goes on, or does something else.
    Produce {
        id: i64,
        records: i32,
        step: Step,
        acks_all: bool,
    },
    Written(usize),
    Failed(usize),
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Next,
    /// The n-th newest batch again.
    Retry(usize),
    /// Sequences off by so many from the next one.
    Off(i64),
    /// So many epochs on, beginning at this sequence.
    Epoch(i16, i64),
}

fn events() -> impl Strategy<Value = Event> {
    let step = prop_oneof![
        8 => Just(Step::Next),
        4 => (0..8usize).prop_map(Step::Retry),
        1 => (-6..7i64).prop_map(Step::Off),
        1 => (-1..3i16, 0..2i64).prop_map(|(on, at)| Step::Epoch(on, at)),
    ];
    prop_oneof![
        12 => (0..3i64, 1..9i32, step, any::<bool>())
            .prop_map(|(id, records, step, acks_all)| Event::Produce { id, records, step, acks_all }),
        5 => (1..5usize).prop_map(Event::Written),
        1 => (0..4usize).prop_map(Event::Failed),
        1 => Just(Event::Restart),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Batch {
    id: i64,
    epoch: i16,
    sequence: i32,
    records: i32,
    base: i64,
    time: i64,
}

impl Batch {
    fn end(&self) -> i64 {
        self.base + i64::from(self.records)
    }

    fn header(&self) -> BatchHeader {
        let options = BatchOptions {
            producer: Some(ProducerSequence::new(self.id, self.epoch, self.sequence)),
            base_offset: Offset(self.base),
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        for _ in 0..self.records {
            builder
                .push(TimestampMs(self.time), None, None, &[])
                .expect("a small record");
        }
        BatchHeader::parse(&builder.build(Codec::None).expect("a batch")).expect("a header")
    }
}

fn wrapped(sequence: i64) -> i32 {
    i32::try_from(sequence.rem_euclid(1 << 31)).expect("31 bits")
}

fn replayed(batches: &[Batch]) -> Producers {
    let mut producers = Producers::default();
    for batch in batches {
        producers.replay(&batch.header(), NOW);
        producers.check();
    }
    producers
}

struct Run {
    replica: Replica,
    batches: Vec<Batch>,
    written: usize,
    next_token: u64,
    /// Retries that wait: token, offsets that they must get.
    waiting: Vec<(Token, i64)>,
    leader_epoch: i32,
}

impl Run {
    fn new() -> Run {
        let mut run = Run {
            replica: opened(0, Producers::default()),
            batches: Vec::new(),
            written: 0,
            next_token: 0,
            waiting: Vec::new(),
            leader_epoch: 0,
        };
        run.lead();
        run
    }

    fn lead(&mut self) {
        let leadership = Leadership {
            epoch: LeaderEpoch(self.leader_epoch),
            replicas: vec![BrokerId(1)],
            in_sync: vec![BrokerId(1)],
            min_in_sync: 1,
        };
        self.replica
            .become_leader(&leadership, &mut Vec::new())
            .expect("epochs rise");
        self.leader_epoch += 1;
    }

    fn end(&self, count: usize) -> i64 {
        count
            .checked_sub(1)
            .map_or(0, |last| self.batches[last].end())
    }

    /// Batches of the producer's newest epoch.
    fn known(&self, id: i64) -> Vec<Batch> {
        let own: Vec<Batch> = self
            .batches
            .iter()
            .filter(|b| b.id == id)
            .copied()
            .collect();
        let epoch = own.last().map_or(0, |b| b.epoch);
        own.into_iter().filter(|b| b.epoch == epoch).collect()
    }

    fn step(&mut self, event: &Event) {
        let mut out = Vec::new();
        match event {
            Event::Produce {
                id,
                records,
                step,
                acks_all,
            } => self.produce(*id, *records, *step, *acks_all),
            Event::Written(count) => {
                self.written = (self.written + count).min(self.batches.len());
                self.replica
                    .on_written(Offset(self.end(self.written)), &mut out);
                self.digest(&out);
            }
            Event::Failed(kept) => {
                let keep = (self.written + kept).min(self.batches.len());
                self.batches.truncate(keep);
                let from = self.end(keep);
                self.replica.on_write_failed(Offset(from), &mut out);
                self.waiting.retain(|(_, end)| *end <= from);
            }
            Event::Restart => {
                let (at, bytes) = self.replica.producer_snapshot();
                self.batches.truncate(self.written);
                self.waiting.clear();
                let producers = Producers::from_snapshot(&bytes, at, NOW).expect("just taken");
                self.replica = opened(at.0, producers);
                self.lead();
            }
        }
        self.replica.check();
        let (at, bytes) = self.replica.producer_snapshot();
        assert_eq!(at.0, self.end(self.written));
        assert!(
            bytes == replayed(&self.batches[..self.written]).to_snapshot(),
            "what is known is what the log says"
        );
    }

    fn produce(&mut self, id: i64, records: i32, step: Step, acks_all: bool) {
        let known = self.known(id);
        let next = known.last().map_or(FIRST_SEQUENCE, |b| {
            i64::from(b.sequence) + i64::from(b.records)
        });
        let epoch = known.last().map_or(0, |b| b.epoch);
        let (epoch, sequence, records) = match step {
            Step::Next => (epoch, next, records),
            Step::Off(by) => (epoch, next + by, records),
            Step::Retry(back) => match known.iter().rev().nth(back) {
                Some(b) => (epoch, i64::from(b.sequence), b.records),
                None => (epoch, next, records),
            },
            Step::Epoch(on, at) => ((epoch + on).max(0), at, records),
        };
        let batch = Batch {
            id,
            epoch,
            sequence: wrapped(sequence),
            records,
            base: self.end(self.batches.len()),
            time: 1_000 + self.batches.len() as i64,
        };
        let wanted = self.wanted(&batch);
        self.next_token += 1;
        let token = Token(self.next_token);
        let acks = if acks_all { Acks::All } else { Acks::Leader };
        let mut out = Vec::new();
        let got = self
            .replica
            .on_produce(NOW, &summary(&batch), acks, token, &mut out);
        match wanted {
            Wanted::New => {
                let Ok(Accepted::Append(assigned)) = got else {
                    panic!("{got:?} to {batch:?}")
                };
                assert_eq!((assigned.base.0, assigned.end.0), (batch.base, batch.end()));
                self.batches.push(batch);
            }
            Wanted::Retry(original) => {
                let timestamp = TimestampMs(original.time);
                assert_eq!(got, Ok(Accepted::Retry { timestamp }), "{batch:?}");
                self.waiting.push((token, original.end()));
                self.digest(&out);
                let is_written = original.end() <= self.end(self.written);
                assert_eq!(self.waiting.iter().any(|w| w.0 == token), !is_written);
            }
            Wanted::OldEpoch => assert!(matches!(got, Err(Refused::StaleProducerEpoch { .. }))),
            Wanted::Refused => assert!(matches!(got, Err(Refused::OutOfSequence { .. }))),
        }
    }

    fn wanted(&self, batch: &Batch) -> Wanted {
        let known = self.known(batch.id);
        let Some(last) = known.last() else {
            return Wanted::New;
        };
        if batch.epoch < last.epoch {
            return Wanted::OldEpoch;
        }
        if batch.epoch > last.epoch {
            return if batch.sequence == 0 {
                Wanted::New
            } else {
                Wanted::Refused
            };
        }
        let kept = known.len().saturating_sub(PRODUCER_BATCHES_KEPT);
        let same = |b: &&Batch| (b.sequence, b.records) == (batch.sequence, batch.records);
        if let Some(original) = known[kept..].iter().find(same) {
            return Wanted::Retry(*original);
        }
        let next = wrapped(i64::from(last.sequence) + i64::from(last.records));
        if batch.sequence == next {
            Wanted::New
        } else {
            Wanted::Refused
        }
    }

    /// Answers to retries carry the original's end, and come when it is written.
    fn digest(&mut self, out: &[Effect]) {
        for effect in out {
            if let Effect::AnswerProduce { token, outcome } = effect
                && let Some(at) = self.waiting.iter().position(|w| w.0 == *token)
            {
                let (_, end) = self.waiting.remove(at);
                assert_eq!(outcome.map(|o| o.assigned.end.0), Ok(end));
            }
        }
        let written = self.end(self.written);
        assert!(self.waiting.iter().all(|(_, end)| *end > written));
    }
}

#[derive(Debug)]
enum Wanted {
    New,
    Retry(Batch),
    OldEpoch,
    Refused,
}

fn opened(end: i64, producers: Producers) -> Replica {
    Replica::new(ReplicaStart {
        local: BrokerId(1),
        log_start: Offset(0),
        log_end: Offset(end),
        durable_end: Offset(end),
        ack_point: AckPoint::Written,
        high_watermark: Offset(end),
        epochs: EpochCache::default(),
        producers,
    })
}

fn summary(batch: &Batch) -> BatchSummary {
    BatchSummary {
        bytes: 100,
        record_count: batch.records,
        last_offset_delta: batch.records - 1,
        max_timestamp: TimestampMs(batch.time),
        offset_delta_of_max_timestamp: 0,
        timestamp_type: TimestampType::CreateTime,
        codec: Codec::None,
        uncompressed_bytes: 0,
        producer: batch.header().producer(),
        is_transactional: false,
        is_control: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rp_63_to_67_agree_with_a_list_of_all_batches(
        events in proptest::collection::vec(events(), 1..80)
    ) {
        let mut run = Run::new();
        for event in &events {
            run.step(event);
        }
        // ST-32: a snapshot anywhere and the rest of the log make the same state.
        for at in 0..=run.written {
            let bytes = replayed(&run.batches[..at]).to_snapshot();
            let end = Offset(run.end(at));
            let mut producers = Producers::from_snapshot(&bytes, end, NOW).expect("just taken");
            for batch in &run.batches[at..run.written] {
                producers.replay(&batch.header(), NOW);
            }
            assert_eq!(producers, replayed(&run.batches[..run.written]));
        }
    }

    #[test]
    fn bi_21_any_bytes_as_a_snapshot(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Producers::from_snapshot(&bytes, Offset(1_000), NOW);
        // The same with a sum that holds, and a count that fits.
        let entries = bytes.len().saturating_sub(10) / 46;
        let mut bytes = bytes;
        if bytes.len() >= 10 {
            bytes.truncate(10 + entries * 46);
            bytes[..2].copy_from_slice(&[0, 1]);
            bytes[6..10].copy_from_slice(&u32::try_from(entries).expect("few").to_be_bytes());
            let crc = crc32c::crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            if let Ok(producers) = Producers::from_snapshot(&bytes, Offset(i64::MAX), NOW) {
                producers.check();
            }
        }
    }
}

fn one(id: i64, sequence: i32, base: i64) -> Batch {
    Batch {
        id,
        epoch: 3,
        sequence,
        records: 2,
        base,
        time: 77,
    }
}

/// Kafka's layout, byte by byte.
#[test]
fn a_snapshot_has_kafkas_bytes() {
    let bytes = replayed(&[one(9, 40, 100)]).to_snapshot();
    let mut entry = Vec::new();
    entry.extend_from_slice(&9_i64.to_be_bytes());
    entry.extend_from_slice(&3_i16.to_be_bytes());
    entry.extend_from_slice(&41_i32.to_be_bytes());
    entry.extend_from_slice(&101_i64.to_be_bytes());
    entry.extend_from_slice(&1_i32.to_be_bytes());
    entry.extend_from_slice(&77_i64.to_be_bytes());
    entry.extend_from_slice(&(-1_i32).to_be_bytes());
    entry.extend_from_slice(&(-1_i64).to_be_bytes());
    assert_eq!(bytes[..2], [0, 1]);
    assert_eq!(bytes[6..10], [0, 0, 0, 1]);
    assert_eq!(bytes[10..], entry);
    assert_eq!(bytes[2..6], crc32c::crc32c(&bytes[6..]).to_be_bytes());
    assert_eq!(Producers::default().to_snapshot().len(), 10);
}

#[test]
fn st_10_a_damaged_snapshot_is_told_from_a_sound_one() {
    let sound = replayed(&[one(9, 40, 100), one(9, 42, 102)]).to_snapshot();
    let load = |bytes: &[u8], at| Producers::from_snapshot(bytes, Offset(at), NOW);
    assert!(load(&sound, 104).is_ok());
    // It speaks of what lies beyond the offset in its name.
    assert_eq!(load(&sound, 103), Err(SnapshotError::Entry(1)));
    for length in 0..sound.len() {
        assert!(load(&sound[..length], 104).is_err(), "{length} bytes");
    }
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(load(&flipped, 104).is_err(), "bit {bit}");
    }
    let mut version = sound;
    version[1] = 2;
    assert_eq!(load(&version, 104), Err(SnapshotError::Version(2)));
}

#[test]
fn rp_70_a_flood_of_producers_is_bounded() {
    let mut producers = Producers::default();
    let flood = PRODUCERS_PER_PARTITION_MAX as i64 * 2;
    let header = one(0, 0, 0).header();
    for id in 0..flood {
        let mut header = header.clone();
        header.producer_id = ProducerId(id);
        header.base_offset = Offset(id * 2);
        producers.replay(&header, NOW);
    }
    producers.check();
    assert_eq!(producers.len(), PRODUCERS_PER_PARTITION_MAX);
    let bytes = producers.to_snapshot();
    let again = Producers::from_snapshot(&bytes, Offset(flood * 2), NOW);
    assert_eq!(
        again.as_ref().map(Producers::len),
        Ok(PRODUCERS_PER_PARTITION_MAX)
    );
    producers.limit(10);
    assert_eq!(producers.len(), 10);
    producers.check();
}
