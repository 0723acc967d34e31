//! Log directories: identity, lock, clean marker, checkpoints, leftovers.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_types::limits::NEW_LOGS_TOGETHER_MIN;
use thalweg_types::{BrokerId, ClusterId, Offset, TopicPartition, Uuid};

use super::{TOPIC_ID, TestLog, on_both_engines};
use crate::{
    BoundOffsets, Checkpoint, CleanMark, DirectoryState, FormatPolicy, Log, LogDir, LogDirError,
    LogError, LogOptions, OpenPolicy, PartitionDir, PartitionName, PartitionOffsets, Recovery,
    leave_trace, set_partition_aside,
};

fn policy() -> OpenPolicy {
    OpenPolicy {
        node_id: BrokerId(1),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId("cluster".into()),
            directory_id: Uuid([3; 16]),
        },
    }
}

async fn open(path: &Path) -> LogDir {
    LogDir::open(path, policy()).await.expect("opened")
}

/// A handle that is opened for the flush alone is not told what failed on the way to the disk before it, if the
/// kernel has told somebody else.
#[test]
fn r_1_the_file_system_is_flushed_by_the_handle_that_the_directory_was_opened_with() {
    on_both_engines(|dir| async move {
        let (root, aside) = (dir.join("root"), dir.join("aside"));
        let opened = open(&root).await;
        let options = LogOptions {
            health: Arc::clone(opened.health()),
            ..LogOptions::default()
        };
        let mut logs = Vec::new();
        for index in 0..i32::try_from(NEW_LOGS_TOGETHER_MIN).expect("few") {
            let name = PartitionName::new("t", index);
            let made = Log::create(&root, name, TOPIC_ID, options.clone(), Rc::new(|_| ()));
            logs.push(made.await.expect("created"));
        }
        std::fs::rename(&root, &aside).expect("renamed");
        Log::sync_new(&logs).await;
        assert_eq!(opened.health().failure(), None);
        assert!(logs.iter().all(|log| !log.is_offline()));
    });
}

/// ST-18: after its disk failed, a directory is neither clean nor marked for the next start, which takes the
/// trace of that away.
#[test]
fn st_18_a_start_believes_nothing_of_a_life_in_which_the_disk_failed() {
    on_both_engines(|dir| async move {
        let name = PartitionName::new("t", 0);
        let mut marks = BoundOffsets::default();
        marks.insert(name.clone(), TOPIC_ID, Offset(7));
        drop(open(&dir).await);
        for failed in [false, true] {
            let life = open(&dir).await;
            life.write_marks(&marks).await.expect("marked");
            life.mark_clean(-1, &BTreeSet::new()).await.expect("marked");
            if failed {
                leave_trace(&dir, "an fsync failed").await.expect("left");
                life.write_marks(&marks).await.expect("written behind it");
            }
            drop(life);
            let next = open(&dir).await;
            // Where the kernel can not tell one mount from another there are no marks at all.
            let has_marks = thalweg_reactor::fs::cache_lifetime(&dir)
                .await
                .expect("told")
                .is_some();
            let believed = next.opening(&name, TOPIC_ID).written;
            assert_eq!(next.was_clean(), !failed);
            assert_eq!(believed, (has_marks && !failed).then_some(Offset(7)));
            next.begin().await.expect("begun");
            assert!(!dir.join("thalweg-condemned").exists());
        }
    });
}

/// A full disk takes the removal of a file, a copy-on-write one without a byte left does not.
#[test]
fn st_20_log_starts_that_can_not_be_written_hold_as_long_as_their_file_is_there() {
    on_both_engines(|dir| async move {
        let log_dir = open(&dir).await;
        let mut starts = BoundOffsets::default();
        starts.insert(PartitionName::new("t", 0), TOPIC_ID, Offset(3));
        let write = async || log_dir.write_bound(Checkpoint::LogStart, &starts).await;
        write().await.expect("written");
        log_dir.keep_starts().await;
        let kept = dir.join("thalweg-log-starts-kept");
        assert!(kept.exists());
        let temporary = format!("{}.tmp", Checkpoint::LogStart.file_name());
        std::os::unix::fs::symlink("/dev/full", dir.join(&temporary)).expect("a link");
        // In the place of the file there is what can not be removed like one.
        std::fs::remove_file(&kept).expect("removed");
        std::fs::create_dir(&kept).expect("made");
        for _ in 0..2 {
            let error = write().await.expect_err("full");
            assert!(matches!(error, LogError::StartsHold(_)), "{error}");
        }
        std::fs::remove_dir(&kept).expect("removed");
        std::fs::write(&kept, "").expect("written");
        let error = write().await.expect_err("full");
        assert!(
            matches!(error, LogError::Io { .. }) && error.may_pass(),
            "{error}"
        );
        assert!(!kept.exists());
        std::fs::remove_file(dir.join(&temporary)).expect("removed");
        log_dir.keep_starts().await;
        std::os::unix::fs::symlink("/dev/full", dir.join(&temporary)).expect("a link");
        write().await.expect_err("full");
        assert!(!kept.exists(), "each time that it was made");
    });
}

