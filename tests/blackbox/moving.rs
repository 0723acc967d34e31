//! Partitions that move from one log directory to another (KIP-113): under load, over restarts and kills, with
//! what retention, compaction and DeleteRecords do meanwhile, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use thalweg_protocol::messages::{
    AlterReplicaLogDirsRequest, DescribeLogDirsRequest, ProduceRequest,
};

use crate::administering::delete_records;
use crate::batch::plain;
use crate::broker::{Broker, Options, eventually, is_long};
use crate::compacting::{SMALL_SEGMENTS, all_of, append_small, eager};
use crate::disk::fill;
use crate::failpoints::ending_at;
use crate::gate::Gate;
use crate::retention::{check_whole, large};
use crate::tool::{against, refused};
use crate::wire::{Connection, Topic, error, newest, produce_request};

const FILE: &str = "log.dirs=DATA/a, DATA/b\nlisteners=PLAINTEXT://127.0.0.1:0\n";
const SEGMENTED: [(&str, &str); 1] = [("segment.bytes", "1048576")];
/// Nothing of a slice is let through before a test is over.
const SLOW: (&str, &str) = ("replica.alter.log.dirs.io.max.bytes.per.second", "1");
/// So that a slow copy comes after what is appended.
const LOOKS_PER_APPEND: i64 = 8;
const DIRS: [&str; 2] = ["a", "b"];

fn options(more: &str) -> Options {
    Options {
        config: Some(format!("{FILE}{more}")),
        ..Options::default()
    }
}

fn slow() -> Options {
    options(&format!("{}={}\n", SLOW.0, SLOW.1))
}

/// What DescribeLogDirs says of partition 0: directory, size, lag.
#[derive(Debug, Default)]
struct Places {
    current: Vec<(String, i64)>,
    future: Vec<(String, i64, i64)>,
}

fn places(client: &mut Connection, topic: &str) -> Places {
    let request = DescribeLogDirsRequest { topics: None };
    let response = client.call(&request, newest::<DescribeLogDirsRequest>());
    let mut places = Places::default();
    for dir in response.results {
        let of_topic = dir.topics.iter().filter(|row| row.name == topic);
        let name = dir.log_dir.rsplit('/').next().expect("a name").to_owned();
        for row in of_topic.flat_map(|row| &row.partitions) {
            assert!(row.offset_lag >= 0);
            match row.is_future_key {
                false => places.current.push((name.clone(), row.partition_size)),
                true => {
                    let row = (name.clone(), row.partition_size, row.offset_lag);
                    places.future.push(row);
                }
            }
        }
    }
    let is_current = |dir: &str| places.current.iter().any(|row| row.0 == dir);
    let is_twice = places.future.iter().any(|row| is_current(&row.0));
    assert!(!is_twice, "a copy beside what it became: {places:?}");
    places
}

/// The directory that the partition is in, and the other one.
fn here_and_there(client: &mut Connection, topic: &str) -> (String, String) {
    let here = places(client, topic).current[0].0.clone();
    let there = DIRS.iter().find(|dir| **dir != here);
    (here, there.expect("two").to_string())
}

fn asked(client: &mut Connection, path: PathBuf, topic: &str, partition: i32) -> ErrorCode {
    let request = AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: path.to_str().expect("UTF-8").to_owned(),
            topics: vec![AlterReplicaLogDirTopic {
                name: topic.to_owned(),
                partitions: vec![partition],
            }],
        }],
    };
    let response = client.call(&request, newest::<AlterReplicaLogDirsRequest>());
    let [row] = &response.results[..] else {
        panic!("{response:?}");
    };
    assert_eq!(row.topic_name, topic);
    assert_eq!(row.partitions[0].partition_index, partition);
    error(row.partitions[0].error_code)
}

fn send_to(broker: &Broker, client: &mut Connection, topic: &str, dir: &str) {
    let answer = asked(client, broker.data().join(dir), topic, 0);
    assert_eq!(answer, ErrorCode::None);
}

