//! Index files: written, lost, damaged, rebuilt.

use std::path::Path;

use thalweg_types::{Offset, TimestampMs};

use super::{TestLog, copy_dir, edit, file, on_both_engines, on_plain_engine, small_segments};
use crate::Recovery;

type Damage = fn(&Path);

/// Ways to lose an index.
fn damages() -> Vec<(&'static str, Damage)> {
    vec![
        ("missing", |path| {
            std::fs::remove_file(path).expect("removed")
        }),
        ("empty", |path| edit(path, Vec::clear)),
        ("short", |path| {
            edit(path, |bytes| {
                bytes.pop();
            });
        }),
        ("an entry less", |path| {
            edit(path, |bytes| {
                bytes.truncate(bytes.len().saturating_sub(12) / 24 * 24)
            });
        }),
        ("zeros", |path| edit(path, |bytes| bytes.fill(0))),
        ("zeros behind", |path| {
            edit(path, |bytes| bytes.extend([0; 24]))
        }),
        ("noise", |path| {
            edit(path, |bytes| bytes.iter_mut().for_each(|b| *b ^= 0x5a))
        }),
        ("off by a byte", |path| {
            edit(path, |bytes| {
                let last = bytes.len() - 1;
                bytes[last] = bytes[last].wrapping_add(1);
            });
        }),
    ]
}

#[test]
fn st_9_reads_are_the_same_whatever_happened_to_an_index() {
    on_both_engines(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        let test = TestLog::create(&source, small_segments()).await;
        test.fill(33).await;
        let all = test.read_all().await;
        test.log.close().await.expect("closed");
        let bases = test.bases();
        drop(test);
        assert!(bases.len() >= 3);
        for (what, damage) in damages() {
            for suffix in ["index", "timeindex"] {
                for base in [bases[1], bases[bases.len() - 1]] {
                    let copy = dir.join("copy");
                    copy_dir(&source, &copy);
                    damage(&file(&copy, base, suffix));
                    let what = format!("{what} {suffix} of {base}");
                    let opened =
                        TestLog::open(&copy, small_segments(), Recovery::AfterCleanStop).await;
                    let (test, report) = opened.expect(&what);
                    assert_eq!(report.segments_scanned, 0);
                    assert_eq!(test.read_all().await, all, "{what}");
                    for offset in [0, 4, 50, 98] {
                        let hit = test
                            .log
                            .offset_for_timestamp(TimestampMs(1_000 + offset))
                            .await;
                        let hit = hit.expect(&what).expect(&what);
                        assert_eq!(hit.offset, Offset(offset), "{what}");
                    }
                    test.log.close().await.expect("closed");
                }
            }
        }
    });
}

#[test]
fn st_9_a_rebuilt_index_is_the_one_that_was_lost() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(33).await;
        test.log.close().await.expect("closed");
        drop(test);
        let mut before = Vec::new();
        for suffix in ["index", "timeindex"] {
            let path = file(&dir, 0, suffix);
            before.push(std::fs::read(&path).expect("a file"));
            std::fs::remove_file(&path).expect("removed");
        }
        assert!(before.iter().all(|bytes| bytes.len() >= 24));
        let recovery = Recovery::AfterCrash {
            recovery_point: Offset(0),
        };
        let (test, _) = TestLog::open(&dir, small_segments(), recovery)
            .await
            .expect("opened");
        test.log.flush().await.expect("flushed");
        let after =
            ["index", "timeindex"].map(|s| std::fs::read(file(&dir, 0, s)).expect("a file"));
        assert_eq!(before, after);
    });
}

#[test]
fn st_9_an_index_without_a_log_is_removed() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(2).await;
        test.log.close().await.expect("closed");
        drop(test);
        for suffix in ["index", "timeindex", "txnindex"] {
            std::fs::write(file(&dir, 77, suffix), [0; 24]).expect("written");
        }
        let opened = TestLog::open(&dir, small_segments(), Recovery::AfterCleanStop).await;
        let (_, report) = opened.expect("opened");
        assert_eq!(report.leftovers_removed, 3);
        assert!(!file(&dir, 77, "index").exists());
    });
}

