//! A log that a clean stop left whole, and of which something is missing at the next start.

use std::path::Path;
use std::rc::Rc;

use thalweg_protocol::records::BatchHeader;
use thalweg_types::Offset;

use super::{
    TestLog, copy_dir, edit, file, log_file, on_both_engines, on_plain_engine, small_segments,
};
use crate::name::NEXT_SEGMENT;
use crate::{
    AppendError, Gaps, LogError, LogEvent, LogOptions, Missing, Opening, ReadError, Recovery,
    Unwritten,
};

/// What the checkpoints say of a log of `batches` batches after a clean stop.
fn known(batches: i64) -> Opening {
    Opening {
        log_start: Some(Offset(0)),
        known_end: Some(Offset(3 * batches)),
        gaps: Gaps::Never,
        ..Opening::from(Recovery::AfterCleanStop)
    }
}

async fn closed(dir: &Path, options: LogOptions, batches: usize) -> Vec<i64> {
    std::fs::create_dir(dir).expect("a directory");
    let test = TestLog::create(dir, options).await;
    test.fill(batches).await;
    test.log.close().await.expect("closed");
    let segments = &test.log.inner.state.borrow().segments;
    segments.iter().map(|segment| segment.base.0).collect()
}

/// What is missing, and that nothing was changed.
async fn missing(dir: &Path, opening: Opening) -> (Missing, i64, i64) {
    let listing = |dir: &Path| {
        let entries = std::fs::read_dir(dir.join("t-0")).expect("a directory");
        let mut all: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .map(|path| (std::fs::read(&path).expect("a file"), path))
            .collect();
        all.sort();
        all
    };
    let before = listing(dir);
    let refused = TestLog::open(dir, small_segments(), opening).await;
    let Err(LogError::RecordsMissing {
        what, from, up_to, ..
    }) = refused.map(|_| ())
    else {
        panic!("accepted")
    };
    assert_eq!(listing(dir), before, "untouched");
    (what, from.0, up_to.0)
}

#[test]
fn st_12_a_log_shorter_than_a_clean_stop_left_it_is_not_accepted() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let [.., middle, last] = bases[..] else {
            panic!("{bases:?}")
        };
        assert!(bases.len() > 3, "{bases:?}");

        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, last)).expect("removed");
        assert_eq!(missing(&copy, known(40)).await, (Missing::End, last, 120));

        std::fs::write(log_file(&copy, last), b"").expect("emptied");
        assert_eq!(missing(&copy, known(40)).await, (Missing::End, last, 120));

        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, 0)).expect("removed");
        assert_eq!(
            missing(&copy, known(40)).await,
            (Missing::Start, 0, bases[1])
        );

        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, middle)).expect("removed");
        let before = bases[bases.len() - 3];
        assert!(before < middle);
        assert_eq!(
            missing(&copy, known(40)).await,
            (Missing::Between, middle, last)
        );

        // A segment that ends at a batch, short of the next one.
        copy_dir(&source, &copy);
        std::fs::write(log_file(&copy, middle), b"").expect("emptied");
        assert_eq!(
            missing(&copy, known(40)).await,
            (Missing::Between, middle, last)
        );

        for base in &bases {
            let path = log_file(&copy, *base);
            std::fs::remove_file(path).expect("removed");
        }
        assert_eq!(missing(&copy, known(40)).await, (Missing::End, 0, 120));

        // With everything in its place again, it opens.
        copy_dir(&source, &copy);
        let (test, _) = TestLog::open(&copy, small_segments(), known(40))
            .await
            .expect("opened");
        assert_eq!(test.log.written_end(), Offset(120));
    });
}

#[test]
fn what_compaction_took_away_is_not_missing() {
    on_both_engines(|dir| async move {
        let source = dir.join("source");
        let bases = closed(&source, small_segments(), 40).await;
        std::fs::remove_file(log_file(&source, bases[1])).expect("removed");
        let opening = Opening {
            gaps: Gaps::MayBe,
            ..known(40)
        };
        let (test, _) = TestLog::open(&source, small_segments(), opening)
            .await
            .expect("opened");
        assert_eq!(test.log.written_end(), Offset(120));
    });
}

