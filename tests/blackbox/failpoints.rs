//! ST-14: the process ends at each named step of a roll, a cut, a deletion and a compaction, and the next start finds
//! the content before the step or after it. Each case is a life of a broker that aborts, and one that is
//! looked at.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{DeleteTopicsRequest, ProduceRequest, delete_topics_request};

use crate::administering::alter;
use crate::batch::plain;
use crate::broker::{Broker, Options, eventually, serve_command};
use crate::compacting::{SMALL_SEGMENTS, all_of, append_small, eager, without_cleaner};
use crate::retention::{check_whole, large, restless, segments};
use crate::wire::{Connection, Topic, newest, produce_request};

/// Options of a life that ends when `place` is reached for the `nth` time.
pub fn ending_at(place: &str, nth: u32, options: Options) -> Options {
    let points = format!("THALWEG_FAILPOINTS={place}=abort@{nth}");
    // A few short texts for the length of the tests.
    let points: &'static str = Box::leak(points.into_boxed_str());
    Options {
        wrapper: vec!["env", points],
        ..options
    }
}

const SEGMENTED: [(&str, &str); 1] = [("segment.bytes", "1048576")];

/// Appends one batch per offset until the broker ends; how many were acknowledged.
fn append_until_the_end(client: &mut Connection, topic: &Topic, from: i64) -> i64 {
    let version = newest::<ProduceRequest>();
    for offset in from..from + 80 {
        client.send(
            &produce_request(topic, 0, 1, plain(&[large(offset)])),
            version,
        );
        if client.read_frame().is_none() {
            return offset;
        }
    }
    // What ends it may be something that it does now and then.
    client.assert_closed("the broker ends");
    from + 80
}

/// Nothing acknowledged is missing, nothing is torn, and the log goes on; how many records there are.
fn check_goes_on(broker: &mut Broker, topic: &Topic, acknowledged: i64) -> i64 {
    broker.kill();
    broker.start_again_with(Options::default());
    let mut client = broker.connect();
    let end = client.end_offset(topic, 0);
    assert!(
        (acknowledged..=acknowledged + 1).contains(&end),
        "{end} of {acknowledged}"
    );
    let first = check_whole(&mut client, topic, end);
    for offset in end..end + 4 {
        assert_eq!(client.append(topic, 0, plain(&[large(offset)])), offset);
    }
    check_whole(&mut client, topic, end + 4);
    first
}

#[test]
fn st_14_a_roll_that_ends_at_any_step() {
    let steps = [
        ("roll: segment made", 1),
        ("roll: zeros trimmed", 1),
        ("roll: closed segment flushed", 1),
        ("roll: indexes written", 2),
        ("next segment: made", 2),
        ("next segment: taken", 1),
        ("next segment: named", 1),
    ];
    for (place, nth) in steps {
        let mut broker = Broker::start_with(ending_at(place, nth, Options::default()));
        let mut client = broker.connect();
        let settings = [SEGMENTED[0], ("flush.messages", "1")];
        let topic = client.create_topic("rolled", 1, &settings);
        let acknowledged = append_until_the_end(&mut client, &topic, 0);
        assert!(acknowledged >= 3, "{place}: {acknowledged}");
        assert_eq!(
            check_goes_on(&mut broker, &topic, acknowledged),
            0,
            "{place}"
        );
    }
}

#[test]
fn st_14_a_deletion_that_ends_at_any_step() {
    // Files of two segments are renamed; the `.log` of each behind its two indexes.
    let steps = [
        ("removal: start kept", 1),
        ("removal: file renamed", 2),
        ("removal: file renamed", 3),
        ("removal: all renamed", 1),
        ("removal: file unlinked", 1),
        ("removal: file unlinked", 2),
    ];
    for (place, nth) in steps {
        let mut broker = Broker::start_with(ending_at(place, nth, restless()));
        let mut client = broker.connect();
        let limits = [
            SEGMENTED[0],
            ("retention.bytes", "1500000"),
            ("file.delete.delay.ms", "1"),
        ];
        let topic = client.create_topic("shrunk", 1, &limits);
        let acknowledged = append_until_the_end(&mut client, &topic, 0);
        let first = check_goes_on(&mut broker, &topic, acknowledged);
        assert!(first > 0 && first % 3 == 0, "{place}: {first}");
        eventually("nothing is left over", || {
            let left = std::fs::read_dir(broker.partition("shrunk", 0)).expect("a folder");
            let mut names = left.map(|entry| entry.expect("an entry").file_name());
            let is_left = names.any(|name| name.to_string_lossy().ends_with(".deleted"));
            (!is_left).then_some(())
        });
    }
}

