//! The real `storage` over a disk that tears, forgets, refuses and delays, checked against a list.
//!
//! **Owns** a simulated disk ([`disk::SimDisk`]) behind the seam of `thalweg_reactor::disk`, a plain
//! model of what a log must hold ([`model::Model`]), and runs of many lives of a process over both
//! ([`run`]). **Refuses to know** how `storage` does its work: it uses what the broker uses.
//!
//! # How it works
//! A run draws everything from one seed: what is appended, flushed, rolled, deleted by retention, read;
//! when the disk is full, slow, gives EIO or does only part of what it was asked; at which operation the
//! process or the whole system stops. Operations happen one after the other on one thread, so a seed gives
//! the same run each time. The bytes are in real files of a temporary directory; beside each file and
//! directory the disk keeps what would outlive a loss of power, and after one it rewrites the files to
//! that:
//! - of what was written to a file and not fsynced, nothing, everything, the first changes with a torn
//!   one at the end, or any sectors, with zeros where a length grew and its data did not arrive;
//! - of names in a directory without an fsync, the first changes: file systems with a journal change
//!   the names of one directory in order. Content and names have no order, nor have two directories;
//! - when the process alone is killed, everything, and still not fsynced;
//! - after a failed fsync, nothing that a later one could save (R1), and the power goes next.
//!
//! In some runs logs whose acknowledgements wait keep zeros ahead of their batches (ST-30).
//! Logs are compacted while appends go on, topics deleted and made again, transactions begun and ended,
//! file handles run out. Between lives a copy of what is there is damaged (`damage.rs`): bits are flipped,
//! files zeroed, cut, or put in another's place.
//!
//! # What is checked
//! After every start: what was reported as durable is there, byte for byte and in order; what else is
//! there was appended; after a kill without a power loss everything written is there; batches follow each
//! other without a gap and match their checksums; leader epochs are those of the batches; a snapshot of
//! producers and what is behind it give what all batches give (ST-32), the last stable offset too; no producer is forgotten with the
//! batches that retention took; the log
//! start is between the durable one and the last one; compaction has taken nothing but what it may
//! (`content.rs`), wherever it was cut off; no deleted topic is back, and no file of anything that was
//! interrupted is left. While it runs: reads are what was appended, lookups by time what a look at every
//! record gives, readers of committed data get what was committed; after a round of compaction every key is
//! there once; a lack of room or of handles takes no log offline and ends when there is some; a change that
//! fails with an EIO takes the directory offline, whoever asked for it (R1); events come
//! in order. Of a damaged copy: a start refuses it with the name of the file and changes nothing, or the
//! log is what it was, but for damaged batches that no start looks at; it is shorter only where a torn end
//! could be, and says so. A task that panics fails the run.
//!
//! Start reading at [`run`], then `life.rs`, `steps.rs`, `disk/mod.rs`, `model.rs`.

mod content;
mod damage;
pub mod dice;
pub mod disk;
mod life;
pub mod model;
mod panics;
mod partition;
mod reads;
mod run;
mod steps;
mod writes;

pub use run::{Failed, Tally, run};
