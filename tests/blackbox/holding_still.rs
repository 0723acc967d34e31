//! ST-34: crashes that follow each other at once find everything as the first start left it. Nothing in a
//! partition's folder is written, nothing is checked twice, and what each start must record is small, of the partitions
//! nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use thalweg_protocol::ErrorCode;

use crate::batch::{plain, read_all};
use crate::broker::{Broker, Options, eventually, serve_command};
use crate::durable::kernel_tells_mounts;
use crate::failpoints::ending_at;
use crate::idempotence;
use crate::retention::large;
use crate::wire::{Topic, error};

const MARKS: &str = "thalweg-written-checkpoint";
const SMALL: i32 = 40;
/// Bytes that a start after a crash records of each partition that was written to: its new leader epoch, above all.
const RECORDED_PER_PARTITION_MAX: u64 = 160;
/// The least of these.
const RECORDED_PER_PARTITION_MIN: u64 = 30;
/// Bytes that each start records, however many partitions there are.
const RECORDED_MAX: u64 = 2_000;

/// What each file is: another inode, time or size is another file.
type Files = BTreeMap<PathBuf, (u64, i64, i64, u64)>;

/// Files of the partitions of topics.
fn files(data: &Path) -> Files {
    let mut found = Files::new();
    for folder in fs::read_dir(data).expect("a folder") {
        let folder = folder.expect("a name").path();
        let name = folder.to_string_lossy().into_owned();
        if !folder.is_dir() || name.contains("__cluster_metadata") {
            continue;
        }
        for file in fs::read_dir(&folder).expect("a folder") {
            let file = file.expect("a name").path();
            let meta = fs::metadata(&file).expect("a file");
            let facts = (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size());
            found.insert(file, facts);
        }
    }
    found
}

fn metadata_bytes(data: &Path) -> u64 {
    let file = data
        .join("__cluster_metadata-0")
        .join(format!("{:020}.log", 0));
    fs::metadata(file).expect("the metadata log").len()
}

/// Forty logs with a little, one of several segments, and one of an idempotent producer, which was killed.
fn filled() -> (Broker, [Topic; 3]) {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let small = client.create_topic("small", SMALL, &[]);
    let rolled = client.create_topic("rolled", 1, &[("segment.bytes", "1048576")]);
    let produced = client.create_topic("produced", 1, &[]);
    for partition in 0..SMALL {
        for _ in 0..3 {
            client.append(&small, partition, plain(&["a", "b"]));
        }
    }
    for offset in 0..10 {
        client.append(&rolled, 0, plain(&[large(offset)]));
    }
    let id = idempotence::new_id(&mut client);
    for number in 0..5 {
        client.append(&produced, 0, idempotence::batch(id, 0, number, &["x"]));
    }
    // A closed segment is flushed, and its indexes saved, in the background.
    eventually("the indexes of closed segments", || {
        let folder = broker.partition("rolled", 0);
        let names = fs::read_dir(folder).expect("a folder");
        let names = names.map(|name| name.expect("a name").file_name().into_string());
        let names: Vec<String> = names.map(|name| name.expect("UTF-8")).collect();
        let count = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).count();
        (count(".timeindex") + 1 >= count(".log")).then_some(())
    });
    broker.kill();
    (broker, [small, rolled, produced])
}

/// Starts, is killed at once, and is looked at, again and again. `checked` is what the first start may check.
fn crash_again_and_again(broker: &mut Broker) {
    let mut before: Option<Files> = None;
    let mut recorded = metadata_bytes(&broker.data());
    for start in 0..4 {
        broker.start_again();
        let scanned = broker.metric("thalweg_recovery_scanned_bytes_total", &[]);
        let rebuilt = broker.metric("thalweg_recovery_indexes_rebuilt_total", &[]);
        broker.kill();
        let now = files(&broker.data());
        if let Some(before) = before.replace(now.clone()) {
            assert_eq!(before, now, "start {start}");
            assert_eq!((scanned, rebuilt), (0.0, 0.0), "start {start}");
        }
        let after = metadata_bytes(&broker.data());
        // Nothing is written to any of them from the first one on.
        let written = if start == 0 { SMALL as u64 + 2 } else { 0 };
        let most = RECORDED_MAX + RECORDED_PER_PARTITION_MAX * written;
        let grown = after - recorded;
        assert!(grown <= most, "start {start}: {grown} bytes of {most}");
        recorded = after;
    }
}

