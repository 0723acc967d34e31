//! DescribeLogDirs: what the log directories hold (KIP-113, KIP-827).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use thalweg_control::{ClusterView, DirIndex};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use thalweg_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use thalweg_reactor::time;
use thalweg_storage::DirHealth;
use thalweg_types::{PartitionIndex, TopicPartition};

use crate::question::{Answer, PartitionAnswer, PartitionAsk, Question};
use crate::service::Call;
use crate::shard::Shard;

/// How long an answer waits for the room of one directory.
const SPACE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Answers when every owner has. A partition that is not there, or can not be opened, is left out.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    _: Call,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let view = shard.view();
    let wanted = wanted(&view, &request);
    let mut asks = Vec::new();
    for (slot, (_, id)) in wanted.iter().enumerate() {
        if let Some(owner) = view.owner(*id) {
            let question = Question::Size;
            asks.push((
                owner,
                PartitionAsk {
                    slot,
                    id: *id,
                    question,
                },
            ));
        }
    }
    let mut answers = shard.ask_owners(asks).await;
    answers.sort_unstable_by_key(|answer| answer.slot);
    let mut topics: Vec<TopicsOf<'_>> = Vec::new();
    topics.resize_with(shard.dirs.len(), BTreeMap::new);
    for PartitionAnswer { slot, result, .. } in answers {
        let Ok(Answer::Size(size)) = result else {
            continue;
        };
        let (name, id) = wanted[slot];
        let mut add = |dir: DirIndex, bytes: u64, lag: i64, is_future_key: bool| {
            let partitions = topics[dir.0].entry(name).or_default();
            partitions.push(DescribeLogDirsPartition {
                partition_index: id.partition.0,
                partition_size: i64::try_from(bytes).unwrap_or(i64::MAX),
                offset_lag: lag,
                is_future_key,
            });
        };
        // The leader's log does not lag behind itself.
        add(size.dir, size.bytes, 0, false);
        if let Some(future) = size.future {
            add(future.dir, future.bytes, future.lag, true);
        }
    }
    let mut results = Vec::with_capacity(topics.len());
    for (health, topics) in shard.dirs.iter().zip(topics) {
        results.push(row(health, topics).await);
    }
    DescribeLogDirsResponse {
        results,
        ..Default::default()
    }
}

type TopicsOf<'n> = BTreeMap<&'n str, Vec<DescribeLogDirsPartition>>;

/// One directory. Of one that failed nothing is known but that.
async fn row(health: &DirHealth, topics: TopicsOf<'_>) -> DescribeLogDirsResult {
    let mut row = DescribeLogDirsResult {
        log_dir: absolute(health.path()),
        ..Default::default()
    };
    if health.failure().is_some() {
        row.error_code = ErrorCode::KafkaStorageError.code();
        return row;
    }
    let topic = |(name, partitions): (&str, Vec<_>)| DescribeLogDirsTopic {
        name: name.to_owned(),
        partitions,
    };
    row.topics = topics.into_iter().map(topic).collect();
    // Without the numbers the answer says "not known".
    if !health.is_silent()
        && let Ok(Ok(space)) = time::timeout(SPACE_WAIT_MAX, health.space()).await
    {
        row.total_bytes = i64::try_from(space.total_bytes).unwrap_or(i64::MAX);
        row.usable_bytes = i64::try_from(space.usable_bytes).unwrap_or(i64::MAX);
    }
    row
}

/// Each partition that the request names and that exists, once; null names all.
fn wanted<'v>(
    view: &'v ClusterView,
    request: &DescribeLogDirsRequest,
) -> Vec<(&'v str, TopicPartition)> {
    let mut wanted = BTreeSet::new();
    match &request.topics {
        None => {
            for topic in view.image.topics() {
                for index in topic.partitions.keys() {
                    let id = TopicPartition {
                        topic: topic.id,
                        partition: *index,
                    };
                    wanted.insert((&*topic.name, id.partition, id.topic));
                }
            }
        }
        Some(topics) => {
            for named in topics {
                let Some(topic) = view.image.topic(&named.topic) else {
                    continue;
                };
                for index in &named.partitions {
                    wanted.insert((&*topic.name, PartitionIndex(*index), topic.id));
                }
            }
        }
    }
    let id = |(name, partition, topic)| (name, TopicPartition { topic, partition });
    wanted.into_iter().map(id).collect()
}

/// As clients see the path of a log directory, and name it.
pub(super) fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    let path = absolute.as_deref().unwrap_or(path);
    path.to_string_lossy().into_owned()
}
