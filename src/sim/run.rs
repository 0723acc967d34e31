//! A run: one seed, one disk, many lives.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::Runtime;
use thalweg_reactor::disk::Disk;

use crate::damage;
use crate::dice::Dice;
use crate::disk::{Faults, Happened, SimDisk};
use crate::life::{Done, End, Ended, Life, Outcome, Step};
use crate::panics;
use crate::partition::{Partition, Policy};

/// Most lives of a run.
const LIVES_MAX: u64 = 12;
/// `segment.bytes`, so that segments are closed all the time.
const SEGMENT_BYTES: u32 = 4_000;
/// The same of a log that keeps zeros ahead of its batches: in the first size only as long as it has hardly begun.
const SEGMENT_BYTES_WITH_ZEROS: [u32; 2] = [40_000, 100_000];
/// Which runs have such logs is no draw of the run: a seed that once showed a defect stays what it was.
const WITH_ZEROS: u64 = 0x5e5c;
/// And which runs have a file system that writes nothing in place, and log starts by which a start holds its logs.
const COPY_ON_WRITE: u64 = 0xc0_5e1f;

/// What happened in runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Lives of processes.
    pub lives: u64,
    /// Those that ended with a clean stop.
    pub clean_stops: u64,
    /// Those that were killed, the page cache left.
    pub kills: u64,
    /// Losses of power.
    pub power_losses: u64,
    /// Lives that an EIO ended.
    pub disk_failures: u64,
    /// Rounds of compaction that ended, well or not.
    pub compactions: u64,
    /// Topics that were deleted and made again.
    pub deletions: u64,
    /// Files that were damaged, in a copy.
    pub damages: u64,
    /// Writes of zeros ahead of batches.
    pub zeros_ahead: u64,
    /// Operations on the disk.
    pub operations: u64,
}

impl Tally {
    /// Counts one life.
    fn count(&mut self, happened: &Happened, done: &Done) {
        self.lives += 1;
        self.compactions += done.compactions;
        self.deletions += done.deletions;
        self.operations += happened.operations;
        self.zeros_ahead += happened.zeros_ahead;
        self.disk_failures += u64::from(happened.io_errors > 0);
    }

    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.lives += other.lives;
        self.clean_stops += other.clean_stops;
        self.kills += other.kills;
        self.power_losses += other.power_losses;
        self.disk_failures += other.disk_failures;
        self.compactions += other.compactions;
        self.deletions += other.deletions;
        self.damages += other.damages;
        self.zeros_ahead += other.zeros_ahead;
        self.operations += other.operations;
    }
}

/// A rule does not hold.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The seed that shows it.
    pub seed: u64,
    /// In which life, counted from 0.
    pub life: u64,
    /// What is wrong.
    pub text: String,
    /// The last operations of the disk, oldest first.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(
            f,
            "seed {} fails in life {}: {}",
            self.seed, self.life, self.text
        )?;
        write!(
            f,
            "replay it: THALWEG_SIM_SEED={} cargo test -p thalweg-sim --test storage",
            self.seed
        )
    }
}

