//! LeaveGroup: one member before version 3, several from then on (KIP-345).

use std::future::Future;
use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::leave_group_request::MemberIdentity;
use thalweg_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use thalweg_reactor::task;
use thalweg_types::limits::MEMBERS_LEAVING_PER_TURN;

use crate::groups::GroupAnswer;
use crate::service::Call;
use crate::shard::Shard;

/// First version that names members, and has a code for each.
const VERSION_MEMBERS: i16 = 3;

/// Asks the coordinator: of many members a part at a time, between which others run. Each part is one round of the group
/// at most.
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
    let group = std::mem::take(&mut request.group_id);
    let mut begun = Vec::new();
    for members in in_parts(request.members) {
        if !begun.is_empty() {
            task::yield_now().await;
        }
        let part = LeaveGroupRequest {
            group_id: group.clone(),
            members,
            ..Default::default()
        };
        begun.push(shard.ask_group(&group, &call, Ask::Leave(part)).await);
    }
    async move {
        let mut answer = gather(begun).await;
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

/// The members in parts of no more than one turn of a core lets go; one part at least.
fn in_parts(members: Vec<MemberIdentity>) -> impl Iterator<Item = Vec<MemberIdentity>> {
    let count = members.len().div_ceil(MEMBERS_LEAVING_PER_TURN).max(1);
    let mut members = members.into_iter();
    (0..count).map(move |_| members.by_ref().take(MEMBERS_LEAVING_PER_TURN).collect())
}

/// One answer of those to all parts. A refusal of one is that of all: whoever left meanwhile is unknown when its client
/// asks again.
async fn gather(parts: Vec<GroupAnswer>) -> LeaveGroupResponse {
    let mut answer = LeaveGroupResponse::default();
    for part in parts {
        match part.get::<LeaveGroupResponse>().await {
            Ok(told) if told.error_code == 0 => answer.members.extend(told.members),
            Ok(refused) => return refused,
            Err(error) => {
                return LeaveGroupResponse {
                    error_code: error.code(),
                    ..Default::default()
                };
            }
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::leave_group_request::MemberIdentity;
    use thalweg_types::limits::MEMBERS_LEAVING_PER_TURN;

    use super::in_parts;

    #[test]
    fn bi_8_many_members_leave_in_parts() {
        const MAX: usize = MEMBERS_LEAVING_PER_TURN;
        let members = |count: usize| {
            let member = |nth: usize| MemberIdentity {
                member_id: nth.to_string(),
                ..Default::default()
            };
            (0..count).map(member).collect::<Vec<_>>()
        };
        for (count, sizes) in [
            (0, vec![0]),
            (1, vec![1]),
            (MAX, vec![MAX]),
            (2 * MAX + 1, vec![MAX, MAX, 1]),
        ] {
            let parts: Vec<_> = in_parts(members(count)).collect();
            assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            assert_eq!(parts.concat(), members(count), "in their order");
        }
    }
}
