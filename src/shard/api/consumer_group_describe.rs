//! ConsumerGroupDescribe (KIP-848): each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::consumer_group_describe_response::DescribedGroup;
use thalweg_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::operations;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let code = |group: &DescribedGroup| group.error_code;
    let asked = shard.ask_each(request.group_ids, &call, Ask::ConsumerDescribe, code);
    let mut groups = asked.await;
    for group in groups.iter_mut().filter(|group| group.error_code == 0) {
        if request.include_authorized_operations {
            group.authorized_operations = operations::GROUP_ALL;
        }
    }
    ConsumerGroupDescribeResponse {
        groups,
        ..Default::default()
    }
}
