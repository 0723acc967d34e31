//! A run: one seed, one disk, many lives.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::Runtime;
use thalweg_reactor::disk::Disk;

use crate::damage;
use crate::dice::Dice;
use crate::disk::{Faults, SimDisk};
use crate::life::{Done, End, Ended, Life, Outcome};
use crate::panics;
use crate::partition::{Partition, Policy};

/// Most lives of a run.
const LIVES_MAX: u64 = 12;

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
    /// Operations on the disk.
    pub operations: u64,
}

impl Tally {
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
    let mut partitions = partitions();
    let mut tally = Tally {
        runs: 1,
        ..Tally::default()
    };
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
        disk.arm(faults, crash_at);
        let mut life = Life {
            disk: &disk,
            root: dir.to_owned(),
            dice: Dice::new(dice.below(u64::MAX)),
            before,
            cleaner: None,
            done: Done::default(),
        };
        let runtime = Runtime::simulated(Rc::clone(&disk) as Rc<dyn Disk>).expect("a runtime");
        let lived = runtime.block_on(life.live(&mut partitions));
        let Life { cleaner, done, .. } = life;
        drop((cleaner, runtime));
        let happened = disk.happened();
        tally.lives += 1;
        tally.compactions += done.compactions;
        tally.deletions += done.deletions;
        tally.operations += happened.operations;
        tally.disk_failures += u64::from(happened.io_errors > 0);
        let lived = match panics::take() {
            Some(text) => Err(End::Broken(format!("a task panics: {text}"))),
            None => lived,
        };
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
fn partitions() -> Vec<Partition> {
    let all = [
        (u64::MAX, Policy::Delete),
        (1, Policy::Delete),
        (7, Policy::Delete),
        (u64::MAX, Policy::Compact),
        (1, Policy::Both),
    ];
    let numbered = (0..).zip(all);
    numbered
        .map(|(number, (flush_messages, policy))| Partition::new(number, flush_messages, policy))
        .collect()
}

/// What goes wrong in a life, and where it is cut off.
fn draw(dice: &mut Dice) -> (Faults, Option<u64>) {
    let faults = Faults {
        io_error_once_in: [0, 0, 0, 400][dice.below_len(4)],
        partial_once_in: [0, 6, 20][dice.below_len(3)],
        slow_once_in: [0, 10, 40][dice.below_len(3)],
        full: false,
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
