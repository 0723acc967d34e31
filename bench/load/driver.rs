//! One load thread: its connections, what is written to them and read from them.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::{HEAD_BYTES, Job, Keep, MEASURE, Part, STOP, Shared, add, new_histogram, record};
use crate::schedule::{Due, Schedule};
use crate::workload::Reader;

/// Bytes of one read that copies.
const READ_BYTES: usize = 256 * 1024;
/// Bytes that the kernel is asked to drop at once.
const DISCARD_BYTES: usize = 1024 * 1024;
/// Requests written, and reads done, on one connection before the others get their turn.
const WRITES_PER_TURN: usize = 16;
const READS_PER_TURN: usize = 16;
/// Epoll's name for the timer; connections are named by their position.
const TIMER: u64 = u64::MAX;

/// What one thread recorded; summed over the threads of a part.
pub(super) struct Recorded {
    pub(super) latency_us: Histogram<u64>,
    pub(super) times: Vec<(Instant, Instant)>,
    pub(super) send_delay_us: Histogram<u64>,
    pub(super) backlog_max: u64,
    pub(super) unanswered: u64,
}

impl Recorded {
    pub(super) fn new() -> Result<Recorded> {
        Ok(Recorded {
            latency_us: new_histogram()?,
            times: Vec::new(),
            send_delay_us: new_histogram()?,
            backlog_max: 0,
            unanswered: 0,
        })
    }

    pub(super) fn add(&mut self, other: &Recorded) -> Result<()> {
        add(&mut self.latency_us, &other.latency_us)?;
        self.times.extend_from_slice(&other.times);
        add(&mut self.send_delay_us, &other.send_delay_us)?;
        self.backlog_max += other.backlog_max;
        self.unanswered += other.unanswered;
        Ok(())
    }
}

/// A request that is being written.
struct Sending {
    token: usize,
    sent: usize,
}

struct Conn {
    index: usize,
    socket: TcpStream,
    writable: bool,
    readable: bool,
    /// Is among those that get a turn before the next wait.
    queued: bool,
    sending: Option<Sending>,
    head: Vec<u8>,
    /// Correlation id and the time that latency counts from.
    in_flight: VecDeque<(i32, Instant)>,
    next_correlation: i32,
    /// Requests begun, and those that the schedule has asked for so far.
    begun: u64,
    due: u64,
    /// First bytes of the answer being read.
    answer: Vec<u8>,
    /// Bytes of it still to come after `answer` is complete.
    skip: usize,
}

impl Conn {
    fn open(index: usize, address: SocketAddr) -> Result<Conn> {
        let socket = TcpStream::connect(address)
            .with_context(|| format!("cannot connect to {address} (connection {index})"))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Conn {
            index,
            socket,
            writable: true,
            readable: false,
            queued: false,
            sending: None,
            head: Vec::with_capacity(256),
            in_flight: VecDeque::new(),
            next_correlation: 1,
            begun: 0,
            due: 0,
            answer: Vec::with_capacity(HEAD_BYTES),
            skip: 0,
        })
    }

    /// Takes bytes of an answer; how many, and whether it is complete with them.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        if self.skip > 0 {
            let part = self.skip.min(bytes.len());
            self.skip -= part;
            return (part, self.skip == 0);
        }
        let size = |answer: &[u8]| answer.first_chunk::<4>().map(|s| u32::from_be_bytes(*s));
        let wanted = size(&self.answer).map_or(4, |size| (size as usize + 4).min(HEAD_BYTES));
        let part = (wanted - self.answer.len()).min(bytes.len());
        self.answer.extend_from_slice(&bytes[..part]);
        let Some(size) = size(&self.answer) else {
            return (part, false);
        };
        let total = size as usize + 4;
        if self.answer.len() == total.min(HEAD_BYTES) {
            self.skip = total - self.answer.len();
            return (part, self.skip == 0);
        }
        (part, false)
    }
}

/// One thread's work.
pub(super) struct Driver {
    job: Box<dyn Job>,
    in_flight_max: usize,
    reader: Reader,
    keep: Keep,
    epoll: Epoll,
    timer: TimerFd,
    conns: Vec<Conn>,
    /// Positions of connections that get a turn.
    again: Vec<usize>,
    /// Where reads go. With [`Reader::Discard`] only its length matters beyond the heads: no page of it is touched.
    scratch: Vec<u8>,
    recorded: Recorded,
    due: Option<Due>,
    backlog: u64,
}

/// What this thread shares with the others of its part.
#[derive(Clone, Copy)]
struct Counting<'a> {
    shared: &'a Shared,
    part: usize,
}

impl Counting<'_> {
    fn phase(self) -> u8 {
        self.shared.phase.load(Ordering::Relaxed)
    }

    fn is_measuring(self) -> bool {
        self.phase() == MEASURE
    }
}

