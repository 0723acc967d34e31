//! Every bound of the broker that is not a Kafka property has its name here.
//!
//! Each constant says what fills up and what happens then.

/// Largest request frame in bytes (Kafka's default of `socket.request.max.bytes`). A larger size
/// prefix closes the connection before anything is allocated.
pub const REQUEST_BYTES_MAX: u32 = 100 * 1024 * 1024;

/// Least room for the next read of a request that has not arrived whole. Its memory doubles as it arrives,
/// so that a declared size alone takes nothing.
pub const FRAME_STEP_BYTES_MIN: usize = 2 * 1024;

/// Bytes of a chunk that small requests are read into, those of one connection after those of another.
pub const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Chunks of one shard that requests may hold. When more are held, requests are copied out of what they
/// were read into.
pub const READ_CHUNKS_MAX: usize = 64;

/// Bytes of the buffers that large requests were read into and that one shard keeps to fill again. Requests
/// beyond get memory of their own.
pub const LARGE_BUFFERS_KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Room for a read where frames are small, so that one read brings several.
pub const SMALL_FRAMES_READ_BYTES_MAX: usize = 16 * 1024;

/// Most bytes that one read takes from a socket on the expectation that the next frame is as large
/// as the one before.
pub const READ_AHEAD_BYTES_MAX: usize = 256 * 1024;

/// Requests of one connection that may wait for their answers. When full, the connection is not
/// read until the oldest is answered.
pub const CONNECTION_IN_FLIGHT_MAX: usize = 16;

/// Bytes of finished answers in memory that may wait for one connection's socket. When reached, the
/// connection is not read until its client has taken some.
pub const CONNECTION_BACKLOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Largest frame that is copied out of its connection's read buffer, so that it does not hold the
/// whole buffer while its request waits.
pub const FRAME_COPY_BYTES_MAX: usize = 16 * 1024;

/// Largest answer that is copied out of the buffer it was written into. Each thread keeps that buffer, which has room for
/// twice as much at most.
pub const DRAFT_BYTES_MAX: usize = 4 * 1024;

/// Largest request that draws on the share of small requests in a shard's memory budget.
pub const SMALL_REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// Memory of admitted requests on one shard. When full, connections with further requests are not
/// read.
pub const SHARD_REQUEST_MEMORY_BYTES: u64 = 192 * 1024 * 1024;

/// Bytes of small answers that leave in one write call.
pub const RESPONSE_WRITE_BYTES_MAX: usize = 256 * 1024;

/// Records of one partition in a fetch answer up to which they are copied out of the page cache and leave in
/// one write with the rest of the answer, instead of by `sendfile`.
pub const RECORDS_COPIED_BYTES_MAX: usize = 64 * 1024;

/// Messages that may wait in the mailbox of a shard. When full, the sender's task waits.
pub const MAILBOX_MESSAGES_MAX: usize = 4_096;

/// Bytes of one vectored write to a log. What does not fit goes in the next write.
pub const APPEND_WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a batch from which on its write does not wait for others of the same turn: it is large
/// enough to be worth a write of its own.
pub const APPEND_GATHER_BYTES_MAX: usize = 32 * 1024;

/// Tasks of one shard that have no log to write for and stay for the next one that has something.
pub const IDLE_WRITERS_MAX: usize = 64;

/// Bytes appended to the logs of one shard and not yet written. The memory of a request counts as free
/// once it is answered, which a timeout or a client that went away does long before a stalled disk
/// has taken its batches. When full, further batches are refused with a code that has clients retry.
pub const APPEND_QUEUED_BYTES_MAX: usize = 2 * SHARD_REQUEST_MEMORY_BYTES as usize;

/// Flushes of one log directory that acknowledgements wait for (`flush.messages=1`) and that are under
/// way at once. Further ones wait, and cover what is written until their turn.
pub const ACK_FLUSHES_AT_ONCE_MAX: usize = 32;

