//! What a clean stop had left and somebody or something took away: said at the next start, never
//! served as if it had not been.

use std::fs;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::batches;

use crate::administering::{delete_records, described_partition};
use crate::batch::{Got, plain, read_all, records_from, values};
use crate::broker::{Broker, Options, serve_command};
use crate::tool::thalweg;
use crate::wire::{Connection, Topic, error};

/// A broker that was stopped in order, with one record in each of these topics.
fn stopped(topics: &[&str]) -> (Broker, Vec<Topic>) {
    stopped_with(topics, &["kept"])
}

/// The same with these records, each a batch.
fn stopped_with(topics: &[&str], records: &[&str]) -> (Broker, Vec<Topic>) {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let made = topics.iter().map(|name| {
        let topic = client.create_topic(name, 1, &[]);
        for record in records {
            client.append(&topic, 0, plain(&[record]));
        }
        topic
    });
    let made = made.collect();
    broker.stop();
    (broker, made)
}

/// The partition of `topic` answers nothing but storage errors, and the log says why.
fn assert_offline(broker: &Broker, topic: &Topic, says: &[&str]) {
    let line = broker.wait_for_log(&format!("{}-0: offline", topic.name));
    assert!(line.contains("ERROR"), "{line}");
    for text in says {
        assert!(line.contains(text), "{text}: {line}");
    }
    let mut client = broker.connect();
    let produced = client.produce(topic, 0, -1, plain(&["more"]));
    assert_eq!(error(produced.error_code), ErrorCode::KafkaStorageError);
    let fetched = client.fetch(topic, 0, 0);
    assert_eq!(error(fetched.error_code), ErrorCode::KafkaStorageError);
    let told = &client.metadata(&[&topic.name]).topics[0].partitions[0];
    assert_eq!(error(told.error_code), ErrorCode::LeaderNotAvailable);
    assert_eq!(told.leader_id, -1);
    // What Kafka's tools ask for a topic says the same.
    let told = described_partition(&mut client, &topic.name);
    assert_eq!(error(told.error_code), ErrorCode::LeaderNotAvailable);
    assert_eq!((told.leader_id, &told.offline_replicas[..]), (-1, &[1][..]));
}

/// ST-12, R7: a log that lost its only segment, or its whole folder, is no empty log, and is not one at the
/// start after that either. With the files back it is served.
#[test]
fn st_12_a_log_that_lost_its_files_after_a_clean_stop_goes_offline() {
    let (mut broker, topics) = stopped(&["file", "emptied", "folder", "whole"]);
    let away = broker.data().with_file_name("away");
    fs::create_dir(&away).expect("a folder");
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    let bytes = fs::read(segment("file")).expect("a segment");
    fs::remove_file(segment("file")).expect("removed");
    fs::write(segment("emptied"), b"").expect("emptied");
    fs::rename(broker.partition("folder", 0), away.join("folder-0")).expect("moved");
    for round in ["clean", "clean again", "killed"] {
        broker.start_again();
        for topic in &topics[..3] {
            let says = ["offsets 0 to 0 are missing", "thalweg repair", &topic.name];
            assert_offline(&broker, topic, &says);
        }
        let got = values(&read_all(&mut broker.connect(), &topics[3], 0, 0));
        assert_eq!(got, [b"kept"], "{round}");
        match round {
            "killed" => broker.kill(),
            _clean => broker.stop(),
        }
    }
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    fs::write(segment("file"), &bytes).expect("written");
    fs::write(segment("emptied"), &bytes).expect("written");
    fs::rename(away.join("folder-0"), broker.partition("folder", 0)).expect("moved back");
    broker.start_again();
    let mut client = broker.connect();
    for topic in &topics {
        assert_eq!(values(&read_all(&mut client, topic, 0, 0)), [b"kept"]);
        assert_eq!(client.append(topic, 0, plain(&["more"])), 1);
    }
}

/// ST-13, ST-15: a power loss can take a directory that was not on the disk yet, while the log's start
/// was. The log goes on there, and what is acknowledged then survives the next crash.
#[test]
fn st_13_a_log_that_is_made_anew_begins_at_its_start() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("anew", 1, &[]);
    for record in ["a", "b", "c"] {
        client.append(&topic, 0, plain(&[record]));
    }
    assert_eq!(delete_records(&mut client, &topic, 3), (ErrorCode::None, 3));
    broker.kill();
    fs::remove_dir_all(broker.partition("anew", 0)).expect("removed");
    broker.start_again();
    assert_eq!(broker.connect().append(&topic, 0, plain(&["d"])), 3);
    broker.kill();
    broker.start_again();
    let got = read_all(&mut broker.connect(), &topic, 0, 3);
    assert_eq!(values(&got), [b"d"]);
}

