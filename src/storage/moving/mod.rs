//! Moving a log to another log directory of the broker (KIP-113).
//!
//! A *future* folder, `<topic>-<partition>.<hex>-future`, follows the log file by file ([`FutureLog::step`]):
//! batches as they are written, the other files of a segment once it is closed and on the disk. What retention,
//! DeleteRecords and compaction do to the log, the copy does after them: what lies below the log's start is not
//! copied, and of a segment that was replaced nothing stays. When little is missing, its owner holds appends back,
//! has the rest copied ([`FutureLog::complete`]), and while the log stands still ([`Standing`]) gives the folder
//! its place ([`FutureLog::take_place`]): `place` says how a crash in between is decided. Where that can not be
//! done now, the copy is taken back and gone on with ([`FutureLog::take_back`]).
//!
//! Whoever copies asks for room first ([`MoveRoom`]).
//!
//! A start goes on with a future folder ([`FutureLog::resume`]): a closed segment whose copy has its length and
//! its time is not copied again.

mod completing;
mod copying;
mod handing_over;
mod place;
mod room;

pub use completing::Unclosed;
pub use handing_over::Standing;
pub(crate) use place::{LEAVING, stay};
pub use place::{Rightful, is_leaving, rightful};
pub use room::MoveRoom;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File};
use thalweg_types::{Offset, TopicId};

use crate::error::{LogError, ReadError, may_pass};
use crate::health::DirHealth;
use crate::name::PartitionName;
use crate::partition_files;
use crate::segment::Segment;

/// Larger index files and snapshots are not copied but refused; Kafka's bound of an index is below.
const SMALL_FILE_BYTES_MAX: usize = i32::MAX as usize;

/// A log can not be moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// One of the two log directories refused an operation.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log can not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The disk can not read some of what is to be copied.
    #[error(
        "the disk can not read {} from byte {position} on: {}; bytes that can not be read can not be copied: put the \
         file back from a backup, or stop the broker and have `thalweg repair` take out what is lost of it",
        path.display(), io::Error::from_raw_os_error(*errno)
    )]
    Unreadable {
        /// The segment's `.log` file.
        path: PathBuf,
        /// Where the read began that failed; what `/log-dirs` names then is narrower.
        position: u64,
        /// What the system said.
        errno: i32,
    },
    /// A file of the log was replaced while it was copied: look again.
    #[error("the log changed meanwhile")]
    Changed,
    /// The copy is not what the log is.
    #[error("the copy in {} ends at {copy} with {copy_bytes} bytes, the log at {log} with {log_bytes}", dir.display())]
    Differs {
        /// The folder of the copy.
        dir: PathBuf,
        /// Its end.
        copy: Offset,
        /// Its bytes.
        copy_bytes: u64,
        /// The log's end.
        log: Offset,
        /// The log's bytes.
        log_bytes: u64,
    },
}

impl MoveError {
    /// True when it may go well a little later: something was lacking, or has changed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            MoveError::Log(error) => error.may_pass(),
            MoveError::Read(ReadError::Io { source, .. }) => may_pass(source),
            MoveError::Changed
            | MoveError::Differs { .. }
            | MoveError::Read(ReadError::Replaced) => true,
            MoveError::Read(_) | MoveError::Unreadable { .. } => false,
        }
    }

    /// True when the system lacked something. What it has found otherwise is to settle soon.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        match self {
            MoveError::Log(_) | MoveError::Read(ReadError::Io { .. }) => self.may_pass(),
            MoveError::Changed
            | MoveError::Differs { .. }
            | MoveError::Read(_)
            | MoveError::Unreadable { .. } => false,
        }
    }
}

/// Whether what a folder already has can be what the log has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A closed segment of the same length and time is the same: the log is not compacted.
    Believed,
    /// Everything is copied anew.
    Ignored,
}

/// A copy of one segment.
struct Copied {
    of: Rc<Segment>,
    bytes: u64,
    /// Closed, on the disk, with its indexes.
    is_whole: bool,
}

/// A copy of a segment that a former life of the broker has left.
struct FoundCopy {
    bytes: u64,
    /// The time of its file, where a closed segment of the same length and time is the same.
    believed: Option<i64>,
}

/// The files between which bytes go at the moment.
struct Between {
    base: Offset,
    from: File,
    to: File,
}

