//! The load generator: many connections, in a closed loop (a fixed number of requests in flight on each) or an
//! open one (requests at stated times, whatever became of those before).
//!
//! Cost per request: one `writev`, one `read` (two where records are discarded), no allocation, no decoding
//! beyond the few bytes that say whether it worked. Requests are encoded beforehand; a [`Job`] patches the
//! correlation id (and for Fetch the offset). Each thread drives its share of the connections with `epoll`.

mod driver;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;

use crate::cpu;
use crate::schedule::Schedule;
use crate::workload::{Rate, Reader};
use driver::{Driver, Recorded};

/// Bytes of an answer that [`Job::check`] gets to see.
pub const HEAD_BYTES: usize = 192;
const LATENCY_US_MAX: u64 = 120_000_000;

/// What is sent and how answers are judged. Each thread has its own copy.
pub trait Job: Send {
    /// Writes the beginning of the next request of connection `conn` into `head` (cleared before) and
    /// returns a token for [`Job::tail`].
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize;
    /// The rest of the request.
    fn tail(&self, token: usize) -> &[u8];
    /// Looks at the first bytes of an answer to connection `conn` (size prefix included, at most
    /// [`HEAD_BYTES`]). Returns the bytes of record batches that this request moved.
    ///
    /// # Errors
    /// When the broker refused, or answered something else.
    fn check(&mut self, conn: usize, head: &[u8]) -> Result<u64>;
    /// Bytes that a request without an answer moved; `None` when there are answers (acks other than 0).
    fn unanswered_bytes(&self) -> Option<u64>;
    /// Bytes of record batches that a request is expected to move; what a rate in MB/s is computed with.
    fn bytes_per_request(&self) -> u64;
    /// A copy for another thread.
    fn boxed(&self) -> Box<dyn Job>;
}

/// Connections that do the same.
pub struct Part {
    /// Its name in reports.
    pub name: &'static str,
    /// What they send.
    pub job: Box<dyn Job>,
    /// How many there are, in sum over the threads.
    pub connections: usize,
    /// Requests in flight per connection, at most.
    pub in_flight: usize,
    /// Open loop at this rate; `None` is a closed loop.
    pub rate: Option<Rate>,
    /// What becomes of the answers' records.
    pub reader: Reader,
    /// What is kept of each request.
    pub keep: Keep,
    /// Its threads run only while nobody else wants their CPU.
    pub gives_way: bool,
}

/// What is kept of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Its latency, in the histogram.
    Latency,
    /// Also when it was sent, or due, and when it was answered.
    Times,
}

/// Where to push, and for how long.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to.
    pub address: SocketAddr,
    /// Load threads per part.
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
    /// Part by part.
    pub parts: Vec<PartResult>,
    /// CPU time of the broker in the window.
    pub broker_cpu: Option<Duration>,
    /// CPU time of the whole machine in the window.
    pub machine_busy: Duration,
}

/// What one part did in the window.
#[derive(Clone, Debug)]
pub struct PartResult {
    /// Name of the part.
    pub name: &'static str,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of record batches moved.
    pub bytes: u64,
    /// Closed loop: from the first byte sent to the last byte received. Open loop: from the intended time of
    /// sending, and a request without an answer counts with its age at the end. Microseconds.
    pub latency_us: Histogram<u64>,
    /// With [`Keep::Times`] when each request began, as latency counts, and ended; in no order.
    pub times: Vec<(Instant, Instant)>,
    /// Of an open loop only.
    pub open: Option<OpenResult>,
}

/// How well an open loop kept its schedule.
#[derive(Clone, Debug)]
pub struct OpenResult {
    /// Requests that came due in the window.
    pub intended: u64,
    /// Requests that were due and not begun, at their most, per load thread, summed.
    pub backlog_max: u64,
    /// Requests that were due and had no answer when the window ended.
    pub unanswered: u64,
    /// From the intended time to the first attempt to send, in microseconds. Large values without a broker that
    /// is slow mean that the load generator is the limit.
    pub send_delay_us: Histogram<u64>,
}

impl LoadResult {
    /// Requests answered, over all parts.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.parts.iter().map(|part| part.requests).sum()
    }

    /// Bytes of record batches moved, over all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Broker CPU seconds per 10^9 bytes of record batches; `None` where none moved.
    #[must_use]
    pub fn cpu_seconds_per_gb(&self) -> Option<f64> {
        let bytes = Some(self.bytes()).filter(|bytes| *bytes > 0)?;
        self.broker_cpu
            .map(|cpu| cpu.as_secs_f64() / (bytes as f64 / 1e9))
    }

    /// Broker CPU microseconds per request; `None` where none was answered.
    #[must_use]
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        let requests = Some(self.requests()).filter(|requests| *requests > 0)?;
        self.broker_cpu
            .map(|cpu| cpu.as_secs_f64() * 1e6 / requests as f64)
    }
}

