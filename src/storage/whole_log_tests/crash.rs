//! What a crash leaves, and what recovery makes of it.

use std::path::Path;

use thalweg_replica::{EpochCache, EpochEntry};
use thalweg_types::{LeaderEpoch, Offset};

use super::{
    TestLog, copy_dir, edit, file, log_file, numbered, on_both_engines, on_plain_engine,
    small_segments,
};
use crate::{BadBatch, LogError, LogOptions, Opening, Recovery, Unwritten};

const FROM_ZERO: Recovery = Recovery::AfterCrash {
    recovery_point: Offset(0),
};

/// A log of `batches` batches of 3 records, left as a killed process leaves it.
async fn crashed(dir: &Path, options: LogOptions, batches: usize) {
    let test = TestLog::create(dir, options).await;
    test.fill(batches).await;
    test.kill().await;
}

/// Bytes of the first batches of such a log.
fn expected(batches: i64) -> Vec<u8> {
    (0..batches)
        .flat_map(|i| numbered(Offset(i * 3), LeaderEpoch(0), 3).bytes)
        .collect()
}

#[test]
fn st_1_torn_tail_cut_at_every_byte() {
    on_plain_engine(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        crashed(&source, LogOptions::default(), 3).await;
        let (two, three) = (expected(2).len(), expected(3).len());
        for length in two..=three {
            let copy = dir.join("copy");
            copy_dir(&source, &copy);
            edit(&log_file(&copy, 0), |bytes| bytes.truncate(length));
            let opened = TestLog::open(&copy, LogOptions::default(), FROM_ZERO).await;
            let (test, report) = opened.expect("opened");
            let whole = if length == three { 3 } else { 2 };
            assert_eq!(test.log.written_end(), Offset(whole * 3), "{length}");
            let kept = std::fs::read(log_file(&copy, 0)).expect("a file");
            assert_eq!(kept, expected(whole), "{length}");
            assert_eq!(report.cut.is_some(), length != two && length != three);
            assert_eq!(report.bytes_removed, (length - kept.len()) as u64);
            // It takes appends and is whole after the next crash.
            test.fill(1).await;
            drop(test);
            let opened = TestLog::open(&copy, LogOptions::default(), FROM_ZERO).await;
            let (test, report) = opened.expect("opened");
            assert_eq!(report.cut, None);
            assert_eq!(test.read_all().await, expected(whole + 1));
        }
    });
}

#[test]
fn st_2_zeros_noise_and_stale_batches_end_the_log() {
    on_both_engines(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        crashed(&source, LogOptions::default(), 3).await;
        let stale = numbered(Offset(3), LeaderEpoch(0), 3).bytes.to_vec();
        let noise: Vec<u8> = (0..5_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for (tail, what) in [
            (vec![0; 1], "one zero"),
            (vec![0; 70], "a header of zeros"),
            (vec![0; 3_000_000], "many zeros"),
            (noise, "noise"),
            (stale, "an old batch"),
        ] {
            let copy = dir.join("copy");
            copy_dir(&source, &copy);
            edit(&log_file(&copy, 0), |bytes| bytes.extend(&tail));
            let opened = TestLog::open(&copy, LogOptions::default(), FROM_ZERO).await;
            let (test, report) = opened.expect(what);
            assert_eq!(test.log.written_end(), Offset(9), "{what}");
            assert_eq!(test.read_all().await, expected(3), "{what}");
            let cut = report.cut.expect(what);
            assert_eq!(cut.position, expected(3).len() as u64);
            let is_zeros = cut.reason == BadBatch::Zeros;
            assert_eq!(is_zeros, what.ends_with("zeros"), "{what}: {}", cut.reason);
        }
    });
}

