//! Names of partition directories and of the files in them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thalweg_types::{Offset, PartitionIndex, Uuid, limits};

/// Suffix of a directory whose partition was deleted and whose files may go.
const DELETED_DIR_SUFFIX: &str = "-delete";
/// Suffix of a directory that belongs to no known partition and was set aside.
const STRAY_DIR_SUFFIX: &str = "-stray";
/// Suffix of a directory that is to take the place of a partition's in another log directory.
const FUTURE_DIR_SUFFIX: &str = "-future";
/// Name of the file of a segment that has not begun, or of one that a crash left without its name.
pub(crate) const NEXT_SEGMENT: &str = "next.segment";
/// Longest file name that Linux file systems take, in bytes.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Digits of a base offset in a file name.
const BASE_OFFSET_DIGITS: usize = 20;

/// Topic and index of a partition: the name of its directory, `<topic>-<partition>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionName {
    /// Name of the topic.
    pub topic: String,
    /// Index of the partition in it.
    pub partition: PartitionIndex,
}

impl PartitionName {
    /// The name of partition `partition` of `topic`.
    pub fn new(topic: impl Into<String>, partition: i32) -> Self {
        PartitionName {
            topic: topic.into(),
            partition: PartitionIndex(partition),
        }
    }

    /// Name of the directory while its files wait for removal: `<topic>-<partition>.<hex>-delete`.
    pub(crate) fn deleted(&self, unique: Uuid) -> String {
        self.set_aside(unique, DELETED_DIR_SUFFIX)
    }

    /// Name of the directory once set aside: `<topic>-<partition>.<hex>-stray`.
    pub(crate) fn stray(&self, unique: Uuid) -> String {
        self.set_aside(unique, STRAY_DIR_SUFFIX)
    }

    /// Name of a copy that is to replace it in another log directory: `<topic>-<partition>.<hex>-future`.
    pub(crate) fn future(&self, unique: Uuid) -> String {
        self.set_aside(unique, FUTURE_DIR_SUFFIX)
    }

