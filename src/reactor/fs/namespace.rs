//! Names, sizes and directories: all on worker threads.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::unistd::syncfs;

use super::file::{FSYNC, FSYNC_DIRECTORY, File, FsError, OpenMode, SYNCFS};
use crate::disk::{self, Operation, flush, perform};
use crate::engine::{Op, WriteOp, run_op};
use crate::failpoint;
use crate::sys;
use crate::workers::{NAMESPACE, Pool, REAPER, SYNCERS};

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: OsString,
    /// True for a directory (links are followed).
    pub is_dir: bool,
}

/// Unit in which `stat` tells what a file has of the disk.
const STAT_BLOCK_BYTES: u64 = 512;

/// Facts about a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// Length in bytes.
    pub len: u64,
    /// Bytes of the disk that it has, also beyond its length.
    pub allocated: u64,
    /// True for a directory (links are followed).
    pub is_dir: bool,
    /// Time of the last change of the content, in milliseconds since 1970.
    pub modified_ms: i64,
}

impl FileMeta {
    fn of(meta: &fs::Metadata) -> FileMeta {
        let modified = meta
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ms = modified.and_then(|since| i64::try_from(since.as_millis()).ok());
        FileMeta {
            len: meta.len(),
            allocated: meta.blocks().saturating_mul(STAT_BLOCK_BYTES),
            is_dir: meta.is_dir(),
            modified_ms: modified_ms.unwrap_or(0),
        }
    }
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What this process may still use, in bytes.
    pub usable_bytes: u64,
}

async fn run<T, F>(
    pool: &'static Pool,
    operation: &'static str,
    path: &Path,
    work: F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
{
    let path = path.to_owned();
    pool.at(&path)
        .run(move || {
            failpoint::pass_at(failpoint::DISK, &path);
            work(&path).map_err(|error| {
                if error.get_ref().is_some_and(|inside| inside.is::<FsError>()) {
                    return error; // names its path already
                }
                FsError::wrap(operation, &path, None, error)
            })
        })
        .await
}

/// Opens a file. A missing directory entry is not made durable by this: see [`sync_dir`].
///
/// # Errors
/// The kernel's.
pub async fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
    run(&NAMESPACE, "open", path, move |path| open_now(path, mode)).await
}

fn open_now(path: &Path, mode: OpenMode) -> io::Result<File> {
    let file = perform(Operation::Open(path, mode), || mode.options().open(path))?;
    Ok(File::from_std(file, path.to_owned()))
}

/// Makes a directory; its parent must exist.
///
/// # Errors
/// The kernel's; `AlreadyExists` if it is there.
pub async fn create_dir(path: &Path) -> io::Result<()> {
    run(&NAMESPACE, "create directory", path, |path| {
        perform(Operation::CreateDir(path), || fs::create_dir(path))
    })
    .await
}

/// Makes a directory with these files in it, by name and content, and returns them open. Nothing of it is
/// durable.
///
/// # Errors
/// The kernel's; `AlreadyExists` if the directory is there. Part of it may be made then.
pub async fn create_dir_with(path: &Path, files: Vec<(String, Bytes)>) -> io::Result<Vec<File>> {
    run(&NAMESPACE, "create directory", path, move |path| {
        perform(Operation::CreateDir(path), || fs::create_dir(path))?;
        let make = |(name, content)| {
            let path = path.join(name);
            let made = open_now(&path, OpenMode::CreateNew).and_then(|file| {
                write_now(&file, content)?;
                Ok(file)
            });
            made.map_err(|error| FsError::wrap("create", &path, None, error))
        };
        files.into_iter().map(make).collect()
    })
    .await
}

/// Makes a directory and its parents; what exists stays.
///
/// # Errors
/// The kernel's.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    run(&NAMESPACE, "create directory", path, |path| {
        perform(Operation::CreateDir(path), || fs::create_dir_all(path))
    })
    .await
}

/// Removes a directory and all that is in it.
///
/// # Errors
/// The kernel's; part of it may be gone then.
pub async fn remove_dir_all(path: &Path) -> io::Result<()> {
    run(&REAPER, "remove directory", path, |path| {
        perform(Operation::RemoveDirAll(path), || fs::remove_dir_all(path))
    })
    .await
}

/// Renames; an existing target is replaced. Durable only after [`sync_dir`] of the parent.
///
/// # Errors
/// The kernel's.
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    run(&NAMESPACE, "rename", from, move |from| {
        rename_now(from, &to)
    })
    .await
}