#[test]
fn only_what_is_missing_or_empty_is_blank() {
    on_both_engines(|dir| async move {
        let is_blank = async |name: &str| LogDir::is_blank(&dir.join(name)).await.expect("told");
        assert!(is_blank("missing").await);
        std::fs::create_dir_all(dir.join("fresh/lost+found")).expect("made");
        assert!(is_blank("fresh").await);
        drop(open(&dir.join("used")).await);
        assert!(!is_blank("used").await);
        std::fs::write(dir.join("file"), "").expect("made");
        assert!(LogDir::is_blank(&dir.join("file")).await.is_err());
    });
}

async fn refusal(path: &Path, policy: OpenPolicy) -> LogDirError {
    LogDir::open(path, policy).await.expect_err("refused")
}

#[test]
fn an_empty_or_missing_directory_is_formatted_when_the_policy_says_so() {
    on_both_engines(|dir| async move {
        let missing = dir.join("a/b");
        let never = OpenPolicy {
            format: FormatPolicy::Never,
            ..policy()
        };
        assert!(matches!(
            refusal(&missing, never.clone()).await,
            LogDirError::NotFormatted { .. }
        ));
        std::fs::create_dir_all(dir.join("fresh/lost+found")).expect("made");
        assert!(matches!(
            refusal(&dir.join("fresh"), never.clone()).await,
            LogDirError::NotFormatted { .. }
        ));
        for path in [missing, dir.join("fresh")] {
            let opened = open(&path).await;
            assert_eq!(opened.state(), DirectoryState::New);
            assert_eq!(opened.meta().cluster_id.0, "cluster");
            drop(opened);
            let again = LogDir::open(&path, never.clone()).await.expect("opened");
            assert_eq!(again.state(), DirectoryState::Unclean);
            assert_eq!(again.meta().directory_id, Some(Uuid([3; 16])));
        }
    });
}

