//! Copying what is missing: segment by segment, slice by slice.

use std::io;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::Offset;
use thalweg_types::limits::MOVE_SLICE_BYTES;

use super::{Between, Copied, FutureLog, MoveError, copy_file, remove};
use crate::error::LogError;
use crate::log::Log;
use crate::name::{log_path, snapshot_path};
use crate::removal::files_of;
use crate::segment::Segment;

impl FutureLog {
    /// Copies the next bytes that are missing, [`MOVE_SLICE_BYTES`] at most, and says how many; 0 when nothing is
    /// missing.
    ///
    /// # Errors
    /// See [`MoveError`]; the log is as it was.
    pub async fn step(&mut self, log: &Log) -> Result<u64, MoveError> {
        let stepped = self.try_step(log).await;
        self.judged(stepped)
    }

    pub(super) async fn try_step(&mut self, log: &Log) -> Result<u64, MoveError> {
        let (segments, written_end) = {
            let state = log.inner.state.borrow();
            state.check_readable()?;
            (state.segments.clone(), state.written_end)
        };
        self.forget_replaced(&segments).await?;
        let closed = segments.len().saturating_sub(1);
        for (index, segment) in segments.iter().enumerate() {
            let is_closed = index < closed;
            let size = segment.size.get();
            if !self.copied.contains_key(&segment.base) {
                self.begin(segment, is_closed).await?;
            }
            let copied = &self.copied[&segment.base];
            if copied.is_whole {
                continue;
            }
            if copied.bytes < size {
                self.reached = segment.base.max(self.reached);
                let wanted = (size - copied.bytes).min(MOVE_SLICE_BYTES);
                return self.copy(segment, wanted).await;
            }
            if is_closed && segment.is_synced() && segment.indexes_saved.get() {
                self.close(log.dir(), segment).await?;
            }
        }
        self.reached = written_end;
        Ok(0)
    }

    /// Copies of segments that the log has not, or not any more.
    async fn forget_replaced(&mut self, segments: &[Rc<Segment>]) -> Result<(), LogError> {
        let is_there = |base: &Offset, copied: &Copied| {
            let found = segments.binary_search_by_key(base, |segment| segment.base);
            found.is_ok_and(|at| Rc::ptr_eq(&segments[at], &copied.of))
        };
        let gone: Vec<Offset> = self
            .copied
            .iter()
            .filter(|(base, copied)| !is_there(base, copied))
            .map(|(base, _)| *base)
            .collect();
        for base in gone {
            self.copied.remove(&base);
            self.between.take_if(|between| between.base == base);
            self.remove_files(base).await?;
        }
        Ok(())
    }

    async fn remove_files(&self, base: Offset) -> Result<(), LogError> {
        for path in files_of(&self.dir, base) {
            remove(&path).await?;
        }
        Ok(())
    }

    async fn begin(&mut self, segment: &Rc<Segment>, is_closed: bool) -> Result<(), MoveError> {
        let base = segment.base;
        let size = segment.size.get();
        let is_whole = match self.found.remove(&base) {
            Some((bytes, modified_ms)) if is_closed && bytes == size => {
                let path = segment.path();
                let meta = fs::metadata(&path).await;
                let meta = meta.map_err(|error| gone_or(error, &path))?;
                meta.modified_ms == modified_ms
            }
            Some(_) | None => false,
        };
        if !is_whole && self.is_resumed {
            self.remove_files(base).await?;
        }
        let copied = Copied {
            of: Rc::clone(segment),
            bytes: if is_whole { size } else { 0 },
            is_whole,
        };
        self.copied.insert(base, copied);
        Ok(())
    }

