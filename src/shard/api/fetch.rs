//! Fetch: ask the owners what there is, park until there is enough, send it by `sendfile`.
//!
//! The connection's core builds the answer and sends it; record bytes never cross cores. Parking
//! registers at every owner in the same step as looking, so no append can slip between the two, and
//! nothing polls while parked.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_control::ClusterView;
use thalweg_metadata::Topic;
use thalweg_metrics::Stage;
use thalweg_protocol::messages::fetch_request::FetchTopic;
use thalweg_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use thalweg_protocol::messages::{FetchRequest, FetchResponse};
use thalweg_protocol::{ApiKey, ErrorCode, Records};
use thalweg_reactor::time;
use thalweg_storage::ReadPlan;
use thalweg_types::{LeaderEpoch, Offset, PartitionIndex, TopicPartition};

use crate::parking::Parking;
use crate::peer::{FetchAsk, FetchFound, Park};
use crate::shard::Shard;

/// `session_epoch` that opens a session; -1 is a fetch without one, higher ones continue one
/// (KIP-227).
const INITIAL_EPOCH: i32 = 0;

/// An answer and the file ranges that belong into its gaps, in order.
pub(crate) struct Fetched {
    /// The answer; its records are external.
    pub response: FetchResponse,
    /// One plan per partition that has records.
    pub plans: Vec<ReadPlan>,
}

/// The request, resolved: what to ask of whom.
struct Fetching {
    asks: Vec<Vec<FetchAsk>>,
    found: Vec<FetchFound>,
    bytes_max: u64,
}

/// Answers at once when `min_bytes` are there, an error must be told, or nothing can be waited for;
/// else when enough has arrived or `max_wait_ms` is over.
pub(crate) async fn answer(shard: Rc<Shard>, request: FetchRequest, version: i16) -> Fetched {
    if request.session_id != 0 && request.session_epoch > INITIAL_EPOCH {
        // Sessions are not kept: the client falls back to full fetches.
        return refused(ErrorCode::FetchSessionIdNotFound);
    }
    let view = shard.view();
    let mut fetching = resolve(&shard, &view, &request, version);
    let bytes_min = u64::try_from(request.min_bytes).unwrap_or(0);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = time::now() + wait;

    let began = time::now();
    let mut waited = Duration::ZERO;
    let mut found = look(&shard, &fetching, None).await;
    if !is_enough(&found, &fetching.found, bytes_min) && !wait.is_zero() && fetching.has_asks() {
        let parked = time::now();
        let mut parking = Parking::new(Rc::clone(&shard), fetching.partitions());
        loop {
            let missing = bytes_min.saturating_sub(bytes(&found));
            found = look(&shard, &fetching, Some(parking.register(missing))).await;
            if is_enough(&found, &fetching.found, bytes_min) || shard.is_stopping() {
                break;
            }
            let left = deadline.saturating_duration_since(time::now());
            if left.is_zero() || time::timeout(left, parking.woken()).await.is_err() {
                break;
            }
        }
        waited = time::now() - parked;
        shard.metrics.borrow_mut().record(Stage::FetchWait, waited);
    }
    fetching.found.append(&mut found);
    let fetched = build(request.topics, fetching);
    count(&shard, &view, &fetched.response);
    shard
        .metrics
        .borrow_mut()
        .record(Stage::Fetch, time::now() - began - waited);
    fetched
}

/// Counts bytes by topic and errors.
fn count(shard: &Shard, view: &ClusterView, response: &FetchResponse) {
    for topic in &response.responses {
        let bytes: u64 = topic
            .partitions
            .iter()
            .map(|row| match &row.records {
                Some(Records::Extern(len)) => u64::from(*len),
                Some(Records::Held(_)) | None => 0,
            })
            .sum();
        if bytes > 0 {
            let known = view.image.topic_by_id(topic.topic_id);
            let name = known.map_or(&*topic.topic, |known| &*known.name);
            shard.metrics.borrow_mut().topics.of(name).fetched_bytes += bytes;
        }
        for row in &topic.partitions {
            shard.count_error(ApiKey::Fetch, row.error_code);
        }
    }
}

fn refused(error: ErrorCode) -> Fetched {
    let response = FetchResponse {
        error_code: error.code(),
        ..Default::default()
    };
    Fetched {
        response,
        plans: Vec::new(),
    }
}

impl Fetching {
    fn has_asks(&self) -> bool {
        self.asks.iter().any(|asks| !asks.is_empty())
    }

