//! CreateTopics: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_topics_response::CreatableTopicResult;
use thalweg_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::STOPPING;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the topics are durable and open on their shards.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    _: Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let names: Vec<String> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    if let Some(answer) = shard.control.create_topics(request).await {
        return answer;
    }
    let refused = |name| CreatableTopicResult {
        name,
        error_code: ErrorCode::NotController.code(),
        error_message: Some(STOPPING.to_owned()),
        ..Default::default()
    };
    let topics = names.into_iter().map(refused).collect();
    CreateTopicsResponse {
        topics,
        ..Default::default()
    }
}
