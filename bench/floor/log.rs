//! One log of the floor: segment files, the pieces waiting for the next write, offset lookup.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};

use super::conn::Conn;

/// Most slices of one write (`IOV_MAX`).
pub(super) const IOVECS_MAX: usize = 1_024;

/// One batch that waits to be written, still in the buffer of the connection it came from.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) conn: usize,
    pub(super) range: Range<usize>,
    pub(super) correlation: i32,
    pub(super) base_offset: i64,
    /// Place of its answer in the connection's order; `None` with acks 0.
    pub(super) slot: Option<u64>,
}

#[derive(Debug)]
struct Segment {
    base_offset: i64,
    path: PathBuf,
    file: Rc<File>,
    len: u64,
}

/// Part of a file to send.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) file: Rc<File>,
    pub(super) position: u64,
    pub(super) len: u64,
}

#[derive(Debug)]
pub(super) struct Log {
    index: usize,
    dir: PathBuf,
    segments: VecDeque<Segment>,
    /// Next offset to assign.
    assigned_end: i64,
    /// Next offset that is not in a file yet.
    written_end: i64,
    /// Size and record count of every batch: the floor's index.
    batch_bytes: u64,
    batch_records: i64,
    pub(super) pending: Vec<Piece>,
    pub(super) pending_bytes: u64,
    pub(super) in_flight: Vec<Piece>,
}

impl Log {
    pub(super) fn create(dir: &Path, index: usize) -> Result<Log> {
        let mut log = Log {
            index,
            dir: dir.to_owned(),
            segments: VecDeque::new(),
            assigned_end: 0,
            written_end: 0,
            batch_bytes: 0,
            batch_records: 1,
            pending: Vec::new(),
            pending_bytes: 0,
            in_flight: Vec::new(),
        };
        log.roll()
            .with_context(|| format!("cannot create a segment in {}", dir.display()))?;
        Ok(log)
    }

    fn roll(&mut self) -> io::Result<()> {
        let path = self
            .dir
            .join(format!("{}-{:020}.log", self.index, self.written_end));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let base_offset = self.written_end;
        self.segments.push_back(Segment {
            base_offset,
            path,
            file: Rc::new(file),
            len: 0,
        });
        Ok(())
    }

    /// Assigns offsets to a batch and remembers it for the next write.
    pub(super) fn queue(&mut self, records: i64, mut piece: Piece) -> Result<i64> {
        let bytes = piece.range.len() as u64;
        if self.batch_bytes == 0 {
            (self.batch_bytes, self.batch_records) = (bytes, records.max(1));
        }
        ensure!(
            bytes == self.batch_bytes && records == self.batch_records,
            "the floor serves batches of one size"
        );
        let base = self.assigned_end;
        piece.base_offset = base;
        self.assigned_end += records;
        self.pending.push(piece);
        self.pending_bytes += bytes;
        Ok(base)
    }

    /// File and position of the next write.
    pub(super) fn target(&self) -> (&File, u64) {
        let active = self.segments.back().expect("a log always has a segment");
        (&active.file, active.len)
    }

    /// Takes up to `IOVECS_MAX` pending pieces for a write.
    pub(super) fn take_for_write(&mut self) {
        let n = self.pending.len().min(IOVECS_MAX);
        self.in_flight.extend(self.pending.drain(..n));
        self.pending_bytes -= self.in_flight.len() as u64 * self.batch_bytes;
    }

    /// The bytes of the write in flight, where they lie in the connections' buffers.
    pub(super) fn slices<'a>(&self, conns: &'a [Option<Conn>]) -> Result<Vec<IoSlice<'a>>> {
        let slice = |piece: &Piece| {
            let conn = conns[piece.conn]
                .as_ref()
                .context("a buffer outlives its writes")?;
            Ok(IoSlice::new(conn.bytes(&piece.range)))
        };
        self.in_flight.iter().map(slice).collect()
    }

    /// Bytes of the write in flight.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight.len() as u64 * self.batch_bytes
    }

    /// The write in flight is in the file: moves the end, rolls and unlinks when due.
    pub(super) fn written(&mut self, segment_bytes: u64, segments_kept: usize) -> io::Result<()> {
        let bytes = self.in_flight_bytes();
        self.written_end += self.in_flight.len() as i64 * self.batch_records;
        let active = self
            .segments
            .back_mut()
            .expect("a log always has a segment");
        active.len += bytes;
        if active.len >= segment_bytes {
            self.roll()?;
            while self.segments.len() > segments_kept.max(1) {
                if let Some(oldest) = self.segments.pop_front() {
                    std::fs::remove_file(&oldest.path)?;
                }
            }
        }
        Ok(())
    }

    /// Offset after the last written record.
    pub(super) fn end(&self) -> i64 {
        self.written_end
    }

    /// Whole batches from `offset`, at most `bytes_max` unless the first is larger; `None` at the end.
    pub(super) fn slice(&self, offset: i64, bytes_max: u64) -> Option<Slice> {
        if offset >= self.written_end || self.batch_bytes == 0 {
            return None;
        }
        let at = self
            .segments
            .partition_point(|s| s.base_offset <= offset)
            .checked_sub(1)?;
        let segment = &self.segments[at];
        let batch = ((offset - segment.base_offset) / self.batch_records) as u64;
        let position = batch * self.batch_bytes;
        let whole = (bytes_max / self.batch_bytes).max(1) * self.batch_bytes;
        let len = whole.min(segment.len.checked_sub(position)?);
        (len > 0).then(|| Slice {
            file: Rc::clone(&segment.file),
            position,
            len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, Piece};

    fn piece(len: usize) -> Piece {
        Piece {
            conn: 0,
            range: 0..len,
            correlation: 0,
            base_offset: -1,
            slot: Some(0),
        }
    }

    #[test]
    fn offsets_map_to_segments_and_old_ones_go() {
        let dir = std::env::temp_dir().join(format!("floor-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut log = Log::create(&dir, 0).unwrap();
        for n in 0..6 {
            assert_eq!(log.queue(10, piece(100)).unwrap(), n * 10);
            log.take_for_write();
            log.written(200, 2).unwrap();
            log.in_flight.clear();
        }
        // Segments of two batches; the newest (empty) and the one before are kept.
        assert_eq!(log.end(), 60);
        assert!(log.slice(0, 1_000).is_none());
        let slice = log.slice(50, 1_000).unwrap();
        assert_eq!((slice.position, slice.len), (100, 100));
        let slice = log.slice(40, 150).unwrap();
        assert_eq!((slice.position, slice.len), (0, 100));
        assert!(log.slice(60, 1_000).is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