#[test]
fn closed_segments_get_their_index_files_by_a_flush_without_a_close() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        test.fill(33).await;
        test.log.flush().await.expect("flushed");
        let state = test.log.inner.state.borrow();
        for segment in &state.segments {
            let is_active = segment.base == state.active().base;
            for suffix in ["index", "timeindex"] {
                assert_eq!(file(&dir, segment.base.0, suffix).exists(), !is_active);
            }
        }
    });
}

#[test]
fn closed_segments_leave_memory_when_the_cache_is_full() {
    use thalweg_types::limits::WARM_SEGMENTS_MAX;
    on_plain_engine(|dir| async move {
        let options = crate::LogOptions {
            segment_bytes: 100,
            ..small_segments()
        };
        let cache = options.cache.clone();
        let test = TestLog::create(&dir, options).await;
        test.fill(WARM_SEGMENTS_MAX + 10).await;
        test.log.flush().await.expect("flushed");
        let all = test.read_all().await;
        assert!(cache.len() <= WARM_SEGMENTS_MAX, "{}", cache.len());
        let warm = {
            let state = test.log.inner.state.borrow();
            state
                .segments
                .iter()
                .filter(|s| s.warm_now().is_some())
                .count()
        };
        assert_eq!(warm, cache.len() + 1);
        assert_eq!(test.read_all().await, all);
    });
}

/// Every bit that counts of an index that was left by a clean stop: only reads find out.
#[test]
fn st_9_an_entry_that_lies_is_found_by_the_read_that_goes_by_it() {
    on_plain_engine(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        let test = TestLog::create(&source, small_segments()).await;
        test.fill(14).await;
        let end = test.log.written_end().0;
        test.log.close().await.expect("closed");
        let bases: Vec<i64> = {
            let state = test.log.inner.state.borrow();
            state.segments.iter().map(|s| s.base.0).collect()
        };
        drop(test);
        assert!(bases.len() >= 2, "{bases:?}");
        for base in [bases[0], bases[bases.len() - 1]] {
            let index = file(&source, base, "index");
            let right = std::fs::read(&index).expect("an index");
            assert!(right.len() >= 8, "{}", right.len());
            // Whatever is larger than the segment is told when the index is loaded.
            for bit in (0..8 * right.len()).filter(|bit| bit % 32 >= 20) {
                let copy = dir.join("copy");
                copy_dir(&source, &copy);
                edit(&file(&copy, base, "index"), |bytes| {
                    bytes[bit / 8] ^= 1 << (bit % 8)
                });
                let opened = TestLog::open(&copy, small_segments(), Recovery::AfterCleanStop).await;
                let (test, _) = opened.expect("opened");
                read_in_pieces(&test, end, &format!("bit {bit} of {base}")).await;
                // The next one goes into the index, behind entries that ascend.
                test.fill(3).await;
                assert_eq!(test.log.quarantined(), [], "bit {bit} of {base}");
                test.log.close().await.expect("closed");
                let after = std::fs::read(file(&copy, base, "index")).expect("an index");
                let was = after.get(..right.len());
                assert_eq!(was, Some(&right[..]), "bit {bit} of {base}");
            }
        }
    });
}

/// From every offset to below every other, as large and as small as it goes.
async fn read_in_pieces(test: &TestLog, end: i64, what: &str) {
    for from in (0..end).step_by(2) {
        for (up_to, bytes_max) in [(end, 1), (end, 300), (from + 6, u32::MAX), (end, u32::MAX)] {
            let up_to = up_to.min(end);
            let plan = test.log.read_plan(Offset(from), Offset(up_to), bytes_max);
            let plan = plan
                .await
                .unwrap_or_else(|error| panic!("{what}, from {from}: {error}"));
            if plan.is_empty() {
                assert!(from / 3 * 3 + 3 > up_to, "{what}: nothing from {from}");
                continue;
            }
            assert_eq!(plan.first_offset, Offset(from / 3 * 3), "{what}");
            let at = (plan.position, plan.len as usize);
            let bytes = thalweg_reactor::fs::read_at(&plan.file, at.0, at.1).await;
            let bytes = bytes.expect("read");
            let mut next = plan.first_offset;
            for batch in thalweg_protocol::records::batches(&bytes) {
                let header = batch.expect("whole").header;
                assert_eq!(header.base_offset, next, "{what}");
                next = header.last_offset().plus(1);
            }
            assert_eq!(next, plan.next_offset, "{what}, from {from} below {up_to}");
            assert!(next.0 <= up_to, "{what}, from {from} below {up_to}");
        }
    }
}
