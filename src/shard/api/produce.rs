//! Produce: validate each batch, send it to the owner of its partition, answer as `acks` asks.
//!
//! Validation runs on the connection's core, so an owner spends its turns on appends only. Cost per
//! batch: no copy of records, one CRC pass, one walk over uncompressed records; a batch for another
//! core moves there by pointer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_config::{Compression, TimestampType, TopicConfig};
use thalweg_control::ClusterView;
use thalweg_metrics::Stage;
use thalweg_net::{Account, MemoryPermit};
use thalweg_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use thalweg_protocol::messages::{ProduceRequest, ProduceResponse};
use thalweg_protocol::records::{
    self, BATCH_HEADER_BYTES, BatchSummary, Codec, Level, ProduceRules, RecordRefusal, Refusal,
    TimestampRule,
};
use thalweg_protocol::wire::Few;
use thalweg_protocol::{ApiKey, ErrorCode, Records};
use thalweg_reactor::{oneshot, task, time};
use thalweg_replica::{Acks, Refused};
use thalweg_types::limits::{
    DECOMPRESSED_BATCH_BYTES_MAX, REQUEST_RECORD_REFUSALS_MAX, TURN_ELEMENT_BYTES,
    TURN_ELEMENTS_MAX,
};
use thalweg_types::{PartitionIndex, ShardId, TimestampMs, TopicId, TopicPartition};

use crate::append_group::{AppendGroup, AppendTimes, Appended, Outcomes, Row};
use crate::peer::AppendAsk;
use crate::service::Call;
use crate::shard::Shard;

/// Longest wait for a write of this broker, where the client does not ask for a longer one.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The client id by which Kafka's tools write to topics that the broker keeps for itself; from any
/// other client that is a mistake.
const INTERNAL_WRITER: &str = "__admin_client";

/// A produce request whose appends are on their way.
pub(crate) struct Producing {
    shard: Rc<Shard>,
    pub(crate) call: Call,
    /// The answer: every appended batch stands as timed out until its outcome is known.
    pub(crate) response: ProduceResponse,
    /// Where its batch goes, if it has but one.
    partition: Option<TopicPartition>,
    /// Of the owner that decided last, among those that have.
    times: Option<AppendTimes>,
    /// Owners that have not answered: this core, and others.
    here: Option<Rc<AppendGroup>>,
    elsewhere: Vec<oneshot::Receiver<Outcomes>>,
    received: Instant,
    /// Then the request is answered with what is known.
    deadline: Instant,
    /// The client wants no answer.
    silent: bool,
    permit: Option<MemoryPermit>,
}

/// First phase, in request order: everything up to the appends being queued at their owners, or as much of it as a turn
/// of the core has room for.
pub(crate) fn begin(
    shard: &Rc<Shard>,
    request: ProduceRequest,
    call: Call,
    permit: MemoryPermit,
) -> Sorting {
    let mut sorting = Sorting::new(Rc::clone(shard), request, call, permit);
    sorting.slice();
    sorting
}

/// `timeout_ms` is about waiting for other replicas. Until there are some, every answer only waits for
/// this broker's own write and comes when that has ended, as Kafka's does whatever the timeout; a
/// stalled disk must not hold it for ever.
fn wait_max(timeout_ms: i32) -> Duration {
    let asked = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    asked.max(WRITE_WAIT_MAX)
}

/// Sorts the batches of one request by owner, appends those of this core, and fills the rows of those that are
/// refused.
pub(crate) struct Sorting {
    shard: Rc<Shard>,
    view: Arc<ClusterView>,
    call: Call,
    acks: Result<Acks, ErrorCode>,
    now: TimestampMs,
    /// What is not sorted yet: topics, and batches of the last topic of `responses`, with its id if it may be written to.
    topics: <Few<TopicProduceData> as IntoIterator>::IntoIter,
    batches: <Few<PartitionProduceData> as IntoIterator>::IntoIter,
    topic: Result<TopicId, ErrorCode>,
    responses: Few<TopicProduceResponse>,
    /// Of the batches that are not refused, the partition of the first and their number.
    first: Option<TopicPartition>,
    count: usize,
    /// Refused records that may still be spelled out.
    refusals_left: usize,
    /// For partitions of this core, appended already.
    here: Option<Rc<AppendGroup>>,
    /// For those of others, by owner; as long as the last of them asks for.
    elsewhere: Vec<Vec<AppendAsk>>,
    received: Instant,
    wait_max: Duration,
    permit: MemoryPermit,
}

/// An error to report.
struct Complaint {
    error: ErrorCode,
    /// What a person should read beside it.
    text: Option<String>,
    /// The records that it is about, where it is about single ones (KIP-467): a client tells them from the others
    /// of their batch, which it may send again.
    records: Vec<RecordRefusal>,
}

