//! The ring driver of one thread.
//!
//! An operation lives in a slot from its first poll until the kernel's last completion for it; the
//! slot owns the file handle and the buffers. The future holds only the slot's number: dropping it
//! marks the slot as one whose result nobody wants.
//!
//! Per turn of the scheduler: tasks put operations in the waiting line and wake the *flusher* task
//! once; when its turn comes (after all tasks that were ready before it) it submits everything with
//! one system call and takes what is complete. Completions are also looked for after each poll of any
//! task, which costs one load while operations are in flight: so neither a submission nor a
//! completion waits for tokio to run out of ready tasks. When it does run out it sleeps in epoll,
//! which watches the ring.
//!
//! Invariants:
//! - A slot's memory stays in place while `Slot::InKernel`; it is freed only by its completion.
//! - At most one completion is owed per slot. At most `in_kernel_max` slots are with the kernel, so
//!   that the completion queue has room for all of them; more wait in user space. That line needs no
//!   bound of its own: each entry is one task's wait (or one that was dropped while it waited).
//! - Wakers and finished operations are dropped outside the borrow of `Inner`: their destructors may
//!   come back to the ring.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::op::{Finished, IOVECS_MAX, Op, Resubmits, Step};
use crate::stats;

/// Reads longer than this go to a kernel worker at once: a cold one would do all its block-device
/// work inside the submission otherwise.
const READ_INLINE_BYTES_MAX: usize = 64 * 1024;

/// Operations that wait for the flusher before a task's poll submits them itself.
const WAITING_BEFORE_EARLY_SUBMIT: usize = 64;

pub(crate) struct Ring {
    inner: RefCell<Inner>,
    /// Operations not finished: waiting or with the kernel. Outside `inner` for the check after
    /// each poll.
    unfinished: Cell<usize>,
    fd: RawFd,
}

struct Inner {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots to submit, oldest first.
    waiting: VecDeque<u32>,
    in_kernel: usize,
    in_kernel_max: usize,
    flusher: Option<Waker>,
    flush_wanted: bool,
    scratch: Vec<(u32, i32)>,
}

enum Slot {
    Free,
    /// Waits for room, or is with the kernel: owns the operation.
    InKernel(Box<InFlight>),
    /// Over; its future has yet to take the result.
    Over(Finished),
}

struct InFlight {
    op: Op,
    /// What a vectored submission points to.
    iovecs: Vec<libc::iovec>,
    resubmits: Resubmits,
    way: Way,
    /// Who waits for the result.
    waiter: Waiter,
}

/// How to submit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Let the kernel try inline first.
    Inline,
    /// Straight to a kernel worker.
    Worker,
}

enum Waiter {
    Task(Waker),
    /// The future was dropped.
    Nobody,
}

/// What leaves a borrow of `Inner`, to be woken and dropped after it.
#[derive(Default)]
struct Leaving {
    wakers: Vec<Waker>,
    dead: Vec<Finished>,
}

impl Ring {
    pub(crate) fn new(uring: IoUring) -> Ring {
        let in_kernel_max = uring.params().cq_entries() as usize;
        Ring::with_in_kernel_max(uring, in_kernel_max)
    }

    fn with_in_kernel_max(uring: IoUring, in_kernel_max: usize) -> Ring {
        let fd = uring.as_raw_fd();
        let inner = Inner {
            uring,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            in_kernel: 0,
            in_kernel_max,
            flusher: None,
            flush_wanted: false,
            scratch: Vec::new(),
        };
        Ring {
            inner: RefCell::new(inner),
            unfinished: Cell::new(0),
            fd,
        }
    }

    /// Runs `op` to its end.
    pub(crate) fn run(self: Rc<Self>, op: Op) -> Running {
        Running {
            ring: self,
            state: RunState::New(Some(op)),
        }
    }

    fn insert(&self, op: Op, waker: Waker) -> u32 {
        let (index, flusher) = {
            let mut inner = self.inner.borrow_mut();
            let index = inner.insert(op, waker);
            (index, inner.want_flush())
        };
        self.unfinished.set(self.unfinished.get() + 1);
        if let Some(flusher) = flusher {
            flusher.wake();
        }
        index
    }

    /// The cheap check after each poll of a task.
    pub(crate) fn after_poll(&self) {
        if self.unfinished.get() == 0 {
            return;
        }
        let mut leaving = Leaving::default();
        {
            let mut inner = self.inner.borrow_mut();
            if inner.waiting.len() >= WAITING_BEFORE_EARLY_SUBMIT {
                inner.turn(&mut leaving);
            } else if inner.has_completions() {
                inner.reap(&mut leaving);
                if !inner.waiting.is_empty() {
                    leaving.wakers.extend(inner.want_flush());
                }
            }
        }
        self.release(leaving);
    }

    /// Submits all that waits and takes all that is complete.
    fn turn(&self) {
        let mut leaving = Leaving::default();
        self.inner.borrow_mut().turn(&mut leaving);
        self.release(leaving);
    }