/// Starts a broker that ends when its logs are open, and before it serves.
fn end_before_serving(broker: &Broker) {
    let options = ending_at("start: logs open", 1, Options::default());
    let mut command = serve_command(&broker.data(), &options);
    let ended = command.stderr(Stdio::null()).stdout(Stdio::null()).status();
    let signal = ended.expect("it ran").signal();
    assert_eq!(signal, Some(Signal::SIGABRT as i32));
}

fn check_all(broker: &mut Broker, topics: &[Topic; 3]) {
    broker.start_again();
    let mut client = broker.connect();
    let [small, rolled, produced] = topics;
    for partition in [0, SMALL - 1] {
        assert_eq!(read_all(&mut client, small, partition, 0).len(), 6);
        assert_eq!(client.append(small, partition, plain(&["c"])), 6);
    }
    assert_eq!(read_all(&mut client, rolled, 0, 0).len(), 10);
    assert_eq!(read_all(&mut client, produced, 0, 0).len(), 5);
    let lonely = client.produce(produced, 0, 1, plain(&["y"]));
    assert_eq!(error(lonely.error_code), ErrorCode::None);
    assert_eq!(lonely.base_offset, 5);
    // The epoch that the starts gave comes with the first batch in it.
    let epoch = client.leader_epoch(small, 0);
    let file = broker.partition("small", 0).join("leader-epoch-checkpoint");
    let text = fs::read_to_string(file).expect("leader epochs");
    assert!(text.ends_with(&format!("{epoch} 6\n")), "{text}");
}

#[test]
fn st_34_kills_in_a_row_rewrite_nothing() {
    if !kernel_tells_mounts() {
        return;
    }
    let (mut broker, topics) = filled();
    crash_again_and_again(&mut broker);
    check_all(&mut broker, &topics);
}

/// Also where nothing says that the page cache is still there.
#[test]
fn st_34_epochs_that_nobody_has_seen_are_not_raised_again() {
    let (mut broker, topics) = filled();
    let mut recorded = metadata_bytes(&broker.data());
    for start in 0..3 {
        for file in [MARKS, "thalweg-page-cache"] {
            fs::remove_file(broker.data().join(file)).ok();
        }
        end_before_serving(&broker);
        let after = metadata_bytes(&broker.data());
        let grown = after - recorded;
        let is_of_all = grown > RECORDED_PER_PARTITION_MIN * SMALL as u64;
        assert_eq!(is_of_all, start == 0, "start {start}: {grown} bytes");
        recorded = after;
    }
    broker.start_again();
    let seen = broker.connect().leader_epoch(&topics[0], 0);
    broker.kill();
    for file in [MARKS, "thalweg-page-cache"] {
        fs::remove_file(broker.data().join(file)).ok();
    }
    broker.start_again();
    assert_eq!(broker.connect().leader_epoch(&topics[0], 0), seen + 1);
    broker.kill();
    check_all(&mut broker, &topics);
}

/// The first start after a loss of power, as far as the marks say, checks; those after it need not again.
#[test]
fn st_34_kills_after_a_loss_of_power_check_once() {
    if !kernel_tells_mounts() {
        return;
    }
    let (mut broker, topics) = filled();
    fs::remove_file(broker.data().join(MARKS)).ok();
    crash_again_and_again(&mut broker);
    check_all(&mut broker, &topics);
}