impl From<ErrorCode> for Complaint {
    fn from(error: ErrorCode) -> Complaint {
        Complaint {
            error,
            text: None,
            records: Vec::new(),
        }
    }
}

impl From<(ErrorCode, String)> for Complaint {
    fn from((error, text): (ErrorCode, String)) -> Complaint {
        Complaint {
            text: Some(text),
            ..error.into()
        }
    }
}

impl From<Refusal> for Complaint {
    fn from(refusal: Refusal) -> Complaint {
        Complaint {
            records: refusal.record_refusals().to_vec(),
            ..(refusal.error_code(), refusal.to_string()).into()
        }
    }
}

impl Sorting {
    fn new(shard: Rc<Shard>, request: ProduceRequest, call: Call, permit: MemoryPermit) -> Sorting {
        Sorting {
            view: shard.view(),
            shard,
            acks: Acks::from_wire(request.acks).map_err(Refused::code),
            now: TimestampMs(time::unix_ms()),
            responses: Few::with_capacity(request.topic_data.len()),
            topics: request.topic_data.into_iter(),
            batches: Few::new().into_iter(),
            topic: Err(ErrorCode::UnknownTopicOrPartition),
            first: None,
            count: 0,
            refusals_left: REQUEST_RECORD_REFUSALS_MAX,
            here: None,
            elsewhere: Vec::new(),
            received: call.conn.received(),
            wait_max: wait_max(request.timeout_ms),
            call,
            permit,
        }
    }

    /// Sorts as much as one turn of the core has room for; a large batch is several elements of work.
    fn slice(&mut self) {
        let mut done = 0;
        while done < TURN_ELEMENTS_MAX {
            if let Some(data) = self.batches.next() {
                done += 1 + data.records.as_ref().map_or(0, Records::len) / TURN_ELEMENT_BYTES;
                self.sort(data);
            } else if let Some(topic) = self.topics.next() {
                done += 1;
                self.begin_topic(topic);
            } else {
                return;
            }
        }
    }

    /// True when nothing is left to sort.
    fn is_sorted(&self) -> bool {
        self.batches.as_slice().is_empty() && self.topics.as_slice().is_empty()
    }

    /// True when all is sorted and nothing goes to another core.
    pub(crate) fn is_done(&self) -> bool {
        self.is_sorted() && self.elsewhere.is_empty()
    }

    /// Sorts what is left, in slices, and queues at other cores what is theirs.
    pub(crate) async fn go_on(mut self) -> Producing {
        while !self.is_sorted() {
            task::yield_now().await;
            self.slice();
        }
        let elsewhere = std::mem::take(&mut self.elsewhere);
        let acks = self.acks;
        let mut producing = self.finish();
        for (owner, asks) in elsewhere.into_iter().enumerate() {
            // With invalid acks no batch got this far.
            if let Ok(acks) = acks
                && !asks.is_empty()
            {
                let answer = producing.shard.append_at(owner, asks, acks).await;
                producing.elsewhere.push(answer);
            }
        }
        producing
    }

    /// All that is of this core is appended, and nothing of others is there.
    pub(crate) fn finish(self) -> Producing {
        Producing {
            shard: self.shard,
            call: self.call,
            response: ProduceResponse {
                responses: self.responses,
                ..Default::default()
            },
            partition: self.first.filter(|_| self.count == 1),
            times: None,
            here: self.here,
            elsewhere: Vec::new(),
            received: self.received,
            deadline: self.received + self.wait_max,
            silent: self.acks == Ok(Acks::None),
            permit: Some(self.permit),
        }
    }

