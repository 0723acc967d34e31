//! Fetch: ask the owners what there is, park until there is enough, send it by `sendfile`.
//!
//! The connection's core builds the answer and sends it; record bytes never cross cores. Parking
//! registers at every owner in the same step as looking, so no append can slip between the two, and
//! nothing polls while parked.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_control::ClusterView;
use thalweg_metrics::{Cause, Spent, Stage};
use thalweg_net::{Account, Parked};
use thalweg_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use thalweg_protocol::messages::{FetchRequest, FetchResponse};
use thalweg_protocol::{ApiKey, ErrorCode, Records};
use thalweg_reactor::time;
use thalweg_replica::{
    Begun, FetchKey, FetchTopicKey, Fetcher, Found, More, SessionAsk, Told, Wanted,
};
use thalweg_storage::{AbortedTxn, ReadPlan};
use thalweg_types::limits::SMALL_FETCH_PARTITIONS_MAX;
use thalweg_types::{LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition};

use crate::pace::{LargeTurnGuard, Pace};
use crate::parking::Parking;
use crate::peer::{FetchAsk, FetchFound, Park};
use crate::shard::Shard;

/// First version that names topics by id (KIP-516).
const VERSION_TOPIC_IDS: i16 = 13;

/// An answer and the file ranges that belong into its gaps, in order.
pub(crate) struct Fetched {
    /// The answer; its records are external.
    pub response: FetchResponse,
    /// One plan per partition that has records.
    pub plans: Vec<ReadPlan>,
    /// What it waited for.
    pub account: Account,
}

/// The request, resolved: what to ask of whom.
struct Fetching {
    /// Those of one owner together.
    asks: Vec<FetchAsk>,
    found: Vec<FetchFound>,
    bytes_max: u64,
    bytes_min: u64,
    wait_max: Duration,
}

/// One partition's part of the answer.
struct Row {
    wanted: Wanted,
    data: PartitionData,
    plan: Option<ReadPlan>,
    more: More,
}

/// Answers at once when `min_bytes` are there, an error must be told, or nothing can be waited for;
/// else when enough has arrived or `max_wait_ms` is over.
///
/// A large request comes with its turn among them, which it gives back when it parks.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    request: FetchRequest,
    version: i16,
    turn: Option<LargeTurnGuard>,
) -> Fetched {
    let turn = match turn {
        None if remembers_many(&shard, &request) => Some(shard.large_turn.take().await),
        given => given,
    };
    let (begun, wanted) = match begin(&shard, &request, version) {
        Ok(begun) => begun,
        Err(error) => return refused(&shard, error),
    };
    let view = shard.view();
    let mut fetching = resolve(&shard, &view, &request, &wanted).await;

    let began = time::now();
    let mut waited = Duration::ZERO;
    let mut found = look(&shard, &fetching, None).await;
    if !is_enough(&found, &fetching) && !fetching.wait_max.is_zero() && !fetching.asks.is_empty() {
        drop(turn);
        let parked = time::now();
        found = wait(&shard, &fetching, found).await;
        waited = time::now() - parked;
        shard.metrics.borrow_mut().record(Stage::FetchWait, waited);
    }
    found.append(&mut fetching.found);
    fetching.found = found;
    let account = account(&fetching, began, waited);
    let rows = rows(&shard, wanted, fetching).await;
    let fetched = match finish(&shard, begun, &rows) {
        Ok((session_id, told)) => build(session_id, rows, &told, account),
        Err(error) => return refused(&shard, error),
    };
    count(&shard, &view, &fetched.response);
    shard
        .metrics
        .borrow_mut()
        .record(Stage::Fetch, time::now() - began - waited);
    fetched
}

/// Parks until there is enough or the client's time is over; returns what is there then.
async fn wait(
    shard: &Rc<Shard>,
    fetching: &Fetching,
    mut found: Vec<FetchFound>,
) -> Vec<FetchFound> {
    let deadline = time::now() + fetching.wait_max;
    let partitions = fetching.asks.iter().map(|ask| (ask.owner, ask.id));
    let parking = Parking::new(Rc::clone(shard), partitions.collect(), fetching.bytes_min);
    let Some(mut parking) = parking else {
        return found;
    };
    loop {
        let missing = fetching.bytes_min.saturating_sub(available(&found));
        let park = parking.register(missing);
        found = look(shard, fetching, Some(&park)).await;
        if is_enough(&found, fetching) || shard.is_stopping() {
            break;
        }
        let left = deadline.saturating_duration_since(time::now());
        if left.is_zero() || time::timeout(left, parking.woken()).await.is_err() {
            break;
        }
    }
    found
}

