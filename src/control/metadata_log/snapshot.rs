//! Kafka's snapshots of the metadata (KIP-630): `OFFSET-EPOCH.checkpoint` beside the log has all that counts below that
//! offset, as batches of records between a header and a footer.
//!
//! They are read where the log begins above offset 0, because Kafka has cut off what a snapshot has. None is written.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use thalweg_metadata::Record;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_reactor::fs;
use thalweg_types::{LeaderEpoch, Offset};

use super::{MetadataLogError, read_batch};

/// A larger one is not read.
const SNAPSHOT_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// What one has.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The log goes on here.
    pub end: Offset,
    /// Of the last record before.
    pub epoch: LeaderEpoch,
    /// From nothing to there.
    pub records: Vec<Record>,
}

/// The newest whole snapshot in `dir`, for a log that begins at `start` and ends at `end`.
///
/// # Errors
/// [`MetadataLogError::Shortened`] when one tells more than the log has, [`MetadataLogError::BehindSnapshot`] when none
/// reaches it, and what is wrong with its records.
pub(super) async fn newest(
    dir: &Path,
    (start, end): (Offset, Offset),
) -> Result<Snapshot, MetadataLogError> {
    for (upto, epoch, path) in found(dir, start).await? {
        if upto > end {
            return Err(MetadataLogError::Shortened {
                path: dir.to_owned(),
                end,
                known_end: upto,
            });
        }
        match read(&path, upto).await {
            Ok(records) => {
                return Ok(Snapshot {
                    end: upto,
                    epoch,
                    records,
                });
            }
            // Not for a damaged one: the one before it and what the log has from there say the same.
            Err(error @ MetadataLogError::Record { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "not a whole snapshot: trying the one before");
            }
        }
    }
    Err(MetadataLogError::BehindSnapshot { start })
}

/// Those that reach `start`, the newest first.
async fn found(
    dir: &Path,
    start: Offset,
) -> Result<Vec<(Offset, LeaderEpoch, PathBuf)>, MetadataLogError> {
    let entries = fs::list_dir(dir).await;
    let entries = entries.map_err(|source| MetadataLogError::Io {
        offset: start,
        source,
    })?;
    let named = entries.iter().filter_map(|entry| {
        let (upto, epoch) = id_of(entry.name.to_str()?)?;
        Some((upto, epoch, dir.join(&entry.name)))
    });
    let mut snapshots: Vec<_> = named.filter(|(upto, ..)| *upto >= start).collect();
    snapshots.sort_by_key(|(upto, epoch, _)| Reverse((*upto, *epoch)));
    Ok(snapshots)
}

