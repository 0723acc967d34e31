//! What a start says and does before it serves: nothing acknowledged is taken for a torn tail, and a
//! start that is refused changes nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use thalweg_protocol::ErrorCode;

use crate::batch::{plain, read_all, values};
use crate::broker::{BINARY, Broker, Options, eventually, serve_command};
use crate::seeing::get_over;
use crate::wire::{Topic, error};

const CLEAN_MARKER: &str = ".kafka_cleanshutdown";

/// A broker that was killed; everything of its topics was on the disk before.
fn killed(topics: &[&str]) -> (Broker, Vec<Topic>) {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let made = topics.iter().map(|name| {
        let topic = client.create_topic(name, 1, &[]);
        for record in ["a", "b", "c"] {
            client.append(&topic, 0, plain(&[record]));
        }
        topic
    });
    let made = made.collect();
    broker.stop();
    broker.start_again();
    broker.kill();
    (broker, made)
}

fn assert_offline(broker: &Broker, topic: &Topic) {
    let line = broker.wait_for_log(&format!("{}-0: offline", topic.name));
    for text in ["ERROR", "offsets", "missing", "thalweg repair"] {
        assert!(line.contains(text), "{text}: {line}");
    }
    let produced = broker.connect().produce(topic, 0, -1, plain(&["more"]));
    assert_eq!(error(produced.error_code), ErrorCode::KafkaStorageError);
}

/// R7: what was on the disk is gone, and no new record gets its offset, however the last process ended. The
/// others are served, and stop in order.
#[test]
fn r7_a_log_that_lost_synced_records_before_a_kill_goes_offline() {
    let (mut broker, topics) = killed(&["removed", "emptied", "cut", "folder", "whole"]);
    let segment = |topic: &str| broker.partition(topic, 0).join("00000000000000000000.log");
    let bytes = fs::read(segment("removed")).expect("a segment");
    fs::remove_file(segment("removed")).expect("removed");
    fs::write(segment("emptied"), b"").expect("emptied");
    fs::write(segment("cut"), &bytes[..bytes.len() / 3 * 2]).expect("cut");
    fs::remove_dir_all(broker.partition("folder", 0)).expect("removed");
    for round in 0..3 {
        broker.start_again();
        for topic in &topics[..4] {
            assert_offline(&broker, topic);
        }
        let mut client = broker.connect();
        let got = values(&read_all(&mut client, &topics[4], 0, 0));
        assert_eq!(got.len(), 3 + round);
        client.append(&topics[4], 0, plain(&["more"]));
        if round == 1 {
            broker.kill();
            continue;
        }
        broker.stop();
        let clean = broker.data().join(CLEAN_MARKER).exists();
        assert!(clean, "one bad partition has no other checked");
    }
    fs::write(
        broker.partition("cut", 0).join("00000000000000000000.log"),
        &bytes,
    )
    .expect("back");
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topics[2], 0, 0));
    assert_eq!(got, [b"a", b"b", b"c"]);
}

/// ST-12: an entry that outlived its topic says nothing of the next one of the name.
#[test]
fn st_12_a_topic_made_again_is_not_condemned_by_what_was_known_of_the_last() {
    let (mut broker, topics) = killed(&["again"]);
    let checkpoint = broker.data().join("recovery-point-offset-checkpoint");
    let stale = fs::read(&checkpoint).expect("a checkpoint");
    assert!(String::from_utf8_lossy(&stale).contains("again 0 3"));
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.delete_topic(&topics[0].name), ErrorCode::None);
    let topic = client.create_topic("again", 1, &[]);
    client.append(&topic, 0, plain(&["new"]));
    broker.kill();
    // As if the removal of the entry had not come to the disk.
    fs::write(&checkpoint, &stale).expect("written");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(values(&read_all(&mut client, &topic, 0, 0)), [b"new"]);
    assert_eq!(client.append(&topic, 0, plain(&["more"])), 1);
}

