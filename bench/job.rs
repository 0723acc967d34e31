//! The requests of the load generator: encoded once, patched per use.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use thalweg_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_protocol::messages::{FetchRequest, ProduceRequest};
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec, batches};
use thalweg_protocol::{ErrorCode, Records, frame};
use thalweg_types::TimestampMs;

use crate::floor::wire::{FETCH_VERSION, PRODUCE_VERSION};
use crate::load::{HEAD_BYTES, Job};
use crate::workload::Workload;

/// Size prefix, API key, version, correlation id.
const HEAD_END: usize = 12;
const CORRELATION_AT: usize = 8;
/// Topic names stay short enough for a length of one byte.
const TOPIC_BYTES_MAX: usize = 100;

/// One batch of the workload and how many records it has.
#[derive(Clone, Debug)]
pub struct SampleBatch {
    /// The batch, base offset 0.
    pub bytes: Bytes,
    /// Its records.
    pub records: usize,
}

impl SampleBatch {
    /// Builds the batch of a workload: incompressible values, no keys.
    ///
    /// # Errors
    /// When the numbers make no batch.
    pub fn of(workload: &Workload) -> Result<SampleBatch> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut value = vec![0u8; workload.record_bytes];
        let per_record = workload.record_bytes + 12;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_millis();
        let mut records = 0;
        while records == 0 || builder.uncompressed_bytes() + per_record <= workload.batch_bytes {
            for byte in &mut value {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = (state >> 32) as u8;
            }
            builder.push(TimestampMs(i64::try_from(now)?), None, Some(&value), &[])?;
            records += 1;
        }
        Ok(SampleBatch {
            bytes: builder.build(Codec::None)?,
            records,
        })
    }
}

/// Produce requests: request n of connection c goes to partition (c + n) mod partitions.
#[derive(Clone)]
pub struct ProduceJob {
    /// One whole frame per partition.
    frames: Arc<Vec<Bytes>>,
    batch_bytes: u64,
    acks: i16,
    error_at: usize,
    sent: Vec<usize>,
}

impl ProduceJob {
    /// Encodes the frames.
    ///
    /// # Errors
    /// When the topic name is too long, or the numbers make no batch.
    pub fn new(topic: &str, workload: &Workload) -> Result<ProduceJob> {
        ensure!(topic.len() <= TOPIC_BYTES_MAX, "the topic name is too long");
        let batch = SampleBatch::of(workload)?;
        let mut frames = Vec::new();
        for index in 0..workload.partitions {
            let records = Some(Records::Held(BytesMut::from(&batch.bytes[..])));
            let request = ProduceRequest {
                transactional_id: None,
                acks: workload.acks,
                timeout_ms: 30_000,
                topic_data: vec![TopicProduceData {
                    name: topic.to_owned(),
                    partition_data: vec![PartitionProduceData {
                        index: index as i32,
                        records,
                    }],
                    ..Default::default()
                }],
            };
            frames.push(encoded(frame::encode_request(
                &request,
                PRODUCE_VERSION,
                0,
                client_id(),
            )?));
        }
        Ok(ProduceJob {
            frames: Arc::new(frames),
            batch_bytes: batch.bytes.len() as u64,
            acks: workload.acks,
            error_at: 4 + 4 + 1 + 1 + (1 + topic.len()) + 1 + 4,
            sent: vec![0; workload.connections],
        })
    }

    /// Bytes of one batch.
    #[must_use]
    pub fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }

    /// Sends one request per partition over one connection, so many times over, and waits for all.
    ///
    /// # Errors
    /// When a request fails.
    pub fn fill(&mut self, address: &str, rounds: usize) -> Result<()> {
        let mut connection = Connection::open(address, &ConnectOptions::default())?;
        let frames = Arc::clone(&self.frames);
        for _ in 0..rounds {
            for frame in frames.iter() {
                connection.send_bytes(frame)?;
            }
            if self.acks == 0 {
                continue;
            }
            for _ in frames.iter() {
                let answer = connection.read_frame()?;
                let mut head = (answer.len() as u32).to_be_bytes().to_vec();
                head.extend_from_slice(&answer);
                self.check(&head)?;
            }
        }
        Ok(())
    }
}

fn client_id() -> Option<&'static str> {
    Some("thalweg-bench")
}

