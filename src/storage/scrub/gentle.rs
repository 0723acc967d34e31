//! Reads that nobody else notices: at a bounded rate, and without pushing out of the page cache what
//! others read.
//!
//! A piece of which the page cache has nothing is read, without reading ahead, and let go of again; one of
//! which it has something is read and left. So a hot segment is checked as readers get it, a cold one as
//! the disk has it, and the cache is afterwards what it was before. Kernels before 6.5 can not say what they
//! have: there a piece counts as cached when its first byte can be read without waiting.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_reactor::fs::{self, File};
use thalweg_reactor::{task, time};

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// The smallest unit of the page cache.
const PAGE_BYTES: u64 = 4 * 1024;
/// Longest sleep before it is looked whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the page cache has some of a piece.
fn is_cached(file: &File, at: u64, bytes: u64) -> io::Result<bool> {
    match fs::cached_pages(file, at, bytes) {
        Some(pages) => Ok(pages > 0),
        None => Ok(fs::read_cached(file, at, &mut [0])?.is_some()),
    }
}

/// How one look at a segment reads.
#[derive(Clone)]
pub(crate) struct Gentle {
    /// `None`: as fast as it goes.
    bytes_per_second: Option<u64>,
    /// What all looks of the thread have read is paid for by then.
    paid: Rc<Cell<Instant>>,
    stop: Arc<AtomicBool>,
}

impl Gentle {
    pub(super) fn new(
        bytes_per_second: Option<u64>,
        paid: Rc<Cell<Instant>>,
        stop: Arc<AtomicBool>,
    ) -> Gentle {
        Gentle {
            bytes_per_second,
            paid,
            stop,
        }
    }

    /// Reads at most `wanted` bytes, and fewer where that suits the rate.
    pub(crate) async fn read(&self, file: &File, at: u64, wanted: usize) -> io::Result<BytesMut> {
        // Up to the end of a page, so that the next piece shares none with this one.
        let end = (at + CHUNK_BYTES as u64) / PAGE_BYTES * PAGE_BYTES;
        let wanted = wanted.min(usize::try_from(end - at).unwrap_or(CHUNK_BYTES));
        self.spend(wanted).await?;
        let first = at - at % PAGE_BYTES;
        let was_cached = is_cached(file, first, end - first)?;
        let bytes = fs::read_at(file, at, wanted).await?;
        if !was_cached {
            fs::forget_cached(file, first, end - first);
        }
        Ok(bytes)
    }

    async fn spend(&self, bytes: usize) -> io::Result<()> {
        let rate = self.bytes_per_second.map(|rate| rate.max(1) as f64);
        let took = rate.map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(bytes as f64 / rate)
        });
        let due = match rate {
            Some(_) => self.paid.get().max(time::now()) + took,
            None => time::now(),
        };
        if rate.is_some() {
            self.paid.set(due);
        }
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "stopping"));
            }
            let left = due.saturating_duration_since(time::now());
            if left < Duration::from_millis(1) {
                task::yield_now().await;
                return Ok(());
            }
            time::sleep(left.min(LOOK_EVERY)).await;
        }
    }
}
