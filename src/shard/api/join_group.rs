//! JoinGroup: parked at the coordinator until the round is complete.

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use crate::service::Call;
use crate::shard::Shard;

/// First version in which "no protocol" is null and not an empty name.
const VERSION_NULL_PROTOCOL: i16 = 7;

/// Asks the coordinator.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    request: JoinGroupRequest,
) -> impl Future<Output = JoinGroupResponse> {
    let (group, member_id) = (request.group_id.clone(), request.member_id.clone());
    let asked = shard.ask_group(&group, &call, Ask::Join(request)).await;
    async move {
        let mut answer: JoinGroupResponse =
            asked.get().await.unwrap_or_else(|error| JoinGroupResponse {
                error_code: error.code(),
                protocol_name: None,
                member_id,
                ..Default::default()
            });
        if call.version < VERSION_NULL_PROTOCOL {
            answer.protocol_name.get_or_insert_default();
        }
        shard.count_error(call.key, answer.error_code);
        answer
    }
}