impl Driver {
    /// Opens the connections of these numbers.
    pub(super) fn connect(part: &Part, mine: Vec<usize>, address: SocketAddr) -> Result<Driver> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let mut conns = Vec::new();
        for (slot, index) in mine.into_iter().enumerate() {
            let conn = Conn::open(index, address)?;
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            epoll.add(&conn.socket, EpollEvent::new(flags, slot as u64))?;
            conns.push(conn);
        }
        let scratch_bytes = match part.reader {
            Reader::Copy => READ_BYTES,
            Reader::Discard => DISCARD_BYTES,
        };
        Ok(Driver {
            job: part.job.boxed(),
            in_flight_max: part.in_flight,
            reader: part.reader,
            keep: part.keep,
            epoll,
            timer,
            conns,
            again: Vec::new(),
            scratch: vec![0; scratch_bytes],
            recorded: Recorded::new()?,
            due: None,
            backlog: 0,
        })
    }

    /// Until the phase says stop.
    pub(super) fn run(
        mut self,
        schedule: Option<Schedule>,
        shared: &Shared,
        part: usize,
    ) -> Result<Recorded> {
        let counting = Counting { shared, part };
        let indexes: Vec<usize> = self.conns.iter().map(|conn| conn.index).collect();
        self.due = schedule.map(|schedule| Due::new(schedule, indexes));
        let mut events = vec![EpollEvent::empty(); self.conns.len().clamp(1, 512)];
        for slot in 0..self.conns.len() {
            self.queue(slot);
        }
        while counting.phase() != STOP {
            self.release_due(counting);
            for slot in std::mem::take(&mut self.again) {
                self.conns[slot].queued = false;
                if self.turn(slot, counting)? {
                    self.queue(slot);
                }
            }
            let timeout = self.timeout()?;
            let n = match self.epoll.wait(&mut events, timeout) {
                Ok(n) => n,
                Err(Errno::EINTR) => 0,
                Err(e) => return Err(e.into()),
            };
            for event in &events[..n] {
                self.on_event(event);
            }
        }
        self.count_unanswered(Instant::now());
        Ok(self.recorded)
    }

    fn queue(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        if !conn.queued {
            conn.queued = true;
            self.again.push(slot);
        }
    }

    fn on_event(&mut self, event: &EpollEvent) {
        if event.data() == TIMER {
            return;
        }
        let slot = event.data() as usize;
        let conn = &mut self.conns[slot];
        let flags = event.events();
        conn.readable |= flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP);
        conn.writable |= flags.contains(EpollFlags::EPOLLOUT);
        self.queue(slot);
    }

    /// Lets the connections whose requests have come due begin them.
    fn release_due(&mut self, counting: Counting<'_>) {
        let Some(mut due) = self.due.take() else {
            return;
        };
        let now = Instant::now();
        let mut released = 0;
        while let Some(slot) = due.pop(now) {
            self.conns[slot].due += 1;
            released += 1;
            self.queue(slot);
        }
        self.due = Some(due);
        self.backlog += released;
        let counters = &counting.shared.parts[counting.part];
        counters.intended.fetch_add(released, Ordering::Relaxed);
    }

    /// How long to wait for events; an open loop is woken by its timer when the next request comes due.
    fn timeout(&self) -> Result<EpollTimeout> {
        if !self.again.is_empty() {
            return Ok(EpollTimeout::ZERO);
        }
        if let Some(due) = &self.due {
            let left = due.next_at().saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(EpollTimeout::ZERO);
            }
            let at = Expiration::OneShot(TimeSpec::from_duration(left));
            self.timer.set(at, TimerSetTimeFlags::empty())?;
        }
        Ok(EpollTimeout::from(100u8))
    }

    /// Reads and writes what is possible; true when there is more to do without an event.
    fn turn(&mut self, slot: usize, counting: Counting<'_>) -> Result<bool> {
        let mut reads = 0;
        while self.conns[slot].readable && reads < READS_PER_TURN {
            self.read(slot, counting)?;
            reads += 1;
        }
        let mut writes = 0;
        while self.conns[slot].writable && writes < WRITES_PER_TURN && self.write(slot, counting)? {
            writes += 1;
        }
        let conn = &self.conns[slot];
        Ok(conn.readable || (writes == WRITES_PER_TURN && conn.writable))
    }

    /// One system call.
    fn read(&mut self, slot: usize, counting: Counting<'_>) -> Result<()> {
        let conn = &mut self.conns[slot];
        let discards = match self.reader {
            Reader::Copy => false,
            Reader::Discard => conn.skip > 0,
        };
        let wanted = match self.reader {
            Reader::Copy => self.scratch.len(),
            Reader::Discard if discards => conn.skip.min(self.scratch.len()),
            Reader::Discard => HEAD_BYTES,
        };
        let buffer = &mut self.scratch[..wanted];
        let outcome = if discards {
            // TCP takes so many bytes off its queue and copies none (tcp(7)).
            recv(conn.socket.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC).map_err(io::Error::from)
        } else {
            conn.socket.read(buffer)
        };
        let n = match outcome {
            Ok(0) => bail!("the broker closed connection {}", conn.index),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(e).context("cannot receive"),
        };
        conn.readable = n == wanted;
        if discards {
            conn.skip -= n;
            return if n > 0 && conn.skip == 0 {
                self.answered(slot, counting)
            } else {
                Ok(())
            };
        }
        let mut at = 0;
        while at < n {
            let (taken, complete) = self.conns[slot].take(&self.scratch[at..n]);
            at += taken;
            if complete {
                self.answered(slot, counting)?;
            }
        }
        Ok(())
    }

    fn answered(&mut self, slot: usize, counting: Counting<'_>) -> Result<()> {
        let conn = &mut self.conns[slot];
        ensure!(
            conn.answer.len() >= 8,
            "an answer of {} bytes",
            conn.answer.len()
        );
        let bytes = self.job.check(conn.index, &conn.answer)?;
        let correlation = i32::from_be_bytes(conn.answer[4..8].try_into()?);
        conn.answer.clear();
        let Some((expected, from)) = conn.in_flight.pop_front() else {
            bail!("an answer that nobody asked for")
        };
        ensure!(
            expected == correlation,
            "answer {correlation} came before {expected}"
        );
        self.count(bytes, from, counting);
        Ok(())
    }

    fn count(&mut self, bytes: u64, from: Instant, counting: Counting<'_>) {
        let counters = &counting.shared.parts[counting.part];
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        if counting.is_measuring() {
            let now = Instant::now();
            let took = now.saturating_duration_since(from);
            record(&mut self.recorded.latency_us, took);
            if self.keep == Keep::Times {
                self.recorded.times.push((from, now));
            }
        }
    }

    /// Begins the next request of a connection if it may; false if it may not.
    fn begin(&mut self, slot: usize, counting: Counting<'_>) -> bool {
        let conn = &mut self.conns[slot];
        if conn.in_flight.len() >= self.in_flight_max {
            return false;
        }
        let now = Instant::now();
        let from = match &self.due {
            None => now,
            Some(_) if conn.begun >= conn.due => return false,
            Some(due) => due.schedule().intended(conn.index, conn.begun),
        };
        if self.due.is_some() {
            if counting.is_measuring() {
                let backlog_max = &mut self.recorded.backlog_max;
                *backlog_max = (*backlog_max).max(self.backlog);
                let late = now.saturating_duration_since(from);
                record(&mut self.recorded.send_delay_us, late);
            }
            self.backlog -= 1;
        }
        conn.begun += 1;
        conn.head.clear();
        let correlation = conn.next_correlation;
        conn.next_correlation = correlation.wrapping_add(1);
        let token = self.job.next(conn.index, correlation, &mut conn.head);
        conn.sending = Some(Sending { token, sent: 0 });
        conn.in_flight.push_back((correlation, from));
        true
    }

    /// Writes (the rest of) one request; false when there is none to write or the socket is full.
    fn write(&mut self, slot: usize, counting: Counting<'_>) -> Result<bool> {
        if self.conns[slot].sending.is_none() && !self.begin(slot, counting) {
            return Ok(false);
        }
        let conn = &mut self.conns[slot];
        let Some(sending) = conn.sending.as_mut() else {
            return Ok(false);
        };
        let tail = self.job.tail(sending.token);
        let total = conn.head.len() + tail.len();
        let head_left = &conn.head[sending.sent.min(conn.head.len())..];
        let tail_left = &tail[sending.sent.saturating_sub(conn.head.len())..];
        let slices = [IoSlice::new(head_left), IoSlice::new(tail_left)];
        match conn.socket.write_vectored(&slices) {
            Ok(n) => sending.sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                conn.writable = false;
                return Ok(false);
            }
            Err(e) => return Err(e).context("cannot send"),
        }
        if sending.sent < total {
            return Ok(true);
        }
        conn.sending = None;
        if let Some(bytes) = self.job.unanswered_bytes()
            && let Some((_, from)) = conn.in_flight.pop_back()
        {
            self.count(bytes, from, counting);
        }
        Ok(true)
    }

    /// What an open loop still owes at its end counts with its age: leaving it out would hide a broker that stalled.
    fn count_unanswered(&mut self, now: Instant) {
        let Some(due) = &self.due else {
            return;
        };
        let recorded = &mut self.recorded;
        let mut owed = |since: Instant| {
            let age: Duration = now.saturating_duration_since(since);
            record(&mut recorded.latency_us, age);
            recorded.unanswered += 1;
        };
        for conn in &self.conns {
            for (_, since) in &conn.in_flight {
                owed(*since);
            }
            for n in conn.begun..conn.due {
                owed(due.schedule().intended(conn.index, n));
            }
        }
        self.recorded.backlog_max = self.recorded.backlog_max.max(self.backlog);
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
