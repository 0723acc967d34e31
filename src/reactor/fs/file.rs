//! The file handle and the errors of operations on it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use crate::workers::REAPER;

/// An open file. Clones share one descriptor; when the last clone goes, a worker thread closes it,
/// since closing an unlinked file of a gigabyte takes a tenth of a second.
#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` only inside `drop`.
    file: Option<fs::File>,
    path: PathBuf,
    /// Its path since then.
    renamed: OnceLock<PathBuf>,
    id: u64,
    disk: OnceLock<u64>,
    /// When the last write by this handle began, in milliseconds since [`BEGIN`], and one more; 0 before it.
    written: AtomicU64,
}

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// How [`super::open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; must exist.
    Read,
    /// For reading and writing; must exist.
    ReadWrite,
    /// For reading and writing; made if missing, content kept.
    Create,
    /// For reading and writing; must not exist yet.
    CreateNew,
    /// For reading and writing; made if missing, emptied if not.
    CreateEmpty,
}

impl OpenMode {
    pub(super) fn options(self) -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match self {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::CreateEmpty => {
                options.write(true).create(true).truncate(true);
            }
        }
        options
    }
}

impl File {
    /// Takes over a file opened elsewhere; `path` is for messages.
    pub fn from_std(file: fs::File, path: PathBuf) -> File {
        File(Arc::new(Inner {
            file: Some(file),
            path,
            renamed: OnceLock::new(),
            id: LAST_ID.fetch_add(1, Ordering::Relaxed),
            disk: OnceLock::new(),
            written: AtomicU64::new(0),
        }))
    }

    /// A write by this handle begins.
    pub(crate) fn note_write(&self) {
        self.0.written.store(begun_ms() + 1, Ordering::Relaxed);
    }

    /// True when no write by this handle, or a clone of it, has begun for so long.
    pub(crate) fn is_quiet(&self, long: Duration) -> bool {
        let written = self.0.written.load(Ordering::Relaxed);
        written == 0 || u128::from(begun_ms().saturating_sub(written)) >= long.as_millis()
    }

    /// A number that no other open file of the process has or had. Clones have the same.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// A number of the file system that it is on.
    pub(crate) fn disk(&self) -> u64 {
        let ask = || self.std().metadata().map_or(0, |meta| meta.dev());
        *self.0.disk.get_or_init(ask)
    }

    /// The path it was opened by, or was told to have since ([`File::on_renamed`]).
    pub fn path(&self) -> &Path {
        self.0.renamed.get().unwrap_or(&self.0.path)
    }

    /// From now on it is known by this path, where it lies for good: the first that is told stays.
    pub fn on_renamed(&self, path: PathBuf) {
        let _ = self.0.renamed.set(path);
    }

    pub(crate) fn std(&self) -> &fs::File {
        self.0.file.as_ref().expect("there until drop")
    }
}

fn begun_ms() -> u64 {
    u64::try_from(BEGIN.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.std().as_raw_fd()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.std().as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let path = self.renamed.get().unwrap_or(&self.path);
            REAPER.at(path).submit(Box::new(move || drop(file)));
        }
    }
}

/// What went wrong, where: the inside of the `io::Error`s of [`crate::fs`].
#[derive(Debug)]
pub struct FsError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// At which byte of it, for reads and writes.
    pub offset: Option<u64>,
    /// What the kernel said.
    pub source: io::Error,
}

impl FsError {
    pub(crate) fn wrap(
        operation: &'static str,
        path: &Path,
        offset: Option<u64>,
        source: io::Error,
    ) -> io::Error {
        let kind = source.kind();
        io::Error::new(
            kind,
            FsError {
                operation,
                path: path.to_owned(),
                offset,
                source,
            },
        )
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for FsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// What a flush is called in [`FsError::operation`], of a file, of a directory, of a file system.
pub(super) const FSYNC: &str = "fsync";
pub(super) const FDATASYNC: &str = "fdatasync";
pub(super) const FSYNC_DIRECTORY: &str = "fsync directory";
pub(super) const SYNCFS: &str = "syncfs";
pub(super) const SYNC_FILE_RANGE: &str = "sync_file_range";

/// True for an error of a flush, by whatever operation it was made: something that was written before is lost then, also
/// where the error is that of a full disk.
pub fn is_of_flush(error: &io::Error) -> bool {
    let inside = error
        .get_ref()
        .and_then(|inside| inside.downcast_ref::<FsError>());
    inside.is_some_and(|inside| {
        [FSYNC, FDATASYNC, FSYNC_DIRECTORY, SYNCFS, SYNC_FILE_RANGE].contains(&inside.operation)
    })
}

/// The errno of an error of [`crate::fs`] (or of any `io::Error` that has one).
pub fn os_error(error: &io::Error) -> Option<i32> {
    let inside = error
        .get_ref()
        .and_then(|inside| inside.downcast_ref::<FsError>());
    match inside {
        Some(inside) => inside.source.raw_os_error(),
        None => error.raw_os_error(),
    }
}
