//! Places of a disk that can not be read: bad sectors, and blocks whose checksum the file system does not confirm.
//!
//! What can not be read is damage like any other: it goes to the quarantine, and readers are told. Who finds
//! such a place knows where a read began that failed, not which of its bytes did. So the disk is asked first
//! whether it works at all; if it does not, its log directory is offline, and no place in it is to blame.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use thalweg_protocol::records::BATCH_HEADER_BYTES;
use thalweg_reactor::fs::{self, File, os_error};
use thalweg_types::Offset;
use thalweg_types::limits::UNREADABLE_PAGES_MAX;

use crate::indexes::BatchMark;
use crate::log::Log;
use crate::quarantine::DamagedRange;
use crate::scan::{BadBatch, CHECKSUM_CHUNK_BYTES, Search, Step};
use crate::segment::Segment;

/// The smallest unit that the page cache reads.
pub(crate) const PAGE_BYTES: u64 = 4 * 1024;

/// The errno, if an error of a read says of the place that it can not be read.
pub(crate) fn unreadable(error: &io::Error) -> Option<i32> {
    const EIO: i32 = 5;
    const ENODATA: i32 = 61;
    const EBADMSG: i32 = 74;
    const EILSEQ: i32 = 84;
    const EUCLEAN: i32 = 117;
    const EREMOTEIO: i32 = 121;
    let errno = os_error(error)?;
    [EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN, EREMOTEIO]
        .contains(&errno)
        .then_some(errno)
}

/// A batch that can not be read is a bad one, where nothing is cut off for it.
pub(crate) fn unless_unreadable(step: io::Result<Step>) -> io::Result<Step> {
    match step {
        Err(error) => match unreadable(&error) {
            Some(errno) => Ok(Step::Bad(BadBatch::Unreadable(errno))),
            None => Err(error),
        },
        step => step,
    }
}

/// As [`crate::scan::find_batch`], of a file of which some can not be read: that is passed over. The search ends
/// where too much is.
pub(crate) async fn find_batch_between(
    file: &File,
    range: Range<u64>,
    segment_base: Offset,
    at_least: Offset,
) -> io::Result<Option<BatchMark>> {
    let search = Search {
        file,
        end: range.end,
        segment_base,
        at_least,
    };
    let (mut at, mut pages_lost) = (range.start, 0);
    while at + BATCH_HEADER_BYTES as u64 <= range.end {
        let read = match pages_lost {
            0 => read_what_is_there(file, at).await?,
            _ => read_pages(file, at).await?,
        };
        match read {
            Readable::Yes(chunk) => {
                if let Some(found) = search.whole_in(&chunk, at).await? {
                    return Ok(Some(found));
                }
                at += Search::step(&chunk);
            }
            Readable::From(next) if pages_lost < UNREADABLE_PAGES_MAX => {
                at = next;
                pages_lost += 1;
            }
            Readable::From(_) => break,
        }
    }
    Ok(None)
}

/// What lies at a place of a file.
enum Readable {
    Yes(BytesMut),
    /// Nothing before the next page.
    From(u64),
}

/// A chunk at `at`, or what of it comes before a page that can not be read.
async fn read_what_is_there(file: &File, at: u64) -> io::Result<Readable> {
    match fs::read_at(file, at, CHECKSUM_CHUNK_BYTES).await {
        Err(error) if unreadable(&error).is_some() => read_pages(file, at).await,
        read => read.map(Readable::Yes),
    }
}

/// The same, page by page.
async fn read_pages(file: &File, at: u64) -> io::Result<Readable> {
    let (mut chunk, mut from) = (BytesMut::new(), at);
    while chunk.len() < CHECKSUM_CHUNK_BYTES {
        let page_end = (from / PAGE_BYTES + 1) * PAGE_BYTES;
        let wanted = usize::try_from(page_end - from).unwrap_or(CHECKSUM_CHUNK_BYTES);
        match fs::read_at(file, from, wanted).await {
            Ok(page) => {
                chunk.extend_from_slice(&page);
                if page.len() < wanted {
                    break;
                }
            }
            Err(error) if unreadable(&error).is_none() => return Err(error),
            Err(_) if chunk.len() < BATCH_HEADER_BYTES => return Ok(Readable::From(page_end)),
            Err(_) => break,
        }
        from = page_end;
    }
    Ok(Readable::Yes(chunk))
}

