//! ConsumerGroupDescribe.

use thalweg_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};

use super::{Assignor, ConsumerGroup, ConsumerMember, ConsumerState, Partitions};
use crate::page::{DescribedPage, page_of};
use crate::topics::Topics;

/// `member_type` of a member of the classic protocol, and of one of the newer.
const TYPE_CLASSIC: i8 = 0;
const TYPE_CONSUMER: i8 = 1;

impl ConsumerState {
    pub(crate) const ALL: [ConsumerState; 4] = [
        ConsumerState::Empty,
        ConsumerState::Assigning,
        ConsumerState::Reconciling,
        ConsumerState::Stable,
    ];

    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ConsumerState::Empty => "Empty",
            ConsumerState::Assigning => "Assigning",
            ConsumerState::Reconciling => "Reconciling",
            ConsumerState::Stable => "Stable",
        }
    }
}

impl ConsumerGroup {
    pub(crate) fn describe(
        &self,
        topics: &Topics,
        allowed: &[Assignor],
        after: Option<&str>,
    ) -> DescribedPage<DescribedGroup> {
        let one = |member: &ConsumerMember| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let none = Partitions::default();
            let target = self.targets.get(&member.id).unwrap_or(&none);
            Member {
                member_id: member.id.to_string(),
                instance_id: text(member.instance.as_deref()),
                rack_id: text(member.rack.as_deref()),
                member_epoch: member.epoch,
                client_id: member.client_id.to_string(),
                client_host: member.client_host.to_string(),
                subscribed_topic_names: member.topics.iter().map(ToString::to_string).collect(),
                subscribed_topic_regex: text(member.regex.as_deref()),
                // What it is to give up it still has.
                assignment: named(&member.assigned.with(&member.revoking), topics),
                target_assignment: named(target, topics),
                member_type: match member.classic {
                    Some(_) => TYPE_CLASSIC,
                    None => TYPE_CONSUMER,
                },
            }
        };
        let weight = |member: &ConsumerMember| {
            let target = self
                .targets
                .get(&member.id)
                .map_or(0, Partitions::topic_count);
            member.topics.len() + member.assigned.topic_count() + target
        };
        let (members, rest) = page_of(&self.members, after, weight, one);
        let group = DescribedGroup {
            group_state: self.state().name().to_owned(),
            group_epoch: self.epoch,
            assignment_epoch: self.target_epoch,
            // Of the first page, to which it takes a look at all members.
            assignor_name: match after {
                None => self.assignor(allowed).name().to_owned(),
                Some(_) => String::new(),
            },
            members,
            ..DescribedGroup::default()
        };
        DescribedPage { group, rest }
    }
}

/// Topics that are gone are left out, as they have no name to show.
fn named(partitions: &Partitions, topics: &Topics) -> Assignment {
    let rows = partitions.topics().filter_map(|(topic_id, list)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: topics.name(topic_id)?.to_string(),
            partitions: list.to_vec(),
        })
    });
    Assignment {
        topic_partitions: rows.collect(),
    }
}
