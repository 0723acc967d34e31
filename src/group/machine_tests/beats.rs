//! Words of scenarios for the newer protocol.

use std::collections::BTreeMap;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup};
use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::world::{WorldTopics, show_parts};

/// `beat by=a epoch=0 topics=t,u regex=x.* owned=t:0+1,u:2`. A beat with epoch 0 says all that a first
/// one must.
pub(super) fn beat(
    words: &BTreeMap<&str, &str>,
    group_id: String,
    member_id: String,
    topics: &WorldTopics,
) -> ConsumerGroupHeartbeatRequest {
    let text = |key: &str| words.get(key).map(|word| (*word).to_owned());
    let epoch: i32 = words["epoch"].parse().expect("an epoch");
    let list = |key: &str| -> Option<Vec<String>> {
        let word = words.get(key)?;
        let names = word.split(',').filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    };
    let is_full = epoch == 0 && !words.contains_key("bare");
    let owned = list("owned").or(is_full.then(Vec::new));
    let rebalance: Option<i32> = words.get("rebalance").map(|ms| ms.parse().expect("ms"));
    ConsumerGroupHeartbeatRequest {
        group_id,
        member_id,
        member_epoch: epoch,
        instance_id: text("instance"),
        rack_id: text("rack"),
        rebalance_timeout_ms: rebalance.unwrap_or(if is_full { 60_000 } else { -1 }),
        subscribed_topic_names: list("topics").or(is_full.then(Vec::new)),
        subscribed_topic_regex: text("regex"),
        server_assignor: text("assignor"),
        topic_partitions: owned.map(|owned| {
            let one = |word: String| {
                let (name, partitions) = word.split_once(':').expect("t:0+1");
                TopicPartitions {
                    topic_id: topics.id(name).unwrap_or_default(),
                    partitions: partitions
                        .split('+')
                        .map(|p| p.parse().expect("p"))
                        .collect(),
                }
            };
            owned.into_iter().map(one).collect()
        }),
    }
}

pub(super) fn show_beat(answer: &ConsumerGroupHeartbeatResponse) -> String {
    if answer.error_code != 0 {
        let code = ErrorCode::from_code(answer.error_code).map_or("?", ErrorCode::name);
        return format!("beat {code}");
    }
    let share = answer.assignment.as_ref().map(|assignment| {
        let topics = assignment.topic_partitions.iter();
        let parts = show_parts(topics.map(|t| (t.topic_id, t.partitions.as_slice())));
        format!(" has [{parts}]")
    });
    format!(
        "beat epoch {}{}",
        answer.member_epoch,
        share.unwrap_or_default()
    )
}

pub(super) fn show_described(a: &DescribedGroup) -> String {
    if a.error_code != 0 {
        let code = ErrorCode::from_code(a.error_code).map_or("?", ErrorCode::name);
        return format!("describe-newer {code}");
    }
    let parts = |a: &Assignment| {
        let topics = a.topic_partitions.iter();
        let one = topics.map(|t| {
            let list: Vec<String> = t.partitions.iter().map(i32::to_string).collect();
            format!("{}:{}", t.topic_name, list.join("+"))
        });
        one.collect::<Vec<_>>().join(" ")
    };
    let members: Vec<String> = a
        .members
        .iter()
        .map(|m| {
            let (has, is_to_have) = (parts(&m.assignment), parts(&m.target_assignment));
            let kind = m.member_type;
            format!(
                "{}@{} [{has}] of [{is_to_have}] type {kind}",
                m.member_id, m.member_epoch
            )
        })
        .collect();
    format!(
        "describe-newer {} epoch {} shares {} {} {members:?}",
        a.group_state, a.group_epoch, a.assignment_epoch, a.assignor_name
    )
}
