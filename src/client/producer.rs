//! Batches records per partition and sends them to the leaders.
//!
//! One request is in flight per leader; while it is, the next batches fill. So the order within a
//! partition survives retries even without producer ids. A batch that was sent and not answered is sent
//! again; with [`Idempotence::On`] the broker knows it by its sequence number (KIP-98), without it may then
//! be in the log twice.

mod sending;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use thalweg_protocol::messages::{InitProducerIdRequest, ProduceRequest};
use thalweg_protocol::records::{
    BatchBuilder, BatchOptions, Codec, ProducerSequence, RecordHeader,
};
use thalweg_types::{ProducerEpoch, ProducerId, TimestampMs};

use crate::cluster::{Cluster, MissingTopic, no_partition};
use crate::connection::Ticket;
use crate::error::{ClientError, Result};
use crate::partitioner::{Partitioner, Spread};

/// When the broker confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Never.
    None,
    /// When the leader has written.
    Leader,
    /// When all in-sync replicas have written.
    All,
}

impl Acks {
    fn on_the_wire(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// Whether batches carry a producer id and sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotence {
    /// A retry can store a batch twice.
    Off,
    /// A retry can not, if the broker gives producer ids. Needs [`Acks::All`].
    On,
}

/// How to produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerOptions {
    /// When the broker confirms.
    pub acks: Acks,
    /// Compression of batches.
    pub codec: Codec,
    /// Uncompressed size at which a batch is sent. One larger record makes a larger batch.
    pub batch_bytes: usize,
    /// How long the broker may wait for replicas.
    pub acks_timeout: Duration,
    /// What happens to topics that do not exist.
    pub missing_topic: MissingTopic,
    /// Where records without a partition of their own go.
    pub spread: Spread,
    /// Whether batches carry a producer id and sequence numbers.
    pub idempotence: Idempotence,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        ProducerOptions {
            acks: Acks::All,
            codec: Codec::None,
            batch_bytes: 256 * 1024,
            acks_timeout: Duration::from_secs(30),
            missing_topic: MissingTopic::Create,
            spread: Spread::default(),
            idempotence: Idempotence::Off,
        }
    }
}

/// One record to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// `None`: as [`ProducerOptions::spread`] says.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [RecordHeader<'a>],
    /// `None`: now.
    pub timestamp: Option<TimestampMs>,
}

/// One batch that the broker confirmed (or that was sent, with acks 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Offset of its first record; `None` with acks 0, and when an earlier try had stored the batch and the
    /// broker no longer knows where.
    pub base_offset: Option<i64>,
    /// Records in it.
    pub records: u32,
    /// Its size on the wire.
    pub bytes: usize,
}

#[derive(Debug)]
struct Sealed {
    topic: String,
    partition: i32,
    records: u32,
    bytes: Bytes,
    numbers: RangeInclusive<u64>,
}

/// A batch that takes more records.
#[derive(Debug)]
struct Open {
    builder: BatchBuilder,
    /// Its first and last record, as [`Producer::refused`] counts them.
    numbers: RangeInclusive<u64>,
}

#[derive(Debug)]
struct Flight {
    ticket: Ticket<ProduceRequest>,
    batches: Vec<Sealed>,
}

#[derive(Debug)]
struct TopicState {
    partitioner: Partitioner,
    open: Vec<Open>,
}

/// See the module's documentation. [`Producer::flush`] before dropping it.
#[derive(Debug)]
pub struct Producer {
    cluster: Cluster,
    options: ProducerOptions,
    topics: HashMap<String, TopicState>,
    /// Asked for before the first record, with [`Idempotence::On`].
    identity: Option<(ProducerId, ProducerEpoch)>,
    flights: BTreeMap<i32, Flight>,
    delivered: Vec<Delivery>,
    /// Records that were given to [`Producer::send`].
    sent: u64,
    refused: Option<RangeInclusive<u64>>,
}

impl Producer {
    /// A producer on `cluster`.
    #[must_use]
    pub fn new(cluster: Cluster, options: ProducerOptions) -> Producer {
        Producer {
            cluster,
            options,
            topics: HashMap::new(),
            identity: None,
            flights: BTreeMap::new(),
            delivered: Vec::new(),
            sent: 0,
            refused: None,
        }
    }

