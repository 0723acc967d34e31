//! A panic ends the process. The test starts itself once more, as the process that panics.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, process, spawn_shard_thread, task};

const PANICS: &str = "THALWEG_TEST_PANICS";
const SIGABRT: i32 = 6;

/// A task of another thread panics, and nobody waits for it: the worst case, in which only the
/// policy notices.
#[test]
fn bi_28_a_panic_in_one_task_ends_the_process() {
    if std::env::var_os(PANICS).is_some() {
        panic_on_a_shard();
    }
    let me = std::env::current_exe().expect("a test binary");
    let child = Command::new(me)
        .args(["--exact", "bi_28_a_panic_in_one_task_ends_the_process"])
        .arg("--nocapture")
        .env(PANICS, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(SIGABRT), "{said}");
    assert!(said.contains("thread 'shard-7'"), "{said}");
    assert!(said.contains("a task lost its mind"), "{said}");
    assert!(!said.contains("still there"), "{said}");
}

fn panic_on_a_shard() -> ! {
    process::abort_on_panic();
    let options = RuntimeOptions {
        name: "shard-7".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    };
    let thread = spawn_shard_thread(options, |runtime: &Runtime| {
        runtime.block_on(async {
            task::spawn(async { panic!("a task lost its mind") });
            for _ in 0..1_000 {
                task::yield_now().await;
            }
            eprintln!("still there");
        });
    });
    let _ = thread.expect("a thread").join();
    std::process::exit(0)
}
