//! The log's side of a round: it gives the order and puts new segments in place of old ones.
//!
//! Order on the disk (ST-14). The new files are durable under `.cleaned`; any crash up to here leaves the
//! old content. Their indexes are renamed to `.swap`, then the new `.log`, and the directory is synced:
//! that is the point of no return. The old files are set aside, the indexes get their final names, and
//! last the `.log`. A crash in between leaves a `.log.swap`, which says how far it reaches, because a new
//! segment ends where the last old one ended: `recover.rs` does the rest again.
//!
//! Where several new segments take the place, they are renamed to `.swap` from the last to the first, as in
//! Kafka (KAFKA-6264): a `.swap` behind a `.cleaned` is not one yet. They get their final names in order.
//!
//! What the disk has no room for waits (`owed.rs`), and no next round begins before it is done.
//!
//! In memory it is one step right after the point of no return: the new segment is there with an open
//! file, and whoever is opening an old one by its name learns that it was replaced.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::{failpoint, fs};
use thalweg_types::Offset;

use super::groups::Room;
use super::owed::{Forth, Owed};
use super::{
    CleanError, CleanReport, Cleaned, Cleaner, CompactionOrder, Dirt, Order, SegmentFile, SwapAsk,
};
use crate::aborted::Aborted;
use crate::error::LogError;
use crate::handles;
use crate::log::Log;
use crate::name::{CleanStep, index_path, log_path, time_index_path, txn_index_path};
use crate::quarantine::Placed;
use crate::segment::Segment;
use crate::unreadable::unreadable;

impl Log {
    /// Cleans what `order` says. Appends and reads go on meanwhile. Call one at a time.
    ///
    /// # Errors
    /// [`CleanError`]; the log is whole, with more or less of it cleaned.
    pub async fn compact(
        &self,
        cleaner: &Cleaner,
        order: CompactionOrder,
    ) -> Result<CleanReport, CleanError> {
        let delay = order.file_delete_delay;
        match self.work_with(cleaner, order, delay).await {
            Ok(report) => {
                let mut state = self.inner.state.borrow_mut();
                state.cleaned_to = Some(report.end);
                Ok(report)
            }
            Err(error) => {
                self.judge(&error);
                let error = self.placed(error).await;
                // The room that they take may be what was lacking.
                if let Err(left) = self.clear_away().await {
                    tracing::debug!(log = %self.name(), error = %left, "new files stay until the next round");
                }
                Err(error)
            }
        }
    }

    /// Has a damage that a round met taken out of the way of the next one.
    async fn placed(&self, error: CleanError) -> CleanError {
        let (path, position, reason) = match error {
            CleanError::Damaged {
                path,
                position,
                reason,
            } => (path, Some(position), reason),
            CleanError::Io {
                operation: "read",
                path,
                source,
            } if unreadable(&source).is_some() && self.disk_works().await => {
                (path, None, source.to_string())
            }
            error => return error,
        };
        let placed = self.place_damage(&path, position, &reason).await;
        let position = position.unwrap_or_default();
        match placed {
            Placed::Gone => CleanError::Changed,
            Placed::Quarantined => CleanError::Quarantined {
                path,
                position,
                reason,
            },
            Placed::Nowhere => CleanError::Damaged {
                path,
                position,
                reason,
            },
        }
    }

    async fn work_with(
        &self,
        cleaner: &Cleaner,
        order: CompactionOrder,
        delay: Duration,
    ) -> Result<CleanReport, CleanError> {
        self.clear_away().await?;
        let order = self.by_files(order).await?;
        let (mut asks, ended) = cleaner.begin(order).await?;
        while let Some(SwapAsk { olds, news, reply }) = asks.recv().await {
            let _ = reply.send(self.swap_in(olds, news, delay).await);
        }
        ended.await.unwrap_or(Err(CleanError::Stopped))
    }

    /// The order in terms of files. All that is written is durable then: else a crash could take the record
    /// for which an older one, which was durable, was removed, or the marker in the active segment that committed it.
    pub(super) async fn by_files(&self, order: CompactionOrder) -> Result<Order, CleanError> {
        self.flush_in_background().await?;
        let Dirt {
            first_dirty, end, ..
        } = order.dirt;
        let segments: Vec<Rc<Segment>> = {
            let state = self.inner.state.borrow();
            let closed = &state.segments[..state.segments.len() - 1];
            let below = closed.iter().take_while(|segment| segment.base < end);
            below.cloned().collect()
        };
        // From memory: what the last flush has not come to is not in the files. The marker of a transaction
        // may lie behind the end, and still says that its records take nobody's place.
        let aborted = match segments.first() {
            Some(first) => self.aborted_in(first.base, end).await?,
            None => Vec::new(),
        };
        let state = self.inner.state.borrow();
        let files = segments.iter().map(|segment| SegmentFile {
            base: segment.base,
            bytes: segment.size.get(),
        });
        Ok(Order {
            dir: self.inner.dir.to_path_buf(),
            segments: files.collect(),
            first_dirty,
            end,
            now: order.now,
            delete_retention_ms: order.delete_retention_ms,
            room: Room {
                bytes: u64::from(state.options.segment_bytes),
                index_bytes: u64::from(state.options.segment_index_bytes),
                interval_bytes: u64::from(state.options.index_interval_bytes),
            },
            aborted,
            live: order.live,
        })
    }

