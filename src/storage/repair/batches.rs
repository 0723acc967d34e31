//! Every batch of a log, checked as `thalweg inspect --verify` does, and what is to be taken out of it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_types::Offset;

use super::{CUT_AWAY, DAMAGES_MAX, Finding, Repair, go_on, think_done, with_ending};
use crate::damage::{Damage, Depth, Place, SegmentWalk};
use crate::error::{LogError, Missing};
use crate::listing;
use crate::name::log_path;
use crate::options::{Gaps, Opening, Recovery, Unwritten};
use crate::quarantine::{self, DamagedRange};
use crate::removal::files_of;
use crate::scan::{self, BatchScan, Check, Step};

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1024 * 1024;
/// Of a file that is being written: a start removes it.
const UNFINISHED: &str = ".tmp";

/// Adds to `findings` what is wrong with the log in `dir` when those before are repaired, and to `opening` what
/// follows. What a start after a crash takes for a torn tail is left to it.
pub(super) async fn check(
    dir: &Path,
    reached: Offset,
    opening: &mut Opening,
    findings: &mut Vec<Finding>,
) -> Result<(), LogError> {
    if !fs::exists(dir)
        .await
        .map_err(LogError::io("look for", dir))?
    {
        return Ok(());
    }
    let known_end = opening.known_end.unwrap_or_default();
    let mut place = Place::begin(Offset::ZERO);
    for segment in segments(dir, opening).await? {
        place.position = 0;
        place.next_offset = place.next_offset.max(segment.base);
        loop {
            let (end, damage) = (segment.next_damage(place, |_| {}).await)
                .map_err(LogError::io("read", &segment.path))?;
            place = end;
            let Some(damage) = damage else { break };
            if segment.is_torn(&damage, opening) || findings.len() >= DAMAGES_MAX {
                return Ok(());
            }
            let finding = segment.taking_out(&damage);
            if !findings
                .iter()
                .any(|known| known.repair.takes(&finding.repair))
            {
                findings.push(finding);
            }
            place = damage.at;
            let Some(resume) = damage.resume else {
                let missing = segment.missing_behind(dir, place.next_offset, known_end, reached);
                accept(missing, opening, findings);
                break;
            };
            place.position = resume;
        }
    }
    Ok(())
}

/// What is taken out where a batch belongs elsewhere, and what is thought away then: it, and all behind it that
/// belongs elsewhere, too. `None` for any other damage.
pub(super) async fn out_of_place(
    dir: &Path,
    error: &LogError,
) -> Result<Option<(Repair, (PathBuf, DamagedRange))>, LogError> {
    let LogError::OutOfPlace {
        path,
        position,
        first,
        ..
    } = error
    else {
        return Ok(None);
    };
    let logs = listing::list(dir).await?.logs;
    let is_its = |base: &&Offset| log_path(dir, **base) == *path;
    let base = logs.keys().find(is_its).copied().unwrap_or_default();
    let bytes = logs.get(&base).copied().unwrap_or_default();
    let next = logs.range(base.plus(1)..).next().map(|(next, _)| *next);
    let read = LogError::io("read", path);
    let file = fs::open(path, OpenMode::Read).await.map_err(read)?;
    let due = due_at(&file, base, *position)
        .await
        .map_err(LogError::io("read", path))?;
    let mut at = *position + 1;
    let resume = loop {
        let found = scan::find_batch(&file, at..bytes, base, due).await;
        let Some(mark) = found.map_err(LogError::io("read", path))? else {
            break None;
        };
        let follows = mark.base_offset < *first || *first < due;
        let ends = next.is_none_or(|next| mark.last_offset < next);
        if follows && ends {
            break Some(mark);
        }
        at = mark.position + mark.bytes;
    };
    let bytes = *position..resume.map_or(bytes, |mark| mark.position);
    let away = DamagedRange {
        bytes: bytes.clone(),
        first: due,
        next: resume.map_or(due, |mark| mark.base_offset),
        reason: String::new(),
    };
    let path = path.clone();
    Ok(Some((
        Repair::TakeOut {
            path: path.clone(),
            bytes,
        },
        (path, away),
    )))
}

/// Where the batches before `position` end.
async fn due_at(file: &File, base: Offset, position: u64) -> io::Result<Offset> {
    let mut scan = BatchScan::new(file.clone(), Check::Headers, base, 0, position);
    while let Step::Batch(..) = scan.next().await? {}
    Ok(scan.next_offset())
}