fn wait_until_in(client: &mut Connection, topic: &str, dir: &str) {
    eventually("the partition has moved", || {
        let places = places(client, topic);
        let there = places.current[0].0 == dir && places.future.is_empty();
        there.then_some(())
    });
}

/// Waits until these are the folders of the topic in a directory: what is over is removed in the background.
fn wait_for_folders(broker: &Broker, dir: &str, topic: &str, wanted: &[&str]) {
    eventually("only what is served is left", || {
        (folders(broker, dir, topic) == wanted).then_some(())
    });
}

/// Names of folders of the topic in a directory.
fn folders(broker: &Broker, dir: &str, topic: &str) -> Vec<String> {
    let listed = fs::read_dir(broker.data().join(dir)).expect("a directory");
    let names = listed.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(topic)).collect()
}

fn append(client: &mut Connection, topic: &Topic, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        assert_eq!(client.append(topic, 0, plain(&[large(offset)])), offset);
    }
}

/// The name of each `.log` file of the partition, and its content.
fn batches(broker: &Broker, dir: &str, topic: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = broker.data().join(dir).join(format!("{topic}-0"));
    let files = fs::read_dir(folder).expect("a folder");
    let paths = files.map(|entry| entry.expect("an entry").path());
    let logs = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "log"));
    logs.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        (name.into_owned(), fs::read(&path).expect("read"))
    })
    .collect()
}

/// Appends go on while the partition moves there and back; every record is there, once, in order, and so it is
/// after a restart and after a kill. What was closed is the same, byte for byte.
#[test]
fn kip_113_a_partition_moves_under_load() {
    let mut broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("moved", 1, &SEGMENTED);
    append(&mut client, &topic, 0..12);
    let (here, there) = here_and_there(&mut client, "moved");
    let before = batches(&broker, &here, "moved");
    let mut end = 12;
    for dir in [&there, &here] {
        send_to(&broker, &mut client, "moved", dir);
        let mut looks = 0;
        eventually("it has moved", || {
            if looks % LOOKS_PER_APPEND == 0 {
                append(&mut client, &topic, end..end + 1);
                end += 1;
            }
            looks += 1;
            let places = places(&mut client, "moved");
            (places.current[0].0 == **dir && places.future.is_empty()).then_some(())
        });
        check_whole(&mut client, &topic, end);
    }
    wait_for_folders(&broker, &here, "moved", &["moved-0"]);
    let after = batches(&broker, &here, "moved");
    let closed = before.keys().take(before.len() - 1);
    for name in closed {
        assert!(before[name] == after[name], "{name}");
    }
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    check_whole(&mut client, &topic, end);
    send_to(&broker, &mut client, "moved", &there);
    wait_until_in(&mut client, "moved", &there);
    append(&mut client, &topic, end..end + 1);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    check_whole(&mut client, &topic, end + 1);
    wait_for_folders(&broker, &here, "moved", &[]);
    assert_eq!(places(&mut client, "moved").current[0].0, there);
}

/// Acknowledged is durable, in the new place as in the old one; its groups go on where their offsets move.
#[test]
fn kip_113_a_durable_topic_moves() {
    let mut broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let durable = [SEGMENTED[0], ("flush.messages", "1")];
    let topic = client.create_topic("durable", 1, &durable);
    append(&mut client, &topic, 0..5);
    let (here, there) = here_and_there(&mut client, "durable");
    send_to(&broker, &mut client, "durable", &there);
    wait_until_in(&mut client, "durable", &there);
    append(&mut client, &topic, 5..9);
    wait_for_folders(&broker, &here, "durable", &[]);
    broker.kill();
    broker.start_again();
    check_whole(&mut broker.connect(), &topic, 9);
}

#[test]
fn kip_113_targets_and_partitions_that_are_not_there_are_refused() {
    let broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    let (here, there) = here_and_there(&mut client, "t");
    let data = broker.data();
    for (path, topic, partition, code) in [
        (data.join("c"), "t", 0, ErrorCode::LogDirNotFound),
        (
            data.join(&there),
            "t",
            1,
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            data.join(&there),
            "none",
            0,
            ErrorCode::UnknownTopicOrPartition,
        ),
        // It is there already.
        (data.join(&here), "t", 0, ErrorCode::None),
    ] {
        let answer = asked(&mut client, path, topic, partition);
        assert_eq!(answer, code, "{topic}-{partition}");
    }
    assert!(folders(&broker, &there, "t-").is_empty());
    assert!(places(&mut client, "t").future.is_empty());
}

