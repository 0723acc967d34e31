//! OffsetForLeaderEpoch: where an epoch ends, so that a client finds out what was cut (KIP-320).

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic;
use thalweg_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use thalweg_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use thalweg_types::LeaderEpoch;

use crate::question::{Asking, Question, Row};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when every owner has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let asking = sort(&shard, &request);
    let rows = asking
        .rows(&shard, |row, _, answer| {
            let found = answer.epoch_end()?;
            row.leader_epoch = found.epoch.0;
            row.end_offset = found.end.0;
            Ok(())
        })
        .await;
    for row in &rows {
        shard.count_error(call.key, row.error_code);
    }
    let answer = |topic: OffsetForLeaderTopic, partitions| OffsetForLeaderTopicResult {
        topic: topic.topic,
        partitions,
    };
    OffsetForLeaderEpochResponse {
        topics: super::by_topic(request.topics, rows, |topic| topic.partitions.len(), answer),
        ..Default::default()
    }
}

/// Asks about each partition that is named.
fn sort(shard: &Shard, request: &OffsetForLeaderEpochRequest) -> Asking<EpochEndOffset> {
    let view = shard.view();
    let mut asking = Asking::new();
    for topic in &request.topics {
        let known = view.image.topic(&topic.topic).map(|known| known.id);
        let known = known.ok_or(ErrorCode::UnknownTopicOrPartition);
        for partition in &topic.partitions {
            let question = Question::EpochEnd {
                current: LeaderEpoch(partition.current_leader_epoch),
                asked: LeaderEpoch(partition.leader_epoch),
            };
            let row = EpochEndOffset {
                partition: partition.partition,
                ..Default::default()
            };
            let owned = known.and_then(|topic| super::owned(&view, topic, partition.partition));
            asking.add(owned, question, row);
        }
    }
    asking
}

impl Row for EpochEndOffset {
    fn error_code(&mut self) -> &mut i16 {
        &mut self.error_code
    }
}
