//! Reads that would wait for a disk, on threads of their own: the *lane*.
//!
//! A [`Reader`] asks for one stride of a file after the other. What is read does not stay in the page cache,
//! so that who reads old data does not push out what others need; it comes as a [`Stride`], one of a bounded
//! number of buffers, which goes back when it is dropped.
//!
//! Who waits for threads and buffers is served in the order of asking. A reader that has one stride under way
//! at a time so gets one stride per round, as every other. Of one disk only a few reads are under way at once: one
//! that does not answer leaves threads for the others.
//!
//! # Cost per stride
//! One `preadv2` and one `cachestat`, on a lane thread; where the kernel can not read past its cache one `preadv2` more of a file that is
//! read directly, and one `posix_fadvise` of others. Two futex hand-overs at most. The disk writes into the buffer; only of a file that is
//! being written to it is a copy out of the kernel. No allocation for the buffer.
//!
//! Start reading at [`Reader::ask`], then `line.rs`.

mod handle;
mod line;
mod memory;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use handle::{Handle, Way};
use line::{Line, Request, Work};
use memory::Memory;

use crate::cores;
use crate::failpoint;
use crate::fs::{File, FsError};
use crate::sync::{lock, oneshot};
use crate::sys;

/// How the lane of the process shall be.
#[derive(Debug, Clone)]
pub struct LaneOptions {
    /// Bytes of a stride at most, and of each buffer.
    pub stride_bytes: usize,
    /// Bytes of all buffers together.
    pub memory_bytes: usize,
    /// Reads of one disk that are under way at once.
    pub per_disk: usize,
    /// Threads.
    pub threads_max: usize,
    /// File handles that readers keep open for their next stride.
    pub handles_max: usize,
    /// Handles and free buffers that nobody needed for so long are given back.
    pub idle: Duration,
    /// A file that was not written to for so long is read without the page cache, and whoever writes to it then
    /// waits for the read that is under way.
    pub quiet: Duration,
    /// Cores that nothing else of the process needs; without any, the threads run at the lowest priority on
    /// all.
    pub cores: Vec<usize>,
}

impl Default for LaneOptions {
    fn default() -> Self {
        LaneOptions {
            stride_bytes: 256 * 1024,
            memory_bytes: 16 * 1024 * 1024,
            per_disk: 4,
            threads_max: 16,
            handles_max: 64,
            idle: Duration::from_secs(10),
            quiet: Duration::from_secs(2),
            cores: Vec::new(),
        }
    }
}

static SHARED: OnceLock<Lane> = OnceLock::new();

/// Makes the lane of the process what `options` say. Only before its first use; later calls change nothing.
pub fn set_up(options: LaneOptions) {
    let _ = SHARED.set(Lane::new(options));
}

/// Threads and buffers for reads that wait for disks. Clones share them.
#[derive(Clone)]
pub struct Lane(Arc<Shared>);

struct Shared {
    options: LaneOptions,
    line: Mutex<Line>,
    work: Condvar,
}

impl Lane {
    /// A lane of its own.
    pub fn new(options: LaneOptions) -> Lane {
        let line = Mutex::new(Line::default());
        Lane(Arc::new(Shared {
            options,
            line,
            work: Condvar::new(),
        }))
    }

    /// The lane of the process.
    pub fn shared() -> Lane {
        SHARED
            .get_or_init(|| Lane::new(LaneOptions::default()))
            .clone()
    }

    /// Bytes of a stride at most.
    pub fn stride_bytes(&self) -> usize {
        self.0.options.stride_bytes
    }

    /// True while a read waits for a buffer: who holds one that it makes no use of gives it back.
    pub fn is_short(&self) -> bool {
        let line = lock(&self.0.line);
        line.waits_for_buffer(&self.0.options)
    }

    /// Buffers that are filled, or hold what nobody has sent yet.
    pub fn buffers_used(&self) -> usize {
        lock(&self.0.line).buffers_out
    }

    /// File handles that readers keep.
    pub fn handles_open(&self) -> usize {
        lock(&self.0.line).handles.len()
    }

    fn submit(&self, request: Request) -> io::Result<()> {
        let mut line = lock(&self.0.line);
        let ticket = request.ticket;
        line.push(request);
        let wake = line.wants_wake(&self.0.options);
        if line.wants_thread(&self.0.options) {
            line.threads += 1;
            let number = line.threads - 1;
            drop(line);
            if let Err(error) = self.start_thread(number) {
                let mut line = lock(&self.0.line);
                line.threads -= 1;
                if line.threads == 0 {
                    line.withdraw(ticket);
                    return Err(error);
                }
                tracing::warn!(%error, "the lane of cold reads has fewer threads than it may have");
            }
        } else {
            drop(line);
        }
        if wake {
            self.0.work.notify_one();
        }
        Ok(())
    }