/// A copy of a log in another log directory, which is to take its place.
pub struct FutureLog {
    name: PartitionName,
    health: Arc<DirHealth>,
    /// Where it is now.
    dir: PathBuf,
    /// Where it was made.
    future: PathBuf,
    copied: BTreeMap<Offset, Copied>,
    /// A former life of the broker may have left files that are not told here.
    is_resumed: bool,
    /// Copies of segments that were there when this life found the folder.
    found: BTreeMap<Offset, FoundCopy>,
    between: Option<Between>,
    reached: Offset,
}

impl FutureLog {
    /// Makes the folder, durably, in the log directory of `health`. `unique` is in its name.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn create(
        health: &Arc<DirHealth>,
        name: PartitionName,
        topic_id: TopicId,
        unique: TopicId,
    ) -> Result<FutureLog, LogError> {
        let dir = health.path().join(name.future(unique));
        let made = make(&dir, health.path(), topic_id).await;
        if let Err(LogError::Io { path, source, .. }) = &made {
            health.judge(path, source);
        }
        made?;
        failpoint::pass("move: future made");
        Ok(FutureLog::of(health, name, dir))
    }

    /// Goes on with a folder that a former life of the broker has left.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn resume(
        health: &Arc<DirHealth>,
        name: PartitionName,
        folder: &str,
        found: Found,
    ) -> Result<FutureLog, LogError> {
        let mut future = FutureLog::of(health, name, health.path().join(folder));
        future.is_resumed = true;
        let listed = fs::list_dir(&future.dir).await;
        for entry in listed.map_err(LogError::io("list", &future.dir))? {
            let base = entry.name.to_str().and_then(crate::name::base_of_log);
            let Some(base) = base else { continue };
            let path = future.dir.join(&entry.name);
            let meta = fs::metadata(&path).await;
            let meta = meta.map_err(LogError::io("stat", &path))?;
            let copy = FoundCopy {
                bytes: meta.len,
                believed: match found {
                    Found::Believed => Some(meta.modified_ms),
                    Found::Ignored => None,
                },
            };
            future.found.insert(base, copy);
        }
        Ok(future)
    }

    fn of(health: &Arc<DirHealth>, name: PartitionName, dir: PathBuf) -> FutureLog {
        FutureLog {
            name,
            health: Arc::clone(health),
            future: dir.clone(),
            dir,
            copied: BTreeMap::new(),
            is_resumed: false,
            found: BTreeMap::new(),
            between: None,
            reached: Offset::ZERO,
        }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything of the log below is in the copy.
    #[must_use]
    pub fn reached(&self) -> Offset {
        self.reached
    }

    /// Bytes of batches in the copy.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.copied.values().map(|copied| copied.bytes).sum()
    }

    /// Removes the folder: nothing is to be moved any more.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next start finds what is left of it.
    pub async fn remove(self) -> Result<(), LogError> {
        remove_folder(&self.dir).await
    }

    /// Removes a folder that no move goes on with.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn remove_found(parent: &Path, folder: &str) -> Result<(), LogError> {
        remove_folder(&parent.join(folder)).await
    }

    /// A failure of the disk condemns the log directory that the copy is in, if it happened there.
    fn judged<T>(&self, result: Result<T, MoveError>) -> Result<T, MoveError> {
        if let Err(MoveError::Log(LogError::Io { path, source, .. })) = &result
            && path.starts_with(self.health.path())
        {
            self.health.judge(path, source);
        }
        result
    }
}

async fn make(dir: &Path, parent: &Path, topic_id: TopicId) -> Result<(), LogError> {
    fs::create_dir(dir)
        .await
        .map_err(LogError::io("create", dir))?;
    partition_files::store_topic_id(dir, topic_id).await?;
    fs::sync_dir(parent)
        .await
        .map_err(LogError::io("sync", parent))
}

async fn remove_folder(dir: &Path) -> Result<(), LogError> {
    match fs::remove_dir_all(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(LogError::io("remove", dir)),
    }
}

async fn remove(path: &Path) -> Result<(), LogError> {
    match fs::unlink(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(LogError::io("remove", path)),
    }
}

/// Copies a whole small file, durably. One that is not there is left out.
async fn copy_file(from: &Path, to: &Path) -> Result<(), LogError> {
    let content = match fs::read_file(from, SMALL_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(LogError::io("read", from))?,
    };
    let written = fs::write_file_atomically(to, content).await;
    written.map_err(LogError::io("write", to))
}
