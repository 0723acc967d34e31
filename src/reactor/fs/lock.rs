//! The lock on a directory.

use std::fs;
use std::io;
use std::path::Path;

use super::file::FsError;

/// Name of the lock file in the directory.
const LOCK_FILE: &str = ".lock";

/// An exclusive `flock` on a directory's `.lock` file, held until dropped. The kernel lets it go with
/// the process, however that ends.
#[derive(Debug)]
pub struct DirLock {
    file: fs::File,
}

impl Drop for DirLock {
    /// A process that another thread is just beginning has the file open, too, until it becomes its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl DirLock {
    /// Locks `dir`, which must exist; `None` if somebody else holds it. Blocks the thread for an
    /// open: for use at start.
    ///
    /// # Errors
    /// The kernel's.
    pub fn acquire(dir: &Path) -> io::Result<Option<DirLock>> {
        let path = dir.join(LOCK_FILE);
        let wrap = |error| FsError::wrap("lock", &path, None, error);
        let mut options = fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(wrap)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DirLock { file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(wrap(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirLock::acquire(dir.path()).unwrap();
        assert!(held.is_some());
        assert!(DirLock::acquire(dir.path()).unwrap().is_none());
        let inherited = held.as_ref().map(|held| held.file.try_clone().unwrap());
        drop(held);
        assert!(DirLock::acquire(dir.path()).unwrap().is_some());
        drop(inherited);
        assert!(DirLock::acquire(&dir.path().join("missing")).is_err());
    }
}
