//! Walks the batches of one `.log` file in order, by headers only or with checksums.
//!
//! Memory is bounded by the chunk size whatever the length fields say: a checksum is computed over
//! pieces. The walk stops for good at the first batch that is not valid; it changes nothing.

use std::fmt;
use std::io;
use std::ops::Range;

use bytes::BytesMut;
use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchError, BatchHeader};
use thalweg_reactor::fs::{self, File};
use thalweg_reactor::{failpoint, task};
use thalweg_types::{LeaderEpoch, Offset};

use crate::indexes::BatchMark;
use crate::scrub::Gentle;
use crate::unreadable::{PAGE_BYTES, unless_unreadable, unreadable};

/// Bytes read at once when only headers are wanted: about one index interval.
const HEADER_CHUNK_BYTES: usize = 4 * 1024;
/// Bytes read at once when checksums are computed.
pub(crate) const CHECKSUM_CHUNK_BYTES: usize = 1024 * 1024;
/// Bytes of a batch that the CRC does not cover.
const CRC_BEGINS: u64 = 21;
/// Headers found in the page cache before other tasks get the thread.
const HEADERS_PER_TURN: u32 = 256;

/// No batch is below, whatever its header says.
pub(crate) const NOTHING: Offset = Offset(i64::MIN);

/// Why bytes are not the next batch of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadBatch {
    /// Zeros: the end of a preallocated or torn file.
    Zeros,
    /// The file ends inside of a header.
    ShortHeader {
        /// Bytes that are there.
        have: u64,
    },
    /// The file ends before the batch does.
    ShortBatch {
        /// Bytes that are there.
        have: u64,
        /// Bytes that the header promises.
        need: u64,
    },
    /// The header is not one of a batch.
    Header(BatchError),
    /// The checksum does not match.
    Checksum,
    /// The base offset is not above the last offset before it, or below the segment's base.
    OffsetRunsBack {
        /// The batch's base offset.
        found: Offset,
        /// Smallest that is allowed.
        at_least: Offset,
    },
    /// The last offset lies below the batch's first one, or too far from the segment's base to be
    /// indexed (ST-29).
    OffsetSpan {
        /// The batch's last offset.
        last: Offset,
    },
    /// The leader epoch is lower than the one of the batch before (ST-4).
    EpochRunsBack {
        /// The batch's epoch.
        found: LeaderEpoch,
        /// The epoch before it.
        after: LeaderEpoch,
    },
    /// The device or its file system can not read it, with this errno.
    Unreadable(i32),
}

impl BadBatch {
    /// True for what a file looks like that was cut, or never written to its end.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            BadBatch::Zeros | BadBatch::ShortHeader { .. } | BadBatch::ShortBatch { .. } => true,
            BadBatch::Header(_)
            | BadBatch::Checksum
            | BadBatch::OffsetRunsBack { .. }
            | BadBatch::OffsetSpan { .. }
            | BadBatch::EpochRunsBack { .. }
            | BadBatch::Unreadable(_) => false,
        }
    }
}

impl fmt::Display for BadBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadBatch::Zeros => f.write_str("zeros where a batch should begin"),
            BadBatch::ShortHeader { have } => write!(f, "only {have} bytes of a batch header"),
            BadBatch::ShortBatch { have, need } => {
                write!(f, "only {have} of the batch's {need} bytes")
            }
            BadBatch::Header(error) => write!(f, "no batch header: {error}"),
            BadBatch::Checksum => f.write_str("the checksum does not match"),
            BadBatch::OffsetRunsBack { found, at_least } => {
                write!(f, "base offset {found} where at least {at_least} is due")
            }
            BadBatch::OffsetSpan { last } => {
                write!(
                    f,
                    "last offset {last} does not fit the batch or the segment"
                )
            }
            BadBatch::EpochRunsBack { found, after } => {
                write!(f, "leader epoch {found} after {after}")
            }
            BadBatch::Unreadable(errno) => {
                write!(
                    f,
                    "it can not be read: {}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}

/// How much of each batch is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Headers, from the page cache where they are in it.
    Headers,
    /// Headers and the checksum of every byte.
    Checksums,
}

/// One step of a scan.
#[derive(Debug)]
pub(crate) enum Step {
    /// A valid batch.
    Batch(BatchMark, BatchHeader),
    /// The scan has reached the end it was given, at a batch boundary.
    End,
    /// No valid batch at [`BatchScan::position`].
    Bad(BadBatch),
}

/// What the next batch of a segment must follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follows {
    segment_base: Offset,
    next_offset: Offset,
    epoch: LeaderEpoch,
}

