//! The plain engine: operations as ordinary system calls on the runtime's own worker threads.
//!
//! Flushes have threads of their own (`workers::SYNCERS`), so none of them can hold up a write here.

use std::io::IoSlice;
use std::os::fd::AsFd;

use nix::sys::uio::pwritev;

use super::op::{Finished, IOVECS_MAX, Op, Resubmits, Step};
use crate::disk;
use crate::failpoint;
use crate::sys;
use crate::workers::Pool;

pub(crate) struct Plain(Pool);

impl Plain {
    pub(crate) fn new(threads_max: usize) -> Plain {
        Plain(Pool::new("tw-io", threads_max.max(1)))
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0
    }
}

/// Runs an operation to its end on the calling thread, which it may block.
pub(crate) fn run_op(mut op: Op) -> Finished {
    let mut resubmits = Resubmits::default();
    loop {
        let result = submit(&mut op);
        match op.on_result(result, &mut resubmits) {
            // A blocking call waits by itself.
            Step::Rest | Step::RestBlocking => {}
            Step::Done(result) => {
                return Finished {
                    op: Some(op),
                    resubmits,
                    result,
                };
            }
        }
    }
}

fn submit(op: &mut Op) -> Result<usize, i32> {
    let fd = op.fd();
    match op {
        Op::Write(write) => {
            failpoint::reach("plain write").map_err(|error| error.raw_os_error().unwrap_or(0))?;
            failpoint::pass_at(failpoint::DISK, write.file().path());
            let slices: Vec<_> = write.rest().take(IOVECS_MAX).collect();
            disk::write(write.file(), write.position(), &slices, |slices| {
                let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
                let offset = sys::offset_of(write.position())?;
                pwritev(write.file().as_fd(), &slices, offset).map_err(|errno| errno as i32)
            })
        }
        Op::Read(read) => {
            let (file, offset) = (read.file().clone(), read.position());
            disk::read(&file, offset, read.rest_len(), |len| {
                sys::read_at(fd, &mut read.rest()[..len], offset, 0)
            })
        }
    }
}