    /// Begins the answer for a topic.
    fn begin_topic(&mut self, topic: TopicProduceData) {
        self.topic = self.find(&topic);
        self.responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: Few::with_capacity(topic.partition_data.len()),
        });
        self.batches = topic.partition_data.into_iter();
    }

    /// The topic, if it may be written to.
    fn find(&self, topic: &TopicProduceData) -> Result<TopicId, ErrorCode> {
        let found = match topic.topic_id.is_zero() {
            true => self
                .view
                .image
                .topic(&topic.name)
                .ok_or(ErrorCode::UnknownTopicOrPartition),
            false => self
                .view
                .image
                .topic_by_id(topic.topic_id)
                .ok_or(ErrorCode::UnknownTopicId),
        };
        found.and_then(|found| {
            match found.is_internal() && self.call.client_id.as_deref() != Some(INTERNAL_WRITER) {
                true => Err(ErrorCode::InvalidTopicException),
                false => Ok(found.id),
            }
        })
    }

    /// Appends a batch of the last topic or puts it among those of its owner, and adds its row to the answer.
    fn sort(&mut self, data: PartitionProduceData) {
        let Some(topic) = self.responses.len().checked_sub(1) else {
            return;
        };
        let at = Row {
            topic,
            partition: self.responses[topic].partition_responses.len(),
        };
        let mut row = PartitionProduceResponse {
            index: data.index,
            base_offset: -1,
            ..Default::default()
        };
        let partition = PartitionIndex(data.index);
        let id = self.topic.map(|topic| TopicPartition { topic, partition });
        match self.take(id, data.records, at) {
            // Until its outcome is known.
            Ok(()) => row.error_code = ErrorCode::RequestTimedOut.code(),
            Err(complaint) => {
                row.error_code = complaint.error.code();
                row.error_message = complaint.text;
                row.record_errors = self.spelled_out(&complaint.records);
            }
        }
        self.responses[topic].partition_responses.push(row);
    }

    /// The records that are refused, as far as one answer has room for them.
    fn spelled_out(&mut self, refused: &[RecordRefusal]) -> Vec<BatchIndexAndErrorMessage> {
        let count = refused.len().min(self.refusals_left);
        self.refusals_left -= count;
        let spelled = refused[..count]
            .iter()
            .map(|one| BatchIndexAndErrorMessage {
                batch_index: one.index,
                batch_index_error_message: Some(one.reason.to_string()),
            });
        spelled.collect()
    }

    /// The batch is on its way, unless it is refused.
    fn take(
        &mut self,
        id: Result<TopicPartition, ErrorCode>,
        records: Option<Records>,
        row: Row,
    ) -> Result<(), Complaint> {
        let acks = self.acks?;
        let (owner, ask) = self.check(id, records, row)?;
        self.first.get_or_insert(ask.id);
        self.count += 1;
        if owner == self.shard.id {
            let group = self.here.get_or_insert_with(AppendGroup::new);
            group.one_more();
            self.shard.append_here(ask, acks, group);
            return Ok(());
        }
        let owner = usize::from(owner.0);
        if self.elsewhere.len() <= owner {
            self.elsewhere.resize_with(owner + 1, Vec::new);
        }
        self.elsewhere[owner].push(ask);
        Ok(())
    }

    fn check(
        &self,
        id: Result<TopicPartition, ErrorCode>,
        records: Option<Records>,
        row: Row,
    ) -> Result<(ShardId, AppendAsk), Complaint> {
        let id = id?;
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let owner = self.view.owner(id).ok_or(unknown)?;
        let config = self.shard.topic_config(id.topic).ok_or(unknown)?;
        // A decoded request always holds its bytes.
        let Some(Records::Held(mut batch)) = records else {
            return Err((ErrorCode::InvalidRecord, "no record batch".to_owned()).into());
        };
        let rules = rules(&config, self.call.version, self.now);
        let mut summary = records::validate_produce(&batch, &rules)?;
        summary.settle(&mut batch);
        if let Some((codec, level)) = stored_codec(&config, &summary) {
            batch = recompressed(batch, &mut summary, codec, level, &rules)?;
        }
        let ask = AppendAsk {
            row,
            id,
            batch,
            summary,
            received: self.now,
        };
        Ok((owner, ask))
    }
}

/// A topic's properties as they bind a batch.
fn rules(config: &TopicConfig, produce_version: i16, now: TimestampMs) -> ProduceRules {
    let timestamps = match config.message_timestamp_type() {
        TimestampType::CreateTime => TimestampRule::CreateTime {
            now,
            before_max_ms: config.message_timestamp_before_max_ms(),
            after_max_ms: config.message_timestamp_after_max_ms(),
        },
        TimestampType::LogAppendTime => TimestampRule::LogAppendTime { now },
    };
    ProduceRules {
        max_batch_bytes: config.max_message_bytes() as usize,
        segment_bytes: config.segment_bytes() as usize,
        decompressed_bytes_max: DECOMPRESSED_BATCH_BYTES_MAX,
        timestamps,
        keys_required: config.cleanup_policy().compact,
        produce_version,
    }
}

/// The codec that the topic stores batches in, when it is not the batch's own.
fn stored_codec(config: &TopicConfig, summary: &BatchSummary) -> Option<(Codec, Level)> {
    let of = |level: Option<i32>| level.map_or(Level::Default, Level::Of);
    let (codec, level) = match config.compression() {
        Compression::AsSent => return None,
        Compression::Uncompressed => (Codec::None, Level::Default),
        Compression::Gzip(level) => (Codec::Gzip, of(level)),
        Compression::Snappy => (Codec::Snappy, Level::Default),
        Compression::Lz4 => (Codec::Lz4, Level::Default),
        Compression::Zstd(level) => (Codec::Zstd, of(level)),
    };
    (codec != summary.codec).then_some((codec, level))
}

