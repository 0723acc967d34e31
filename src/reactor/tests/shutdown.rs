//! Buffers and handles under an abrupt end of the runtime.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::on_both_engines;
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_reactor::{Runtime, stats, task};

/// A buffer that goes bad the moment it is freed: had the kernel still to read from it, the file
/// would show it.
struct Canary {
    bytes: Vec<u8>,
    dropped: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Canary {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.bytes.fill(0xEE);
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

const WRITES: usize = 200;
const BYTES: usize = 64 * 1024;

/// Waits until the kernel or a worker has been asked for every write; few are over by then.
async fn all_begun() {
    while stats::read().ops_started < WRITES as u64 {
        task::yield_now().await;
    }
}

/// What ends a runtime with writes in flight.
enum End {
    /// The task that `block_on` runs panics; everything is dropped by the unwinding.
    Panic,
    /// `block_on` returns while other tasks still wait.
    Return,
}

fn end_with_writes_in_flight(runtime: &Runtime, end: End) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let dropped = Arc::new(AtomicUsize::new(0));
    let run = || {
        runtime.block_on(async {
            let file = fs::open(&path, OpenMode::CreateNew).await.unwrap();
            for n in 0..WRITES {
                let bytes = vec![n as u8; BYTES];
                let canary = Canary {
                    bytes,
                    dropped: Arc::clone(&dropped),
                };
                let file = file.clone();
                task::spawn(async move {
                    let buf = Bytes::from_owner(canary);
                    let _ = fs::write_at(&file, vec![buf], (n * BYTES) as u64).await;
                });
            }
            drop(file);
            all_begun().await;
            match end {
                End::Panic => resume_unwind(Box::new("an abrupt end, as the test wants it")),
                End::Return => {}
            }
        });
    };
    let _ = catch_unwind(AssertUnwindSafe(run));
    // An empty run waits for what the panic left in flight, as dropping the runtime does.
    runtime.block_on(async {});
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len(), WRITES * BYTES);
    for (n, chunk) in content.chunks(BYTES).enumerate() {
        assert!(
            chunk.iter().all(|byte| *byte == n as u8),
            "write {n} went wrong"
        );
    }
}

#[test]
fn a_panic_with_writes_in_flight_spoils_no_byte() {
    on_both_engines(|runtime| end_with_writes_in_flight(runtime, End::Panic));
}

#[test]
fn a_return_with_writes_in_flight_spoils_no_byte() {
    on_both_engines(|runtime| end_with_writes_in_flight(runtime, End::Return));
}

#[test]
fn dropping_the_runtime_waits_for_writes_of_dropped_tasks() {
    for engine in [
        thalweg_reactor::EngineChoice::Ring,
        thalweg_reactor::EngineChoice::Plain,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let dropped = Arc::new(AtomicUsize::new(0));
        let (moved, counted) = (path.clone(), Arc::clone(&dropped));
        let thread = std::thread::spawn(move || {
            let runtime = common::runtime(engine);
            runtime.block_on(async {
                let file = fs::open(&moved, OpenMode::CreateNew).await.unwrap();
                for n in 0..WRITES {
                    let canary = Canary {
                        bytes: vec![n as u8; BYTES],
                        dropped: counted.clone(),
                    };
                    let file = file.clone();
                    task::spawn(async move {
                        let buf = Bytes::from_owner(canary);
                        let _ = fs::write_at(&file, vec![buf], (n * BYTES) as u64).await;
                    });
                }
                all_begun().await;
                resume_unwind(Box::new("an abrupt end, as the test wants it"));
            });
        });
        // The unwinding drops the runtime, then the thread ends.
        assert!(thread.join().is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), WRITES);
        let content = std::fs::read(&path).unwrap();
        let good = (0..WRITES).all(|n| {
            content[n * BYTES..(n + 1) * BYTES]
                .iter()
                .all(|byte| *byte == n as u8)
        });
        assert!(good && content.len() == WRITES * BYTES);
    }
}

#[test]
fn a_dropped_flush_ends_before_its_runtime() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        let file = runtime.block_on(async {
            let file = fs::open(&dir.path().join("data"), OpenMode::CreateNew)
                .await
                .unwrap();
            fs::write_at(&file, vec![Bytes::from(vec![1; BYTES])], 0)
                .await
                .unwrap();
            let flushed = file.clone();
            let flush = task::spawn(async move { fs::sync_data(&flushed).await });
            task::yield_now().await;
            flush.abort();
            file
        });
        runtime.block_on(async { fs::len(&file).await.unwrap() });
    });
}
