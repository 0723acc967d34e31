//! Finishes the swaps that a crash interrupted, ours and Kafka's, before a log is opened (ST-14).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::Offset;

use super::swap::settle_names;
use crate::error::LogError;
use crate::listing::{Listing, list};
use crate::name::{CleanStep, log_path};
use crate::removal::files_of;
use crate::scan::{BatchScan, Check, Step};

/// A new segment that waits for its name, if there is one but for these.
pub(crate) fn first_swap(dir: &Path, found: &Listing, but: &[Offset]) -> Option<PathBuf> {
    let logs = found.swaps.iter().filter(|(_, suffix)| *suffix == "log");
    let others = logs
        .map(|(base, _)| *base)
        .filter(|base| !but.contains(base));
    let first = others.min()?;
    Some(CleanStep::Swap.of(&log_path(dir, first)))
}

/// Where the new segments begin that wait for their names, ascending.
fn waiting(found: &Listing) -> Vec<Offset> {
    let named = found.swaps.iter().filter(|(base, suffix)| {
        // KAFKA-6264: such a segment is a part of a split that was not finished.
        *suffix == "log" && found.cleaned_logs.first().is_none_or(|first| base < first)
    });
    let mut bases: Vec<Offset> = named.map(|(base, _)| *base).collect();
    bases.sort_unstable();
    bases
}

/// The old segments are set aside from the first one on: with that, all of them are there.
fn is_nothing_gone(bases: &[Offset], found: &Listing) -> bool {
    bases.first().is_some_and(|b| found.logs.contains_key(b))
}

/// The new segments that are not whole and that no start can do without. Not among them is one that has an old one with
/// the same base beside it.
pub(crate) async fn damaged_swaps(dir: &Path, found: &Listing) -> Result<Vec<Offset>, LogError> {
    let bases = waiting(found);
    if is_nothing_gone(&bases, found) {
        return Ok(Vec::new());
    }
    let ends = ends_of(dir, &bases, found).await?;
    let damaged = ends.into_iter().filter(|(_, end)| end.is_none());
    let damaged = damaged.map(|(base, _)| base);
    Ok(damaged
        .filter(|base| !found.logs.contains_key(base))
        .collect())
}

/// Gives a new segment its name as it is. Old ones stay: what they have, too, is out of place in one of the two.
pub(crate) async fn name_damaged(dir: &Path, base: Offset) -> Result<(), LogError> {
    settle_names(dir, base).await
}

/// What is in the directory, once no swap is pending there.
///
/// # Errors
/// [`LogError::UnfinishedCompaction`] when a new segment, which was on the disk before it got its name,
/// is damaged; [`LogError::Io`].
pub(crate) async fn finish_swaps(dir: &Path, found: Listing) -> Result<Listing, LogError> {
    if found.swaps.is_empty() {
        return Ok(found);
    }
    let bases = waiting(&found);
    let mut finished = BTreeSet::new();
    for (base, end) in usable(dir, &bases, &found).await? {
        finish(dir, base, end, &found).await?;
        finished.insert(base);
    }
    let useless = found
        .swaps
        .iter()
        .filter(|(base, _)| !finished.contains(base));
    for (base, suffix) in useless {
        let path = CleanStep::Swap.of(&dir.join(format!("{:020}.{suffix}", base.0)));
        remove(&path).await?;
    }
    list(dir).await
}

/// The new segments at `bases`, which ascend, and where each ends. None of them when one is not whole and
/// nothing that they were to replace is gone: they serve as before.
async fn usable(
    dir: &Path,
    bases: &[Offset],
    found: &Listing,
) -> Result<Vec<(Offset, Offset)>, LogError> {
    let mut usable = Vec::with_capacity(bases.len());
    for (base, end) in ends_of(dir, bases, found).await? {
        match end {
            Some(end) => usable.push((base, end)),
            None if is_nothing_gone(bases, found) => {
                tracing::error!(dir = %dir.display(), base = base.0,
                    "a compacted segment is damaged: removed, since what it was to replace is still there");
                return Ok(Vec::new());
            }
            None => {
                let path = CleanStep::Swap.of(&log_path(dir, base));
                return Err(LogError::UnfinishedCompaction { path });
            }
        }
    }
    Ok(usable)
}

/// The new segments at `bases`, which ascend, and where each ends; `None` for one that is not whole.
async fn ends_of(
    dir: &Path,
    bases: &[Offset],
    found: &Listing,
) -> Result<Vec<(Offset, Option<Offset>)>, LogError> {
    let nothing_gone = is_nothing_gone(bases, found);
    let mut ends = Vec::with_capacity(bases.len());
    for (at, base) in bases.iter().enumerate() {
        let next = bases.get(at + 1);
        // It ends where the next of them begins; the last where the last of the old ones ended, which is
        // where the next segment begins.
        let fits = |end: &Offset| {
            next == Some(end) || found.logs.contains_key(end) || (next.is_none() && !nothing_gone)
        };
        let end = end_of(dir, *base).await?.filter(|end| end > base);
        ends.push((*base, end.filter(fits)));
    }
    Ok(ends)
}

async fn finish(dir: &Path, base: Offset, end: Offset, found: &Listing) -> Result<(), LogError> {
    let replaced: Vec<Offset> = found
        .logs
        .range(base.plus(1)..end)
        .map(|(old, _)| *old)
        .collect();
    tracing::info!(dir = %dir.display(), base = base.0, replaces = replaced.len() + 1,
        "finishing a compaction that was interrupted");
    for old in replaced {
        for path in files_of(dir, old) {
            remove(&path).await?;
        }
    }
    settle_names(dir, base).await
}

/// Where the batches of the new segment at `base` end; `None` when they are damaged.
async fn end_of(dir: &Path, base: Offset) -> Result<Option<Offset>, LogError> {
    let path = CleanStep::Swap.of(&log_path(dir, base));
    let io = |operation| LogError::io(operation, path.clone());
    let file = fs::open(&path, OpenMode::Read).await.map_err(io("open"))?;
    let bytes = fs::len(&file).await.map_err(io("stat"))?;
    let mut scan = BatchScan::new(file, Check::Checksums, base, 0, bytes);
    loop {
        match scan.next().await.map_err(io("read"))? {
            Step::Batch(..) => {}
            Step::End => return Ok(Some(scan.next_offset())),
            Step::Bad(reason) => {
                tracing::error!(path = %path.display(), position = scan.position(), %reason,
                    "a compacted segment is damaged");
                return Ok(None);
            }
        }
    }
}

async fn remove(path: &Path) -> Result<(), LogError> {
    match fs::unlink(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(LogError::io("remove", path)),
    }
}
