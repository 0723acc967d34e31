//! What to do about a log that lost records it is known to have had, or was damaged below its recovery
//! point: found without changing anything, and done when an operator says so (R7).

mod batches;
mod unfinished;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::{Offset, TopicId, TopicPartition};

use crate::compaction::recover::name_damaged;
use crate::dir::{Checkpoint, LogDir};
use crate::error::{LogError, Missing};
use crate::listing;
use crate::name::{PartitionName, log_path};
use crate::options::{Gaps, Opening, Recovery, Unwritten};
use crate::partition_files;
use crate::quarantine::DamagedRange;
use crate::recovery;
use crate::recovery_points::MAY_HAVE_HOLES;

/// Damages of one log that are looked for: each one found is thought away before the next look.
const DAMAGES_MAX: usize = 1_000;
/// Of a segment as it was before damaged batches were taken out.
const CUT_AWAY: &str = ".cut-away";

/// One step of a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Damaged batches are taken out of a segment; what is whole before and behind them stays.
    TakeOut {
        /// The segment's `.log` file, which is written anew; as it was, it is kept with the ending `.cut-away`.
        path: PathBuf,
        /// These bytes of it.
        bytes: Range<u64>,
    },
    /// The log goes on where it had come to, in a new segment: no offset is given out twice.
    GoOnAt {
        /// Where its batches end.
        end: Offset,
        /// The new segment's `.log` file.
        path: PathBuf,
        /// The offset that it had reached.
        at: Offset,
    },
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
    /// A segment gets its name, which a crash has kept from it: as the next start would give it, which sees no more of the
    /// log when other damage has it refused. What else is wrong can be told then.
    GiveName {
        /// The file of the next segment.
        from: PathBuf,
        /// The segment's `.log` file.
        to: PathBuf,
    },
    /// A compaction that a crash has interrupted is finished, as the next start would: what it has put aside is in its new
    /// segments. What else is wrong can be told then.
    FinishSwap {
        /// The partition's directory.
        dir: PathBuf,
    },
    /// A segment of such a compaction that is damaged, and without which the next start refuses the log, gets its name as
    /// it is: what of it is damaged can be told then, and taken out.
    NameDamaged {
        /// The partition's directory.
        dir: PathBuf,
        /// Where the segment begins.
        base: Offset,
    },
    /// `partition.metadata` is written anew.
    TopicId {
        /// The partition's directory.
        dir: PathBuf,
        /// As the metadata says.
        topic_id: TopicId,
    },
}

impl Repair {
    /// Whether it takes out all that `other` does.
    fn takes(&self, other: &Repair) -> bool {
        match (self, other) {
            (
                Repair::TakeOut { path, bytes },
                Repair::TakeOut {
                    path: of,
                    bytes: some,
                },
            ) => path == of && bytes.start <= some.start && some.end <= bytes.end,
            _other => self == other,
        }
    }