fn encoded(encoded: thalweg_protocol::wire::Encoded) -> Bytes {
    debug_assert!(encoded.gaps.is_empty(), "records are in the frame");
    encoded.bytes
}

impl Job for ProduceJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        let partition = (conn + self.sent[conn]) % self.frames.len();
        self.sent[conn] += 1;
        head.extend_from_slice(&self.frames[partition][..HEAD_END]);
        head[CORRELATION_AT..HEAD_END].copy_from_slice(&correlation.to_be_bytes());
        partition
    }

    fn tail(&self, token: usize) -> &[u8] {
        &self.frames[token][HEAD_END..]
    }

    fn check(&mut self, head: &[u8]) -> Result<u64> {
        check_code(head, self.error_at).context("produce")?;
        Ok(self.batch_bytes)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        (self.acks == 0).then_some(self.batch_bytes)
    }
}

fn check_code(head: &[u8], at: usize) -> Result<()> {
    let bytes = head.get(at..at + 2).context("a short answer")?;
    match i16::from_be_bytes(bytes.try_into()?) {
        0 => Ok(()),
        code => match ErrorCode::from_code(code) {
            Some(known) => bail!("the broker answered {}", known.name()),
            None => bail!("the broker answered error {code}"),
        },
    }
}

/// Fetch requests that walk a topic filled with equal batches, each connection on its own way: request n of
/// connection c asks partition (c + n) mod partitions, each time further on, from the start again at the end.
#[derive(Clone)]
pub struct FetchJob {
    frames: Arc<Vec<Vec<u8>>>,
    offset_at: usize,
    topic_bytes: usize,
    /// Records per request, and steps until a partition begins again.
    stride: i64,
    steps: usize,
    sent: Vec<usize>,
}

impl FetchJob {
    /// For a topic whose partitions hold `batches_per_partition` batches of the workload each.
    ///
    /// # Errors
    /// When the topic name is too long or there is nothing to read.
    pub fn new(topic: &str, workload: &Workload, batches_per_partition: usize) -> Result<FetchJob> {
        ensure!(topic.len() <= TOPIC_BYTES_MAX, "the topic name is too long");
        let batch = SampleBatch::of(workload)?;
        let per_fetch = (workload.fetch_bytes / batch.bytes.len()).max(1);
        let steps = batches_per_partition / per_fetch;
        ensure!(steps >= 1, "the topic holds less than one fetch");
        let encode = |partition: usize, offset| fetch_frame(topic, partition, offset, workload);
        let frames = (0..workload.partitions)
            .map(|p| encode(p, 0))
            .collect::<Result<Vec<_>>>()?;
        // The offset is where two frames that differ in nothing else differ.
        let other = encode(0, -1)?;
        let differs = frames[0].iter().zip(&other).position(|(a, b)| a != b);
        Ok(FetchJob {
            frames: Arc::new(frames),
            offset_at: differs.context("the offset is in the frame")?,
            topic_bytes: topic.len(),
            stride: (per_fetch * batch.records) as i64,
            steps,
            sent: vec![0; workload.connections],
        })
    }
}

fn fetch_frame(topic: &str, partition: usize, offset: i64, workload: &Workload) -> Result<Vec<u8>> {
    let bytes_max = i32::try_from(workload.fetch_bytes)?;
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: bytes_max,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![FetchPartition {
                partition: partition as i32,
                fetch_offset: offset,
                partition_max_bytes: bytes_max,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    Ok(encoded(frame::encode_request(
        &request,
        FETCH_VERSION,
        0,
        client_id(),
    )?)
    .to_vec())
}

impl Job for FetchJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        let n = self.sent[conn];
        self.sent[conn] += 1;
        let partition = (conn + n) % self.frames.len();
        let step = (conn + n / self.frames.len()) % self.steps;
        let offset = step as i64 * self.stride;
        head.extend_from_slice(&self.frames[partition]);
        head[CORRELATION_AT..HEAD_END].copy_from_slice(&correlation.to_be_bytes());
        head[self.offset_at..self.offset_at + 8].copy_from_slice(&offset.to_be_bytes());
        partition
    }

    fn tail(&self, _token: usize) -> &[u8] {
        &[]
    }

    fn check(&mut self, head: &[u8]) -> Result<u64> {
        check_code(head, 13).context("fetch")?;
        let partition_at = 20 + 1 + self.topic_bytes + 1;
        check_code(head, partition_at + 4).context("fetch of a partition")?;
        // After error, high watermark, last stable offset, log start: aborted transactions, preferred replica.
        let aborted_at = partition_at + 4 + 2 + 8 + 8 + 8;
        let aborted = *head.get(aborted_at).context("a short answer")?;
        ensure!(aborted <= 1, "aborted transactions in a plain topic");
        let mut value = 0u64;
        for (i, byte) in head
            .get(aborted_at + 5..)
            .context("a short answer")?
            .iter()
            .enumerate()
        {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                break;
            }
        }
        ensure!(value > 1, "an answer without records");
        Ok(value - 1)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        None
    }
}

