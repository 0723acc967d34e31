//! Reading a partition of the offsets topic from its start, so that its coordinator knows its groups.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use thalweg_control::DirIndex;
use thalweg_group::{Answer, Outcome, Progress, Record};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{Batch, Codec, RecordSet, batches, crc_matches, records_of};
use thalweg_reactor::{fs, task};
use thalweg_replica::{Isolation, Sought};
use thalweg_types::limits::{
    COORDINATOR_INLINE_BYTES_MAX, COORDINATOR_LOAD_BYTES, COORDINATOR_LOAD_ELEMENT_BYTES,
    COORDINATORS_LOADING_MAX, DECOMPRESSED_BATCH_BYTES_MAX, TURN_ELEMENTS_MAX,
};
use thalweg_types::{LeaderEpoch, Offset, ProducerId};

use crate::pace::{LargeTurn, SliceTurn, Slices};
use crate::partition::Partition;
use crate::peer::{FetchAsk, OffsetAsk};

/// What a coordinator learns from its log.
pub(crate) enum Logged {
    /// A record that counts.
    Record(Record),
    /// A record of a transaction.
    InTransaction(ProducerId, Record),
    /// What is left of the last one.
    RestOfRecord,
    /// The end of one.
    Marker(ProducerId, Outcome),
}

/// What a load went around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// Damaged ranges of the log.
    pub(crate) ranges: u64,
}

/// How the coordinators of a shard go on beside each other and beside the rest of it.
#[derive(Default)]
pub(crate) struct Turns {
    /// To read, and replay what was read: by log directory, as a disk that hangs holds up no group of another.
    reads: RefCell<BTreeMap<DirIndex, Rc<LargeTurn>>>,
    /// To replay, and whatever else they do by slices.
    pub(crate) slices: Slices,
}

impl Turns {
    fn reads_of(&self, dir: DirIndex) -> Rc<LargeTurn> {
        let mut reads = self.reads.borrow_mut();
        let new = || Rc::new(LargeTurn::of(COORDINATORS_LOADING_MAX));
        Rc::clone(reads.entry(dir).or_insert_with(new))
    }
}

/// Calls `replay` for every record and marker up to the high watermark, oldest first. Record types that
/// are not the coordinator's are passed over. What is damaged is gone around, and each time said: what is
/// whole was acknowledged as well. The coordinators of a shard take turns, few of them have something read at a
/// time, and they pause after so many records, wherever batches end, so that all together hold up the rest of it no
/// more than one.
///
/// # Errors
/// Why the partition can not be read.
pub(crate) async fn replay(
    partition: &Partition,
    turns: &Turns,
    mut replay: impl FnMut(Logged) -> Progress,
) -> Result<Lost, String> {
    let mut at = log_start(partition).await?;
    let mut lost = Lost::default();
    loop {
        let reads = turns.reads_of(partition.dir());
        let _reading = reads.take().await;
        match read(partition, at).await? {
            Read::Batches(bytes, position, next) => {
                let mut turn = turns.slices.take().await;
                let whole = replay_batches(&bytes, &mut replay, &mut turn).await?;
                turn.end().await;
                at = match whole {
                    None => next,
                    Some(bad) => {
                        let first = bad.first.unwrap_or(at);
                        let place = position + bad.position;
                        if !partition.note_damage(first, place, &bad.reason) {
                            return Err(format!("offset {first}: {}", bad.reason));
                        }
                        first
                    }
                };
            }
            Read::Damaged => {
                at = past_damage(partition, at).await?;
                lost.ranges += 1;
            }
            Read::End => return Ok(lost),
        }
    }
}

/// Behind the damage at `at`, which is said.
async fn past_damage(partition: &Partition, at: Offset) -> Result<Offset, String> {
    let unknown = || format!("offset {at} can not be read");
    let (path, range) = partition.damage_of(at).await.ok_or_else(unknown)?;
    if range.next <= at {
        return Err(unknown());
    }
    tracing::error!(partition = partition.name(), path = %path.display(),
        position = range.bytes.start, bytes = range.bytes.end - range.bytes.start,
        offset = range.first.0, next = range.next.0,
        "GROUPS LOADED AROUND DAMAGE: what was committed in these bytes is lost. Groups may read again \
         from an older offset; an offset that may have been there is answered with KAFKA_STORAGE_ERROR \
         instead of as if there had never been one, until it is committed anew (`thalweg group \
         reset-offsets`). Put the file back from a backup, or stop the broker and run `thalweg repair`");
    Ok(range.next)
}

