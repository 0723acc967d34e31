//! Runtimes, tasks, time, and the ways between threads.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::on_both_engines;
use thalweg_reactor::{
    EngineChoice, Pinning, Runtime, RuntimeOptions, cores, event, mailbox, oneshot,
    spawn_shard_thread, stats, task, time,
};

#[test]
fn a_thread_has_one_runtime_at_a_time() {
    let first = Runtime::new(RuntimeOptions::default()).unwrap();
    let second = Runtime::new(RuntimeOptions::default()).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AlreadyExists);
    drop(first);
    Runtime::new(RuntimeOptions::default()).unwrap();
}

#[test]
fn threads_are_named_and_pinned_as_asked() {
    let core = cores::allowed()[0];
    let options = RuntimeOptions {
        name: "shard-with-a-long-name".to_owned(),
        pin_to: Some(core),
        ..RuntimeOptions::default()
    };
    let thread = spawn_shard_thread(options, |runtime| {
        let name = std::thread::current().name().map(str::to_owned);
        (runtime.pinning(), name, cores::allowed().len())
    });
    let (pinning, name, cores_seen) = thread.unwrap().join().unwrap().unwrap();
    assert_eq!(pinning, Pinning::Pinned(core));
    assert_eq!(name.as_deref(), Some("shard-with-a-lo"));
    assert_eq!(cores_seen, cores::allowed().len());
}

#[test]
fn a_refused_pin_is_reported_and_not_fatal() {
    let options = RuntimeOptions {
        pin_to: Some(1_023),
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).unwrap();
    assert!(matches!(
        runtime.pinning(),
        Pinning::Refused { core: 1_023, .. }
    ));
    assert_eq!(runtime.block_on(async { 5 }), 5);
}

#[test]
fn tasks_run_detach_and_abort() {
    on_both_engines(|runtime| {
        runtime.block_on(async {
            let shared = Rc::new(Cell::new(0));
            let counted = Rc::clone(&shared);
            assert_eq!(task::spawn(async { 7 }).await, Some(7));
            drop(task::spawn(async move { counted.set(1) }));
            task::yield_now().await;
            assert_eq!(shared.get(), 1);
            let stuck = task::spawn(std::future::pending::<()>());
            assert!(!stuck.is_finished());
            stuck.abort();
            assert_eq!(stuck.await, None);
        });
    });
}

#[test]
fn timers_never_end_early() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let began = time::now();
        time::sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() >= Duration::from_millis(5));
        time::sleep_until(began).await;
        assert!(
            time::timeout(Duration::from_millis(1), std::future::pending::<()>())
                .await
                .is_err()
        );
        assert_eq!(
            time::timeout(Duration::from_secs(60), async { 3 }).await,
            Ok(3)
        );
        assert!(time::unix_ms() > 1_700_000_000_000);
    });
}

/// The wakes that come while a thread is busy are one round for it, whatever their number.
#[test]
fn a_busy_thread_takes_in_the_wakes_of_another_together() {
    on_both_engines(|runtime| {
        runtime.block_on(async {
            let waiting = Rc::new(Cell::new(0));
            let wait = |wait: oneshot::Receiver<i32>| {
                let waiting = Rc::clone(&waiting);
                task::spawn(async move {
                    waiting.set(waiting.get() + 1);
                    wait.await
                })
            };
            let until_waiting = async |count| {
                while waiting.get() < count {
                    task::yield_now().await;
                }
            };
            let (answers, waits): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
            let tasks: Vec<_> = waits.into_iter().map(wait).collect();
            until_waiting(100).await;
            let before = stats::read();
            // This thread waits for the other, and looks at nothing meanwhile.
            let other = std::thread::spawn(|| {
                answers
                    .into_iter()
                    .for_each(|answer| answer.send(7).unwrap());
            });
            other.join().unwrap();
            for task in tasks {
                assert_eq!(task.await, Some(Some(7)));
            }
            let after = stats::read();
            assert_eq!(after.wakes_taken_in - before.wakes_taken_in, 100);
            assert_eq!(after.rounds_of_wakes - before.rounds_of_wakes, 1);
            // Wakes of its own need none of it.
            let (answer, own) = oneshot::channel();
            let own = wait(own);
            until_waiting(101).await;
            answer.send(8).unwrap();
            assert_eq!(own.await, Some(Some(8)));
            assert_eq!(stats::read().rounds_of_wakes, after.rounds_of_wakes);
        });
    });
}

/// Two runtimes that ask and answer: a lost wakeup between sleeping threads would hang here.
#[test]
fn cores_ask_and_answer_each_other() {
    const QUESTIONS: u64 = 5_000;
    for engine in [EngineChoice::Ring, EngineChoice::Plain] {
        let (ask, mut asked) = mailbox::channel::<(u64, oneshot::Sender<u64>)>(4);
        let ready = event::Event::new();
        let options = RuntimeOptions {
            engine,
            ..RuntimeOptions::default()
        };
        let told = ready.clone();
        let answering = spawn_shard_thread(options, move |runtime| {
            runtime.block_on(async {
                told.notify();
                let (mut batch, mut most) = (Vec::new(), 0);
                while asked.recv_many(&mut batch, 64).await > 0 {
                    most = most.max(batch.len());
                    for (question, answer) in batch.drain(..) {
                        answer.send(question * 2).unwrap();
                    }
                }
                most
            })
        })
        .unwrap();
        let asking = std::thread::spawn(move || {
            let runtime = common::runtime(engine);
            runtime.block_on(async {
                ready.wait().await;
                let askers: Vec<_> = (0..8)
                    .map(|n| {
                        let ask = ask.clone();
                        task::spawn(async move {
                            for question in (n..QUESTIONS).step_by(8) {
                                let (answer, wait) = oneshot::channel();
                                ask.send((question, answer)).await.unwrap();
                                assert_eq!(wait.await, Some(question * 2));
                            }
                        })
                    })
                    .collect();
                drop(ask);
                for asker in askers {
                    asker.await.unwrap();
                }
            });
        });
        asking.join().unwrap();
        assert!(answering.join().unwrap().unwrap() <= 64);
    }
}
