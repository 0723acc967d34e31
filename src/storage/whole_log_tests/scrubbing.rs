//! Damage in closed segments: found, kept from readers, forgotten when it is gone.

use std::path::Path;
use std::time::Duration;

use thalweg_protocol::records::BatchHeader;
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_reactor::time;
use thalweg_replica::Producers;
use thalweg_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{
    Dice, TestLog, bytes_of, edit, file, log_file, on_both_engines, on_plain_engine, small_segments,
};
use crate::compaction::CompactionLimits;
use crate::quarantine::QUARANTINE;
use crate::{DamagedRange, Opening, ReadError, Recovery, Scrubbed, Scrubber};

const FAST: u64 = u64::MAX;

/// Where the batches of a segment begin, by offset.
fn batches(parent: &Path, base: i64) -> Vec<(i64, usize, usize)> {
    let bytes = std::fs::read(log_file(parent, base)).expect("a segment");
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        found.push((header.base_offset.0, at, header.total_bytes()));
        at += header.total_bytes();
        if at == bytes.len() {
            break;
        }
    }
    found
}

impl TestLog {
    /// Checks everything that is closed, once.
    async fn scrub(&self) -> Scrubbed {
        let mut sum = Scrubbed::default();
        for segment in &self.log.inner.state.borrow().segments {
            segment.looked_at.set(None);
        }
        while let Some(one) = self
            .log
            .scrub_next(Duration::from_secs(3_600), FAST)
            .await
            .expect("readable")
        {
            sum.bytes += one.bytes;
            sum.damages += one.damages;
            sum.indexes += one.indexes;
            sum.snapshots += one.snapshots;
        }
        // One that somebody met damage in is looked at apart, and withholds more than that until then.
        let is_looked_at = || {
            let segments = &self.log.inner.state.borrow().segments;
            segments.iter().any(|segment| segment.is_suspect.get())
        };
        while is_looked_at() {
            time::sleep(Duration::from_millis(1)).await;
        }
        sum
    }

    /// Base offsets of the batches that readers get, and the offsets at which they are refused.
    async fn served(&self) -> (Vec<i64>, Vec<i64>) {
        let (mut got, mut refused) = (Vec::new(), Vec::new());
        let (mut at, end) = (self.log.start_offset(), self.log.written_end());
        while at < end {
            match self.log.read_plan(at, end, 400).await {
                Ok(plan) => {
                    let bytes = bytes_of(&plan).await;
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let header = BatchHeader::parse(rest).expect("a batch");
                        let (batch, behind) = rest.split_at(header.total_bytes());
                        assert!(thalweg_protocol::records::crc_matches(batch));
                        got.push(header.base_offset.0);
                        rest = behind;
                    }
                    assert!(plan.next_offset > at, "no progress at {at}");
                    at = plan.next_offset;
                }
                Err(ReadError::Quarantined { next, .. }) => {
                    refused.push(at.0);
                    at = next;
                }
                Err(error) => panic!("{error}"),
            }
        }
        (got, refused)
    }

    async fn quarantined(&self) -> Vec<(i64, i64)> {
        let all = self.log.quarantined();
        all.iter()
            .map(|range| (range.first.0, range.next.0))
            .collect()
    }

    async fn cool(&self) {
        self.log.flush().await.expect("flushed");
        let state = self.log.inner.state.borrow();
        let closed = &state.segments[..state.segments.len() - 1];
        closed.iter().for_each(|segment| {
            segment.cool();
        });
        drop(state);
        self.log.inner.state.borrow_mut().tail.clear();
    }
}

async fn filled(path: &Path) -> TestLog {
    let test = TestLog::create(path, small_segments()).await;
    test.fill(60).await;
    test.log.flush().await.expect("flushed");
    test
}

fn all_but(missing: &[i64]) -> Vec<i64> {
    (0..180)
        .step_by(3)
        .filter(|base| !missing.contains(base))
        .collect()
}