/// Zeros written ahead of a log whose acknowledgements wait for the disk, in bytes: as much as its segment
/// has, within this and [`ZEROS_STEP_BYTES_MAX`].
pub const ZEROS_STEP_BYTES_MIN: u64 = 64 * 1024;
/// The other bound of [`ZEROS_STEP_BYTES_MIN`].
pub const ZEROS_STEP_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes that a round of flushes made durable above which no zeros are written ahead of the next: a large
/// write pays for its own length.
pub const ZEROS_ROUND_BYTES_MAX: u64 = 64 * 1024;

/// New logs of a shard from which on a stop makes their directories durable by one flush of their whole file
/// system, instead of four flushes each.
pub const NEW_LOGS_TOGETHER_MIN: usize = 32;

/// Part of its size, as a divisor, that a segment has left when the file of the next one is made.
pub const NEXT_SEGMENT_SHARE: u64 = 8;

/// Files of next segments that the logs of one shard have at a time, each with a file handle. Logs beyond
/// make theirs when they roll.
pub const NEXT_SEGMENTS_MAX: usize = 64;

/// Longest time between two looks for logs whose unflushed data is old, in milliseconds.
pub const FLUSH_LOOK_MS: u64 = 1_000;

/// Logs of one shard that are flushed for their age at a time; the others follow.
pub const FLUSHES_TOGETHER: usize = 2;

/// Bytes that one shard writes before its logs are marked as written, so that a start after a kill checks only
/// what is above the marks: at most so much per shard, and what is written while the marks are.
pub const MARK_SHARD_BYTES: u64 = 128 * 1024 * 1024;

/// Bytes written to a log before its indexes are saved for a start after a kill, which goes by the headers of
/// what is above.
pub const MARK_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Part of its segment, as a divisor, that is written before the indexes of a log are saved again, if that is
/// more: each time those of the whole segment are written.
pub const MARK_SEGMENT_SHARE: u64 = 8;

/// How long what lacks a file handle for a moment waits before it tries again, in milliseconds.
pub const HANDLE_WAIT_MS: u64 = 100;

/// How often it tries: for a minute.
pub const HANDLE_TRIES_MAX: u32 = 600;

/// Age of the marks of a shard at which logs that have gone on are marked again, in milliseconds.
pub const MARK_AGE_MS_MAX: u64 = 30_000;

/// Logs of one shard whose indexes are saved at a time.
pub const MARKS_TOGETHER: usize = 4;

/// Slices of one vectored write (`IOV_MAX` of Linux).
pub const APPEND_IOVECS_MAX: usize = 1_024;

/// Bytes of one `sendfile` call before the connection's task lets others of its shard run.
pub const SENDFILE_QUANTUM_BYTES: usize = 512 * 1024;

/// Send and receive buffer (SO_SNDBUF, SO_RCVBUF) of a client on the broker's own machine, in bytes, where
/// `socket.send.buffer.bytes` and `socket.receive.buffer.bytes` leave them to us; the kernel takes twice as many, and no
/// more than twice `net.core.wmem_max` and `rmem_max`. There is no distance to fill, and what lies in the megabytes that
/// the kernel would grow them to has left the caches when it is read.
pub const LOCAL_SOCKET_BUFFER_BYTES: u32 = 256 * 1024;

/// How long what was written to a log counts as being in the page cache without asking, in milliseconds.
pub const HOT_TAIL_MS: u64 = 2_000;

/// Bytes that a cold reader gets at a time, and of each buffer of the lane of cold reads.
pub const COLD_STRIDE_BYTES: usize = 256 * 1024;

/// Bytes of all these buffers. When full, cold readers wait for each other, one stride each in turn; a
/// client that takes nothing meanwhile loses its buffer, and its stride is read again.
pub const COLD_MEMORY_BYTES: usize = 16 * 1024 * 1024;

/// Cold reads of one disk that are under way at once.
pub const COLD_READS_PER_DISK: usize = 4;

/// Threads of cold reads.
pub const COLD_THREADS_MAX: usize = 16;

