//! What the broker does where io_uring is refused (ST-26).

use std::process::Command;

use crate::batch::{plain, read_all};
use crate::broker::{Broker, Options};

pub fn has_strace() -> bool {
    let found = Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("NOT TESTED: strace is missing, so io_uring could not be refused");
    }
    found
}

/// strace steps aside (`-D`), so that the broker is our child and gets our signals.
pub fn denied(errno: &'static str) -> Options {
    let inject = match errno {
        "EPERM" => "inject=io_uring_setup:error=EPERM",
        _ => "inject=io_uring_setup:error=ENOSYS",
    };
    Options {
        wrapper: vec![
            "strace",
            "-D",
            "-f",
            "-qqq",
            "-o",
            "/dev/null",
            "-e",
            "trace=io_uring_setup",
            "-e",
            inject,
        ],
        ..Options::default()
    }
}

#[test]
fn st_26_without_io_uring_the_plain_engine_serves_and_says_so() {
    if !has_strace() {
        return;
    }
    for errno in ["EPERM", "ENOSYS"] {
        let mut broker = Broker::start_with(denied(errno));
        broker.wait_for_log("io_uring is limited");
        assert!(
            broker.metric("thalweg_engine_info", &["engine=\"plain\""]) >= 1.0,
            "{errno}"
        );
        let mut client = broker.connect();
        let topic = client.create_topic("plain", 2, &[]);
        for partition in 0..2 {
            for number in 0..20 {
                client.append(&topic, partition, plain(&[format!("{number}")]));
            }
            assert_eq!(read_all(&mut client, &topic, partition, 0).len(), 20);
        }
        broker.kill();
        broker.start_again();
        let mut client = broker.connect();
        assert_eq!(read_all(&mut client, &topic, 1, 0).len(), 20, "{errno}");
        broker.stop();
    }
}

#[test]
fn st_26_the_plain_engine_can_be_chosen() {
    let broker = Broker::start_with(Options::with(&[("thalweg.engine", "plain")]));
    assert_eq!(
        broker.metric("thalweg_engine_info", &["engine=\"ring\""]),
        0.0
    );
    let mut client = broker.connect();
    let topic = client.create_topic("chosen", 1, &[]);
    client.append(&topic, 0, plain(&["x"]));
    assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 1);
}

#[test]
fn st_26_a_ring_that_was_asked_for_and_can_not_be_had_is_said_plainly() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = denied("EPERM");
    options.properties = vec![("thalweg.engine", "ring".to_owned())];
    let output = crate::broker::serve_command(&folder.path().join("data"), &options)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.contains("thalweg.engine") && last.contains("io_uring"),
        "{said}"
    );
}
