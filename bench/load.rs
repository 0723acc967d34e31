//! The closed-loop load generator: many connections, a fixed number of requests in flight on each.
//!
//! Cost per request: one `writev`, one `read`, no allocation, no decoding beyond the few bytes that
//! say whether it worked. Requests are encoded beforehand; a [`Job`] patches the correlation id (and for
//! Fetch the offset). Each thread drives its share of the connections with `epoll`.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::cpu;

/// Bytes of an answer that [`Job::check`] gets to see.
pub const HEAD_BYTES: usize = 192;
const READ_BYTES: usize = 256 * 1024;
/// Requests written on one connection before the others get their turn.
const WRITES_PER_TURN: usize = 16;
const LATENCY_US_MAX: u64 = 120_000_000;

/// What is sent and how answers are judged. Each thread has its own copy.
pub trait Job: Clone + Send + 'static {
    /// Writes the beginning of the next request of connection `conn` into `head` (cleared before) and
    /// returns a token for [`Job::tail`].
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize;
    /// The rest of the request.
    fn tail(&self, token: usize) -> &[u8];
    /// Looks at the first bytes of an answer (size prefix included, at most [`HEAD_BYTES`]). Returns the
    /// bytes of record batches that this request moved.
    ///
    /// # Errors
    /// When the broker refused, or answered something else.
    fn check(&mut self, head: &[u8]) -> Result<u64>;
    /// Bytes that a request without an answer moved; `None` when there are answers (acks other than 0).
    fn unanswered_bytes(&self) -> Option<u64>;
}

/// How hard to push, and for how long.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to.
    pub address: SocketAddr,
    /// Connections in sum over the threads.
    pub connections: usize,
    /// Requests in flight per connection.
    pub in_flight: usize,
    /// Load threads.
    pub threads: usize,
    /// Not measured.
    pub warm_up: Duration,
    /// Measured.
    pub measure: Duration,
    /// Process whose CPU time is reported.
    pub broker_pid: Option<u32>,
}

/// What one run measured.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// Length of the measured window.
    pub elapsed: Duration,
    /// Requests answered in it.
    pub requests: u64,
    /// Bytes of record batches moved in it.
    pub bytes: u64,
    /// Time from the first byte sent to the last byte received, in microseconds.
    pub latency_us: Histogram<u64>,
    /// CPU time of the broker in the window.
    pub broker_cpu: Option<Duration>,
    /// CPU time of the whole machine in the window.
    pub machine_busy: Duration,
}

impl LoadResult {
    /// 10^6 bytes per second.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    /// Requests per second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// Broker CPU seconds per 10^9 bytes of record batches.
    #[must_use]
    pub fn cpu_seconds_per_gb(&self) -> Option<f64> {
        self.broker_cpu
            .map(|cpu| cpu.as_secs_f64() / (self.bytes as f64 / 1e9))
    }

    /// Broker CPU microseconds per request.
    #[must_use]
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        self.broker_cpu
            .map(|cpu| cpu.as_secs_f64() * 1e6 / self.requests as f64)
    }
}

/// The phase before it is 0: warming up.
const MEASURE: u8 = 1;
const STOP: u8 = 2;

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    requests: AtomicU64,
    bytes: AtomicU64,
}

struct Sample {
    at: Instant,
    requests: u64,
    bytes: u64,
    broker: Option<Duration>,
    machine: Duration,
}

impl Shared {
    fn sample(&self, pid: Option<u32>) -> Result<Sample> {
        Ok(Sample {
            broker: pid.map(cpu::process_time).transpose()?,
            machine: cpu::machine_busy()?,
            at: Instant::now(),
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        })
    }
}

