//! Producers of a partition from and to the disk: which snapshot is loaded, what is replayed.
//!
//! The rules are those of [`Producers`]; the files are the log's. This ties them together at the three
//! moments that matter: opening, rolling, stopping.

use thalweg_protocol::records::control::ControlRecordType;
use thalweg_reactor::time;
use thalweg_replica::{EndedTransaction, Producers};
use thalweg_storage::{AbortedTxn, Log, LogError, ReadError, RecoveryReport};
use thalweg_types::{Offset, TimestampMs};

/// What an opened log says of its producers: the newest snapshot that can be believed, and the batches
/// behind it; all batches when there is none (ST-10, ST-32). With it, the offset of that snapshot.
///
/// Where the log has to be told again which transactions were aborted, the snapshot is one from before
/// that, and the batches behind it tell (RP-75).
///
/// # Errors
/// A batch header that has to be replayed can not be read. Below the log's start that is none: its producers
/// are not known then, and may go on where they are (RP-67).
pub(crate) async fn load(
    log: &Log,
    report: &RecoveryReport,
) -> Result<(Producers, Option<Offset>), ReadError> {
    let now = TimestampMs(time::unix_ms());
    let early = report.transactions_from.unwrap_or(Offset(i64::MAX));
    let found = load_newest(log, report, early, now).await;
    let is_late = found.is_none() && report.snapshots.iter().any(|at| *at > early);
    let at = found.as_ref().map(|(_, at)| *at);
    let producers = found.map(|(producers, _)| producers).unwrap_or_default();
    let start = log.start_offset();
    match replay(log, at.unwrap_or_default(), producers, now).await {
        Err(ReadError::Damaged { path, offset, .. }) if offset < start => {
            tracing::warn!(path = %path.display(), %offset, %start,
                "damaged below the log's start: producers are known from there on only");
            let producers = replay(log, start, Producers::default(), now).await?;
            Ok((producers, None))
        }
        // The transactions are told. What lies below the first segment only a later snapshot knows.
        replayed if is_late => {
            let told = replayed?;
            match load_newest(log, report, Offset(i64::MAX), now).await {
                Some((later, at)) => Ok((replay(log, at, later, now).await?, Some(at))),
                None => Ok((told, None)),
            }
        }
        replayed => Ok((replayed?, at)),
    }
}

/// The newest snapshot up to `most` that can be believed.
async fn load_newest(
    log: &Log,
    report: &RecoveryReport,
    most: Offset,
    now: TimestampMs,
) -> Option<(Producers, Offset)> {
    for at in report.snapshots.iter().filter(|at| **at <= most) {
        if let Some(producers) = load_one(log, *at, now).await {
            return Some((producers, *at));
        }
    }
    None
}

/// Follows the batches from `from` on, and tells the log which transactions were aborted.
async fn replay(
    log: &Log,
    from: Offset,
    mut producers: Producers,
    now: TimestampMs,
) -> Result<Producers, ReadError> {
    let mut aborted = Vec::new();
    log.walk_headers(from, |header, marker| {
        let ended = producers.replay(header, now);
        if marker == Some(ControlRecordType::Abort) {
            aborted.extend(ended.map(of_log));
        }
        // All that this broker has on its disk when it starts is committed.
        producers.on_committed(header.last_offset().plus(1));
    })
    .await?;
    log.note_aborted(&aborted).await?;
    Ok(producers)
}

fn of_log(ended: EndedTransaction) -> AbortedTxn {
    AbortedTxn {
        producer_id: ended.producer_id,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: ended.last_stable_offset,
    }
}

async fn load_one(log: &Log, at: Offset, now: TimestampMs) -> Option<Producers> {
    let bytes = match log.load_snapshot(at).await {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!(partition = %log.name(), %error, "an older producer snapshot is used");
            return None;
        }
    };
    match Producers::from_snapshot(&bytes, at, now) {
        Ok(producers) => Some(producers),
        Err(error) => {
            tracing::warn!(partition = %log.name(), at = at.0, %error,
                "dropping a damaged producer snapshot; an older one is used");
            if let Err(error) = log.remove_snapshot(at).await {
                tracing::warn!(partition = %log.name(), %error, "it stays");
            }
            None
        }
    }
}

/// Writes a snapshot. Without it the next start replays more, no more than that, as long as the batches are there.
///
/// # Errors
/// See [`LogError`]; they are said.
pub(crate) async fn store(log: &Log, at: Offset, bytes: Vec<u8>) -> Result<(), LogError> {
    said(log, at, log.store_snapshot(at, bytes).await)
}

/// What came of storing a snapshot at `at`, with a warning where it failed.
pub(crate) fn said(log: &Log, at: Offset, stored: Result<(), LogError>) -> Result<(), LogError> {
    if let Err(error) = &stored {
        tracing::warn!(partition = %log.name(), at = at.0, %error, "no producer snapshot written");
    }
    stored
}
