//! System calls that no safe wrapper covers, each in a safe function of its own.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use bytes::BytesMut;

/// Counts `len` more bytes of `buf` as filled.
///
/// The caller has just been told by the kernel that it filled them: the first `len` bytes of
/// `buf.spare_capacity_mut()`.
pub(crate) fn assume_filled(buf: &mut BytesMut, len: usize) {
    let filled = buf.len() + len;
    assert!(filled <= buf.capacity());
    // SAFETY: `filled` is within the capacity, and the kernel initialised the bytes up to it
    // (`ReadOp::on_read` and `append_at` are the only callers and pass the count of a completed read
    // into them).
    unsafe { buf.set_len(filled) };
}

/// `preadv2` of one buffer. `flags` are `RWF_*`. Gives the count of bytes read or the errno.
pub(crate) fn read_at(
    fd: RawFd,
    buf: &mut [MaybeUninit<u8>],
    offset: u64,
    flags: libc::c_int,
) -> Result<usize, i32> {
    let iovec = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let offset = offset_of(offset)?;
    // SAFETY: the iovec names `buf`, which is borrowed mutably for the length of the call; the kernel
    // writes at most `iov_len` bytes there and keeps no pointer. A stale `fd` would be an error, and
    // callers hold the file open.
    let read = unsafe { libc::preadv2(fd, &raw const iovec, 1, offset, flags) };
    usize::try_from(read).map_err(|_| errno())
}

/// A flag of [`read_at`]: what it brings into the page cache does not stay there, what was in it does
/// (`RWF_DONTCACHE`, Linux 6.14). EOPNOTSUPP where the kernel or the file system knows no such.
pub(crate) const PAST_CACHE: libc::c_int = 0x80;

/// Where direct reads begin and end, in a file and in memory: no disk has larger blocks.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Memory of a block that begins where one does.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub(crate) struct Block([u8; BLOCK_BYTES]);

impl Block {
    pub(crate) const ZERO: Block = Block([0; BLOCK_BYTES]);
}

/// The bytes of blocks that follow each other.
pub(crate) fn bytes_of(blocks: &[Block]) -> &[u8] {
    let len = std::mem::size_of_val(blocks);
    // SAFETY: a block is its bytes and nothing else, all of them initialised, and any alignment suits bytes;
    // the result borrows `blocks`.
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), len) }
}

/// As [`bytes_of`], to be written to.
pub(crate) fn bytes_of_mut(blocks: &mut [Block]) -> &mut [u8] {
    let len = std::mem::size_of_val(blocks);
    // SAFETY: as in `bytes_of`; every byte is a value of a block, and the result borrows `blocks` alone.
    unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast(), len) }
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: no pointer is passed.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(bytes).map_or(4_096, |bytes| bytes.max(1))
    })
}

/// Columns and lines of the terminal `fd`; `None` where it is none, or does not say.
pub(crate) fn terminal_size(fd: RawFd) -> Option<(usize, usize)> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: TIOCGWINSZ writes one `winsize` to `size`, which lives for the length of the call.
    let failed = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr()) };
    if failed != 0 {
        return None;
    }
    // SAFETY: all zeros is a `winsize`, and the kernel has written one over it.
    let size = unsafe { size.assume_init() };
    let (columns, lines) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && lines > 0).then_some((columns, lines))
}

/// Asks `statx` for the mount's id that no other mount gets until the system ends (Linux 6.8).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// An id of the mount that holds the open file `fd`, used once between two starts of the system. `None`
/// when the kernel knows no such.
pub(crate) fn unique_mount_id(fd: RawFd) -> Result<Option<u64>, i32> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH names `fd`; the kernel writes at
    // most one `statx` to `found`, which lives for the length of the call.
    let failed = unsafe {
        libc::statx(
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_MNT_ID_UNIQUE,
            found.as_mut_ptr(),
        )
    };
    if failed != 0 {
        return Err(errno());
    }
    // SAFETY: it was zeroed, and every field is an integer, for which all bytes are values.
    let found = unsafe { found.assume_init() };
    Ok((found.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id))
}

/// What [`advise`] tells the kernel about a file.
#[derive(Clone, Copy)]
pub(crate) enum Advice {
    /// Nothing is to be read ahead of what is asked for.
    NoReadAhead,
    /// Clean pages of the range are of no use in the page cache.
    NotNeeded,
}

