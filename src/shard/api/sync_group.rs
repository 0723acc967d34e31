//! SyncGroup: parked at the coordinator until the leader has shared out.

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::service::Call;
use crate::shard::Shard;

/// Asks the coordinator.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    request: SyncGroupRequest,
) -> impl Future<Output = SyncGroupResponse> {
    let group = request.group_id.clone();
    let asked = shard.ask_group(&group, &call, Ask::Sync(request)).await;
    async move {
        let answer: SyncGroupResponse =
            asked.get().await.unwrap_or_else(|error| SyncGroupResponse {
                error_code: error.code(),
                ..Default::default()
            });
        shard.count_error(call.key, answer.error_code);
        answer
    }
}
