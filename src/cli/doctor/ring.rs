//! What the kernel does with our operations, found by trying them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use thalweg_reactor::fs::{File, OpenMode, open, read_at, unlink, write_at};
use thalweg_reactor::{EngineChoice, EngineKind, Runtime, RuntimeOptions};

use super::finding::{Finding, Level};
use super::system::System;

const OPERATIONS: u64 = 64;
const BYTES: usize = 4_096;
/// What the kernel calls the workers of a ring.
const WORKER: &str = "iou-wrk";

/// Whether there is a ring, tried on a thread of its own.
pub(super) fn engine(system: &System) -> Finding {
    let made = on_thread(|| Ok(runtime(EngineChoice::Auto)?.engine()));
    let name = "io-uring";
    let report = match made {
        Ok(report) => report,
        Err(error) => {
            let text = "nothing that the broker does to files works";
            return Finding::new(name, Level::Problem, error.to_string(), text);
        }
    };
    match (report.kind, report.reason) {
        (EngineKind::Ring, None) => Finding::ok(name, format!("a ring with {}", report.flags)),
        (EngineKind::Ring, Some(reason)) => {
            let text = "the kernel gives a lesser ring, which costs some CPU";
            Finding::new(name, Level::Note, reason, text)
        }
        (EngineKind::Plain | EngineKind::Simulated, reason) => {
            let text = "appends go through threads: more CPU per request, and longer tails";
            let found = reason.unwrap_or_default();
            let finding = Finding::new(name, Level::Warning, found, text);
            if system
                .number("/proc/sys/kernel/io_uring_disabled")
                .unwrap_or(0)
                > 0
            {
                finding.tuned_by("sysctl")
            } else {
                finding.remedy("allow io_uring in the seccomp profile of the container")
            }
        }
    }
}

/// Which operations run in the turn of the core and which are handed to workers, on the mount of this folder.
pub(super) fn trials(folder: &Path) -> Vec<Finding> {
    let file = folder.join(format!(".thalweg-doctor-{}", std::process::id()));
    let outcome = try_both(&file);
    // It may not have been made.
    let _ = fs::remove_file(&file);
    match outcome {
        Ok(findings) => findings,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Vec::new(), // said by `engine`
        Err(error) => {
            let text = "it is not known how appends and reads run here";
            let found = format!("could not be tried: {error}");
            vec![Finding::new("ring-appends", Level::Note, found, text)]
        }
    }
}

fn try_both(path: &Path) -> io::Result<Vec<Finding>> {
    let text = "each costs a hand-over to a worker thread, some 10 us of CPU; large batches do not feel it";
    let finding = |name, workers: bool| {
        if workers {
            Finding::new(name, Level::Note, "handed to workers", text)
        } else {
            Finding::ok(name, "run in the turn of the core")
        }
    };
    // A thread each, as workers of the ring stay with their thread for a while.
    let to_write = path.to_owned();
    let appends = on_thread(move || with_ring(|| append(to_write)))?;
    let to_read = path.to_owned();
    let reads = on_thread(move || with_ring(|| read(to_read)))?;
    let told = finding("ring-appends", appends);
    let appends = if appends {
        told.remedy("xfs runs buffered appends in the turn of the core, ext4 hands them over")
    } else {
        told
    };
    Ok(vec![appends, finding("ring-reads", reads)])
}

async fn append(path: PathBuf) -> io::Result<()> {
    let file: File = open(&path, OpenMode::CreateNew).await?;
    for n in 0..OPERATIONS {
        write_at(&file, vec![Bytes::from(vec![7; BYTES])], n * BYTES as u64).await?;
    }
    Ok(())
}

/// Of pages that are in the cache.
async fn read(path: PathBuf) -> io::Result<()> {
    let file = open(&path, OpenMode::Read).await?;
    for n in 0..OPERATIONS {
        read_at(&file, n * BYTES as u64, BYTES).await?;
    }
    unlink(&path).await
}

/// Whether the kernel made workers for what is done on a ring.
fn with_ring<F: Future<Output = io::Result<()>>>(work: impl FnOnce() -> F) -> io::Result<bool> {
    let runtime = runtime(EngineChoice::Ring)?;
    runtime.block_on(work())?;
    let mut workers = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread that has just ended has no name any more.
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        workers += usize::from(name.starts_with(WORKER));
    }
    Ok(workers > 0)
}

fn runtime(engine: EngineChoice) -> io::Result<Runtime> {
    Runtime::new(RuntimeOptions {
        name: "doctor".to_owned(),
        engine,
        ..RuntimeOptions::default()
    })
}

/// A thread has one runtime at most, and keeps the workers of its rings.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let joined = thread::spawn(work).join();
    joined.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}
