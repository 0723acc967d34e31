//! Entries of checkpoints, and of which topics they are.
//!
//! A checkpoint names a topic, and another may be made under its name: what it says of the one that is gone must not
//! be taken for the new one (ST-12, ST-13). So entries are kept with topic ids. In our own checkpoints the ids are
//! in the entries. Kafka's have no place for them, and a second file beside each says of which topic id each entry is, with
//! the offset that it had: an entry with another offset was written since by somebody who does not know the second file, and
//! counts for every topic of its name, like all of them where there is no such file. Of a log start that is above that of the
//! second file, which has a checksum, the lower one counts, or the first segment's offset if that is in between.
//!
//! A file with ids is one line with the CRC-32C of all that follows, in 8 hexadecimal digits, then one line `topic-id topic
//! partition offset` per entry. The id is all zeros where it is not known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::{Offset, TopicId, Uuid};

use super::{Checkpoint, LogDir, ROOT_FILE_BYTES_MAX};
use crate::checked_text::{seal, unseal};
use crate::checkpoint::{
    CheckpointError, PartitionOffsets, format_partition_offsets, parse_partition_offsets,
};
use crate::error::LogError;
use crate::name::PartitionName;

/// An empty file: no segment was removed without its log start since the log starts were written.
pub(super) const STARTS_KEPT: &str = "thalweg-log-starts-kept";

/// Where the topics of a checkpoint's entries are told.
enum Topics {
    /// Nowhere.
    Unsaid,
    /// In each entry: the checkpoint is ours.
    Within,
    /// In this file: the checkpoint is Kafka's.
    Beside(&'static str),
}

/// Offsets of partitions, each with the topic that it is of, where that is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundOffsets {
    offsets: PartitionOffsets,
    /// Has no other names.
    topics: BTreeMap<PartitionName, TopicId>,
    /// What Kafka's checkpoint says, where a log start in it is above that of the sealed file, which then counts.
    higher: PartitionOffsets,
}

impl BoundOffsets {
    /// The offsets, whatever topics they are of.
    #[must_use]
    pub fn offsets(&self) -> &PartitionOffsets {
        &self.offsets
    }

    /// The entry of a partition of this topic, unless it is known to be of another one.
    #[must_use]
    pub fn of(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        let of = self.topics.get(name);
        of.is_none_or(|of| *of == topic)
            .then(|| self.offsets.get(name).copied())
            .flatten()
    }

    /// The entry of a partition, if it is known to be of this topic.
    #[must_use]
    pub fn known_of(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        let is_of_it = self.topics.get(name) == Some(&topic);
        self.offsets.get(name).copied().filter(|_| is_of_it)
    }

    /// What Kafka's checkpoint says of a partition of this topic, where that is above the entry.
    #[must_use]
    pub fn higher_of(&self, name: &PartitionName, topic: TopicId) -> Option<Offset> {
        self.known_of(name, topic)?;
        self.higher.get(name).copied()
    }

    /// Replaces the entry of a partition.
    pub fn insert(&mut self, name: PartitionName, topic: TopicId, offset: Offset) {
        self.higher.remove(&name);
        self.topics.insert(name.clone(), topic);
        self.offsets.insert(name, offset);
    }

    /// As [`BoundOffsets::insert`]; an entry of this topic never falls.
    pub fn raise(&mut self, name: PartitionName, topic: TopicId, offset: Offset) {
        let before = self.of(&name, topic).unwrap_or(offset);
        self.insert(name, topic, offset.max(before));
    }

    /// Removes the entry of a partition. True when there was one.
    pub fn remove(&mut self, name: &PartitionName) -> bool {
        self.topics.remove(name);
        self.higher.remove(name);
        self.offsets.remove(name).is_some()
    }

    /// Removes the entries for which `keep` is false, which is told the topic where it is known. True when there were
    /// such.
    pub fn retain(&mut self, keep: impl Fn(&PartitionName, Option<TopicId>) -> bool) -> bool {
        let before = self.offsets.len();
        let topics = &self.topics;
        self.offsets
            .retain(|name, _| keep(name, topics.get(name).copied()));
        let offsets = &self.offsets;
        self.topics.retain(|name, _| offsets.contains_key(name));
        self.higher.retain(|name, _| offsets.contains_key(name));
        self.offsets.len() < before
    }

    /// The entry of this name is of that topic, if it is not known of which.
    pub fn know(&mut self, name: &PartitionName, topic: TopicId) {
        if self.offsets.contains_key(name) {
            self.topics.entry(name.clone()).or_insert(topic);
        }
    }

