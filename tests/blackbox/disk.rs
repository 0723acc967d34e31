//! A disk that fails under a broker, by system calls that strace lets fail, and one that is full.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::ProduceRequest;

use crate::administering::alter;
use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options};
use crate::engine::has_strace;
use crate::groups::{commit, fetch_all, with_coordinators};
use crate::retention::large;
use crate::wire::{Connection, Topic, error, newest, produce_request};

/// As [`failing_on`] of one file.
pub fn failing(calls: &str, errno: &str, file: &str) -> Options {
    failing_on(calls, errno, &[file])
}

/// The broker on plain system calls, where those of `calls` on `files` end with `errno`. strace steps aside
/// (`-D`), so that the broker is our child and gets our signals.
fn failing_on(calls: &str, errno: &str, files: &[&str]) -> Options {
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:error={errno}");
    let mut words = vec!["strace", "-D", "-f", "-qqq", "-o", "/dev/null"];
    for file in files {
        words.extend(["-P", file]);
    }
    words.extend(["-e", &trace, "-e", &inject]);
    let leaked = words
        .into_iter()
        .map(|word| &*Box::leak(word.to_owned().into_boxed_str()));
    Options {
        wrapper: leaked.collect(),
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

/// ST-25: where the metadata has a directory of its own, the broker goes on without one of the others and ends with
/// the last.
#[test]
fn st_25_the_loss_of_the_last_log_directory_ends_the_broker() {
    if !has_strace() {
        return;
    }
    let config = "log.dirs=DATA/a, DATA/b\nmetadata.log.dir=DATA/m\n\
                  listeners=PLAINTEXT://127.0.0.1:0\nthalweg.engine=plain\n";
    let options = Options {
        config: Some(config.to_owned()),
        ..Options::default()
    };
    let mut broker = Broker::start_with(options.clone());
    let mut client = broker.connect();
    let topic = client.create_topic("t", 2, &[("flush.messages", "1")]);
    for partition in 0..2 {
        client.append(&topic, partition, plain(&["kept"]));
    }
    broker.stop();
    let segments = [("a", 0), ("a", 1), ("b", 0), ("b", 1)].map(|(dir, partition)| {
        let folder = broker.data().join(dir).join(format!("t-{partition}"));
        folder.join("00000000000000000000.log")
    });
    let segments = segments.iter().filter(|file| file.is_file());
    let files: Vec<&str> = segments.filter_map(|file| file.to_str()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    broker.start_again_with(Options {
        config: options.config.clone(),
        ..failing_on("fdatasync", "EIO", &files)
    });
    let mut client = broker.connect();
    let refused = produce(&mut client, &topic, "refused");
    assert_eq!(refused, ErrorCode::KafkaStorageError);
    let got = values(&read_all(&mut client, &topic, 1, 0));
    assert_eq!(got, [b"kept"]);
    client.send(
        &produce_request(&topic, 1, -1, plain(&["refused"])),
        newest::<ProduceRequest>(),
    );
    let status = broker.wait_for_end();
    assert_eq!(status.code(), Some(6), "{}", broker.log().join("\n"));
    broker.wait_for_log("fatal: no log directory works any more");
    broker.start_again_with(options);
    for partition in 0..2 {
        let got = values(&read_all(&mut broker.connect(), &topic, partition, 0));
        assert_eq!(got[0], b"kept");
    }
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

/// Takes all room on the disk of `folder` but `left` bytes, in a file that gives it back when removed.
pub fn fill(folder: &Path, left: usize) -> std::path::PathBuf {
    let path = folder.join("somebody-else");
    let mut file = File::create(&path).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
    let len = file.metadata().expect("its length").len();
    let left = u64::try_from(left).expect("fits");
    file.set_len(len.saturating_sub(left)).expect("shortened");
    path
}

fn produce(client: &mut Connection, topic: &Topic, value: &str) -> ErrorCode {
    error(client.produce(topic, 0, -1, plain(&[value])).error_code)
}

/// ST-20: below the headroom produce alone is refused, with one line that says what to do; above it, with a
/// quarter more, it is taken again.
#[test]
fn st_20_below_the_headroom_only_produce_is_refused() {
    const MIB: usize = 1024 * 1024;
    let options = Options {
        properties: vec![
            ("thalweg.log.dirs.headroom.bytes", "2097152".to_owned()),
            ("offsets.topic.num.partitions", "1".to_owned()),
        ],
        ..Options::default()
    };
    let Some(broker) = Broker::start_on_small_disk("16m", options) else {
        return;
    };
    let mut client = with_coordinators(&broker);
    let topic = client.create_topic("full", 1, &[]);
    let other = client.create_topic("other", 1, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    let metric = |name: &str| broker.metric(name, &["data"]);
    assert_eq!(metric("thalweg_log_dir_full"), 0.0);

    let rest = fill(&broker.data(), MIB);
    let line = broker.wait_for_log("nearly full");
    assert!(line.contains("thalweg topic delete"), "{line}");
    assert_eq!(
        produce(&mut client, &topic, "refused"),
        ErrorCode::KafkaStorageError
    );
    let got = values(&read_all(&mut client, &topic, 0, 0));
    assert_eq!(got, [b"kept"]);
    assert_eq!(
        commit(&mut client, "g", &[("full", 0, 1)]),
        [ErrorCode::None]
    );
    let altered = alter(&mut client, 2, "full", "retention.ms", Some("1000000"));
    assert_eq!(altered, ErrorCode::None);
    assert_eq!(client.delete_topic(&other.name), ErrorCode::None);
    client.create_topic("made", 1, &[]);
    assert_eq!(metric("thalweg_log_dir_full"), 1.0);
    assert!(metric("thalweg_log_dir_usable_bytes") < 2_097_152.0);
    let said = broker.log();
    let said = said.iter().filter(|line| line.contains("nearly full"));
    assert_eq!(said.count(), 1);

    // Enough to enter is not enough to leave.
    let len = fs::metadata(&rest).expect("its length").len();
    let file = File::options().write(true).open(&rest).expect("the file");
    file.set_len(len - 1_200_000).expect("shortened");
    crate::broker::eventually("the broker looks", || {
        (metric("thalweg_log_dir_usable_bytes") > 2_097_152.0).then_some(())
    });
    assert_eq!(
        produce(&mut client, &topic, "refused"),
        ErrorCode::KafkaStorageError
    );
    drop(file);
    fs::remove_file(&rest).expect("removed");
    broker.wait_for_log("has room again");
    assert_eq!(produce(&mut client, &topic, "more"), ErrorCode::None);
    let got = values(&read_all(&mut client, &topic, 0, 0));
    assert_eq!(got, [&b"kept"[..], b"more"]);
}

/// ST-20: offsets are committed and topics deleted also where somebody else has taken the last byte.
#[test]
fn st_20_offsets_are_committed_on_a_disk_without_a_byte_left() {
    let options = Options {
        properties: vec![("offsets.topic.num.partitions", "1".to_owned())],
        ..Options::default()
    };
    let Some(mut broker) = Broker::start_on_small_disk("16m", options) else {
        return;
    };
    let mut client = with_coordinators(&broker);
    let topic = client.create_topic("full", 1, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    for life in 1..3 {
        let first = commit(&mut client, "g", &[("full", 0, 1)]);
        assert_eq!(first, [ErrorCode::None]);
        let rest = fill(&broker.data(), 0);
        broker.wait_for_log("the reserve is given back");
        // And what that gave.
        fs::remove_file(&rest).expect("removed");
        let rest = fill(&broker.data(), 0);
        for offset in 2..100 {
            let answered = commit(&mut client, "g", &[("full", 0, offset)]);
            assert_eq!(answered, [ErrorCode::None], "life {life}: {offset}");
        }
        fs::remove_file(&rest).expect("removed");
        broker.wait_for_log("has room again");
        broker.stop();
        broker.start_again();
        client = broker.connect();
        let committed = fetch_all(&mut client, "g");
        assert_eq!(committed[&("full".to_owned(), 0)], 99);
    }
}

/// A broker on a small disk, with a topic `large` that takes a part of it, and one with a record. `None` where no
/// disk can be had.
fn on_small_disk() -> Option<(Broker, Topic)> {
    let broker = Broker::start_on_small_disk("16m", Options::default())?;
    let mut client = broker.connect();
    let large = client.create_topic("large", 1, &[]);
    let topic = client.create_topic("small", 1, &[]);
    for _ in 0..4 {
        client.append(&large, 0, plain(&["x".repeat(900_000)]));
    }
    client.append(&topic, 0, plain(&["kept"]));
    Some((broker, topic))
}

/// ST-20: a broker starts on a disk without a byte left, so that topics can be deleted, and goes on by itself
/// when they are.
#[test]
fn st_20_a_start_on_a_full_disk_lets_topics_be_deleted() {
    let Some((mut broker, topic)) = on_small_disk() else {
        return;
    };
    for clean in [false, true] {
        let rest = fill(&broker.data(), 0);
        match clean {
            true => drop(broker.stop_at_once()),
            false => broker.kill(),
        }
        start_with_reserve(&mut broker);
        if clean {
            let mut client = broker.connect();
            assert_eq!(client.delete_topic("large"), ErrorCode::None);
            broker.wait_for_log("has room again");
            crate::broker::eventually("produce is taken", || {
                (produce(&mut client, &topic, "more") == ErrorCode::None).then_some(())
            });
            let got = values(&read_all(&mut client, &topic, 0, 0));
            assert_eq!(got, [&b"kept"[..], b"more"]);
        }
        fs::remove_file(&rest).expect("removed");
        if !clean {
            broker.wait_for_log("has room again");
        }
    }
}

/// Starts on a full disk. The life before may have seen that it is full, and given the reserve back itself.
fn start_with_reserve(broker: &mut Broker) {
    let is_kept = broker.data().join("thalweg-reserve").exists();
    broker.start_again();
    if is_kept {
        broker.wait_for_log("the reserve is given back");
    }
}

/// ST-20: so it does a second time, when somebody else has taken the reserve too: what is there is served, and
/// topics can be deleted. Where not even a start can be written down, that is done when there is room.
#[test]
fn st_20_a_second_start_on_a_full_disk_serves_what_is_there() {
    let Some((mut broker, topic)) = on_small_disk() else {
        return;
    };
    fill(&broker.data(), 0);
    broker.kill();
    start_with_reserve(&mut broker);
    broker.kill();
    // Without the room that it keeps beyond its end.
    let metadata = broker
        .data()
        .join("__cluster_metadata-0/00000000000000000000.log");
    let bytes = fs::read(&metadata).expect("a log");
    fs::remove_file(&metadata).expect("removed");
    fs::write(&metadata, bytes).expect("written");
    // The last bytes of its last page too.
    let rest = fill(&broker.data(), 0);
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(values(&read_all(&mut client, &topic, 0, 0)), [b"kept"]);
    let refused = produce(&mut client, &topic, "refused");
    assert_eq!(refused, ErrorCode::KafkaStorageError);
    let said = broker.log();
    let errors = said.iter().filter(|line| line.contains("ERROR")).count();
    assert!(errors < 10, "{}", said.join("\n"));
    fs::remove_file(&rest).expect("removed");
    broker.wait_for_log("has room again");
    crate::broker::eventually("produce is taken", || {
        (produce(&mut client, &topic, "more") == ErrorCode::None).then_some(())
    });
    assert_eq!(client.delete_topic("large"), ErrorCode::None);
    broker.stop();
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    assert_eq!(got, [&b"kept"[..], b"more"]);
}

/// ST-31: on a file system without fallocate nothing is set apart, and all else is as it is elsewhere.
#[test]
fn st_31_a_file_system_without_fallocate_works() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let words = [
        "strace",
        "-D",
        "-f",
        "-qqq",
        "--seccomp-bpf",
        "-o",
        trace.to_str().expect("UTF-8"),
        "-e",
        "trace=fallocate",
        "-e",
        "inject=fallocate:error=EOPNOTSUPP",
    ];
    let leaked = words.map(|word| &*Box::leak(word.to_owned().into_boxed_str()));
    let mut broker = Broker::start_with(Options {
        wrapper: leaked.to_vec(),
        ..Options::default()
    });
    let settings = [("flush.messages", "1"), ("segment.bytes", "1048576")];
    let durable = broker.connect().create_topic("durable", 1, &settings);
    let plainly = broker.connect().create_topic("plainly", 1, &settings[1..]);
    for life in 0..3 {
        let mut client = broker.connect();
        for topic in [&durable, &plainly] {
            for nth in 0..5 {
                let at = client.append(topic, 0, plain(&[large(nth)]));
                assert_eq!(at, life * 5 + nth, "{}", topic.name);
            }
            assert_eq!(
                read_all(&mut client, topic, 0, 0).len() as i64,
                (life + 1) * 5
            );
        }
        client.create_topic(&format!("another-{life}"), 2, &[]);
        // It is tried at each look, so the file may be there for a moment.
        let reserve = fs::metadata(broker.data().join("thalweg-reserve"));
        assert_eq!(reserve.map_or(0, |reserve| reserve.blocks()), 0);
        match life {
            0 => broker.kill(),
            _ => broker.stop(),
        }
        broker.start_again();
    }
    crate::broker::eventually("fallocate is called, and refused", || {
        let trace = fs::read_to_string(&trace).expect("what strace saw");
        trace.contains("EOPNOTSUPP").then_some(())
    });
}
