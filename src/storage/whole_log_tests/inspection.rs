//! The offline inspector over what logs leave behind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use thalweg_protocol::records::Codec;
use thalweg_types::{BrokerId, ClusterId, LeaderEpoch, Offset, Uuid};

use super::{
    TOPIC_ID, TestLog, batch, edit, file, log_file, name, on_both_engines, small_segments,
};
use crate::inspect::{Finding, InspectOptions, Item, Severity, Summary, inspect};
use crate::name::NEXT_SEGMENT;
use crate::{BoundOffsets, Checkpoint, FormatPolicy, LogDir, OpenPolicy, PartitionOffsets};

async fn look(path: &Path) -> (Summary, Vec<Finding>) {
    let options = InspectOptions {
        verify: true,
        records: true,
    };
    let mut findings = Vec::new();
    let mut records = 0;
    let summary = inspect(path, options, &mut |item| {
        match item {
            Item::Finding(finding) => findings.push(finding.clone()),
            Item::Record { .. } => records += 1,
            Item::File { .. }
            | Item::Batch { .. }
            | Item::IndexEntry { .. }
            | Item::TimeIndexEntry { .. }
            | Item::CheckpointEntry { .. }
            | Item::EpochEntry { .. }
            | Item::Property { .. } => {}
        }
        ControlFlow::Continue(())
    })
    .await
    .expect("readable");
    if findings
        .iter()
        .all(|finding| finding.severity == Severity::Note)
    {
        assert_eq!(records, summary.records);
    }
    (summary, findings)
}

async fn opened(dir: &Path) -> LogDir {
    let policy = OpenPolicy {
        node_id: BrokerId(1),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId("cluster".into()),
            directory_id: Uuid([3; 16]),
        },
    };
    LogDir::open(dir, policy).await.expect("opened")
}

async fn make(dir: &Path) {
    let log_dir = opened(dir).await;
    let test = TestLog::create(dir, small_segments()).await;
    for (i, codec) in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ]
    .iter()
    .cycle()
    .take(60)
    .enumerate()
    {
        let i = i as i64;
        let timestamps = [i * 7 % 50 + i, i * 11 % 50 + i, i];
        test.log
            .append(batch(Offset(i * 3), LeaderEpoch(0), &timestamps, *codec));
        test.settle().await;
    }
    test.log.close().await.expect("closed");
    let offsets: PartitionOffsets = [(super::name(), Offset(180))].into_iter().collect();
    log_dir
        .write_checkpoint(Checkpoint::RecoveryPoint, &offsets)
        .await
        .expect("written");
}

#[test]
fn a_sound_directory_has_nothing_to_say() {
    on_both_engines(|dir| async move {
        make(&dir).await;
        let (summary, findings) = look(&dir).await;
        assert_eq!(findings, []);
        assert_eq!(
            (summary.batches, summary.records, summary.damages),
            (60, 180, 0)
        );
        assert!(summary.entries > 10);
        let (one, _) = look(&log_file(&dir, 0)).await;
        assert!(one.batches > 1 && one.batches < 60);
        let mut stop = |_: Item<'_>| ControlFlow::Break(());
        let stopped = inspect(&dir, InspectOptions::default(), &mut stop).await;
        assert_eq!(stopped.expect("readable").files, 1);
    });
}

#[test]
fn damage_is_found_where_it_is() {
    on_both_engines(|dir| async move {
        make(&dir).await;
        edit(&log_file(&dir, 0), |bytes| {
            bytes[100] ^= 1;
            bytes.truncate(bytes.len() - 1);
        });
        let (_, findings) = look(&log_file(&dir, 0)).await;
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Damage);
        assert_eq!(findings[0].path, log_file(&dir, 0));
        edit(&file(&dir, 0, "index"), |bytes| bytes[7] ^= 1);
        let (summary, findings) = look(&file(&dir, 0, "index")).await;
        assert_eq!(findings[0].position, Some(0), "{findings:?}");
        assert!(summary.damages >= 1);
        edit(&file(&dir, 0, "timeindex"), |bytes| {
            bytes.pop();
        });
        let (_, findings) = look(&file(&dir, 0, "timeindex")).await;
        assert!(
            findings[0].text.contains("not whole entries"),
            "{findings:?}"
        );
        for name in [
            "recovery-point-offset-checkpoint",
            "meta.properties",
            "t-0/partition.metadata",
        ] {
            edit(&dir.join(name), |bytes| bytes.truncate(3));
            let (summary, _) = look(&dir.join(name)).await;
            assert_eq!(summary.damages, 1, "{name}");
        }
    });
}

