//! One read or write of a file: what it owns, how far it is, and what a result of the kernel means
//! for it. Both engines drive the same operation.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use bytes::{Bytes, BytesMut};

use crate::fs::File;
use crate::stats;

/// Slices of one system call (`IOV_MAX`); an operation with more takes several.
pub(crate) const IOVECS_MAX: usize = 1_024;

/// EINTR or EAGAIN results one operation goes through before it fails. The kernel gives at most a
/// few; the bound keeps a broken one from spinning us.
const INTERRUPTIONS_MAX: u32 = 1_000;

/// A vectored write of owned slices at one offset.
pub(crate) struct WriteOp {
    file: File,
    bufs: Vec<Bytes>,
    offset: u64,
    len: u64,
    done: u64,
    /// First slice not wholly written, and how much of it is.
    at: (usize, usize),
}

/// A read into owned memory at one offset; short only at the end of the file.
pub(crate) struct ReadOp {
    file: File,
    buf: BytesMut,
    offset: u64,
    len: usize,
}

pub(crate) enum Op {
    Write(WriteOp),
    Read(ReadOp),
}

/// What to do after a result of the kernel.
#[derive(Debug)]
pub(crate) enum Step {
    /// Submit the rest.
    Rest,
    /// Submit the rest where it may block: inline it would have had to wait.
    RestBlocking,
    /// The operation is over.
    Done(io::Result<()>),
}

/// How often an operation was submitted anew, for the counts of the thread that began it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Resubmits {
    pub(crate) short: u32,
    pub(crate) interrupted: u32,
}

/// An operation that is over. `op` is `None` only if its worker thread was lost.
pub(crate) struct Finished {
    pub(crate) op: Option<Op>,
    pub(crate) resubmits: Resubmits,
    pub(crate) result: io::Result<()>,
}

impl WriteOp {
    pub(crate) fn new(file: File, bufs: Vec<Bytes>, offset: u64) -> WriteOp {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let mut op = WriteOp {
            file,
            bufs,
            offset,
            len,
            done: 0,
            at: (0, 0),
        };
        op.skip_written(0);
        op
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn position(&self) -> u64 {
        self.offset + self.done
    }

    /// What is still to write, slice by slice, none of them empty.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let (first, skip) = self.at;
        let slices = self.bufs.iter().enumerate().skip(first);
        slices
            .map(move |(n, buf)| if n == first { &buf[skip..] } else { &buf[..] })
            .filter(|slice| !slice.is_empty())
    }

    fn skip_written(&mut self, written: u64) {
        self.done += written;
        let mut left = usize::try_from(written).expect("a write of this process's memory");
        while let Some(buf) = self.bufs.get(self.at.0) {
            let of_this = buf.len() - self.at.1;
            if left < of_this {
                self.at.1 += left;
                return;
            }
            left -= of_this;
            self.at = (self.at.0 + 1, 0);
        }
        assert_eq!(left, 0, "the kernel says it wrote more than it was given");
    }
}

impl ReadOp {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn new(file: File, offset: u64, len: usize) -> ReadOp {
        ReadOp {
            file,
            buf: BytesMut::with_capacity(len),
            offset,
            len,
        }
    }

    pub(crate) fn position(&self) -> u64 {
        self.offset + self.buf.len() as u64
    }

    /// Bytes still to read.
    pub(crate) fn rest_len(&self) -> usize {
        self.len - self.buf.len()
    }

    /// Memory for the bytes still to read: at least `rest_len` bytes.
    pub(crate) fn rest(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        let rest = self.len - self.buf.len();
        &mut self.buf.spare_capacity_mut()[..rest]
    }

    pub(crate) fn into_buf(self) -> BytesMut {
        self.buf
    }
}

impl Op {
    pub(crate) fn fd(&self) -> RawFd {
        self.file().as_raw_fd()
    }

    fn file(&self) -> &File {
        match self {
            Op::Write(write) => &write.file,
            Op::Read(read) => &read.file,
        }
    }

