//! `flush.messages=1`: acknowledgements and consumers wait for the disk. What "waits" means is shown by
//! holding up the fdatasyncs that acknowledgements wait for, at a failpoint of the test build.

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::ProduceRequest;

use crate::administering::alter;
use crate::batch::{plain, read_all, values};
use crate::broker::{Broker, Options, eventually, is_long};
use crate::gate::Gate;
use crate::idempotence;
use crate::wire::{Connection, Topic, error, newest, only, produce_request};

const TOPIC: i8 = 2;
const WAITS: (&str, &str) = ("flush.messages", "1");

/// A connection with a batch on its way.
fn sent(broker: &Broker, topic: &Topic, acks: i16, batch: Vec<u8>) -> Connection {
    let mut client = broker.connect();
    client.send(
        &produce_request(topic, 0, acks, batch),
        newest::<ProduceRequest>(),
    );
    client
}

fn answered(client: &mut Connection) -> (ErrorCode, i64) {
    let answer = only(
        client
            .receive::<ProduceRequest>(newest::<ProduceRequest>())
            .1,
    );
    (error(answer.error_code), answer.base_offset)
}

fn written(broker: &Broker) -> f64 {
    broker.metric("thalweg_append_batches_total", &[])
}

#[test]
fn r2_acks_retries_and_consumers_wait_for_the_disk() {
    let (gate, options) = Gate::at("ack flush");
    let broker = Broker::start_with(options);
    let mut client = broker.connect();
    let durable = client.create_topic("durable", 1, &[WAITS]);
    let cached = client.create_topic("cached", 1, &[]);
    let id = idempotence::new_id(&mut client);
    gate.close();
    let before = written(&broker);
    let batch = idempotence::batch(id, 0, 0, &["of an idempotent producer"]);
    let mut waiting = vec![
        sent(&broker, &durable, 1, plain(&["one"])),
        sent(&broker, &durable, -1, plain(&["two"])),
        sent(&broker, &durable, 1, batch.clone()),
    ];
    broker.wait_for_more("thalweg_append_batches_total", &[], before + 2.0);
    waiting.push(sent(&broker, &durable, 1, batch));
    broker.wait_for_metric("thalweg_produce_retries_total", &[]);
    // Everything is written. Others are served meanwhile, and nobody is told of it.
    assert_eq!(client.append(&cached, 0, plain(&["at once"])), 0);
    assert_eq!(client.end_offset(&durable, 0), 0);
    let seen = client.fetch(&durable, 0, 0);
    assert_eq!(
        (error(seen.error_code), seen.high_watermark),
        (ErrorCode::None, 0)
    );
    assert!(waiting.iter().all(|client| !client.has_answer()));
    assert_eq!(broker.metric("thalweg_log_ack_flushes_total", &[]), 0.0);
    gate.release();
    let mut offsets: Vec<i64> = waiting
        .iter_mut()
        .map(|client| {
            let (code, offset) = answered(client);
            assert_eq!(code, ErrorCode::None);
            offset
        })
        .collect();
    assert_eq!(offsets[2], offsets[3], "the retry and its original");
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets, [0, 1, 2]);
    assert_eq!(client.end_offset(&durable, 0), 3);
    assert_eq!(read_all(&mut client, &durable, 0, 0).len(), 3);
    // What was written while the first round was held shared the second.
    let rounds = broker.metric("thalweg_log_ack_flushes_total", &[]);
    assert!((1.0..=2.0).contains(&rounds), "{rounds}");
}

