//! Metadata: brokers, topics and leaders; creates topics on the way where it may.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use thalweg_control::{ClusterView, OfflinePartitions};
use thalweg_metadata::{Topic, names};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::metadata_request::MetadataRequestTopic;
use thalweg_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_protocol::messages::{MetadataRequest, MetadataResponse};
use thalweg_types::{TopicPartition, Uuid};

use super::{keep_first_of_each, operations};
use crate::pace::Pace;
use crate::service::Call;
use crate::shard::Shard;

/// First version that finds topics by their ids. Versions 10 and 11 have the field, but no answer for a topic without
/// a name (KAFKA-10774).
const VERSION_BY_ID: i16 = 12;

/// Which facts only our own client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Any Kafka client.
    Foreign,
    /// A client whose software name is `thalweg`: it is told the core of each partition.
    Own,
}

/// Answers, after creating what is missing if the request and the broker allow it.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: MetadataRequest,
) -> MetadataResponse {
    let version = call.version;
    let audience = match call.is_own_client() {
        true => Audience::Own,
        false => Audience::Foreign,
    };
    let view = shard.view();
    // Version 0 says "all topics" by an empty list, later versions by null.
    let mut wanted = request
        .topics
        .filter(|topics| version > 0 || !topics.is_empty());
    if let Some(wanted) = &mut wanted {
        keep_first_of_each(wanted, call.pace(), |t| (t.name.clone(), t.topic_id)).await;
    }
    if version < VERSION_BY_ID
        && let Some(wanted) = &wanted
        && wanted.iter().any(|topic| !is_by_name(topic))
    {
        return refused_by_id(wanted);
    }
    let may_create = (version < 4 || request.allow_auto_topic_creation)
        && shard.config.auto_create_topics_enable();
    let mut refused = HashMap::new();
    if let Some(wanted) = &wanted
        && may_create
    {
        let exists = |name: &str| view.image.topic(name).is_some();
        let missing = names_to_create(wanted, call.pace(), exists).await;
        if !missing.is_empty() {
            // As in Kafka, who asks is told of them when it asks again.
            refused = create(&shard, missing, call.pace()).await;
        }
    }
    let topics = rows(&shard, &view, wanted, &refused, audience, call.pace()).await;
    let endpoint = view.endpoint(call.conn.listener());
    let mut response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: view.broker_id.0,
            host: endpoint.host.clone(),
            port: i32::from(endpoint.port),
            rack: view.config.broker_rack().map(str::to_owned),
        }],
        cluster_id: Some(view.cluster_id.0.clone()),
        controller_id: view.broker_id.0,
        topics,
        ..Default::default()
    };
    if request.include_topic_authorized_operations {
        for topic in response
            .topics
            .iter_mut()
            .filter(|topic| topic.error_code == 0)
        {
            topic.topic_authorized_operations = operations::TOPIC_ALL;
        }
    }
    if request.include_cluster_authorized_operations && (8..=10).contains(&version) {
        response.cluster_authorized_operations = operations::CLUSTER_ALL;
    }
    response
}

fn is_by_name(topic: &MetadataRequestTopic) -> bool {
    topic.name.is_some() && topic.topic_id.is_zero()
}

/// The answer to a request that names topics by id before it may: all of it is refused.
fn refused_by_id(wanted: &[MetadataRequestTopic]) -> MetadataResponse {
    let row = |topic: &MetadataRequestTopic| MetadataResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        // The answer has no null here.
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        ..Default::default()
    };
    MetadataResponse {
        topics: wanted.iter().map(row).collect(),
        ..Default::default()
    }
}

/// A row for each topic that is wanted, for all when none is named.
async fn rows(
    shard: &Shard,
    view: &ClusterView,
    wanted: Option<Vec<MetadataRequestTopic>>,
    refused: &HashMap<String, ErrorCode>,
    audience: Audience,
    mut pace: Pace,
) -> Vec<MetadataResponseTopic> {
    let offline = shard.control.offline();
    let mut topics = Vec::new();
    let Some(wanted) = wanted else {
        for topic in view.image.topics() {
            topics.push(describe(view, offline, topic, audience));
            pace.steps(1 + topic.partitions.len()).await;
        }
        return topics;
    };
    for t in wanted {
        let row = known(view, &t).map_or_else(
            || unknown(t.name.as_deref(), t.topic_id, refused),
            |topic| describe(view, offline, topic, audience),
        );
        pace.steps(1 + row.partitions.len()).await;
        topics.push(row);
    }
    topics
}

/// Names that do not exist, each once, in the order of the request. A frame holds millions of them:
/// each costs the same, however many came before it.
async fn names_to_create(
    wanted: &[MetadataRequestTopic],
    mut pace: Pace,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut missing = Vec::new();
    for topic in wanted.iter().filter(|topic| topic.topic_id.is_zero()) {
        pace.step().await;
        let name = topic.name.as_deref();
        if let Some(name) = name.filter(|name| !exists(name) && seen.insert(*name)) {
            missing.push(name.to_owned());
        }
    }
    missing
}

