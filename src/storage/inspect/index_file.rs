//! `.index` and `.timeindex` files: every entry, and on demand each against the batches of its log.

use std::io;
use std::path::Path;

use bytes::Bytes;
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::{Offset, TimestampMs};

use super::{Item, Kind, Out};
use crate::claims::Claims;
use crate::index::{self, INDEX_ENTRY_BYTES, absolute};
use crate::scan::{BatchScan, Check, Step};
use crate::time_index::{self, TIME_INDEX_ENTRY_BYTES};

/// Larger index files are not looked into.
const INDEX_FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(super) async fn offsets(path: &Path, base: Offset, out: &mut Out<'_>) -> io::Result<()> {
    let Some(bytes) = load(path, Kind::OffsetIndex, INDEX_ENTRY_BYTES, out).await? else {
        return Ok(());
    };
    let mut entries: Vec<index::IndexEntry> = Vec::new();
    for (i, entry) in index::decode_entries(&bytes)
        .into_iter()
        .flatten()
        .enumerate()
    {
        if entry.relative_offset == 0 && i > 0 {
            out.note(
                path,
                Some((i * INDEX_ENTRY_BYTES) as u64),
                "zeros from here on".into(),
            );
            break;
        }
        let offset = absolute(base, entry.relative_offset);
        if !out.item(Item::IndexEntry {
            offset,
            position: entry.position,
        }) {
            return Ok(());
        }
        if entries.last().is_some_and(|last| {
            last.relative_offset >= entry.relative_offset || last.position >= entry.position
        }) {
            out.damage(path, Some((i * INDEX_ENTRY_BYTES) as u64), not_ascending(i));
            return Ok(());
        }
        entries.push(entry);
    }
    let claims = Claims::of_offsets(path.to_owned(), base, &entries);
    verify(path, base, claims, out).await
}

pub(super) async fn times(path: &Path, base: Offset, out: &mut Out<'_>) -> io::Result<()> {
    let Some(bytes) = load(path, Kind::TimeIndex, TIME_INDEX_ENTRY_BYTES, out).await? else {
        return Ok(());
    };
    let mut entries: Vec<time_index::TimeIndexEntry> = Vec::new();
    for (i, entry) in time_index::decode_entries(&bytes)
        .into_iter()
        .flatten()
        .enumerate()
    {
        if entry.relative_offset == 0 && entry.timestamp == 0 && i > 0 {
            out.note(
                path,
                Some((i * TIME_INDEX_ENTRY_BYTES) as u64),
                "zeros from here on".into(),
            );
            break;
        }
        let offset = absolute(base, entry.relative_offset);
        let timestamp = TimestampMs(entry.timestamp);
        if !out.item(Item::TimeIndexEntry { timestamp, offset }) {
            return Ok(());
        }
        if entries.last().is_some_and(|last| {
            last.timestamp >= entry.timestamp || last.relative_offset > entry.relative_offset
        }) {
            out.damage(
                path,
                Some((i * TIME_INDEX_ENTRY_BYTES) as u64),
                not_ascending(i),
            );
            return Ok(());
        }
        entries.push(entry);
    }
    let claims = Claims::of_times(path.to_owned(), base, &entries);
    verify(path, base, claims, out).await
}

fn not_ascending(entry: usize) -> String {
    format!("entry {entry} does not ascend from the one before it")
}

async fn load(
    path: &Path,
    kind: Kind,
    entry_bytes: usize,
    out: &mut Out<'_>,
) -> io::Result<Option<Bytes>> {
    let length = fs::metadata(path).await?.len;
    if !out.item(Item::File {
        path,
        kind,
        bytes: length,
    }) {
        return Ok(None);
    }
    let bytes = fs::read_file(path, INDEX_FILE_BYTES_MAX).await?;
    let whole = bytes.len() / entry_bytes * entry_bytes;
    if whole < bytes.len() {
        let text = format!("{} bytes are not whole entries", bytes.len());
        out.damage(path, Some(whole as u64), text);
    }
    Ok(Some(bytes.slice(..whole)))
}

/// Walks the batch headers of the segment beside the entries, which ascend as they do.
async fn verify(
    path: &Path,
    base: Offset,
    mut claims: Claims,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let log = path.with_extension("log");
    if !out.options.verify || claims.is_empty() {
        return Ok(());
    }
    if !fs::exists(&log).await? {
        out.damage(path, None, "there is no log that belongs to it".into());
        return Ok(());
    }
    let file = fs::open(&log, OpenMode::Read).await?;
    let length = fs::len(&file).await?;
    let mut scan = BatchScan::new(file, Check::Headers, base, 0, length);
    // What is wrong with the log is told where the log is inspected.
    while let Step::Batch(mark, _) = scan.next().await? {
        claims.on_batch(&mark);
    }
    for wrong in claims.all_wrong() {
        if !out.damage(path, Some(wrong.position), wrong.text) {
            break;
        }
    }
    Ok(())
}