#[test]
fn st_5_an_empty_last_segment_does_not_stand_for_records_that_a_loss_of_power_took() {
    on_both_engines(|dir| async move {
        let source = dir.join("source");
        let bases = closed(&source, small_segments(), 40).await;
        let [.., before, lost, last] = bases[..] else {
            panic!("few segments")
        };
        std::fs::remove_file(log_file(&source, lost)).expect("removed");
        let crash = |recovery_point| Opening {
            gaps: Gaps::MayBe,
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(recovery_point),
            })
        };
        for zeros in [0, 4_096] {
            let copy = dir.join(format!("copy {zeros}"));
            copy_dir(&source, &copy);
            edit(&log_file(&copy, last), |bytes| *bytes = vec![0; zeros]);
            let (test, report) = TestLog::open(&copy, small_segments(), crash(before))
                .await
                .expect("opened");
            assert_eq!(test.log.written_end(), Offset(lost), "{zeros} zeros");
            assert_eq!(report.segments_removed, 1);
            test.fill(1).await;
            assert_eq!(test.log.written_end(), Offset(lost + 3));
        }
        // With a batch in it compaction may have taken them, as from a leader whose batches were copied.
        let (test, _) = TestLog::open(&source, small_segments(), crash(before))
            .await
            .expect("opened");
        assert_eq!(test.log.written_end(), Offset(120));
    });
}

#[test]
fn st_5_a_hole_above_what_was_compacted_is_not_taken_for_compaction() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let [_, second, lost, next, ..] = bases[..] else {
            panic!("few segments")
        };
        std::fs::remove_file(log_file(&source, lost)).expect("removed");
        let crash = |compacted_to: Option<i64>, recovery_point| Opening {
            gaps: Gaps::MayBe,
            compacted_to: compacted_to.map(Offset),
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(recovery_point),
            })
        };
        for (opening, end) in [
            (crash(Some(second), second), lost),
            (crash(Some(lost), lost), lost),
            // It may have gone through there.
            (crash(Some(next), second), 120),
            (crash(None, second), 120),
            // What is below was looked at long ago, with a checkpoint that may be gone since.
            (crash(Some(second), next), 120),
        ] {
            copy_dir(&source, &copy);
            let opened = TestLog::open(&copy, small_segments(), opening).await;
            let (test, report) = opened.expect("opened");
            assert_eq!(test.log.written_end(), Offset(end), "{opening:?}");
            assert_eq!(report.segments_removed > 0, end == lost);
        }
        // A kill takes no segment.
        copy_dir(&source, &copy);
        let killed = Opening {
            unwritten: Unwritten::LastWrite,
            ..crash(Some(second), second)
        };
        assert_eq!(missing(&copy, killed).await, (Missing::Between, lost, next));
    });
}

#[test]
fn st_12_after_a_loss_of_power_the_first_segment_is_not_taken_for_retention() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let crash = |recovery_point| {
            Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(recovery_point),
            })
        };
        let begins = async |opening: Opening| {
            let opened = TestLog::open(&copy, small_segments(), opening).await;
            opened.expect("opened").0.log.start_offset()
        };
        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, 0)).expect("removed");
        for recovery_point in [bases[1], 120] {
            let told = missing(&copy, crash(recovery_point)).await;
            assert_eq!(told, (Missing::Start, 0, bases[1]));
        }
        // Its name may not have been on the disk.
        assert_eq!(begins(crash(bases[1] - 1)).await, Offset(bases[1]));
        // Retention was there, and came half-way.
        for half in [true, false] {
            copy_dir(&source, &copy);
            for suffix in ["log", "index"].iter().take(if half { 1 } else { 2 }) {
                let gone = file(&copy, 0, suffix);
                let aside = gone.with_extension(format!("{suffix}.deleted"));
                std::fs::rename(gone, aside).expect("renamed");
            }
            assert_eq!(begins(crash(120)).await, Offset(bases[1]));
        }
        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, 0)).expect("removed");
        let kept = Opening {
            log_start: Some(Offset(bases[1])),
            ..crash(120)
        };
        assert_eq!(begins(kept).await, Offset(bases[1]));
        // Without its indexes, too, where the checkpoint is to be believed.
        copy_dir(&source, &copy);
        for suffix in ["log", "index", "timeindex"] {
            std::fs::remove_file(file(&copy, 0, suffix)).expect("removed");
        }
        assert_eq!(begins(crash(120)).await, Offset(bases[1]));
        copy_dir(&source, &copy);
        for suffix in ["log", "index", "timeindex"] {
            std::fs::remove_file(file(&copy, 0, suffix)).expect("removed");
        }
        let from = |kept_from| Opening {
            log_start: Some(Offset(kept_from)),
            kept_from: Some(Offset(kept_from)),
            ..crash(120)
        };
        let told = missing(&copy, from(2)).await;
        assert_eq!(told, (Missing::Start, 2, bases[1]));
        assert_eq!(begins(from(bases[1])).await, Offset(bases[1]));
    });
}

