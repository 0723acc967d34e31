//! Heartbeat: a member lives.

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::service::Call;
use crate::shard::Shard;

/// Asks the coordinator.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    request: HeartbeatRequest,
) -> impl Future<Output = HeartbeatResponse> {
    let group = request.group_id.clone();
    let asked = shard
        .ask_group(&group, &call, Ask::Heartbeat(request))
        .await;
    async move {
        let answer: HeartbeatResponse =
            asked.get().await.unwrap_or_else(|error| HeartbeatResponse {
                error_code: error.code(),
                ..Default::default()
            });
        shard.count_error(call.key, answer.error_code);
        answer
    }
}