#[test]
fn st_14_a_cut_that_ends_at_any_step() {
    let mut broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("cut", 1, &SEGMENTED);
    for offset in 0..8 {
        client.append(&topic, 0, plain(&[large(offset)]));
    }
    broker.kill();
    let mut end = 8;
    let steps = [
        ("cut: truncated", 1),
        ("cut: file to go", 1),
        ("cut: file to go", 2),
    ];
    for (place, nth) in steps {
        // Nothing is known of what was written: as after a crash of the machine.
        let root = broker.data();
        for name in [
            "thalweg-written-checkpoint",
            "thalweg-page-cache",
            "recovery-point-offset-checkpoint",
        ] {
            std::fs::remove_file(root.join(name)).ok();
        }
        // A whole record of the segment before the last one is torn, so the last one goes.
        let mut files = segments(&broker, &topic);
        files.sort();
        let torn = &files[files.len() - 2];
        let len = torn.metadata().expect("a segment").len();
        let file = OpenOptions::new()
            .write(true)
            .open(torn)
            .expect("a segment");
        file.set_len(len - 1).expect("cut");
        let options = ending_at(place, nth, Options::default());
        let ended = serve_command(&broker.data(), &options)
            .output()
            .expect("it runs");
        assert_eq!(
            ended.status.signal(),
            Some(Signal::SIGABRT as i32),
            "{place}: {ended:?}"
        );
        broker.start_again();
        let mut client = broker.connect();
        let now = client.end_offset(&topic, 0);
        assert!(now < end && now % 3 == 2, "{place}: {now} of {end}");
        assert_eq!(check_whole(&mut client, &topic, now), 0, "{place}");
        assert_eq!(segments(&broker, &topic).len(), files.len() - 1, "{place}");
        for offset in now..now + 7 {
            assert_eq!(client.append(&topic, 0, plain(&[large(offset)])), offset);
        }
        end = now + 7;
        broker.kill();
        // Half a batch at the end does no harm beside it.
        let last = segments(&broker, &topic)
            .into_iter()
            .max()
            .expect("a segment");
        let mut file = OpenOptions::new()
            .append(true)
            .open(last)
            .expect("a segment");
        file.write_all(&[1; 30]).expect("half a header");
    }
}

#[test]
fn st_15_a_topic_whose_deletion_ends_at_any_step_is_gone() {
    for place in ["delete: renamed", "delete: synced"] {
        let mut broker = Broker::start_with(ending_at(place, 1, Options::default()));
        let mut client = broker.connect();
        let topic = client.create_topic("gone", 1, &[]);
        client.append(&topic, 0, plain(&["old"]));
        let named = delete_topics_request::DeleteTopicState {
            name: Some("gone".to_owned()),
            ..Default::default()
        };
        let request = DeleteTopicsRequest {
            topics: vec![named],
            timeout_ms: 30_000,
            ..Default::default()
        };
        client.send(&request, newest::<DeleteTopicsRequest>());
        assert!(client.read_frame().is_none(), "{place}");
        broker.kill();
        broker.start_again_with(Options::default());
        let mut client = broker.connect();
        let told = client.metadata(&["gone"]).topics.remove(0);
        assert_eq!(
            told.error_code,
            ErrorCode::UnknownTopicOrPartition as i16,
            "{place}"
        );
        let topic = client.create_topic("gone", 1, &[]);
        assert_eq!(client.append(&topic, 0, plain(&["new"])), 0, "{place}");
        eventually("nothing is left over", || {
            let dirs = std::fs::read_dir(broker.data()).expect("a folder");
            let names = dirs.map(|entry| entry.expect("an entry").file_name());
            let of_topic = names.filter(|name| name.to_string_lossy().starts_with("gone-"));
            (of_topic.count() == 1).then_some(())
        });
    }
}

