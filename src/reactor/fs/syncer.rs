//! The flushes of a directory's files: those that somebody waits for, and those in the background.
//!
//! Each directory of files has one [`Syncer`], whatever thread asks: threads of its own, so that a flush
//! that is waited for waits neither for flushes in the background nor for those of another disk, and never more
//! of them at once than a disk takes well. What waits behind them needs no queue of its own: whoever
//! has flushes in rounds (one at a time per file, the next begins when the last has ended) lets
//! newcomers ride the next round.
//!
//! Flushes in the background are made one by one, and each writes back what it covers in small steps with pauses
//! before its fdatasync. An fdatasync of many megabytes, and so much more of several at once, fills the
//! device's queue, and the commit of the file system's journal waits behind it; so does every append that has to change
//! what is being committed.
//!
//! Who has to wait for one in the background says so ([`Syncer::hurry`]): it then makes no pauses, and if its turn has not come
//! it passes all others, as one of those that are waited for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::FsError;
use super::data::flush_of;
use super::file::{File, SYNC_FILE_RANGE};
use crate::sync::lock;
use crate::workers::{Job, Pool, job_of};
use crate::{disk, failpoint, sys};

/// Bytes that a flush in the background writes back at once.
const STEP_BYTES: u64 = 1 << 20;
/// What has fewer bytes is flushed without steps.
const STEPPED_BYTES_MIN: u64 = 4 * STEP_BYTES;
/// A pause is as long as the step before it took, so that half of the device's time is left to others, within this.
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// A step that took less had nothing to write: the kernel was there before.
const STEP_TIME_MIN: Duration = Duration::from_micros(200);

/// One per directory for the life of the process; there are as many as directories are configured.
static THREADS_BY_DIRECTORY: LazyLock<Mutex<HashMap<PathBuf, Threads>>> =
    LazyLock::new(Mutex::default);

/// Those that flush the files of one directory.
#[derive(Clone)]
struct Threads {
    awaited: Arc<Pool>,
    background: Arc<Pool>,
}

/// The flushes of one user of a directory: of one file, say, or of some of which one is flushed at a time.
pub struct Syncer {
    threads: Threads,
    own: Arc<Own>,
}

/// What a user has in the background.
#[derive(Default)]
struct Own {
    /// How many wait for what it holds.
    hurries: AtomicUsize,
    /// Flushes whose turn has not come.
    queued: Mutex<VecDeque<Job>>,
}

impl Own {
    fn is_awaited(&self) -> bool {
        self.hurries.load(Ordering::SeqCst) > 0
    }

    fn next(&self) -> Option<Job> {
        lock(&self.queued).pop_front()
    }
}

impl Threads {
    /// Has the background come to `job` in its turn, unless [`Threads::take_over`] is faster.
    fn queue(&self, own: &Arc<Own>, job: Job) {
        lock(&own.queued).push_back(job);
        let of = Arc::clone(own);
        self.background.submit(Box::new(move || {
            if let Some(job) = of.next() {
                job();
            }
        }));
        // Who began to wait before it was in the queue has not seen it there.
        if own.is_awaited() {
            self.take_over(own);
        }
    }

    /// What is queued is made beside the flushes in the background.
    fn take_over(&self, own: &Own) {
        while let Some(job) = own.next() {
            self.awaited.submit(job);
        }
    }
}

/// What of a file is written and not flushed.
#[derive(Debug)]
pub struct Unflushed<E> {
    /// Position of its first byte.
    pub from: u64,
    /// Says where it ends by now.
    pub end: E,
}

/// While it is there, the flushes of a [`Syncer`] in the background make no pauses and wait for no others.
pub struct Hurry {
    own: Arc<Own>,
}

impl std::fmt::Debug for Hurry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hurry").finish_non_exhaustive()
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        self.own.hurries.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").finish_non_exhaustive()
    }
}

