//! ConsumerGroupDescribe (KIP-848): each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::consumer_group_describe_response::DescribedGroup;
use thalweg_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::{keep_first_of_each, operations};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    mut request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    keep_first_of_each(&mut request.group_ids, call.pace(), String::clone).await;
    let asked = shard
        .ask_groups(request.group_ids, &call, Ask::ConsumerDescribe)
        .await;
    let mut response = ConsumerGroupDescribeResponse::default();
    for (group_id, coming) in asked {
        let mut group: DescribedGroup = match coming.get().await {
            Ok(group) => group,
            Err(error) => DescribedGroup {
                group_id,
                error_code: error.code(),
                ..Default::default()
            },
        };
        if request.include_authorized_operations && group.error_code == 0 {
            group.authorized_operations = operations::GROUP_ALL;
        }
        shard.count_error(call.key, group.error_code);
        response.groups.push(group);
    }
    response
}
