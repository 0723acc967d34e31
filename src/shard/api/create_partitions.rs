//! CreatePartitions: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use thalweg_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::{STOPPING, decided};
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
    let refused = CreatePartitionsResponse {
        results: refused.collect(),
        ..Default::default()
    };
    let answered = shard.control.create_partitions(request).await;
    decided(&shard, &call, answered, refused, |answer| {
        answer.results.iter().map(|row| row.error_code).collect()
    })
}