impl Syncer {
    /// One with the threads of `directory`, which are the same for the whole process. Whoever asks first says how many
    /// flushes that are waited for are under way there at once. Threads begin with the first flush.
    #[must_use]
    pub fn of(directory: &Path, at_once_max: usize) -> Syncer {
        let mut threads = lock(&THREADS_BY_DIRECTORY);
        let new = || Threads {
            awaited: Arc::new(Pool::new("tw-ackflush", at_once_max)),
            background: Arc::new(Pool::new("tw-writeback", 1)),
        };
        let found = threads.entry(directory.to_owned()).or_insert_with(new);
        Syncer {
            threads: found.clone(),
            own: Arc::default(),
        }
    }

    /// `fdatasync` of `file`. `covered` is called on the syncer's thread right before it: what it
    /// says was written then, is on the disk when this returns. So writes that ended while the flush
    /// waited for its turn are covered too (R3). After an error never try again:
    /// see [`super::sync_data`]. `point` is the [`failpoint`] that is reached before.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn sync_data<T, F>(
        &self,
        file: &File,
        point: &'static str,
        covered: F,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let flush = flush_of(file.clone(), covered);
        let work = move || {
            failpoint::reach(point)?;
            flush()
        };
        self.threads.awaited.run(work).await
    }

    /// As [`Syncer::sync_data`], for what nobody waits for: one at a time, and in steps, until there is a [`Hurry`]. What
    /// `watch` gives lives while the device is asked for something, and not while this waits for its turn or pauses.
    ///
    /// # Errors
    /// The kernel's. One of the steps is as final as that of an fdatasync: the kernel tells a failed
    /// writeback once.
    pub async fn sync_in_background<T, E, W, G>(
        &self,
        file: &File,
        unflushed: Unflushed<E>,
        watch: W,
        covered: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        E: Fn() -> u64 + Send + 'static,
        W: Fn() -> G + Send + 'static,
    {
        let flush = flush_of(file.clone(), covered);
        let (file, own) = (file.clone(), Arc::clone(&self.own));
        let work = move || {
            if !disk::is_simulated() {
                write_back(&file, &unflushed, &watch, || !own.is_awaited())?;
            }
            let _watched = watch();
            flush()
        };
        if disk::is_simulated() {
            return self.threads.background.run(work).await;
        }
        let (job, done) = job_of(work);
        self.threads.queue(&self.own, job);
        done.await
    }

    /// Somebody waits for the end of a flush of this in the background.
    #[must_use]
    pub fn hurry(&self) -> Hurry {
        self.own.hurries.fetch_add(1, Ordering::SeqCst);
        self.threads.take_over(&self.own);
        Hurry {
            own: Arc::clone(&self.own),
        }
    }
}

/// Writes back what is unflushed, and what comes meanwhile, up to as much again.
fn write_back<G>(
    file: &File,
    Unflushed { from, end }: &Unflushed<impl Fn() -> u64>,
    watch: impl Fn() -> G,
    has_time: impl Fn() -> bool,
) -> io::Result<()> {
    let most = end().saturating_add(end().saturating_sub(*from));
    let mut at = *from;
    while at < most && end().saturating_sub(at) >= STEPPED_BYTES_MIN {
        let began = Instant::now();
        let watched = watch();
        match sys::write_back(file.as_raw_fd(), at, STEP_BYTES) {
            Ok(()) => {}
            Err(errno) if is_unknown(errno) => return Ok(()),
            Err(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(FsError::wrap(SYNC_FILE_RANGE, file.path(), None, error));
            }
        }
        drop(watched);
        at += STEP_BYTES;
        let took = began.elapsed();
        if took >= STEP_TIME_MIN && has_time() {
            std::thread::sleep(took.min(PAUSE_MAX));
        }
    }
    Ok(())
}

