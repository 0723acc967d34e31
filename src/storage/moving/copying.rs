//! Copying what is missing: segment by segment, slice by slice.

use std::io;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::failpoint;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::Offset;
use thalweg_types::limits::MOVE_SLICE_BYTES;

use super::{Between, Copied, FoundCopy, FutureLog, MoveError, copy_file, remove};
use crate::error::LogError;
use crate::log::Log;
use crate::name::{log_path, snapshot_path};
use crate::removal::files_of;
use crate::segment::Segment;
use crate::unreadable::unreadable;

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
            (state.served().to_vec(), state.written_end)
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
            let is_settled = segment.indexes_saved.get() && segment.is_named();
            if is_closed && segment.is_synced() && is_settled {
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
            found.is_ok_and(|at| {
                Rc::ptr_eq(&segments[at], &copied.of) && copied.bytes <= copied.of.size.get()
            })
        };
        let gone: Vec<Offset> = self
            .copied
            .iter()
            .filter(|(base, copied)| !is_there(base, copied))
            .map(|(base, _)| *base)
            .collect();
        for base in gone {
            self.between.take_if(|between| between.base == base);
            self.remove_files(base).await?;
            self.copied.remove(&base);
        }
        Ok(())
    }

    /// Removes all that was copied, and says how much that was: others need the room. The copy begins anew.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn give_back(&mut self) -> Result<u64, LogError> {
        self.between = None;
        let mut bytes = 0;
        while let Some(base) = self.copied.keys().next().copied() {
            self.remove_files(base).await?;
            bytes += self.copied.remove(&base).map_or(0, |copied| copied.bytes);
        }
        while let Some(base) = self.found.keys().next().copied() {
            self.remove_files(base).await?;
            bytes += self.found.remove(&base).map_or(0, |found| found.bytes);
        }
        self.reached = Offset::ZERO;
        Ok(bytes)
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
        let found = self.found.remove(&base);
        let is_like = |found: &FoundCopy| is_closed && found.bytes == size;
        let is_whole = match found.filter(is_like).and_then(|found| found.believed) {
            Some(modified_ms) => {
                let path = segment.path();
                let meta = fs::metadata(&path).await;
                let meta = meta.map_err(|error| gone_or(error, &path))?;
                meta.modified_ms == modified_ms
            }
            None => false,
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
        let len = usize::try_from(wanted).unwrap_or(usize::MAX);
        let bytes = match failpoint::reach("move: read") {
            Ok(()) => fs::read_at(&from, at, len).await,
            Err(error) => Err(error),
        };
        still_there(segment)?;
        let bytes = bytes.map_err(|error| unread(error, &from, at))?;
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
                // What has that name may be what took its place.
                still_there(segment)?;
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
    pub(super) async fn copy_beside(
        &self,
        from: &Path,
        segment: &Segment,
    ) -> Result<(), MoveError> {
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

fn unread(error: io::Error, from: &File, position: u64) -> MoveError {
    match unreadable(&error) {
        Some(errno) => MoveError::Unreadable {
            path: from.path().to_owned(),
            position,
            errno,
        },
        None => MoveError::Log(LogError::io("read", from.path())(error)),
    }
}

/// A segment that was removed or replaced meanwhile is copied no further.
fn still_there(segment: &Segment) -> Result<(), MoveError> {
    match segment.is_retired() {
        true => Err(MoveError::Changed),
        false => Ok(()),
    }
}

/// A file of a segment that is not there was removed or replaced meanwhile.
fn gone_or(error: io::Error, path: &Path) -> MoveError {
    match error.kind() {
        io::ErrorKind::NotFound => MoveError::Changed,
        _other => MoveError::Log(LogError::io("open", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use thalweg_reactor::fs;
    use thalweg_types::Uuid;

    use super::FutureLog;
    use crate::error::LogError;
    use crate::whole_log_tests::{TOPIC_ID, TestLog, name, on_plain_engine};
    use crate::{DirHealth, LogOptions, MoveError};

    /// What has the name of a segment may be what compaction has put in its place.
    #[test]
    fn kip_113_a_segment_that_is_replaced_under_the_copy_is_taken_up_again() {
        on_plain_engine(|root| async move {
            let (from, to) = (root.join("a"), root.join("b"));
            for dir in [&from, &to] {
                fs::create_dir(dir).await.expect("made");
            }
            let options = LogOptions {
                segment_bytes: 1_000,
                ..LogOptions::default()
            };
            let log = TestLog::create(&from, options).await;
            for _ in 0..5 {
                log.append(20);
                log.settle().await;
            }
            log.log.flush().await.expect("flushed");
            let health = DirHealth::new(&to);
            let made = FutureLog::create(&health, name(), TOPIC_ID, Uuid([9; 16])).await;
            let mut future = made.expect("made");
            let segment = Rc::clone(&log.log.inner.state.borrow().segments[0]);
            future.begin(&segment, true).await.expect("begun");
            assert!(segment.cool());
            let whole = std::fs::read(segment.path()).expect("read");
            std::fs::write(segment.path(), &whole[..10]).expect("written");
            let copied = future.copy(&segment, segment.size.get()).await;
            // It is the log's, and not what it was.
            assert!(matches!(copied, Err(MoveError::Log(LogError::Io { .. }))));
            future.between = None;
            segment.retire();
            let copied = future.copy(&segment, segment.size.get()).await;
            assert!(matches!(copied, Err(MoveError::Changed)));
            assert!(MoveError::Changed.may_pass());
        });
    }
}
