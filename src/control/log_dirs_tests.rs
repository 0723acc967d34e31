//! Several log directories on a real disk: which partition is in which, and what a lost one leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};

use thalweg_metadata::{Image, Record, ReplicaHome};
use thalweg_protocol::messages::{PartitionRecord, RegisterBrokerRecord, TopicRecord};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::repair::repair;
use thalweg_storage::{
    BoundOffsets, Checkpoint, CleanMark, DirHealth, FormatPolicy, Gaps, LogDir, LogError,
    MAY_HAVE_HOLES, OpenPolicy, Opening, PartitionDir, PartitionName, Recovery, Unwritten,
};
use thalweg_types::{BrokerId, ClusterId, Offset, PartitionIndex, TopicPartition, Uuid};

use super::{DirFound, DirIndex, LogDirs, Owner};
use crate::requests::{LogProgress, NotOpen};

const LOCAL: BrokerId = BrokerId(1);
const TOPIC: Uuid = Uuid([5; 16]);
const A: DirIndex = DirIndex(0);
const B: DirIndex = DirIndex(1);

fn id(byte: u8) -> Uuid {
    Uuid([byte; 16])
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(std::path::PathBuf) -> F) {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = Runtime::new(RuntimeOptions {
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .expect("a runtime");
    runtime.block_on(test(dir.path().to_owned()));
}

async fn open(path: &Path, directory_id: Uuid) -> DirFound {
    let policy = OpenPolicy {
        node_id: LOCAL,
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId("c".into()),
            directory_id,
        },
    };
    let opened = LogDir::open(path, policy).await;
    DirFound::Open(Box::new(opened.expect("opened")))
}

fn failed(path: &Path) -> DirFound {
    let health = DirHealth::new(path);
    health.fail("it is not there");
    DirFound::Failed(health)
}

async fn both(root: &Path) -> LogDirs {
    let found = vec![
        open(&root.join("a"), id(201)).await,
        open(&root.join("b"), id(202)).await,
    ];
    LogDirs::new(found, A, 2)
}

fn name(index: i32) -> PartitionName {
    PartitionName::new("t", index)
}

/// Topic `t`, with a partition per directory id that the metadata tells.
fn image(told: &[Uuid]) -> Image {
    let broker = RegisterBrokerRecord {
        broker_id: LOCAL.0,
        ..RegisterBrokerRecord::default()
    };
    let topic = TopicRecord {
        name: "t".to_owned(),
        topic_id: TOPIC,
    };
    let mut records: Vec<Record> = vec![broker.into(), topic.into()];
    for (index, directory) in (0..).zip(told) {
        let partition = PartitionRecord {
            partition_id: index,
            topic_id: TOPIC,
            replicas: vec![LOCAL.0],
            isr: vec![LOCAL.0],
            leader: LOCAL.0,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![*directory],
            ..PartitionRecord::default()
        };
        records.push(partition.into());
    }
    Image::default().apply(&records).expect("they apply").0
}

fn make_folder(root: &Path, dir: &str, index: i32) {
    std::fs::create_dir(root.join(dir).join(format!("t-{index}"))).expect("made");
}

fn start(index: i32, offset: i64) -> (PartitionName, (TopicPartition, Offset)) {
    let id = TopicPartition {
        topic: TOPIC,
        partition: PartitionIndex(index),
    };
    (name(index), (id, Offset(offset)))
}

fn home_of(dirs: &LogDirs, image: &Image, index: i32) -> Option<ReplicaHome> {
    let at = TopicPartition {
        topic: TOPIC,
        partition: PartitionIndex(index),
    };
    dirs.replica_home(image, LOCAL, at)
}

const NO_STRAYS: fn(&PartitionDir) -> Owner = |_| Owner::Topic;

#[test]
fn partitions_are_found_where_they_lie_whatever_the_metadata_says() {
    run(|root| async move {
        let mut dirs = both(&root).await;
        make_folder(&root, "a", 0);
        make_folder(&root, "b", 1);
        // Told right, told wrong, and not on the disk yet: where the metadata says.
        let image = image(&[id(201), id(201), id(202)]);
        let survey = dirs.survey(NO_STRAYS).await.expect("each once");
        dirs.settle(&image, LOCAL, &survey).await;
        assert_eq!(dirs.home(&name(0)), Some(A));
        assert_eq!(dirs.home(&name(1)), Some(B));
        assert_eq!(dirs.home(&name(2)), Some(B));
        assert_eq!(home_of(&dirs, &image, 1), Some(ReplicaHome::In(id(202))));
        assert!(survey.has_some_in(A) && survey.has_some_in(B));
        assert_eq!(dirs.working_ids(), [id(201), id(202)]);
    });
}

#[test]
fn st_28_a_partition_in_two_directories_is_refused() {
    run(|root| async move {
        let dirs = both(&root).await;
        make_folder(&root, "a", 0);
        make_folder(&root, "b", 0);
        let twice = dirs.survey(NO_STRAYS).await.err().expect("refused");
        assert_eq!(twice.first, root.join("a/t-0"));
        assert_eq!(twice.second, root.join("b/t-0"));
        // The one that is no topic's is not in the way.
        for owner in [Owner::Nobody, Owner::Deleted] {
            let survey = dirs.survey(|_| owner).await.expect("none is in the way");
            assert!(survey.has_some_in(A) && survey.has_some_in(B));
            dirs.clear_away(&survey).await.expect("cleared");
            assert!(!root.join("a/t-0").exists() && !root.join("b/t-0").exists());
            let kept = std::fs::read_dir(root.join("a")).expect("listed");
            let strays = kept.filter(|entry| {
                let name = entry.as_ref().expect("an entry").file_name();
                name.to_string_lossy().contains("t-0.")
            });
            assert_eq!(strays.count(), 1, "of the first round");
            make_folder(&root, "a", 0);
            make_folder(&root, "b", 0);
        }
    });
}

/// What may lie in a directory that is not there begins nowhere else.
#[test]
fn st_25_partitions_of_a_missing_directory_stay_offline() {
    run(|root| async move {
        let found = vec![
            open(&root.join("a"), id(201)).await,
            failed(&root.join("b")),
        ];
        let mut dirs = LogDirs::new(found, A, 2);
        // In B; not told, so it may be in B; in A.
        let image = image(&[id(202), Uuid::ZERO, id(201)]);
        let survey = dirs.survey(NO_STRAYS).await.expect("nothing");
        assert!(survey.is_empty());
        dirs.settle(&image, LOCAL, &survey).await;
        let homes = [0, 1, 2].map(|index| dirs.home(&name(index)));
        assert_eq!(homes, [None, None, Some(A)]);
        assert_eq!(home_of(&dirs, &image, 0), Some(ReplicaHome::Offline));
        assert_eq!(home_of(&dirs, &image, 2), Some(ReplicaHome::In(id(201))));
        assert_eq!(dirs.working_ids(), [id(201)]);
        // What is new goes where there is a disk.
        assert_eq!(dirs.place_new(name(3), id(201)), Some(A));
        assert_eq!(dirs.place_new(name(4), id(202)), None);
    });
}

#[test]
fn a_partition_that_nobody_told_of_begins_where_a_checkpoint_knows_it_or_where_there_is_room() {
    run(|root| async move {
        {
            let dirs = both(&root).await;
            let (_, b) = dirs.working().nth(1).expect("b");
            let points = [(name(0), Offset(7))].into_iter().collect();
            b.write_checkpoint(Checkpoint::RecoveryPoint, &points)
                .await
                .expect("written");
        }
        let mut dirs = both(&root).await;
        let image = image(&[Uuid::ZERO, Uuid::ZERO]);
        let survey = dirs.survey(NO_STRAYS).await.expect("nothing");
        dirs.settle(&image, LOCAL, &survey).await;
        assert_eq!(dirs.home(&name(0)), Some(B), "its records are missed there");
        assert_eq!(dirs.home(&name(1)), Some(A));
    });
}

#[test]
fn checkpoints_go_where_the_partitions_are_and_a_failed_directory_gets_none() {
    run(|root| async move {
        let mut dirs = both(&root).await;
        dirs.place_new(name(0), id(201)).expect("a");
        dirs.place_new(name(1), id(202)).expect("b");
        let starts = vec![start(0, 3), start(1, 4)];
        dirs.record_log_starts(starts.clone()).await.expect("both");
        let written = |dir: &str| {
            let path = root.join(dir).join(Checkpoint::LogStart.file_name());
            std::fs::read_to_string(path).expect("written")
        };
        assert_eq!(written("a"), "0\n1\nt 0 3\n");
        assert_eq!(written("b"), "0\n1\nt 1 4\n");
        dirs.healths()[1].fail("its disk is gone");
        let later = vec![start(0, 5), start(1, 6)];
        dirs.record_log_starts(later)
            .await
            .expect("the one that works");
        assert_eq!(written("a"), "0\n1\nt 0 5\n");
        assert_eq!(written("b"), "0\n1\nt 1 4\n");
        let gone = BTreeSet::from([name(0), name(1)]);
        let is_gone = |_| true;
        dirs.forget(&gone, is_gone).await.expect("forgotten");
        assert_eq!(written("a"), "0\n0\n");
        let closed = dirs.close(Offset(9), Vec::new()).await.expect("closed");
        assert_eq!(closed, CleanMark::Written);
        let is_clean = |dir: &str| root.join(dir).join(".kafka_cleanshutdown").exists();
        assert!(is_clean("a") && !is_clean("b"));
    });
}

/// ST-13: what the log is told while the directory of its copy takes over what its own says comes there, too.
#[test]
fn st_13_a_log_start_that_is_told_while_a_copy_becomes_the_log_goes_along() {
    run(|root| async move {
        let mut dirs = both(&root).await;
        dirs.place_new(name(0), id(201)).expect("a");
        dirs.record_log_starts(vec![start(0, 3)]).await.expect("a");
        let (_, (of, _)) = start(0, 3);
        let begun = dirs.begin_move(&name(0), of, B, Offset(9));
        let told = dirs.record_log_starts(vec![start(0, 5)]);
        begun.await.expect("begun");
        told.await.expect("told");
        let written = |dir: &str| {
            let path = root.join(dir).join(Checkpoint::LogStart.file_name());
            std::fs::read_to_string(path).expect("written")
        };
        assert_eq!(written("b"), "0\n1\nt 0 5\n");
        // From here on both are told at once.
        dirs.record_log_starts(vec![start(0, 6)])
            .await
            .expect("both");
        assert_eq!([written("a"), written("b")], ["0\n1\nt 0 6\n"; 2]);
    });
}

/// One directory has no room, and another one can not even take away the file that says that its log starts hold.
#[test]
fn st_20_of_several_directories_the_one_counts_in_which_nothing_may_be_removed() {
    run(|root| async move {
        let mut dirs = both(&root).await;
        dirs.place_new(name(0), id(201)).expect("a");
        dirs.place_new(name(1), id(202)).expect("b");
        let _full = no_room_for(&root, Checkpoint::LogStart);
        let lacks = dirs.record_log_starts(vec![start(0, 1), start(1, 1)]).await;
        assert!(matches!(lacks, Err(LogError::Io { .. })), "{lacks:?}");
        let file = format!("b/{}.tmp", Checkpoint::LogStart.file_name());
        std::os::unix::fs::symlink("/dev/full", root.join(file)).expect("a link");
        std::fs::create_dir(root.join("b/thalweg-log-starts-kept")).expect("made");
        let holds = dirs.record_log_starts(vec![start(0, 2), start(1, 2)]).await;
        assert!(matches!(holds, Err(LogError::StartsHold(_))), "{holds:?}");
    });
}

/// The removal of a deleted topic's entries fails, and the process ends: another topic of its name begins anew.
#[test]
fn st_13_a_log_start_that_outlived_its_topic_counts_for_no_other() {
    run(|root| async move {
        let mut dirs = both(&root).await;
        dirs.place_new(name(0), id(201)).expect("a");
        dirs.record_log_starts(vec![start(0, 1_000)])
            .await
            .expect("written");
        let file = Checkpoint::LogStart.file_name();
        let in_the_way = root.join("a").join(format!("{file}.tmp"));
        std::fs::create_dir(&in_the_way).expect("made");
        let forgotten = dirs.forget(&BTreeSet::from([name(0)]), |_| true).await;
        forgotten.expect_err("it can not be written");
        drop(dirs);
        std::fs::remove_dir(&in_the_way).expect("removed");
        let dirs = both(&root).await;
        let found = |topic| {
            dirs.opening(&name(0), topic, A)
                .expect("it works")
                .log_start
        };
        assert_eq!(found(TOPIC), Some(Offset(1_000)));
        assert_eq!(found(id(6)), None);
    });
}

/// The next one of this checkpoint finds the disk full.
fn no_room_for(root: &Path, checkpoint: Checkpoint) -> PathBuf {
    let path = root.join(format!("a/{}.tmp", checkpoint.file_name()));
    std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
    path
}

/// Two partitions of which every checkpoint has something to say.
async fn filled(root: &Path) -> LogDirs {
    {
        let dirs = both(root).await;
        let (_, a) = dirs.working().next().expect("a");
        let mut gaps = BoundOffsets::default();
        gaps.insert(name(0), TOPIC, Offset(3));
        let written = a.write_bound(Checkpoint::AcceptedGaps, &gaps).await;
        written.expect("written");
    }
    let mut dirs = both(root).await;
    for index in [0, 1] {
        dirs.place_new(name(index), id(201)).expect("a");
    }
    let both = |offset| vec![start(0, offset), start(1, offset)];
    dirs.record_log_starts(both(10)).await.expect("written");
    dirs.record_cleaned(both(20)).await.expect("written");
    let progress = both(30).into_iter().map(|(name, (id, offset))| {
        let progress = LogProgress {
            recovery_point: offset,
            known_point: offset,
            high_watermark: offset,
        };
        (name, (id, progress))
    });
    let recorded = dirs.record_progress(progress.collect()).await;
    recorded.expect("written");
    let not_open = BTreeMap::from([
        (name(0), NotOpen::DamagedAfterKill),
        (name(1), NotOpen::DamagedAfterStop),
    ]);
    let image = image(&[id(201), id(201)]);
    let recorded = dirs.record_opened(&image, &not_open).await;
    recorded.expect("written");
    dirs
}

/// The entries of a deleted topic stay, and the process ends: another topic of its name has none of them.
#[test]
fn st_12_no_entry_of_a_topic_counts_for_another_of_its_name() {
    run(|root| async move {
        let mut dirs = filled(&root).await;
        let full = no_room_for(&root, Checkpoint::RecoveryPoint);
        let both_names = BTreeSet::from([name(0), name(1)]);
        let forgotten = dirs.forget(&both_names, |_| true).await;
        forgotten.expect_err("it can not be written");
        dirs.catch_up(&BTreeSet::from([A, B]))
            .await
            .expect_err("nor now");
        drop(dirs);
        std::fs::remove_file(&full).expect("removed");
        let mut dirs = both(&root).await;
        let of =
            |dirs: &LogDirs, topic, index| dirs.opening(&name(index), topic, A).expect("it works");
        let known = of(&dirs, TOPIC, 0);
        assert_eq!(known.log_start, Some(Offset(10)));
        assert_eq!(known.cleaned_to, Some(Offset(20)));
        assert_eq!(known.high_watermark, Some(Offset(30)));
        assert_eq!(
            (known.gaps, known.unwritten),
            (Gaps::MayBe, Unwritten::LastWrite)
        );
        let damaged = of(&dirs, TOPIC, 1);
        assert_eq!(damaged.recovery, Recovery::AfterCleanStop);
        assert_eq!(damaged.known_end, Some(Offset(30)));
        let recovery_point = Offset(0);
        let nothing = Opening {
            known_end: Some(recovery_point),
            gaps: Gaps::Never,
            ..Opening::from(Recovery::AfterCrash { recovery_point })
        };
        // It was made in this boot, whatever may have been torn of the one that was not open.
        let made_since = Opening {
            unwritten: Unwritten::LastWrite,
            ..nothing
        };
        for index in [0, 1] {
            assert_eq!(of(&dirs, id(6), index), made_since);
        }
        // Without the topic, all of them go before a partition is made.
        dirs.keep_known(&Image::default()).await.expect("written");
        drop(dirs);
        let dirs = both(&root).await;
        let nothing = Opening {
            compacted_to: Some(Offset(0)),
            ..nothing
        };
        for index in [0, 1] {
            assert_eq!(of(&dirs, TOPIC, index), nothing);
        }
    });
}

/// What Kafka's compaction leaves between segments is no loss, as long as it is not known to lie below the recovery point.
#[test]
fn st_5_holes_of_kafkas_are_told_from_losses_from_the_first_start_on() {
    run(|root| async move {
        let first = async || {
            let mut dirs = both(&root).await;
            for index in [0, 1] {
                dirs.place_new(name(index), id(201)).expect("a");
            }
            dirs
        };
        let image = image(&[id(201), id(201)]);
        drop(first().await);
        // One of Kafka's has a recovery point, and one has none yet.
        let checkpoint = Checkpoint::RecoveryPoint.file_name();
        std::fs::write(root.join("a").join(checkpoint), "0\n1\nt 0 17\n").expect("written");
        let may_lack = async |topic, index| {
            let dirs = both(&root).await;
            let opening = dirs.opening(&name(index), topic, A).expect("it works");
            opening.compacted_to.is_none()
        };
        let mut dirs = first().await;
        dirs.keep_known(&image).await.expect("written");
        let opened = dirs.record_opened(&image, &BTreeMap::new()).await;
        opened.expect("recorded");
        drop(dirs);
        assert!(may_lack(TOPIC, 0).await && may_lack(TOPIC, 1).await);
        // Made since.
        assert!(!may_lack(id(6), 2).await);
        let dirs = first().await;
        let told = [(0, MAY_HAVE_HOLES), (1, Offset(30))].map(|(index, known_point)| {
            let (name, (id, recovery_point)) = start(index, 30);
            let progress = LogProgress {
                recovery_point,
                known_point,
                high_watermark: recovery_point,
            };
            (name, (id, progress))
        });
        let recorded = dirs.record_progress(told.into()).await;
        recorded.expect("written");
        drop(dirs);
        assert!(may_lack(TOPIC, 0).await && !may_lack(TOPIC, 1).await);
    });
}

/// What could not be removed is removed before anything else.
#[test]
fn st_12_entries_that_could_not_go_go_first_when_there_is_room() {
    run(|root| async move {
        let mut dirs = filled(&root).await;
        let gone = BTreeSet::from([name(0)]);
        let full = no_room_for(&root, Checkpoint::LogStart);
        let forgotten = dirs.forget(&gone, |_| false).await;
        forgotten.expect_err("it can not be written");
        std::fs::remove_file(&full).expect("removed");
        dirs.catch_up(&BTreeSet::from([A, B]))
            .await
            .expect("written");
        drop(dirs);
        let dirs = both(&root).await;
        let (_, a) = dirs.working().next().expect("a");
        for checkpoint in [
            Checkpoint::RecoveryPoint,
            Checkpoint::LogStart,
            Checkpoint::HighWatermark,
            Checkpoint::Cleaner,
            Checkpoint::FoundDamaged,
            Checkpoint::DamagedAfterKill,
            Checkpoint::AcceptedGaps,
        ] {
            let names = a.loaded(checkpoint).keys();
            assert_eq!(
                names.filter(|found| **found == name(0)).count(),
                0,
                "{checkpoint:?}"
            );
        }
    });
}

#[test]
fn st_34_an_epoch_in_which_nothing_was_written_goes_on_after_a_kill() {
    run(|root| async move {
        let image = image(&[id(201); 3]);
        let raised = image.raise_leader_epochs(LOCAL, |_| true);
        let image = image.apply(&raised).expect("they apply").0;
        drop(both(&root).await);
        // Written in the epoch before, in this one, and nobody knows.
        for index in [0, 1, 2] {
            make_folder(&root, "a", index);
        }
        for (index, text) in [(0, "0\n1\n0 0\n"), (1, "0\n2\n0 0\n1 5\n")] {
            let file = format!("a/t-{index}/leader-epoch-checkpoint");
            std::fs::write(root.join(file), text).expect("written");
        }
        let again = async || {
            let mut dirs = both(&root).await;
            for index in [0, 1, 2] {
                dirs.place_new(name(index), id(201)).expect("a");
            }
            dirs
        };
        let untouched = async |dirs: &LogDirs| {
            let found = dirs.untouched(&image, LOCAL).await.into_iter();
            found.map(|id| id.partition.0).collect::<BTreeSet<i32>>()
        };
        let none = BTreeSet::new();
        let mut dirs = again().await;
        assert_eq!(
            untouched(&dirs).await,
            none,
            "no process of this boot had them open"
        );
        dirs.begin().await.expect("begun");
        let opened = dirs.record_opened(&image, &BTreeMap::new()).await;
        opened.expect("recorded");
        let marked = dirs.replace_marks(Vec::new(), &BTreeMap::new()).await;
        marked.expect("written");
        drop(dirs);
        let lifetime = thalweg_reactor::fs::cache_lifetime(&root).await;
        if lifetime.expect("told").is_none() {
            return;
        }
        assert_eq!(untouched(&again().await).await, BTreeSet::from([0]));
        // A repair may take batches out.
        let examined = LogDir::examine(&root.join("a")).await.expect("there");
        repair(&examined, &[]).await.expect("repaired");
        drop(examined);
        assert_eq!(untouched(&again().await).await, none);
    });
}

#[test]
fn a_directory_without_an_id_gets_one_that_stays() {
    run(|root| async move {
        let file = root.join("a/meta.properties");
        std::fs::create_dir(root.join("a")).expect("made");
        std::fs::write(&file, "version=1\ncluster.id=c\nnode.id=1\n").expect("written");
        let mut dirs = both(&root).await;
        assert_eq!(dirs.working_ids(), [id(202)]);
        dirs.give_ids(|| id(203)).await.expect("given");
        assert_eq!(dirs.working_ids(), [id(203), id(202)]);
        drop(dirs);
        assert_eq!(both(&root).await.working_ids(), [id(203), id(202)]);
    });
}