#[test]
fn st_3_a_flipped_bit_shortens_the_tail_or_takes_synced_data_offline() {
    on_plain_engine(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        crashed(&source, LogOptions::default(), 3).await;
        let (one, two) = (expected(1).len(), expected(2).len());
        for at in one..two {
            // Base offset and leader epoch lie outside the checksum: only a value that runs back is seen.
            if at - one < 8 || (12..16).contains(&(at - one)) {
                continue;
            }
            let copy = dir.join("copy");
            copy_dir(&source, &copy);
            edit(&log_file(&copy, 0), |bytes| bytes[at] ^= 0x10);
            let damaged = std::fs::read(log_file(&copy, 0)).expect("a file");
            // Batches 0 and 1 were on the disk: nothing is cut.
            let recovery = Recovery::AfterCrash {
                recovery_point: Offset(6),
            };
            let refused = TestLog::open(&copy, LogOptions::default(), recovery).await;
            let Err(LogError::DamagedBelowRecoveryPoint {
                position, offset, ..
            }) = refused.map(|_| ())
            else {
                panic!("byte {at}")
            };
            assert_eq!((position, offset), (one as u64, Offset(3)));
            assert_eq!(std::fs::read(log_file(&copy, 0)).expect("a file"), damaged);
            // Only batch 0 was: the rest goes.
            let recovery = Recovery::AfterCrash {
                recovery_point: Offset(3),
            };
            let opened = TestLog::open(&copy, LogOptions::default(), recovery).await;
            let (test, _) = opened.expect("opened");
            assert_eq!(test.log.written_end(), Offset(3), "byte {at}");
            assert_eq!(test.read_all().await, expected(1));
        }
    });
}

#[test]
fn st_4_offsets_and_epochs_that_run_back_are_not_accepted() {
    on_both_engines(|dir| async move {
        for (base, epoch, accepted) in [
            (6, 5, true),
            (7, 5, true),
            (6, 6, true),
            (5, 5, false),
            (0, 9, false),
            (6, 4, false),
        ] {
            let _ = std::fs::remove_dir_all(dir.join("t-0"));
            let test = TestLog::create(&dir, LogOptions::default()).await;
            for base in [0, 3] {
                test.log.append(numbered(Offset(base), LeaderEpoch(5), 3));
            }
            test.settle().await;
            drop(test);
            let next = numbered(Offset(base), LeaderEpoch(epoch), 3);
            edit(&log_file(&dir, 0), |bytes| bytes.extend(&next.bytes));
            let opened = TestLog::open(&dir, LogOptions::default(), FROM_ZERO).await;
            let (test, report) = opened.expect("opened");
            let end = if accepted { base + 3 } else { 6 };
            assert_eq!(test.log.written_end(), Offset(end), "{base} {epoch}");
            match report.cut.map(|cut| cut.reason) {
                None => assert!(accepted),
                Some(BadBatch::OffsetRunsBack { .. }) => assert!(base < 6),
                Some(BadBatch::EpochRunsBack { .. }) => assert!(epoch < 5),
                Some(other) => panic!("{other}"),
            }
        }
    });
}

#[test]
fn st_5_only_segments_from_the_recovery_point_on_are_scanned_and_no_hole_is_left() {
    on_both_engines(|dir| async move {
        let source = dir.join("source");
        std::fs::create_dir(&source).expect("a directory");
        let test = TestLog::create(&source, small_segments()).await;
        test.fill(60).await;
        let bases = test.bases();
        test.log.flush().await.expect("flushed");
        drop(test);
        assert!(bases.len() >= 5, "{bases:?}");
        let recovery = Recovery::AfterCrash {
            recovery_point: Offset(bases[2] + 1),
        };

        // Damage below what is scanned is not found at start: reads will.
        let copy = dir.join("copy");
        copy_dir(&source, &copy);
        edit(&log_file(&copy, bases[0]), |bytes| bytes[40] ^= 1);
        let (test, report) = TestLog::open(&copy, small_segments(), recovery)
            .await
            .expect("opened");
        assert_eq!(report.segments_scanned, bases.len() - 2);
        assert_eq!(report.cut, None);
        assert_eq!(test.log.written_end(), Offset(180));
        assert_eq!(test.log.durable_end(), Offset(bases[2] + 1));
        drop(test);

        // Damage in the middle of what is scanned: that segment is cut, the later ones go.
        copy_dir(&source, &copy);
        let length = std::fs::metadata(log_file(&copy, bases[3]))
            .expect("a file")
            .len() as usize;
        edit(&log_file(&copy, bases[3]), |bytes| bytes[length - 1] ^= 1);
        let (test, report) = TestLog::open(&copy, small_segments(), recovery)
            .await
            .expect("opened");
        assert_eq!(test.log.written_end(), Offset(bases[4] - 3));
        assert_eq!(report.segments_removed, bases.len() - 4);
        assert_eq!(report.segments, 4);
        for base in &bases[4..] {
            for suffix in ["log", "index", "timeindex"] {
                assert!(!file(&copy, *base, suffix).exists(), "{base} {suffix}");
            }
        }
        assert_eq!(test.read_all().await, expected((bases[4] - 3) / 3));
        test.fill(5).await;
        assert_eq!(test.read_all().await, expected((bases[4] - 3) / 3 + 5));
    });
}

