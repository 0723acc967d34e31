//! What is known to be damaged in the closed segments of a log, and is not served.
//!
//! A damage is found by the scrub ([`crate::Scrubber`]), by a read that meets a batch whose header can
//! not be, or by compaction. Who meets one in passing knows where it begins and not where it ends: from
//! there to the end of the segment nothing is served until the segment was looked through, which begins at
//! once. Reads before and behind a damaged stretch go on; a read that begins before one ends there.
//!
//! The ranges live with their segments, so that they go with them, and in a file beside them, so that a
//! restart knows them: [`QUARANTINE`], one line each, which `thalweg inspect` shows. Each look at a segment
//! replaces what was known of it: what is whole again is served again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use thalweg_reactor::{fs, task};
use thalweg_types::Offset;

use crate::error::{LogError, ReadError};
use crate::log::Log;
use crate::scan::{BadBatch, BatchScan, Check, Step};
use crate::segment::Segment;
use crate::unreadable::unless_unreadable;

/// Name of the file with the damaged ranges of a log, which is there only while there are some.
pub(crate) const QUARANTINE: &str = "thalweg-quarantine";
/// Its first line.
const VERSION: &str = "0";
/// Larger files are not read.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A damaged stretch of a segment: bytes, and the offsets that may be in them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedRange {
    /// From the first batch that is not what was written to the next one that is, or to the end of the
    /// segment.
    pub bytes: Range<u64>,
    /// Offset of the first record that is not served.
    pub first: Offset,
    /// Offset behind the last one: reading can go on there.
    pub next: Offset,
    /// What is wrong; empty when that is known from an earlier life only.
    pub reason: String,
}

impl DamagedRange {
    fn has(&self, offset: Offset) -> bool {
        self.first <= offset && offset < self.next
    }

    fn is_same(&self, other: &DamagedRange) -> bool {
        (&self.bytes, self.first, self.next) == (&other.bytes, other.first, other.next)
    }
}

/// What became of a damage that compaction met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    /// It is among what is not served.
    Quarantined,
    /// Its segment was deleted or replaced meanwhile.
    Gone,
    /// A look at the segment finds all its batches whole, or is not possible.
    Nowhere,
}

/// By base offset of their segments: its length then, and what is damaged in it.
pub(crate) type Ranges = BTreeMap<Offset, (u64, Vec<DamagedRange>)>;

impl Segment {
    /// Moves a scan that stands in a damaged stretch behind it. False when it stands elsewhere.
    pub(crate) fn skip_damage(&self, scan: &mut BatchScan) -> bool {
        let damaged = self.damaged.borrow();
        let at = scan.position();
        let found = damaged.iter().find(|range| range.bytes.contains(&at));
        if let Some(range) = found {
            scan.pass_over(range.bytes.end, range.next);
        }
        found.is_some()
    }

    /// The damaged stretch at a byte.
    pub(crate) fn damage_at(&self, position: u64) -> Option<DamagedRange> {
        let damaged = self.damaged.borrow();
        let found = damaged.iter().find(|range| range.bytes.contains(&position));
        found.cloned()
    }

    /// Up to where a read from `from` may go.
    ///
    /// # Errors
    /// [`ReadError::Quarantined`] when nothing of it may be read.
    pub(crate) fn readable(&self, from: Offset, up_to: Offset) -> Result<Offset, ReadError> {
        let damaged = self.damaged.borrow();
        match damaged.iter().find(|range| range.next > from) {
            Some(range) if range.has(from) => Err(self.quarantined(from, range)),
            Some(range) => Ok(up_to.min(range.first)),
            None => Ok(up_to),
        }
    }

    pub(crate) fn quarantined(&self, asked: Offset, range: &DamagedRange) -> ReadError {
        ReadError::Quarantined {
            path: self.path(),
            position: range.bytes.start,
            asked,
            next: range.next,
        }
    }
}

impl Log {
    /// What is damaged and not served.
    #[must_use]
    pub fn quarantined(&self) -> Vec<DamagedRange> {
        let state = self.inner.state.borrow();
        let segments = state.segments.iter();
        segments
            .flat_map(|segment| segment.damaged.borrow().clone())
            .collect()
    }

    /// The same, each range with the file that it is in.
    #[must_use]
    pub fn quarantined_in_files(&self) -> Vec<(PathBuf, DamagedRange)> {
        let state = self.inner.state.borrow();
        let mut found = Vec::new();
        for segment in &state.segments {
            let damaged = segment.damaged.borrow();
            found.extend(damaged.iter().map(|range| (segment.path(), range.clone())));
        }
        found
    }

