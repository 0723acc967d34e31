//! DescribeProducers: who writes to a partition with sequences, and what transactions are open there (KIP-664).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_producers_request::TopicRequest;
use thalweg_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use thalweg_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use thalweg_replica::ActiveProducer;
use thalweg_types::{ShardId, TopicPartition};

use super::keep_first_of_each;
use crate::growing::{Growing, Grown};
use crate::pace::Pace;
use crate::question::{PartitionAsk, Question};
use crate::service::Call;
use crate::shard::Shard;

/// Of the group of a producer without a transaction.
const NO_COORDINATOR: i32 = -1;
const NO_TRANSACTION: i64 = -1;

/// Asks the owners one after the other, so that the answer grows only where there is room for it. Each
/// partition is described once.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeProducersRequest,
) -> Grown<DescribeProducersResponse> {
    let asked = by_name(request.topics).await;
    let mut growing = Growing::of(&shard, &call);
    let mut topics = Vec::with_capacity(asked.len());
    for topic in asked {
        topics.push(describe(&shard, &call, topic, &mut growing).await);
    }
    growing.into_answer(DescribeProducersResponse {
        topics,
        ..Default::default()
    })
}

/// Each topic once, with all partitions that are asked of it.
async fn by_name(topics: Vec<TopicRequest>) -> Vec<TopicRequest> {
    let mut pace = Pace::default();
    let mut places = HashMap::new();
    let mut asked: Vec<TopicRequest> = Vec::new();
    for topic in topics {
        pace.step().await;
        match places.entry(topic.name.clone()) {
            Entry::Occupied(place) => {
                let first: &mut TopicRequest = &mut asked[*place.get()];
                first.partition_indexes.extend(topic.partition_indexes);
            }
            Entry::Vacant(place) => {
                place.insert(asked.len());
                asked.push(topic);
            }
        }
    }
    asked
}

async fn describe(
    shard: &Rc<Shard>,
    call: &Call,
    asked: TopicRequest,
    growing: &mut Growing,
) -> TopicResponse {
    let mut indexes = asked.partition_indexes;
    keep_first_of_each(&mut indexes, Pace::default(), |index| *index).await;
    let mut partitions = Vec::with_capacity(indexes.len());
    for index in indexes {
        let owned = owner(shard, &asked.name, index);
        let found = match owned {
            Ok((id, owner)) => producers(shard, id, owner).await,
            Err(error) => Err(error),
        };
        let error = found.as_ref().err().map_or(ErrorCode::None, |error| *error);
        shard.count_error(call.key, error.code());
        let active_producers: Vec<_> = found.unwrap_or_default().iter().map(state).collect();
        growing.grow(size_of_val(&active_producers[..])).await;
        partitions.push(PartitionResponse {
            partition_index: index,
            error_code: error.code(),
            active_producers,
            ..Default::default()
        });
    }
    TopicResponse {
        name: asked.name,
        partitions,
    }
}

fn owner(shard: &Shard, topic: &str, index: i32) -> Result<(TopicPartition, ShardId), ErrorCode> {
    let view = shard.view();
    let topic = view.image.topic(topic);
    let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    super::owned(&view, topic.id, index)
}

async fn producers(
    shard: &Rc<Shard>,
    id: TopicPartition,
    owner: ShardId,
) -> Result<Vec<ActiveProducer>, ErrorCode> {
    let ask = PartitionAsk {
        slot: 0,
        id,
        question: Question::Producers,
    };
    let answers = shard.ask_owners(vec![(owner, ask)]).await;
    let answer = answers.into_iter().next();
    let answer = answer.ok_or(ErrorCode::NotLeaderOrFollower)?;
    answer.result?.producers()
}

fn state(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.id.0,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp.0,
        coordinator_epoch: NO_COORDINATOR,
        current_txn_start_offset: producer.transaction.map_or(NO_TRANSACTION, |first| first.0),
    }
}
