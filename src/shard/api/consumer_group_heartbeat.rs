//! ConsumerGroupHeartbeat (KIP-848): answered when what it says is in the log.

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use crate::service::Call;
use crate::shard::Shard;

/// Asks the coordinator.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    request: ConsumerGroupHeartbeatRequest,
) -> impl Future<Output = ConsumerGroupHeartbeatResponse> {
    let group = request.group_id.clone();
    let ask = Ask::ConsumerHeartbeat(request);
    let asked = shard.ask_group(&group, &call, ask).await;
    async move {
        let answer: ConsumerGroupHeartbeatResponse =
            asked
                .get()
                .await
                .unwrap_or_else(|error| ConsumerGroupHeartbeatResponse {
                    error_code: error.code(),
                    ..Default::default()
                });
        shard.count_error(call.key, answer.error_code);
        answer
    }
}
