//! The driver at its edges: full queues, overflow, dropped futures, ready tasks all the time.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;

use bytes::Bytes;

use super::*;
use crate::engine::ring_setup::{Attempt, RingFlags, kernel_setup};
use crate::engine::{Engine, ReadOp, WriteOp};
use crate::fs::File;
use crate::{Runtime, RuntimeOptions, context, task};

const PAGE: usize = 4_096;

fn tiny_ring(in_kernel_max: Option<usize>) -> Rc<Ring> {
    let attempt = Attempt {
        entries: 8,
        flags: RingFlags::SingleIssuer,
    };
    let uring = kernel_setup(attempt).unwrap();
    Rc::new(match in_kernel_max {
        Some(max) => Ring::with_in_kernel_max(uring, max),
        None => Ring::new(uring),
    })
}

/// A file whose page `n` is full of the byte `n`, all of it in the page cache.
fn file_of_pages(dir: &Path, pages: u8) -> File {
    let path = dir.join("pages");
    let content: Vec<u8> = (0..pages).flat_map(|n| [n; PAGE]).collect();
    std::fs::write(&path, content).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    File::from_std(file, path)
}

fn read(file: &File, page: u8) -> Op {
    Op::Read(ReadOp::new(
        file.clone(),
        u64::from(page) * PAGE as u64,
        PAGE,
    ))
}

fn poll(running: &mut Running) -> Poll<Finished> {
    Pin::new(running).poll(&mut Context::from_waker(Waker::noop()))
}

fn content(finished: Finished) -> Vec<u8> {
    finished.result.unwrap();
    match finished.op {
        Some(Op::Read(read)) => read.into_buf().to_vec(),
        Some(Op::Write(_)) | None => panic!("it was a read"),
    }
}

#[test]
fn st_27_more_operations_than_the_ring_has_room_for_wait_in_user_space() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_pages(dir.path(), 100);
    let ring = tiny_ring(None);
    let mut running: Vec<_> = (0..100)
        .map(|page| Rc::clone(&ring).run(read(&file, page)))
        .collect();
    assert!(running.iter_mut().all(|one| poll(one).is_pending()));
    assert_eq!(ring.inner.borrow().waiting.len(), 100);
    ring.drain();
    for (page, one) in running.iter_mut().enumerate() {
        let Poll::Ready(finished) = poll(one) else {
            panic!("drained")
        };
        assert_eq!(content(finished), [page as u8; PAGE]);
    }
    assert_eq!(ring.inner.borrow().free.len(), 100);
}

#[test]
fn st_27_an_overflow_of_the_completion_queue_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_pages(dir.path(), 64);
    // 16 places for completions, and 64 operations that the kernel completes within the submission.
    let ring = tiny_ring(Some(1_000));
    let mut running: Vec<_> = (0..64)
        .map(|page| Rc::clone(&ring).run(read(&file, page)))
        .collect();
    assert!(running.iter_mut().all(|one| poll(one).is_pending()));
    {
        let mut inner = ring.inner.borrow_mut();
        while !inner.waiting.is_empty() {
            inner.fill();
            if !inner.enter(0) {
                break; // some kernels take nothing more before we have taken theirs
            }
        }
        assert!(inner.uring.submission().cq_overflow());
    }
    ring.drain();
    for (page, one) in running.iter_mut().enumerate() {
        let Poll::Ready(finished) = poll(one) else {
            panic!("drained")
        };
        assert_eq!(content(finished), [page as u8; PAGE]);
    }
    assert_eq!(ring.inner.borrow().in_kernel, 0);
    assert!(stats::read().ring_overflows > 0);
}

#[test]
fn st_27_dropping_futures_frees_slots_only_after_their_completions() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_pages(dir.path(), 20);
    let ring = tiny_ring(None);
    for round in 0..5u8 {
        for page in 0..20u8 {
            let bytes = Bytes::from(vec![page + round; PAGE]);
            let offset = u64::from(page) * PAGE as u64;
            let op = Op::Write(WriteOp::new(file.clone(), vec![bytes], offset));
            let mut running = Rc::clone(&ring).run(op);
            assert!(poll(&mut running).is_pending());
            if page % 2 == 0 {
                ring.turn();
            }
            drop(running);
        }
        ring.drain();
        let inner = ring.inner.borrow();
        assert!(inner.slots.iter().all(|slot| matches!(slot, Slot::Free)));
        assert_eq!(inner.free.len(), inner.slots.len());
        assert!(inner.slots.len() <= 20);
        drop(inner);
        let now = std::fs::read(dir.path().join("pages")).unwrap();
        let want: Vec<u8> = (0..20u8).flat_map(|page| [page + round; PAGE]).collect();
        assert_eq!(now, want);
    }
    // A future that never was polled began nothing.
    drop(Rc::clone(&ring).run(read(&file, 0)));
    assert_eq!(ring.inner.borrow().unfinished(), 0);
}

