//! Stops, kills, damage, and who may use a folder.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::FetchRequest;
use thalweg_protocol::records::{BATCH_HEADER_BYTES, batches};

use crate::batch::{CODECS, compressed, plain, read_all, values};
use crate::broker::{Broker, Options, PATIENCE, eventually, serve_command};
use crate::wire::{Topic, error, fetch_request, newest, single};

#[test]
fn a_clean_stop_keeps_everything() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("kept", 4, &[]);
    for partition in 0..4 {
        for codec in CODECS {
            client.append(
                &topic,
                partition,
                compressed(codec, &[format!("{codec:?}")]),
            );
        }
    }
    let cluster = client.metadata(&[]).cluster_id;
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.metadata(&[]).cluster_id, cluster);
    for partition in 0..4 {
        let got = values(&read_all(&mut client, &topic, partition, 0));
        assert_eq!(got, CODECS.map(|codec| format!("{codec:?}").into_bytes()));
        assert_eq!(client.append(&topic, partition, plain(&["next"])), 5);
    }
}

/// KIP-320: after an unclean stop every led partition has a higher leader epoch, so that clients
/// look whether the log was cut.
#[test]
fn an_unclean_start_raises_leader_epochs() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("raised", 2, &[]);
    client.append(&topic, 0, plain(&["before"]));
    let before = client.leader_epoch(&topic, 0);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    for partition in 0..2 {
        assert!(
            client.leader_epoch(&topic, partition) > before,
            "partition {partition}"
        );
    }
    let after = client.leader_epoch(&topic, 0);
    client.append(&topic, 0, plain(&["after"]));
    let epochs: Vec<i32> = read_all(&mut client, &topic, 0, 0)
        .iter()
        .map(|record| record.leader_epoch)
        .collect();
    assert_eq!(epochs, [before, after]);
    let file = fs::read_to_string(
        broker
            .partition("raised", 0)
            .join("leader-epoch-checkpoint"),
    );
    assert!(
        file.expect("the epoch file")
            .contains(&format!("{after} 1"))
    );

    // RP-35: a client that still believes in the old epoch is told.
    let mut request = fetch_request(&topic, 0, 1);
    request.topics[0].partitions[0].current_leader_epoch = before;
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(error(answer.error_code), ErrorCode::FencedLeaderEpoch);
}

/// RP-24: a fetch that believes in more of the old epoch than there is hears where it ended.
#[test]
fn rp_24_a_diverging_fetch_is_told_at_once() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("diverging", 1, &[]);
    client.append(&topic, 0, plain(&["0", "1"]));
    let before = client.leader_epoch(&topic, 0);
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    client.append(&topic, 0, plain(&["2", "3"]));
    let mut request = fetch_request(&topic, 0, 3);
    request.max_wait_ms = 45_000;
    request.min_bytes = 1 << 20;
    request.topics[0].partitions[0].last_fetched_epoch = before;
    let answer = single(client.call(&request, newest::<FetchRequest>()));
    assert_eq!(error(answer.error_code), ErrorCode::None);
    assert_eq!(
        (
            answer.diverging_epoch.epoch,
            answer.diverging_epoch.end_offset
        ),
        (before, 2)
    );
}

/// The newest segment of a partition.
fn last_segment(broker: &Broker, topic: &Topic, partition: i32) -> PathBuf {
    let entries = fs::read_dir(broker.partition(&topic.name, partition)).expect("the partition");
    let logs = entries.map(|entry| entry.expect("an entry").path());
    let logs = logs.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.max().expect("a segment")
}

/// Bytes of whole batches in a segment, which may be followed by zeros.
fn used_bytes(segment: &PathBuf) -> u64 {
    let bytes = fs::read(segment).expect("the segment");
    let used: usize = batches(&bytes)
        .map_while(Result::ok)
        .map(|batch| batch.bytes.len())
        .sum();
    u64::try_from(used).expect("fits")
}

