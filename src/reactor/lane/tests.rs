use std::fs;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::handle::{Handle, Way};
use super::line::{Line, Request};
use super::memory::Memory;
use super::{Lane, LaneOptions, Reader};
use crate::fs::{File, cached_pages, forget_cached, is_resident};
use crate::sync::oneshot;
use crate::sync::tests_support::block_on;

const STRIDE: usize = 8 * 1024;

fn options(strides: usize, per_disk: usize) -> LaneOptions {
    LaneOptions {
        stride_bytes: STRIDE,
        memory_bytes: strides * STRIDE,
        per_disk,
        threads_max: 4,
        handles_max: 2,
        idle: Duration::from_secs(600),
        quiet: Duration::from_secs(600),
        cores: Vec::new(),
    }
}

/// A lane that gives back at once what nobody needs.
fn restless() -> Lane {
    Lane::new(LaneOptions {
        idle: Duration::from_millis(20),
        ..options(2, 2)
    })
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

fn open(path: &Path) -> File {
    let file = fs::File::options().read(true).write(true).open(path);
    File::from_std(file.unwrap(), path.to_owned())
}

/// A file on the disk and not in the page cache, where the file system has a disk.
fn cold_file(dir: &tempfile::TempDir, bytes: usize) -> (File, Vec<u8>) {
    let path = dir.path().join("f");
    fs::write(&path, content(bytes)).unwrap();
    let file = open(&path);
    file.std().sync_all().unwrap();
    forget_cached(&file, 0, 0);
    (file, content(bytes))
}

fn is_pending(asked: &mut super::Asked) -> bool {
    Pin::new(asked)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

#[test]
fn strides_are_what_the_file_has_and_leave_nothing_in_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = cold_file(&dir, 5 * STRIDE + 100);
    let was_cold = cached_pages(&file, 0, 0) == Some(0);
    let mut reader = Reader::of(Lane::new(options(2, 1)));
    // Its name may be another's by now.
    fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
    fs::write(dir.path().join("f"), vec![9; 5 * STRIDE]).unwrap();
    for from in (0..bytes.len()).step_by(STRIDE) {
        let len = STRIDE.min(bytes.len() - from);
        let stride = block_on(reader.ask(&file, from as u64, len)).unwrap();
        assert!(stride[..] == bytes[from..from + len], "from {from}");
        let end = (from + len) as u64;
        reader.follow(&file, end, &stride);
        assert_eq!(reader.goes_on(&file, end), was_cold);
        assert!(!reader.goes_on(&file, end - 1));
    }
    if was_cold {
        assert_eq!(cached_pages(&file, 0, 0), Some(0), "read past the cache");
        assert!(!is_resident(&file, 0, 100));
    }
    assert_eq!(reader.lane().handles_open(), 1);
    let lane = reader.lane().clone();
    drop(reader);
    assert_eq!((lane.handles_open(), lane.buffers_used()), (0, 0));
}

/// Every begin and end within blocks, and every end of a file, by both ways.
#[test]
fn both_ways_read_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = cold_file(&dir, 3 * STRIDE + 1_000);
    let written = open(&dir.path().join("f"));
    written.note_write();
    let quiet = Duration::from_secs(600);
    assert_eq!(Way::to(&file, quiet), Way::Direct);
    assert_eq!(Way::to(&written, quiet), Way::Paged);
    assert_eq!(Way::to(&written, Duration::ZERO), Way::Direct);
    let mut reader = Reader::of(Lane::new(options(2, 1)));
    for from in [0, 1, 4_095, 4_096, 5_000, STRIDE, 2 * STRIDE - 1] {
        for len in [1, 4_095, 4_096, 4_097, STRIDE] {
            for file in [&file, &written] {
                let stride = block_on(reader.ask(file, from as u64, len)).unwrap();
                assert!(stride[..] == bytes[from..from + len], "{len} from {from}");
            }
        }
    }
    for from in (2 * STRIDE + 3_000..bytes.len()).step_by(500) {
        for file in [&file, &written] {
            let whole = block_on(reader.ask(file, from as u64, bytes.len() - from)).unwrap();
            assert!(whole[..] == bytes[from..], "from {from}");
            let beyond = block_on(reader.ask(file, from as u64, bytes.len() - from + 1));
            let kind = beyond.unwrap_err().kind();
            assert_eq!(kind, std::io::ErrorKind::UnexpectedEof, "from {from}");
        }
    }
}

/// What was written and is not on the disk yet is read all the same.
#[test]
fn a_direct_read_sees_what_was_just_written() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, STRIDE);
    let handle = Handle::open(&file, Way::Direct);
    let mut memory = Memory::around(STRIDE);
    for round in 0..3 {
        fs::write(dir.path().join("f"), vec![round; STRIDE]).unwrap();
        let filled = handle.read(&file, 10, 5_000, memory.bytes_mut()).unwrap();
        let found = &memory.bytes()[filled.from..filled.from + filled.bytes];
        assert!(found == vec![round; 5_000], "round {round}");
    }
}