    async fn copy(&mut self, segment: &Rc<Segment>, wanted: u64) -> Result<u64, MoveError> {
        let base = segment.base;
        let at = self.copied.get(&base).map_or(0, |copied| copied.bytes);
        let (from, to) = self.between(segment).await?;
        let bytes = fs::read_at(&from, at, usize::try_from(wanted).unwrap_or(usize::MAX)).await;
        let bytes = bytes.map_err(LogError::io("read", from.path()))?;
        let read = bytes.len() as u64;
        if read < wanted {
            // What the log says is written is not there.
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(LogError::io("read", from.path())(short).into());
        }
        let written = fs::write_at(&to, vec![bytes.freeze()], at).await;
        written.map_err(LogError::io("write", to.path()))?;
        failpoint::pass("move: slice copied");
        match self.copied.get_mut(&base) {
            Some(copied) => copied.bytes += read,
            None => return Err(MoveError::Changed),
        }
        Ok(read)
    }

    async fn between(&mut self, segment: &Rc<Segment>) -> Result<(File, File), MoveError> {
        if let Some(between) = self.between.as_ref().filter(|b| b.base == segment.base) {
            return Ok((between.from.clone(), between.to.clone()));
        }
        let path = segment.path();
        let from = match segment.warm_now() {
            Some(warm) => warm.file,
            None => {
                let opened = fs::open(&path, OpenMode::Read).await;
                opened.map_err(|error| gone_or(error, &path))?
            }
        };
        let path = log_path(&self.dir, segment.base);
        let opened = fs::open(&path, OpenMode::Create).await;
        let to = opened.map_err(LogError::io("open", &path))?;
        self.between = Some(Between {
            base: segment.base,
            from: from.clone(),
            to: to.clone(),
        });
        Ok((from, to))
    }

    /// Makes the copy of a closed segment whole: on the disk, with its other files, and last with its time.
    async fn close(&mut self, from: &Path, segment: &Rc<Segment>) -> Result<(), MoveError> {
        self.copy_beside(from, segment).await?;
        let path = segment.path();
        let meta = fs::metadata(&path).await;
        let meta = meta.map_err(|error| gone_or(error, &path))?;
        let file = self.sync(segment.base).await?;
        fs::set_modified(&file, meta.modified_ms)
            .await
            .map_err(LogError::io("set the time of", file.path()))?;
        failpoint::pass("move: segment closed");
        if let Some(copied) = self.copied.get_mut(&segment.base) {
            copied.is_whole = true;
        }
        self.between.take_if(|between| between.base == segment.base);
        Ok(())
    }

    /// The indexes of a segment, and the snapshot where it begins.
    pub(super) async fn copy_beside(&self, from: &Path, segment: &Segment) -> Result<(), MoveError> {
        let base = segment.base;
        let sources = files_of(from, base).into_iter().skip(1);
        let targets = files_of(&self.dir, base).into_iter().skip(1);
        // The last of them is the index of aborted transactions, which most have not.
        let indexes = if segment.aborted.borrow().is_empty() {
            2
        } else {
            3
        };
        for (source, target) in sources.zip(targets).take(indexes) {
            copy_file(&source, &target).await?;
        }
        copy_file(&snapshot_path(from, base), &snapshot_path(&self.dir, base)).await?;
        Ok(())
    }

    pub(super) async fn sync(&self, base: Offset) -> Result<File, LogError> {
        let path = log_path(&self.dir, base);
        let file = match self.between.as_ref().filter(|b| b.base == base) {
            Some(between) => between.to.clone(),
            // An empty segment has no file in the copy yet.
            None => fs::open(&path, OpenMode::Create)
                .await
                .map_err(LogError::io("open", &path))?,
        };
        let synced = fs::sync_data(&file).await;
        if let Err(error) = &synced {
            self.health.judge_sync(&path, error);
        }
        synced.map_err(LogError::io("fdatasync", &path))?;
        Ok(file)
    }
}

/// A file of a segment that is not there was removed or replaced meanwhile.
fn gone_or(error: io::Error, path: &Path) -> MoveError {
    match error.kind() {
        io::ErrorKind::NotFound => MoveError::Changed,
        _other => MoveError::Log(LogError::io("open", path)(error)),
    }
}