/// The batch in another codec. It must fit the topic's limit as it is stored, too.
fn recompressed(
    batch: BytesMut,
    summary: &mut BatchSummary,
    codec: Codec,
    level: Level,
    rules: &ProduceRules,
) -> Result<BytesMut, Complaint> {
    let bytes_max = rules.max_batch_bytes.min(rules.segment_bytes);
    let too_large = |bytes: usize| {
        let text = format!(
            "the batch has {bytes} bytes as {}, at most {bytes_max} are allowed",
            codec.name()
        );
        Complaint::from((ErrorCode::MessageTooLarge, text))
    };
    let plain_bytes = BATCH_HEADER_BYTES + summary.uncompressed_bytes;
    if codec == Codec::None && plain_bytes > bytes_max {
        return Err(too_large(plain_bytes));
    }
    let stored = records::recompress(&batch, codec, level, rules.decompressed_bytes_max)
        .map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))?;
    if stored.len() > bytes_max {
        return Err(too_large(stored.len()));
    }
    // Readers have the same limit: what they would refuse must not be stored.
    let payload_bytes = stored.len() - BATCH_HEADER_BYTES;
    let readable = records::output_limit(payload_bytes, rules.decompressed_bytes_max);
    if summary.uncompressed_bytes > readable {
        let text = format!(
            "the batch has {} bytes of records, which {} shrinks so far that readers would take it for \
             a bomb (at most {readable} bytes): send smaller batches",
            summary.uncompressed_bytes,
            codec.name()
        );
        return Err((ErrorCode::MessageTooLarge, text).into());
    }
    summary.bytes = stored.len();
    summary.codec = codec;
    Ok(BytesMut::from(stored))
}

/// Second phase, for an answer of the connection that the request came by, whose task polls it: waits for
/// the owners, at most as long as the client said. The time is kept by the sweeper of connections: a timer
/// of its own per request would cost more than the wait.
pub(crate) async fn finish(producing: &mut Producing) {
    let mut looked_before = false;
    poll_fn(|cx| {
        if producing.poll_outcomes(cx).is_ready() {
            return Poll::Ready(());
        }
        if std::mem::replace(&mut looked_before, true) && time::now() >= producing.deadline {
            return Poll::Ready(());
        }
        producing.call.conn.wake_at(producing.deadline);
        Poll::Pending
    })
    .await;
    producing.permit = None;
    let ended = producing.times.map_or_else(time::now, |times| times.ended);
    let took = ended.saturating_duration_since(producing.received);
    let mut metrics = producing.shard.metrics.borrow_mut();
    metrics.record(Stage::Produce, took);
}

/// As [`finish`], for a task that no connection polls.
pub(crate) async fn finish_apart(producing: &mut Producing) {
    let deadline = producing.deadline;
    let outcomes = poll_fn(|cx| producing.poll_outcomes(cx));
    // What is not known then stands as timed out.
    let _ = time::timeout_at(deadline, outcomes).await;
    producing.permit = None;
}

impl Producing {
    /// What the request waited for, once it is finished.
    pub(crate) fn account(&self) -> Account {
        Account {
            api: ApiKey::Produce.name(),
            partition: self.partition,
            begun: self.times.map(|times| times.began),
            spent: self.times.map(|times| times.spent()).unwrap_or_default(),
            ..Account::default()
        }
    }

    /// The client wants no answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Fills the rows of owners that have answered; ready when all have.
    fn poll_outcomes(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (response, last) = (&mut self.response, &mut self.times);
        let mut take = |outcomes: Poll<Outcomes>| match outcomes {
            Poll::Ready(outcomes) => {
                // Of several owners the last one is to blame.
                let known =
                    last.is_some_and(|last| outcomes.times.is_none_or(|t| t.ended < last.ended));
                if !known {
                    *last = outcomes.times;
                }
                fill(response, outcomes);
                true
            }
            Poll::Pending => false,
        };
        if self.here.as_ref().is_some_and(|here| take(here.poll(cx))) {
            self.here = None;
        }
        self.elsewhere.retain_mut(|answer| {
            let outcomes = Pin::new(answer).poll(cx);
            !take(outcomes.map(Option::unwrap_or_default))
        });
        match self.here.is_none() && self.elsewhere.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

fn fill(response: &mut ProduceResponse, outcomes: Outcomes) {
    for Appended { row, result } in outcomes {
        let topic = &mut response.responses[row.topic];
        let row = &mut topic.partition_responses[row.partition];
        match result {
            Ok(placed) => {
                row.error_code = ErrorCode::None.code();
                row.base_offset = placed.base_offset.0;
                row.log_append_time_ms = placed.log_append_time.0;
                row.log_start_offset = placed.log_start.0;
            }
            Err(error) => row.error_code = error.code(),
        }
    }
}

/// True when any batch was refused: with acks=0 the only way to say so is to close the connection.
pub(crate) fn any_refused(response: &ProduceResponse) -> bool {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .any(|row| row.error_code != ErrorCode::None as i16)
}
