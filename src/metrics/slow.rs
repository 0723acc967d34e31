//! The slowest requests of late, with what they waited for.
//!
//! Nothing is built for a request that is not among them: whoever has one asks [`SlowRequests::admits`] first, which
//! is one comparison.

use std::cmp::Reverse;

use thalweg_types::TopicPartition;
use thalweg_types::limits::{SLOW_REQUEST_US_MIN, SLOW_REQUESTS_PER_CORE};

use crate::Spent;

/// One request that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// When the last byte of its answer was given to the socket, in milliseconds since 1970.
    pub ended_ms: i64,
    /// From the first byte of the request to then, without what it was meant to wait, in microseconds.
    pub total_us: u32,
    /// How long it was meant to wait in addition (a fetch for records, a join for other members), in microseconds.
    pub parked_us: u32,
    /// What it waited for. What is missing to [`SlowRequest::total_us`] was work and the turns of others.
    pub spent: Spent,
    /// Kafka's name of the API.
    pub api: &'static str,
    /// The only partition that it was about, if there is but one.
    pub partition: Option<TopicPartition>,
    /// Size of the request in bytes.
    pub request_bytes: u32,
    /// Size of the answer in bytes.
    pub response_bytes: u64,
    /// `client_id`, escaped and cut.
    pub client_id: Option<String>,
    /// Address of the client.
    pub peer: String,
}

/// At most [`SLOW_REQUESTS_PER_CORE`] requests of the current window and as many of the previous one.
#[derive(Clone, Debug)]
pub struct SlowRequests {
    current: Vec<SlowRequest>,
    previous: Vec<SlowRequest>,
    /// Only what takes longer is taken.
    threshold_us: u32,
}

impl Default for SlowRequests {
    fn default() -> Self {
        SlowRequests {
            current: Vec::new(),
            previous: Vec::new(),
            threshold_us: SLOW_REQUEST_US_MIN,
        }
    }
}

impl SlowRequests {
    /// True when a request that took so long is among the slowest.
    #[must_use]
    pub fn admits(&self, total_us: u32) -> bool {
        total_us > self.threshold_us
    }

    /// Takes a request; the fastest one makes way where there is no room. One that is not
    /// [admitted](SlowRequests::admits) is left out.
    pub fn push(&mut self, request: SlowRequest) {
        if !self.admits(request.total_us) {
            return;
        }
        if self.current.len() < SLOW_REQUESTS_PER_CORE {
            self.current.push(request);
        } else if let Some(fastest) = self.current.iter_mut().min_by_key(|slow| slow.total_us) {
            *fastest = request;
        }
        if self.current.len() == SLOW_REQUESTS_PER_CORE {
            let fastest = self.current.iter().map(|slow| slow.total_us).min();
            self.threshold_us = fastest.unwrap_or(SLOW_REQUEST_US_MIN);
        }
    }

    /// Begins a new window; the one before the last is forgotten.
    pub fn rotate(&mut self) {
        self.previous = std::mem::take(&mut self.current);
        self.threshold_us = SLOW_REQUEST_US_MIN;
    }

    /// The slowest `count` of both windows, slowest first.
    #[must_use]
    pub fn slowest(&self, count: usize) -> Vec<&SlowRequest> {
        let mut all: Vec<_> = self.current.iter().chain(&self.previous).collect();
        all.sort_by_key(|slow| (Reverse(slow.total_us), Reverse(slow.ended_ms)));
        all.truncate(count);
        all
    }

    /// Adds those of another core. The bound is that of each core, so the sum has that of all.
    pub(crate) fn merge(&mut self, other: &SlowRequests) {
        self.current.extend_from_slice(&other.current);
        self.previous.extend_from_slice(&other.previous);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use thalweg_types::limits::{SLOW_REQUEST_US_MIN, SLOW_REQUESTS_PER_CORE};

    use super::{SlowRequest, SlowRequests};
    use crate::Spent;

    pub(crate) fn took(total_us: u32) -> SlowRequest {
        SlowRequest {
            ended_ms: 1,
            total_us,
            parked_us: 0,
            spent: Spent::default(),
            api: "Produce",
            partition: None,
            request_bytes: 100,
            response_bytes: 50,
            client_id: None,
            peer: "127.0.0.1:5".to_owned(),
        }
    }

    fn times(slow: &SlowRequests, count: usize) -> Vec<u32> {
        slow.slowest(count).iter().map(|one| one.total_us).collect()
    }

    #[test]
    fn the_slowest_stay_and_no_more_than_the_bound() {
        let mut slow = SlowRequests::default();
        let first = SLOW_REQUEST_US_MIN + 1;
        let room = SLOW_REQUESTS_PER_CORE as u32;
        // In an order that is neither rising nor falling.
        for n in 0..3 * room {
            slow.push(took(first + (n * 7) % (3 * room)));
        }
        let slowest: Vec<_> = (0..room).map(|n| first + 3 * room - 1 - n).collect();
        assert_eq!(times(&slow, usize::MAX), slowest);
        assert!(!slow.admits(first + 2 * room));
        assert!(slow.admits(first + 2 * room + 1));
        assert_eq!(times(&slow, 2), slowest[..2]);
    }

    #[test]
    fn what_is_fast_is_never_taken() {
        let mut slow = SlowRequests::default();
        assert!(!slow.admits(SLOW_REQUEST_US_MIN));
        slow.push(took(SLOW_REQUEST_US_MIN));
        assert!(slow.slowest(10).is_empty());
    }

    #[test]
    fn a_window_does_not_hide_the_next_and_is_forgotten_after_it() {
        let mut slow = SlowRequests::default();
        for _ in 0..SLOW_REQUESTS_PER_CORE {
            slow.push(took(9_000_000));
        }
        assert!(!slow.admits(8_000_000));
        slow.rotate();
        slow.push(took(5_000));
        assert_eq!(times(&slow, usize::MAX).last(), Some(&5_000));
        assert_eq!(times(&slow, 1), [9_000_000]);
        slow.rotate();
        assert_eq!(times(&slow, usize::MAX), [5_000]);
        slow.rotate();
        assert!(slow.slowest(1).is_empty());
    }
}
