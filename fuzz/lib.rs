//! What no bytes may do: one function per surface that takes bytes from the network or the disk.
//!
//! Each takes any bytes, panics when a promise is broken, and otherwise returns. Three things feed
//! them: `cargo +nightly fuzz run --features libfuzzer <target>` for as long as one likes; the
//! replay of `corpus/` and a bounded run of random damage in `tests/replay.rs`, which every test run
//! does; and `tests/seeds.rs`, which writes the first inputs of each corpus.
//!
//! Start reading at [`frames`], the simplest.

mod batch;
mod frame;
mod message;
mod recovery;
pub mod seeds;

pub use batch::batches;
pub use frame::frames;
pub use message::{messages, requests};
pub use recovery::recovery;

/// A fuzz target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its corpus.
pub const TARGETS: [Target; 5] = [
    ("frames", frames),
    ("requests", requests),
    ("messages", messages),
    ("batches", batches),
    ("recovery", recovery),
];
