//! The scrub: every batch of every closed segment is checked now and then, before somebody needs it.
//!
//! The log's own thread says which segment is due ([`Log::scrub_next`]) and takes the outcome; a
//! [`Scrubber`], one thread of the lowest priority for the process, reads the files and computes the
//! checksums ([`Gentle`] says how). What is damaged goes to the quarantine, an index that does not fit its
//! log is made anew.
//!
//! Start reading at [`Log::scrub_next`], then `look.rs`.

mod gentle;
mod look;
mod snapshot;

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_reactor::{fs, mailbox, oneshot, spawn_background_thread, task, time};
use thalweg_types::Offset;
use thalweg_types::limits::SCRUB_LOOKS_WAITING_MAX;

pub(crate) use gentle::Gentle;
use look::{Look, Looked};
use snapshot::{BadSnapshot, Before};

use crate::error::ReadError;
use crate::log::Log;
use crate::name::{index_path, time_index_path};
use crate::quarantine::{are_same, new_ones};
use crate::segment::Segment;

/// What one look at a segment came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// Bytes of batches that were checked.
    pub bytes: u64,
    /// Damaged ranges that were not known.
    pub damages: u64,
    /// Index files that did not fit their log and were made anew.
    pub indexes: u64,
    /// Snapshots of producers that were damaged, and were made anew or removed.
    pub snapshots: u64,
}

/// A look that waits for its turn.
struct Job {
    look: Look,
    bytes_per_second: Option<u64>,
    done: oneshot::Sender<io::Result<Looked>>,
}

/// The way to the thread that checks segments. Clones lead to the same.
#[derive(Clone)]
pub struct Scrubber {
    jobs: mailbox::Sender<Job>,
    stop: Arc<AtomicBool>,
}

impl Scrubber {
    /// Starts the thread. It ends when every clone of the way to it is gone; the result is an error when
    /// it got no runtime.
    ///
    /// # Errors
    /// The thread can not be started.
    pub fn start(name: &str) -> io::Result<(Scrubber, JoinHandle<io::Result<()>>)> {
        let (jobs, mut inbox) = mailbox::channel::<Job>(SCRUB_LOOKS_WAITING_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = spawn_background_thread(name, move |runtime| {
            runtime.block_on(async move {
                let paid = Rc::new(Cell::new(time::now()));
                while let Some(job) = inbox.recv().await {
                    let (paid, stop) = (Rc::clone(&paid), Arc::clone(&stopping));
                    let gentle = Gentle::new(job.bytes_per_second, paid, stop);
                    let work = async move {
                        // Whoever asked may be gone.
                        let _ = job.done.send(job.look.run(Some(gentle)).await);
                    };
                    match job.bytes_per_second {
                        // One of each shard at most.
                        Some(_) => drop(task::spawn(work)),
                        None => work.await,
                    }
                }
            });
        })?;
        Ok((Scrubber { jobs, stop }, thread))
    }

    /// Ends the looks that are under way, and every later one, soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    async fn look(&self, look: Look, bytes_per_second: Option<u64>) -> io::Result<Looked> {
        let (done, looked) = oneshot::channel();
        let job = Job {
            look,
            bytes_per_second,
            done,
        };
        let stopping = || io::Error::new(io::ErrorKind::Interrupted, "stopping");
        self.jobs.send(job).await.map_err(|_| stopping())?;
        looked.await.unwrap_or_else(|| Err(stopping()))
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").finish_non_exhaustive()
    }
}

impl Log {
    /// Bytes of closed segments that were not checked for `interval`.
    #[must_use]
    pub fn scrub_due_bytes(&self, interval: Duration) -> u64 {
        let state = self.inner.state.borrow();
        let closed = &state.segments[..state.segments.len() - 1];
        let due = closed.iter().filter(|segment| is_due(segment, interval));
        due.map(|segment| segment.size.get()).sum()
    }

    /// Checks one closed segment that was not checked for `interval`, at that rate: the one whose last check
    /// is the longest ago, and of those that were never checked the first. `None` when there is none.
    ///
    /// # Errors
    /// What the system says to reads; `Interrupted` when the scrubber is stopping.
    pub async fn scrub_next(
        &self,
        interval: Duration,
        bytes_per_second: u64,
    ) -> io::Result<Option<Scrubbed>> {
        let segment = {
            let state = self.inner.state.borrow();
            if state.check_readable().is_err() {
                return Ok(None);
            }
            let closed = &state.segments[..state.segments.len() - 1];
            let due = closed.iter().filter(|segment| is_due(segment, interval));
            due.min_by_key(|segment| segment.looked_at.get()).cloned()
        };
        match segment {
            Some(segment) => self
                .look_at(&segment, Some(bytes_per_second))
                .await
                .map(Some),
            None => Ok(None),
        }
    }