    /// Partitions by owner.
    fn partitions(&self) -> Vec<Vec<TopicPartition>> {
        self.asks
            .iter()
            .map(|asks| asks.iter().map(|ask| ask.id).collect())
            .collect()
    }
}

fn resolve(shard: &Shard, view: &ClusterView, request: &FetchRequest, version: i16) -> Fetching {
    let bytes_max = u64::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(shard.fetch_bytes_max());
    let isolation = super::isolation(request.isolation_level);
    let mut asks: Vec<Vec<FetchAsk>> = Vec::new();
    asks.resize_with(shard.shard_count(), Vec::new);
    let mut found = Vec::new();
    let mut slot = 0;
    for topic in &request.topics {
        let (known, unknown) = lookup(view, topic, version);
        for partition in &topic.partitions {
            let id = known.map(|known| TopicPartition {
                topic: known.id,
                partition: PartitionIndex(partition.partition),
            });
            match id.and_then(|id| view.owner(id).map(|owner| (id, owner))) {
                Some((id, owner)) => asks[usize::from(owner.0)].push(FetchAsk {
                    slot,
                    id,
                    offset: Offset(partition.fetch_offset),
                    current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
                    last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
                    bytes_max: u32::try_from(partition.partition_max_bytes).unwrap_or(0),
                    isolation,
                }),
                None if known.is_none() => found.push(FetchFound::refused(slot, unknown)),
                None => {
                    found.push(FetchFound::refused(
                        slot,
                        ErrorCode::UnknownTopicOrPartition,
                    ));
                }
            }
            slot += 1;
        }
    }
    Fetching {
        asks,
        found,
        bytes_max,
    }
}

fn lookup<'v>(
    view: &'v ClusterView,
    topic: &FetchTopic,
    version: i16,
) -> (Option<&'v Topic>, ErrorCode) {
    if version >= 13 {
        (
            view.image.topic_by_id(topic.topic_id).map(Arc::as_ref),
            ErrorCode::UnknownTopicId,
        )
    } else {
        (
            view.image.topic(&topic.topic).map(Arc::as_ref),
            ErrorCode::UnknownTopicOrPartition,
        )
    }
}

/// Asks every owner; with `park` each registers a wake in the same step.
async fn look(shard: &Rc<Shard>, fetching: &Fetching, park: Option<Park>) -> Vec<FetchFound> {
    let mut answers = Vec::new();
    for (owner, asks) in fetching
        .asks
        .iter()
        .enumerate()
        .filter(|(_, asks)| !asks.is_empty())
    {
        answers.push(shard.fetch_at(owner, asks.clone(), park.clone()).await);
    }
    let mut found = Vec::new();
    for answer in answers {
        found.append(&mut answer.get().await);
    }
    found
}

fn bytes(found: &[FetchFound]) -> u64 {
    found.iter().map(FetchFound::bytes).sum()
}

fn is_enough(found: &[FetchFound], refused: &[FetchFound], bytes_min: u64) -> bool {
    bytes(found) >= bytes_min || found.iter().chain(refused).any(FetchFound::is_urgent)
}

/// Builds the answer in the order of the request, keeping the sum of records within the client's
/// bound: the first partition with records is sent whole, later ones only as far as they fit.
fn build(topics: Vec<FetchTopic>, fetching: Fetching) -> Fetched {
    let Fetching {
        mut found,
        bytes_max,
        ..
    } = fetching;
    found.sort_unstable_by_key(|found| found.slot);
    let mut found = found.into_iter().peekable();
    let mut plans = Vec::new();
    let mut sent: u64 = 0;
    let mut slot = 0;
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let answer = match found.next_if(|found| found.slot == slot) {
                Some(answer) => answer,
                // Its owner is stopping.
                None => FetchFound::refused(slot, ErrorCode::NotLeaderOrFollower),
            };
            slot += 1;
            let mut row = row(partition.partition, &answer);
            if let Some(plan) = answer.plan {
                let len = u64::from(plan.len);
                if sent == 0 || sent + len <= bytes_max {
                    sent += len;
                    row.records = Some(Records::Extern(plan.len));
                    plans.push(plan);
                }
            }
            partitions.push(row);
        }
        responses.push(FetchableTopicResponse {
            topic: topic.topic,
            topic_id: topic.topic_id,
            partitions,
        });
    }
    Fetched {
        response: FetchResponse {
            responses,
            ..Default::default()
        },
        plans,
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
