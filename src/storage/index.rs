//! The offset index of one segment: sparse pairs (last offset of a batch, position where that batch
//! begins), in memory as in Kafka's `.index` file.
//!
//! File format: entries of 8 bytes, big endian: `i32` offset relative to the segment's base, `i32`
//! position. Both ascend strictly. Pure data: no file is touched here.

use thalweg_types::Offset;

/// Bytes of one entry in the file.
pub const INDEX_ENTRY_BYTES: usize = 8;

/// One entry of an offset index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Last offset of the batch, relative to the segment's base offset.
    pub relative_offset: u32,
    /// Byte in the `.log` file at which the batch begins.
    pub position: u32,
}

/// What is wrong with an index file. The cure is always to rebuild it from the log (ST-9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexDamage {
    /// The file is not there.
    #[error("it is missing")]
    Missing,
    /// The length is no multiple of the entry size.
    #[error("its {0} bytes are not whole entries")]
    Length(u64),
    /// An entry does not ascend from the one before it.
    #[error("entry {0} does not ascend")]
    Order(usize),
    /// An entry points outside of the segment.
    #[error("entry {0} points outside of the segment")]
    Range(usize),
    /// The last entry does not fit the batches.
    #[error("its last entry is not what its log has")]
    Contradicted,
    /// The disk does not give it out.
    #[error("it can not be read")]
    Unreadable,
}

impl IndexDamage {
    /// True when there is no file that could be damaged.
    pub(crate) fn is_missing(self) -> bool {
        match self {
            IndexDamage::Missing => true,
            IndexDamage::Length(_)
            | IndexDamage::Order(_)
            | IndexDamage::Range(_)
            | IndexDamage::Contradicted
            | IndexDamage::Unreadable => false,
        }
    }
}

/// An offset index in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetIndex {
    entries: Vec<IndexEntry>,
}

impl OffsetIndex {
    /// Adds the entry of a batch. Offsets and positions must ascend.
    pub(crate) fn push(&mut self, entry: IndexEntry) {
        debug_assert!(self.entries.last().is_none_or(|last| {
            last.relative_offset < entry.relative_offset && last.position < entry.position
        }));
        self.entries.push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    pub(crate) fn last(&self) -> Option<IndexEntry> {
        self.entries.last().copied()
    }

    /// Where to begin looking for the batch that holds `relative_offset`: at or before it; `None`: at the
    /// first.
    pub(crate) fn at_or_before(&self, relative_offset: u32) -> Option<IndexEntry> {
        let after = self
            .entries
            .partition_point(|e| e.relative_offset <= relative_offset);
        after.checked_sub(1).map(|i| self.entries[i])
    }

    /// The last batch that begins at `position` at most and ends before `relative_end`.
    pub(crate) fn within(&self, position: u64, relative_end: u64) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|e| {
            u64::from(e.position) <= position && u64::from(e.relative_offset) < relative_end
        });
        after.checked_sub(1).map(|i| self.entries[i])
    }

    /// Bytes of the entries in the file's form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * INDEX_ENTRY_BYTES);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// Reads a whole file and checks every entry against the segment's `log_bytes`.
    pub(crate) fn decode(bytes: &[u8], log_bytes: u64) -> Result<Self, IndexDamage> {
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(bytes.len() / INDEX_ENTRY_BYTES);
        for (i, entry) in decode_entries(bytes)?.enumerate() {
            if entry.relative_offset > i32::MAX as u32 || u64::from(entry.position) >= log_bytes {
                return Err(IndexDamage::Range(i));
            }
            if entries.last().is_some_and(|last| {
                last.relative_offset >= entry.relative_offset || last.position >= entry.position
            }) {
                return Err(IndexDamage::Order(i));
            }
            entries.push(entry);
        }
        Ok(OffsetIndex { entries })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<IndexEntry>()
    }
}

