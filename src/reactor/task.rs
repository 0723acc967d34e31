//! Tasks of the calling thread's runtime.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::workers::COMPUTERS;
use crate::{context, stats};

/// A running task. Dropping it lets the task run on; awaiting it gives `Some(output)`, or `None` if
/// the task was aborted, panicked, or its runtime ended first.
pub struct Task<T>(tokio::task::JoinHandle<T>);

/// Starts a task on the calling thread's runtime. It runs when the caller next waits, and need not
/// be [`Send`].
///
/// # Panics
/// On a thread that is not inside [`crate::Runtime::block_on`].
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    Task(tokio::task::spawn_local(with_turns(future)))
}

/// The future, with the reactor's work after each of its polls.
pub(crate) fn with_turns<F: Future>(future: F) -> WithTurns<F> {
    WithTurns { future }
}

pin_project! {
    /// Future of [`with_turns`]. An `async fn` would hold the future twice, as its argument and as
    /// what it polls, and a connection's is some kilobytes.
    pub(crate) struct WithTurns<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for WithTurns<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.project().future.poll(cx);
        stats::count(|stats| stats.task_polls += 1);
        context::after_poll();
        polled
    }
}

/// Lets every other ready task run once, and the reactor look for events, before going on.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}

/// Runs `work`, which computes for longer than a turn of the thread may last, on a worker thread. It runs
/// to its end even if the future is dropped.
///
/// # Errors
/// What `work` gives; an error, too, when it panicked.
pub async fn compute<T, F>(work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    COMPUTERS.run(work).await
}

impl<T> Task<T> {
    /// Drops the task at its next wait. File operations that it began go on to their end.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// True when the task has ended, however it did.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx).map(|joined| match joined {
            Ok(output) => Some(output),
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a task panicked");
                }
                None
            }
        })
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("finished", &self.is_finished())
            .finish()
    }
}
