//! CreatePartitions: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::STOPPING;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the partitions are durable and open on their shards.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let refused = request
        .topics
        .iter()
        .map(|topic| CreatePartitionsTopicResult {
            name: topic.name.clone(),
            error_code: ErrorCode::NotController.code(),
            error_message: Some(STOPPING.to_owned()),
        });
    let results = refused.collect();
    let answered = shard.control.create_partitions(request).await;
    let response = answered.unwrap_or(CreatePartitionsResponse {
        results,
        ..Default::default()
    });
    for row in &response.results {
        shard.count_error(call.key, row.error_code);
    }
    response
}
