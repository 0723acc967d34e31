//! Random runs of `storage` over the simulated disk (BI-27, ST-14, ST-20, ST-30, ST-32 and the storage rules).
//!
//! Without a word it runs the same seeds each time, for as long as a time box lets it: a run of the tests never
//! fails for a seed that nobody has seen. The long form (`THALWEG_TEST_LONG=1`) goes on with new ones for
//! minutes. `THALWEG_SIM_SEED=N` runs that one, `THALWEG_SIM_SECONDS=N` runs new ones for so long.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_sim::{Tally, run};

/// The seeds that are the same each time.
const FIXED: std::ops::RangeInclusive<u64> = 1..=100;
/// Seeds of their own that once showed a defect, of compaction: what a small map ends in the middle of a segment, a
/// start in the middle of a batch, and markers that a loss of power takes. One is of a log whose only segment had no
/// name yet, and one of zeros ahead of a batch for which there was no room either. One is of an index whose last entry
/// names another offset, and one of a snapshot of producers from above what was durable, for which segments went. Then
/// one of a refused batch that a loss of power brought back below a later epoch, one of an index of aborted transactions
/// that nobody saved, and one of a damaged batch where the saved index ends. The last is of a failed
/// rename of which the directory was not told.
const KNOWN: [u64; 12] = [
    1_796_024_904_308_051,
    1_796_021_311_140_515,
    1_796_025_152_886_802,
    1_796_025_178_111_597,
    1_796_026_849_797_290,
    505,
    1_041,
    1_796_063_278_808_763,
    1_796_064_901_396_366,
    1_796_065_178_094_316,
    1_796_065_206_689_113,
    1_796_065_692_859_988,
];
/// So many of the first are run on a machine however slow: enough for what is asked of their sum.
const FIXED_MIN: u64 = 10;
/// No more of them begin after so long.
const SECONDS_FIXED: u64 = 6;
/// How long new ones are run in the long form.
const SECONDS_LONG: u64 = 300;
/// A run that takes longer hangs.
const RUN_PATIENCE: Duration = Duration::from_secs(180);

static RUNNING: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

fn number_in(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_lives_keep_what_was_durable() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::thread::spawn(watch);
    if let Some(seed) = number_in("THALWEG_SIM_SEED") {
        println!("{:?}", one(seed, dir.path()));
        return;
    }
    let long = std::env::var_os("THALWEG_TEST_LONG").is_some_and(|value| value == "1");
    let mut sum = Tally::default();
    let began = Instant::now();
    let in_time = |seconds| began.elapsed() < Duration::from_secs(seconds);
    for seed in KNOWN {
        sum.add(&one(seed, dir.path()));
    }
    for seed in FIXED.take_while(|seed| *seed <= FIXED_MIN || in_time(SECONDS_FIXED)) {
        sum.add(&one(seed, dir.path()));
    }
    let seconds = number_in("THALWEG_SIM_SECONDS").or(long.then_some(SECONDS_LONG));
    if let Some(seconds) = seconds {
        let until = Instant::now() + Duration::from_secs(seconds);
        let new = std::time::UNIX_EPOCH.elapsed();
        let new = new.map_or(*FIXED.end() + 1, |since| since.as_micros() as u64);
        for seed in (new..u64::MAX).take_while(|_| Instant::now() < until) {
            sum.add(&one(seed, dir.path()));
        }
    }
    println!("{sum:?}");
    assert!(sum.power_losses > 0 && sum.clean_stops > 0 && sum.kills > 0);
    assert!(sum.runs >= FIXED_MIN && sum.zeros_ahead > 0);
    if long {
        assert!(sum.compactions > 0 && sum.deletions > 0 && sum.damages > 0);
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for seed in 1..6 {
        assert_eq!(one(seed, dir.path()), one(seed, dir.path()));
    }
}

fn one(seed: u64, dir: &Path) -> Tally {
    RUNNING.store(seed, Ordering::Relaxed);
    let result = std::panic::catch_unwind(|| run(seed, &dir.join("run")));
    ENDED.fetch_add(1, Ordering::Relaxed);
    match result {
        Ok(Ok(tally)) => tally,
        Ok(Err(failed)) => panic!("{failed}"),
        Err(_) => panic!(
            "seed {seed} panics\nreplay it: THALWEG_SIM_SEED={seed} cargo test -p thalweg-sim --test storage"
        ),
    }
}

/// Says which seed hangs, and ends the process.
fn watch() {
    let mut seen = u64::MAX;
    loop {
        let ended = ENDED.load(Ordering::Relaxed);
        if ended == seen {
            let seed = RUNNING.load(Ordering::Relaxed);
            eprintln!(
                "seed {seed} hangs\nreplay it: THALWEG_SIM_SEED={seed} cargo test -p thalweg-sim --test storage"
            );
            std::process::abort();
        }
        seen = ended;
        std::thread::sleep(RUN_PATIENCE);
    }
}