#[test]
fn st_33_a_flipped_bit_is_found_and_only_its_batch_is_kept_from_readers() {
    on_both_engines(|path| async move {
        let test = filled(&path).await;
        let bases = test.bases();
        assert_eq!(test.scrub().await.damages, 0);
        let found = batches(&path, bases[1]);
        let (middle, at, bytes) = found[3];
        edit(&log_file(&path, bases[1]), |log| log[at + bytes - 1] ^= 4);
        let scrubbed = test.scrub().await;
        assert_eq!((scrubbed.damages, scrubbed.indexes), (1, 0));
        assert_eq!(
            test.log.quarantined(),
            [DamagedRange {
                bytes: at as u64..(at + bytes) as u64,
                first: Offset(middle),
                next: Offset(middle + 3),
                reason: "the checksum does not match".into(),
            }]
        );
        let (got, refused) = test.served().await;
        assert_eq!((got, refused), (all_but(&[middle]), vec![middle]));
        for inside in [middle, middle + 2] {
            let read = test.log.read_plan(Offset(inside), Offset(180), 100).await;
            let Err(ReadError::Quarantined { next, position, .. }) = read else {
                panic!("{read:?}");
            };
            assert_eq!((next.0, position), (middle + 3, at as u64));
        }
        // Known already; and whole again when the file is.
        assert_eq!(test.scrub().await.damages, 0);
        edit(&log_file(&path, bases[1]), |log| log[at + bytes - 1] ^= 4);
        test.scrub().await;
        assert_eq!(test.served().await, (all_but(&[]), vec![]));
        assert!(!path.join("t-0").join(QUARANTINE).exists());
    });
}

#[test]
fn st_33_what_was_found_is_known_after_a_restart() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let bases = test.bases();
        let first = batches(&path, bases[2])[0];
        let last = *batches(&path, bases[3]).last().expect("a batch");
        // A checksum at the begin of one segment, a length at the end of another.
        edit(&log_file(&path, bases[2]), |log| log[first.1 + 20] ^= 1);
        edit(&log_file(&path, bases[3]), |log| log[last.1 + 11] = 0xff);
        assert_eq!(test.scrub().await.damages, 2);
        let known = vec![(first.0, first.0 + 3), (last.0, last.0 + 3)];
        assert_eq!(test.quarantined().await, known);
        let wanted = (all_but(&[first.0, last.0]), vec![first.0, last.0]);
        assert_eq!(test.served().await, wanted);
        test.log.close().await.expect("closed");
        for recovery in [
            Recovery::AfterCleanStop,
            Recovery::AfterCrash {
                recovery_point: Offset(180),
            },
            Recovery::AfterCrash {
                recovery_point: Offset(0),
            },
        ] {
            let opening = Opening::from(recovery);
            let (test, report) = TestLog::open(&path, small_segments(), opening)
                .await
                .expect("opened");
            assert_eq!(report.cut, None);
            assert_eq!(test.quarantined().await, known, "{recovery:?}");
            assert_eq!(test.served().await, wanted, "{recovery:?}");
            test.scrub().await;
            assert_eq!(test.quarantined().await, known, "{recovery:?}");
            test.kill().await;
        }
    });
}