    fn release(&self, leaving: Leaving) {
        self.unfinished.set(self.inner.borrow().unfinished());
        for waker in leaving.wakers {
            waker.wake();
        }
        // Nobody waits for these; their counts are ours to add.
        leaving.dead.iter().for_each(Finished::count);
        drop(leaving.dead);
    }

    /// Waits, blocking the thread, until the kernel has finished with every operation.
    pub(crate) fn drain(&self) {
        loop {
            let mut leaving = Leaving::default();
            let left = {
                let mut inner = self.inner.borrow_mut();
                inner.turn(&mut leaving);
                if inner.in_kernel > 0 {
                    inner.wait_for_one();
                    inner.reap(&mut leaving);
                }
                inner.unfinished()
            };
            self.release(leaving);
            if left == 0 {
                return;
            }
        }
    }

    /// The flusher: a task for as long as the runtime lives.
    pub(crate) async fn flush_for_ever(self: Rc<Self>) -> io::Result<()> {
        // SAFETY: `RingFd` owns the ring, so that its descriptor stays open and the same for as long
        // as the registration lives.
        let watched = unsafe {
            AsyncFd::register_with_interest(RingFd(Rc::clone(&self)), Interest::READABLE)?
        };
        std::future::poll_fn(|cx| {
            self.inner.borrow_mut().on_flusher_poll(cx.waker());
            self.turn();
            loop {
                // Cleared first, looked second: a completion after the clear makes a new edge.
                let mut guard = ready!(watched.poll_read_ready(cx))?;
                guard.clear_ready();
                self.turn();
            }
        })
        .await
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

/// The ring's descriptor for epoll.
struct RingFd(Rc<Ring>);

impl AsRawFd for RingFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd
    }
}

impl Inner {
    fn insert(&mut self, op: Op, waker: Waker) -> u32 {
        let way = match &op {
            Op::Read(read) if read.rest_len() > READ_INLINE_BYTES_MAX => Way::Worker,
            Op::Read(_) | Op::Write(_) => Way::Inline,
        };
        let slot = Slot::InKernel(Box::new(InFlight {
            op,
            iovecs: Vec::new(),
            resubmits: Resubmits::default(),
            way,
            waiter: Waiter::Task(waker),
        }));
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 operations");
                self.slots.push(slot);
                index
            }
        };
        self.waiting.push_back(index);
        index
    }

    /// The waker of the flusher if it does not know yet that there is work.
    fn want_flush(&mut self) -> Option<Waker> {
        if self.flush_wanted {
            return None;
        }
        self.flush_wanted = true;
        self.flusher.clone()
    }

    fn on_flusher_poll(&mut self, waker: &Waker) {
        self.flush_wanted = false;
        match &mut self.flusher {
            Some(known) => known.clone_from(waker),
            None => self.flusher = Some(waker.clone()),
        }
    }

    fn unfinished(&self) -> usize {
        self.waiting.len() + self.in_kernel
    }

    fn has_completions(&mut self) -> bool {
        if self.in_kernel == 0 {
            return false;
        }
        !self.uring.completion().is_empty() || self.kernel_holds_back()
    }

    /// True when completions exist that only an `io_uring_enter` brings to the queue.
    fn kernel_holds_back(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn turn(&mut self, leaving: &mut Leaving) {
        stats::count(|stats| stats.flusher_turns += 1);
        loop {
            self.fill();
            let entered = self.uring.submission().is_empty() || self.enter(0);
            self.reap(leaving);
            // What did not fit, and the rest of short ones, go on while the kernel takes them.
            let room = self.in_kernel < self.in_kernel_max;
            if self.waiting.is_empty() || !entered || !room {
                break;
            }
        }
        let (waiting, in_kernel) = (self.waiting.len() as u64, self.in_kernel as u64);
        stats::count(|stats| {
            stats.ring_waiting = waiting;
            stats.ring_waiting_max = stats.ring_waiting_max.max(waiting);
            stats.ring_in_kernel = in_kernel;
        });
        let unsubmitted = !self.uring.submission().is_empty();
        if unsubmitted {
            // The kernel was short of something. It gets time for a turn, not for ever.
            leaving.wakers.extend(self.want_flush());
        }
    }

    /// Moves waiting operations to the submission queue while there is room.
    fn fill(&mut self) {
        while self.in_kernel < self.in_kernel_max && !self.uring.submission().is_full() {
            let Some(index) = self.waiting.pop_front() else {
                return;
            };
            let Slot::InKernel(in_flight) = &mut self.slots[index as usize] else {
                unreachable!("a waiting slot owns its operation");
            };
            let entry = in_flight.entry().user_data(u64::from(index));
            // SAFETY: the entry points to memory and a file that the slot owns, and the slot is
            // emptied only after this entry's completion (`on_completion`). The box and the heap
            // buffers do not move with it.
            let pushed = unsafe { self.uring.submission().push(&entry) };
            assert!(pushed.is_ok(), "there was room");
            self.in_kernel += 1;
        }
    }

    /// One `io_uring_enter`; false if the kernel took nothing for now.
    fn enter(&mut self, wait_for: usize) -> bool {
        stats::count(|stats| stats.ring_enters += 1);
        if self.uring.submission().cq_overflow() {
            stats::count(|stats| stats.ring_overflows += 1);
        }
        match self.uring.submit_and_wait(wait_for) {
            Ok(_) => true,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
                // The ring worked when it was made: our own entries or flags are wrong.
                Some(_) | None => panic!("io_uring_enter: {error}"),
            },
        }
    }

    fn wait_for_one(&mut self) {
        if self.uring.completion().is_empty() {
            self.enter(1);
        }
    }

    /// Takes every completion there is.
    fn reap(&mut self, leaving: &mut Leaving) {
        loop {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.extend(self.uring.completion().map(|completion| {
                let index = u32::try_from(completion.user_data()).expect("an index of ours");
                (index, completion.result())
            }));
            let count = scratch.len();
            for (index, result) in scratch.drain(..) {
                self.on_completion(index, result, leaving);
            }
            self.scratch = scratch;
            stats::count(|stats| stats.ring_completions += count as u64);
            if !self.kernel_holds_back() || !self.enter(0) {
                return;
            }
        }
    }

    fn on_completion(&mut self, index: u32, result: i32, leaving: &mut Leaving) {
        self.in_kernel -= 1;
        let slot = &mut self.slots[index as usize];
        let Slot::InKernel(in_flight) = slot else {
            panic!("a completion for an operation that is over");
        };
        let result = usize::try_from(result).map_err(|_| -result);
        let step = in_flight.op.on_result(result, &mut in_flight.resubmits);
        let result = match step {
            Step::Rest => {
                self.waiting.push_front(index);
                return;
            }
            Step::RestBlocking => {
                in_flight.way = Way::Worker;
                self.waiting.push_front(index);
                return;
            }
            Step::Done(result) => result,
        };
        let Slot::InKernel(in_flight) = std::mem::replace(slot, Slot::Free) else {
            unreachable!("looked at above");
        };
        let InFlight {
            op,
            resubmits,
            waiter,
            ..
        } = *in_flight;
        let finished = Finished {
            op: Some(op),
            resubmits,
            result,
        };
        match waiter {
            Waiter::Task(waker) => {
                *slot = Slot::Over(finished);
                leaving.wakers.push(waker);
            }
            Waiter::Nobody => {
                self.free.push(index);
                leaving.dead.push(finished);
            }
        }
    }
}

