//! The thread that does the work of rounds, and the way to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use thalweg_reactor::{mailbox, oneshot, spawn_background_thread, task};
use thalweg_types::limits::{COMPACTION_ROUNDS_WAITING_MAX, SEGMENT_BYTES_MAX};

use super::pace::Pace;
use super::round::Round;
use super::{Budget, CleanError, CleanReport, Order, SwapAsk};

/// A round that waits for its cleaner.
struct Job {
    order: Order,
    swaps: mailbox::Sender<SwapAsk>,
    done: oneshot::Sender<Result<CleanReport, CleanError>>,
}

/// The way to one cleaner. Clones lead to the same.
#[derive(Clone)]
pub struct Cleaner {
    jobs: mailbox::Sender<Job>,
    stop: Arc<AtomicBool>,
}

impl Cleaner {
    /// Starts the thread of a cleaner. It ends when every clone of the way to it is gone; the result
    /// is an error when it got no runtime.
    ///
    /// # Errors
    /// The thread can not be started.
    pub fn start(name: &str, budget: Budget) -> io::Result<(Cleaner, JoinHandle<io::Result<()>>)> {
        Cleaner::start_within(name, budget, SEGMENT_BYTES_MAX)
    }

    /// As [`Cleaner::start`], with another bound of the segments that it writes.
    pub(super) fn start_within(
        name: &str,
        budget: Budget,
        segment_bytes_max: u64,
    ) -> io::Result<(Cleaner, JoinHandle<io::Result<()>>)> {
        let (cleaner, inbox) = Cleaner::new();
        let stop = Arc::clone(&cleaner.stop);
        let thread = spawn_background_thread(name, move |runtime| {
            runtime.block_on(work(inbox, budget, segment_bytes_max, stop));
        })?;
        Ok((cleaner, thread))
    }

    /// A cleaner that works as a task of the calling thread, for simulations: the same rounds, on the disk
    /// of that thread's runtime.
    #[must_use]
    pub fn on_this_thread(budget: Budget, segment_bytes_max: u64) -> Cleaner {
        let (cleaner, inbox) = Cleaner::new();
        let stop = Arc::clone(&cleaner.stop);
        task::spawn(work(inbox, budget, segment_bytes_max, stop));
        cleaner
    }

    fn new() -> (Cleaner, mailbox::Receiver<Job>) {
        let (jobs, inbox) = mailbox::channel(COMPACTION_ROUNDS_WAITING_MAX);
        let stop = Arc::default();
        (Cleaner { jobs, stop }, inbox)
    }

    /// Ends the round that is under way, and every later one, soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Gives the cleaner a round. New segments come to the receiver, the end by the other.
    pub(super) async fn begin(
        &self,
        order: Order,
    ) -> Result<
        (
            mailbox::Receiver<SwapAsk>,
            oneshot::Receiver<Result<CleanReport, CleanError>>,
        ),
        CleanError,
    > {
        let (swaps, asks) = mailbox::channel(1);
        let (done, ended) = oneshot::channel();
        let job = Job { order, swaps, done };
        match self.jobs.send(job).await {
            Ok(()) => Ok((asks, ended)),
            Err(_) => Err(CleanError::Stopped),
        }
    }
}

/// Rounds, one after the other, until every way to here is gone.
async fn work(
    mut inbox: mailbox::Receiver<Job>,
    budget: Budget,
    segment_bytes_max: u64,
    stop: Arc<AtomicBool>,
) {
    while let Some(job) = inbox.recv().await {
        let round = Round {
            order: job.order,
            budget: &budget,
            segment_bytes_max,
            pace: Pace::new(budget.bytes_per_second, Arc::clone(&stop)),
            swaps: job.swaps,
            report: CleanReport::default(),
        };
        let _ = job.done.send(round.run().await);
    }
}

impl std::fmt::Debug for Cleaner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cleaner").finish_non_exhaustive()
    }
}