/// The kernel tells of a write of the first `done` bytes only: they are written here, and the rest is the
/// ring's business.
fn cut_short(ring: &Ring, file: &std::fs::File, done: usize) {
    let mut leaving = Leaving::default();
    {
        let mut inner = ring.inner.borrow_mut();
        let index = inner.waiting.pop_back().unwrap();
        let Slot::InKernel(in_flight) = &inner.slots[index as usize] else {
            panic!("it waits")
        };
        let Op::Write(write) = &in_flight.op else {
            panic!("it is a write")
        };
        let bytes: Vec<u8> = write.rest().flatten().copied().collect();
        file.write_all_at(&bytes[..done], write.position()).unwrap();
        inner.in_kernel += 1;
        inner.on_completion(index, done as i32, &mut leaving);
    }
    assert!(leaving.wakers.is_empty() && leaving.dead.is_empty());
}

/// All of it at once, in random order: each operation ends once, with its own result, and writes whose
/// futures were dropped are whole all the same.
#[test]
fn st_27_random_operations_end_once_each_whatever_happens_to_them() {
    const PAGES: u8 = 120;
    for seed in 1..=8_u64 {
        let mut state = seed;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        let dir = tempfile::tempdir().unwrap();
        let file = file_of_pages(dir.path(), PAGES);
        let aside = std::fs::File::options()
            .write(true)
            .open(dir.path().join("pages"))
            .unwrap();
        // With 1,000 in the kernel its 16 places for completions overflow.
        let ring = tiny_ring([None, Some(1_000)][below(2) as usize]);
        let mut written = vec![false; usize::from(PAGES)];
        let mut running = Vec::new();
        for page in 0..PAGES {
            let is_write = below(2) == 0;
            written[usize::from(page)] = is_write;
            let op = match is_write {
                true => {
                    let halves = [PAGE / 4, PAGE - PAGE / 4];
                    let parts = halves.map(|len| Bytes::from(vec![!page; len]));
                    let offset = u64::from(page) * PAGE as u64;
                    Op::Write(WriteOp::new(file.clone(), parts.to_vec(), offset))
                }
                false => read(&file, page),
            };
            let mut one = Rc::clone(&ring).run(op);
            assert!(poll(&mut one).is_pending());
            if is_write && below(3) == 0 {
                cut_short(&ring, &aside, 1 + below(PAGE as u64 - 1) as usize);
            }
            match below(4) {
                0 => drop(one),
                _ => running.push((page, one)),
            }
            if below(10) == 0 {
                ring.turn();
            }
        }
        ring.drain();
        for (page, one) in &mut running {
            let Poll::Ready(finished) = poll(one) else {
                panic!("seed {seed}: drained")
            };
            match written[usize::from(*page)] {
                true => finished.result.unwrap(),
                false => assert_eq!(content(finished), [*page; PAGE], "seed {seed}"),
            }
        }
        let on_disk = std::fs::read(dir.path().join("pages")).unwrap();
        for (page, bytes) in (0..PAGES).zip(on_disk.chunks(PAGE)) {
            let of = if written[usize::from(page)] {
                !page
            } else {
                page
            };
            assert_eq!(bytes, [of; PAGE], "seed {seed}, page {page}");
        }
        let inner = ring.inner.borrow();
        assert_eq!((inner.unfinished(), inner.in_kernel), (0, 0));
        let free: std::collections::BTreeSet<u32> = inner.free.iter().copied().collect();
        assert_eq!(
            (free.len(), inner.free.len()),
            (inner.slots.len(), inner.slots.len())
        );
    }
}

