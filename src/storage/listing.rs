//! What is in a partition directory, told by names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thalweg_reactor::fs;
use thalweg_types::Offset;

use crate::error::LogError;
use crate::moving::LEAVING;
use crate::name::{CleanStep, FileKind, clean_step, deleted_log, file_kind};
use crate::quarantine::QUARANTINE;

/// The files of a partition directory that matter.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Base offsets of segments and the lengths of their `.log` files.
    pub(crate) logs: BTreeMap<Offset, u64>,
    /// Offsets of snapshots.
    pub(crate) snapshots: BTreeSet<Offset>,
    /// Segments that have an index of aborted transactions.
    pub(crate) txn_indexes: BTreeSet<Offset>,
    /// Segments that have another index file.
    pub(crate) indexed: BTreeSet<Offset>,
    /// Files to remove, in that order: of interrupted operations, and indexes without a log (ST-9, ST-14). A
    /// `.log.deleted` says of indexes that their `.log` is not lost, and goes after all of them.
    pub(crate) leftovers: Vec<String>,
    /// Length of the file of the next segment.
    pub(crate) next: Option<u64>,
    /// New files of compactions past their point of no return: segment and final suffix.
    pub(crate) swaps: Vec<(Offset, &'static str)>,
    /// The file of damaged ranges is there.
    pub(crate) has_quarantine: bool,
    /// Another folder was about to replace this one.
    pub(crate) is_leaving: bool,
    /// Segments that a compaction was writing.
    pub(crate) cleaned_logs: BTreeSet<Offset>,
}

impl Listing {
    /// Names of files of a compaction that was given up.
    pub(crate) fn left_by_compaction(&self) -> Vec<&str> {
        let left = self.leftovers.iter().map(String::as_str);
        left.filter(|name| clean_step(name).is_some()).collect()
    }

    /// Takes in the lengths of logs, by their base offset, and of the file of the next segment.
    async fn measure(
        &mut self,
        dir: &Path,
        files: Vec<(Option<Offset>, String)>,
    ) -> Result<(), LogError> {
        let (bases, names): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let lengths = fs::lengths(dir, names)
            .await
            .map_err(LogError::io("list", dir))?;
        for (base, length) in bases.into_iter().zip(lengths) {
            match (base, length) {
                (Some(base), Some(length)) => {
                    self.logs.insert(base, length);
                }
                (None, length) => self.next = length,
                // It vanished meanwhile.
                (Some(_), None) => {}
            }
        }
        Ok(())
    }
}

pub(crate) async fn list(dir: &Path) -> Result<Listing, LogError> {
    let entries = fs::list_dir(dir).await.map_err(LogError::io("list", dir))?;
    let mut listing = Listing::default();
    let mut measured = Vec::new();
    let mut indexes: BTreeSet<(Offset, String)> = BTreeSet::new();
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        // Names of ours are ASCII; anything else is left alone.
        let Some(name) = entry.name.to_str() else {
            continue;
        };
        match clean_step(name) {
            Some((CleanStep::Swap, base, suffix)) => {
                listing.swaps.push((base, suffix));
                continue;
            }
            Some((CleanStep::Cleaned, base, "log")) => {
                listing.cleaned_logs.insert(base);
            }
            Some((CleanStep::Cleaned, ..)) | None => {}
        }
        match file_kind(name) {
            FileKind::Log(base) => measured.push((Some(base), name.to_owned())),
            FileKind::Index(base) | FileKind::TimeIndex(base) => {
                indexes.insert((base, name.to_owned()));
                listing.indexed.insert(base);
            }
            FileKind::TxnIndex(base) => {
                indexes.insert((base, name.to_owned()));
                listing.txn_indexes.insert(base);
            }
            FileKind::Next => measured.push((None, name.to_owned())),
            FileKind::Leftover => listing.leftovers.push(name.to_owned()),
            FileKind::Snapshot(at) => {
                listing.snapshots.insert(at);
            }
            FileKind::Other => {
                listing.has_quarantine |= name == QUARANTINE;
                listing.is_leaving |= name == LEAVING;
            }
        }
    }
    listing.measure(dir, measured).await?;
    let orphans = indexes
        .into_iter()
        .filter(|(base, _)| !listing.logs.contains_key(base));
    listing.leftovers.extend(orphans.map(|(_, name)| name));
    let leftovers = &mut listing.leftovers;
    leftovers.sort_by_key(|name| deleted_log(name).is_some());
    Ok(listing)
}