    fn of_unknown_topics(offsets: PartitionOffsets) -> BoundOffsets {
        BoundOffsets {
            offsets,
            ..BoundOffsets::default()
        }
    }

    /// Text of a file with ids. Entries of unknown topics are in it where they are nowhere else.
    pub(crate) fn format(&self, with_unknown: bool) -> String {
        let mut entries = String::new();
        for (name, offset) in &self.offsets {
            let id = self.topics.get(name).copied();
            if let Some(id) = id.or(with_unknown.then_some(Uuid::ZERO)) {
                let _ = writeln!(entries, "{id} {} {} {offset}", name.topic, name.partition);
            }
        }
        seal(&entries)
    }

    /// `None` when the file is damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Option<BoundOffsets> {
        let mut parsed = BoundOffsets::default();
        for line in unseal(bytes)?.lines() {
            let mut fields = line.split(' ');
            let id: TopicId = fields.next()?.parse().ok()?;
            let (topic, partition) = (fields.next()?, fields.next()?);
            let name = PartitionName::new(topic, partition.parse().ok()?);
            let offset = Offset(fields.next()?.parse().ok()?);
            if fields.next().is_some() {
                return None;
            }
            if !id.is_zero() {
                parsed.topics.insert(name.clone(), id);
            }
            parsed.offsets.insert(name, offset);
        }
        Some(parsed)
    }
}

impl Checkpoint {
    fn topics(self) -> Topics {
        match self {
            Checkpoint::RecoveryPoint
            | Checkpoint::HighWatermark
            | Checkpoint::Unopened
            | Checkpoint::EpochsUnseen => Topics::Unsaid,
            Checkpoint::LogStart => Topics::Beside("thalweg-log-start-topics"),
            Checkpoint::Cleaner => Topics::Beside("thalweg-cleaner-topics"),
            Checkpoint::FoundDamaged | Checkpoint::DamagedAfterKill | Checkpoint::AcceptedGaps => {
                Topics::Within
            }
        }
    }

    /// Reads the bytes of such a file, but for what is beside it. One of Kafka's without any has no entries: Kafka makes
    /// the file at its start and writes it when there are some.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn parse(self, bytes: &[u8]) -> Result<BoundOffsets, CheckpointError> {
        let known = match self.topics() {
            Topics::Beside(_) if bytes.is_empty() => Some(BoundOffsets::default()),
            Topics::Within => BoundOffsets::parse(bytes),
            Topics::Unsaid | Topics::Beside(_) => None,
        };
        match known {
            Some(known) => Ok(known),
            // As those of Kafka, and once ours, too.
            None => parse_partition_offsets(bytes).map(BoundOffsets::of_unknown_topics),
        }
    }
}

/// A checkpoint of the directory. One that is missing or damaged has no entries (R5).
pub(super) async fn load(dir: &Path, checkpoint: Checkpoint) -> io::Result<BoundOffsets> {
    let path = dir.join(checkpoint.file_name());
    let Some(bytes) = read(&path).await? else {
        return Ok(BoundOffsets::default());
    };
    let mut found = checkpoint.parse(&bytes).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "a checkpoint can not be read; going without");
        BoundOffsets::default()
    });
    if let Topics::Beside(file) = checkpoint.topics() {
        let path = dir.join(file);
        if let Some(told) = read(&path).await? {
            if bytes.is_empty() {
                tracing::warn!(file = checkpoint.file_name(), path = %path.display(),
                    "a checkpoint is empty that was written before: going without");
            }
            found.be_told(checkpoint, &path, &told);
        }
    }
    Ok(found)
}

