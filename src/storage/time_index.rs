//! The time index of one segment: sparse pairs (largest timestamp so far, last offset of the batch
//! that brought it), in memory as in Kafka's `.timeindex` file.
//!
//! File format: entries of 12 bytes, big endian: `i64` timestamp, `i32` offset relative to the
//! segment's base. Timestamps ascend strictly, offsets never fall. Pure data.

use crate::index::IndexDamage;

/// Bytes of one entry in the file.
pub const TIME_INDEX_ENTRY_BYTES: usize = 12;

/// One entry of a time index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeIndexEntry {
    /// Largest timestamp of the segment up to and including the batch, in ms since the epoch.
    pub timestamp: i64,
    /// Last offset of the batch, relative to the segment's base offset.
    pub relative_offset: u32,
}

/// A time index in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeIndex {
    entries: Vec<TimeIndexEntry>,
}

impl TimeIndex {
    /// Adds an entry if its timestamp is above the last one's.
    pub(crate) fn push_if_later(&mut self, entry: TimeIndexEntry) {
        if entry.timestamp >= 0
            && self
                .last()
                .is_none_or(|last| entry.timestamp > last.timestamp)
        {
            self.entries.push(entry);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[TimeIndexEntry] {
        &self.entries
    }

    pub(crate) fn last(&self) -> Option<TimeIndexEntry> {
        self.entries.last().copied()
    }

    /// The last entry whose timestamp is at most `timestamp`: every batch before the entry's one has
    /// smaller timestamps only.
    pub(crate) fn at_or_before(&self, timestamp: i64) -> Option<TimeIndexEntry> {
        let after = self.entries.partition_point(|e| e.timestamp <= timestamp);
        after.checked_sub(1).map(|i| self.entries[i])
    }

    /// Bytes of the entries in the file's form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * TIME_INDEX_ENTRY_BYTES);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
        }
        bytes
    }

    /// Reads a whole file and checks the order of its entries.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, IndexDamage> {
        let mut entries: Vec<TimeIndexEntry> =
            Vec::with_capacity(bytes.len() / TIME_INDEX_ENTRY_BYTES);
        for (i, entry) in decode_entries(bytes)?.enumerate() {
            if entry.relative_offset > i32::MAX as u32 || entry.timestamp < -1 {
                return Err(IndexDamage::Range(i));
            }
            if entries.last().is_some_and(|last| {
                last.timestamp >= entry.timestamp || last.relative_offset > entry.relative_offset
            }) {
                return Err(IndexDamage::Order(i));
            }
            entries.push(entry);
        }
        Ok(TimeIndex { entries })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<TimeIndexEntry>()
    }
}

/// The entries of a time index file, unchecked.
pub(crate) fn decode_entries(
    bytes: &[u8],
) -> Result<impl Iterator<Item = TimeIndexEntry> + '_, IndexDamage> {
    let (entries, rest) = bytes.as_chunks::<TIME_INDEX_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(IndexDamage::Length(bytes.len() as u64));
    }
    Ok(entries.iter().map(|e| TimeIndexEntry {
        timestamp: i64::from_be_bytes([e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]]),
        relative_offset: u32::from_be_bytes([e[8], e[9], e[10], e[11]]),
    }))
}

#[cfg(test)]
mod tests {
    use super::{TimeIndex, TimeIndexEntry};
    use crate::index::IndexDamage;

    fn index(entries: &[(i64, u32)]) -> TimeIndex {
        let mut index = TimeIndex::default();
        for (timestamp, relative_offset) in entries {
            index.push_if_later(TimeIndexEntry {
                timestamp: *timestamp,
                relative_offset: *relative_offset,
            });
        }
        index
    }

    #[test]
    fn only_later_timestamps_enter() {
        let index = index(&[(-1, 0), (5, 1), (5, 2), (4, 3), (9, 4)]);
        assert_eq!(index.len(), 2);
        assert_eq!(index.at_or_before(4), None);
        assert_eq!(index.at_or_before(5).map(|e| e.relative_offset), Some(1));
        assert_eq!(index.at_or_before(100).map(|e| e.relative_offset), Some(4));
    }

    #[test]
    fn st_9_the_file_form_round_trips_and_damage_is_told() {
        let bytes = index(&[(5, 1), (9, 4)]).encode();
        assert_eq!(bytes.len(), 24);
        assert_eq!(
            TimeIndex::decode(&bytes)
                .map(|i| i.encode())
                .ok()
                .as_deref(),
            Some(&bytes[..])
        );
        let damage = |bytes: &[u8]| TimeIndex::decode(bytes).map(|_| ()).err();
        assert_eq!(damage(&bytes[..23]), Some(IndexDamage::Length(23)));
        let mut zeros = bytes.clone();
        zeros.extend_from_slice(&[0; 12]);
        assert_eq!(damage(&zeros), Some(IndexDamage::Order(2)));
        let mut negative = bytes;
        negative[8] = 0xff;
        assert_eq!(damage(&negative), Some(IndexDamage::Range(0)));
    }
}