/// True when the session of the request stands for so many partitions that the request is a large one,
/// however small its frame.
fn remembers_many(shard: &Shard, request: &FetchRequest) -> bool {
    let sessions = shard.fetch_sessions.borrow();
    sessions.partitions_of(request.session_id) > SMALL_FETCH_PARTITIONS_MAX
}

/// What is to be fetched: what the request names, and what its session remembers.
fn begin(
    shard: &Shard,
    request: &FetchRequest,
    version: i16,
) -> Result<(Begun, Vec<Wanted>), ErrorCode> {
    let key = |name: &str, id| match version >= VERSION_TOPIC_IDS {
        true => FetchTopicKey::Id(id),
        false => FetchTopicKey::Name(Arc::from(name)),
    };
    let mut named = Vec::new();
    for topic in &request.topics {
        let topic_key = key(&topic.topic, topic.topic_id);
        named.extend(topic.partitions.iter().map(|partition| Wanted {
            key: FetchKey {
                topic: topic_key.clone(),
                partition: partition.partition,
            },
            offset: Offset(partition.fetch_offset),
            bytes_max: partition.partition_max_bytes,
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
            last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
        }));
    }
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let topic_key = key(&topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |partition| FetchKey {
            topic: topic_key.clone(),
            partition: *partition,
        })
    });
    let replica_id = request.replica_id.max(request.replica_state.replica_id);
    let ask = SessionAsk {
        id: request.session_id,
        epoch: request.session_epoch,
        from: match replica_id >= 0 {
            true => Fetcher::Follower,
            false => Fetcher::Consumer,
        },
    };
    let mut sessions = shard.fetch_sessions.borrow_mut();
    sessions.begin(now_ms(), ask, named, forgotten)
}

/// The session to answer with, and which rows to tell.
fn finish(shard: &Shard, begun: Begun, rows: &[Row]) -> Result<(i32, Told), ErrorCode> {
    let found = rows.iter().map(|row| {
        let found = Found {
            high_watermark: Offset(row.data.high_watermark),
            log_start: Offset(row.data.log_start_offset),
            more: row.more,
        };
        (&row.wanted, found)
    });
    // Each `RandomState` is keyed afresh.
    let mut draw = || RandomState::new().hash_one(0u8);
    let mut sessions = shard.fetch_sessions.borrow_mut();
    sessions.finish(now_ms(), begun, found, &mut draw)
}

fn now_ms() -> u64 {
    u64::try_from(time::unix_ms()).unwrap_or(0)
}

/// Counts bytes by topic and errors.
fn count(shard: &Shard, view: &ClusterView, response: &FetchResponse) {
    for topic in &response.responses {
        let bytes: u64 = topic.partitions.iter().map(record_bytes).sum();
        let by_id = || view.image.topic_by_id(topic.topic_id);
        if bytes > 0
            && let Some(known) = by_id().or_else(|| view.image.topic(&topic.topic))
        {
            let mut metrics = shard.metrics.borrow_mut();
            metrics.topics.of(&known.name).fetched_bytes += bytes;
            for row in &topic.partitions {
                let id = TopicPartition {
                    topic: known.id,
                    partition: PartitionIndex(row.partition_index),
                };
                if record_bytes(row) > 0 {
                    metrics.traffic.count_out(id, record_bytes(row));
                }
            }
        }
        for row in &topic.partitions {
            shard.count_error(ApiKey::Fetch, row.error_code);
        }
    }
}

fn record_bytes(row: &PartitionData) -> u64 {
    match &row.records {
        Some(Records::Extern(len)) => u64::from(*len),
        Some(Records::Held(_)) | None => 0,
    }
}

fn refused(shard: &Shard, error: ErrorCode) -> Fetched {
    shard.count_error(ApiKey::Fetch, error.code());
    let response = FetchResponse {
        error_code: error.code(),
        ..Default::default()
    };
    Fetched {
        response,
        plans: Vec::new(),
        account: Account {
            api: ApiKey::Fetch.name(),
            ..Account::default()
        },
    }
}