async fn read(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::read_file(path, ROOT_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

impl BoundOffsets {
    /// Takes the topics from the file beside, and a log start that is lower there: without a checksum, the higher one may
    /// be a flipped digit, and hide records.
    fn be_told(&mut self, checkpoint: Checkpoint, path: &Path, bytes: &[u8]) {
        let Some(beside) = BoundOffsets::parse(bytes) else {
            tracing::warn!(path = %path.display(),
                "it is damaged; believing all entries of Kafka's checkpoint, whatever topics they are of");
            return;
        };
        for (name, id) in beside.topics {
            let (Some(own), Some(sealed)) =
                (self.offsets.get_mut(&name), beside.offsets.get(&name))
            else {
                continue;
            };
            if checkpoint == Checkpoint::LogStart && *own > *sealed {
                tracing::warn!(partition = %name, file = checkpoint.file_name(), offset = %own, %sealed,
                    "a log start is above that of the sealed file: going by that, or by the first segment if it is higher");
                self.higher.insert(name.clone(), *own);
                *own = *sealed;
            }
            if *own == *sealed {
                self.topics.insert(name, id);
            }
        }
    }
}

impl LogDir {
    /// The entry of a checkpoint for a partition of this topic, unless it is known to be of another one.
    pub(super) fn believed(
        &self,
        checkpoint: Checkpoint,
        name: &PartitionName,
        topic: TopicId,
    ) -> Option<Offset> {
        let entries = self.bound(checkpoint);
        let believed = entries.of(name, topic);
        if believed.is_none()
            && let Some(offset) = entries.offsets.get(name)
        {
            tracing::info!(partition = %name, file = checkpoint.file_name(), %offset, %topic,
                "an entry is of an earlier topic of this name: not believed");
        }
        believed
    }

    /// Replaces a checkpoint, durably, and says of which topics its entries are. `entries` is all of it, as for
    /// [`LogDir::write_checkpoint`].
    ///
    /// # Errors
    /// [`LogError::Io`]; entries then are old, or of unknown topics. Segments may be removed without log starts
    /// ([`crate::StartKept::ByFirstSegment`]), so that these say no more where a log has to begin.
    /// [`LogError::StartsHold`] when they still say it; then none may be removed.
    pub async fn write_bound(
        &self,
        checkpoint: Checkpoint,
        entries: &BoundOffsets,
    ) -> Result<(), LogError> {
        let written = self.try_write_bound(checkpoint, entries).await;
        if checkpoint == Checkpoint::LogStart && written.is_err() {
            // A file goes away on a full disk, too, though not on every one.
            let gone = self.let_starts_go().await;
            gone.map_err(|error| LogError::StartsHold(Box::new(error)))?;
        }
        written
    }

    /// From now on a log may begin above the start that is written down.
    async fn let_starts_go(&self) -> Result<(), LogError> {
        if self.starts_let_go.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.unlink(STARTS_KEPT).await?;
        // Where it was gone before, too: whoever took it away may have come no further.
        self.sync_names().await?;
        self.starts_let_go.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// From now on the log starts say where logs have to begin, until one can not be written. To be called when
    /// every log here is open and has its start written down.
    pub async fn keep_starts(&self) {
        self.starts_let_go.store(false, Ordering::Relaxed);
        let path = self.path.join(STARTS_KEPT);
        if fs::exists(&path).await.unwrap_or(false) {
            return;
        }
        let written = fs::write_file_atomically(&path, Bytes::new()).await;
        if let Err(error) = self.judged(written.map_err(LogError::io("write", &path))) {
            tracing::debug!(path = %path.display(), %error, "a lost first segment may go unnoticed");
        }
    }

    async fn try_write_bound(
        &self,
        checkpoint: Checkpoint,
        entries: &BoundOffsets,
    ) -> Result<(), LogError> {
        let (own, beside) = match checkpoint.topics() {
            Topics::Within => (entries.format(true), None),
            Topics::Unsaid => (format_partition_offsets(&entries.offsets), None),
            Topics::Beside(file) => (format_partition_offsets(&entries.offsets), Some(file)),
        };
        self.replace(checkpoint.file_name(), own).await?;
        match beside {
            // In this order: otherwise an old entry could for a moment be taken for one of a new topic.
            Some(file) => self.replace(file, entries.format(false)).await,
            None => Ok(()),
        }
    }

    /// Replaces a text file of the directory, durably.
    pub(super) async fn replace(&self, file: &str, text: String) -> Result<(), LogError> {
        let path = self.path.join(file);
        let written = fs::write_file_atomically(&path, Bytes::from(text)).await;
        self.judged(written.map_err(LogError::io("write", &path)))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::{Offset, Uuid};

    use super::BoundOffsets;
    use crate::dir::Checkpoint;
    use crate::name::PartitionName;

    const ONE: Uuid = Uuid([1; 16]);
    const TWO: Uuid = Uuid([2; 16]);

    fn names() -> [PartitionName; 3] {
        [("a", 0), ("b-1", 7), ("c", 1)].map(|(topic, index)| PartitionName::new(topic, index))
    }

    fn bound() -> BoundOffsets {
        let [a, b, c] = names();
        let mut bound = BoundOffsets::default();
        bound.insert(a, ONE, Offset(5));
        bound.insert(b, TWO, Offset(i64::MAX));
        bound.offsets.insert(c, Offset(0));
        bound
    }

    #[test]
    fn st_12_an_entry_counts_for_its_own_topic_or_where_that_is_not_known() {
        let [a, b, c] = names();
        let mut bound = bound();
        let of = |bound: &BoundOffsets, name: &PartitionName| {
            [ONE, TWO].map(|topic| bound.of(name, topic).map(|offset| offset.0))
        };
        assert_eq!(of(&bound, &a), [Some(5), None]);
        assert_eq!(of(&bound, &b), [None, Some(i64::MAX)]);
        assert_eq!(of(&bound, &c), [Some(0), Some(0)]);
        bound.know(&a, TWO);
        bound.know(&c, TWO);
        assert_eq!(of(&bound, &a), [Some(5), None]);
        assert_eq!(of(&bound, &c), [None, Some(0)]);
        bound.raise(a.clone(), ONE, Offset(3));
        assert_eq!(of(&bound, &a), [Some(5), None]);
        bound.raise(a.clone(), TWO, Offset(3));
        assert_eq!(of(&bound, &a), [None, Some(3)]);
        assert!(bound.retain(|_, topic| topic != Some(TWO)));
        assert_eq!(bound, BoundOffsets::default());
    }

    #[test]
    fn st_13_a_topic_counts_for_the_entry_it_was_written_with_and_only_undamaged() {
        let [a, _, _] = names();
        let bound = bound();
        let text = bound.format(false);
        let told_of = |checkpoint, offsets: &BoundOffsets, text: &[u8]| {
            let mut told = BoundOffsets::of_unknown_topics(offsets.offsets.clone());
            told.be_told(checkpoint, "a file".as_ref(), text);
            told
        };
        let told =
            |offsets: &BoundOffsets, text: &[u8]| told_of(Checkpoint::Cleaner, offsets, text);
        assert_eq!(told(&bound, text.as_bytes()), bound);
        let mut later = bound.clone();
        later.offsets.insert(a.clone(), Offset(6));
        later.topics.remove(&a);
        assert_eq!(told(&later, text.as_bytes()), later);
        // A log start is not raised by a flipped digit.
        let mut raised = told_of(Checkpoint::LogStart, &later, text.as_bytes());
        assert_eq!(raised.of(&a, ONE), Some(Offset(5)));
        assert_eq!(raised.higher_of(&a, ONE), Some(Offset(6)));
        assert_eq!(raised.higher_of(&a, TWO), None);
        raised.insert(a.clone(), ONE, Offset(5));
        assert_eq!(raised, bound);
        let mut lower = later.clone();
        lower.offsets.insert(a.clone(), Offset(4));
        assert_eq!(
            told_of(Checkpoint::LogStart, &lower, text.as_bytes()),
            lower
        );
        for at in 0..text.len() {
            let untold = BoundOffsets::of_unknown_topics(bound.offsets.clone());
            assert_eq!(told(&bound, &text.as_bytes()[..at]), untold, "cut at {at}");
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(told(&bound, &flipped), untold, "byte {at}");
        }
    }

    /// Kafka makes these empty at its first start, and writes the first entries when there is something to say.
    #[test]
    fn st_12_a_checkpoint_that_kafka_has_not_written_yet_has_no_entries() {
        let empty = Ok(BoundOffsets::default());
        assert_eq!(Checkpoint::Cleaner.parse(b""), empty);
        assert_eq!(Checkpoint::LogStart.parse(b""), empty);
        for ours in [Checkpoint::AcceptedGaps, Checkpoint::Unopened] {
            assert!(ours.parse(b"").is_err(), "{ours:?}");
        }
        assert!(Checkpoint::Cleaner.parse(b"\n").is_err());
    }

    #[test]
    fn st_12_our_own_checkpoints_have_the_topics_in_them_and_are_read_without() {
        let bound = bound();
        let text = bound.format(true);
        let parsed = Checkpoint::AcceptedGaps.parse(text.as_bytes());
        assert_eq!(parsed, Ok(bound.clone()));
        let old = super::format_partition_offsets(&bound.offsets);
        let untold = BoundOffsets::of_unknown_topics(bound.offsets.clone());
        assert_eq!(
            Checkpoint::FoundDamaged.parse(old.as_bytes()),
            Ok(untold.clone())
        );
        assert_eq!(Checkpoint::Cleaner.parse(old.as_bytes()), Ok(untold));
        for at in 0..text.len() {
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert!(Checkpoint::AcceptedGaps.parse(&flipped).is_err(), "{at}");
            let cut = &text.as_bytes()[..at];
            assert!(Checkpoint::AcceptedGaps.parse(cut).is_err(), "{at}");
        }
    }
}
