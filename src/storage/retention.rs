//! Which segments at the start of a log are due: Kafka's rule, as a machine without I/O.
//!
//! Segments are shown oldest first, until one stays. A segment goes when nothing above the high
//! watermark is in it and one of three holds: it ends at or below the log's start; what is left
//! without it still reaches `retention.bytes`; its newest record is older than `retention.ms`. Nothing
//! here depends on the order in which the reasons are looked at: a segment that may not go for its
//! size keeps all later ones from going for theirs.

use std::fmt;

use thalweg_types::{Offset, TimestampMs};

/// What a topic's properties say of old data. The default keeps all that is above the log's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionLimits {
    /// `retention.ms`; `None` is unlimited.
    pub age_ms: Option<i64>,
    /// `retention.bytes`; `None` is unlimited.
    pub bytes: Option<u64>,
    /// `message.timestamp.after.max.ms`: a timestamp that lies further ahead of the clock is not
    /// believed.
    pub ahead_max_ms: i64,
}

impl RetentionLimits {
    /// The last moment at which a segment is not too old; `None` when age does not count. A timestamp too
    /// far ahead can not pin the log: the file says how old the segment is, as it does where no record has
    /// a timestamp.
    pub(crate) fn due_at(&self, now: TimestampMs, written: Written) -> Option<TimestampMs> {
        let believed = now.0.saturating_add(self.ahead_max_ms);
        let newest = written
            .largest
            .filter(|largest| (0..=believed).contains(&largest.0))
            .unwrap_or(written.modified);
        Some(TimestampMs(newest.0.saturating_add(self.age_ms?)))
    }
}

/// Segments by the reason why they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reasons {
    /// They end at or below the log's start (DeleteRecords).
    pub below_start: usize,
    /// The rest reaches `retention.bytes`.
    pub by_bytes: usize,
    /// Their newest record is older than `retention.ms`.
    pub by_age: usize,
}

impl Reasons {
    /// All of them.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.below_start + self.by_bytes + self.by_age
    }

    pub(crate) fn count(&mut self, reason: Reason) {
        match reason {
            Reason::BelowStart => self.below_start += 1,
            Reason::Bytes => self.by_bytes += 1,
            Reason::Age => self.by_age += 1,
        }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.below_start, "below the log start"),
            (self.by_bytes, "by retention.bytes"),
            (self.by_age, "by retention.ms"),
        ];
        let mut separator = "";
        for (count, words) in parts.iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {words}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Why a segment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    BelowStart,
    Bytes,
    Age,
}

/// What is known of a segment without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outline {
    /// Offset after it: where the next one begins, or the log's end.
    pub(crate) end: Offset,
    pub(crate) bytes: u64,
    /// Nothing follows it.
    pub(crate) is_last: bool,
}

/// When the records of a segment were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// The largest timestamp, if a record has one.
    pub(crate) largest: Option<TimestampMs>,
    /// Last change of the file.
    pub(crate) modified: TimestampMs,
}

/// What becomes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It goes.
    Goes(Reason),
    /// Only its age can tell: [`Sweep::by_age`].
    AskAge,
    /// It stays, and all behind it.
    Stays,
}

/// One look at a log, from its oldest segment on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) limits: RetentionLimits,
    pub(crate) start: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) now: TimestampMs,
    /// Bytes from the segment that is shown next on.
    pub(crate) bytes_left: u64,
}

impl Sweep {
    /// Shows the next segment. After [`Verdict::AskAge`] it must be shown to [`Sweep::by_age`].
    pub(crate) fn look(&mut self, segment: &Outline) -> Verdict {
        if segment.end > self.high_watermark || (segment.is_last && segment.bytes == 0) {
            return Verdict::Stays;
        }
        let rest = self.bytes_left.saturating_sub(segment.bytes);
        let reason = if segment.end <= self.start {
            Reason::BelowStart
        } else if self.limits.bytes.is_some_and(|bytes| rest >= bytes) {
            Reason::Bytes
        } else if self.limits.age_ms.is_some() {
            return Verdict::AskAge;
        } else {
            return Verdict::Stays;
        };
        self.bytes_left = rest;
        Verdict::Goes(reason)
    }

    /// The answer where only the age can tell.
    pub(crate) fn by_age(&mut self, segment: &Outline, written: Written) -> Verdict {
        match self.limits.due_at(self.now, written) {
            Some(due) if self.now > due => {}
            Some(_) | None => return Verdict::Stays,
        }
        self.bytes_left = self.bytes_left.saturating_sub(segment.bytes);
        Verdict::Goes(Reason::Age)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outline, Reason, Reasons, RetentionLimits, Sweep, Verdict, Written};
    use crate::whole_log_tests::Dice;
    use thalweg_types::{Offset, TimestampMs};

    const NOW: i64 = 1_000_000;

    type Shown = (Outline, Written);

    fn sweep(
        segments: &[Shown],
        limits: RetentionLimits,
        start: i64,
        high_watermark: i64,
    ) -> Sweep {
        Sweep {
            limits,
            start: Offset(start),
            high_watermark: Offset(high_watermark),
            now: TimestampMs(NOW),
            bytes_left: segments.iter().map(|(outline, _)| outline.bytes).sum(),
        }
    }