/// ST-1 and ST-2 through the real binary: what a crash leaves behind the last whole batch is cut.
#[test]
fn st_1_torn_tails_are_cut_after_a_kill() {
    let whole = plain(&["torn"]);
    let mut tails: Vec<Vec<u8>> = [1, 11, 12, 20, 60, 61, whole.len() - 1]
        .iter()
        .map(|len| whole[..*len].to_vec())
        .collect();
    tails.push(vec![0; 5_000]);
    tails.push(vec![0xa5; 5_000]);
    tails.push(whole); // valid, but its base offset is 0
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("torn", 1, &[]);
    let mut wanted = Vec::new();
    for (nth, tail) in tails.iter().enumerate() {
        let offset = client.append(&topic, 0, plain(&[format!("{nth}")]));
        assert_eq!(offset, i64::try_from(nth).expect("small"));
        wanted.push(nth.to_string().into_bytes());
        broker.kill();
        let segment = last_segment(&broker, &topic, 0);
        let used = used_bytes(&segment);
        let mut file = OpenOptions::new()
            .write(true)
            .open(&segment)
            .expect("the segment");
        file.set_len(used).expect("cut to the last batch");
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).expect("its end");
        file.write_all(tail).expect("the tail");
        drop(file);
        if nth + 1 == tails.len() {
            // A kill leaves no such thing: as after a loss of power.
            fs::remove_file(broker.data().join("thalweg-page-cache")).ok();
        }
        broker.start_again();
        client = broker.connect();
        let got = values(&read_all(&mut client, &topic, 0, 0));
        assert_eq!(got, wanted, "tail {nth} of {} bytes", tail.len());
        assert_eq!(used_bytes(&segment), used);
    }
}

/// ST-9: without their indexes logs are read just the same.
#[test]
fn st_9_indexes_are_rebuilt() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let settings = [
        ("segment.bytes", "1048576"),
        ("index.interval.bytes", "4096"),
    ];
    let topic = client.create_topic("indexed", 1, &settings);
    for number in 0..60 {
        client.append(&topic, 0, plain(&[format!("{number:0>60000}")]));
    }
    let names = |broker: &Broker| -> Vec<String> {
        let entries = fs::read_dir(broker.partition("indexed", 0)).expect("the partition");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.filter_map(|name| name.into_string().ok()).collect()
    };
    for clean in [true, false] {
        // Those of closed segments are saved in the background.
        eventually("some indexes", || {
            let names = names(&broker).into_iter();
            let indexes = names.filter(|name| name.ends_with(".index"));
            (indexes.count() >= 3).then_some(())
        });
        if clean {
            broker.stop()
        } else {
            broker.kill()
        }
        let mut removed = 0;
        for name in names(&broker) {
            let path = broker.partition("indexed", 0).join(&name);
            if name.ends_with(".index") {
                fs::remove_file(&path).expect("an index");
                removed += 1;
            } else if name.ends_with(".timeindex") {
                fs::write(&path, [7; 13]).expect("a broken index");
            }
        }
        assert!(removed >= 3, "{removed} indexes");
        broker.start_again();
        let mut client = broker.connect();
        assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 60);
        assert_eq!(read_all(&mut client, &topic, 0, 41).len(), 19);
    }
}

/// Placement is computed, never stored: any number of shards reads what any other wrote.
#[test]
fn nothing_on_disk_depends_on_the_number_of_shards() {
    let shards = |count| Options {
        shards: Some(count),
        ..Options::default()
    };
    let mut broker = Broker::start_with(shards(2));
    let mut client = broker.connect();
    let topic = client.create_topic("placed", 7, &[]);
    for (round, count) in [2_usize, 1, 3, 2].into_iter().enumerate() {
        for partition in 0..7 {
            let offset = client.append(&topic, partition, plain(&[format!("{count}")]));
            assert_eq!(offset, i64::try_from(round).expect("small"));
        }
        if round % 2 == 0 {
            broker.stop()
        } else {
            broker.kill()
        }
        let next = [1, 3, 2, 2][round];
        broker.start_again_with(shards(next));
        client = broker.connect();
        for partition in 0..7 {
            let got = read_all(&mut client, &topic, partition, 0);
            assert_eq!(got.len(), round + 1, "{next} shards, partition {partition}");
        }
    }
}

#[test]
fn st_28_a_second_process_on_a_folder_is_refused() {
    let mut broker = Broker::start_with(Options::default());
    let second = serve_command(&broker.data(), &Options::default())
        .output()
        .expect("it runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("data"), "{said}");
    assert!(broker.is_running());
    let topic = broker.connect().create_topic("served", 1, &[]);
    broker.connect().append(&topic, 0, plain(&["x"]));
}

#[test]
fn a_second_process_on_a_port_is_refused() {
    let mut broker = Broker::start_with(Options::default());
    let folder = tempfile::tempdir().expect("a folder");
    let second = std::process::Command::new(crate::broker::BINARY)
        .args([
            "serve",
            "--metrics-listen",
            "none",
            "--listen",
            &broker.address().to_string(),
        ])
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .output()
        .expect("it runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(
        said.contains(&broker.address().port().to_string()),
        "{said}"
    );
    assert!(broker.is_running());
}

/// ST-28: a folder of another node is not ours.
#[test]
fn st_28_a_folder_of_another_node_is_refused() {
    let mut broker = Broker::start_with(Options::default());
    broker.stop();
    let path = broker.data().join("meta.properties");
    let text = fs::read_to_string(&path).expect("meta.properties");
    assert!(
        text.contains("cluster.id=") && text.contains("directory.id="),
        "{text}"
    );
    let other: Vec<&str> = text
        .lines()
        .map(|line| {
            if line.starts_with("node.id=") {
                "node.id=4711"
            } else {
                line
            }
        })
        .collect();
    fs::write(&path, other.join("\n")).expect("meta.properties");
    let second = serve_command(&broker.data(), &Options::default())
        .output()
        .expect("it runs");
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("4711"));
}

