//! Fetch requests.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::messages::FetchRequest;
use thalweg_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use thalweg_protocol::records::batches;
use thalweg_protocol::{Records, frame};

use super::{
    CORRELATION_AT, HEAD_END, SampleBatch, TOPIC_BYTES_MAX, check_code, client_id, encoded,
    with_size,
};
use crate::floor::wire::FETCH_VERSION;
use crate::load::{HEAD_BYTES, Job};
use crate::workload::{Cold, Consume, Workload};

/// How long a Fetch waits for records.
const WAIT_MS_MAX: i32 = 500;

/// One encoded request per partition, and where its offset stands.
#[derive(Clone)]
struct Frames {
    frames: Arc<Vec<Vec<u8>>>,
    offset_at: usize,
    topic_bytes: usize,
}

impl Frames {
    fn new(topic: &str, partitions: usize, fetch_bytes: usize) -> Result<Frames> {
        ensure!(topic.len() <= TOPIC_BYTES_MAX, "the topic name is too long");
        let encode = |partition: usize, offset| fetch_frame(topic, partition, offset, fetch_bytes);
        let frames = (0..partitions)
            .map(|p| encode(p, 0))
            .collect::<Result<Vec<_>>>()?;
        // The offset is where two frames that differ in nothing else differ.
        let other = encode(0, -1)?;
        let first = frames.first().context("a topic without partitions")?;
        let differs = first.iter().zip(&other).position(|(a, b)| a != b);
        Ok(Frames {
            offset_at: differs.context("the offset is in the frame")?,
            frames: Arc::new(frames),
            topic_bytes: topic.len(),
        })
    }

    fn partitions(&self) -> usize {
        self.frames.len()
    }

    fn put(&self, partition: usize, offset: i64, correlation: i32, head: &mut Vec<u8>) {
        head.extend_from_slice(&self.frames[partition]);
        head[CORRELATION_AT..HEAD_END].copy_from_slice(&correlation.to_be_bytes());
        head[self.offset_at..self.offset_at + 8].copy_from_slice(&offset.to_be_bytes());
    }

    /// Bytes of record batches in the answer that begins so; 0 when it has none.
    fn record_bytes(&self, head: &[u8]) -> Result<u64> {
        check_code(head, 13).context("fetch")?;
        let partition_at = 20 + 1 + self.topic_bytes + 1;
        check_code(head, partition_at + 4).context("fetch of a partition")?;
        // After error, high watermark, last stable offset, log start: aborted transactions, preferred replica.
        let aborted_at = partition_at + 4 + 2 + 8 + 8 + 8;
        let aborted = *head.get(aborted_at).context("a short answer")?;
        ensure!(aborted <= 1, "aborted transactions in a plain topic");
        let mut value = 0u64;
        let length = head.get(aborted_at + 5..).context("a short answer")?;
        for (i, byte) in length.iter().take(5).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                break;
            }
        }
        // A compact length: one more than it is, and 0 for null.
        Ok(value.saturating_sub(1))
    }
}

fn fetch_frame(topic: &str, partition: usize, offset: i64, fetch_bytes: usize) -> Result<Vec<u8>> {
    let bytes_max = i32::try_from(fetch_bytes)?;
    let request = fetch_request(topic, partition as i32, offset, bytes_max);
    Ok(encoded(frame::encode_request(
        &request,
        FETCH_VERSION,
        0,
        client_id(),
    )?)
    .to_vec())
}