    fn taken(mut sweep: Sweep, segments: &[Shown]) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (outline, written) in segments {
            let verdict = match sweep.look(outline) {
                Verdict::AskAge => sweep.by_age(outline, *written),
                told => told,
            };
            match verdict {
                Verdict::Goes(reason) => reasons.push(reason),
                Verdict::AskAge | Verdict::Stays => break,
            }
        }
        reasons
    }

    /// Segments of ten offsets each, with these bytes and timestamps.
    fn segments(of: &[(u64, i64)]) -> Vec<Shown> {
        let last = of.len().saturating_sub(1);
        of.iter()
            .enumerate()
            .map(|(index, (bytes, timestamp))| {
                let outline = Outline {
                    end: Offset(10 * (index as i64 + 1)),
                    bytes: *bytes,
                    is_last: index == last,
                };
                let written = Written {
                    largest: Some(TimestampMs(*timestamp)),
                    modified: TimestampMs(NOW),
                };
                (outline, written)
            })
            .collect()
    }

    fn limits(age_ms: Option<i64>, bytes: Option<u64>) -> RetentionLimits {
        RetentionLimits {
            age_ms,
            bytes,
            ahead_max_ms: 1_000,
        }
    }

    #[test]
    fn rp_94_age_goes_by_the_largest_timestamp_and_stops_at_the_high_watermark() {
        let log = segments(&[(5, NOW - 101), (5, NOW - 101), (5, NOW - 101)]);
        let by = |age, high_watermark| {
            taken(
                sweep(&log, limits(Some(age), None), 0, high_watermark),
                &log,
            )
            .len()
        };
        assert_eq!((by(100, 30), by(101, 30)), (3, 0));
        assert_eq!((by(100, 29), by(100, 10), by(100, 9)), (2, 1, 0));
        // An older one behind a younger one waits for it.
        let log = segments(&[(5, NOW), (5, 0), (0, 0)]);
        assert_eq!(taken(sweep(&log, limits(Some(1), None), 0, 30), &log), []);
        // Nothing is gained by replacing an empty last segment.
        let log = segments(&[(5, 0), (0, 0)]);
        assert_eq!(
            taken(sweep(&log, limits(Some(1), None), 20, 20), &log),
            [Reason::BelowStart]
        );
    }

    #[test]
    fn rp_95_size_keeps_at_least_what_the_limit_says() {
        let log = segments(&[(5, 0), (7, 0), (11, 0)]);
        let by = |bytes| taken(sweep(&log, limits(None, Some(bytes)), 0, 30), &log).len();
        assert_eq!((by(24), by(23), by(19), by(18)), (0, 0, 0, 1));
        assert_eq!((by(12), by(11), by(1), by(0)), (1, 2, 2, 3));
    }

    #[test]
    fn a_timestamp_too_far_ahead_is_not_believed() {
        let of = |largest: Option<i64>, modified| {
            let mut log = segments(&[(5, 0)]);
            log[0].1 = Written {
                largest: largest.map(TimestampMs),
                modified: TimestampMs(modified),
            };
            taken(sweep(&log, limits(Some(50), None), 0, 10), &log).len()
        };
        assert_eq!((of(Some(NOW + 1_000), 0), of(Some(NOW + 1_001), 0)), (0, 1));
        assert_eq!(of(Some(i64::MAX), NOW - 50), 0);
        assert_eq!((of(None, NOW - 50), of(None, NOW - 51)), (0, 1));
    }

    /// The rule as a sentence: the longest run of first segments of which each may go.
    fn twin(sweep: &Sweep, segments: &[Shown]) -> usize {
        let may_go = |index: usize| {
            let (outline, written) = &segments[index];
            let behind: u64 = segments[index + 1..].iter().map(|(o, _)| o.bytes).sum();
            let newest = match written.largest {
                Some(largest) if largest.0 >= 0 && largest.0 - NOW <= sweep.limits.ahead_max_ms => {
                    largest.0
                }
                Some(_) | None => written.modified.0,
            };
            outline.end <= sweep.high_watermark
                && !(index + 1 == segments.len() && outline.bytes == 0)
                && (outline.end <= sweep.start
                    || sweep.limits.bytes.is_some_and(|limit| behind >= limit)
                    || sweep
                        .limits
                        .age_ms
                        .is_some_and(|limit| NOW - newest > limit))
        };
        (0..segments.len())
            .take_while(|index| may_go(*index))
            .count()
    }

    #[test]
    fn rp_94_rp_95_random_logs_agree_with_the_rule_as_a_sentence() {
        let mut dice = Dice::new(94);
        let mut seen = Reasons::default();
        for round in 0..20_000 {
            let count = dice.below(7) as usize;
            let of: Vec<(u64, i64)> = (0..count)
                .map(|_| (dice.below(9), NOW - 60 + dice.below(100) as i64))
                .collect();
            let mut log = segments(&of);
            for (_, written) in &mut log {
                written.modified = TimestampMs(NOW - dice.below(60) as i64);
                if dice.below(5) == 0 {
                    written.largest = None;
                }
            }
            let limits = RetentionLimits {
                age_ms: (dice.below(3) > 0).then(|| dice.below(60) as i64),
                bytes: (dice.below(3) > 0).then(|| dice.below(30)),
                ahead_max_ms: dice.below(40) as i64,
            };
            let end = 10 * count as u64 + 1;
            let high_watermark = dice.below(end);
            let start = dice.below(high_watermark + 1);
            let sweep = sweep(&log, limits, start as i64, high_watermark as i64);
            let reasons = taken(sweep, &log);
            assert_eq!(
                reasons.len(),
                twin(&sweep, &log),
                "{round}: {sweep:?} {log:?}"
            );
            reasons.into_iter().for_each(|reason| seen.count(reason));
        }
        assert!(seen.below_start > 1_000 && seen.by_bytes > 1_000 && seen.by_age > 1_000);
        let told = Reasons {
            below_start: 0,
            by_bytes: 2,
            by_age: 1,
        };
        assert_eq!(told.to_string(), "2 by retention.bytes, 1 by retention.ms");
    }
}