    /// The cluster it sends to.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Adds one record; sends when its batch is full.
    ///
    /// # Errors
    /// Of this record, or of an earlier batch (whose records are then lost to this producer).
    pub fn send(&mut self, topic: &str, record: &Outgoing<'_>) -> Result<()> {
        self.sent += 1;
        if !self.topics.contains_key(topic) {
            self.open_topic(topic)?;
        }
        let mut partition = record.partition;
        loop {
            let Some(state) = self.topics.get_mut(topic) else {
                return Ok(());
            };
            let at = partition.unwrap_or_else(|| state.partitioner.choose(record.key));
            let open = usize::try_from(at).ok().and_then(|p| state.open.get_mut(p));
            let Some(open) = open else {
                let known = self.cluster.topic(topic, MissingTopic::Refuse)?;
                return Err(no_partition(known, at));
            };
            let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            let builder = &mut open.builder;
            if builder.is_empty() || builder.uncompressed_bytes() + size <= self.options.batch_bytes
            {
                let timestamp = record.timestamp.unwrap_or_else(now);
                let first = match builder.is_empty() {
                    true => self.sent,
                    false => *open.numbers.start(),
                };
                open.numbers = first..=self.sent;
                return builder
                    .push(timestamp, record.key, record.value, record.headers)
                    .map_err(|e| {
                        self.refused = Some(self.sent..=self.sent);
                        ClientError::Invalid(format!("cannot send a record: {e}"))
                    });
            }
            if record.partition.is_none() {
                let known = self.cluster.topic(topic, MissingTopic::Refuse)?;
                state.partitioner.avoid(known.leaderless());
                partition = Some(state.partitioner.choose_after_full(record.key, at));
            }
            let sealed = seal(topic, at, open, self.options.codec)?;
            self.dispatch(vec![sealed])?;
        }
    }

    /// Sends what is buffered and waits for every confirmation.
    ///
    /// # Errors
    /// The first batch that was not confirmed.
    pub fn flush(&mut self) -> Result<()> {
        let mut sealed = Vec::new();
        for (topic, state) in &mut self.topics {
            for (partition, open) in (0..).zip(&mut state.open) {
                if !open.builder.is_empty() {
                    sealed.push(seal(topic, partition, open, self.options.codec)?);
                }
            }
        }
        self.dispatch(sealed)?;
        while let Some(leader) = self.flights.keys().next().copied() {
            self.collect(leader)?;
        }
        Ok(())
    }

    /// Batches confirmed since the last call.
    pub fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.delivered)
    }

    /// First and last record, counted from 1 as they were given to [`Producer::send`], of the batch that was not
    /// confirmed when a call failed for one.
    #[must_use]
    pub fn refused(&self) -> Option<RangeInclusive<u64>> {
        self.refused.clone()
    }

    fn open_topic(&mut self, name: &str) -> Result<()> {
        self.identify()?;
        let topic = self.cluster.topic(name, self.options.missing_topic)?;
        let partitions = topic.partitions.len();
        let options = BatchOptions {
            producer: self.identity.map(|(id, epoch)| ProducerSequence {
                id,
                epoch,
                base_sequence: 0,
            }),
            ..BatchOptions::default()
        };
        let mut partitioner = Partitioner::new(self.options.spread, partitions, now().0 as u32);
        partitioner.avoid(topic.leaderless());
        let open = (0..partitions).map(|_| Open {
            builder: BatchBuilder::new(options.clone()),
            numbers: 0..=0,
        });
        let state = TopicState {
            partitioner,
            open: open.collect(),
        };
        self.topics.insert(name.to_owned(), state);
        Ok(())
    }

    /// Asks for a producer id if one is wanted, there is none yet, and the broker gives any.
    fn identify(&mut self) -> Result<()> {
        let is_wanted =
            self.options.idempotence == Idempotence::On && self.options.acks == Acks::All;
        if !is_wanted || self.identity.is_some() {
            return Ok(());
        }
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: i32::MAX, // there will be no transaction
            ..Default::default()
        };
        self.identity = self.cluster.retry(|cluster| {
            let answer = match cluster.any()?.call(&request) {
                Err(ClientError::Unsupported { .. }) => return Ok(None),
                answer => answer?,
            };
            let what = || "get a producer id".to_owned();
            ClientError::check(answer.error_code, what, None)?;
            let id = ProducerId(answer.producer_id);
            Ok(Some((id, ProducerEpoch(answer.producer_epoch))))
        })?;
        Ok(())
    }
}

fn seal(topic: &str, partition: i32, open: &mut Open, codec: Codec) -> Result<Sealed> {
    let builder = &mut open.builder;
    let records = builder.record_count() as u32;
    let bytes = builder
        .build(codec)
        .map_err(|e| ClientError::Invalid(format!("cannot build a batch: {e}")))?;
    if let Some(producer) = &mut builder.options_mut().producer {
        producer.base_sequence = sequence_after(producer.base_sequence, records);
    }
    Ok(Sealed {
        topic: topic.to_owned(),
        partition,
        records,
        bytes,
        numbers: open.numbers.clone(),
    })
}

/// Sequence numbers go on at 0 after the largest.
fn sequence_after(sequence: i32, records: u32) -> i32 {
    let next = i64::from(sequence) + i64::from(records);
    let modulus = i64::from(i32::MAX) + 1;
    i32::try_from(next % modulus).unwrap_or(0)
}

fn now() -> TimestampMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::sequence_after;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(sequence_after(0, 5), 5);
        assert_eq!(sequence_after(i32::MAX - 1, 1), i32::MAX);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 2, 10), 7);
    }
}
