//! Record batches of format v2 (KIP-98), the unit that producers send, the log stores and consumers
//! fetch.
//!
//! **Owns** the bytes of a batch: header, checksum, records, codecs; what a client's batch must look
//! like before it may be appended. **Refuses to know** offsets already taken, producer state, topics,
//! files and sockets: rules come in as plain values, bounds as numbers.
//!
//! Order of calls on the produce path: [`validate_produce`] on the untouched bytes, then (once the
//! partition has assigned offsets) [`assign`], then [`BatchSummary::settle`], which rewrites timestamps
//! only where they differ. On reading: [`batches`] over a slice that may end inside a batch, then
//! [`records_of`] one batch. [`BatchBuilder`] makes batches for clients, benchmarks and the metadata
//! log; [`recompress`] changes a batch's codec, [`retain`] and [`emptied`] take records out.
//!
//! Invariants: no function panics on any bytes that came from outside (the ones that write into a batch
//! ask for a validated one); nothing is allocated by a length that the bytes claim, only in proportion
//! to bytes that are there, fixed windows, or output that exists and is below its limit.
//!
//! **Cost** per batch. Validation, uncompressed: one pass for the CRC and one over the varints of each
//! record (in `quick`, with `walk` for all that is not ordinary); no copy, no allocation. Validation,
//! compressed: CRC, one decompression in steps (see [`compression`] for each codec's memory; one zstd
//! context is kept per thread), records walked without being kept. `assign`: 12 bytes written.
//! `settle`: nothing, or one more CRC pass. `records_of`: nothing when uncompressed, else one buffer of
//! the decompressed size; records are slices of it.
//!
//! Start reading at [`header`], then [`validate`].

mod batches;
mod builder;
pub mod compression;
pub mod control;
mod error;
pub mod header;
mod iterate;
mod quick;
mod refusal;
mod retain;
pub mod validate;
mod varint;
mod walk;

#[cfg(test)]
mod tests;

pub use batches::{Batch, BatchIter, BatchesEnd, batches};
pub use builder::{BatchBuilder, BatchOptions, BuildError, RecordHeader, recompress};
pub use compression::{
    Codec, CompressError, DecompressError, Level, compress, decompress, output_limit,
};
pub use error::{BatchError, RecordFault, UnknownCodec};
pub use header::{
    BATCH_HEADER_BYTES, BatchHeader, ProducerSequence, TimestampType, assign, crc_matches,
    set_log_append_time, set_timestamps,
};
pub use iterate::{Header, Headers, Record, RecordIter, RecordSet, records_of};
pub use refusal::{RecordRefusal, RecordRefusalReason, Refusal};
pub use retain::{emptied, retain};
pub use validate::{BatchSummary, ProduceRules, TimestampRule, validate_produce};
