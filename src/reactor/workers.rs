//! Bounded pools of threads for calls that may block.
//!
//! A pool starts threads when there is work and none is idle, up to its bound; more work queues. The
//! queue needs no bound of its own: each job but a close has a task that waits for it, and closes are
//! bounded by the process's file descriptors. Jobs own all they touch.
//!
//! Workers run on every core the process may use, whatever the pin of the thread that started them.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use crate::context;
use crate::cores;
use crate::disk;
use crate::in_place;
use crate::sync::{lock, oneshot};

/// Threads for open, rename, list and the like.
const NAMESPACE_THREADS_MAX: usize = 2;
/// Threads for close, unlink and removal of directories, whose last step may free a large file.
const REAPER_THREADS_MAX: usize = 1;
/// Threads for fsync and fdatasync of small files and directories, which somebody waits for.
const SYNCER_THREADS_MAX: usize = 4;
/// Threads for flushes of data in the background, for which nobody waits.
const FLUSHER_THREADS_MAX: usize = 2;
/// Threads for what takes longer than a turn of a core may last.
const COMPUTER_THREADS_MAX: usize = 2;
/// Threads for reads and writes of threads that have no runtime of their own.
const SHARED_DATA_THREADS_MAX: usize = 2;

/// Opens, renames, lists.
pub(crate) static NAMESPACE: LazyLock<Pool> =
    LazyLock::new(|| Pool::of_short_calls("tw-names", NAMESPACE_THREADS_MAX));
/// Closes and unlinks.
pub(crate) static REAPER: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("tw-closer", REAPER_THREADS_MAX));
/// Flushes of small files, directories and logs whose owners wait.
pub(crate) static SYNCERS: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("tw-syncer", SYNCER_THREADS_MAX));
/// Flushes in the background.
pub(crate) static FLUSHERS: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("tw-flusher", FLUSHER_THREADS_MAX));
/// Reads and writes of threads without a runtime.
pub(crate) static SHARED_DATA: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("tw-data", SHARED_DATA_THREADS_MAX));

/// Computes.
pub(crate) static COMPUTERS: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("tw-compute", COMPUTER_THREADS_MAX));

/// Starts every thread of the pools of the process, so that none inherits what the next caller is.
pub(crate) fn start_all() {
    for pool in [
        &NAMESPACE,
        &REAPER,
        &SYNCERS,
        &FLUSHERS,
        &SHARED_DATA,
        &COMPUTERS,
    ] {
        pool.start_rest();
    }
}

/// Pools that a directory has for itself, of the names of those of the process.
struct Own {
    directory: PathBuf,
    pools: [Pool; 4],
}

static OWN: RwLock<Vec<&'static Own>> = RwLock::new(Vec::new());

/// Gives a directory worker threads of its own, for as long as the process lives: where its disk does not answer,
/// what waits for it holds up no work in other directories. What lies in it is known by paths that begin with this
/// one. A second call for a directory does nothing.
pub fn give_threads(directory: &Path) {
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    if own.iter().any(|own| own.directory == directory) {
        return;
    }
    let given: &'static Own = Box::leak(Box::new(Own {
        directory: directory.to_owned(),
        pools: [
            Pool::of_short_calls(NAMESPACE.shared.name, NAMESPACE_THREADS_MAX),
            Pool::new(REAPER.shared.name, REAPER_THREADS_MAX),
            Pool::new(SYNCERS.shared.name, SYNCER_THREADS_MAX),
            Pool::new(FLUSHERS.shared.name, FLUSHER_THREADS_MAX),
        ],
    }));
    given.pools.iter().for_each(Pool::start_rest);
    own.push(given);
}

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What the jobs of a pool are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Over at once where the kernel has it in memory.
    Short,
    /// They wait for a disk, or compute.
    Long,
}

pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    calls: Calls,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    idle: usize,
    closed: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `name` is seen in `top -H`: at most 12 bytes, a number is added.
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Pool {
        Pool::of(name, threads_max, Calls::Long)
    }

    /// Of jobs that [`crate::in_place`] may take out of it.
    fn of_short_calls(name: &'static str, threads_max: usize) -> Pool {
        Pool::of(name, threads_max, Calls::Short)
    }

    fn of(name: &'static str, threads_max: usize, calls: Calls) -> Pool {
        let state = Mutex::new(State::default());
        Pool {
            shared: Arc::new(Shared {
                name,
                threads_max,
                calls,
                state,
                work: Condvar::new(),
            }),
        }
    }

    /// The pool of this kind for what lies at `path`.
    pub(crate) fn at(&'static self, path: &Path) -> &'static Pool {
        let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
        let of_directory = own.iter().find(|own| path.starts_with(&own.directory));
        let of_kind = |own: &&'static Own| {
            let mut pools = own.pools.iter();
            pools.find(|pool| pool.shared.name == self.shared.name)
        };
        of_directory.and_then(of_kind).unwrap_or(self)
    }

    /// Queues a job that nobody waits for.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = lock(&self.shared.state);
        state.queue.push_back(job);
        // An idle thread may have been promised to an earlier job that it has not taken yet.
        let short = state.queue.len() > state.idle;
        if short && state.threads.len() < self.shared.threads_max {
            match self.start_thread(state.threads.len()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    // No thread at all: a late answer on this thread is better than none.
                    tracing::warn!(pool = self.shared.name, %error, "cannot start a worker thread");
                    let jobs = std::mem::take(&mut state.queue);
                    drop(state);
                    jobs.into_iter().for_each(|job| job());
                    return;
                }
                Err(_) => {} // those that run will come to it
            }
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// Runs `work` on a worker and waits for what it gives. The job runs to its end even if the
    /// future is dropped, and the runtime of the calling thread waits for it before it ends. With a
    /// simulated disk it runs on the calling thread.
    pub(crate) async fn run<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> io::Result<T> + Send + 'static,
    {
        if disk::is_simulated() {
            disk::delay().await;
            let result = work();
            disk::delay().await;
            return result;
        }
        if self.shared.calls == Calls::Short && in_place::is_on() {
            return work();
        }
        let (job, done) = job_of(work);
        self.submit(job);
        done.await
    }

    fn start_rest(&self) {
        let mut state = lock(&self.shared.state);
        while state.threads.len() < self.shared.threads_max {
            match self.start_thread(state.threads.len()) {
                Ok(thread) => state.threads.push(thread),
                // Those that run do all the work.
                Err(_) => return,
            }
        }
    }

    fn start_thread(&self, number: usize) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name(format!("{}{number}", self.shared.name))
            .spawn(move || {
                // Where it is not allowed the thread runs where its starter runs: slower, not wrong.
                let _ = cores::unpin();
                shared.serve();
            })
    }
}

/// `work` for a worker, and what it gives. The runtime of the calling thread waits for the job before it ends.
pub(crate) fn job_of<T, F>(work: F) -> (Job, impl Future<Output = io::Result<T>>)
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let guard = context::current().map(|context| context.in_flight.enter());
    let (answer, wait) = oneshot::channel();
    let job = Box::new(move || {
        let result = work();
        // A dropped future wants no answer. The result is dropped here, before the guard.
        drop(answer.send(result));
        drop(guard);
    });
    let done = async {
        match wait.await {
            Some(result) => result,
            None => Err(io::Error::other("the worker thread gave no answer")),
        }
    };
    (job, done)
}

impl Drop for Pool {
    /// Waits until every queued job is done.
    fn drop(&mut self) {
        let threads = {
            let mut state = lock(&self.shared.state);
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.work.notify_all();
        for thread in threads {
            // `serve` catches the panics of jobs.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self) {
        while let Some(job) = self.next_job() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(pool = self.name, "a job panicked");
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sync::tests_support::block_on;

    #[test]
    fn never_more_threads_than_the_bound_and_every_job_runs() {
        let pool = Pool::new("tw-test", 3);
        let (now, most, done) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::default(),
        );
        for _ in 0..200 {
            let (now, most, done): (_, _, Arc<AtomicUsize>) =
                (Arc::clone(&now), Arc::clone(&most), Arc::clone(&done));
            pool.submit(Box::new(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 200);
        assert!(most.load(Ordering::SeqCst) <= 3);
    }

    #[test]
    fn a_panicking_job_is_an_error_and_the_pool_lives_on() {
        let pool = Pool::new("tw-test", 1);
        let lost: io::Result<()> = block_on(pool.run(|| panic!("a job's bug")));
        assert!(lost.is_err());
        assert_eq!(block_on(pool.run(|| Ok(5))).unwrap(), 5);
    }
}