/// Runs `job` until the time is over.
///
/// # Errors
/// When a connection fails or an answer is not what it should be.
pub fn run<J: Job>(job: &J, options: &LoadOptions) -> Result<LoadResult> {
    ensure!(
        options.connections >= 1 && options.in_flight >= 1,
        "nothing to send"
    );
    let threads = options.threads.clamp(1, options.connections);
    let shared = Arc::new(Shared::default());
    let mut handles = Vec::new();
    for t in 0..threads {
        let mine: Vec<usize> = (t..options.connections).step_by(threads).collect();
        let (job, options, shared) = (job.clone(), options.clone(), Arc::clone(&shared));
        handles.push(thread::spawn(move || {
            Driver::connect(job, &mine, options, shared)?.run()
        }));
    }
    let window = measure_window(&shared, options, &handles);
    shared.phase.store(STOP, Ordering::Relaxed);
    let mut latency_us = new_histogram()?;
    for handle in handles {
        let part = handle
            .join()
            .map_err(|_| anyhow!("a load thread panicked"))??;
        latency_us.add(part).context("histograms of one shape")?;
    }
    let (from, to) = window?;
    Ok(LoadResult {
        elapsed: to.at - from.at,
        requests: to.requests - from.requests,
        bytes: to.bytes - from.bytes,
        latency_us,
        broker_cpu: to
            .broker
            .zip(from.broker)
            .map(|(to, from)| to.saturating_sub(from)),
        machine_busy: to.machine.saturating_sub(from.machine),
    })
}

fn measure_window<T>(
    shared: &Shared,
    options: &LoadOptions,
    handles: &[thread::JoinHandle<T>],
) -> Result<(Sample, Sample)> {
    let wait = |time: Duration| -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            ensure!(
                !handles.iter().any(thread::JoinHandle::is_finished),
                "a load thread gave up"
            );
            thread::sleep(Duration::from_millis(50).min(until - Instant::now().min(until)));
        }
        Ok(())
    };
    wait(options.warm_up)?;
    let from = shared.sample(options.broker_pid)?;
    shared.phase.store(MEASURE, Ordering::Relaxed);
    wait(options.measure)?;
    Ok((from, shared.sample(options.broker_pid)?))
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(|e| anyhow!("histogram: {e:?}"))
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
    sending: Option<Sending>,
    head: Vec<u8>,
    in_flight: VecDeque<(i32, Instant)>,
    next_correlation: i32,
    /// First bytes of the answer being read.
    answer: Vec<u8>,
    /// Bytes of it still to come after `answer` is complete.
    skip: usize,
}

struct Driver<J> {
    job: J,
    options: LoadOptions,
    shared: Arc<Shared>,
    epoll: Epoll,
    conns: Vec<Conn>,
    scratch: Vec<u8>,
    latency_us: Histogram<u64>,
}