/// The entries of an index file, unchecked.
pub(crate) fn decode_entries(
    bytes: &[u8],
) -> Result<impl Iterator<Item = IndexEntry> + '_, IndexDamage> {
    let (entries, rest) = bytes.as_chunks::<INDEX_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(IndexDamage::Length(bytes.len() as u64));
    }
    Ok(entries.iter().map(|e| IndexEntry {
        relative_offset: u32::from_be_bytes([e[0], e[1], e[2], e[3]]),
        position: u32::from_be_bytes([e[4], e[5], e[6], e[7]]),
    }))
}

/// Offset of an entry of the segment at `base`, and back.
pub(crate) fn absolute(base: Offset, relative: u32) -> Offset {
    Offset(base.0.saturating_add(i64::from(relative)))
}

/// `offset` relative to `base`, when it can stand in an index entry (0 to `i32::MAX`).
pub(crate) fn relative(base: Offset, offset: Offset) -> Option<u32> {
    let difference = offset.0.checked_sub(base.0)?;
    u32::try_from(difference)
        .ok()
        .filter(|r| *r <= i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::{IndexDamage, IndexEntry, OffsetIndex, relative};
    use thalweg_types::Offset;

    fn index(entries: &[(u32, u32)]) -> OffsetIndex {
        let mut index = OffsetIndex::default();
        for (relative_offset, position) in entries {
            index.push(IndexEntry {
                relative_offset: *relative_offset,
                position: *position,
            });
        }
        index
    }

    #[test]
    fn lookup_finds_the_entry_at_or_before() {
        let index = index(&[(9, 4_100), (19, 8_300), (29, 12_500)]);
        for (offset, position) in [
            (0, 0),
            (8, 0),
            (9, 4_100),
            (18, 4_100),
            (19, 8_300),
            (1_000, 12_500),
        ] {
            let found = index.at_or_before(offset).map_or(0, |e| e.position);
            assert_eq!(found, position, "{offset}");
        }
        let within = |position, end| index.within(position, end).map(|e| e.position);
        assert_eq!(within(8_299, u64::MAX), Some(4_100));
        assert_eq!(within(8_300, u64::MAX), Some(8_300));
        assert_eq!(within(u64::MAX, 19), Some(4_100));
        assert_eq!(within(u64::MAX, 20), Some(8_300));
        assert_eq!(within(4_099, 100), None);
    }

    #[test]
    fn the_file_form_round_trips() {
        let bytes = index(&[(9, 4_100), (19, 8_300)]).encode();
        assert_eq!(
            bytes,
            [0, 0, 0, 9, 0, 0, 0x10, 0x04, 0, 0, 0, 19, 0, 0, 0x20, 0x6c]
        );
        let read = OffsetIndex::decode(&bytes, 8_301).expect("valid");
        assert_eq!(read.len(), 2);
        assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn st_9_a_damaged_index_is_told() {
        let good = index(&[(9, 4_100), (19, 8_300)]).encode();
        let decode = |bytes: &[u8], size| OffsetIndex::decode(bytes, size).map(|i| i.len());
        assert_eq!(decode(&good[..15], 9_000), Err(IndexDamage::Length(15)));
        assert_eq!(decode(&good, 8_300), Err(IndexDamage::Range(1)));
        let mut zeros = good.clone();
        zeros.extend_from_slice(&[0; 8]);
        assert_eq!(decode(&zeros, 9_000), Err(IndexDamage::Order(2)));
        let mut negative = good;
        negative[0] = 0x80;
        assert_eq!(decode(&negative, 9_000), Err(IndexDamage::Range(0)));
    }

    #[test]
    fn st_29_relative_offsets_never_wrap() {
        let base = Offset(i64::MAX - 10);
        assert_eq!(relative(base, Offset(i64::MAX)), Some(10));
        assert_eq!(relative(base, Offset(0)), None);
        assert_eq!(
            relative(Offset(0), Offset(i64::from(i32::MAX))),
            Some(i32::MAX as u32)
        );
        assert_eq!(relative(Offset(0), Offset(i64::from(i32::MAX) + 1)), None);
        assert_eq!(relative(Offset(i64::MIN), Offset(i64::MAX)), None);
    }
}
