//! The floor's bare `io_uring`: vectored writes only, one in flight per log.
//!
//! The only `unsafe` of the floor. What the kernel is given: a file descriptor that its log keeps
//! open, and iovecs over connection buffers that do not move while `in_flight > 0`.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Result, ensure};
use io_uring::{IoUring, opcode, types};

use super::conn::Conn;
use super::log::Log;

/// Entries of the submission queue; one write per log at most, so this bounds the partitions.
const ENTRIES: u32 = 1_024;

pub(super) struct Ring {
    ring: IoUring,
    /// Per log, the iovecs of its write in flight, kept until the completion is reaped. `IoSlice` is
    /// laid out like `iovec` by its documented guarantee.
    iovecs: Vec<Vec<IoSlice<'static>>>,
}

impl Ring {
    pub(super) fn new(logs: usize) -> io::Result<Ring> {
        assert!(
            logs <= ENTRIES as usize,
            "at most {ENTRIES} partitions on the ring"
        );
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)?;
        Ok(Ring {
            ring,
            iovecs: (0..logs).map(|_| Vec::new()).collect(),
        })
    }

    /// Queues the write of everything `log` has in flight. The log has no other write on the ring.
    pub(super) fn write(&mut self, index: usize, log: &Log, conns: &[Option<Conn>]) -> Result<()> {
        let kept = &mut self.iovecs[index];
        kept.clear();
        for slice in log.slices(conns)? {
            // SAFETY: the longer lifetime is in the type only. The bytes are a connection's input buffer,
            // which the server neither moves, reads into nor drops while `in_flight > 0`, and it leaks
            // all of them when it ends early.
            kept.push(unsafe { std::mem::transmute::<IoSlice<'_>, IoSlice<'static>>(slice) });
        }
        let (file, position) = log.target();
        let file = types::Fd(file.as_raw_fd());
        let entry = opcode::Writev::new(file, kept.as_ptr().cast(), kept.len() as u32)
            .offset(position)
            .build()
            .user_data(index as u64);
        // SAFETY: the iovecs live in `self.iovecs[index]`, touched only after the completion; the buffers
        // as above; the file is the log's active segment, which rolls only after this write.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        ensure!(pushed.is_ok(), "one entry per log fits the queue");
        Ok(())
    }

    /// Submits what was queued.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.ring.submit().map(|_| ())
    }

    /// Completed writes as (log, bytes).
    pub(super) fn reap(&mut self, done: &mut Vec<(usize, i32)>) {
        if self.ring.submission().taskrun() {
            // Completions wait in task work: enter the kernel once to collect them.
            let _ = self.ring.submitter().submit_and_wait(0);
        }
        for entry in self.ring.completion() {
            done.push((entry.user_data() as usize, entry.result()));
        }
    }

    /// For `epoll`: readable while completions wait.
    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self.ring`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