#[test]
fn what_others_have_in_the_page_cache_stays_there() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = cold_file(&dir, 2 * STRIDE);
    fs::read(dir.path().join("f")).unwrap();
    assert!(is_resident(&file, 0, bytes.len() as u64));
    assert!(
        !is_resident(&file, 0, bytes.len() as u64 + 1),
        "no such byte"
    );
    assert!(!is_resident(&file, u64::MAX, 5), "nor such a range");
    let mut reader = Reader::of(Lane::new(options(2, 1)));
    let stride = block_on(reader.ask(&file, 0, STRIDE)).unwrap();
    assert!(stride[..] == bytes[..STRIDE] && stride.was_cached());
    reader.follow(&file, STRIDE as u64, &stride);
    assert!(!reader.goes_on(&file, STRIDE as u64), "worth a question");
    assert!(is_resident(&file, 0, bytes.len() as u64));
}

#[test]
fn a_file_that_ends_too_early_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, 100);
    let mut reader = Reader::of(Lane::new(options(1, 1)));
    let error = block_on(reader.ask(&file, 50, 100)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("/f at byte 50"), "{error}");
    assert_eq!(
        block_on(reader.ask(&file, 50, 50)).unwrap().len(),
        50,
        "the buffer is back"
    );
}

#[test]
fn who_holds_all_buffers_holds_up_only_those_who_need_one() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = cold_file(&dir, 4 * STRIDE);
    let lane = Lane::new(options(2, 2));
    let mut readers: Vec<_> = (0..4).map(|_| Reader::of(lane.clone())).collect();
    let first = block_on(readers[0].ask(&file, 0, STRIDE)).unwrap();
    let second = block_on(readers[1].ask(&file, STRIDE as u64, STRIDE)).unwrap();
    assert_eq!(lane.buffers_used(), 2);
    assert!(!lane.is_short(), "nobody waits");
    let mut given_up = readers[2].ask(&file, 0, STRIDE);
    let mut third = readers[3].ask(&file, 2 * STRIDE as u64, STRIDE);
    assert!(is_pending(&mut given_up) && is_pending(&mut third) && lane.is_short());
    assert_eq!(super::waiting().0, 2);
    drop(given_up);
    assert_eq!(super::waiting().0, 1);
    drop(first);
    let third = block_on(third).unwrap();
    assert!(third[..] == bytes[2 * STRIDE..3 * STRIDE]);
    assert!(super::waiting().1.is_none() && !lane.is_short());
    drop((second, third));
    assert_eq!(lane.buffers_used(), 0);
}

#[test]
fn an_idle_lane_has_no_threads_no_handles_and_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, STRIDE);
    let lane = restless();
    let mut reader = Reader::of(lane.clone());
    for _ in 0..2 {
        drop(block_on(reader.ask(&file, 0, STRIDE)).unwrap());
        let threads = || super::lock(&lane.0.line).threads;
        while threads() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(lane.handles_open(), 0);
        assert_eq!(super::lock(&lane.0.line).free_buffers(), 0);
    }
}

/// What a reader left open holds the room of a file that is removed: it must not as long as others read.
#[test]
fn a_handle_that_nobody_uses_is_closed_while_others_read() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, STRIDE);
    let lane = restless();
    let mut left = Reader::of(lane.clone());
    let mut busy = Reader::of(lane.clone());
    drop(block_on(left.ask(&file, 0, 10)).unwrap());
    drop(block_on(busy.ask(&file, 0, 10)).unwrap());
    let began = Instant::now();
    // The lane's threads have the lowest priority, so this may take a while.
    while lane.handles_open() > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "it stays open");
        drop(block_on(busy.ask(&file, 0, 10)).unwrap());
    }
}

#[test]
fn handles_are_bounded_and_belong_to_one_reader() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, STRIDE);
    let lane = Lane::new(options(2, 2));
    let mut readers: Vec<_> = (0..4).map(|_| Reader::of(lane.clone())).collect();
    for reader in &mut readers {
        drop(block_on(reader.ask(&file, 0, 10)).unwrap());
    }
    assert_eq!(lane.handles_open(), 2);
}

/// A line without threads, to see who comes when.
struct Table {
    line: Line,
    options: LaneOptions,
    file: File,
    answers: Vec<oneshot::Receiver<std::io::Result<super::Stride>>>,
}