    fn start_thread(&self, number: usize) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        let cores = self.0.options.cores.clone();
        let serve = move || {
            take_place(&cores);
            shared.serve();
        };
        let builder = std::thread::Builder::new().name(format!("tw-cold{number}"));
        builder.spawn(serve).map(drop)
    }
}

/// Puts the calling thread where it is in nobody's way.
fn take_place(spare: &[usize]) {
    let placed = match spare {
        [] => cores::unpin(),
        cores => cores::restrict(cores),
    };
    if let Err(error) = placed {
        tracing::debug!(%error, "a thread of cold reads runs where its starter runs");
    }
    if spare.is_empty()
        && let Err(errno) = sys::lower_priority()
    {
        let error = io::Error::from_raw_os_error(errno);
        tracing::warn!(%error, "cold reads run at the priority of all else");
    }
    // Schedulers of disks that know of it let others go first.
    if let Err(errno) = sys::lower_io_priority() {
        tracing::debug!(
            errno,
            "cold reads have the disk at the priority of all else"
        );
    }
}

impl Shared {
    /// Works until there was nothing to do for a while. A thread that ends is started anew when there is.
    fn serve(self: &Arc<Self>) {
        while let Some(Work { request, memory }) = self.next_work() {
            let result = self.read(&request, memory);
            let mut line = lock(&self.line);
            line.read_ended(request.disk);
            // While others read no thread is idle, and a removed file keeps its room until its last handle goes.
            let stale = line.handles.unused_for(self.options.idle);
            drop(line);
            drop(stale);
            // Nobody waits for it any more: the buffer goes back.
            drop(request.answer.send(result));
            // Its disk has room for another read, which this thread looks for now.
        }
    }

    fn next_work(&self) -> Option<Work> {
        let idle = self.options.idle;
        let mut line = lock(&self.line);
        loop {
            if let Some(work) = line.take(&self.options) {
                return Some(work);
            }
            line.idle += 1;
            let (woken, waited) = self
                .work
                .wait_timeout(line, idle)
                .unwrap_or_else(PoisonError::into_inner);
            line = woken;
            line.idle -= 1;
            if !waited.timed_out() {
                continue;
            }
            if let Some(work) = line.take(&self.options) {
                return Some(work);
            }
            line.threads -= 1;
            let stale = line.expire(idle);
            drop(line);
            drop(stale);
            return None;
        }
    }

    fn read(self: &Arc<Self>, request: &Request, memory: Memory) -> io::Result<Stride> {
        let mut stride = Stride {
            memory,
            from: 0,
            len: 0,
            was_cached: false,
            lane: Lane(Arc::clone(self)),
        };
        let wrap = |error| {
            let path = request.file.path();
            FsError::wrap("read", path, Some(request.offset), error)
        };
        failpoint::reach("cold read").map_err(wrap)?;
        let handle = self.handle_for(request);
        let filled = handle.read(
            &request.file,
            request.offset,
            request.len,
            stride.memory.bytes_mut(),
        );
        let filled = filled.map_err(wrap)?;
        stride.from = filled.from;
        stride.len = filled.bytes;
        stride.was_cached = filled.was_cached;
        if stride.len < request.len {
            let text = format!("the file ends after {} of {}", stride.len, request.len);
            return Err(wrap(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
        Ok(stride)
    }

    fn handle_for(&self, request: &Request) -> Arc<Handle> {
        let way = Way::to(&request.file, self.options.quiet);
        let known = lock(&self.line).handles.get(request, way);
        known.unwrap_or_else(|| {
            let handle = Arc::new(Handle::open(&request.file, way));
            let mut line = lock(&self.line);
            let most = self.options.handles_max;
            let evicted = line.handles.add(request, way, Arc::clone(&handle), most);
            drop(line);
            drop(evicted);
            handle
        })
    }
}

/// Bytes that were read. The memory goes back to the lane when it is dropped.
pub struct Stride {
    memory: Memory,
    /// Where in the memory they are.
    from: usize,
    len: usize,
    was_cached: bool,
    lane: Lane,
}

impl Stride {
    /// Half of it at least is in the page cache: what follows it may be, too.
    pub fn was_cached(&self) -> bool {
        self.was_cached
    }

    /// The lane it came from.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }
}

impl Deref for Stride {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.from..self.from + self.len]
    }
}

impl fmt::Debug for Stride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stride").field("len", &self.len).finish()
    }
}