async fn log_start(partition: &Partition) -> Result<Offset, String> {
    let ask = OffsetAsk {
        slot: 0,
        id: partition.id(),
        sought: Sought::Earliest,
        current_leader_epoch: LeaderEpoch::NONE,
        isolation: Isolation::ReadUncommitted,
    };
    match partition.list_offset(&ask).await.result {
        Ok((offset, _, _)) => Ok(offset),
        Err(error) => Err(error.name().to_owned()),
    }
}

/// What a look at the log found.
enum Read {
    /// Whole batches, where they stand in their segment, and where to go on.
    Batches(Bytes, u64, Offset),
    /// Nothing may be read there.
    Damaged,
    /// The high watermark.
    End,
}

async fn read(partition: &Partition, at: Offset) -> Result<Read, String> {
    let ask = FetchAsk {
        slot: 0,
        owner: 0,
        id: partition.id(),
        offset: at,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
        bytes_max: COORDINATOR_LOAD_BYTES,
        isolation: Isolation::ReadUncommitted,
    };
    let found = partition.fetch(&ask, None).await;
    if found.error == ErrorCode::CorruptMessage {
        return Ok(Read::Damaged);
    }
    if found.error.code() != 0 {
        return Err(found.error.name().to_owned());
    }
    let Some(plan) = found.plan else {
        return Ok(Read::End);
    };
    let bytes = fs::read_at(&plan.file, plan.position, plan.len as usize)
        .await
        .map_err(|error| error.to_string())?;
    let bytes = bytes.freeze();
    Ok(Read::Batches(bytes, plan.position, plan.next_offset))
}

/// A batch that is not what was written.
struct BadBatch {
    /// Where it stands in what was read.
    position: u64,
    /// Its offset, if that is known.
    first: Option<Offset>,
    reason: String,
}

/// Replays batches up to the first that is damaged.
async fn replay_batches(
    bytes: &Bytes,
    replay: &mut impl FnMut(Logged) -> Progress,
    turn: &mut SliceTurn<'_>,
) -> Result<Option<BadBatch>, String> {
    let (mut position, mut next) = (0, None);
    for batch in batches(bytes) {
        let opened = match &batch {
            Err(error) => Err(error.to_string()),
            Ok(batch) => {
                let first = batch.header.base_offset;
                let opened = open(bytes, batch).await;
                opened.map_err(|error| format!("offset {first}: {error}"))?
            }
        };
        let set = match opened {
            Ok(set) => set,
            Err(reason) => {
                let first = next.or(batch.ok().map(|batch| batch.header.base_offset));
                return Ok(Some(BadBatch {
                    position,
                    first,
                    reason,
                }));
            }
        };
        let header = set.header();
        replay_batch(&set, replay, turn)
            .await
            .map_err(|error| format!("offset {}: {error}", header.base_offset))?;
        position += header.total_bytes() as u64;
        next = Some(header.last_offset().plus(1));
        // Compaction may have left none of its records.
        turn.step().await;
        if set.payload().len() > COORDINATOR_INLINE_BYTES_MAX {
            // To give so much memory back takes its time, too.
            let set = set.into_owned();
            let giving_back = task::compute(move || {
                drop(set);
                Ok(())
            });
            giving_back.await.map_err(|error| error.to_string())?;
        }
    }
    Ok(None)
}

/// The records of a batch of `bytes`, or that it is damaged: after a clean stop nothing has looked at it yet. What
/// takes longer than a turn of the core is another thread's work.
///
/// # Errors
/// Why its records can not be read although it is whole.
async fn open<'b>(
    bytes: &Bytes,
    batch: &Batch<'b>,
) -> Result<Result<RecordSet<'b>, String>, String> {
    let is_short = batch.bytes.len() <= COORDINATOR_INLINE_BYTES_MAX;
    if is_short && batch.header.codec() == Ok(Codec::None) {
        return opened(batch.bytes);
    }
    let whole = bytes.slice_ref(batch.bytes);
    let opening =
        task::compute(move || Ok(opened(&whole).map(|set| set.map(RecordSet::into_owned))));
    opening.await.map_err(|error| error.to_string())?
}

fn opened(batch: &[u8]) -> Result<Result<RecordSet<'_>, String>, String> {
    if !crc_matches(batch) {
        return Ok(Err("the checksum does not match".to_owned()));
    }
    let set = records_of(batch, DECOMPRESSED_BATCH_BYTES_MAX);
    set.map(Ok).map_err(|error| error.to_string())
}