#[test]
fn st_19_a_damage_that_a_cold_read_meets_is_kept_from_the_next() {
    on_plain_engine(|path| async move {
        for (which, byte) in [(0, 16), (4, 16), (4, 9), (9, 16), (9, 5), (4, 6)] {
            let path = path.join(format!("{which}-{byte}"));
            std::fs::create_dir(&path).expect("a directory");
            let test = filled(&path).await;
            let bases = test.bases();
            test.cool().await;
            let found = batches(&path, bases[1]);
            let (base, at, _) = found[which.min(found.len() - 1)];
            // Its magic, its length, its offset: what headers show.
            edit(&log_file(&path, bases[1]), |log| log[at + byte] ^= 0x41);
            let index = [
                file(&path, bases[1], "index"),
                file(&path, bases[1], "timeindex"),
            ];
            if which != 4 {
                index
                    .iter()
                    .for_each(|index| std::fs::remove_file(index).expect("removed"));
            }
            test.served_or_met().await;
            test.scrub().await;
            let (got, refused) = test.served().await;
            assert_eq!(got, all_but(&[base]), "{which} {byte}");
            assert_eq!(refused, [base], "{which} {byte}");
            assert_eq!(test.quarantined().await, [(base, base + 3)]);
            // A look of its own may be on its way still.
            test.log.store_quarantine().await;
            assert!(path.join("t-0").join(QUARANTINE).exists());
            let before = test.log.offset_for_timestamp(TimestampMs(1_000 + base - 1));
            assert_eq!(
                before.await.expect("found").map(|hit| hit.offset.0),
                Some(base - 1)
            );
            // What may be in the damaged part is nothing that could be had.
            let inside = test.log.offset_for_timestamp(TimestampMs(1_000 + base + 1));
            assert_eq!(
                inside.await.expect("found").map(|hit| hit.offset.0),
                Some(base + 3)
            );
        }
    });
}

/// More is due than can be checked: each has its turn all the same.
#[test]
fn the_segment_that_was_checked_the_longest_ago_is_the_next() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let closed = test.bases().len() - 1;
        assert!(closed > 2);
        let checked = || {
            let state = test.log.inner.state.borrow();
            let looked = state.segments.iter().map(|s| s.looked_at.get());
            looked.collect::<Vec<_>>()
        };
        for turn in 0..2 * closed {
            let before = checked();
            let one = test.log.scrub_next(Duration::ZERO, FAST).await;
            assert!(one.expect("readable").is_some());
            let after = checked();
            let now: Vec<usize> = (0..closed).filter(|n| before[*n] != after[*n]).collect();
            assert_eq!(now, [turn % closed]);
        }
    });
}

#[test]
fn st_9_an_index_that_does_not_fit_its_log_is_made_anew() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let base = test.bases()[1];
        let wanted: Vec<_> = ["index", "timeindex"]
            .map(|kind| std::fs::read(file(&path, base, kind)).expect("an index"))
            .into();
        let (offsets, times) = (file(&path, base, "index"), file(&path, base, "timeindex"));
        // An offset, a position, cut to nothing, a timestamp, the last entry cut off.
        edit(&offsets, |bytes| bytes[3] ^= 1);
        for _ in 0..5 {
            let step = test.scrub().await;
            assert_eq!((step.indexes, step.damages), (1, 0));
            assert_eq!(std::fs::read(&offsets).expect("an index"), wanted[0]);
            assert_eq!(std::fs::read(&times).expect("an index"), wanted[1]);
            assert_eq!(test.scrub().await.indexes, 0);
            edit(&offsets, |bytes| bytes[7] ^= 1);
            assert_eq!(test.scrub().await.indexes, 1);
            edit(&times, |bytes| bytes[7] ^= 1);
            assert_eq!(test.scrub().await.indexes, 1);
            edit(&times, |bytes| bytes.truncate(bytes.len() - 12));
            assert_eq!(test.scrub().await.indexes, 1);
            edit(&offsets, |bytes| bytes.truncate(bytes.len() - 3));
        }
        test.scrub().await;
        assert_eq!(test.served().await, (all_but(&[]), vec![]));
    });
}

/// As a producer with one batch, which is known from the begin of the second segment on.
fn one_producer(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(log_file(path, 0)).expect("a segment");
    let mut header = BatchHeader::parse(&bytes).expect("a batch");
    (header.producer_id, header.producer_epoch) = (ProducerId(7), ProducerEpoch(1));
    header.base_sequence = 0;
    let mut producers = Producers::default();
    producers.replay(&header, TimestampMs(0));
    assert_eq!(producers.len(), 1);
    producers.to_snapshot()
}

