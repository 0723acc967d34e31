//! The file of the next segment, made before it is needed.
//!
//! A roll that makes its file has every append wait for a thread and for the file system's journal. So when
//! the active segment is nearly full, an empty file is made beside it. A roll takes it and appends go on in
//! it at once; it gets its name, which depends on the first offset in it, meanwhile.
//!
//! A crash may find batches in it that were acknowledged. They are not lost: a start gives a file with
//! batches its name by the offset that they begin with ([`adopt`]), and removes an empty one. The file's
//! first name is durable before anything in it is, so no flush has to wait for the second. Kafka and its
//! tools look at no file of that name.
//!
//! Only the active segment can be without its name: a roll waits for the name of the one before it.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::{failpoint, task, time};
use thalweg_types::Offset;
use thalweg_types::limits::NEXT_SEGMENT_SHARE;

use crate::cache::NextPlace;
use crate::error::{LogError, is_lack_of_room};
use crate::handles;
use crate::listing::{Listing, list};
use crate::log::{Inner, Log, Stage, State};
use crate::name::{NEXT_SEGMENT, log_path};
use crate::scan::{BatchScan, Check, Step};

/// Wait before a file is given its name again, when the file system had no room for that.
const NAME_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What there is of the next segment.
#[derive(Default)]
pub(crate) enum NextSegment {
    /// Nothing.
    #[default]
    None,
    /// Its file is being made.
    Making,
    /// An empty file.
    Ready(Made),
    /// The active segment is that file, and gets its name.
    Naming,
    /// It can not be made now; the next roll makes its own.
    Refused,
}

/// An empty file that no segment has begun in.
pub(crate) struct Made {
    file: File,
    /// Given back when the file is taken, or gone.
    _place: NextPlace,
}

impl NextSegment {
    /// True while the active segment has no name of its own.
    pub(crate) fn is_naming(&self) -> bool {
        matches!(self, NextSegment::Naming)
    }

    /// True while a task works on it.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            NextSegment::Making | NextSegment::Naming => true,
            NextSegment::None | NextSegment::Ready(..) | NextSegment::Refused => false,
        }
    }
}

pub(crate) fn next_path(dir: &Path) -> PathBuf {
    dir.join(NEXT_SEGMENT)
}

/// Makes the file if the active segment is nearly full, or would be after two more writes of `written`
/// bytes, and there is none.
pub(crate) fn make_if_near(inner: &Rc<Inner>, written: u64) {
    let place = {
        let mut state = inner.state.borrow_mut();
        if !is_near(&state, written) {
            return;
        }
        let Some(place) = state.options.cache.place_for_next() else {
            return;
        };
        state.next = NextSegment::Making;
        place
    };
    let inner = Rc::clone(inner);
    task::spawn(async move {
        let log = Log { inner };
        let made = make(&log).await;
        log.inner.state.borrow_mut().next = match made {
            Ok(file) => NextSegment::Ready(Made {
                file,
                _place: place,
            }),
            // Where it matters, the log was told.
            Err(_) => NextSegment::Refused,
        };
        log.inner.idle.wake_all();
    });
}

fn is_near(state: &State, written: u64) -> bool {
    let limit = u64::from(state.options.segment_bytes);
    matches!(state.next, NextSegment::None)
        && state.stage == Stage::Open
        && state.active().size.get() + (limit / NEXT_SEGMENT_SHARE).max(2 * written) >= limit
}

async fn make(log: &Log) -> Result<File, LogError> {
    let path = next_path(&log.inner.dir);
    let made = fs::open(&path, OpenMode::CreateNew).await;
    // Nothing is lost by that: the roll will try for itself.
    let file = log
        .inner
        .judged(made.map_err(LogError::io("create", &path)))?;
    failpoint::pass("next segment: made");
    let dir = &log.inner.dir;
    log.or_offline("sync", dir, handles::sync_dir(dir).await)?;
    Ok(file)
}