fn rename_now(from: &Path, to: &Path) -> io::Result<()> {
    perform(Operation::Rename(from, to), || fs::rename(from, to))
}

/// Removes a file's name. Durable only after [`sync_dir`] of the parent.
///
/// # Errors
/// The kernel's.
pub async fn unlink(path: &Path) -> io::Result<()> {
    run(&REAPER, "unlink", path, |path| {
        perform(Operation::Unlink(path), || fs::remove_file(path))
    })
    .await
}

/// What is in a directory, without `.` and `..`, in no order. Names that vanish meanwhile are left
/// out.
///
/// # Errors
/// The kernel's.
pub async fn list_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    run(&NAMESPACE, "list", path, |path| {
        let mut entries = Vec::new();
        for entry in perform(Operation::Look(path), || fs::read_dir(path))? {
            let entry = entry?;
            match is_dir(&entry) {
                Ok(is_dir) => {
                    let name = entry.file_name();
                    entries.push(DirEntry { name, is_dir });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(FsError::wrap("stat", &entry.path(), None, error)),
            }
        }
        Ok(entries)
    })
    .await
}

/// Most file systems tell it with the name.
fn is_dir(entry: &fs::DirEntry) -> io::Result<bool> {
    let kind = entry.file_type()?;
    match kind.is_symlink() {
        true => Ok(fs::metadata(entry.path())?.is_dir()),
        false => Ok(kind.is_dir()),
    }
}

/// Lengths of files of a directory; `None` for a name that is not there.
///
/// # Errors
/// The kernel's.
pub async fn lengths(dir: &Path, names: Vec<String>) -> io::Result<Vec<Option<u64>>> {
    run(&NAMESPACE, "stat", dir, move |dir| {
        let length = |name| {
            let path = dir.join(name);
            match perform(Operation::Look(&path), || fs::metadata(&path)) {
                Ok(meta) => Ok(Some(meta.len())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(FsError::wrap("stat", &path, None, error)),
            }
        };
        names.into_iter().map(length).collect()
    })
    .await
}

/// Drops the pages of a file that are in memory and need not be written, so that the next read asks the
/// disk. A file that is gone has none.
///
/// # Errors
/// The kernel's.
pub async fn drop_cached(path: &Path) -> io::Result<()> {
    run(&NAMESPACE, "drop the cached pages of", path, |path| {
        let opened = perform(Operation::Look(path), || fs::File::open(path));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        Ok(posix_fadvise(&file, 0, 0, advice)?)
    })
    .await
}

/// Facts about a path.
///
/// # Errors
/// The kernel's; `NotFound` if nothing is there.
pub async fn metadata(path: &Path) -> io::Result<FileMeta> {
    run(&NAMESPACE, "stat", path, |path| {
        let found = perform(Operation::Look(path), || fs::metadata(path))?;
        Ok(FileMeta::of(&found))
    })
    .await
}

/// Room of the file system that holds `path`.
///
/// # Errors
/// The kernel's.
pub async fn space(path: &Path) -> io::Result<Space> {
    run(&NAMESPACE, "statvfs", path, |path| {
        let found = nix::sys::statvfs::statvfs(path).map_err(io::Error::from)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Ok(Space {
            total_bytes: bytes(found.blocks()),
            usable_bytes: bytes(found.blocks_available()),
        })
    })
    .await
}

/// True if something is at `path`.
///
/// # Errors
/// The kernel's, where it cannot tell.
pub async fn exists(path: &Path) -> io::Result<bool> {
    run(&NAMESPACE, "stat", path, |path| {
        perform(Operation::Look(path), || path.try_exists())
    })
    .await
}

/// Length of an open file in bytes.
///
/// # Errors
/// The kernel's.
pub async fn len(file: &File) -> io::Result<u64> {
    let file = file.clone();
    let path = file.path().to_owned();
    run(&NAMESPACE, "stat", &path, move |_| {
        file.std().metadata().map(|meta| meta.len())
    })
    .await
}

/// Cuts (or extends with zeros) an open file to `len` bytes.
///
/// # Errors
/// The kernel's.
pub async fn truncate(file: &File, len: u64) -> io::Result<()> {
    let file = file.clone();
    let path = file.path().to_owned();
    run(&NAMESPACE, "truncate", &path, move |_| {
        truncate_now(&file, len)
    })
    .await
}

fn truncate_now(file: &File, len: u64) -> io::Result<()> {
    perform(Operation::Truncate(file, len), || file.std().set_len(len))
}

/// Sets the time of the last change of an open file's content, in milliseconds since 1970.
///
/// # Errors
/// The kernel's.
pub async fn set_modified(file: &File, modified_ms: i64) -> io::Result<()> {
    let file = file.clone();
    let path = file.path().to_owned();
    run(&NAMESPACE, "set time", &path, move |_| {
        let since = Duration::from_millis(u64::try_from(modified_ms).unwrap_or(0));
        file.std().set_modified(UNIX_EPOCH + since)
    })
    .await
}

/// Reserves disk blocks for `len` bytes from `offset`, without changing the file's length.
///
/// # Errors
/// The kernel's; `StorageFull` if the disk has no room, `Unsupported` on some file systems.
pub async fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let file = file.clone();
    let path = file.path().to_owned();
    run(&NAMESPACE, "allocate", &path, move |_| {
        let offset = sys::offset_of(offset).map_err(io::Error::from_raw_os_error)?;
        let len = sys::offset_of(len).map_err(io::Error::from_raw_os_error)?;
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        perform(Operation::Allocate(&file), || {
            Ok(fallocate(&file, keep, offset, len)?)
        })
    })
    .await
}