/// A broker whose second directory is gone, with a topic of two partitions that had one in each.
fn without_b() -> Broker {
    let mut broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    client.create_topic("t", 2, &[]);
    broker.stop();
    fs::rename(broker.data().join("b"), broker.data().join("unmounted")).expect("renamed");
    broker.start_again();
    broker
}

/// A directory that does not work takes nothing and gives nothing.
#[test]
fn kip_113_a_lost_directory_is_no_target() {
    let broker = without_b();
    let mut client = broker.connect();
    for partition in 0..2 {
        let to = broker.data().join("b");
        let answer = asked(&mut client, to, "t", partition);
        assert_eq!(answer, ErrorCode::KafkaStorageError);
    }
    let to_a =
        |client: &mut Connection, partition| asked(client, broker.data().join("a"), "t", partition);
    let mut answers = [to_a(&mut client, 0), to_a(&mut client, 1)];
    answers.sort_by_key(|code| code.code());
    assert_eq!(answers, [ErrorCode::None, ErrorCode::KafkaStorageError]);
}

/// While a copy is under way it is told apart; a restart goes on with it; asking for the present place calls
/// it off; so does a deletion of the topic.
#[test]
fn kip_113_a_move_is_told_resumed_and_called_off() {
    let mut broker = Broker::start_with(slow());
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    append(&mut client, &topic, 0..6);
    let (here, there) = here_and_there(&mut client, "t");
    send_to(&broker, &mut client, "t", &there);
    send_to(&broker, &mut client, "t", &there);
    let under_way = |client: &mut Connection| {
        let places = places(client, "t");
        assert_eq!(places.current[0].0, here);
        let future = places.future.first().cloned();
        future.filter(|(dir, bytes, lag)| *dir == there && *bytes > 0 && *lag > 0)
    };
    eventually("something is copied", || under_way(&mut client));
    let future = folders(&broker, &there, "t-0");
    assert!(
        future.len() == 1 && future[0].ends_with("-future"),
        "{future:?}"
    );
    for end in [Broker::stop, Broker::kill] {
        end(&mut broker);
        broker.start_again();
        client = broker.connect();
        assert_eq!(folders(&broker, &there, "t-0"), future);
        eventually("the copy goes on", || under_way(&mut client));
    }
    send_to(&broker, &mut client, "t", &here);
    assert!(places(&mut client, "t").future.is_empty());
    wait_for_folders(&broker, &there, "t-0", &[]);
    check_whole(&mut client, &topic, 6);
    send_to(&broker, &mut client, "t", &there);
    eventually("it goes on", || under_way(&mut client));
    assert_eq!(client.delete_topic("t"), ErrorCode::None);
    wait_for_folders(&broker, &there, "t-0", &[]);
    assert!(
        folders(&broker, &here, "t-0")
            .iter()
            .all(|name| name.ends_with("-delete"))
    );
}

/// Whoever asks to and fro gets what was asked for last, and nothing that waits is held up by what is over.
#[test]
fn kip_113_of_moves_to_and_fro_the_last_counts() {
    let broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    append(&mut client, &topic, 0..2);
    let (here, there) = here_and_there(&mut client, "t");
    for last in [&there, &here, &there] {
        for _ in 0..10 {
            send_to(&broker, &mut client, "t", &there);
            send_to(&broker, &mut client, "t", &here);
        }
        send_to(&broker, &mut client, "t", last);
        wait_until_in(&mut client, "t", last);
        check_whole(&mut client, &topic, 2);
    }
}

