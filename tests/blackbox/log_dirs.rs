//! Several log directories: where partitions go, and what is served when one of them is lost.

use std::fs;
use std::path::PathBuf;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    DescribeLogDirsRequest, FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest,
};

use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options, eventually, serve_command};
use crate::disk::failing;
use crate::engine::has_strace;
use crate::groups::commit;
use crate::tool::{Running, refused, thalweg, with_input};
use crate::wire::{Connection, Topic, error, newest, partition_of, produce_request};

const FILE: &str = "log.dirs=DATA/a, DATA/b\nlisteners=PLAINTEXT://127.0.0.1:0\n\
                    offsets.topic.num.partitions=4\nthalweg.engine=plain\n";
const PARTITIONS: i32 = 4;

fn options() -> Options {
    Options {
        config: Some(FILE.to_owned()),
        ..Options::default()
    }
}

/// A broker on directories `a` and `b`, and a topic of four partitions, a record in each.
fn with_topic() -> (Broker, Connection, Topic) {
    let broker = Broker::start_with(options());
    let mut client = broker.connect();
    let topic = client.create_topic("t", PARTITIONS, &[("segment.bytes", "1048576")]);
    for partition in 0..PARTITIONS {
        client.append(&topic, partition, plain(&["kept"]));
    }
    (broker, client, topic)
}

fn folder(broker: &Broker, dir: &str, partition: i32) -> PathBuf {
    broker.data().join(dir).join(format!("t-{partition}"))
}

/// Partitions of the topic in a directory.
fn held(broker: &Broker, dir: &str) -> Vec<i32> {
    let partitions = 0..PARTITIONS;
    partitions
        .filter(|partition| folder(broker, dir, *partition).is_dir())
        .collect()
}

/// Of each directory its last name, its error, and the partitions of the topic in it.
fn described(client: &mut Connection) -> Vec<(String, ErrorCode, Vec<i32>)> {
    let request = DescribeLogDirsRequest { topics: None };
    let response = client.call(&request, newest::<DescribeLogDirsRequest>());
    let row =
        |dir: thalweg_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult| {
            let is_known = dir.total_bytes > 0 && dir.usable_bytes > 0;
            assert_eq!(is_known, dir.error_code == 0, "{}", dir.log_dir);
            let of_topic = dir.topics.iter().filter(|topic| topic.name == "t");
            let partitions = of_topic.flat_map(|topic| &topic.partitions);
            (
                dir.log_dir.rsplit('/').next().expect("a name").to_owned(),
                error(dir.error_code),
                partitions.map(|row| row.partition_index).collect(),
            )
        };
    response.results.into_iter().map(row).collect()
}

fn produced(client: &mut Connection, topic: &Topic, partition: i32) -> ErrorCode {
    error(
        client
            .produce(topic, partition, -1, plain(&["more"]))
            .error_code,
    )
}

fn contents(client: &mut Connection, topic: &Topic, partition: i32) -> Vec<Vec<u8>> {
    values(&read_all(client, topic, partition, 0))
        .into_iter()
        .map(|value| value.to_vec())
        .collect()
}

/// What every client sees of a partition whose directory is lost.
fn assert_offline(client: &mut Connection, topic: &Topic, partition: i32) {
    assert_eq!(
        produced(client, topic, partition),
        ErrorCode::KafkaStorageError
    );
    let fetched = client.fetch(topic, partition, 0);
    assert_eq!(error(fetched.error_code), ErrorCode::KafkaStorageError);
    let version = newest::<ListOffsetsRequest>();
    let listed = client.list_offset(topic, partition, -1, version);
    assert_eq!(error(listed.error_code), ErrorCode::KafkaStorageError);
    let metadata = client.metadata(&["t"]);
    let told = partition_of(&metadata.topics[0], partition);
    assert_eq!(error(told.error_code), ErrorCode::LeaderNotAvailable);
    assert_eq!((told.leader_id, &told.offline_replicas[..]), (-1, &[1][..]));
    assert_eq!(
        (&told.replica_nodes[..], &told.isr_nodes[..]),
        (&[1][..], &[1][..])
    );
}

