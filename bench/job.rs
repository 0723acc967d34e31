//! The requests of the load generator: encoded once, patched per use.

mod commit;
mod fetch;
mod produce;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use thalweg_client::murmur2;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec};
use thalweg_types::TimestampMs;

pub use commit::CommitJob;
pub(crate) use fetch::fetch_request;
pub use fetch::{FetchJob, TailJob, probe_fetch};
pub use produce::ProduceJob;
pub(crate) use produce::send_batch;

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
    /// Builds the batch of a workload for a partition. Only where records have keys do the batches of partitions differ,
    /// and then not in their size unless they are compressed.
    ///
    /// # Errors
    /// When the numbers make no batch.
    pub fn of(workload: &Workload, partition: usize) -> Result<SampleBatch> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (partition as u64) << 32);
        let mut value = vec![0u8; workload.record_bytes];
        let mut key = vec![0u8; workload.key_bytes];
        let letters = match workload.compression.codec() {
            Codec::None => 0xff,
            Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd => 0x0f,
        };
        let per_record = workload.record_bytes + workload.key_bytes + 12;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_millis();
        let mut records = 0;
        while records == 0 || builder.uncompressed_bytes() + per_record <= workload.batch_bytes {
            dice.fill(&mut value, letters);
            let key = dice.key_for(&mut key, partition, workload.partitions);
            builder.push(TimestampMs(i64::try_from(now)?), key, Some(&value), &[])?;
            records += 1;
        }
        Ok(SampleBatch {
            bytes: builder.build(workload.compression.codec())?,
            records,
        })
    }
}

/// Random bytes that are the same in every run (xorshift64).
struct Dice(u64);

impl Dice {
    fn fill(&mut self, bytes: &mut [u8], mask: u8) {
        for byte in bytes {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *byte = (self.0 >> 32) as u8 & mask;
        }
    }

    /// A key that the Java client would send to the partition; `None` when keys have no bytes. Keys of two bytes and more
    /// reach every partition there can be in a workload.
    fn key_for<'a>(
        &mut self,
        key: &'a mut [u8],
        partition: usize,
        partitions: usize,
    ) -> Option<&'a [u8]> {
        if key.is_empty() {
            return None;
        }
        loop {
            self.fill(key, 0xff);
            if (murmur2(key) & 0x7fff_ffff) as usize % partitions == partition {
                return Some(key);
            }
        }
    }
}

fn client_id() -> Option<&'static str> {
    Some("thalweg-bench")
}

fn encoded(encoded: thalweg_protocol::wire::Encoded) -> Bytes {
    debug_assert!(encoded.gaps.is_empty(), "records are in the frame");
    encoded.bytes
}

/// A frame as [`crate::load::Job::check`] wants it: with the size prefix that reading it took away.
pub(crate) fn with_size(frame: &[u8]) -> Vec<u8> {
    let mut whole = (frame.len() as u32).to_be_bytes().to_vec();
    whole.extend_from_slice(frame);
    whole
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

#[cfg(test)]
mod tests {
    use super::{SampleBatch, murmur2};
    use crate::workload::{Compression, Workload};
    use thalweg_protocol::records::batches;

    #[test]
    fn batches_have_the_size_of_the_workload() {
        let bulk = SampleBatch::of(&Workload::named("bulk-produce").unwrap(), 0).unwrap();
        let bytes = bulk.bytes.len();
        assert!(bytes > 63_000 && bytes <= 65_536, "{bytes}");
        assert_eq!(bulk.records, 64);
        let one = SampleBatch::of(&Workload::named("one-record").unwrap(), 0).unwrap();
        assert_eq!(one.records, 1);
    }

    #[test]
    fn compressed_batches_are_smaller_and_hold_as_much() {
        let plain = Workload::named("bulk-produce").unwrap();
        let zstd = Workload {
            compression: Compression::Zstd,
            ..plain.clone()
        };
        let (plain, zstd) = (
            SampleBatch::of(&plain, 0).unwrap(),
            SampleBatch::of(&zstd, 0).unwrap(),
        );
        assert_eq!(plain.records, zstd.records);
        let share = zstd.bytes.len() as f64 / plain.bytes.len() as f64;
        assert!((0.4..0.7).contains(&share), "{share}");
    }

    #[test]
    fn keys_lie_where_the_java_client_would_put_them() {
        let keyed = Workload::named("keyed-100-producers").unwrap();
        let sizes: Vec<usize> = (0..keyed.partitions)
            .map(|partition| {
                let sample = SampleBatch::of(&keyed, partition).unwrap();
                let batch = batches(&sample.bytes).next().unwrap().unwrap();
                for record in batch.records(1 << 20).unwrap().iter() {
                    let key = record.unwrap().key.unwrap().to_vec();
                    let chosen = (murmur2(&key) & 0x7fff_ffff) as usize % keyed.partitions;
                    assert_eq!(chosen, partition);
                }
                sample.bytes.len()
            })
            .collect();
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    }
}