impl Table {
    fn new(strides: usize, per_disk: usize) -> Table {
        let mut line = Line::default();
        line.threads = 1;
        Table {
            line,
            options: options(strides, per_disk),
            file: File::from_std(tempfile::tempfile().unwrap(), "t".into()),
            answers: Vec::new(),
        }
    }

    fn ask(&mut self, ticket: u64, disk: u64) {
        let (answer, wait) = oneshot::channel();
        self.answers.push(wait);
        self.line.push(Request {
            ticket,
            reader: ticket,
            disk,
            file: self.file.clone(),
            offset: 0,
            len: 1,
            answer,
        });
    }

    fn take(&mut self) -> Option<u64> {
        let work = self.line.take(&self.options)?;
        assert!(work.memory.bytes().len() > STRIDE);
        Some(work.request.ticket)
    }
}

#[test]
fn a_disk_that_does_not_answer_leaves_threads_for_the_others() {
    let mut table = Table::new(10, 2);
    for (ticket, disk) in [(1, 7), (2, 7), (3, 7), (4, 7), (5, 8)] {
        table.ask(ticket, disk);
    }
    assert_eq!([table.take(), table.take()], [Some(1), Some(2)]);
    assert_eq!(
        [table.take(), table.take()],
        [Some(5), None],
        "in order, but for the full disk"
    );
    assert!(
        !table.line.waits_for_buffer(&table.options),
        "it waits for the disk"
    );
    table.line.read_ended(7);
    assert_eq!([table.take(), table.take()], [Some(3), None]);
    table.line.withdraw(4);
    table.line.read_ended(7);
    assert_eq!(table.take(), None);
}

#[test]
fn readers_come_in_turn_and_threads_as_they_are_needed() {
    let mut table = Table::new(2, 4);
    (1..=3).for_each(|ticket| table.ask(ticket, 7));
    table.line.threads = 2;
    assert!(table.line.wants_thread(&table.options));
    table.line.threads = 3;
    assert!(!table.line.wants_thread(&table.options));
    assert_eq!(
        [table.take(), table.take(), table.take()],
        [Some(1), Some(2), None]
    );
    // The first asks for its next stride: that comes behind those who wait.
    table.line.read_ended(7);
    table.line.give_back(Memory::around(STRIDE));
    table.ask(11, 7);
    assert_eq!([table.take(), table.take()], [Some(3), None]);
    assert!(table.line.waits_for_buffer(&table.options));
    table.line.read_ended(7);
    table.line.give_back(Memory::around(STRIDE));
    assert_eq!(table.take(), Some(11));
}

#[test]
fn nobody_is_woken_for_what_can_not_begin() {
    let mut table = Table::new(3, 2);
    (1..=5).for_each(|ticket| table.ask(ticket, 7));
    assert!(table.line.wants_thread(&table.options));
    (table.line.threads, table.line.idle) = (2, 2);
    assert!(
        !table.line.wants_thread(&table.options),
        "the disk takes two"
    );
    assert!(table.line.wants_wake(&table.options));
    assert_eq!([table.take(), table.take()], [Some(1), Some(2)]);
    assert!(!table.line.wants_wake(&table.options), "the disk is busy");
    table.ask(6, 8);
    assert!(table.line.wants_thread(&table.options), "another one");
    assert!(table.line.wants_wake(&table.options));
    assert_eq!(table.take(), Some(6));
    table.ask(7, 8);
    assert!(!table.line.wants_wake(&table.options), "no buffer");
    table.line.give_back(Memory::around(STRIDE));
    assert!(table.line.wants_wake(&table.options));
    table.line.idle = 0;
    assert!(!table.line.wants_wake(&table.options));
}

#[test]
fn many_readers_on_few_buffers_all_get_what_is_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = cold_file(&dir, 16 * STRIDE);
    let lane = Lane::new(options(3, 2));
    let threads: Vec<_> = (0..8u64)
        .map(|n| {
            let (lane, file, bytes) = (lane.clone(), file.clone(), bytes.clone());
            std::thread::spawn(move || {
                let mut reader = Reader::of(lane);
                for round in 0..16u64 {
                    let from = (n * 3 + round) % 15 * STRIDE as u64 + n * 10;
                    let stride = block_on(reader.ask(&file, from, STRIDE)).unwrap();
                    assert!(stride[..] == bytes[from as usize..][..STRIDE]);
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(lane.buffers_used(), 0);
}

#[test]
fn an_answer_wakes_the_task_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = cold_file(&dir, STRIDE);
    let mut reader = Reader::of(Lane::new(options(1, 1)));
    let mut asked = reader.ask(&file, 0, STRIDE);
    let polls = block_on(async {
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            match Pin::new(&mut asked).poll(cx) {
                Poll::Ready(stride) => Poll::Ready(stride.unwrap().len()),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        polls
    });
    assert!(polls <= 2, "{polls}");
}
