//! Produce requests.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::messages::ProduceRequest;
use thalweg_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_protocol::{Records, frame};

use super::{
    CORRELATION_AT, HEAD_END, SampleBatch, TOPIC_BYTES_MAX, check_code, client_id, encoded,
    with_size,
};
use crate::floor::wire::PRODUCE_VERSION;
use crate::load::Job;
use crate::workload::{Produce, Workload};

/// Produce requests: request n of connection c goes to partition (c + n) mod partitions.
#[derive(Clone)]
pub struct ProduceJob {
    /// By partition: the frame up to its records.
    heads: Arc<Vec<Bytes>>,
    /// Records and what follows them: by partition where records have keys, else one for all.
    tails: Arc<Vec<Bytes>>,
    batch_bytes: u64,
    acks: i16,
    error_at: usize,
    sent: Vec<usize>,
}

impl ProduceJob {
    /// Encodes the frames: batches of the workload, written as `how` says.
    ///
    /// # Errors
    /// When the topic name is too long, or the numbers make no batch.
    pub fn new(topic: &str, workload: &Workload, how: &Produce) -> Result<ProduceJob> {
        ensure!(topic.len() <= TOPIC_BYTES_MAX, "the topic name is too long");
        let mut batch = SampleBatch::of(workload, 0)?;
        let mut heads = Vec::new();
        let mut tails = Vec::new();
        for partition in 0..workload.partitions {
            if workload.key_bytes > 0 {
                batch = SampleBatch::of(workload, partition)?;
            }
            let mut head = produce_frame(topic, how.acks, partition, &batch.bytes)?;
            let tail = head.split_off(head.len() - batch.bytes.len() - AFTER_RECORDS);
            heads.push(Bytes::copy_from_slice(&head));
            if workload.key_bytes > 0 || tails.is_empty() {
                tails.push(tail);
            }
        }
        Ok(ProduceJob {
            heads: Arc::new(heads),
            tails: Arc::new(tails),
            batch_bytes: batch.bytes.len() as u64,
            acks: how.acks,
            error_at: error_at(topic),
            sent: vec![0; how.connections],
        })
    }

    /// The same to these partitions alone.
    #[must_use]
    pub fn only(mut self, partitions: &[usize]) -> ProduceJob {
        let of = |all: &[Bytes]| partitions.iter().map(|at| all[*at].clone()).collect();
        if self.tails.len() == self.heads.len() {
            self.tails = Arc::new(of(&self.tails));
        }
        self.heads = Arc::new(of(&self.heads));
        self
    }

    /// Sends one request per partition over one connection, so many times over, and waits for all.
    ///
    /// # Errors
    /// When a request fails.
    pub fn fill(&mut self, address: &str, rounds: usize) -> Result<()> {
        let mut connection = Connection::open(address, &ConnectOptions::default())?;
        let heads = Arc::clone(&self.heads);
        for _ in 0..rounds {
            for (partition, head) in heads.iter().enumerate() {
                connection.send_bytes(&[head, self.tail(partition)].concat())?;
            }
            if self.acks == 0 {
                continue;
            }
            for _ in heads.iter() {
                let answer = connection.read_frame()?;
                self.check(0, &with_size(&answer))?;
            }
        }
        Ok(())
    }
}

impl ProduceJob {
    /// The offset that an answer gives.
    ///
    /// # Errors
    /// When the answer is too short to have one.
    pub(crate) fn base_offset(&self, head: &[u8]) -> Result<i64> {
        let at = self.error_at + 2;
        let bytes = head.get(at..at + 8).context("a short answer")?;
        Ok(i64::from_be_bytes(bytes.try_into()?))
    }
}

/// Sends one batch to partition 0 and waits for its acknowledgement.
///
/// # Errors
/// When the broker refuses it.
pub(crate) fn send_batch(connection: &mut Connection, topic: &str, batch: &[u8]) -> Result<()> {
    connection.send_bytes(&produce_frame(topic, 1, 0, batch)?)?;
    let answer = connection.read_frame()?;
    check_code(&with_size(&answer), error_at(topic)).context("produce")
}

/// Where an answer for one partition of `topic` has its error code.
fn error_at(topic: &str) -> usize {
    4 + 4 + 1 + 1 + (1 + topic.len()) + 1 + 4
}

/// Bytes of a frame after its records: the empty tagged fields of partition, topic and request.
const AFTER_RECORDS: usize = 3;

fn produce_frame(topic: &str, acks: i16, partition: usize, batch: &[u8]) -> Result<Bytes> {
    let request = ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: [TopicProduceData {
            name: topic.to_owned(),
            partition_data: [PartitionProduceData {
                index: i32::try_from(partition)?,
                records: Some(Records::Held(BytesMut::from(batch))),
            }]
            .into(),
            ..Default::default()
        }]
        .into(),
    };
    let frame = frame::encode_request(&request, PRODUCE_VERSION, 0, client_id())?;
    Ok(encoded(frame))
}

impl Job for ProduceJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        let partition = (conn + self.sent[conn]) % self.heads.len();
        self.sent[conn] += 1;
        head.extend_from_slice(&self.heads[partition]);
        head[CORRELATION_AT..HEAD_END].copy_from_slice(&correlation.to_be_bytes());
        partition
    }

    fn tail(&self, token: usize) -> &[u8] {
        &self.tails[token % self.tails.len()]
    }

    fn check(&mut self, _conn: usize, head: &[u8]) -> Result<u64> {
        check_code(head, self.error_at).context("produce")?;
        Ok(self.batch_bytes)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        (self.acks == 0).then_some(self.batch_bytes)
    }

    fn bytes_per_request(&self) -> u64 {
        self.batch_bytes
    }

    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::ProduceJob;
    use crate::floor::wire::{self, Ask, ProduceAnswer};
    use crate::load::Job;
    use crate::workload::Workload;

    #[test]
    fn the_floor_understands_produce_and_is_understood() {
        let workload = Workload::named("one-record").unwrap();
        let mut job = ProduceJob::new("bench", &workload, &workload.filling()).unwrap();
        let mut request = Vec::new();
        let token = job.next(3, 99, &mut request);
        request.extend_from_slice(job.tail(token));
        let ask = wire::parse(&request[4..]).unwrap();
        let Ask::Produce {
            correlation,
            acks,
            partition,
            batch,
            records,
        } = ask
        else {
            panic!("no produce")
        };
        assert_eq!((correlation, acks, partition, records), (99, 1, 3, 1));
        assert_eq!(batch.len() as u64, job.bytes_per_request());
        let mut answer = Vec::new();
        ProduceAnswer::new("bench", 3).put(&mut answer, 99, 5);
        assert_eq!(job.check(3, &answer).unwrap(), job.bytes_per_request());
        assert_eq!(job.base_offset(&answer).unwrap(), 5);
    }
}
