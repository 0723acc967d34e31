//! What a crash has interrupted and the next start finishes before it looks at a log. A log that seems to begin later or to
//! end earlier for that must not be repaired as if the rest was lost.

use std::path::Path;

use thalweg_reactor::fs;

use super::{Finding, Repair};
use crate::compaction::recover::{damaged_swaps, finish_swaps, first_swap};
use crate::error::LogError;
use crate::listing::list;
use crate::name::{CleanStep, log_path};
use crate::next_segment;

/// In the order in which a start does it.
pub(super) async fn of(dir: &Path) -> Result<Vec<Finding>, LogError> {
    if !fs::exists(dir)
        .await
        .map_err(LogError::io("look for", dir))?
    {
        return Ok(Vec::new());
    }
    let listing = list(dir).await?;
    let from = next_segment::next_path(dir);
    let unnamed = next_segment::unnamed(dir, &listing).await?;
    let unnamed = unnamed.map(|base| Finding {
        damage: format!(
            "{} has batches from offset {base} on, and not the name of a segment, which a crash has kept from it",
            from.display()
        ),
        repair: Repair::GiveName {
            from,
            to: log_path(dir, base),
        },
    });
    let mut findings: Vec<Finding> = unnamed.into_iter().collect();
    let damaged = damaged_swaps(dir, &listing).await?;
    findings.extend(damaged.iter().map(|base| Finding {
        damage: format!(
            "{} is left from a compaction that a crash has interrupted, and damaged; what it was to replace is gone",
            CleanStep::Swap.of(&log_path(dir, *base)).display()
        ),
        repair: Repair::NameDamaged {
            dir: dir.to_owned(),
            base: *base,
        },
    }));
    findings.extend(first_swap(dir, &listing, &damaged).map(|path| Finding {
        damage: format!(
            "{} is left from a compaction that a crash has interrupted",
            path.display()
        ),
        repair: Repair::FinishSwap {
            dir: dir.to_owned(),
        },
    }));
    Ok(findings)
}

pub(super) async fn give_name(from: &Path, to: &Path) -> Result<(), LogError> {
    fs::rename(from, to)
        .await
        .map_err(LogError::io("rename", from))?;
    let dir = to.parent().unwrap_or(Path::new("."));
    fs::sync_dir(dir).await.map_err(LogError::io("sync", dir))
}

pub(super) async fn finish_swap(dir: &Path) -> Result<(), LogError> {
    finish_swaps(dir, list(dir).await?).await.map(drop)
}
