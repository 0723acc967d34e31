//! Which leader epoch began at which offset (KIP-101, KIP-279).

use std::fmt::Write as _;

use thalweg_types::{LeaderEpoch, Offset};

/// The first offset that a leader of `epoch` appended, or would have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Log end when the epoch began.
    pub start: Offset,
}

/// Answer to "where does this epoch end": the largest known epoch not above the one asked for, and
/// the offset after its last record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// The epoch found.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end: Offset,
}

impl EpochEnd {
    /// What Kafka answers when it does not know: -1 for both.
    pub const UNDEFINED: EpochEnd = EpochEnd {
        epoch: LeaderEpoch::NONE,
        end: Offset(-1),
    };
}

/// The epochs of one log, oldest first: the content of `leader-epoch-checkpoint`.
///
/// Invariant: epochs and start offsets both strictly rise, none is negative. Entries are made
/// durable before the first append of their epoch; truncations may reach the file late, because
/// [`EpochCache::restore`] does them again (RP-22).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EpochCache {
    entries: Vec<EpochEntry>,
}

/// Whether a call changed the cache, so that its file must be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum EpochChange {
    /// Nothing changed.
    Unchanged,
    /// The file is out of date.
    Changed,
}

/// The text is not a leader epoch checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EpochFileError {
    /// The first line is not the version this broker knows.
    #[error("line 1 is '{0}' instead of the version 0")]
    Version(String),
    /// The second line is not the number of entries that follow.
    #[error("line 2 says '{said}' entries, {found} follow")]
    Count {
        /// What line 2 says.
        said: String,
        /// Lines that follow.
        found: usize,
    },
    /// An entry is not `epoch offset`, both at least 0.
    #[error("line {line} is '{text}' instead of an epoch and an offset")]
    Entry {
        /// Number of the line, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// The last line has no end: of its last number there may have been more.
    #[error("the last line has no end: a loss of power has cut it off")]
    Cut,
}

