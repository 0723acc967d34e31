//! Where the batches written last lie, so that a reader at the end of the log needs no index, no
//! read and no wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thalweg_types::Offset;
use thalweg_types::limits::{HOT_TAIL_MS, READERS_EXPECTED_MAX, TAIL_BATCHES_MAX};

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

/// Of the time within which a write is recent.
const HALF: Duration = Duration::from_millis(HOT_TAIL_MS / 2);

/// Marks of the last batches, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    marks: VecDeque<(Offset, BatchMark)>,
    /// What was written since, in two steps, the later one second: what lies behind the begin of the first is
    /// younger than that. Segment and position.
    since: [Option<(Instant, (Offset, u64))>; 2],
    /// When the next step begins.
    step_due: Option<Instant>,
    /// The batches that readers further back come to next, as their last reads met them; the newest at the end.
    ahead: VecDeque<(Offset, BatchMark)>,
}

impl Tail {
    /// A batch was written to the segment at `segment`.
    pub(crate) fn push(&mut self, segment: Offset, mark: BatchMark, now: Instant) {
        if self.step_due.is_none_or(|due| now >= due) {
            let [_, later] = self.since;
            self.since = [later, Some((now, (segment, mark.position)))];
            self.step_due = Some(now + HALF);
        }
        if self.marks.len() == TAIL_BATCHES_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((segment, mark));
    }

    /// The segments up to the one at `segment` were replaced: their batches lie elsewhere.
    pub(crate) fn forget_up_to(&mut self, segment: Offset) {
        self.marks.retain(|(other, _)| *other > segment);
        self.ahead.retain(|(other, _)| *other > segment);
    }

    /// A read of the segment at `segment` ended before this batch: its reader comes there next.
    pub(crate) fn expect(&mut self, segment: Offset, mark: BatchMark) {
        if self.ahead.len() == READERS_EXPECTED_MAX {
            self.ahead.pop_front();
        }
        self.ahead.push_back((segment, mark));
    }

    /// The batch of the segment at `segment` that holds `from`, if a reader was expected there. Once: who comes again
    /// has a reason to look at what lies there.
    pub(crate) fn take_expected(&mut self, segment: Offset, from: Offset) -> Option<BatchMark> {
        let is_it = |(other, mark): &(Offset, BatchMark)| {
            *other == segment && mark.base_offset <= from && from <= mark.last_offset
        };
        let at = self.ahead.iter().position(is_it)?;
        self.ahead.remove(at).map(|(_, mark)| mark)
    }

    pub(crate) fn clear(&mut self) {
        *self = Tail::default();
    }

    /// Whether all of `run` was written within [`HOT_TAIL_MS`].
    pub(crate) fn is_recent(&self, run: &Run, now: Instant) -> bool {
        let young = |(began, _): &&(Instant, _)| now.saturating_duration_since(*began) < 2 * HALF;
        let first = self.since.iter().flatten().find(young);
        first.is_some_and(|(_, begin)| *begin <= (run.segment, run.position))
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
    use std::time::{Duration, Instant};

    use super::{Run, Tail, TailAnswer};
    use crate::indexes::BatchMark;
    use thalweg_types::limits::{HOT_TAIL_MS, READERS_EXPECTED_MAX, TAIL_BATCHES_MAX};
    use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

    fn mark(position: u64, bytes: u64, base: i64, last: i64) -> BatchMark {
        BatchMark {
            position,
            bytes,
            base_offset: Offset(base),
            last_offset: Offset(last),
            max_timestamp: TimestampMs(0),
            leader_epoch: LeaderEpoch(0),
        }
    }

    fn push(tail: &mut Tail, segment: i64, position: u64, bytes: u64, base: i64, last: i64) {
        let mark = mark(position, bytes, base, last);
        tail.push(Offset(segment), mark, Instant::now());
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
    fn a_reader_is_expected_once_where_its_last_read_ended() {
        let mut tail = Tail::default();
        tail.expect(Offset(0), mark(500, 100, 10, 14));
        tail.expect(Offset(20), mark(0, 100, 20, 24));
        let mut taken = |segment, from| {
            let mark = tail.take_expected(Offset(segment), Offset(from));
            mark.map(|mark| mark.base_offset.0)
        };
        assert_eq!([taken(0, 9), taken(0, 15), taken(20, 12)], [None; 3]);
        assert_eq!([taken(0, 12), taken(0, 12)], [Some(10), None]);
        tail.forget_up_to(Offset(20));
        assert!(tail.take_expected(Offset(20), Offset(20)).is_none());
        for n in 0..(READERS_EXPECTED_MAX as i64 + 5) {
            tail.expect(Offset(0), mark(0, 10, n, n));
        }
        assert_eq!(tail.ahead.len(), READERS_EXPECTED_MAX);
        assert!(tail.take_expected(Offset(0), Offset(4)).is_none());
        assert!(tail.take_expected(Offset(0), Offset(5)).is_some());
    }

    /// Never hot for longer than it says, and hot for half of that at least.
    #[test]
    fn what_was_written_a_moment_ago_is_recent() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let run = |position| Run {
            segment: Offset(0),
            position,
            bytes: 10,
            first_offset: Offset(0),
            end_offset: Offset(1),
        };
        let mut tail = Tail::default();
        assert!(
            !tail.is_recent(&run(0), begin),
            "nothing was written in this life"
        );
        let step = HOT_TAIL_MS / 10;
        for n in 0..100 {
            let mark = BatchMark {
                position: n * 10,
                bytes: 10,
                base_offset: Offset(n as i64),
                last_offset: Offset(n as i64),
                max_timestamp: TimestampMs(0),
                leader_epoch: LeaderEpoch(0),
            };
            tail.push(Offset(0), mark, at(n * step));
            for written in 0..=n {
                let age = (n - written) * step;
                let is_recent = tail.is_recent(&run(written * 10), at(n * step));
                assert!(is_recent || age >= HOT_TAIL_MS / 2, "{age} ms old at {n}");
                assert!(!is_recent || age < HOT_TAIL_MS, "{age} ms old at {n}");
            }
        }
        let last = run(990);
        assert!(tail.is_recent(&last, at(99 * step)));
        assert!(!tail.is_recent(&last, at(99 * step + HOT_TAIL_MS)), "later");
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