/// The file that the segment at `base` goes on in, if it is ready; its name follows. Waits for the name of
/// the segment before it.
pub(crate) async fn take(inner: &Rc<Inner>, base: Offset) -> Option<File> {
    let naming = || inner.state.borrow().next.is_naming();
    inner.idle.until(|| !naming()).await;
    let file = {
        let mut state = inner.state.borrow_mut();
        match std::mem::take(&mut state.next) {
            NextSegment::Ready(made) => {
                state.next = NextSegment::Naming;
                made.file
            }
            busy @ (NextSegment::Making | NextSegment::Naming) => {
                state.next = busy;
                return None;
            }
            NextSegment::None | NextSegment::Refused => return None,
        }
    };
    let (inner, named) = (Rc::clone(inner), file.clone());
    task::spawn(async move {
        let log = Log { inner };
        // Where it fails, the log was told. The name need not be durable for anything to be: a start
        // would find the file by its first one.
        if give_name(&log, base).await.is_ok() {
            named.on_renamed(log_path(&log.inner.dir, base));
            failpoint::pass("next segment: named");
        }
        log.inner.state.borrow_mut().next = NextSegment::None;
        log.inner.idle.wake_all();
    });
    Some(file)
}

async fn give_name(log: &Log, base: Offset) -> Result<(), LogError> {
    let (from, to) = (next_path(&log.inner.dir), log_path(&log.inner.dir, base));
    failpoint::pass("next segment: taken");
    loop {
        match fs::rename(&from, &to).await {
            Err(error) if is_lack_of_room(&error) && log.check_open().is_ok() => {
                time::sleep(NAME_AGAIN_AFTER).await;
            }
            named => return log.or_offline("rename", &from, named),
        }
    }
}

/// Returns when no task works on the next segment.
pub(crate) async fn settled(inner: &Inner) {
    let busy = || inner.state.borrow().next.is_busy();
    inner.idle.until(|| !busy()).await;
}

/// Removes the file that was made for nothing: its log is closed.
pub(crate) async fn discard(inner: &Inner) {
    let next = std::mem::take(&mut inner.state.borrow_mut().next);
    if !matches!(next, NextSegment::Ready(..)) {
        return;
    }
    let path = next_path(&inner.dir);
    if let Err(error) = fs::unlink(&path).await {
        // The next start removes it.
        tracing::debug!(path = %path.display(), %error, "not removed");
    }
}

/// Gives batches that a crash has left without a name theirs. Where there are none, what is there is nothing, or what
/// the system had begun to write when it crashed, or damage: it goes when the log is known to be whole without it.
///
/// # Errors
/// [`LogError::Io`].
pub(crate) async fn adopt(dir: &Path, listing: Listing) -> Result<Listing, LogError> {
    let Some(base) = unnamed(dir, &listing).await? else {
        return Ok(listing);
    };
    let (path, to) = (next_path(dir), log_path(dir, base));
    tracing::info!(path = %to.display(), "a segment that a crash left without its name");
    fs::rename(&path, &to)
        .await
        .map_err(LogError::io("rename", &path))?;
    list(dir).await
}

/// The file of a segment that a crash has left without its name, if there is one: it comes behind all others. For
/// those who read a log without opening it.
///
/// # Errors
/// [`LogError::Io`].
pub async fn unnamed_segment(dir: &Path) -> Result<Option<PathBuf>, LogError> {
    let listing = list(dir).await?;
    Ok(unnamed(dir, &listing).await?.map(|_| next_path(dir)))
}

/// Where the segment begins that a crash has left without its name, if there is one.
///
/// # Errors
/// [`LogError::Io`].
pub(crate) async fn unnamed(dir: &Path, listing: &Listing) -> Result<Option<Offset>, LogError> {
    let Some(bytes) = listing.next else {
        return Ok(None);
    };
    let path = next_path(dir);
    let base = first_batch(&path, bytes)
        .await
        .map_err(LogError::io("read", &path))?;
    // Where every other segment is gone, it is what is left of the log.
    let last = listing.logs.keys().next_back();
    Ok(base.filter(|base| last.is_none_or(|last| follows(*base, *last))))
}

/// Whether batches from `base` on can be those of the segment behind the one at `last`.
pub(crate) fn follows(base: Offset, last: Offset) -> bool {
    base > last
}

/// Where the first batch of the file begins; `None` when it is not whole: then nobody was told of it.
pub(crate) async fn first_batch(path: &Path, bytes: u64) -> io::Result<Option<Offset>> {
    let file = fs::open(path, OpenMode::Read).await?;
    let start = fs::read_at(&file, 0, size_of::<i64>()).await?;
    let Some(base) = start.first_chunk().copied().map(i64::from_be_bytes) else {
        return Ok(None);
    };
    let mut scan = BatchScan::new(file, Check::Checksums, Offset(base), 0, bytes);
    match scan.next().await? {
        Step::Batch(..) => Ok(Some(Offset(base))),
        Step::End | Step::Bad(_) => Ok(None),
    }
}
