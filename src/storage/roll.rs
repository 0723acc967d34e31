//! When a log begins a new segment, and how.
//!
//! Rolling is done by the writer task, so no write is in flight. The new file was made before
//! ([`next_segment`]), or else is made now by a namespace worker. The closed segment is flushed and its indexes written in the
//! background.

use std::io;
use std::rc::Rc;

use thalweg_reactor::{failpoint, fs, task};
use thalweg_types::limits::SEGMENT_BYTES_MAX;
use thalweg_types::{Offset, TimestampMs};

use crate::error::{LogError, is_lack_of_room};
use crate::flush::Reach;
use crate::index::relative;
use crate::log::{AppendBatch, Inner, Log, LogEvent};
use crate::name::{PartitionName, log_path};
use crate::next_segment;
use crate::options::LogOptions;
use crate::segment::Segment;

/// True when `batch` must go into a new segment (RP-100): by size, by the distance of timestamps, by
/// full indexes, or because its offsets do not fit the index.
pub(crate) fn is_due(
    segment: &Segment,
    size: u64,
    batch: &AppendBatch,
    options: &LogOptions,
    name: &PartitionName,
    now: TimestampMs,
) -> bool {
    if relative(segment.base, batch.last_offset).is_none() {
        return true;
    }
    if size == 0 {
        return false;
    }
    let after = size + batch.bytes.len() as u64;
    after > u64::from(options.segment_bytes)
        || after > SEGMENT_BYTES_MAX
        || segment.age_ms(batch.max_timestamp, now) > options.roll_after_ms(name, segment.base)
        || segment.has_full_indexes(options.segment_index_bytes)
}

/// Begins a segment at `base` although the active one would take more. Without room for it the active
/// one stays.
pub(crate) async fn roll_early(inner: &Rc<Inner>, base: Offset) {
    match roll(inner, base).await {
        Err(error) if is_lack_of_room(&error) => {
            tracing::warn!(log = %inner.name, %error, "no room for a new segment");
        }
        Err(error) => inner.fail(&error),
        Ok(()) => {}
    }
    inner.state.borrow_mut().roll_wanted = false;
    inner.idle.wake_all();
}

/// Makes the file of a segment that nobody made before.
async fn make_now(inner: &Inner, base: Offset, interval: u64) -> io::Result<Rc<Segment>> {
    let made = match Segment::create(&inner.dir, base, interval).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Only a roll that a crash or a failure interrupted can have left it; it holds nothing
            // that was ever acknowledged.
            let path = log_path(&inner.dir, base);
            tracing::warn!(path = %path.display(), "replacing a segment file that is in the way");
            fs::unlink(&path).await?;
            Segment::create(&inner.dir, base, interval).await?
        }
        other => other?,
    };
    inner.files_unsynced();
    Ok(made)
}

/// Begins a segment at `base`.
pub(crate) async fn roll(inner: &Rc<Inner>, base: Offset) -> io::Result<()> {
    let (old, interval, cache) = {
        let state = inner.state.borrow();
        let options = &state.options;
        let interval = u64::from(options.index_interval_bytes);
        (Rc::clone(state.active()), interval, options.cache.clone())
    };
    let new = match next_segment::take(inner, base).await {
        Some(file) => Segment::in_file(file, &inner.dir, base, interval),
        None => make_now(inner, base, interval).await?,
    };
    failpoint::pass("roll: segment made");
    let empty = old.size.get() == 0;
    {
        let mut state = inner.state.borrow_mut();
        if empty {
            state.segments.pop();
        }
        state.segments.push(new);
        state.writing_to = 0;
    }
    if empty {
        fs::unlink(&old.path()).await?;
    } else {
        cache.add(&old);
        inner
            .state
            .borrow()
            .options
            .metrics
            .borrow_mut()
            .counters
            .segments_rolled += 1;
        let log = Log {
            inner: Rc::clone(inner),
        };
        task::spawn(async move {
            if log.trim(&old).await.is_err() {
                // The sink was told.
                return;
            }
            failpoint::pass("roll: zeros trimmed");
            match log.flush_reaching(Reach::ClosedSegments).await {
                // A flush that fails has told the sink already.
                Ok(_) => failpoint::pass("roll: indexes written"),
                Err(LogError::Closed | LogError::Offline { .. }) => {}
                Err(error) => tracing::warn!(log = %log.name(), %error, "flush after a roll"),
            }
        });
    }
    (inner.sink)(LogEvent::Rolled { base });
    Ok(())
}