    /// Where in the file it stands.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Op::Write(write) => write.position(),
            Op::Read(read) => read.position(),
        }
    }

    /// Takes in what the kernel said of the last submission: bytes done, or an errno.
    pub(crate) fn on_result(&mut self, result: Result<usize, i32>, again: &mut Resubmits) -> Step {
        match result {
            Ok(done) => self.on_progress(done, again),
            Err(errno @ (libc::EINTR | libc::EAGAIN)) => {
                again.interrupted += 1;
                if again.interrupted > INTERRUPTIONS_MAX {
                    return Step::Done(Err(io::Error::from_raw_os_error(errno)));
                }
                if errno == libc::EINTR {
                    Step::Rest
                } else {
                    Step::RestBlocking
                }
            }
            Err(errno) => Step::Done(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    fn on_progress(&mut self, done: usize, again: &mut Resubmits) -> Step {
        let complete = match self {
            Op::Write(_) if done == 0 => {
                return Step::Done(Err(io::Error::from(io::ErrorKind::WriteZero)));
            }
            Op::Write(write) => {
                write.skip_written(done as u64);
                write.done == write.len
            }
            Op::Read(read) => {
                read.on_read(done);
                done == 0 || read.rest_len() == 0
            }
        };
        if complete {
            return Step::Done(Ok(()));
        }
        again.short += 1;
        Step::Rest
    }
}

impl ReadOp {
    fn on_read(&mut self, done: usize) {
        assert!(
            done <= self.rest_len(),
            "the kernel says it read more than it was asked for"
        );
        crate::sys::assume_filled(&mut self.buf, done);
    }
}

impl Finished {
    /// An operation whose worker thread died with it.
    pub(crate) fn lost(error: io::Error) -> Finished {
        Finished {
            op: None,
            resubmits: Resubmits::default(),
            result: Err(error),
        }
    }

    /// Adds it to the counts of the calling thread.
    pub(crate) fn count(&self) {
        stats::count(|stats| {
            stats.ops_finished += 1;
            stats.short_ops_resubmitted += u64::from(self.resubmits.short);
            stats.interrupted_ops_resubmitted += u64::from(self.resubmits.interrupted);
            match &self.op {
                Some(Op::Write(write)) => stats.file_bytes_written += write.done,
                Some(Op::Read(read)) => stats.file_bytes_read += read.buf.len() as u64,
                None => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(parts: &[&'static [u8]]) -> WriteOp {
        let file = File::from_std(tempfile::tempfile().unwrap(), "t".into());
        WriteOp::new(
            file,
            parts.iter().map(|part| Bytes::from_static(part)).collect(),
            100,
        )
    }

    fn rest(op: &WriteOp) -> Vec<u8> {
        op.rest().flatten().copied().collect()
    }

    #[test]
    fn every_split_of_a_write_leaves_exactly_the_rest() {
        let whole = b"abcdefghij";
        for first in 1..10usize {
            for second in 1..=(10 - first) {
                let mut op = write(&[b"", b"abc", b"", b"defg", b"h", b"ij", b""]);
                op.skip_written(first as u64);
                op.skip_written(second as u64);
                assert_eq!(rest(&op), &whole[first + second..]);
                assert_eq!(op.position(), 100 + (first + second) as u64);
                assert!(op.rest().all(|slice| !slice.is_empty()));
            }
        }
    }

    #[test]
    fn interruptions_are_resubmitted_and_bounded() {
        let mut op = Op::Write(write(&[b"abc"]));
        let mut again = Resubmits::default();
        assert!(matches!(
            op.on_result(Err(libc::EINTR), &mut again),
            Step::Rest
        ));
        assert!(matches!(
            op.on_result(Err(libc::EAGAIN), &mut again),
            Step::RestBlocking
        ));
        assert!(matches!(op.on_result(Ok(1), &mut again), Step::Rest));
        assert!(matches!(
            op.on_result(Ok(2), &mut again),
            Step::Done(Ok(()))
        ));
        assert_eq!((again.short, again.interrupted), (1, 2));
        for _ in 0..INTERRUPTIONS_MAX {
            let step = op.on_result(Err(libc::EAGAIN), &mut again);
            if let Step::Done(result) = step {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
                return;
            }
        }
        panic!("never gave up");
    }

    #[test]
    fn a_write_of_nothing_and_an_error_are_the_end() {
        let mut again = Resubmits::default();
        let step = Op::Write(write(&[b"abc"])).on_result(Ok(0), &mut again);
        assert!(matches!(step, Step::Done(Err(error)) if error.kind() == io::ErrorKind::WriteZero));
        let step = Op::Write(write(&[b"abc"])).on_result(Err(libc::ENOSPC), &mut again);
        assert!(
            matches!(step, Step::Done(Err(error)) if error.raw_os_error() == Some(libc::ENOSPC))
        );
    }
}