#[test]
fn a_bad_file_is_an_error_of_its_own_operation_only() {
    let dir = tempfile::tempdir().unwrap();
    let good = file_of_pages(dir.path(), 2);
    let read_only = std::fs::File::open(dir.path().join("pages")).unwrap();
    let bad = File::from_std(read_only, "bad".into());
    let ring = tiny_ring(None);
    let write = |file: &File| {
        let op = WriteOp::new(file.clone(), vec![Bytes::from_static(b"x")], 0);
        Rc::clone(&ring).run(Op::Write(op))
    };
    let (mut first, mut second) = (write(&bad), write(&good));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    ring.drain();
    let Poll::Ready(first) = poll(&mut first) else {
        panic!("drained")
    };
    let Poll::Ready(second) = poll(&mut second) else {
        panic!("drained")
    };
    assert_eq!(first.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    second.result.unwrap();
}

/// How a task stays ready.
#[derive(Clone, Copy)]
enum Ready {
    /// By `yield_now`: it comes back after a look at epoll.
    Yields,
    /// By waking itself: the scheduler's queue is never empty.
    WakesItself,
}

async fn come_back(how: Ready) {
    match how {
        Ready::Yields => task::yield_now().await,
        Ready::WakesItself => {
            let mut first = true;
            std::future::poll_fn(|cx| {
                if std::mem::take(&mut first) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
        }
    }
}

fn current_ring() -> Rc<Ring> {
    let context = context::current().unwrap();
    match &context.engine {
        Engine::Ring(ring) => Rc::clone(ring),
        Engine::Plain(_) | Engine::Simulated(_) => panic!("this machine allows io_uring"),
    }
}

/// Tasks that are always ready, and how often each of them ran.
struct Crowd {
    passes: Rc<Cell<u64>>,
    stop: Rc<Cell<bool>>,
    tasks: Vec<task::Task<()>>,
}

impl Crowd {
    fn start(size: usize, how: Ready) -> Crowd {
        let (passes, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let tasks = (0..size)
            .map(|n| {
                let (passes, stop) = (Rc::clone(&passes), Rc::clone(&stop));
                task::spawn(async move {
                    while !stop.get() {
                        passes.set(passes.get() + u64::from(n == 0));
                        come_back(how).await;
                    }
                })
            })
            .collect();
        Crowd {
            passes,
            stop,
            tasks,
        }
    }

    async fn end(self) {
        self.stop.set(true);
        for task in self.tasks {
            task.await;
        }
    }
}

/// The fault of a driver that submits only when the scheduler has nothing else to do: an operation
/// beside ready tasks waits for ever. Measured in turns of those tasks, not in time.
#[test]
fn an_operation_beside_ready_tasks_takes_a_few_turns() {
    const ROUNDS: u8 = 100;
    for how in [Ready::Yields, Ready::WakesItself] {
        let dir = tempfile::tempdir().unwrap();
        let file = file_of_pages(dir.path(), ROUNDS);
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        runtime.block_on(async {
            let crowd = Crowd::start(8, how);
            let passes = Rc::clone(&crowd.passes);
            let worst = task::spawn(async move {
                let mut worst = 0;
                for page in 0..ROUNDS {
                    let before = passes.get();
                    // In the page cache: complete as soon as it is submitted.
                    content(current_ring().run(read(&file, page)).await);
                    worst = worst.max(passes.get() - before);
                }
                worst
            });
            let worst = worst.await.unwrap();
            assert!(worst <= 4, "{worst} turns");
            crowd.end().await;
        });
    }
}

/// The second half of the same fault: completions that lie in the ring while tasks are ready.
#[test]
fn a_completion_beside_ready_tasks_wakes_its_task_in_the_next_turn() {
    for how in [Ready::Yields, Ready::WakesItself] {
        // A read of an empty pipe completes when we say so.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader: std::os::fd::OwnedFd = reader.into();
        let pipe = File::from_std(reader.into(), "pipe".into());
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        runtime.block_on(async {
            let crowd = Crowd::start(8, how);
            let arrived = Rc::new(Cell::new(0));
            let done = {
                let (arrived, passes) = (Rc::clone(&arrived), Rc::clone(&crowd.passes));
                task::spawn(async move {
                    let read = Op::Read(ReadOp::new(pipe, 0, 1));
                    assert_eq!(content(current_ring().run(read).await), b"x");
                    let turns = passes.get() - arrived.get();
                    assert!(turns <= 2, "{turns} turns after it was complete");
                })
            };
            let ring = current_ring();
            while ring.inner.borrow().in_kernel == 0 {
                task::yield_now().await;
            }
            arrived.set(crowd.passes.get());
            writer.write_all(b"x").unwrap();
            done.await.unwrap();
            crowd.end().await;
        });
    }
}

#[test]
fn operations_of_many_tasks_share_submissions() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_pages(dir.path(), 32);
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let before = stats::read().ring_enters;
        let tasks: Vec<_> = (0..32)
            .map(|page| {
                let file = file.clone();
                task::spawn(async move { content(current_ring().run(read(&file, page)).await) })
            })
            .collect();
        for (page, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), [page as u8; PAGE]);
        }
        let enters = stats::read().ring_enters - before;
        assert!(
            enters <= 2,
            "{enters} system calls for 32 operations of one turn"
        );
    });
}

#[test]
fn a_refused_ring_gives_the_plain_engine_and_says_why() {
    let refuse = |_| Err(io::Error::from_raw_os_error(libc::EPERM));
    let runtime = Runtime::with_ring_setup(RuntimeOptions::default(), &refuse).unwrap();
    let report = runtime.engine();
    assert_eq!(report.kind, crate::EngineKind::Plain);
    assert!(
        report
            .reason
            .unwrap()
            .contains("io_uring with 1024 entries")
    );
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_pages(dir.path(), 1);
    let wrote = pin!(crate::fs::write_at(
        &file,
        vec![Bytes::from_static(b"plain")],
        0
    ));
    assert_eq!(runtime.block_on(wrote).unwrap(), 5);
    drop(runtime);

    let options = RuntimeOptions {
        engine: crate::EngineChoice::Ring,
        ..RuntimeOptions::default()
    };
    let error = Runtime::with_ring_setup(options, &refuse).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}