#[test]
fn st_10_a_damaged_snapshot_is_made_anew_from_the_segment_before_or_removed() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let bases = test.bases();
        let snapshot = |index: usize| file(&path, bases[index], "snapshot");
        let good = one_producer(&path);
        for index in 1..4 {
            std::fs::write(snapshot(index), &good).expect("written");
        }
        assert_eq!(test.scrub().await.snapshots, 0);
        for index in [2, 3] {
            edit(&snapshot(index), |bytes| bytes[12] ^= 1);
        }
        // The third from the second, then the fourth from the third.
        let scrubbed = test.scrub().await;
        assert_eq!((scrubbed.snapshots, scrubbed.damages), (2, 0));
        for index in 1..4 {
            assert_eq!(std::fs::read(snapshot(index)).expect("there"), good);
        }
        assert_eq!(test.scrub().await.snapshots, 0);
        // Nothing is known before the first segment.
        edit(&snapshot(1), |bytes| bytes.truncate(9));
        assert_eq!(test.scrub().await.snapshots, 1);
        let empty = Producers::default().to_snapshot();
        assert_eq!(std::fs::read(snapshot(1)).expect("there"), empty);
        // None that it could begin with.
        std::fs::remove_file(snapshot(2)).expect("removed");
        edit(&snapshot(3), |bytes| bytes.push(0));
        assert_eq!(test.scrub().await.snapshots, 1);
        assert!(!snapshot(3).exists());
        assert_eq!(test.scrub().await.snapshots, 0);
    });
}

#[test]
fn a_batch_whose_offset_reaches_into_the_next_segment_is_damaged() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let base = test.bases()[1];
        let (offset, at, _) = *batches(&path, base).last().expect("a batch");
        edit(&log_file(&path, base), |log| log[at + 7] += 1);
        assert_eq!(test.scrub().await.damages, 1);
        assert_eq!(test.served().await, (all_but(&[offset]), vec![offset]));
    });
}

#[test]
fn rp_105_compaction_ends_before_a_damaged_segment() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let bases = test.bases();
        let limits = CompactionLimits {
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            stable_end: Offset(180),
            now: TimestampMs(1_000_000),
        };
        let end = test.log.dirt(limits).await.expect("told").end;
        assert_eq!(Some(&end.0), bases.last());
        let (offset, at, bytes) = batches(&path, bases[2])[1];
        edit(&log_file(&path, bases[2]), |log| log[at + bytes - 2] ^= 1);
        assert!(test.log.note_damage(Offset(offset), at as u64, "met"));
        let met = test.log.quarantined();
        assert_eq!(met.len(), 1);
        assert_eq!((met[0].bytes.start, met[0].next.0), (at as u64, bases[3]));
        let end = test.log.dirt(limits).await.expect("told").end;
        assert_eq!(end.0, bases[2]);
        test.scrub().await;
        assert_eq!(
            test.log.quarantined()[0].bytes,
            at as u64..(at + bytes) as u64
        );
        // Retention takes it with its segment.
        test.log.raise_start(Offset(bases[3]));
        let kept = crate::StartKept::Durable;
        let removed = test
            .log
            .remove_segments(Offset(bases[3]), kept, Duration::ZERO);
        assert_eq!(removed.await.expect("removed").segments, 3);
        assert_eq!(test.log.quarantined(), []);
    });
}

#[test]
fn rp_105_a_damage_met_by_the_look_for_what_is_overdue_bounds_compaction() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        let bases = test.bases();
        test.log.close().await.expect("closed");
        drop(test);
        // The length of the first batch.
        edit(&log_file(&path, bases[2]), |log| log[8] ^= 0x40);
        let opened = TestLog::open(&path, small_segments(), Recovery::AfterCleanStop).await;
        let (test, _) = opened.expect("opened");
        let limits = CompactionLimits {
            min_lag_ms: 0,
            max_lag_ms: i64::MAX - 1,
            stable_end: Offset(180),
            now: TimestampMs(1_000_000),
        };
        let dirt = test.log.dirt(limits).await.expect("told");
        assert_eq!((dirt.end.0, dirt.overdue), (bases[2], false));
        assert!(dirt.dirty_bytes > 0);
        assert_eq!(test.log.quarantined().len(), 1);
    });
}