impl EpochCache {
    /// The cache of a log that begins at `log_start` and ends at `log_end`, from the entries of its
    /// file. Entries that contradict earlier ones, and what lies outside the log, are dropped.
    #[must_use]
    pub fn restore(entries: &[EpochEntry], log_start: Offset, log_end: Offset) -> EpochCache {
        let mut cache = EpochCache::default();
        for entry in entries {
            let _ = cache.assign(entry.epoch, entry.start);
        }
        let _ = cache.truncate_from_end(log_end);
        let _ = cache.truncate_from_start(log_start);
        cache
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest entry.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` begins at `start`. Entries that contradict it (same or higher epoch, same
    /// or higher start) go, since the caller knows better (RP-22). An epoch that is already the
    /// newest keeps its start, unless the new one is lower. Negative numbers are ignored.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> EpochChange {
        if epoch.0 < 0 || start.0 < 0 {
            return EpochChange::Unchanged;
        }
        if let Some(last) = self.latest()
            && last.epoch == epoch
            && last.start <= start
        {
            return EpochChange::Unchanged;
        }
        while self
            .latest()
            .is_some_and(|e| e.epoch >= epoch || e.start >= start)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start });
        EpochChange::Changed
    }

    /// Follows a truncation of the log to `end`: drops entries that begin at or after it, also when
    /// the log itself was no longer than that (RP-21).
    pub fn truncate_from_end(&mut self, end: Offset) -> EpochChange {
        let before = self.entries.len();
        while self.latest().is_some_and(|e| e.start >= end) {
            self.entries.pop();
        }
        changed_if(self.entries.len() != before)
    }

    /// Follows a move of the log's start to `start`: entries that end at or before it go, the one
    /// that spans it now begins there.
    pub fn truncate_from_start(&mut self, start: Offset) -> EpochChange {
        let passed = self.entries.partition_point(|e| e.start <= start);
        let Some(spanning) = passed.checked_sub(1) else {
            return EpochChange::Unchanged;
        };
        let moved = self.entries[spanning].start != start;
        self.entries[spanning].start = start;
        self.entries.drain(..spanning);
        changed_if(moved || spanning > 0)
    }

    /// Where `asked` ends in a log that ends at `log_end` (RP-19, RP-23).
    ///
    /// - the newest epoch ends at the log's end;
    /// - above the newest, or with no entries: [`EpochEnd::UNDEFINED`];
    /// - below the oldest: the epoch as asked, ending where the oldest begins;
    /// - between: the largest known epoch not above it, ending where the next one begins.
    #[must_use]
    pub fn end_offset_for(&self, asked: LeaderEpoch, log_end: Offset) -> EpochEnd {
        let Some(latest) = self.latest() else {
            return EpochEnd::UNDEFINED;
        };
        if asked.0 < 0 || asked > latest.epoch {
            return EpochEnd::UNDEFINED;
        }
        if asked == latest.epoch {
            return EpochEnd {
                epoch: asked,
                end: log_end,
            };
        }
        let above = self.entries.partition_point(|e| e.epoch <= asked);
        let end = self.entries[above].start;
        match above.checked_sub(1) {
            Some(floor) => EpochEnd {
                epoch: self.entries[floor].epoch,
                end,
            },
            None => EpochEnd { epoch: asked, end },
        }
    }

    /// The epoch that the record at `offset` was appended in; `None` below the oldest entry.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let passed = self.entries.partition_point(|e| e.start <= offset);
        passed.checked_sub(1).map(|i| self.entries[i].epoch)
    }

    /// The text of `leader-epoch-checkpoint`: version, count, one `epoch offset` per line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            // Writing to a String can not fail.
            let _ = writeln!(text, "{} {}", entry.epoch, entry.start);
        }
        text
    }

    /// Reads the text of `leader-epoch-checkpoint`. The entries go to [`EpochCache::restore`].
    ///
    /// # Errors
    /// What is wrong with the text and where. The caller rebuilds the file from the log then.
    pub fn entries_from_text(text: &str) -> Result<Vec<EpochEntry>, EpochFileError> {
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default().trim();
        if version != "0" {
            return Err(EpochFileError::Version(version.to_string()));
        }
        let said = lines.next().unwrap_or_default().trim();
        let mut entries = Vec::new();
        for (i, line) in lines.filter(|line| !line.trim().is_empty()).enumerate() {
            let entry = parse_entry(line).ok_or_else(|| EpochFileError::Entry {
                line: i + 3,
                text: line.to_string(),
            })?;
            entries.push(entry);
        }
        if said.parse() != Ok(entries.len()) {
            return Err(EpochFileError::Count {
                said: said.to_string(),
                found: entries.len(),
            });
        }
        match text.ends_with('\n') {
            true => Ok(entries),
            false => Err(EpochFileError::Cut),
        }
    }

    /// Asserts the invariant of the type.
    ///
    /// # Panics
    /// When it is broken.
    pub fn check(&self) {
        for pair in self.entries.windows(2) {
            assert!(pair[0].epoch < pair[1].epoch, "epochs rise: {pair:?}");
            assert!(
                pair[0].start < pair[1].start,
                "start offsets rise: {pair:?}"
            );
        }
        if let Some(first) = self.entries.first() {
            assert!(
                first.epoch.0 >= 0 && first.start.0 >= 0,
                "no negative entry: {first:?}"
            );
        }
    }
}

fn parse_entry(line: &str) -> Option<EpochEntry> {
    let (epoch, start) = line.trim().split_once(char::is_whitespace)?;
    let epoch: i32 = epoch.parse().ok()?;
    let start: i64 = start.trim().parse().ok()?;
    (epoch >= 0 && start >= 0).then_some(EpochEntry {
        epoch: LeaderEpoch(epoch),
        start: Offset(start),
    })
}

fn changed_if(changed: bool) -> EpochChange {
    if changed {
        EpochChange::Changed
    } else {
        EpochChange::Unchanged
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert_eq, prop_oneof, proptest};
    use thalweg_types::{LeaderEpoch, Offset};

    use super::{EpochCache, EpochChange, EpochEnd, EpochEntry, EpochFileError};

    fn entry((epoch, start): (i32, i64)) -> EpochEntry {
        EpochEntry {
            epoch: LeaderEpoch(epoch),
            start: Offset(start),
        }
    }

    fn cache(pairs: &[(i32, i64)]) -> EpochCache {
        EpochCache {
            entries: pairs.iter().copied().map(entry).collect(),
        }
    }

    fn end(epoch: i32, end: i64) -> EpochEnd {
        EpochEnd {
            epoch: LeaderEpoch(epoch),
            end: Offset(end),
        }
    }

    #[test]
    fn rp_20_an_epoch_without_writes_is_kept() {
        let mut c = cache(&[(0, 0)]);
        assert_eq!(c.assign(LeaderEpoch(3), Offset(10)), EpochChange::Changed);
        assert_eq!(c.end_offset_for(LeaderEpoch(0), Offset(10)), end(0, 10));
        assert_eq!(c.end_offset_for(LeaderEpoch(3), Offset(10)), end(3, 10));
        assert_eq!(c.assign(LeaderEpoch(3), Offset(12)), EpochChange::Unchanged);
    }

    #[test]
    fn rp_21_truncation_at_the_log_end_drops_the_entry_there() {
        let mut c = cache(&[(0, 0), (1, 10)]);
        assert_eq!(c.truncate_from_end(Offset(10)), EpochChange::Changed);
        assert_eq!(c, cache(&[(0, 0)]));
        assert_eq!(c.truncate_from_end(Offset(10)), EpochChange::Unchanged);
    }

    #[test]
    fn rp_22_a_lower_entry_prunes_what_contradicts_it() {
        let mut c = cache(&[(1, 0), (2, 5), (4, 9)]);
        assert_eq!(c.assign(LeaderEpoch(3), Offset(7)), EpochChange::Changed);
        assert_eq!(c, cache(&[(1, 0), (2, 5), (3, 7)]));
        let _ = c.assign(LeaderEpoch(5), Offset(5));
        assert_eq!(c, cache(&[(1, 0), (5, 5)]));
        let _ = c.assign(LeaderEpoch(5), Offset(4));
        assert_eq!(c, cache(&[(1, 0), (5, 4)]));
        assert_eq!(c.assign(LeaderEpoch(-1), Offset(6)), EpochChange::Unchanged);
    }

    #[test]
    fn rp_22_a_lazy_truncation_is_redone_on_load() {
        let entries: Vec<_> = [(0, 0), (1, 10), (2, 20), (3, 30)].map(entry).to_vec();
        let c = EpochCache::restore(&entries, Offset(15), Offset(30));
        assert_eq!(c, cache(&[(1, 15), (2, 20)]));
        let c = EpochCache::restore(&entries, Offset(0), Offset(0));
        assert_eq!(c, EpochCache::default());
    }

    #[test]
    fn rp_23_end_offsets() {
        let c = cache(&[(2, 5), (4, 11), (7, 20)]);
        let asked = |epoch| c.end_offset_for(LeaderEpoch(epoch), Offset(33));
        assert_eq!(asked(7), end(7, 33));
        assert_eq!(asked(8), EpochEnd::UNDEFINED);
        assert_eq!(asked(1), end(1, 5));
        assert_eq!(asked(2), end(2, 11));
        assert_eq!(asked(3), end(2, 11));
        assert_eq!(asked(6), end(4, 20));
        assert_eq!(asked(-1), EpochEnd::UNDEFINED);
        let empty = EpochCache::default();
        assert_eq!(
            empty.end_offset_for(LeaderEpoch(0), Offset(9)),
            EpochEnd::UNDEFINED
        );
    }

    #[test]
    fn rp_17_to_19_a_follower_finds_the_fork_in_steps() {
        // KIP-279, case "quick elections": the follower knows epochs the leader never saw.
        let leader = cache(&[(0, 0), (2, 8), (4, 12)]);
        let mut follower = cache(&[(0, 0), (1, 6), (3, 9)]);
        let (leader_end, mut follower_end) = (Offset(20), Offset(11));
        let mut rounds = 0;
        while let Some(last) = follower.latest() {
            let answer = leader.end_offset_for(last.epoch, leader_end);
            let own = follower.end_offset_for(answer.epoch, follower_end);
            // RP-26: the smallest of the leader's end, the own end of that epoch, the own end.
            let to = answer.end.min(own.end).min(follower_end);
            let agreed = answer.epoch == last.epoch;
            let _ = follower.truncate_from_end(to);
            follower_end = to;
            rounds += 1;
            if agreed {
                break;
            }
        }
        assert_eq!(
            (follower, follower_end, rounds),
            (cache(&[(0, 0)]), Offset(6), 3)
        );
    }

    #[test]
    fn start_moves() {
        let mut c = cache(&[(0, 0), (1, 10), (2, 20)]);
        assert_eq!(c.truncate_from_start(Offset(0)), EpochChange::Unchanged);
        assert_eq!(c.truncate_from_start(Offset(15)), EpochChange::Changed);
        assert_eq!(c, cache(&[(1, 15), (2, 20)]));
        assert_eq!(c.truncate_from_start(Offset(20)), EpochChange::Changed);
        assert_eq!(c, cache(&[(2, 20)]));
        assert_eq!(
            cache(&[(3, 5)]).truncate_from_start(Offset(4)),
            EpochChange::Unchanged
        );
    }

    #[test]
    fn text_form() {
        let c = cache(&[(0, 0), (5, 1_234)]);
        assert_eq!(c.to_text(), "0\n2\n0 0\n5 1234\n");
        assert_eq!(
            EpochCache::entries_from_text(&c.to_text()).as_deref(),
            Ok(c.entries())
        );
        assert_eq!(EpochCache::entries_from_text("0\n0\n"), Ok(vec![]));
    }

    #[test]
    fn bad_text_is_refused_with_its_place() {
        let parse = EpochCache::entries_from_text;
        assert_eq!(parse(""), Err(EpochFileError::Version(String::new())));
        assert_eq!(parse("1\n0\n"), Err(EpochFileError::Version("1".into())));
        assert!(matches!(
            parse("0\n2\n0 0\n"),
            Err(EpochFileError::Count { found: 1, .. })
        ));
        assert!(matches!(parse("0\nx\n"), Err(EpochFileError::Count { .. })));
        for bad in ["0", "a 0", "0 b", "-1 0", "0 -1", "1 2 3", "99999999999 0"] {
            let text = format!("0\n1\n{bad}\n");
            assert!(
                matches!(parse(&text), Err(EpochFileError::Entry { line: 3, .. })),
                "{bad}"
            );
        }
    }

    /// The file may be written without being made durable, and `3 19` be left as `3 1`.
    #[test]
    fn st_11_a_file_that_was_cut_off_anywhere_is_refused() {
        let text = "0\n2\n1 0\n3 19\n";
        assert!(EpochCache::entries_from_text(text).is_ok());
        for at in 0..text.len() {
            let cut = EpochCache::entries_from_text(&text[..at]);
            assert!(cut.is_err(), "{at}: {cut:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Append { epoch_step: i32, records: i64 },
        TruncateTo(i64),
        StartAt(i64),
        Reload,
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..3i32, 1..5i64)
                .prop_map(|(epoch_step, records)| Op::Append { epoch_step, records }),
            1 => (0..60i64).prop_map(Op::TruncateTo),
            1 => (0..60i64).prop_map(Op::StartAt),
            1 => Just(Op::Reload),
        ]
    }

    /// The dumb twin: the epoch of every record, by offset from `start`.
    #[derive(Default)]
    struct Log {
        start: i64,
        epochs: Vec<i32>,
        epoch: i32,
    }

    impl Log {
        fn end(&self) -> i64 {
            self.start + i64::try_from(self.epochs.len()).expect("small")
        }

        /// RP-23 by scan: the largest epoch of a record not above the one asked for.
        fn end_offset_for(&self, asked: i32) -> EpochEnd {
            let (Some(first), Some(last)) = (self.epochs.first(), self.epochs.last()) else {
                return EpochEnd::UNDEFINED;
            };
            if asked > *last {
                return EpochEnd::UNDEFINED;
            }
            let count = self.epochs.iter().filter(|e| **e <= asked).count();
            let floor = self
                .epochs
                .iter()
                .copied()
                .filter(|e| *e <= asked)
                .max()
                .unwrap_or(asked);
            assert!(floor >= *first || floor == asked);
            end(floor, self.start + i64::try_from(count).expect("small"))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_a_list_of_records(ops in proptest::collection::vec(ops(), 1..60)) {
            let mut log = Log::default();
            let mut c = EpochCache::default();
            for op in ops {
                match op {
                    Op::Append { epoch_step, records } => {
                        log.epoch += epoch_step;
                        let _ = c.assign(LeaderEpoch(log.epoch), Offset(log.end()));
                        for _ in 0..records {
                            log.epochs.push(log.epoch);
                        }
                    }
                    Op::TruncateTo(to) => {
                        let keep = (to - log.start).clamp(0, log.end() - log.start);
                        log.epochs.truncate(usize::try_from(keep).expect("small"));
                        let _ = c.truncate_from_end(Offset(log.end()));
                    }
                    Op::StartAt(to) => {
                        // As in a broker, the log start stays below the end here: a start equal to
                        // the end keeps the epoch's entry, which no record shows.
                        let to = to.clamp(log.start, (log.end() - 1).max(log.start));
                        log.epochs.drain(..usize::try_from(to - log.start).expect("small"));
                        log.start = to;
                        let _ = c.truncate_from_start(Offset(to));
                    }
                    Op::Reload => {
                        let entries = EpochCache::entries_from_text(&c.to_text()).expect("own text");
                        c = EpochCache::restore(&entries, Offset(log.start), Offset(log.end()));
                    }
                }
                c.check();
                for asked in 0..=log.epoch + 1 {
                    let answer = c.end_offset_for(LeaderEpoch(asked), Offset(log.end()));
                    prop_assert_eq!(answer, log.end_offset_for(asked), "epoch {}", asked);
                }
                for (offset, epoch) in (log.start..).zip(&log.epochs) {
                    prop_assert_eq!(c.epoch_at(Offset(offset)), Some(LeaderEpoch(*epoch)));
                }
            }
        }
    }
}