/// Topics deleted while records pour in leave no folder behind and do not come back (ST-15).
#[test]
fn st_15_deleted_topics_stay_deleted_after_a_kill() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    for round in 0..5 {
        let topic = client.create_topic(&format!("gone-{round}"), 2, &[]);
        client.append(&topic, 0, plain(&["x"]));
        assert_eq!(client.delete_topic(&topic.name), ErrorCode::None);
    }
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    for round in 0..5 {
        let name = format!("gone-{round}");
        let found = client.metadata(&[&name]);
        assert_eq!(
            error(found.topics[0].error_code),
            ErrorCode::UnknownTopicOrPartition
        );
        let again = client.create_topic(&name, 2, &[]);
        assert_eq!(client.end_offset(&again, 0), 0);
    }
}

/// BI-38: a start may take as long as the data asks for; a stop in the middle of it does not. Here the
/// start waits for a file that does not come to its end.
#[test]
fn bi_38_sigterm_ends_a_start_at_once() {
    let mut broker = Broker::start_with(Options::default());
    let topic = broker.connect().create_topic("slow", 1, &[]);
    broker.connect().append(&topic, 0, plain(&["kept"]));
    broker.kill();
    let slow = broker.partition("slow", 0).join("leader-epoch-checkpoint");
    fs::remove_file(&slow).ok();
    mkfifo(&slow, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe with a name");
    let mut child = serve_command(&broker.data(), &Options::default())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the broker starts");
    // This opens once the broker reads it, and then the broker waits for its end.
    let (tell, told) = mpsc::channel();
    let name = slow.clone();
    std::thread::spawn(move || tell.send(OpenOptions::new().write(true).open(name)));
    let writer = told
        .recv_timeout(PATIENCE)
        .expect("the broker reads it")
        .expect("a pipe");
    let pid = i32::try_from(child.id()).expect("a pid fits");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("our child");
    let said = BufReader::new(child.stderr.take().expect("it was piped"));
    let said: Vec<String> = said.lines().map_while(Result::ok).collect();
    let status = child.wait().expect("our child");
    assert!(status.success(), "{status}: {said:#?}");
    let has = |text: &str| said.iter().any(|line| line.contains(text));
    assert!(has("stopped while starting"), "{said:#?}");
    assert!(!has("listening address="), "{said:#?}");
    drop(writer);

    fs::remove_file(&slow).expect("the pipe");
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    assert_eq!(got, [b"kept"]);
}

/// RP-59: without its metadata a broker would set every partition aside and call itself healthy.
#[test]
fn rp_59_a_metadata_log_that_is_lost_or_damaged_stops_the_start() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("precious", 1, &[]);
    client.append(&topic, 0, plain(&["kept"]));
    broker.stop();
    let folder = broker.data().join("__cluster_metadata-0");
    let file = folder.join("00000000000000000000.log");
    let whole = fs::read(&file).expect("a log");
    let mut flipped = whole.clone();
    flipped[BATCH_HEADER_BYTES + 4] ^= 1;
    for (content, says) in [
        // First, because only now the last stop was a clean one.
        (Some(&flipped[..]), "damaged at offset 0"),
        (Some(&whole[..0]), "ends at offset 0"),
        (None, "ends at offset 0"),
    ] {
        match content {
            Some(bytes) => fs::write(&file, bytes).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        refused_to_start(&broker, says);
    }
    fs::remove_dir_all(&folder).expect("removed");
    refused_to_start(&broker, "is missing");
    fs::create_dir(&folder).expect("a folder");
    fs::write(&file, &whole).expect("written");
    broker.start_again();
    let mut client = broker.connect();
    let got = values(&read_all(&mut client, &topic, 0, 0));
    assert_eq!(got, [b"kept"]);
}

/// The next life of `broker` ends with an error that contains `says`, and leaves the topic in place.
fn refused_to_start(broker: &Broker, says: &str) {
    let output = serve_command(&broker.data(), &Options::default())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(says), "{says}: {text}");
    assert!(broker.data().join("precious-0").exists(), "{text}");
}
