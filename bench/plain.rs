//! The floor of durable acknowledgements: threads that append to files and fdatasync after each append, without a
//! network and without sharing a sync.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;

use crate::cpu;
use crate::load::{self, new_histogram};

const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// What is appended to, by whom, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct PlainOptions<'a> {
    /// Made for the files, and removed at the end.
    pub dir: &'a Path,
    /// Files; thread t begins with file t and takes the next one each time.
    pub files: usize,
    /// Threads.
    pub threads: usize,
    /// What one append writes.
    pub bytes: &'a [u8],
    /// CPU that the threads are confined to.
    pub cpu: Option<usize>,
    /// Not measured.
    pub warm_up: Duration,
    /// Measured.
    pub measure: Duration,
}

/// What the threads did in the measured time.
#[derive(Debug)]
pub struct Plain {
    /// Appends that were on the device, per second.
    pub acks_per_second: f64,
    /// From the wish to append until it was there, waiting for the file's other appends included.
    pub latency_us: Histogram<u64>,
}

/// Runs the threads.
///
/// # Errors
/// When the directory can not be written.
pub fn run(options: &PlainOptions<'_>) -> Result<Plain> {
    let outcome = measured(options);
    fs::remove_dir_all(options.dir).ok();
    outcome
}

fn measured(options: &PlainOptions<'_>) -> Result<Plain> {
    fs::create_dir_all(options.dir)
        .with_context(|| format!("cannot create {}", options.dir.display()))?;
    let open = |n: usize| {
        let path = options.dir.join(format!("{n}.log"));
        let mut how = OpenOptions::new();
        let file = how.create_new(true).append(true).open(&path);
        file.map(Mutex::new)
            .with_context(|| format!("cannot create {}", path.display()))
    };
    let files: Vec<Mutex<File>> = (0..options.files).map(open).collect::<Result<_>>()?;
    File::open(options.dir)?.sync_all()?;
    let files = Arc::new(files);
    let phase = Arc::new(AtomicU8::new(0));
    let threads: Vec<_> = (0..options.threads)
        .map(|t| {
            let (files, phase) = (Arc::clone(&files), Arc::clone(&phase));
            let (bytes, cpu) = (options.bytes.to_vec(), options.cpu);
            thread::spawn(move || append(t, &files, &bytes, cpu, &phase))
        })
        .collect();
    thread::sleep(options.warm_up);
    phase.store(MEASURE, Ordering::Relaxed);
    let began = Instant::now();
    thread::sleep(options.measure);
    phase.store(STOP, Ordering::Relaxed);
    let elapsed = began.elapsed();
    let mut latency_us = new_histogram()?;
    for thread in threads {
        let joined = thread.join();
        let one = joined.map_err(|_| anyhow!("an appending thread panicked"))??;
        load::add(&mut latency_us, &one)?;
    }
    Ok(Plain {
        acks_per_second: latency_us.len() as f64 / elapsed.as_secs_f64(),
        latency_us,
    })
}

fn append(
    thread: usize,
    files: &[Mutex<File>],
    bytes: &[u8],
    cpu: Option<usize>,
    phase: &AtomicU8,
) -> Result<Histogram<u64>> {
    cpu.map_or(Ok(()), cpu::confine_to)?;
    let mut latency_us = new_histogram()?;
    for turn in thread.. {
        let began = Instant::now();
        let file = &files[turn % files.len()];
        let mut file = file.lock().map_err(|_| anyhow!("a thread panicked"))?;
        file.write_all(bytes)?;
        file.sync_data()?;
        drop(file);
        match phase.load(Ordering::Relaxed) {
            STOP => break,
            MEASURE => load::record(&mut latency_us, began.elapsed()),
            _ => {}
        }
    }
    Ok(latency_us)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PlainOptions, run};

    #[test]
    fn every_append_is_counted_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("plain");
        let options = PlainOptions {
            dir: &dir,
            files: 3,
            threads: 2,
            bytes: &[7; 100],
            cpu: None,
            warm_up: Duration::ZERO,
            measure: Duration::from_millis(50),
        };
        let plain = run(&options).unwrap();
        assert!(plain.acks_per_second > 0.0 && !plain.latency_us.is_empty());
        assert!(!dir.exists());
    }
}
