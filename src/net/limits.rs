//! What a connection may use, and for how long.

use std::time::Duration;

use thalweg_types::limits::{
    CONNECTION_BACKLOG_BYTES_MAX, CONNECTION_IN_FLIGHT_MAX, REQUEST_BYTES_MAX,
    SHARD_REQUEST_MEMORY_BYTES,
};

/// Bounds of every connection of a shard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest size prefix accepted (`socket.request.max.bytes`), in bytes.
    pub request_bytes_max: u32,
    /// Requests of one connection that may wait for their answers or for being written. When
    /// reached, the connection is not read.
    pub in_flight_max: usize,
    /// Bytes of finished answers in memory that may wait for the socket. When reached, the
    /// connection is not read.
    pub backlog_bytes_max: usize,
    /// A connection without a request for this long is closed (`connections.max.idle.ms`). Time in
    /// which an answer is owed does not count.
    pub idle: Duration,
    /// In each window of this length a partial frame must bring
    /// [`Limits::frame_window_bytes`] or its end.
    pub frame_window: Duration,
    /// Smallest progress of a partial frame per window, in bytes. Large frames owe a 64th of their
    /// size, so that no frame takes more than 64 windows.
    pub frame_window_bytes: u32,
    /// In this time the client must take the next [`thalweg_types::limits::SENDFILE_QUANTUM_BYTES`]
    /// of an answer, or its end. Also bounds the flush before a close.
    pub write_window: Duration,
    /// Memory of admitted requests on one shard, in bytes.
    pub request_memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_bytes_max: REQUEST_BYTES_MAX,
            in_flight_max: CONNECTION_IN_FLIGHT_MAX,
            backlog_bytes_max: CONNECTION_BACKLOG_BYTES_MAX,
            idle: Duration::from_secs(600),
            frame_window: Duration::from_secs(30),
            frame_window_bytes: 64 * 1024,
            write_window: Duration::from_secs(60),
            request_memory_bytes: SHARD_REQUEST_MEMORY_BYTES,
        }
    }
}

impl Limits {
    /// How often deadlines are looked at: an eighth of the shortest, between 5 ms and 1 s.
    #[must_use]
    pub fn sweep_interval(&self) -> Duration {
        let shortest = self.idle.min(self.frame_window).min(self.write_window);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// Bytes that a frame of `size` owes per window.
    #[must_use]
    pub fn progress_owed(&self, size: u32) -> u64 {
        u64::from(self.frame_window_bytes.max(size / 64))
    }
}

/// How many connections a listener accepts.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections in all (`max.connections`).
    pub total: usize,
    /// Connections of one IP address (`max.connections.per.ip`).
    pub per_ip: usize,
}

impl Default for ConnectionLimits {
    /// Kafka's defaults: no limit.
    fn default() -> Self {
        ConnectionLimits {
            total: i32::MAX as usize,
            per_ip: i32::MAX as usize,
        }
    }
}
