//! Any file of a data directory, damaged in any way: repaired, kept from readers, or refused with a text
//! that names it; never a panic, and never served once it was found.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_protocol::records::{BatchHeader, crc_matches};
use thalweg_types::{ClusterId, Offset, TopicPartition};

use super::repairing::{EXPECTED, policy, stopped};
use super::{
    Dice, TOPIC_ID, TestLog, bytes_of, copy_dir, edit, name, on_plain_engine, small_segments,
};
use crate::inspect::{InspectOptions, Item, Severity, inspect};
use crate::repair::{examine, repair};
use crate::{
    BoundOffsets, Checkpoint, LogDir, LogError, OpenPolicy, PartitionName, PartitionOffsets,
    ReadError, RecoveryPoints,
};

/// Bytes of batches by their offset.
type Content = BTreeMap<i64, Vec<u8>>;

/// What readers get, going over what they are refused.
async fn content(test: &TestLog) -> Content {
    let mut found = Content::new();
    let (mut at, end) = (test.log.start_offset(), test.log.written_end());
    while at < end {
        let plan = match test.log.read_plan(at, end, 2_000).await {
            Ok(plan) => plan,
            Err(ReadError::Quarantined { next, .. }) => {
                at = next.max(at.plus(1));
                continue;
            }
            // Named, and no more of it.
            Err(error) => {
                assert!(error.to_string().contains("t-0"), "{error}");
                return found;
            }
        };
        let bytes = bytes_of(&plan).await;
        let mut rest = &bytes[..];
        while let Ok(header) = BatchHeader::parse(rest) {
            let (batch, behind) = rest.split_at(header.total_bytes().min(rest.len()));
            found.insert(header.base_offset.0, batch.to_vec());
            rest = behind;
        }
        at = plan.next_offset.max(at.plus(1));
    }
    found
}

/// As [`stopped`] leaves it, with every kind of file that a directory may have beside.
async fn with_all_files(path: &Path) {
    stopped(path).await;
    let partition = path.join("t-0");
    let snapshot = thalweg_replica::Producers::default().to_snapshot();
    for (file, content) in [
        ("00000000000000000240.snapshot", &snapshot[..]),
        ("00000000000000000000.txnindex", b""),
        (crate::quarantine::QUARANTINE, b"0\n0\n"),
    ] {
        std::fs::write(partition.join(file), content).expect("written");
    }
    let dir = LogDir::open(path, policy()).await.expect("opened");
    let written = async {
        let of = |offset| PartitionOffsets::from([(name(), Offset(offset))]);
        let bound = |name: PartitionName, offset| {
            let mut entries = BoundOffsets::default();
            entries.insert(name, TOPIC_ID, Offset(offset));
            entries
        };
        dir.record_whole(&BTreeMap::new()).await?;
        dir.write_marks(&bound(name(), 240)).await?;
        let id = TopicPartition {
            topic: TOPIC_ID,
            partition: name().partition,
        };
        let points = RecoveryPoints::from([(id, Offset(240))]);
        dir.write_known_points(&points).await?;
        let high = Checkpoint::HighWatermark;
        dir.write_checkpoint(high, &of(240)).await?;
        let starts = Checkpoint::LogStart;
        dir.write_bound(starts, &bound(name(), 0)).await?;
        for checkpoint in [
            Checkpoint::Cleaner,
            Checkpoint::FoundDamaged,
            Checkpoint::DamagedAfterKill,
            Checkpoint::Unopened,
            Checkpoint::AcceptedGaps,
        ] {
            let elsewhere = bound(PartitionName::new("u", 0), 7);
            dir.write_bound(checkpoint, &elsewhere).await?;
        }
        Ok::<(), LogError>(())
    };
    written.await.expect("written");
}

