//! One log directory of two whose disk does not answer: what does not need it goes on. What waits for the disk is held
//! up at a failpoint of the test build.

use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{DeleteTopicsRequest, ProduceRequest, delete_topics_request};

use crate::administering::alter;
use crate::batch::plain;
use crate::broker::{Broker, Options, eventually};
use crate::gate::Gate;
use crate::groups::with_coordinators;
use crate::idempotence;
use crate::wire::{Connection, Topic, error, newest, produce_request};

const FILE: &str = "log.dirs=DATA/quick, DATA/stalled\nlisteners=PLAINTEXT://127.0.0.1:0\n\
                    offsets.topic.num.partitions=4\nthalweg.engine=plain\n";
/// What does not need the disk is over by then, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(5);
const DELETE_VERSION: i16 = 6;
const TOPIC: i8 = 2;

/// A broker of two directories, and a gate that holds up all that waits for the disk of one. The metadata log is in the
/// other.
fn broker() -> (Gate, Broker) {
    let (gate, gated) = Gate::at("disk stalled");
    let broker = Broker::start_with(Options {
        config: Some(FILE.to_owned()),
        ..gated
    });
    (gate, broker)
}

/// A topic of two partitions, and which of them is where: first the one in the directory that works.
fn in_both(broker: &Broker, client: &mut Connection, name: &str) -> (Topic, [i32; 2]) {
    let topic = client.create_topic(name, 2, &[]);
    for partition in 0..2 {
        client.append(&topic, partition, plain(&["kept"]));
    }
    let is_stalled = |partition: &i32| {
        let folder = format!("stalled/{name}-{partition}");
        broker.data().join(folder).is_dir()
    };
    let (stalled, quick): (Vec<i32>, Vec<i32>) = (0..2).partition(is_stalled);
    (topic, [quick[0], stalled[0]])
}

fn deletion(name: &str, timeout_ms: i32) -> DeleteTopicsRequest {
    DeleteTopicsRequest {
        topics: vec![delete_topics_request::DeleteTopicState {
            name: Some(name.to_owned()),
            ..Default::default()
        }],
        timeout_ms,
        ..Default::default()
    }
}

/// A connection with a deletion on its way.
fn deleting(broker: &Broker, name: &str, timeout_ms: i32) -> Connection {
    let mut client = broker.connect();
    client.send(&deletion(name, timeout_ms), DELETE_VERSION);
    client
}

fn deleted(client: &mut Connection) -> ErrorCode {
    let answer = client.receive::<DeleteTopicsRequest>(DELETE_VERSION).1;
    error(answer.responses[0].error_code)
}

fn soon<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    let took = began.elapsed();
    assert!(took < SOON, "{what} took {took:?}");
    result
}

fn is_gone(broker: &Broker, name: &str) {
    let folders = ["quick/", "stalled/"].map(|dir| broker.data().join(dir));
    for folder in folders {
        let entries = std::fs::read_dir(folder).expect("a directory");
        for entry in entries {
            let entry = entry.expect("an entry").file_name();
            let entry = entry.to_string_lossy().into_owned();
            let is_left = entry.starts_with(name) && !entry.ends_with("-delete");
            assert!(!is_left, "{entry}");
        }
    }
}

/// A shard that deletes a partition there answers scrapes.
#[test]
fn st_23_a_deletion_that_waits_for_a_disk_holds_up_no_scrape() {
    let (gate, mut broker) = broker();
    let mut client = broker.connect();
    in_both(&broker, &mut client, "going");
    gate.close();
    let mut waiting = deleting(&broker, "going", 600_000);
    for _ in 0..20 {
        assert_eq!(soon("a look", || broker.get("/healthz")).0, 200);
    }
    assert_eq!(broker.metric("thalweg_log_dirs_offline", &[]), 0.0);
    assert!(!waiting.has_answer());
    gate.release();
    assert_eq!(deleted(&mut waiting), ErrorCode::None);
    is_gone(&broker, "going");
    broker.stop();
}