impl<J: Job> Driver<J> {
    fn connect(
        job: J,
        mine: &[usize],
        options: LoadOptions,
        shared: Arc<Shared>,
    ) -> Result<Driver<J>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut conns = Vec::new();
        for (slot, &index) in mine.iter().enumerate() {
            let socket = TcpStream::connect(options.address)
                .with_context(|| format!("cannot connect to {}", options.address))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            epoll.add(&socket, EpollEvent::new(flags, slot as u64))?;
            conns.push(Conn {
                index,
                socket,
                writable: true,
                readable: false,
                sending: None,
                head: Vec::with_capacity(256),
                in_flight: VecDeque::new(),
                next_correlation: 1,
                answer: Vec::with_capacity(HEAD_BYTES),
                skip: 0,
            });
        }
        let scratch = vec![0; READ_BYTES];
        Ok(Driver {
            job,
            options,
            shared,
            epoll,
            conns,
            scratch,
            latency_us: new_histogram()?,
        })
    }

    fn run(mut self) -> Result<Histogram<u64>> {
        let mut events = vec![EpollEvent::empty(); self.conns.len().clamp(1, 512)];
        let mut again: Vec<usize> = (0..self.conns.len()).collect();
        while self.shared.phase.load(Ordering::Relaxed) != STOP {
            for slot in std::mem::take(&mut again) {
                if self.turn(slot)? {
                    again.push(slot);
                }
            }
            let timeout = if again.is_empty() {
                EpollTimeout::from(100u8)
            } else {
                EpollTimeout::ZERO
            };
            let n = match self.epoll.wait(&mut events, timeout) {
                Ok(n) => n,
                Err(Errno::EINTR) => 0,
                Err(e) => return Err(e.into()),
            };
            for event in &events[..n] {
                let slot = event.data() as usize;
                let conn = &mut self.conns[slot];
                let flags = event.events();
                conn.readable |= flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP);
                conn.writable |= flags.contains(EpollFlags::EPOLLOUT);
                if !again.contains(&slot) {
                    again.push(slot);
                }
            }
        }
        Ok(self.latency_us)
    }

    /// Reads and writes what is possible; true when there is more to do without an event.
    fn turn(&mut self, slot: usize) -> Result<bool> {
        if self.conns[slot].readable {
            self.read(slot)?;
        }
        let mut writes = 0;
        while self.conns[slot].writable && writes < WRITES_PER_TURN && self.write(slot)? {
            writes += 1;
        }
        let conn = &self.conns[slot];
        Ok(conn.readable || (writes == WRITES_PER_TURN && conn.writable))
    }

    fn read(&mut self, slot: usize) -> Result<()> {
        let n = match self.conns[slot].socket.read(&mut self.scratch) {
            Ok(0) => bail!("the broker closed connection {}", self.conns[slot].index),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e.into()),
        };
        self.conns[slot].readable = n == self.scratch.len();
        let mut at = 0;
        while at < n {
            let conn = &mut self.conns[slot];
            if conn.skip > 0 {
                let part = conn.skip.min(n - at);
                conn.skip -= part;
                at += part;
                if conn.skip > 0 {
                    break;
                }
            } else {
                let size = conn.answer.first_chunk::<4>();
                let wanted =
                    size.map_or(4, |s| (u32::from_be_bytes(*s) as usize + 4).min(HEAD_BYTES));
                let part = (wanted - conn.answer.len()).min(n - at);
                conn.answer.extend_from_slice(&self.scratch[at..at + part]);
                at += part;
                if conn.answer.len() < wanted || conn.answer.len() == 4 && wanted == 4 {
                    continue;
                }
                let size = conn
                    .answer
                    .first_chunk::<4>()
                    .map_or(0, |s| u32::from_be_bytes(*s));
                conn.skip = size as usize + 4 - wanted;
                if conn.skip > 0 {
                    continue;
                }
            }
            self.answered(slot)?;
        }
        Ok(())
    }

    fn answered(&mut self, slot: usize) -> Result<()> {
        let conn = &mut self.conns[slot];
        ensure!(
            conn.answer.len() >= 8,
            "an answer of {} bytes",
            conn.answer.len()
        );
        let bytes = self.job.check(&conn.answer)?;
        let correlation = i32::from_be_bytes(conn.answer[4..8].try_into()?);
        conn.answer.clear();
        let Some((expected, sent)) = conn.in_flight.pop_front() else {
            bail!("an answer that nobody asked for")
        };
        ensure!(
            expected == correlation,
            "answer {correlation} came before {expected}"
        );
        self.count(bytes, sent)
    }

    fn count(&mut self, bytes: u64, sent: Instant) -> Result<()> {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.shared.phase.load(Ordering::Relaxed) == MEASURE {
            let us = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.latency_us
                .saturating_record(us.clamp(1, LATENCY_US_MAX));
        }
        Ok(())
    }

    /// Writes (the rest of) one request; false when there is none to write or the socket is full.
    fn write(&mut self, slot: usize) -> Result<bool> {
        let conn = &mut self.conns[slot];
        if conn.sending.is_none() {
            if conn.in_flight.len() >= self.options.in_flight {
                return Ok(false);
            }
            conn.head.clear();
            let correlation = conn.next_correlation;
            conn.next_correlation = correlation.wrapping_add(1);
            let token = self.job.next(conn.index, correlation, &mut conn.head);
            conn.sending = Some(Sending { token, sent: 0 });
            conn.in_flight.push_back((correlation, Instant::now()));
        }
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
            && let Some((_, sent)) = conn.in_flight.pop_back()
        {
            self.count(bytes, sent)?;
        }
        Ok(true)
    }
}
