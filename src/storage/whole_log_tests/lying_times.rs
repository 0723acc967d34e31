//! Time indexes in the right form that say what is not so.

use std::path::Path;

use thalweg_protocol::records::Codec;
use thalweg_types::{LeaderEpoch, Offset};

use super::timestamps::check;
use super::{Dice, TestLog, batch, copy_dir, edit, file, on_plain_engine, small_segments};
use crate::time_index::TIME_INDEX_ENTRY_BYTES;
use crate::{Opening, Recovery, Unwritten};

/// How timestamps go on in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Any,
}

/// A log that was stopped in order.
struct Stopped {
    /// Of its records.
    timestamps: Vec<i64>,
    /// A closed segment, and the last one.
    bases: [i64; 2],
}

async fn filled(path: &Path, order: Order) -> (TestLog, Vec<i64>) {
    std::fs::create_dir(path).expect("a directory");
    let mut dice = Dice::new(11);
    let test = TestLog::create(path, small_segments()).await;
    let mut timestamps = Vec::new();
    for _ in 0..36 {
        let base = Offset(timestamps.len() as i64);
        let some: Vec<i64> = (0..3)
            .map(|i| match order {
                Order::Ascending => 10 * (base.0 + i),
                Order::Any => 10 * (base.0 + i) + dice.below(60) as i64,
            })
            .collect();
        test.log
            .append(batch(base, LeaderEpoch(2), &some, Codec::None));
        test.settle().await;
        timestamps.extend(some);
    }
    (test, timestamps)
}

async fn stopped(path: &Path, order: Order) -> Stopped {
    let (test, timestamps) = filled(path, order).await;
    test.log.close().await.expect("closed");
    let bases = test.bases();
    assert!(bases.len() >= 3, "{bases:?}");
    Stopped {
        timestamps,
        bases: [bases[1], bases[bases.len() - 1]],
    }
}

fn entries(bytes: &[u8]) -> usize {
    bytes.len() / TIME_INDEX_ENTRY_BYTES
}

/// Every lookup is right, whatever was done to the time index of the segment at `base`.
async fn lookups_are_right(path: &Path, stopped: &Stopped) {
    let opened = TestLog::open(path, small_segments(), Recovery::AfterCleanStop).await;
    let (test, _) = opened.expect("opened");
    check(&test, &stopped.timestamps, 0).await;
    assert_eq!(test.log.quarantined(), []);
    test.log.close().await.expect("closed");
}

#[test]
fn st_9_a_time_index_that_ends_with_a_lie_is_made_anew_when_it_is_loaded() {
    on_plain_engine(|dir| async move {
        for order in [Order::Ascending, Order::Any] {
            let (one, two) = (dir.join(format!("{order:?}")), dir.join("two"));
            let stopped = stopped(&one, order).await;
            for base in stopped.bases {
                let right = std::fs::read(file(&one, base, "timeindex")).expect("an index");
                let last = right.len() - TIME_INDEX_ENTRY_BYTES;
                assert!(entries(&right) >= 2);
                // The low bits of the timestamp: from 1 ms to some seconds.
                for bit in 0..12 {
                    copy_dir(&one, &two);
                    edit(&file(&two, base, "timeindex"), |bytes| {
                        bytes[last + 7 - bit / 8] ^= 1 << (bit % 8);
                    });
                    lookups_are_right(&two, &stopped).await;
                    let after = std::fs::read(file(&two, base, "timeindex")).expect("an index");
                    assert!(after == right, "{order:?}, bit {bit} of {base}");
                }
                // The low bits of the offset.
                for bit in 0..6 {
                    copy_dir(&one, &two);
                    edit(&file(&two, base, "timeindex"), |bytes| {
                        bytes[last + 11] ^= 1 << bit;
                    });
                    lookups_are_right(&two, &stopped).await;
                }
                for left in [0, 1, entries(&right) / 2, entries(&right) - 1] {
                    // With timestamps in any order the last entry that is left may be far before the last one of the
                    // offset index, and nothing between is looked at.
                    if order == Order::Any && left > 0 {
                        continue;
                    }
                    copy_dir(&one, &two);
                    edit(&file(&two, base, "timeindex"), |bytes| {
                        bytes.truncate(left * TIME_INDEX_ENTRY_BYTES);
                    });
                    lookups_are_right(&two, &stopped).await;
                }
            }
            // In the place of another's.
            for (from, to) in [(0, 1), (1, 0)] {
                copy_dir(&one, &two);
                let [from, to] = [from, to].map(|at| file(&two, stopped.bases[at], "timeindex"));
                std::fs::copy(from, to).expect("copied");
                lookups_are_right(&two, &stopped).await;
            }
        }
    });
}

#[test]
fn st_9_a_lookup_does_not_go_by_an_entry_that_its_batch_contradicts() {
    on_plain_engine(|dir| async move {
        for order in [Order::Ascending, Order::Any] {
            let (one, two) = (dir.join(format!("{order:?}")), dir.join("two"));
            let stopped = stopped(&one, order).await;
            let base = stopped.bases[0];
            let right = std::fs::read(file(&one, base, "timeindex")).expect("an index");
            for entry in 0..entries(&right) - 1 {
                let at = entry * TIME_INDEX_ENTRY_BYTES;
                for (byte, bit) in (0..8)
                    .map(|bit| (7, bit))
                    .chain((0..5).map(|bit| (11, bit)))
                {
                    copy_dir(&one, &two);
                    edit(&file(&two, base, "timeindex"), |bytes| {
                        bytes[at + byte] ^= 1 << bit;
                    });
                    lookups_are_right(&two, &stopped).await;
                }
            }
        }
    });
}

/// What was saved beside a log that was killed, and an index that outlived a loss of power, are held against it, too.
#[test]
fn st_9_a_start_that_goes_by_an_index_finds_its_time_index_lying() {
    on_plain_engine(|dir| async move {
        let (one, two) = (dir.join("one"), dir.join("two"));
        let (test, timestamps) = filled(&one, Order::Ascending).await;
        let end = test.log.written_end();
        test.log.save_way(end, vec![7]).await.expect("saved");
        test.log.flush().await.expect("flushed");
        let base = test.log.inner.state.borrow().active().base.0;
        test.kill().await;
        let after_kill = Opening {
            written: Some(end),
            unwritten: Unwritten::LastWrite,
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(0),
            })
        };
        let after_loss = Opening::from(Recovery::AfterCrash {
            recovery_point: end,
        });
        for opening in [after_kill, after_loss] {
            copy_dir(&one, &two);
            edit(&file(&two, base, "timeindex"), |bytes| {
                let last = bytes.len() - TIME_INDEX_ENTRY_BYTES;
                bytes[last + 6] ^= 1;
            });
            let opened = TestLog::open(&two, small_segments(), opening).await;
            check(&opened.expect("opened").0, &timestamps, 0).await;
        }
    });
}
