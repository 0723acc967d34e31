//! Taking whole segments off the start of a log.
//!
//! Order (ST-14): the caller finds what is due ([`Log::due`]), moves the log's start
//! ([`Log::raise_start`]) and makes that durable; then files are renamed to `.deleted`, the oldest
//! segment first and of each the `.log` behind its indexes, and unlinked in a while. A crash before the start is
//! durable leaves the old content; after it, the new one: what is still there below the start is served to
//! nobody, and due at the next look. On a full disk nothing can be made durable before something is
//! removed: [`StartKept::ByFirstSegment`]. Reads in flight hold open files.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{failpoint, fs, task, time};
use thalweg_types::{Offset, TimestampMs};

use crate::error::{LogError, ReadError, is_lack_of_room};
use crate::handles;
use crate::health::DirHealth;
use crate::leftovers::{Leftover, Leftovers};
use crate::listing::list;
use crate::log::Log;
use crate::name::{
    deleted_path, index_path, log_path, snapshot_path, time_index_path, txn_index_path,
};
use crate::next_segment;
use crate::retention::{Outline, Reasons, RetentionLimits, Sweep, Verdict, Written};
use crate::segment::Segment;
use crate::snapshots::useless;

/// Segments at the start of a log that are to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Where the log begins without them; not below where it begins now.
    pub start: Offset,
    /// How many, and why.
    pub reasons: Reasons,
}

/// Whether the place where a log begins outlives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartKept {
    /// The log start checkpoint holds it.
    Durable,
    /// It does not, for lack of room, say: after a crash the log begins with its first segment. So
    /// that no younger one is gone then, each removal is made durable before the next.
    ByFirstSegment,
}

/// What was taken off a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Segments.
    pub segments: usize,
    /// Bytes of their batches.
    pub bytes: u64,
}

/// What came of taking a segment's files away.
enum Taken {
    Away,
    /// There was no room for that.
    NotNow,
}

/// What a look at a log found.
struct Found {
    due: Option<Due>,
    /// All segments are due, the active one too.
    active_too: bool,
}

/// The files of the segment at `base`, in the order in which they go. Without its `.log`, the others
/// belong to nothing (ST-9).
pub(crate) fn files_of(dir: &Path, base: Offset) -> [PathBuf; 4] {
    [
        log_path(dir, base),
        index_path(dir, base),
        time_index_path(dir, base),
        txn_index_path(dir, base),
    ]
}

/// The same, in the order in which retention takes them away. A `.log` without indexes is whole, so that one which can
/// not go yet stays a segment; an index without its `.log` would say that this is lost. What was aborted is served
/// as committed without the index that says so, so that goes last: what is left of it belongs to nothing.
pub(crate) fn in_order_of_removal(dir: &Path, base: Offset) -> [PathBuf; 4] {
    let [log, offsets, times, aborted] = files_of(dir, base);
    [offsets, times, log, aborted]
}

impl Log {
    /// Which segments are due. When all are, the active one is closed first and goes with them. Nothing
    /// is removed by this.
    ///
    /// # Errors
    /// [`ReadError`] when the age of a segment can not be told.
    pub async fn due(
        &self,
        limits: RetentionLimits,
        high_watermark: Offset,
        now: TimestampMs,
    ) -> Result<Option<Due>, ReadError> {
        let found = self.look(limits, high_watermark, now).await?;
        if !found.active_too {
            return Ok(found.due);
        }
        self.roll_active().await;
        // Meanwhile something may have been appended to it that is not due.
        Ok(self.look(limits, high_watermark, now).await?.due)
    }

    async fn look(
        &self,
        limits: RetentionLimits,
        high_watermark: Offset,
        now: TimestampMs,
    ) -> Result<Found, ReadError> {
        let mut sweep = Sweep {
            limits,
            start: self.start_offset(),
            high_watermark,
            now,
            bytes_left: self.size_bytes(),
        };
        let (mut reasons, mut start) = (Reasons::default(), sweep.start);
        let mut active_too = false;
        while let Some((segment, outline)) = self.outline(reasons.segments())? {
            let verdict = match sweep.look(&outline) {
                Verdict::AskAge => {
                    let written = self.written(&segment).await?;
                    sweep.by_age(&outline, written)
                }
                told => told,
            };
            let Verdict::Goes(reason) = verdict else {
                break;
            };
            if outline.is_last {
                active_too = true;
                break;
            }
            reasons.count(reason);
            start = start.max(outline.end);
        }
        let due = (reasons.segments() > 0).then_some(Due { start, reasons });
        Ok(Found { due, active_too })
    }

