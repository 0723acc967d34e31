//! The reactor's A/B microbenchmark: latency of one 4 KiB append alone and beside tasks that are always
//! ready to send files, on one thread, ring against plain engine.
//!
//! Measured facts behind it are in the design: a loop that submits only when it parks makes an append wait for
//! seconds beside hot senders. This shows whether ours still does not.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use hdrhistogram::Histogram;
use serde::Serialize;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::net::{More, Stream};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task};

use crate::cpu;

const APPEND_BYTES: usize = 4 * 1024;
const HOT_FILE_BYTES: usize = 4 * 1024 * 1024;
const SEND_BYTES: u64 = 64 * 1024;
/// The appended file begins again at this size.
const APPEND_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Flags of `reactor`.
#[derive(clap::Args, Clone, Debug)]
pub struct ReactorOptions {
    /// Directory for two files; must be on the file system of interest
    #[arg(long, default_value = "bench/results/local/reactor")]
    pub dir: PathBuf,
    /// Numbers of always-ready senders
    #[arg(long, value_delimiter = ',', default_value = "0,2,4,8")]
    pub senders: Vec<usize>,
    /// Seconds per cell and round
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Rounds; engines alternate within each
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// CPU of the runtime; the readers that drain the senders use another
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One cell.
#[derive(Debug, Serialize)]
struct CellReport {
    engine: &'static str,
    senders: usize,
    appends: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    sent_mb_per_second: f64,
}

/// Runs all cells and prints them.
///
/// # Errors
/// When a runtime or its files can not be made.
pub fn run(options: &ReactorOptions) -> Result<()> {
    std::fs::create_dir_all(&options.dir)
        .with_context(|| format!("cannot create {}", options.dir.display()))?;
    let allowed = cpu::allowed();
    let runtime_cpu = options.cpu.or(allowed.first().copied()).context("no CPU")?;
    let reader_cpu = allowed
        .iter()
        .copied()
        .rfind(|c| *c != runtime_cpu)
        .unwrap_or(runtime_cpu);
    let drain = drain_server(reader_cpu)?;
    let engines = [EngineChoice::Ring, EngineChoice::Plain];
    let mut cells = Vec::new();
    for &senders in &options.senders {
        let mut totals = [(histogram()?, 0.0, None), (histogram()?, 0.0, None)];
        for _ in 0..options.rounds.max(1) {
            for (engine, total) in engines.iter().zip(&mut totals) {
                let (part, rate, name) = measure(options, *engine, senders, runtime_cpu, drain)?;
                total.0.add(part).map_err(|e| anyhow!("histogram: {e:?}"))?;
                total.1 += rate / options.rounds.max(1) as f64;
                total.2 = Some(name);
            }
        }
        for (h, rate, name) in totals {
            cells.push(CellReport {
                engine: name.unwrap_or("none"),
                senders,
                appends: h.len(),
                p50_us: h.value_at_quantile(0.5),
                p99_us: h.value_at_quantile(0.99),
                max_us: h.max(),
                sent_mb_per_second: rate,
            });
        }
    }
    std::fs::remove_dir_all(&options.dir).context("cannot clean up")?;
    print(&cells, options)
}

fn print(cells: &[CellReport], options: &ReactorOptions) -> Result<()> {
    if options.json {
        println!("{}", serde_json::to_string_pretty(cells)?);
        return Ok(());
    }
    println!("4 KiB append beside always-ready senders on one thread");
    println!("engine  senders   appends   p50 us   p99 us    max us   sent MB/s");
    for c in cells {
        println!(
            "{:<6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>11.0}",
            c.engine, c.senders, c.appends, c.p50_us, c.p99_us, c.max_us, c.sent_mb_per_second
        );
    }
    Ok(())
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000, 3).map_err(|e| anyhow!("histogram: {e:?}"))
}

/// Accepts connections and throws away what arrives, on threads of its own.
fn drain_server(cpu: usize) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        if let Err(e) = cpu::confine_to(cpu) {
            eprintln!("note: {e:#}");
        }
        while let Ok((mut socket, _)) = listener.accept() {
            std::thread::spawn(move || std::io::copy(&mut socket, &mut std::io::sink()));
        }
    });
    Ok(address)
}

/// One cell for one round, on a thread with its own runtime: histogram of append latency, MB/s sent, engine.
fn measure(
    options: &ReactorOptions,
    engine: EngineChoice,
    senders: usize,
    cpu: usize,
    drain: SocketAddr,
) -> Result<(Histogram<u64>, f64, &'static str)> {
    let (dir, time) = (
        options.dir.clone(),
        Duration::from_secs_f64(options.seconds),
    );
    let thread = std::thread::spawn(move || -> Result<_> {
        let runtime = Runtime::new(RuntimeOptions {
            name: "bench".to_owned(),
            pin_to: Some(cpu),
            engine,
            ..RuntimeOptions::default()
        })
        .context("no runtime")?;
        let name = runtime.engine().kind.name();
        let (h, sent) = runtime.block_on(appends_beside(&dir, senders, drain, time))?;
        Ok((h, sent as f64 / 1e6 / time.as_secs_f64(), name))
    });
    thread
        .join()
        .map_err(|_| anyhow!("the runtime's thread panicked"))?
}

async fn appends_beside(
    dir: &Path,
    senders: usize,
    drain: SocketAddr,
    time: Duration,
) -> Result<(Histogram<u64>, u64)> {
    let hot = fs::open(&dir.join("hot"), OpenMode::CreateEmpty).await?;
    fs::write_at(&hot, vec![Bytes::from(vec![1u8; HOT_FILE_BYTES])], 0).await?;
    let sent = Rc::new(Cell::new(0u64));
    let mut tasks = Vec::new();
    for _ in 0..senders {
        let stream = Stream::connect(drain).await?;
        tasks.push(task::spawn(send_for_ever(
            stream,
            hot.clone(),
            Rc::clone(&sent),
        )));
    }
    let file = fs::open(&dir.join("log"), OpenMode::CreateEmpty).await?;
    let batch = Bytes::from(vec![2u8; APPEND_BYTES]);
    let mut latency_us = histogram()?;
    let mut offset = 0;
    let begin = Instant::now();
    sent.set(0);
    while begin.elapsed() < time {
        let asked = Instant::now();
        fs::write_at(&file, vec![batch.clone()], offset).await?;
        let us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        latency_us.saturating_record(us.max(1));
        offset = (offset + APPEND_BYTES as u64) % APPEND_FILE_BYTES;
    }
    let total = sent.get();
    for task in &tasks {
        task.abort();
    }
    Ok((latency_us, total))
}

async fn send_for_ever(stream: Stream, hot: File, sent: Rc<Cell<u64>>) {
    let mut position = 0;
    while stream
        .send_file(&hot, position, SEND_BYTES, More::No)
        .await
        .is_ok()
    {
        sent.set(sent.get() + SEND_BYTES);
        position = (position + SEND_BYTES) % HOT_FILE_BYTES as u64;
        task::yield_now().await;
    }
}