/// What a fetch waited for that looked into its partitions from `began` on, and was parked for `parked` of that.
fn account(fetching: &Fetching, began: Instant, parked: Duration) -> Account {
    let partition = match &fetching.asks[..] {
        [one] => Some(one.id),
        _none_or_several => None,
    };
    let disk_wait: Duration = fetching.found.iter().map(|found| found.disk_wait).sum();
    let mut spent = Spent::default();
    if !disk_wait.is_zero() {
        spent.add(Cause::ColdRead, disk_wait);
    }
    Account {
        api: ApiKey::Fetch.name(),
        partition,
        begun: Some(began),
        parked: Parked::For(parked),
        spent,
    }
}

async fn resolve(
    shard: &Shard,
    view: &ClusterView,
    request: &FetchRequest,
    wanted: &[Wanted],
) -> Fetching {
    let bytes_max = u64::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(shard.fetch_bytes_max());
    // No partition may be promised more than the whole answer may hold.
    let most = u32::try_from(bytes_max).unwrap_or(u32::MAX);
    let isolation = super::isolation(request.isolation_level);
    let mut asks = Vec::with_capacity(wanted.len());
    let mut found = Vec::new();
    let mut last: Option<(&FetchTopicKey, Option<TopicId>)> = None;
    let mut pace = Pace::default();
    for (slot, wanted) in wanted.iter().enumerate() {
        pace.step().await;
        let topic = match last {
            Some((key, topic)) if *key == wanted.key.topic => topic,
            Some(_) | None => lookup(view, &wanted.key.topic),
        };
        last = Some((&wanted.key.topic, topic));
        let id = topic.map(|topic| TopicPartition {
            topic,
            partition: PartitionIndex(wanted.key.partition),
        });
        match id.and_then(|id| view.owner(id).map(|owner| (id, owner))) {
            Some((id, owner)) => asks.push(FetchAsk {
                slot,
                owner: usize::from(owner.0),
                id,
                offset: wanted.offset,
                current_leader_epoch: wanted.current_leader_epoch,
                last_fetched_epoch: wanted.last_fetched_epoch,
                bytes_max: u32::try_from(wanted.bytes_max).unwrap_or(0).min(most),
                isolation,
            }),
            None => {
                let unknown = match (topic, &wanted.key.topic) {
                    (None, FetchTopicKey::Id(_)) => ErrorCode::UnknownTopicId,
                    (None, FetchTopicKey::Name(_)) | (Some(_), _) => {
                        ErrorCode::UnknownTopicOrPartition
                    }
                };
                found.push(FetchFound::refused(slot, unknown));
            }
        }
    }
    asks.sort_unstable_by_key(|ask| (ask.owner, ask.slot));
    // More than may be sent can not be waited for, of all partitions together or of each (KIP-541).
    let sent_max = asks.iter().map(|ask| u64::from(ask.bytes_max)).sum();
    let bytes_min = u64::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
    Fetching {
        bytes_min: if asks.is_empty() {
            bytes_min
        } else {
            bytes_min.min(sent_max)
        },
        asks,
        found,
        bytes_max,
        wait_max: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
    }
}

fn lookup(view: &ClusterView, key: &FetchTopicKey) -> Option<TopicId> {
    let topic = match key {
        FetchTopicKey::Id(id) => view.image.topic_by_id(*id),
        FetchTopicKey::Name(name) => view.image.topic(name),
    };
    topic.map(|topic| topic.id)
}

/// Asks every owner; with `park` each registers a wake in the same step.
async fn look(shard: &Rc<Shard>, fetching: &Fetching, park: Option<&Park>) -> Vec<FetchFound> {
    // Most requests have one owner, and need no list of them.
    let (mut first, mut others) = (None, Vec::new());
    for asks in fetching.asks.chunk_by(|a, b| a.owner == b.owner) {
        let answer = shard.fetch_at(asks[0].owner, asks, park).await;
        match first {
            None => first = Some(answer),
            Some(_) => others.push(answer),
        }
    }
    let mut found = match first {
        Some(answer) => answer.get().await,
        None => Vec::new(),
    };
    for answer in others {
        found.append(&mut answer.get().await);
    }
    found
}

fn available(found: &[FetchFound]) -> u64 {
    found.iter().map(|found| found.available).sum()
}

fn is_enough(found: &[FetchFound], fetching: &Fetching) -> bool {
    let mut all = found.iter().chain(&fetching.found);
    available(found) >= fetching.bytes_min || all.any(FetchFound::is_urgent)
}

