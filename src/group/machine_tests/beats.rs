//! Words of scenarios for the newer protocol.

use std::collections::BTreeMap;

use bytes::Bytes;
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
        // `*n` stands for so many names that are no topics, `+n` for one of so many characters.
        let names = names.flat_map(|name| match name.split_at(1) {
            ("*", count) => {
                let count: usize = count.parse().expect("a count");
                (0..count).map(|nth| format!("none-{nth}")).collect()
            }
            ("+", count) => vec!["x".repeat(count.parse().expect("a count"))],
            _name => vec![name.to_owned()],
        });
        Some(names.collect())
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

/// A consumer's metadata: `subscribes=t,u has=t:0+1 of=3` in version 2, without `has` in version 0.
pub(super) fn subscription(words: &BTreeMap<&str, &str>) -> Bytes {
    let topics: Vec<&str> = words["subscribes"].split(',').collect();
    let Some(has) = words.get("has") else {
        return encoded_subscription(&topics, None);
    };
    let has = has
        .split_once(':')
        .map(|(name, list)| (name.to_owned(), numbers(list)));
    let of: i32 = words
        .get("of")
        .map_or(-1, |of| of.parse().expect("a generation"));
    encoded_subscription(&topics, Some((&has.into_iter().collect::<Vec<_>>(), of)))
}

/// Partitions by topic.
type Share<'a> = &'a [(String, Vec<i32>)];

/// A consumer's metadata in version 0, or with what it has and since which generation in version 2.
pub(super) fn encoded_subscription(
    topics: &[impl AsRef<str>],
    has: Option<(Share<'_>, i32)>,
) -> Bytes {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as i16).to_be_bytes());
        out.extend(text.as_bytes());
    };
    let mut out = vec![0, if has.is_some() { 2 } else { 0 }];
    out.extend((topics.len() as i32).to_be_bytes());
    topics.iter().for_each(|name| text(&mut out, name.as_ref()));
    out.extend((-1i32).to_be_bytes());
    if let Some((has, of)) = has {
        let share = crate::subscription::share(2, has);
        // The same form, without version and data of the user's own.
        out.extend(&share[2..share.len() - 4]);
        out.extend(of.to_be_bytes());
    }
    out.into()
}

fn numbers(list: &str) -> Vec<i32> {
    let list = list.split('+').filter(|p| !p.is_empty());
    list.map(|p| p.parse().expect("a partition")).collect()
}

pub(super) fn share_of(partitions: &[(String, Vec<i32>)]) -> Bytes {
    crate::subscription::share(0, partitions)
}

pub(super) fn share(topic: &str, partitions: &str) -> Bytes {
    share_of(&[(topic.to_owned(), numbers(partitions))])
}

pub(super) fn show_share(share: &[u8]) -> String {
    format!("{:?}", crate::subscription::parse_share(share))
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