/// RP-59: a start that can not go on leaves the directory as it was, and was not to be reached meanwhile.
#[test]
fn rp_59_a_refused_start_keeps_the_clean_marker_and_the_port_closed() {
    let mut broker = Broker::start_with(Options::default());
    let topic = broker.connect().create_topic("kept", 1, &[]);
    broker.connect().append(&topic, 0, plain(&["kept"]));
    broker.stop();
    let data = broker.data();
    let marker = data.join(CLEAN_MARKER);
    let file = data.join("__cluster_metadata-0/00000000000000000000.log");
    let whole = fs::read(&file).expect("a log");
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    fs::write(&file, &flipped).expect("written");
    let refused = serve_command(&data, &Options::default())
        .output()
        .expect("it runs");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(marker.exists(), "the last stop is still a clean one");

    // The read of the metadata waits for a pipe; the client port is there and refuses.
    let cluster_id = data.join("__cluster_metadata-0/thalweg-cluster-id");
    let id = fs::read(&cluster_id).expect("an id");
    fs::write(&file, &whole).expect("written");
    fs::remove_file(&cluster_id).expect("removed");
    nix::unistd::mkfifo(&cluster_id, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let (mut child, address, mut pipe) = start_waiting_for(&cluster_id, &data);
    assert!(TcpStream::connect(address).is_err(), "nobody is let in yet");
    assert!(marker.exists(), "nothing has been written yet");
    std::io::Write::write_all(&mut pipe, &id).expect("written");
    drop(pipe);
    eventually("the broker lets clients in", || {
        TcpStream::connect(address).ok()
    });
    child.kill().expect("our child");
    child.wait().expect("our child");
    assert!(!marker.exists());
}

/// A broker on `data` that is to listen at an address which is known before it does, and that waits for what is
/// written into the pipe `name`.
fn start_waiting_for(name: &Path, data: &Path) -> (Child, SocketAddr, File) {
    eventually("a broker that has its address", || {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("its address");
        drop(free);
        let mut child = Command::new(BINARY)
            .args(["serve", "--metrics-listen", "none", "--listen"])
            .arg(address.to_string())
            .arg("--data-dir")
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the broker starts");
        eventually("it reads, or has ended", || {
            // Another test's broker may have got the port meanwhile: then this one ends before it reads.
            if child.try_wait().expect("our child").is_some() {
                return Some(None);
            }
            let pipe = fs::OpenOptions::new()
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(name);
            pipe.ok().map(Some)
        })
        .map(|pipe| (child, address, pipe))
    })
}

/// ST-11: what can be told anew from the batches takes no partition offline.
#[test]
fn st_11_a_leader_epoch_file_from_elsewhere_is_rebuilt() {
    let (mut broker, topics) = killed(&["large", "garbage", "flipped"]);
    let contents = ["0\n1\n77777 0\n", "0\n1\n\0\u{1}\n", "0\n2\n0 0\n3 1\n"];
    for clean in [false, true] {
        for (topic, content) in topics.iter().zip(contents) {
            let file = broker
                .partition(&topic.name, 0)
                .join("leader-epoch-checkpoint");
            fs::write(file, content).expect("written");
        }
        broker.start_again();
        broker.wait_for_log("leader epochs");
        let mut client = broker.connect();
        for topic in &topics {
            let before = read_all(&mut client, topic, 0, 0);
            assert!(values(&before).starts_with(&[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]));
            client.append(topic, 0, plain(&["more"]));
            let epoch = client.leader_epoch(topic, 0);
            let file = broker
                .partition(&topic.name, 0)
                .join("leader-epoch-checkpoint");
            let text = fs::read_to_string(file).expect("a file");
            let last = format!("{epoch} ");
            assert!(
                text.lines()
                    .next_back()
                    .is_some_and(|l| l.starts_with(&last)),
                "{text}"
            );
        }
        broker.stop();
        assert!(broker.data().join(CLEAN_MARKER).exists(), "{clean}");
    }
}

/// Nothing is wrong with a broker that was stopped for the first time.
#[test]
fn a_second_start_warns_of_no_epochs() {
    let mut broker = Broker::start_with(Options::default());
    broker.connect().create_topic("t", 1, &[]);
    broker.stop();
    broker.start_again();
    let log = broker.log();
    assert!(
        !log.iter().any(|line| line.contains("leader epochs")),
        "{log:?}"
    );
}

/// While logs are opened, the endpoint and the log say how far it is.
#[test]
fn a_start_says_how_far_it_is() {
    let (broker, _) = killed(&["slow", "quick"]);
    let slow = broker.partition("slow", 0).join("leader-epoch-checkpoint");
    fs::remove_file(&slow).expect("removed");
    // With marks that hold, the start would look at it before it opens logs.
    fs::remove_file(broker.data().join("thalweg-written-checkpoint")).ok();
    nix::unistd::mkfifo(&slow, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    // A core opens in place: what holds one log up holds up all of its core.
    let two = Options {
        shards: Some(2),
        ..Options::default()
    };
    let mut child = serve_command(&broker.data(), &two)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the broker starts");
    let mut said = BufReader::new(child.stderr.take().expect("it was piped")).lines();
    let metrics = said.find_map(|line| {
        let line = line.expect("a line");
        let address = line.split("metrics address=").nth(1)?;
        Some(address.split_whitespace().next()?.parse::<SocketAddr>())
    });
    let metrics = metrics.expect("it says where").expect("an address");
    let pipe = fs::OpenOptions::new().write(true).open(&slow);
    let said = eventually("one log is open", || {
        let stream = TcpStream::connect(metrics).ok()?;
        let (status, said) = get_over(stream, "/readyz");
        assert_eq!(status, 503, "{said}");
        said.contains("1 of 2 logs open").then_some(said)
    });
    assert!(said.starts_with("starting: "), "{said}");
    drop(pipe);
    child.kill().expect("our child");
    child.wait().expect("our child");
}