/// Creates topics with the broker's defaults; returns those that could not be created.
async fn create(shard: &Shard, names: Vec<String>, mut pace: Pace) -> HashMap<String, ErrorCode> {
    let mut refused = HashMap::with_capacity(names.len());
    let Some(outcomes) = shard.control.auto_create(names.clone()).await else {
        for name in names {
            pace.step().await;
            refused.insert(name, ErrorCode::LeaderNotAvailable);
        }
        return refused;
    };
    for (name, outcome) in outcomes {
        pace.step().await;
        match outcome {
            Ok(_) => {}
            // Another client may have created it between the look and the request.
            Err(refusal) if refusal.code == ErrorCode::TopicAlreadyExists => {}
            Err(refusal) => drop(refused.insert(name, refusal.code)),
        }
    }
    refused
}

/// The topic that is asked for, if there is one.
fn known<'a>(view: &'a ClusterView, asked: &MetadataRequestTopic) -> Option<&'a Topic> {
    let found = match asked.topic_id.is_zero() {
        true => view.image.topic(asked.name.as_deref()?),
        false => view.image.topic_by_id(asked.topic_id),
    };
    found.map(|topic| &**topic)
}

fn unknown(
    name: Option<&str>,
    id: Uuid,
    refused: &HashMap<String, ErrorCode>,
) -> MetadataResponseTopic {
    let Some(name) = name.filter(|_| id.is_zero()) else {
        return MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId.code(),
            topic_id: id,
            name: None,
            ..Default::default()
        };
    };
    let error = match refused.get(name) {
        Some(error) => *error,
        None if names::validate(name).is_err() => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    MetadataResponseTopic {
        error_code: error.code(),
        name: Some(name.to_owned()),
        is_internal: names::is_internal(name),
        ..Default::default()
    }
}

fn describe(
    view: &ClusterView,
    offline: &OfflinePartitions,
    topic: &Topic,
    audience: Audience,
) -> MetadataResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .map(|(index, partition)| {
            let id = TopicPartition {
                topic: topic.id,
                partition: *index,
            };
            let owner = view.owner(id);
            // As Kafka tells of a replica whose log directory has failed.
            let is_offline = offline.contains(id);
            let leader = partition.leader.filter(|_| !is_offline);
            let gone = view.image.offline_replicas(partition);
            MetadataResponsePartition {
                error_code: match leader {
                    Some(_) => ErrorCode::None.code(),
                    None => ErrorCode::LeaderNotAvailable.code(),
                },
                offline_replicas: match is_offline {
                    true => vec![view.broker_id.0],
                    false => gone.into_iter().map(|id| id.0).collect(),
                },
                partition_index: index.0,
                leader_id: leader.map_or(-1, |leader| leader.0),
                leader_epoch: partition.leader_epoch.0,
                replica_nodes: partition.replicas.iter().map(|id| id.0).collect(),
                isr_nodes: partition.in_sync.iter().map(|id| id.0).collect(),
                core: match (audience, owner) {
                    (Audience::Own, Some(shard)) => i32::from(shard.0),
                    (Audience::Own, None) | (Audience::Foreign, _) => -1,
                },
            }
        })
        .collect();
    MetadataResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic.is_internal(),
        partitions,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::messages::metadata_request::MetadataRequestTopic;
    use thalweg_types::Uuid;

    use super::names_to_create;
    use crate::pace::{Pace, tests::on_a_runtime};

    fn named(name: String) -> MetadataRequestTopic {
        MetadataRequestTopic {
            name: Some(name),
            ..Default::default()
        }
    }

    #[test]
    fn missing_names_are_created_once_each_and_ids_not_at_all() {
        let by_id = MetadataRequestTopic {
            topic_id: Uuid([1; 16]),
            ..Default::default()
        };
        let wanted = ["b", "known", "a", "b"].map(|name| named(name.to_owned()));
        let wanted: Vec<_> = wanted.into_iter().chain([by_id]).collect();
        on_a_runtime(async move {
            let missing = names_to_create(&wanted, Pace::default(), |name| name == "known").await;
            assert_eq!(missing, ["b", "a"]);
        });
    }

    /// Compared each with each, this many would hold up the core for minutes.
    #[test]
    fn bi_a_frame_full_of_names_costs_its_size() {
        let wanted: Vec<_> = (0..400_000).map(|n| named(n.to_string())).collect();
        on_a_runtime(async move {
            let missing = names_to_create(&wanted, Pace::default(), |_| false).await;
            assert_eq!(missing.len(), wanted.len());
        });
    }
}
