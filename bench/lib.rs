//! Load generator, floor and comparison reports.
//!
//! This room owns workloads, the closed-loop generator, the floor, and how results are computed and
//! printed. It refuses to know the broker's insides: it starts the binary and talks Kafka to it. The
//! exception is [`reactor`], the microbenchmark of that one room.
//!
//! Definitions of what is measured are in `bench/README.md`. Start reading at [`workload`], then [`load`] and
//! [`job`]; [`floor`] stands alone and is audited alone.

mod args;
pub mod compare;
pub mod cpu;
pub mod floor;
pub mod job;
pub mod load;
pub mod process;
pub mod reactor;
pub mod report;
pub mod workload;

pub use args::main;
