//! The requests of the load generator: encoded once, patched per use.

mod fetch;
mod produce;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchBuilder, BatchOptions, Codec};
use thalweg_types::TimestampMs;

pub(crate) use fetch::fetch_request;
pub use fetch::{FetchJob, TailJob, probe_fetch};
pub use produce::ProduceJob;

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
    use super::SampleBatch;
    use crate::workload::Workload;

    #[test]
    fn batches_have_the_size_of_the_workload() {
        let bulk = SampleBatch::of(&Workload::named("bulk-produce").unwrap()).unwrap();
        let bytes = bulk.bytes.len();
        assert!(bytes > 63_000 && bytes <= 65_536, "{bytes}");
        assert_eq!(bulk.records, 64);
        let one = SampleBatch::of(&Workload::named("one-record").unwrap()).unwrap();
        assert_eq!(one.records, 1);
    }
}