/// What is deleted while the copy is under way does not come back in the new place.
#[test]
fn kip_113_records_deleted_meanwhile_stay_deleted() {
    let mut broker = Broker::start_with(slow());
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    append(&mut client, &topic, 0..8);
    let (_, there) = here_and_there(&mut client, "t");
    send_to(&broker, &mut client, "t", &there);
    eventually("something is copied", || {
        let places = places(&mut client, "t");
        places
            .future
            .first()
            .filter(|future| future.1 > 0)
            .map(drop)
    });
    assert_eq!(delete_records(&mut client, &topic, 5), (ErrorCode::None, 5));
    broker.kill();
    broker.start_again_with(options(""));
    let mut client = broker.connect();
    wait_until_in(&mut client, "t", &there);
    assert_eq!(check_whole(&mut client, &topic, 8), 5);
    broker.kill();
    broker.start_again();
    assert_eq!(check_whole(&mut broker.connect(), &topic, 8), 5);
}

/// DeleteRecords moves the start of the log at once, and the files go at some later look.
#[test]
fn kip_113_a_partition_moves_whose_first_segments_are_to_go() {
    let mut broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    append(&mut client, &topic, 0..8);
    assert_eq!(delete_records(&mut client, &topic, 5), (ErrorCode::None, 5));
    let (here, there) = here_and_there(&mut client, "t");
    assert!(batches(&broker, &here, "t").len() > 2);
    send_to(&broker, &mut client, "t", &there);
    wait_until_in(&mut client, "t", &there);
    assert_eq!(check_whole(&mut client, &topic, 8), 5);
    broker.kill();
    broker.start_again();
    assert_eq!(check_whole(&mut broker.connect(), &topic, 8), 5);
}

#[test]
fn kip_113_a_partition_moves_while_it_is_compacted() {
    let broker = Broker::start_with(eager(options("")));
    let mut client = broker.connect();
    let topic = client.create_topic("c", 1, &SMALL_SEGMENTS);
    let mut end = 20;
    append_small(&mut client, &topic, 0..end);
    let (here, there) = here_and_there(&mut client, "c");
    for dir in [&there, &here, &there] {
        send_to(&broker, &mut client, "c", dir);
        let mut looks = 0;
        eventually("it has moved", || {
            if looks % LOOKS_PER_APPEND == 0 {
                append_small(&mut client, &topic, end..end + 4);
                end += 4;
            }
            looks += 1;
            let places = places(&mut client, "c");
            (places.current[0].0 == **dir && places.future.is_empty()).then_some(())
        });
    }
    let said = broker.log();
    assert!(
        !said.iter().any(|line| line.contains("NOT MOVED")),
        "{said:?}"
    );
    let (_, offsets) = all_of(&mut client, &topic, 0..end);
    assert!(offsets.len() as i64 <= end && offsets.is_sorted());
    assert_eq!(
        offsets[offsets.len() - 4..],
        [end - 4, end - 3, end - 2, end - 1]
    );
}

/// ST-20: a move waits for room instead of taking what producers on its target need, says so, and goes on by
/// itself. Who waits for it by command line is told.
#[test]
fn st_20_a_move_waits_for_room_above_the_headroom() {
    const MIB: usize = 1024 * 1024;
    let headroom = format!("thalweg.log.dirs.headroom.bytes={}\n", 2 * MIB);
    let small = Broker::start_with_small_directory("b", "10m", options(&headroom));
    let Some(broker) = small else { return };
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    append(&mut client, &topic, 0..12);
    assert_eq!(here_and_there(&mut client, "t").0, "a");
    let b = broker.data().join("b");
    // Room above the headroom, and not enough.
    let rest = fill(&b, 4 * MIB);
    let is_known = || broker.metric("thalweg_log_dir_usable_bytes", &["data/b"]) < 5.0 * MIB as f64;
    eventually("the broker has looked", || is_known().then_some(()));
    let to = b.to_str().expect("UTF-8");
    let arguments = [
        "log-dirs",
        "move",
        "t",
        "--to",
        to,
        "--wait",
        "--timeout",
        "10",
    ];
    let (_, said) = refused(&broker, &arguments, 1);
    assert!(
        said.contains("nothing was copied for 10 s (--timeout)"),
        "{said}"
    );
    let line = broker.wait_for_log("the move waits for room");
    assert!(line.contains("missing="), "{line}");
    let places = places(&mut client, "t");
    assert_eq!(places.future.first().map(|future| future.1), Some(0));
    assert_eq!(broker.metric("thalweg_log_dir_full", &["data/b"]), 0.0);
    fs::remove_file(rest).expect("removed");
    wait_until_in(&mut client, "t", "b");
    check_whole(&mut client, &topic, 12);
}

