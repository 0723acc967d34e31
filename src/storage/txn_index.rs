//! `.txnindex`: the transactions of a segment that were aborted (KIP-98), in Kafka's format.
//!
//! ```text
//! entry: i16 version (0) | i64 producer id | i64 first offset | i64 last offset | i64 last stable offset
//! ```
//! A transaction stands in the segment that holds its marker, in the order of markers. The last stable
//! offset is the one of the log once that marker was written: what a reader needs to know when to stop.

use thalweg_types::{Offset, ProducerId};

/// Bytes of an entry.
pub(crate) const TXN_INDEX_ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// A transaction that was aborted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AbortedTxn {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// The last stable offset after its marker.
    pub last_stable_offset: Offset,
}

/// The bytes are no index of aborted transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("entry {0} of the index of aborted transactions can not be")]
pub(crate) struct TxnIndexDamage(pub(crate) usize);

/// The bytes of a file with these transactions.
pub(crate) fn encode(transactions: &[AbortedTxn]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(transactions.len() * TXN_INDEX_ENTRY_BYTES);
    for transaction in transactions {
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&transaction.producer_id.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.first_offset.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.last_offset.0.to_be_bytes());
        bytes.extend_from_slice(&transaction.last_stable_offset.0.to_be_bytes());
    }
    bytes
}

/// The transactions of the file of a segment that begins at `base`.
///
/// # Errors
/// [`TxnIndexDamage`]: the index must be rebuilt from the log.
pub(crate) fn decode(bytes: &[u8], base: Offset) -> Result<Vec<AbortedTxn>, TxnIndexDamage> {
    let entries = bytes.chunks_exact(TXN_INDEX_ENTRY_BYTES);
    if !entries.remainder().is_empty() {
        return Err(TxnIndexDamage(bytes.len() / TXN_INDEX_ENTRY_BYTES));
    }
    let mut found: Vec<AbortedTxn> = Vec::with_capacity(entries.len());
    for (number, entry) in entries.enumerate() {
        let before = found.last().map_or(Offset(-1), |last| last.last_offset);
        let read =
            parse(entry).filter(|read| read.last_offset >= base && read.last_offset > before);
        found.push(read.ok_or(TxnIndexDamage(number))?);
    }
    Ok(found)
}

fn parse(entry: &[u8]) -> Option<AbortedTxn> {
    let (version, rest) = entry.split_first_chunk()?;
    let long = |rest: &[u8], at: usize| {
        let bytes = rest.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_be_bytes(bytes))
    };
    let transaction = AbortedTxn {
        producer_id: ProducerId(long(rest, 0)?),
        first_offset: Offset(long(rest, 8)?),
        last_offset: Offset(long(rest, 16)?),
        last_stable_offset: Offset(long(rest, 24)?),
    };
    let can_be = i16::from_be_bytes(*version) == VERSION
        && transaction.producer_id.0 >= 0
        && transaction.first_offset.0 >= 0
        && transaction.first_offset <= transaction.last_offset;
    can_be.then_some(transaction)
}

#[cfg(test)]
mod tests {
    use thalweg_types::{Offset, ProducerId};

    use super::{AbortedTxn, TXN_INDEX_ENTRY_BYTES, decode, encode};

    fn two() -> Vec<AbortedTxn> {
        let of = |id, first, last, stable| AbortedTxn {
            producer_id: ProducerId(id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        };
        vec![of(5, 3, 120, 90), of(6, 90, 140, 141)]
    }

    #[test]
    fn entries_have_kafkas_form() {
        let bytes = encode(&two());
        assert_eq!(bytes.len(), 2 * TXN_INDEX_ENTRY_BYTES);
        assert_eq!(bytes[..10], [0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(
            bytes[TXN_INDEX_ENTRY_BYTES - 8..][..8],
            [0, 0, 0, 0, 0, 0, 0, 90]
        );
        assert_eq!(decode(&bytes, Offset(100)), Ok(two()));
        assert_eq!(decode(&[], Offset(100)), Ok(vec![]));
    }

    #[test]
    fn st_9_what_can_not_be_is_refused() {
        let good = encode(&two());
        assert!(decode(&good, Offset(121)).is_err(), "below the segment");
        for cut in 1..TXN_INDEX_ENTRY_BYTES {
            assert!(decode(&good[..cut], Offset(100)).is_err());
        }
        for at in [0, 1, 2, 10, 18, TXN_INDEX_ENTRY_BYTES + 18] {
            let mut bytes = good.clone();
            bytes[at] |= 0x80;
            assert!(decode(&bytes, Offset(100)).is_err(), "byte {at}");
        }
        let mut turned = two();
        turned.reverse();
        assert!(decode(&encode(&turned), Offset(100)).is_err());
    }
}
