//! Damage that no crash makes: flipped bits, zeros, files that were cut or that took each other's place. It is
//! done to a copy of what a life has left, so that the run goes on as if nothing had been.
//!
//! What is asked: whatever was damaged, a start refuses the log with the name of the file and changes
//! nothing, or the log is what it was, but for batches that were damaged and that no start has to look at.
//! A log is shorter only where that can not be told from a torn end: from the recovery point on, and then
//! it is said (R7, ST-3, ST-9, ST-12). After a kill that is its last write: what is whole behind a damage
//! is never cut off.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thalweg_protocol::records::{BatchHeader, batches, crc_matches};
use thalweg_reactor::Runtime;
use thalweg_reactor::disk::{Disk, Operation, Verdict};
use thalweg_storage::{Log, LogDir, LogError, Opening, Recovery, RecoveryReport, Unwritten};
use thalweg_types::Offset;

use crate::dice::Dice;
use crate::disk::undisturbed;
use crate::life::policy;
use crate::partition::Partition;
use crate::reads::READ_BYTES;
use crate::writes::options;

/// Bytes of zeros in a file, at most; at least as many as a batch header has, so that some lie below a
/// checksum.
const ZEROS: std::ops::Range<usize> = 70..400;
/// Of a batch, what lies outside of its checksum and can say something else that can be: the base offset
/// and the leader epoch.
const UNCHECKED: [std::ops::Range<usize>; 2] = [0..8, 12..16];

/// Damages a copy of `root` in one way and opens the log. Gives whether there was something to damage.
///
/// # Errors
/// What is wrong.
pub(crate) fn look(
    lifetime: String,
    root: &Path,
    partitions: &[Partition],
    dice: &mut Dice,
) -> Result<bool, String> {
    let partition = &partitions[dice.below_len(partitions.len())];
    let copy = root.with_extension("damaged");
    let _ = fs::remove_dir_all(&copy);
    copy_dir(root, &copy);
    let dir = copy.join(partition.name.to_string());
    let damaged = match draw(&dir, dice) {
        Some(damage) if !partition.is_going => {
            let case = Case {
                damage,
                dir,
                partition,
            };
            let peace = Rc::new(Peace { lifetime });
            let runtime = Runtime::simulated(peace as Rc<dyn Disk>).map_err(text)?;
            let checked = runtime.block_on(case.check(&copy));
            drop(runtime);
            checked.map_err(|what| format!("{}: {what}", case.damage.said))?;
            true
        }
        Some(_) | None => false,
    };
    fs::remove_dir_all(&copy).map_err(text)?;
    Ok(damaged)
}

/// A disk that does what it is asked.
struct Peace {
    lifetime: String,
}

impl Disk for Peace {
    fn before(&self, operation: &Operation<'_>) -> Verdict {
        undisturbed(operation)
    }

    fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

    fn delay(&self) -> u32 {
        0
    }

    fn lifetime(&self) -> String {
        self.lifetime.clone()
    }
}

struct Damage {
    said: String,
    /// Base offsets of the batches that are not what they were.
    touched: BTreeSet<i64>,
    /// It was cut where a batch ends, so that nothing tells.
    is_silent: bool,
}

/// What is damaged in a segment, or in a file beside it.
fn draw(dir: &Path, dice: &mut Dice) -> Option<Damage> {
    let ending = ["log", "log", "log", "index", "timeindex", "snapshot"][dice.below_len(6)];
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .filter(|path| path.metadata().is_ok_and(|meta| meta.len() > 0))
        .collect();
    files.sort();
    let path = files.get(dice.below_len(files.len().max(1)))?.clone();
    let old = fs::read(&path).ok()?;
    let at = dice.below_len(old.len());
    let mut new = old.clone();
    let what = match dice.below(6) {
        0..3 => {
            new[at] ^= 1 << dice.below(8);
            format!("a bit flipped at {at} of")
        }
        3 => {
            let zeros = ZEROS.start + dice.below_len(ZEROS.len());
            let end = (at + zeros).min(old.len());
            new[at.min(end.saturating_sub(ZEROS.start))..end].fill(0);
            format!("zeros before {end} of")
        }
        4 => {
            new.truncate(at);
            format!("cut to {at} bytes:")
        }
        // Of a log in another's place nothing says so but its offsets, which no checksum covers.
        _gone if ending == "log" => {
            new.clear();
            fs::remove_file(&path).ok()?;
            "no more:".to_owned()
        }
        _swapped => {
            let other = files.get(dice.below_len(files.len()))?;
            new = fs::read(other).ok()?;
            format!("{} in the place of", other.display())
        }
    };
    if new == old {
        return None;
    }
    let touched = match ending {
        "log" => touched(&old, &new)?,
        _beside => BTreeSet::new(),
    };
    if path.exists() {
        fs::write(&path, &new).ok()?;
    }
    let is_silent = new.len() < old.len() && batches_of(&new).1 == new.len();
    Some(Damage {
        said: format!("{what} {}", path.display()),
        touched,
        is_silent,
    })
}