/// Sends one request by hand, decodes the answer with the real codec, checks the CRC of what came, and
/// compares with what [`Job::check`] reads from the same bytes.
///
/// # Errors
/// When they differ: then the load generator misreads answers.
pub fn probe_fetch(job: &mut FetchJob, address: &str) -> Result<()> {
    let mut connection = Connection::open(address, &ConnectOptions::default())?;
    let mut request = Vec::new();
    job.next(0, 7, &mut request);
    job.sent[0] = 0;
    connection.send_bytes(&request)?;
    let answer = connection.read_frame()?;
    let mut head = (answer.len() as u32).to_be_bytes().to_vec();
    head.extend_from_slice(&answer[..answer.len().min(HEAD_BYTES - 4)]);
    let counted = job.check(&head)?;
    let (correlation, response) = frame::decode_response::<FetchRequest>(answer, FETCH_VERSION)?;
    ensure!(
        correlation == 7,
        "correlation id {correlation} instead of 7"
    );
    let data = response
        .responses
        .first()
        .and_then(|t| t.partitions.first());
    let Some(Some(Records::Held(bytes))) = data.map(|p| &p.records) else {
        bail!("no records")
    };
    ensure!(
        bytes.len() as u64 == counted,
        "{} bytes, not {counted}",
        bytes.len()
    );
    let mut records = 0;
    for batch in batches(bytes) {
        let batch = batch?;
        ensure!(batch.crc_matches(), "a batch is damaged");
        records += i64::from(batch.header.record_count);
    }
    ensure!(
        records == job.stride,
        "{records} records came, {} were expected",
        job.stride
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FetchJob, ProduceJob, SampleBatch};
    use crate::floor::wire::{self, Ask, ProduceAnswer};
    use crate::load::Job;
    use crate::workload::{BULK_PRODUCE, HOT_CONSUME, ONE_RECORD};

    #[test]
    fn batches_have_the_size_of_the_workload() {
        let bulk = SampleBatch::of(&BULK_PRODUCE).unwrap();
        assert!(
            bulk.bytes.len() > 63_000 && bulk.bytes.len() <= 65_536,
            "{}",
            bulk.bytes.len()
        );
        assert_eq!(bulk.records, 64);
        let one = SampleBatch::of(&ONE_RECORD).unwrap();
        assert_eq!(one.records, 1);
    }

    #[test]
    fn the_floor_understands_produce_and_is_understood() {
        let mut job = ProduceJob::new("bench", &ONE_RECORD).unwrap();
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
            panic!()
        };
        assert_eq!((correlation, acks, partition, records), (99, 1, 3, 1));
        assert_eq!(batch.len() as u64, job.batch_bytes());
        let mut answer = Vec::new();
        ProduceAnswer::new("bench", 3).put(&mut answer, 99, 5);
        assert_eq!(job.check(&answer).unwrap(), job.batch_bytes());
    }

    #[test]
    fn the_floor_understands_fetch_and_is_understood() {
        let mut job = FetchJob::new("bench", &HOT_CONSUME, 64).unwrap();
        let mut request = Vec::new();
        for _ in 0..17 {
            request.clear();
            job.next(0, 5, &mut request);
        }
        let Ask::Fetch {
            correlation,
            partition,
            offset,
            bytes_max,
        } = wire::parse(&request[4..]).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            (correlation, partition, offset, bytes_max),
            (5, 0, job.stride, 1 << 20)
        );
        let mut answer = Vec::new();
        wire::put_fetch_head(&mut answer, "bench", 5, 0, 100, 70_000);
        assert_eq!(job.check(&answer).unwrap(), 70_000);
    }
}