#[test]
fn st_11_leader_epochs_are_rebuilt_from_batches() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, small_segments()).await;
        let starts = [(0, 1), (30, 4), (60, 9)];
        for base in (0..90).step_by(3) {
            let epoch = starts
                .iter()
                .rfind(|(start, _)| *start <= base)
                .map_or(0, |(_, e)| *e);
            test.log
                .append(numbered(Offset(base), LeaderEpoch(epoch), 3));
            test.settle().await;
        }
        test.log.close().await.expect("closed");
        drop(test);
        let all = starts.map(|(start, epoch)| EpochEntry {
            epoch: LeaderEpoch(epoch),
            start: Offset(start),
        });
        let path = dir.join("t-0").join("leader-epoch-checkpoint");
        for (content, rebuilt) in [
            (None, true),
            (Some("".to_owned()), true),
            (Some("0\n7\n1 0\n".to_owned()), true),
            (Some("garbage".to_owned()), true),
            // Of numbers that are none of this log.
            (Some("0\n3\n1 0\n4 30\n9000 60\n".to_owned()), true),
            (Some("0\n3\n1 0\n4 30\n8 60\n".to_owned()), true),
            (Some("0\n2\n1 0\n12 30\n".to_owned()), true),
            (Some("0\n3\n1 0\n9 30\n4 60\n".to_owned()), true),
            // Beyond the end of the log, from a longer life.
            (Some("0\n4\n1 0\n4 30\n9 60\n11 500\n".to_owned()), false),
        ] {
            match &content {
                None => std::fs::remove_file(&path).expect("removed"),
                Some(text) => std::fs::write(&path, text).expect("written"),
            }
            let opening = Opening {
                epoch_max: Some(LeaderEpoch(11)),
                ..Opening::from(Recovery::AfterCleanStop)
            };
            let opened = TestLog::open(&dir, small_segments(), opening).await;
            let (_, report) = opened.expect("opened");
            assert_eq!(report.epochs.entries(), all, "{content:?}");
            assert_eq!(report.epochs_rebuilt, rebuilt, "{content:?}");
            let text = std::fs::read_to_string(&path).expect("a file");
            assert_eq!(text, "0\n3\n1 0\n4 30\n9 60\n", "{content:?}");
        }
        // After a crash the file may miss the last epochs, or all.
        for content in ["0\n1\n1 0\n", "0\n0\n"] {
            std::fs::write(&path, content).expect("written");
            let (_, report) = TestLog::open(&dir, small_segments(), FROM_ZERO)
                .await
                .expect("opened");
            assert_eq!(report.epochs.entries(), all, "{content:?}");
        }
    });
}

/// The batch that a start reads anyway says nothing of the epochs of a log that begins behind it.
#[test]
fn st_11_a_log_start_does_not_contradict_the_leader_epochs() {
    on_plain_engine(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        let mut epochs = EpochCache::default();
        for epoch in [2, 5] {
            let base = test.log.assigned_end();
            let _ = epochs.assign(LeaderEpoch(epoch), base);
            test.log.append(numbered(base, LeaderEpoch(epoch), 3));
        }
        test.log.store_epochs(&epochs).await.expect("stored");
        test.kill().await;
        for recovery in [FROM_ZERO, Recovery::AfterCleanStop] {
            let opening = Opening {
                log_start: Some(Offset(4)),
                ..Opening::from(recovery)
            };
            let opened = TestLog::open(&dir, LogOptions::default(), opening).await;
            let (test, report) = opened.expect("opened");
            assert!(!report.epochs_rebuilt, "{recovery:?}");
            let known = EpochEntry {
                epoch: LeaderEpoch(5),
                start: Offset(4),
            };
            assert_eq!(report.epochs.entries(), [known]);
            test.kill().await;
        }
    });
}

#[test]
fn st_13_a_log_that_ends_below_its_start_is_emptied() {
    on_both_engines(|dir| async move {
        crashed(&dir, small_segments(), 20).await;
        let opening = Opening {
            log_start: Some(Offset(500)),
            ..Opening::from(FROM_ZERO)
        };
        let (test, report) = TestLog::open(&dir, small_segments(), opening)
            .await
            .expect("opened");
        assert!(report.log_start_ahead);
        assert_eq!(test.log.start_offset(), Offset(500));
        assert_eq!(test.log.written_end(), Offset(500));
        assert_eq!(test.log.segment_count(), 1);
        test.log.append(numbered(Offset(500), LeaderEpoch(0), 3));
        test.settle().await;
        assert_eq!(test.log.written_end(), Offset(503));
        drop(test);
        // A start inside of the log only hides what is below.
        let opening = Opening {
            log_start: Some(Offset(502)),
            ..Opening::from(FROM_ZERO)
        };
        let (test, report) = TestLog::open(&dir, small_segments(), opening)
            .await
            .expect("opened");
        assert!(!report.log_start_ahead);
        assert_eq!(test.log.start_offset(), Offset(502));
        assert!(
            test.log
                .read_plan(Offset(501), Offset(503), 100)
                .await
                .is_err()
        );
    });
}

