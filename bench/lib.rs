//! Load generator, floor and comparison reports.
//!
//! This room owns workloads, the load generator (closed and open loop), the floor, and how results are computed,
//! printed and written. It refuses to know the broker's insides: it starts the binary and talks Kafka to it. The
//! exception is [`reactor`], the microbenchmark of that one room.
//!
//! Definitions of what is measured are in `bench/README.md`. Start reading at [`workload`], then [`schedule`],
//! [`load`] and [`job`], and [`rounds`] for what a result holds; [`floor`] stands alone and is audited alone.

mod args;
pub mod backlog;
pub mod beside;
mod catalogue;
pub mod compact;
mod compare;
pub mod cpu;
pub mod durable;
pub mod end_to_end;
pub mod environment;
pub mod flat;
pub mod floor;
pub mod groups;
pub mod hgrm;
pub mod hot_partition;
pub mod idle;
pub mod job;
pub mod knee;
pub mod load;
pub mod overload;
pub mod overrides;
pub mod partitions;
pub mod plain;
pub mod process;
pub mod reactor;
pub mod recovery;
pub mod report;
pub mod rolls;
pub mod rounds;
pub mod schedule;
pub mod spread;
pub mod stage;
pub mod target;
pub mod workload;

pub use args::main;