/// The phase before it is 0: warming up.
const MEASURE: u8 = 1;
const STOP: u8 = 2;

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests that came due; of an open loop.
    intended: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    requests: u64,
    bytes: u64,
    intended: u64,
}

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    parts: Vec<Counters>,
}

struct Sample {
    at: Instant,
    parts: Vec<Counted>,
    broker: Option<Duration>,
    machine: Duration,
}

impl Shared {
    fn sample(&self, pid: Option<u32>) -> Result<Sample> {
        let counted = |part: &Counters| Counted {
            requests: part.requests.load(Ordering::Relaxed),
            bytes: part.bytes.load(Ordering::Relaxed),
            intended: part.intended.load(Ordering::Relaxed),
        };
        Ok(Sample {
            broker: pid.map(cpu::process_time).transpose()?,
            machine: cpu::machine_busy()?,
            at: Instant::now(),
            parts: self.parts.iter().map(counted).collect(),
        })
    }
}

/// Runs all parts side by side until the time is over.
///
/// # Errors
/// When a connection fails or an answer is not what it should be.
pub fn run(parts: &[Part], options: &LoadOptions) -> Result<LoadResult> {
    let drivers = connect(parts, options)?;
    let shared = Arc::new(Shared {
        phase: AtomicU8::new(0),
        parts: parts.iter().map(|_| Counters::default()).collect(),
    });
    let start = Instant::now();
    let mut handles = Vec::new();
    for (which, driver) in drivers {
        let part = &parts[which];
        let schedule = part.rate.map(|rate| {
            let rate = rate.requests_per_second(part.job.bytes_per_request());
            Schedule::new(start, rate, part.connections)
        });
        let shared = Arc::clone(&shared);
        let gives_way = part.gives_way;
        handles.push(thread::spawn(move || {
            if gives_way {
                cpu::give_way()?;
            }
            driver.run(schedule, &shared, which).map(|r| (which, r))
        }));
    }
    let window = measure_window(&shared, options, &handles);
    shared.phase.store(STOP, Ordering::Relaxed);
    let mut recorded = Vec::new();
    for _ in parts {
        recorded.push(Recorded::new()?);
    }
    for handle in handles {
        let joined = handle.join();
        let (which, one) = joined.map_err(|_| anyhow!("a load thread panicked"))??;
        recorded[which].add(&one)?;
    }
    let (from, to) = window?;
    Ok(concluded(parts, recorded, &from, &to))
}

fn concluded(parts: &[Part], recorded: Vec<Recorded>, from: &Sample, to: &Sample) -> LoadResult {
    let counts = from.parts.iter().zip(&to.parts);
    let parts = parts
        .iter()
        .zip(recorded)
        .zip(counts)
        .map(|((part, recorded), (from, to))| PartResult {
            name: part.name,
            requests: to.requests - from.requests,
            bytes: to.bytes - from.bytes,
            latency_us: recorded.latency_us,
            times: recorded.times,
            open: part.rate.map(|_| OpenResult {
                intended: to.intended - from.intended,
                backlog_max: recorded.backlog_max,
                unanswered: recorded.unanswered,
                send_delay_us: recorded.send_delay_us,
            }),
        })
        .collect();
    LoadResult {
        elapsed: to.at - from.at,
        parts,
        broker_cpu: to
            .broker
            .zip(from.broker)
            .map(|(to, from)| to.saturating_sub(from)),
        machine_busy: to.machine.saturating_sub(from.machine),
    }
}

/// Connects everything before the first request is sent: a schedule must not wait for connections.
fn connect(parts: &[Part], options: &LoadOptions) -> Result<Vec<(usize, Driver)>> {
    ensure!(!parts.is_empty(), "nothing to send");
    let mut drivers = Vec::new();
    for (which, part) in parts.iter().enumerate() {
        ensure!(
            part.connections >= 1 && part.in_flight >= 1,
            "{}: nothing to send",
            part.name
        );
        let threads = options.threads.clamp(1, part.connections);
        for t in 0..threads {
            let mine: Vec<usize> = (t..part.connections).step_by(threads).collect();
            drivers.push((which, Driver::connect(part, mine, options.address)?));
        }
    }
    Ok(drivers)
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

/// An empty histogram of microseconds, up to two minutes, with three significant digits.
///
/// # Errors
/// None with these bounds.
pub fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(|e| anyhow!("histogram: {e:?}"))
}

/// Adds one time; what lies outside of the histogram counts as its nearest value.
pub fn record(us: &mut Histogram<u64>, time: Duration) {
    let value = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    us.saturating_record(value.clamp(1, LATENCY_US_MAX));
}

/// Adds all of `part` to `sum`.
///
/// # Errors
/// None for histograms of [`new_histogram`].
pub fn add(sum: &mut Histogram<u64>, part: &Histogram<u64>) -> Result<()> {
    sum.add(part).context("histograms of one shape")
}