    /// Looks through a segment in which somebody met damage, at once.
    pub(crate) async fn look_at_suspect(&self, segment: &Rc<Segment>) {
        match self.look_at(segment, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let path = segment.path();
                tracing::error!(path = %path.display(), %error, "what is damaged can not be told");
            }
        }
    }

    async fn look_at(
        &self,
        segment: &Rc<Segment>,
        bytes_per_second: Option<u64>,
    ) -> io::Result<Scrubbed> {
        if !segment.is_named() {
            // What has its name is what it is to replace; its turn comes.
            return Ok(Scrubbed::default());
        }
        let (look, scrubber) = {
            let state = self.inner.state.borrow();
            let index = state.segment_for(segment.base);
            let look = Look {
                dir: self.inner.dir.to_path_buf(),
                base: segment.base,
                before: index.checked_sub(1).and_then(|before| {
                    let before = &state.segments[before];
                    let is_whole = before.damaged.borrow().is_empty() && before.is_named();
                    is_whole.then(|| Before {
                        base: before.base,
                        bytes: before.size.get(),
                    })
                }),
                next: state.segments.get(index + 1).map(|next| next.base),
                end: state.segment_end(index),
                bytes: segment.size.get(),
                interval_bytes: u64::from(state.options.index_interval_bytes),
                indexes_saved: segment.indexes_saved.get(),
            };
            (look, state.options.scrubber.clone())
        };
        // Whatever comes of it: its turn is over.
        segment.looked_at.set(Some(time::now()));
        let looked = match scrubber {
            Some(scrubber) => scrubber.look(look, bytes_per_second).await,
            None => look.run(None).await,
        };
        if segment.is_retired() || self.check_open().is_err() {
            // Compacted or deleted meanwhile, so that its file may be another's.
            return Ok(Scrubbed::default());
        }
        let looked = looked?;
        segment.is_suspect.set(false);
        Ok(self.take(segment, looked).await)
    }

    async fn take(&self, segment: &Rc<Segment>, looked: Looked) -> Scrubbed {
        let path = segment.path();
        let mut scrubbed = Scrubbed {
            bytes: looked.bytes,
            ..Scrubbed::default()
        };
        let before = segment.damaged.replace(looked.damaged.clone());
        let changed = !are_same(&before, &looked.damaged);
        if changed {
            // Before it is told: who reads of it may stop the broker at once.
            self.store_quarantine().await;
        }
        for range in new_ones(&looked.damaged, &before) {
            scrubbed.damages += 1;
            tracing::error!(path = %path.display(), position = range.bytes.start,
                bytes = range.bytes.end - range.bytes.start, offset = range.first.0,
                next = range.next.0, reason = range.reason,
                "DAMAGED: these bytes are served no more, readers get CORRUPT_MESSAGE for offsets from \
                 `offset` to below `next` and can go on at `next`; put the file back from a backup, or \
                 stop the broker and run `thalweg repair`");
        }
        if changed && looked.damaged.is_empty() {
            tracing::warn!(path = %path.display(), "is whole again and served");
        }
        if let Some((index, reason)) = &looked.index {
            scrubbed.indexes += 1;
            tracing::warn!(path = %index.display(), reason, "does not fit its log: made anew");
        }
        if changed || looked.index.is_some() {
            self.rebuild_indexes(segment).await;
        }
        if let Some(bad) = looked.snapshot {
            scrubbed.snapshots += 1;
            self.replace_snapshot(segment.base, bad).await;
        }
        let counters = &self.inner.state.borrow().options.metrics;
        let counters = &mut counters.borrow_mut().counters;
        counters.scrub_bytes += scrubbed.bytes;
        counters.scrub_segments += 1;
        counters.scrub_damages += scrubbed.damages;
        counters.scrub_indexes_rebuilt += scrubbed.indexes;
        counters.scrub_snapshots_replaced += scrubbed.snapshots;
        scrubbed
    }

    /// A start would pass over it and take an older one.
    async fn replace_snapshot(&self, at: Offset, bad: BadSnapshot) {
        let (what, done) = match bad.anew {
            Some(bytes) => ("made anew", self.store_snapshot(at, bytes).await),
            None => ("removed", self.remove_snapshot(at).await),
        };
        let (path, reason) = (bad.path.display(), bad.reason);
        match done {
            Ok(()) => {
                tracing::warn!(%path, %reason, "DAMAGED snapshot of producers: {what}");
            }
            Err(error) => {
                tracing::warn!(%path, %reason, %error, "DAMAGED snapshot of producers: it stays");
            }
        }
    }

    /// Has the indexes of a closed segment made anew from its log, by the next who reads in it: at once.
    async fn rebuild_indexes(&self, segment: &Rc<Segment>) {
        {
            let _turn = self.inner.index_turn.take().await;
            let is_closed = !Rc::ptr_eq(self.inner.state.borrow().active(), segment);
            let of_memory = !is_closed || segment.has_zeros() || !segment.is_synced();
            if of_memory || segment.is_retired() || self.check_open().is_err() {
                // Of an open segment they say what was appended, and are written when it is closed.
                return;
            }
            let (base, dir) = (segment.base, &self.inner.dir);
            for path in [index_path(dir, base), time_index_path(dir, base)] {
                unlink(&path).await;
            }
            segment.drop_memory();
        }
        let warming = self.inner.state.borrow().warming();
        match segment.warm(&warming).await {
            Ok(_) | Err(ReadError::Replaced) => {}
            Err(error) => tracing::warn!(%error, "an index can not be made anew"),
        }
    }
}

fn is_due(segment: &Segment, interval: Duration) -> bool {
    let looked = segment.looked_at.get();
    let is_due = looked.is_none_or(|at| time::now().saturating_duration_since(at) >= interval);
    is_due && segment.is_synced() && !segment.has_zeros() && segment.is_named()
}

/// What is not removed is wrong still, and is found so by the next look.
async fn unlink(path: &Path) {
    match fs::unlink(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "an index can not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}
