//! DescribeGroups: each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::describe_groups_response::DescribedGroup;
use thalweg_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::operations;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let code = |group: &DescribedGroup| group.error_code;
    let asked = shard.ask_each(request.groups, &call, Ask::Describe, code);
    let mut groups = asked.await;
    for group in groups.iter_mut().filter(|group| group.error_code == 0) {
        if request.include_authorized_operations {
            group.authorized_operations = operations::GROUP_ALL;
        }
    }
    DescribeGroupsResponse {
        groups,
        ..Default::default()
    }
}
