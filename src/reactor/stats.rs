//! Counts of what the reactor did on the calling thread, as plain data.
//!
//! Each thread counts for itself, without atomics; [`read`] gives a copy on the owning thread, and
//! whoever merges threads moves that copy.

use std::cell::RefCell;

/// What was counted on one thread since it started. Counters only grow, except the gauges, which
/// say so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReactorStats {
    /// File reads and writes begun.
    pub ops_started: u64,
    /// File reads and writes whose result is known.
    pub ops_finished: u64,
    /// Bytes of file data written.
    pub file_bytes_written: u64,
    /// Bytes of file data read into memory by `fs`.
    pub file_bytes_read: u64,
    /// Operations of which the kernel did only a part and that were resubmitted for the rest.
    pub short_ops_resubmitted: u64,
    /// Operations resubmitted after EINTR or EAGAIN.
    pub interrupted_ops_resubmitted: u64,
    /// `io_uring_enter` calls.
    pub ring_enters: u64,
    /// Completions taken from the ring.
    pub ring_completions: u64,
    /// Times the kernel held back completions because the completion queue was full.
    pub ring_overflows: u64,
    /// Gauge: operations the kernel has now.
    pub ring_in_kernel: u64,
    /// Gauge: operations that wait for room in the ring now.
    pub ring_waiting: u64,
    /// Most operations that ever waited for room in the ring.
    pub ring_waiting_max: u64,
    /// Turns of the ring's flusher task.
    pub flusher_turns: u64,
    /// Polls of tasks started by `task::spawn`.
    pub task_polls: u64,
    /// Wakes of its tasks that came from other threads by the runtime's own mailbox.
    pub wakes_taken_in: u64,
    /// How often it took some of them: each round cost one wake of the thread at most.
    pub rounds_of_wakes: u64,
    /// Bytes received from sockets.
    pub socket_bytes_received: u64,
    /// Bytes sent to sockets out of user memory.
    pub socket_bytes_copied: u64,
    /// Bytes sent to sockets by `sendfile`, without a copy in user memory.
    pub sendfile_bytes: u64,
    /// `sendfile` calls.
    pub sendfile_calls: u64,
    /// Calls of `sendfile` that held the thread for more than [`STALL_US`] microseconds.
    pub sendfile_stalls: u64,
    /// Connections accepted.
    pub accepts: u64,
    /// Times accepting paused because of a lack of file descriptors or memory.
    pub accept_pauses: u64,
}

/// A call on the thread of a runtime that takes longer than this is counted as a stall.
pub const STALL_US: u64 = 1_000;

thread_local! {
    static STATS: RefCell<ReactorStats> = const { RefCell::new(ReactorStats::ZERO) };
}

impl ReactorStats {
    const ZERO: ReactorStats = ReactorStats {
        ops_started: 0,
        ops_finished: 0,
        file_bytes_written: 0,
        file_bytes_read: 0,
        short_ops_resubmitted: 0,
        interrupted_ops_resubmitted: 0,
        ring_enters: 0,
        ring_completions: 0,
        ring_overflows: 0,
        ring_in_kernel: 0,
        ring_waiting: 0,
        ring_waiting_max: 0,
        flusher_turns: 0,
        task_polls: 0,
        wakes_taken_in: 0,
        rounds_of_wakes: 0,
        socket_bytes_received: 0,
        socket_bytes_copied: 0,
        sendfile_bytes: 0,
        sendfile_calls: 0,
        sendfile_stalls: 0,
        accepts: 0,
        accept_pauses: 0,
    };
}

/// The counts of the calling thread.
pub fn read() -> ReactorStats {
    STATS.with(|stats| *stats.borrow())
}

/// Changes the counts of the calling thread.
pub(crate) fn count(change: impl FnOnce(&mut ReactorStats)) {
    STATS.with(|stats| change(&mut stats.borrow_mut()));
}
