//! Reads, writes and flushes of open files.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use bytes::{Bytes, BytesMut};

use super::file::{FDATASYNC, File, FsError};
use super::under_way::Writing;
use crate::disk::{self, Operation};
use crate::engine::{self, Op, ReadOp, WriteOp};
use crate::failpoint;
use crate::sys::{self, Advice};
use crate::workers::{FLUSHERS, SYNCERS};

/// Writes `bufs` one after the other at `offset` and gives the count of bytes, which is always that
/// of all of them. It begins at the first poll and runs to its end even if the future is dropped; two
/// writes that are in flight together have no order.
///
/// # Errors
/// The kernel's. How much of it reached the file is then unknown.
pub async fn write_at(file: &File, bufs: Vec<Bytes>, offset: u64) -> io::Result<u64> {
    let write = WriteOp::new(file.clone(), bufs, offset);
    let len = write.len();
    if len == 0 {
        return Ok(0);
    }
    file.note_write();
    let writing = Writing::begin();
    let finished = engine::run(Op::Write(write)).await;
    drop(writing);
    match finished.result {
        Ok(()) => Ok(len),
        Err(error) => Err(FsError::wrap("write", file.path(), Some(offset), error)),
    }
}

/// Reads up to `len` bytes at `offset`; fewer only at the end of the file. `len` is allocated at
/// once: bound it.
///
/// # Errors
/// The kernel's.
pub async fn read_at(file: &File, offset: u64, len: usize) -> io::Result<BytesMut> {
    if len == 0 {
        return Ok(BytesMut::new());
    }
    let finished = engine::run(Op::Read(ReadOp::new(file.clone(), offset, len))).await;
    let read = match (finished.result, finished.op) {
        (Ok(()), Some(Op::Read(read))) => Ok(read.into_buf()),
        (Ok(()), Some(Op::Write(_)) | None) => Err(io::Error::other("the operation was lost")),
        (Err(error), _) => Err(error),
    };
    read.map_err(|error| FsError::wrap("read", file.path(), Some(offset), error))
}

/// Reads what the page cache has at `offset`, on the calling thread, without waiting for a disk.
/// `None` if the first byte is not there (or the file system cannot tell); a count below the length
/// of `buf` at the end of the file or where the cached part ends.
///
/// # Errors
/// The kernel's.
pub fn read_cached(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<Option<usize>> {
    at_hand(file, offset, |fd| {
        sys::read_at_into(fd, buf, offset, libc::RWF_NOWAIT)
    })
}

/// As [`read_cached`], to the end of `buf`, at most `len` bytes and what it has room for.
///
/// # Errors
/// The kernel's.
pub fn append_cached(
    file: &File,
    offset: u64,
    buf: &mut BytesMut,
    len: usize,
) -> io::Result<Option<usize>> {
    at_hand(file, offset, |fd| {
        sys::append_at(fd, buf, len, offset, libc::RWF_NOWAIT)
    })
}

fn at_hand(
    file: &File,
    offset: u64,
    mut read: impl FnMut(RawFd) -> Result<usize, i32>,
) -> io::Result<Option<usize>> {
    if disk::is_simulated() {
        return Ok(None); // what the kernel has cached would differ from run to run
    }
    loop {
        match read(file.as_raw_fd()) {
            Ok(read) => return Ok(Some(read)),
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN | libc::EOPNOTSUPP) => return Ok(None),
            Err(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(FsError::wrap("read", file.path(), Some(offset), error));
            }
        }
    }
}

/// How many pages of `[offset, offset + len)` the page cache holds; `None` where the kernel does not tell.
pub fn cached_pages(file: &File, offset: u64, len: u64) -> Option<u64> {
    match disk::is_simulated() {
        true => None,
        false => sys::cached_pages(file.as_raw_fd(), offset, len).ok(),
    }
}

/// True when `[offset, offset + len)` can be read without waiting for a disk: all of it is in the page cache
/// and its last byte, which read-ahead brings last, can be read now. Kernels before 6.5 answer for the
/// last byte only. Nothing is read for the question where the kernel can tell without.
pub fn is_resident(file: &File, offset: u64, len: u64) -> bool {
    has_all_pages(file, offset, len) != Some(false) && is_last_ready(file, offset, len)
}

/// As [`is_resident`], and false where the kernel can tell of the last byte only.
pub fn is_surely_resident(file: &File, offset: u64, len: u64) -> bool {
    has_all_pages(file, offset, len) == Some(true) && is_last_ready(file, offset, len)
}

fn has_all_pages(file: &File, offset: u64, len: u64) -> Option<bool> {
    let page = sys::page_bytes();
    let Some(last) = last_of(offset, len) else {
        return Some(false);
    };
    let wanted = last / page - offset / page + 1;
    cached_pages(file, offset, len).map(|pages| pages >= wanted)
}

fn is_last_ready(file: &File, offset: u64, len: u64) -> bool {
    let ready = |last| matches!(read_cached(file, last, &mut [0]), Ok(Some(1)));
    last_of(offset, len).is_some_and(ready)
}

fn last_of(offset: u64, len: u64) -> Option<u64> {
    offset.checked_add(len)?.checked_sub(1)
}

/// From now on reads of this handle bring nothing into the page cache but what they ask for. Where the
/// file system does not know of it, nothing changes.
pub fn no_read_ahead(file: &File) {
    advise(file, 0, 0, Advice::NoReadAhead);
}

/// Lets go of what the page cache holds of `[offset, offset + len)`, whole pages only, as far as it is
/// on the disk. Bytes and readers notice nothing of it.
pub fn forget_cached(file: &File, offset: u64, len: u64) {
    advise(file, offset, len, Advice::NotNeeded);
}

/// Only a hint: a refusal changes how fast things are and nothing else.
fn advise(file: &File, offset: u64, len: u64, advice: Advice) {
    if !disk::is_simulated()
        && let Err(errno) = sys::advise(file.as_raw_fd(), offset, len, advice)
    {
        tracing::debug!(path = %file.path().display(), errno, "the kernel took no advice");
    }
}

/// Makes the file's data durable (`fdatasync`), on a syncer thread. Covers exactly the writes whose
/// futures had ended before this one was first polled. After an error, never try again: the kernel
/// may have dropped the pages it could not write.
///
/// # Errors
/// The kernel's.
pub async fn sync_data(file: &File) -> io::Result<()> {
    SYNCERS
        .at(file.path())
        .run(flush_of(file.clone(), || ()))
        .await
}

/// As [`sync_data`], on the few threads for flushes in the background. `covered` is called right before the flush begins: what it says was written then,
/// is on the disk when this returns.
///
/// # Errors
/// The kernel's.
pub async fn sync_in_background<T, F>(file: &File, covered: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    FLUSHERS
        .at(file.path())
        .run(flush_of(file.clone(), covered))
        .await
}

/// The work of a thread that flushes.
pub(super) fn flush_of<T>(
    file: File,
    covered: impl FnOnce() -> T,
) -> impl FnOnce() -> io::Result<T> {
    move || {
        failpoint::pass_at(failpoint::DISK, file.path());
        let covered = covered();
        let synced = disk::flush(Operation::Sync(&file), || file.std().sync_data());
        synced.map_err(|error| FsError::wrap(FDATASYNC, file.path(), None, error))?;
        Ok(covered)
    }
}