/// Makes a file's data and all its metadata durable (`fsync`), on a syncer thread.
///
/// # Errors
/// The kernel's; see [`super::sync_data`] on never trying again.
pub async fn sync_all(file: &File) -> io::Result<()> {
    let file = file.clone();
    let path = file.path().to_owned();
    run(&SYNCERS, FSYNC, &path, move |_| sync_all_now(&file)).await
}

/// Makes a directory's entries durable, on a syncer thread.
///
/// # Errors
/// The kernel's; see [`super::sync_data`] on never trying again.
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    run(&SYNCERS, FSYNC_DIRECTORY, path, sync_dir_now).await
}

/// The file system of a directory, by a handle that is kept. Clones share it.
///
/// The kernel tells each handle once what failed on the way to the disk since it was opened. One that was opened
/// later knows nothing of a failure that another was told before.
#[derive(Debug, Clone)]
pub struct FileSystem {
    handle: Arc<fs::File>,
    path: PathBuf,
}

impl FileSystem {
    /// Of a directory, which must exist. Blocks the thread for an open: for use at start.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<FileSystem> {
        let opened = fs::File::open(path);
        let handle = opened.map_err(|error| FsError::wrap("open directory", path, None, error))?;
        Ok(FileSystem {
            handle: Arc::new(handle),
            path: path.to_owned(),
        })
    }

    /// Makes all durable that was written to it, names and content, by whomever: one system call instead of very
    /// many. A simulated disk makes the directory's own entries durable.
    ///
    /// # Errors
    /// The kernel's, of anything written since the handle was opened; see [`super::sync_data`] on never trying
    /// again.
    pub async fn sync(&self) -> io::Result<()> {
        let handle = Arc::clone(&self.handle);
        run(&SYNCERS, SYNCFS, &self.path, move |path| {
            flush(Operation::SyncDir(path), || Ok(syncfs(&handle)?))
        })
        .await
    }
}

fn sync_all_now(file: &File) -> io::Result<()> {
    flush(Operation::Sync(file), || file.std().sync_all())
}

fn sync_dir_now(path: &Path) -> io::Result<()> {
    flush(Operation::SyncDir(path), || {
        fs::File::open(path)?.sync_all()
    })
}

/// The whole of a small file.
///
/// # Errors
/// The kernel's; `FileTooLarge` if it has more than `bytes_max` bytes.
pub async fn read_file(path: &Path, bytes_max: usize) -> io::Result<Bytes> {
    run(&NAMESPACE, "read", path, move |path| {
        read_now(path, bytes_max)
    })
    .await
}

/// As [`read_file`], of many files; `None` for one that is not there, or has too many bytes.
///
/// # Errors
/// The kernel's.
pub async fn read_files(paths: Vec<PathBuf>, bytes_max: usize) -> io::Result<Vec<Option<Bytes>>> {
    let read = move |path: &PathBuf| match read_now(path, bytes_max) {
        Ok(content) => Ok(Some(content)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge => Ok(None),
            _other => Err(FsError::wrap("read", path, None, error)),
        },
    };
    let work = move || paths.iter().map(read).collect();
    NAMESPACE.run(work).await
}