#[test]
fn st_14_left_overs_of_a_roll_and_of_deletes_do_no_harm() {
    on_both_engines(|dir| async move {
        crashed(&dir, LogOptions::default(), 4).await;
        // The file of the next segment was made, nothing was written to it.
        std::fs::write(log_file(&dir, 12), b"").expect("written");
        for left in ["deleted", "index.deleted", "log.cleaned", "timeindex.tmp"] {
            std::fs::write(file(&dir, 0, left), b"x").expect("written");
        }
        let (test, report) = TestLog::open(&dir, LogOptions::default(), FROM_ZERO)
            .await
            .expect("opened");
        assert_eq!(report.leftovers_removed, 4);
        assert_eq!(test.log.written_end(), Offset(12));
        assert_eq!(test.log.segment_count(), 2);
        test.fill(3).await;
        assert_eq!(test.read_all().await, expected(7));
        drop(test);
        // A compacted segment that is not whole takes no place of one that is there.
        std::fs::write(file(&dir, 0, "log.swap"), b"x").expect("written");
        let (test, _) = TestLog::open(&dir, LogOptions::default(), FROM_ZERO)
            .await
            .expect("opened");
        assert_eq!(test.read_all().await, expected(7));
        assert!(!file(&dir, 0, "log.swap").exists());
    });
}

#[test]
fn st_15_a_directory_that_a_crash_left_half_made_opens_as_an_empty_log() {
    on_both_engines(|dir| async move {
        for files in [
            &[][..],
            &["partition.metadata"],
            &["leader-epoch-checkpoint"],
        ] {
            let partition = dir.join("t-0");
            let _ = std::fs::remove_dir_all(&partition);
            std::fs::create_dir(&partition).expect("a directory");
            for name in files {
                std::fs::write(partition.join(name), b"").expect("written");
            }
            let (test, _) = TestLog::open(&dir, LogOptions::default(), FROM_ZERO)
                .await
                .expect("opened");
            assert_eq!(test.log.topic_id(), None);
            test.log
                .store_topic_id(super::TOPIC_ID)
                .await
                .expect("stored");
            test.fill(2).await;
            test.log.close().await.expect("closed");
            let reopened =
                TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop).await;
            let (test, _) = reopened.expect("opened");
            assert_eq!(test.log.topic_id(), Some(super::TOPIC_ID));
            assert_eq!(test.read_all().await, expected(2));
        }
    });
}

#[test]
fn st_29_a_segment_whose_name_and_batches_disagree_is_not_served() {
    on_both_engines(|dir| async move {
        crashed(&dir, LogOptions::default(), 2).await;
        let wrong = log_file(&dir, 100);
        std::fs::rename(log_file(&dir, 0), &wrong).expect("renamed");
        let clean = TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop)
            .await
            .map(|_| ());
        assert!(matches!(
            clean,
            Err(LogError::DamagedBelowRecoveryPoint { .. })
        ));
        // The largest name that parses, and a batch that would leave the range of offsets.
        let far = log_file(&dir, i64::MAX);
        std::fs::remove_file(&wrong).expect("removed");
        let mut batch = numbered(Offset(0), LeaderEpoch(0), 3).bytes.to_vec();
        batch[..8].copy_from_slice(&(i64::MAX - 1).to_be_bytes());
        std::fs::write(&far, &batch).expect("written");
        let opened = TestLog::open(&dir, LogOptions::default(), FROM_ZERO).await;
        assert_eq!(
            opened.expect("opened").0.log.written_end(),
            Offset(i64::MAX)
        );
    });
}

#[test]
fn damage_after_a_clean_stop_is_no_torn_tail() {
    on_both_engines(|dir| async move {
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.fill(3).await;
        test.log.close().await.expect("closed");
        drop(test);
        edit(&log_file(&dir, 0), |bytes| {
            bytes.pop();
        });
        let before = std::fs::read(log_file(&dir, 0)).expect("a file");
        let refused = TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop)
            .await
            .map(|_| ());
        assert!(matches!(
            refused,
            Err(LogError::DamagedBelowRecoveryPoint { .. })
        ));
        assert_eq!(std::fs::read(log_file(&dir, 0)).expect("a file"), before);
    });
}

