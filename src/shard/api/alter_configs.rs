//! AlterConfigs: the controller decides.

use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use thalweg_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::{STOPPING, decided};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when the settings are durable and every shard obeys them.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let refused = request
        .resources
        .iter()
        .map(|r| AlterConfigsResourceResponse {
            error_code: ErrorCode::NotController.code(),
            error_message: Some(STOPPING.to_owned()),
            resource_type: r.resource_type,
            resource_name: r.resource_name.clone(),
        });
    let refused = AlterConfigsResponse {
        responses: refused.collect(),
        ..Default::default()
    };
    let answered = shard.control.alter_configs(request).await;
    decided(&shard, &call, answered, refused, |answer| {
        answer.responses.iter().map(|row| row.error_code).collect()
    })
}