/// All files of a directory, in a certain order.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a listing") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.file_name().is_some_and(|name| name == ".lock") => {}
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Does something to a file; says what.
fn damage(dice: &mut Dice, dir: &Path, other: &Path) -> String {
    let all = files(dir);
    let file = &all[dice.below(all.len() as u64) as usize];
    let mut bytes = std::fs::read(file).expect("a file");
    let len = bytes.len() as u64;
    let from = dice.below(len.max(1)) as usize;
    let to = (from + 1 + dice.below(200) as usize).min(bytes.len());
    let what = match dice.below(7) {
        0 if len > 0 => {
            bytes.truncate(from);
            "cut"
        }
        1 if len > 0 => {
            bytes[from..to].fill(0);
            "zeroed"
        }
        2 if len > 0 => {
            bytes[from] ^= 1 << dice.below(8);
            "flipped"
        }
        3 if len > 0 => {
            bytes[from..to].fill_with(|| dice.below(256) as u8);
            "noise"
        }
        4 => {
            let swapped = &all[dice.below(all.len() as u64) as usize];
            bytes = std::fs::read(swapped).expect("a file");
            "another file"
        }
        5 => {
            let theirs = other.join(file.strip_prefix(dir).expect("inside"));
            bytes = std::fs::read(theirs).unwrap_or_default();
            "of another cluster"
        }
        _gone => {
            std::fs::remove_file(file).expect("removed");
            return format!("{} removed", file.display());
        }
    };
    std::fs::write(file, bytes).expect("written");
    format!("{} {what} at {from}", file.display())
}

/// Opens the log as a start does. What is refused is refused with a name in it.
async fn start(path: &Path, told: &str) -> Option<TestLog> {
    let ours = OpenPolicy {
        cluster_id: Some(ClusterId("cluster".into())),
        ..policy()
    };
    let dir = match LogDir::open(path, ours).await {
        Ok(dir) => dir,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()), "{told}: {text}");
            return None;
        }
    };
    if let Err(error) = dir.begin().await {
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{told}: {text}");
        return None;
    }
    let partition = path.join(name().to_string());
    if !partition.exists() {
        return None;
    }
    match TestLog::open(path, small_segments(), dir.opening(&name(), TOPIC_ID)).await {
        Ok((test, _)) => Some(test),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("t-0"), "{told}: {text}");
            None
        }
    }
}

async fn scrub(test: &TestLog) {
    while let Ok(Some(_)) = test
        .log
        .scrub_next(Duration::from_secs(3_600), u64::MAX)
        .await
    {}
}

/// Nothing that is served of closed segments, once they were looked at, is anything but what was written.
fn assert_whole(found: &Content, wanted: &Content, below: Offset, told: &str) {
    for (base, batch) in found.range(..below.0) {
        assert!(crc_matches(batch), "{told}: offset {base}");
        let is_ours = wanted.get(base) == Some(batch);
        assert!(is_ours, "{told}: offset {base} is not what was written");
    }
}

async fn one_round(path: &Path, wanted: &Content, told: &str) {
    let options = InspectOptions {
        verify: true,
        records: true,
    };
    let shown = inspect(path, options, &mut |_| ControlFlow::Continue(())).await;
    assert!(shown.is_ok(), "{told}: {shown:?}");
    if let Some(test) = start(path, told).await {
        let _whatever_it_meets = content(&test).await;
        scrub(&test).await;
        let active = test.log.inner.state.borrow().active().base;
        let known = test.log.quarantined();
        let found = content(&test).await;
        assert_whole(&found, wanted, active, told);
        let inside = |base: &i64| known.iter().any(|r| r.first.0 <= *base && *base < r.next.0);
        assert!(!found.keys().any(inside), "{told}: {known:?}");
        let _closed = test.log.close().await;
    }
    // With all that is damaged taken out nothing is refused, but for what is not the log's.
    let Ok(dir) = LogDir::examine(path).await else {
        return;
    };
    let Ok(examined) = examine(&dir, &name(), EXPECTED).await else {
        return;
    };
    if let Some(examined) = examined {
        repair(&dir, &[examined]).await.expect("repaired");
    }
    drop(dir);
    if let Some(test) = start(path, told).await {
        scrub(&test).await;
        let active = test.log.inner.state.borrow().active().base;
        assert_whole(&content(&test).await, wanted, active, told);
        let _closed = test.log.close().await;
    }
}

