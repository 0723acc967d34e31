//! LeaveGroup: one member before version 3, several from then on (KIP-345).

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::service::Call;
use crate::shard::Shard;

/// First version that names members, and has a code for each.
const VERSION_MEMBERS: i16 = 3;

/// Asks the coordinator.
pub(crate) async fn begin(
    shard: Rc<Shard>,
    call: Call,
    mut request: LeaveGroupRequest,
) -> impl Future<Output = LeaveGroupResponse> {
    if call.version < VERSION_MEMBERS {
        request.members = vec![MemberIdentity {
            member_id: std::mem::take(&mut request.member_id),
            ..Default::default()
        }];
    }
    let group = request.group_id.clone();
    let asked = shard.ask_group(&group, &call, Ask::Leave(request)).await;
    async move {
        let mut answer: LeaveGroupResponse =
            asked
                .get()
                .await
                .unwrap_or_else(|error| LeaveGroupResponse {
                    error_code: error.code(),
                    ..Default::default()
                });
        if call.version < VERSION_MEMBERS
            && let Some(only) = std::mem::take(&mut answer.members).into_iter().next()
            && answer.error_code == 0
        {
            answer.error_code = only.error_code;
        }
        shard.count_error(call.key, answer.error_code);
        answer
    }
}