impl Drop for Stride {
    fn drop(&mut self) {
        let mut line = lock(&self.lane.0.line);
        line.give_back(std::mem::take(&mut self.memory));
        let wake = line.wants_wake(&self.lane.0.options);
        drop(line);
        if wake {
            self.lane.0.work.notify_one();
        }
    }
}

static LAST_READER: AtomicU64 = AtomicU64::new(0);
static LAST_TICKET: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// When the strides that tasks of this thread wait for were asked for, oldest first.
    static ASKED: RefCell<BTreeMap<u64, Instant>> = const { RefCell::new(BTreeMap::new()) };
}

/// How many strides tasks of the calling thread wait for, and since when they wait for the oldest.
pub fn waiting() -> (usize, Option<Instant>) {
    ASKED.with(|asked| {
        let asked = asked.borrow();
        (asked.len(), asked.values().next().copied())
    })
}

/// One who reads strides, one after the other: a connection. It has file handles of its own, given back
/// when it is dropped.
pub struct Reader {
    lane: Lane,
    id: u64,
    /// Files, and where in them the last cold stride ended; the newest at the end.
    followed: VecDeque<(u64, u64)>,
}

/// Files of which a reader remembers where it is.
const FOLLOWED_MAX: usize = 64;

impl Reader {
    /// Of the lane of the process.
    pub fn new() -> Reader {
        Reader::of(Lane::shared())
    }

    /// Of this lane.
    pub fn of(lane: Lane) -> Reader {
        let id = LAST_READER.fetch_add(1, Ordering::Relaxed);
        Reader {
            lane,
            id,
            followed: VecDeque::new(),
        }
    }

    /// Takes note of a stride that ends at `end`: whether a read that goes on there is likely to be cold.
    pub fn follow(&mut self, file: &File, end: u64, stride: &Stride) {
        self.followed.retain(|(id, _)| *id != file.id());
        if stride.was_cached {
            return;
        }
        if self.followed.len() == FOLLOWED_MAX {
            self.followed.pop_front();
        }
        self.followed.push_back((file.id(), end));
    }

    /// True when the last stride of `file` was cold and ended at `offset`: then what follows is taken for cold
    /// unasked. What lookups have brought of it would, sent by `sendfile`, have the kernel read ahead on the thread
    /// that sends.
    pub fn goes_on(&self, file: &File, offset: u64) -> bool {
        self.followed.contains(&(file.id(), offset))
    }

    /// Its lane.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Asks for `[offset, offset + len)` of `file`; `len` is at most a stride. Await the last one before asking
    /// for the next: two at once would be two shares. What nobody awaits any more is not read, unless it
    /// was begun.
    pub fn ask(&mut self, file: &File, offset: u64, len: usize) -> Asked {
        assert!(
            len <= self.lane.stride_bytes(),
            "{len} bytes are more than a stride"
        );
        let ticket = LAST_TICKET.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        let asked = Instant::now();
        ASKED.with(|all| all.borrow_mut().insert(ticket, asked));
        let submitted = self.lane.submit(Request {
            ticket,
            reader: self.id,
            disk: file.disk(),
            file: file.clone(),
            offset,
            len,
            answer,
        });
        Asked {
            lane: self.lane.clone(),
            ticket,
            wait,
            refused: submitted.err(),
            is_over: false,
            _stays_there: PhantomData,
        }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("id", &self.id).finish()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let gone = lock(&self.lane.0.line).handles.forget(self.id);
        drop(gone);
    }
}

/// A stride that was asked for: a future of it, or of the kernel's error; `UnexpectedEof` when the file ends
/// before. Dropping it withdraws what was not begun.
pub struct Asked {
    lane: Lane,
    ticket: u64,
    wait: oneshot::Receiver<io::Result<Stride>>,
    refused: Option<io::Error>,
    is_over: bool,
    /// It is counted on the thread that asked.
    _stays_there: PhantomData<Rc<()>>,
}

impl Future for Asked {
    type Output = io::Result<Stride>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.refused.take() {
            self.is_over = true;
            return Poll::Ready(Err(error));
        }
        let lost = || Err(io::Error::other("the lane gave no answer"));
        let polled = Pin::new(&mut self.wait).poll(cx);
        self.is_over |= polled.is_ready();
        polled.map(|answer| answer.unwrap_or_else(lost))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        ASKED.with(|all| all.borrow_mut().remove(&self.ticket));
        if !self.is_over {
            let withdrawn = lock(&self.lane.0.line).withdraw(self.ticket);
            drop(withdrawn);
        }
    }
}

#[cfg(test)]
mod tests;