impl Log {
    /// Somebody could not read what begins at a byte of a file. Where that is one of this log's, and its disk works,
    /// the segment is looked through: what of it is lost is known afterwards, and served no more.
    pub async fn note_unreadable(&self, path: &Path, position: u64, reason: &str) {
        let Some(segment) = self.segment_of(path) else {
            return;
        };
        // Others may have come upon it at the same time.
        if segment.damage_at(position).is_some() || segment.is_suspect.replace(true) {
            return;
        }
        let known = segment.damaged.borrow().clone();
        if self.disk_works().await {
            tracing::warn!(path = %path.display(), position, reason,
                "can not be read: the segment is looked through");
            self.look_at_suspect(&segment).await;
        }
        end_suspicion(&segment, &known);
    }

    /// Has those segments looked through of which the start could not read the end.
    pub(crate) async fn look_at_unread(&self) {
        let unread: Vec<_> = {
            let state = self.inner.state.borrow();
            let suspects = state.segments.iter().filter(|s| s.is_suspect.get());
            suspects.cloned().collect()
        };
        if unread.is_empty() || !self.disk_works().await {
            return;
        }
        for segment in unread {
            let known = segment.damaged.borrow().clone();
            self.look_soon(segment, move |segment| end_suspicion(segment, &known));
        }
    }

    /// Asks the disk by a small write, so that its failure is not taken for that of a place on it.
    pub(crate) async fn disk_works(&self) -> bool {
        let health = Arc::clone(&self.inner.state.borrow().options.health);
        health.probe(Duration::ZERO).await;
        health.failure().is_none()
    }
}