/// The segments of the log. What lies below its start is on its way out.
async fn segments(dir: &Path, opening: &Opening) -> Result<Vec<SegmentWalk>, LogError> {
    let start = opening.log_start.unwrap_or_default();
    let logs: Vec<_> = listing::list(dir).await?.logs.into_iter().collect();
    let mut segments = Vec::new();
    for (index, (base, bytes)) in logs.iter().enumerate() {
        let next = logs.get(index + 1).map(|(base, _)| *base);
        if next.is_some_and(|next| next <= start) {
            continue;
        }
        let [path, ..] = files_of(dir, *base);
        segments.push(SegmentWalk {
            file: (fs::open(&path, OpenMode::Read).await).map_err(LogError::io("open", &path))?,
            path,
            base: *base,
            next,
            bytes: *bytes,
            depth: Depth::Records,
            gentle: None,
        });
    }
    Ok(segments)
}

/// What the log then lacks at a joint or at its end is taken as it is.
fn accept(missing: Option<(LogError, Repair)>, opening: &mut Opening, findings: &mut Vec<Finding>) {
    let Some((error, repair)) = missing else {
        return;
    };
    if repair == Repair::AcceptGap && opening.gaps == Gaps::MayBe {
        return;
    }
    think_done(&repair, opening);
    findings.push(Finding {
        damage: error.to_string(),
        repair,
    });
}

impl SegmentWalk {
    /// True for what a crash leaves of the end of a log.
    fn is_torn(&self, damage: &Damage, opening: &Opening) -> bool {
        match opening.recovery {
            Recovery::AfterCleanStop => false,
            Recovery::AfterCrash { recovery_point } => {
                let is_last = self.next.is_none() && damage.resume.is_none();
                let reached = opening.known_end.max(Some(recovery_point));
                !damage.is_unreadable
                    && Some(damage.at.next_offset) >= reached
                    && (is_last || opening.unwritten == Unwritten::AnyBatch)
            }
        }
    }

    fn taking_out(&self, damage: &Damage) -> Finding {
        let Place {
            position,
            next_offset,
            ..
        } = damage.at;
        Finding {
            damage: format!(
                "{} is damaged at byte {position} (offset {next_offset}): {}",
                self.path.display(),
                damage.text
            ),
            repair: Repair::TakeOut {
                path: self.path.clone(),
                bytes: position..damage.resume.unwrap_or(self.bytes),
            },
        }
    }

    /// What is missing when this segment ends at `end`, and what is done about it.
    fn missing_behind(
        &self,
        dir: &Path,
        end: Offset,
        known_end: Offset,
        reached: Offset,
    ) -> Option<(LogError, Repair)> {
        let (what, up_to, repair) = match self.next {
            Some(next) => (Missing::Between, next, Repair::AcceptGap),
            None => (Missing::End, known_end, go_on(dir, end, reached)),
        };
        let error = LogError::RecordsMissing {
            path: self.path.clone(),
            what,
            from: end,
            up_to,
        };
        (end < up_to).then_some((error, repair))
    }
}

/// Writes the segment at `path` without `ranges`, which are in order. As it was, it is kept beside it; its indexes,
/// which say where batches stood, are removed and come again from the log.
pub(super) async fn take_out(path: &Path, ranges: &[Range<u64>]) -> Result<(), LogError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let aside = with_ending(path, CUT_AWAY);
    let kept = fs::exists(&aside).await;
    // One of an earlier repair has more.
    if !kept.map_err(LogError::io("look for", &aside))? {
        copy_without(path, &aside, &[]).await?;
    }
    let unfinished = with_ending(path, UNFINISHED);
    copy_without(path, &unfinished, ranges).await?;
    for ending in ["index", "timeindex"] {
        let index = path.with_extension(ending);
        match fs::unlink(&index).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(LogError::io("remove", &index))?,
        }
    }
    // It speaks of bytes that are not there any more.
    quarantine::remove(dir).await?;
    fs::rename(&unfinished, path)
        .await
        .map_err(LogError::io("rename", &unfinished))?;
    fs::sync_dir(dir).await.map_err(LogError::io("sync", dir))
}

async fn copy_without(from: &Path, to: &Path, ranges: &[Range<u64>]) -> Result<(), LogError> {
    let source = fs::open(from, OpenMode::Read)
        .await
        .map_err(LogError::io("open", from))?;
    let bytes = fs::len(&source)
        .await
        .map_err(LogError::io("look at", from))?;
    let target = fs::open(to, OpenMode::CreateEmpty)
        .await
        .map_err(LogError::io("create", to))?;
    let (mut at, mut written) = (0, 0);
    let end = bytes..bytes;
    for range in ranges.iter().chain([&end]) {
        while at < range.start {
            let wanted = (range.start - at).min(COPY_BYTES) as usize;
            let piece = fs::read_at(&source, at, wanted)
                .await
                .map_err(LogError::io("read", from))?;
            at += wanted as u64;
            let more = fs::write_at(&target, vec![piece.freeze()], written).await;
            written += more.map_err(LogError::io("write", to))?;
        }
        at = range.end;
    }
    fs::sync_all(&target)
        .await
        .map_err(LogError::io("fsync", to))
}
