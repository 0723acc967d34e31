//! Files that are read whole: text, indexes of transactions, snapshots. What is wrong with one comes with what
//! the next start makes of that.

use std::io;
use std::path::Path;

use thalweg_reactor::fs;
use thalweg_replica::Producers;
use thalweg_types::{Offset, TimestampMs};

use super::{Item, Kind, Out, text_file};
use crate::checkpoint::{PartitionOffsets, parse_partition_offsets};
use crate::dir::{Checkpoint, broker_epoch_in};
use crate::listing;
use crate::name::log_path;
use crate::scan::{BatchScan, Check, Step};
use crate::txn_index;

const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Inspects a file of that kind whose name says `at`.
pub(super) async fn inspect(
    path: &Path,
    kind: Kind,
    at: Offset,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let bytes = fs::read_file(path, FILE_BYTES_MAX).await?;
    if !out.item(Item::File {
        path,
        kind,
        bytes: bytes.len() as u64,
    }) {
        return Ok(());
    }
    let wrong = match kind {
        Kind::Checkpoint => text_file::root_checkpoint(path, &bytes, out).err(),
        Kind::LeaderEpochs => text_file::leader_epochs(&bytes, out).err(),
        Kind::PartitionMetadata => text_file::partition_metadata(&bytes, out).err(),
        Kind::MetaProperties => text_file::meta_properties(&bytes, out).err(),
        Kind::Quarantine => text_file::quarantine(&bytes, out).err(),
        Kind::Marks => text_file::marks(&bytes, out).err(),
        Kind::PageCache => text_file::page_cache(&bytes, out).err(),
        Kind::CleanMarker => broker_epoch_in(&bytes)
            .is_none()
            .then(|| "it names no broker epoch".to_owned()),
        Kind::TxnIndex => txn_index::decode(&bytes, at).err().map(|e| e.to_string()),
        Kind::Snapshot => {
            let read = Producers::from_snapshot(&bytes, at, TimestampMs(0));
            read.err().map(|error| error.to_string())
        }
        Kind::Log | Kind::OffsetIndex | Kind::TimeIndex | Kind::NextSegment | Kind::Opaque => None,
    };
    if let Some(text) = wrong {
        let follows = what_follows(kind);
        out.damage(path, None, format!("{text}; {follows}"));
    } else if kind == Kind::Checkpoint
        && path.ends_with(Checkpoint::LogStart.file_name())
        && let Ok(starts) = parse_partition_offsets(&bytes)
    {
        check_starts(path, &starts, out).await?;
    }
    Ok(())
}

/// What the next start makes of a file that can not be read.
fn what_follows(kind: Kind) -> &'static str {
    match kind {
        Kind::Checkpoint => "the next start goes without it and checks more",
        Kind::LeaderEpochs => "the next start makes it anew from the batches",
        Kind::PartitionMetadata => "the next start writes it anew from the metadata",
        Kind::MetaProperties => "the next start refuses the directory: restore it from a backup",
        Kind::Quarantine => "the scrub finds again what is damaged",
        Kind::Marks => "a start after a kill checks all that is above the recovery points",
        Kind::PageCache => "a start after a kill takes more for torn",
        Kind::CleanMarker => "it counts as one all the same",
        Kind::TxnIndex => "the next start makes it anew from the log",
        Kind::Snapshot => "the next start takes an older one and the batches behind that",
        Kind::Log | Kind::OffsetIndex | Kind::TimeIndex | Kind::NextSegment | Kind::Opaque => "",
    }
}

/// A number in this file that was changed hides records or, beyond the end of its log, all of them: nothing
/// else would say so.
async fn check_starts(path: &Path, starts: &PartitionOffsets, out: &mut Out<'_>) -> io::Result<()> {
    let root = path.parent().unwrap_or(Path::new("."));
    for (name, start) in starts {
        let dir = root.join(name.to_string());
        if !fs::exists(&dir).await? {
            continue;
        }
        let logs = listing::list(&dir).await.map_err(io::Error::other)?.logs;
        let (Some((first, _)), Some((last, bytes))) =
            (logs.first_key_value(), logs.last_key_value())
        else {
            continue;
        };
        let file = fs::open(&log_path(&dir, *last), fs::OpenMode::Read).await?;
        let mut scan = BatchScan::new(file, Check::Headers, *last, 0, *bytes);
        while let Step::Batch(..) = scan.next().await? {}
        let end = scan.next_offset();
        if *start > end {
            let text = format!(
                "{name} begins at offset {start}, and its log ends at {end}: the next start empties it after \
                 a crash, and does not believe this after a clean stop; put the offset right (its first segment begins at {first}), or the file back from a backup"
            );
            out.damage(path, None, text);
        } else if start > first && !logs.contains_key(start) {
            let text = format!(
                "{name} begins at offset {start}, inside of a segment, as after DeleteRecords: what lies \
                 below, from {first} on, is not served"
            );
            out.note(path, None, text);
        }
    }
    Ok(())
}