/// What `log-dirs describe` prints as JSON.
fn told(broker: &Broker) -> Value {
    let http = broker.metrics_address().to_string();
    let arguments = ["log-dirs", "describe", "--json", "--http", &http];
    serde_json::from_str(&against(broker, &arguments, 0)).expect("JSON")
}

#[test]
fn kip_113_moves_by_command_line() {
    let broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("t", 2, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    let b = broker.data().join("b");
    let b = b.to_str().expect("UTF-8");
    let arguments = ["log-dirs", "move", "t", "--to", b, "--wait"];
    let moved = against(&broker, &arguments, 0);
    assert_eq!(moved, format!("t-0 is in {b}\nt-1 is in {b}\n"));
    let report = told(&broker);
    let directories = report["directories"].as_array().expect("a list");
    let held = |dir: &Value| dir["partitions"].as_array().expect("a list").len();
    assert_eq!(directories.iter().map(held).collect::<Vec<_>>(), [0, 2]);
    assert!(directories.iter().all(|dir| dir["state"] == "works"));
    assert_eq!(report["offline"], serde_json::json!([]));
    assert_eq!(report["quarantined"], serde_json::json!([]));
    assert_eq!(broker.get("/log-dirs?n=3").0, 400);
    let table = against(&broker, &["log-dirs", "describe", "--partitions"], 0);
    assert!(
        table.contains("DIRECTORY") && table.contains("MOVING"),
        "{table}"
    );
    let nowhere = ["log-dirs", "move", "t:1", "--to", "/nowhere"];
    let (_, said) = refused(&broker, &nowhere, 1);
    assert!(said.contains("LOG_DIR_NOT_FOUND"), "{said}");
    refused(&broker, &["log-dirs", "move", "none", "--to", b], 4);
    refused(&broker, &["log-dirs", "move", "t:7", "--to", b], 4);
}

/// A log on a bad sector: where it is and what to do about it is told to who waits, and to who looks later.
#[test]
fn kip_113_a_move_that_is_given_up_is_told_with_its_reason() {
    let (gate, gated) = Gate::failing(&["move: read"]);
    let broker = Broker::start_with(Options {
        wrapper: gated.wrapper,
        ..options("")
    });
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    let (_, there) = here_and_there(&mut client, "t");
    let to = broker.data().join(&there);
    let http = broker.metrics_address().to_string();
    let to = to.to_str().expect("UTF-8");
    let arguments = [
        "log-dirs", "move", "t", "--to", to, "--wait", "--http", &http,
    ];
    gate.close();
    let (_, said) = refused(&broker, &arguments, 1);
    let names = ["t-0/00000000000000000000.log from byte 0", "thalweg repair"];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    let report = told(&broker);
    let [line] = &report["not_moved"].as_array().expect("a list")[..] else {
        panic!("{report}");
    };
    assert_eq!(
        (&line["topic"], &line["directory"]),
        (&"t".into(), &to.into())
    );
    let table = against(&broker, &["log-dirs", "describe", "--http", &http], 0);
    assert!(
        table.contains("NOT MOVED") && table.contains(names[0]),
        "{table}"
    );
    gate.release();
    against(&broker, &arguments, 0);
    assert_eq!(told(&broker)["not_moved"], serde_json::json!([]));
}

/// A directory that is lost, with the reason and the partitions that are offline with it.
#[test]
fn st_25_what_is_offline_is_told_with_its_reason() {
    let broker = without_b();
    let report = told(&broker);
    let lost = &report["directories"][1];
    assert_eq!(
        (&lost["state"], &report["directories"][0]["state"]),
        (&"offline".into(), &"works".into())
    );
    let reason = lost["reason"].as_str().expect("a reason");
    assert!(!reason.is_empty(), "{report}");
    let offline = report["offline"].as_array().expect("a list");
    let [line] = &offline[..] else {
        panic!("{report}");
    };
    assert_eq!(line["topic"], "t");
    assert_eq!(line["reason"], "its log directory is offline");
    let http = broker.metrics_address().to_string();
    let text = against(&broker, &["log-dirs", "describe", "--http", &http], 0);
    assert!(text.contains("OFFLINE") && text.contains(reason), "{text}");
}

/// Looks at the move that was asked for, and appends now and then, until the broker ends; the end of what was
/// acknowledged.
fn append_until_the_end(client: &mut Connection, topic: &Topic, end: i64) -> i64 {
    let mut acknowledged = end;
    let version = newest::<ProduceRequest>();
    // The answer to the move is the first frame, if there is one.
    if client.read_frame().is_some() {
        let looks = DescribeLogDirsRequest { topics: None };
        for turn in 1.. {
            let appends = turn % LOOKS_PER_APPEND == 0 && acknowledged < end + 4;
            if appends {
                let batch = plain(&[large(acknowledged)]);
                client.send(&produce_request(topic, 0, 1, batch), version);
            } else {
                client.send(&looks, newest::<DescribeLogDirsRequest>());
            }
            if client.read_frame().is_none() {
                break;
            }
            acknowledged += i64::from(appends);
        }
    }
    acknowledged
}

/// ST-14: a move that ends at any step leaves the log in one place, whole, and goes on or is done.
#[test]
fn kip_113_a_move_that_ends_at_any_step() {
    let steps = [
        ("move: future made", 1),
        ("move: slice copied", 3),
        ("move: segment closed", 1),
        ("move: all copied", 1),
        ("move: marked", 1),
        ("move: marked", 2),
        ("move: renamed", 1),
        ("move: in place", 1),
        ("move: served", 1),
        ("delete: renamed", 1),
        ("delete: synced", 1),
        ("move: old gone", 1),
    ];
    let decisive = [
        "move: slice copied",
        "move: renamed",
        "move: served",
        "delete: synced",
    ];
    let of_this_run =
        |(place, nth): &(&str, u32)| is_long() || decisive.contains(place) || *nth == 2;
    let steps = steps.into_iter().filter(of_this_run);
    let mut broker = Broker::start_with(options(""));
    let mut client = broker.connect();
    let topic = client.create_topic("t", 1, &SEGMENTED);
    let mut end = 6;
    append(&mut client, &topic, 0..end);
    drop(client);
    for (place, nth) in steps {
        broker.kill();
        broker.start_again_with(ending_at(place, nth, options("")));
        let mut client = broker.connect();
        let (here, there) = here_and_there(&mut client, "t");
        append(&mut client, &topic, end..end + 1);
        end += 1;
        let to = broker.data().join(&there);
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: to.to_str().expect("UTF-8").to_owned(),
                topics: vec![AlterReplicaLogDirTopic {
                    name: "t".to_owned(),
                    partitions: vec![0],
                }],
            }],
        };
        client.send(&request, newest::<AlterReplicaLogDirsRequest>());
        let acknowledged = append_until_the_end(&mut client, &topic, end);
        let status = broker.wait_for_end();
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{place}");
        broker.start_again_with(options(""));
        let mut client = broker.connect();
        wait_until_in(&mut client, "t", &there);
        end = client.end_offset(&topic, 0);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&end),
            "{place}: {end} of {acknowledged}"
        );
        assert_eq!(check_whole(&mut client, &topic, end), 0, "{place}");
        wait_for_folders(&broker, &here, "t-0", &[]);
        wait_for_folders(&broker, &there, "t-0", &["t-0"]);
        let mark = broker.data().join(&there).join("t-0/thalweg-leaving");
        eventually("no mark is left", || (!mark.exists()).then_some(()));
        append(&mut client, &topic, end..end + 1);
        end += 1;
    }
}
