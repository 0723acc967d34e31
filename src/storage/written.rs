//! What is there after a kill: a *mark* says up to where a log was written.
//!
//! A write that has ended is in the page cache, and a process that is killed takes nothing from there. So
//! a start on the same boot of the system and the same mount of the file system checks only what lies
//! above the mark of each log, and a log that does not reach to its mark is damaged: nothing that a broker does
//! to a log takes its end back. Nothing of a mark is made durable: after anything but a kill it is
//! worthless, and is known to be by [`fs::cache_lifetime`].
//!
//! The marks of all logs of a directory are lines of one file, so that many logs are marked by one write: a line
//! with boot and mount, then [`BoundOffsets`]. A start goes by the batch headers from the last entry of an index to the mark. Now and then a log is
//! *saved* ([`Log::save_way`]): its indexes and a snapshot of its owner's state are put beside it, not
//! durably either, so that the way to the mark stays short.
//!
//! Marks hold over starts: the file of the last life stays until every log is open, and is replaced by the
//! marks of the logs as they are then, and the old ones of those that could not be opened. Only what was opened is
//! written to, and nothing below its mark is cut.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::Offset;
use thalweg_types::limits::{MARK_BYTES_MIN, MARK_SEGMENT_SHARE};

use crate::dir::BoundOffsets;
use crate::error::{LogError, is_lack_of_room};
use crate::log::{Log, Stage, State};
use crate::name::{index_path, snapshot_path, time_index_path};

/// Name of the file of all marks of a log directory.
pub(crate) const FILE: &str = "thalweg-written-checkpoint";
/// A larger one is not read.
const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Marks of a log directory and what they are good for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    path: PathBuf,
    /// As [`fs::cache_lifetime`] tells it for this life; without it no mark is written.
    lifetime: Option<String>,
    found: BoundOffsets,
    /// The file that they were in is of this boot and mount.
    hold: bool,
}

impl Marks {
    /// Reads the marks of the last life, if they hold.
    pub(crate) async fn read(dir: &Path) -> io::Result<Marks> {
        let path = dir.join(FILE);
        // Without it, or where it can not be told, the next start checks more.
        let lifetime = fs::cache_lifetime(dir).await.unwrap_or(None);
        let found = match fs::read_file(&path, FILE_BYTES_MAX).await {
            Ok(bytes) => parse(&bytes, lifetime.as_deref()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge
                ) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Marks {
            path,
            lifetime,
            hold: found.is_some(),
            found: found.unwrap_or_default(),
        })
    }

    /// Takes the file away: what it says is not so.
    pub(crate) async fn take_away(&self) -> io::Result<()> {
        match fs::unlink(&self.path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Those of this life only.
    pub(crate) fn believing_none(self) -> Marks {
        Marks {
            found: BoundOffsets::default(),
            hold: false,
            ..self
        }
    }

    /// True when a process of this boot has opened the logs and nobody has changed them since but such processes: a
    /// repair takes the marks away.
    pub(crate) fn hold(&self) -> bool {
        self.hold
    }

    /// Marks of the last life that hold in this one.
    pub(crate) fn found(&self) -> &BoundOffsets {
        &self.found
    }

    /// Writes all marks.
    pub(crate) async fn write(&self, marks: &BoundOffsets) -> Result<(), LogError> {
        let Some(lifetime) = &self.lifetime else {
            return Ok(());
        };
        let text = format!("{lifetime}\n{}", marks.format(true));
        fs::replace_file(&self.path, Bytes::from(text))
            .await
            .map_err(LogError::io("write", &self.path))
    }
}

/// `None` when they are of another boot or mount, or damaged.
fn parse(bytes: &[u8], lifetime: Option<&str>) -> Option<BoundOffsets> {
    let (found, marks) = decode(bytes)?;
    (Some(found) == lifetime).then_some(marks)
}

/// Boot and mount, and the marks that hold there; `None` when the file is damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<(&str, BoundOffsets)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let lifetime = std::str::from_utf8(&bytes[..end]).ok()?;
    Some((lifetime, BoundOffsets::parse(&bytes[end + 1..])?))
}

/// A longer snapshot is not compared with the one before it.
const SHORT_SNAPSHOT_BYTES_MAX: usize = 64;

/// How far the files beside a log lead a start on its way to the mark.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    segment: Offset,
    bytes: u64,
    /// Offset of the snapshot that the next one replaces.
    snapshot: Option<Offset>,
    /// What that one says, if it is short and of this life.
    content: Option<Vec<u8>>,
}