/// Asks for records of one partition, and waits for them if there are none.
pub(crate) fn fetch_request(
    topic: &str,
    partition: i32,
    offset: i64,
    bytes_max: i32,
) -> FetchRequest {
    FetchRequest {
        max_wait_ms: WAIT_MS_MAX,
        min_bytes: 1,
        max_bytes: bytes_max,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: bytes_max,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Fetch requests that walk a topic filled with equal batches, each connection on its own way: request n of
/// connection c asks partition (c + n) mod partitions, each time further on, from the start again at the end.
#[derive(Clone)]
pub struct FetchJob {
    frames: Frames,
    /// Records per request, and steps until a partition begins again.
    stride: i64,
    steps: usize,
    batch_bytes: u64,
    bytes_per_request: u64,
    sent: Vec<usize>,
}

impl FetchJob {
    /// For a topic whose partitions hold `batches_per_partition` batches of the workload each.
    ///
    /// # Errors
    /// When the topic name is too long or there is nothing to read.
    pub fn new(
        topic: &str,
        workload: &Workload,
        how: &Consume,
        batches_per_partition: usize,
    ) -> Result<FetchJob> {
        let batch = SampleBatch::of(workload, 0)?;
        let per_fetch = (how.fetch_bytes / batch.bytes.len()).max(1);
        let steps = batches_per_partition / per_fetch;
        ensure!(
            steps >= 1,
            "a partition holds less than one fetch; raise consume.fill_mb"
        );
        Ok(FetchJob {
            frames: Frames::new(topic, workload.partitions, how.fetch_bytes)?,
            stride: (per_fetch * batch.records) as i64,
            steps,
            batch_bytes: batch.bytes.len() as u64,
            bytes_per_request: (per_fetch * batch.bytes.len()) as u64,
            sent: vec![0; how.connections],
        })
    }
}

impl Job for FetchJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        let n = self.sent[conn];
        self.sent[conn] += 1;
        let partitions = self.frames.partitions();
        let partition = (conn + n) % partitions;
        let step = (conn + n / partitions) % self.steps;
        let offset = step as i64 * self.stride;
        self.frames.put(partition, offset, correlation, head);
        partition
    }

    fn tail(&self, _token: usize) -> &[u8] {
        &[]
    }

    fn check(&mut self, _conn: usize, head: &[u8]) -> Result<u64> {
        let bytes = self.frames.record_bytes(head)?;
        ensure!(bytes > 0, "an answer without records");
        // A broker may cut the last batch of an answer short; what is of no use to a client does not count.
        Ok(bytes / self.batch_bytes * self.batch_bytes)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        None
    }

    fn bytes_per_request(&self) -> u64 {
        self.bytes_per_request
    }

    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }
}

/// Fetch requests that follow producers of equal batches: connection c reads partition c mod partitions from the
/// start, each time where the last answer ended, one request at a time. An answer without records is no error: nothing
/// came within its wait.
#[derive(Clone)]
pub struct TailJob {
    frames: Frames,
    batch_bytes: u64,
    batch_records: i64,
    /// By connection.
    offsets: Vec<i64>,
    /// Where a partition ends and is read from the start again; of a backlog only.
    end: Option<i64>,
}

impl TailJob {
    /// For a topic that is empty at first and gets only batches of the workload.
    ///
    /// # Errors
    /// When the topic name is too long.
    pub fn new(topic: &str, workload: &Workload, how: &Consume) -> Result<TailJob> {
        TailJob::reading(topic, workload, how.connections, how.fetch_bytes)
    }

    /// For a backlog of so many batches per partition, which nobody writes to any more: each connection drains its
    /// partition over and over.
    ///
    /// # Errors
    /// When the topic name is too long.
    pub fn draining(topic: &str, how: &Cold, batches_per_partition: usize) -> Result<TailJob> {
        let workload = Workload::of_backlog(how);
        let mut job = TailJob::reading(topic, &workload, how.connections, how.fetch_bytes)?;
        job.end = Some(batches_per_partition as i64 * job.batch_records);
        Ok(job)
    }

    fn reading(
        topic: &str,
        workload: &Workload,
        connections: usize,
        fetch_bytes: usize,
    ) -> Result<TailJob> {
        let batch = SampleBatch::of(workload, 0)?;
        Ok(TailJob {
            frames: Frames::new(topic, workload.partitions, fetch_bytes)?,
            batch_bytes: batch.bytes.len() as u64,
            batch_records: batch.records as i64,
            offsets: vec![0; connections],
            end: None,
        })
    }
}

impl Job for TailJob {
    fn next(&mut self, conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        let partition = conn % self.frames.partitions();
        self.frames
            .put(partition, self.offsets[conn], correlation, head);
        partition
    }

