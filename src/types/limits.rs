//! Every bound of the broker that is not a Kafka property has its name here.
//!
//! Each constant says what fills up and what happens then.

/// Largest request frame in bytes (Kafka's default of `socket.request.max.bytes`). A larger size
/// prefix closes the connection before anything is allocated.
pub const REQUEST_BYTES_MAX: u32 = 100 * 1024 * 1024;

/// Bytes of one read from a socket; also the step in which a request's buffer grows, so that a
/// declared size alone allocates nothing.
pub const SOCKET_READ_BYTES: usize = 64 * 1024;

/// Requests of one connection that may wait for their answers. When full, the connection is not
/// read until the oldest is answered.
pub const CONNECTION_IN_FLIGHT_MAX: usize = 16;

/// Messages that may wait in the mailbox of a shard. When full, the sender's task waits.
pub const MAILBOX_MESSAGES_MAX: usize = 4_096;

/// Bytes of one vectored write to a log. What does not fit goes in the next write.
pub const APPEND_WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Slices of one vectored write (`IOV_MAX` of Linux).
pub const APPEND_IOVECS_MAX: usize = 1_024;

/// Bytes of one `sendfile` call before the connection's task lets others of its shard run.
pub const SENDFILE_QUANTUM_BYTES: usize = 512 * 1024;

/// Bytes of record batches waiting for the disk in one log. When full, further produce requests to
/// that partition wait in their connection, which is then not read.
pub const LOG_PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Fetches parked on one partition. When full, a fetch is answered at once with what there is.
pub const PARKED_FETCHES_MAX: usize = 10_000;

/// Longest topic name in bytes (Kafka's rule).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Partitions that one CreateTopics request may ask for in sum; above it each topic is refused.
pub const CREATE_PARTITIONS_MAX: usize = 10_000;

/// Output of decompressing one batch, in bytes. A larger one is refused.
pub const DECOMPRESSED_BATCH_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Different label values per metric (topic names, for example). Further ones are counted under
/// `__other`.
pub const METRIC_LABELS_MAX: usize = 1_000;

const _: () = assert!(SENDFILE_QUANTUM_BYTES >= SOCKET_READ_BYTES);
const _: () = assert!(LOG_PENDING_BYTES_MAX >= APPEND_WRITE_BYTES_MAX);
const _: () = assert!(CONNECTION_IN_FLIGHT_MAX >= 1);
