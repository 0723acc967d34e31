//! One reader's handle on one file, and how it reads past the page cache.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fs::{File, cached_pages, forget_cached, no_read_ahead, read_cached};
use crate::sys::{self, BLOCK_BYTES};

/// By which way a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the disk into the memory of the reader (`O_DIRECT`): no page is made for it, and none is copied.
    Direct,
    /// By pages of the cache that are let go at once.
    Paged,
}

impl Way {
    /// A direct read holds the lock of the file while it waits for the disk, and appends with it: only of a
    /// file that nobody has written to for `quiet`.
    pub(super) fn to(file: &File, quiet: Duration) -> Way {
        match file.is_quiet(quiet) {
            true => Way::Direct,
            false => Way::Paged,
        }
    }
}

/// How a read went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
    /// Where in the memory the first byte is.
    pub(super) from: usize,
    pub(super) bytes: usize,
    /// Half of it at least was in the page cache, and stays there.
    pub(super) was_cached: bool,
}

/// Read-ahead is a matter of a handle. On this one there is none: the lane reads what will be sent and nothing
/// else, however many readers share the memory ([ADR 12](../../../docs/adr/0012-cold-reads.md)).
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    way: Way,
    /// The kernel or the file system refused to read past its cache.
    drops_behind: AtomicBool,
}

impl Handle {
    /// Opens the file anew, whatever its name is by now. Without a handle to be had it is read by the one
    /// that is there.
    pub(super) fn open(file: &File, way: Way) -> Handle {
        let opened = match way {
            Way::Direct => open_again(file, libc::O_DIRECT).map(|own| (own, Way::Direct)),
            Way::Paged => Err(io::ErrorKind::Unsupported.into()),
        };
        // Some file systems know no direct reads.
        let opened = opened.or_else(|_| open_again(file, 0).map(|own| (own, Way::Paged)));
        let (file, way) = opened.unwrap_or_else(|error| {
            tracing::debug!(path = %file.path().display(), %error, "no handle for a cold reader");
            (file.clone(), Way::Paged)
        });
        Handle {
            file,
            way,
            drops_behind: AtomicBool::new(false),
        }
    }

    /// Reads `len` bytes from `offset` on, as far as `source` reaches, to somewhere in `memory`, which has room for
    /// them and a block more. The handle is one of `source`.
    pub(super) fn read(
        &self,
        source: &File,
        offset: u64,
        len: usize,
        memory: &mut [u8],
    ) -> io::Result<Filled> {
        if !self.drops_behind.load(Ordering::Relaxed) {
            let past_cache = match self.way {
                Way::Direct => self.read_direct(source, offset, len, memory),
                Way::Paged => self.read_past(offset, &mut memory[..len]),
            };
            match past_cache {
                Err(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                    self.drops_behind.store(true, Ordering::Relaxed);
                }
                past_cache => return past_cache.map_err(io::Error::from_raw_os_error),
            }
        }
        let file = match self.way {
            Way::Direct => source,
            Way::Paged => &self.file,
        };
        let read = read_and_drop(file, offset, &mut memory[..len]);
        read.map_err(io::Error::from_raw_os_error)
    }

    /// Whole blocks, in the file and in memory.
    fn read_direct(
        &self,
        source: &File,
        offset: u64,
        len: usize,
        memory: &mut [u8],
    ) -> Result<Filled, i32> {
        // Less than a block.
        let from = (offset % BLOCK_BYTES as u64) as usize;
        let blocks = &mut memory[..(from + len).next_multiple_of(BLOCK_BYTES)];
        let was_cached = is_half_cached(source, offset, len);
        // Of a file that it can not read directly (an encrypted one), the kernel makes an ordinary read: past the cache, too.
        let at = offset - from as u64;
        let read = match fill(&self.file, at, blocks, Flags::DirectPastCache) {
            Err(libc::EOPNOTSUPP) => fill(&self.file, at, blocks, Flags::Direct)?,
            read => read?,
        };
        Ok(Filled {
            from,
            bytes: read.saturating_sub(from).min(len),
            was_cached,
        })
    }

    fn read_past(&self, offset: u64, memory: &mut [u8]) -> Result<Filled, i32> {
        let bytes = fill(&self.file, offset, memory, Flags::PastCache)?;
        // Asked before, it would also count what was read ahead past the cache, and is gone now.
        Ok(Filled {
            from: 0,
            bytes,
            was_cached: is_half_cached(&self.file, offset, memory.len()),
        })
    }
}

/// Opens what `file` is open on, for reading.
fn open_again(file: &File, flags: i32) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags);
    let own = options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let own = File::from_std(own, file.path().to_owned());
    no_read_ahead(&own);
    Ok(own)
}

/// An ordinary read, which leaves nothing in the page cache that was not there.
fn read_and_drop(file: &File, offset: u64, memory: &mut [u8]) -> Result<Filled, i32> {
    let len = memory.len();
    let was_cached = is_half_cached(file, offset, len);
    let was_there = was_cached || cached_pages(file, offset, len as u64).is_some_and(|n| n > 0);
    let read = fill(file, offset, memory, Flags::None);
    if !was_there {
        forget_cached(file, offset, len as u64);
    }
    Ok(Filled {
        from: 0,
        bytes: read?,
        was_cached,
    })
}

/// On kernels before 6.5 the first byte tells.
fn is_half_cached(file: &File, offset: u64, len: usize) -> bool {
    match cached_pages(file, offset, len as u64) {
        Some(pages) => pages * sys::page_bytes() * 2 >= len as u64,
        None => matches!(read_cached(file, offset, &mut [0]), Ok(Some(_))),
    }
}

#[derive(Clone, Copy)]
enum Flags {
    None,
    PastCache,
    /// The handle is a direct one.
    Direct,
    DirectPastCache,
}

/// Fills `memory` from `offset` on, as far as the file reaches; gives the count of bytes.
fn fill(file: &File, offset: u64, memory: &mut [u8], flags: Flags) -> Result<usize, i32> {
    let (flags, is_direct) = match flags {
        Flags::None => (0, false),
        Flags::PastCache => (sys::PAST_CACHE, false),
        Flags::Direct => (0, true),
        Flags::DirectPastCache => (sys::PAST_CACHE, true),
    };
    let mut done = 0;
    while done < memory.len() {
        let at = offset + done as u64;
        match sys::read_at_into(file.as_raw_fd(), &mut memory[done..], at, flags) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        // The file ends in the middle of a block: behind it no direct read can begin.
        if is_direct && done % BLOCK_BYTES != 0 {
            break;
        }
    }
    Ok(done)
}
