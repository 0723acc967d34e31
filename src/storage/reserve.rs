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

/// Sets `bytes` apart, if that is not done: a kill may have left the file without its room. Without the kernel's or the
/// file system's help there is no reserve.
pub(crate) async fn keep(dir: &Path, bytes: u64) -> io::Result<()> {
    let path = path(dir);
    if bytes == 0 || allocated(&path).await? >= bytes {
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

/// Bytes that the file holds; none when it is not there.
async fn allocated(path: &Path) -> io::Result<u64> {
    match fs::metadata(path).await {
        Ok(found) => Ok(found.allocated),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::{keep, path, release};
    use crate::whole_log_tests::on_plain_engine;

    const BYTES: u64 = 1 << 20;

    fn blocks(dir: &Path) -> u64 {
        std::fs::metadata(path(dir)).map_or(0, |file| file.blocks())
    }

    /// A kill has come between its making and its room.
    #[test]
    fn st_20_a_reserve_without_its_room_is_none() {
        on_plain_engine(|root| async move {
            keep(&root, BYTES).await.expect("kept");
            // None where the file system can not do it.
            let whole = blocks(&root);
            for had in [0, BYTES / 2] {
                release(&root).await.expect("given back");
                if had > 0 {
                    keep(&root, had).await.expect("kept");
                } else {
                    std::fs::write(path(&root), "").expect("written");
                }
                keep(&root, BYTES).await.expect("kept");
                assert_eq!(blocks(&root), whole, "had {had}");
            }
        });
    }
}