fn read_now(path: &Path, bytes_max: usize) -> io::Result<Bytes> {
    let file = perform(Operation::Look(path), || fs::File::open(path))?;
    let limit = u64::try_from(bytes_max)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    // One more than it has, so that the end is met without another piece of memory.
    let room = file.metadata()?.len().min(limit - 1) + 1;
    let mut content = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    file.take(limit).read_to_end(&mut content)?;
    if content.len() > bytes_max {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(Bytes::from(content))
}

/// Replaces a file's content so that a crash leaves the old or the new, durably: writes
/// `<name>.tmp` beside it, syncs it, renames it, syncs the directory.
///
/// # Errors
/// The kernel's; the old content is then still in place unless it was the last sync that failed.
pub async fn write_file_atomically(path: &Path, content: Bytes) -> io::Result<()> {
    run(&SYNCERS, "replace", path, move |path| {
        let (temporary, file) = write_beside(path, content)?;
        let synced = sync_all_now(&file);
        synced.map_err(|error| FsError::wrap(FSYNC, &temporary, None, error))?;
        drop(file);
        rename_now(&temporary, path)?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        sync_dir_now(parent).map_err(|error| FsError::wrap(FSYNC_DIRECTORY, parent, None, error))
    })
    .await
}

/// As [`write_file_atomically`] without making anything durable: a crash of the process leaves the old
/// or the new content, a crash of the system may leave anything.
///
/// # Errors
/// The kernel's.
pub async fn replace_file(path: &Path, content: Bytes) -> io::Result<()> {
    run(&NAMESPACE, "replace", path, move |path| {
        replace_now(path, content)
    })
    .await
}

fn replace_now(path: &Path, content: Bytes) -> io::Result<()> {
    let (temporary, file) = write_beside(path, content)?;
    drop(file);
    rename_now(&temporary, path)
}

/// As [`replace_file`], for content that begins with what the file has: writes over it instead of making a
/// file anew, which costs a file system much more. A crash of the process leaves a content in between, old
/// behind new. A longer file is replaced.
///
/// # Errors
/// The kernel's; the file is then as long as before, if that can be had.
pub async fn extend_file(path: &Path, content: Bytes) -> io::Result<()> {
    run(&NAMESPACE, "write", path, move |path| {
        let file = open_now(path, OpenMode::Create)?;
        let before = file.std().metadata()?.len();
        if before > content.len() as u64 {
            drop(file);
            return replace_now(path, content);
        }
        // A part of what is beyond tells a reader nothing.
        write_now(&file, content).or_else(|error| {
            truncate_now(&file, before)?;
            Err(error)
        })
    })
    .await
}

/// A new file beside the one at `path`, with this content.
fn write_beside(path: &Path, content: Bytes) -> io::Result<(PathBuf, File)> {
    let temporary = temporary_name(path)?;
    let file = open_now(&temporary, OpenMode::CreateEmpty)?;
    write_now(&file, content)?;
    Ok((temporary, file))
}

/// The whole content of a new file.
fn write_now(file: &File, content: Bytes) -> io::Result<()> {
    let write = WriteOp::new(file.clone(), vec![content], 0);
    if write.len() > 0 {
        run_op(Op::Write(write)).result?;
    }
    Ok(())
}

/// A text that is the same for as long as what was written to the file system of `directory` can be read
/// back without a look at the disk: neither the system was started anew nor the file system mounted anew.
/// `None` when the kernel can not tell (Linux before 6.8).
///
/// # Errors
/// The kernel's.
pub async fn cache_lifetime(directory: &Path) -> io::Result<Option<String>> {
    run(&NAMESPACE, "stat", directory, |path| {
        if let Some(lifetime) = disk::lifetime() {
            return Ok(Some(lifetime));
        }
        let opened = fs::File::open(path)?;
        let mount = sys::unique_mount_id(opened.as_raw_fd());
        let Some(mount) = mount.map_err(io::Error::from_raw_os_error)? else {
            return Ok(None);
        };
        let boot = fs::read_to_string(BOOT_ID)?;
        Ok(Some(format!("{} {mount}", boot.trim())))
    })
    .await
}

/// Drawn at random at each start of the system.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = name.to_owned();
    name.push(".tmp");
    Ok(path.with_file_name(name))
}