/// ST-15: a partition is not put away for an empty one because of one wrong character.
#[test]
fn st_15_a_damaged_topic_id_puts_no_partition_aside() {
    let (mut broker, topics) = stopped(&["flipped", "swapped", "unreadable"]);
    let file = |topic: &str| broker.partition(topic, 0).join("partition.metadata");
    let text = fs::read_to_string(file("flipped")).expect("a file");
    let at = text.find("topic_id: ").expect("an id") + 12;
    let other = if &text[at..=at] == "x" { "y" } else { "x" };
    let flipped = format!("{}{other}{}", &text[..at], &text[at + 1..]);
    fs::write(file("swapped"), &text).expect("written");
    fs::write(file("flipped"), flipped).expect("written");
    fs::write(file("unreadable"), text.replace("version: 0", "version: 7")).expect("written");
    for clean in [true, false] {
        broker.start_again();
        for topic in &topics[..2] {
            assert_offline(&broker, topic, &["partition.metadata", "topic id"]);
        }
        let got = values(&read_all(&mut broker.connect(), &topics[2], 0, 0));
        assert_eq!(got, [b"kept"]);
        if clean {
            broker.wait_for_log("written anew from the metadata");
        }
        let entries = fs::read_dir(broker.data()).expect("a folder");
        for entry in entries {
            let name = entry.expect("an entry").file_name();
            assert!(!name.to_string_lossy().ends_with("-stray"), "{name:?}");
        }
        broker.kill();
    }
    fs::write(
        broker.partition("flipped", 0).join("partition.metadata"),
        &text,
    )
    .expect("written");
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topics[0], 0, 0));
    assert_eq!(got, [b"kept"]);
}

/// ST-28: one wrong character in the identity of a directory.
#[test]
fn st_28_a_damaged_identity_refuses_the_start() {
    let (mut broker, topics) = stopped(&["mine"]);
    let path = broker.data().join("meta.properties");
    let text = fs::read_to_string(&path).expect("meta.properties");
    for key in ["cluster.id=", "directory.id=", "node.id="] {
        let at = text.find(key).expect("the key") + key.len();
        let other = if &text[at..=at] == "7" { "8" } else { "7" };
        let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        fs::write(&path, changed).expect("written");
        let output = serve_command(&broker.data(), &Options::default())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{key} {said}");
        assert!(
            said.contains(&broker.data().display().to_string()),
            "{key} {said}"
        );
        let word = key.trim_end_matches('=').trim_end_matches(".id");
        assert!(said.contains(word), "{key} {said}");
    }
    fs::write(&path, &text).expect("written");
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topics[0], 0, 0));
    assert_eq!(got, [b"kept"]);
}

