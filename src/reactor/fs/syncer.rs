//! Flushes that somebody waits for.
//!
//! Each directory of files has one [`Syncer`], whatever thread asks: threads of its own, so that such
//! a flush waits neither for flushes in the background nor for those of another disk, and never more
//! of them at once than a disk takes well. What waits behind them needs no queue of its own: whoever
//! has flushes in rounds (one at a time per file, the next begins when the last has ended) lets
//! newcomers ride the next round.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use super::data::flush_of;
use super::file::File;
use crate::failpoint;
use crate::sync::lock;
use crate::workers::Pool;

/// One per directory for the life of the process; there are as many as directories are configured.
static SYNCERS_BY_DIRECTORY: LazyLock<Mutex<HashMap<PathBuf, Syncer>>> =
    LazyLock::new(Mutex::default);

/// The flushes of one directory. Clones are the same.
#[derive(Clone)]
pub struct Syncer {
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").finish_non_exhaustive()
    }
}

impl Syncer {
    /// The one of `directory`, for the whole process. Whoever asks first says how many flushes it
    /// has under way at once. Threads begin with the first flush.
    #[must_use]
    pub fn of(directory: &Path, at_once_max: usize) -> Syncer {
        let mut syncers = lock(&SYNCERS_BY_DIRECTORY);
        let new = || Syncer {
            pool: Arc::new(Pool::new("tw-ackflush", at_once_max)),
        };
        let found = syncers.entry(directory.to_owned()).or_insert_with(new);
        found.clone()
    }

    /// `fdatasync` of `file`. `covered` is called on the syncer's thread right before it: what it
    /// says was written then, is on the disk when this returns. So writes that ended while the flush
    /// waited for its turn are covered too (R3 of the storage rules). After an error never try again:
    /// see [`super::sync_data`].
    ///
    /// # Errors
    /// The kernel's.
    pub async fn sync_data<T, F>(&self, file: &File, covered: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let flush = flush_of(file.clone(), covered);
        let work = move || {
            failpoint::reach("ack flush")?;
            flush()
        };
        self.pool.run(work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::fs::OpenMode;
    use crate::sync::tests_support::block_on;

    fn opened(path: &Path) -> File {
        let file = OpenMode::Create.options().open(path).unwrap();
        File::from_std(file, path.to_owned())
    }

    #[test]
    fn a_directory_has_one_for_all_who_ask() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Syncer::of(dir.path(), 1), Syncer::of(dir.path(), 9));
        assert!(Arc::ptr_eq(&one.pool, &two.pool));
        let other = Syncer::of(&dir.path().join("other"), 1);
        assert!(!Arc::ptr_eq(&one.pool, &other.pool));
    }

    #[test]
    fn r3_what_was_written_before_its_turn_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let file = opened(&dir.path().join("f"));
        let syncer = Syncer::of(dir.path(), 1);
        let written = Arc::new(AtomicU64::new(1));
        // The only thread is busy until the second flush has been asked for.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        syncer.pool.submit(Box::new(move || {
            let _ = wait.recv();
        }));
        let seen = Arc::clone(&written);
        let flush = syncer.sync_data(&file, move || seen.load(Ordering::Acquire));
        let covered = std::thread::scope(|scope| {
            let flush = scope.spawn(|| block_on(flush));
            written.store(2, Ordering::Release);
            go.send(()).unwrap();
            flush.join().unwrap()
        });
        assert_eq!(covered.unwrap(), 2);
    }
}