/// Which batches differ. `None` when only what no checksum covers does.
fn touched(old: &[u8], new: &[u8]) -> Option<BTreeSet<i64>> {
    let mut touched = BTreeSet::new();
    for (base, range) in batches_of(old).0 {
        let (was, is) = (&old[range.clone()], new.get(range.clone()));
        if is == Some(was) {
            continue;
        }
        let only_unchecked = is.is_some_and(|is| {
            let differ = (0..was.len()).filter(|at| was[*at] != is[*at]);
            differ
                .into_iter()
                .all(|at| UNCHECKED.iter().any(|part| part.contains(&at)))
        });
        if only_unchecked {
            return None;
        }
        touched.insert(base);
    }
    Some(touched)
}

type Ranges = Vec<(i64, std::ops::Range<usize>)>;

/// Base offset and place of each batch, and where they end.
fn batches_of(bytes: &[u8]) -> (Ranges, usize) {
    let (mut found, mut end) = (Vec::new(), 0);
    for batch in batches(bytes).map_while(Result::ok) {
        end = batch.position + batch.bytes.len();
        found.push((batch.header.base_offset.0, batch.position..end));
    }
    (found, end)
}

struct Case<'a> {
    damage: Damage,
    dir: PathBuf,
    partition: &'a Partition,
}