/// Equal disks get equally many partitions, each directory is whole by itself, and a restart finds
/// partitions where they are.
#[test]
fn partitions_are_shared_out_and_found_again() {
    let (mut broker, mut client, topic) = with_topic();
    let (a, b) = (held(&broker, "a"), held(&broker, "b"));
    assert_eq!((a.len(), b.len()), (2, 2));
    let row = |dir: &str, held: &[i32]| (dir.to_owned(), ErrorCode::None, held.to_vec());
    assert_eq!(described(&mut client), [row("a", &a), row("b", &b)]);
    let metadata = newest::<MetadataRequest>();
    assert!(metadata > 0);
    let meta = |dir: &str| {
        let path = broker.data().join(dir).join("meta.properties");
        let text = fs::read_to_string(path).expect("formatted");
        let of = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.expect(key).to_owned()
        };
        (of("cluster.id="), of("node.id="), of("directory.id="))
    };
    let (first, second) = (meta("a"), meta("b"));
    assert_eq!((&first.0, &first.1), (&second.0, &second.1));
    assert_ne!(first.2, second.2);
    assert_eq!(broker.metric("thalweg_log_dirs_offline", &[]), 0.0);
    broker.stop();
    for dir in ["a", "b"] {
        let has = |name: &str| broker.data().join(dir).join(name).exists();
        assert!(has(".kafka_cleanshutdown") && has("recovery-point-offset-checkpoint"));
        assert_eq!(has("__cluster_metadata-0"), dir == "a");
    }
    broker.start_again();
    let mut client = broker.connect();
    for partition in 0..PARTITIONS {
        assert_eq!(contents(&mut client, &topic, partition), [b"kept"]);
        assert_eq!(client.leader_epoch(&topic, partition), 0);
    }
    assert_eq!((held(&broker, "a"), held(&broker, "b")), (a, b));
}

/// ST-25: without one of its directories the broker serves the others, says what is missing, makes nothing
/// anew, and has everything again when it is back.
#[test]
fn st_25_a_directory_that_is_missing_at_the_start_is_waited_for() {
    let (mut broker, client, topic) = with_topic();
    drop(client);
    let (a, b) = (held(&broker, "a"), held(&broker, "b"));
    broker.stop();
    let away = broker.data().join("unmounted");
    fs::rename(broker.data().join("b"), &away).expect("renamed");
    // An empty mount point is not a new directory either.
    fs::create_dir(broker.data().join("b")).expect("made");
    broker.start_again();
    let line = broker.wait_for_log("the log directory is offline");
    assert!(
        line.contains("is not formatted") && line.contains("thalweg format"),
        "{line}"
    );
    broker.wait_for_log("nothing is made anew in another directory");
    let mut client = broker.connect();
    for partition in &b {
        assert_offline(&mut client, &topic, *partition);
    }
    for partition in &a {
        assert_eq!(produced(&mut client, &topic, *partition), ErrorCode::None);
    }
    assert_eq!(held(&broker, "a"), a);
    assert_eq!(broker.metric("thalweg_log_dirs_offline", &[]), 1.0);
    let rows = described(&mut client);
    let lost = ("b".to_owned(), ErrorCode::KafkaStorageError, Vec::new());
    assert_eq!(rows[1], lost);
    commands_do_without(&broker, &a, &b);
    // What is new goes where there is a disk; a topic that goes does not come back with the disk.
    let other = client.create_topic("other", 2, &[]);
    client.append(&other, 1, plain(&["new"]));
    broker.stop();

    fs::remove_dir_all(broker.data().join("b")).expect("removed");
    fs::rename(&away, broker.data().join("b")).expect("renamed");
    broker.start_again();
    let mut client = broker.connect();
    for partition in &b {
        assert_eq!(contents(&mut client, &topic, *partition), [b"kept"]);
        assert_eq!(produced(&mut client, &topic, *partition), ErrorCode::None);
    }
    assert_eq!(contents(&mut client, &topic, a[0]), [&b"kept"[..], b"more"]);
    assert_eq!(described(&mut client)[1].1, ErrorCode::None);
}