/// A row per partition, in order, keeping the sum of records within the client's bound: the first
/// partition with records is sent whole, the first one that does not fit as far as it does, later ones only whole.
async fn rows(shard: &Rc<Shard>, wanted: Vec<Wanted>, fetching: Fetching) -> Vec<Row> {
    let Fetching {
        asks,
        mut found,
        bytes_max,
        ..
    } = fetching;
    found.sort_unstable_by_key(|found| found.slot);
    let mut found = found.into_iter().peekable();
    let mut sent: u64 = 0;
    let mut is_full = false;
    let mut rows = Vec::with_capacity(wanted.len());
    let mut pace = Pace::default();
    for (slot, wanted) in wanted.into_iter().enumerate() {
        pace.step().await;
        let mut answer = match found.next_if(|found| found.slot == slot) {
            Some(answer) => answer,
            // Its owner is stopping.
            None => FetchFound::refused(slot, ErrorCode::NotLeaderOrFollower),
        };
        let left = bytes_max.saturating_sub(sent);
        if sent > 0 && answer.bytes() > left && !is_full {
            is_full = true;
            if left > 0 {
                // Boxed: few fetches come to this, and the task of each would be as large.
                answer = Box::pin(shortened(shard, &asks, answer, left)).await;
            }
        }
        let mut data = row(wanted.key.partition, &answer);
        let mut more = match (answer.error, answer.diverging) {
            (ErrorCode::None, None) => More::Nothing,
            (ErrorCode::None, Some(_)) => More::Divergence,
            (_error, _) => More::Error,
        };
        let mut plan = None;
        // An empty list for a reader of committed records, none for others.
        data.aborted_transactions = answer.aborted.as_ref().map(|_| Vec::new());
        if let Some(found) = answer.plan {
            let len = u64::from(found.len);
            if sent == 0 || sent + len <= bytes_max {
                sent += len;
                data.records = Some(Records::Extern(found.len));
                data.aborted_transactions = answer.aborted.map(aborted);
                more = More::Records;
                plan = Some(found);
            }
        }
        rows.push(Row {
            wanted,
            data,
            plan,
            more,
        });
    }
    rows
}

/// What there is for at most `left` bytes, of a partition that has more. Without it a partition far behind would wait
/// as long as one before it in the request has a few bytes each time.
async fn shortened(
    shard: &Rc<Shard>,
    asks: &[FetchAsk],
    found: FetchFound,
    left: u64,
) -> FetchFound {
    let Some(ask) = asks.iter().find(|ask| ask.slot == found.slot) else {
        return found;
    };
    let ask = FetchAsk {
        bytes_max: u32::try_from(left).unwrap_or(u32::MAX),
        ..ask.clone()
    };
    let answer = shard.fetch_at(ask.owner, &[ask], None).await;
    answer.get().await.pop().unwrap_or(found)
}

fn aborted(transactions: Vec<AbortedTxn>) -> Vec<AbortedTransaction> {
    let rows = transactions.into_iter();
    rows.map(|transaction| AbortedTransaction {
        producer_id: transaction.producer_id.0,
        first_offset: transaction.first_offset.0,
    })
    .collect()
}

/// The rows that are told, those of one topic that follow each other together.
fn build(session_id: i32, rows: Vec<Row>, told: &Told, account: Account) -> Fetched {
    let mut plans = Vec::new();
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    let mut last: Option<FetchTopicKey> = None;
    let all = rows.into_iter().enumerate();
    for (_, row) in all.filter(|(at, _)| told.has(*at)) {
        let key = row.wanted.key.topic;
        if last.as_ref() != Some(&key) {
            responses.push(match &key {
                FetchTopicKey::Name(name) => FetchableTopicResponse {
                    topic: name.to_string(),
                    ..Default::default()
                },
                FetchTopicKey::Id(id) => FetchableTopicResponse {
                    topic_id: *id,
                    ..Default::default()
                },
            });
            last = Some(key);
        }
        if let Some(topic) = responses.last_mut() {
            topic.partitions.push(row.data);
        }
        plans.extend(row.plan);
    }
    Fetched {
        response: FetchResponse {
            session_id,
            responses,
            ..Default::default()
        },
        plans,
        account,
    }
}

fn row(index: i32, found: &FetchFound) -> PartitionData {
    let mut row = PartitionData {
        partition_index: index,
        error_code: found.error.code(),
        high_watermark: found.high_watermark.0,
        last_stable_offset: found.last_stable.0,
        log_start_offset: found.log_start.0,
        records: Some(Records::Extern(0)),
        ..Default::default()
    };
    if let Some((epoch, end)) = found.diverging {
        row.diverging_epoch = EpochEndOffset {
            epoch: epoch.0,
            end_offset: end.0,
        };
    }
    row
}