/// File handles that cold readers keep for their next stride. When full, the one that was not used for the
/// longest time is closed, and opened again when it is wanted.
pub const COLD_HANDLES_MAX: usize = 64;

/// Time after which the threads, handles and buffers of cold reads are given back when nobody needs them, in
/// milliseconds.
pub const COLD_IDLE_MS: u64 = 10_000;

/// Fetches parked on one partition. When full, a fetch is answered at once with what there is.
pub const PARKED_FETCHES_MAX: usize = 10_000;

/// Idempotent producers remembered per partition (about 200 bytes each). When full, the one that wrote
/// least recently is forgotten: it may then start at any sequence, as an expired one may.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;

/// Idempotent producers remembered by the partitions of one shard together. Each partition gets an
/// equal share, within [`PRODUCERS_PER_PARTITION_MIN`] and [`PRODUCERS_PER_PARTITION_MAX`].
pub const PRODUCERS_PER_SHARD_MAX: usize = 400_000;

/// The smallest share of [`PRODUCERS_PER_SHARD_MAX`] that a partition gets, however many there are.
pub const PRODUCERS_PER_PARTITION_MIN: usize = 500;

/// Producer ids that the controller hands out at once (Kafka's number). What a broker has not used of
/// a block when it stops is lost.
pub const PRODUCER_ID_BLOCK: i64 = 1_000;

/// Longest topic name in bytes (Kafka's rule).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Partitions that one CreateTopics request may ask for in sum; above it each topic is refused.
pub const CREATE_PARTITIONS_MAX: usize = 10_000;

/// Partitions of one shard that are opened or closed at a time.
pub const PARTITIONS_AT_ONCE: usize = 8;

/// File handles that partitions leave to connections and everything else: a quarter of the limit of
/// open files, within these two. Each partition holds one; topics that would need more are refused.
pub const HANDLES_KEPT_MIN: u64 = 128;
/// The other bound of [`HANDLES_KEPT_MIN`].
pub const HANDLES_KEPT_MAX: u64 = 16_384;

/// Fetch sessions of one shard. When full, a new one takes the place of one that was idle for
/// [`FETCH_SESSION_EVICTION_MS`], or of a smaller one of that age; else its client gets none and fetches
/// everything each time.
pub const FETCH_SESSIONS_MAX: usize = 1_000;

/// Partitions of all fetch sessions of one shard (some 200 bytes each, and the name before Fetch 13). When full, the same happens.
pub const FETCH_SESSION_PARTITIONS_MAX: usize = 200_000;

/// Age at which a fetch session may have to give way, in milliseconds (Kafka's number).
pub const FETCH_SESSION_EVICTION_MS: u64 = 120_000;

/// Partitions that one DescribeTopicPartitions answer tells (Kafka's default of
/// `max.request.partition.size.limit`). The rest comes by its cursor.
pub const DESCRIBED_PARTITIONS_MAX: usize = 2_000;

/// Bytes of one setting's value that AlterConfigs takes; a longer one is refused.
pub const CONFIG_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Size of a configuration file. A larger one is taken for a wrong path and refused.
pub const CONFIG_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Output of decompressing one batch, in bytes. A larger one is refused.
pub const DECOMPRESSED_BATCH_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Decompressed bytes per compressed byte of one batch, once the output passes
/// [`DECOMPRESSION_UNRATED_BYTES`]. A batch beyond it is refused as too large, which makes Kafka's
/// producers split it.
pub const DECOMPRESSION_RATIO_MAX: usize = 256;

/// Output of decompressing one batch, in bytes, up to which any ratio is fine: small batches of
/// repeated bytes are honest.
pub const DECOMPRESSION_UNRATED_BYTES: usize = 16 * 1024 * 1024;

