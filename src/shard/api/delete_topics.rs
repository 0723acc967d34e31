//! DeleteTopics: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_topics_response::DeletableTopicResult;
use thalweg_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};

use super::{STOPPING, decided};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the removal is durable and every shard has closed the logs.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let refused = |name: Option<String>, topic_id| DeletableTopicResult {
        name,
        topic_id,
        error_code: ErrorCode::NotController.code(),
        error_message: Some(STOPPING.to_owned()),
    };
    let by_name = request
        .topic_names
        .iter()
        .map(|name| refused(Some(name.clone()), Default::default()));
    let by_id = request
        .topics
        .iter()
        .map(|topic| refused(topic.name.clone(), topic.topic_id));
    let refused = DeleteTopicsResponse {
        responses: by_name.chain(by_id).collect(),
        ..Default::default()
    };
    let answered = shard.control.delete_topics(request, call.version).await;
    decided(&shard, &call, answered, refused, |answer| {
        answer.responses.iter().map(|row| row.error_code).collect()
    })
}
