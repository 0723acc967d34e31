//! What a connection may use, and for how long.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use thalweg_types::limits::{
    ANSWER_PRESSURE_MS, ARRIVAL_PRESSURE_MS, CONNECTION_BACKLOG_BYTES_MAX,
    CONNECTION_IN_FLIGHT_MAX, REQUEST_BYTES_MAX, SHARD_ANSWER_MEMORY_BYTES,
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
    /// Bytes that the kernel keeps for a client on their way (`socket.send.buffer.bytes`); `None`: as it sees
    /// fit, more for clients that are far away, and [`thalweg_types::limits::LOCAL_SOCKET_BUFFER_BYTES`] for those on
    /// this host.
    pub send_buffer_bytes: Option<u32>,
    /// The same of what has come and was not read yet (`socket.receive.buffer.bytes`).
    pub receive_buffer_bytes: Option<u32>,
    /// Memory of admitted requests on one shard, in bytes.
    pub request_memory_bytes: u64,
    /// Memory of finished answers that wait for the sockets of one shard, in bytes. When reached, no
    /// answer is begun.
    pub answer_memory_bytes: usize,
    /// While it is reached, a client that has taken nothing for this long is closed.
    pub answer_pressure: Duration,
    /// While requests wait for memory, one that has been arriving for this long is closed if it comes
    /// too slowly, the slowest first.
    pub arrival_pressure: Duration,
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
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            request_memory_bytes: SHARD_REQUEST_MEMORY_BYTES,
            answer_memory_bytes: SHARD_ANSWER_MEMORY_BYTES,
            answer_pressure: Duration::from_millis(ANSWER_PRESSURE_MS),
            arrival_pressure: Duration::from_millis(ARRIVAL_PRESSURE_MS),
        }
    }
}

impl Limits {
    /// How often deadlines are looked at: an eighth of the shortest, between 5 ms and 1 s.
    #[must_use]
    pub fn sweep_interval(&self) -> Duration {
        // Pressure may be noticed late: half of its window is early enough.
        let pressure = self.answer_pressure.min(self.arrival_pressure) * 4;
        let windows = [self.frame_window, self.write_window, pressure];
        let shortest = windows.into_iter().fold(self.idle, Duration::min);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// Bytes that a frame of `size` owes per window.
    #[must_use]
    pub fn progress_owed(&self, size: u32) -> u64 {
        u64::from(self.frame_window_bytes.max(size / 64))
    }
}

/// How many connections a listener accepts, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in all (`max.connections`); further ones wait in the kernel's queue.
    pub total: usize,
    /// Connections of one IP address (`max.connections.per.ip`); further ones are closed.
    pub per_ip: usize,
    /// The same for certain addresses (`max.connections.per.ip.overrides`).
    pub per_ip_overrides: HashMap<IpAddr, usize>,
    /// Connections accepted per second (`max.connection.creation.rate`); further ones wait.
    pub per_second: u32,
}

impl Default for ConnectionLimits {
    /// Kafka's defaults: no limit.
    fn default() -> Self {
        ConnectionLimits {
            total: i32::MAX as usize,
            per_ip: i32::MAX as usize,
            per_ip_overrides: HashMap::new(),
            per_second: i32::MAX as u32,
        }
    }
}

impl ConnectionLimits {
    /// Connections that `ip`, in its canonical form, may have.
    #[must_use]
    pub fn of_ip(&self, ip: IpAddr) -> usize {
        self.per_ip_overrides
            .get(&ip)
            .copied()
            .unwrap_or(self.per_ip)
    }
}