/// Largest window of a zstd frame, as a power of two: what Kafka's clients and zstd itself accept. A
/// frame that asks for more is refused.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Memory of the zstd decompression context that a thread keeps for its next batch. One that a frame
/// with a large window has grown beyond it is freed.
pub const ZSTD_CONTEXT_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Records of one batch whose refusal is spelled out in the answer to a produce request. Further ones
/// are refused with the batch, without a line of their own.
pub const RECORD_REFUSALS_MAX: usize = 100;

/// The same of all batches of one request together: each may be named as often as a request has elements.
pub const REQUEST_RECORD_REFUSALS_MAX: usize = 1_000;

/// Elements that all arrays of one request may have together: names, partitions, groups, resources.
/// A request above it closes its connection. Far more than a client of the largest clusters sends.
pub const REQUEST_ELEMENTS_MAX: usize = 100_000;

/// Elements of a request that are worked on before other tasks of the shard run.
pub const TURN_ELEMENTS_MAX: usize = 128;

/// Bytes of a batch that are as much work as one element: its checksum is computed, its records are walked.
pub const TURN_ELEMENT_BYTES: usize = 8 * 1024;

/// Partitions of one OffsetCommit or OffsetDelete that its coordinator is given in one turn of the core, as one batch of its
/// log, and offsets of a group that is deleted that end in one.
pub const OFFSET_COMMIT_ROWS_PER_TURN: usize = 500;

/// Bytes of metadata after which a part of an OffsetCommit ends before that.
pub const OFFSET_COMMIT_BYTES_PER_TURN: usize = 256 * 1024;

/// Partitions of one OffsetFetch, or of one look at how far a group is behind, that its coordinator looks up in one turn
/// of the core.
pub const OFFSET_FETCH_ROWS_PER_TURN: usize = 1_000;

/// Bytes of metadata after which it stops before that.
pub const OFFSET_FETCH_BYTES_PER_TURN: usize = 256 * 1024;

/// Members that a coordinator tells of in one turn of the core when a group is described; each name that one subscribes
/// to and each topic of its shares counts as much as a member. The rest is asked for again.
pub const MEMBERS_TOLD_PER_TURN: usize = 1_000;

/// Members of one LeaveGroup that a coordinator lets go in one turn of the core. The rest goes in the next ones.
pub const MEMBERS_LEAVING_PER_TURN: usize = 500;

/// Groups that a coordinator looks at in one turn of the core for ListGroups. The rest is asked for again.
pub const GROUPS_LISTED_PER_TURN: usize = 1_000;

/// Timers that one turn of a coordinator fires. The others fire in the next ones.
pub const COORDINATOR_TIMERS_PER_TURN: usize = 64;

/// Names that one member of a group of the newer protocol subscribes to: its coordinator goes through all of them in one
/// turn of the core. A longer list is refused with INVALID_REQUEST; a regular expression has no such bound.
pub const SUBSCRIBED_NAMES_MAX: usize = 2_000;

/// Groups of one request whose coordinators are asked before the first has answered.
pub const GROUPS_ASKED_AT_ONCE: usize = 16;

/// Bytes, roughly, of an answer about groups or settings that any number of small requests may have half built at once. A
/// larger one is built when its turn among large requests has come.
pub const SMALL_ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Partitions of a fetch that does not wait for its turn among large requests, whatever its session
/// adds to what its frame names.
pub const SMALL_FETCH_PARTITIONS_MAX: usize = 2_000;

/// Partitions named by the parked fetches of one shard's connections together (about 500 bytes each).
/// When full, a fetch is answered at once with what there is.
pub const PARKED_PARTITIONS_MAX: usize = 500_000;

/// Bytes of finished answers in memory that may wait for the sockets of one shard together. When
/// reached, no further answer is begun, and clients that have taken nothing for
/// [`ANSWER_PRESSURE_MS`] are closed, who waited longest first.
pub const SHARD_ANSWER_MEMORY_BYTES: usize = 128 * 1024 * 1024;

/// How long a client may take nothing of its answer while the memory of answers is used up, in
/// milliseconds.
pub const ANSWER_PRESSURE_MS: u64 = 2_000;