/// `consume` and `produce` go on with the partitions `led` when `lost` have no leader, and say so.
fn commands_do_without(broker: &Broker, led: &[i32], lost: &[i32]) {
    let of_all = |partitions: &[i32]| "kept\nmore\n".repeat(partitions.len());
    let one = led[0].to_string();
    let consume = &["consume", "t", "--exit-at-end"][..];
    // Those that wait in vain do not wait for long, and have what is there by then on a slow machine, too; the others
    // may take their time.
    let in_vain = &["--timeout", "10"][..];
    let told = refused(broker, &[consume, &["--partition", &one]].concat(), 0);
    assert_eq!(told, (of_all(&led[..1]), String::new()));
    let (text, said) = refused(broker, &[consume, in_vain].concat(), 1);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&text), sorted(&of_all(led)));
    for partition in lost {
        assert!(said.contains(&format!("t-{partition}")), "{said}");
    }
    assert_eq!(said.matches("warning").count(), 1, "{said}");
    let produce = &["produce", "t"][..];
    for (more, warnings) in [(&["--partition", &one[..]][..], 0), (&[], 1)] {
        let output = with_input(broker, &[produce, more].concat(), b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("warning").count(), warnings, "{said}");
    }
    let lost = lost[0].to_string();
    let to_lost = [produce, in_vain, &["--partition", &lost]].concat();
    let output = with_input(broker, &to_lost, b"x\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("LEADER_NOT_AVAILABLE"),
        "{said}"
    );
}

/// A topic that was deleted while a directory with a part of it was away does not come back with it.
#[test]
fn st_15_a_topic_deleted_without_a_directory_goes_there_later() {
    let (mut broker, client, _) = with_topic();
    drop(client);
    let b = held(&broker, "b");
    broker.stop();
    let away = broker.data().join("unmounted");
    fs::rename(broker.data().join("b"), &away).expect("renamed");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.delete_topic("t"), ErrorCode::None);
    let anew = client.create_topic("t", PARTITIONS, &[]);
    client.append(&anew, b[0], plain(&["anew"]));
    broker.kill();
    fs::rename(&away, broker.data().join("b")).expect("renamed");
    broker.start_again();
    broker.wait_for_log("its topic is deleted: removed");
    assert!(held(&broker, "b").is_empty());
    eventually("nothing of it is left", || {
        let entries = fs::read_dir(broker.data().join("b")).expect("listed");
        let mut names = entries.map(|entry| entry.expect("an entry").file_name());
        let is_left = names.any(|name| name.to_string_lossy().starts_with("t-"));
        (!is_left).then_some(())
    });
    assert_eq!(held(&broker, "a").len(), 4);
    let mut client = broker.connect();
    assert_eq!(contents(&mut client, &anew, b[0]), [b"anew"]);
}

/// ST-28: what is not of this broker, or is there twice, or has no metadata, is refused by its name.
#[test]
fn st_28_directories_that_do_not_belong_together_are_refused() {
    let (mut broker, client, _) = with_topic();
    drop(client);
    broker.stop();
    let refused = |word: &str| {
        let output = serve_command(&broker.data(), &options())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(word), "{word}: {text}");
    };
    let path = broker.data().join("b/meta.properties");
    let meta = fs::read_to_string(&path).expect("formatted");
    let with = |key: &str, value: &str| {
        let line = |line: &str| match line.starts_with(key) {
            true => format!("{key}{value}\n"),
            false => format!("{line}\n"),
        };
        fs::write(&path, meta.lines().map(line).collect::<String>()).expect("written");
    };
    with("cluster.id=", "AAAAAAAAQACAAAAAAAAAAA");
    refused("data/b belongs to cluster AAAAAAAAQACAAAAAAAAAAA");
    with("node.id=", "4711");
    refused("data/b belongs to node 4711");
    fs::copy(broker.data().join("a/meta.properties"), &path).expect("copied");
    refused("data/b/meta.properties have one directory.id");
    with("directory.id=", "AAAAAAAAQACAAAAAAAAAAA");
    refused("data/b/meta.properties: directory.id is AAAAAAAAQACAAAAAAAAAAA");
    fs::write(&path, &meta).expect("written");
    let b = held(&broker, "b")[0];
    let copy = folder(&broker, "a", b);
    fs::create_dir(&copy).expect("made");
    refused("are folders of one partition");
    fs::remove_dir(&copy).expect("removed");
    let metadata = broker.data().join("a/__cluster_metadata-0");
    fs::rename(&metadata, broker.data().join("kept")).expect("renamed");
    refused("__cluster_metadata-0 is missing");
    fs::rename(
        broker.data().join("kept"),
        broker.data().join("b/__cluster_metadata-0"),
    )
    .expect("renamed");
    refused("is a metadata log, and the directory of the metadata log is");
    fs::rename(broker.data().join("b/__cluster_metadata-0"), &metadata).expect("renamed");
    fs::rename(broker.data().join("a"), broker.data().join("gone")).expect("renamed");
    refused("is not formatted");
    fs::rename(broker.data().join("gone"), broker.data().join("a")).expect("renamed");
    broker.start_again();
}