    /// Number and bytes of [`Log::quarantined`].
    #[must_use]
    pub fn quarantined_size(&self) -> (u64, u64) {
        let state = self.inner.state.borrow();
        let mut size = (0, 0);
        for segment in &state.segments {
            for range in segment.damaged.borrow().iter() {
                size.0 += 1;
                size.1 += range.bytes.end - range.bytes.start;
            }
        }
        size
    }

    /// The file and the damaged stretch that `offset` is in, once it is known where that ends.
    pub async fn damage_of(&self, offset: Offset) -> Option<(PathBuf, DamagedRange)> {
        let segment = {
            let state = self.inner.state.borrow();
            Rc::clone(&state.segments[state.segment_for(offset)])
        };
        if segment.is_suspect.get() {
            self.look_at_suspect(&segment).await;
        }
        let damaged = segment.damaged.borrow();
        let found = damaged.iter().find(|range| range.has(offset));
        found.map(|range| (segment.path(), range.clone()))
    }

    /// Somebody met a batch that is not what was written, at `position` of its segment, where
    /// `first` is the smallest offset that it may have. False when that is known already.
    pub fn note_damage(&self, first: Offset, position: u64, reason: &str) -> bool {
        let index = self.inner.state.borrow().segment_for(first);
        self.note_in(index, position, first, reason)
    }

    /// As [`Log::note_damage`], of the segment at a path; false when there is none by now.
    fn note_by_path(&self, path: &Path, position: u64, first: Offset, reason: &str) -> bool {
        let index = self.index_of(path);
        index.is_some_and(|index| self.note_in(index, position, first, reason))
    }

    /// The segment at a path, if it is one of the log's.
    pub(crate) fn segment_of(&self, path: &Path) -> Option<Rc<Segment>> {
        let index = self.index_of(path)?;
        Some(Rc::clone(&self.inner.state.borrow().segments[index]))
    }

    fn index_of(&self, path: &Path) -> Option<usize> {
        let state = self.inner.state.borrow();
        let mut all = state.segments.iter();
        all.position(|segment| segment.path() == path)
    }

    fn note_in(&self, index: usize, position: u64, first: Offset, reason: &str) -> bool {
        let Some(segment) = self.mark_damaged(index, position, first, reason) else {
            return false;
        };
        self.look_soon(segment, |_| ());
        true
    }

    /// Has a segment looked through in the background, and calls `ended` then, whatever came of it.
    pub(crate) fn look_soon(&self, segment: Rc<Segment>, ended: impl FnOnce(&Segment) + 'static) {
        let log = Rc::downgrade(&self.inner);
        task::spawn(async move {
            // Unless it is closed by then.
            if let Some(inner) = log.upgrade() {
                Log { inner }.look_at_suspect(&segment).await;
            }
            ended(&segment);
        });
    }

    /// Serves nothing of a segment from there on; `None` when that is so already.
    fn mark_damaged(
        &self,
        index: usize,
        position: u64,
        first: Offset,
        reason: &str,
    ) -> Option<Rc<Segment>> {
        let (segment, end) = {
            let state = self.inner.state.borrow();
            (Rc::clone(&state.segments[index]), state.segment_end(index))
        };
        let size = segment.size.get();
        if position >= size || segment.damage_at(position).is_some() {
            return None;
        }
        {
            let mut damaged = segment.damaged.borrow_mut();
            damaged.retain(|range| range.bytes.end <= position);
            damaged.push(DamagedRange {
                bytes: position..size,
                first,
                next: end.max(first),
                reason: reason.to_owned(),
            });
        }
        tracing::error!(path = %segment.path().display(), position, offset = first.0, reason,
            "DAMAGE met: nothing of this segment is served from there on until it is looked through");
        segment.is_suspect.set(true);
        Some(segment)
    }

    /// As [`Log::note_damage`], of a read that failed for it.
    pub(crate) async fn note_met(&self, error: &ReadError) -> bool {
        match error {
            ReadError::Damaged {
                path,
                position,
                offset,
                reason,
            } => {
                if matches!(reason, BadBatch::Unreadable(_)) && !self.disk_works().await {
                    return false;
                }
                self.note_by_path(path, *position, *offset, &reason.to_string())
            }
            ReadError::OutOfRange { .. }
            | ReadError::Io { .. }
            | ReadError::Quarantined { .. }
            | ReadError::Records { .. }
            | ReadError::Replaced
            | ReadError::Offline { .. }
            | ReadError::Closed => false,
        }
    }

    /// What was found to be damaged in `other` while this, its copy, was opened is not served here either.
    pub fn inherit_damage(&self, other: &Log) {
        let state = self.inner.state.borrow();
        let theirs = other.inner.state.borrow();
        for segment in &state.segments {
            let found = theirs.segments.iter().find(|one| one.base == segment.base);
            let Some(found) = found.filter(|one| one.size.get() == segment.size.get()) else {
                continue;
            };
            segment.damaged.replace(found.damaged.borrow().clone());
            segment.is_suspect.set(found.is_suspect.get());
        }
    }

