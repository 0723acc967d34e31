//! Random runs of `storage` over the simulated disk (ST-14, ST-20, ST-32 and the storage rules).
//!
//! Without a word it runs the first seeds for a few seconds, so that what fails is the change at hand; in the
//! long form (`THALWEG_TEST_LONG`) new ones for minutes.
//! `THALWEG_SIM_SEED=N` runs that one, `THALWEG_SIM_SECONDS=N` says how long.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_sim::{Tally, run};

/// How long seeds are run.
const SECONDS: u64 = 4;
const SECONDS_LONG: u64 = 300;
/// Seeds of the short form at most, on a machine however fast.
const SEEDS_SHORT: u64 = 100;
/// A run that takes longer hangs.
const RUN_PATIENCE: Duration = Duration::from_secs(60);

/// Seeds that have shown a defect.
const REGRESSIONS: [u64; 4] = [
    // Appends where a torn tail had been cut were reported as durable without an fdatasync.
    1_796_000_595_229_497,
    // What a full disk had left of a write was cut off, and the cut was never synced.
    1_796_001_062_862_256,
    1_796_004_861_533_049,
    // The segment before one that a crash had lost became the active one without its file.
    254,
];

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
    for seed in REGRESSIONS {
        one(seed, dir.path());
    }
    let long = std::env::var_os("THALWEG_TEST_LONG").is_some();
    let seconds = if long { SECONDS_LONG } else { SECONDS };
    let seconds = number_in("THALWEG_SIM_SECONDS").unwrap_or(seconds);
    let until = Instant::now() + Duration::from_secs(seconds);
    let first = match long {
        true => std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |t| t.as_micros() as u64),
        false => 1,
    };
    let mut sum = Tally::default();
    let most = if long { u64::MAX } else { SEEDS_SHORT };
    while Instant::now() < until && sum.runs < most {
        sum.add(&one(first + sum.runs, dir.path()));
    }
    println!("{sum:?}");
    assert!(sum.power_losses > 0 && sum.clean_stops > 0 && sum.kills > 0);
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
