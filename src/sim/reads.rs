//! Reading a log as its users do: all of it, what was committed, and the names of its files.

use std::collections::HashSet;
use std::path::Path;

use thalweg_protocol::records::control::ControlRecordType;
use thalweg_reactor::fs;
use thalweg_replica::Producers;
use thalweg_storage::{AbortedTxn, Log, RecoveryReport};
use thalweg_types::{Offset, TimestampMs};

use crate::content::{self, Batch};
use crate::model::{self, Found};

/// Bytes of one read of a log that is checked.
pub(crate) const READ_BYTES: u32 = 1_500;
/// What only an operation that was interrupted leaves behind.
const LEFTOVERS: [&str; 4] = [".deleted", ".cleaned", ".swap", "-delete"];

/// Every byte of the log below `end`.
pub(crate) async fn read_range(log: &Log, end: Offset) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut at = log.start_offset();
    while at < end {
        let plan = log.read_plan(at, end, READ_BYTES).await.map_err(text)?;
        if plan.is_empty() {
            break;
        }
        if plan.next_offset <= at {
            return Err(format!("nothing is read at {at}"));
        }
        let read = fs::read_at(&plan.file, plan.position, plan.len as usize).await;
        bytes.extend_from_slice(&read.map_err(text)?);
        at = plan.next_offset;
    }
    Ok(bytes)
}

/// All of an opened log.
pub(crate) async fn read_all(log: &Log, report: &RecoveryReport) -> Result<Found, String> {
    let end = log.written_end();
    let bytes = read_range(log, end).await?;
    Ok(Found {
        start: log.start_offset().0,
        end: end.0,
        durable: log.durable_end().0,
        epochs: report.epochs.entries().to_vec(),
        producers: producers_of(log, report).await?,
        bytes,
    })
}

/// As the owner of a partition does when it opens one: a snapshot, the batches behind it, and the aborted
/// transactions that a crash may have taken from the indexes.
async fn producers_of(log: &Log, report: &RecoveryReport) -> Result<Producers, String> {
    let early = report.transactions_from.unwrap_or(Offset(i64::MAX));
    let found = newest(log, report, early).await?;
    let is_late = found.is_none() && report.snapshots.iter().any(|at| *at > early);
    let (producers, from) = found.unwrap_or_default();
    let told = replay(log, producers, from).await?;
    match newest(log, report, Offset(i64::MAX)).await? {
        Some((later, at)) if is_late => replay(log, later, at).await,
        Some(_) | None => Ok(told),
    }
}

/// The newest snapshot up to `most` that is whole.
async fn newest(
    log: &Log,
    report: &RecoveryReport,
    most: Offset,
) -> Result<Option<(Producers, Offset)>, String> {
    for at in report.snapshots.iter().filter(|at| **at <= most) {
        let bytes = log.load_snapshot(*at).await.map_err(text)?;
        if let Ok(producers) = Producers::from_snapshot(&bytes, *at, TimestampMs(0)) {
            return Ok(Some((producers, *at)));
        }
    }
    Ok(None)
}

async fn replay(log: &Log, mut producers: Producers, from: Offset) -> Result<Producers, String> {
    let mut aborted: Vec<AbortedTxn> = Vec::new();
    log.walk_headers(from, |header, marker| {
        aborted.extend(model::follow(&mut producers, header, marker));
    })
    .await
    .map_err(text)?;
    log.note_aborted(&aborted).await.map_err(text)?;
    Ok(producers)
}

/// Offsets of the records that a client gets that reads committed data only, as Kafka's does it: the broker
/// says which transactions were aborted, and the client leaves their batches out.
pub(crate) async fn committed(log: &Log, stable: Offset) -> Result<Vec<i64>, String> {
    let start = log.start_offset();
    let bytes = read_range(log, stable).await?;
    let mut aborted = log.aborted_in(start, stable).await.map_err(text)?;
    aborted.sort_by_key(|transaction| transaction.first_offset);
    let mut ahead = aborted.into_iter().peekable();
    let mut inside = HashSet::new();
    let mut offsets = Vec::new();
    for batch in content::parse(&bytes)? {
        while let Some(next) = ahead.next_if(|next| next.first_offset.0 < batch.end()) {
            inside.insert(next.producer_id);
        }
        let producer = batch.header.producer_id;
        if batch.header.is_control() {
            if batch.marker() == Some(ControlRecordType::Abort) {
                inside.remove(&producer);
            }
        } else if !(batch.header.is_transactional() && inside.contains(&producer)) {
            offsets.extend(offsets_of(&batch));
        }
    }
    Ok(offsets)
}

fn offsets_of(batch: &Batch) -> impl Iterator<Item = i64> {
    batch.entries.iter().map(|entry| entry.offset)
}

/// Nothing is left in a directory that was opened of what was interrupted.
///
/// # Errors
/// The name of what is.
pub(crate) fn check_names(dir: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(dir).map_err(text)?;
    for entry in entries {
        let name = entry.map_err(text)?.file_name();
        let name = name.to_string_lossy();
        if LEFTOVERS.iter().any(|ending| name.ends_with(ending)) {
            return Err(format!("{} is left in {}", name, dir.display()));
        }
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