    /// Compaction met a batch that it can not read, at `position` of the segment at a path, or somewhere in it. When
    /// this is done the segment was looked through, as the scrub does it.
    pub(crate) async fn place_damage(
        &self,
        path: &Path,
        position: Option<u64>,
        reason: &str,
    ) -> Placed {
        let Some(segment) = self.segment_of(path) else {
            return Placed::Gone;
        };
        match position {
            Some(position) => {
                if let Some((at, first)) = start_of(&segment, position).await
                    && let Some(index) = self.index_of(path)
                {
                    self.mark_damaged(index, at, first, reason);
                }
            }
            None => segment.is_suspect.set(true),
        }
        if segment.is_suspect.get() {
            self.look_at_suspect(&segment).await;
        }
        let has_damage = !segment.damaged.borrow().is_empty();
        match (self.index_of(path), has_damage) {
            (None, _) => Placed::Gone,
            (Some(_), true) => Placed::Quarantined,
            (Some(_), false) => Placed::Nowhere,
        }
    }

    /// Says what is damaged to the file of it, as far as that is possible: what is not there after a
    /// restart is found again.
    pub(crate) async fn store_quarantine(&self) {
        // The name of a log that was deleted may be another log's by now.
        let _turn = self.inner.index_turn.take().await;
        if self.check_open().is_err() {
            return;
        }
        let mut ranges = Ranges::new();
        for segment in &self.inner.state.borrow().segments {
            let damaged = segment.damaged.borrow();
            if !damaged.is_empty() {
                ranges.insert(segment.base, (segment.size.get(), damaged.clone()));
            }
        }
        let dir = &self.inner.dir;
        let path = dir.join(QUARANTINE);
        let stored = match ranges.is_empty() {
            true => remove(dir).await.map_err(|error| error.to_string()),
            false => fs::write_file_atomically(&path, Bytes::from(format(&ranges)))
                .await
                .map_err(|error| error.to_string()),
        };
        if let Err(error) = stored {
            tracing::warn!(path = %path.display(), error,
                "not written: the damage has to be found again after a restart");
        }
    }
}

/// Where the damage at `position` begins that a walk by headers comes to, and the smallest offset that may be in
/// it; `None` when the segment can not be walked.
async fn start_of(segment: &Segment, position: u64) -> Option<(u64, Offset)> {
    let opened = fs::open(&segment.path(), fs::OpenMode::Read).await;
    let mut scan = BatchScan::new(opened.ok()?, Check::Headers, segment.base, 0, position);
    loop {
        if segment.skip_damage(&mut scan) {
            continue;
        }
        match unless_unreadable(scan.next().await) {
            Ok(Step::Batch(..)) => {}
            Ok(Step::End | Step::Bad(_)) => {
                return Some((scan.position().min(position), scan.next_offset()));
            }
            Err(_) => return None,
        }
    }
}

