//! One reader's handle on one file, and how it reads past the page cache.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fs::{File, cached_pages, forget_cached, no_read_ahead, read_cached};
use crate::sys;

/// How a read went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
    pub(super) bytes: usize,
    /// Half of it at least was in the page cache, and stays there.
    pub(super) was_cached: bool,
}

/// Read-ahead is a matter of a handle. On this one there is none: the lane reads what will be sent and nothing
/// else, however many readers share the memory ([ADR 12](../../../docs/adr/0012-cold-reads.md)).
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    /// The kernel or the file system refused to read past its cache.
    drops_behind: AtomicBool,
}

impl Handle {
    /// Opens the file anew, whatever its name is by now. Without a handle to be had it is read by the one
    /// that is there.
    pub(super) fn open(file: &File) -> Handle {
        let by_handle = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = match fs::File::open(by_handle) {
            Ok(own) => {
                let own = File::from_std(own, file.path().to_owned());
                no_read_ahead(&own);
                own
            }
            Err(error) => {
                tracing::debug!(path = %file.path().display(), %error, "no handle for a cold reader");
                file.clone()
            }
        };
        Handle {
            file,
            drops_behind: AtomicBool::new(false),
        }
    }

    /// Fills `buffer` from `offset` on, as far as the file reaches; gives the count of bytes.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Filled> {
        let len = buffer.len() as u64;
        let half_of = |pages: u64| pages * sys::page_bytes() * 2 >= len;
        if !self.drops_behind.load(Ordering::Relaxed) {
            match self.fill(offset, buffer, sys::PAST_CACHE) {
                Err(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                    self.drops_behind.store(true, Ordering::Relaxed);
                }
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Ok(bytes) => {
                    // Asked before, it would also count what was read ahead past the cache, and is gone now.
                    let left = cached_pages(&self.file, offset, len).unwrap_or(0);
                    return Ok(Filled {
                        bytes,
                        was_cached: half_of(left),
                    });
                }
            }
        }
        let pages = match cached_pages(&self.file, offset, len) {
            Some(pages) => pages,
            None => u64::from(read_cached(&self.file, offset, &mut [0])?.is_some()),
        };
        let read = self.fill(offset, buffer, 0);
        if pages == 0 {
            forget_cached(&self.file, offset, len);
        }
        let bytes = read.map_err(io::Error::from_raw_os_error)?;
        Ok(Filled {
            bytes,
            was_cached: half_of(pages),
        })
    }

    fn fill(&self, offset: u64, buffer: &mut [u8], flags: i32) -> Result<usize, i32> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            match sys::read_at_into(self.file.as_raw_fd(), &mut buffer[done..], at, flags) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(libc::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }
}