fn repair(broker: &Broker, more: &[&str]) -> (Option<i32>, String) {
    let data = broker.data();
    let mut words = vec!["repair", "--data-dir", data.to_str().expect("UTF-8")];
    words.extend(more);
    let output = thalweg(&words);
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

/// Each topic goes on where it had come to: the first three without their record, the others whole.
fn assert_serves_repaired(broker: &mut Broker, topics: &[Topic]) {
    broker.start_again();
    let mut client = broker.connect();
    for (topic, next, kept) in [
        (&topics[0], 1, false),
        (&topics[1], 1, false),
        (&topics[2], 1, false),
        (&topics[3], 1, true),
        (&topics[4], 1, true),
    ] {
        assert_eq!(
            client.append(topic, 0, plain(&["more"])),
            next,
            "{}",
            topic.name
        );
        let got = values(&read_all(
            &mut client,
            topic,
            0,
            if kept { 0 } else { next },
        ));
        let wanted: &[&[u8]] = if kept {
            &[b"kept", b"more"]
        } else {
            &[b"more"]
        };
        assert_eq!(got, wanted, "{}", topic.name);
    }
}

/// R7: what is damaged is repaired when an operator says so, and not before.
#[test]
fn r7_repair_says_what_it_would_do_and_does_it_when_told() {
    let (mut broker, topics) = stopped(&["cut", "emptied", "folder", "flipped", "whole"]);
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    let whole = fs::read(segment("cut")).expect("a segment");
    fs::write(segment("cut"), &whole[..whole.len() - 1]).expect("cut");
    fs::write(segment("emptied"), b"").expect("emptied");
    fs::remove_dir_all(broker.partition("folder", 0)).expect("removed");
    let id = broker.partition("flipped", 0).join("partition.metadata");
    let other = broker.partition("whole", 0).join("partition.metadata");
    fs::copy(other, &id).expect("another topic's id");

    for _ in 0..2 {
        let (code, said) = repair(&broker, &[]);
        assert_eq!(code, Some(1), "{said}");
        for text in [
            "cut-0: ",
            "take bytes 0 to",
            "emptied-0: records of offsets 0 to 0 are missing",
            "the log ends at offset 0 and goes on at offset 1",
            "folder-0 at offset 1",
            "flipped-0: ",
            "4 partitions to repair; nothing was changed",
            "--yes",
        ] {
            assert!(said.contains(text), "{text}: {said}");
        }
        assert!(!said.contains("whole-0:"), "{said}");
    }
    assert_eq!(
        fs::read(segment("cut")).expect("a segment").len(),
        whole.len() - 1
    );
    let data = broker.data();
    let inspected = thalweg(&["inspect", data.to_str().expect("UTF-8")]);
    let shown = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(shown.contains("folder-0 at offset 1"), "{shown}");

    for unknown in ["nosuch-0", "whole-9", "whole"] {
        let (code, said) = repair(&broker, &["--yes", unknown]);
        let names = said.contains(&format!("no partition {unknown}:"));
        assert_eq!((code, names), (Some(4), true), "{said}");
    }
    let (code, said) = repair(&broker, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = repair(&broker, &[]);
    assert_eq!(
        (code, said.contains("nothing to repair")),
        (Some(0), true),
        "{said}"
    );
    assert_serves_repaired(&mut broker, &topics);
    let (code, said) = repair(&broker, &[]);
    let advises = said.contains("in use") && said.contains("stop the broker first");
    assert_eq!((code, advises), (Some(1), true), "{said}");
}

/// The segments in a partition's directory, in order.
fn log_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs
}

/// R7, ST-3: a kill tears nothing but the last write. What else is damaged is not cut off with all behind it, however
/// young the recovery point is, and repaired when an operator says so.
#[test]
fn r7_damage_after_a_kill_is_no_torn_tail() {
    if !crate::durable::kernel_tells_mounts() {
        return;
    }
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let settings = [("flush.messages", "1"), ("segment.bytes", "1048576")];
    let topic = client.create_topic("durable", 1, &settings);
    for offset in 0..8 {
        client.append(&topic, 0, plain(&[crate::retention::large(offset)]));
    }
    broker.kill();
    let dir = broker.partition("durable", 0);
    let segments = log_files(&dir);
    assert!(segments.len() > 2, "{segments:?}");
    let damaged = &segments[1];
    let mut bytes = fs::read(damaged).expect("a segment");
    bytes[1_000] ^= 1;
    fs::write(damaged, &bytes).expect("a segment");
    for _ in 0..2 {
        broker.start_again();
        let said = broker.wait_for_log("durable-0: offline");
        let named = said.contains(&*damaged.to_string_lossy()) && said.contains("thalweg repair");
        assert!(named, "{said}");
        let refused = broker.connect().produce(&topic, 0, 1, plain(&["x"]));
        assert_eq!(error(refused.error_code), ErrorCode::KafkaStorageError);
        broker.kill();
        assert_eq!(log_files(&dir), segments);
    }
    let (code, said) = repair(&broker, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.append(&topic, 0, plain(&["more"])), 8);
    assert_eq!(read_over_holes(&mut client, &topic, 9).len(), 8);
}

/// ST-12: a kill takes nothing of what was written. A log that a start has marked is no shorter at the next one, wherever
/// it was cut.
#[test]
fn st_12_a_log_that_ends_before_its_mark_after_a_kill_goes_offline() {
    if !crate::durable::kernel_tells_mounts() {
        return;
    }
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topics = ["cut", "gone", "whole"].map(|name| client.create_topic(name, 1, &[]));
    for topic in &topics {
        for record in ["a", "b"] {
            client.append(topic, 0, plain(&[record]));
        }
    }
    broker.kill();
    // It marks what it has opened.
    broker.start_again();
    broker.kill();
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    let bytes = fs::read(segment("cut")).expect("a segment");
    fs::write(segment("cut"), &bytes[..bytes.len() / 2]).expect("cut where a batch ends");
    fs::remove_file(segment("gone")).expect("removed");
    for _ in 0..2 {
        broker.start_again();
        let says = ["offsets 1 to 1 are missing", "thalweg repair"];
        assert_offline(&broker, &topics[0], &says);
        assert_offline(&broker, &topics[1], &["offsets 0 to 1 are missing"]);
        let got = values(&read_all(&mut broker.connect(), &topics[2], 0, 0));
        assert_eq!(got, [b"a", b"b"]);
        broker.kill();
    }
    let (code, said) = repair(&broker, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    broker.start_again();
    let mut client = broker.connect();
    for topic in &topics {
        assert_eq!(client.append(topic, 0, plain(&["more"])), 2);
    }
    assert_eq!(read_over_holes(&mut client, &topics[0], 3).len(), 2);
    let left = read_all(&mut client, &topics[1], 0, 2);
    assert_eq!(values(&left), [b"more"]);
    assert_eq!(read_over_holes(&mut client, &topics[2], 3).len(), 3);
}

/// Everything up to `end` of a log that lacks offsets.
fn read_over_holes(client: &mut Connection, topic: &Topic, end: i64) -> Vec<Vec<u8>> {
    let mut all: Vec<Got> = Vec::new();
    let mut at = 0;
    while at < end {
        let got = records_from(&client.fetch(topic, 0, at), at);
        at = got.last().expect("progress").offset + 1;
        all.extend(got);
    }
    values(&all)
}

/// R7: after a clean stop a start reads only the ends of logs. What is damaged in their middle is found all the same,
/// in all of them at once, and repaired in one go: the start after that finds nothing more.
#[test]
fn r7_repair_finds_every_damaged_batch_and_repairs_all_in_one_go() {
    let (mut broker, topics) = stopped_with(&["one", "two", "whole"], &["a", "b", "c", "d"]);
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    let whole = fs::read(segment("whole")).expect("a segment");
    let batch = whole.len() / 4;
    for (topic, places) in [("one", &[0, 2][..]), ("two", &[0][..])] {
        let mut bytes = fs::read(segment(topic)).expect("a segment");
        for place in places {
            bytes[(place + 1) * batch - 2] ^= 1;
        }
        fs::write(segment(topic), bytes).expect("written");
    }
    let data = broker.data();
    let inspected = thalweg(&["inspect", data.to_str().expect("UTF-8")]);
    assert_eq!(inspected.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&inspected.stdout).into_owned();
    let (code, said) = repair(&broker, &["one-0"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("damaged too: two-0"), "{said}");
    let (code, said) = repair(&broker, &[]);
    assert_eq!(code, Some(1), "{said}");
    for (topic, place) in [("one", 0), ("one", 2), ("two", 0)] {
        let at = place * batch;
        let path = segment(topic);
        let found = format!(
            "{topic}-0: {} is damaged at byte {at} (offset {place}): the checksum does not match",
            path.display()
        );
        let done = format!(
            "take bytes {at} to {} out of {}",
            at + batch - 1,
            path.display()
        );
        for line in [found, done] {
            assert!(said.contains(&line), "{line}: {said}");
            assert!(shown.contains(&line), "{line}: {shown}");
        }
    }
    assert!(!said.contains("whole-0"), "{said}");

    let (code, said) = repair(&broker, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = repair(&broker, &[]);
    assert_eq!(code, Some(0), "{said}");
    broker.start_again();
    let mut client = broker.connect();
    let kept: [&[&[u8]]; 3] = [
        &[b"b", b"d", b"more"],
        &[b"b", b"c", b"d", b"more"],
        &[b"a", b"b", b"c", b"d", b"more"],
    ];
    for (topic, kept) in topics.iter().zip(kept) {
        assert_eq!(
            client.append(topic, 0, plain(&["more"])),
            4,
            "{}",
            topic.name
        );
        assert_eq!(
            read_over_holes(&mut client, topic, 5),
            kept,
            "{}",
            topic.name
        );
    }
}

/// A kill may leave the newest segment of the metadata without its name.
#[test]
fn repair_knows_what_the_metadata_says_last() {
    let (broker, _) = stopped(&["early", "late"]);
    let folder = broker.data().join("__cluster_metadata-0");
    let named = folder.join("00000000000000000000.log");
    let bytes = fs::read(&named).expect("a segment");
    let mut before = 0;
    for batch in batches(&bytes) {
        let batch = batch.expect("a batch").bytes;
        if batch.windows(4).any(|window| window == b"late") {
            break;
        }
        before += batch.len();
    }
    assert!(before > 0 && before < bytes.len());
    fs::write(&named, &bytes[..before]).expect("written");
    fs::write(folder.join("next.segment"), &bytes[before..]).expect("written");
    let data = broker.data();
    let data = data.to_str().expect("UTF-8");
    let output = thalweg(&["repair", "--data-dir", data, "late-0"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("nothing to repair"),
        "{output:?}"
    );
}

/// Without a data directory the message says where to name one.
#[test]
fn repair_without_a_data_directory_says_how_to_name_one() {
    let empty = tempfile::tempdir().expect("a folder");
    let path = empty.path().to_str().expect("UTF-8");
    let output = thalweg(&["repair", "--data-dir", path]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.matches(path).count(), 1, "{said}");
    assert!(
        said.contains("--config") && said.contains("--data-dir"),
        "{said}"
    );
}