    fn outline(&self, index: usize) -> Result<Option<(Rc<Segment>, Outline)>, ReadError> {
        let state = self.inner.state.borrow();
        state.check_readable()?;
        Ok(state.segments.get(index).map(|segment| {
            let outline = Outline {
                end: state.segment_end(index),
                bytes: segment.size.get(),
                is_last: index + 1 == state.segments.len(),
            };
            (Rc::clone(segment), outline)
        }))
    }

    pub(crate) async fn written(&self, segment: &Rc<Segment>) -> Result<Written, ReadError> {
        let largest = match self.max_of(segment).await {
            Ok(max) => max.map(|max| max.timestamp),
            // Damage must not keep a log from ever getting smaller: the file has an age too.
            Err(ReadError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        // It may be about to get its name.
        next_segment::settled(&self.inner).await;
        let path = segment.path();
        let meta = fs::metadata(&path)
            .await
            .map_err(ReadError::io("stat", &path))?;
        Ok(Written {
            largest,
            modified: TimestampMs(meta.modified_ms),
        })
    }

    /// Where the segments end that [`Log::remove_segments`] takes out. Whoever needs what their batches say
    /// ([`Log::walk_headers`]) stores it at this offset or above before ([`Log::store_snapshot`]).
    #[must_use]
    pub fn removed_end(&self, below: Offset) -> Offset {
        let state = self.inner.state.borrow();
        state.segments[state.segment_for(below)].base
    }

    /// Takes out every segment that ends at or below `below`, with its indexes, and the snapshots that
    /// are of no use then. Their files are unlinked after `delay`, or at the next start. `kept` says
    /// whether the log's start is durable at `below` or above. On a disk that has no room even for a removal
    /// they stay, and go when this is called again.
    ///
    /// # Errors
    /// [`LogError::Io`] when a rename or its fsync fails, which takes the log offline;
    /// [`LogError::Closed`] and [`LogError::Offline`].
    ///
    /// # Panics
    /// When the log begins below `below`.
    pub async fn remove_segments(
        &self,
        below: Offset,
        kept: StartKept,
        delay: Duration,
    ) -> Result<Removed, LogError> {
        assert!(
            below <= self.start_offset(),
            "what is served is not removed"
        );
        // A flush that is under way would write indexes anew.
        let _turns = self.both_turns().await;
        self.check_open()?;
        match self.settle_swap().await {
            Err(error) if self.check_open().is_ok() => {
                tracing::warn!(log = %self.name(), %error,
                    "there is no room to finish a compaction, before which no segment is removed: tried again at the next look");
                return Ok(Removed::default());
            }
            other => other?,
        }
        failpoint::pass("removal: start kept");
        let gone = self.take_out(below, kept);
        let mut aside = Vec::with_capacity(2 * gone.len());
        let mut removed = Removed::default();
        for segment in &gone {
            match self.take_away(segment.base, &mut aside).await? {
                Taken::Away => segment.drop_memory(),
                Taken::NotNow => break,
            }
            if kept == StartKept::ByFirstSegment {
                let dir = &self.inner.dir;
                self.or_offline("sync", dir, handles::sync_dir(dir).await)?;
            }
            removed.segments += 1;
            removed.bytes += segment.size.get();
        }
        self.put_back(&gone[removed.segments..]);
        // Indexes of a segment that stays may be among it.
        self.unlink_later(aside, delay);
        if removed.segments == 0 {
            return Ok(removed);
        }
        failpoint::pass("removal: all renamed");
        self.inner.files_unsynced();
        self.remove_useless_snapshots().await?;
        let state = self.inner.state.borrow();
        let counters = &mut state.options.metrics.borrow_mut().counters;
        counters.segments_deleted += removed.segments as u64;
        counters.segments_deleted_bytes += removed.bytes;
        Ok(removed)
    }

    fn take_out(&self, below: Offset, kept: StartKept) -> Vec<Rc<Segment>> {
        let mut state = self.inner.state.borrow_mut();
        let behind = state.segments.iter().skip(1);
        let mut count = behind.take_while(|next| next.base <= below).count();
        // An empty file that has no name yet would tell no start where the log had come to.
        let is_nameless = state.next.is_naming() && state.active().size.get() == 0;
        if kept == StartKept::ByFirstSegment && is_nameless && count + 1 == state.segments.len() {
            count = count.saturating_sub(1);
        }
        let gone: Vec<_> = state.segments.drain(..count).collect();
        gone.iter().for_each(|segment| segment.take_out());
        gone
    }

    /// What was taken out and can not go yet, which the next look tries again.
    fn put_back(&self, left: &[Rc<Segment>]) {
        if let Some(first) = left.first() {
            tracing::warn!(log = %self.name(), base = %first.base, segments = left.len(),
                "there is no room even to remove segments: tried again at the next look");
        }
        left.iter().for_each(|segment| segment.put_back());
        let mut state = self.inner.state.borrow_mut();
        state.segments.splice(..0, left.iter().cloned());
    }

    /// Takes the files of a segment away, which stays one where there is no room for that.
    async fn take_away(&self, base: Offset, aside: &mut Vec<PathBuf>) -> Result<Taken, LogError> {
        let [needed @ .., aborted] = in_order_of_removal(&self.inner.dir, base);
        for path in needed {
            match rename_or_remove(&path, aside).await {
                Err(error) if is_lack_of_room(&error) => return Ok(Taken::NotNow),
                other => self.or_offline("take away", &path, other)?,
            }
        }
        match rename_or_remove(&aborted, aside).await {
            Err(error) if is_lack_of_room(&error) => {
                tracing::warn!(path = %aborted.display(), %error, "removed at the next start");
            }
            other => self.or_offline("take away", &aborted, other)?,
        }
        Ok(Taken::Away)
    }

    pub(crate) async fn remove_useless_snapshots(&self) -> Result<(), LogError> {
        let found = list(&self.inner.dir).await?.snapshots;
        let (of_use, end) = {
            let state = self.inner.state.borrow();
            let mut of_use: BTreeSet<_> = state.segments.iter().map(|s| s.base).collect();
            let first = of_use.first().copied();
            of_use.extend(state.lasting_snapshot.filter(|at| Some(*at) >= first));
            (of_use, state.written_end)
        };
        for at in useless(&found, &of_use, end) {
            let path = snapshot_path(&self.inner.dir, at);
            match fs::unlink(&path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "a useless snapshot stays");
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Gives a file that is to go another name, which `aside` is told, or removes it where there is no room for that.
pub(crate) async fn rename_or_remove(path: &Path, aside: &mut Vec<PathBuf>) -> io::Result<()> {
    let to = deleted_path(path);
    let done = match fs::rename(path, &to).await {
        Ok(()) => {
            failpoint::pass("removal: file renamed");
            aside.push(to);
            Ok(())
        }
        // A longer name may need a block that a full disk has not; without the file it has.
        Err(error) if is_lack_of_room(&error) => fs::unlink(path).await,
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Log {
    /// Unlinks files in a while, and again until they are gone.
    pub(crate) fn unlink_later(&self, files: Vec<PathBuf>, delay: Duration) {
        if files.is_empty() {
            return;
        }
        let (leftovers, health) = self.leftovers();
        task::spawn(async move {
            time::sleep(delay).await;
            let files = files.into_iter().map(Leftover::File);
            leftovers.remove(files, &health).await;
        });
    }

    /// Where to leave what can not be removed, and whether its disk works.
    pub(crate) fn leftovers(&self) -> (Rc<Leftovers>, Arc<DirHealth>) {
        let state = self.inner.state.borrow();
        let options = &state.options;
        (Rc::clone(&options.leftovers), Arc::clone(&options.health))
    }
}
