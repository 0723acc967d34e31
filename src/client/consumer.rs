//! Reads assigned partitions from their leaders, without a group.
//!
//! While the caller looks at one answer, the next fetch is already on its way. An answer counts only for
//! partitions that still stand where they stood when it was asked for, so seeking is always safe.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use thalweg_protocol::messages::fetch_response::PartitionData;
use thalweg_protocol::messages::{FetchRequest, FetchResponse};
use thalweg_protocol::records::{BatchError, DecompressError, Record, batches};
use thalweg_protocol::{ErrorCode, Records};
use thalweg_types::Uuid;
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;

use crate::admin::OffsetSpec;
use crate::cluster::{Cluster, MissingTopic, no_partition};
use crate::connection::Ticket;
use crate::error::{ClientError, Result};

/// The last version of Fetch that names topics instead of giving their id.
const NEWEST_BY_NAME: i16 = 12;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the first record that is there.
    Earliest,
    /// Behind the last one.
    Latest,
    /// At this offset.
    Offset(i64),
    /// At the first record with this timestamp in milliseconds or a later one; at the end if there is none.
    Timestamp(i64),
}

/// What happens when the log does not have the wanted offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutOfRange {
    /// [`Consumer::poll`] fails.
    Fail,
    /// Go on at this position.
    Reset(Position),
}

/// Which records are seen (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All, up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset. Records of aborted transactions are not filtered out yet.
    ReadCommitted,
}

/// How to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// How long the broker waits for `bytes_min`.
    pub wait_max: Duration,
    /// Fewest bytes worth an answer.
    pub bytes_min: i32,
    /// Most bytes of one answer.
    pub bytes_max: i32,
    /// Most bytes of one partition in an answer.
    pub partition_bytes_max: i32,
    /// Which records are seen.
    pub isolation: Isolation,
    /// What happens when the log does not have the wanted offset.
    pub on_out_of_range: OnOutOfRange,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        ConsumerOptions {
            wait_max: Duration::from_millis(500),
            bytes_min: 1,
            bytes_max: 32 * 1024 * 1024,
            partition_bytes_max: 2 * 1024 * 1024,
            isolation: Isolation::ReadUncommitted,
            on_out_of_range: OnOutOfRange::Fail,
        }
    }
}

/// Whole batches of one partition, checked against their CRC.
#[derive(Debug)]
pub struct Fetched {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// First offset that was asked for: the first batch may begin before it.
    pub from: i64,
    /// Offset after the last record.
    pub next: i64,
    /// End of what consumers may see.
    pub high_watermark: i64,
    /// First offset of the log.
    pub log_start: i64,
    /// The batches.
    pub bytes: BytesMut,
}

