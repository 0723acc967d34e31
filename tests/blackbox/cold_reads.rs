//! Fetches of what is not in the page cache: they come through the lane, whole, and nobody else waits for them.

use std::fs::File;
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::FetchRequest;

use crate::batch::{plain, read_all, records_from, values};
use crate::broker::{Broker, Options, eventually};
use crate::gate::{Gate, failpoint};
use crate::wire::{Connection, Topic, error, fetch_request, newest, single};

const BATCHES: usize = 12;

/// Values that tell where they belong.
fn value(partition: i32, n: usize) -> String {
    let text = format!("{partition} {n} ");
    text.repeat(200_000 / text.len())
}

fn expected(partition: i32) -> Vec<Vec<u8>> {
    (0..BATCHES)
        .map(|n| value(partition, n).into_bytes())
        .collect()
}

/// A broker that has started on a topic of two partitions of several segments, none of which is in the page
/// cache. True with it when they have a disk to be on.
fn on_cold_segments(options: Options) -> (Broker, Topic, bool) {
    let small = vec![("log.segment.bytes", "1048576".to_owned())];
    let mut broker = Broker::start_with(Options {
        properties: small.clone(),
        ..Options::default()
    });
    let mut client = broker.connect();
    let topic = client.create_topic("cold", 2, &[]);
    for partition in 0..2 {
        for n in 0..BATCHES {
            client.append(&topic, partition, plain(&[value(partition, n)]));
        }
    }
    broker.stop();
    broker.start_again_with(Options {
        properties: small,
        ..options
    });
    let is_cold = evict(&broker, &topic);
    (broker, topic, is_cold)
}

/// Takes the segments out of the page cache. False where that can not be.
fn evict(broker: &Broker, topic: &Topic) -> bool {
    for partition in 0..2 {
        let folder = broker.partition(&topic.name, partition);
        for entry in folder.read_dir().expect("a folder") {
            let path = entry.expect("a name").path();
            if path.extension().is_some_and(|ending| ending == "log") {
                let file = File::open(&path).expect("a segment");
                file.sync_all().expect("synced");
                posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                    .expect("advised");
            }
        }
    }
    has_disk(&broker.data())
}

fn has_disk(path: &Path) -> bool {
    statfs(path).expect("a file system").filesystem_type() != TMPFS_MAGIC
}

/// Asks for all of a partition, and waits for nothing.
fn ask(client: &mut Connection, topic: &Topic, partition: i32, offset: i64) {
    client.send(
        &fetch_request(topic, partition, offset),
        newest::<FetchRequest>(),
    );
}

/// The values that an asked fetch from `offset` on brings, of one segment.
fn received(client: &mut Connection, offset: i64) -> Vec<Vec<u8>> {
    let (_, answer) = client.receive::<FetchRequest>(newest::<FetchRequest>());
    let answer = single(answer);
    assert_eq!(error(answer.error_code), ErrorCode::None);
    values(&records_from(&answer, offset))
}

/// Produces to the other partition and reads its end, over and over.
fn serves_the_hot(client: &mut Connection, topic: &Topic) {
    let from = client.end_offset(topic, 1);
    for n in 0..20 {
        let offset = client.append(topic, 1, plain(&[format!("hot {n}")]));
        assert_eq!(offset, from + n);
        let answer = client.fetch(topic, 1, offset);
        assert_eq!(
            values(&records_from(&answer, offset)),
            [format!("hot {n}").into_bytes()]
        );
    }
}

#[test]
fn cold_segments_come_whole_through_the_lane() {
    for shards in [1, 2] {
        let (broker, topic, is_cold) = on_cold_segments(Options {
            shards: Some(shards),
            ..Options::default()
        });
        let mut client = broker.connect();
        for partition in 0..2 {
            let all = read_all(&mut client, &topic, partition, 0);
            assert!(
                values(&all) == expected(partition),
                "partition {partition} on {shards} shards"
            );
        }
        let bytes = 2.0 * (BATCHES * 199_000) as f64;
        let cold = broker.metric("thalweg_fetch_cold_bytes_total", &[]);
        let warm = broker.metric("thalweg_fetch_sendfile_bytes_total", &[]);
        assert!(cold + warm >= bytes, "{cold} and {warm} of {bytes}");
        if is_cold {
            assert!(cold >= bytes * 0.9, "{cold} of {bytes} bytes were cold");
            // They were read past the page cache, and are cold again.
            let again = read_all(&mut client, &topic, 0, 0);
            assert!(values(&again) == expected(0));
            assert!(broker.metric("thalweg_fetch_cold_bytes_total", &[]) >= cold * 1.4);
        }
        nobody_waits(&broker);
    }
}