/// What a log is to hold after a life that ended at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Old,
    New,
}

const OF_COMPACTION: Range<i64> = 0..13;

/// A stopped broker whose log has six closed segments that a round makes one of, and the batches of the log before
/// and after that round.
fn before_a_round() -> (Broker, Topic, Vec<u8>, Vec<u8>) {
    let mut broker = Broker::start_with(without_cleaner());
    let mut client = broker.connect();
    let topic = client.create_topic("compacted", 1, &SMALL_SEGMENTS);
    append_small(&mut client, &topic, OF_COMPACTION);
    // From here on they fit into one.
    let key = "internal.segment.bytes";
    let set = alter(&mut client, 2, &topic.name, key, Some("1048576"));
    assert_eq!(set, ErrorCode::None);
    let (old, offsets) = all_of(&mut client, &topic, OF_COMPACTION);
    assert_eq!(offsets, OF_COMPACTION.collect::<Vec<_>>());
    broker.stop();
    let kept = broker.data().with_file_name("kept");
    copy_files(&broker.data(), &kept);
    broker.start_again_with(eager(Options::default()));
    broker.wait_for_log("compacted partition=compacted-0");
    let (new, offsets) = all_of(&mut broker.connect(), &topic, OF_COMPACTION);
    // The last of each of four keys in the closed segments, and the active one.
    assert_eq!(offsets, [8, 9, 10, 11, 12]);
    broker.stop();
    (broker, topic, old, new)
}

fn copy_files(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg("--")
        .args([from, to])
        .status();
    assert!(copied.expect("cp").success());
}

#[test]
fn st_14_a_compaction_that_ends_at_any_step() {
    use Content::{New, Old};
    let steps = [
        ("compaction: segment written", 1, Old),
        ("compaction: segment synced", 1, Old),
        ("compaction: indexes written", 1, Old),
        ("compaction: indexes renamed", 1, Old),
        ("compaction: segment renamed", 1, New),
        ("compaction: swap durable", 1, New),
        ("removal: file renamed", 1, New),
        ("removal: file renamed", 8, New),
        ("compaction: old files aside", 1, New),
        ("compaction: indexes in place", 1, New),
        ("compaction: segment in place", 1, New),
        ("compaction: round ended", 1, New),
        ("compaction: checkpoint written", 1, New),
    ];
    let (mut broker, topic, old, new) = before_a_round();
    let data = broker.data();
    for (place, nth, content) in steps {
        std::fs::remove_dir_all(&data).expect("removed");
        copy_files(&data.with_file_name("kept"), &data);
        let options = ending_at(place, nth, eager(Options::default()));
        let mut life = serve_command(&data, &options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let status = eventually(place, || life.try_wait().expect("our child"));
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{place}");
        broker.start_again_with(without_cleaner());
        let mut client = broker.connect();
        let found = all_of(&mut client, &topic, OF_COMPACTION);
        let wanted = match content {
            Old => &old,
            New => &new,
        };
        assert!(found.0 == *wanted, "{place} {nth}: {:?}", found.1);
        let names: Vec<String> = std::fs::read_dir(broker.partition(&topic.name, 0))
            .expect("a folder")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into()
            })
            .filter(|name: &String| !name.ends_with("checkpoint") && !name.ends_with("metadata"))
            .collect();
        let known = ["log", "index", "timeindex", "snapshot"];
        let known = |name: &String| known.iter().any(|kind| name.ends_with(&format!(".{kind}")));
        assert!(names.iter().all(known), "{place}: {names:?}");
        assert_eq!(
            segments(&broker, &topic).len(),
            if content == Old { 7 } else { 2 }
        );
        broker.kill();
    }
}
