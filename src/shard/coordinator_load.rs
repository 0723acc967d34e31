//! Reading a partition of the offsets topic from its start, so that its coordinator knows its groups.

use bytes::BytesMut;
use thalweg_group::{Answer, Outcome, Record};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{Batch, batches};
use thalweg_reactor::{fs, task};
use thalweg_replica::{Isolation, Sought};
use thalweg_types::limits::{COORDINATOR_LOAD_BYTES, DECOMPRESSED_BATCH_BYTES_MAX};
use thalweg_types::{LeaderEpoch, Offset, ProducerId};

use crate::pace::{LargeTurn, Pace};
use crate::partition::Partition;
use crate::peer::{FetchAsk, OffsetAsk};

/// What a coordinator learns from its log.
pub(crate) enum Logged {
    /// A record that counts.
    Record(Record),
    /// A record of a transaction.
    InTransaction(ProducerId, Record),
    /// The end of one.
    Marker(ProducerId, Outcome),
}

/// What a load went around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// Damaged ranges of the log.
    pub(crate) ranges: u64,
}

/// Calls `replay` for every record and marker up to the high watermark, oldest first. Record types that
/// are not the coordinator's are passed over. What is damaged is gone around, and each time said: what is
/// whole was acknowledged as well. The coordinators of a shard take turns and pause within them, after so
/// many records wherever batches end, so that all together hold up the rest of it no more than one.
///
/// # Errors
/// Why the partition can not be read.
pub(crate) async fn replay(
    partition: &Partition,
    turns: &LargeTurn,
    mut replay: impl FnMut(Logged),
) -> Result<Lost, String> {
    let mut at = log_start(partition).await?;
    let mut lost = Lost::default();
    loop {
        match read(partition, at).await? {
            Read::Batches(bytes, position, next) => {
                let turn = turns.take().await;
                let whole = replay_batches(&bytes, &mut replay).await?;
                // The next in line begins after the core has looked for other work.
                task::yield_now().await;
                drop(turn);
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
    Batches(BytesMut, u64, Offset),
    /// Nothing may be read there.
    Damaged,
    /// The high watermark.
    End,
}

async fn read(partition: &Partition, at: Offset) -> Result<Read, String> {
    let ask = FetchAsk {
        slot: 0,
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
    bytes: &[u8],
    replay: &mut impl FnMut(Logged),
) -> Result<Option<BadBatch>, String> {
    let (mut position, mut next) = (0, None);
    let mut pace = Pace::default();
    for batch in batches(bytes) {
        let damaged = match &batch {
            Err(error) => Some(error.to_string()),
            // After a clean stop nothing has looked at it yet.
            Ok(batch) if !batch.crc_matches() => Some("the checksum does not match".to_owned()),
            Ok(_) => None,
        };
        if let Some(reason) = damaged {
            let first = next.or(batch.ok().map(|batch| batch.header.base_offset));
            return Ok(Some(BadBatch {
                position,
                first,
                reason,
            }));
        }
        let batch = batch.map_err(|error| error.to_string())?;
        replay_batch(&batch, replay, &mut pace)
            .await
            .map_err(|error| format!("offset {}: {error}", batch.header.base_offset))?;
        position += batch.header.total_bytes() as u64;
        next = Some(batch.header.last_offset().plus(1));
        // Compaction may have left none of its records.
        pace.step().await;
    }
    Ok(None)
}

async fn replay_batch(
    batch: &Batch<'_>,
    replay: &mut impl FnMut(Logged),
    pace: &mut Pace,
) -> Result<(), String> {
    let header = &batch.header;
    let producer = header.producer_id;
    let set = batch
        .records(DECOMPRESSED_BATCH_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    for record in &set {
        pace.step().await;
        let record = record.map_err(|error| error.to_string())?;
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
        match Record::decode(record.key, record.value) {
            Ok(Some(record)) if header.is_transactional() => {
                replay(Logged::InTransaction(producer, record));
            }
            Ok(Some(record)) => replay(Logged::Record(record)),
            Ok(None) => {}
            Err(error) => tracing::warn!(
                offset = record.offset.0,
                %error,
                "a record of the offsets topic is not understood and passed over"
            ),
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

    use thalweg_group::{Committed, Outcome, Record};
    use thalweg_protocol::records::control::ControlRecordType;
    use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, ProducerSequence, batches};
    use thalweg_reactor::task;
    use thalweg_types::limits::TURN_ELEMENTS_MAX;
    use thalweg_types::{ProducerEpoch, ProducerId, TimestampMs, TopicId};

    use super::{Logged, replay_batch};
    use crate::pace::Pace;
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
        let batch = batches(&bytes).next().expect("one").expect("whole");
        let mut told = Vec::new();
        let mut tell = |logged| {
            told.push(match logged {
                Logged::Record(record) => format!("{:?}", record == offset(5)),
                Logged::InTransaction(producer, record) => {
                    format!("{} {:?}", producer.0, record == offset(5))
                }
                Logged::Marker(producer, Outcome::Committed) => format!("{} commits", producer.0),
                Logged::Marker(producer, Outcome::Aborted) => format!("{} aborts", producer.0),
            });
        };
        on_a_runtime(async {
            let mut pace = Pace::default();
            let replayed = replay_batch(&batch, &mut tell, &mut pace);
            replayed.await.expect("readable");
        });
        told
    }

    #[test]
    fn bi_8_a_batch_of_many_records_is_replayed_in_slices() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for _ in 0..10 * TURN_ELEMENTS_MAX {
            let key = offset(5).key().expect("fits");
            let value = offset(5).value().expect("fits");
            let pushed = builder.push(TimestampMs(1), Some(&key), value.as_deref(), &[]);
            pushed.expect("fits");
        }
        let bytes = builder.build(Codec::None).expect("fits");
        let batch = batches(&bytes).next().expect("one").expect("whole");
        let (in_a_row, longest) = (Rc::new(Cell::new(0)), Cell::new(0));
        on_a_runtime(async {
            let others = Rc::clone(&in_a_row);
            let other = task::spawn(async move {
                loop {
                    others.set(0);
                    task::yield_now().await;
                }
            });
            let mut count = |_| {
                in_a_row.set(in_a_row.get() + 1);
                longest.set(in_a_row.get().max(longest.get()));
            };
            let mut pace = Pace::default();
            let replayed = replay_batch(&batch, &mut count, &mut pace);
            replayed.await.expect("readable");
            other.abort();
        });
        assert!(
            (1..=TURN_ELEMENTS_MAX).contains(&longest.get()),
            "{}",
            longest.get()
        );
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