impl Saved {
    /// They lead to byte `bytes` of `segment`.
    pub(crate) fn up_to(segment: Offset, bytes: u64, snapshot: Option<Offset>) -> Saved {
        Saved {
            segment,
            bytes,
            snapshot,
            content: None,
        }
    }

    fn says(&self, snapshot: &[u8]) -> bool {
        self.content.as_deref() == Some(snapshot)
    }

    /// There are none yet: the log begins at `start`.
    pub(crate) fn nothing(start: Offset) -> Saved {
        Saved::up_to(start, 0, None)
    }
}

impl State {
    fn is_way_long(&self) -> bool {
        if self.stage != Stage::Open {
            return false;
        }
        let active = self.active();
        let size = active.size.get();
        let since = match active.base == self.saved.segment {
            true => size.saturating_sub(self.saved.bytes),
            false => size,
        };
        since >= MARK_BYTES_MIN.max(size / MARK_SEGMENT_SHARE)
    }

    /// The snapshot that one at `at` takes the place of: not that with which a segment begins.
    fn snapshot_to_replace(&self, at: Offset) -> Option<Offset> {
        let is_base = |at| self.segments.iter().any(|s| s.base == at);
        let before = self.saved.snapshot;
        let lasts = |before| self.lasting_snapshot == Some(before);
        before.filter(|before| *before < at && !is_base(*before) && !lasts(*before))
    }

    /// Markers in closed segments are not looked for at a start that believes a mark above them.
    fn has_untold_markers(&self) -> bool {
        let from = self.segment_for(self.recovery_point);
        let closed = self.segments.len().saturating_sub(1);
        let closed = self.segments.get(from..closed).unwrap_or_default();
        closed.iter().any(|s| s.aborted.borrow().is_unsaved())
    }
}

impl Log {
    /// Everything below needs no check after a kill, once the directory's file of marks says so
    /// ([`crate::LogDir::write_marks`]). Its owner has told of every marker below
    /// ([`Log::note_aborted`]). `None` while nothing new can be said: the mark before it holds. So it is
    /// while there was no room for the file of leader epochs, which then come from the batches (ST-11).
    #[must_use]
    pub fn mark(&self) -> Option<Offset> {
        let state = self.inner.state.borrow();
        match state.stage {
            Stage::Open | Stage::Closing => {}
            Stage::Closed | Stage::Offline(_) => return None,
        }
        let is_told = !state.has_untold_markers() && state.unstored_epoch().is_none();
        is_told.then_some(state.written_end)
    }

    /// True when a start after a kill would have to go by many headers, or tell of aborted transactions anew.
    #[must_use]
    pub fn is_way_long(&self) -> bool {
        let state = self.inner.state.borrow();
        state.is_way_long() || (state.stage == Stage::Open && state.has_untold_markers())
    }

    /// Saves what leads a start after a kill to the mark: the indexes of the active segment, and `snapshot`,
    /// which describes the log below `at`. Not durable.
    ///
    /// # Errors
    /// [`LogError::Io`]; what was there before leads as far as it did, unless only one of the two indexes was
    /// brought up to date: a start that finds them apart goes by the headers of the whole segment. [`LogError::Closed`]
    /// and [`LogError::Offline`].
    ///
    /// # Panics
    /// When `at` lies above the written end.
    pub async fn save_way(&self, at: Offset, snapshot: Vec<u8>) -> Result<(), LogError> {
        let (segment, bytes) = {
            let state = self.inner.state.borrow();
            assert!(at <= state.written_end, "only what is written is described");
            let active = state.active();
            (active.clone(), active.size.get())
        };
        let _turn = self.inner.index_turn.take().await;
        self.check_open()?;
        let dir = &self.inner.dir;
        let unsaved: Vec<_> = {
            let state = self.inner.state.borrow();
            let unsaved = state
                .segments
                .iter()
                .filter(|s| s.aborted.borrow().is_unsaved());
            unsaved.cloned().collect()
        };
        for segment in unsaved {
            // What is not scanned again is not told again.
            let saved = segment.save_aborted().await.map_err(LogError::io(
                "write the aborted transactions of",
                &segment.path(),
            ));
            self.inner.judged(saved)?;
        }
        // A segment that was closed meanwhile has written them, or does so later, durably.
        if let Some(warm) = segment.warm_now().filter(|_| !segment.indexes_saved.get()) {
            let (offsets, times) = {
                let indexes = warm.indexes.borrow();
                (indexes.offsets.encode(), indexes.times.encode())
            };
            for (path, bytes) in [
                (index_path(dir, segment.base), offsets),
                (time_index_path(dir, segment.base), times),
            ] {
                let written = fs::extend_file(&path, Bytes::from(bytes)).await;
                self.inner
                    .judged(written.map_err(LogError::io("write", &path)))?;
            }
        }
        self.save_snapshot(at, snapshot, (segment.base, bytes))
            .await
    }