#[test]
fn a_directory_of_somebody_else_is_refused_untouched() {
    on_both_engines(|dir| async move {
        std::fs::write(dir.join("thesis.txt"), b"").expect("written");
        let refused = refusal(&dir, policy()).await;
        assert!(
            matches!(&refused, LogDirError::Foreign { example, .. } if example == "thesis.txt")
        );
        assert!(
            refused.to_string().contains("no meta.properties"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(&dir).expect("a listing").count(), 1);
    });
}

/// Root may open what nobody else may, so no test can be refused: what would be said of it.
#[test]
fn a_directory_that_the_system_refuses_is_told_with_what_to_do() {
    let said = |errno: i32| {
        let path = "/data".into();
        let source = std::io::Error::from_raw_os_error(errno);
        LogDirError::Io { path, source }.to_string()
    };
    let (eio, eacces, erofs) = (said(5), said(13), said(30));
    assert!(eio.ends_with("(os error 5)"), "{eio}");
    assert!(
        eacces.contains("(os error 13). Who runs the broker must own it"),
        "{eacces}"
    );
    assert!(erofs.ends_with("ReadWritePaths="), "{erofs}");
}

#[test]
fn st_28_a_second_process_and_a_wrong_identity_are_refused() {
    on_both_engines(|dir| async move {
        let first = open(&dir).await;
        let locked = refusal(&dir, policy()).await;
        assert!(matches!(locked, LogDirError::Locked { .. }));
        assert!(
            locked.to_string().contains("stop the broker first"),
            "{locked}"
        );
        drop(first);
        let other_node = OpenPolicy {
            node_id: BrokerId(2),
            ..policy()
        };
        let wrong = refusal(&dir, other_node).await;
        assert!(matches!(wrong, LogDirError::WrongNode { .. }));
        assert!(wrong.to_string().contains(": set node.id=1, or"), "{wrong}");
        let cluster_id = Some(ClusterId("other".into()));
        let other_cluster = OpenPolicy {
            cluster_id,
            ..policy()
        };
        assert!(matches!(
            refusal(&dir, other_cluster).await,
            LogDirError::WrongCluster { .. }
        ));
        open(&dir).await;
        std::fs::write(dir.join("meta.properties"), b"version=1\n").expect("written");
        let refused = refusal(&dir, policy()).await;
        assert!(
            refused.to_string().contains("it has no cluster.id"),
            "{refused}"
        );
    });
}

#[test]
fn st_6_the_clean_marker_is_gone_before_anything_is_loaded() {
    on_both_engines(|dir| async move {
        let first = open(&dir).await;
        let marked = first
            .mark_clean(42, &BTreeSet::new())
            .await
            .expect("marked");
        assert_eq!(marked, CleanMark::Written);
        drop(first);
        let marker = dir.join(".kafka_cleanshutdown");
        let text = std::fs::read_to_string(&marker).expect("a marker");
        assert_eq!(text, r#"{"version":0,"brokerEpoch":42}"#);
        let second = open(&dir).await;
        assert_eq!(
            second.state(),
            DirectoryState::Clean {
                broker_epoch: Some(42)
            }
        );
        assert!(marker.exists(), "a start that is refused leaves it");
        assert_eq!(
            second
                .opening(&PartitionName::new("t", 0), super::TOPIC_ID)
                .recovery,
            Recovery::AfterCleanStop
        );
        second.begin().await.expect("begun");
        assert!(!marker.exists());
        // It stopped before it was done: the next start is unclean (KAFKA-10471).
        drop(second);
        let third = open(&dir).await;
        assert_eq!(third.state(), DirectoryState::Unclean);
        assert!(!third.was_clean());
    });
}

#[test]
fn st_8_the_clean_marker_needs_every_log_closed() {
    on_both_engines(|dir| async move {
        let log_dir = open(&dir).await;
        let test = TestLog::create(&dir, LogOptions::default()).await;
        let withheld = log_dir.mark_clean(1, &BTreeSet::new()).await.expect("told");
        assert_eq!(withheld, CleanMark::Withheld(vec![super::name()]));
        assert!(!dir.join(".kafka_cleanshutdown").exists());
        test.log.close().await.expect("closed");
        let closed = BTreeSet::from([super::name()]);
        assert_eq!(
            log_dir.mark_clean(1, &closed).await.expect("told"),
            CleanMark::Written
        );
    });
}

#[test]
fn st_12_checkpoints_are_kept_and_damaged_ones_count_as_empty() {
    on_both_engines(|dir| async move {
        let name = PartitionName::new("a-b", 3);
        let offsets: PartitionOffsets = [(name.clone(), Offset(17))].into_iter().collect();
        let log_dir = open(&dir).await;
        for checkpoint in [
            Checkpoint::RecoveryPoint,
            Checkpoint::LogStart,
            Checkpoint::HighWatermark,
        ] {
            log_dir
                .write_checkpoint(checkpoint, &offsets)
                .await
                .expect("written");
        }
        drop(log_dir);
        let log_dir = open(&dir).await;
        assert_eq!(log_dir.loaded(Checkpoint::HighWatermark), &offsets);
        let opening = log_dir.opening(&name, super::TOPIC_ID);
        assert_eq!(
            opening.recovery,
            Recovery::AfterCrash {
                recovery_point: Offset(17)
            }
        );
        assert_eq!(opening.log_start, Some(Offset(17)));
        drop(log_dir);
        for checkpoint in [Checkpoint::RecoveryPoint, Checkpoint::LogStart] {
            std::fs::write(dir.join(checkpoint.file_name()), b"\0\0\0\0").expect("written");
        }
        std::fs::remove_file(dir.join(Checkpoint::HighWatermark.file_name())).expect("removed");
        let log_dir = open(&dir).await;
        let opening = log_dir.opening(&name, super::TOPIC_ID);
        assert_eq!(
            opening.recovery,
            Recovery::AfterCrash {
                recovery_point: Offset(0)
            }
        );
        assert_eq!(opening.log_start, None);
        assert!(log_dir.loaded(Checkpoint::HighWatermark).is_empty());
    });
}

/// What Kafka's checkpoint says of a name counts only as far as ours says it of the topic: an entry that
/// outlived its topic, or comes from nowhere, condemns no log.
#[test]
fn st_12_a_recovery_point_counts_for_its_own_topic_only() {
    on_both_engines(|dir| async move {
        let named = |offset| PartitionOffsets::from([(super::name(), Offset(offset))]);
        let id = TopicPartition {
            topic: super::TOPIC_ID,
            partition: super::name().partition,
        };
        let write = async |kafkas: Option<i64>, ours: Option<Option<i64>>| {
            let log_dir = open(&dir).await;
            match kafkas {
                Some(at) => {
                    let offsets = named(at);
                    let checkpoint = Checkpoint::RecoveryPoint;
                    log_dir.write_checkpoint(checkpoint, &offsets).await
                }
                None => log_dir.remove_checkpoint(Checkpoint::RecoveryPoint).await,
            }
            .expect("written");
            let ours = ours.map(|at| at.map(|at| (id, Offset(at))).into_iter().collect());
            match ours {
                Some(points) => log_dir.write_known_points(&points).await.expect("written"),
                None => drop(std::fs::remove_file(dir.join("thalweg-recovery-points"))),
            }
        };
        for (kafkas, ours, believed) in [
            (Some(17), None, 17),
            (Some(17), Some(Some(17)), 17),
            (Some(17), Some(None), 0),
            (Some(1_000), Some(Some(17)), 17),
            (Some(5), Some(Some(17)), 5),
            (None, Some(Some(17)), 0),
        ] {
            write(kafkas, ours).await;
            let log_dir = open(&dir).await;
            let recovery = |topic| log_dir.opening(&super::name(), topic).recovery;
            let at = |offset| Recovery::AfterCrash {
                recovery_point: Offset(offset),
            };
            let case = format!("{kafkas:?} {ours:?}");
            assert_eq!(recovery(super::TOPIC_ID), at(believed), "{case}");
            if ours.is_some() {
                assert_eq!(recovery(Uuid([8; 16])), at(0), "{case}");
            }
        }
    });
}

#[test]
fn st_15_deleted_directories_go_and_strays_are_set_aside() {
    on_both_engines(|dir| async move {
        let log_dir = open(&dir).await;
        let test = TestLog::create(&dir, LogOptions::default()).await;
        test.fill(1).await;
        drop(test);
        let deleted = dir.join("gone-0.0123456789abcdef0123456789abcdef-delete");
        std::fs::create_dir(&deleted).expect("made");
        std::fs::write(deleted.join("00000000000000000000.log"), b"x").expect("written");
        std::fs::create_dir(dir.join("no_partition")).expect("made");
        let found = log_dir.partitions().await.expect("listed");
        let stray = PartitionDir {
            name: super::name(),
            topic_id: Some(super::TOPIC_ID),
        };
        assert_eq!(found, std::slice::from_ref(&stray));
        assert!(!deleted.exists());
        let aside = log_dir.set_aside(&stray).await.expect("renamed");
        assert!(aside.join("00000000000000000000.log").exists());
        assert_eq!(log_dir.partitions().await.expect("listed"), []);
        std::fs::create_dir(dir.join("t-0")).expect("made");
        std::fs::write(dir.join("t-0/00000000000000000000.log"), b"x").expect("written");
        let before = std::fs::read_dir(&dir).expect("listed").count();
        log_dir.finish_deletion(&stray).await.expect("removed");
        let after = std::fs::read_dir(&dir).expect("listed").count();
        assert_eq!((after, dir.join("t-0").exists()), (before - 1, false));
        // A stray does not keep the directory from being clean.
        let marked = log_dir.mark_clean(1, &BTreeSet::new()).await.expect("told");
        assert_eq!(marked, CleanMark::Written);
    });
}

#[test]
fn st_15_two_directories_without_an_id_are_set_aside_one_beside_the_other() {
    on_both_engines(|dir| async move {
        let mut names = BTreeSet::new();
        for content in ["first", "second"] {
            let partition = dir.join("t-0");
            std::fs::create_dir(&partition).expect("made");
            std::fs::write(partition.join("00000000000000000000.log"), content).expect("written");
            let aside = set_partition_aside(&dir, super::name())
                .await
                .expect("renamed")
                .expect("it was there");
            let kept = std::fs::read_to_string(aside.join("00000000000000000000.log"));
            assert_eq!(kept.expect("kept"), content);
            assert!(!partition.exists(), "the name is free");
            names.insert(aside);
        }
        assert_eq!(names.len(), 2);
        let none = set_partition_aside(&dir, super::name()).await;
        assert_eq!(none.expect("looked"), None);
    });
}