/// A stopped broker with a topic, and which of its partitions are in `a` and in `b`.
fn stopped() -> (Broker, Topic, [Vec<i32>; 2]) {
    let (mut broker, client, topic) = with_topic();
    drop(client);
    let held = ["a", "b"].map(|dir| held(&broker, dir));
    broker.stop();
    (broker, topic, held)
}

/// The coordinator of `kept` is there and that of `gone` is not.
fn assert_one_coordinates(
    client: &mut Connection,
    kept: &str,
    gone: &str,
    position: (&str, i32, i64),
) {
    assert_eq!(commit(client, kept, &[position]), [ErrorCode::None]);
    // The core that has it may hear of the loss after the others.
    eventually("it is no coordinator any more", || {
        (commit(client, gone, &[position]) == [ErrorCode::NotCoordinator]).then_some(())
    });
    assert_eq!(
        coordinator_of(client, gone),
        ErrorCode::CoordinatorNotAvailable
    );
    assert_eq!(coordinator_of(client, kept), ErrorCode::None);
}

/// ST-18, ST-25: a failed fdatasync takes one directory and nothing else; its groups are told to look for
/// their coordinator; the next start on the same boot asks the disk and not the memory.
#[test]
fn st_18_a_failed_sync_takes_one_of_two_directories() {
    if !has_strace() {
        return;
    }
    let (mut broker, topic, [a, b]) = stopped();
    let lost = folder(&broker, "b", b[0]).join("00000000000000000000.log");
    broker.start_again_with(Options {
        config: Some(FILE.to_owned()),
        ..failing("fdatasync", "EIO", lost.to_str().expect("UTF-8"))
    });
    let mut client = broker.connect();
    let groups = groups_by_dir(&broker, &mut client);
    let reader = Running::start(&broker, &["consume", "t", "--format", "%p %o\\n"]);
    for _ in 0..PARTITIONS {
        assert!(reader.line().ends_with(" 0"));
    }
    let large = || plain(&["x".repeat(700_000)]);
    client.append(&topic, b[0], large());
    // A segment is synced when the next one begins; an answer may be on its way when that fails.
    let request = produce_request(&topic, b[0], -1, large());
    client.send(&request, newest::<ProduceRequest>());
    let line = broker.wait_for_log("LOG DIRECTORY OFFLINE");
    assert!(line.contains("00000000000000000000.log"), "{line}");

    let mut client = broker.connect();
    eventually("the metadata tells", || {
        let metadata = client.metadata(&["t"]);
        let leader = |partition: &i32| partition_of(&metadata.topics[0], *partition).leader_id;
        b.iter().all(|lost| leader(lost) == -1).then_some(())
    });
    for partition in &b {
        assert_offline(&mut client, &topic, *partition);
    }
    // Who is reading is told, and reads on what there is.
    let said = reader.said();
    for (of, is_told) in [(&a, false), (&b, true)] {
        for partition in of {
            assert_eq!(said.contains(&format!("t-{partition}")), is_told, "{said}");
        }
    }
    for partition in &a {
        assert_eq!(produced(&mut client, &topic, *partition), ErrorCode::None);
    }
    let mut awaited: Vec<String> = a.iter().map(|partition| format!("{partition} 1")).collect();
    while !awaited.is_empty() {
        let line = reader.line();
        awaited.retain(|awaited| *awaited != line);
    }
    let [kept, gone] = groups;
    assert_one_coordinates(&mut client, &kept, &gone, ("t", a[0], 1));
    assert_eq!(described(&mut client)[1].1, ErrorCode::KafkaStorageError);
    broker.wait_for_metric("thalweg_log_dirs_offline", &[]);
    assert!(broker.data().join("b/thalweg-condemned").is_file());
    broker.stop();
    assert!(!broker.data().join("b/.kafka_cleanshutdown").exists());
    assert!(broker.data().join("a/.kafka_cleanshutdown").exists());

    broker.start_again_with(options());
    broker.wait_for_log("its disk failed under the last process");
    assert!(!broker.data().join("b/thalweg-condemned").exists());
    let mut client = broker.connect();
    for partition in 0..PARTITIONS {
        assert_eq!(contents(&mut client, &topic, partition)[0], b"kept");
        assert_eq!(produced(&mut client, &topic, partition), ErrorCode::None);
    }
    assert_eq!(coordinator_of(&mut client, &gone), ErrorCode::None);
}

