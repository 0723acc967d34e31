//! Any file of a whole data directory, damaged in any way: the broker serves, or ends by itself and names a file. What
//! was not damaged is all there.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::records::{BatchOptions, Codec, batches};

use crate::batch::{bytes_of, keyed, now_ms, plain};
use crate::broker::{Broker, Options, is_long};
use crate::compacting::without_cleaner;
use crate::groups::{commit_patiently, with_coordinators};
use crate::idempotence;
use crate::tool::thalweg;
use crate::wire::{Connection, Topic, error};

/// Larger ones are the room that the broker keeps for itself.
const FILE_BYTES_MAX: u64 = 4 << 20;
const OUTPUT_MAX: usize = 1 << 20;
const RECORDS: i64 = 30;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        let factor = 6_364_136_223_846_793_005;
        self.0 = self.0.wrapping_mul(factor).wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound.max(1)
    }
}

fn options() -> Options {
    let mut options = without_cleaner();
    let one = ("offsets.topic.num.partitions", "1".to_owned());
    options.properties.push(one);
    options
}

fn value(topic: &Topic, offset: i64) -> String {
    format!("{} {offset:0100}", topic.name)
}

/// Topics of several segments, of an idempotent producer, of keys and of durable acknowledgements, and a group.
fn filled() -> (Broker, Vec<Topic>) {
    let broker = Broker::start_with(options());
    let mut client = with_coordinators(&broker);
    let small = ("internal.segment.bytes", "600");
    let topics = [
        ("plain", vec![small]),
        ("durable", vec![small, ("flush.messages", "1")]),
        ("keyed", vec![small, ("cleanup.policy", "compact")]),
        ("produced", vec![]),
    ];
    let topics = topics.map(|(name, settings)| client.create_topic(name, 1, &settings));
    let id = idempotence::new_id(&mut client);
    for offset in 0..RECORDS {
        for topic in &topics {
            let value = value(topic, offset);
            let sequence = i32::try_from(offset).expect("small");
            let batch = match &topic.name[..] {
                "keyed" => {
                    let (key, none) = (offset.to_string(), BatchOptions::default());
                    keyed(Codec::None, now_ms(), &key, value.as_bytes(), none)
                }
                "produced" => idempotence::batch(id, 0, sequence, &[value]),
                _other => plain(&[value]),
            };
            assert_eq!(client.append(topic, 0, batch), offset);
        }
    }
    commit_patiently(&mut client, "readers", &[("plain", 0, 7)]);
    (broker, topics.to_vec())
}

fn copy(from: &Path, to: &Path) {
    drop(fs::remove_dir_all(to));
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp").success());
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.metadata().expect("a file").len() <= FILE_BYTES_MAX {
            found.push(path);
        }
    }
    found.retain(|path| !path.ends_with(".lock"));
    found.sort();
    found
}

/// Does something to a file; says which.
fn damage(dice: &mut Dice, data: &Path, told: &mut String) -> PathBuf {
    let all = files(data);
    let file = all[dice.below(all.len())].clone();
    let mut bytes = fs::read(&file).expect("a file");
    let at = dice.below(bytes.len());
    let end = (at + 1 + dice.below(200)).min(bytes.len());
    let what = match dice.below(6) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 if !bytes.is_empty() => {
            bytes[at..end].fill(0);
            "zeroed"
        }
        2 | 3 if !bytes.is_empty() => {
            bytes[at] ^= 1 << dice.below(8);
            "flipped"
        }
        4 => {
            bytes = fs::read(&all[dice.below(all.len())]).expect("a file");
            "another file"
        }
        _gone => {
            fs::remove_file(&file).expect("removed");
            *told += &format!("{} removed; ", file.display());
            return file;
        }
    };
    fs::write(&file, bytes).expect("written");
    *told += &format!("{} {what} at {at}; ", file.display());
    file
}