#[test]
fn r2_the_setting_is_live_and_has_a_default_of_the_broker() {
    let (gate, options) = Gate::at("ack flush");
    let mut broker = Broker::start_with(options.clone());
    let mut client = broker.connect();
    let topic = client.create_topic("changed", 1, &[]);
    gate.close();
    assert_eq!(client.append(&topic, 0, plain(&["cached"])), 0);
    assert_eq!(
        alter(&mut client, TOPIC, "changed", WAITS.0, Some(WAITS.1)),
        ErrorCode::None
    );
    // What was shown before stays so.
    assert_eq!(client.end_offset(&topic, 0), 1);
    let before = written(&broker);
    let mut waiting = sent(&broker, &topic, 1, plain(&["durable"]));
    broker.wait_for_more("thalweg_append_batches_total", &[], before);
    assert_eq!(client.end_offset(&topic, 0), 1);
    assert!(!waiting.has_answer());
    assert_eq!(
        alter(&mut client, TOPIC, "changed", WAITS.0, None),
        ErrorCode::None
    );
    assert_eq!(answered(&mut waiting), (ErrorCode::None, 1));
    gate.release();
    broker.stop();
    let properties = [("log.flush.interval.messages", "1")];
    broker.start_again_with(Options::with(&properties));
    let mut client = broker.connect();
    assert_eq!(client.append(&topic, 0, plain(&["by default"])), 2);
    assert!(broker.metric("thalweg_log_ack_flushes_total", &[]) >= 1.0);
    broker.kill();
    broker.start_again();
    let got = values(&read_all(&mut broker.connect(), &topic, 0, 0));
    assert_eq!(got, [&b"cached"[..], b"durable", b"by default"]);
}

/// ST-23: a disk that does not answer holds up who waits for it, in the long form until they are told so, and nobody
/// else on any core. How long it has been silent can be seen. Afterwards everything is there once.
#[test]
fn st_23_a_stalled_disk_holds_up_nobody_else_and_leaves_no_duplicates() {
    let (gate, options) = Gate::at("ack flush");
    let broker = Broker::start_with(options);
    let mut client = broker.connect();
    let durable = client.create_topic("durable", 1, &[WAITS]);
    let others = client.create_topic("others", 4, &[]);
    let id = idempotence::new_id(&mut client);
    let batch = idempotence::batch(id, 0, 0, &["once"]);
    let silent = || broker.metric("thalweg_log_dir_oldest_operation_seconds", &[]);
    gate.close();
    let mut first = sent(&broker, &durable, -1, batch.clone());
    eventually("the disk is seen to be silent", || {
        (silent() > 0.2).then_some(())
    });
    for partition in 0..4 {
        assert_eq!(client.append(&others, partition, plain(&["at once"])), 0);
        assert_eq!(read_all(&mut client, &others, partition, 0).len(), 1);
    }
    assert!(!first.has_answer());
    if is_long() {
        assert_eq!(answered(&mut first).0, ErrorCode::RequestTimedOut);
        broker.wait_for_log("the disk does not answer");
    }
    let mut again = sent(&broker, &durable, -1, batch);
    broker.wait_for_metric("thalweg_produce_retries_total", &[]);
    gate.release();
    if is_long() {
        broker.wait_for_log("the disk answers again");
    } else {
        assert_eq!(answered(&mut first), (ErrorCode::None, 0));
    }
    assert_eq!(answered(&mut again), (ErrorCode::None, 0));
    assert_eq!(client.end_offset(&durable, 0), 1);
    assert_eq!(read_all(&mut client, &durable, 0, 0).len(), 1);
    eventually("the disk answers", || (silent() == 0.0).then_some(()));
}

/// ST-18, ST-25: an fdatasync that failed is not tried again, what it was to cover is not acknowledged, and
/// with the only disk gone the broker ends.
#[test]
fn st_18_after_a_failed_flush_nothing_is_acknowledged() {
    let options = Options {
        wrapper: vec!["env", "THALWEG_FAILPOINTS=ack flush=fail@2"],
        ..Options::default()
    };
    let mut broker = Broker::start_with(options);
    let mut client = broker.connect();
    let topic = client.create_topic("failing", 1, &[WAITS]);
    assert_eq!(client.append(&topic, 0, plain(&["fine"])), 0);
    // Only the second fdatasync fails; no further one is asked for.
    let lost = produce_request(&topic, 0, 1, plain(&["lost"]));
    let version = newest::<ProduceRequest>();
    client.send(&lost, version);
    // The refusal may come before the end of the process.
    if let Some((_, refused)) = client.receive_or_closed::<ProduceRequest>(version) {
        let refused = error(only(refused).error_code);
        assert_eq!(refused, ErrorCode::KafkaStorageError);
    }
    let status = broker.wait_for_end();
    assert_eq!(status.code(), Some(6), "{}", broker.log().join("\n"));
    broker.wait_for_log("no log directory works any more");
}