impl Follows {
    /// The first batch of the segment at `segment_base`.
    pub(crate) fn new(segment_base: Offset) -> Follows {
        Follows {
            segment_base,
            next_offset: segment_base,
            epoch: LeaderEpoch::NONE,
        }
    }

    /// `header` was the next.
    pub(crate) fn step(&mut self, header: &BatchHeader) {
        self.next_offset = header.last_offset().plus(1);
        self.epoch = header.partition_leader_epoch;
    }

    /// What is wrong with `header` as the next, where `have` bytes are left in the segment.
    pub(crate) fn broken_by(&self, header: &BatchHeader, have: u64) -> Option<BadBatch> {
        let need = header.total_bytes() as u64;
        if need > have {
            return Some(BadBatch::ShortBatch { have, need });
        }
        if header.base_offset < self.next_offset {
            return Some(BadBatch::OffsetRunsBack {
                found: header.base_offset,
                at_least: self.next_offset,
            });
        }
        let last = header.last_offset();
        if last < header.base_offset
            || last.0 == i64::MAX
            || last.0.saturating_sub(self.segment_base.0) > i64::from(i32::MAX)
        {
            return Some(BadBatch::OffsetSpan { last });
        }
        if header.partition_leader_epoch < self.epoch {
            return Some(BadBatch::EpochRunsBack {
                found: header.partition_leader_epoch,
                after: self.epoch,
            });
        }
        None
    }
}

/// A walk over the batches of a file. Keeps its place between calls.
pub(crate) struct BatchScan {
    file: File,
    check: Check,
    position: u64,
    end: u64,
    follows: Follows,
    chunk: BytesMut,
    chunk_at: u64,
    headers_this_turn: u32,
    gentle: Option<Gentle>,
    /// A larger read has failed up to there: pages are read one by one.
    careful_to: u64,
    /// Batches below are not checksummed.
    believed: Offset,
    believed_bytes: u64,
}

impl BatchScan {
    /// Walks `[position, end)`, where a batch begins at `position`.
    pub(crate) fn new(
        file: File,
        check: Check,
        segment_base: Offset,
        position: u64,
        end: u64,
    ) -> Self {
        BatchScan {
            file,
            check,
            position,
            end,
            follows: Follows::new(segment_base),
            chunk: BytesMut::new(),
            chunk_at: 0,
            headers_this_turn: 0,
            gentle: None,
            careful_to: 0,
            believed: NOTHING,
            believed_bytes: 0,
        }
    }

    /// Goes by headers only up to `offset`, where a batch ends.
    pub(crate) fn believing(mut self, offset: Offset) -> Self {
        self.believed = offset;
        self
    }

    /// Bytes of batches that were passed by their headers for [`BatchScan::believing`].
    pub(crate) fn believed_bytes(&self) -> u64 {
        self.believed_bytes
    }

    /// How the bytes at the place of the scan are read.
    fn check_now(&self) -> Check {
        match self.follows.next_offset < self.believed {
            true => Check::Headers,
            false => self.check,
        }
    }

    /// Reads what is checksummed by `gentle`.
    pub(crate) fn gently(mut self, gentle: Option<Gentle>) -> Self {
        self.gentle = gentle;
        self
    }

    /// Goes on at `position`, where a batch begins or the segment ends, with an offset of at least
    /// `next_offset`.
    pub(crate) fn pass_over(&mut self, position: u64, next_offset: Offset) {
        self.position = position.clamp(self.position, self.end);
        self.follows.next_offset = self.follows.next_offset.max(next_offset);
    }

