//! A `.log` file: every batch, and on demand every record.

use std::io;
use std::path::Path;

use thalweg_protocol::records::{BatchError, BatchHeader, DecompressError, records_of};
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;
use thalweg_types::{LeaderEpoch, Offset};

use super::{Item, Kind, Out};
use crate::scan::{BadBatch, BatchScan, Check, Step};

/// Larger batches are not read into memory; their checksum is checked all the same.
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Where a log stands after a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    next_offset: Offset,
    epoch: LeaderEpoch,
}

impl Default for Place {
    fn default() -> Self {
        Place {
            next_offset: Offset::ZERO,
            epoch: LeaderEpoch::NONE,
        }
    }
}

pub(super) async fn inspect(
    path: &Path,
    kind: Kind,
    base: Offset,
    before: Place,
    out: &mut Out<'_>,
) -> io::Result<Place> {
    let file = fs::open(path, OpenMode::Read).await?;
    let bytes = fs::len(&file).await?;
    if !out.item(Item::File { path, kind, bytes }) {
        return Ok(before);
    }
    let check = if out.options.verify {
        Check::Checksums
    } else {
        Check::Headers
    };
    let mut scan =
        BatchScan::new(file.clone(), check, base, 0, bytes).after(before.next_offset, before.epoch);
    loop {
        match scan.next().await? {
            Step::End => break,
            Step::Bad(reason) => {
                let at = Some(scan.position());
                let text = format!("{reason}; {} bytes are left", bytes - scan.position());
                match reason {
                    BadBatch::Zeros => out.note(path, at, text),
                    BadBatch::ShortHeader { .. }
                    | BadBatch::ShortBatch { .. }
                    | BadBatch::Header(_)
                    | BadBatch::Checksum
                    | BadBatch::OffsetRunsBack { .. }
                    | BadBatch::OffsetSpan { .. }
                    | BadBatch::EpochRunsBack { .. }
                    | BadBatch::Unreadable(_) => out.damage(path, at, text),
                };
                break;
            }
            Step::Batch(mark, header) => {
                let looked = out.item(Item::Batch {
                    position: mark.position,
                    header: &header,
                });
                if !looked {
                    break;
                }
                if out.options.verify || out.options.records {
                    look_into(path, &file, mark.position, &header, out).await?;
                }
                if out.stopped() {
                    break;
                }
            }
        }
    }
    Ok(Place {
        next_offset: scan.next_offset(),
        epoch: scan.epoch(),
    })
}

/// Reads one batch and walks its records.
pub(super) async fn look_into(
    path: &Path,
    file: &File,
    position: u64,
    header: &BatchHeader,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let at = Some(position);
    if header.total_bytes() > BATCH_BYTES_MAX {
        out.note(
            path,
            at,
            format!("{} bytes are too many to look into", header.total_bytes()),
        );
        return Ok(());
    }
    let bytes = fs::read_at(file, position, header.total_bytes()).await?;
    let records = match records_of(&bytes, DECOMPRESSED_BATCH_BYTES_MAX) {
        Ok(records) => records,
        // Another broker may have stored it: it is whole, and larger than this one would accept.
        Err(BatchError::Decompress(error @ DecompressError::TooLarge { .. })) => {
            out.note(path, at, format!("not looked into: {error}"));
            return Ok(());
        }
        Err(error) => {
            out.damage(path, at, format!("the records can not be read: {error}"));
            return Ok(());
        }
    };
    let mut count = 0;
    let mut last: Option<Offset> = None;
    for record in records.iter() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                out.damage(path, at, error.to_string());
                return Ok(());
            }
        };
        if out.options.records
            && !out.item(Item::Record {
                header,
                record: &record,
            })
        {
            return Ok(());
        }
        let in_order = last.is_none_or(|last| record.offset > last);
        let in_batch = record.offset >= header.base_offset && record.offset <= header.last_offset();
        if !in_order || !in_batch {
            out.damage(path, at, format!("a record has offset {}", record.offset));
            return Ok(());
        }
        last = Some(record.offset);
        count += 1;
    }
    if count != i64::from(header.record_count) {
        let said = header.record_count;
        out.damage(
            path,
            at,
            format!("the header says {said} records, {count} are there"),
        );
    }
    Ok(())
}
