//! File operations on the calling thread.
//!
//! A name looked up, or a page read that is in memory, costs the kernel a microsecond, and the way to a
//! worker thread and back costs ten. While a thread serves nobody yet, as at a start that has thousands of
//! logs to open, it may as well make such calls itself. Flushes, and reads that would wait for a disk, go
//! their usual ways also then, so that several of them are under way at a time.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static IN_PLACE: Cell<bool> = const { Cell::new(false) };
}

/// True while the future of an [`in_place`] is polled.
pub(crate) fn is_on() -> bool {
    IN_PLACE.get()
}

/// Does `work` with its file operations on the calling thread, which they may block: for threads that
/// serve nobody. What `work` spawns is not included.
pub fn in_place<F: Future>(work: F) -> impl Future<Output = F::Output> {
    InPlace {
        work: Box::pin(work),
    }
}

struct InPlace<F> {
    work: Pin<Box<F>>,
}

impl<F: Future> Future for InPlace<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _reset = Reset(IN_PLACE.replace(true));
        self.work.as_mut().poll(cx)
    }
}

struct Reset(bool);

impl Drop for Reset {
    fn drop(&mut self) {
        IN_PLACE.set(self.0);
    }
}