#[test]
fn no_bytes_make_the_inspector_panic() {
    on_both_engines(|dir| async move {
        make(&dir).await;
        let mut dice = super::Dice::new(5);
        for _ in 0..60 {
            for suffix in ["log", "index", "timeindex"] {
                edit(&file(&dir, 0, suffix), |bytes| {
                    if !bytes.is_empty() {
                        let at = dice.below(bytes.len() as u64) as usize;
                        bytes[at] = dice.below(256) as u8;
                    }
                });
            }
            look(&dir).await;
        }
    });
}

/// How far logs were written before a kill, and which of them are whole after it; a flipped bit in either is damage.
#[test]
fn what_counts_after_a_kill_is_shown() {
    on_both_engines(|dir| async move {
        let log_dir = opened(&dir).await;
        let mut marks = BoundOffsets::default();
        marks.insert(name(), TOPIC_ID, Offset(7));
        log_dir.write_marks(&marks).await.expect("written");
        let doubted = BTreeMap::from([(name(), TOPIC_ID)]);
        log_dir.record_whole(&doubted).await.expect("written");
        for (file, wanted) in [
            (crate::written::FILE, "t-0 7"),
            (crate::page_cache::FILE, "not known to be whole: t-0"),
        ] {
            let path = dir.join(file);
            // Where the kernel can not tell one mount from another there are none.
            if !path.exists() {
                continue;
            }
            let mut shown = Vec::new();
            let mut visit = |item: Item<'_>| {
                match item {
                    Item::CheckpointEntry { name, offset } => {
                        shown.push(format!("{name} {offset}"));
                    }
                    Item::Property { key, value } => shown.push(format!("{key}: {value}")),
                    Item::File { .. }
                    | Item::Batch { .. }
                    | Item::Record { .. }
                    | Item::IndexEntry { .. }
                    | Item::TimeIndexEntry { .. }
                    | Item::EpochEntry { .. }
                    | Item::Finding(_) => {}
                }
                ControlFlow::Continue(())
            };
            let looked = inspect(&path, InspectOptions::default(), &mut visit).await;
            assert_eq!(looked.expect("readable").damages, 0, "{file}");
            assert!(shown[0].starts_with("boot and mount: "), "{shown:?}");
            assert_eq!(shown[1..], [wanted]);
            edit(&path, |bytes| *bytes.last_mut().expect("a byte") ^= 1);
            let (summary, findings) = look(&path).await;
            assert_eq!(summary.damages, 1, "{findings:?}");
        }
    });
}

#[test]
fn the_file_of_the_next_segment_is_shown_as_what_it_is() {
    on_both_engines(|dir| async move {
        make(&dir).await;
        let (whole, _) = look(&dir).await;
        let next = dir.join("t-0").join(NEXT_SEGMENT);
        std::fs::write(&next, "").expect("written");
        let (summary, findings) = look(&dir).await;
        assert_eq!(summary.files, whole.files + 1);
        let note = findings.last().expect("a note");
        assert_eq!((&note.path, note.severity), (&next, Severity::Note));
        assert!(note.text.contains("has not begun"), "{}", note.text);
        // Stale, and zeros.
        for left in [std::fs::read(log_file(&dir, 0)).expect("read"), vec![0; 90]] {
            std::fs::write(&next, left).expect("written");
            let (summary, findings) = look(&dir).await;
            assert_eq!((summary.batches, summary.damages), (whole.batches, 0));
            let note = findings.last().expect("a note");
            assert!(note.text.contains("removes it"), "{}", note.text);
        }
        let names = std::fs::read_dir(dir.join("t-0")).expect("a listing");
        let names = names.map(|entry| entry.expect("an entry").path());
        let logs = names.filter(|path| path.extension().is_some_and(|suffix| suffix == "log"));
        let last = logs.max().expect("a segment");
        std::fs::rename(&last, &next).expect("renamed");
        let (summary, findings) = look(&dir).await;
        assert_eq!(summary.batches, whole.batches);
        let name = last.file_name().expect("a name").to_string_lossy();
        let said = findings.last().expect("a note");
        assert!(said.text.ends_with(&*name), "{}", said.text);
        let (alone, _) = look(&next).await;
        assert!(alone.batches > 0 && alone.damages == 0);
    });
}