    async fn swap_in(
        &self,
        olds: Vec<Offset>,
        news: Vec<Cleaned>,
        delay: Duration,
    ) -> Result<(), CleanError> {
        // A flush, a removal or a close that is under way has to do with the old segments.
        let _turns = self.both_turns().await;
        self.check_open()?;
        if !self.still_has(&olds) {
            return Err(CleanError::Changed);
        }
        let bases: Vec<Offset> = news.iter().map(|new| new.base).collect();
        if let Err(error) = self.commit(&bases).await {
            self.check_open()?;
            self.owe(Owed::Back(bases)).await?;
            return Err(error.into());
        }
        let news = self.take_over(&olds, news);
        self.owe(Owed::Forth(Forth::new(olds, news, delay))).await?;
        self.remove_useless_snapshots().await?;
        Ok(())
    }

    /// True when these segments lie side by side in the log and are closed.
    fn still_has(&self, olds: &[Offset]) -> bool {
        let state = self.inner.state.borrow();
        let closed = &state.segments[..state.segments.len() - 1];
        let first = closed.iter().position(|s| Some(&s.base) == olds.first());
        first.is_some_and(|first| {
            let there = closed[first..].iter().map(|s| s.base).take(olds.len());
            there.eq(olds.iter().copied())
        })
    }

    /// Renames to `.swap`, durably: all indexes, then each `.log`, the first of the segments last.
    async fn commit(&self, bases: &[Offset]) -> Result<(), LogError> {
        let dir = &self.inner.dir;
        for path in bases.iter().flat_map(|base| indexes_of(dir, *base)) {
            let (from, to) = (CleanStep::Cleaned.of(&path), CleanStep::Swap.of(&path));
            // Where no transaction was aborted there is no index of them.
            let renamed = unless_missing(fs::rename(&from, &to).await);
            self.changed("rename", &from, renamed)?;
        }
        self.or_offline("sync", dir, handles::sync_dir(dir).await)?;
        failpoint::pass("compaction: indexes renamed");
        for base in bases.iter().rev() {
            let log = log_path(dir, *base);
            let (from, to) = (CleanStep::Cleaned.of(&log), CleanStep::Swap.of(&log));
            self.changed("rename", &from, fs::rename(&from, &to).await)?;
            failpoint::pass("compaction: segment renamed");
        }
        self.or_offline("sync", dir, handles::sync_dir(dir).await)?;
        failpoint::pass("compaction: swap durable");
        Ok(())
    }

    /// From here on reads find the new segments.
    fn take_over(&self, olds: &[Offset], news: Vec<Cleaned>) -> Vec<Rc<Segment>> {
        let mut state = self.inner.state.borrow_mut();
        let interval = u64::from(state.options.index_interval_bytes);
        let news: Vec<_> = news
            .into_iter()
            .map(|cleaned| {
                let new = Segment::cold(&self.inner.dir, cleaned.base, interval, cleaned.bytes);
                new.set_warm(cleaned.file, cleaned.indexes);
                new.set_first_timestamp(cleaned.first_timestamp);
                new.has_no_name_yet();
                *new.aborted.borrow_mut() = Aborted::of(cleaned.aborted);
                new
            })
            .collect();
        if let (Some(first), Some(last)) = (olds.first(), olds.last()) {
            let first = state.segment_for(*first);
            let range = first..first + olds.len();
            let gone = state.segments.splice(range, news.iter().map(Rc::clone));
            gone.for_each(|old| old.retire());
            state.tail.forget_up_to(*last);
        }
        state.max_timestamp_hint = None;
        news
    }

    /// What a cleaner could not write or sync says of the disk what a failed append or flush does (R1).
    fn judge(&self, error: &CleanError) {
        let CleanError::Io {
            operation,
            path,
            source,
        } = error
        else {
            return;
        };
        let health = &self.inner.state.borrow().options.health;
        health.judge_operation(operation, path, source);
    }
}

/// The index files of a segment.
pub(super) fn indexes_of(dir: &Path, base: Offset) -> [PathBuf; 3] {
    [
        index_path(dir, base),
        time_index_path(dir, base),
        txn_index_path(dir, base),
    ]
}

pub(super) fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Renames the files of a swapped segment to their final names, the `.log` last, durably.
///
/// # Errors
/// [`LogError::Io`]; of the operation `sync` where that has failed.
pub(super) async fn settle_names(dir: &Path, base: Offset) -> Result<(), LogError> {
    for path in indexes_of(dir, base) {
        let swap = CleanStep::Swap.of(&path);
        let renamed = unless_missing(fs::rename(&swap, &path).await);
        renamed.map_err(LogError::io("rename", swap))?;
    }
    let sync = async || {
        let synced = handles::sync_dir(dir).await;
        synced.map_err(LogError::io("sync", dir))
    };
    sync().await?;
    failpoint::pass("compaction: indexes in place");
    let log = log_path(dir, base);
    let swap = CleanStep::Swap.of(&log);
    fs::rename(&swap, &log)
        .await
        .map_err(LogError::io("rename", swap))?;
    failpoint::pass("compaction: segment in place");
    sync().await
}
