//! The snapshot of producers at the begin of a segment.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_reactor::time;
use thalweg_replica::{Producers, SnapshotError};
use thalweg_types::{Offset, TimestampMs};

use super::Gentle;
use crate::name::{log_path, snapshot_path};
use crate::scan::{BatchScan, Check, Step};
use crate::snapshots::SNAPSHOT_BYTES_MAX;

/// The segment before the one that is looked at.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) base: Offset,
    /// Bytes of its batches.
    pub(super) bytes: u64,
}

/// A snapshot that no start would take.
pub(super) struct BadSnapshot {
    pub(super) path: PathBuf,
    pub(super) reason: SnapshotError,
    /// What it has to say. `None` when the segment before it does not tell.
    pub(super) anew: Option<Vec<u8>>,
}

/// Checks the one at `base`, if there is one.
pub(super) async fn check(
    dir: &Path,
    base: Offset,
    before: Option<Before>,
    gentle: Option<Gentle>,
) -> Option<BadSnapshot> {
    let path = snapshot_path(dir, base);
    let reason = match read(&path, base).await {
        Ok(read) => read.err()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "a producer snapshot can not be read");
            return None;
        }
    };
    let anew = match before {
        Some(before) => made_anew(dir, before, gentle).await,
        None => Ok(None),
    };
    let anew = anew.unwrap_or_else(|error| {
        tracing::debug!(path = %path.display(), %error, "not made anew");
        None
    });
    Some(BadSnapshot { path, reason, anew })
}

async fn read(path: &Path, at: Offset) -> io::Result<Result<Producers, SnapshotError>> {
    let bytes = fs::read_file(path, SNAPSHOT_BYTES_MAX).await?;
    Ok(Producers::from_snapshot(&bytes, at, now()))
}

fn now() -> TimestampMs {
    TimestampMs(time::unix_ms())
}

/// From the snapshot at the begin of the segment before, and all its batches, as a start would do it.
async fn made_anew(
    dir: &Path,
    before: Before,
    gentle: Option<Gentle>,
) -> io::Result<Option<Vec<u8>>> {
    let mut producers = match before.base {
        Offset::ZERO => Producers::default(),
        base => match read(&snapshot_path(dir, base), base).await? {
            Ok(producers) => producers,
            Err(_) => return Ok(None),
        },
    };
    let file = fs::open(&log_path(dir, before.base), OpenMode::Read).await?;
    let scan = BatchScan::new(file, Check::Checksums, before.base, 0, before.bytes);
    let mut scan = scan.gently(gentle);
    loop {
        match scan.next().await? {
            Step::Batch(_, header) => {
                producers.replay(&header, now());
                producers.on_committed(header.last_offset().plus(1));
            }
            Step::End => return Ok(Some(producers.to_snapshot())),
            Step::Bad(_) => return Ok(None),
        }
    }
}
