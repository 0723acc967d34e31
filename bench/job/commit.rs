//! OffsetCommit requests.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use thalweg_protocol::frame;

use super::{CORRELATION_AT, HEAD_END, TOPIC_BYTES_MAX, check_code, client_id, encoded};
use crate::groups::{COMMIT_BY_NAME, commit_request};
use crate::load::Job;

/// Connection c commits one offset for the group `bench-commit-c`, which has no members.
#[derive(Clone)]
pub struct CommitJob {
    /// By connection.
    frames: Arc<Vec<Bytes>>,
    error_at: usize,
}

impl CommitJob {
    /// Encodes the frames.
    ///
    /// # Errors
    /// When the topic name is too long.
    pub fn new(topic: &str, connections: usize) -> Result<CommitJob> {
        ensure!(topic.len() <= TOPIC_BYTES_MAX, "the topic name is too long");
        let mut frames = Vec::new();
        for n in 0..connections {
            let request = commit_request(&format!("bench-commit-{n}"), ("", -1), topic, 0..1, 7);
            let frame = frame::encode_request(&request, COMMIT_BY_NAME, 0, client_id())?;
            frames.push(encoded(frame));
        }
        Ok(CommitJob {
            frames: Arc::new(frames),
            // Size, correlation id, tagged fields, throttle time; topics, name; partitions, index.
            error_at: 4 + 4 + 1 + 4 + 1 + (1 + topic.len()) + 1 + 4,
        })
    }
}

impl Job for CommitJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        head.extend_from_slice(&self.frames[conn]);
        head[CORRELATION_AT..HEAD_END].copy_from_slice(&correlation.to_be_bytes());
        conn
    }

    fn tail(&self, _token: usize) -> &[u8] {
        &[]
    }

    fn check(&mut self, _conn: usize, head: &[u8]) -> Result<u64> {
        check_code(head, self.error_at).context("commit")?;
        Ok(0)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        None
    }

    fn bytes_per_request(&self) -> u64 {
        0
    }

    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::CommitJob;
    use crate::load::Job;
    use thalweg_protocol::messages::OffsetCommitResponse;
    use thalweg_protocol::messages::offset_commit_response::{
        OffsetCommitResponsePartition, OffsetCommitResponseTopic,
    };
    use thalweg_protocol::{ApiKey, ErrorCode, frame};

    #[test]
    fn the_error_code_is_where_it_is_looked_for() {
        let mut job = CommitJob::new("bench", 1).unwrap();
        let mut answer = |code: ErrorCode| {
            let response = OffsetCommitResponse {
                topics: vec![OffsetCommitResponseTopic {
                    name: "bench".to_owned(),
                    partitions: vec![OffsetCommitResponsePartition {
                        partition_index: 3,
                        error_code: code as i16,
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let version = super::COMMIT_BY_NAME;
            let encoded =
                frame::encode_response(ApiKey::OffsetCommit, version, 9, &response).unwrap();
            job.check(0, &encoded.bytes)
        };
        assert_eq!(answer(ErrorCode::None).unwrap(), 0);
        let told = answer(ErrorCode::RebalanceInProgress).unwrap_err();
        assert!(format!("{told:#}").contains("REBALANCE_IN_PROGRESS"));
    }
}
