//! The schedule of an open loop: when each request should be sent, whatever became of those before it.
//!
//! Latency counts from these times. A broker that stalls for a second at 1,000 requests per second then has
//! 1,000 late requests in its histogram, and not one ("coordinated omission").

use std::time::{Duration, Instant};

/// When requests are meant to be sent. Each connection has its own evenly spaced times; those of connection
/// c + 1 follow those of connection c, so that over all connections they are evenly spaced too.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    requests_per_second: f64,
    connections: u64,
}

impl Schedule {
    /// From `start` on, so many requests per second in sum over `connections`.
    #[must_use]
    pub fn new(start: Instant, requests_per_second: f64, connections: usize) -> Schedule {
        Schedule {
            start,
            requests_per_second,
            connections: connections.max(1) as u64,
        }
    }

    /// When request `n` (from 0) of connection `conn` is meant to be sent. Computed from the start each time, so
    /// that no rounding adds up.
    #[must_use]
    pub fn intended(&self, conn: usize, n: u64) -> Instant {
        let k = n * self.connections + conn as u64;
        self.start + Duration::from_secs_f64(k as f64 / self.requests_per_second)
    }
}

/// Which requests of some connections have come due, in the order in which they do.
#[derive(Clone, Debug)]
pub struct Due {
    schedule: Schedule,
    /// Numbers of the connections, ascending.
    conns: Vec<usize>,
    slot: usize,
    n: u64,
}

impl Due {
    /// For the connections of one thread, their numbers ascending and not none.
    #[must_use]
    pub fn new(schedule: Schedule, conns: Vec<usize>) -> Due {
        assert!(!conns.is_empty(), "somebody must send");
        Due {
            schedule,
            conns,
            slot: 0,
            n: 0,
        }
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// When the next request comes due.
    #[must_use]
    pub fn next_at(&self) -> Instant {
        self.schedule.intended(self.conns[self.slot], self.n)
    }

    /// The position in the connections whose next request is due by `now`; each due request once.
    pub fn pop(&mut self, now: Instant) -> Option<usize> {
        if self.next_at() > now {
            return None;
        }
        let slot = self.slot;
        self.slot += 1;
        if self.slot == self.conns.len() {
            self.slot = 0;
            self.n += 1;
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Schedule};
    use std::time::{Duration, Instant};

    #[test]
    fn times_do_not_drift() {
        let start = Instant::now();
        // 1/3 ms has no exact representation; adding it up a hundred million times would show.
        let schedule = Schedule::new(start, 3_000.0, 3);
        for n in [1u64, 1_000, 100_000_000] {
            let expected = Duration::from_millis(n);
            let got = schedule.intended(0, n) - start;
            let error = got.abs_diff(expected);
            assert!(error <= Duration::from_micros(1), "{n}: off by {error:?}");
        }
    }

    #[test]
    fn connections_take_turns_evenly() {
        let start = Instant::now();
        let schedule = Schedule::new(start, 4_000.0, 4);
        let at = |conn, n| (schedule.intended(conn, n) - start).as_micros();
        assert_eq!([at(0, 0), at(1, 0), at(3, 0)], [0, 250, 750]);
        assert_eq!([at(0, 1), at(1, 1)], [1_000, 1_250]);
    }

    #[test]
    fn each_request_comes_due_once_and_in_order() {
        let start = Instant::now();
        // One of two threads: it has connections 1 and 3 of four.
        let mut due = Due::new(Schedule::new(start, 1_000.0, 4), vec![1, 3]);
        assert_eq!(due.pop(start), None);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(due.next_at(), at(1));
        let late = at(7);
        let popped: Vec<usize> = std::iter::from_fn(|| due.pop(late)).collect();
        assert_eq!(popped, [0, 1, 0, 1]);
        assert_eq!(due.next_at(), at(9));
    }
}