#[test]
fn a_thread_of_its_own_checks_segments_and_leaves_the_page_cache_alone() {
    on_plain_engine(|path| async move {
        let (scrubber, thread) = Scrubber::start("scrubber").expect("started");
        let options = crate::LogOptions {
            scrubber: Some(scrubber.clone()),
            ..small_segments()
        };
        let test = TestLog::create(&path, options).await;
        test.fill(60).await;
        test.log.flush().await.expect("flushed");
        let bases = test.bases();
        let open = async |base| {
            let path = log_file(&path, base);
            fs::open(&path, OpenMode::Read).await.expect("a segment")
        };
        let (cold, hot) = (open(bases[0]).await, open(bases[1]).await);
        fs::forget_cached(&cold, 0, 0);
        let is_cached = |file| fs::cached_pages(file, 0, 1_000).is_none_or(|pages| pages > 0);
        // Not every kernel can tell, not every file system lets go.
        let can_tell = !is_cached(&cold) && is_cached(&hot);
        let (_, at, bytes) = batches(&path, bases[2])[2];
        edit(&log_file(&path, bases[2]), |log| log[at + bytes - 1] ^= 1);
        assert_eq!(test.scrub().await.damages, 1);
        if can_tell {
            assert!(!is_cached(&cold), "it was not there before");
            assert!(is_cached(&hot), "it was there before");
        }
        scrubber.stop();
        let stopped = test.log.scrub_next(Duration::ZERO, 1).await;
        assert!(stopped.is_err());
        drop((test, scrubber));
        let _ = joined(thread).await;
    });
}

/// The thread ends when the last way to it is gone, which the log's is.
async fn joined<T: Send + 'static>(thread: std::thread::JoinHandle<T>) -> T {
    while !thread.is_finished() {
        thalweg_reactor::time::sleep(Duration::from_millis(1)).await;
    }
    thread.join().expect("no panic")
}

#[test]
fn st_33_random_damage_is_never_served() {
    on_plain_engine(|path| async move {
        let test = filled(&path).await;
        test.log.close().await.expect("closed");
        let bases = test.bases();
        drop(test);
        let whole = path.join("whole");
        super::copy_dir(&path.join("t-0"), &whole);
        let mut dice = Dice::new(33);
        for round in 0..40 {
            super::copy_dir(&whole, &path.join("t-0"));
            let closed = bases.len() as u64 - 1;
            for _ in 0..=dice.below(2) {
                let base = bases[dice.below(closed) as usize];
                edit(&log_file(&path, base), |log| {
                    let from = dice.below(log.len() as u64) as usize;
                    let to = (from + 1 + dice.below(300) as usize).min(log.len());
                    match dice.below(3) {
                        0 => log[from] ^= 1 << dice.below(8),
                        1 => log[from..to].fill(0),
                        _ => log[from..to].fill_with(|| dice.below(256) as u8),
                    }
                });
            }
            let opened = TestLog::open(&path, small_segments(), Recovery::AfterCleanStop).await;
            let Ok((test, _)) = opened else { continue };
            test.cool().await;
            test.served_or_met().await;
            test.scrub().await;
            let (got, refused) = test.served().await;
            let lost: Vec<i64> = all_but(&got);
            let known = test.quarantined().await;
            let is_known = |base: &i64| known.iter().any(|(a, b)| a <= base && base < b);
            assert!(
                lost.iter().all(is_known),
                "round {round}: {lost:?} {known:?}"
            );
            assert_eq!(refused.is_empty(), known.is_empty(), "round {round}");
            test.log.close().await.expect("closed");
        }
    });
}

impl TestLog {
    /// Reads all, whatever comes of it: what headers show is met.
    async fn served_or_met(&self) {
        let (mut at, end) = (self.log.start_offset(), self.log.written_end());
        while at < end {
            let read = self.log.read_plan(at, end, 400).await;
            at = match read {
                Ok(plan) => plan.next_offset.max(at.plus(1)),
                Err(ReadError::Quarantined { next, .. }) => next.max(at.plus(1)),
                Err(error) => panic!("{error}"),
            };
        }
    }
}