#[test]
fn any_damage_of_any_file_is_repaired_kept_from_readers_or_refused() {
    let long = std::env::var_os("THALWEG_TEST_LONG").is_some();
    let rounds = if long { 4_000 } else { 40 };
    let first = match long {
        true => u64::from(std::process::id()),
        false => 1,
    };
    on_plain_engine(|path| async move {
        let (whole, other) = (path.join("whole"), path.join("other"));
        for dir in [&whole, &other] {
            with_all_files(dir).await;
        }
        edit(&other.join("meta.properties"), |bytes| {
            let text =
                String::from_utf8_lossy(bytes).replace("cluster.id=cluster", "cluster.id=theirs");
            *bytes = text.into_bytes();
        });
        let id = other.join("t-0").join("partition.metadata");
        edit(&id, |bytes| *bytes.last_mut().expect("an id") = b'g');
        let content_of = async |dir: &Path| {
            let copy = path.join("copy");
            copy_dir(dir, &copy);
            let test = start(&copy, "whole").await.expect("opened");
            content(&test).await
        };
        let ours = content_of(&whole).await;
        assert_eq!(ours.len(), 80);
        for seed in first..first + rounds {
            let mut dice = Dice::new(seed);
            let damaged = path.join("damaged");
            copy_dir(&whole, &damaged);
            let times = 1 + dice.below(3);
            let told = (0..times).map(|_| damage(&mut dice, &damaged, &other));
            let mut told = told.collect::<Vec<_>>().join(", ");
            if seed % 2 == 0 {
                // As after a kill: what the marks say counts.
                drop(std::fs::remove_file(damaged.join(".kafka_cleanshutdown")));
                told += ", killed";
            }
            one_round(&damaged, &ours, &format!("seed {seed}: {told}")).await;
        }
    });
}

/// What is said of a file when that is damaged: one damage, and what the next start makes of it.
#[test]
fn inspect_says_of_every_kind_of_file_what_follows_when_it_is_damaged() {
    on_plain_engine(|path| async move {
        stopped(&path).await;
        let partition = path.join("t-0");
        let snapshot = thalweg_replica::Producers::default().to_snapshot();
        std::fs::write(partition.join("00000000000000000240.snapshot"), snapshot).expect("written");
        std::fs::write(partition.join("00000000000000000000.txnindex"), []).expect("written");
        std::fs::write(partition.join(crate::quarantine::QUARANTINE), "0\n0\n").expect("written");
        let damages = async || {
            let mut found = Vec::new();
            let options = InspectOptions {
                verify: true,
                records: false,
            };
            let mut visit = |item: Item<'_>| {
                if let Item::Finding(finding) = item
                    && finding.severity == Severity::Damage
                {
                    found.push(format!("{}: {}", finding.path.display(), finding.text));
                }
                ControlFlow::Continue(())
            };
            inspect(&path, options, &mut visit).await.expect("readable");
            found
        };
        assert_eq!(damages().await, [""; 0]);
        let starts = "log-start-offset-checkpoint";
        for (file, text, follows) in [
            ("meta.properties", "x", "refuses the directory"),
            (".kafka_cleanshutdown", "x", "counts as one"),
            ("recovery-point-offset-checkpoint", "x", "goes without it"),
            ("replication-offset-checkpoint", "x", "goes without it"),
            (starts, "0\n1\nt 0 -1\n", "goes without it"),
            (
                starts,
                "0\n1\nt 0 1240\n",
                "the next start empties it after a crash",
            ),
            ("t-0/leader-epoch-checkpoint", "x", "anew from the batches"),
            ("t-0/partition.metadata", "x", "anew from the metadata"),
            ("t-0/thalweg-quarantine", "0\n1\n", "finds again"),
            (
                "t-0/00000000000000000240.snapshot",
                "x",
                "takes an older one",
            ),
            (
                "t-0/00000000000000000000.txnindex",
                "x",
                "anew from the log",
            ),
        ] {
            let file = path.join(file);
            let before = std::fs::read(&file).ok();
            std::fs::write(&file, text).expect("written");
            let told = damages().await;
            let is_told = told.iter().any(|line| {
                line.contains(follows) && line.starts_with(&file.display().to_string())
            });
            assert!(is_told, "{}: {told:?}", file.display());
            match before {
                Some(before) => std::fs::write(&file, before).expect("written"),
                None => std::fs::remove_file(&file).expect("removed"),
            }
        }
    });
}
