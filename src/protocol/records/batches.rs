//! Cutting a slice into batches.

use super::{BatchError, BatchHeader, RecordSet, crc_matches, records_of};

/// One whole batch in a slice. Its checksum has not been looked at.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
    /// Where it begins in the slice that was cut.
    pub position: usize,
}

impl<'a> Batch<'a> {
    /// True when the stored CRC-32C is that of the bytes.
    #[must_use]
    pub fn crc_matches(&self) -> bool {
        crc_matches(self.bytes)
    }

    /// Its records; see [`records_of`].
    ///
    /// # Errors
    /// As [`records_of`].
    pub fn records(&self, decompressed_bytes_max: usize) -> Result<RecordSet<'a>, BatchError> {
        records_of(self.bytes, decompressed_bytes_max)
    }
}

/// Iterates over the whole batches of `bytes`: a fetch answer (which may end inside a batch) or part
/// of a log (which may end in zeros).
#[must_use]
pub fn batches(bytes: &[u8]) -> BatchIter<'_> {
    BatchIter {
        bytes,
        position: 0,
        end: None,
    }
}

/// Why a [`BatchIter`] has nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchesEnd {
    /// The slice ends where a batch ends.
    Exhausted,
    /// The slice ends inside a batch; normal in a fetch answer.
    Partial {
        /// Bytes of the last batch that are there.
        have: usize,
        /// Bytes it needs; only a header's worth if its length is not there.
        need: usize,
    },
    /// A length of zero: preallocated space behind the last batch.
    Zeros,
    /// The bytes are no batch; the iterator has said why.
    Broken,
}

/// See [`batches`]. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct BatchIter<'a> {
    bytes: &'a [u8],
    position: usize,
    end: Option<BatchesEnd>,
}

impl BatchIter<'_> {
    /// Why the iterator ended; `None` while it has not.
    #[must_use]
    pub fn end(&self) -> Option<BatchesEnd> {
        self.end
    }

    /// Bytes of the slice that whole batches took so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() {
            return None;
        }
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if rest.is_empty() {
            self.end = Some(BatchesEnd::Exhausted);
            return None;
        }
        match next_batch(rest) {
            Ok((header, bytes)) => {
                let position = self.position;
                self.position += bytes.len();
                Some(Ok(Batch {
                    header,
                    bytes,
                    position,
                }))
            }
            Err(BatchError::Short { have, need }) => {
                self.end = Some(BatchesEnd::Partial { have, need });
                None
            }
            Err(BatchError::EndOfLog) => {
                self.end = Some(BatchesEnd::Zeros);
                None
            }
            Err(error) => {
                self.end = Some(BatchesEnd::Broken);
                Some(Err(error))
            }
        }
    }
}

/// The first batch of `rest`, whole.
pub(super) fn next_batch(rest: &[u8]) -> Result<(BatchHeader, &[u8]), BatchError> {
    let header = BatchHeader::parse(rest)?;
    let need = header.total_bytes();
    match rest.get(..need) {
        Some(bytes) => Ok((header, bytes)),
        None => Err(BatchError::Short {
            have: rest.len(),
            need,
        }),
    }
}
