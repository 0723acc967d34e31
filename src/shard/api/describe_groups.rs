//! DescribeGroups: each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::describe_groups_response::DescribedGroup;
use thalweg_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::operations;
use crate::growing::{Growing, Grown};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeGroupsRequest,
) -> Grown<DescribeGroupsResponse> {
    let code = |group: &DescribedGroup| group.error_code;
    let mut growing = Growing::of(&shard, &call);
    let names = request.groups;
    let asked = shard.ask_each(names, &call, &mut growing, Ask::Describe, (code, weight));
    let mut groups = asked.await;
    for group in groups.iter_mut().filter(|group| group.error_code == 0) {
        if request.include_authorized_operations {
            group.authorized_operations = operations::GROUP_ALL;
        }
    }
    growing.into_answer(DescribeGroupsResponse {
        groups,
        ..Default::default()
    })
}

/// Bytes, roughly.
fn weight(group: &DescribedGroup) -> usize {
    let members = group.members.iter().map(|member| {
        let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
        texts + member.member_metadata.len() + member.member_assignment.len()
    });
    group.group_id.len() + members.sum::<usize>()
}