impl Fetched {
    /// Calls `visit` with each record, decompressed, in order; control records are left out. Stops at its
    /// first error.
    ///
    /// # Errors
    /// [`ClientError::Corrupt`] for a damaged batch and [`ClientError::Expands`] for one that is too large,
    /// converted into `E`; else what `visit` returned.
    pub fn for_each<E: From<ClientError>>(
        &self,
        mut visit: impl FnMut(&Record<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let corrupt = |offset, e| {
            E::from(ClientError::corrupt(
                &self.topic,
                self.partition,
                offset,
                &e,
            ))
        };
        for batch in batches(&self.bytes) {
            let batch = batch.map_err(|e| corrupt(self.from, e))?;
            if batch.header.is_control() {
                continue;
            }
            let base = batch.header.base_offset.0;
            let records = batch
                .records(DECOMPRESSED_BATCH_BYTES_MAX)
                .map_err(|e| match e {
                    BatchError::Decompress(DecompressError::TooLarge { limit }) => {
                        E::from(ClientError::Expands {
                            topic: self.topic.clone(),
                            partition: self.partition,
                            offset: base,
                            next: batch.header.last_offset().0 + 1,
                            limit,
                        })
                    }
                    other => corrupt(base, other),
                })?;
            for record in &records {
                let record = record.map_err(|e| corrupt(base, e))?;
                if record.offset.0 >= self.from {
                    visit(&record)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Assigned {
    topic: String,
    partition: i32,
    next: i64,
}

#[derive(Debug)]
struct Flight {
    ticket: Ticket<FetchRequest>,
    /// Topic, its id, partition and offset as asked for.
    asked: Vec<(String, Uuid, i32, i64)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Consumer {
    cluster: Cluster,
    options: ConsumerOptions,
    assigned: Vec<Assigned>,
    /// Topic, partition and where to begin: what only a leader can tell, and there is none yet.
    waiting: Vec<(String, i32, Position)>,
    leaderless: BTreeSet<(String, i32)>,
    flights: BTreeMap<i32, Flight>,
    failing_since: Option<Instant>,
    /// A failure that came together with records: reported by the next poll.
    deferred: Option<(i32, ClientError)>,
}

impl Consumer {
    /// A consumer of nothing yet.
    #[must_use]
    pub fn new(cluster: Cluster, options: ConsumerOptions) -> Consumer {
        Consumer {
            cluster,
            options,
            assigned: Vec::new(),
            waiting: Vec::new(),
            leaderless: BTreeSet::new(),
            flights: BTreeMap::new(),
            failing_since: None,
            deferred: None,
        }
    }

    /// The cluster it reads from.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Adds a partition, or moves one that is assigned already. One without leader is read when it has one.
    ///
    /// # Errors
    /// When the partition does not exist, or its offsets can not be asked for.
    pub fn assign(&mut self, topic: &str, partition: i32, position: Position) -> Result<()> {
        let needs_leader = match position {
            Position::Offset(_) => false,
            Position::Earliest | Position::Latest | Position::Timestamp(_) => true,
        };
        let known = self.cluster.topic(topic, MissingTopic::Refuse)?;
        let is_leaderless = known.leaderless().any(|p| p == partition);
        if needs_leader && is_leaderless {
            self.stop_waiting(topic, partition);
            self.waiting.push((topic.to_owned(), partition, position));
            return Ok(());
        }
        let next = self.resolve(topic, partition, position)?;
        self.stop_waiting(topic, partition);
        let known = self
            .assigned
            .iter_mut()
            .find(|a| a.topic == topic && a.partition == partition);
        match known {
            Some(assigned) => assigned.next = next,
            None => self.assigned.push(Assigned {
                topic: topic.to_owned(),
                partition,
                next,
            }),
        }
        Ok(())
    }

    /// Drops a partition.
    pub fn unassign(&mut self, topic: &str, partition: i32) {
        self.assigned
            .retain(|a| a.topic != topic || a.partition != partition);
        self.stop_waiting(topic, partition);
    }

    fn stop_waiting(&mut self, topic: &str, partition: i32) {
        self.waiting
            .retain(|(t, p, _)| t != topic || *p != partition);
    }

    /// Offset of the next record of a partition, `None` when it is not assigned.
    #[must_use]
    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        let known = self
            .assigned
            .iter()
            .find(|a| a.topic == topic && a.partition == partition);
        known.map(|a| a.next)
    }

    /// Assigned partitions that have no leader at the moment, so that nothing of them is read until they have
    /// one; as of the last poll.
    #[must_use]
    pub fn leaderless(&self) -> &BTreeSet<(String, i32)> {
        &self.leaderless
    }

    fn resolve(&mut self, topic: &str, partition: i32, position: Position) -> Result<i64> {
        let spec = match position {
            Position::Offset(offset) => {
                let known = self.cluster.topic(topic, MissingTopic::Refuse)?;
                if known.partitions.iter().all(|p| p.index != partition) {
                    return Err(no_partition(known, partition));
                }
                return Ok(offset);
            }
            Position::Earliest => OffsetSpec::Earliest,
            Position::Latest => OffsetSpec::Latest,
            Position::Timestamp(ms) => OffsetSpec::Timestamp(ms),
        };
        let found = self.cluster.offsets(topic, &[partition], spec)?;
        match found.get(&partition).and_then(|f| f.offset) {
            Some(offset) => Ok(offset),
            None => {
                let ends = self
                    .cluster
                    .offsets(topic, &[partition], OffsetSpec::Latest)?;
                Ok(ends.get(&partition).and_then(|f| f.offset).unwrap_or(0))
            }
        }
    }

    /// Waits for records: returns when a leader has answered, maybe with nothing.
    ///
    /// # Errors
    /// [`ClientError::Corrupt`] for a damaged batch; OFFSET_OUT_OF_RANGE with [`OnOutOfRange::Fail`];
    /// others when they last longer than the cluster's `retry_for`.
    pub fn poll(&mut self) -> Result<Vec<Fetched>> {
        match self.poll_once() {
            Ok(fetched) => {
                self.failing_since = None;
                Ok(fetched)
            }
            Err((leader, error)) => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                let lasting = since.elapsed() > self.cluster.options().retry_for;
                if lasting || !self.cluster.prepare_retry_at(leader, &error) {
                    return Err(error);
                }
                self.flights.remove(&leader);
                // The answer of a dropped flight must not meet the next ticket.
                self.cluster.disconnect(leader);
                thread::sleep(PAUSE_AFTER_ERROR);
                Ok(Vec::new())
            }
        }
    }

    fn poll_once(&mut self) -> std::result::Result<Vec<Fetched>, (i32, ClientError)> {
        if let Some(failure) = self.deferred.take() {
            return Err(failure);
        }
        self.ask().map_err(|e| (-1, e))?;
        let mut fetched = Vec::new();
        let leaders: Vec<i32> = self.flights.keys().copied().collect();
        let mut outcome = leaders
            .into_iter()
            .try_for_each(|leader| self.collect(leader, &mut fetched).map_err(|e| (leader, e)));
        if outcome.is_ok() {
            outcome = self.ask().map_err(|e| (-1, e));
        }
        match outcome {
            Err(failure) if fetched.is_empty() => Err(failure),
            outcome => {
                self.deferred = outcome.err();
                Ok(fetched)
            }
        }
    }

    fn collect(&mut self, leader: i32, fetched: &mut Vec<Fetched>) -> Result<()> {
        let Some(flight) = self.flights.remove(&leader) else {
            return Ok(());
        };
        let answer = self.cluster.broker(leader)?.receive(flight.ticket)?;
        self.take(answer, &flight.asked, fetched)
    }

    /// Sends one fetch to each leader that has none in flight. Partitions without leader wait for one
    /// while others have theirs.
    fn ask(&mut self) -> Result<()> {
        for (topic, partition, position) in self.waiting.clone() {
            self.assign(&topic, partition, position)?;
        }
        let mut by_leader: BTreeMap<i32, Vec<(String, i32, i64)>> = BTreeMap::new();
        let waiting = self.waiting.iter();
        let mut lost: BTreeSet<_> = waiting.map(|(t, p, _)| (t.clone(), *p)).collect();
        let mut leaderless = None;
        if let (true, Some((topic, partition, _))) =
            (self.assigned.is_empty(), self.waiting.first())
        {
            self.cluster.leader(topic, *partition)?;
        }
        for a in &self.assigned {
            let leader = match self.cluster.leader(&a.topic, a.partition) {
                Err(error) if error.code() == Some(ErrorCode::LeaderNotAvailable) => {
                    leaderless = Some(error);
                    lost.insert((a.topic.clone(), a.partition));
                    continue;
                }
                found => found?,
            };
            by_leader
                .entry(leader)
                .or_default()
                .push((a.topic.clone(), a.partition, a.next));
        }
        self.leaderless = lost;
        if by_leader.is_empty()
            && let Some(error) = leaderless
        {
            return Err(error);
        }
        for (leader, wanted) in by_leader {
            if !self.flights.contains_key(&leader) {
                let flight = self.fetch(leader, wanted)?;
                self.flights.insert(leader, flight);
            }
        }
        Ok(())
    }

    fn fetch(&mut self, leader: i32, wanted: Vec<(String, i32, i64)>) -> Result<Flight> {
        let mut asked = Vec::new();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (topic, partition, fetch_offset) in wanted {
            let topic_id = self.cluster.topic(&topic, MissingTopic::Refuse)?.id;
            let entry = FetchPartition {
                partition,
                fetch_offset,
                partition_max_bytes: self.options.partition_bytes_max,
                ..Default::default()
            };
            match topics.iter_mut().find(|t| t.topic == topic) {
                Some(known) => known.partitions.push(entry),
                None => topics.push(FetchTopic {
                    topic: topic.clone(),
                    topic_id,
                    partitions: vec![entry],
                }),
            }
            asked.push((topic, topic_id, partition, fetch_offset));
        }
        let by_id = asked.iter().all(|(_, id, _, _)| *id != Uuid::ZERO);
        let request = FetchRequest {
            max_wait_ms: i32::try_from(self.options.wait_max.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.options.bytes_min,
            max_bytes: self.options.bytes_max,
            isolation_level: match self.options.isolation {
                Isolation::ReadUncommitted => 0,
                Isolation::ReadCommitted => 1,
            },
            topics,
            ..Default::default()
        };
        let connection = self.cluster.broker(leader)?;
        let limit = if by_id { i16::MAX } else { NEWEST_BY_NAME };
        let version = match connection.api_table().newest_up_to::<FetchRequest>(limit) {
            Some(version) => version,
            None => connection.version_of::<FetchRequest>()?,
        };
        Ok(Flight {
            ticket: connection.send_at(&request, version)?,
            asked,
        })
    }

    fn take(
        &mut self,
        answer: FetchResponse,
        asked: &[(String, Uuid, i32, i64)],
        fetched: &mut Vec<Fetched>,
    ) -> Result<()> {
        ClientError::check(answer.error_code, || "fetch".to_owned(), None)?;
        for topic in answer.responses {
            for data in topic.partitions {
                let of_this = |(name, id, partition, _): &&(String, Uuid, i32, i64)| {
                    let same = if topic.topic.is_empty() {
                        *id == topic.topic_id
                    } else {
                        *name == topic.topic
                    };
                    same && *partition == data.partition_index
                };
                let Some((name, _, partition, offset)) = asked.iter().find(of_this) else {
                    continue;
                };
                self.take_partition(name, *partition, *offset, data, fetched)?;
            }
        }
        Ok(())
    }

    fn take_partition(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        data: PartitionData,
        fetched: &mut Vec<Fetched>,
    ) -> Result<()> {
        if self.position(topic, partition) != Some(offset) {
            return Ok(());
        }
        let outside = data.error_code == ErrorCode::OffsetOutOfRange as i16;
        if outside && let OnOutOfRange::Reset(position) = self.options.on_out_of_range {
            return self.assign(topic, partition, position);
        }
        ClientError::check(
            data.error_code,
            || format!("fetch {topic}-{partition} from offset {offset}"),
            outside.then_some("the log begins behind it or ends before it"),
        )?;
        let mut bytes = match data.records {
            Some(Records::Held(bytes)) => bytes,
            Some(Records::Extern(_)) | None => return Ok(()),
        };
        let (whole, next) = check_batches(topic, partition, offset, &bytes)?;
        bytes.truncate(whole);
        if next > offset {
            self.assign(topic, partition, Position::Offset(next))?;
            let (high_watermark, log_start) = (data.high_watermark, data.log_start_offset);
            let topic = topic.to_owned();
            let from = offset;
            fetched.push(Fetched {
                topic,
                partition,
                from,
                next,
                high_watermark,
                log_start,
                bytes,
            });
        }
        Ok(())
    }
}

/// Checks the CRC of each whole batch. Returns their bytes in sum and the offset after the last. What
/// stands before a damaged one is good: the next fetch begins with the damaged one, and fails.
fn check_batches(topic: &str, partition: i32, from: i64, bytes: &[u8]) -> Result<(usize, i64)> {
    let (mut good, mut next) = (0, from);
    let mut iter = batches(bytes);
    while let Some(batch) = iter.next() {
        let damage = match batch {
            Ok(batch) if batch.crc_matches() => {
                next = next.max(batch.header.last_offset().0 + 1);
                good = iter.position();
                continue;
            }
            Ok(batch) => ClientError::Corrupt {
                topic: topic.to_owned(),
                partition,
                offset: batch.header.base_offset.0,
                detail: "its checksum does not match".to_owned(),
            },
            Err(error) => ClientError::corrupt(topic, partition, next, &error),
        };
        return match next > from {
            true => Ok((good, next)),
            false => Err(damage),
        };
    }
    Ok((iter.position(), next))
}