impl InFlight {
    /// The submission of what is left of the operation.
    fn entry(&mut self) -> Entry {
        let fd = types::Fd(self.op.fd());
        let offset = self.op.position();
        let entry = match &mut self.op {
            Op::Write(write) => {
                self.iovecs.clear();
                let slices = write.rest().take(IOVECS_MAX);
                self.iovecs.extend(slices.map(|slice| libc::iovec {
                    iov_base: slice.as_ptr().cast_mut().cast(),
                    iov_len: slice.len(),
                }));
                let count = self.iovecs.len() as u32;
                opcode::Writev::new(fd, self.iovecs.as_ptr(), count)
                    .offset(offset)
                    .build()
            }
            Op::Read(read) => {
                let rest = read.rest();
                let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
                opcode::Read::new(fd, rest.as_mut_ptr().cast(), len)
                    .offset(offset)
                    .build()
            }
        };
        match self.way {
            Way::Inline => entry,
            Way::Worker => entry.flags(Flags::ASYNC),
        }
    }
}

/// An operation's future.
pub(crate) struct Running {
    ring: Rc<Ring>,
    state: RunState,
}

enum RunState {
    New(Option<Op>),
    In(u32),
    Taken,
}

impl Future for Running {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let index = match &mut self.state {
            RunState::New(op) => {
                let op = op.take().expect("taken once, with the state changed");
                let index = self.ring.insert(op, cx.waker().clone());
                self.state = RunState::In(index);
                return Poll::Pending;
            }
            RunState::In(index) => *index,
            RunState::Taken => panic!("polled after its end"),
        };
        let mut inner = self.ring.inner.borrow_mut();
        let slot = &mut inner.slots[index as usize];
        if let Slot::InKernel(in_flight) = slot {
            let new = Waiter::Task(cx.waker().clone());
            let old = std::mem::replace(&mut in_flight.waiter, new);
            drop(inner);
            drop(old);
            return Poll::Pending;
        }
        let Slot::Over(finished) = std::mem::replace(slot, Slot::Free) else {
            unreachable!("the slot is ours until we free it");
        };
        inner.free.push(index);
        drop(inner);
        self.state = RunState::Taken;
        Poll::Ready(finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let RunState::In(index) = self.state else {
            return;
        };
        let mut inner = self.ring.inner.borrow_mut();
        let slot = &mut inner.slots[index as usize];
        match slot {
            Slot::InKernel(in_flight) => {
                let old = std::mem::replace(&mut in_flight.waiter, Waiter::Nobody);
                drop(inner);
                drop(old);
            }
            Slot::Over(_) => {
                let over = std::mem::replace(slot, Slot::Free);
                inner.free.push(index);
                drop(inner);
                drop(over);
            }
            Slot::Free => unreachable!("the slot is ours until we free it"),
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