/// The disk is known to be silent.
fn await_silence(broker: &Broker) {
    eventually("the disk is seen to be silent", || {
        let silent = broker.metric("thalweg_log_dir_oldest_operation_seconds", &["stalled"]);
        (silent >= 1.0).then_some(())
    });
}

fn is_in(broker: &Broker, dir: &str, name: &str) -> bool {
    broker.data().join(dir).join(format!("{name}-0")).is_dir()
}

/// While a deletion waits for the disk, topics are made, changed and deleted in the other directory, producer ids given
/// out, groups found. The name is not free before the files are gone, and then a topic of that name has nothing of the
/// former.
#[test]
fn st_23_what_does_not_need_a_disk_that_does_not_answer_goes_on() {
    let (gate, mut broker) = broker();
    let mut client = broker.connect();
    in_both(&broker, &mut client, "going");
    in_both(&broker, &mut client, "hasty");
    let (staying, [quick, stalled]) = in_both(&broker, &mut client, "staying");
    gate.close();
    await_silence(&broker);
    let mut waiting = deleting(&broker, "going", 600_000);
    let mut impatient = deleting(&broker, "hasty", 1);
    let told = soon("an impatient client", || deleted(&mut impatient));
    assert_eq!(told, ErrorCode::RequestTimedOut);
    for number in 0..4 {
        let name = format!("made-{number}");
        let made = soon("a new topic", || client.create_topic(&name, 1, &[]));
        assert!(is_in(&broker, "quick", &name));
        assert_eq!(client.append(&made, 0, plain(&["at once"])), 0);
    }
    let altered = soon("a setting", || {
        alter(
            &mut client,
            TOPIC,
            "staying",
            "retention.ms",
            Some("1000000"),
        )
    });
    assert_eq!(altered, ErrorCode::None);
    soon("a producer id", || idempotence::new_id(&mut client));
    soon("a deletion", || {
        assert_eq!(client.delete_topic("made-0"), ErrorCode::None);
    });
    soon("a coordinator", || with_coordinators(&broker));
    let refused = soon("a name that is taken", || {
        client.try_create_topic("going", 1, &[])
    });
    assert_eq!(error(refused.error_code), ErrorCode::RequestTimedOut);
    assert_eq!(soon("a look", || broker.get("/healthz")).0, 200);
    assert_eq!(client.append(&staying, quick, plain(&["more"])), 1);
    assert!(!waiting.has_answer());
    gate.release();
    assert_eq!(deleted(&mut waiting), ErrorCode::None);
    let again = client.create_topic("going", 2, &[]);
    for partition in 0..2 {
        assert_eq!(client.append(&again, partition, plain(&["new"])), 0);
    }
    assert_eq!(client.append(&staying, stalled, plain(&["more"])), 1);
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    for partition in 0..2 {
        assert_eq!(client.end_offset(&again, partition), 1);
        assert_eq!(client.end_offset(&staying, partition), 2);
    }
}

/// A stop leaves behind what waits for the disk: the other directory is closed in order, and what was written to this one
/// is there at the next start.
#[test]
fn st_23_a_stop_leaves_a_disk_that_does_not_answer_behind() {
    let (gate, mut broker) = broker();
    let mut client = broker.connect();
    let (topic, [quick, stalled]) = in_both(&broker, &mut client, "kept");
    gate.close();
    await_silence(&broker);
    let batch = produce_request(&topic, stalled, 1, plain(&["on its way"]));
    let mut waiting = broker.connect();
    waiting.send(&batch, newest::<ProduceRequest>());
    assert_eq!(client.append(&topic, quick, plain(&["more"])), 1);
    let began = Instant::now();
    broker.stop();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    let is_closed = |dir: &str| {
        broker
            .data()
            .join(dir)
            .join(".kafka_cleanshutdown")
            .exists()
    };
    assert!(is_closed("quick") && !is_closed("stalled"));
    gate.release();
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(client.end_offset(&topic, quick), 2);
    assert!(client.end_offset(&topic, stalled) >= 1);
    assert_eq!(client.append(&topic, quick, plain(&["again"])), 2);
    client.append(&topic, stalled, plain(&["again"]));
    broker.stop();
}
