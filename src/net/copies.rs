//! Small ranges of files leave as bytes, in one write with what is around them.
//!
//! A `sendfile` of few KiB is dearer than a copy, and needs a write before it and one behind it
//! (docs/adr/0013-small-records-are-copied.md). What is copied is kept for nobody: where the socket does
//! not take all of it at once, the rest goes as a range.

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_reactor::net::More;
use thalweg_types::limits::RECORDS_COPIED_BYTES_MAX;

use crate::read_buffers::Memory;
use crate::writer::{Outgoing, Way};
use crate::{Closing, FileRange, Heat};

/// Records that wait for the next write as bytes.
pub(crate) struct Copied {
    /// Which of the pieces that wait.
    piece: usize,
    range: FileRange,
}

impl Outgoing<'_> {
    /// Puts a small range in line as bytes; false when it is not small, or not in the page cache.
    pub(crate) async fn add_copy(&mut self, range: &FileRange) -> Result<bool, Closing> {
        let len = range.len as usize;
        if len > RECORDS_COPIED_BYTES_MAX {
            return Ok(false);
        }
        self.make_room(len).await?;
        let Some(bytes) = self.read_copy(range) else {
            return Ok(false);
        };
        self.copies.push(Copied {
            piece: self.pending(),
            range: range.clone(),
        });
        self.push(bytes);
        Ok(true)
    }

    /// The range, if the page cache has all of it. What else may be wrong with it shows when it goes as a
    /// range.
    fn read_copy(&self, range: &FileRange) -> Option<Bytes> {
        let len = range.len as usize;
        let may_be_cold = match range.heat {
            Heat::Hot => false,
            // Asked first: a read of what is not there would have it read ahead.
            Heat::Unknown => !fs::is_resident(&range.file, range.position, u64::from(range.len)),
        };
        if may_be_cold {
            return None;
        }
        let buffers = self.link.net.read_buffers();
        let (mut buffer, memory) = buffers.take(len);
        let read = fs::append_cached(&range.file, range.position, &mut buffer, len);
        let copy = buffer.split();
        match memory {
            Memory::Shared => buffers.give_back(buffer),
            Memory::Own => {}
        }
        (read.ok()?? == len).then(|| copy.freeze())
    }

    /// Sends the pieces with one write, and what it did not take one by one, without holding the copies.
    pub(crate) async fn flush_with_copies(
        &mut self,
        pieces: Vec<Bytes>,
        more: More,
    ) -> Result<(), Closing> {
        self.expect_taken();
        let sent = self.link.stream.try_write_vectored(&pieces, more);
        let sent = sent.map_err(|error| Closing::from_socket(&error))?;
        self.count(sent as u64, Way::Memory);
        let (copied, left) = behind(pieces, std::mem::take(&mut self.copies), sent);
        self.count_copied(copied as u64);
        match left.is_empty() {
            true => Ok(()),
            // Boxed: it is rare, and would make the task of every connection larger.
            false => Box::pin(self.send_left(left, more)).await,
        }
    }

    async fn send_left(&mut self, left: Vec<Left>, more: More) -> Result<(), Closing> {
        let mut left = left.into_iter().peekable();
        while let Some(next) = left.next() {
            let more = if left.peek().is_some() {
                More::Yes
            } else {
                more
            };
            match next {
                Left::Bytes(bytes) => self.write(&bytes, more).await?,
                Left::Range(range) => self.send_range(&range, more).await?,
            }
        }
        Ok(())
    }

    fn count_copied(&self, bytes: u64) {
        let mut metrics = self.link.net.metrics().borrow_mut();
        metrics.counters.fetch_bytes_copied += bytes;
    }
}

/// What a write did not take.
enum Left {
    Bytes(Bytes),
    Range(FileRange),
}

/// The bytes of copies among the first `sent` bytes of the pieces, and what is behind those.
fn behind(pieces: Vec<Bytes>, copies: Vec<Copied>, sent: usize) -> (usize, Vec<Left>) {
    let mut copies = copies.into_iter().peekable();
    let (mut skip, mut copied) = (sent, 0);
    let mut left = Vec::new();
    for (at, mut piece) in pieces.into_iter().enumerate() {
        let done = skip.min(piece.len());
        skip -= done;
        let is_over = done == piece.len();
        match copies.next_if(|copy| copy.piece == at) {
            Some(Copied { range, .. }) => {
                copied += done;
                if !is_over {
                    left.push(Left::Range(FileRange {
                        position: range.position + done as u64,
                        // At most its length.
                        len: range.len - done as u32,
                        ..range
                    }));
                }
            }
            None if is_over => {}
            None => left.push(Left::Bytes(piece.split_off(done))),
        }
    }
    (copied, left)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thalweg_reactor::fs::{self, OpenMode};
    use thalweg_reactor::{Runtime, RuntimeOptions};

    use super::{Copied, Left, behind};
    use crate::{FileRange, Heat};

    /// Wherever the write ends, what it took and what is left are the whole, in order.
    #[test]
    fn what_a_write_did_not_take_is_left_as_bytes_and_ranges() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("segment");
        let runtime = Runtime::new(RuntimeOptions::default()).expect("a runtime");
        let file = runtime.block_on(fs::open(&path, OpenMode::CreateNew));
        let file = file.expect("created");
        let whole = b"head0123middle4567tail";
        for sent in 0..=whole.len() {
            let cut = |from, to| Bytes::copy_from_slice(&whole[from..to]);
            let pieces = vec![cut(0, 4), cut(4, 8), cut(8, 14), cut(14, 18), cut(18, 22)];
            let copy = |piece, position| Copied {
                piece,
                range: FileRange {
                    file: file.clone(),
                    position,
                    len: 4,
                    heat: Heat::Hot,
                },
            };
            // The file would hold the digits.
            let (copied, left) = behind(pieces, vec![copy(1, 0), copy(3, 4)], sent);
            let digits = whole[..sent].iter().filter(|b| b.is_ascii_digit()).count();
            assert_eq!(copied, digits);
            let mut rest = Vec::new();
            for part in left {
                match part {
                    Left::Bytes(bytes) => rest.extend_from_slice(&bytes),
                    Left::Range(FileRange { position, len, .. }) => {
                        let from = position as usize;
                        rest.extend_from_slice(&b"01234567"[from..from + len as usize]);
                    }
                }
            }
            assert_eq!(rest, whole[sent..], "after {sent}");
        }
    }
}