/// Removes the file of a partition directory, if it is there.
pub(crate) async fn remove(dir: &Path) -> Result<(), LogError> {
    let path = dir.join(QUARANTINE);
    match fs::unlink(&path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LogError::io("remove", &path)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lets segments know what an earlier life had found damaged in them. Where a file has another length
/// since, it is another file.
pub(crate) async fn load(dir: &Path, segments: &[Rc<Segment>]) -> Result<(), LogError> {
    let path = dir.join(QUARANTINE);
    let bytes = match fs::read_file(&path, FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Bytes::new(),
        read => read.map_err(LogError::io("read", &path))?,
    };
    let ranges = match parse(&bytes) {
        Ok(ranges) => ranges,
        Err(line) => {
            tracing::warn!(path = %path.display(), line,
                "the list of damaged ranges is damaged itself: they have to be found again");
            return Ok(());
        }
    };
    let last = segments.last().map(|segment| segment.base);
    for segment in segments {
        let Some((bytes, damaged)) = ranges.get(&segment.base) else {
            continue;
        };
        let size = segment.size.get();
        let grown = Some(segment.base) == last && size >= *bytes;
        if size == *bytes || grown {
            tracing::warn!(path = %segment.path().display(), ranges = damaged.len(),
                "this segment is damaged: what is damaged in it is not served");
            *segment.damaged.borrow_mut() = damaged.clone();
        }
    }
    Ok(())
}

/// The file's text: a version, the number of entries, and of each its segment, the length of that,
/// first byte, byte behind the last, first offset, offset behind the last.
fn format(ranges: &Ranges) -> String {
    let count: usize = ranges.values().map(|(_, damaged)| damaged.len()).sum();
    let mut text = format!("{VERSION}\n{count}\n");
    for (base, (size, damaged)) in ranges {
        for range in damaged {
            let Range { start, end } = range.bytes;
            let (first, next) = (range.first, range.next);
            let _ = writeln!(text, "{base} {size} {start} {end} {first} {next}");
        }
    }
    text
}

/// Reads it.
///
/// # Errors
/// The line that is wrong, counted from 1.
pub(crate) fn parse(bytes: &[u8]) -> Result<Ranges, usize> {
    let text = std::str::from_utf8(bytes).map_err(|_| 1_usize)?;
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return Err(1);
    }
    let count: usize = lines.next().and_then(|c| c.parse().ok()).ok_or(2_usize)?;
    let mut ranges = Ranges::new();
    let mut found = 0;
    for (i, line) in lines.enumerate() {
        let entry = entry(line).ok_or(i + 3)?;
        let (base, size, range) = entry;
        let (known, damaged) = ranges.entry(base).or_insert((size, Vec::new()));
        let begins = damaged
            .last()
            .map_or(0, |before: &DamagedRange| before.bytes.end);
        if *known != size || range.bytes.start < begins || range.bytes.end > size {
            return Err(i + 3);
        }
        damaged.push(range);
        found += 1;
    }
    match found == count {
        true => Ok(ranges),
        false => Err(2),
    }
}

fn entry(line: &str) -> Option<(Offset, u64, DamagedRange)> {
    let mut fields = line.split(' ').map(|field| field.parse::<i64>().ok());
    let mut number = || fields.next().flatten().filter(|number| *number >= 0);
    let (base, size) = (number()?, number()?);
    let (start, end, first, next) = (number()?, number()?, number()?, number()?);
    let is_whole = start < end && base <= first && first <= next && next < i64::MAX;
    (is_whole && fields.next().is_none()).then(|| {
        let range = DamagedRange {
            bytes: start.unsigned_abs()..end.unsigned_abs(),
            first: Offset(first),
            next: Offset(next),
            reason: String::new(),
        };
        (Offset(base), size.unsigned_abs(), range)
    })
}

/// Those of `now` that `before` had not.
pub(crate) fn new_ones<'a>(
    now: &'a [DamagedRange],
    before: &'a [DamagedRange],
) -> impl Iterator<Item = &'a DamagedRange> {
    let known = |range: &DamagedRange| before.iter().any(|other| other.is_same(range));
    now.iter().filter(move |range| !known(range))
}

/// Whether both say the same of a segment.
pub(crate) fn are_same(a: &[DamagedRange], b: &[DamagedRange]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
}

#[cfg(test)]
mod tests {
    use thalweg_types::Offset;

    use super::{DamagedRange, Ranges, format, parse};

    fn ranges() -> Ranges {
        let range = |start, end, first, next| DamagedRange {
            bytes: start..end,
            first: Offset(first),
            next: Offset(next),
            reason: String::new(),
        };
        Ranges::from([
            (
                Offset(0),
                (900, vec![range(0, 100, 0, 3), range(500, 900, 15, 27)]),
            ),
            (Offset(27), (800, vec![range(10, 20, 30, 33)])),
        ])
    }

    #[test]
    fn the_file_of_damaged_ranges_round_trips() {
        let text = format(&ranges());
        assert_eq!(
            text,
            "0\n3\n0 900 0 100 0 3\n0 900 500 900 15 27\n27 800 10 20 30 33\n"
        );
        assert_eq!(parse(text.as_bytes()), Ok(ranges()));
        assert_eq!(parse(b"0\n0\n"), Ok(Ranges::new()));
    }

    #[test]
    fn a_damaged_file_of_damaged_ranges_names_the_line() {
        for (bad, line) in [
            (&b""[..], 1),
            (b"\xff", 1),
            (b"1\n0\n", 1),
            (b"0\nx\n", 2),
            (b"0\n2\n0 900 0 100 0 3\n", 2),
            (b"0\n1\n0 900 0 100 0\n", 3),
            (b"0\n1\n0 900 100 100 0 3\n", 3),
            (b"0\n1\n0 900 0 901 0 3\n", 3),
            (b"0\n1\n5 900 0 100 4 6\n", 3),
            (b"0\n1\n0 900 0 100 4 3\n", 3),
            (b"0\n2\n0 900 0 100 0 3\n0 900 99 200 3 6\n", 4),
            (b"0\n2\n0 900 0 100 0 3\n0 901 100 200 3 6\n", 4),
        ] {
            assert_eq!(parse(bad), Err(line), "{}", String::from_utf8_lossy(bad));
        }
    }
}