/// A reader is taken out a moment after it has all its bytes.
fn nobody_waits(broker: &Broker) {
    eventually("nobody waits for the lane", || {
        (broker.metric("thalweg_cold_reads_waiting", &[]) == 0.0).then_some(())
    });
}

/// The disk answers no cold read: whoever needs none is served, on the same core and on the other; who leaves is
/// forgotten; and who waits gets all of it in the end, also from a topic that is deleted meanwhile.
#[test]
fn a_disk_that_does_not_answer_holds_up_cold_readers_only() {
    let (gate, options) = Gate::at("cold read");
    let (broker, topic, is_cold) = on_cold_segments(options);
    if !is_cold {
        return;
    }
    gate.close();
    let mut waiting = broker.connect();
    ask(&mut waiting, &topic, 0, 0);
    // The cold answer comes first, then the one behind it.
    ask(&mut waiting, &topic, 0, BATCHES as i64);
    let waits = "thalweg_cold_reads_waiting";
    broker.wait_for_metric(waits, &[]);
    let mut leaving: Vec<_> = (0..8)
        .map(|_| {
            let mut client = broker.connect();
            ask(&mut client, &topic, 1, 0);
            client
        })
        .collect();
    broker.wait_for_more(waits, &[], 8.0);
    let mut hot: Vec<_> = (0..2).map(|_| broker.connect()).collect();
    for client in &mut hot {
        serves_the_hot(client, &topic);
    }
    broker.wait_for_metric("thalweg_cold_read_oldest_milliseconds", &[]);
    leaving.clear();
    eventually("they are forgotten", || {
        (broker.metric(waits, &[]) == 1.0).then_some(())
    });
    assert_eq!(hot[0].delete_topic(&topic.name), ErrorCode::None);
    gate.release();
    let first = received(&mut waiting, 0);
    assert!(!first.is_empty() && first == expected(0)[..first.len()]);
    assert!(received(&mut waiting, BATCHES as i64).is_empty());
    nobody_waits(&broker);
}

/// The header is on its way when the disk fails: the connection ends, as the client can not be told otherwise,
/// and the next one is served.
#[test]
fn a_failed_cold_read_ends_its_connection_and_no_other() {
    let (broker, topic, is_cold) = on_cold_segments(Options {
        wrapper: failpoint("cold read=fail@2"),
        ..Options::default()
    });
    if !is_cold {
        return;
    }
    let mut other = broker.connect();
    let mut client = broker.connect();
    ask(&mut client, &topic, 0, 0);
    client.assert_closed("its answer can not be finished");
    let closed = broker.wait_for_metric("thalweg_cold_read_failures_total", &[]);
    assert_eq!(closed, 1.0);
    let line = broker.wait_for_log("storage_error");
    assert!(line.contains("00000000000000000000.log at byte"), "{line}");
    // What could not be read is looked at, on the core that has it, and is whole this time.
    broker.wait_for_log("the segment is looked through");
    assert!(values(&read_all(&mut other, &topic, 0, 0)) == expected(0));
}

/// ST-19: what can not be read is in quarantine when the client comes again, so that it gets an answer instead of a
/// closed connection for ever; the same connection is served what else it asks for.
#[test]
fn st_19_what_can_not_be_read_is_told_to_who_comes_again() {
    let (gate, options) = Gate::failing(&["cold read", "checked read"]);
    let (broker, topic, is_cold) = on_cold_segments(options);
    if !is_cold {
        return;
    }
    gate.close();
    let mut client = broker.connect();
    ask(&mut client, &topic, 0, 0);
    client.assert_closed("its answer can not be finished");
    let line = broker.wait_for_log("DAMAGED");
    assert!(line.contains("can not be read"), "{line}");
    let mut client = broker.connect();
    let answer = client.fetch(&topic, 0, 0);
    assert_eq!(error(answer.error_code), ErrorCode::CorruptMessage);
    serves_the_hot(&mut client, &topic);
    gate.release();
}
