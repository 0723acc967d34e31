//! Administrative calls: log directories of a broker, and moves between them (KIP-113).

use std::collections::BTreeMap;

use thalweg_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use thalweg_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use thalweg_protocol::messages::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest};

use crate::cluster::Cluster;
use crate::error::{ClientError, Result};

/// A log directory, as its broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirectory {
    /// Its path on the broker's machine.
    pub path: String,
    /// 0, or Kafka's code of what is wrong with it.
    pub error_code: i16,
    /// Bytes of its file system; `None` from brokers that do not tell.
    pub total_bytes: Option<i64>,
    /// Bytes that can still be written; `None` from brokers that do not tell.
    pub usable_bytes: Option<i64>,
    /// The logs in it.
    pub logs: Vec<LogInDirectory>,
}

/// One log in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInDirectory {
    /// Its topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// What it takes.
    pub bytes: i64,
    /// Records that it lacks of the log that it follows.
    pub lag: i64,
    /// It is the copy that is to take the place of a log in another directory.
    pub is_future: bool,
}

impl Cluster {
    /// The log directories of a broker, in the order of its configuration.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn describe_log_dirs(&mut self, broker: i32) -> Result<Vec<LogDirectory>> {
        let request = DescribeLogDirsRequest { topics: None };
        let response = self.retry(|cluster| {
            cluster.refresh_brokers()?;
            cluster.broker(broker)?.call(&request)
        })?;
        let what = || format!("describe the log directories of broker {broker}");
        ClientError::check(response.error_code, what, None)?;
        Ok(response.results.into_iter().map(directory).collect())
    }

    /// Has a broker move partitions, each by topic and index, to one of its log directories. Returns the
    /// outcome of each; a move that has begun is told by [`Cluster::describe_log_dirs`].
    ///
    /// # Errors
    /// See [`ClientError`]; nothing is known of any then.
    pub fn move_to_log_dir(
        &mut self,
        broker: i32,
        path: &str,
        partitions: &BTreeMap<String, Vec<i32>>,
    ) -> Result<Vec<(String, i32, Result<()>)>> {
        let topic = |(name, partitions): (&String, &Vec<i32>)| AlterReplicaLogDirTopic {
            name: name.clone(),
            partitions: partitions.clone(),
        };
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: path.to_owned(),
                topics: partitions.iter().map(topic).collect(),
            }],
        };
        let response = self.retry(|cluster| {
            cluster.refresh_brokers()?;
            cluster.broker(broker)?.call(&request)
        })?;
        let mut outcomes = Vec::new();
        for topic in response.results {
            for row in topic.partitions {
                let name = topic.topic_name.clone();
                let what = || format!("move {name}-{} to {path}", row.partition_index);
                let outcome = ClientError::check(row.error_code, what, None);
                outcomes.push((name, row.partition_index, outcome));
            }
        }
        Ok(outcomes)
    }
}

fn directory(result: DescribeLogDirsResult) -> LogDirectory {
    let known = |bytes: i64| (bytes >= 0).then_some(bytes);
    let mut logs = Vec::new();
    for topic in result.topics {
        for row in topic.partitions {
            logs.push(LogInDirectory {
                topic: topic.name.clone(),
                partition: row.partition_index,
                bytes: row.partition_size,
                lag: row.offset_lag,
                is_future: row.is_future_key,
            });
        }
    }
    LogDirectory {
        path: result.log_dir,
        error_code: result.error_code,
        total_bytes: known(result.total_bytes),
        usable_bytes: known(result.usable_bytes),
        logs,
    }
}
