//! The last of a copy, and whether it is one.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_reactor::{failpoint, fs};

use super::{FutureLog, MoveError, Standing, copy_file, remove};
use crate::error::LogError;
use crate::flush::Reach;
use crate::log::Log;
use crate::next_segment;
use crate::partition_files::{LEADER_EPOCHS, PARTITION_METADATA};
use crate::quarantine::QUARANTINE;
use crate::removal::files_of;
use crate::segment::Segment;

/// Indexes take one byte for so many of batches, or fewer.
const INDEXES_SHARE: u64 = 64;

/// Closed segments whose copies are not known to be on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unclosed {
    /// How many; each takes several flushes.
    pub segments: usize,
    /// Their bytes of batches.
    pub bytes: u64,
}

impl FutureLog {
    /// Copies what is left, and makes all of the copy durable. Nothing may be appended to the log meanwhile. As
    /// long as the [`Standing`] is held, the two are the same.
    ///
    /// # Errors
    /// See [`MoveError`]; [`MoveError::Changed`] when the log has begun a segment meanwhile.
    pub async fn complete<'a>(&mut self, log: &'a Log) -> Result<Standing<'a>, MoveError> {
        let completed = self.try_complete(log).await;
        self.judged(completed)
    }

    async fn try_complete<'a>(&mut self, log: &'a Log) -> Result<Standing<'a>, MoveError> {
        // What lies beside closed segments is copied as it is.
        log.flush_soon(Reach::ClosedSegments).await?;
        let standing = log.stand_still().await;
        match log.settle_swap().await {
            Err(_) if log.check_open().is_ok() => return Err(MoveError::Changed),
            other => other?,
        }
        next_segment::settled(&log.inner).await;
        while self.try_step(log).await? > 0 {}
        let segments = log.inner.state.borrow().served().to_vec();
        let (active, closed) = segments.split_last().ok_or(MoveError::Changed)?;
        if closed
            .iter()
            .any(|segment| segment.aborted.borrow().is_unsaved())
        {
            return Err(MoveError::Changed);
        }
        for segment in closed.iter().chain([active]) {
            let copied = self.copied.get(&segment.base);
            if copied.is_some_and(|copied| !copied.is_whole) {
                self.copy_beside(log.dir(), segment).await?;
                self.sync(segment.base).await?;
            }
        }
        self.copy_small_files(log.dir(), &segments).await?;
        failpoint::pass("move: all copied");
        let synced = fs::sync_dir(&self.dir).await;
        if let Err(error) = &synced {
            self.health.judge_sync(&self.dir, error);
        }
        synced.map_err(LogError::io("sync", &self.dir))?;
        match self.is_copy_of(log) {
            true => Ok(standing),
            false => Err(MoveError::Changed),
        }
    }

    /// Epochs, quarantine and snapshots; what else is in the folder goes.
    async fn copy_small_files(
        &self,
        from: &Path,
        segments: &[Rc<Segment>],
    ) -> Result<(), MoveError> {
        let listed = fs::list_dir(from).await;
        let listed = listed.map_err(LogError::io("list", from))?;
        let is_snapshot = |name: &str| name.ends_with(".snapshot");
        let is_wanted =
            |name: &str| is_snapshot(name) || [LEADER_EPOCHS, QUARANTINE].contains(&name);
        let names = listed.iter().filter_map(|entry| entry.name.to_str());
        let wanted: Vec<&str> = names.filter(|name| is_wanted(name)).collect();
        for name in &wanted {
            let to = self.dir.join(name);
            let is_there = is_snapshot(name)
                && fs::exists(&to)
                    .await
                    .map_err(LogError::io("look for", &to))?;
            if !is_there {
                copy_file(&from.join(name), &to).await?;
            }
        }
        let of_segments = segments
            .iter()
            .flat_map(|segment| files_of(&self.dir, segment.base));
        let mut kept: Vec<PathBuf> = of_segments.collect();
        kept.extend(wanted.iter().map(|name| self.dir.join(name)));
        kept.push(self.dir.join(PARTITION_METADATA));
        let listed = fs::list_dir(&self.dir).await;
        for entry in listed.map_err(LogError::io("list", &self.dir))? {
            let path = self.dir.join(&entry.name);
            if !kept.contains(&path) {
                remove(&path).await?;
            }
        }
        Ok(())
    }

    /// Bytes that the log has and the copy lacks.
    #[must_use]
    pub fn missing_bytes(&self, log: &Log) -> u64 {
        let state = log.inner.state.borrow();
        let missing = |segment: &Rc<Segment>| segment.size.get() - self.copied_of(segment);
        state.served().iter().map(missing).sum()
    }

    /// Room that the rest of the copy takes, with the indexes, beside what lies in its folder already.
    #[must_use]
    pub fn room_needed(&self, log: &Log) -> u64 {
        let state = log.inner.state.borrow();
        let missing = |segment: &Rc<Segment>| {
            let found = self.found.get(&segment.base).map_or(0, |found| found.bytes);
            let there = self.copied_of(segment).max(found);
            segment.size.get().saturating_sub(there)
        };
        let missing: u64 = state.served().iter().map(missing).sum();
        missing + missing / INDEXES_SHARE
    }

    fn copied_of(&self, segment: &Rc<Segment>) -> u64 {
        let copied = self.copied.get(&segment.base);
        let copied = copied.filter(|copied| Rc::ptr_eq(segment, &copied.of));
        copied.map_or(0, |copied| copied.bytes.min(segment.size.get()))
    }

    /// The closed segments whose copies are not made durable yet.
    #[must_use]
    pub fn unclosed(&self, log: &Log) -> Unclosed {
        let state = log.inner.state.borrow();
        let closed = state.served().iter().rev().skip(1);
        let is_whole = |segment: &&Rc<Segment>| {
            let copied = self.copied.get(&segment.base);
            copied.is_some_and(|copied| copied.is_whole && Rc::ptr_eq(segment, &copied.of))
        };
        let mut unclosed = Unclosed::default();
        for segment in closed.filter(|segment| !is_whole(segment)) {
            unclosed.segments += 1;
            unclosed.bytes += segment.size.get();
        }
        unclosed
    }

    fn is_copy_of(&self, log: &Log) -> bool {
        let state = log.inner.state.borrow();
        let served = state.served();
        let is_same = |segment: &Rc<Segment>| {
            let copied = self.copied.get(&segment.base);
            copied.is_some_and(|copied| {
                Rc::ptr_eq(segment, &copied.of) && copied.bytes == segment.size.get()
            })
        };
        served.len() == self.copied.len() && served.iter().all(is_same)
    }
}
