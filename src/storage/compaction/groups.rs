//! Which neighbouring segments become one: small ones, as long as the sum fits.

use std::ops::Range;

use thalweg_types::Offset;
use thalweg_types::limits::COMPACTION_GROUP_SEGMENTS_MAX;

use super::SegmentFile;
use crate::index::relative;
use crate::time_index::TIME_INDEX_ENTRY_BYTES;

/// What a segment may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// `segment.bytes`.
    pub(super) bytes: u64,
    /// `segment.index.bytes`.
    pub(super) index_bytes: u64,
    /// `index.interval.bytes`.
    pub(super) interval_bytes: u64,
}

impl Room {
    /// Most bytes of the larger index of a segment of `bytes`.
    fn index_bytes_of(&self, bytes: u64) -> u64 {
        (bytes / self.interval_bytes.max(1) + 1) * TIME_INDEX_ENTRY_BYTES as u64
    }

    fn holds(&self, bytes: u64, first: Offset, end: Offset) -> bool {
        bytes <= self.bytes
            && self.index_bytes_of(bytes) <= self.index_bytes
            && relative(first, Offset(end.0 - 1)).is_some()
    }
}

/// Cuts segments that lie side by side, and end at `end`, into runs that are to become one each. A
/// segment that is too large already is a run of its own.
pub(super) fn groups(segments: &[SegmentFile], end: Offset, room: Room) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(first) = segments.get(from) {
        let mut bytes = first.bytes;
        let mut to = from + 1;
        while let Some(next) = segments.get(to)
            && to - from < COMPACTION_GROUP_SEGMENTS_MAX
        {
            let ends = segments.get(to + 1).map_or(end, |behind| behind.base);
            if !room.holds(bytes + next.bytes, first.base, ends) {
                break;
            }
            bytes += next.bytes;
            to += 1;
        }
        found.push(from..to);
        from = to;
    }
    found
}

#[cfg(test)]
mod tests {
    use thalweg_types::Offset;

    use super::{Room, groups};
    use crate::compaction::SegmentFile;

    fn cut(segments: &[(i64, u64)], room: Room) -> Vec<usize> {
        let segments: Vec<_> = segments
            .iter()
            .map(|(base, bytes)| SegmentFile {
                base: Offset(*base),
                bytes: *bytes,
            })
            .collect();
        let found = groups(&segments, Offset(i64::from(i32::MAX) + 60), room);
        assert_eq!(found.first().map_or(0, |run| run.start), 0);
        assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
        found.into_iter().map(|run| run.len()).collect()
    }

    #[test]
    fn rp_101_small_neighbours_become_one_as_far_as_bytes_indexes_and_offsets_allow() {
        let room = Room {
            bytes: 100,
            index_bytes: 1_000,
            interval_bytes: 10,
        };
        assert_eq!(cut(&[], room), []);
        assert_eq!(
            cut(&[(0, 40), (1, 60), (2, 1), (3, 500), (4, 1)], room),
            [2, 1, 1, 1]
        );
        let tight = Room {
            index_bytes: 12 * 6,
            ..room
        };
        assert_eq!(
            cut(&[(0, 30), (1, 20), (2, 10), (3, 500)], tight),
            [2, 1, 1]
        );
        // The last segment ends more than 2^31 - 1 offsets behind the first.
        assert_eq!(cut(&[(0, 1), (50, 1), (61, 1)], room), [2, 1]);
        assert_eq!(cut(&[(60, 1), (70, 1), (81, 1)], room), [3]);
    }
}