    fn tail(&self, _token: usize) -> &[u8] {
        &[]
    }

    fn check(&mut self, conn: usize, head: &[u8]) -> Result<u64> {
        // A broker may cut the last batch of an answer short; it comes again.
        let whole = self.frames.record_bytes(head)? / self.batch_bytes;
        self.offsets[conn] += whole as i64 * self.batch_records;
        if self.end.is_some_and(|end| self.offsets[conn] >= end) {
            self.offsets[conn] = 0;
        }
        Ok(whole * self.batch_bytes)
    }

    fn unanswered_bytes(&self) -> Option<u64> {
        None
    }

    fn bytes_per_request(&self) -> u64 {
        self.batch_bytes
    }

    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
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
    let mut head = with_size(&answer);
    head.truncate(HEAD_BYTES);
    let counted = job.check(0, &head)?;
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
    let whole = usize::try_from(counted)?;
    let left = bytes.len().checked_sub(whole);
    let is_right = left.is_some_and(|left| (left as u64) < job.batch_bytes);
    ensure!(is_right, "{} bytes, not {counted}", bytes.len());
    let mut records = 0;
    for batch in batches(&bytes[..whole]) {
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
    use super::{FetchJob, TailJob};
    use crate::floor::wire::{self, Ask};
    use crate::load::Job;
    use crate::workload::Workload;

    /// Partition and offset that the floor reads from a request.
    fn asked(request: &[u8]) -> (usize, i64) {
        let Ask::Fetch {
            partition, offset, ..
        } = wire::parse(&request[4..]).unwrap()
        else {
            panic!("no fetch")
        };
        (partition, offset)
    }

    #[test]
    fn the_floor_understands_fetch_and_is_understood() {
        let workload = Workload::named("hot-consume").unwrap();
        let how = workload.consume.clone().unwrap();
        let mut job = FetchJob::new("bench", &workload, &how, 64).unwrap();
        let mut request = Vec::new();
        for _ in 0..17 {
            request.clear();
            job.next(0, 5, &mut request);
        }
        let Ask::Fetch {
            correlation,
            bytes_max,
            ..
        } = wire::parse(&request[4..]).unwrap()
        else {
            panic!("no fetch")
        };
        assert_eq!((correlation, bytes_max), (5, 1 << 20));
        assert_eq!(asked(&request), (0, job.stride));
        let mut answer = Vec::new();
        wire::put_fetch_head(&mut answer, "bench", 5, 0, 100, 70_000);
        assert_eq!(job.check(0, &answer).unwrap(), job.batch_bytes);
    }

    #[test]
    fn a_tail_reads_on_where_whole_batches_ended() {
        let workload = Workload::named("mixed").unwrap();
        let how = workload.consume.clone().unwrap();
        let mut job = TailJob::new("bench", &workload, &how).unwrap();
        let batch = job.batch_bytes;
        let mut step = |bytes: u64| {
            let mut request = Vec::new();
            job.next(3, 9, &mut request);
            let mut answer = Vec::new();
            wire::put_fetch_head(&mut answer, "bench", 9, 3, 1_000, bytes);
            (asked(&request), job.check(3, &answer).unwrap())
        };
        assert_eq!(step(2 * batch), ((3, 0), 2 * batch));
        assert_eq!(step(0), ((3, 128), 0));
        assert_eq!(step(batch + 17), ((3, 128), batch));
        assert_eq!(step(0), ((3, 192), 0));
    }

    #[test]
    fn a_backlog_is_drained_from_its_start_again() {
        let cold = Workload::named("catch-up").unwrap().cold.unwrap();
        let mut job = TailJob::draining("cold", &cold, 3).unwrap();
        let mut at = Vec::new();
        for _ in 0..3 {
            let mut request = Vec::new();
            job.next(1, 9, &mut request);
            at.push(asked(&request));
            let mut answer = Vec::new();
            wire::put_fetch_head(&mut answer, "cold", 9, 1, 192, 2 * job.batch_bytes);
            job.check(1, &answer).unwrap();
        }
        assert_eq!(at, [(1, 0), (1, 128), (1, 0)]);
    }
}