/// Kafka's checkpoint has no checksum.
#[test]
fn st_13_a_log_start_above_ours_counts_up_to_the_first_segment() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let crash = Recovery::AfterCrash {
            recovery_point: Offset(120),
        };
        for recovery in [Recovery::AfterCleanStop, crash] {
            let opening = Opening {
                log_start: Some(Offset(0)),
                higher_start: Some(Offset(bases[1] + 1)),
                known_end: Some(Offset(120)),
                gaps: Gaps::Never,
                ..Opening::from(recovery)
            };
            // A flipped digit: all is there.
            copy_dir(&source, &copy);
            let (test, _) = TestLog::open(&copy, small_segments(), opening)
                .await
                .expect("opened");
            assert_eq!(test.log.start_offset(), Offset(0), "{recovery:?}");
            test.log.close().await.expect("closed");
            // Kafka had the directory, and removed what was below.
            copy_dir(&source, &copy);
            for suffix in ["log", "index", "timeindex"] {
                std::fs::remove_file(file(&copy, 0, suffix)).expect("removed");
            }
            let (test, _) = TestLog::open(&copy, small_segments(), opening)
                .await
                .expect("opened");
            assert_eq!(test.log.start_offset(), Offset(bases[1]), "{recovery:?}");
            test.log.close().await.expect("closed");
        }
    });
}

#[test]
fn st_5_a_segment_lost_in_a_crash_ends_the_log_unless_it_was_on_the_disk() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let crash = |recovery_point| Opening {
            gaps: Gaps::Never,
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(recovery_point),
            })
        };
        copy_dir(&source, &copy);
        std::fs::remove_file(log_file(&copy, bases[2])).expect("removed");
        for recovery_point in [bases[2] + 1, 120] {
            assert_eq!(
                missing(&copy, crash(recovery_point)).await,
                (Missing::Between, bases[2], bases[3])
            );
        }
        let (test, report) = TestLog::open(&copy, small_segments(), crash(bases[2]))
            .await
            .expect("opened");
        assert_eq!(test.log.written_end(), Offset(bases[2]));
        assert_eq!(report.segments_removed, bases.len() - 3);
        // What was closed before is the active segment now: it takes appends.
        let active = Rc::clone(test.log.inner.state.borrow().active());
        assert_eq!(active.base, Offset(bases[1]));
        assert!(active.warm_now().is_some(), "its file is open");
        test.fill(1).await;
        assert_eq!(test.log.written_end(), Offset(bases[2] + 3));
    });
}

/// R7 goes before ST-12: what is below a recovery point was on the disk, however the process ended.
#[test]
fn r7_a_log_that_lost_what_is_below_its_recovery_point_is_not_accepted_after_a_crash() {
    on_both_engines(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let [.., middle, last] = bases[..] else {
            panic!("{bases:?}")
        };
        let crash = |recovery_point| Opening {
            log_start: Some(Offset(0)),
            gaps: Gaps::Never,
            ..Opening::from(Recovery::AfterCrash {
                recovery_point: Offset(recovery_point),
            })
        };
        let whole = std::fs::read(log_file(&source, last)).expect("a segment");
        let first = BatchHeader::parse(&whole).expect("a batch");
        let border = first.total_bytes();
        assert!(border < whole.len());
        for harm in [None, Some(&whole[..0]), Some(&whole[..border])] {
            copy_dir(&source, &copy);
            match harm {
                None => std::fs::remove_file(log_file(&copy, last)).expect("removed"),
                Some(left) => std::fs::write(log_file(&copy, last), left).expect("cut"),
            }
            let (what, from, up_to) = missing(&copy, crash(120)).await;
            assert_eq!((what, up_to), (Missing::End, 120), "{harm:?}");
            assert!(from >= last && from < 120, "{from}");
            // Above the recovery point a crash may take anything.
            let opened = TestLog::open(&copy, small_segments(), crash(last)).await;
            assert_eq!(opened.expect("opened").0.log.written_end(), Offset(from));
        }
        for base in [middle, bases[1]] {
            copy_dir(&source, &copy);
            std::fs::remove_file(log_file(&copy, base)).expect("removed");
            let (what, ..) = missing(&copy, crash(120)).await;
            assert_eq!(what, Missing::Between, "{base}");
        }
        copy_dir(&source, &copy);
        for base in &bases {
            std::fs::remove_file(log_file(&copy, *base)).expect("removed");
        }
        assert_eq!(missing(&copy, crash(120)).await, (Missing::End, 0, 120));
        // What has no name yet is what is left of it, and stays.
        std::fs::write(copy.join("t-0").join(NEXT_SEGMENT), &whole).expect("written");
        drop(TestLog::open(&copy, small_segments(), crash(120)).await);
        let kept = std::fs::read(log_file(&copy, last)).expect("a segment");
        assert!(kept == whole);
        std::fs::remove_file(log_file(&copy, last)).expect("removed");
        // All that was on the disk had been deleted on request.
        let emptied = Opening {
            log_start: Some(Offset(120)),
            ..crash(120)
        };
        let opened = TestLog::open(&copy, small_segments(), emptied).await;
        let end = opened.expect("opened").0.log.written_end();
        assert_eq!(end, Offset(120));
    });
}

