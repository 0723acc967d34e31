//! The way of a range of a file to the socket: by `sendfile` what is in the page cache, through the lane what is
//! not, so that no connection waits for a disk on the turn of its shard.
//!
//! A cold reader has one stride under way and one in its hands: the next is read while this one is sent.

use thalweg_metrics::{CloseReason, Stage};
use thalweg_reactor::fs::{self, File};
use thalweg_reactor::lane::{Asked, Stride};
use thalweg_reactor::net::{More, SendFileError};
use thalweg_reactor::{task, time};
use thalweg_types::limits::SENDFILE_QUANTUM_BYTES;

use crate::writer::{Outgoing, Way};
use crate::{Closing, FileRange, Heat, Unread};

/// What is left to send of a range.
struct Rest<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    /// Whether something of the same answer follows the range.
    behind: More,
}

impl Rest<'_> {
    fn is_over(&self) -> bool {
        self.at >= self.end
    }

    /// The hint for a piece that ends at `end`.
    fn more(&self, end: u64) -> More {
        if end < self.end {
            More::Yes
        } else {
            self.behind
        }
    }

    /// Where the stride ends that begins at `from`. Strides end where pages do, and blocks of them: what two
    /// strides shared would be read twice.
    fn stride_end(&self, from: u64, stride_bytes: usize) -> u64 {
        let stride = stride_bytes as u64;
        (from / stride + 1).saturating_mul(stride).min(self.end)
    }
}

impl Outgoing<'_> {
    /// Sends a range. `behind` says whether something follows it.
    pub(crate) async fn send_range(
        &mut self,
        range: &FileRange,
        behind: More,
    ) -> Result<(), Closing> {
        let mut rest = Rest {
            file: &range.file,
            at: range.position,
            end: range.position + u64::from(range.len),
            behind,
        };
        while !rest.is_over() {
            let warm_to = match range.heat {
                Heat::Hot => rest.end.min(rest.at + SENDFILE_QUANTUM_BYTES as u64),
                Heat::Unknown if self.cold.goes_on(rest.file, rest.at) => rest.at,
                Heat::Unknown => self.resident_to(&rest),
            };
            if warm_to > rest.at {
                self.send_warm(&mut rest, warm_to).await?;
            } else {
                self.send_cold(&mut rest).await?;
            }
        }
        Ok(())
    }

    /// How far the next piece may go by `sendfile`.
    fn resident_to(&self, rest: &Rest<'_>) -> u64 {
        let stride = self.cold.lane().stride_bytes();
        let quantum_end = rest.end.min(rest.at + SENDFILE_QUANTUM_BYTES as u64);
        // Mostly all of it is there, and two system calls say so.
        if fs::is_surely_resident(rest.file, rest.at, quantum_end - rest.at) {
            return quantum_end;
        }
        let mut to = rest.at;
        while to < quantum_end {
            let end = rest.stride_end(to, stride);
            if !fs::is_resident(rest.file, to, end - to) {
                break;
            }
            to = end;
        }
        to
    }

    async fn send_warm(&mut self, rest: &mut Rest<'_>, to: u64) -> Result<(), Closing> {
        self.expect_taken();
        let piece = to - rest.at;
        let stream = &self.link.stream;
        let sent = stream.send_file(rest.file, rest.at, piece, rest.more(to));
        if let Err(error) = sent.await {
            self.note_unread(rest.file, rest.at, &error);
            return Err(Closing::from_send_file(&error));
        }
        self.count(piece, Way::Sendfile);
        rest.at = to;
        Ok(())
    }

    /// Sends strides through the lane, up to the end, or to one that is in the page cache behind one that was.
    async fn send_cold(&mut self, rest: &mut Rest<'_>) -> Result<(), Closing> {
        let mut asked = Some(self.ask(rest.file, rest.at, rest));
        while let Some(wanted) = asked.take() {
            let stride = self.read(wanted, rest).await?;
            let end = rest.at + stride.len() as u64;
            self.cold.follow(rest.file, end, &stride);
            if end < rest.end && !self.cold.lane().is_short() {
                let next_end = rest.stride_end(end, self.cold.lane().stride_bytes());
                let is_cold =
                    !stride.was_cached() || !fs::is_resident(rest.file, end, next_end - end);
                asked = is_cold.then(|| self.ask(rest.file, end, rest));
            }
            self.expect_taken();
            let sent = self.link.stream.write_stride(stride, rest.more(end)).await;
            let sent = sent.map_err(|error| Closing::from_socket(&error))? as u64;
            self.count(sent, Way::Lane);
            rest.at += sent;
            // The next stride may be there already: those who are hot come first.
            task::yield_now().await;
            if rest.at < end {
                // The client is slow, and others waited for the memory: nothing is kept for it meanwhile.
                drop(asked.take());
                let writable = self.link.stream.writable().await;
                writable.map_err(|error| Closing::from_socket(&error))?;
                asked = Some(self.ask(rest.file, rest.at, rest));
            }
        }
        Ok(())
    }

    fn ask(&mut self, file: &File, from: u64, rest: &Rest<'_>) -> Asked {
        let stride = self.cold.lane().stride_bytes();
        let len = rest.stride_end(from, stride) - from;
        // At most a stride.
        self.cold.ask(file, from, len as usize)
    }

    /// Waits for the lane. The client is not at fault meanwhile.
    async fn read(&mut self, asked: Asked, rest: &Rest<'_>) -> Result<Stride, Closing> {
        self.link.conn.life.await_taken(None);
        let began = time::now();
        let read = asked.await;
        let took = time::now() - began;
        self.cold_wait += took;
        let mut metrics = self.link.net.metrics().borrow_mut();
        metrics.record(Stage::ColdRead, took);
        match read {
            Ok(stride) => {
                metrics.counters.cold_reads += 1;
                metrics.counters.cold_read_bytes += stride.len() as u64;
                Ok(stride)
            }
            Err(error) => {
                metrics.counters.cold_read_failures += 1;
                self.note(rest.file, rest.at, error.to_string());
                Err(Closing::because(
                    CloseReason::StorageError,
                    error.to_string(),
                ))
            }
        }
    }

    /// The client is told when it asks again.
    fn note_unread(&self, file: &File, at: u64, error: &SendFileError) {
        match error {
            SendFileError::Socket(_) => {}
            SendFileError::File { sent, .. } | SendFileError::Short { sent, .. } => {
                self.note(file, at + sent, error.to_string());
            }
        }
    }

    fn note(&self, file: &File, position: u64, reason: String) {
        self.link.unread.replace(Some(Unread {
            path: file.path().to_owned(),
            position,
            reason,
        }));
    }
}