    /// Whether the next start, which comes after such an end, meets offsets that are missing between batches.
    fn leaves_gap(&self, ended: Recovery) -> bool {
        match self {
            Repair::GoOnAt { .. } | Repair::AcceptGap => true,
            // Below the recovery point nobody looks.
            Repair::TakeOut { .. } => ended != Recovery::AfterCleanStop,
            Repair::BeginAt(_)
            | Repair::BeginAnew { .. }
            | Repair::GiveName { .. }
            | Repair::FinishSwap { .. }
            | Repair::NameDamaged { .. }
            | Repair::TopicId { .. } => false,
        }
    }
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
    topic_id: TopicId,
    /// How its log was found.
    found: Opening,
    /// How it can be opened then.
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

/// Looks at one partition as its next start will, and then at every batch of it. Nothing is changed. `None` when nothing needs a repair.
///
/// # Errors
/// [`LogError::Io`].
pub async fn examine(
    dir: &LogDir,
    name: &PartitionName,
    expected: Expected,
) -> Result<Option<Examination>, LogError> {
    let examined = examine_files(dir, name, expected).await?;
    let unfinished = unfinished::of(&dir.path().join(name.to_string())).await?;
    // Anything else a start finishes by itself.
    let is_refused = |one: &Finding| matches!(one.repair, Repair::NameDamaged { .. });
    let examined = examined.or_else(|| {
        let found = dir.opening(name, expected.topic_id);
        let none = Examination::of(name, expected, found);
        unfinished.iter().any(is_refused).then_some(none)
    });
    Ok(examined.map(|examined| examined.behind(unfinished)))
}

/// As [`examine`], by the names that there are.
async fn examine_files(
    dir: &LogDir,
    name: &PartitionName,
    expected: Expected,
) -> Result<Option<Examination>, LogError> {
    let mut opening = dir.opening(name, expected.topic_id);
    if expected.gaps == Gaps::MayBe {
        opening.gaps = Gaps::MayBe;
    }
    let as_found = opening;
    let path = dir.path().join(name.to_string());
    let reached = opening.known_end.unwrap_or_default();
    let examined = |findings: Vec<Finding>, after| {
        (!findings.is_empty()).then(|| Examination {
            findings,
            after,
            ..Examination::of(name, expected, as_found)
        })
    };
    let wrong_id = wrong_topic_id(&path, expected.topic_id).await?;
    let mut findings: Vec<Finding> = wrong_id.into_iter().collect();
    let mut thought = Vec::new();
    while findings.len() < DAMAGES_MAX {
        let Some(error) = damage_of(&path, opening, &thought).await? else {
            break;
        };
        let damage = error.to_string();
        let repair = match batches::out_of_place(&path, &error).await? {
            Some((repair, away)) => {
                thought.push(away);
                Some(repair)
            }
            None => repair_of(&path, error, reached),
        };
        let Some(repair) = repair else {
            break;
        };
        let is_new = matches!(repair, Repair::BeginAnew { .. });
        think_done(&repair, &mut opening);
        findings.push(Finding { damage, repair });
        if is_new {
            return Ok(examined(findings, opening));
        }
    }
    batches::check(&path, reached, &mut opening, &mut findings).await?;
    for finding in &findings {
        if let Repair::GoOnAt { end, at, .. } = finding.repair {
            opening.known_end = Some(at);
            opening.gaps = Gaps::MayBe;
            // Nothing is left of it: as one whose directory is gone.
            if end <= opening.log_start.unwrap_or_default() {
                opening.log_start = Some(at);
            }
        }
    }
    Ok(examined(findings, opening))
}

async fn wrong_topic_id(dir: &Path, wanted: TopicId) -> Result<Option<Finding>, LogError> {
    let found = match fs::exists(dir).await {
        Ok(true) => partition_files::load_topic_id(dir).await?,
        Ok(false) => None,
        Err(error) => return Err(LogError::io("look for", dir)(error)),
    };
    let file = dir.join(partition_files::PARTITION_METADATA);
    let finding = |found: TopicId| Finding {
        damage: format!(
            "{} says topic id {found}, the metadata says {wanted}",
            file.display()
        ),
        repair: Repair::TopicId {
            dir: dir.to_owned(),
            topic_id: wanted,
        },
    };
    Ok(found.filter(|found| *found != wanted).map(finding))
}

async fn damage_of(
    path: &Path,
    opening: Opening,
    thought: &[(PathBuf, DamagedRange)],
) -> Result<Option<LogError>, LogError> {
    if !fs::exists(path)
        .await
        .map_err(LogError::io("look for", path))?
    {
        return Ok(recovery::missing_directory(path, &opening));
    }
    match recovery::check(path, opening, thought).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_damage() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// What is done about records that are missing. Of damaged batches the look at every batch says more.
fn repair_of(dir: &Path, error: LogError, reached: Offset) -> Option<Repair> {
    match error {
        LogError::RecordsMissing {
            path,
            what,
            from,
            up_to,
        } => Some(match what {
            Missing::End if path != dir => go_on(dir, from, reached.max(up_to)),
            Missing::End | Missing::Directory => Repair::BeginAnew {
                dir: dir.to_owned(),
                at: up_to,
            },
            Missing::Start => Repair::BeginAt(up_to),
            Missing::Between => Repair::AcceptGap,
        }),
        LogError::DamagedBelowRecoveryPoint { .. }
        | LogError::DamagedBeforeWhole { .. }
        | LogError::DamagedBelowMark { .. }
        | LogError::OutOfPlace { .. }
        | LogError::Io { .. }
        | LogError::UnfinishedCompaction { .. }
        | LogError::StartsHold(_)
        | LogError::Offline { .. }
        | LogError::Closed => None,
    }
}

/// Of a log whose batches end at `end` and that had reached another offset.
fn go_on(dir: &Path, end: Offset, reached: Offset) -> Repair {
    Repair::GoOnAt {
        end,
        path: log_path(dir, reached),
        at: reached,
    }
}

/// What is known of the log for the next look, as if it was done. Where it goes on is not looked at.
fn think_done(repair: &Repair, opening: &mut Opening) {
    match repair {
        Repair::GoOnAt { end, .. } => {
            opening.known_end = Some(*end);
            opening.log_start = opening.log_start.map(|start| start.min(*end));
        }
        Repair::BeginAt(start) => opening.log_start = Some(*start),
        Repair::AcceptGap => accept_gap(opening),
        Repair::BeginAnew { at, .. } => {
            opening.log_start = Some(*at);
            opening.known_end = Some(*at);
        }
        // As the next start is told.
        Repair::TakeOut { .. } if opening.recovery != Recovery::AfterCleanStop => {
            accept_gap(opening)
        }
        Repair::TakeOut { .. }
        | Repair::GiveName { .. }
        | Repair::FinishSwap { .. }
        | Repair::NameDamaged { .. }
        | Repair::TopicId { .. } => {}
    }
    if let Recovery::AfterCrash { recovery_point } = &mut opening.recovery {
        *recovery_point = opening.known_end.unwrap_or_default().min(*recovery_point);
    }
}

fn accept_gap(opening: &mut Opening) {
    opening.gaps = Gaps::MayBe;
    opening.compacted_to = None;
}

impl Examination {
    /// Nothing is found yet.
    fn of(name: &PartitionName, expected: Expected, found: Opening) -> Examination {
        Examination {
            name: name.clone(),
            findings: Vec::new(),
            topic_id: expected.topic_id,
            found,
            after: found,
        }
    }

    /// A log in which something is `unfinished` that the next start finishes first is not what it seems to be.
    fn behind(mut self, unfinished: Vec<Finding>) -> Examination {
        if !unfinished.is_empty() {
            self.findings
                .retain(|finding| matches!(finding.repair, Repair::TopicId { .. }));
            self.findings.extend(unfinished);
            self.after = self.found;
        }
        self
    }

    async fn repair(&self) -> Result<(), LogError> {
        let mut taken: BTreeMap<&Path, Vec<Range<u64>>> = BTreeMap::new();
        for finding in &self.findings {
            match &finding.repair {
                Repair::BeginAnew { dir, .. } => make(dir).await?,
                Repair::TopicId { dir, topic_id } => {
                    partition_files::store_topic_id(dir, *topic_id).await?;
                }
                Repair::TakeOut { path, bytes } => {
                    taken.entry(path).or_default().push(bytes.clone());
                }
                Repair::GoOnAt { path, .. } => make_segment(path).await?,
                Repair::GiveName { from, to } => unfinished::give_name(from, to).await?,
                Repair::FinishSwap { dir } => unfinished::finish_swap(dir).await?,
                Repair::NameDamaged { dir, base } => name_damaged(dir, *base).await?,
                Repair::BeginAt(_) | Repair::AcceptGap => {}
            }
        }
        for (path, mut ranges) in taken {
            ranges.sort_by_key(|range| (range.start, range.end));
            batches::take_out(path, &ranges).await?;
        }
        Ok(())
    }
}

/// Repairs partitions, then writes the checkpoints that let them be opened. The next start is one after an
/// unclean stop: it gives every partition a higher leader epoch, so that clients see where logs end.
///
/// # Errors
/// [`LogError::Io`]; what was repaired before it is found as it is by the next examination.
pub async fn repair(dir: &LogDir, examined: &[Examination]) -> Result<(), LogError> {
    give_marks_up(dir, examined).await?;
    dir.begin().await?;
    let bound = |checkpoint| dir.bound(checkpoint).clone();
    let mut recovery_points = bound(Checkpoint::RecoveryPoint);
    let mut log_starts = bound(Checkpoint::LogStart);
    let mut damaged = bound(Checkpoint::FoundDamaged);
    let mut damaged_after_kill = bound(Checkpoint::DamagedAfterKill);
    let mut gaps = bound(Checkpoint::AcceptedGaps);
    let mut known_points = dir.known_points().cloned();
    for one in examined {
        one.repair().await?;
        let name = &one.name;
        sync_logs(&dir.path().join(name.to_string())).await?;
        if let Some(end) = one.after.known_end {
            recovery_points.insert(name.clone(), one.topic_id, end);
            let id = TopicPartition {
                topic: one.topic_id,
                partition: name.partition,
            };
            if let Some(known) = &mut known_points {
                let known = known.entry(id).or_insert(end);
                // What Kafka has compacted above is there still.
                if *known != MAY_HAVE_HOLES {
                    *known = end;
                }
            }
        }
        if let Some(start) = one.after.log_start {
            log_starts.insert(name.clone(), one.topic_id, start);
        }
        if one
            .findings
            .iter()
            .any(|f| f.repair.leaves_gap(one.after.recovery))
        {
            let at = one.after.known_end.unwrap_or_default();
            gaps.insert(name.clone(), one.topic_id, at);
        }
        damaged.remove(name);
        damaged_after_kill.remove(name);
    }
    if let Some(known) = known_points {
        dir.write_known_points(&known).await?;
    }
    for (checkpoint, entries) in [
        (Checkpoint::LogStart, log_starts),
        (Checkpoint::RecoveryPoint, recovery_points),
        (Checkpoint::AcceptedGaps, gaps),
        (Checkpoint::FoundDamaged, damaged),
        (Checkpoint::DamagedAfterKill, damaged_after_kill),
    ] {
        match entries.offsets().is_empty() {
            true => dir.remove_checkpoint(checkpoint).await?,
            false => dir.write_bound(checkpoint, &entries).await?,
        }
    }
    Ok(())
}

/// Takes the marks away, which say what was written by the last process and nothing else. How far the logs had come is
/// durable before: a repair that ends half-way leaves the rest damaged.
async fn give_marks_up(dir: &LogDir, examined: &[Examination]) -> Result<(), LogError> {
    let mut damaged = dir.bound(Checkpoint::DamagedAfterKill).clone();
    for one in examined {
        if let Recovery::AfterCrash { .. } = one.found.recovery
            && one.found.unwritten == Unwritten::LastWrite
            && let Some(reached) = one.found.known_end
        {
            damaged.raise(one.name.clone(), one.topic_id, reached);
        }
    }
    if damaged != *dir.bound(Checkpoint::DamagedAfterKill) {
        let checkpoint = Checkpoint::DamagedAfterKill;
        dir.write_bound(checkpoint, &damaged).await?;
    }
    dir.forget_marks().await
}

pub(crate) fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Makes durable what may have been only written: the recovery point is going to say that it is.
async fn sync_logs(dir: &Path) -> Result<(), LogError> {
    for base in listing::list(dir).await?.logs.keys() {
        let path = log_path(dir, *base);
        let file = fs::open(&path, OpenMode::Read)
            .await
            .map_err(LogError::io("open", &path))?;
        fs::sync_data(&file)
            .await
            .map_err(LogError::io("fdatasync", &path))?;
    }
    Ok(())
}

/// An empty one, durably.
async fn make_segment(path: &Path) -> Result<(), LogError> {
    let file = fs::open(path, OpenMode::Create)
        .await
        .map_err(LogError::io("create", path))?;
    fs::sync_all(&file)
        .await
        .map_err(LogError::io("fsync", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
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