/// What is served was written; all of it is where nothing was damaged.
fn check(client: &mut Connection, topic: &Topic, is_untouched: bool, told: &str) {
    let (mut at, mut found) = (0, 0);
    while at < RECORDS {
        let got = client.fetch(topic, 0, at);
        let code = error(got.error_code);
        if code != ErrorCode::None {
            assert!(!is_untouched, "{told}: {} at {at}: {code:?}", topic.name);
            at += 1;
            continue;
        }
        let bytes = bytes_of(&got);
        if bytes.is_empty() {
            break;
        }
        // A checksum that does not match is the client's to see, as long as nobody has looked.
        let from = at;
        let whole = batches(bytes).map_while(Result::ok);
        for batch in whole.filter(|batch| batch.crc_matches()) {
            for record in &batch.records(OUTPUT_MAX).expect("records") {
                let record = record.expect("a record");
                let text = String::from_utf8_lossy(record.value.unwrap_or_default());
                let is_ours = text.starts_with(&format!("{} ", topic.name));
                assert!(is_ours || !is_untouched, "{told}: {text}");
                found += i64::from(text == value(topic, record.offset.0));
            }
            at = at.max(batch.header.last_offset().0 + 1);
        }
        at = at.max(from + 1);
    }
    assert!(
        found == RECORDS || !is_untouched,
        "{told}: {found} records of {}",
        topic.name
    );
}

/// Runs a command of the tool on the directory, which ends by itself.
fn tool(words: &[&str], data: &Path, told: &str) {
    let data = data.to_str().expect("UTF-8");
    let output = thalweg(&[words, &[data]].concat());
    assert!(output.status.code().is_some(), "{told}: {output:?}");
}

fn one_round(broker: &mut Broker, topics: &[Topic], damaged: &[PathBuf], told: &str) {
    let data = broker.data();
    let lies_in = |name: &str| {
        let folder = data.join(name);
        damaged.iter().any(|file| file.starts_with(&folder))
    };
    let is_identity = damaged.iter().any(|file| file.ends_with("meta.properties"));
    let may_refuse = is_identity || lies_in("__cluster_metadata-0");
    match broker.try_start_again() {
        Ok(()) => {
            let mut client = broker.connect();
            for topic in topics {
                let is_untouched = !may_refuse && !lies_in(&format!("{}-0", topic.name));
                check(&mut client, topic, is_untouched, told);
            }
            let status = broker.stop_at_once();
            assert_eq!(status.signal(), None, "{told}: {}", broker.log().join("\n"));
        }
        Err((status, said)) => {
            assert_eq!(status.signal(), None, "{told}: {said}");
            assert!(said.contains(&*data.to_string_lossy()), "{told}: {said}");
            assert!(may_refuse, "{told}: {said}");
        }
    }
    tool(&["inspect", "--verify"], &data, told);
    tool(&["repair", "--yes", "--data-dir"], &data, told);
    match broker.try_start_again() {
        Ok(()) => broker.kill(),
        Err((status, said)) => {
            assert_eq!(status.signal(), None, "{told}: {said}");
            assert!(may_refuse, "{told}: {said}");
        }
    }
}

#[test]
fn whatever_file_is_damaged_the_rest_is_served_or_the_start_is_refused_by_name() {
    let (mut broker, topics) = filled();
    let data = broker.data();
    let kept = ["stopped", "killed"].map(|name| data.with_file_name(name));
    broker.stop();
    copy(&data, &kept[0]);
    broker.start_again();
    broker.kill();
    copy(&data, &kept[1]);
    let (first, rounds) = match is_long() {
        true => (u64::from(std::process::id()), 60),
        false => (1, 2),
    };
    for seed in first..first + rounds {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        copy(&kept[dice.below(2)], &data);
        let mut told = format!("seed {seed}: ");
        let times = 1 + dice.below(2);
        let damaged: Vec<_> = (0..times)
            .map(|_| damage(&mut dice, &data, &mut told))
            .collect();
        one_round(&mut broker, &topics, &damaged, &told);
    }
}