async fn replay_batch(
    set: &RecordSet<'_>,
    replay: &mut impl FnMut(Logged) -> Progress,
    turn: &mut SliceTurn<'_>,
) -> Result<(), String> {
    let header = set.header();
    let producer = header.producer_id;
    for record in set {
        let record = record.map_err(|error| error.to_string())?;
        let bytes = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        turn.steps(1 + bytes / COORDINATOR_LOAD_ELEMENT_BYTES).await;
        if header.is_control() {
            match record.key.and_then(ControlRecordType::of_key) {
                Some(ControlRecordType::Commit) => {
                    replay(Logged::Marker(producer, Outcome::Committed));
                }
                Some(ControlRecordType::Abort) => {
                    replay(Logged::Marker(producer, Outcome::Aborted));
                }
                // Of metadata logs, or of the future: no transaction ends here.
                Some(
                    ControlRecordType::LeaderChange
                    | ControlRecordType::SnapshotHeader
                    | ControlRecordType::SnapshotFooter
                    | ControlRecordType::KRaftVersion
                    | ControlRecordType::KRaftVoters,
                )
                | None => {}
            }
            continue;
        }
        let mut progress = match Record::decode(record.key, record.value) {
            Ok(Some(record)) if header.is_transactional() => {
                replay(Logged::InTransaction(producer, record))
            }
            Ok(Some(record)) => replay(Logged::Record(record)),
            Ok(None) => Progress::Done,
            Err(error) => {
                tracing::warn!(
                    offset = record.offset.0,
                    %error,
                    "a record of the offsets topic is not understood and passed over"
                );
                Progress::Done
            }
        };
        while progress == Progress::More {
            turn.steps(TURN_ELEMENTS_MAX).await;
            progress = replay(Logged::RestOfRecord);
        }
    }
    Ok(())
}

