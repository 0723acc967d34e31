//! The thread that does the work of rounds, and the way to it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_reactor::{mailbox, oneshot, spawn_background_thread, task};
use thalweg_types::limits::{COMPACTION_ROUNDS_WAITING_MAX, SEGMENT_BYTES_MAX};

use super::pace::{Pace, Rate};
use super::round::Round;
use super::{Budget, CleanError, CleanReport, Order, SwapAsk};

/// A round that waits for its cleaner.
struct Job {
    order: Order,
    budget: Budget,
    swaps: mailbox::Sender<SwapAsk>,
    done: oneshot::Sender<Result<CleanReport, CleanError>>,
}

/// The way to one cleaner. Clones lead to the same.
#[derive(Clone)]
pub struct Cleaner {
    jobs: mailbox::Sender<Job>,
    stop: Arc<AtomicBool>,
    rate: Arc<Rate>,
    /// Of the rounds that come by this way.
    budget: Budget,
}

/// What becomes of a thread of a cleaner: an error when it got no runtime.
type Ended = io::Result<()>;

/// Cleaners and their threads.
type Running = Vec<(Cleaner, JoinHandle<Ended>)>;

/// The cleaners of a process, each a thread that begins when a round first needs it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct CleanerPool {
    stop: Arc<AtomicBool>,
    running: Arc<Mutex<Running>>,
}

impl CleanerPool {
    /// The cleaner with this number, for rounds within `budget`. With it all of lower numbers begin.
    ///
    /// # Errors
    /// A thread can not be started.
    pub fn get(&self, number: usize, budget: Budget) -> io::Result<Cleaner> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.len() <= number {
            let name = format!("cleaner-{}", running.len());
            let stop = Arc::clone(&self.stop);
            running.push(Cleaner::begin_thread(
                &name,
                budget,
                SEGMENT_BYTES_MAX,
                stop,
            )?);
        }
        Ok(running[number].0.within(budget))
    }

    /// Ends the rounds that are under way, and every later one, soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the threads, and tells what became of each. Nobody else may have a cleaner any more.
    pub fn join(&self) -> Vec<std::thread::Result<Ended>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let all = running.drain(..);
        let ended = all.map(|(cleaner, thread)| {
            drop(cleaner);
            thread.join()
        });
        ended.collect()
    }
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
        Cleaner::begin_thread(name, budget, segment_bytes_max, Arc::default())
    }

    fn begin_thread(
        name: &str,
        budget: Budget,
        segment_bytes_max: u64,
        stop: Arc<AtomicBool>,
    ) -> io::Result<(Cleaner, JoinHandle<Ended>)> {
        let (cleaner, inbox) = Cleaner::new(budget, stop);
        let (rate, stop) = cleaner.reins();
        let thread = spawn_background_thread(name, move |runtime| {
            runtime.block_on(work(inbox, segment_bytes_max, rate, stop));
        })?;
        Ok((cleaner, thread))
    }

    /// A cleaner that works as a task of the calling thread, for simulations: the same rounds, on the disk
    /// of that thread's runtime.
    #[must_use]
    pub fn on_this_thread(budget: Budget, segment_bytes_max: u64) -> Cleaner {
        let (cleaner, inbox) = Cleaner::new(budget, Arc::default());
        let (rate, stop) = cleaner.reins();
        task::spawn(work(inbox, segment_bytes_max, rate, stop));
        cleaner
    }

    fn new(budget: Budget, stop: Arc<AtomicBool>) -> (Cleaner, mailbox::Receiver<Job>) {
        let (jobs, inbox) = mailbox::channel(COMPACTION_ROUNDS_WAITING_MAX);
        let rate = Arc::new(Rate::new(budget.bytes_per_second));
        let cleaner = Cleaner {
            jobs,
            stop,
            rate,
            budget,
        };
        (cleaner, inbox)
    }

    /// What its thread obeys while it works.
    fn reins(&self) -> (Arc<Rate>, Arc<AtomicBool>) {
        (Arc::clone(&self.rate), Arc::clone(&self.stop))
    }

    /// The same cleaner, for rounds within another budget. Its rate holds at once, also for a round that is under way.
    fn within(&self, budget: Budget) -> Cleaner {
        self.set_rate(budget.bytes_per_second);
        Cleaner {
            budget,
            ..self.clone()
        }
    }

    /// Bytes per second from now on.
    pub fn set_rate(&self, bytes_per_second: f64) {
        self.rate.set(bytes_per_second);
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
        let job = Job {
            order,
            budget: self.budget,
            swaps,
            done,
        };
        match self.jobs.send(job).await {
            Ok(()) => Ok((asks, ended)),
            Err(_) => Err(CleanError::Stopped),
        }
    }
}

/// Rounds, one after the other, until every way to here is gone.
async fn work(
    mut inbox: mailbox::Receiver<Job>,
    segment_bytes_max: u64,
    rate: Arc<Rate>,
    stop: Arc<AtomicBool>,
) {
    while let Some(job) = inbox.recv().await {
        let round = Round {
            order: job.order,
            budget: &job.budget,
            segment_bytes_max,
            pace: Pace::new(Arc::clone(&rate), Arc::clone(&stop)),
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
