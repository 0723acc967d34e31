//! What is not read of a log, compared with the sums of what was appended.

use thalweg_types::{Offset, TimestampMs};

use super::{TestLog, on_both_engines, small_segments};
use crate::{RetentionLimits, Unread};

const NOW: TimestampMs = TimestampMs(1_000_000);

async fn unread(test: &TestLog, from: i64, limits: RetentionLimits) -> Option<Unread> {
    let found = test.log.unread(Offset(from), limits, NOW).await;
    found.expect("readable")
}

#[test]
fn unread_bytes_and_age_are_those_of_the_batches() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        let mut lengths = Vec::new();
        for records in [3, 1, 7, 2, 5, 3, 1, 1, 9, 4, 3, 3].repeat(3) {
            let base = test.log.assigned_end().0;
            lengths.push((base, base + records, test.append(records).len() as u64));
            test.settle().await;
        }
        assert!(test.log.segment_count() > 2);
        let end = test.log.written_end().0;
        for from in 0..end {
            let found = unread(&test, from, RetentionLimits::default()).await;
            let bytes = lengths.iter().filter(|(_, next, _)| *next > from);
            let first = lengths.iter().find(|(_, next, _)| *next > from);
            let wanted = Unread {
                bytes: bytes.map(|(_, _, len)| len).sum(),
                since: TimestampMs(1_000 + first.expect("in the log").0),
                removed_at: None,
            };
            assert_eq!(found, Some(wanted), "{from}");
        }
        assert_eq!(unread(&test, end, RetentionLimits::default()).await, None);
    });
}

#[test]
fn the_time_of_removal_is_that_at_which_retention_takes_it() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(32).await;
        let end = test.log.written_end();
        let by_age = RetentionLimits {
            age_ms: Some(5_000),
            ahead_max_ms: 0,
            ..RetentionLimits::default()
        };
        let gone_at = async |now: i64, from: i64| {
            let due = test.log.due(by_age, end, TimestampMs(now)).await;
            due.expect("a look").is_some_and(|due| due.start.0 > from)
        };
        for from in (0..end.0).step_by(5) {
            let found = unread(&test, from, by_age).await.expect("unread");
            let at = found.removed_at.expect("age counts").0;
            assert!(!gone_at(at, from).await, "{from}");
            assert!(gone_at(at + 1, from).await, "{from}");
        }
        // By size it is told only once it is due.
        let behind = test.log.size_bytes() / 2;
        let by_size = RetentionLimits {
            bytes: Some(behind),
            ..RetentionLimits::default()
        };
        let first = unread(&test, 0, by_size).await.expect("unread");
        let last = unread(&test, end.0 - 1, by_size).await.expect("unread");
        assert_eq!((first.removed_at, last.removed_at), (Some(NOW), None));
    });
}