/// A look at what could not be read has ended, and may have failed: whoever comes upon the place again has it looked through
/// again. Damage that somebody met meanwhile, beyond what was `known`, waits for a look as before.
fn end_suspicion(segment: &Segment, known: &[DamagedRange]) {
    if segment.damaged.borrow().as_slice() == known {
        segment.is_suspect.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::io;
    use std::ops::Range;
    use std::path::PathBuf;
    use std::rc::Rc;

    use thalweg_reactor::disk::{Disk, Operation, Verdict};
    use thalweg_reactor::{Runtime, task};
    use thalweg_replica::EpochCache;
    use thalweg_types::{LeaderEpoch, Offset};

    use super::{PAGE_BYTES, unreadable};
    use crate::whole_log_tests::{TOPIC_ID, TestLog, bytes_of};
    use crate::{DirHealth, FutureLog, Gaps, LogOptions, MoveError, Opening, ReadError, Recovery};

    /// A disk with bad sectors in one file, told as the kernel does: what lies before them can be read.
    struct Bad {
        file: PathBuf,
        bytes: Cell<Option<(u64, u64)>>,
        /// There is no file handle for it.
        no_handle: Cell<bool>,
    }

    impl Bad {
        fn range(&self) -> Option<Range<u64>> {
            self.bytes.get().map(|(start, end)| start..end)
        }
    }

    impl Disk for Bad {
        fn before(&self, operation: &Operation<'_>) -> Verdict {
            const EMFILE: i32 = 24;
            if let Operation::Open(path, _) = operation
                && self.no_handle.get()
                && path.ends_with(&self.file)
            {
                return Verdict::Fails(EMFILE);
            }
            let (Operation::Read(file, at), Some(bad)) = (operation, self.range()) else {
                return Verdict::Goes;
            };
            if !file.path().ends_with(&self.file) || *at >= bad.end {
                return Verdict::Goes;
            }
            match *at < bad.start {
                true => Verdict::GoesUpTo((bad.start - at) as usize),
                false => Verdict::Fails(5),
            }
        }

        fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

        fn delay(&self) -> u32 {
            0
        }

        fn lifetime(&self) -> String {
            "test".to_owned()
        }
    }

    const SEGMENT: &str = "00000000000000000000.log";

    const RECORDS: i64 = 1_000;

    /// The pages from a byte to another.
    fn pages(from: u64, to: u64) -> Option<(u64, u64)> {
        Some((
            from / PAGE_BYTES * PAGE_BYTES,
            to.div_ceil(PAGE_BYTES) * PAGE_BYTES,
        ))
    }

    /// Runs a test on a log whose first segment has some batches of several pages, with the place of each.
    fn on_bad_disk<F: Future<Output = ()>>(
        test: impl FnOnce(Rc<Bad>, TestLog, Vec<Range<u64>>) -> F,
    ) {
        let root = tempfile::tempdir().expect("a directory");
        let bad = Rc::new(Bad {
            file: PathBuf::from(SEGMENT),
            bytes: Cell::new(None),
            no_handle: Cell::new(false),
        });
        let disk: Rc<dyn Disk> = bad.clone();
        let runtime = Runtime::simulated(disk).expect("a runtime");
        runtime.block_on(async {
            let options = LogOptions {
                segment_bytes: 150_000,
                health: DirHealth::new(root.path()),
                ..LogOptions::default()
            };
            let log = TestLog::create(root.path(), options).await;
            let (mut places, mut end) = (Vec::new(), 0);
            while log.log.segment_count() == 1 {
                let bytes = log.append(RECORDS).len() as u64;
                log.settle().await;
                places.push(end..end + bytes);
                end += bytes;
            }
            places.pop();
            log.log.flush().await.expect("flushed");
            test(bad, log, places).await;
        });
    }

    /// Reads all that is served; the offset of each batch, and where the log says that one is damaged.
    async fn read_over(log: &TestLog) -> (Vec<i64>, Vec<i64>) {
        let (mut at, mut read, mut lost) = (Offset(0), Vec::new(), Vec::new());
        while at < log.log.written_end() {
            match log.log.read_plan(at, log.log.written_end(), 1).await {
                Ok(plan) => {
                    assert!(!bytes_of(&plan).await.is_empty());
                    read.push(at.0);
                    at = plan.next_offset;
                }
                Err(ReadError::Quarantined { next, .. }) => {
                    lost.push(at.0);
                    at = next;
                }
                Err(error) => panic!("{error}"),
            }
        }
        (read, lost)
    }

    #[test]
    fn st_19_a_bad_sector_takes_its_batches_and_no_others() {
        on_bad_disk(|bad, log, places| async move {
            let all = read_over(&log).await.0;
            let segment = log.log.inner.state.borrow().segments[0].clone();
            // In the middle of the third batch, and where the fourth ends and the fifth begins.
            let inside = places[2].start + PAGE_BYTES;
            for (first, next, sectors) in [
                (2, 3, pages(inside, inside)),
                (3, 5, pages(places[4].start - 1, places[4].start + 1)),
            ] {
                bad.bytes
                    .set(sectors.map(|(start, end)| (start, end.max(start + PAGE_BYTES))));
                log.log
                    .note_unreadable(&segment.path(), places[first].start, "EIO")
                    .await;
                let found = log.log.quarantined();
                assert!(found[0].reason.contains("can not be read"), "{found:?}");
                let (lost, behind) = (RECORDS * first as i64, RECORDS * next);
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(
                    (found[0].first, found[0].next),
                    (Offset(lost), Offset(behind))
                );
                let left: Vec<i64> = all
                    .iter()
                    .copied()
                    .filter(|at| !(lost..behind).contains(at))
                    .collect();
                assert_eq!(read_over(&log).await, (left, vec![lost]));
                // A new disk, with all that was on the old one.
                bad.bytes.set(None);
                log.log.look_at_suspect(&segment).await;
                assert_eq!(read_over(&log).await, (all.clone(), Vec::new()));
            }
        });
    }

    /// A header that can not be read while a read is planned is found by the plan.
    #[test]
    fn st_19_a_header_that_can_not_be_read_is_damage() {
        on_bad_disk(|bad, log, places| async move {
            let end = log.log.written_end();
            let at = places[6].start;
            bad.bytes.set(pages(at, at + 1));
            let segment = {
                let mut state = log.log.inner.state.borrow_mut();
                state.tail.clear();
                state.segments[0].clone()
            };
            let found = log.log.read_plan(Offset(6 * RECORDS), end, 1).await;
            assert!(
                matches!(found, Err(ReadError::Quarantined { .. })),
                "{found:?}"
            );
            log.log.look_at_suspect(&segment).await;
            let (read, lost) = read_over(&log).await;
            // Its page has the end of the batch before, too.
            assert_eq!(lost, [5 * RECORDS]);
            assert!(read.contains(&(4 * RECORDS)) && read.contains(&(7 * RECORDS)));
        });
    }

    /// What could not be read once and can be now is no damage.
    #[test]
    fn st_19_what_can_be_read_after_all_is_served() {
        on_bad_disk(|_, log, places| async move {
            let path = log.log.inner.state.borrow().segments[0].path();
            log.log.note_unreadable(&path, places[1].start, "EIO").await;
            assert!(log.log.quarantined().is_empty());
            assert_eq!(read_over(&log).await.1, [0_i64; 0]);
        });
    }

    /// Closes a log, and opens it again on a disk that has a bad sector where a batch begins.
    async fn open_again(log: &TestLog, bad: &Bad, begins: u64, recovery: Recovery) -> TestLog {
        // Without them a start reads all batches for theirs.
        let mut epochs = EpochCache::default();
        let _change = epochs.assign(LeaderEpoch(0), Offset(0));
        log.log.store_epochs(&epochs).await.expect("stored");
        let opening = Opening {
            log_start: Some(Offset(0)),
            known_end: Some(log.log.written_end()),
            gaps: Gaps::Never,
            ..recovery.into()
        };
        log.log.close().await.expect("closed");
        bad.bytes.set(pages(begins, begins + 1));
        let root = log.log.dir().parent().expect("its log directory");
        let opened = TestLog::open(root, log.log.options(), opening).await;
        opened.expect("opened").0
    }

    /// Every start looks at the end of each closed segment, and needs none of them.
    #[test]
    fn st_19_a_bad_sector_at_the_end_of_a_closed_segment_keeps_no_log_from_opening() {
        on_bad_disk(|bad, mut log, places| async move {
            let all = read_over(&log).await.0;
            let end = log.log.written_end();
            let (last, before) = (RECORDS * (places.len() as i64 - 1), RECORDS);
            for recovery in [
                Recovery::AfterCleanStop,
                Recovery::AfterCrash {
                    recovery_point: end,
                },
            ] {
                log = open_again(&log, &bad, places[places.len() - 1].start, recovery).await;
                while log.log.quarantined().is_empty() {
                    task::yield_now().await;
                }
                // The page has the end of the batch before, too.
                let (read, lost) = read_over(&log).await;
                assert_eq!(lost, [last - before]);
                let left = all.iter().filter(|at| !(last - before..=last).contains(at));
                assert!(left.eq(&read), "{read:?}");
                bad.bytes.set(None);
                let segment = log.log.inner.state.borrow().segments[0].clone();
                log.log.look_at_suspect(&segment).await;
                assert_eq!(read_over(&log).await, (all.clone(), Vec::new()));
            }
        });
    }

    /// It is told to readers with the offset at which they can go on, which they would never get otherwise.
    #[test]
    fn st_19_what_a_start_could_not_look_through_is_looked_through_when_it_is_met_again() {
        on_bad_disk(|bad, log, places| async move {
            let begins = places[places.len() - 1].start;
            let log = open_again(&log, &bad, begins, Recovery::AfterCleanStop).await;
            let segment = log.log.inner.state.borrow().segments[0].clone();
            assert!(segment.is_suspect.get());
            // The start could open it, and its look can not.
            bad.no_handle.set(true);
            for _ in 0..1_000 {
                task::yield_now().await;
            }
            bad.no_handle.set(false);
            assert!(log.log.quarantined().is_empty());
            let path = segment.path();
            log.log.note_unreadable(&path, begins, "EIO").await;
            let lost = read_over(&log).await.1;
            assert_eq!(lost, [RECORDS * (places.len() as i64 - 2)]);
        });
    }

    /// What can not be read is not copied, and who asked is told where it is and what to do.
    #[test]
    fn kip_113_a_move_of_what_can_not_be_read_says_which_file_it_is() {
        on_bad_disk(|bad, log, places| async move {
            let root = tempfile::tempdir().expect("another disk");
            let health = DirHealth::new(root.path());
            let name = log.log.name().clone();
            let future = FutureLog::create(&health, name, TOPIC_ID, TOPIC_ID);
            let mut future = future.await.expect("made");
            bad.bytes.set(pages(places[2].start, places[2].end));
            let error = loop {
                match future.step(&log.log).await {
                    Ok(bytes) => assert!(bytes > 0, "all is copied"),
                    Err(error) => break error,
                }
            };
            assert!(!error.may_pass() && health.failure().is_none());
            let MoveError::Unreadable { path, position, .. } = &error else {
                panic!("{error}");
            };
            assert!(path.ends_with(SEGMENT) && *position <= places[2].start);
            assert!(error.to_string().contains("`thalweg repair`"), "{error}");
            log.log
                .note_unreadable(path, *position, &error.to_string())
                .await;
            let found = log.log.quarantined();
            assert_eq!(found[0].bytes.start, places[1].start, "{found:?}");
        });
    }

    #[test]
    fn only_what_says_something_of_a_place_counts() {
        for (errno, is_place) in [(5, true), (61, true), (117, true), (2, false), (24, false)] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(unreadable(&error).is_some(), is_place, "{errno}");
        }
    }
}
