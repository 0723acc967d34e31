//! The content of Kafka's `.snapshot` files: a log's producers at one offset.
//!
//! ```text
//! i16 version (1) | u32 CRC-32C of all that follows | i32 count | entries
//! entry: i64 producer id | i16 producer epoch | i32 last sequence | i64 last offset
//!      | i32 last offset less the first | i64 max timestamp | i32 coordinator epoch
//!      | i64 first offset of the open transaction
//! ```
//! Kafka writes one entry per producer, its newest batch. Here a producer has one entry for each batch
//! that is remembered, oldest first, so that a restart forgets nothing; a reader that keeps the last
//! entry of an id, as Kafka does, gets what Kafka would have written. A producer without a batch has
//! one entry with last sequence and last offset -1.

use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::producers::{Producer, ProducerBatch, Producers};

const VERSION: i16 = 1;
const CRC_AT: usize = 2;
const CRC_COVERS_FROM: usize = 6;
const ENTRIES_AT: usize = 10;
const ENTRY_BYTES: usize = 46;
/// Coordinator epoch and first offset of a transaction that is not.
const NO_COORDINATOR: i32 = -1;
const NO_TRANSACTION: i64 = -1;

/// The bytes are not a snapshot that can be believed. The caller takes an older one (ST-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Fewer bytes than the header has.
    #[error("{0} bytes are too few for a producer snapshot")]
    Short(usize),
    /// A version that this broker does not know.
    #[error("version {0} of a producer snapshot is not known")]
    Version(i16),
    /// The checksum does not match.
    #[error("the checksum does not match")]
    Checksum,
    /// The count of entries does not fit the length.
    #[error("it promises {count} entries and has {bytes} bytes of them")]
    Count {
        /// As promised.
        count: i32,
        /// Bytes after the header.
        bytes: usize,
    },
    /// An entry holds what can not be.
    #[error("entry {0} can not be")]
    Entry(usize),
}

struct Entry {
    id: ProducerId,
    epoch: ProducerEpoch,
    transaction: Option<Offset>,
    /// `None` for a producer that is known without a batch.
    batch: Option<ProducerBatch>,
}

impl Producers {
    /// The snapshot of what is known as of the written end.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; ENTRIES_AT - CRC_AT]);
        let mut count: i32 = 0;
        for (id, producer) in self.as_written() {
            for batch in producer.batches() {
                count += 1;
                put(&mut bytes, id, &producer, Some(batch));
            }
            if producer.batches().is_empty() {
                count += 1;
                put(&mut bytes, id, &producer, None);
            }
        }
        bytes[CRC_COVERS_FROM..ENTRIES_AT].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[CRC_COVERS_FROM..]);
        bytes[CRC_AT..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The producers of a snapshot that was taken at `at`, each as if seen `now`.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn from_snapshot(
        bytes: &[u8],
        at: Offset,
        now: TimestampMs,
    ) -> Result<Producers, SnapshotError> {
        if bytes.len() < ENTRIES_AT {
            return Err(SnapshotError::Short(bytes.len()));
        }
        let version = i16::from_be_bytes(field(bytes, 0));
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let crc = u32::from_be_bytes(field(bytes, CRC_AT));
        if crc32c::crc32c(&bytes[CRC_COVERS_FROM..]) != crc {
            return Err(SnapshotError::Checksum);
        }
        let count = i32::from_be_bytes(field(bytes, CRC_COVERS_FROM));
        let entries = &bytes[ENTRIES_AT..];
        let fits = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(ENTRY_BYTES))
            == Some(entries.len());
        if !fits {
            let bytes = entries.len();
            return Err(SnapshotError::Count { count, bytes });
        }
        let mut producers = Producers::default();
        for (number, entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let entry = parse(entry, at).ok_or(SnapshotError::Entry(number))?;
            let known = producers.get(entry.id).copied();
            let mut producer = known.unwrap_or_else(|| Producer::new(entry.epoch, now));
            producer.enter_epoch(entry.epoch);
            producer.set_transaction(entry.transaction);
            if let Some(batch) = entry.batch {
                let in_order = producer
                    .batches()
                    .last()
                    .is_none_or(|before| before.last_offset < batch.base_offset());
                if !in_order {
                    return Err(SnapshotError::Entry(number));
                }
                producer.push(batch);
            }
            producers.restore(entry.id, producer);
        }
        Ok(producers)
    }
}

fn put(bytes: &mut Vec<u8>, id: ProducerId, producer: &Producer, batch: Option<&ProducerBatch>) {
    let (sequence, last_offset, delta, timestamp) = match batch {
        Some(b) => (b.last_sequence, b.last_offset, b.offset_delta, b.timestamp),
        None => (-1, Offset(-1), 0, TimestampMs::NONE),
    };
    bytes.extend_from_slice(&id.0.to_be_bytes());
    bytes.extend_from_slice(&producer.epoch().0.to_be_bytes());
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&last_offset.0.to_be_bytes());
    bytes.extend_from_slice(&delta.to_be_bytes());
    bytes.extend_from_slice(&timestamp.0.to_be_bytes());
    bytes.extend_from_slice(&NO_COORDINATOR.to_be_bytes());
    let transaction = producer
        .transaction()
        .map_or(NO_TRANSACTION, |first| first.0);
    bytes.extend_from_slice(&transaction.to_be_bytes());
}

fn parse(entry: &[u8], at: Offset) -> Option<Entry> {
    let id = ProducerId(i64::from_be_bytes(field(entry, 0)));
    let epoch = ProducerEpoch(i16::from_be_bytes(field(entry, 8)));
    let batch = ProducerBatch {
        last_sequence: i32::from_be_bytes(field(entry, 10)),
        last_offset: Offset(i64::from_be_bytes(field(entry, 14))),
        offset_delta: i32::from_be_bytes(field(entry, 22)),
        timestamp: TimestampMs(i64::from_be_bytes(field(entry, 26))),
    };
    let first = i64::from_be_bytes(field(entry, 38));
    if id.0 < 0 || epoch.0 < 0 || first >= at.0 {
        return None;
    }
    let transaction = (first >= 0).then_some(Offset(first));
    // Kafka, too, tells by the offset whether there is a batch.
    if batch.last_offset.0 < 0 {
        return Some(Entry {
            id,
            epoch,
            transaction,
            batch: None,
        });
    }
    let whole = batch.last_sequence >= 0
        && batch.offset_delta >= 0
        && i64::from(batch.offset_delta) <= batch.last_offset.0
        && batch.last_offset < at;
    whole.then_some(Entry {
        id,
        epoch,
        transaction,
        batch: Some(batch),
    })
}

/// `N` bytes at `at`; zeros when they are not there, which no caller asks for.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let slice = bytes.get(at..at + N);
    slice
        .and_then(|slice| slice.try_into().ok())
        .unwrap_or([0; N])
}
