//! What the entries of an index file claim of the batches of its log.

use std::collections::VecDeque;
use std::path::PathBuf;

use thalweg_types::{Offset, TimestampMs};

use crate::index::{INDEX_ENTRY_BYTES, IndexEntry, absolute};
use crate::indexes::BatchMark;
use crate::time_index::{TIME_INDEX_ENTRY_BYTES, TimeIndexEntry};

/// What an entry claims of the batch that ends with its offset.
#[derive(Clone, Copy)]
struct Claim {
    entry: usize,
    offset: Offset,
    what: Claimed,
}

#[derive(Clone, Copy)]
enum Claimed {
    /// The batch begins here.
    Position(u32),
    /// It is the first with this timestamp, the largest so far.
    MaxTimestamp(TimestampMs),
}

/// An entry that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WrongEntry {
    /// Where it stands in the index file.
    pub(crate) position: u64,
    /// What is wrong.
    pub(crate) text: String,
}

/// The claims of one index file, which ascend as the batches do. Show it those with
/// [`Claims::on_batch`], all and in order, then ask.
pub(crate) struct Claims {
    path: PathBuf,
    entry_bytes: usize,
    claims: VecDeque<Claim>,
    max: TimestampMs,
    /// Of a time index: the timestamp that its last entry names, where that must be the largest.
    last: Option<TimestampMs>,
    wrong: Vec<WrongEntry>,
}

impl Claims {
    fn new(path: PathBuf, entry_bytes: usize, claims: impl Iterator<Item = Claim>) -> Claims {
        Claims {
            path,
            entry_bytes,
            claims: claims.collect(),
            max: TimestampMs::NONE,
            last: None,
            wrong: Vec::new(),
        }
    }

    /// Of an offset index of the segment at `base`.
    pub(crate) fn of_offsets(path: PathBuf, base: Offset, entries: &[IndexEntry]) -> Claims {
        let claims = entries.iter().enumerate().map(|(entry, of)| Claim {
            entry,
            offset: absolute(base, of.relative_offset),
            what: Claimed::Position(of.position),
        });
        Claims::new(path, INDEX_ENTRY_BYTES, claims)
    }

    /// Of a time index of the segment at `base`.
    pub(crate) fn of_times(path: PathBuf, base: Offset, entries: &[TimeIndexEntry]) -> Claims {
        let claims = entries.iter().enumerate().map(|(entry, of)| Claim {
            entry,
            offset: absolute(base, of.relative_offset),
            what: Claimed::MaxTimestamp(TimestampMs(of.timestamp)),
        });
        Claims::new(path, TIME_INDEX_ENTRY_BYTES, claims)
    }

    /// Of a time index of a closed segment: its last entry is the largest timestamp of all.
    pub(crate) fn reaching_the_end(mut self, is_closed: bool) -> Claims {
        let last = self.claims.back().map(|claim| claim.what);
        let last = match last {
            Some(Claimed::MaxTimestamp(timestamp)) => timestamp,
            Some(Claimed::Position(_)) | None => TimestampMs::NONE,
        };
        self.last = is_closed.then_some(last);
        self
    }

    /// Of a file that is no index.
    pub(crate) fn broken(path: PathBuf, text: String) -> Claims {
        let mut claims = Claims::new(path, INDEX_ENTRY_BYTES, std::iter::empty());
        claims.wrong.push(WrongEntry { position: 0, text });
        claims
    }

    /// True when nothing is claimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Shows the next batch of the log.
    pub(crate) fn on_batch(&mut self, mark: &BatchMark) {
        self.max = self.max.max(mark.max_timestamp);
        while let Some(claim) = self.claims.front().copied()
            && claim.offset <= mark.last_offset
        {
            let holds = claim.offset == mark.last_offset
                && match claim.what {
                    Claimed::Position(position) => u64::from(position) == mark.position,
                    Claimed::MaxTimestamp(timestamp) => {
                        timestamp == mark.max_timestamp && timestamp == self.max
                    }
                };
            if !holds {
                let text = format!(
                    "entry {} (offset {}) does not fit the batch at byte {} (offsets {} to {}, \
                     largest timestamp {})",
                    claim.entry,
                    claim.offset,
                    mark.position,
                    mark.base_offset,
                    mark.last_offset,
                    mark.max_timestamp
                );
                self.note(claim, text);
            }
            self.claims.pop_front();
        }
    }

    /// What does not hold, when all batches were shown.
    pub(crate) fn all_wrong(mut self) -> Vec<WrongEntry> {
        if let Some(claim) = self.claims.front().copied() {
            let text = format!(
                "entry {} (offset {}) is beyond the log",
                claim.entry, claim.offset
            );
            self.note(claim, text);
        }
        if let Some(last) = self.last.filter(|last| *last < self.max && self.max.0 >= 0) {
            let text = format!(
                "it ends with timestamp {last}, and the largest of the log is {}",
                self.max
            );
            self.wrong.push(WrongEntry { position: 0, text });
        }
        self.wrong
    }

    /// The first of [`Claims::all_wrong`], with the file.
    pub(crate) fn wrong(self) -> Option<(PathBuf, String)> {
        let path = self.path.clone();
        let first = self.all_wrong().into_iter().next()?;
        Some((path, format!("byte {}: {}", first.position, first.text)))
    }

    fn note(&mut self, claim: Claim, text: String) {
        let position = (claim.entry * self.entry_bytes) as u64;
        self.wrong.push(WrongEntry { position, text });
    }
}