/// ST-18, ST-25: a disk to which nobody writes does not keep its failure to itself.
#[test]
fn st_18_the_failure_of_an_idle_disk_is_noticed() {
    if !has_strace() {
        return;
    }
    let (mut broker, topic, [a, b]) = stopped();
    let probe = broker.data().join("b/thalweg-probe");
    broker.start_again_with(Options {
        config: Some(format!("{FILE}thalweg.log.dirs.probe.interval.ms=50\n")),
        ..failing("fdatasync", "EIO", probe.to_str().expect("UTF-8"))
    });
    let line = broker.wait_for_log("LOG DIRECTORY OFFLINE");
    assert!(line.contains("thalweg-probe"), "{line}");
    let mut client = broker.connect();
    eventually("the metadata tells", || {
        let metadata = client.metadata(&["t"]);
        (partition_of(&metadata.topics[0], b[0]).leader_id == -1).then_some(())
    });
    assert_offline(&mut client, &topic, b[0]);
    assert_eq!(produced(&mut client, &topic, a[0]), ErrorCode::None);
    let other = broker.data().join("a/thalweg-probe");
    eventually("the other is asked, too", || other.is_file().then_some(()));
}

fn coordinator_of(client: &mut Connection, group: &str) -> ErrorCode {
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..Default::default()
    };
    let response = client.call(&request, newest::<FindCoordinatorRequest>());
    error(response.coordinators[0].error_code)
}

/// A group whose offsets are in directory `a`, and one whose are in `b`.
fn groups_by_dir(broker: &Broker, client: &mut Connection) -> [String; 2] {
    eventually("the coordinator", || {
        (coordinator_of(client, "g0") == ErrorCode::None).then_some(())
    });
    let lies_in = |group: &str, dir: &str| {
        let home = thalweg_group_partition(group);
        let folder = format!("__consumer_offsets-{home}");
        broker.data().join(dir).join(folder).is_dir()
    };
    ["a", "b"].map(|dir| {
        let mut names = (0..1_000).map(|i| format!("g{i}"));
        names.find(|name| lies_in(name, dir)).expect("some group")
    })
}

/// As Kafka hashes: Java's hash of the name, positive, modulo the partitions.
fn thalweg_group_partition(group: &str) -> i32 {
    let hash = group.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    (hash & i32::MAX) % 4
}

/// ST-25: without the directory of its metadata there is no broker.
#[test]
fn st_25_the_loss_of_the_metadata_directory_ends_the_broker() {
    if !has_strace() {
        return;
    }
    let (mut broker, client, _) = with_topic();
    drop(client);
    broker.stop();
    let log = broker
        .data()
        .join("a/__cluster_metadata-0/00000000000000000000.log");
    let process = failing("fdatasync", "EIO", log.to_str().expect("UTF-8"));
    let options = Options {
        config: Some(FILE.to_owned()),
        ..process
    };
    // Its start writes a record.
    let output = serve_command(&broker.data(), &options)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    let fatal: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("fatal:"))
        .collect();
    assert_eq!(fatal.len(), 1, "{text}");
    assert!(
        fatal[0].contains("directory of the metadata has failed"),
        "{text}"
    );
}

