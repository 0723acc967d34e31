//! ConsumerGroupDescribe (KIP-848): each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup};
use thalweg_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::describing::{Described, describe};
use crate::growing::Grown;
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ConsumerGroupDescribeRequest,
) -> Grown<ConsumerGroupDescribeResponse> {
    let told = request.include_authorized_operations.into();
    let (groups, growing) = describe(&shard, &call, request.group_ids, told).await;
    growing.into_answer(ConsumerGroupDescribeResponse {
        groups,
        ..Default::default()
    })
}

impl Described for DescribedGroup {
    fn ask(group: String, after: Option<String>) -> Ask {
        Ask::ConsumerDescribe(group, after)
    }

    fn error_code(&self) -> i16 {
        self.error_code
    }

    fn weight(&self) -> usize {
        let members = self.members.iter().map(|member| {
            let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
            let names = member.subscribed_topic_names.iter().map(String::len);
            let shares = of_share(&member.assignment) + of_share(&member.target_assignment);
            texts + names.sum::<usize>() + shares
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

fn of_share(share: &Assignment) -> usize {
    let topics = share.topic_partitions.iter();
    let topics = topics.map(|topic| topic.topic_name.len() + 4 * topic.partitions.len());
    topics.sum()
}
