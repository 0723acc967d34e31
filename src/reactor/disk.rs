//! Where a simulated disk stands between a runtime and the kernel.
//!
//! A runtime made by [`crate::Runtime::simulated`] runs every file operation on its own thread, one
//! after the other in the order in which they are asked for, so that a run is the same each time. Each
//! system call that changes or reads a file asks its [`Disk`] first, which may refuse it or let only
//! part of it happen, and tells it afterwards; in between, the call is made for real. How long an
//! operation takes, or a sleep, is counted in turns of the scheduler.
//!
//! On any other thread nothing stands in between: the cost is one look at a thread-local.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::context;
use crate::engine::Engine;
use crate::fs::{File, OpenMode};
use crate::task;

/// One system call on a file or a name.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Opens, and makes or empties the file if the mode says so.
    Open(&'a Path, OpenMode),
    /// Reads the names of a directory, or facts about a path or a file system.
    Look(&'a Path),
    /// Reads bytes at an offset.
    Read(&'a File, u64),
    /// Writes these slices, one after the other, at an offset.
    Write(&'a File, u64, &'a [&'a [u8]]),
    /// Cuts or extends to a length.
    Truncate(&'a File, u64),
    /// Reserves blocks and leaves the length.
    Allocate(&'a File),
    /// `fsync` or `fdatasync` of a file.
    Sync(&'a File),
    /// `fsync` of a directory.
    SyncDir(&'a Path),
    /// Makes a directory.
    CreateDir(&'a Path),
    /// Renames the first to the second.
    Rename(&'a Path, &'a Path),
    /// Removes the name of a file.
    Unlink(&'a Path),
    /// Removes a directory with all that is in it.
    RemoveDirAll(&'a Path),
}

/// What a disk makes of an operation that is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It happens.
    Goes,
    /// Of a read or a write at most so many bytes happen, at least one.
    GoesUpTo(usize),
    /// It does not happen and fails with this errno.
    Fails(i32),
    /// Of a flush: it counts as done without being made, since nothing outlives the run anyway.
    Counts,
}

/// A simulated disk. It is asked and told on the thread of its runtime only.
pub trait Disk {
    /// An operation is about to happen.
    fn before(&self, operation: &Operation<'_>) -> Verdict;
    /// It has happened. `bytes` is how many of a read or a write; 0 for the rest.
    fn after(&self, operation: &Operation<'_>, bytes: usize);
    /// How many turns of the scheduler pass before the next operation begins, or its result is seen.
    fn delay(&self) -> u32;
    /// What [`crate::fs::cache_lifetime`] gives.
    fn lifetime(&self) -> String;
}

fn current() -> Option<Rc<dyn Disk>> {
    match &context::current()?.engine {
        Engine::Simulated(disk) => Some(Rc::clone(disk)),
        Engine::Ring(_) | Engine::Plain(_) => None,
    }
}

/// True on the thread of a simulated runtime.
pub(crate) fn is_simulated() -> bool {
    current().is_some()
}

/// The lifetime of a simulated page cache.
pub(crate) fn lifetime() -> Option<String> {
    Some(current()?.lifetime())
}

/// Lets the time pass that the disk takes.
pub(crate) async fn delay() {
    let turns = current().map_or(0, |disk| disk.delay());
    for _ in 0..turns {
        task::yield_now().await;
    }
}

/// Lets `duration` pass where time is counted in turns, one per millisecond. False: on any other thread.
pub(crate) async fn sleep(duration: Duration) -> bool {
    if !is_simulated() {
        return false;
    }
    for _ in 0..duration.as_millis() {
        task::yield_now().await;
    }
    true
}

/// Makes a system call that moves no bytes.
///
/// # Errors
/// Those of `call`, and what a simulated disk wants.
pub(crate) fn perform<T>(
    operation: Operation<'_>,
    call: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(disk) = current() else {
        return call();
    };
    match disk.before(&operation) {
        Verdict::Fails(errno) => return Err(io::Error::from_raw_os_error(errno)),
        Verdict::Goes | Verdict::GoesUpTo(_) | Verdict::Counts => {}
    }
    let done = call()?;
    disk.after(&operation, 0);
    Ok(done)
}

/// Makes a flush.
///
/// # Errors
/// As [`perform`].
pub(crate) fn flush(
    operation: Operation<'_>,
    call: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let Some(disk) = current() else {
        return call();
    };
    match disk.before(&operation) {
        Verdict::Fails(errno) => return Err(io::Error::from_raw_os_error(errno)),
        Verdict::Goes | Verdict::GoesUpTo(_) => call()?,
        Verdict::Counts => {}
    }
    disk.after(&operation, 0);
    Ok(())
}

/// Makes a write of `slices`, or of the first part of them.
///
/// # Errors
/// The errno of `call`, or what a simulated disk wants.
pub(crate) fn write(
    file: &File,
    offset: u64,
    slices: &[&[u8]],
    call: impl FnOnce(&[&[u8]]) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let Some(disk) = current() else {
        return call(slices);
    };
    let part = match disk.before(&Operation::Write(file, offset, slices)) {
        Verdict::Fails(errno) => return Err(errno),
        Verdict::Goes | Verdict::Counts => slices.to_vec(),
        Verdict::GoesUpTo(bytes) => first_bytes(slices, bytes),
    };
    let done = call(&part)?;
    let done_part = first_bytes(&part, done);
    disk.after(&Operation::Write(file, offset, &done_part), done);
    Ok(done)
}

/// Makes a read of up to `len` bytes.
///
/// # Errors
/// As [`write`].
pub(crate) fn read(
    file: &File,
    offset: u64,
    len: usize,
    call: impl FnOnce(usize) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let Some(disk) = current() else {
        return call(len);
    };
    let operation = Operation::Read(file, offset);
    let len = match disk.before(&operation) {
        Verdict::Fails(errno) => return Err(errno),
        Verdict::Goes | Verdict::Counts => len,
        Verdict::GoesUpTo(bytes) => len.min(bytes.max(1)),
    };
    let done = call(len)?;
    disk.after(&operation, done);
    Ok(done)
}

fn first_bytes<'a>(slices: &[&'a [u8]], bytes: usize) -> Vec<&'a [u8]> {
    let mut left = bytes.max(1);
    let mut part = Vec::with_capacity(slices.len());
    for slice in slices {
        let taken = slice.len().min(left);
        if taken == 0 {
            break;
        }
        part.push(&slice[..taken]);
        left -= taken;
    }
    part
}