/// Age, in milliseconds, from which a request that has not arrived whole may have to go when others wait for
/// its memory.
pub const ARRIVAL_PRESSURE_MS: u64 = 2_000;

/// Pace below which it then goes, in bytes per second, the slowest first.
pub const ARRIVAL_PACE_BYTES: u64 = 64 * 1024;

/// The same for large requests: they must be on the way to arrive within this, in seconds.
pub const ARRIVAL_WHOLE_S: u64 = 30;

/// Memory that the arrays of one decoded message may take whatever its size, in bytes. With
/// [`DECODED_MEMORY_FACTOR`] it keeps a frame of tiny elements from growing out of proportion; a
/// message above the sum is refused.
pub const DECODED_MEMORY_BASE_BYTES: usize = 16 * 1024 * 1024;

/// Times the frame's length that its arrays may take in memory above
/// [`DECODED_MEMORY_BASE_BYTES`].
pub const DECODED_MEMORY_FACTOR: usize = 4;

/// Batches at the end of one log whose places are kept in memory. Readers further back go by the
/// index.
pub const TAIL_BATCHES_MAX: usize = 512;

/// Readers of one log further back of which it is remembered where they go on, so that this is not looked up again.
/// When full, the oldest place is forgotten.
pub const READERS_EXPECTED_MAX: usize = 16;

/// Closed segments of one shard with an open file and their indexes in memory. When full, the one
/// that was not read for the longest time is let go.
pub const WARM_SEGMENTS_MAX: usize = 256;

/// Bytes of the indexes of those segments; the same happens when full.
pub const INDEX_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Different label values per metric (topic names, for example). Further ones are counted under
/// `__other`.
pub const METRIC_LABELS_MAX: usize = 1_000;

/// Slow requests that each core remembers of the current minute, and as many of the one before. The fastest of them
/// makes way for a slower one.
pub const SLOW_REQUESTS_PER_CORE: usize = 32;

/// What took no longer, in microseconds, is no slow request, however few there are.
pub const SLOW_REQUEST_US_MIN: u32 = 1_000;

/// Partitions of each core whose bytes are counted apart, for `/top`. In an interval that has more of them the first ones
/// are told.
pub const BUSY_PARTITIONS_PER_CORE: usize = 4_096;

/// Partitions in one answer of `/top`. More may be asked for, and so many are told.
pub const BUSY_PARTITIONS_TOLD_MAX: usize = 200;

/// Writes of one partition whose ends are remembered while their acknowledgements wait for a flush. Further ones
/// count as the last of them, so that the flush is blamed for a little more.
pub const UNFLUSHED_WRITES_TIMED_MAX: usize = 64;

/// Slow requests in one answer of `/slow`. More may be asked for, and so many are told.
pub const SLOW_REQUESTS_TOLD_MAX: usize = 500;

/// Rows (a group and a partition) of one page of metrics that tell how far groups are behind. The groups
/// that come first by name are told, each shard having its share; the rest is counted.
pub const GROUP_LAG_ROWS_MAX: usize = 2_000;

/// Bytes of the name of a group in a label of a metric. A longer one is cut and ends with a hash of the
/// whole.
pub const GROUP_LABEL_BYTES_MAX: usize = 200;

/// Rebalances of one group that its coordinator remembers. When full, the oldest is forgotten.
pub const REBALANCES_KEPT_MAX: usize = 10;

/// Members that a remembered rebalance names in each of its lists (joined, left, timed out). Further ones
/// are counted.
pub const REBALANCE_NAMES_MAX: usize = 8;

/// Bytes of the name of a group: what the keys of its records can hold.
pub const GROUP_NAME_BYTES_MAX: usize = i16::MAX as usize;

/// Groups that have settings of their own in the metadata log. When full, those of further groups are
/// refused with POLICY_VIOLATION.
pub const GROUPS_WITH_SETTINGS_MAX: usize = 10_000;

