//! Requests between shards: what the core of a connection asks of the core that owns a partition.
//!
//! Buffers move with the message; nothing is shared but file handles and wake flags.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_net::Unread;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::BatchSummary;
use thalweg_reactor::event::Event;
use thalweg_reactor::oneshot;
use thalweg_replica::{Acks, Isolation, Sought};
use thalweg_storage::{AbortedTxn, ReadPlan};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs, TopicPartition};

use crate::append_group::{Outcomes, Row};
use crate::coordinator::GroupAsk;
use crate::question::{PartitionAnswer, PartitionAsk};

/// One validated batch on its way to the owner of its partition.
pub(crate) struct AppendAsk {
    /// Place of the batch in its request.
    pub row: Row,
    /// Where it goes.
    pub id: TopicPartition,
    /// The batch, as the client sent it; offset and epoch are patched in place by the owner.
    pub batch: BytesMut,
    /// What validation found.
    pub summary: BatchSummary,
    /// When that was, by the broker's clock.
    pub received: TimestampMs,
}

/// One partition of a fetch.
#[derive(Debug, Clone)]
pub(crate) struct FetchAsk {
    /// Index of the partition in its request.
    pub slot: usize,
    /// Index of the shard that has it.
    pub owner: usize,
    /// What is read.
    pub id: TopicPartition,
    /// First offset wanted.
    pub offset: Offset,
    /// Leader epoch the client believes in, -1 for none (KIP-320).
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record the client has, -1 for none (KIP-595).
    pub last_fetched_epoch: LeaderEpoch,
    /// Most bytes of records; a larger first batch is sent whole all the same, so that a consumer
    /// always makes progress (KIP-74).
    pub bytes_max: u32,
    /// How far the client may read.
    pub isolation: Isolation,
}

/// What the owner says to a [`FetchAsk`].
#[derive(Debug)]
pub(crate) struct FetchFound {
    /// Index of the partition in its request.
    pub slot: usize,
    /// `None` or Kafka's error.
    pub error: ErrorCode,
    /// High watermark, -1 with an error.
    pub high_watermark: Offset,
    /// Last stable offset, -1 with an error.
    pub last_stable: Offset,
    /// First offset of the log, -1 with an error.
    pub log_start: Offset,
    /// Where the client's history leaves the leader's: (epoch, its end offset).
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Too many fetches are parked on the partition already, or its shard is stopping: answer with what
    /// there is.
    pub crowded: bool,
    /// How long the look waited for the disk.
    pub disk_wait: Duration,
    /// The bytes to send; `None` when there is nothing to send now.
    pub plan: Option<ReadPlan>,
    /// Bytes that count for `min_bytes`: those of the plan, or as many as were asked for where there are more.
    pub available: u64,
    /// For a reader of committed records: the aborted transactions among them (RP-75).
    pub aborted: Option<Vec<AbortedTxn>>,
}

impl FetchFound {
    /// An answer that is only an error.
    pub(crate) fn refused(slot: usize, error: ErrorCode) -> FetchFound {
        FetchFound {
            slot,
            error,
            high_watermark: Offset(-1),
            last_stable: Offset(-1),
            log_start: Offset(-1),
            diverging: None,
            crowded: false,
            disk_wait: Duration::ZERO,
            plan: None,
            available: 0,
            aborted: None,
        }
    }

    /// True when the request must be answered now, whatever `min_bytes` says.
    pub(crate) fn is_urgent(&self) -> bool {
        self.error != ErrorCode::None || self.diverging.is_some() || self.crowded
    }

    /// Bytes of records found.
    pub(crate) fn bytes(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| u64::from(plan.len))
    }
}

/// Names a parked fetch at its owner: unique per connection shard.
pub(crate) type ParkId = u64;

/// A fetch that asks to be woken when one of its partitions has more.
#[derive(Clone)]
pub(crate) struct Park {
    /// Under which the registration is found again.
    pub id: ParkId,
    /// Opened once when there is more.
    pub wake: Event,
    /// Bytes that each partition should gain before it wakes the fetch.
    pub missing_bytes: u64,
    /// With so many bytes in one partition the fetch is answered, and that one need not wake it.
    pub enough_bytes: u64,
}

/// One partition of ListOffsets.
#[derive(Debug, Clone)]
pub(crate) struct OffsetAsk {
    /// Index of the partition in its request.
    pub slot: usize,
    /// Whose offsets.
    pub id: TopicPartition,
    /// Which of its offsets.
    pub sought: Sought,
    /// Leader epoch the client believes in, -1 for none.
    pub current_leader_epoch: LeaderEpoch,
    /// How far the client may read.
    pub isolation: Isolation,
}

/// What the owner says to an [`OffsetAsk`].
#[derive(Debug, Clone)]
pub(crate) struct OffsetFound {
    /// Index of the partition in its request.
    pub slot: usize,
    /// (offset, timestamp, epoch of the record); -1 each when there is no such record.
    pub result: Result<(Offset, TimestampMs, LeaderEpoch), ErrorCode>,
}

/// A request in the mailbox of another shard.
pub(crate) struct Mail {
    /// When it was sent, for the time of the hop.
    pub sent: Instant,
    /// What is asked.
    pub request: PeerRequest,
}

/// A message to the shard that owns the partitions named in it.
pub(crate) enum PeerRequest {
    /// Append batches, in this order.
    Append {
        /// The batches.
        asks: Vec<AppendAsk>,
        /// When to answer.
        acks: Acks,
        /// Gets every outcome at once.
        reply: oneshot::Sender<Outcomes>,
    },
    /// Find what to send.
    Fetch {
        /// The partitions.
        asks: Vec<FetchAsk>,
        /// Register for a wake in the same step as looking.
        park: Option<Park>,
        /// Gets every answer at once.
        reply: oneshot::Sender<Vec<FetchFound>>,
    },
    /// Forget a parked fetch.
    Unpark {
        /// The registration.
        id: ParkId,
        /// The partitions it named.
        partitions: Vec<TopicPartition>,
    },
    /// Answer questions about partitions.
    Questions {
        /// The questions.
        asks: Vec<PartitionAsk>,
        /// Gets every answer at once.
        reply: oneshot::Sender<Vec<PartitionAnswer>>,
    },
    /// Find offsets.
    ListOffsets {
        /// The partitions.
        asks: Vec<OffsetAsk>,
        /// Gets every answer at once.
        reply: oneshot::Sender<Vec<OffsetFound>>,
    },
    /// Ask the coordinator of a group.
    Group(Box<GroupAsk>),
    /// Find out what of a partition's file is lost. Nobody waits for it.
    Unread {
        /// The partition.
        id: TopicPartition,
        /// What could not be read.
        unread: Unread,
    },
}