/// `posix_fadvise` of `[offset, offset + len)`, where a length of 0 reaches to the end.
pub(crate) fn advise(fd: RawFd, offset: u64, len: u64, advice: Advice) -> Result<(), i32> {
    let advice = match advice {
        Advice::NoReadAhead => libc::POSIX_FADV_RANDOM,
        Advice::NotNeeded => libc::POSIX_FADV_DONTNEED,
    };
    let (offset, len) = (offset_of(offset)?, offset_of(len)?);
    // SAFETY: no pointer is passed. A stale `fd` would be an error, and callers hold the file open.
    match unsafe { libc::posix_fadvise(fd, offset, len, advice) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// Writes the dirty pages of `[offset, offset + len)` to the device and waits for them (`sync_file_range`). They
/// are not durable by that: neither what the file system must write to find them nor the device's own cache is.
pub(crate) fn write_back(fd: RawFd, offset: u64, len: u64) -> Result<(), i32> {
    const ALL: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (offset, len) = (offset_of(offset)?, offset_of(len)?);
    // SAFETY: no pointer is passed. A stale `fd` would be an error, and callers hold the file open.
    match unsafe { libc::sync_file_range(fd, offset, len, ALL) } {
        0 => Ok(()),
        _failed => Err(errno()),
    }
}

/// How many pages of `[offset, offset + len)` the page cache holds (`cachestat`, Linux 6.5). An errno where
/// the kernel knows no such call or does not allow it.
pub(crate) fn cached_pages(fd: RawFd, offset: u64, len: u64) -> Result<u64, i32> {
    /// The number of the call on every architecture but alpha.
    const CACHESTAT: libc::c_long = 451;
    let range: [u64; 2] = [offset, len];
    // Pages in the cache, dirty, under writeback, evicted, recently evicted.
    let mut found = [0_u64; 5];
    // SAFETY: the kernel reads 16 bytes of `range` and writes 40 to `found`, both of which live for the
    // length of the call.
    let failed = unsafe { libc::syscall(CACHESTAT, fd, range.as_ptr(), found.as_mut_ptr(), 0) };
    match failed {
        0 => Ok(found[0]),
        _ => Err(errno()),
    }
}

/// As [`read_at`] to the end of `buf`, at most `len` bytes and what it has room for.
pub(crate) fn append_at(
    fd: RawFd,
    buf: &mut BytesMut,
    len: usize,
    offset: u64,
    flags: libc::c_int,
) -> Result<usize, i32> {
    let spare = buf.spare_capacity_mut();
    let room = len.min(spare.len());
    let read = read_at(fd, &mut spare[..room], offset, flags)?;
    assume_filled(buf, read);
    Ok(read)
}

/// As [`read_at`] into initialised memory.
pub(crate) fn read_at_into(
    fd: RawFd,
    buf: &mut [u8],
    offset: u64,
    flags: libc::c_int,
) -> Result<usize, i32> {
    let len = buf.len();
    let start: *mut MaybeUninit<u8> = buf.as_mut_ptr().cast();
    // SAFETY: the same memory under a weaker type, borrowed for the length of the call; `read_at`
    // hands it to the kernel only, which writes initialised bytes.
    let buf = unsafe { std::slice::from_raw_parts_mut(start, len) };
    read_at(fd, buf, offset, flags)
}

/// Makes glibc look host names up in `/etc/hosts` and DNS, whatever `/etc/nsswitch.conf` says.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub(crate) fn look_hosts_up_in_files_and_dns() {
    // SAFETY: glibc has it with these arguments and this result (`nss.h`).
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: both are strings with a NUL that live for ever; glibc reads them and keeps a copy. A refusal
    // leaves the lookup as it was.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}

/// Gives the calling thread, and those that it starts, the lowest priority. Gives the errno.
pub(crate) fn lower_priority() -> Result<(), i32> {
    const LOWEST: libc::c_int = 19;
    // SAFETY: no pointer is passed; on Linux, process 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Lets reads of the calling thread come last at a disk, where its scheduler looks at priorities. Gives the
/// errno.
pub(crate) fn lower_io_priority() -> Result<(), i32> {
    /// The calling thread.
    const WHO_PROCESS: libc::c_int = 1;
    /// The class of all who asked for none, and its lowest level.
    const BEST_EFFORT_LOWEST: libc::c_int = (2 << 13) | 7;
    // SAFETY: no pointer is passed.
    let failed = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, BEST_EFFORT_LOWEST) };
    match failed {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// A file offset as the kernel takes it.
pub(crate) fn offset_of(offset: u64) -> Result<i64, i32> {
    i64::try_from(offset).map_err(|_| libc::EINVAL)
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
