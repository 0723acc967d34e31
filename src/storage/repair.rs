//! What to do about a log that lost records it is known to have had, or was damaged below its recovery
//! point: found without changing anything, and done when an operator says so (R7).

use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::{Offset, TopicId};

use crate::dir::{Checkpoint, LogDir};
use crate::error::{LogError, Missing};
use crate::name::PartitionName;
use crate::options::{Gaps, Opening, Recovery};
use crate::recovery;
use crate::removal::files_of;
use crate::{listing, partition_files};

/// Damages of one log that are looked for: each one found is thought away before the next look.
const DAMAGES_MAX: usize = 1_000;
/// Of files that a repair takes out of a log and does not remove.
const CUT_AWAY: &str = "cut-away";

/// One step of a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repair {
    /// The log is cut: what lies behind is out of it.
    Cut {
        /// The segment's `.log` file, which is truncated.
        path: PathBuf,
        /// To so many bytes.
        position: u64,
        /// Bytes that this takes off the file.
        bytes: u64,
        /// Segments behind it, whose files get the ending `.cut-away`.
        behind: Vec<Offset>,
        /// End of the log then.
        end: Offset,
    },
    /// The log ends where its last batch does.
    EndAt(Offset),
    /// The log begins where its first segment does.
    BeginAt(Offset),
    /// The log goes on without the records of a hole.
    AcceptGap,
    /// Nothing of the log is there: it begins empty at the offset that it had reached, so that no offset
    /// is given out twice.
    BeginAnew {
        /// The directory, which is made if it is not there.
        dir: PathBuf,
        /// The first offset.
        at: Offset,
    },
    /// `partition.metadata` is written anew.
    TopicId {
        /// The partition's directory.
        dir: PathBuf,
        /// As the metadata says.
        topic_id: TopicId,
    },
}

/// A damage and what [`Examination::repair`] does about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What is wrong, with the file.
    pub damage: String,
    /// The step.
    pub repair: Repair,
}

/// All that is wrong with one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examination {
    /// Topic and index.
    pub name: PartitionName,
    /// In the order in which they are repaired; never empty.
    pub findings: Vec<Finding>,
    /// How its log can be opened then.
    after: Opening,
}

/// What the metadata knows of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its topic.
    pub topic_id: TopicId,
    /// Whether it may have gaps.
    pub gaps: Gaps,
}

/// Looks at one partition as its next start will. Nothing is changed. `None` when nothing needs a repair.
///
/// # Errors
/// [`LogError::Io`], and [`LogError::UnfinishedCompaction`], which only a start repairs.
pub async fn examine(
    dir: &LogDir,
    name: &PartitionName,
    expected: Expected,
) -> Result<Option<Examination>, LogError> {
    let mut opening = dir.opening(name);
    if expected.gaps == Gaps::MayBe {
        opening.gaps = Gaps::MayBe;
    }
    let path = dir.path().join(name.to_string());
    let mut findings = Vec::new();
    let topic_id = match fs::exists(&path).await {
        Ok(true) => partition_files::load_topic_id(&path).await?,
        Ok(false) => None,
        Err(error) => return Err(LogError::io("look for", &path)(error)),
    };
    if let Some(found) = topic_id.filter(|found| *found != expected.topic_id) {
        let wanted = expected.topic_id;
        let file = path.join(partition_files::PARTITION_METADATA);
        findings.push(Finding {
            damage: format!(
                "{} says topic id {found}, the metadata says {wanted}",
                file.display()
            ),
            repair: Repair::TopicId {
                dir: path.clone(),
                topic_id: wanted,
            },
        });
    }
    while findings.len() < DAMAGES_MAX {
        let Some(error) = damage_of(&path, opening).await? else {
            break;
        };
        let damage = error.to_string();
        let Some(repair) = repair_of(&path, error).await? else {
            break;
        };
        // After these there is nothing left to look at.
        let is_last = matches!(repair, Repair::Cut { .. } | Repair::BeginAnew { .. });
        think_done(&repair, &mut opening);
        findings.push(Finding { damage, repair });
        if is_last {
            break;
        }
    }
    Ok((!findings.is_empty()).then(|| Examination {
        name: name.clone(),
        findings,
        after: opening,
    }))
}