/// Runs one seed in `dir`, a directory that it makes and removes.
///
/// # Errors
/// [`Failed`]; the directory stays as it was then.
///
/// # Panics
/// When the machine does not let it make or remove files.
pub fn run(seed: u64, dir: &Path) -> Result<Tally, Failed> {
    panics::watch();
    fs::create_dir_all(dir).expect("a directory for the run");
    let disk = Rc::new(SimDisk::new(dir, seed));
    let mut dice = Dice::new(seed);
    let mut partitions = partitions(seed);
    let mut tally = Tally {
        runs: 1,
        ..Tally::default()
    };
    let copy_on_write = Dice::new(seed ^ COPY_ON_WRITE).once_in(4);
    let mut before = Ended::Killed;
    let failed = |text, life| Failed {
        seed,
        life,
        text,
        trace: disk.trace(),
    };
    for number in 0..1 + dice.below(LIVES_MAX) {
        disk.note(format!("life {number}, the one before: {before:?}"));
        let (faults, crash_at) = draw(&mut dice);
        let faults = Faults {
            copy_on_write,
            ..faults
        };
        disk.arm(faults, crash_at);
        let mut life = Life {
            disk: &disk,
            root: dir.to_owned(),
            dice: Dice::new(dice.below(u64::MAX)),
            before,
            cleaner: None,
            health: None,
            keeps_starts: copy_on_write,
            done: Done::default(),
        };
        let lived = live(&mut life, &mut partitions);
        let happened = disk.happened();
        tally.count(&happened, &life.done);
        let outcome = match lived {
            Ok(outcome) => outcome,
            Err(End::Disk(text)) => {
                disk.note(format!("died: {text}"));
                Outcome::Died
            }
            Err(End::Broken(text)) => {
                return Err(failed(text, number));
            }
        };
        let loses_power = happened.sync_failed || dice.once_in(2);
        before = match outcome {
            Outcome::StoppedCleanly => Ended::Cleanly,
            Outcome::Died if loses_power => Ended::PowerLost,
            Outcome::Died => Ended::Killed,
        };
        end_of_life(before, &partitions, &mut tally);
        if loses_power {
            disk.lose_power();
        }
        if dice.once_in(3) {
            let mut dice = Dice::new(dice.below(u64::MAX));
            let looked = damage::look(disk.lifetime(), dir, &partitions, &mut dice);
            tally.damages += u64::from(looked.map_err(|text| failed(text, number))?);
        }
    }
    fs::remove_dir_all(dir).expect("the directory of the run goes");
    Ok(tally)
}

/// Lives one life to its end.
fn live(life: &mut Life<'_>, partitions: &mut [Partition]) -> Step<Outcome> {
    let runtime = Runtime::simulated(Rc::clone(life.disk) as Rc<dyn Disk>).expect("a runtime");
    let lived = runtime.block_on(async {
        let lived = life.live(partitions).await;
        life.check_condemned().await.and(lived)
    });
    life.cleaner = None;
    drop(runtime);
    match panics::take() {
        Some(text) => Err(End::Broken(format!("a task panics: {text}"))),
        None => lived,
    }
}

fn end_of_life(ended: Ended, partitions: &[Partition], tally: &mut Tally) {
    for partition in partitions {
        let mut model = partition.model.borrow_mut();
        match ended {
            // Everything, whatever happens next.
            Ended::Cleanly => {
                let written = model.written;
                model.promise(written);
            }
            Ended::Killed => {}
            Ended::PowerLost => model.on_power_loss(),
        }
    }
    match ended {
        Ended::Cleanly => tally.clean_stops += 1,
        Ended::Killed => tally.kills += 1,
        Ended::PowerLost => tally.power_losses += 1,
    }
}

/// Nobody waits, everybody waits, a flush every few records; some are compacted.
fn partitions(seed: u64) -> Vec<Partition> {
    let mut apart = Dice::new(seed ^ WITH_ZEROS);
    let large = match apart.once_in(3) {
        true => SEGMENT_BYTES_WITH_ZEROS[apart.below_len(2)],
        false => SEGMENT_BYTES,
    };
    let all = [
        (u64::MAX, Policy::Delete),
        (1, Policy::Delete),
        (7, Policy::Delete),
        (u64::MAX, Policy::Compact),
        (1, Policy::Both),
    ];
    let numbered = (0..).zip(all);
    numbered
        .map(|(number, (flush_messages, policy))| {
            let segment_bytes = match flush_messages {
                1 => large,
                _nobody_waits => SEGMENT_BYTES,
            };
            Partition::new(number, flush_messages, segment_bytes, policy)
        })
        .collect()
}

/// What goes wrong in a life, and where it is cut off.
fn draw(dice: &mut Dice) -> (Faults, Option<u64>) {
    let faults = Faults {
        io_error_once_in: [0, 0, 0, 400][dice.below_len(4)],
        partial_once_in: [0, 6, 20][dice.below_len(3)],
        slow_once_in: [0, 10, 40][dice.below_len(3)],
        full: false,
        copy_on_write: false,
        out_of_handles: false,
    };
    let crash_at = match dice.below(5) {
        0 => None,
        // While it opens and recovers.
        1 => Some(1 + dice.below(60)),
        _later => Some(1 + dice.below(700)),
    };
    (faults, crash_at)
}
