//! DescribeGroups: each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::describe_groups_response::DescribedGroup;
use thalweg_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::describing::{Described, describe};
use crate::growing::Grown;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: DescribeGroupsRequest,
) -> Grown<DescribeGroupsResponse> {
    let told = request.include_authorized_operations.into();
    let (groups, growing) = describe(&shard, &call, request.groups, told).await;
    growing.into_answer(DescribeGroupsResponse {
        groups,
        ..Default::default()
    })
}

impl Described for DescribedGroup {
    fn ask(group: String, after: Option<String>) -> Ask {
        Ask::Describe(group, after)
    }

    fn error_code(&self) -> i16 {
        self.error_code
    }

    fn weight(&self) -> usize {
        let members = self.members.iter().map(|member| {
            let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
            texts + member.member_metadata.len() + member.member_assignment.len()
        });
        self.group_id.len() + members.sum::<usize>()
    }

    fn append(&mut self, later: DescribedGroup) {
        self.members.extend(later.members);
    }

    fn set_operations(&mut self, operations: i32) {
        self.authorized_operations = operations;
    }
}