async fn damage_of(path: &Path, opening: Opening) -> Result<Option<LogError>, LogError> {
    if !fs::exists(path)
        .await
        .map_err(LogError::io("look for", path))?
    {
        return Ok(recovery::missing_directory(path, &opening));
    }
    match recovery::check(path, opening).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_damage() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

async fn repair_of(dir: &Path, error: LogError) -> Result<Option<Repair>, LogError> {
    let repair = match error {
        LogError::RecordsMissing {
            path,
            what,
            from,
            up_to,
        } => match what {
            Missing::End if path != dir => Repair::EndAt(from),
            Missing::End | Missing::Directory => Repair::BeginAnew {
                dir: dir.to_owned(),
                at: up_to,
            },
            Missing::Start => Repair::BeginAt(up_to),
            Missing::Between => Repair::AcceptGap,
        },
        LogError::DamagedBelowRecoveryPoint {
            path,
            position,
            offset,
            ..
        }
        | LogError::DamagedBeforeSynced {
            path,
            position,
            offset,
            ..
        } => {
            let logs = listing::list(dir).await?.logs;
            let cut = logs.iter().find(|(base, _)| {
                let [log, ..] = files_of(dir, **base);
                log == path
            });
            let Some((base, bytes)) = cut else {
                return Ok(None);
            };
            Repair::Cut {
                position,
                bytes: bytes.saturating_sub(position),
                behind: logs.keys().filter(|other| *other > base).copied().collect(),
                end: offset,
                path,
            }
        }
        LogError::Io { .. }
        | LogError::UnfinishedCompaction { .. }
        | LogError::Offline { .. }
        | LogError::Closed => return Ok(None),
    };
    Ok(Some(repair))
}

/// What the checkpoints will say when it is done.
fn think_done(repair: &Repair, opening: &mut Opening) {
    match repair {
        Repair::EndAt(end) | Repair::Cut { end, .. } => opening.known_end = Some(*end),
        Repair::BeginAt(start) => opening.log_start = Some(*start),
        Repair::AcceptGap => opening.gaps = Gaps::MayBe,
        Repair::BeginAnew { at, .. } => {
            opening.log_start = Some(*at);
            opening.known_end = Some(*at);
        }
        Repair::TopicId { .. } => {}
    }
    if let Recovery::AfterCrash { recovery_point } = &mut opening.recovery {
        *recovery_point = opening.known_end.unwrap_or_default();
    }
}

impl Examination {
    async fn repair(&self) -> Result<(), LogError> {
        for finding in &self.findings {
            match &finding.repair {
                Repair::Cut {
                    path,
                    position,
                    behind,
                    ..
                } => cut(path, *position, behind).await?,
                Repair::BeginAnew { dir, .. } => make(dir).await?,
                Repair::TopicId { dir, topic_id } => {
                    partition_files::store_topic_id(dir, *topic_id).await?;
                }
                Repair::EndAt(_) | Repair::BeginAt(_) | Repair::AcceptGap => {}
            }
        }
        Ok(())
    }
}

/// Repairs partitions, then writes the checkpoints that let them be opened. The next start is one after an
/// unclean stop: it gives every partition a higher leader epoch, so that clients see where logs were cut.
///
/// # Errors
/// [`LogError::Io`]; what was repaired before it is found as it is by the next examination.
pub async fn repair(dir: &LogDir, examined: &[Examination]) -> Result<(), LogError> {
    dir.forget_clean_stop().await?;
    let loaded = |checkpoint| dir.loaded(checkpoint).clone();
    let mut recovery_points = loaded(Checkpoint::RecoveryPoint);
    let mut log_starts = loaded(Checkpoint::LogStart);
    let mut damaged = loaded(Checkpoint::FoundDamaged);
    let mut gaps = loaded(Checkpoint::AcceptedGaps);
    for one in examined {
        one.repair().await?;
        let name = &one.name;
        if let Some(end) = one.after.known_end {
            recovery_points.insert(name.clone(), end);
        }
        if let Some(start) = one.after.log_start {
            log_starts.insert(name.clone(), start);
        }
        if one.findings.iter().any(|f| f.repair == Repair::AcceptGap) {
            gaps.insert(name.clone(), one.after.known_end.unwrap_or_default());
        }
        damaged.remove(name);
    }
    for (checkpoint, offsets) in [
        (Checkpoint::RecoveryPoint, recovery_points),
        (Checkpoint::LogStart, log_starts),
        (Checkpoint::AcceptedGaps, gaps),
        (Checkpoint::FoundDamaged, damaged),
    ] {
        match offsets.is_empty() {
            true => dir.remove_checkpoint(checkpoint).await?,
            false => dir.write_checkpoint(checkpoint, &offsets).await?,
        }
    }
    Ok(())
}

async fn cut(path: &Path, position: u64, behind: &[Offset]) -> Result<(), LogError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    for base in behind.iter().rev() {
        for file in files_of(dir, *base) {
            let mut aside = file.clone().into_os_string();
            aside.push(".");
            aside.push(CUT_AWAY);
            match fs::rename(&file, Path::new(&aside)).await {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                renamed => renamed.map_err(LogError::io("rename", &file))?,
            }
        }
    }
    let file = fs::open(path, OpenMode::ReadWrite)
        .await
        .map_err(LogError::io("open", path))?;
    fs::truncate(&file, position)
        .await
        .map_err(LogError::io("truncate", path))?;
    fs::sync_all(&file)
        .await
        .map_err(LogError::io("fsync", path))?;
    fs::sync_dir(dir).await.map_err(LogError::io("sync", dir))
}

async fn make(dir: &Path) -> Result<(), LogError> {
    fs::create_dir_all(dir)
        .await
        .map_err(LogError::io("create", dir))?;
    let parent = dir.parent().unwrap_or(Path::new("."));
    fs::sync_dir(parent)
        .await
        .map_err(LogError::io("sync", parent))
}