/// With a directory of its own the metadata needs none of the others, and holds no partitions; without any
/// of those there is nothing to serve.
#[test]
fn the_metadata_log_may_have_a_directory_of_its_own() {
    let options = Options {
        config: Some(format!("{FILE}metadata.log.dir=DATA/m\n")),
        ..Options::default()
    };
    let mut broker = Broker::start_with(options.clone());
    let mut client = broker.connect();
    let topic = client.create_topic("t", PARTITIONS, &[]);
    client.append(&topic, 3, plain(&["kept"]));
    assert_eq!(described(&mut client).len(), 2);
    broker.stop();
    let has = |path: &str| broker.data().join(path).exists();
    assert!(has("m/__cluster_metadata-0") && !has("a/__cluster_metadata-0"));
    assert!(has("m/.kafka_cleanshutdown") && has("m/recovery-point-offset-checkpoint"));
    assert_eq!((held(&broker, "a").len(), held(&broker, "b").len()), (2, 2));
    let away = ["a", "b"].map(|dir| {
        (
            broker.data().join(dir),
            broker.data().join(dir.to_owned() + "-away"),
        )
    });
    fs::rename(&away[0].0, &away[0].1).expect("renamed");
    fs::rename(&away[1].0, &away[1].1).expect("renamed");
    let output = serve_command(&broker.data(), &options)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("fatal: no log directory works"), "{text}");
    fs::rename(&away[0].1, &away[0].0).expect("renamed");
    fs::rename(&away[1].1, &away[1].0).expect("renamed");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(contents(&mut client, &topic, 3), [b"kept"]);
}

/// The tools take the directories that the configuration names.
#[test]
fn tools_take_all_directories() {
    let (mut broker, client, _) = with_topic();
    drop(client);
    let b = held(&broker, "b")[0];
    broker.stop();
    let file = broker.data().with_file_name("server.properties");
    let file = file.to_str().expect("UTF-8");
    let said = |words: &[&str], code: i32| {
        let output = thalweg(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    };
    let text = said(&["format", "--config", file, "--ignore-formatted"], 0);
    assert_eq!(text.matches("is formatted already").count(), 2, "{text}");
    let text = said(&["doctor", "--config", file, "--json"], 0);
    assert!(
        text.contains("\"data_dirs\"") && text.contains("/data/b)"),
        "{text}"
    );
    assert!(said(&["repair", "--config", file], 0).contains("nothing to repair"));
    fs::remove_dir_all(folder(&broker, "b", b)).expect("removed");
    let text = said(&["repair", "--config", file], 1);
    assert!(text.contains(&format!("t-{b}: ")), "{text}");
    let dirs = ["a", "b"].map(|dir| broker.data().join(dir).to_string_lossy().into_owned());
    let text = said(&["inspect", &dirs[1]], 0);
    assert!(text.contains("name them all together"), "{text}");
    let text = said(&["inspect", "--verify", &dirs[0], &dirs[1]], 1);
    assert!(text.contains("see thalweg repair"), "{text}");
    said(&["repair", "--config", file, "--yes"], 0);
    // A directory that is added belongs to the cluster of the others.
    let more = format!(
        "log.dirs={dirs}/a,{dirs}/b,{dirs}/c",
        dirs = broker.data().display()
    );
    let text = said(&["format", "--config", file, "--set", &more], 0);
    assert_eq!(text.matches("formatted /").count(), 1, "{text}");
    let options = Options {
        config: Some(FILE.replace("DATA/b", "DATA/b,DATA/c")),
        ..Options::default()
    };
    broker.start_again_with(options);
    let mut client = broker.connect();
    assert_eq!(described(&mut client).len(), 3);
    client.create_topic("fourth", 3, &[]);
    assert!(broker.data().join("c").read_dir().expect("c").any(|entry| {
        let name = entry.expect("readable").file_name();
        name.to_string_lossy().starts_with("fourth-")
    }));
}
