//! ConsumerGroupDescribe (KIP-848): each group by its coordinator.

use std::rc::Rc;

use thalweg_group::Ask;
use thalweg_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup};
use thalweg_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::operations;
use crate::growing::{Growing, Grown};
use crate::service::Call;
use crate::shard::Shard;

/// Answers when each group's coordinator has.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: ConsumerGroupDescribeRequest,
) -> Grown<ConsumerGroupDescribeResponse> {
    let code = |group: &DescribedGroup| group.error_code;
    let mut growing = Growing::of(&shard, &call);
    let (names, ask) = (request.group_ids, Ask::ConsumerDescribe);
    let asked = shard.ask_each(names, &call, &mut growing, ask, (code, weight));
    let mut groups = asked.await;
    for group in groups.iter_mut().filter(|group| group.error_code == 0) {
        if request.include_authorized_operations {
            group.authorized_operations = operations::GROUP_ALL;
        }
    }
    growing.into_answer(ConsumerGroupDescribeResponse {
        groups,
        ..Default::default()
    })
}

/// Bytes, roughly.
fn weight(group: &DescribedGroup) -> usize {
    let of_share = |share: &Assignment| {
        let topics = share.topic_partitions.iter();
        let topics = topics.map(|topic| topic.topic_name.len() + 4 * topic.partitions.len());
        topics.sum::<usize>()
    };
    let members = group.members.iter().map(|member| {
        let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
        let names = member.subscribed_topic_names.iter().map(String::len);
        let shares = of_share(&member.assignment) + of_share(&member.target_assignment);
        texts + names.sum::<usize>() + shares
    });
    group.group_id.len() + members.sum::<usize>()
}
