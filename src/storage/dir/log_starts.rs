//! Of which topics the log starts are.
//!
//! Kafka's checkpoint names a topic, and another may be made under its name: the start of the one that is gone
//! would empty its log or have it refused (ST-13). So a second file says of which topic id each entry is,
//! and which offset it had. An entry of another topic is not believed. One with another offset was
//! written since by somebody who does not know the second file, and is believed like all where there is none.
//!
//! One line with the CRC-32C of all that follows, in 8 hexadecimal digits, then one line `topic-id topic
//! partition offset` per entry.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::{Offset, TopicId};

use super::{Checkpoint, LogDir, ROOT_FILE_BYTES_MAX};
use crate::checked_text::{seal, unseal};
use crate::checkpoint::PartitionOffsets;
use crate::error::LogError;
use crate::name::PartitionName;

/// Name of the file in the root of a log directory.
const FILE: &str = "thalweg-log-start-topics";

/// The topics that entries of the checkpoint of log starts are of, where that is known.
pub type StartTopics = BTreeMap<PartitionName, TopicId>;

/// Of `starts`, which are those of Kafka's checkpoint.
pub(super) async fn load(dir: &Path, starts: &PartitionOffsets) -> io::Result<StartTopics> {
    let path = dir.join(FILE);
    let bytes = match fs::read_file(&path, ROOT_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StartTopics::new()),
        other => other?,
    };
    Ok(parse(&bytes, starts).unwrap_or_else(|| {
        tracing::warn!(path = %path.display(), "it is damaged; believing all log starts of Kafka's checkpoint");
        StartTopics::new()
    }))
}

fn format(starts: &PartitionOffsets, topics: &StartTopics) -> String {
    let mut entries = String::new();
    for (name, start) in starts {
        if let Some(id) = topics.get(name) {
            let _ = writeln!(entries, "{id} {} {} {start}", name.topic, name.partition);
        }
    }
    seal(&entries)
}

fn parse(bytes: &[u8], starts: &PartitionOffsets) -> Option<StartTopics> {
    let entry = |line: &str| {
        let mut fields = line.split(' ');
        let id: TopicId = fields.next()?.parse().ok()?;
        let (topic, partition) = (fields.next()?, fields.next()?);
        let name = PartitionName::new(topic, partition.parse().ok()?);
        let offset = Offset(fields.next()?.parse().ok()?);
        fields.next().is_none().then_some((name, (id, offset)))
    };
    let entries: Option<Vec<_>> = unseal(bytes)?.lines().map(entry).collect();
    let of_these = entries?
        .into_iter()
        .filter(|(name, (_, offset))| starts.get(name) == Some(offset));
    Some(of_these.map(|(name, (id, _))| (name, id)).collect())
}

impl LogDir {
    /// The topics that the log starts found at [`LogDir::open`] are of. Not known are those that were written
    /// by Kafka, or by a Thalweg that did not say it.
    #[must_use]
    pub fn start_topics(&self) -> &StartTopics {
        &self.start_topics
    }

    /// Where the log of this topic begins, unless the entry is known to be of another one.
    pub(super) fn log_start(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        let start = self.log_starts.get(name).copied()?;
        match self.start_topics.get(name).filter(|of| **of != topic) {
            Some(of) => {
                tracing::info!(partition = %name, %of, %topic, %start,
                    "the log start in the checkpoint is of an earlier topic of this name: not believed");
                None
            }
            None => Some(start),
        }
    }

    /// As [`LogDir::write_checkpoint`] for log starts, and says of which topics they are.
    ///
    /// # Errors
    /// [`LogError::Io`]; entries then are old, or of unknown topics.
    pub async fn write_log_starts(
        &self,
        starts: &PartitionOffsets,
        topics: &StartTopics,
    ) -> Result<(), LogError> {
        // In this order: otherwise an old entry could for a moment be taken for one of a new topic.
        self.write_checkpoint(Checkpoint::LogStart, starts).await?;
        let path = self.path.join(FILE);
        let text = Bytes::from(format(starts, topics));
        let written = fs::write_file_atomically(&path, text).await;
        self.judged(written.map_err(LogError::io("write", &path)))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::{Offset, Uuid};

    use super::{StartTopics, format, parse};
    use crate::checkpoint::PartitionOffsets;
    use crate::name::PartitionName;

    #[test]
    fn st_13_a_topic_counts_for_the_entry_it_was_written_with_and_only_undamaged() {
        let [a, b, c] = [("a", 0), ("b-1", 7), ("c", 1)].map(|(t, p)| PartitionName::new(t, p));
        let starts = PartitionOffsets::from([
            (a.clone(), Offset(5)),
            (b.clone(), Offset(i64::MAX)),
            (c, Offset(0)),
        ]);
        let topics = StartTopics::from([(a.clone(), Uuid([1; 16])), (b, Uuid([2; 16]))]);
        let text = format(&starts, &topics);
        assert_eq!(parse(text.as_bytes(), &starts), Some(topics.clone()));
        let mut later = starts.clone();
        later.insert(a.clone(), Offset(6));
        let mut of_later = topics;
        of_later.remove(&a);
        assert_eq!(parse(text.as_bytes(), &later), Some(of_later));
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at], &starts), None, "cut at {at}");
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(parse(&flipped, &starts), None, "byte {at}");
        }
    }
}