    fn set_aside(&self, unique: Uuid, suffix: &str) -> String {
        let tail = format!(
            "-{}.{:032x}{suffix}",
            self.partition,
            u128::from_be_bytes(unique.0)
        );
        // Kafka cuts the topic, not the rest, when the whole would be too long.
        let room = FILE_NAME_BYTES_MAX - tail.len();
        let topic: String = self.topic.chars().take(room).collect();
        format!("{topic}{tail}")
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The text is not `<topic>-<partition>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a partition directory (<topic>-<partition>)")]
pub struct NameError(pub String);

impl FromStr for PartitionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError(text.to_owned());
        let (topic, index) = text.rsplit_once('-').ok_or_else(bad)?;
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if topic.is_empty()
            || topic == "."
            || topic == ".."
            || topic.len() > limits::TOPIC_NAME_BYTES_MAX
            || !topic.chars().all(legal)
            || index.is_empty()
            || !index.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(bad());
        }
        let partition = index.parse::<i32>().map_err(|_| bad())?;
        Ok(PartitionName::new(topic, partition))
    }
}

/// What a directory in a log directory is, told by its name alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DirKind {
    /// A partition.
    Partition(PartitionName),
    /// Deleted; may be removed at any time.
    Deleted,
    /// Set aside before; left alone.
    Stray,
    /// A copy of a partition that is to replace it. The topic of a long name is cut.
    Future(PartitionName),
    /// Not ours.
    Other,
}

pub(crate) fn dir_kind(name: &str) -> DirKind {
    // A topic may itself be called `x-delete`: the suffixes count only after `.<32 hex digits>`.
    let marked = |suffix: &str| {
        name.strip_suffix(suffix)
            .and_then(|rest| rest.rsplit_once('.'))
            .filter(|(before, hex)| {
                hex.len() == 32
                    && hex.bytes().all(|b| b.is_ascii_hexdigit())
                    && before.contains('-')
            })
            .map(|(before, _)| before)
    };
    if marked(DELETED_DIR_SUFFIX).is_some() {
        return DirKind::Deleted;
    }
    if marked(STRAY_DIR_SUFFIX).is_some() {
        return DirKind::Stray;
    }
    if let Some(before) = marked(FUTURE_DIR_SUFFIX) {
        return before.parse().map_or(DirKind::Other, DirKind::Future);
    }
    name.parse().map_or(DirKind::Other, DirKind::Partition)
}

/// Kind of a file in a partition directory, told by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// `<base>.log`: record batches.
    Log(Offset),
    /// `<base>.index`: offsets to positions.
    Index(Offset),
    /// `<base>.timeindex`: timestamps to offsets.
    TimeIndex(Offset),
    /// `<base>.txnindex`: aborted transactions.
    TxnIndex(Offset),
    /// `<offset>.snapshot`: producer state.
    Snapshot(Offset),
    /// The file of the next segment.
    Next,
    /// Left over from an interrupted delete, compaction or atomic write: may be removed.
    Leftover,
    /// Anything else: left alone.
    Other,
}

pub(crate) fn file_kind(name: &str) -> FileKind {
    if [".deleted", ".cleaned", ".tmp"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
    {
        return FileKind::Leftover;
    }
    if name == NEXT_SEGMENT {
        return FileKind::Next;
    }
    let Some((stem, suffix)) = name.split_once('.') else {
        return FileKind::Other;
    };
    if stem.len() != BASE_OFFSET_DIGITS || !stem.bytes().all(|b| b.is_ascii_digit()) {
        return FileKind::Other;
    }
    let Ok(base) = stem.parse::<i64>().map(Offset) else {
        return FileKind::Other;
    };
    match suffix {
        "log" => FileKind::Log(base),
        "index" => FileKind::Index(base),
        "timeindex" => FileKind::TimeIndex(base),
        "txnindex" => FileKind::TxnIndex(base),
        "snapshot" => FileKind::Snapshot(base),
        _ => FileKind::Other,
    }
}

/// Where the segment begins whose batches a file of that name has.
pub(crate) fn base_of_log(name: &str) -> Option<Offset> {
    match file_kind(name) {
        FileKind::Log(base) => Some(base),
        FileKind::Index(_)
        | FileKind::TimeIndex(_)
        | FileKind::TxnIndex(_)
        | FileKind::Snapshot(_)
        | FileKind::Next
        | FileKind::Leftover
        | FileKind::Other => None,
    }
}

/// How far a compaction has come with a new file of a segment (ST-14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CleanStep {
    /// Being written: of no use after a crash.
    Cleaned,
    /// Past the point of no return.
    Swap,
}

impl CleanStep {
    /// Path of the file that is to become `path`.
    pub(crate) fn of(self, path: &Path) -> PathBuf {
        with_suffix(path, self.suffix())
    }

    fn suffix(self) -> &'static str {
        match self {
            CleanStep::Cleaned => ".cleaned",
            CleanStep::Swap => ".swap",
        }
    }
}

/// A file that a compaction has left: how far it had come, the segment, and the suffix that the file
/// was to get.
pub(crate) fn clean_step(name: &str) -> Option<(CleanStep, Offset, &'static str)> {
    [CleanStep::Cleaned, CleanStep::Swap]
        .into_iter()
        .find_map(|step| {
            let (base, suffix) = match file_kind(name.strip_suffix(step.suffix())?) {
                FileKind::Log(base) => (base, "log"),
                FileKind::Index(base) => (base, "index"),
                FileKind::TimeIndex(base) => (base, "timeindex"),
                FileKind::TxnIndex(base) => (base, "txnindex"),
                FileKind::Snapshot(_) | FileKind::Next | FileKind::Leftover | FileKind::Other => {
                    return None;
                }
            };
            Some((step, base, suffix))
        })
}

/// Path of the batches of the segment at `base`.
pub(crate) fn log_path(dir: &Path, base: Offset) -> PathBuf {
    dir.join(log_name(base))
}

/// Its name in its directory.
pub(crate) fn log_name(base: Offset) -> String {
    format!("{:020}.log", base.0)
}

/// Path of the offset index of the segment at `base`.
pub(crate) fn index_path(dir: &Path, base: Offset) -> PathBuf {
    segment_file(dir, base, "index")
}

/// Path of the time index of the segment at `base`.
pub(crate) fn time_index_path(dir: &Path, base: Offset) -> PathBuf {
    segment_file(dir, base, "timeindex")
}

/// Path of the index of aborted transactions of the segment at `base`.
pub(crate) fn txn_index_path(dir: &Path, base: Offset) -> PathBuf {
    segment_file(dir, base, "txnindex")
}

/// Path of the snapshot at `at`.
pub(crate) fn snapshot_path(dir: &Path, at: Offset) -> PathBuf {
    segment_file(dir, at, "snapshot")
}

/// Path of a file while it waits for removal.
pub(crate) fn deleted_path(path: &Path) -> PathBuf {
    with_suffix(path, ".deleted")
}

/// The segment whose `.log` has this name since [`deleted_path`] gave it.
pub(crate) fn deleted_log(name: &str) -> Option<Offset> {
    let base = name.strip_suffix(".log.deleted")?;
    base.parse().ok().map(Offset)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn segment_file(dir: &Path, base: Offset, suffix: &str) -> PathBuf {
    dir.join(format!("{:020}.{suffix}", base.0))
}

#[cfg(test)]
mod tests {
    use super::{
        CleanStep, DirKind, FileKind, PartitionName, clean_step, dir_kind, file_kind, log_path,
    };
    use std::path::Path;
    use thalweg_types::{Offset, Uuid};

    #[test]
    fn partition_names_round_trip() {
        for text in ["a-0", "a-b-12", "__cluster_metadata-0", "x.y_z-2147483647"] {
            assert_eq!(text.parse::<PartitionName>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "a",
            "a-",
            "-0",
            "a-x",
            "a-2147483648",
            "a/b-0",
            "..-0",
            "a--1x",
            "ä-0",
        ] {
            assert!(text.parse::<PartitionName>().is_err(), "{text}");
        }
    }

    #[test]
    fn deleted_names_fit_a_file_system_and_are_recognised() {
        for length in [1, 100, 249] {
            let name = PartitionName::new("t".repeat(length), 123);
            let deleted = name.deleted(Uuid([0xab; 16]));
            assert!(deleted.len() <= 255);
            assert_eq!(dir_kind(&deleted), DirKind::Deleted);
            assert_eq!(dir_kind(&name.stray(Uuid([1; 16]))), DirKind::Stray);
            let future = name.future(Uuid([2; 16]));
            assert!(future.len() <= 255);
            let cut = PartitionName::new("t".repeat(length.min(211)), 123);
            assert_eq!(dir_kind(&future), DirKind::Future(cut), "{length}");
        }
        assert_eq!(dir_kind("t-delete"), DirKind::Other);
        assert_eq!(
            dir_kind("t-delete-0"),
            DirKind::Partition(PartitionName::new("t-delete", 0))
        );
    }

    #[test]
    fn file_names_are_kafkas() {
        let path = log_path(Path::new("d"), Offset(170_210));
        assert_eq!(path.to_str(), Some("d/00000000000000170210.log"));
        assert_eq!(
            file_kind("00000000000000170210.log"),
            FileKind::Log(Offset(170_210))
        );
        assert_eq!(
            file_kind("00000000000000000000.timeindex"),
            FileKind::TimeIndex(Offset(0))
        );
        assert_eq!(
            file_kind("00000000000000000000.log.deleted"),
            FileKind::Leftover
        );
        assert_eq!(
            file_kind("00000000000000000000.log.cleaned"),
            FileKind::Leftover
        );
        let swap = clean_step("00000000000000000007.log.swap");
        assert_eq!(swap, Some((CleanStep::Swap, Offset(7), "log")));
        let cleaned = clean_step("00000000000000000007.txnindex.cleaned");
        assert_eq!(cleaned, Some((CleanStep::Cleaned, Offset(7), "txnindex")));
        assert_eq!(clean_step("7.log.swap"), None);
        assert_eq!(file_kind("99999999999999999999.log"), FileKind::Other);
        assert_eq!(file_kind("partition.metadata"), FileKind::Other);
    }
}