#[test]
fn st_1_no_bytes_make_recovery_panic() {
    on_plain_engine(|dir| async move {
        let mut dice = super::Dice::new(11);
        for round in 0..150 {
            let partition = dir.join("t-0");
            let _ = std::fs::remove_dir_all(&partition);
            std::fs::create_dir(&partition).expect("a directory");
            let mut bytes = expected(4);
            for _ in 0..=dice.below(6) {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] = dice.below(256) as u8;
            }
            std::fs::write(log_file(&dir, 0), &bytes).expect("written");
            for suffix in ["index", "timeindex"] {
                let noise: Vec<u8> = (0..dice.below(40)).map(|_| dice.below(256) as u8).collect();
                std::fs::write(file(&dir, 0, suffix), noise).expect("written");
            }
            let clean = TestLog::open(&dir, LogOptions::default(), Recovery::AfterCleanStop).await;
            if let Ok((test, _)) = clean {
                let _ = test.log.max_timestamp_offset().await;
                let _ = test.log.read_plan(Offset(0), Offset(i64::MAX), 100).await;
                // What it met is looked at in the background, which would write into the next life.
                let _ = test.log.close().await;
            }
            let opened = TestLog::open(&dir, LogOptions::default(), FROM_ZERO).await;
            let (test, _) = match opened {
                Ok(opened) => opened,
                // An offset that was changed in a batch that is whole.
                Err(LogError::OutOfPlace { .. }) => continue,
                Err(error) => panic!("round {round}: {error}"),
            };
            let end = test.log.written_end();
            let _ = test.log.max_timestamp_offset().await;
            let plan = test
                .log
                .read_plan(Offset(0), end, u32::MAX)
                .await
                .expect("a plan");
            assert!(plan.next_offset <= end);
        }
    });
}

#[test]
fn what_is_appended_after_a_cut_is_flushed() {
    on_both_engines(|dir| async move {
        crashed(&dir, LogOptions::default(), 20).await;
        let path = log_file(&dir, 0);
        let torn = expected(10).len();
        edit(&path, |bytes| bytes[torn + 70] ^= 1);
        let opened = TestLog::open(&dir, LogOptions::default(), FROM_ZERO).await;
        let (test, report) = opened.expect("opened");
        assert!(report.cut.is_some());
        test.log.flush().await.expect("flushed");
        assert_eq!(test.log.unflushed_bytes(), 0);
        // It lies where the cut bytes were.
        let batch = test.append(3);
        test.settle().await;
        assert_eq!(test.log.unflushed_bytes(), batch.len() as u64);
        test.log.flush().await.expect("flushed");
        assert_eq!(test.log.unflushed_bytes(), 0);
    });
}

#[test]
fn rp_59_a_bad_batch_between_good_ones_is_damage_where_every_append_was_synced() {
    on_both_engines(|dir| async move {
        crashed(&dir, LogOptions::default(), 20).await;
        let path = log_file(&dir, 0);
        let whole = expected(20);
        assert_eq!(std::fs::read(&path).expect("read"), whole);
        let (middle, last) = (expected(10).len(), expected(19).len());
        let opening = Opening {
            unwritten: Unwritten::LastWrite,
            cleaned_to: None,
            ..Opening::from(FROM_ZERO)
        };
        // Body, length field and magic byte of a batch in the middle; the batch behind it is found
        // whether or not the way to it is.
        for byte in [70, 8, 16] {
            let mut flipped = whole.clone();
            flipped[middle + byte] ^= 0x41;
            std::fs::write(&path, &flipped).expect("written");
            let refused = TestLog::open(&dir, LogOptions::default(), opening)
                .await
                .map(|_| ());
            assert!(
                matches!(refused, Err(LogError::DamagedBeforeWhole { .. })),
                "byte {byte}: {refused:?}"
            );
            assert_eq!(std::fs::read(&path).expect("read"), flipped, "untouched");
        }
        // The last batch may be torn: nobody was told of it.
        for cut in [last + 1, last + 30, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).expect("written");
            let (test, report) = TestLog::open(&dir, LogOptions::default(), opening)
                .await
                .expect("opened");
            assert!(report.cut.is_some());
            drop(test);
            assert_eq!(std::fs::read(&path).expect("read"), whole[..last]);
        }
    });
}
