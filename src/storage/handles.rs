//! What needs a file handle for a moment, when the process has none (ST-21).
//!
//! Making names durable opens their directory. Without a handle for that nothing has happened and nothing is
//! lost, but what waits for it can not be told that it is done. So it waits here: handles are given back
//! when clients go, or when closed segments leave memory. Who waits for an acknowledgement waits longer.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_reactor::{fs, time};
use thalweg_types::limits::{HANDLE_TRIES_MAX, HANDLE_WAIT_MS};

use crate::error::is_lack_of_handles;
use crate::partition_files;

/// As [`fs::sync_dir`], with patience.
pub(crate) async fn sync_dir(dir: &Path) -> io::Result<()> {
    let synced = with_patience(|| async {
        let synced = fs::sync_dir(dir).await;
        synced.map_err(|error| (dir.to_owned(), error))
    });
    synced.await.map_err(|(_dir, error)| error)
}

/// As [`partition_files::sync`], with patience.
pub(crate) async fn sync_partition_files(dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    with_patience(|| partition_files::sync(dir)).await
}

/// Tries again while it lacks a file handle, for a minute at most.
async fn with_patience<F>(attempt: impl Fn() -> F) -> Result<(), (PathBuf, io::Error)>
where
    F: Future<Output = Result<(), (PathBuf, io::Error)>>,
{
    let mut tries = 1;
    loop {
        match attempt().await {
            Err((path, error)) if is_lack_of_handles(&error) && tries < HANDLE_TRIES_MAX => {
                if tries == 1 {
                    tracing::warn!(path = %path.display(), %error,
                        "waiting for a file handle: raise the limit (`ulimit -n`, LimitNOFILE=)");
                }
                tries += 1;
                time::sleep(Duration::from_millis(HANDLE_WAIT_MS)).await;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use thalweg_reactor::Runtime;
    use thalweg_reactor::disk::{Disk, Operation, Verdict};
    use thalweg_types::limits::HANDLE_TRIES_MAX;

    use crate::whole_log_tests::TestLog;
    use crate::{LogError, LogOptions};

    /// Has no handle for a directory for a while.
    struct Handles {
        lacking: Cell<u32>,
        asked: RefCell<u32>,
    }

    impl Disk for Handles {
        fn before(&self, operation: &Operation<'_>) -> Verdict {
            let Operation::SyncDir(_) = operation else {
                return Verdict::Goes;
            };
            *self.asked.borrow_mut() += 1;
            match self.lacking.get().checked_sub(1) {
                Some(left) => {
                    self.lacking.set(left);
                    Verdict::Fails(24)
                }
                None => Verdict::Goes,
            }
        }

        fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

        fn delay(&self) -> u32 {
            0
        }

        fn lifetime(&self) -> String {
            "one".to_owned()
        }
    }

    fn flush_without(lacking: u32, check: impl Fn(&TestLog, Result<(), LogError>)) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Rc::new(Handles {
            lacking: Cell::new(0),
            asked: RefCell::new(0),
        });
        let runtime = Runtime::simulated(Rc::clone(&disk) as Rc<dyn Disk>).expect("a runtime");
        runtime.block_on(async {
            let test = TestLog::create(dir.path(), LogOptions::default()).await;
            test.fill(2).await;
            disk.lacking.set(lacking);
            let flushed = test.log.flush().await.map(|_| ());
            check(&test, flushed);
        });
        assert!(*disk.asked.borrow() > lacking.min(HANDLE_TRIES_MAX - 1));
    }

    #[test]
    fn st_21_a_flush_waits_for_a_file_handle_and_takes_nothing_offline() {
        flush_without(9, |test, flushed| {
            assert!(flushed.is_ok() && !test.log.is_offline(), "{flushed:?}");
            assert_eq!(test.log.durable_end(), test.log.written_end());
        });
    }

    #[test]
    fn st_21_it_does_not_wait_for_ever() {
        flush_without(HANDLE_TRIES_MAX, |test, flushed| {
            assert!(flushed.is_err_and(|error| error.may_pass()) && test.log.is_offline());
        });
    }
}
