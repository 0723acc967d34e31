//! Room that is set apart on the disk, to be given back when there is no other: a topic can then still be
//! deleted, also right after a start, because the record that says so can be written (ST-20).

use std::io;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::limits::{DISK_RESERVE_BYTES_MAX, DISK_RESERVE_SHARE};

/// Name of the file that holds the room.
const RESERVE: &str = "thalweg-reserve";

fn path(dir: &Path) -> PathBuf {
    dir.join(RESERVE)
}

/// Bytes set apart on a file system of that size.
pub(crate) fn bytes(total: u64) -> u64 {
    (total / DISK_RESERVE_SHARE).min(DISK_RESERVE_BYTES_MAX)
}

/// Sets `bytes` apart, if that is not done. Without the kernel's or the file system's help there is no
/// reserve.
pub(crate) async fn keep(dir: &Path, bytes: u64) -> io::Result<()> {
    let path = path(dir);
    if bytes == 0 || fs::exists(&path).await? {
        return Ok(());
    }
    let file = fs::open(&path, OpenMode::Create).await?;
    match fs::allocate(&file, 0, bytes).await {
        Ok(()) => Ok(()),
        Err(error) => {
            drop(file);
            fs::unlink(&path).await?;
            match error.kind() {
                io::ErrorKind::Unsupported => Ok(()),
                _other => Err(error),
            }
        }
    }
}

/// Gives the room back. True when there was some.
pub(crate) async fn release(dir: &Path) -> io::Result<bool> {
    match fs::unlink(&path(dir)).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