/// ST-18: one log's failed fsync is the directory's, and every log in it is told.
#[test]
fn st_18_no_log_of_a_directory_acknowledges_after_a_failed_sync() {
    on_both_engines(|dir| async move {
        let options = small_segments();
        let [one, other] = [dir.join("one"), dir.join("other")];
        for parent in [&one, &other] {
            std::fs::create_dir(parent).expect("a directory");
        }
        let failing = TestLog::create(&one, options.clone()).await;
        let healthy = TestLog::create(&other, options).await;
        healthy.fill(2).await;
        healthy.append(3);
        let error = std::io::Error::from_raw_os_error(5);
        let path = log_file(&one, 0);
        let failed = failing.log.or_offline::<()>("fdatasync", &path, Err(error));
        assert!(failed.is_err() && healthy.log.is_offline());
        healthy.settle().await;
        let is_offline = |event: &LogEvent| {
            matches!(
                event,
                LogEvent::Failed {
                    from: Offset(6),
                    error: AppendError::Offline(_)
                }
            )
        };
        assert!(healthy.events.borrow().last().is_some_and(is_offline));
        healthy.append(3);
        healthy.settle().await;
        assert_eq!(healthy.log.written_end(), Offset(6));
        let read = healthy.log.read_plan(Offset(0), Offset(6), 100).await;
        assert!(matches!(read, Err(ReadError::Offline { .. })));
        assert!(matches!(
            healthy.log.flush().await,
            Err(LogError::Offline { .. })
        ));
        assert!(matches!(
            healthy.log.close().await,
            Err(LogError::Offline { .. })
        ));
    });
}

/// Opens what a crash left, which must be refused for a damage, and looks that nothing was changed.
async fn damage_after_crash(dir: &Path, recovery_point: i64) -> LogError {
    let files = || {
        let logs = std::fs::read_dir(dir.join("t-0")).expect("a directory");
        let mut all: Vec<_> = logs
            .map(|entry| entry.expect("an entry").path())
            .map(|path| (std::fs::read(&path).expect("a file"), path))
            .collect();
        all.sort();
        all
    };
    let before = files();
    let opening = Opening::from(Recovery::AfterCrash {
        recovery_point: Offset(recovery_point),
    });
    let refused = TestLog::open(dir, small_segments(), opening).await;
    let Err(error) = refused.map(|_| ()) else {
        panic!("accepted")
    };
    assert!(error.is_damage(), "{error}");
    assert_eq!(files(), before, "untouched");
    error
}

#[test]
fn r7_a_segment_in_anothers_place_is_no_torn_end() {
    on_plain_engine(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        assert!(bases.len() >= 4, "{bases:?}");
        for (from, to) in [(1, 2), (2, 1), (0, bases.len() - 1), (2, 0)] {
            copy_dir(&source, &copy);
            let (from, to) = (log_file(&copy, bases[from]), log_file(&copy, bases[to]));
            std::fs::copy(&from, &to).expect("copied");
            let error = damage_after_crash(&copy, 0).await;
            let LogError::OutOfPlace { path, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(path, to);
        }
    });
}

#[test]
fn r7_a_raised_offset_below_the_recovery_point_is_no_torn_end() {
    on_plain_engine(|dir| async move {
        let (source, copy) = (dir.join("source"), dir.join("copy"));
        let bases = closed(&source, small_segments(), 40).await;
        let bytes = std::fs::read(log_file(&source, bases[1])).expect("a file");
        let first = BatchHeader::parse(&bytes).expect("a batch");
        let second = first.total_bytes();
        // Far beyond the end of all segments, and then the first batch, which begins its segment.
        for (position, offset) in [(second, bases[1] + 3), (0, bases[1])] {
            copy_dir(&source, &copy);
            edit(&log_file(&copy, bases[1]), |bytes| bytes[position + 5] ^= 1);
            let error = damage_after_crash(&copy, offset + 1).await;
            assert!(
                error.to_string().contains(&format!("{:020}.log", bases[1])),
                "{error}"
            );
        }
    });
}