/// End and epoch in the name of a snapshot: 20 and 10 digits.
fn id_of(name: &str) -> Option<(Offset, LeaderEpoch)> {
    let (end, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(end, 20) || !digits(epoch, 10) {
        return None;
    }
    Some((Offset(end.parse().ok()?), LeaderEpoch(epoch.parse().ok()?)))
}

async fn read(path: &Path, upto: Offset) -> Result<Vec<Record>, MetadataLogError> {
    let bytes = fs::read_file(path, SNAPSHOT_BYTES_MAX).await;
    let bytes = bytes.map_err(|source| MetadataLogError::Io {
        offset: upto,
        source,
    })?;
    let mut rest: &[u8] = &bytes;
    let mut records = Vec::new();
    let (mut first, mut last) = (None, None);
    let mut next = Offset::ZERO;
    while !rest.is_empty() {
        // Its batches are numbered on their own.
        let batch = read_batch(rest, next, Offset::ZERO, &mut records)?;
        next = batch.header.last_offset().plus(1);
        last = batch.controls.last().copied();
        first = first.or(batch.controls.first().copied());
        rest = rest.get(batch.header.total_bytes()..).unwrap_or_default();
    }
    let is_whole = first == Some(ControlRecordType::SnapshotHeader)
        && last == Some(ControlRecordType::SnapshotFooter);
    match is_whole {
        true => Ok(records),
        false => Err(MetadataLogError::CutSnapshot),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;

    use thalweg_metadata::Record;
    use thalweg_protocol::messages::NoOpRecord;
    use thalweg_protocol::records::control::ControlRecordType;
    use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec};
    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
    use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

    use super::super::MetadataLogError;
    use super::{Snapshot, id_of, newest};

    const START: Offset = Offset(30);
    const END: Offset = Offset(50);

    fn run<F: Future<Output = ()>>(test: impl FnOnce(std::path::PathBuf) -> F) {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Runtime::new(RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        });
        let runtime = runtime.expect("a runtime");
        runtime.block_on(test(dir.path().to_owned()));
    }

    fn control(at: i64, kind: ControlRecordType) -> Vec<u8> {
        let mut batch = BatchBuilder::new(BatchOptions {
            base_offset: Offset(at),
            is_control: true,
            ..BatchOptions::default()
        });
        let pushed = batch.push(TimestampMs(0), Some(&kind.key()), Some(&[0; 3]), &[]);
        pushed.expect("pushed");
        batch.build(Codec::None).expect("built").to_vec()
    }

    /// With `records` of them; that is how the tests tell one from another.
    fn snapshot(records: i64) -> Vec<u8> {
        let mut batch = BatchBuilder::new(BatchOptions {
            base_offset: Offset(1),
            ..BatchOptions::default()
        });
        let value = Record::from(NoOpRecord::default())
            .encode()
            .expect("encoded");
        for _ in 0..records {
            let pushed = batch.push(TimestampMs(0), None, Some(&value), &[]);
            pushed.expect("pushed");
        }
        [
            control(0, ControlRecordType::SnapshotHeader),
            batch.build(Codec::None).expect("built").to_vec(),
            control(1 + records, ControlRecordType::SnapshotFooter),
        ]
        .concat()
    }

    fn write(dir: &Path, end: i64, bytes: &[u8]) {
        let name = format!("{end:020}-{:010}.checkpoint", 7);
        std::fs::write(dir.join(name), bytes).expect("written");
    }

    async fn found(dir: &Path) -> Result<Snapshot, MetadataLogError> {
        newest(dir, (START, END)).await
    }

    #[test]
    fn the_newest_is_read() {
        run(async |dir| {
            write(&dir, 29, &snapshot(1));
            write(&dir, 30, &snapshot(2));
            write(&dir, 50, &snapshot(3));
            std::fs::write(
                dir.join("00000000000000000049-0000000007.checkpoint.part"),
                "",
            )
            .expect("written");
            let found = found(&dir).await.expect("whole");
            assert_eq!((found.end, found.epoch), (END, LeaderEpoch(7)));
            assert_eq!(found.records.len(), 3);
        });
    }

    /// A flipped bit at any place, or any end missing: the one before it counts.
    #[test]
    fn st_12_a_damaged_one_is_passed_over() {
        run(async |dir| {
            write(&dir, 30, &snapshot(2));
            let whole = snapshot(3);
            for len in 0..whole.len() {
                write(&dir, 50, &whole[..len]);
                let found = found(&dir).await.expect("the older one");
                assert_eq!((found.end, found.records.len()), (START, 2), "{len}");
            }
            for at in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[at] ^= 1;
                write(&dir, 50, &flipped);
                // The place of a batch and its epoch are not covered by its checksum.
                let found = found(&dir).await.expect("one of both");
                let expected = if found.end == END { 3 } else { 2 };
                assert_eq!(found.records.len(), expected, "{at}");
            }
        });
    }

    #[test]
    fn without_a_whole_one_the_log_can_not_be_read() {
        run(async |dir| {
            write(&dir, 29, &snapshot(1));
            write(&dir, 40, b"no snapshot");
            let error = found(&dir).await.expect_err("none");
            assert!(
                matches!(error, MetadataLogError::BehindSnapshot { start: START }),
                "{error}"
            );
        });
    }

    /// RP-59: the log has lost what the snapshot was made of.
    #[test]
    fn rp_59_a_log_that_ends_before_its_snapshot_is_refused() {
        run(async |dir| {
            write(&dir, 51, &snapshot(1));
            let error = found(&dir).await.expect_err("too short");
            let wanted = Offset(51);
            assert!(
                matches!(error, MetadataLogError::Shortened { known_end, .. } if known_end == wanted),
                "{error}"
            );
        });
    }

    #[test]
    fn other_names_are_no_snapshots() {
        let good = "00000000000000000012-0000000003.checkpoint";
        assert_eq!(id_of(good), Some((Offset(12), LeaderEpoch(3))));
        for bad in [
            "bootstrap.checkpoint",
            "leader-epoch-checkpoint",
            "00000000000000000012-0000000003.checkpoint.deleted",
            "+0000000000000000012-0000000003.checkpoint",
            "99999999999999999999-0000000003.checkpoint",
            "00000000000000000012-9999999999.checkpoint",
            "12-3.checkpoint",
        ] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
    }
}
