//! Replays every corpus, then damages its inputs at random for a bounded number of rounds. Nothing
//! here is random from run to run: a failure names the input that replays it.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use thalweg_fuzz::{TARGETS, Target, seeds};

/// Small next to a real fuzzing run; large enough that a careless change shows.
const ROUNDS_OF_BYTES: usize = 30_000;
/// Recovery makes and removes real directories.
const ROUNDS_OF_DIRECTORIES: usize = 400;
const INPUTS_MAX: usize = 40;
const INPUT_BYTES_MAX: usize = 20_000;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut inputs: Vec<_> = std::fs::read_dir(corpus(target))
        .expect("each target has a corpus")
        .map(|entry| entry.expect("readable").path())
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read(&path).expect("readable"),
            )
        })
        .collect();
    inputs.sort();
    assert!(
        !inputs.is_empty() && inputs.len() <= INPUTS_MAX,
        "{target}: {}",
        inputs.len()
    );
    assert!(
        inputs
            .iter()
            .all(|(_, bytes)| bytes.len() <= INPUT_BYTES_MAX)
    );
    inputs
}

fn run((name, target): Target, rounds: usize) {
    let inputs = inputs(name);
    for (path, bytes) in &inputs {
        let outcome = catch_unwind(|| target(bytes));
        assert!(outcome.is_ok(), "{name} fails on {path}");
    }
    let mut random = Random(0x7468_616c_7765_6721);
    for round in 0..rounds {
        let (path, bytes) = &inputs[random.below(inputs.len())];
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(4) {
            damage(&mut bytes, &mut random);
        }
        if catch_unwind(|| target(&bytes)).is_err() {
            let kept = std::env::temp_dir().join(format!("thalweg-fuzz-{name}-{round}"));
            let written = std::fs::write(&kept, &bytes);
            panic!(
                "{name}: damage to {path} in round {round}: {} {written:?}",
                kept.display()
            );
        }
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x40, 0x10];
    if bytes.is_empty() {
        bytes.push(random.byte());
    }
    let at = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.byte(),
        2 => bytes[at] = TELLING[random.below(TELLING.len())],
        3 => bytes.truncate(at),
        4 => bytes.insert(at, random.byte()),
        5 => {
            bytes.remove(at);
        }
        _ => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, piece);
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

fn target(name: &str) -> Target {
    *TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target")
}

#[test]
fn bi17_frames() {
    run(target("frames"), ROUNDS_OF_BYTES);
}

#[test]
fn bi17_requests() {
    run(target("requests"), ROUNDS_OF_BYTES);
}

#[test]
fn bi17_messages() {
    run(target("messages"), ROUNDS_OF_BYTES);
}

#[test]
fn bi19_batches() {
    run(target("batches"), ROUNDS_OF_BYTES);
}

#[test]
fn bi20_recovery() {
    run(target("recovery"), ROUNDS_OF_DIRECTORIES);
}

#[test]
fn every_honest_seed_passes() {
    for (name, target) in TARGETS {
        for (seed, bytes) in seeds::of(name) {
            assert!(catch_unwind(|| target(&bytes)).is_ok(), "{name}/{seed}");
        }
    }
}

/// Writes the seeds into the corpora; inputs that a fuzzer found stay.
#[test]
#[ignore = "writes into the source tree: cargo test -p thalweg-fuzz -- --ignored"]
fn write_seeds() {
    for (name, _) in TARGETS {
        std::fs::create_dir_all(corpus(name)).expect("writable");
        for (seed, bytes) in seeds::of(name) {
            std::fs::write(corpus(name).join(format!("seed-{seed}")), bytes).expect("writable");
        }
    }
}
