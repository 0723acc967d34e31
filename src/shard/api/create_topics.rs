//! CreateTopics: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_topics_response::CreatableTopicResult;
use thalweg_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::{STOPPING, decided};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the topics are durable and open on their shards.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let refused = request.topics.iter().map(|topic| CreatableTopicResult {
        name: topic.name.clone(),
        error_code: ErrorCode::NotController.code(),
        error_message: Some(STOPPING.to_owned()),
        ..Default::default()
    });
    let refused = CreateTopicsResponse {
        topics: refused.collect(),
        ..Default::default()
    };
    let answered = shard.control.create_topics(request).await;
    decided(&shard, &call, answered, refused, |answer| {
        answer.topics.iter().map(|row| row.error_code).collect()
    })
}
