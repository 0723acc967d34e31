//! A disk that fails under a broker: system calls that strace lets fail.

use thalweg_protocol::messages::ProduceRequest;

use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::engine::has_strace;
use crate::wire::{Topic, newest, produce_request};

/// The broker on plain system calls, where those of `calls` on `file` end with `errno`. strace steps aside
/// (`-D`), so that the broker is our child and gets our signals.
fn failing(calls: &str, errno: &str, file: &str) -> Options {
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:error={errno}");
    let words = [
        "strace",
        "-D",
        "-f",
        "-qqq",
        "-o",
        "/dev/null",
        "-P",
        file,
        "-e",
        &trace,
        "-e",
        &inject,
    ];
    let leaked = words.map(|word| &*Box::leak(word.to_owned().into_boxed_str()));
    Options {
        wrapper: leaked.to_vec(),
        ..Options::with(&[("thalweg.engine", "plain")])
    }
}

/// One record, and a broker on which the next life's `calls` on its segment fail.
fn failing_broker(calls: &str, errno: &str) -> (Broker, Topic) {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("failing", 1, &[("segment.bytes", "1048576")]);
    client.append(&topic, 0, plain(&["kept"]));
    broker.stop();
    let segment = broker
        .partition("failing", 0)
        .join("00000000000000000000.log");
    let options = failing(calls, errno, segment.to_str().expect("UTF-8"));
    broker.start_again_with(options);
    (broker, topic)
}

/// It ends with the code of a failed disk and one line that names the file, and recovers without strace.
fn assert_ends(mut broker: Broker, topic: &Topic) {
    let status = broker.wait_for_end();
    let log = broker.log();
    assert_eq!(status.code(), Some(6), "{}", log.join("\n"));
    let fatal: Vec<_> = log.iter().filter(|line| line.contains("fatal")).collect();
    assert_eq!(fatal.len(), 1, "{}", log.join("\n"));
    assert!(
        fatal[0].contains("00000000000000000000.log"),
        "{}",
        fatal[0]
    );
    broker.start_again_with(Options::default());
    let got = values(&read_all(&mut broker.connect(), topic, 0, 0));
    assert_eq!(got[0], b"kept");
}

/// ST-18, ST-25: a failed fdatasync is not tried again, and with the only directory gone the broker ends.
#[test]
fn st_25_a_failed_sync_of_the_only_disk_ends_the_broker() {
    if !has_strace() {
        return;
    }
    let (broker, topic) = failing_broker("fdatasync", "EIO");
    let mut client = broker.connect();
    let large = || plain(&["x".repeat(700_000)]);
    client.append(&topic, 0, large());
    // A segment is synced when the next one begins; an answer may be on its way when that fails.
    client.send(
        &produce_request(&topic, 0, -1, large()),
        newest::<ProduceRequest>(),
    );
    assert_ends(broker, &topic);
}

/// ST-22: so it does where the file system has turned read-only.
#[test]
fn st_22_a_read_only_file_system_ends_the_broker() {
    if !has_strace() {
        return;
    }
    let (broker, topic) = failing_broker("pwritev,pwritev2,pwrite64,write", "EROFS");
    broker.connect().send(
        &produce_request(&topic, 0, -1, plain(&["lost"])),
        newest::<ProduceRequest>(),
    );
    assert_ends(broker, &topic);
}