/// Of a partition of which something is lost: an offset that is not known may have been there, and whoever
/// asks for it must not begin anew because of that.
pub(crate) fn without_unknown(answer: Answer) -> Answer {
    let Answer::FetchOffsets(mut page) = answer else {
        return answer;
    };
    let group = &mut page.group;
    if group.error_code == 0 {
        let rows = group
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions);
        let unknown = rows.filter(|row| row.committed_offset < 0 && row.error_code == 0);
        unknown.for_each(|row| row.error_code = ErrorCode::KafkaStorageError.code());
    }
    Answer::FetchOffsets(page)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use bytes::Bytes;
    use thalweg_group::{Committed, ConsumerRecord, Outcome, Progress, Record};
    use thalweg_protocol::messages::ConsumerGroupMemberMetadataValue;
    use thalweg_protocol::records::control::ControlRecordType;
    use thalweg_protocol::records::{
        BatchBuilder, BatchOptions, Codec, ProducerSequence, records_of,
    };
    use thalweg_reactor::task;
    use thalweg_types::limits::{
        COORDINATOR_INLINE_BYTES_MAX, DECOMPRESSED_BATCH_BYTES_MAX, TURN_ELEMENTS_MAX,
    };
    use thalweg_types::{ProducerEpoch, ProducerId, TimestampMs, TopicId};

    use super::{Logged, replay_batch, replay_batches};
    use crate::pace::Slices;
    use crate::pace::tests::on_a_runtime;

    fn offset(of: i64) -> Record {
        Record::Offset {
            group: Rc::from("g"),
            topic: Rc::from("t"),
            partition: 0,
            value: Some(Committed {
                offset: of,
                leader_epoch: -1,
                metadata: Box::default(),
                at: TimestampMs(1),
                expires: TimestampMs::NONE,
                topic_id: TopicId::ZERO,
            }),
        }
    }

    /// What is learnt from one batch with these records.
    fn learnt(options: BatchOptions, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
        let mut builder = BatchBuilder::new(options);
        for (key, value) in records {
            let pushed = builder.push(TimestampMs(1), Some(key), Some(value), &[]);
            pushed.expect("fits");
        }
        let bytes = builder.build(Codec::None).expect("fits");
        let set = records_of(&bytes, DECOMPRESSED_BATCH_BYTES_MAX).expect("readable");
        let mut told = Vec::new();
        let mut tell = |logged| {
            told.push(match logged {
                Logged::Record(record) => format!("{:?}", record == offset(5)),
                Logged::InTransaction(producer, record) => {
                    format!("{} {:?}", producer.0, record == offset(5))
                }
                Logged::RestOfRecord => "the rest".to_owned(),
                Logged::Marker(producer, Outcome::Committed) => format!("{} commits", producer.0),
                Logged::Marker(producer, Outcome::Aborted) => format!("{} aborts", producer.0),
            });
            Progress::Done
        };
        on_a_runtime(async {
            let slices = Slices::default();
            let mut turn = slices.take().await;
            let replayed = replay_batch(&set, &mut tell, &mut turn);
            replayed.await.expect("readable");
        });
        told
    }

    /// How many of these records, each of so many parts, are replayed at most before others have their turn.
    fn longest_run(records: usize, parts: usize, record: &Record) -> usize {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for _ in 0..records {
            let key = record.key().expect("fits");
            let value = record.value().expect("fits");
            let pushed = builder.push(TimestampMs(1), Some(&key), value.as_deref(), &[]);
            pushed.expect("fits");
        }
        let bytes = builder.build(Codec::None).expect("fits");
        let set = records_of(&bytes, DECOMPRESSED_BATCH_BYTES_MAX).expect("readable");
        let (in_a_row, longest) = (Rc::new(Cell::new(0)), Cell::new(0));
        on_a_runtime(async {
            let others = Rc::clone(&in_a_row);
            let other = task::spawn(async move {
                loop {
                    others.set(0);
                    task::yield_now().await;
                }
            });
            let mut left = 0;
            let mut count = |logged| {
                in_a_row.set(in_a_row.get() + 1);
                longest.set(in_a_row.get().max(longest.get()));
                left = match matches!(logged, Logged::RestOfRecord) {
                    true => left - 1,
                    false => parts - 1,
                };
                match left {
                    0 => Progress::Done,
                    _ => Progress::More,
                }
            };
            let slices = Slices::default();
            let mut turn = slices.take().await;
            let replayed = replay_batch(&set, &mut count, &mut turn);
            replayed.await.expect("readable");
            other.abort();
        });
        longest.get()
    }

    #[test]
    fn bi_8_a_batch_of_many_records_is_replayed_in_slices() {
        let longest = longest_run(10 * TURN_ELEMENTS_MAX, 1, &offset(5));
        assert!((1..=TURN_ELEMENTS_MAX).contains(&longest), "{longest}");
    }

    #[test]
    fn bi_8_large_records_are_replayed_in_slices_of_fewer() {
        let large = Record::Consumer {
            group: Rc::from("g"),
            record: ConsumerRecord::Member(
                Rc::from("m"),
                Some(ConsumerGroupMemberMetadataValue {
                    subscribed_topic_names: vec!["t".repeat(249); 2_000],
                    ..ConsumerGroupMemberMetadataValue::default()
                }),
            ),
        };
        assert_eq!(longest_run(5, 1, &large), 1);
        // The end of one of many parts, and the begin of the next.
        assert_eq!(longest_run(3, 5, &offset(5)), 2);
    }

    #[test]
    fn rp_115_large_and_compressed_batches_are_read_and_damage_in_them_is_found() {
        let batch = |codec, records: usize| {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            let key = offset(5).key().expect("fits");
            let value = offset(5).value().expect("fits");
            for _ in 0..records {
                let pushed = builder.push(TimestampMs(1), Some(&key), value.as_deref(), &[]);
                pushed.expect("fits");
            }
            builder.build(codec).expect("fits")
        };
        let large = batch(Codec::None, COORDINATOR_INLINE_BYTES_MAX / 20);
        assert!(large.len() > COORDINATOR_INLINE_BYTES_MAX);
        for (bytes, records) in [
            (batch(Codec::None, 3), 3),
            (batch(Codec::Zstd, 3), 3),
            (large, COORDINATOR_INLINE_BYTES_MAX / 20),
        ] {
            let mut damaged = bytes.to_vec();
            *damaged.last_mut().expect("not empty") ^= 1;
            let two = Bytes::from([bytes.as_ref(), &damaged].concat());
            let mut seen = 0;
            on_a_runtime(async {
                let slices = Slices::default();
                let mut turn = slices.take().await;
                let mut count = |_| {
                    seen += 1;
                    Progress::Done
                };
                let replayed = replay_batches(&two, &mut count, &mut turn);
                let bad = replayed.await.expect("readable").expect("damaged");
                assert_eq!(bad.position, bytes.len() as u64);
            });
            assert_eq!(seen, records);
        }
    }

    #[test]
    fn rp_90_transactions_and_their_markers_are_read() {
        let of_producer = |base_sequence, is_control| BatchOptions {
            producer: Some(ProducerSequence {
                id: ProducerId(7),
                epoch: ProducerEpoch(0),
                base_sequence,
            }),
            is_transactional: true,
            is_control,
            ..BatchOptions::default()
        };
        let record = offset(5);
        let key = record.key().expect("fits").to_vec();
        let value = record.value().expect("fits").expect("a value").to_vec();
        let records = [(key, value)];
        assert_eq!(learnt(BatchOptions::default(), &records), ["true"]);
        assert_eq!(learnt(of_producer(0, false), &records), ["7 true"]);
        for (kind, told) in [
            (ControlRecordType::Commit, &["7 commits"][..]),
            (ControlRecordType::Abort, &["7 aborts"]),
            // Nothing of ours ends by it.
            (ControlRecordType::LeaderChange, &[]),
        ] {
            let marker = [(kind.key().to_vec(), vec![0; 6])];
            assert_eq!(learnt(of_producer(-1, true), &marker), told, "{kind:?}");
        }
    }
}
