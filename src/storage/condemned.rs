//! What a log directory whose disk failed leaves for the next start on the same boot of the system.
//!
//! After a failed fsync the kernel holds the pages that it could not write for clean: reads give what is
//! not on the disk, and a later fsync of it succeeds (`scripts/rig fsync` has it so). So the next start must
//! believe neither the marks of what is written, nor the page cache. A *trace* in the directory says so. It
//! needs not be durable: what it warns of lives exactly as long as it does, until the file system is
//! mounted anew. Where not even a name can be made, the file system has stopped taking writes; no start
//! succeeds on it before it is mounted anew.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs;

use crate::written;

/// Name of the trace. The reason is in it, for people.
const TRACE: &str = "thalweg-condemned";

/// Whether the last life left a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trace {
    /// None.
    None,
    /// It did, and nothing of that life is in the page cache any more unless it is to be written still.
    Heeded,
}

/// Leaves the trace, and takes the marks away.
///
/// # Errors
/// The disk takes neither.
pub async fn leave_trace(dir: &Path, reason: &str) -> io::Result<()> {
    let unmarked = match fs::unlink(&dir.join(written::FILE)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let text = format!("{reason}\n");
    fs::replace_file(&dir.join(TRACE), Bytes::from(text)).await?;
    unmarked
}

/// Heeds the trace, if there is one: pages that are in memory and need not be written are dropped, so that
/// what is read from here on is what the disk has. The trace stays until what it warns of is gone.
pub(crate) async fn heed_trace(dir: &Path) -> io::Result<Trace> {
    let trace = dir.join(TRACE);
    if !fs::exists(&trace).await? {
        return Ok(Trace::None);
    }
    tracing::warn!(dir = %dir.display(),
        "its disk failed under the last process: every log is checked from its recovery point on, as the \
         disk has it and not the memory");
    drop_cached(dir).await?;
    Ok(Trace::Heeded)
}

/// To be called when the marks and the clean marker are away.
pub(crate) async fn take_trace_away(dir: &Path) -> io::Result<()> {
    match fs::unlink(&dir.join(TRACE)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Of the files of a log directory and of its partitions.
async fn drop_cached(dir: &Path) -> io::Result<()> {
    let mut folders: Vec<PathBuf> = vec![dir.to_owned()];
    for entry in fs::list_dir(dir).await? {
        if entry.is_dir {
            folders.push(dir.join(entry.name));
        }
    }
    for folder in folders {
        for entry in fs::list_dir(&folder).await? {
            if !entry.is_dir {
                fs::drop_cached(&folder.join(entry.name)).await?;
            }
        }
    }
    Ok(())
}
