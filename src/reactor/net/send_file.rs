//! File bytes to a socket without a copy in user memory.

use std::fmt;
use std::io;

use nix::sys::sendfile::sendfile;

use super::SEND_QUANTUM_BYTES;
use super::stream::{More, Stream, spend};
use crate::failpoint;
use crate::fs::File;
use crate::stats;
use crate::time;

/// Why [`Stream::send_file`] did not send all. The stream is then in the middle of a message, unless
/// `sent` is 0: close it.
#[derive(Debug)]
pub enum SendFileError {
    /// The socket failed.
    Socket(io::Error),
    /// The file could not be read.
    File {
        /// Bytes sent before.
        sent: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file ends too early.
    Short {
        /// Bytes sent.
        sent: u64,
        /// Bytes asked for.
        wanted: u64,
    },
}

impl fmt::Display for SendFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendFileError::Socket(error) => write!(f, "sendfile: {error}"),
            SendFileError::File { sent, source } => {
                write!(f, "sendfile: reading the file after {sent} bytes: {source}")
            }
            SendFileError::Short { sent, wanted } => {
                write!(f, "sendfile: the file ends after {sent} of {wanted} bytes")
            }
        }
    }
}

impl std::error::Error for SendFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SendFileError::Socket(error) => Some(error),
            SendFileError::File { source, .. } => Some(source),
            SendFileError::Short { .. } => None,
        }
    }
}

impl Stream {
    /// Sends `len` bytes of `file` from `offset`, at most [`SEND_QUANTUM_BYTES`] before other tasks
    /// run. Bytes that are not in the page cache block the thread: ask [`crate::fs::read_cached`]
    /// first. `more` is a hint: the kernel fills packets within one call, and sends the last one at
    /// once either way.
    ///
    /// # Errors
    /// See [`SendFileError`].
    pub async fn send_file(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        _more: More,
    ) -> Result<(), SendFileError> {
        let mut sent = 0;
        let mut quantum = SEND_QUANTUM_BYTES;
        while sent < len {
            let ask = usize::try_from(len - sent)
                .unwrap_or(usize::MAX)
                .min(quantum);
            let position = offset
                .checked_add(sent)
                .and_then(|at| i64::try_from(at).ok());
            let Some(position) = position else {
                let source = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(SendFileError::File { sent, source });
            };
            match self
                .when_writable(|| send_some(self, file, position, ask))
                .await
            {
                Ok(0) => return Err(SendFileError::Short { sent, wanted: len }),
                Ok(step) => {
                    sent += step as u64;
                    spend(&mut quantum, step).await;
                }
                Err(error) => return Err(blame(error, sent)),
            }
        }
        Ok(())
    }
}

fn send_some(stream: &Stream, file: &File, offset: i64, ask: usize) -> io::Result<usize> {
    let began = time::now();
    failpoint::reach("sendfile")?;
    let mut at = offset;
    let sent = sendfile(&stream.tcp, file, Some(&mut at), ask)?;
    let took = began.elapsed();
    let stalled = took.as_micros() > u128::from(stats::STALL_US);
    if stalled {
        stream.note_waits(|waits| waits.file += took);
    }
    stats::count(|stats| {
        stats.sendfile_calls += 1;
        stats.sendfile_bytes += sent as u64;
        stats.sendfile_stalls += u64::from(stalled);
    });
    Ok(sent)
}

/// `sendfile` has one errno for two ends. Those of a file system are the file's.
fn blame(error: io::Error, sent: u64) -> SendFileError {
    match error.raw_os_error() {
        Some(
            libc::EIO
            | libc::EINVAL
            | libc::EOVERFLOW
            | libc::ESPIPE
            | libc::EBADF
            | libc::ENODATA
            | libc::EUCLEAN
            | libc::ESTALE,
        ) => SendFileError::File {
            sent,
            source: error,
        },
        Some(_) | None => SendFileError::Socket(error),
    }
}