    /// Offsets and epochs must not run back behind what came before this file.
    pub(crate) fn after(mut self, next_offset: Offset, epoch: LeaderEpoch) -> Self {
        self.follows.next_offset = self.follows.next_offset.max(next_offset);
        self.follows.epoch = epoch;
        self
    }

    /// Where the next batch begins, or the bad one.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Smallest offset that the next batch may have.
    pub(crate) fn next_offset(&self) -> Offset {
        self.follows.next_offset
    }

    /// Epoch of the batch before the position.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        self.follows.epoch
    }

    /// The next batch. After [`Step::Bad`] the same answer comes again, and after an error another try: batches
    /// before a place that can not be read are found all the same.
    pub(crate) async fn next(&mut self) -> io::Result<Step> {
        let have = self.end - self.position;
        if have == 0 {
            return Ok(Step::End);
        }
        let wanted = have.min(BATCH_HEADER_BYTES as u64) as usize;
        self.fill(self.position, wanted).await?;
        let head = self.in_chunk(self.position, wanted);
        if head.len() < wanted {
            return Ok(Step::Bad(BadBatch::ShortHeader {
                have: head.len() as u64,
            }));
        }
        let header = match BatchHeader::parse(head) {
            Ok(header) => header,
            Err(error) => return Ok(Step::Bad(bad_header(error, have))),
        };
        if let Some(bad) = self.follows.broken_by(&header, have) {
            return Ok(Step::Bad(bad));
        }
        let bytes = header.total_bytes() as u64;
        let is_believed = header.last_offset() < self.believed;
        if self.check == Check::Checksums && !is_believed {
            if !self.checksum_holds(&header, bytes).await? {
                return Ok(Step::Bad(BadBatch::Checksum));
            }
        } else if is_believed {
            self.believed_bytes += bytes;
        }
        let mark = BatchMark::of(&header, self.position);
        self.position += bytes;
        self.follows.step(&header);
        Ok(Step::Batch(mark, header))
    }

    /// Whether the next batch ends with the offset `last`. Stays before it.
    pub(crate) async fn next_ends_with(&mut self, last: Offset) -> io::Result<bool> {
        let (position, follows) = (self.position, self.follows);
        let next = self.next().await?;
        (self.position, self.follows) = (position, follows);
        Ok(matches!(next, Step::Batch(mark, _) if mark.last_offset == last))
    }

    async fn checksum_holds(&mut self, header: &BatchHeader, bytes: u64) -> io::Result<bool> {
        let mut at = self.position + CRC_BEGINS;
        let end = self.position + bytes;
        let mut crc = 0;
        while at < end {
            self.fill(at, 1).await?;
            let piece = self.in_chunk(at, (end - at).min(CHECKSUM_CHUNK_BYTES as u64) as usize);
            if piece.is_empty() {
                // The file became shorter under the scan.
                return Ok(false);
            }
            crc = crc32c::crc32c_append(crc, piece);
            at += piece.len() as u64;
        }
        Ok(crc == header.crc)
    }

    /// What the chunk has of `[at, at + wanted)`.
    fn in_chunk(&self, at: u64, wanted: usize) -> &[u8] {
        let Some(skip) = at
            .checked_sub(self.chunk_at)
            .and_then(|s| usize::try_from(s).ok())
        else {
            return &[];
        };
        let rest = self.chunk.get(skip..).unwrap_or_default();
        &rest[..rest.len().min(wanted)]
    }

    /// Makes the chunk hold `[at, at + wanted)`, as far as the file does. `wanted` fits one chunk.
    async fn fill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        if self.in_chunk(at, wanted).len() == wanted {
            return Ok(());
        }
        let left = usize::try_from(self.end - at).unwrap_or(usize::MAX);
        // Up to the end of the page that the last of it is in.
        let last = at + wanted as u64 - 1;
        let careful = (last / PAGE_BYTES + 1) * PAGE_BYTES - at;
        let careful = left.min(usize::try_from(careful).unwrap_or(usize::MAX));
        if at < self.careful_to {
            return self.fill_with(at, wanted, careful).await;
        }
        match self.fill_with(at, wanted, left).await {
            Err(error) if left > careful && unreadable(&error).is_some() => {
                self.careful_to = at + left.min(CHECKSUM_CHUNK_BYTES) as u64;
                self.fill_with(at, wanted, careful).await
            }
            filled => filled,
        }
    }

    /// Makes the chunk begin at `at`, with at most `most` bytes.
    async fn fill_with(&mut self, at: u64, wanted: usize, most: usize) -> io::Result<()> {
        let mut chunk = std::mem::take(&mut self.chunk);
        match self.check_now() {
            Check::Headers => {
                let bytes = most.min(HEADER_CHUNK_BYTES);
                self.headers_this_turn += 1;
                if self.headers_this_turn == HEADERS_PER_TURN {
                    self.headers_this_turn = 0;
                    task::yield_now().await;
                }
                chunk.resize(bytes, 0);
                match fs::read_cached(&self.file, at, &mut chunk)? {
                    Some(read) if read >= wanted => chunk.truncate(read),
                    Some(_) | None => chunk = fs::read_at(&self.file, at, bytes).await?,
                }
            }
            Check::Checksums => {
                failpoint::reach("checked read")?;
                chunk = match &self.gentle {
                    Some(gentle) => gentle.read(&self.file, at, most).await?,
                    None => {
                        let bytes = most.min(CHECKSUM_CHUNK_BYTES);
                        fs::read_at(&self.file, at, bytes).await?
                    }
                };
            }
        }
        self.chunk = chunk;
        self.chunk_at = at;
        Ok(())
    }
}