/// Groups of one partition of the offsets topic. When full, new groups are refused.
pub const COORDINATOR_GROUPS_MAX: usize = 20_000;

/// Bytes of groups and offsets of one partition of the offsets topic. When full, new members and
/// offsets are refused.
pub const COORDINATOR_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Part of the two bounds around this, as a divisor, that known members and offsets may take beyond them: a group that is
/// shared out anew grows now and then, and goes on where nothing new is taken any more.
pub const COORDINATOR_GROWTH_SHARE: usize = 4;

/// Bytes of groups and offsets of all partitions of the offsets topic that one core owns. When full, new
/// members and offsets are refused.
pub const SHARD_GROUPS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Offsets, members and groups that a look at all groups of a coordinator (for what is over, for
/// topics that are gone, after loading) goes through in one turn of the core. The offsets of a large group
/// take several turns.
pub const COORDINATOR_SWEEP_OFFSETS: usize = 4_000;

/// Offsets that end by themselves (their topic is gone, or their time is over) in one turn of the core, which
/// are one batch. An end is a record, and takes many times what a look at an offset takes.
pub const COORDINATOR_SWEEP_ENDS: usize = 250;

/// Batches of such ends of one group that are on their way to the log at once. The look at the group goes on
/// when they are written.
pub const COORDINATOR_SWEEP_WRITES_MAX: usize = 8;

/// Bytes of a record of a group that are as much work to replay as one element: a member may name thousands of topics.
pub const COORDINATOR_LOAD_ELEMENT_BYTES: usize = 512;

/// Bytes that the members of one group bring along: subscriptions, shares, names. When full, new
/// members and larger shares are refused. They are one record, so it also bounds a batch.
pub const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Member ids of one group that were handed out and are not used yet (KIP-394). When full, joining
/// is refused with GROUP_MAX_SIZE_REACHED.
pub const GROUP_PENDING_MEMBERS_MAX: usize = 10_000;

/// Bytes of a client's id that are kept with its membership and stand in its member id.
pub const MEMBER_CLIENT_ID_BYTES_MAX: usize = 255;

/// Bytes of a regular expression by which a member subscribes. A longer one is refused with
/// INVALID_REGULAR_EXPRESSION.
pub const SUBSCRIPTION_REGEX_BYTES_MAX: usize = 4 * 1024;

/// Bytes that such an expression may take compiled; a larger one is refused in the same way.
pub const SUBSCRIPTION_REGEX_COMPILED_BYTES_MAX: usize = 256 * 1024;

/// Rounds in which partitions move between members that subscribe to different topics, so that all
/// have about as many. What is left uneven then stays so.
pub const ASSIGNOR_BALANCE_PASSES_MAX: usize = 16;

/// Partitions whose log starts one look for old segments makes durable together before it removes the
/// files.
pub const RETENTION_PARTITIONS_TOGETHER: usize = 256;

/// Listeners for clients of one broker.
pub const LISTENERS_MAX: usize = 16;

/// Bytes of a batch without compression up to which a lookup by timestamp looks through it on the core. A
/// larger one, and any compressed one, goes to a worker thread.
pub const LOOKUP_INLINE_BYTES_MAX: usize = 16 * 1024;

/// How often, in ms, it is looked whether a closed segment of a topic whose acknowledgements wait for the disk is on the
/// disk and no checkpoint says so.
pub const DURABLE_SEGMENT_LOOK_MS: u64 = 1_000;

/// Bytes of a segment at most: index entries hold positions as 31 bits. What compaction writes goes on in a
/// further segment there.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// Segments that one compaction makes into one at most, so that the files of a swap are few.
pub const COMPACTION_GROUP_SEGMENTS_MAX: usize = 256;

/// Bytes that a compaction writes before it waits until they are on the disk: what others flush at that
/// time does not wait for more.
pub const COMPACTION_UNSYNCED_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Longest wait before a log whose compaction failed is tried again, in milliseconds.
pub const COMPACTION_BACKOFF_MS_MAX: u64 = 10 * 60 * 1_000;

/// Logs that wait for one cleaner. A shard has one round under way at a time, so there are never more
/// than shards; when full, the shard waits.
pub const COMPACTION_ROUNDS_WAITING_MAX: usize = 1_024;

/// Log directories of one broker.
pub const LOG_DIRS_MAX: usize = 100;

/// How long a failing disk is given to take the trace of its failure before the broker goes on, or ends,
/// without it.
pub const DISK_TRACE_MS_MAX: u64 = 1_000;

/// Time between two looks at the disks of the log directories.
pub const DISK_LOOK_EVERY_MS: u64 = 250;

/// While a disk has so much room above its headroom, nobody counts what comes in between two looks.
pub const DISK_ROOM_COUNTED_BELOW_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Between two lines that say that a disk is nearly full there is at least so much time: four in a minute.
pub const DISK_FULL_TOLD_EVERY_MS: u64 = 15_000;

/// A log directory whose disk has not answered an operation for so long gets no new partitions while another does.
pub const DISK_SILENT_MS: u64 = 1_000;

/// An operation that the disk has not answered for so long is said in the log, once per stall.
pub const DISK_STALL_MS: u64 = 10_000;

/// A stop does not wait any longer for a log directory whose disk has not answered an operation for so long. A slow disk
/// takes some seconds for what a stop has it flush at once.
pub const DISK_LEFT_BEHIND_MS: u64 = 30_000;

/// One in so many bytes of a file system is its headroom, unless `thalweg.log.dirs.headroom.bytes` says
/// otherwise.
pub const HEADROOM_DERIVED_SHARE: u64 = 50;

/// Most bytes of a headroom that is derived from the file system's size.
pub const HEADROOM_DERIVED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One in so many bytes of a file system is set apart in the file `thalweg-reserve`, for the metadata.
pub const DISK_RESERVE_SHARE: u64 = 64;

/// Most bytes of that reserve: the records that a start writes for some ten thousand partitions.
pub const DISK_RESERVE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of the disk that the metadata log keeps for its next batches.
pub const METADATA_ROOM_BYTES: u64 = 64 * 1024;

/// Bytes of the disk that each partition of the offsets topic that is written to keeps for its next batches:
/// commits go on where no byte is left, some hundred small ones per partition.
pub const OFFSETS_ROOM_BYTES: u64 = 64 * 1024;

/// Time between two lines that say how far a start is with opening logs.
pub const OPENING_SAID_EVERY_MS: u64 = 2_000;

/// Time between two lines that say that a checkpoint can not be written.
pub const NOT_RECORDED_SAID_EVERY_MS: u64 = 60_000;

/// Looks of the scrub that wait for its thread. A shard has one under way and one for each segment in which
/// damage was met; when full, the shard's task waits.
pub const SCRUB_LOOKS_WAITING_MAX: usize = 1_024;

/// Pages of one damaged stretch that a search for whole batches behind it finds unreadable: then it ends, and the rest
/// of the segment counts as damaged.
pub const UNREADABLE_PAGES_MAX: u32 = 1_024;

/// Damaged ranges of one segment that are told apart: from the last one on, all of it counts as damaged.
pub const QUARANTINE_RANGES_PER_SEGMENT_MAX: usize = 1_000;

/// Bytes that a move of a log to another log directory copies in one slice; other work of the core comes in
/// between.
pub const MOVE_SLICE_BYTES: u64 = 1024 * 1024;

/// A move holds appends back for its last step once no more than so many bytes are missing.
pub const MOVE_LAST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Time until a move is tried again that lacked something or came upon a changed log, the first time; then ever
/// longer.
pub const MOVE_AGAIN_AFTER_MS: u64 = 250;

/// The longest such time.
pub const MOVE_AGAIN_AFTER_MS_MAX: u64 = 30_000;

/// How often in a row a move may find that its log has changed, or that it can not take its last step, before it
/// gives up.
pub const MOVE_TRIES_MAX: u32 = 20;

/// How often a copy that was complete may be found to differ from its log before the move gives up.
pub const MOVE_DIFFERS_MAX: u32 = 3;

/// Time until a move looks again whether its target has room.
pub const MOVE_ROOM_AGAIN_AFTER_MS: u64 = 500;

/// The same of bytes in closed segments whose copies are not known to be on the disk.
pub const MOVE_UNCLOSED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The same of those segments, each of which takes several flushes, unless they get no fewer any more.
pub const MOVE_UNCLOSED_SEGMENTS_MAX: usize = 4;

/// Bytes of appends to one log that wait while its place changes; further ones are told to come again.
pub const MOVE_HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Files and folders of a shard that could not be removed and are tried again; what is beyond waits for the
/// next start.
pub const LEFTOVERS_WAITING_MAX: usize = 100_000;

/// Time until what could not be removed is tried again, at first.
pub const LEFTOVERS_AGAIN_AFTER_MS_MIN: u64 = 1_000;

/// The same after many tries of no avail.
pub const LEFTOVERS_AGAIN_AFTER_MS_MAX: u64 = 60_000;

/// Partitions that are offline of which one core tells by name when it is asked what it does not serve, and as
/// many ranges in quarantine; beyond, it says how many.
pub const UNSERVED_LINES_MAX: usize = 10_000;

/// Bytes read at once from a partition of the offsets topic while its groups are loaded.
pub const COORDINATOR_LOAD_BYTES: u32 = 256 * 1024;

/// Coordinators of one core that read their logs or replay what they have read at a time. The others wait: reads of many
/// would be in the way of appends, for whom they use up the kernel's workers.
pub const COORDINATORS_LOADING_MAX: u64 = 3;

/// Bytes of a batch without compression up to which the core itself computes its checksum while it loads groups. A larger
/// one, and any compressed one, goes to a worker thread.
pub const COORDINATOR_INLINE_BYTES_MAX: usize = 512 * 1024;

/// Longest time, in milliseconds, that a slice of what coordinators do by slices waits for the writes of its core that are
/// under way.
pub const WRITES_LET_END_MS: u64 = 1;

/// Slices that wait for no write after one that has waited so long in vain: writes that take long are no reason to do
/// nothing else.
pub const SLICES_BESIDE_SLOW_WRITES: u32 = 4;

const _: () = assert!(SHARD_ANSWER_MEMORY_BYTES > 4 * CONNECTION_BACKLOG_BYTES_MAX);
const _: () = assert!(COLD_HANDLES_MAX as u64 <= HANDLES_KEPT_MIN / 2);
const _: () = assert!(COLD_MEMORY_BYTES >= COLD_STRIDE_BYTES * COLD_THREADS_MAX);
const _: () = assert!(SENDFILE_QUANTUM_BYTES >= COLD_STRIDE_BYTES);
const _: () = assert!(REQUEST_ELEMENTS_MAX < PARKED_PARTITIONS_MAX);
const _: () = assert!(GROUP_BYTES_MAX < COORDINATOR_BYTES_MAX);
const _: () = assert!(COORDINATOR_SWEEP_ENDS <= COORDINATOR_SWEEP_OFFSETS);
const _: () = assert!(COORDINATOR_BYTES_MAX < SHARD_GROUPS_BYTES_MAX);
const _: () = assert!(ZEROS_STEP_BYTES_MIN <= ZEROS_STEP_BYTES_MAX);
const _: () = assert!(CONNECTION_IN_FLIGHT_MAX >= 1);
const _: () = assert!(SHARD_REQUEST_MEMORY_BYTES >= REQUEST_BYTES_MAX as u64);
const _: () = assert!(FRAME_STEP_BYTES_MIN <= SMALL_FRAMES_READ_BYTES_MAX);
const _: () = assert!(2 * SMALL_FRAMES_READ_BYTES_MAX <= READ_CHUNK_BYTES);
