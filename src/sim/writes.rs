//! What is appended: plain batches, batches of transactions, and the markers that end those.

use std::cell::RefCell;
use std::rc::Rc;

use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, ProducerSequence};
use thalweg_reactor::task;
use thalweg_storage::{AppendBatch, Log, LogDir, LogOptions, LogSink};
use thalweg_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::dice::Dice;
use crate::life::Open;
use crate::model::Appended;
use crate::partition::Partition;

/// Producers that write outside of transactions; one of them has no id.
const PRODUCERS: u64 = 5;
/// Producers of transactions, and the id of the first.
const TRANSACTIONAL: u64 = 3;
const FIRST_TRANSACTIONAL: i64 = 100;
/// Keys of a log that is compacted.
const KEYS: u64 = 9;
/// Version and coordinator epoch.
const MARKER_VALUE: [u8; 6] = [0, 0, 0, 0, 0, 1];

pub(crate) fn options(partition: &Partition, dir: &LogDir) -> LogOptions {
    LogOptions {
        segment_bytes: partition.segment_bytes,
        index_interval_bytes: 300,
        flush_messages: partition.flush_messages,
        health: std::sync::Arc::clone(dir.health()),
        ..LogOptions::default()
    }
}

/// How a sink reaches its own log. The circle is broken when this goes.
pub(crate) struct WayToLog(Rc<RefCell<Option<Log>>>);

impl WayToLog {
    pub(crate) fn lead_to(&self, log: &Log) {
        *self.0.borrow_mut() = Some(log.clone());
    }
}

impl Drop for WayToLog {
    fn drop(&mut self) {
        let log = self.0.borrow_mut().take();
        drop(log);
    }
}

/// Tells the model what the log says, stores the snapshots that are due then, and tells the log of aborted
/// transactions.
pub(crate) fn sink(partition: &Partition) -> (LogSink, WayToLog) {
    let log: Rc<RefCell<Option<Log>>> = Rc::default();
    let (model, inside) = (Rc::clone(&partition.model), Rc::clone(&log));
    let sink = Rc::new(move |event| {
        let due = model.borrow_mut().on_event(&event);
        let Some(log) = inside.borrow().clone() else {
            return;
        };
        if let Some((at, bytes)) = due.snapshot {
            let (log, model) = (log.clone(), Rc::clone(&model));
            task::spawn(async move {
                // Without it more is replayed, no more than that.
                if log.store_snapshot(at, bytes).await.is_ok() {
                    let mut model = model.borrow_mut();
                    model.snapshot_kept = model.snapshot_kept.max(at.0);
                }
            });
        }
        if !due.aborted.is_empty() {
            let model = Rc::clone(&model);
            model.borrow_mut().telling += 1;
            task::spawn(async move {
                let told = log.note_aborted(&due.aborted).await;
                let mut model = model.borrow_mut();
                model.telling -= 1;
                model.not_told = told.err().map(|error| error.to_string());
            });
        }
    });
    (sink, WayToLog(log))
}

/// Who writes a batch, and as what.
struct Writer {
    producer: Option<ProducerSequence>,
    is_transactional: bool,
    marker: Option<ControlRecordType>,
}

fn draw_writer(partition: &Partition, dice: &mut Dice) -> Writer {
    if dice.once_in(3) {
        let number = dice.below(TRANSACTIONAL);
        let id = ProducerId(FIRST_TRANSACTIONAL + number as i64);
        let is_open = partition.model.borrow().has_open(id);
        let ends = is_open && dice.once_in(2);
        let marker = ends.then(|| match dice.once_in(2) {
            true => ControlRecordType::Abort,
            false => ControlRecordType::Commit,
        });
        return Writer {
            producer: Some(ProducerSequence {
                id,
                // As in transactions of the second version: an epoch for each of them.
                epoch: ProducerEpoch(partition.transactions_ended as i16),
                base_sequence: if ends {
                    -1
                } else {
                    dice.below(1_000_000) as i32
                },
            }),
            is_transactional: true,
            marker,
        };
    }
    let producer = dice.below(PRODUCERS);
    Writer {
        producer: (producer > 0).then(|| ProducerSequence {
            id: ProducerId(producer as i64),
            epoch: ProducerEpoch(0),
            base_sequence: dice.below(1_000_000) as i32,
        }),
        is_transactional: false,
        marker: None,
    }
}

/// Appends one batch that the dice draw.
pub(crate) fn append(one: &mut Open<'_>, dice: &mut Dice) {
    let base = one.log.assigned_end();
    let writer = draw_writer(one.partition, dice);
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: base,
        leader_epoch: LeaderEpoch(one.partition.epoch),
        producer: writer.producer,
        is_transactional: writer.is_transactional,
        is_control: writer.marker.is_some(),
        ..BatchOptions::default()
    });
    let compacts = one.partition.policy.compacts();
    let records = match writer.marker {
        Some(marker) => {
            let (key, at) = (marker.key(), TimestampMs(timestamp(base.0)));
            let pushed = builder.push(at, Some(&key), Some(&MARKER_VALUE), &[]);
            pushed.expect("a marker");
            one.partition.transactions_ended += 1;
            1
        }
        None => {
            let records = 1 + dice.below(6);
            (0..records).for_each(|i| push(&mut builder, base.0 + i as i64, compacts, dice));
            records as i64
        }
    };
    let bytes = builder.build(Codec::None).expect("a small batch");
    let last = base.plus(records - 1);
    let times = (base.0..=last.0).map(timestamp);
    let max = times.clone().max().unwrap_or(0);
    let of_max = times.clone().position(|at| at == max).unwrap_or(0);
    let appended = Appended::of(bytes.clone());
    one.partition.model.borrow_mut().append(appended);
    one.log.append(AppendBatch {
        bytes,
        base_offset: base,
        last_offset: last,
        max_timestamp: TimestampMs(max),
        offset_of_max_timestamp: Offset(base.0 + of_max as i64),
        leader_epoch: LeaderEpoch(one.partition.epoch),
    });
}

/// Not in the order of offsets.
fn timestamp(offset: i64) -> i64 {
    1_000 + 10 * offset + (offset * 7_919) % 97
}

fn push(builder: &mut BatchBuilder, offset: i64, compacts: bool, dice: &mut Dice) {
    let value: Vec<u8> = (0..dice.below(300))
        .map(|_| dice.below(256) as u8)
        .collect();
    // Records without a key are not for logs that are compacted, and go there.
    let key = (compacts && !dice.once_in(30)).then(|| format!("key {}", dice.below(KEYS)));
    let is_tombstone = key.is_some() && dice.once_in(6);
    let value = (!is_tombstone).then_some(&value[..]);
    let key = key.as_ref().map(|key| key.as_bytes());
    let pushed = builder.push(TimestampMs(timestamp(offset)), key, value, &[]);
    pushed.expect("a small record");
}