/// The kernel, its file system or a filter of system calls has no such call; the fdatasync does it all.
fn is_unknown(errno: i32) -> bool {
    [
        libc::ENOSYS,
        libc::EINVAL,
        libc::ESPIPE,
        libc::EPERM,
        libc::EOPNOTSUPP,
    ]
    .contains(&errno)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::fs::OpenMode;
    use crate::sync::tests_support::{block_on, poll_once};

    fn opened(path: &Path) -> File {
        let file = OpenMode::Create.options().open(path).unwrap();
        File::from_std(file, path.to_owned())
    }

    #[test]
    fn a_directory_has_its_threads_for_all_who_ask() {
        let dir = tempfile::tempdir().unwrap();
        let awaited = |syncer: Syncer| syncer.threads.awaited;
        let one = awaited(Syncer::of(dir.path(), 1));
        assert!(Arc::ptr_eq(&one, &awaited(Syncer::of(dir.path(), 9))));
        let other = awaited(Syncer::of(&dir.path().join("other"), 1));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    /// How often a flush in the background asks where a file ends that has so many bytes, and gets that many more each
    /// time.
    fn looks(file: &File, bytes: u64, more: u64) -> usize {
        let asked = AtomicUsize::new(0);
        let end = || bytes + more * asked.fetch_add(1, Ordering::Relaxed) as u64;
        write_back(file, &Unflushed { from: 0, end }, || (), || false).unwrap();
        asked.into_inner()
    }

    #[test]
    fn a_flush_in_the_background_writes_back_what_comes_meanwhile_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir.path().join("f"));
        file.std().set_len(64 * STEP_BYTES).unwrap();
        // It grows for ever, faster than it is written back: two looks at the beginning, one per step and at the end.
        assert!(looks(&file, 16 * STEP_BYTES, 2 * STEP_BYTES) <= 2 + 40);
        assert_eq!(looks(&file, STEPPED_BYTES_MIN - 1, 0), 3, "no step");
    }

    #[test]
    fn who_waits_for_a_flush_in_the_background_takes_its_pauses_away() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::of(dir.path(), 1);
        let other = Syncer::of(dir.path(), 1);
        let (one, two) = (syncer.hurry(), syncer.hurry());
        drop(one);
        assert!(syncer.own.is_awaited() && !other.own.is_awaited());
        drop(two);
        assert!(!syncer.own.is_awaited());
    }

    /// Occupies the one thread of a pool until the sender is used or gone.
    fn occupy(pool: &Pool) -> std::sync::mpsc::Sender<()> {
        let (go, wait) = std::sync::mpsc::channel();
        pool.submit(Box::new(move || {
            let _ = wait.recv();
        }));
        go
    }

    async fn flush_in_background(syncer: &Syncer, file: &File) {
        let unflushed = Unflushed { from: 0, end: || 1 };
        let flushed = syncer.sync_in_background(file, unflushed, || (), || ());
        flushed.await.unwrap();
    }

    #[test]
    fn a_flush_in_the_background_that_somebody_waits_for_passes_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir.path().join("f"));
        let of = |_| Syncer::of(dir.path(), 1);
        let [others, before, after] = [0, 1, 2].map(of);
        let go = occupy(&others.threads.background);
        let mut left = Box::pin(flush_in_background(&others, &file));
        let mut queued = Box::pin(flush_in_background(&before, &file));
        assert!(poll_once(&mut left).is_pending());
        assert!(poll_once(&mut queued).is_pending());
        let _hurry = before.hurry();
        block_on(queued);
        // Who waited before it was asked for.
        let _hurry = after.hurry();
        block_on(flush_in_background(&after, &file));
        assert!(poll_once(&mut left).is_pending(), "its turn has not come");
        drop(go);
        block_on(left);
    }

    #[test]
    fn a_file_that_takes_no_write_back_in_steps_is_flushed_all_the_same() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let pipe = File::from_std(
            std::fs::File::from(std::os::fd::OwnedFd::from(writer)),
            "pipe".into(),
        );
        let unflushed = Unflushed {
            from: 0,
            end: || 64 * STEP_BYTES,
        };
        write_back(&pipe, &unflushed, || (), || true).unwrap();
    }

    #[test]
    fn r3_what_was_written_before_its_turn_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir.path().join("f"));
        let syncer = Syncer::of(dir.path(), 1);
        let written = Arc::new(AtomicU64::new(1));
        // The only thread is busy until the second flush has been asked for.
        let go = occupy(&syncer.threads.awaited);
        let seen = Arc::clone(&written);
        let flush = syncer.sync_data(&file, "ack flush", move || seen.load(Ordering::Acquire));
        let covered = std::thread::scope(|scope| {
            let flush = scope.spawn(|| block_on(flush));
            written.store(2, Ordering::Release);
            go.send(()).unwrap();
            flush.join().unwrap()
        });
        assert_eq!(covered.unwrap(), 2);
    }
}
