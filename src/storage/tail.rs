//! Where the batches written last lie, so that a reader at the end of the log needs no index, no
//! read and no wait.

use std::collections::VecDeque;

use thalweg_types::Offset;
use thalweg_types::limits::TAIL_BATCHES_MAX;

use crate::indexes::BatchMark;

/// A run of batches that lie side by side in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) segment: Offset,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    pub(crate) first_offset: Offset,
    pub(crate) end_offset: Offset,
}

/// What the tail knows of a range of offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TailAnswer {
    /// Batches to read.
    Run(Run),
    /// The batch that holds the offset does not end below the bound.
    NothingBelowBound,
    /// The offset is older than the tail.
    NotHot,
}

/// Marks of the last batches, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    marks: VecDeque<(Offset, BatchMark)>,
}

impl Tail {
    /// A batch was written to the segment at `segment`.
    pub(crate) fn push(&mut self, segment: Offset, mark: BatchMark) {
        if self.marks.len() == TAIL_BATCHES_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((segment, mark));
    }

    /// The segments up to the one at `segment` were replaced: their batches lie elsewhere.
    pub(crate) fn forget_up_to(&mut self, segment: Offset) {
        self.marks.retain(|(other, _)| *other > segment);
    }

    pub(crate) fn clear(&mut self) {
        self.marks = VecDeque::new();
    }

    /// Whole batches from the one that holds `from`, ending below `up_to`, in one segment, of at most
    /// `bytes_max` or else just the first.
    pub(crate) fn find(&self, from: Offset, up_to: Offset, bytes_max: u64) -> TailAnswer {
        let hot = self
            .marks
            .front()
            .is_some_and(|(_, first)| first.base_offset <= from);
        let at = self
            .marks
            .partition_point(|(_, mark)| mark.last_offset < from);
        let Some((segment, first)) = self.marks.get(at).filter(|_| hot) else {
            return TailAnswer::NotHot;
        };
        if first.last_offset >= up_to {
            return TailAnswer::NothingBelowBound;
        }
        let limit = first.position.saturating_add(bytes_max).max(first.end());
        let after = self.marks.partition_point(|(s, mark)| {
            mark.last_offset < from
                || (s == segment && mark.last_offset < up_to && mark.end() <= limit)
        });
        let (_, last) = self.marks[after - 1];
        TailAnswer::Run(Run {
            segment: *segment,
            position: first.position,
            bytes: last.end() - first.position,
            first_offset: first.base_offset,
            end_offset: last.last_offset.plus(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Tail, TailAnswer};
    use crate::indexes::BatchMark;
    use thalweg_types::limits::TAIL_BATCHES_MAX;
    use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

    fn push(tail: &mut Tail, segment: i64, position: u64, bytes: u64, base: i64, last: i64) {
        let mark = BatchMark {
            position,
            bytes,
            base_offset: Offset(base),
            last_offset: Offset(last),
            max_timestamp: TimestampMs(0),
            leader_epoch: LeaderEpoch(0),
        };
        tail.push(Offset(segment), mark);
    }

    fn found(answer: TailAnswer) -> (i64, u64, u64, i64, i64) {
        match answer {
            TailAnswer::Run(r) => (
                r.segment.0,
                r.position,
                r.bytes,
                r.first_offset.0,
                r.end_offset.0,
            ),
            TailAnswer::NothingBelowBound | TailAnswer::NotHot => panic!("{answer:?}"),
        }
    }

    #[test]
    fn runs_are_whole_batches_of_one_segment() {
        let mut tail = Tail::default();
        push(&mut tail, 0, 500, 100, 10, 14);
        push(&mut tail, 0, 600, 100, 15, 19);
        push(&mut tail, 20, 0, 100, 20, 24);
        push(&mut tail, 20, 100, 100, 25, 29);
        let all = Offset(30);
        assert_eq!(
            found(tail.find(Offset(12), all, 1_000)),
            (0, 500, 200, 10, 20)
        );
        assert_eq!(found(tail.find(Offset(12), all, 1)), (0, 500, 100, 10, 15));
        assert_eq!(found(tail.find(Offset(20), all, 199)), (20, 0, 100, 20, 25));
        assert_eq!(
            found(tail.find(Offset(20), Offset(29), 1_000)),
            (20, 0, 100, 20, 25)
        );
        assert_eq!(
            tail.find(Offset(20), Offset(24), 1_000),
            TailAnswer::NothingBelowBound
        );
        assert_eq!(tail.find(Offset(9), all, 1_000), TailAnswer::NotHot);
        assert_eq!(tail.find(Offset(30), all, 1_000), TailAnswer::NotHot);
    }

    #[test]
    fn the_tail_is_bounded() {
        let mut tail = Tail::default();
        for i in 0..(TAIL_BATCHES_MAX as i64 + 5) {
            push(&mut tail, 0, i as u64 * 10, 10, i, i);
        }
        assert_eq!(
            tail.find(Offset(4), Offset(i64::MAX), 10),
            TailAnswer::NotHot
        );
        assert_eq!(
            found(tail.find(Offset(5), Offset(i64::MAX), 20)),
            (0, 50, 20, 5, 7)
        );
    }
}
