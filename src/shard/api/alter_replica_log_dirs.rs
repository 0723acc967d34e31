//! AlterReplicaLogDirs: partitions move to other log directories (KIP-113).
//!
//! The answer says that a move has begun; DescribeLogDirs says how far it is.

use std::collections::BTreeMap;
use std::rc::Rc;

use thalweg_control::DirIndex;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use thalweg_protocol::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};

use crate::api::describe_log_dirs::absolute;
use crate::question::{Answer, Asking, Question, Row};
use crate::service::Call;
use crate::shard::Shard;

/// A partition that is to move, or why not.
struct Moving {
    topic: String,
    result: AlterReplicaLogDirPartitionResult,
}

/// Answers when each owner has accepted its moves.
pub(crate) async fn answer(
    shard: Rc<Shard>,
    call: Call,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let asking = sort(&shard, request);
    let rows = asking
        .rows(&shard, |_, _, answer| match answer {
            Answer::Moves => Ok(()),
            Answer::Size(_) | Answer::Producers(_) | Answer::EpochEnd(_) | Answer::LogStart(_) => {
                Err(ErrorCode::UnknownServerError)
            }
        })
        .await;
    let mut topics: BTreeMap<String, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for Moving { topic, mut result } in rows {
        // Kafka's answer to a replica that is not here is as old as the request.
        if result.error_code == ErrorCode::NotLeaderOrFollower.code() {
            result.error_code = ErrorCode::ReplicaNotAvailable.code();
        }
        shard.count_error(call.key, result.error_code);
        topics.entry(topic).or_default().push(result);
    }
    let results = topics.into_iter();
    let results = results.map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult {
        topic_name,
        partitions,
    });
    AlterReplicaLogDirsResponse {
        results: results.collect(),
        ..Default::default()
    }
}

/// Asks each partition that is named to move.
fn sort(shard: &Shard, request: AlterReplicaLogDirsRequest) -> Asking<Moving> {
    let view = shard.view();
    let mut asking = Asking::new();
    for dir in request.dirs {
        let to = directory(shard, &dir.path);
        for topic in dir.topics {
            let known = view.image.topic(&topic.name).map(|known| known.id);
            let known = known.ok_or(ErrorCode::UnknownTopicOrPartition);
            for index in topic.partitions {
                let row = Moving {
                    topic: topic.name.clone(),
                    result: AlterReplicaLogDirPartitionResult {
                        partition_index: index,
                        error_code: ErrorCode::None.code(),
                    },
                };
                let owned = to.and_then(|_| super::owned(&view, known?, index));
                let question = Question::Move {
                    to: to.unwrap_or(DirIndex(0)),
                };
                asking.add(owned, question, row);
            }
        }
    }
    asking
}

/// The log directory at that path, if it works.
fn directory(shard: &Shard, path: &str) -> Result<DirIndex, ErrorCode> {
    let mut dirs = shard.dirs.iter();
    let found = dirs.position(|health| absolute(health.path()) == path);
    let found = found.ok_or(ErrorCode::LogDirNotFound)?;
    match shard.dirs[found].failure() {
        None => Ok(DirIndex(found)),
        Some(_) => Err(ErrorCode::KafkaStorageError),
    }
}

impl Row for Moving {
    fn error_code(&mut self) -> &mut i16 {
        &mut self.result.error_code
    }
}