impl Case<'_> {
    async fn check(&self, root: &Path) -> Result<(), String> {
        let dir = LogDir::open(root, policy()).await.map_err(text)?;
        dir.begin().await.map_err(text)?;
        let name = self.partition.name.clone();
        let opening = self.partition.opening(&dir);
        let files = content_of(&self.dir);
        let options = options(self.partition, &dir);
        let opened = Log::open(root, name, options, opening, Rc::new(|_event| {})).await;
        match opened {
            Err(error) => self.check_refusal(&error, &files),
            Ok((log, report)) => {
                self.check_reach(&log, &report, &opening)?;
                self.check_served(&log, &report, opening.recovery).await
            }
        }
    }

    /// It names what is damaged, and nothing was changed.
    fn check_refusal(&self, error: &LogError, files: &Files) -> Result<(), String> {
        let said = error.to_string();
        if self.damage.touched.is_empty() {
            return Err(format!("refused although no batch is damaged: {said}"));
        }
        if !said.contains(&*self.dir.to_string_lossy()) {
            return Err(format!("refused without a file's name: {said}"));
        }
        match content_of(&self.dir) == *files {
            true => Ok(()),
            false => Err(format!("refused, and changed all the same: {said}")),
        }
    }

    /// It is as long as it was, or says where it was cut.
    fn check_reach(
        &self,
        log: &Log,
        report: &RecoveryReport,
        opening: &Opening,
    ) -> Result<(), String> {
        let model = self.partition.model.borrow();
        let at_least = model.written;
        let end = log.written_end().0;
        if end >= at_least {
            return Ok(());
        }
        if let Some(known) = opening.known_end.filter(|known| end < known.0) {
            return Err(format!(
                "ends at {end}, and is known to have come to {known}"
            ));
        }
        let Recovery::AfterCrash { recovery_point } = opening.recovery else {
            return Err(format!(
                "ends at {end} after a clean stop, not at {at_least}"
            ));
        };
        if opening.unwritten == Unwritten::LastWrite {
            let mut at = Offset(end);
            while at.0 < at_least {
                let base = model.base_of_batch(at);
                if base < at_least && !self.damage.touched.contains(&base) {
                    return Err(format!(
                        "ends at {end} after a kill, without the whole batch at {base}"
                    ));
                }
                at = model.end_of_batch(at);
            }
        }
        let first = self.damage.touched.first().copied().unwrap_or(i64::MAX);
        let is_told = report.cut.is_some() || report.segments_removed > 0;
        if end < first.min(at_least) || end < recovery_point.0.min(at_least) {
            return Err(format!(
                "ends at {end}, below {at_least}; damaged from {first} on, recovery point {recovery_point}"
            ));
        }
        match is_told || self.damage.is_silent {
            true => Ok(()),
            false => Err(format!("ends at {end}, not {at_least}, without a word")),
        }
    }

    /// What is read was appended; what is damaged is not read where the start had to look at it.
    async fn check_served(
        &self,
        log: &Log,
        report: &RecoveryReport,
        recovery: Recovery,
    ) -> Result<(), String> {
        let (mut at, end) = (log.start_offset(), log.written_end());
        while at < end {
            let plan = match log.read_plan(at, end, READ_BYTES).await {
                Ok(plan) if plan.is_empty() || plan.next_offset <= at => {
                    return self.must_be_damaged(at, "nothing is read");
                }
                Ok(plan) => plan,
                Err(error) => {
                    self.must_be_damaged(at, &error.to_string())?;
                    at = self.partition.model.borrow().end_of_batch(at);
                    continue;
                }
            };
            let read = thalweg_reactor::fs::read_at(&plan.file, plan.position, plan.len as usize);
            let bytes = read.await.map_err(text)?;
            self.check_bytes(at, &bytes, report, recovery)?;
            at = plan.next_offset;
        }
        match log.quarantined().first() {
            Some(range) if self.damage.touched.is_empty() => Err(format!(
                "no batch is damaged, and this is not served: {range:?}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn must_be_damaged(&self, at: Offset, what: &str) -> Result<(), String> {
        let base = self.partition.model.borrow().base_of_batch(at);
        match self.damage.touched.is_empty() {
            true => Err(format!("{what} at {at}, in the whole batch at {base}")),
            false => Ok(()),
        }
    }

    fn check_bytes(
        &self,
        from: Offset,
        bytes: &[u8],
        report: &RecoveryReport,
        recovery: Recovery,
    ) -> Result<(), String> {
        let model = self.partition.model.borrow();
        let mut next = model.base_of_batch(from);
        let (found, end) = batches_of(bytes);
        for (base, range) in found {
            let is_touched = self.damage.touched.contains(&base);
            let batch = &bytes[range];
            if !is_touched && !model.is_version(base, batch) {
                return Err(format!("a batch at {base} was never appended"));
            }
            // Behind what the model kept of a failed log may lie what it took back.
            let is_known = base < model.appended();
            // In a log that may have gaps nothing says that a file is gone.
            while self.damage.is_silent && next < base && self.damage.touched.contains(&next) {
                next = model.base_of_batch(model.end_of_batch(Offset(next)));
            }
            if !is_touched && is_known && base != next && !model.is_being_cleaned() {
                return Err(format!("a read from {from} gives {base} and not {next}"));
            }
            let was_checked = match recovery {
                Recovery::AfterCleanStop => false,
                Recovery::AfterCrash { recovery_point } => {
                    report.bytes_trusted == 0 && base >= recovery_point.0
                }
            };
            if is_touched && was_checked && !crc_matches(batch) {
                return Err(format!(
                    "the damaged batch at {base} was checked, and is served"
                ));
            }
            next = model.base_of_batch(model.end_of_batch(Offset(base)));
        }
        match end == bytes.len() || !self.damage.touched.is_empty() {
            true => Ok(()),
            false => Err(format!("a read from {from} ends in the middle of a batch")),
        }
    }
}

type Files = Vec<Vec<u8>>;

/// Of all files that are not empty, whatever their names: a file that was made ahead of its name gets that
/// before anything is looked at, or goes where its first batch is not whole. Not of indexes: those of a whole
/// segment are made anew from it before the next one is looked at.
fn content_of(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Files = paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| !name.to_string_lossy().contains("index"))
        })
        .map(|path| {
            (
                path.ends_with("next.segment"),
                fs::read(path).unwrap_or_default(),
            )
        })
        .filter(|(is_ahead, bytes)| match is_ahead {
            true => begins_whole(bytes),
            false => !bytes.is_empty(),
        })
        .map(|(_is_ahead, bytes)| bytes)
        .collect();
    files.sort();
    files
}

fn begins_whole(bytes: &[u8]) -> bool {
    let header = BatchHeader::parse(bytes).ok();
    let batch = header.and_then(|header| bytes.get(..header.total_bytes()));
    batch.is_some_and(crc_matches)
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory for the copy");
    for entry in fs::read_dir(from).expect("a real directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