/// The first whole batch that begins in `range`, wherever it does, with an offset of
/// at least `at_least`. For files of modest size: every byte may be the first of a batch.
pub(crate) async fn find_batch(
    file: &File,
    range: Range<u64>,
    segment_base: Offset,
    at_least: Offset,
) -> io::Result<Option<BatchMark>> {
    let search = Search {
        file,
        end: range.end,
        segment_base,
        at_least,
    };
    let mut at = range.start;
    while at + BATCH_HEADER_BYTES as u64 <= range.end {
        let chunk = fs::read_at(file, at, CHECKSUM_CHUNK_BYTES).await?;
        if let Some(found) = search.whole_in(&chunk, at).await? {
            return Ok(Some(found));
        }
        at += Search::step(&chunk);
    }
    Ok(None)
}

/// A search for a whole batch, wherever it begins.
pub(crate) struct Search<'a> {
    pub(crate) file: &'a File,
    /// Where the last one ends at most.
    pub(crate) end: u64,
    pub(crate) segment_base: Offset,
    /// Smallest offset that it may have.
    pub(crate) at_least: Offset,
}

impl Search<'_> {
    /// The first that begins in a chunk of the file at `at`.
    pub(crate) async fn whole_in(&self, chunk: &[u8], at: u64) -> io::Result<Option<BatchMark>> {
        let candidates = chunk.windows(BATCH_HEADER_BYTES).enumerate();
        let looks_right = |window: &[u8]| BatchHeader::parse(window).is_ok();
        for (skip, _) in candidates.filter(|(_, window)| looks_right(window)) {
            let file = self.file.clone();
            let begin = at + skip as u64;
            let mut scan =
                BatchScan::new(file, Check::Checksums, self.segment_base, begin, self.end)
                    .after(self.at_least, LeaderEpoch::NONE);
            if let Step::Batch(mark, _) = unless_unreadable(scan.next().await)? {
                return Ok(Some(mark));
            }
        }
        Ok(None)
    }

    /// How far the next chunk begins behind one: a batch may begin at its end.
    pub(crate) fn step(chunk: &[u8]) -> u64 {
        (chunk.len() as u64)
            .saturating_sub(BATCH_HEADER_BYTES as u64 - 1)
            .max(1)
    }
}

pub(crate) fn bad_header(error: BatchError, have: u64) -> BadBatch {
    match error {
        BatchError::EndOfLog => BadBatch::Zeros,
        BatchError::Short { .. } => BadBatch::ShortHeader { have },
        other => BadBatch::Header(other),
    }
}
