//! Bounds how many closed segments of one shard keep their file handle and indexes in memory.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use thalweg_types::limits::{INDEX_CACHE_BYTES_MAX, NEXT_SEGMENTS_MAX, WARM_SEGMENTS_MAX};

use crate::segment::Segment;

/// Shared by the logs of one shard: clones are the same cache. When it is full, the closed segment
/// that was not read for the longest time is dropped from memory; plans that hold its file keep that
/// alive.
#[derive(Clone, Default)]
pub struct SegmentCache {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    segments: RefCell<Vec<Weak<Segment>>>,
    clock: Cell<u64>,
    /// Files of segments that have not begun.
    next: Cell<usize>,
}

/// One of the files of next segments that the logs of a shard may have together.
#[must_use]
pub(crate) struct NextPlace(Rc<Inner>);

impl Drop for NextPlace {
    fn drop(&mut self) {
        self.0.next.set(self.0.next.get() - 1);
    }
}

impl SegmentCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Closed segments in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.segments.borrow().len()
    }

    /// True when no closed segment is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A place for the file of a log's next segment, while there are few.
    pub(crate) fn place_for_next(&self) -> Option<NextPlace> {
        let next = self.inner.next.get();
        (next < NEXT_SEGMENTS_MAX).then(|| {
            self.inner.next.set(next + 1);
            NextPlace(Rc::clone(&self.inner))
        })
    }

    pub(crate) fn touch(&self, segment: &Segment) {
        self.inner.clock.set(self.inner.clock.get() + 1);
        segment.last_used.set(self.inner.clock.get());
    }

    /// A closed segment is in memory now; others may have to go.
    pub(crate) fn add(&self, segment: &Rc<Segment>) {
        self.touch(segment);
        let mut segments = self.inner.segments.borrow_mut();
        if !segments
            .iter()
            .any(|other| std::ptr::eq(other.as_ptr(), Rc::as_ptr(segment)))
        {
            segments.push(Rc::downgrade(segment));
        }
        drop(segments);
        self.trim();
    }

    /// Drops what is too much from memory, as far as it is on the disk.
    pub(crate) fn trim(&self) {
        let mut segments = self.inner.segments.borrow_mut();
        segments.retain(|other| {
            other
                .upgrade()
                .is_some_and(|other| other.warm_now().is_some())
        });
        let mut count = segments.len();
        let mut bytes: usize = segments
            .iter()
            .filter_map(Weak::upgrade)
            .map(|s| s.heap_bytes())
            .sum();
        if count <= WARM_SEGMENTS_MAX && bytes <= INDEX_CACHE_BYTES_MAX {
            return;
        }
        segments.sort_by_key(|s| s.upgrade().map_or(0, |s| s.last_used.get()));
        segments.retain(|candidate| {
            let Some(candidate) = candidate.upgrade() else {
                return false;
            };
            let freed = candidate.heap_bytes();
            let enough = count <= WARM_SEGMENTS_MAX && bytes <= INDEX_CACHE_BYTES_MAX;
            if enough || !candidate.cool() {
                return true;
            }
            count -= 1;
            bytes -= freed;
            false
        });
    }
}

impl fmt::Debug for SegmentCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentCache")
            .field("segments", &self.len())
            .finish()
    }
}
