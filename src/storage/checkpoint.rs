//! Kafka's root checkpoints: `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
//! `replication-offset-checkpoint`.
//!
//! All have one shape: a version line (`0`), a line with the number of entries, then one line
//! `topic partition offset` per entry. This module reads and writes text only; files are written
//! atomically by its callers (R5).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use thalweg_types::Offset;

use crate::name::PartitionName;

/// The version line that Kafka writes and accepts.
const VERSION: &str = "0";

/// Offsets of partitions, as one of the root checkpoints holds them.
pub type PartitionOffsets = BTreeMap<PartitionName, Offset>;

/// A checkpoint file is not in Kafka's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Not UTF-8, or fewer than two lines.
    #[error("it has no version line and count line")]
    Header,
    /// Another version than 0.
    #[error("version {0:?} is not known")]
    Version(String),
    /// The number of entries differs from what the count line says.
    #[error("its count line says {said:?}, it has {found} entries")]
    Count {
        /// The count line.
        said: String,
        /// Entry lines that follow it.
        found: usize,
    },
    /// An entry line that can not be read.
    #[error("line {line} is not an entry: {text:?}")]
    Entry {
        /// Line number from 1.
        line: usize,
        /// The line, cut to 100 characters.
        text: String,
    },
}

/// Reads a root checkpoint.
///
/// # Errors
/// [`CheckpointError`] at the first thing that is wrong; callers then use R5's defaults.
pub fn parse_partition_offsets(bytes: &[u8]) -> Result<PartitionOffsets, CheckpointError> {
    let mut offsets = BTreeMap::new();
    for (line, text) in entry_lines(bytes)? {
        let entry = (|| {
            let mut fields = text.split(' ');
            let (topic, partition, offset) = (fields.next()?, fields.next()?, fields.next()?);
            let name: PartitionName = format!("{topic}-{partition}").parse().ok()?;
            let offset = offset.parse::<i64>().ok().filter(|offset| *offset >= 0)?;
            // `a -1` must not pass for partition 1 of `a-`.
            let is_whole = name.topic == topic && fields.next().is_none();
            is_whole.then_some((name, Offset(offset)))
        })();
        let (name, offset) = entry.ok_or_else(|| bad_entry(line, text))?;
        offsets.insert(name, offset);
    }
    Ok(offsets)
}

/// Text of a root checkpoint.
#[must_use]
pub fn format_partition_offsets(offsets: &PartitionOffsets) -> String {
    let mut text = format!("{VERSION}\n{}\n", offsets.len());
    for (name, offset) in offsets {
        let _ = writeln!(text, "{} {} {offset}", name.topic, name.partition);
    }
    text
}

fn entry_lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, CheckpointError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CheckpointError::Header)?;
    let mut lines = text.lines();
    let version = lines.next().ok_or(CheckpointError::Header)?;
    if version != VERSION {
        return Err(CheckpointError::Version(cut(version)));
    }
    let said = lines.next().ok_or(CheckpointError::Header)?;
    let entries: Vec<(usize, &str)> = lines
        .enumerate()
        .map(|(i, line)| (i + 3, line))
        .filter(|(_, l)| !l.is_empty())
        .collect();
    if said.parse() != Ok(entries.len()) {
        return Err(CheckpointError::Count {
            said: cut(said),
            found: entries.len(),
        });
    }
    Ok(entries)
}

fn bad_entry(line: usize, text: &str) -> CheckpointError {
    CheckpointError::Entry {
        line,
        text: cut(text),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::{format_partition_offsets, parse_partition_offsets};
    use crate::name::PartitionName;
    use thalweg_types::Offset;

    #[test]
    fn root_checkpoints_have_kafkas_text_form() {
        let offsets = [
            (PartitionName::new("a", 0), Offset(5)),
            (PartitionName::new("b-c", 12), Offset(i64::MAX)),
        ]
        .into_iter()
        .collect();
        let text = format_partition_offsets(&offsets);
        assert_eq!(text, "0\n2\na 0 5\nb-c 12 9223372036854775807\n");
        assert_eq!(parse_partition_offsets(text.as_bytes()), Ok(offsets));
    }

    #[test]
    fn st_12_damaged_checkpoints_are_refused() {
        for bad in [
            &b""[..],
            b"0",
            b"\xff\xfe",
            b"1\n0\n",
            b"0\nx\n",
            b"0\n2\na 0 5\n",
            b"0\n1\na 0\n",
            b"0\n1\na 0 5 6\n",
            b"0\n1\na 0 -5\n",
            b"0\n1\na -1 5\n",
            b"0\n1\na/.. 1 5\n",
            b"0\n18446744073709551616\n",
        ] {
            assert!(
                parse_partition_offsets(bad).is_err(),
                "{}",
                String::from_utf8_lossy(bad)
            );
        }
    }

    #[test]
    fn st_12_no_bytes_make_it_panic() {
        let good = b"0\n2\na 0 5\nb 12 77\n";
        for at in 0..good.len() {
            for byte in [0u8, b' ', b'\n', b'9', b'-', 0xff] {
                let mut bytes = good.to_vec();
                bytes[at] = byte;
                let _ = parse_partition_offsets(&bytes);
                let _ = parse_partition_offsets(&bytes[..at]);
            }
        }
    }
}
