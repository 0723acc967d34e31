//! Recovery points that name topics by their ids.
//!
//! Kafka's checkpoint names them by topic, and a topic may be deleted and made again under its name: what
//! an entry that outlived its topic says must not condemn the new log, and what a true one says must not be
//! taken for that (R7, ST-12). So they are kept twice, and a recovery point is believed as far as both
//! files have it.
//!
//! They also tell what a hole between two segments is. Our compaction leaves none; Kafka's does, and says how far it came
//! only when its round has ended. Where both files have the same recovery point, nobody but us has written
//! above it: what is missing there is lost ([`MAY_HAVE_HOLES`] is the exception).
//!
//! One line with the CRC-32C of all that follows, in 8 hexadecimal digits, then one line
//! `topic-id partition offset` per partition.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::{Offset, PartitionIndex, TopicPartition};

use crate::checked_text::{seal, unseal};
use crate::error::LogError;

/// Name of the file in the root of a log directory.
const FILE: &str = "thalweg-recovery-points";
/// A larger one is not read.
const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Stands for the recovery point of a log above which a compaction of Kafka's may have left holes: we have not opened it
/// yet, or have found such. The lower one of both files counts, so that it is the one of Kafka's.
pub const MAY_HAVE_HOLES: Offset = Offset(i64::MAX);

/// Recovery points by topic id.
pub type RecoveryPoints = BTreeMap<TopicPartition, Offset>;

/// `None` when there is no file, or none that can be believed: then Kafka's is all there is.
pub(crate) async fn load(dir: &Path) -> io::Result<Option<RecoveryPoints>> {
    let path = path(dir);
    let bytes = match fs::read_file(&path, FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let points = parse(&bytes);
    if points.is_none() {
        tracing::warn!(path = %path.display(), "it is damaged; going by the recovery points of Kafka's checkpoint");
    }
    Ok(points)
}

/// Replaces the file, durably. `points` is all of it.
pub(crate) async fn store(dir: &Path, points: &RecoveryPoints) -> Result<(), LogError> {
    let path = path(dir);
    fs::write_file_atomically(&path, Bytes::from(format(points)))
        .await
        .map_err(LogError::io("write", &path))
}

fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

fn format(points: &RecoveryPoints) -> String {
    let mut entries = String::new();
    for (id, offset) in points {
        let _ = writeln!(entries, "{} {} {offset}", id.topic, id.partition);
    }
    seal(&entries)
}

fn parse(bytes: &[u8]) -> Option<RecoveryPoints> {
    let entry = |line: &str| {
        let mut fields = line.split(' ');
        let id = TopicPartition {
            topic: fields.next()?.parse().ok()?,
            partition: PartitionIndex(fields.next()?.parse().ok()?),
        };
        let offset = Offset(fields.next()?.parse().ok()?);
        (offset >= Offset::ZERO && fields.next().is_none()).then_some((id, offset))
    };
    unseal(bytes)?.lines().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_types::{Offset, PartitionIndex, TopicPartition, Uuid};

    use super::{RecoveryPoints, format, parse};

    #[test]
    fn st_12_no_flipped_bit_and_no_cut_is_taken_for_recovery_points() {
        let id = |topic, partition| TopicPartition {
            topic: Uuid([topic; 16]),
            partition: PartitionIndex(partition),
        };
        let points = RecoveryPoints::from([(id(1, 0), Offset(5)), (id(2, 7), Offset(i64::MAX))]);
        let text = format(&points);
        assert_eq!(parse(text.as_bytes()), Some(points));
        let none = RecoveryPoints::new();
        assert_eq!(parse(format(&none).as_bytes()), Some(none));
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut flipped = text.clone().into_bytes();
                flipped[at] ^= 1 << bit;
                assert_eq!(parse(&flipped), None, "bit {bit} of byte {at}");
            }
        }
    }
}