    /// Puts `snapshot` in the place of the one that was saved before, unless what lies at `at` is on the disk.
    async fn save_snapshot(
        &self,
        at: Offset,
        snapshot: Vec<u8>,
        (segment, bytes): (Offset, u64),
    ) -> Result<(), LogError> {
        let (before, is_there) = {
            let state = self.inner.state.borrow();
            let is_there = state.lasting_snapshot == Some(at);
            (state.snapshot_to_replace(at), is_there)
        };
        let short = Some(&snapshot).filter(|content| content.len() <= SHORT_SNAPSHOT_BYTES_MAX);
        let saved = Saved {
            content: short.cloned(),
            ..Saved::up_to(segment, bytes, Some(at))
        };
        let is_renamed = match before.filter(|_| !is_there) {
            Some(before) => self.rename_snapshot(before, at, &snapshot).await?,
            None => false,
        };
        if !is_renamed && !is_there {
            let path = snapshot_path(&self.inner.dir, at);
            let written = fs::replace_file(&path, Bytes::from(snapshot)).await;
            self.inner
                .judged(written.map_err(LogError::io("write", &path)))?;
        }
        self.inner.state.borrow_mut().saved = saved;
        if let Some(before) = before.filter(|_| !is_renamed) {
            let path = snapshot_path(&self.inner.dir, before);
            match fs::unlink(&path).await {
                Err(error) if !is_missing(&error) => {
                    tracing::warn!(path = %path.display(), %error, "removed at the next start");
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Where the snapshot at `before` says the same, as those of a log without idempotent producers do, a new
    /// name is all it takes. False when it does not, or is not there any more.
    async fn rename_snapshot(
        &self,
        before: Offset,
        at: Offset,
        snapshot: &[u8],
    ) -> Result<bool, LogError> {
        if !self.inner.state.borrow().saved.says(snapshot) {
            return Ok(false);
        }
        let dir = &self.inner.dir;
        let from = snapshot_path(dir, before);
        match fs::rename(&from, &snapshot_path(dir, at)).await {
            Ok(()) => Ok(true),
            // It went with what lay below the start of the log, or a name needs a block.
            Err(error) if is_missing(&error) || is_lack_of_room(&error) => Ok(false),
            Err(error) => {
                let failed = Err(LogError::io("rename", &from)(error));
                self.inner.judged(failed)
            }
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use thalweg_types::{Offset, Uuid};

    use super::parse;
    use crate::dir::BoundOffsets;
    use crate::name::PartitionName;

    #[test]
    fn marks_hold_for_one_boot_and_mount_and_only_undamaged() {
        let mut marks = BoundOffsets::default();
        for (topic, index, end) in [("t", 3, 55), ("u-v", 0, i64::MAX)] {
            marks.insert(PartitionName::new(topic, index), Uuid([7; 16]), Offset(end));
        }
        let text = format!("boot 7\n{}", marks.format(true));
        assert_eq!(parse(text.as_bytes(), Some("boot 7")), Some(marks));
        assert_eq!(parse(text.as_bytes(), Some("boot 8")), None);
        assert_eq!(parse(text.as_bytes(), None), None);
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at], Some("boot 7")), None, "{at}");
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(parse(&flipped, Some("boot 7")), None, "byte {at}");
        }
    }
}