/// R6, R7: flushes in the background move the recovery point, and damage below it is told from a torn
/// end.
#[test]
fn r6_the_recovery_point_follows_flushes_in_the_background() {
    let mut broker = Broker::start_with(Options::with(&[
        ("thalweg.log.flush.interval.ms", "1"),
        ("log.flush.scheduler.interval.ms", "1"),
        ("log.flush.offset.checkpoint.interval.ms", "1"),
    ]));
    let mut client = broker.connect();
    let topic = client.create_topic("paced", 2, &[]);
    for partition in 0..2 {
        for number in 0..20 {
            client.append(&topic, partition, plain(&[format!("{number}")]));
        }
    }
    // A recovery point counts as far as the last of these, which is written after the others, has it.
    for (file, topic) in [
        ("recovery-point-offset-checkpoint", topic.name.clone()),
        ("replication-offset-checkpoint", topic.name.clone()),
        ("thalweg-recovery-points", topic.id.to_string()),
    ] {
        eventually(file, || {
            let text = std::fs::read_to_string(broker.data().join(file)).unwrap_or_default();
            let has = |partition| text.contains(&format!("{topic} {partition} 20\n"));
            (has(0) && has(1)).then_some(())
        });
    }
    assert_eq!(broker.metric("thalweg_log_unflushed_bytes", &[]), 0.0);
    assert!(broker.metric("thalweg_log_flushed_bytes_total", &[]) > 0.0);
    assert_eq!(broker.metric("thalweg_log_ack_flushes_total", &[]), 0.0);
    broker.kill();
    let segment = broker.partition("paced", 1).join(format!("{:020}.log", 0));
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&segment, &bytes).expect("a segment");
    broker.start_again();
    let mut client = broker.connect();
    assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 20);
    let refused = client.produce(&topic, 1, 1, plain(&["x"]));
    assert_eq!(error(refused.error_code), ErrorCode::KafkaStorageError);
    assert_eq!(std::fs::read(&segment).expect("a segment"), bytes);
}

fn marked(broker: &Broker, line: &str) -> Option<()> {
    let file = broker.data().join("thalweg-written-checkpoint");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.contains(line).then_some(())
}

/// After a kill only what lies above the marks is checked, on the same boot and mount; producers are known
/// all the same.
#[test]
fn a_start_after_a_kill_checks_only_the_tail() {
    let options = Options::with(&[("log.flush.scheduler.interval.ms", "1")]);
    let mut broker = Broker::start_with(options);
    let mut client = broker.connect();
    let topic = client.create_topic("marked", 1, &[]);
    let id = idempotence::new_id(&mut client);
    let large = "x".repeat(900_000);
    for number in 0..12 {
        let batch = idempotence::batch(id, 0, number, &[large.as_str()]);
        client.append(&topic, 0, batch);
    }
    if !kernel_tells_mounts() {
        return;
    }
    eventually("a mark", || {
        (9..=12).find_map(|end| marked(&broker, &format!("marked 0 {end}\n")))
    });
    let tail = idempotence::batch(id, 0, 12, &["tail"]);
    assert_eq!(client.append(&topic, 0, tail.clone()), 12);
    broker.kill();
    broker.start_again();
    let read = |name| broker.metric(name, &[]);
    let (trusted, checked) = (
        read("thalweg_recovery_trusted_bytes_total"),
        read("thalweg_recovery_scanned_bytes_total"),
    );
    assert!(trusted > 7e6 && checked < 4e6, "{trusted} and {checked}");
    let mut client = broker.connect();
    assert_eq!(client.append(&topic, 0, tail), 12, "a retry");
    let next = idempotence::batch(id, 0, 13, &["next"]);
    assert_eq!(client.append(&topic, 0, next), 13);
    assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 14);
    // On another boot, as far as the file says, nothing is believed.
    eventually("marks of this life", || marked(&broker, "marked 0 "));
    broker.kill();
    let file = broker.data().join("thalweg-written-checkpoint");
    let text = std::fs::read_to_string(&file).expect("marks");
    std::fs::write(&file, format!("another {text}")).expect("marks");
    broker.start_again();
    assert_eq!(
        broker.metric("thalweg_recovery_trusted_bytes_total", &[]),
        0.0
    );
    assert!(broker.metric("thalweg_recovery_scanned_bytes_total", &[]) > 1e7);
    assert_eq!(read_all(&mut broker.connect(), &topic, 0, 0).len(), 14);
}

/// Linux has had ids of mounts that are not used again since 6.8.
pub(crate) fn kernel_tells_mounts() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(8))
}
